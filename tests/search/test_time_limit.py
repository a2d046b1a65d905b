"""The time limit is kept whatever the size: every builder of bounds and every solver looks at the clock often."""

import math
import time
from itertools import pairwise
from typing import Any

import pytest

from ifonly.bounds.factory import make_child_bound
from ifonly.bounds.reach import METHOD, can_reach
from ifonly.bounds.taylor import can_expand
from ifonly.problem import Problem
from ifonly.progress import clock, look_at_clock
from ifonly.query import Limits
from ifonly.result import Status
from ifonly.search.astar import AnchorAStar
from ifonly.search.base import Monitor, Solver
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.heuristics import Beam, Greedy, RandomSearch
from ifonly.search.solve import solve
from ifonly.testing.instances import random_problem
from ifonly.text.results import result_lines

SECONDS = 1.0
OFTEN = 0.5
"""Seconds of computing between two looks at the clock, at most."""
SOLVERS: dict[str, Solver] = {
    "branch and bound": BranchAndBound(),
    "led by anchors": BranchAndBound(bound="lipschitz"),
    "led by nothing": BranchAndBound(bound="none"),
    "A*": AnchorAStar(),
    "exhaustive": Exhaustive(),
    "greedy": Greedy(),
    "beam": Beam(),
    "random": RandomSearch(samples=10**6),
}
SMALL_START = {"horizon": 100, "actions": 4, "state_size": 6}
"""A warm start that takes no time, and anchors that take long."""


def large_problem(**settings: Any) -> Problem:
    given = {
        "model_kind": "location-scale",
        "horizon": 100,
        "actions": 50,
        "state_size": 40,
        "hidden": (200,),
        "max_changes": 4,
        "constrained": True,
        "rules": False,
        "masked": False,
    }
    return random_problem(1, **{**given, **settings})


def expandable_problem() -> Problem:
    """Large tables: activation and reward are drawn by the seed, and must suit."""
    settings = {"model_kind": "location-scale", "horizon": 16, "actions": 12, "state_size": 24, "hidden": (100,)}
    drawn = (random_problem(seed, **settings, max_changes=4, rules=False, masked=False) for seed in range(20))
    return next(problem for problem in drawn if can_expand(problem))


class Looks:
    """When the clock was looked at, in processor time."""

    def __init__(self) -> None:
        self.times = [time.process_time()]

    def __call__(self) -> None:
        self.times.append(time.process_time())

    def longest(self) -> float:
        """Between two looks, and after the last one."""
        return max(after - before for before, after in pairwise([*self.times, time.process_time()]))


@pytest.mark.parametrize("settings", [{}, SMALL_START], ids=["large", "long"])
@pytest.mark.parametrize("name", SOLVERS)
def test_seconds_are_kept(name: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    problem, stop = large_problem(**settings), Monitor.stop_at_seconds
    looks, started = Looks(), time.perf_counter()

    def look(monitor: Monitor) -> None:
        looks()
        stop(monitor)

    monkeypatch.setattr(Monitor, "stop_at_seconds", look)
    result = solve(problem, SOLVERS[name], limits=Limits(seconds=SECONDS))
    assert looks.longest() < OFTEN
    if result.status is Status.TIME_LIMIT:
        assert time.perf_counter() - started < 1.1 * SECONDS + 2 * OFTEN
    else:
        assert name == "greedy", "the others have too much to do"


@pytest.mark.parametrize("seconds", [0.5, 2.0])
def test_few_seconds_for_many_changes_leave_a_bracket_or_none(seconds: float) -> None:
    """Never a number that needed no search, and the seconds are kept while the bracket is looked for."""
    settings = {"horizon": 20, "actions": 25, "state_size": 9, "hidden": (64,), "scaling": "bounded", "strength": 0.3}
    problem = large_problem(**settings, reward_kind="linear", max_changes=6)
    assert can_reach(problem)
    started = time.perf_counter()
    result = solve(problem, BranchAndBound(), limits=Limits(seconds=seconds))
    assert time.perf_counter() - started < 1.1 * seconds + 2 * OFTEN
    assert result.status is Status.TIME_LIMIT
    for one in result.frontier:
        assert one.upper_bound == math.inf or one.upper_bound < problem.plausible_outcome
    if math.isinf(result.upper_bound):
        assert "no useful bound" in result_lines(result)
    else:
        assert result.certificate.details["upper_bounds_from"] == METHOD


@pytest.mark.parametrize("bound", ["taylor", "lipschitz"])
def test_bounds_are_built_by_the_clock(bound: str) -> None:
    problem = expandable_problem() if bound == "taylor" else large_problem(horizon=12, actions=10, state_size=10)
    looks = Looks()
    with clock(looks):
        made = make_child_bound([problem], bound)
        made.root()
    assert looks.longest() < OFTEN
    assert len(looks.times) > 5


def test_a_clock_counts_inside_only() -> None:
    outer, inner = Looks(), Looks()
    with clock(outer):
        look_at_clock()
        with clock(inner):
            look_at_clock()
        look_at_clock()
    look_at_clock()
    assert (len(outer.times), len(inner.times)) == (3, 2)
