"""Shares of the gain, the readable log, and the check of frontiers and alternatives."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from effort import some

from ifonly.errors import InputError, VerificationError
from ifonly.problem import Problem
from ifonly.result import Alternative, Budget, Result
from ifonly.search.astar import AnchorAStar
from ifonly.search.base import Solver
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.contributions import contributions
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.heuristics import Greedy
from ifonly.search.log import HEADER, search_log
from ifonly.search.solve import solve
from ifonly.search.verify import verify
from ifonly.testing.instances import random_problem


def test_shares_are_averages_over_all_orders() -> None:
    for seed in range(some(15)):
        problem = random_problem(seed, horizon=6, actions=4, max_changes=4, rules=None)
        result = solve(problem)
        shared = contributions(problem, result.actions)
        steps = [change.step for change in result.changes]
        assert [change.step for change in shared.changes] == steps
        assert shared.outcomes[()] == pytest.approx(result.observed_outcome, abs=1e-9)
        assert shared.outcomes[tuple(steps)] == pytest.approx(result.outcome, abs=1e-9)
        assert sum(change.share for change in shared.changes) == pytest.approx(result.improvement, abs=1e-9)
        gains = {step: [] for step in steps}
        for order in itertools.permutations(steps):
            for place, step in enumerate(order):
                before, after = tuple(sorted(order[:place])), tuple(sorted(order[: place + 1]))
                gains[step].append(shared.outcomes[after] - shared.outcomes[before])
        for change in shared.changes:
            assert change.share == pytest.approx(np.mean(gains[change.step]), abs=1e-9)
            undone = result.actions.copy()
            undone[change.step] = result.observed_actions[change.step]
            assert change.lost_without == pytest.approx(result.outcome - problem.outcome(undone), abs=1e-9)
            alone = result.observed_actions.copy()
            alone[change.step] = change.action
            assert change.alone == pytest.approx(problem.outcome(alone) - result.observed_outcome, abs=1e-9)
        assert len(shared.to_dict()["outcomes"]) == 2 ** len(steps)


def test_too_many_changes_are_refused() -> None:
    problem = random_problem(1, horizon=14, max_changes=None)
    with pytest.raises(InputError, match="2\\^13 subsets"):
        contributions(problem, [*((problem.episode.actions[:13] + 1) % 3), problem.episode.actions[13]])


def test_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ifonly.search.tree.REPORT_SECONDS", -1.0)
    lines: list[str] = []
    result = solve(
        random_problem(2, horizon=6, max_changes=3),
        BranchAndBound(bound="none", batch=1),
        progress=search_log(lines.append),
    )
    assert lines[0] == HEADER
    assert len(lines) > 2
    assert all(len(line.split()) == 6 for line in lines[:-1])
    assert lines[-1].startswith(f"ended after {result.stats.nodes_expanded:,} nodes, ")
    found = f"incumbent {result.outcome:.8g}, bound {result.upper_bound:.8g}, gap {result.gap:.8g}"
    assert lines[-1].endswith(f" s: {found}")


@pytest.mark.parametrize("solver", [BranchAndBound(), Exhaustive(), AnchorAStar(), Greedy()])
def test_every_search_is_closed_in_the_log(solver: Solver) -> None:
    lines: list[str] = []
    result = solve(random_problem(2, constrained=True, rules=False), solver, progress=search_log(lines.append))
    assert [line for line in lines if line.startswith("ended after")] == lines[-1:]
    assert ("bound -, gap -" in lines[-1]) == math.isinf(result.upper_bound)


def test_one_node_is_not_many() -> None:
    lines: list[str] = []
    result = solve(random_problem(2, max_changes=1), BranchAndBound(bound="none"), progress=search_log(lines.append))
    assert result.stats.nodes_expanded == 1
    assert lines[-1].startswith("ended after 1 node, ")
    assert "| 1 node, " in str(result)


def checked(result: Result, seed: int) -> None:
    problem = random_problem(seed, rules=None)
    verify(result, problem.episode, problem.model, reward=problem.reward)


def test_verify_accepts_what_is_true() -> None:
    for seed in range(some(25)):
        result = solve(random_problem(seed, rules=None), BranchAndBound(alternatives=4))
        checked(result, seed)
        checked(Result.from_json(result.to_json()), seed)


def broken(result: Result) -> dict[str, Result]:
    frontier, alternatives = result.frontier, result.alternatives
    first, last = frontier[0], frontier[-1]
    assert last.outcome is not None
    assert first.outcome is not None

    def budgets(*changed: Budget) -> Result:
        return dataclasses.replace(result, frontier=changed)

    def listed(*changed: Alternative) -> Result:
        return dataclasses.replace(result, alternatives=changed)

    worse = dataclasses.replace(frontier[1], outcome=first.outcome, actions=first.actions, upper_bound=first.outcome)
    return {
        "frontier: outcomes": budgets(dataclasses.replace(first, outcome=first.outcome + 1), *frontier[1:]),
        "frontier: sequences": budgets(dataclasses.replace(first, actions=last.actions), *frontier[1:]),
        "frontier: brackets": budgets(dataclasses.replace(first, upper_bound=first.outcome - 1), *frontier[1:]),
        "frontier: largest budget": budgets(*frontier[:-1], dataclasses.replace(last, actions=first.actions)),
        "frontier against all sequences": budgets(first, worse, *frontier[2:]),
        "alternatives: order": listed(*alternatives[::-1]),
        "alternatives: sequences": listed(*alternatives, alternatives[-1]),
        "alternatives: outcomes": listed(
            alternatives[0], dataclasses.replace(alternatives[1], outcome=alternatives[1].outcome - 1)
        ),
    }


def test_verify_refuses_what_is_not() -> None:
    seed = next(
        seed
        for seed in range(100)
        if random_problem(seed, rules=False, masked=False).max_changes
        and len(solve(random_problem(seed, rules=None), BranchAndBound()).changes) == 2
        and solve(random_problem(seed, rules=None), BranchAndBound()).frontier[0].outcome is not None
    )
    result = solve(random_problem(seed, rules=None), BranchAndBound(alternatives=4))
    checked(result, seed)
    for claim, wrong in broken(result).items():
        with pytest.raises(VerificationError, match=claim):
            checked(wrong, seed)


def alternatives_problem(seed: int) -> Problem:
    return random_problem(seed, horizon=4, actions=3, max_changes=2, rules=None)


@pytest.mark.parametrize("solver", [BranchAndBound(alternatives=5), BranchAndBound(within=0.5)])
def test_alternatives_that_are_missing_are_noticed(solver: BranchAndBound) -> None:
    noticed = 0
    for seed in range(some(16, one_in=3)):
        problem = alternatives_problem(seed)
        result = solve(problem, solver)
        report = verify(result, problem.episode, problem.model, reward=problem.reward, samples=20)
        assert any(check.claim == "alternatives against all sequences" for check in report.checks)
        values = [one.outcome for one in result.alternatives]
        for place in range(1, len(values)):
            kept = result.alternatives[:place] + result.alternatives[place + 1 :]
            wrong = dataclasses.replace(result, alternatives=kept)
            with pytest.raises(VerificationError, match=r"alternatives against all sequences: .* missing"):
                verify(wrong, problem.episode, problem.model, reward=problem.reward, samples=20)
            noticed += 1
    assert noticed > some(50, one_in=3)


def test_a_worse_alternative_in_the_place_of_a_better_one_is_noticed() -> None:
    for seed in range(10):
        problem = alternatives_problem(seed)
        long = solve(problem, BranchAndBound(alternatives=6)).alternatives
        result = solve(problem, BranchAndBound(alternatives=3))
        if len(long) < 6 or long[2].outcome - long[3].outcome < 1e-6:
            continue
        lie = dataclasses.replace(result, alternatives=(*long[:2], long[4]))
        with pytest.raises(VerificationError, match=r"against all sequences: [12] missing, the best of them"):
            verify(lie, problem.episode, problem.model, reward=problem.reward)
        none = dataclasses.replace(result, alternatives=())
        with pytest.raises(VerificationError, match="none is listed"):
            verify(none, problem.episode, problem.model, reward=problem.reward)
        return
    pytest.fail("no problem has a sixth sequence")


def test_a_list_that_is_not_called_proven_may_be_incomplete() -> None:
    problem = alternatives_problem(3)
    result = solve(problem, BranchAndBound(alternatives=5))
    details = {**result.certificate.details, "alternatives_proven": False}
    certificate = dataclasses.replace(result.certificate, details=details)
    modest = dataclasses.replace(result, certificate=certificate, alternatives=result.alternatives[:2])
    verify(modest, problem.episode, problem.model, reward=problem.reward)
    partial = dataclasses.replace(result, alternatives=result.alternatives[:2])
    verify(partial, problem.episode, problem.model, reward=problem.reward, exhaustive_up_to=1)
    with pytest.raises(VerificationError, match="against all sequences"):
        verify(partial, problem.episode, problem.model, reward=problem.reward)
