"""What rewards cannot exceed bounds every search: never below the truth, reached where values are good enough."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from effort import some

from ifonly.bounds.base import NoChildBound
from ifonly.bounds.ceilings import CeilingBound
from ifonly.bounds.factory import make_child_bound
from ifonly.bounds.taylor import can_expand
from ifonly.problem import EnsembleProblem, Problem
from ifonly.proofs import check_proof
from ifonly.proofs.ceilings import most_to_go
from ifonly.proofs.question import Question, Record
from ifonly.query import Limits
from ifonly.result import Status
from ifonly.rewards import ActionCost, Goal, Linear, Reward, TimeInRange, Total, Within
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import outcome_frontier
from ifonly.search.solve import solve
from ifonly.testing import check_child_bound
from ifonly.testing.instances import random_ensemble, random_problem

SMOOTH = ("location-scale", "additive", "linear")
REWARDS: dict[str, Reward] = {
    "steps in range": TimeInRange("state 0", -0.5, 0.5, margin=0.5),
    "steps above": TimeInRange("state 0", 0.2, None, margin=1.5),
    "penalties": Within("state 0", -0.3, 0.4, below=2.0),
    "weighted": Goal(TimeInRange("state 0", -0.5, 0.5), weight=2.0, discount=0.9, over="last 2 steps")
    + Goal(Within("state 0", None, 0.2), weight=0.5),
    "with costs": Within("state 0", -0.3, 0.4) + ActionCost({1: 0.3, 2: -0.2}),
    "with costs of steps": Goal(TimeInRange("state 0", -0.5, 0.5)) + Goal(ActionCost({1: 0.3}), over="end"),
}
"""Each with a largest value that some states earn."""


def put(problem: Problem, reward: Reward, **changes: object) -> Problem:
    return Problem.from_episode(problem.episode, problem.model, problem.query.with_changes(reward=reward, **changes))


def problems(reward: Reward, count: int, **settings: object) -> Iterator[Problem]:
    """Kinds, rules, costs and budgets vary with the seed; activations are drawn by it, and must be smooth."""
    found = 0
    for seed in itertools.count():
        given = {"model_kind": SMOOTH[seed % 3], "horizon": 3 + seed % 3, "max_changes": 1 + seed % 3, "actions": 3}
        drawn = random_problem(seed, **{**given, "rules": None, **settings}, reward_kind="linear")
        if can_expand(drawn):
            yield put(drawn, reward, change_cost=(0.0, 0.1)[seed % 2])
            found += 1
        if found == count:
            return


@pytest.mark.parametrize("kind", REWARDS)
def test_bounds_are_above_the_truth(kind: str) -> None:
    for problem in problems(REWARDS[kind], some(10), rules=False):
        for name in ("taylor", "none") if can_expand(problem) else ("lipschitz", "none"):
            bound = make_child_bound([problem], name)
            assert isinstance(bound, CeilingBound)
            check_child_bound(bound, [problem], samples=8)


def test_bounds_of_ensembles_are_above_the_truth() -> None:
    for seed in range(some(10)):
        reward = list(REWARDS.values())[seed % len(REWARDS)]
        settings = {"model_kind": "linear", "horizon": 4, "max_changes": 2, "rules": False}
        plain = random_ensemble(seed, objective=("mean", "worst")[seed % 2], **settings)
        query = plain.query.with_changes(reward=reward)
        problem = EnsembleProblem.from_episode(plain.episode, [one.model for one in plain.members], query)
        check_child_bound(make_child_bound([problem], "none"), [problem], samples=6)


@pytest.mark.parametrize("bound", ["taylor", "lipschitz", "none"])
@pytest.mark.parametrize("kind", REWARDS)
def test_searches_equal_enumeration(kind: str, bound: str) -> None:
    for problem in problems(REWARDS[kind], some(15), scaling="linear" if bound == "lipschitz" else "mixed"):
        if bound == "taylor" and not can_expand(problem):
            continue
        result, truth = solve(problem, BranchAndBound(bound=bound)), outcome_frontier(problem).tolist()
        assert result.status is Status.OPTIMAL
        for budget, best in zip(result.frontier, truth, strict=True):
            assert (-np.inf if budget.outcome is None else budget.outcome) == pytest.approx(best, abs=1e-9)
            assert budget.upper_bound == pytest.approx(best, abs=1e-8)
        stopped = solve(problem, BranchAndBound(bound=bound), limits=Limits(nodes=1))
        assert all(one.upper_bound >= best - 1e-9 for one, best in zip(stopped.frontier, truth, strict=True))


@pytest.mark.parametrize("bound", ["auto", "none", "lipschitz"])
def test_a_search_that_reached_the_ceiling_ends_at_once(bound: str) -> None:
    """Nothing is better than all steps in range: no budget that reaches that is opened."""
    settings = {"horizon": 9, "actions": 6, "max_changes": 4, "rules": False, "strength": 0.5, "masked": False}
    for plain in problems(Linear({"state 0": 1.0}), some(10), **settings):
        lowest = plain.decode(plain.rollout(single_changes(plain))[0])[:, :, 0].min(1)
        for low in (float(plain.episode.states[:, 0].min()), float(lowest.max())):
            reward = TimeInRange("state 0", low - 1e-6, None, margin=0.5)
            result = solve(put(plain, reward, change_cost=0.0), BranchAndBound(bound=bound))
            assert result.frontier[1].outcome == pytest.approx(9.0)
            assert result.status is Status.OPTIMAL
            assert result.stats.nodes_expanded == 1  # smaller budgets are proven at the root


def single_changes(problem: Problem) -> torch.Tensor:
    """The recorded sequence with every change [N, T]."""
    steps, actions = torch.arange(problem.horizon), torch.arange(problem.action_count)
    rows = problem.observed_actions.repeat(len(steps), len(actions), 1)
    rows[steps[:, None], actions, steps[:, None]] = actions
    return rows.flatten(0, 1)


def test_prefixes_that_lost_too_much_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enumeration leaves out what cannot make up for what it lost."""
    counts = []
    settings = {"horizon": 8, "actions": 4, "max_changes": 3, "rules": False, "strength": 0.5, "masked": False}
    for plain in problems(Linear({"state 0": 1.0}), some(10), **settings):
        least = float(np.quantile(plain.episode.states[:, 0], 0.3))
        one = put(plain, TimeInRange("state 0", least, None, margin=0.5))
        found = solve(one, BranchAndBound(bound="none"))
        with monkeypatch.context() as patch:
            patch.setattr("ifonly.bounds.factory.with_ceilings", lambda bound, problems: bound)
            without = solve(one, BranchAndBound(bound="none"))
        assert found.outcome == pytest.approx(without.outcome, abs=1e-9)
        assert found.stats.nodes_expanded <= without.stats.nodes_expanded
        counts.append(found.stats.model_steps / without.stats.model_steps)
    assert np.median(counts) < 0.7


def test_sums_of_features_have_no_ceiling_worth_a_look() -> None:
    """SOFA of zero at every step is a limit, but none that a search gets near to."""
    problem = random_problem(0, model_kind="linear", reward_kind="linear", scaling="bounded")
    assert np.isfinite(problem.largest_outcome)
    assert isinstance(make_child_bound([problem], "none"), NoChildBound)


@pytest.mark.parametrize("kind", REWARDS)
def test_the_checker_reckons_ceilings_of_its_own(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    for problem in problems(REWARDS[kind], some(10), scaling="mixed"):
        result = solve(problem, BranchAndBound(bound="none"), proof=path)
        question = Question.read(Record.read(path))
        most = most_to_go(question)
        sums = problem.largest_rewards.amax(1).flip(0).cumsum(0).flip(0).numpy()
        assert (most[:-1, 1] <= sums + 1e-9).all()
        rng = np.random.default_rng(0)
        states = torch.tensor(rng.normal(0, 3, (200, problem.horizon, problem.observed_states.shape[1])))
        rewards = torch.stack([problem.rewards_all(t, states[:, t]) for t in range(problem.horizon)])
        rewards = rewards.masked_fill(problem.largest_rewards.unsqueeze(1) == -torch.inf, -torch.inf)
        assert (rewards.amax((1, 2)).flip(0).cumsum(0).flip(0).numpy() <= most[:-1, 1] + 1e-9).all()
        kept = rewards.gather(2, problem.observed_actions.view(-1, 1, 1).expand(-1, 200, 1)).amax((1, 2))
        assert (kept.flip(0).cumsum(0).flip(0).numpy() <= most[:-1, 0] + 1e-9).all()
        found = check_proof(path)
        assert found.complete
        assert found.outcomes[-1] == pytest.approx(result.outcome)


def test_cuts_at_a_ceiling_are_confirmed_without_work(tmp_path: Path) -> None:
    settings = {"horizon": 9, "actions": 6, "max_changes": 3, "rules": False, "masked": False}
    for plain in problems(Linear({"state 0": 1.0}), some(6), **settings):
        values = plain.episode.states[:, 0]
        wide = Total((TimeInRange("state 0", float(values.min()) - 0.1, None), ActionCost({0: 0.0})))
        solve(put(plain, wide), proof=tmp_path / "log.npz")
        found = check_proof(tmp_path / "log.npz", work=1)
        assert found.complete
        assert found.cuts
