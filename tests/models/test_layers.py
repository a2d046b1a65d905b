import copy
import math

import numpy as np
import pytest
import torch
from torch.func import hessian, jacfwd, jacrev, vmap

from ifonly.errors import InputError
from ifonly.models import LocationScale
from ifonly.models.layers import ACTIVATIONS, BoundedLinear, Network, as_array, spectral_norm, tanh
from ifonly.testing.instances import NETWORK_MODELS

LIMITS = {"location-scale": (1.5, 0.2), "additive": 0.9, "post-nonlinear": 0.9, "monotone-flow": (1.0, 0.2, 0.1, 0.3)}


def limited_matrices(model) -> list[BoundedLinear]:
    return [m for network in model.networks() for m in network.matrices() if m.norm is not None]


def explicit_arrays(network: Network) -> dict[str, torch.Tensor]:
    return {
        "state": network.state.raw,
        "context": network.context.raw,
        "action": network.action.raw,
        "bias": network.biases[0],
        "output": network.layers[0].raw,
        "output_bias": network.biases[1],
    }


def assert_norms_equal_limits(model, tolerance: float) -> None:
    for matrix in limited_matrices(model):
        assert spectral_norm(matrix.weight()) == pytest.approx(matrix.norm, rel=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-11)])
@pytest.mark.parametrize("hidden", [(8,), (8, 30, 6)])
@pytest.mark.parametrize("kind", NETWORK_MODELS)
def test_norm_limits_hold_exactly_at_first_and_while_training(kind, hidden, dtype, tolerance, schema):
    model = NETWORK_MODELS[kind](schema, hidden=hidden, lipschitz=LIMITS[kind]).to(dtype)
    model.set_scaler(model.scaler)
    assert len(limited_matrices(model)) == len(model.networks()) * (len(hidden) + 1)
    assert_norms_equal_limits(model, tolerance)
    generator = torch.Generator().manual_seed(0)
    states, following = (torch.randn(32, 3, generator=generator, dtype=dtype) for _ in range(2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    before = limited_matrices(model)[0].weight().detach().clone()
    for _ in range(5):
        optimizer.zero_grad()
        (-model.log_prob(states, torch.zeros(32, 2, dtype=dtype), torch.arange(32) % 6, following).mean()).backward()
        optimizer.step()
        assert_norms_equal_limits(model, tolerance)
    assert not torch.allclose(before, limited_matrices(model)[0].weight())


@pytest.mark.parametrize("kind", NETWORK_MODELS)
@pytest.mark.parametrize("how", ["initialize", "load_state_dict", "load_weights"])
def test_new_weights_replace_what_was_baked(kind, how, schema):
    model, other = (NETWORK_MODELS[kind](schema, hidden=(8,), lipschitz=LIMITS[kind]) for _ in range(2))
    other.initialize(torch.Generator().manual_seed(7))
    model.bake_()
    assert model.is_baked()
    if how == "initialize":
        model.initialize(torch.Generator().manual_seed(7))
    elif how == "load_state_dict":
        copy.deepcopy(model).load_state_dict(other.state_dict())  # a copy forgets its own, not the original's
        assert model.is_baked()
        model.load_state_dict(other.state_dict())
    else:
        for network, source in zip(model.networks(), other.networks(), strict=True):
            network.load_weights("the", explicit_arrays(source))
    for matrix, wanted in zip(limited_matrices(model), limited_matrices(other), strict=True):
        assert torch.equal(matrix.weight(), wanted.weight())
    assert not model.is_baked()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(5,), (5, 6, 7)])
def test_network_constant_is_the_limit_for_every_activation(activation, hidden):
    network = Network((3, 2, 1), 4, hidden=hidden, activation=activation, lipschitz=0.7).double()
    network.initialize(torch.Generator().manual_seed(0))
    assert network.state_lipschitz() == pytest.approx(0.7, rel=1e-9)


def test_activation_slopes_are_true():
    line = torch.linspace(-50, 50, 200_001, dtype=torch.float64).requires_grad_()
    for function, slope in ACTIVATIONS.values():
        slopes = torch.autograd.grad(function(line).sum(), line)[0]
        assert slopes.max() <= slope
        assert slopes.max() >= 0.99 * slope


def test_context_and_action_do_not_count_in_the_norm():
    network = Network((3, 2, 1), 4, hidden=(5,), lipschitz=0.7)
    network.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():
        network.context.raw.mul_(100)
        network.action.raw.mul_(100)
    assert network.state_lipschitz() == pytest.approx(0.7, rel=1e-5)


def test_gradient_of_the_normalised_weight_against_finite_differences():
    matrix = BoundedLinear(4, 6, norm=1.3).double()
    matrix.initialize(torch.Generator().manual_seed(1))
    weights = torch.randn(6, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (matrix.weight() * weights).sum().backward()
    with torch.no_grad():
        for row, column in ((0, 0), (3, 2), (5, 3)):
            values = []
            for shift in (1e-6, -2e-6):
                matrix.raw[row, column] += shift
                values.append((matrix.weight() * weights).sum().item())
            matrix.raw[row, column] += 1e-6
            assert matrix.raw.grad[row, column].item() == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5)


@pytest.mark.parametrize("shape", [(4, 4), (2, 9), (9, 2), (1, 5), (5, 1)])
def test_spectral_norm_against_numpy(shape):
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    wanted = np.linalg.norm(weight.double().numpy(), ord=2)
    assert wanted <= spectral_norm(weight) <= wanted * (1 + 1e-11)


def test_spectral_norm_of_nothing_is_zero():
    assert spectral_norm(torch.zeros(4, 0)) == 0.0


def test_one_product_and_three_give_the_same():
    """Equal leading shapes take a shorter way than broadcast ones."""
    network = Network((3, 2, 1), 4, hidden=(5,)).double()
    network.initialize(torch.Generator().manual_seed(0))
    states, context, vectors = (
        torch.randn(7, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64) for n in (3, 2, 1)
    )
    together = network(states, context, vectors)
    crossed = network(states.unsqueeze(1), context.unsqueeze(1), vectors)
    assert torch.allclose(torch.stack([crossed[i, i] for i in range(7)]), together, atol=1e-14)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"activation": "cosine"}, "activation 'cosine' is unknown"),
        ({"hidden": ()}, "at least one hidden layer"),
        ({"hidden": (5, 0)}, "at least one hidden layer"),
        ({"hidden": (5.5,)}, "whole number"),
        ({"hidden": 5}, r"such as \(5,\)"),
        ({"lipschitz": (0.0, 1.0)}, "must be positive"),
        ({"lipschitz": (math.inf, 1.0)}, "must be positive"),
        ({"lipschitz": (1.0,)}, "one limit"),
        ({"prior": "cauchy"}, "noise prior 'cauchy' is unknown"),
    ],
)
def test_impossible_networks_are_refused(arguments, message, schema):
    with pytest.raises(InputError, match=message):
        LocationScale(schema, **arguments)


def test_widths_from_numpy_are_welcome(schema):
    assert LocationScale(schema, hidden=tuple(np.array([4, 5]))).settings()["hidden"] == [4, 5]


@pytest.mark.parametrize("values", [[[1.0], [1.0, 2.0]], "text", [None], [[math.nan]]])
def test_arrays_that_are_none_are_refused(values):
    with pytest.raises(InputError, match="the array"):
        as_array("the array", values)


def spread_values() -> torch.Tensor:
    """From denormal to huge, of both signs, and densely where the tangent bends."""
    sizes = torch.logspace(-320, 308, 20_001, dtype=torch.float64)
    return torch.cat([sizes, -sizes, torch.linspace(-25, 25, 200_001, dtype=torch.float64)])


def test_tanh_agrees_with_torch():
    values = spread_values()
    before = values.clone()
    assert float((tanh(values) - torch.tanh(values)).abs().max()) <= 4e-16
    assert float(tanh(values).abs().max()) == 1.0
    assert torch.equal(values, before)
    single = values.float()
    assert torch.equal(tanh(single), torch.tanh(single))


def test_tanh_at_the_extremes():
    limits = torch.tensor([math.inf, -math.inf, 1e308, -1e308, 5e-324, -5e-324, 0.0], dtype=torch.float64)
    assert tanh(limits).tolist() == [1.0, -1.0, 1.0, -1.0, 0.0, 0.0, 0.0]
    assert tanh(torch.tensor([math.nan], dtype=torch.float64)).isnan().all()
    assert tanh(torch.empty(0, 3, dtype=torch.float64)).shape == (0, 3)


def test_tanh_has_the_slopes_of_torch():
    points = torch.linspace(-6, 6, 41, dtype=torch.float64)
    slopes = []
    for function in (tanh, torch.tanh):
        variable = points.clone().requires_grad_()
        slopes.append(torch.autograd.grad(function(variable).sum(), variable)[0])
    assert torch.equal(*slopes)
    assert torch.autograd.gradcheck(tanh, (points[:5].clone().requires_grad_(),))
    # Weights that are trained behind frozen inputs.
    gradients = []
    for function in (tanh, torch.tanh):
        weight = torch.eye(41, dtype=torch.float64, requires_grad=True)
        function(points @ weight).square().sum().backward()
        gradients.append(weight.grad)
    assert torch.equal(*gradients)


TRANSFORMS = {
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "hessian": hessian,
    "jacrev of jacfwd": lambda function: jacrev(jacfwd(function)),
    "jacrev of jacrev": lambda function: jacrev(jacrev(function)),
    "jacfwd of jacfwd": lambda function: jacfwd(jacfwd(function)),
    "third": lambda function: jacfwd(hessian(function)),
    "vmap": lambda function: lambda point: vmap(function)(point.expand(4, -1)),
    "vmap of jacrev": lambda function: lambda point: vmap(jacrev(function))(point.expand(4, -1)),
    "vmap of jacfwd": lambda function: lambda point: vmap(jacfwd(function))(point.expand(4, -1)),
    "vmap of hessian": lambda function: lambda point: vmap(hessian(function))(point.expand(4, -1)),
}


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # by torch, when it first differentiates forward
@pytest.mark.parametrize("no_grad", [False, True], ids=["grad", "no grad"])
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_tanh_can_be_transformed(transform, no_grad):
    """What is computed in place must not be what a derivative needs."""
    point = torch.tensor([0.3, -1.2, 0.0, 4.0], dtype=torch.float64)
    weight = torch.linspace(-1, 1, 16, dtype=torch.float64).view(4, 4)
    with torch.set_grad_enabled(not no_grad):
        found = transform(lambda values: tanh(tanh(values @ weight) * 2))(point)
        wanted = transform(lambda values: torch.tanh(torch.tanh(values @ weight) * 2))(point)
    assert found.shape == wanted.shape
    assert torch.allclose(found, wanted, rtol=1e-12, atol=1e-14)
