"""Outcomes of minus infinity are merely bad; a problem that has no others is refused by every solver."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from ifonly.constraints import Constraints
from ifonly.errors import InputError
from ifonly.problem import Problem
from ifonly.query import Limits, Query
from ifonly.result import Result, Status
from ifonly.rewards import Custom
from ifonly.search.base import Solver
from ifonly.search.batch import solve_batch
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.heuristics import Greedy, RandomSearch
from ifonly.search.session import Session
from ifonly.search.solve import solve
from ifonly.search.verify import verify
from ifonly.testing.instances import random_problem

FATAL = 3
RECORDED = np.array([0, 1, 2, 0])


def ruinous(states: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    return torch.where(actions == FATAL, -torch.inf, actions.to(torch.float64)) + 0 * states.sum(-1)


@cache
def unruled() -> Problem:
    base = random_problem(1, model_kind="linear", horizon=4, actions=4, rules=False, masked=False)
    episode = replace(base.episode, id="fatal", actions=RECORDED)
    return Problem.from_episode(episode, base.model, Query(Custom(ruinous, 0.0, space="scaled"), 3))


def fatal_problem(required: dict[int, int]) -> Problem:
    """One action costs everything; rules may demand it."""
    return unruled().with_constraints(Constraints(required=required))


EXACT: list[Solver] = [Exhaustive(), BranchAndBound(bound="none"), BranchAndBound(bound="lipschitz", alternatives=3)]


@pytest.mark.parametrize("solver", EXACT, ids=["exhaustive", "none", "lipschitz"])
def test_a_problem_without_a_finite_outcome_is_refused(solver: Solver) -> None:
    with pytest.raises(
        InputError, match=r"'fatal': every admissible sequence .* minus infinity.*relax the constraints"
    ):
        solve(fatal_problem({1: FATAL}), solver)


@pytest.mark.parametrize("solver", [*EXACT, Greedy(), RandomSearch(samples=50)])
def test_a_finite_outcome_elsewhere_is_enough(solver: Solver) -> None:
    result = solve(fatal_problem({1: 2}), solver)
    assert result.outcome > -np.inf
    assert FATAL not in result.actions


@pytest.mark.parametrize("solver", [Greedy(), RandomSearch(samples=5)])
def test_what_a_heuristic_has_not_found_is_not_said_to_be_missing(solver: Solver) -> None:
    with pytest.raises(InputError, match=r"every sequence that was found \(heuristic\) has .* minus infinity"):
        solve(fatal_problem({1: FATAL}), solver)


def test_limits_without_a_finite_outcome() -> None:
    with pytest.raises(InputError, match=r"that was found \(time limit\)"):
        solve(fatal_problem({1: FATAL}), BranchAndBound(), limits=Limits(seconds=0.0))


def test_in_a_batch_it_costs_no_other() -> None:
    first, refused, last = solve_batch(
        [fatal_problem({}), fatal_problem({1: FATAL}), fatal_problem({2: 1})], on_error="return"
    )
    assert isinstance(refused, InputError)
    for one in (first, last):
        assert isinstance(one, Result)
        assert one.status is Status.OPTIMAL


def test_a_session_keeps_its_rules() -> None:
    session = Session(fatal_problem({}))
    before = session.solve()
    with pytest.raises(InputError, match="minus infinity"):
        session.require(1, FATAL)
    assert not session.constraints.required
    assert np.array_equal(session.solve().actions, before.actions)


def test_verify_knows_rivals_that_are_merely_bad() -> None:
    problem = fatal_problem({1: 2})
    result = solve(problem, BranchAndBound(alternatives=5))
    verify(result, problem.episode, problem.model, reward=problem.reward, samples=1)
