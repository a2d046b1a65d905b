import math

import pytest
import torch

from ifonly.data import ActionSpace, Feature, Schema
from ifonly.errors import InputError
from ifonly.models import FlowRanges, MonotoneFlow

ONE = Schema((Feature("x", "dynamic"),), ActionSpace.categories(["only"]))
NOTHING, ONLY = torch.zeros(0, dtype=torch.float64), torch.tensor(0)


def one_unit_flow(ranges: FlowRanges) -> MonotoneFlow:
    """Four networks tanh(x) of one unit, so that every network's constant is 1, attained at 0."""
    model = MonotoneFlow(ONE, hidden=(1,), ranges=ranges).double()
    model.set_scaler(model.scaler)
    with torch.no_grad():
        for network in model.networks():
            network.state.raw.fill_(1.0)
            network.action.raw.zero_()
            network.layers[0].raw.fill_(1.0)
    return model


def test_step_is_the_documented_formula():
    model = one_unit_flow(FlowRanges((0.5, 4.0), (-1.0, 2.0), (0.5, 2.5)))
    x, u = 0.7, -1.3
    squashed = 1 / (1 + math.exp(-math.tanh(x)))
    scale, skewness, tails = 0.5 + 3.5 * squashed, -1.0 + 3.0 * squashed, 0.5 + 2.0 * squashed
    wanted = math.tanh(x) + scale * math.sinh(tails * math.asinh(u) + skewness)
    found = model.step(torch.tensor([x]).double(), NOTHING, ONLY, torch.tensor([u]).double())
    assert found.item() == pytest.approx(wanted, rel=1e-7)


def test_constant_is_the_documented_formula():
    model = one_unit_flow(FlowRanges((0.5, 4.0), (-1.0, 2.0), (0.5, 2.5)))
    argument = 2.5 * math.asinh(1.3) + 2.0
    wanted = 1 + (3.5 / 4) * math.sinh(argument) + 4.0 * (0.75 + 0.5 * math.asinh(1.3)) * math.cosh(argument)
    found = model.lipschitz(NOTHING, ONLY, torch.tensor([-1.3]).double())
    assert found.item() == pytest.approx(wanted, rel=1e-7)


@pytest.mark.parametrize("active", ["location", "scale", "skewness", "tails"])
def test_each_term_of_the_constant_is_nearly_attained(active):
    """With one function moving, in a narrow range, K(u) is not just valid but close: no term can be spared."""
    model = one_unit_flow(FlowRanges((1.0, 1.05), (-0.02, 0.02), (0.99, 1.01)))
    with torch.no_grad():
        for network in model.networks():
            if network is not getattr(model, active):
                network.state.raw.zero_()
    states = torch.linspace(-1, 1, 2001, dtype=torch.float64).unsqueeze(1).requires_grad_()
    noise = torch.tensor([1.5], dtype=torch.float64)
    slopes = torch.autograd.grad(model.step(states, NOTHING, ONLY, noise).sum(), states)[0]
    constant = model.lipschitz(NOTHING, ONLY, noise)
    assert 0.9 * constant <= slopes.max() <= constant


@pytest.mark.parametrize("limits", [(0.8, 0.3, 0.2, 0.1), (None, 0.3, None, None)])
def test_limits_hold_for_the_functions_and_not_just_for_their_networks(limits, schema):
    model = MonotoneFlow(schema, hidden=(9, 9), lipschitz=limits)
    spans = (model.ranges.scale, model.ranges.skewness, model.ranges.tails)
    slopes = [1.0, *((high - low) / 4 for low, high in spans)]
    for network, slope, limit in zip(model.networks(), slopes, limits, strict=True):
        if limit is not None:
            assert network.state_lipschitz() * slope == pytest.approx(limit, rel=1e-5)


def test_density_stays_finite_far_out(schema):
    """log cosh must not overflow where cosh does."""
    model = MonotoneFlow(schema, hidden=(4,))
    states, context, actions = torch.zeros(3, 3), torch.zeros(3, 2), torch.tensor([0, 1, 2])
    far = torch.tensor([[1e6], [-1e6], [1e12]]).expand(3, 3)
    noise, log_det = model.invert(states, context, actions, far)
    assert torch.isfinite(noise).all()
    assert torch.isfinite(log_det).all()
    assert (noise.sign() == far.sign()).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": (0.0, 1.0)}, "both positive"),
        ({"scale": (2.0, 1.0)}, "low < high"),
        ({"tails": (-1.0, 1.0)}, "range of tails"),
        ({"skewness": (0.0, math.inf)}, "finite"),
    ],
)
def test_impossible_ranges_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        FlowRanges(**arguments)


@pytest.mark.parametrize("limits", [(1.0, 0.1), 1.0])
def test_a_wrong_number_of_limits_is_refused(limits, schema):
    with pytest.raises(InputError, match="one limit"):
        MonotoneFlow(schema, lipschitz=limits)
