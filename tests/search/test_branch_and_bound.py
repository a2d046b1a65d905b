"""The branch-and-bound search against enumeration."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from effort import some
from shared_problems import best_by_budget, random_problem

from ifonly.bounds.base import NoChildBound
from ifonly.bounds.taylor import can_expand
from ifonly.errors import InputError
from ifonly.problem import Problem
from ifonly.problem.batch import ProblemBatch
from ifonly.progress import Tick
from ifonly.query import Limits, Query
from ifonly.result import Result, Status
from ifonly.rewards import Custom
from ifonly.search.base import Solution
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.finalize import finalize
from ifonly.search.solve import solve
from ifonly.search.tree import Tree
from ifonly.testing import check_solver
from ifonly.testing.instances import MODEL_KINDS, SINGLE_REWARDS, partition_exists, partition_problem

BOUNDS = ("none", "lipschitz", "auto")
"""The Taylor bound needs smooth problems: see test_taylor_search.py."""


def problems(count: int, start: int = 0, **settings: object) -> Iterator[Problem]:
    """Every kind of model and reward, every small budget, with and without rules."""
    for seed in range(start, start + count):
        given = {
            "model_kind": MODEL_KINDS[seed % len(MODEL_KINDS)],
            "reward_kind": SINGLE_REWARDS[seed // len(MODEL_KINDS) % len(SINGLE_REWARDS)],
            "max_changes": (2, 0, 1, 3, 4, None)[seed % 6],
            "horizon": 2 + seed % 4,
            "actions": 1 + seed % 4,
            "rules": None,
        }
        yield random_problem(seed, **{**given, **settings})


def check_frontier(result: Result, problem: Problem, *, proven: bool = True) -> None:
    tolerance = 10 * problem.tolerance
    truth = best_by_budget(problem).tolist()
    assert [budget.max_changes for budget in result.frontier] == list(range(problem.max_changes + 1))
    for budget, best in zip(result.frontier, truth, strict=True):
        if best == -math.inf:
            assert budget.outcome is None
            assert budget.actions is None
            assert budget.upper_bound == -math.inf
            continue
        assert budget.actions is not None
        assert budget.outcome is not None
        actions = torch.tensor(budget.actions)
        assert problem.admissible(actions.unsqueeze(0)).all()
        assert int(problem.changes(actions)) <= budget.max_changes
        assert abs(problem.outcome(actions) - budget.outcome) <= tolerance
        assert budget.outcome - tolerance <= best <= budget.upper_bound + tolerance
        if proven:
            assert abs(budget.outcome - best) <= tolerance
            assert abs(budget.upper_bound - best) <= tolerance
    assert np.array_equal(result.frontier[-1].actions, result.actions)
    assert result.certificate.details["every_budget_proven"] or not proven


@pytest.mark.parametrize("bound", BOUNDS)
def test_every_budget_equals_enumeration(bound: str) -> None:
    for number, problem in enumerate(problems(some(60))):
        result = solve(problem, BranchAndBound(bound=bound, batch=1 + number % 5))
        assert result.status is Status.OPTIMAL
        assert result.certificate.proven
        check_frontier(result, problem)


def test_contract() -> None:
    check_solver(BranchAndBound(), [random_problem(seed, rules=None) for seed in range(300, 300 + some(18))])


@pytest.mark.parametrize("values", [[3, 1, 2], [4, 3, 2, 1], [5, 3, 3], [2, 2, 3], [7, 1, 1, 1]])
def test_partition(values: list[int]) -> None:
    result = solve(partition_problem(values))
    assert (abs(result.outcome) < 1e-9) == partition_exists(values)


def test_required_changes_leave_small_budgets_empty() -> None:
    """At least some random rules demand changes, so that the empty budgets above are really tried."""
    empty = [p for p in problems(75, rules=True) if best_by_budget(p)[0] == -math.inf]
    assert len(empty) > 10


def ranking(problem: Problem) -> list[tuple[float, int, tuple[int, ...]]]:
    """All admissible sequences, best first, without those whose last change changes no reward."""
    every = torch.tensor(list(itertools.product(range(problem.action_count), repeat=problem.horizon)))
    every = every[problem.admissible(every)]
    states, outcomes = problem.rollout(every)
    unchanged = every.clone()
    unchanged[:, -1] = problem.observed_actions[-1]
    same = problem.free_rewards(-1, states[:, -1], every[:, -1]) == problem.free_rewards(
        -1, states[:, -1], unchanged[:, -1]
    )
    idle = (every[:, -1] != problem.observed_actions[-1]) & same & problem.admissible(unchanged)
    rows = zip(outcomes.tolist(), problem.changes(every).tolist(), map(tuple, every.tolist()), strict=True)
    listed = [row for row, skip in zip(rows, idle.tolist(), strict=True) if not skip]
    return sorted(listed, key=lambda row: (-row[0], row[1], row[2]))


@pytest.mark.parametrize("bound", BOUNDS)
def test_best_few(bound: str) -> None:
    for problem in problems(some(10), start=500, constrained=True):
        wanted = ranking(problem)
        for number in (2, 5, 10_000):
            result = solve(problem, BranchAndBound(bound=bound, alternatives=number, batch=3))
            found = [(one.outcome, tuple(one.actions.tolist())) for one in result.alternatives]
            assert len({actions for _, actions in found}) == len(found) == min(number, len(wanted))
            assert np.allclose([value for value, _ in found], [row[0] for row in wanted[:number]], rtol=0, atol=1e-8)
            assert found[0][1] == tuple(result.actions.tolist())
            assert result.certificate.details["alternatives_proven"]
            if number > len(wanted):
                assert {actions for _, actions in found} == {actions for _, _, actions in wanted}
            check_frontier(result, problem)


def test_all_within_a_distance() -> None:
    for problem in problems(some(16), start=700, max_changes=3):
        wanted = ranking(problem)
        spread = wanted[0][0] - wanted[-1][0]
        # A distance that no outcome lies at by accident.
        within = 0.37 * spread + 1e-6
        result = solve(problem, BranchAndBound(within=within))
        close = {actions for value, _, actions in wanted if value >= wanted[0][0] - within}
        assert {tuple(one.actions.tolist()) for one in result.alternatives} == close
        assert not result.certificate.details["alternatives_cut"]
        few = solve(problem, BranchAndBound(within=within, alternatives=2))
        assert len(few.alternatives) == min(2, len(close))
        assert few.certificate.details["alternatives_cut"] == (len(close) > 2)


@pytest.mark.parametrize("limits", [Limits(nodes=0), Limits(nodes=1), Limits(nodes=7), Limits(seconds=0.0)])
@pytest.mark.parametrize("bound", ["none", "lipschitz"])
def test_limits_leave_valid_brackets(limits: Limits, bound: str) -> None:
    statuses = set()
    for problem in problems(some(10), start=900, max_changes=3, horizon=5, actions=4, constrained=True):
        result = solve(problem, BranchAndBound(bound=bound, batch=1), limits=limits)
        check_frontier(result, problem, proven=False)
        assert result.certificate.proven == math.isfinite(result.upper_bound)
        statuses.add(result.status)
    assert bound == "lipschitz" or statuses & {Status.NODE_LIMIT, Status.TIME_LIMIT}


def test_gap_is_respected_and_told() -> None:
    reached = 0
    for problem in problems(some(24, one_in=3), start=1100, max_changes=3, horizon=5, actions=4, constrained=True):
        truth = float(best_by_budget(problem)[-1])
        gap = 0.3 * abs(truth - problem.observed_outcome) + 0.05
        result = solve(problem, BranchAndBound(bound="lipschitz"), limits=Limits(gap=gap))
        check_frontier(result, problem, proven=False)
        assert result.status in (Status.OPTIMAL, Status.GAP_REACHED)
        assert result.gap <= gap + problem.tolerance
        reached += result.status is Status.GAP_REACHED
    assert reached >= some(2, one_in=3)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_interruption_leaves_valid_brackets(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ifonly.search.tree.REPORT_SECONDS", -1.0)
    for problem in problems(some(12), start=1300, max_changes=3, horizon=5, actions=4, constrained=True):
        seen = []

        def interrupt(tick: Tick, seen: list[Tick] = seen) -> None:
            seen.append(tick)
            if len(seen) > after:
                raise KeyboardInterrupt

        result = solve(problem, BranchAndBound(bound="lipschitz", batch=1), progress=interrupt)
        check_frontier(result, problem, proven=False)
        assert result.status in (Status.INTERRUPTED, Status.OPTIMAL)


def test_interruption_in_the_middle_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever model call is interrupted, the bracket holds."""
    problem = random_problem(4, horizon=5, actions=4, max_changes=3, model_kind="linear", reward_kind="linear")
    step, calls, interrupted = ProblemBatch.step, [0], 0

    def counted(self: ProblemBatch, *inputs: Any) -> torch.Tensor:
        calls[0] -= 1
        if calls[0] == 0:
            raise KeyboardInterrupt
        return step(self, *inputs)

    def undisturbed(tree: Tree, stopped: Status | None) -> list[Solution]:
        calls[0] = -1
        return finalize(tree, stopped)

    monkeypatch.setattr(ProblemBatch, "step", counted)
    monkeypatch.setattr("ifonly.search.branch_and_bound.finalize", undisturbed)
    for calls[0] in range(problem.horizon, 60, 60 // some(60)):  # once the observed sequence is known
        result = solve(problem, BranchAndBound(bound="none", batch=2))
        check_frontier(result, problem, proven=False)
        interrupted += result.status is Status.INTERRUPTED
    assert interrupted > some(10)


@pytest.mark.parametrize("bound", BOUNDS)
def test_little_memory_gives_the_same_answer(bound: str) -> None:
    went_deep = 0
    for problem in problems(15, start=1500, max_changes=4, horizon=5, actions=4, constrained=True):
        result = solve(problem, BranchAndBound(bound=bound), limits=Limits(memory=0.0))
        check_frontier(result, problem)
        went_deep += result.certificate.details["depth_first"]
    assert went_deep >= 3


def test_answer_does_not_depend_on_the_batch() -> None:
    for problem in problems(some(18), start=1700, rules=False):
        results = [solve(problem, BranchAndBound(batch=batch)) for batch in (1, 4, 1000)]
        assert len({tuple(result.actions.tolist()) for result in results}) == 1


def test_ties_are_not_enumerated() -> None:
    base = random_problem(1, horizon=8, actions=5, model_kind="linear")
    flat = Custom(lambda states, actions: torch.zeros(states.shape[:-1], dtype=torch.float64), 0.0, space="scaled")
    result = solve(Problem.from_episode(base.episode, base.model, Query(flat, 5)), BranchAndBound(bound="lipschitz"))
    assert result.status is Status.OPTIMAL
    assert not result.changes
    assert result.stats.nodes_expanded == 1


def test_outcomes_that_overflow_are_refused() -> None:
    base = random_problem(1, horizon=4, actions=3, model_kind="linear")

    def reward(states: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        observed = torch.as_tensor(base.observed_states)
        far = (states.unsqueeze(-2) - observed).abs().sum(-1).amin(-1) > 1e-6
        return torch.where(far, torch.nan, 0.0).to(torch.float64)

    problem = Problem.from_episode(base.episode, base.model, Query(Custom(reward, 1.0, space="scaled"), 2))
    with pytest.raises(InputError, match="NaN or infinite"):
        solve(problem, BranchAndBound(bound="none"))


def test_a_bound_that_does_not_know_prunes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN compares as smaller than everything; taken literally it would prune."""
    monkeypatch.setattr(NoChildBound, "root", lambda self: torch.full((1, 3, 5, 4), torch.nan, dtype=torch.float64))
    for problem in problems(some(10), max_changes=3, horizon=5, actions=4):
        check_frontier(solve(problem, BranchAndBound(bound="none")), problem)


def test_fewest_changes() -> None:
    problem = random_problem(3, model_kind="linear", reward_kind="linear", horizon=6, max_changes=4)
    result = solve(problem, BranchAndBound())
    outcomes = [budget.outcome for budget in result.frontier]
    for budget in result.frontier:
        assert budget.outcome is not None
        reached = result.fewest_changes(budget.outcome)
        assert reached is not None
        assert reached.max_changes == outcomes.index(budget.outcome)
    assert result.fewest_changes(result.outcome + 1.0) is None


def test_settings_are_checked() -> None:
    for settings in ({"batch": 0}, {"alternatives": 0}, {"within": -1.0}, {"bound": "best"}, {"alternatives": 1.5}):
        with pytest.raises(InputError):
            BranchAndBound(**settings)
    with pytest.raises(InputError):
        Limits(memory=-1.0)


@pytest.mark.parametrize("bound", ["none", "taylor", "auto"])
def test_a_stopped_search_has_a_bracket_for_every_budget(bound: str) -> None:
    """However early it is stopped: anchors on the observed path bound what the search itself has no bound for."""
    from_anchors = 0
    for seed in range(some(24)):
        problem = random_problem(
            seed, model_kind="location-scale", reward_kind="linear", max_changes=3, horizon=5, rules=seed % 2 == 0
        )
        if bound == "taylor" and not can_expand(problem):
            continue
        for limits in (Limits(seconds=0.0), Limits(nodes=1), Limits(nodes=5)):
            result = solve(problem, BranchAndBound(bound=bound, batch=1), limits=limits)  # type: ignore[arg-type]
            from_anchors += "upper_bounds_from" in result.certificate.details
            for budget, best in zip(result.frontier, best_by_budget(problem), strict=True):
                assert budget.upper_bound < math.inf
                assert budget.upper_bound >= best - problem.tolerance
            assert result.certificate.proven
    assert from_anchors > some(20)


def test_no_bracket_where_constants_are_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem.__wrapped__(3, model_kind="location-scale", max_changes=2, horizon=4, rules=False)
    monkeypatch.setattr(
        problem.model, "lipschitz", lambda *_: torch.full((problem.action_count,), torch.inf, dtype=torch.float64)
    )
    result = solve(problem, BranchAndBound(bound="none"), limits=Limits(seconds=0.0))
    assert result.upper_bound == math.inf
    assert not result.certificate.proven
    assert "upper_bounds_from" not in result.certificate.details
