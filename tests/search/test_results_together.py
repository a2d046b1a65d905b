"""Many problems moved, replayed and put down in one pass are those of one at a time."""

from dataclasses import fields

import pytest
import torch
from effort import some
from shared_problems import random_ensemble, random_problem

from ifonly.errors import InputError
from ifonly.evidence import examine
from ifonly.problem import BaseProblem, Problem, all_on
from ifonly.problem.base import MOVED
from ifonly.query import Query
from ifonly.rewards import Custom
from ifonly.search.base import Monitor, Solution
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.build_result import _replayed
from ifonly.search.solve import solve
from ifonly.testing.instances import MODEL_KINDS


def alike(kind: str, count: int) -> list[BaseProblem]:
    """Problems about one episode with one model, under different rules."""
    settings = {"horizon": 6, "actions": 4, "max_changes": 2, "reward_kind": "linear"}
    first = random_ensemble(3, **settings) if kind == "ensemble" else random_problem(3, model_kind=kind, **settings)
    return [first.with_constraints(first.constraints.locking(step)) for step in range(count)]


def found(problem: BaseProblem) -> Solution:
    with torch.no_grad():
        return BranchAndBound().search(problem, Monitor(problem.query.limits, lambda tick: None, problem.tolerance))


@pytest.mark.parametrize("kind", [*MODEL_KINDS, "ensemble"])
def test_replayed_together_as_alone(kind: str) -> None:
    problems = alike(kind, 5)
    solutions = [found(problem) for problem in problems]
    together = _replayed(problems, solutions)
    for problem, solution, many in zip(problems, solutions, together, strict=True):
        (alone,) = _replayed([problem], [solution])
        assert (many.sequences == alone.sequences).all()
        assert torch.allclose(many.states, alone.states, rtol=1e-9, atol=1e-9)
        for name in ("outcomes", "clipped"):
            assert getattr(many, name) == pytest.approx(getattr(alone, name), rel=1e-12, abs=problem.tolerance)


@pytest.mark.parametrize("ensemble", [False, True])
def test_a_sequence_has_one_outcome_wherever_it_is_listed(ensemble: bool) -> None:
    unchanged = 0
    for seed in range(some(60)):
        problem = random_ensemble(seed) if ensemble else random_problem(seed)
        result = solve(problem, BranchAndBound(alternatives=3))
        seen = {result.observed_actions.tobytes(): (result.observed_outcome, result.observed_clipped_outcome)}
        chosen = (result.outcome, result.clipped_outcome)
        assert seen.setdefault(result.actions.tobytes(), chosen) == chosen
        for budget in result.frontier:
            if budget.actions is not None:
                listed = (budget.outcome, budget.clipped_outcome)
                unchanged += budget.actions.tobytes() == result.observed_actions.tobytes()
                assert seen.setdefault(budget.actions.tobytes(), listed) == listed
        for other in result.alternatives:
            assert other.outcome == seen.setdefault(other.actions.tobytes(), (other.outcome, None))[0]
    assert unchanged >= some(60) / 2


@pytest.mark.parametrize("kind", [MODEL_KINDS[0], "ensemble"])
def test_moved_together_as_alone(kind: str) -> None:
    problems = [*alike(kind, 3), *alike(kind, 2)]
    model = list(problems[0].models) if kind == "ensemble" else problems[0].models[0]
    for problem, moved in zip(problems, all_on(problems, "cpu", model), strict=True):
        for name in MOVED:
            assert torch.equal(getattr(moved, name), getattr(problem, name))
        same = {field.name for field in fields(problem)} - {*MOVED, "bound_reward"}
        assert all(getattr(moved, name) == getattr(problem, name) for name in same)
        assert moved.tolerance == problem.tolerance


@pytest.mark.parametrize("ensemble", [False, True])
def test_evidence_from_a_result_is_that_of_a_replay(ensemble: bool) -> None:
    changed = 0
    for seed in range(some(30)):
        problem = random_ensemble(seed) if ensemble else random_problem(seed)
        problem = problem.with_query(change_cost=0.01)
        result = solve(problem)
        taken, replayed = examine(problem, result), examine(problem, result.actions)
        for name in ("promised", "kept_within_ranges"):
            one, other = getattr(taken, name), getattr(replayed, name)
            assert one is other is None or one == pytest.approx(other, rel=1e-6, abs=10 * problem.tolerance)
        assert taken.scores == replayed.scores
        changed += bool(result.changes)
    assert changed > some(30) / 3


def test_a_reward_that_looks_at_its_company_is_refused_in_a_batch() -> None:
    problem = random_problem(0, reward_kind="linear")
    reward = Custom(lambda states, actions: states[..., 0] - states[..., 0].mean(), 2.0, space="scaled")
    with pytest.raises(InputError, match="changes with what else is in the batch"):
        Problem.from_episodes([problem.episode] * 2, problem.model, Query(reward, 1))
