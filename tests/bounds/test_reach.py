"""Sets of reachable states hold every state that is reached, and what is bounded from them holds every outcome."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from effort import some
from smooth_problems import smooth_problems
from torch import Tensor

import ifonly.bounds.reach as module
from ifonly.bounds.factory import hard_bounds
from ifonly.bounds.reach import Reach, Units, can_reach, tightened_bounds
from ifonly.bounds.taylor.applicability import smooth_step
from ifonly.constraints import Constraints
from ifonly.data import ActionSpace, Episode, Feature, Schema
from ifonly.models import LinearModel
from ifonly.problem import Problem
from ifonly.query import Query
from ifonly.rewards import ActionCost, Linear
from ifonly.search.exhaustive import every_sequence, outcome_frontier
from ifonly.testing.instances import random_ensemble, random_problem

BOUNDED = [({"scaling": "bounded", "plausible": (0.0, 1.0)}, weight) for weight in (-1.0, 1.0)]
STRENGTHS = (0.1, 0.5, 1.0, 2.0, 4.0)


def shallow_problems(count: int, **settings: Any) -> Iterator[Problem]:
    """With one hidden layer; budgets up to all steps."""
    return smooth_problems(count, **{"hidden": (6,), **settings})


def last_bounds(problem: Problem, smallest: int = 0) -> Tensor:
    *_, bounds = (torch.full((problem.max_changes + 1,), torch.inf), *tightened_bounds(problem, smallest))
    return bounds


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("scaling", ["linear", "bounded", "log", "mixed"])
def test_bounds_are_never_below_the_truth(strength: float, scaling: str) -> None:
    finite = 0
    given = {"strength": strength, "scaling": scaling, "max_changes": None}
    for problem in shallow_problems(some(15), start=int(1000 * strength), **given):
        truth = outcome_frontier(problem)
        for bounds in tightened_bounds(problem):
            assert (bounds >= truth - 1e-9).all()
            finite += int(bounds.isfinite().all())
    assert finite


def test_rounds_only_tighten() -> None:
    tightened = 0.0
    for problem in shallow_problems(some(10), start=4, max_changes=None, horizon=6, strength=0.5):
        rounds = list(tightened_bounds(problem))
        for first, second in pairwise(rounds):
            assert (second <= first).all()
        if rounds:
            tightened += float((rounds[0] - rounds[-1])[1:].max())
    assert tightened > 0.01, "the fit is of use"


@pytest.mark.parametrize("kind", ["location-scale", "additive", "linear"])
def test_every_state_lies_within_its_set(kind: str) -> None:
    """In random directions, by the number of changes before it, around the recorded path and around another."""
    generator, touched = torch.Generator().manual_seed(0), 0.0
    for problem in shallow_problems(some(12), model_kind=kind, horizon=5, actions=3, max_changes=None, rules=False):
        if not can_reach(problem):
            continue
        around = Reach(problem, problem.observed_states)
        for reach in (around, Reach(problem, around.middle())):
            directions = torch.randn(8, problem.observed_states.shape[1], generator=generator, dtype=torch.float64)
            ends = [reach.farthest(t, directions.unsqueeze(0)) for t in range(problem.horizon)]
            for sequences, _ in every_sequence(problem):
                states = problem.rollout(sequences)[0]
                before = (sequences != problem.observed_actions).cumsum(1) - (
                    sequences != problem.observed_actions
                ).int()
                for t, end in enumerate(ends):
                    off = (states[:, t] - reach.path[t]) @ directions.mT
                    allowed = end[before[:, t]]
                    assert (off <= allowed + 1e-9 * (1 + allowed.abs())).all()
                    if t:
                        touched = max(touched, float((off / allowed.clamp(min=1e-9)).max()))
    assert touched > 0.6, "the sets are no larger than they must be"


@pytest.mark.parametrize("kind", ["location-scale", "additive"])
@pytest.mark.parametrize("radius", [0.1, 1.0, 5.0])
def test_what_is_not_linear_is_bounded(kind: str, radius: float) -> None:
    """In random directions of the next state, for states in a ball, large noise among it."""
    generator, touched = torch.Generator().manual_seed(1), 0.0
    given = {"model_kind": kind, "state_size": 2, "rewards": ["linear"]}
    for problem in shallow_problems(some(20), strength=1.0, horizon=2, actions=2, **given):
        step, state, context = smooth_step(problem), problem.observed_states[0], problem.context[0]
        assert step is not None
        noise = 5 * torch.randn(2, generator=generator, dtype=torch.float64)
        units = Units(step.parts, state, context, noise)
        units.bound_remainders(lambda directions: radius * directions.norm(dim=-1), 1, 2)
        directions = torch.randn(1, 2, 50, 2, generator=generator, dtype=torch.float64)
        bounds = units.remainder(directions)[0]
        angles = torch.linspace(0, 2 * torch.pi, 60, dtype=torch.float64)
        away = torch.stack((angles.cos(), angles.sin()), dim=1)
        away = radius * torch.cat((away, away / 2, away / 8))
        for action in range(2):
            at = (context.expand(len(away), -1), torch.full((len(away),), action), noise.expand(len(away), -1))
            here = problem.model.step(state.expand_as(away), *at)
            linear = here + away @ step.jacobians(state.expand_as(away), *at)[0].mT
            rest = (problem.model.step(state + away, *at) - linear) @ directions[0, action].mT
            assert (rest <= bounds[action] + 1e-9).all()
            touched = max(touched, float((rest.amax(0) / bounds[action].clamp(min=1e-9)).max()))
    assert touched > 0.3, "the bounds are no larger than they must be"


def additive_problem(seed: int, *, changes: int | None = 4) -> Problem:
    """What changes bring just adds up: every action moves the state alike, wherever it is."""
    generator = np.random.default_rng(seed)
    schema = Schema((Feature("x", "dynamic"), Feature("y", "dynamic")), ActionSpace.categories(["a", "b", "c", "d"]))
    matrix, offsets = generator.normal(size=(2, 2)) / 2, generator.normal(size=(4, 2))
    model = LinearModel(schema, np.broadcast_to(matrix, (4, 2, 2)).tolist(), offsets=offsets.tolist())
    states = [generator.normal(size=2)]
    actions = generator.integers(4, size=7)
    for action in actions[:-1]:
        states.append(matrix @ states[-1] + offsets[action] + generator.normal(size=2))
    episode = Episode("one", schema, states=np.stack(states), actions=actions)
    return Problem.from_episode(episode, model, Query(Linear({"x": 1.0, "y": -0.5}), changes))


def test_what_adds_up_is_bounded_exactly() -> None:
    for seed in range(some(10)):
        problem = additive_problem(seed, changes=(4, None)[seed % 2])
        torch.testing.assert_close(last_bounds(problem), outcome_frontier(problem), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("given", "weight"), [({"scaling": "log", "log_offset": 0.3}, -1.0), *BOUNDED])
def test_paths_may_leave_the_range(given: dict[str, Any], weight: float) -> None:
    """The middle of what is reached lies where values are cut; what is recorded, and best, does not."""
    schema = Schema((Feature("x", "dynamic", **given),), ActionSpace.categories(["a", "b"]))
    end, shift = 0.0 if weight < 0 else 1.0, 0.4 * weight
    model = LinearModel(schema, [[[0.0]]] * 2, offsets=[[0.0], [shift]])
    recorded = model.scaler.states.encode([[end]] * 3) - shift / 4
    episode = Episode("one", schema, states=model.scaler.states.decode(recorded), actions=np.zeros(3, dtype=int))
    problem = Problem.from_episode(episode, model, Query(Linear({"x": weight}) + ActionCost({"b": 0.5}), 2))
    middle = Reach(problem, problem.observed_states).middle()
    assert torch.equal(problem.bound_reward.decoder(middle[1:]), torch.full((2, 1), end, dtype=torch.float64))
    truth = outcome_frontier(problem)
    assert (last_bounds(problem) >= truth).all()
    assert (last_bounds(problem) <= truth + 0.03).all()


def test_steps_without_alternatives_count_for_nothing() -> None:
    problem = additive_problem(1)
    free = np.zeros((7, 4), dtype=bool)
    free[2] = free[5] = True
    rules = Constraints().restricted_to(free | (np.arange(4) == problem.episode.actions[:, None]), problem.episode)
    locked = Problem.from_episode(problem.episode, problem.model, replace(problem.query, constraints=rules))
    torch.testing.assert_close(last_bounds(locked), outcome_frontier(locked), rtol=1e-6, atol=1e-6)


def test_bounds_are_close_where_networks_are_gentle() -> None:
    """Within half of what changes can do, for budgets as large as there are steps."""
    for problem in shallow_problems(
        some(8), model_kind="location-scale", constrained=True, strength=0.3, horizon=6, max_changes=None, rules=False
    ):
        if can_reach(problem):
            truth, bounds = outcome_frontier(problem), last_bounds(problem)
            spread = float(truth[-1] - truth[0])
            assert float((bounds - truth).max()) <= 0.5 * spread + 1e-6


def test_budgets_below_the_smallest_are_left_out() -> None:
    problem = additive_problem(0)
    bounds = last_bounds(problem, smallest=3)
    assert bounds[:3].isinf().all()
    assert bounds[3:].isfinite().all()


def test_bounds_are_found_in_inference_mode() -> None:
    with torch.inference_mode():
        problem = additive_problem(0)
        torch.testing.assert_close(last_bounds(problem), outcome_frontier(problem), rtol=1e-6, atol=1e-6)


def test_what_cannot_be_bounded() -> None:
    deep = random_problem(0, model_kind="location-scale", hidden=(5, 4), reward_kind="linear", constrained=True)
    assert not can_reach(deep)
    assert not list(hard_bounds(deep, 0))
    flow = random_problem(0, model_kind="monotone-flow", reward_kind="linear")
    assert not can_reach(flow)


def test_large_problems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = additive_problem(0)
    assert can_reach(problem)
    monkeypatch.setattr(module, "ELEMENTS", 100)
    assert not can_reach(problem)


def test_bounds_that_tell_nothing_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = additive_problem(0)
    monkeypatch.setattr(Problem, "largest_outcome", problem.observed_outcome - 1e9)
    assert not list(tightened_bounds(problem))


@pytest.mark.parametrize("seed", range(some(6)))
def test_ensembles_have_the_bound_of_their_objective(seed: int) -> None:
    kinds = {"model_kind": "additive", "reward_kind": "linear", "horizon": 4, "strength": 0.5, "max_changes": 4}
    ensemble = random_ensemble(seed, members=2, **kinds)
    truth = outcome_frontier(ensemble)
    for bounds in hard_bounds(ensemble, 0):
        assert (bounds >= truth - 1e-9).all()
