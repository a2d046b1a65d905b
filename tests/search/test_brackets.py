"""Brackets that mean something: gaps as shares of the improvement, and no numbers beyond what is plausible."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from effort import some

from ifonly.bounds import MonteCarlo
from ifonly.data import ActionSpace, Episode, Feature, Schema
from ifonly.errors import InputError
from ifonly.models import LinearModel
from ifonly.problem import Problem
from ifonly.query import Limits, Query
from ifonly.result import Result, Status
from ifonly.rewards import Linear, minus
from ifonly.search.astar import AnchorAStar
from ifonly.search.base import USELESS, Solver, if_useful
from ifonly.search.batch import solve_batch
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.solve import solve
from ifonly.search.verify import verify
from ifonly.testing.instances import random_problem
from ifonly.text.results import result_lines

SOLVERS: tuple[Solver, ...] = (
    BranchAndBound(batch=2),
    BranchAndBound(batch=2, bound="lipschitz"),
    AnchorAStar(anchors=MonteCarlo(samples=3), batch=2),
)


@pytest.mark.parametrize("share", ["1%", "20%", "100%"])
@pytest.mark.parametrize("solver", SOLVERS, ids=["default", "anchors", "A*"])
def test_a_gap_may_be_a_share_of_the_improvement(solver: Solver, share: str) -> None:
    early = 0
    for seed in range(some(12)):
        problem = random_problem(seed, horizon=5, actions=3, max_changes=3, constrained=True, rules=False)
        result, best = solve(problem, solver, limits=Limits(gap=share)), solve(problem, Exhaustive()).outcome
        assert result.outcome <= best + 1e-9
        assert result.upper_bound >= best - 1e-9
        assert result.gap <= float(share[:-1]) / 100 * result.improvement + problem.tolerance
        assert result.status in (Status.OPTIMAL, Status.GAP_REACHED)
        assert verify(result, problem.episode, problem.model, reward=problem.reward)
        early += result.status is Status.GAP_REACHED
        if result.status is Status.GAP_REACHED:
            assert result.relative_gap == pytest.approx(result.gap / result.improvement)
            assert "of the gain" in result_lines(result)
    assert early or share != "100%" or not isinstance(solver, AnchorAStar), "a wide gap ends some searches early"


def test_problems_that_are_searched_together_have_gaps_of_their_own() -> None:
    problems = [random_problem(seed, model_kind="linear", horizon=5, max_changes=3, rules=False) for seed in range(4)]
    limits = Limits(gap="20%")
    for problem, together in zip(problems, solve_batch(problems, limits=limits), strict=True):
        assert together.gap <= 0.2 * together.improvement + problem.tolerance


@pytest.mark.parametrize(("given", "kept"), [("1%", "1%"), (" 2.5 %", "2.5%"), ("0%", 0.0), ("0.5", 0.5), (1, 1)])
def test_gaps_as_people_write_them(given: Any, kept: Any) -> None:
    assert Limits(gap=given).gap == kept
    query = Query(Linear({"x": 1.0}), 2, limits=Limits(gap=given))
    assert Query.from_dict(query.to_dict()).limits.gap == kept


@pytest.mark.parametrize("given", ["-1%", "nan%", "inf%", "%", "much", -1.0])
def test_gaps_that_are_none(given: Any) -> None:
    with pytest.raises(InputError, match="gap"):
        Limits(gap=given)


def exploding_problem(plausible: tuple[float, float] | None) -> Problem:
    """Constants multiply, though no change lasts: anchors know of 1e13, where a hundredth is the truth."""
    features = (Feature("x", "dynamic", plausible=plausible), Feature("y", "dynamic"))
    schema = Schema(features, ActionSpace.categories(["none", "some", "more"]))
    offsets = [[0.0, 0.0], [0.0, 1e-4], [0.0, 2e-4]]
    model = LinearModel(schema, [[[0.0, 20.0], [0.0, 0.0]]] * 3, offsets=offsets)
    episode = Episode("one", schema, states=np.zeros((12, 2)), actions=np.zeros(12, dtype=np.int64))
    return Problem.from_episode(episode, model, Query(Linear({"x": 1.0}), 12))


def stopped(problem: Problem) -> list[Result]:
    return [solve(problem, solver, limits=Limits(nodes=0)) for solver in SOLVERS]


@pytest.mark.parametrize("plausible", [None, (0.0, 100.0)])
def test_what_says_nothing_is_not_called_a_bound(plausible: tuple[float, float] | None) -> None:
    for result in stopped(exploding_problem(plausible)):
        assert result.upper_bound == math.inf
        assert not result.certificate.proven
        assert "no useful bound" in result_lines(result)
        assert all(math.isinf(one.upper_bound) or one.upper_bound <= 1200.0 for one in result.frontier)
        assert result.relative_gap is None


def test_what_is_useful() -> None:
    infinity = math.inf
    rows = [
        # bound, outcome, plausible, gained, wanted
        (5.0, 1.0, 10.0, 0.1, 5.0),
        (11.0, 1.0, 10.0, 0.1, infinity),
        (10.0, 1.0, 10.0, 3.0, infinity),  # needs no search
        (10.0, 8.0, 10.0, 3.0, 10.0),  # but then little is left open
        (10.0, 10.0, 10.0, 1e-9, 10.0),  # or nothing at all
        (10.5, 10.5, 10.0, 1e-9, 10.5),  # the course itself left the plausible ranges
        (11.0, 10.5, 10.0, 0.5, 11.0),
        (1.0 + 2 * USELESS, 1.0, infinity, 0.1, 1.0 + 2 * USELESS),
        (1e13, 1.0, infinity, 0.1, infinity),
        (7.0, -infinity, 10.0, 1e-9, 7.0),
        (10.0, -infinity, 10.0, 1e-9, infinity),
        (infinity, 1.0, 10.0, 0.1, infinity),
        (-infinity, -infinity, 10.0, 1e-9, -infinity),
    ]
    bounds, outcomes, plausible, gained, wanted = torch.tensor(rows, dtype=torch.float64).unbind(1)
    assert if_useful(bounds, outcomes, plausible, gained).tolist() == wanted.tolist()


@pytest.mark.parametrize("scaling", ["bounded", "linear"])
def test_what_rewards_allow_anyhow_is_not_called_a_bound(scaling: str) -> None:
    """Of a feature that cannot be negative: nothing is below zero, whatever is searched."""
    given = {"horizon": 8, "actions": 4, "max_changes": 6, "rules": False, "constrained": True}
    drawn = random_problem(3, **given, model_kind="location-scale", reward_kind="linear", scaling=scaling)
    problem = Problem.from_episode(drawn.episode, drawn.model, drawn.query.with_changes(reward=minus("state 0")))
    assert math.isfinite(problem.largest_outcome) == (scaling == "bounded")
    assert problem.plausible_outcome <= problem.largest_outcome
    result = solve(problem, BranchAndBound(bound="none"), limits=Limits(nodes=1))
    assert result.upper_bound == math.inf or result.upper_bound < problem.plausible_outcome
    assert "no useful bound" in result_lines(result)
