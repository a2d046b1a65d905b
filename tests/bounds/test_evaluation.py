"""Polynomials of many states, and what single changes are tables by them: never less than in double precision."""

from dataclasses import fields

import pytest
import torch
from torch import Tensor

from ifonly.bounds.taylor.advantages import Advantages
from ifonly.bounds.taylor.evaluation import AdvantageTables, advantage_tables, evaluate_advantages, evaluate_curvature
from ifonly.bounds.taylor.norms import LARGE
from ifonly.bounds.taylor.polynomials import (
    FLOAT32_LARGE,
    monomials,
    packed,
    quadratic,
    rounded_up_float32,
    to_float32,
)
from ifonly.bounds.taylor.radii import CELLS_PER_UNIT, RADII, looked_up, padded
from ifonly.bounds.taylor.value_expansion import ValueExpansion

PROBLEMS, STEPS, ACTIONS, SIZE = 2, 3, 4, 3
ALL, EVERY = slice(None), slice(0, STEPS)


def drawn(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def symmetric(tables: Tensor) -> Tensor:
    return (tables + tables.mT) / 2


@pytest.mark.parametrize("size", [1, 2, 5])
def test_polynomials_are_products_with_features(size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    value, gradient, form = drawn(generator, 4), drawn(generator, 4, size), symmetric(drawn(generator, 4, size, size))
    y = drawn(generator, 4, size, 7)
    wanted = value[:, None] + torch.einsum("pi,pim->pm", gradient, y) + torch.einsum("pim,pij,pjm->pm", y, form, y)
    coefficients = quadratic(value, gradient, form)
    assert monomials(y).shape == (4, (size + 1) * (size + 2) // 2, 7)
    torch.testing.assert_close((coefficients.unsqueeze(1) @ monomials(y)).squeeze(1), wanted)
    curvature = torch.einsum("pim,pij,pjm->pm", y, form, y)
    torch.testing.assert_close((packed(form).unsqueeze(1) @ monomials(y)[:, 1 + size :]).squeeze(1), curvature)


def test_tables_are_looked_up_place_by_place() -> None:
    generator = torch.Generator().manual_seed(0)
    table = drawn(generator, 2, 3, 4, 6)
    place = torch.randint(6, (2, 3, 5), generator=generator)
    found = looked_up(table, place)
    assert found.shape == (2, 3, 4, 5)
    for p, c, m in torch.ones(place.shape).nonzero().tolist():
        assert torch.equal(found[p, c, :, m], table[p, c, :, place[p, c, m]])


def test_beyond_the_last_radius_nothing_is_known() -> None:
    limits = padded(torch.tensor([[1.0, 2.0], [3.0, torch.inf]], dtype=torch.float64))
    assert limits.tolist() == [[1.0, 2.0, LARGE], [3.0, LARGE, LARGE]]


def test_in_float32_what_is_large_is_unknown_and_what_is_excluded_stays_so() -> None:
    found = to_float32(torch.tensor([1.5, -2.5, FLOAT32_LARGE, LARGE, torch.inf, -torch.inf, 0.0], dtype=torch.float64))
    assert found.dtype == torch.float32
    assert found.tolist() == [1.5, -2.5, torch.inf, torch.inf, torch.inf, -torch.inf, 0.0]


def test_limits_are_rounded_up() -> None:
    generator = torch.Generator().manual_seed(0)
    limits = 10 ** (40 * torch.rand(1000, generator=generator, dtype=torch.float64) - 10)
    found = rounded_up_float32(limits).double()
    assert bool((found > limits).all())
    assert bool((found <= 1.0001 * limits)[limits < 1e29].all())
    assert rounded_up_float32(torch.zeros(1, dtype=torch.float64)).tolist() == [0.0]


def expansions(generator: torch.Generator, spread: float) -> tuple[ValueExpansion, Advantages]:
    """Random ones, each entry of any size within so many powers of ten; nothing is left out."""

    def wide(*shape: int) -> Tensor:
        powers = spread * (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1)
        return drawn(generator, *shape) * 10**powers

    lead, tail = (PROBLEMS, STEPS, ACTIONS), (PROBLEMS, STEPS + 1)
    unit = torch.diag_embed(10 ** drawn(generator, *tail, SIZE))
    turn = torch.linalg.qr(drawn(generator, *tail, SIZE, SIZE))[0]
    unit = symmetric(turn @ unit @ turn.mT)
    nothing = torch.zeros(*lead, len(RADII), dtype=torch.float64)
    given = {"gradient": wide(*tail, SIZE), "hessian": symmetric(wide(*tail, SIZE, SIZE)), "metric_root": unit}
    values = ValueExpansion(**{field.name: given.get(field.name, torch.zeros(0)) for field in fields(ValueExpansion)})
    gradient, jacobian = wide(*lead, SIZE), wide(*lead, SIZE, SIZE)
    turned = (gradient.unsqueeze(-2) @ unit[:, :-1, None]).squeeze(-2)
    advantages = Advantages(
        value=wide(*lead),
        gradient=gradient,
        hessian=symmetric(wide(*lead, SIZE, SIZE)),
        gradient_norm=turned.norm(dim=-1),
        largest_eigenvalue=nothing[..., 0],
        remainder=nothing,
        effect=wide(*lead, SIZE),
        jacobian=jacobian,
        jacobian_norm=torch.linalg.matrix_norm(jacobian @ unit[:, :-1, None], ord=2),
        effect_remainder=nothing,
    )
    return values, advantages


class Exactly:
    """The same in double precision."""

    def __init__(self, values: ValueExpansion, advantages: Advantages) -> None:
        self._gains, self._unit = advantages, values.metric_root[:, :-1]
        self.form = self._unit @ values.hessian[:, :-1] @ self._unit

    def advantage(self, y: Tensor) -> Tensor:
        x, advantages = self._unit @ y, self._gains
        bent = torch.einsum("pcim,pcaij,pcjm->pcam", x, advantages.hessian, x) / 2
        return advantages.value.unsqueeze(-1) + advantages.gradient @ x + bent

    def reached(self, y: Tensor) -> Tensor:
        x, advantages = self._unit @ y, self._gains
        moved = torch.einsum("pcaij,pcjm->pcaim", advantages.jacobian, x)
        return (advantages.effect.unsqueeze(-1) + moved).norm(dim=3)

    def curvature(self, y: Tensor) -> Tensor:
        return (y * (self.form @ y)).sum(2) / 2


def offsets(generator: torch.Generator, count: int, largest: float = 10.0) -> Tensor:
    """Of all lengths up to the largest, and none."""
    toward = torch.nn.functional.normalize(drawn(generator, PROBLEMS, STEPS, SIZE, count), dim=2)
    lengths = largest ** (4 * torch.rand(PROBLEMS, STEPS, 1, count, generator=generator, dtype=torch.float64) - 3)
    lengths[..., 0] = 0.0
    return toward * lengths


@pytest.mark.parametrize("spread", [0.0, 2.0, 6.0])
def test_never_less_than_in_float64(spread: float) -> None:
    close = 0
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        values, advantages = expansions(generator, spread)
        changes = torch.rand(advantages.value.shape, generator=generator) < 0.8
        tables, exactly = advantage_tables(values, advantages, changes), Exactly(values, advantages)
        y = offsets(generator, 40)
        scaled = y.float()
        found = evaluate_advantages(tables, ALL, EVERY, scaled)
        some = changes.unsqueeze(-1).expand_as(found.advantage)
        bounds, wanted = found.advantage.double() + found.remainder.double(), exactly.advantage(y)
        assert bool((bounds >= wanted)[some].all())
        assert bool((bounds == -torch.inf)[~some].all())
        assert bool((found.reached.double() >= exactly.reached(y))[some].all())
        assert bool((found.curvature.norm.double() >= y.norm(dim=2)).all())
        assert bool((found.curvature.term.double() >= exactly.curvature(y)).all())
        assert bool((found.curvature.slope.double() >= (exactly.form @ y).norm(dim=2)).all())
        near = (bounds - wanted)[some] <= 1e-3 * (1 + wanted.abs())[some]
        close += int(near.sum())
    assert close > 4000 or spread == 6.0  # room for everything would be no bound


@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_covers_all_states_that_are_so_far_off(spread: float) -> None:
    for seed in range(8):
        generator = torch.Generator().manual_seed(seed)
        values, advantages = expansions(generator, spread)
        tables, exactly = (
            advantage_tables(values, advantages, torch.ones_like(advantages.value, dtype=torch.bool)),
            Exactly(values, advantages),
        )
        y = offsets(generator, 40, largest=2.0)
        off = torch.rand(PROBLEMS, STEPS, 40, generator=generator, dtype=torch.float64) ** 4
        away = torch.nn.functional.normalize(drawn(generator, *y.shape), dim=2) * off.unsqueeze(2)
        scaled, room = y.float(), (off * (1 + 1e-6)).float()
        found = evaluate_advantages(tables, ALL, EVERY, scaled, room)
        assert bool(((found.advantage + found.remainder).double() >= exactly.advantage(y + away)).all())
        assert bool((found.reached.double() >= exactly.reached(y + away)).all())
        assert bool((found.curvature.norm.double() >= (y + away).norm(dim=2)).all())
        for there in (found.curvature, evaluate_curvature(tables, ALL, EVERY, scaled, room)):
            assert bool(((there.term + there.slope * room).double() >= exactly.curvature(y + away)).all())
            assert bool((there.norm.double() >= (y + away).norm(dim=2)).all())


@pytest.mark.parametrize("power", [14, 16, 28, 30, 33, 41, 60])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_float32_cannot_hold_is_unknown(power: int, sign: float) -> None:
    """However large, positive or negative: never less than in double precision, unless it is no number at all."""
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        for name in ("value", "gradient", "hessian", "effect", "jacobian", "form"):
            values, advantages = expansions(generator, 1.0)
            table = values.hessian[0, 0] if name == "form" else getattr(advantages, name)[0, 0, 1]
            table.copy_(sign * 10.0**power * table.abs())
            tables, exactly = (
                advantage_tables(values, advantages, torch.ones_like(advantages.value, dtype=torch.bool)),
                Exactly(values, advantages),
            )
            y = offsets(generator, 30)
            found = evaluate_advantages(tables, ALL, EVERY, y.float())
            for bounds, wanted in (
                (found.advantage + found.remainder, exactly.advantage(y)),
                (found.reached, exactly.reached(y)),
                (found.curvature.term, exactly.curvature(y)),
                (found.curvature.slope, (exactly.form @ y).norm(dim=2)),
            ):
                assert bool((bounds.isnan() | (bounds.double() >= wanted)).all()), name


@pytest.fixture(scope="module")
def tables() -> AdvantageTables:
    values, advantages = expansions(torch.Generator().manual_seed(0), 0.0)
    return advantage_tables(values, advantages, torch.ones_like(advantages.value, dtype=torch.bool))


LAST = len(RADII) - 2
"""The place of the last radius that is looked up."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_place_is_that_of_the_first_radius_that_covers(tables: AdvantageTables, dtype: torch.dtype) -> None:
    radii = torch.tensor(RADII[: LAST + 1], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    edges = torch.cat([torch.arange(250) / CELLS_PER_UNIT * (1 + step * 1e-7) for step in range(-3, 4)])
    spread, small = torch.rand(2, 2000, generator=generator)
    norms = torch.cat((radii, edges, 1.2 * RADII[LAST] * spread, 10 ** (-9 * small))).to(dtype)
    place = tables.index(norms)
    covering = torch.tensor([*RADII[: LAST + 1], torch.nan, torch.inf], dtype=torch.float64)[place]
    assert bool((norms.double() <= covering * (1 + 2e-7)).all())
    # What is not zero has the second place at least; what no radius covers, the one after the last.
    before = torch.tensor([-1.0, 0.0, *RADII[1:LAST], torch.nan, RADII[LAST]], dtype=torch.float64)[place]
    assert bool((norms.double() >= before * (1 - 2e-7)).all())
    assert tables.index(radii[1:].to(dtype)).tolist() == list(range(1, LAST + 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_places_of_what_is_no_length(tables: AdvantageTables, dtype: torch.dtype) -> None:
    norms = torch.tensor([0.0, -0.0, torch.nan, torch.inf, 1.0001 * RADII[LAST], 1e30, 1e-30], dtype=dtype)
    before = norms.clone()
    assert tables.index(norms).tolist() == [0, 0, *[len(RADII)] * 4, 1]
    torch.testing.assert_close(norms, before, equal_nan=True)


def test_states_that_are_no_numbers_have_unknown_advantages(tables: AdvantageTables) -> None:
    y = torch.zeros(PROBLEMS, STEPS, SIZE, 4)
    for number, wrong in enumerate((torch.nan, torch.inf, -torch.inf, 1e30)):
        y[:, :, number % SIZE, number] = wrong
    found = evaluate_advantages(tables, ALL, EVERY, y)
    bounds = found.advantage + found.remainder
    assert not bounds.isfinite().any()
    assert not (bounds == -torch.inf).any()
    assert not found.reached.isfinite().any()
