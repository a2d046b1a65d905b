"""Advantages of single changes against replays, automatic differentiation and sampled states."""

from collections.abc import Callable
from unittest.mock import Mock

import pytest
import torch
from effort import some
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

import ifonly.bounds.taylor.advantages as advantages_module
from ifonly.bounds.taylor.advantages import Advantages, expand_advantages, last_advantages
from ifonly.bounds.taylor.norms import LARGE
from ifonly.bounds.taylor.radii import RADII, padded
from ifonly.bounds.taylor.recorded import RecordedPaths
from ifonly.bounds.taylor.value_expansion import ValueExpansion, expand_values_together
from ifonly.problem import Problem
from ifonly.progress import clock
from ifonly.query import Query

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
"""By torch, when it first differentiates forward."""

ROUNDING = 1e-10
Tables = tuple[RecordedPaths, ValueExpansion, Advantages]


@torch.no_grad()
def advantages_of(*problems: Problem, euclidean: bool = False) -> Tables:
    smooth = problems[0].model.smooth()
    assert smooth is not None
    paths = RecordedPaths.of(problems, smooth)
    values = expand_values_together(paths, euclidean=euclidean)
    return paths, values, expand_advantages(paths, values)


def unit_vectors(*shape: int, seed: int = 0) -> Tensor:
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(drawn, dim=-1)


def value_expansion(values: ValueExpansion, s: int, y: Tensor, number: int = 0) -> Tensor:
    """Of what the recorded actions earn from offsets y [..., D] at s on."""
    bowed = (y @ values.hessian[number, s] * y).sum(-1) / 2
    return values.value[number, s] + y @ values.gradient[number, s] + bowed


def replayed(problem: Problem, s: int, states: Tensor) -> Tensor:
    """What the observed actions earn from `states` [..., D] at s on."""
    value = problem.rewards(s, states, problem.observed_actions[s])
    for t in range(s, problem.horizon - 1):
        states = problem.step(t, states, problem.observed_actions[t])
        value = value + problem.rewards(t + 1, states, problem.observed_actions[t + 1])
    return value


def expanded_advantage(tables: Tables, c: int, action: int, number: int = 0) -> Callable[[Tensor], Tensor]:
    """With second-order expansions for the values, but the step as it is."""
    paths, values, _ = tables
    problem, center = paths.problems[number], paths.states[number]

    def gain(y: Tensor) -> Tensor:
        here = center[c] + y
        reached = problem.step(c, here, torch.tensor(action)) - center[c + 1]
        earned = problem.rewards(c, here, torch.tensor(action)) + value_expansion(values, c + 1, reached, number)
        return earned - value_expansion(values, c, y, number)

    return gain


def changes(problem: Problem) -> list[tuple[int, int]]:
    return [(c, action) for c in range(problem.horizon - 1) for action in range(problem.action_count)]


def check_polynomials(tables: Tables, number: int = 0) -> None:
    paths, values, advantages = tables
    problem, center = paths.problems[number], paths.states[number]
    zero = torch.zeros_like(center[0])
    for c, action in changes(problem):
        gain, at = expanded_advantage(tables, c, action, number), (number, c, action)
        torch.testing.assert_close(advantages.value[at], gain(zero), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(advantages.gradient[at], jacrev(gain)(zero), rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(advantages.hessian[at], hessian(gain)(zero), rtol=1e-8, atol=1e-10)

        def reached(y: Tensor, c: int = c, action: int = action) -> Tensor:
            ahead = problem.step(c, center[c] + y, torch.tensor(action))
            return values.inverse_root[number, c + 1] @ (ahead - center[c + 1])

        torch.testing.assert_close(advantages.effect[at], reached(zero), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(advantages.jacobian[at], jacrev(reached)(zero), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
def test_polynomials_are_second_order_expansions(name: str) -> None:
    for problem in family(name, 2, start=1):
        check_polynomials(advantages_of(problem))


def test_costs_of_actions_and_of_changes_count() -> None:
    seen = set()
    for problem in smooth_problems(some(6), start=30, rewards=LINEAR, rules=True, masked=True):
        tables = advantages_of(problem)
        check_polynomials(tables)
        seen.add(problem.change_cost > 0)
        last = problem.horizon - 1
        for state in (problem.observed_states[-1], torch.zeros_like(problem.observed_states[-1])):
            observed = problem.rewards(last, state, problem.observed_actions[-1])
            wanted = problem.rewards(last, state, torch.arange(problem.action_count)) - observed
            torch.testing.assert_close(last_advantages(tables[0])[0], wanted, rtol=1e-10, atol=1e-10)
    assert True in seen


def check_bounds(tables: Tables, *, samples: int, seed: int = 0) -> int:
    """Every bound at offsets of every radius and of random smaller norms; how many bounds say something."""
    paths, values, advantages = tables
    problem, center = paths.problems[0], paths.states[0]
    radii = torch.tensor(RADII, dtype=torch.float64)
    shares = torch.rand(samples, len(RADII), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    shares[: samples // 2] = 1.0
    toward = unit_vectors(samples, 1, center.shape[1], seed=seed) * (shares * radii).unsqueeze(-1)
    value_remainder = padded(values.value_remainder[0, :, -1])
    told = 0
    for c, action in changes(problem):
        at = (0, c, action)
        y = toward @ values.metric_root[0, c]
        bowed = (y @ advantages.hessian[at] * y).sum(-1) / 2
        polynomial = advantages.value[at] + y @ advantages.gradient[at] + bowed
        ahead = problem.step(c, center[c] + y, torch.tensor(action))
        reached = (ahead - center[c + 1]) @ values.inverse_root[0, c + 1]
        straight = advantages.effect[at] + y @ advantages.jacobian[at].mT
        size = float(values.inverse_root[0, c + 1].norm()) * (1 + ahead.norm(dim=-1)) + straight.norm(dim=-1)
        away = (reached - straight).norm(dim=-1)
        # Effect remainders shrink at least with the second power of the norm, remainders with the third.
        assert bool((away <= advantages.effect_remainder[at] * shares**2 + ROUNDING * size).all()), (
            "effect remainder",
            c,
            action,
        )
        gain, tail = expanded_advantage(tables, c, action)(y), value_expansion(values, c, y)
        scale = 1 + gain.abs() + tail.abs() + polynomial.abs() + bowed.abs()
        rest = advantages.remainder[at] * shares**3 + ROUNDING * scale
        assert bool(((gain - polynomial).abs() <= rest).all()), ("remainder", c, action)
        # What a change really brings: the value remainder is added where it leads.
        truth = problem.rewards(c, center[c] + y, torch.tensor(action)) + replayed(problem, c + 1, ahead)
        place = torch.bucketize(reached.norm(dim=-1) * (1 + 1e-12), radii)
        rest = rest + value_remainder[c + 1][place] + ROUNDING * truth.abs()
        assert bool(((truth - tail - polynomial).abs() <= rest).all()), ("advantage", c, action)
        told += int((advantages.remainder[at] < 1 + advantages.value[at].abs()).sum())
    return told


@pytest.mark.parametrize("euclidean", [False, True], ids=["ellipsoidal", "euclidean"])
@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_bounds_hold_within_every_radius(name: str, euclidean: bool) -> None:
    told = 0
    for seed, problem in enumerate(family(name, 3, start=2)):
        told += check_bounds(advantages_of(problem, euclidean=euclidean), samples=20, seed=seed)
    assert told > 100  # bounds that say nothing hold as well


@pytest.mark.parametrize("strength", [0.2, 1.0, 5.0])
@torch.no_grad()
def test_bounds_hold_for_any_strength_and_size(strength: float) -> None:
    for seed, problem in enumerate(smooth_problems(some(6), 2040, LINEAR, strength=strength, rules=False)):
        assert check_bounds(advantages_of(problem), samples=10, seed=seed) > 0


@pytest.mark.parametrize("name", POLYNOMIALS)
@torch.no_grad()
def test_bounds_hold_where_nothing_is_to_spare(name: str) -> None:
    check_bounds(advantages_of(POLYNOMIALS[name]), samples=12)


@pytest.mark.parametrize("name", ["slope", "curvature", "third", "all", "near", "switching", "turned", "deep"])
@torch.no_grad()
def test_bounds_are_not_far_off_where_the_third_derivative_is_largest(name: str) -> None:
    tables = paths, values, advantages = advantages_of(POLYNOMIALS[name])
    problem, small = paths.problems[0], RADII.index(0.1)
    toward = unit_vectors(64, problem.observed_states.shape[1])
    for c, action in changes(problem):
        at = (0, c, action)
        y = 0.1 * toward @ values.metric_root[0, c]
        polynomial = advantages.value[at] + y @ advantages.gradient[at] + (y @ advantages.hessian[at] * y).sum(-1) / 2
        left_out = (expanded_advantage(tables, c, action)(y) - polynomial).abs().max()
        ahead = problem.step(c, paths.states[0, c] + y, torch.tensor(action)) - paths.states[0, c + 1]
        away = (
            (ahead @ values.inverse_root[0, c + 1] - advantages.effect[at] - y @ advantages.jacobian[at].mT)
            .norm(dim=-1)
            .max()
        )
        assert float(advantages.remainder[at][small]) <= 4 * float(left_out) + 3 * ROUNDING
        assert float(advantages.effect_remainder[at][small]) <= 4 * float(away) + 3 * ROUNDING


@pytest.mark.parametrize("name", FAMILIES)
def test_sizes_in_metric_units(name: str) -> None:
    for problem in family(name, 3, start=4):
        _, values, advantages = advantages_of(problem)
        unit = values.metric_root[:, :-1, None]
        spread = torch.linalg.matrix_norm(advantages.jacobian @ unit, ord=2)
        assert bool((advantages.jacobian_norm >= spread * (1 - 1e-12)).all())
        assert bool((advantages.jacobian_norm <= 1.1 * spread + 1e-12).all())
        steepness = (advantages.gradient.unsqueeze(-2) @ unit).squeeze(-2).norm(dim=-1)
        torch.testing.assert_close(advantages.gradient_norm, steepness)
        assert bool((advantages.gradient_norm >= steepness).all())
        eigenvalues = torch.linalg.eigvalsh(unit @ advantages.hessian @ unit)
        largest, sizes = eigenvalues[..., -1].clamp(min=0), eigenvalues.abs().amax(-1)
        assert bool((advantages.largest_eigenvalue >= largest - 1e-12 * sizes - 1e-15).all())
        assert bool((advantages.largest_eigenvalue <= largest + 0.2 * sizes + 1e-15).all())  # what rounding leaves of 0
        assert bool((advantages.largest_eigenvalue >= 0).all())


def test_bounds_grow_at_least_with_powers_of_the_radius() -> None:
    radii = torch.tensor(RADII, dtype=torch.float64)
    for problem in smooth_problems(some(10), start=3000, rules=False):
        _, _, advantages = advantages_of(problem)
        for bounds, power in ((advantages.remainder, 3), (advantages.effect_remainder, 2)):
            known, shares = bounds[..., 1:] < LARGE, bounds / radii**power
            assert bool((shares.diff(dim=-1) >= -1e-9 * shares[..., 1:])[known].all())


def test_observed_actions_bring_nothing() -> None:
    for problem in smooth_problems(some(8), start=70, rules=False):
        _, _, advantages = advantages_of(problem)
        observed = problem.observed_actions[:-1, None]
        for table in (advantages.value, advantages.gradient, advantages.hessian):
            mine = table[0][torch.arange(len(observed)), observed[:, 0]]
            torch.testing.assert_close(mine, torch.zeros_like(mine), rtol=0, atol=1e-9 * (1 + float(table.abs().max())))


def test_linear_models_are_known_exactly() -> None:
    for problem in smooth_problems(5, start=100, model_kind="linear"):
        _, _, advantages = advantages_of(problem)
        for name in ("hessian", "remainder", "effect_remainder", "largest_eigenvalue"):
            assert not getattr(advantages, name).any(), name


@torch.no_grad()
def test_blocks_of_steps_make_the_same_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("strong scale", "deep"):
        first = next(family(name, 1, start=3))
        dearer = Problem.from_episode(first.episode, first.model, Query(first.reward, 2, change_cost=0.4))
        tables = paths, values, wanted = advantages_of(first, dearer)
        check_polynomials(tables, number=1)
        pairs = 2 * (first.horizon - 1)
        for looks, blocks in ((1, pairs), (2 * first.action_count, pairs // 2)):
            expand, check = Mock(wraps=advantages_module._expand_block), Mock()
            with monkeypatch.context() as patch, clock(check):
                patch.setattr(advantages_module, "STEPS_TOGETHER", looks)
                patch.setattr(advantages_module, "_expand_block", expand)
                found = expand_advantages(paths, values)
            assert expand.call_count == blocks
            assert check.call_count >= blocks
            for field, table in vars(found).items():
                torch.testing.assert_close(table, getattr(wanted, field), rtol=1e-9, atol=1e-11, msg=field)


@pytest.mark.parametrize("name", FAMILIES)
def test_two_steps(name: str) -> None:
    for problem in family(name, 2, start=5, horizon=2):
        tables = advantages_of(problem)
        check_polynomials(tables)
        with torch.no_grad():
            assert check_bounds(tables, samples=12) > 10


@pytest.mark.parametrize("weight", [1e20, 1e40, 1e110])
@torch.no_grad()
def test_bounds_that_overflow_are_large(weight: float) -> None:
    """A unit that is flat at the observed path and wherever a change leads, and bends beyond all numbers elsewhere."""
    arrays = polynomial_arrays(0.7, 0.05, 0.01)
    schema = shifting_schema((0.05, 0.1))
    _, _, wanted = advantages_of(still_problem(additive_model(schema, arrays)))
    tables = advantages_of(still_problem(additive_model(schema, with_unit(arrays, weight, 10 * weight, 0.3))))
    advantages = tables[2]
    for name in (
        "value",
        "gradient",
        "hessian",
        "gradient_norm",
        "largest_eigenvalue",
        "effect",
        "jacobian",
        "jacobian_norm",
    ):
        torch.testing.assert_close(getattr(advantages, name), getattr(wanted, name), rtol=1e-9, atol=1e-9, msg=name)
    for name in ("remainder", "effect_remainder"):
        assert not getattr(advantages, name).isnan().any(), name
    assert bool((advantages.remainder[..., 5:] >= 1e50).all())
    check_bounds(tables, samples=2)


@pytest.mark.parametrize("weight", [1e20, 1e30])
@torch.no_grad()
def test_nothing_is_undefined_where_derivatives_are_huge(weight: float) -> None:
    arrays = with_unit(polynomial_arrays(0.7, 0.05, 0.01), weight, 0.3, weight)
    _, _, advantages = advantages_of(still_problem(additive_model(shifting_schema((0.05, 0.1)), arrays), horizon=3))
    for name in ("remainder", "effect_remainder", "largest_eigenvalue", "jacobian_norm", "gradient_norm"):
        assert not getattr(advantages, name).isnan().any(), name
