"""Budgets are proven in order: whoever asks for many changes learns about few no less than who asks for few."""

from pathlib import Path
from typing import Any

import pytest
import torch
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st

from ifonly.bounds.reach import METHOD
from ifonly.bounds.taylor import can_expand
from ifonly.problem import BaseProblem
from ifonly.query import Limits
from ifonly.result import Result, Status
from ifonly.search import branch_and_bound as module
from ifonly.search import tree as tree_module
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import outcome_frontier
from ifonly.search.solve import solve
from ifonly.search.tree import Tree
from ifonly.testing.instances import random_ensemble, random_problem

BOUNDS = ("taylor", "lipschitz", "none")
SMALL = {"horizon": 5, "actions": 3, "state_size": 2, "max_changes": 4}


def smooth_problem(seed: int, **settings: Any) -> BaseProblem:
    """One that every bound knows: activations are drawn by the seed, and must suit."""
    given = {"model_kind": "location-scale", "reward_kind": "linear", "constrained": True}
    drawn = (random_problem(seed + 100_000 * turn, **{**SMALL, **given, **settings}) for turn in range(20))
    return next(problem for problem in drawn if can_expand(problem))


def gaps(result: Result) -> list[float]:
    """What is left open of each budget; infinite where no sequence is known."""
    return [torch.inf if one.outcome is None else one.upper_bound - one.outcome for one in result.frontier]


def asked_alone(problem: BaseProblem, budget: int) -> BaseProblem:
    return problem.with_query(max_changes=budget)


@pytest.mark.parametrize("bound", BOUNDS)
@settings(max_examples=some(30), deadline=None)
@given(seed=st.integers(0, 10_000), nodes=st.integers(1, 60), batch=st.sampled_from([1, 4, 2048]))
def test_smaller_budgets_are_as_good_as_if_asked_alone(bound: str, seed: int, nodes: int, batch: int) -> None:
    """Stopped after any number of nodes: each budget is left no more open than by a search for it alone."""
    problem = smooth_problem(seed, rules=False, strength=1.5)
    solver, limits = BranchAndBound(bound=bound, batch=batch), Limits(nodes=nodes)
    together = solve(problem, solver, limits=limits)
    for budget in range(problem.max_changes + 1):
        alone = solve(asked_alone(problem, budget), solver, limits=limits)
        assert gaps(together)[budget] <= gaps(alone)[budget] + 1e-9
        if alone.status is Status.OPTIMAL:
            assert together.frontier[budget].outcome == pytest.approx(alone.outcome, abs=1e-9)


class Stopped(KeyboardInterrupt):
    """Somebody pressed Ctrl-C."""


def stopped_after(problem: BaseProblem, solver: BranchAndBound, looks: int) -> Result:
    """What is known when the search is interrupted at its n-th look at the clock."""
    left = [looks]

    def stop(tree: Tree) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "stop_at_seconds", stop)
        return solve(problem, solver)


@settings(max_examples=some(30), deadline=None)
@given(seed=st.integers(0, 10_000), looks=st.integers(0, 400), bound=st.sampled_from(BOUNDS))
def test_interrupted_at_any_moment(seed: int, looks: int, bound: str) -> None:
    """Brackets hold for every budget, and nothing was done for one while a smaller one was open."""
    if seed % 4:
        problem: BaseProblem = smooth_problem(seed, rules=seed % 2 == 0)
    else:
        problem = random_ensemble(seed, members=2, **{**SMALL, "model_kind": "linear", "reward_kind": "linear"})
    result = stopped_after(problem, BranchAndBound(bound=bound, batch=3), looks)
    truth = outcome_frontier(problem).tolist()
    for budget, best in zip(result.frontier, truth, strict=True):
        if budget.outcome is not None:
            assert budget.outcome <= best + 1e-9
        assert budget.upper_bound >= best - 1e-9


def test_many_changes_do_not_hide_few() -> None:
    """What a search for three changes proves, one for six proves within the same number of nodes."""
    for seed in range(some(6)):
        problem = smooth_problem(seed, horizon=8, actions=4, max_changes=6, rules=False, strength=1.5)
        few = solve(asked_alone(problem, 3), BranchAndBound(bound="taylor"))
        assert few.status is Status.OPTIMAL
        many = solve(problem, BranchAndBound(bound="taylor"), limits=Limits(nodes=few.stats.nodes_expanded))
        assert max(gaps(many)[:4]) <= problem.tolerance
        assert many.frontier[3].outcome == pytest.approx(few.outcome, abs=1e-9)


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_wide_start_changes_no_answer(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HARD_FROM", 2)
    monkeypatch.setattr(module, "SMALL", 0)
    for seed in range(some(15)):
        problem: BaseProblem = smooth_problem(seed, rules=seed % 2 == 0)
        if seed % 5 == 0:
            problem = random_ensemble(seed, members=2, **{**SMALL, "model_kind": "linear", "reward_kind": "linear"})
        result = solve(problem, BranchAndBound(bound=bound))
        truth = outcome_frontier(problem).tolist()
        assert result.certificate.details["every_budget_proven"]
        for budget, best in zip(result.frontier, truth, strict=True):
            assert (-torch.inf if budget.outcome is None else budget.outcome) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_beside_the_search_change_no_answer(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_module, "HARD_STEPS", 0)
    for seed in range(some(15)):
        problem: BaseProblem = smooth_problem(seed, rules=seed % 2 == 0)
        if seed % 5 == 0:
            problem = random_ensemble(seed, members=2, **{**SMALL, "model_kind": "linear", "reward_kind": "linear"})
        truth = outcome_frontier(problem).tolist()
        for limits in (Limits(), Limits(nodes=3), Limits(gap="50%")):
            result = solve(problem, BranchAndBound(bound=bound), limits=limits)
            assert result.certificate.details["every_budget_proven"] or not limits.is_exact or limits.nodes
            for budget, best in zip(result.frontier, truth, strict=True):
                found = -torch.inf if budget.outcome is None else budget.outcome
                assert found <= best + 1e-9
                assert budget.upper_bound >= best - 1e-9
                assert limits != Limits() or found == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("after", ["HARD_STEPS", "HARD_SHARE"])
def test_many_changes_have_a_bracket(after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped while the first budget is open, a search for as many changes as steps knows more than what is plausible,
    and says from where; smaller budgets never have the larger bound. It comes after so many steps, or such a share of
    the seconds, whichever is first."""
    settings = {"horizon": 10, "actions": 6, "max_changes": 10, "rules": False, "strength": 0.5, "hidden": (6,)}
    for seed in range(some(5)):
        problem, limits = smooth_problem(seed, **settings), Limits(nodes=2, seconds=600.0)
        without = solve(problem, BranchAndBound(bound="taylor"), limits=limits)
        with monkeypatch.context() as patch:
            patch.setattr(tree_module, after, 0)
            result = solve(problem, BranchAndBound(bound="taylor"), limits=limits)
        assert result.status is Status.NODE_LIMIT
        assert result.upper_bound < without.upper_bound
        assert result.certificate.details["upper_bounds_from"] == METHOD
        assert without.certificate.details.get("upper_bounds_from") != METHOD
        bounds = [one.upper_bound for one in result.frontier]
        assert bounds == sorted(bounds)
        best = solve(problem, BranchAndBound(bound="taylor"), limits=Limits(nodes=3000))
        assert best.outcome <= result.upper_bound + 1e-9


def test_a_gap_that_the_bracket_keeps_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"horizon": 10, "actions": 6, "max_changes": 10, "rules": False, "strength": 0.5, "hidden": (6,)}
    monkeypatch.setattr(tree_module, "HARD_STEPS", 0)
    for seed in range(some(5)):
        problem, solver = smooth_problem(seed, **settings), BranchAndBound(bound="taylor")
        stopped = solve(problem, solver, limits=Limits(nodes=2))
        granted = Limits(gap=2 * max(gaps(stopped)) + 1e-6, nodes=3000)
        result = solve(problem, solver, limits=granted)
        assert result.status in (Status.GAP_REACHED, Status.OPTIMAL)
        assert max(gaps(result)) <= float(granted.gap)
        assert result.stats.nodes_expanded < 100
        best = solve(problem, solver, limits=Limits(nodes=500))
        assert best.outcome <= result.upper_bound + 1e-9


def test_a_proof_that_is_logged_rests_on_the_tree_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tree_module, "HARD_STEPS", 0)
    problem = smooth_problem(3, rules=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_module, "hard_bounds", lambda *_: pytest.fail("no log shows these bounds"))
        result = solve(problem, BranchAndBound(bound="taylor"), proof=tmp_path / "proof")
    assert result.status is Status.OPTIMAL


def test_bounds_for_a_budget_do_not_depend_on_what_is_asked_beyond() -> None:
    for seed in range(some(6)):
        problem = smooth_problem(seed, rules=False, horizon=6, max_changes=5)
        wide = module.make_child_bound([problem], "taylor").root()
        for budget in range(1, 6):
            narrow = module.make_child_bound([asked_alone(problem, budget)], "taylor").root()
            torch.testing.assert_close(wide[:, :budget], narrow, rtol=0, atol=1e-12)
