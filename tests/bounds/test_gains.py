"""Tables of single changes against replays, automatic differentiation and sampled states."""

from collections.abc import Callable
from unittest.mock import Mock

import pytest
import torch
from smooth_problems import (
    FAMILIES,
    LINEAR,
    POLYNOMIALS,
    additive_model,
    family,
    polynomial_arrays,
    shifting_schema,
    smooth_problems,
    still_problem,
    with_unit,
)
from torch import Tensor
from torch.func import hessian, jacrev

import ifonly.bounds.gains as gains_module
from ifonly.bounds.gains import GainTables, last_gains, make_gains
from ifonly.bounds.limits import LARGE
from ifonly.bounds.looks import RADII
from ifonly.bounds.polynomials import padded
from ifonly.bounds.tails import Episodes, TailBuilder, TailTables
from ifonly.problem import Problem
from ifonly.query import Query

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
"""By torch, when it first differentiates forward."""

ROUNDING = 1e-10
Tables = tuple[Episodes, TailTables, GainTables]


@torch.no_grad()
def gains_of(*problems: Problem, round_gauge: bool = False) -> Tables:
    smooth = problems[0].model.smooth()
    assert smooth is not None
    episodes = Episodes.of(problems, smooth)
    tails = TailBuilder(episodes, round_gauge=round_gauge).build()
    return episodes, tails, make_gains(episodes, tails, lambda: None)


def unit_vectors(*shape: int, seed: int = 0) -> Tensor:
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(drawn, dim=-1)


def tail_expansion(tails: TailTables, s: int, y: Tensor, number: int = 0) -> Tensor:
    """Of what a tail earns from offsets y [..., D] at s on."""
    bowed = (y @ tails.hessian[number, s] * y).sum(-1) / 2
    return tails.value[number, s] + y @ tails.gradient[number, s] + bowed


def replayed(problem: Problem, s: int, states: Tensor) -> Tensor:
    """What the observed actions earn from `states` [..., D] at s on."""
    value = problem.rewards(s, states, problem.observed_actions[s])
    for t in range(s, problem.horizon - 1):
        states = problem.step(t, states, problem.observed_actions[t])
        value = value + problem.rewards(t + 1, states, problem.observed_actions[t + 1])
    return value


def expanded_gain(tables: Tables, c: int, action: int, number: int = 0) -> Callable[[Tensor], Tensor]:
    """With second-order expansions for the tails, but the step as it is."""
    episodes, tails, _ = tables
    problem, center = episodes.problems[number], episodes.center[number]

    def gain(y: Tensor) -> Tensor:
        here = center[c] + y
        reached = problem.step(c, here, torch.tensor(action)) - center[c + 1]
        earned = problem.rewards(c, here, torch.tensor(action)) + tail_expansion(tails, c + 1, reached, number)
        return earned - tail_expansion(tails, c, y, number)

    return gain


def changes(problem: Problem) -> list[tuple[int, int]]:
    return [(c, action) for c in range(problem.horizon - 1) for action in range(problem.action_count)]


def check_polynomials(tables: Tables, number: int = 0) -> None:
    episodes, tails, gains = tables
    problem, center = episodes.problems[number], episodes.center[number]
    zero = torch.zeros_like(center[0])
    for c, action in changes(problem):
        gain, at = expanded_gain(tables, c, action, number), (number, c, action)
        torch.testing.assert_close(gains.value[at], gain(zero), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(gains.gradient[at], jacrev(gain)(zero), rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(gains.hessian[at], hessian(gain)(zero), rtol=1e-8, atol=1e-10)

        def reached(y: Tensor, c: int = c, action: int = action) -> Tensor:
            ahead = problem.step(c, center[c] + y, torch.tensor(action))
            return tails.inverse[number, c + 1] @ (ahead - center[c + 1])

        torch.testing.assert_close(gains.effect[at], reached(zero), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(gains.jacobian[at], jacrev(reached)(zero), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
def test_polynomials_are_second_order_expansions(name: str) -> None:
    for problem in family(name, 2, start=1):
        check_polynomials(gains_of(problem))


def test_costs_of_actions_and_of_changes_count() -> None:
    seen = set()
    for problem in smooth_problems(6, start=30, rewards=LINEAR, rules=True, masked=True):
        tables = gains_of(problem)
        check_polynomials(tables)
        seen.add(problem.change_cost > 0)
        last = problem.horizon - 1
        for state in (problem.observed_states[-1], torch.zeros_like(problem.observed_states[-1])):
            observed = problem.rewards(last, state, problem.observed_actions[-1])
            wanted = problem.rewards(last, state, torch.arange(problem.action_count)) - observed
            torch.testing.assert_close(last_gains(tables[0])[0], wanted, rtol=1e-10, atol=1e-10)
    assert True in seen


def check_limits(tables: Tables, *, samples: int, seed: int = 0) -> int:
    """Every limit at offsets of every radius and of random smaller gauges; how many limits say something."""
    episodes, tails, gains = tables
    problem, center = episodes.problems[0], episodes.center[0]
    radii = torch.tensor(RADII, dtype=torch.float64)
    shares = torch.rand(samples, len(RADII), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    shares[: samples // 2] = 1.0
    toward = unit_vectors(samples, 1, center.shape[1], seed=seed) * (shares * radii).unsqueeze(-1)
    tail_rest = padded(tails.rest[0, :, -1])
    told = 0
    for c, action in changes(problem):
        at = (0, c, action)
        y = toward @ tails.unit[0, c]
        bowed = (y @ gains.hessian[at] * y).sum(-1) / 2
        polynomial = gains.value[at] + y @ gains.gradient[at] + bowed
        ahead = problem.step(c, center[c] + y, torch.tensor(action))
        reached = (ahead - center[c + 1]) @ tails.inverse[0, c + 1]
        straight = gains.effect[at] + y @ gains.jacobian[at].mT
        size = float(tails.inverse[0, c + 1].norm()) * (1 + ahead.norm(dim=-1)) + straight.norm(dim=-1)
        away = (reached - straight).norm(dim=-1)
        # Bends shrink at least with the second power of the gauge, rests with the third.
        assert bool((away <= gains.bend[at] * shares**2 + ROUNDING * size).all()), ("bend", c, action)
        gain, tail = expanded_gain(tables, c, action)(y), tail_expansion(tails, c, y)
        scale = 1 + gain.abs() + tail.abs() + polynomial.abs() + bowed.abs()
        rest = gains.rest[at] * shares**3 + ROUNDING * scale
        assert bool(((gain - polynomial).abs() <= rest).all()), ("rest", c, action)
        # What a change really brings: the tail's own rest is added where it leads.
        truth = problem.rewards(c, center[c] + y, torch.tensor(action)) + replayed(problem, c + 1, ahead)
        place = torch.bucketize(reached.norm(dim=-1) * (1 + 1e-12), radii)
        rest = rest + tail_rest[c + 1][place] + ROUNDING * truth.abs()
        assert bool(((truth - tail - polynomial).abs() <= rest).all()), ("gain", c, action)
        told += int((gains.rest[at] < 1 + gains.value[at].abs()).sum())
    return told


@pytest.mark.parametrize("round_gauge", [False, True], ids=["gauge", "round"])
@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_limits_hold_within_every_radius(name: str, round_gauge: bool) -> None:
    told = 0
    for seed, problem in enumerate(family(name, 3, start=2)):
        told += check_limits(gains_of(problem, round_gauge=round_gauge), samples=20, seed=seed)
    assert told > 100  # limits that say nothing hold as well


@pytest.mark.parametrize("strength", [0.2, 1.0, 5.0])
@torch.no_grad()
def test_limits_hold_for_any_strength_and_size(strength: float) -> None:
    for seed, problem in enumerate(smooth_problems(9, 2040, LINEAR, strength=strength, rules=False)):
        assert check_limits(gains_of(problem), samples=10, seed=seed) > 0


@pytest.mark.parametrize("name", POLYNOMIALS)
@torch.no_grad()
def test_limits_hold_where_nothing_is_to_spare(name: str) -> None:
    check_limits(gains_of(POLYNOMIALS[name]), samples=12)


@pytest.mark.parametrize("name", ["slope", "curvature", "third", "all", "near", "switching", "turned", "deep"])
@torch.no_grad()
def test_limits_are_not_far_off_where_the_third_derivative_is_largest(name: str) -> None:
    tables = episodes, tails, gains = gains_of(POLYNOMIALS[name])
    problem, small = episodes.problems[0], RADII.index(0.1)
    toward = unit_vectors(64, problem.observed_states.shape[1])
    for c, action in changes(problem):
        at = (0, c, action)
        y = 0.1 * toward @ tails.unit[0, c]
        polynomial = gains.value[at] + y @ gains.gradient[at] + (y @ gains.hessian[at] * y).sum(-1) / 2
        left_out = (expanded_gain(tables, c, action)(y) - polynomial).abs().max()
        ahead = problem.step(c, episodes.center[0, c] + y, torch.tensor(action)) - episodes.center[0, c + 1]
        away = (ahead @ tails.inverse[0, c + 1] - gains.effect[at] - y @ gains.jacobian[at].mT).norm(dim=-1).max()
        assert float(gains.rest[at][small]) <= 4 * float(left_out) + 3 * ROUNDING
        assert float(gains.bend[at][small]) <= 4 * float(away) + 3 * ROUNDING


@pytest.mark.parametrize("name", FAMILIES)
def test_sizes_in_gauge_units(name: str) -> None:
    for problem in family(name, 3, start=4):
        _, tails, gains = gains_of(problem)
        unit = tails.unit[:, :-1, None]
        spread = torch.linalg.matrix_norm(gains.jacobian @ unit, ord=2)
        assert bool((gains.spread >= spread * (1 - 1e-12)).all())
        assert bool((gains.spread <= 1.1 * spread + 1e-12).all())
        steepness = (gains.gradient.unsqueeze(-2) @ unit).squeeze(-2).norm(dim=-1)
        torch.testing.assert_close(gains.steepness, steepness)
        assert bool((gains.steepness >= steepness).all())
        eigenvalues = torch.linalg.eigvalsh(unit @ gains.hessian @ unit)
        largest, sizes = eigenvalues[..., -1].clamp(min=0), eigenvalues.abs().amax(-1)
        assert bool((gains.bent >= largest - 1e-12 * sizes - 1e-15).all())
        assert bool((gains.bent <= largest + 0.2 * sizes).all())
        assert bool((gains.bent >= 0).all())


def test_limits_grow_at_least_with_powers_of_the_radius() -> None:
    radii = torch.tensor(RADII, dtype=torch.float64)
    for problem in smooth_problems(16, start=3000, rules=False):
        _, _, gains = gains_of(problem)
        for limits, power in ((gains.rest, 3), (gains.bend, 2)):
            known, shares = limits[..., 1:] < LARGE, limits / radii**power
            assert bool((shares.diff(dim=-1) >= -1e-9 * shares[..., 1:])[known].all())


def test_observed_actions_bring_nothing() -> None:
    for problem in smooth_problems(8, start=70, rules=False):
        _, _, gains = gains_of(problem)
        observed = problem.observed_actions[:-1, None]
        for table in (gains.value, gains.gradient, gains.hessian):
            mine = table[0][torch.arange(len(observed)), observed[:, 0]]
            torch.testing.assert_close(mine, torch.zeros_like(mine), rtol=0, atol=1e-9 * (1 + float(table.abs().max())))


def test_linear_models_are_known_exactly() -> None:
    for problem in smooth_problems(5, start=100, model_kind="linear"):
        _, _, gains = gains_of(problem)
        for name in ("hessian", "rest", "bend", "bent"):
            assert not getattr(gains, name).any(), name


@torch.no_grad()
def test_blocks_of_looks_make_the_same_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("strong scale", "deep"):
        first = next(family(name, 1, start=3))
        dearer = Problem.from_episode(first.episode, first.model, Query(first.reward, 2, change_cost=0.4))
        tables = episodes, tails, wanted = gains_of(first, dearer)
        check_polynomials(tables, number=1)
        pairs = 2 * (first.horizon - 1)
        for looks, blocks in ((1, pairs), (2 * first.action_count, pairs // 2)):
            check = Mock()
            with monkeypatch.context() as patch:
                patch.setattr(gains_module, "LOOKS", looks)
                found = make_gains(episodes, tails, check)
            assert check.call_count == blocks
            for field, table in vars(found).items():
                torch.testing.assert_close(table, getattr(wanted, field), rtol=1e-9, atol=1e-11, msg=field)


@pytest.mark.parametrize("name", FAMILIES)
def test_two_steps(name: str) -> None:
    for problem in family(name, 2, start=5, horizon=2):
        tables = gains_of(problem)
        check_polynomials(tables)
        with torch.no_grad():
            assert check_limits(tables, samples=12) > 10


@pytest.mark.parametrize("weight", [1e20, 1e40, 1e110])
@torch.no_grad()
def test_limits_that_overflow_are_large(weight: float) -> None:
    """A unit that is flat at the observed path and wherever a change leads, and bends beyond all numbers elsewhere."""
    arrays = polynomial_arrays(0.7, 0.05, 0.01)
    schema = shifting_schema((0.05, 0.1))
    _, _, wanted = gains_of(still_problem(additive_model(schema, arrays)))
    tables = gains_of(still_problem(additive_model(schema, with_unit(arrays, weight, 10 * weight, 0.3))))
    gains = tables[2]
    for name in ("value", "gradient", "hessian", "steepness", "bent", "effect", "jacobian", "spread"):
        torch.testing.assert_close(getattr(gains, name), getattr(wanted, name), rtol=1e-9, atol=1e-9, msg=name)
    for name in ("rest", "bend"):
        assert not getattr(gains, name).isnan().any(), name
    assert bool((gains.rest[..., 5:] >= 1e50).all())
    check_limits(tables, samples=2)


@pytest.mark.parametrize("weight", [1e20, 1e30])
@torch.no_grad()
def test_nothing_is_undefined_where_derivatives_are_huge(weight: float) -> None:
    arrays = with_unit(polynomial_arrays(0.7, 0.05, 0.01), weight, 0.3, weight)
    _, _, gains = gains_of(still_problem(additive_model(shifting_schema((0.05, 0.1)), arrays), horizon=3))
    for name in ("rest", "bend", "bent", "spread", "steepness"):
        assert not getattr(gains, name).isnan().any(), name
