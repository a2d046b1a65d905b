"""Alternatives that differ from each other in at least so many steps, against enumeration."""

import dataclasses
import itertools
from collections.abc import Iterator

import pytest
import torch
from effort import some
from shared_problems import random_problem

from ifonly.bounds.factory import BoundName
from ifonly.errors import InputError, VerificationError
from ifonly.problem import Problem
from ifonly.query import Limits, Query
from ifonly.result import Result
from ifonly.search.batch import solve_batch
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.solve import solve
from ifonly.search.solvers import make_solver
from ifonly.search.verify import verify
from ifonly.testing.instances import MODEL_KINDS, SINGLE_REWARDS

ASKED = 4


def problems(count: int, **settings: object) -> Iterator[tuple[int, Problem]]:
    """Every kind of model and reward, with and without rules and costs, each with a distance to ask for."""
    for seed in range(count):
        given = {
            "model_kind": MODEL_KINDS[seed % len(MODEL_KINDS)],
            "reward_kind": SINGLE_REWARDS[seed // len(MODEL_KINDS) % len(SINGLE_REWARDS)],
            "max_changes": (2, 3, 1, 2)[seed % 4],
            "horizon": 3 + seed % 2,
            "actions": 2 + seed % 3,
            "rules": None,
        }
        yield 2 + seed % 3, random_problem(9000 + seed, **{**given, **settings})


def candidates(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """All admissible sequences [n, T] but those whose last change changes no reward, and their outcomes [n]."""
    every = torch.tensor(list(itertools.product(range(problem.action_count), repeat=problem.horizon)))
    every = every[problem.admissible(every)]
    states, outcomes = problem.rollout(every)
    undone = every.clone()
    undone[:, -1] = problem.observed_actions[-1]
    rewards = [problem.free_rewards(-1, states[:, -1], rows[:, -1]) for rows in (every, undone)]
    idle = (every[:, -1] != undone[:, -1]) & (rewards[0] == rewards[1]) & problem.admissible(undone)
    return every[~idle], outcomes[~idle]


def check_greedy(result: Result, problem: Problem, apart: int) -> int:
    """Each is the best of those that differ in `apart` steps from all before; the list ends where there is none."""
    every, outcomes = candidates(problem)
    listed = torch.tensor([one.actions.tolist() for one in result.alternatives])
    assert listed[0].tolist() == result.actions.tolist()
    assert result.certificate.details["alternatives_proven"]
    far = torch.ones(len(every), dtype=torch.bool)
    for actions, one in zip(listed, result.alternatives, strict=True):
        assert float(problem.outcome(actions)) == pytest.approx(one.outcome, abs=10 * problem.tolerance)
        assert one.outcome == pytest.approx(float(outcomes[far].max()), abs=10 * problem.tolerance)
        far &= (every != actions).sum(1) >= apart
    if len(listed) < ASKED:
        assert not far.any()
    return len(listed)


def test_each_is_the_best_of_those_far_enough() -> None:
    lengths = set()
    for number, (apart, problem) in enumerate(problems(some(200))):
        bound: BoundName = "none" if number % 4 == 0 else "auto"
        result = solve(problem, BranchAndBound(bound=bound, alternatives=ASKED, apart=apart))
        lengths.add(check_greedy(result, problem, apart))
    assert lengths == set(range(1, ASKED + 1))


def test_one_step_apart_is_what_it_always_was() -> None:
    for _, problem in problems(10):
        plain, apart = (solve(problem, BranchAndBound(alternatives=ASKED, **more)) for more in ({}, {"apart": 1}))
        assert [a.actions.tolist() for a in plain.alternatives] == [a.actions.tolist() for a in apart.alternatives]
        assert plain.stats.nodes_expanded == apart.stats.nodes_expanded


def test_many_problems_at_once_are_answered_as_each_alone() -> None:
    shared = [problem for _, problem in problems(1)]
    rules = [problem.with_query(max_changes=2) for problem in shared * 2]
    solver = BranchAndBound(alternatives=ASKED, apart=2)
    for together, problem in zip(solve_batch(rules, solver), rules, strict=True):
        alone = solve(problem, solver)
        assert [a.actions.tolist() for a in together.alternatives] == [a.actions.tolist() for a in alone.alternatives]


def test_verify_notices_what_is_missing_or_too_close() -> None:
    noticed = 0
    for apart, problem in problems(12):
        result = solve(problem, BranchAndBound(alternatives=ASKED, apart=apart))
        verify(result, problem.episode, problem.model, samples=10)
        if len(result.alternatives) < 3:
            continue
        first, _, *others = result.alternatives
        wrong = dataclasses.replace(result, alternatives=(first, *others))
        with pytest.raises(VerificationError, match="alternatives against all sequences"):
            verify(wrong, problem.episode, problem.model, samples=10)
        noticed += 1
    assert noticed


def test_a_limit_leaves_the_list_unproven_and_the_answer_as_it_is() -> None:
    apart, problem = next(iter(problems(1, max_changes=3, horizon=5, actions=4, rules=False)))
    whole = solve(problem, BranchAndBound(alternatives=ASKED, apart=apart))
    first = solve(problem, BranchAndBound())
    cut = solve(
        problem, BranchAndBound(alternatives=ASKED, apart=apart), limits=Limits(nodes=first.stats.nodes_expanded)
    )
    assert len(whole.alternatives) > 1
    assert whole.stats.nodes_expanded > first.stats.nodes_expanded
    assert cut.actions.tolist() == first.actions.tolist()
    assert not cut.certificate.details["alternatives_proven"]


def test_how_it_is_asked() -> None:
    with pytest.raises(InputError, match="exclude each other"):
        BranchAndBound(within=1.0, apart=2)
    with pytest.raises(InputError, match="apart"):
        BranchAndBound(apart=0)
    _, problem = next(iter(problems(1)))
    query = Query.from_dict(problem.query.to_dict() | {"solver": {"name": "branch-and-bound", "apart": 3}})
    assert make_solver(query.solver).apart == 3  # type: ignore[attr-defined]
