import numpy as np
import pytest
import torch

from ifonly.errors import InputError
from ifonly.models import LinearModel, PartitionModel


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "state_matrices": rng.normal(size=(6, 3, 3)),
        "offsets": rng.normal(size=(6, 3)),
        "context_matrix": rng.normal(size=(3, 2)),
        "noise_scale": rng.uniform(0.1, 2, size=3),
    }


def test_linear_model_is_the_formula(schema):
    values = arrays()
    model = LinearModel(schema, **values)
    rng = np.random.default_rng(1)
    for action in range(6):
        x, c, u = rng.normal(size=3), rng.normal(size=2), rng.normal(size=3)
        wanted = (
            values["state_matrices"][action] @ x
            + values["context_matrix"] @ c
            + values["offsets"][action]
            + values["noise_scale"] * u
        )
        inputs = [torch.as_tensor(v) for v in (x, c, np.array(action), u)]
        np.testing.assert_allclose(model.step(*inputs).numpy(), wanted, rtol=1e-13)


def test_linear_constants_are_exact_norms(schema):
    model = LinearModel(schema, arrays()["state_matrices"])
    norms = np.linalg.norm(arrays()["state_matrices"], ord=2, axis=(1, 2))
    found = model.lipschitz(torch.zeros(2), torch.arange(6), torch.zeros(3))
    np.testing.assert_allclose(found.numpy(), norms, rtol=1e-11)
    assert (found.numpy() >= norms).all()
    assert model.lipschitz(torch.zeros(4, 1, 2), torch.arange(6), torch.zeros(3)).shape == (4, 6)
    assert model.lipschitz(torch.zeros(2), torch.tensor(0), torch.zeros(5, 3)).shape == (5,)


def test_linear_samples_have_the_noise_scale(schema):
    values = arrays()
    model = LinearModel(schema, **values)
    draws = model.sample(
        torch.zeros(5000, 3).double(), torch.zeros(2).double(), torch.tensor(2), generator=torch.Generator()
    )
    deviation = (draws - draws.mean(0)).std(0).numpy()
    np.testing.assert_allclose(deviation, values["noise_scale"], rtol=6 / (2 * 5000) ** 0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state_matrices": np.zeros((5, 3, 3))}, r"state_matrices has shape \[5, 3, 3\]; expected \[6, 3, 3\]"),
        ({"context_matrix": np.zeros((2, 3))}, "context_matrix has shape"),
        ({"offsets": [0.0]}, "offsets has shape"),
        ({"noise_scale": [1.0, 0.0, 1.0]}, "must be positive"),
        ({"noise_scale": [1.0, np.nan, 1.0]}, "not finite"),
    ],
)
def test_linear_model_says_what_is_wrong(changes, message, schema):
    with pytest.raises(InputError, match=message):
        LinearModel(schema, **{**arrays(), **changes})


def test_partition_model_is_the_mechanism_of_the_proof():
    model = PartitionModel()
    states = torch.tensor([[3.0, 2.0], [-1.0, 5.0]], dtype=torch.float64)
    noise = torch.tensor([0.5, 7.0], dtype=torch.float64)
    nothing = torch.zeros(0, dtype=torch.float64)
    assert model.step(states, nothing, torch.tensor(0), noise).tolist() == [[3.5, 7.0], [-0.5, 7.0]]
    assert model.step(states, nothing, torch.tensor(1), noise).tolist() == [[1.5, 7.0], [-5.5, 7.0]]
    constants = model.lipschitz(nothing, torch.arange(2), noise).tolist()
    assert constants == pytest.approx([1.0, 2**0.5], rel=1e-11)
    assert model.schema.actions.labels == ("null", "diff")
    assert model.elementwise
