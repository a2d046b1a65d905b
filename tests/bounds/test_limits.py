"""Limits of maps, each against what it limits."""

import pytest
import torch
from torch import Tensor

from ifonly.bounds.limits import LARGE, Scale, along_square, capped, form_limit, growth, single_means_single


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_forms_along_flows() -> None:
    """The largest value of y.F^T Q F y over unit y, which has a low rank as often as not."""
    for rank in (1, 2, 5):
        root, flow = draw(60, 5, rank), draw(60, 5, 5, seed=1)
        flow[:20] = flow[:20, :, :1] @ flow[:20, :1]
        form = root @ root.mT
        truth = torch.linalg.eigvalsh(flow.mT @ form @ flow)[:, -1]
        ratio = form_limit(form, flow @ flow.mT).squeeze(1) / truth
        assert float(ratio.min()) >= 1 - 1e-12
        assert float(ratio.max()) <= 5 ** (1 / 8) * (1 + 1e-8)
    assert float(form_limit(torch.zeros(1, 5, 5), torch.zeros(1, 5, 5, dtype=torch.float64))) <= 1e-200


def test_bilinear_maps_along_flows() -> None:
    tensors = draw(3, 4, 5, 5, seed=2)
    tensors = tensors + tensors.mT
    flow = draw(3, 6, 2, 5, 5, seed=3)
    flow[:, :3] = flow[:, :3, :, :, :1] @ flow[:, :3, :, :1]
    once = torch.einsum("poij,pcajk->pcaoik", tensors, flow)
    twice = torch.einsum("pcaji,pcaojk->pcaoik", flow, once)
    wanted = [torch.linalg.vector_norm(one, dim=(3, 4, 5)) for one in (twice, once)]
    found = along_square(tensors, flow @ flow.mT)
    for limits, truth in zip(found, wanted, strict=False):
        # A product with its transpose knows half the digits of what nearly cancels.
        torch.testing.assert_close(limits, truth, rtol=1e-5, atol=1e-5)
        assert bool((limits >= truth * (1 - 1e-9)).all())
    torch.testing.assert_close(found[2], tensors.flatten(1).norm(dim=1)[:, None, None].expand(3, 6, 2))


def bent_line(x: Tensor, curvature: float, third: float) -> Tensor:
    return 0.7 * x + curvature * x**2 / 2 + third * x**3 / 6


@pytest.mark.parametrize("value", [-8.0, -1.0, 0.0, 3.0])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_slopes_of_softplus_nearby(value: float, sign: float) -> None:
    """Of a network that is a polynomial of one state, times the noise: within the limits, and close to them."""
    curvature, third, noise = 0.4, 0.3, -1.7
    for near in (0.01, 0.5, 2.0):
        x = sign * torch.linspace(0, near, 101, dtype=torch.float64)
        slopes = noise * torch.sigmoid(value + sign * bent_line(x.abs(), curvature, third))
        given = [torch.full((1, 1), size, dtype=torch.float64) for size in (0.7, curvature, near, 0.0, noise)]
        given[3] = slopes[:1].unsqueeze(0)
        limit = float(growth(given[0], given[1], third, *given[2:]))
        change = float((slopes - slopes[0]).abs().max())
        assert change <= limit <= abs(noise)
        if near == 0.01:
            assert limit <= 1.02 * change / (1 - float(torch.sigmoid(torch.tensor(value))))


@pytest.mark.parametrize("value", [-2.0, -0.5, 0.0, 1.0])
def test_what_softplus_adds_to_third_derivatives(value: float) -> None:
    """The third derivative of softplus(n) less softplus' times that of n, for n a polynomial of one state."""
    curvature, third = 0.4, 0.3
    for reach in (1e-3, 0.5, 2.0):
        x = torch.linspace(-reach, reach, 201, dtype=torch.float64)
        n = value + bent_line(x, curvature, third)
        steep, bent = 0.7 + curvature * x + third * x**2 / 2, curvature + third * x
        s = torch.sigmoid(n)
        s2, s3 = s * (1 - s), s * (1 - s) * (1 - 2 * s)
        truth = (s3 * steep**3 + 3 * s2 * steep * bent).abs()
        one = torch.ones(1, 1, dtype=torch.float64)
        scale = Scale((100.0, 100.0, third), 0.7 * one, curvature * one, one, one)
        limit = float(scale.outer(reach * one))
        assert float(truth.max()) <= limit
        if value == -0.5 and reach < 0.1:
            assert limit <= 1.3 * float(truth.max())
        tight = Scale((0.7, curvature, third), 0.7 * one, curvature * one, one, one)
        assert float(tight.outer(reach * one)) <= limit


def test_overflow_is_large() -> None:
    values = torch.tensor([1.0, torch.inf, torch.nan, 1e200])
    assert capped(values.double()).tolist() == [1.0, LARGE, LARGE, LARGE]


def test_single_precision_is_not_less() -> None:
    before = torch.get_float32_matmul_precision()
    seen = []

    @single_means_single
    def failing() -> None:
        seen.append(torch.get_float32_matmul_precision())
        raise ValueError

    try:
        torch.set_float32_matmul_precision("medium")
        with pytest.raises(ValueError):  # noqa: PT011
            failing()
        assert seen == ["highest"]
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
