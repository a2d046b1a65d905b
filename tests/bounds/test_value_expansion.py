"""Value expansions against replays, automatic differentiation and sampled states."""

import math
from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pytest
import torch
from effort import few, some
from smooth_problems import (
    FAMILIES,
    POLYNOMIALS,
    additive_model,
    family,
    polynomial_arrays,
    shifting_schema,
    smooth_problems,
    still_problem,
)
from torch import Tensor
from torch.func import hessian, jacrev

import ifonly.bounds.taylor.value_expansion as value_expansion
from ifonly.bounds.taylor.norms import LARGE
from ifonly.bounds.taylor.radii import RADII
from ifonly.bounds.taylor.recorded import RecordedPaths
from ifonly.bounds.taylor.value_expansion import ValueExpansion, expand_values, expand_values_together
from ifonly.constraints import Constraints
from ifonly.data import ActionSpace, Episode, Feature, Schema
from ifonly.models import LocationScale
from ifonly.problem import Problem
from ifonly.progress import clock
from ifonly.query import Query
from ifonly.rewards import Linear

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
"""By torch, when it first differentiates forward."""

ROUNDING = 1e-10


@torch.no_grad()
def expansion_of(*problems: Problem, euclidean: bool = False) -> tuple[RecordedPaths, ValueExpansion]:
    smooth = problems[0].model.smooth()
    assert smooth is not None
    paths = RecordedPaths.of(problems, smooth)
    return paths, expand_values_together(paths, euclidean=euclidean)


def replay(problem: Problem, s: int, states: Tensor) -> tuple[Tensor, Tensor]:
    """Paths [N, T - s, D] and rewards [N, T - s] of the observed actions from `states` [N, D] at s."""
    path, rewards = [states], [problem.rewards(s, states, problem.observed_actions[s])]
    for t in range(s, problem.horizon - 1):
        states = problem.step(t, states, problem.observed_actions[t])
        path.append(states)
        rewards.append(problem.rewards(t + 1, states, problem.observed_actions[t + 1]))
    return torch.stack(path, dim=1), torch.stack(rewards, dim=1)


def partial_sums(path: Tensor, rewards: Tensor, center: Tensor, gradient: Tensor) -> Tensor:
    """Rewards before t plus gradient_t . (X_t - X_t(0)), for t from s to T - 1 [N, T - s]."""
    before = torch.nn.functional.pad(rewards.cumsum(1)[:, :-1], (1, 0))
    return before + ((path - center) * gradient).sum(-1)


def differentiated(problem: Problem, s: int, center: Tensor, gradient: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """First and second derivatives at the observed state: of paths [T - s, D, ...] and of partial sums [T - s, ...]."""

    def path(x: Tensor) -> Tensor:
        return replay(problem, s, x.unsqueeze(0))[0].squeeze(0)

    def sums(x: Tensor) -> Tensor:
        found = replay(problem, s, x.unsqueeze(0))
        return partial_sums(*found, center[s:], gradient[s:]).squeeze(0)

    return {
        name: (jacrev(function)(center[s]), hessian(function)(center[s]))
        for name, function in (("path", path), ("sums", sums))
    }


def directions(size: int, count: int, generator: torch.Generator) -> Tensor:
    """Unit vectors [count, D]: in all directions, or at random ones where there are too many."""
    if size == 1:
        return torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(-(-count // 2))[:count].unsqueeze(1)
    if size == 2:
        angles = torch.linspace(0, 2 * math.pi, count + 1, dtype=torch.float64)[:-1]
        return torch.stack((angles.cos(), angles.sin()), dim=1)
    drawn = torch.randn(count, size, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(drawn, dim=1)


def offsets(problem: Problem, samples: int, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """Offsets [S, G, D] in metric units, of every radius exactly and of random shares [S, G] of it."""
    generator = torch.Generator().manual_seed(seed)
    radii = torch.tensor(RADII, dtype=torch.float64)
    toward = directions(problem.observed_states.shape[1], samples, generator)
    for shares in (torch.ones(samples, len(radii)), torch.rand(samples, len(radii), generator=generator)):
        yield toward.unsqueeze(1) * (shares * radii).unsqueeze(-1).double(), shares.double()


def left_out(problem: Problem, tables: ValueExpansion, center: Tensor, s: int, y: Tensor) -> dict[str, Tensor]:
    """How far replays from offsets y [S, G, D], in metric units, are from each expansion [S, G, T - s], less rounding.
    Expansions of partial sums are those of automatic differentiation."""
    gradient, offset = tables.gradient[0], y @ tables.metric_root[0, s]
    path, rewards = replay(problem, s, (center[s] + offset).flatten(0, 1))
    sums = partial_sums(path, rewards, center[s:], gradient[s:]).unflatten(0, y.shape[:2])
    path = path.unflatten(0, y.shape[:2])
    first = torch.einsum("tij,xgj->xgti", tables.sensitivity[0, s, s:], offset)
    second = torch.einsum("tijk,xgj,xgk->xgti", tables.second_sensitivity[0, s, s:], y, y) / 2
    slope, curvature = differentiated(problem, s, center, gradient)["sums"]
    at_center = partial_sums(*replay(problem, s, center[s : s + 1]), center[s:], gradient[s:])
    straight = torch.einsum("ti,xgi->xgt", slope, offset)
    bent = torch.einsum("tij,xgi,xgj->xgt", curvature, offset, offset) / 2
    size = 1 + path.abs().amax(-1) + first.abs().amax(-1)
    many = size + second.abs().amax(-1)
    summed = 1 + sums.abs() + straight.abs() + bent.abs() + (gradient[s:].norm(dim=-1) * size).amax(-1, keepdim=True)
    found = {
        "first_remainder": (path - center[s:] - first).norm(dim=-1) - ROUNDING * size,
        "second_remainder": (path - center[s:] - first - second).norm(dim=-1) - ROUNDING * many,
        "value_remainder": (sums - at_center - straight - bent).abs() - ROUNDING * summed,
    }
    return {name: values.clamp(min=0) for name, values in found.items()}


def bounds_from(tables: ValueExpansion, s: int) -> dict[str, Tensor]:
    """[1, G, T - s]."""
    return {
        name: getattr(tables, name)[0, s, s : tables.value.shape[1]].mT.unsqueeze(0)
        for name in ("first_remainder", "second_remainder", "value_remainder")
    }


def check_bounds(problem: Problem, tables: ValueExpansion, center: Tensor, *, samples: int, seed: int = 0) -> int:
    """Every bound against replays; how many bounds say something."""
    told = 0
    for s in range(problem.horizon):
        bounds = bounds_from(tables, s)
        for y, shares in offsets(problem, samples, seed + s):
            for name, values in left_out(problem, tables, center, s, y).items():
                assert not int((values > bounds[name]).sum()), (name, s)
                if name == "value_remainder":  # value remainders are looked up per second power of the norm
                    assert not int((values > bounds[name] * shares.unsqueeze(-1) ** 2).sum()), (name, s)
        told += int((bounds["value_remainder"] < 10.0 + tables.value.abs().max()).sum())
    return told


@pytest.mark.parametrize("name", FAMILIES)
def test_derivatives_are_those_of_replays(name: str) -> None:
    for problem in family(name, 2, start=1):
        paths, tables = expansion_of(problem)
        center, unit = paths.states[0], tables.metric_root[0]
        wanted = problem.rollout(problem.observed_actions.unsqueeze(0))[0].squeeze(0)
        torch.testing.assert_close(center, wanted, rtol=1e-12, atol=1e-12)
        for s in range(problem.horizon):
            found = differentiated(problem, s, center, tables.gradient[0])
            rewards = replay(problem, s, center[s : s + 1])[1]
            torch.testing.assert_close(tables.value[0, s], rewards.sum(), rtol=1e-12, atol=1e-12)
            # At the last step the partial sum lacks its reward, but has its slope.
            for slope in found["sums"][0]:
                torch.testing.assert_close(tables.gradient[0, s], slope, rtol=1e-9, atol=1e-11)
            torch.testing.assert_close(tables.hessian[0, s], found["sums"][1][-1], rtol=1e-8, atol=1e-11)
            torch.testing.assert_close(tables.sensitivity[0, s, s:], found["path"][0], rtol=1e-9, atol=1e-11)
            bow = torch.einsum("aj,tiab,bk->tijk", unit[s], found["path"][1], unit[s])
            torch.testing.assert_close(tables.second_sensitivity[0, s, s:], bow, rtol=1e-8, atol=1e-11)
            for table in (
                tables.sensitivity,
                tables.second_sensitivity,
                tables.first_remainder,
                tables.second_remainder,
                tables.value_remainder,
            ):
                assert not table[0, s, :s].any(), "nothing is met before the start"


@pytest.mark.parametrize("euclidean", [False, True], ids=["ellipsoidal", "euclidean"])
@pytest.mark.parametrize("name", few(list(FAMILIES), 3))
@torch.no_grad()
def test_bounds_hold_within_every_radius(name: str, euclidean: bool) -> None:
    told = 0
    for seed, problem in enumerate(family(name, 3, start=2)):
        paths, tables = expansion_of(problem, euclidean=euclidean)
        told += check_bounds(problem, tables, paths.states[0], samples=16, seed=seed)
    assert told > 200  # bounds that say nothing hold as well


@pytest.mark.parametrize("strength", [0.2, 1.0, 5.0])
@torch.no_grad()
def test_bounds_hold_for_any_strength_and_size(strength: float) -> None:
    told, activations = 0, set()
    for seed, problem in enumerate(smooth_problems(6, 2040, ("linear", "with action costs"), strength=strength)):
        paths, tables = expansion_of(problem)
        told += check_bounds(problem, tables, paths.states[0], samples=8, seed=seed)
        activations |= {part.activation for part in paths.smooth.parts}
    assert told > 200
    assert activations == {"tanh", "softplus", "sigmoid"}


CLOSE = {
    "scale": (1.15, 1.3, 1.3),
    "steep scale": (1.15, 1.3, 1.3),
    "late": (1.15, 1.15, 1.4),
    "towards a bend": (3.0, 15.0, 15.0),  # less further away
    "far from a bend": (200.0, 1e4, 2e4),  # next to nothing is left out there
}
"""How many times a remainder its bound may be, at norms from 0.1 to 0.4: first, second and value remainder."""


@pytest.mark.parametrize("name", POLYNOMIALS)
@torch.no_grad()
def test_bounds_where_nothing_is_to_spare(name: str) -> None:
    problem = POLYNOMIALS[name]
    paths, tables = expansion_of(problem)
    center, small = paths.states[0], slice(1, 5)
    check_bounds(problem, tables, center, samples=12)
    y, _ = next(offsets(problem, 24))
    ratios: dict[str, float] = {}
    for s in range(problem.horizon - 1):
        for kind, values in left_out(problem, tables, center, s, y).items():
            ratio = bounds_from(tables, s)[kind][0, small] / (values.amax(0)[small] + 3 * ROUNDING)
            ratios[kind] = max(ratios.get(kind, 0.0), float(ratio.max()))
    close = dict(
        zip(
            ("first_remainder", "second_remainder", "value_remainder"), CLOSE.get(name, (1.15, 1.15, 1.15)), strict=True
        )
    )
    assert not {kind: ratio for kind, ratio in ratios.items() if ratio > close[kind]}


@torch.no_grad()
def test_bounds_hold_where_the_scale_is_switched_on() -> None:
    """A scale that is e^-35 at zero and large one unit further."""
    still = {"state": [[0.1]], "action": [[0.1]], "bias": [0.0], "output": [[0.1]], "output_bias": [0.0]}
    switch = {"state": [[1.0]], "action": [[0.0]], "bias": [0.0], "output": [[60.0]], "output_bias": [-35.0]}
    schema = Schema((Feature("x", "dynamic"),), ActionSpace.from_vectors([[0.0], [1.0]]))
    model = LocationScale.from_weights(schema, location=still, scale=switch, covariance=[[1.0]])
    episode = Episode("switch", schema, states=np.array([[0.0], [1e-9], [0.1]]), actions=np.array([0, 1, 0]))
    problem = Problem.from_episode(episode, model, Query(Linear({"x": 1.0}), 2))
    for euclidean in (False, True):
        paths, tables = expansion_of(problem, euclidean=euclidean)
        check_bounds(problem, tables, paths.states[0], samples=20)


def test_linear_models_are_known_exactly() -> None:
    for problem in smooth_problems(5, start=100, model_kind="linear"):
        for euclidean in (False, True):
            _, tables = expansion_of(problem, euclidean=euclidean)
            for name in ("hessian", "second_sensitivity", "first_remainder", "second_remainder", "value_remainder"):
                assert not getattr(tables, name).any(), name


def test_bounds_grow_at_least_with_the_second_power_of_the_radius() -> None:
    """So they may be looked up at the next radius and scaled down."""
    radii = torch.tensor(RADII, dtype=torch.float64)
    for problem in smooth_problems(some(14), start=3000):
        for euclidean in (False, True):
            _, tables = expansion_of(problem, euclidean=euclidean)
            for name, powers in (("value_remainder", 2), ("first_remainder", 1), ("second_remainder", 1)):
                bounds = getattr(tables, name)
                known = bounds[..., 1:] < LARGE  # beyond that all are as large
                shares = bounds / radii**powers
                assert bool((shares.diff(dim=-1) >= -1e-9 * shares[..., 1:])[known].all()), name


def test_the_ellipsoidal_norm_of_effects() -> None:
    """To first order no allowed change leads further than 1, and some change as far; or the norm is Euclidean."""
    for problem in smooth_problems(some(8), start=4000, rules=False):
        paths, tables = expansion_of(problem)
        eye = torch.eye(problem.observed_states.shape[1], dtype=torch.float64)
        torch.testing.assert_close(
            tables.metric_root @ tables.inverse_root, eye.expand_as(tables.metric_root), rtol=1e-9, atol=1e-9
        )
        torch.testing.assert_close(tables.metric_root, tables.metric_root.mT, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(tables.metric_root[0, 0], eye)
        changes = problem.allowed.scatter(1, problem.observed_actions.unsqueeze(1), False)
        for s in range(1, problem.horizon):
            moved = torch.stack(
                [tables.sensitivity[0, c + 1, s] @ paths.effects[0, c].mT for c in range(s)]
            )  # [C, D, A]
            norms = (tables.inverse_root[0, s] @ moved).norm(dim=1)[changes[:s]]
            largest = float(norms.max()) if len(norms) else 0.0
            lengths = moved.norm(dim=1)[changes[:s]]
            wanted = float(len(lengths) > 0 and float(lengths.max()) > 1e-8)
            assert largest == pytest.approx(wanted, abs=1e-9)
        _, plain = expansion_of(problem, euclidean=True)
        assert torch.equal(plain.metric_root, eye.expand_as(plain.metric_root))
        assert torch.equal(plain.inverse_root, eye.expand_as(plain.inverse_root))


def members(first: Problem) -> list[Problem]:
    """Problems of one model: with rules and without, and another recording."""
    other = Problem.from_episode(
        Episode(
            "another",
            first.episode.schema,
            states=first.decode(first.observed_states.roll(1, 0)),
            actions=first.episode.actions[::-1].copy(),
            context=first.episode.context,
        ),
        first.model,
        Query(first.reward, first.max_changes, change_cost=0.3),
    )
    return [first, first.with_constraints(Constraints()), other]


def check_same(found: ValueExpansion, wanted: ValueExpansion) -> None:
    for field in fields(ValueExpansion):
        # Some norms of third derivatives are multiplied in float32.
        close = 1e-5 if field.name in ("first_remainder", "second_remainder", "value_remainder") else 1e-9
        mine, other = getattr(found, field.name), getattr(wanted, field.name)
        torch.testing.assert_close(mine, other, rtol=close, atol=1e-11, msg=field.name)


def test_several_problems_are_each_on_their_own() -> None:
    for first in smooth_problems(some(6), start=5000, rules=True):
        problems = members(first)
        _, together = expansion_of(*problems)
        for number, problem in enumerate(problems):
            mine = ValueExpansion(
                *(getattr(together, field.name)[number : number + 1] for field in fields(ValueExpansion))
            )
            check_same(mine, expansion_of(problem)[1])


@torch.no_grad()
def test_blocks_of_problems_make_the_same_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    for first in smooth_problems(4, start=5100, rules=True):
        paths, wanted = expansion_of(*members(first))
        horizon, size = first.observed_states.shape
        for together in (1, 2, 3):
            calls: list[int] = []

            def counting(some: RecordedPaths, calls: list[int] = calls) -> ValueExpansion:
                calls.append(len(some.problems))
                return expand_values_together(some)

            with monkeypatch.context() as patch:
                patch.setattr(value_expansion, "expand_values_together", counting)
                patch.setattr(value_expansion, "ELEMENTS", together * horizon * size**4)
                check_same(expand_values(paths), wanted)
            assert calls == {1: [1, 1, 1], 2: [2, 1], 3: [3]}[together]


@torch.no_grad()
def test_whoever_waits_may_end_the_work() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    paths, _ = expansion_of(next(family("additive", 1)))
    with pytest.raises(KeyboardInterrupt), clock(stop):
        expand_values(paths)


def test_penalties_count_as_the_tangents_at_the_observed_path() -> None:
    """Values with tangents for rewards are nowhere below what is really earned."""
    above = 0
    for problem in smooth_problems(some(10, one_in=3), rewards=("penalties",)):
        paths, tables = expansion_of(problem)
        center, generator = paths.states[0], torch.Generator().manual_seed(0)
        slopes = problem.bound_reward.expand(center).slope
        assert slopes is not None
        for s in range(problem.horizon):
            y = directions(center.shape[1], 12, generator) @ tables.metric_root[0, s]
            path, rewards = replay(problem, s, center[s] + y)
            observed = replay(problem, s, center[s : s + 1])[1]
            tangents = observed + ((path - center[s:]) * slopes[s:]).sum(-1)
            assert bool((tangents >= rewards - 1e-9).all())
            above += int((tangents > rewards + 1e-6).sum())
            place = RADII.index(1.0)
            bent = torch.einsum("ni,ij,nj->n", y, tables.hessian[0, s], y) / 2
            expanded = tables.value[0, s] + y @ tables.gradient[0, s] + bent
            assert bool(((tangents.sum(1) - expanded).abs() <= tables.value_remainder[0, s, -1, place] + 1e-9).all())
    assert above > 20


@pytest.mark.parametrize("weight", [1e20, 1e40, 1e110])
@torch.no_grad()
def test_bounds_that_overflow_are_large(weight: float) -> None:
    """A unit that is flat at the observed path, and bends beyond all numbers elsewhere."""
    arrays = polynomial_arrays(0.7, 0.05, 0.01)
    flat = additive_model(shifting_schema((0.05, 0.1)), arrays)
    steep = {
        **arrays,
        **{name: [*arrays[name], [weight]] for name in ("state", "action")},
        "bias": [*arrays["bias"], 10 * weight],
        "output": [[*arrays["output"][0], 0.3]],
        "output_bias": [arrays["output_bias"][0] - 0.3],
    }
    _, wanted = expansion_of(still_problem(flat))
    paths, tables = expansion_of(still_problem(additive_model(shifting_schema((0.05, 0.1)), steep)))
    for name in ("value", "gradient", "hessian", "metric_root", "inverse_root", "sensitivity", "second_sensitivity"):
        torch.testing.assert_close(getattr(tables, name), getattr(wanted, name), rtol=1e-9, atol=1e-9, msg=name)
    for name in ("first_remainder", "second_remainder", "value_remainder"):
        assert not getattr(tables, name).isnan().any(), name
        assert bool((getattr(tables, name) >= getattr(wanted, name) * (1 - 1e-6)).all()), name
    assert float(tables.value_remainder[0, 0, -1, -1]) >= LARGE
    check_bounds(paths.problems[0], tables, paths.states[0], samples=2)


@pytest.mark.parametrize("weight", [1e20, 1e50, 1e90])
@torch.no_grad()
def test_nothing_fails_where_derivatives_overflow(weight: float) -> None:
    """Derivatives may be undefined then; bounds are as good as infinite."""
    ahead = np.array([[0.6, 0.64, 0.48]])
    arrays = {
        "state": np.array([[1.0], [weight]]) @ ahead,
        "action": [[1.0], [weight]],
        "bias": [0.0, 0.3],
        "output": ahead.T[::-1] @ np.array([[0.5, weight]]),
        "output_bias": -ahead[0, ::-1] * weight * math.tanh(0.3),
    }
    model = additive_model(shifting_schema((0.05, 0.1), size=3), arrays)
    _, tables = expansion_of(still_problem(model, reward=(1.0, 0.5, -0.5)))
    for name in ("first_remainder", "second_remainder", "value_remainder"):
        assert not getattr(tables, name).isnan().any(), name
    assert not tables.metric_root.isnan().any(), "any norm will do"
    assert not tables.inverse_root.isnan().any()
    assert float(tables.value_remainder[0, 0, -1, -1]) >= LARGE


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_two_steps(name: str) -> None:
    for problem in family(name, 2, start=5, horizon=2):
        paths, tables = expansion_of(problem)
        assert check_bounds(problem, tables, paths.states[0], samples=12) > 30
        assert not tables.value_remainder[0, 1].any()
        assert not tables.hessian[0, 1].any()
        torch.testing.assert_close(tables.gradient[0, 1], paths.rewards.slope[0, 1])
