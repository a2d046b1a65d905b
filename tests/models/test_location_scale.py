import numpy as np
import pytest
import torch

from ifonly.data import ActionSpace, Feature, Schema
from ifonly.errors import InputError
from ifonly.models import LocationScale
from ifonly.testing import check_transition_model

HIDDEN = 6


def random_arrays(seed: int, *, states: int = 3, context: int = 2, action: int = 2) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {
        "state": (HIDDEN, states),
        "context": (HIDDEN, context),
        "action": (HIDDEN, action),
        "bias": (HIDDEN,),
        "output": (states, HIDDEN),
        "output_bias": (states,),
    }
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def evaluate(arrays: dict[str, np.ndarray], x, c, v):
    """A network by hand."""
    inner = arrays["state"] @ x + arrays["context"] @ c + arrays["action"] @ v + arrays["bias"]
    return arrays["output"] @ np.tanh(inner) + arrays["output_bias"]


def random_covariance(seed: int) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(3, 3))
    return root @ root.T + 0.1 * np.eye(3)


def from_weights(schema, **changes):
    arguments = {"location": random_arrays(1), "scale": random_arrays(2), "covariance": random_covariance(3)}
    return LocationScale.from_weights(schema, **{**arguments, **changes})


@pytest.mark.parametrize("scaled", [False, True])
def test_from_weights_is_the_network_written_by_hand(schema, scaler, scaled):
    model = from_weights(schema, scaler=scaler if scaled else None)
    rng = np.random.default_rng(0)
    vectors = np.array(schema.actions.vectors)
    if scaled:
        vectors = (vectors - scaler.actions.offset) / scaler.actions.scale
    for action in range(len(schema.actions)):
        x, c, u = rng.normal(size=3), rng.normal(size=2), rng.normal(size=3)
        location = evaluate(random_arrays(1), x, c, vectors[action])
        scale = np.log1p(np.exp(evaluate(random_arrays(2), x, c, vectors[action])))
        inputs = (torch.as_tensor(x), torch.as_tensor(c), torch.tensor(action))
        found = model.step(*inputs, torch.as_tensor(u)).detach().numpy()
        np.testing.assert_allclose(found, location + scale * u, rtol=1e-12, atol=1e-12)
        density = model.log_prob(*inputs, torch.as_tensor(found)).item()
        covariance = random_covariance(3)
        quadratic = u @ np.linalg.solve(covariance, u)
        wanted = -0.5 * (quadratic + np.linalg.slogdet(2 * np.pi * covariance)[1]) - np.log(scale).sum()
        assert density == pytest.approx(wanted, rel=1e-9)


def test_from_weights_keeps_promises_and_the_exact_constant(schema):
    model = from_weights(schema)
    check_transition_model(model)
    assert next(model.parameters()).dtype == torch.float64
    location, scale = (
        np.linalg.norm(a["state"], 2) * np.linalg.norm(a["output"], 2) for a in (random_arrays(1), random_arrays(2))
    )
    noise = torch.tensor([0.5, -2.0, 1.0], dtype=torch.float64)
    found = model.lipschitz(torch.zeros(2, dtype=torch.float64), torch.tensor(0), noise).item()
    assert found == pytest.approx(location + 2.0 * scale, rel=1e-9)


def test_from_weights_takes_lists_tensors_and_read_only_arrays(schema):
    location, scale = random_arrays(1), random_arrays(2)
    plain = from_weights(schema).fingerprint()
    assert from_weights(schema, location={k: v.tolist() for k, v in location.items()}).fingerprint() == plain
    tensors = {k: torch.tensor(v, requires_grad=True) for k, v in scale.items()}
    assert from_weights(schema, scale=tensors).fingerprint() == plain
    for array in location.values():
        array.flags.writeable = False
    assert from_weights(schema, location=location).fingerprint() == plain


def test_from_weights_copies(schema):
    arrays = random_arrays(1)
    model = from_weights(schema, location=arrays)
    before = model.fingerprint()
    arrays["state"][:] = 0
    assert model.fingerprint() == before


def test_from_weights_without_context_needs_no_context_array():
    schema = Schema((Feature("x", "dynamic"),), ActionSpace.from_vectors([[0.0], [1.0]]))
    arrays = random_arrays(1, states=1, context=0, action=1)
    del arrays["context"]
    model = LocationScale.from_weights(schema, location=arrays, scale=arrays, covariance=[[1.0]])
    check_transition_model(model)


def broken(**changes):
    arrays = {**random_arrays(1), **changes}
    return {name: array for name, array in arrays.items() if array is not None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"location": broken(state=np.zeros((HIDDEN, 4)))}, r"location network: array 'state' has shape \[6, 4\]"),
        ({"scale": broken(output=np.zeros((HIDDEN, 3)))}, r"scale network: array 'output' .* expected \[3, 6\]"),
        ({"scale": broken(output_bias=None)}, "scale network: array 'output_bias' .* is missing"),
        ({"location": broken(context=None)}, "location network: array 'context' .* is missing"),
        ({"location": broken(weights=np.zeros(3))}, "location network: unknown arrays"),
        ({"location": broken(bias=np.zeros(4))}, "same length H"),
        ({"location": broken(bias=None), "scale": broken(bias=None)}, "same length H"),
        ({"location": broken(state=np.full((HIDDEN, 3), np.nan))}, "'state': has entries that are not finite"),
        ({"location": broken(state=[[1.0], [1.0, 2.0]])}, "'state': not a rectangular array"),
        ({"covariance": np.eye(2)}, "covariance: shape"),
        ({"covariance": -np.eye(3)}, "not positive definite"),
        ({"covariance": np.full((3, 3), np.inf)}, "covariance: has entries that are not finite"),
        ({"activation": "step"}, "activation 'step' is unknown"),
    ],
)
def test_from_weights_says_what_is_wrong(changes, message, schema):
    with pytest.raises(InputError, match=message):
        from_weights(schema, **changes)


def test_one_network_may_be_limited_and_the_other_free(schema):
    model = LocationScale(schema, hidden=(8,), lipschitz=(None, 0.1))
    assert model.scale.state_lipschitz() == pytest.approx(0.1, rel=1e-5)
    assert model.location.state_lipschitz() != pytest.approx(0.1, rel=1e-2)
    assert model.settings()["lipschitz"] == [None, 0.1]


def test_default_settings_are_the_papers(schema):
    assert LocationScale(schema).settings() == {
        "hidden": [200],
        "activation": "tanh",
        "lipschitz": None,
        "prior": "gaussian",
    }


@pytest.mark.parametrize("bias", [0.5, [[0.5]], ["a"]])
def test_from_weights_names_a_bias_of_the_wrong_shape(schema, bias):
    with pytest.raises(InputError, match="bias"):
        from_weights(schema, location={"bias": bias}, scale={"bias": bias})
