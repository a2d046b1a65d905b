import math

import pytest
import torch
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st

from ifonly.errors import InputError
from ifonly.models import Additive, PostNonlinear, Spline
from ifonly.models.post_nonlinear import Distortion


def random_distortion(seed: int, form: Spline, strength: float, size: int = 2) -> Distortion:
    generator = torch.Generator().manual_seed(seed)
    distortion = Distortion(size, form).double()
    with torch.no_grad():
        for parameter in distortion.parameters():
            parameter.copy_(strength * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return distortion


def dense_line(reach: float, count: int = 20_001) -> torch.Tensor:
    return torch.linspace(-1.3 * reach, 1.3 * reach, count, dtype=torch.float64).unsqueeze(1).expand(-1, 2)


forms = st.builds(Spline, bins=st.integers(2, 9), reach=st.floats(0.5, 8), steepness=st.floats(1.5, 1e3))


@settings(deadline=None, derandomize=True, max_examples=some(60))
@given(seed=st.integers(0, 10**6), form=forms, strength=st.floats(0, 20))
def test_slope_bound_holds_on_a_dense_line_and_is_close(seed, form, strength):
    distortion = random_distortion(seed, form, strength)
    line = dense_line(form.reach).clone().requires_grad_()
    slopes = torch.autograd.grad(distortion(line).sum(), line)[0].amax(0)
    bound = distortion.steepest_slopes()
    assert (slopes <= bound).all()
    # Between two samples a spline of this steepness hides little.
    if form.steepness < 20:
        assert (bound <= 1.05 * slopes).all()


@settings(deadline=None, derandomize=True, max_examples=some(40))
@given(seed=st.integers(0, 10**6), form=forms, strength=st.floats(0, 5))
def test_distortion_increases_and_inverts(seed, form, strength):
    distortion = random_distortion(seed, form, strength)
    line = dense_line(form.reach, 2_001)
    bent = distortion(line)
    assert (bent.diff(dim=0) > 0).all()
    back, log_slopes = distortion.invert(bent)
    assert (back - line).abs().max() < 1e-9 * form.steepness * form.reach
    points = bent.detach().requires_grad_()
    slopes = torch.autograd.grad(distortion.invert(points)[0].sum(), points)[0]
    assert torch.allclose(log_slopes, slopes.log(), atol=1e-7)


def test_outside_its_reach_it_is_the_identity():
    distortion = random_distortion(0, Spline(bins=5, reach=2.0), 3.0)
    outside = torch.tensor([[-2.1, 2.1], [-100.0, 1e6]], dtype=torch.float64)
    assert torch.equal(distortion(outside), outside)
    inside = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    assert not torch.allclose(distortion(inside), inside)


def test_a_fresh_model_is_the_additive_one(schema):
    """The distortion starts as the identity."""
    plain, bent = Additive(schema, hidden=(5,)).double(), PostNonlinear(schema, hidden=(5,)).double()
    generator = torch.Generator().manual_seed(0)
    inputs = (
        torch.randn(20, 3, generator=generator, dtype=torch.float64),
        torch.randn(20, 2, generator=generator, dtype=torch.float64),
        torch.arange(20) % 6,
        torch.randn(20, 3, generator=generator, dtype=torch.float64),
    )
    for model in (plain, bent):
        model.set_scaler(model.scaler)
    assert torch.allclose(plain.step(*inputs), bent.step(*inputs), atol=1e-12)
    assert torch.allclose(plain.log_prob(*inputs), bent.log_prob(*inputs), atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bins": 1}, "bins"),
        ({"bins": 2.5}, "bins"),
        ({"reach": 0.0}, "reach"),
        ({"reach": math.inf}, "reach"),
        ({"steepness": 1.0}, "steepness"),
    ],
)
def test_impossible_splines_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Spline(**arguments)
