"""Bounds on maps, and on what a step's expansions leave out, each against what it bounds."""

import pytest
import torch
from smooth_problems import FAMILIES, family
from torch import Tensor
from torch.func import jacfwd, jacrev, vmap

from ifonly.bounds.taylor import local_expansion, norms
from ifonly.bounds.taylor.local_expansion import LocalExpansion, ScaleExpansion, expand_step
from ifonly.bounds.taylor.norms import (
    LARGE,
    Grams,
    capped,
    framed_eigenvalue_bound,
    framed_form_norm,
    framed_trilinear,
    frobenius,
    full_precision_float32_matmul,
    packed_framed_trilinear,
    quartic_seminorms,
    trace,
)
from ifonly.bounds.taylor.remainders import FramedScale, ScaleBounds, step_remainders, step_remainders_anywhere
from ifonly.models.base import TransitionModel
from ifonly.models.smooth import pairs, spread, triples, unpacked

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
"""By torch, when it first differentiates forward."""


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit(vectors: Tensor) -> Tensor:
    return torch.nn.functional.normalize(vectors, dim=-1)


def symmetric(count: int, outputs: int, size: int, seed: int = 0) -> Tensor:
    """Trilinear maps [N, O, D, D, D], symmetric in the last three."""
    drawn = draw(count, outputs, size, size, size, seed=seed)
    orders = ((2, 3, 4), (2, 4, 3), (3, 2, 4), (3, 4, 2), (4, 2, 3), (4, 3, 2))
    return torch.stack([drawn.permute(0, 1, *order) for order in orders]).sum(0)


def full(packed: Tensor | None, size: int = 3) -> Tensor:
    """Maps [N, O, D, D, D] of packed entries."""
    assert packed is not None
    return spread(packed, triples(size, packed.device)[1]).unflatten(2, (size, size, size))


def cubed(tensors: Tensor, z: Tensor) -> Tensor:
    """T along z [N, S, M, G, D], three times: [N, S, M, G, O]."""
    return torch.einsum("noijk,nsmgi,nsmgj,nsmgk->nsmgo", tensors, z, z, z)


def test_forms_in_frames() -> None:
    """The largest value of y.F^T Q F y over unit y, which has a low rank as often as not."""
    for rank in (1, 2, 5):
        root, flow = draw(60, 5, rank), draw(60, 5, 5, seed=1)
        flow[:20] = flow[:20, :, :1] @ flow[:20, :1]
        form = root @ root.mT
        truth = torch.linalg.eigvalsh(flow.mT @ form @ flow)[:, -1]
        ratio = framed_eigenvalue_bound(form, flow @ flow.mT).squeeze(1) / truth
        assert float(ratio.min()) >= 1 - 1e-12
        assert float(ratio.max()) <= 5 ** (1 / 8) * (1 + 1e-8)
    zero = torch.zeros(1, 5, 5, dtype=torch.float64)
    assert float(framed_eigenvalue_bound(zero, zero)) <= 1e-200


@pytest.mark.parametrize("precision", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("size", [1, 3])
def test_framed_trilinear_maps(size: int, outputs: int, precision: torch.dtype) -> None:
    tensors, frames = symmetric(5, outputs, size), draw(5, 6, size, size, seed=1)
    frames[:, :2] = frames[:, :2, :, :1] @ frames[:, :2, :1]  # of low rank
    framed, grams = framed_trilinear(tensors.to(precision), frames)
    found = grams.bounds(frames)
    once = torch.einsum("noijk,nsia->nsoajk", tensors, frames)
    twice = torch.einsum("nsoajk,nsjb->nsoabk", once, frames)
    thrice = torch.einsum("nsoabk,nskc->nsoabc", twice, frames)
    close = {"rtol": 1e-4, "atol": 1e-4} if precision == torch.float32 else {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(framed.double(), thrice.movedim(2, -1), **close)
    largest = torch.linalg.matrix_norm(thrice.movedim(2, -1).flatten(3), ord=2)
    never = tensors.flatten(1).norm(dim=1)
    for bounds, exact, above in (
        (found.once.squeeze(-1), once.flatten(2).norm(dim=-1), 1.0),
        (found.twice.squeeze(-1), twice.flatten(2).norm(dim=-1), 1.0),
        (found.thrice.squeeze(-1), largest, 1.1),
        (found.plain.flatten(), never, 1.0),
    ):
        assert bounds.dtype == torch.float64
        assert bool((bounds >= exact * (1 - 1e-14)).all())
        assert bool((bounds <= above * 1.001 * exact + 1e-3 * float(never.max())).all())
    radii, off = torch.tensor([0.1, 1.0, 3.0], dtype=torch.float64), draw(5, 6, 3, seed=2).abs()
    off[:, 0] = 0.0
    mixed = found.mixed(radii, off)
    # Unit vectors [N, S, M, G, D] for each radius, and what is off.
    y, away = (unit(draw(5, 6, 40, 3, size, seed=seed)) for seed in (3, 4))
    first = torch.einsum("nsij,nsmgj->nsmgi", frames, y * radii.unsqueeze(-1))
    whole = first + away * off[:, :, None, :, None]
    difference = (cubed(tensors, whole) - cubed(tensors, first)).norm(dim=-1)
    assert bool((difference <= mixed.unsqueeze(2) + 1e-10 * (1 + difference)).all())
    assert bool((cubed(tensors, whole).norm(dim=-1) <= found.bound(radii, off).unsqueeze(2) * (1 + 1e-12)).all())
    if size == outputs == 1:
        assert bool((difference.amax(2) >= 0.99 * mixed - 1e-12).all()), "all terms of one sign"


@pytest.mark.parametrize("few", [True, False], ids=["packed", "by outputs"])
@pytest.mark.parametrize("precision", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_packed_maps_in_frames(precision: torch.dtype, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    count, outputs, several, size = 3, 5, 2, 4
    tensors, frames = symmetric(count, outputs, size), draw(count, several, size, size, seed=1)
    frames[:, 0] = frames[:, 0, :, :1] @ frames[:, 0, :1]  # of low rank
    (i, j, k), places = triples(size, frames.device)
    packed = tensors[:, :, i, j, k]
    torch.testing.assert_close(spread(packed, places).view_as(tensors), tensors)
    if not few:
        monkeypatch.setattr(norms, "PACKED_SIZE", 3)
    found, wanted = packed_framed_trilinear(packed.to(precision), frames), framed_trilinear(tensors, frames)[1]
    close = {"rtol": 1e-5, "atol": 1e-4} if precision == torch.float32 else {"rtol": 1e-12, "atol": 1e-10}
    torch.testing.assert_close(found.plain, wanted.plain, **close)
    torch.testing.assert_close(found.framed, wanted.framed, **close)
    bounds, exact = found.bounds(frames), framed_trilinear(tensors, frames)[1]
    for mine, other in zip(*(vars(each.bounds(frames)).values() for each in (found, exact)), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=0.0)
    largest = torch.einsum("noijk,nsia,nsjb,nskc->nsaobc", tensors, frames, frames, frames).flatten(3)
    assert bool((bounds.thrice.squeeze(-1) >= torch.linalg.matrix_norm(largest, ord=2) * (1 - 1e-14)).all())


def test_grams_of_tiny_maps_are_not_below_the_truth() -> None:
    """In wide models Gram matrices are products in float32, where squares of tiny numbers underflow."""
    size, count = 13, 4
    entries = draw(1, 3, 455) * torch.tensor([1e-15, 1e-20, 1e-24, 1e-30], dtype=torch.float64).view(-1, 1, 1)
    for frame in (torch.eye(size, dtype=torch.float64), draw(size, size, seed=1)):
        frames = frame.expand(count, 1, -1, -1)
        found = packed_framed_trilinear(entries.float(), frames).bounds(frames)
        maps = [full(entries, size)]
        for _ in range(3):
            maps.append(torch.einsum("noijk,kc->nocij", maps[-1], frame))
        exact = [one.flatten(1).norm(dim=1) for one in maps[:3]]
        exact.append(torch.linalg.matrix_norm(maps[3].transpose(1, 2).flatten(2), 2))
        for bound, norm in zip(vars(found).values(), exact, strict=True):
            assert bool((bound.flatten() >= norm).all())
            assert bool((bound.flatten() <= 1.2 * norm + 1e-12).all()), "and hardly above it"


def test_grams_of_steps_stand_together() -> None:
    """Each with the frames that it has, zero for the others: bounds are those of each by itself."""
    tensors, frames = symmetric(6, 2, 3).unflatten(0, (2, 3)), draw(2, 3, 3, 3, 3, seed=1)  # of 2 problems, 3 steps
    steps = [framed_trilinear(tensors[:, t], frames[:, t, : t + 1])[1] for t in range(3)]
    found = Grams.of_steps(steps, 3).bounds(frames.flatten(0, 1))
    for t, step in enumerate(steps):
        wanted = step.bounds(frames[:, t, : t + 1])
        for name, table in vars(wanted).items():
            mine = getattr(found, name).unflatten(0, (2, 3))[:, t, : t + 1]
            torch.testing.assert_close(mine, table, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("scale", [1e-25, 1e-3, 1.0, 1e4])
def test_lengths_of_forms_in_frames(scale: float) -> None:
    """Just above the truth, also where the forms are large and what is left of them in frames is small."""
    for size, groups, count, outputs in ((1, 2, 3, 2), (3, 4, 5, 2), (9, 6, 25, 9), (14, 3, 2, 3)):
        frames = draw(groups, size, size, seed=1)
        frames[0] = 0.0
        frames[1] = frames[1, :, :1] @ frames[1, :1]  # of rank 1
        i, j = pairs(size, frames.device)[0]
        forms = scale * draw(groups * count, outputs, len(i), seed=2)
        full, each = unpacked(forms, size), frames.repeat_interleave(count, 0).unsqueeze(1)
        if size > 1:  # and forms that are nothing where the frame looks
            across = torch.linalg.svd(each)[0][..., -1:]
            full[-count:] = (scale * across @ across.mT)[-count:]
            forms[-count:] = full[-count:, :, i, j]
        exact = (each.mT @ full @ each).flatten(1).norm(dim=1)
        found = framed_form_norm(forms, frames).squeeze(1)
        assert bool((found >= exact).all())
        room = 1e-4 * forms.flatten(1).norm(dim=1) * each.square().sum((1, 2, 3))
        assert bool((found <= exact * 1.001 + room).all())


def test_fourth_powers() -> None:
    for size, hidden in ((1, 3), (3, 6)):
        units, sizes, frames = draw(size, hidden), draw(20, 2, hidden, seed=1).abs(), draw(20, 4, size, size, seed=3)
        frames[:, :2] = frames[:, :2, :, :1] @ frames[:, :2, :1]  # of low rank
        frames[:, 2] = torch.eye(size, dtype=torch.float64)
        y = unit(draw(20, 4, size, 2000, seed=2).mT).mT
        truth = ((units.mT @ frames @ y) ** 4).unsqueeze(1) * sizes[:, :, None, :, None]
        truth = truth.sum(3).amax(3).pow(0.25)
        bound = quartic_seminorms(sizes, units, frames).squeeze(3)
        assert bool((bound >= truth * (1 - 1e-14)).all())
        assert bool((bound <= truth * (1 + 1e-9 if size == 1 else 1.3)).all())
    # A single unit attains it.
    eye = torch.eye(4, dtype=torch.float64).expand(1, 1, 4, 4)
    one = quartic_seminorms(torch.full((1, 1, 1), 3.0, dtype=torch.float64), draw(4, 1, seed=3), eye)
    assert float(one) == pytest.approx(3**0.25 * float(draw(4, 1, seed=3).norm()), rel=1e-9)
    nothing = quartic_seminorms(torch.zeros(2, 1, 0, dtype=torch.float64), draw(3, 0), draw(2, 1, 3, 3))
    assert not nothing.any(), "without units"


def test_fourth_powers_along_what_hardly_moves_a_unit() -> None:
    """Where units are nearly orthogonal to the only direction of a frame, rounding hides nothing of what is left."""
    for seed in range(20):
        turned = torch.linalg.qr(draw(3, 3, seed=seed))[0]
        inner, sizes = draw(3, 50, seed=seed), draw(1, 1, 50, seed=seed).abs()
        inner[0] *= 1e-9  # w_h.f
        frames = (turned[:, :1] @ torch.eye(3, dtype=torch.float64)[:1]).expand(1, 1, 3, 3)
        truth = (sizes * inner[0] ** 4).sum(2).pow(0.25)
        assert bool((quartic_seminorms(sizes, turned @ inner, frames)[..., 0] >= truth.unsqueeze(1)).all())


def test_traces_and_lengths_bound_norms() -> None:
    matrices = draw(20, 4, 4)
    norms = torch.linalg.matrix_norm(matrices, ord=2)
    assert bool((frobenius(matrices).squeeze(1) >= norms).all())
    assert bool((frobenius(matrices).squeeze(1) <= 2 * norms).all())
    squares = matrices @ matrices.mT
    assert bool((trace(squares).squeeze(1) >= norms**2).all())
    assert bool((trace(squares).squeeze(1) <= 4 * norms**2).all())


@pytest.mark.parametrize("scale", [1.0, 1e15, 1e-10, 1e-25, 0.0])
def test_lengths_of_float32_maps_are_not_below_the_truth(scale: float) -> None:
    """Summed in float32 in parts, or number by number where they do not divide; tiny squares underflow."""
    for shape in ((3, 64, 8, 2), (3, 7, 5)):
        maps = (draw(*shape) * scale).float()
        truth = torch.linalg.vector_norm(maps.double().flatten(1), dim=1)
        found = frobenius(maps).squeeze(1)
        assert found.dtype == torch.float64
        assert bool((found >= truth).all())
        assert bool((found <= truth * (1 + 1e-4) + 1e-16).all())


def bent_line(x: Tensor, value: float, curvature: float, third: float) -> Tensor:
    return value + 0.7 * x + curvature * x**2 / 2 + third * x**3 / 6


ONE = torch.ones(1, 1, dtype=torch.float64)


def of_one_feature(bounds: tuple[float, ...], slope: float, curvature: float, noise: float = 1.0) -> ScaleExpansion:
    """A network with one input and one output."""
    known = torch.tensor(bounds, dtype=torch.float64).unsqueeze(1)
    return ScaleExpansion(known, False, slope * ONE.unsqueeze(0), curvature * ONE, noise * ONE, noise * ONE)


def within(scale: ScaleExpansion, reach: float, off: float = 0.0) -> ScaleBounds:
    """For displacements of one feature: the frame is 1."""
    through = FramedScale.of(scale, ONE.unsqueeze(0))
    return ScaleBounds.of(through, (reach - off) * ONE[0], off * ONE, reach * ONE)


@pytest.mark.parametrize("value", [-2.0, -0.5, 0.0, 1.0])
def test_derivatives_of_softplus_of_a_network(value: float) -> None:
    """Third and fourth derivatives of softplus(n), for n a polynomial of one state, within a reach."""
    curvature, third = 0.4, 0.3
    loose = of_one_feature((100.0, 100.0, third, 0.0), 0.7, curvature)
    for reach in (1e-3, 0.5, 2.0):
        x = torch.linspace(-reach, reach, 201, dtype=torch.float64).requires_grad_()
        current = torch.nn.functional.softplus(bent_line(x, value, curvature, third), threshold=100)
        found = []
        for _ in range(4):
            (current,) = torch.autograd.grad(current.sum(), x, create_graph=True)
            found.append(float(current.detach().abs().max()))
        bounds = [float(within(loose, reach).third()) / reach**3, float(within(loose, reach).fourth()) / reach**4]
        for truth, bound in zip(found[2:], bounds, strict=True):
            assert truth <= bound
            if value == -0.5 and reach < 0.1:
                assert bound <= 4 * truth
        tight = within(of_one_feature((0.7, curvature, third, 0.0), 0.7, curvature), reach)
        assert float(tight.third()) / reach**3 <= bounds[0]
        assert float(tight.fourth()) / reach**4 <= bounds[1]


@pytest.mark.parametrize("order", ["third", "fourth"])
@pytest.mark.parametrize("off", [0.0, 0.2])
def test_bounds_of_scales_add_up(order: str, off: float) -> None:
    """Each derivative of the network and of softplus at its largest, by the chain rule."""
    n1, n2, n3, n4 = 1.3, 0.7, 0.9, 0.4

    def wanted(first: float, second: float, third: float, fourth: float) -> float:
        s1, s2, s3, s4 = 1.0, 0.25, 0.0963, 0.125
        if order == "third":
            return s3 * first**3 + 3 * s2 * first * second + s1 * third
        mixed = 3 * second**2 + 4 * first * third
        return s4 * first**4 + 6 * s3 * first**2 * second + s2 * mixed + s1 * fourth

    steep = within(of_one_feature((n1, n2, n3, n4), 5.0, 5.0), 1.0, off)
    assert float(getattr(steep, order)()) == pytest.approx(wanted(n1, n2, n3, n4), rel=1e-9)
    # Near a state where the network is flatter: derivatives grow with the reach.
    near, far = within(of_one_feature((100.0, 100.0, n3, n4), 0.2, 0.1), 0.5, off), 0.5
    first, second = far * (0.2 + far * 0.1 + far**2 / 2 * n3), far**2 * (0.1 + far * n3)
    assert float(getattr(near, order)()) == pytest.approx(wanted(first, second, n3 * far**3, n4 * far**4), rel=1e-9)


def test_outputs_of_a_scale_count_with_their_own_noise() -> None:
    """Two features, one of which has large noise and a scale that hardly bends."""
    bounds, rows = torch.tensor([[1.0, 0.1]] * 4, dtype=torch.float64), torch.eye(2, dtype=torch.float64)[None]
    noise = torch.tensor([[1.0, 40.0]], dtype=torch.float64)
    scale = ScaleExpansion(bounds, False, rows, 0 * noise, noise, 0.5 * noise)
    along, whole = scale.together(torch.tensor([[[3.0, 0.1]]], dtype=torch.float64))
    assert float(along) == pytest.approx(0.5 * (3.0 + 4.0))
    assert float(whole) == pytest.approx(5.0)


@pytest.mark.parametrize("name", FAMILIES)
def test_derivatives_of_each_output_stay_within_their_bounds(name: str) -> None:
    model, (states, context, actions, _), _ = drawn_steps(name, 30)
    smooth = model.smooth()
    assert smooth is not None
    for part in smooth.parts:
        jet = part.derivatives(3 * states, context, actions, second=True)
        first, second, *_ = part.output_bounds
        assert part.output_bounds.shape == (4, jet.value.shape[1])
        assert bool((part.output_bounds.amax(1) <= torch.tensor(part.derivative_bounds)).all())
        assert bool((jet.jacobian.norm(dim=-1) <= first).all())
        hessians = unpacked(jet.hessian, 3)
        assert bool((torch.linalg.eigvalsh(hessians).abs().amax(-1) <= second).all())


def test_overflow_is_large() -> None:
    values = torch.tensor([1.0, torch.inf, torch.nan, 1e200], dtype=torch.float64)
    assert capped(values).tolist() == [1.0, LARGE, LARGE, LARGE]


def test_float32_products_have_full_precision() -> None:
    before = torch.get_float32_matmul_precision()
    seen = []

    @full_precision_float32_matmul
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


Rows = tuple[Tensor, Tensor, Tensor, Tensor]


def drawn_steps(name: str, count: int, start: int = 2) -> tuple[TransitionModel, Rows, Tensor]:
    """A model at some states, context, actions and noise; and gradients."""
    model = next(family(name, 1, start=start)).model
    actions = torch.arange(count) % model.action_count
    rows = (draw(count, 3), draw(count, model.context_size, seed=1), actions, 2 * draw(count, 3, seed=2))
    return model, rows, draw(count, 3, seed=3)


@torch.no_grad()
def expanded_at(model: TransitionModel, rows: Rows, gradient: Tensor, *, thirds: bool = True) -> LocalExpansion:
    smooth = model.smooth()
    assert smooth is not None
    return expand_step(smooth, *rows, gradient, third=thirds)


def derivatives(model: TransitionModel, rows: Rows) -> list[Tensor]:
    """Of the step, the first three [N, D, D, ...]."""

    def step(x: Tensor, *rest: Tensor) -> Tensor:
        return model.step(x.unsqueeze(0), *(one.unsqueeze(0) for one in rest)).squeeze(0)

    found, function = [], step
    for differentiate in (jacrev, jacfwd, jacfwd):
        function = differentiate(function)
        found.append(vmap(function)(*rows).detach())
    return found


def along(gradient: Tensor, table: Tensor) -> Tensor:
    return (gradient.unsqueeze(1) @ table.flatten(2)).squeeze(1).unflatten(1, table.shape[2:])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_local_expansion_knows_the_derivatives_of_the_step(name: str) -> None:
    model, rows, gradient = drawn_steps(name, 7)
    first, second, third = derivatives(model, rows)
    for thirds in (True, False):
        found = expanded_at(model, rows, gradient, thirds=thirds)
        torch.testing.assert_close(found.jacobian, first, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(unpacked(found.hessian, 3), second, rtol=1e-9, atol=1e-11)
        assert not found.hessian_error.any()
        torch.testing.assert_close(found.adjoint_hessian, along(gradient, second), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(found.adjoint_norm.squeeze(1), gradient.norm(dim=1))
        assert bool((found.slope_bound.squeeze(1) >= torch.linalg.matrix_norm(first, ord=2)).all())
    assert found.adjoint_third is None
    assert found.third is None
    found = expanded_at(model, rows, gradient)
    if "deep" in name:  # not known there, but limited
        assert not found.adjoint_third.any()
        assert not found.third.any()
    else:
        torch.testing.assert_close(full(found.third), third, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(found.adjoint_third, along(gradient, third), rtol=1e-8, atol=1e-10)


def left_out(model: TransitionModel, rows: Rows, found: LocalExpansion, z: Tensor) -> Tensor:
    """What second-order expansions of the step leave out, times 6, at z [N, ..., D]: [N, ..., D]."""
    states, *rest = rows
    moved = (states.view(len(z), *[1] * (z.dim() - 2), -1) + z).flatten(1, -2)
    others = [one.unsqueeze(1).expand(-1, moved.shape[1], *one.shape[1:]) for one in rest]
    reached = model.step(moved, *others).view_as(z)
    here = model.step(*rows).view(len(z), *[1] * (z.dim() - 2), -1)
    first = torch.einsum("nij,n...j->n...i", found.jacobian, z)
    second = torch.einsum("nijk,n...j,n...k->n...i", unpacked(found.hessian, 3), z, z) / 2
    return 6 * (reached - here - first - second)


RADII = torch.tensor([0.01, 0.1, 0.5, 1.0, 3.0], dtype=torch.float64)


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_remainders_of_a_local_expansion(name: str) -> None:
    """At frames times vectors of some length, plus what is off."""
    count, frames_count, samples = 8, 4, 30
    model, rows, gradient = drawn_steps(name, count)
    found = expanded_at(model, rows, gradient)
    frames = 0.6 * draw(count, frames_count, 3, 3, seed=5)
    off = 0.3 * draw(count, frames_count, len(RADII), seed=6).abs() * RADII**2
    off[:, 0] = 0.0
    y, away = (unit(draw(count, frames_count, samples, len(RADII), 3, seed=seed)) for seed in (7, 8))
    y = y * RADII.unsqueeze(-1)
    z = torch.einsum("nsij,nsmgj->nsmgi", frames, y) + away * off[:, :, None, :, None]
    reach = z.norm(dim=-1).amax(2) * (1 + 1e-12)
    third, over, whole = step_remainders(found, frames, RADII, off, reach)
    assert found.adjoint_third is not None
    turned = torch.einsum("nijk,nsia,nsjb,nskc->nsabc", found.adjoint_third, frames, frames, frames)
    torch.testing.assert_close(third, turned, rtol=1e-9, atol=1e-11)
    rest = left_out(model, rows, found, z)
    rounding = 1e-12 * (1 + z.norm(dim=-1)) ** 2
    assert bool((rest.norm(dim=-1) <= whole.unsqueeze(2) + rounding).all())
    known = torch.einsum("nsabc,nsmga,nsmgb,nsmgc->nsmg", third, y, y, y)
    less = ((rest * gradient[:, None, None, None]).sum(-1) - known).abs()
    assert bool((less <= over.unsqueeze(2) + 10 * rounding).all())
    if "deep" not in name:  # to first order of the radius nothing but third derivatives is left out
        assert float((whole[:, 0, 0] / rest.norm(dim=-1)[:, 0, :, 0].amax(1)).median()) <= 4


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_remainders_of_a_local_expansion_anywhere(name: str) -> None:
    """For groups of steps from one state: of each under its gradient, and of all of a group."""
    groups, count, samples = 4, 3, 60
    model, rows, gradient = drawn_steps(name, groups * count)
    found = expanded_at(model, rows, gradient, thirds=False)
    frames = 0.6 * draw(groups, 3, 3, seed=5)
    cubic, whole = step_remainders_anywhere(found, frames, RADII)
    assert cubic.shape == (groups * count, len(RADII))
    assert whole.shape == (groups, len(RADII))
    y = unit(draw(groups * count, samples, len(RADII), 3, seed=7)) * RADII.unsqueeze(-1)
    z = torch.einsum("nij,nmgj->nmgi", frames.repeat_interleave(count, 0), y)
    rest = left_out(model, rows, found, z)
    rounding = 1e-12 * (1 + z.norm(dim=-1)) ** 2
    assert bool((rest.norm(dim=-1) <= whole.repeat_interleave(count, 0).unsqueeze(1) + rounding).all())
    assert bool(((rest * gradient[:, None, None]).sum(-1).abs() <= cubic.unsqueeze(1) + 10 * rounding).all())


@torch.no_grad()
def test_bounds_hold_though_third_derivatives_are_in_float32() -> None:
    """Along a line, and with a radius of next to nothing, nothing else is to spare."""
    count, radius = 400, torch.tensor([1e-9], dtype=torch.float64)
    model, rows, gradient = drawn_steps("additive", count)
    found = expanded_at(model, rows, gradient)
    line = unit(draw(count, 1, 1, 3, seed=5)).mT
    frames = torch.cat((line, torch.zeros(count, 1, 3, 2, dtype=torch.float64)), dim=3)  # of rank 1
    nothing = torch.zeros(count, 1, 1, dtype=torch.float64)
    _, _, whole = step_remainders(found, frames, radius, nothing, nothing + radius)
    assert found.third is not None
    exact = torch.einsum("noijk,ni,nj,nk->no", full(found.third), *[line[:, 0, :, 0]] * 3).norm(dim=1) * radius**3
    assert bool((whole.flatten() >= exact * (1 - 1e-12)).all())


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_second_derivatives_in_float32_are_off_by_no_more_than_they_say(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of many features are: all that is bounded by them is bounded as before, or a little more."""
    model, rows, gradient = drawn_steps(name, 40)
    wanted = expanded_at(model, rows, gradient, thirds=False)
    monkeypatch.setattr(local_expansion, "second_derivatives_dtype", lambda _: torch.float32)
    found = expanded_at(model, rows, gradient, thirds=False)
    assert found.hessian.dtype == torch.float32
    off, size = (
        (unpacked(each, 3)).flatten(1).norm(dim=1) for each in (found.hessian - wanted.hessian, wanted.hessian)
    )
    assert bool((off <= found.hessian_error.squeeze(1)).all())
    assert bool((found.hessian_error.squeeze(1) <= 1e-4 * (size + size.mean())).all())
    torch.testing.assert_close(found.adjoint_hessian, wanted.adjoint_hessian, rtol=1e-12, atol=1e-12)
    for mine, other in zip(found.scales, wanted.scales, strict=True):
        assert bool((mine.hessian_norm >= other.hessian_norm).all())
        torch.testing.assert_close(mine.hessian_norm, other.hessian_norm, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e-6])
@torch.no_grad()
def test_next_to_no_third_derivatives_are_known_as_such(scale: float) -> None:
    """What is zero in float32 is not unknown."""
    model, rows, gradient = drawn_steps("additive", 5)
    found = expanded_at(model, rows, gradient)
    frames, radii = scale * draw(5, 2, 3, 3, seed=5), torch.tensor([0.5, 1.0], dtype=torch.float64)
    off, reach = (torch.full((5, 2, 2), 10 * scale * size, dtype=torch.float64) for size in (0.0, 1.0))
    for bounds in step_remainders(found, frames, radii, off, reach):
        assert bool((bounds.abs() <= 1e3 * scale**3 * (1 + float(gradient.norm(dim=1).max()))).all())
