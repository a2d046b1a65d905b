"""Measuring solvers, each in a child process of its own, so that memory and caches of one touch no other."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from stays import Question, RandomQuestion, warm_up_problem

import ifonly
from ifonly.problem import Problem
from ifonly.search.base import Solver

NEW, ANCHORS, EXHAUSTIVE = SOLVERS = ("branch-and-bound", "anchor A*", "exhaustive")
AGREEMENT = 1e-9
"""Two proven outcomes differ at most by this share of their size (or of 1, where that is larger)."""

Content = dict[str, Any]
P = ParamSpec("P")
R = TypeVar("R")


class DisagreementError(Exception):
    """Two exact solvers contradict each other: one of them is wrong."""


@dataclass(frozen=True)
class Method:
    """A solver by name, and its time limit for each problem."""

    name: str
    seconds: float
    samples: int = 2000
    """Monte Carlo sequences for the anchors of the paper's A*."""
    of_processor: bool = False
    """Whether seconds are those of the processor, which others at work on the machine hardly change; limits are not."""

    def solver(self) -> Solver:
        """The solver with its settings."""
        if self.name == NEW:
            return ifonly.BranchAndBound()
        if self.name == ANCHORS:
            return ifonly.AnchorAStar(ifonly.MonteCarlo(samples=self.samples))
        return ifonly.Exhaustive()


def in_child(work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """What `work` returns when it runs in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()


def run(question: Question, method: Method) -> Content:
    """Solve every problem of `question`; meant for a child process.

    Building a problem is not timed, everything after it is. A throw-away solve comes first: what torch loads on first
    use belongs to no problem in particular.
    """
    solve_one(warm_up_problem(question.device), method)
    start = resident_mib()
    episodes = [solve_one(problem, method) for problem in question.problems()]
    return {"episodes": episodes, "start_mib": start, "peak_mib": peak_mib(), "threads": torch.get_num_threads()}


def run_series(questions: list[Question] | list[RandomQuestion], method: Method) -> list[list[Content]]:
    """The episodes of each question, until one where nothing is proven in time; meant for a child process."""
    solve_one(warm_up_problem(), method)
    series = []
    for question in questions:
        series.append([solve_one(problem, method) for problem in question.problems()])
        if not any(episode["proven"] for episode in series[-1]):
            break
    return series


def run_batch(question: Question, sample: int) -> Content:
    """Solve all problems of `question` in one call, and a sample one by one; meant for a child process."""
    ifonly.solve_batch([warm_up_problem(question.device)])
    built = time.perf_counter()
    problems = list(question.problems())
    start, started = resident_mib(), time.perf_counter()
    results = ifonly.solve_batch(problems)
    seconds = time.perf_counter() - started
    peak = peak_mib()
    for problem, result in list(zip(problems, results, strict=True))[:sample]:
        alone = ifonly.solve(problem)
        require_equal(result.outcome, alone.outcome, "solve_batch", "solve")
    return {
        "episodes": len(problems),
        "compared": min(sample, len(problems)),
        "proven": sum(result.status is ifonly.Status.OPTIMAL for result in results),
        "seconds": seconds,
        "seconds_to_build": started - built,
        "device": torch.cuda.get_device_name() if question.device.startswith("cuda") else "cpu",
        "model_steps": sum(result.stats.model_steps for result in results),
        "start_mib": start,
        "peak_mib": peak,
    }


def solve_one(problem: Problem, method: Method) -> Content:
    """One solve as plain numbers. The stay is not named: a cohort in a folder may be patients' data."""
    limits = ifonly.Limits(seconds=method.seconds)
    now = time.process_time if method.of_processor else time.perf_counter
    started = now()
    result = ifonly.solve(problem, method.solver(), limits=limits)
    seconds = now() - started
    return {
        "horizon": problem.horizon,
        "sequences": problem.sequence_count(),
        "proven": result.status is ifonly.Status.OPTIMAL,
        "outcome": result.outcome,
        "upper_bound": result.upper_bound if math.isfinite(result.upper_bound) else None,
        "seconds": round(seconds, 5),
        "bounds_seconds": round(result.stats.seconds_bounds, 5),
        "visited": result.stats.nodes_visited,
        "expanded": result.stats.nodes_expanded,
        "generated": result.stats.nodes_generated,
        "branching": result.stats.effective_branching_factor,
        "model_steps": result.stats.model_steps,
    }


def check_agreement(runs: dict[str, Content]) -> int:
    """How many pairs of proven outcomes agree; raises `DisagreementError` where they, or the brackets, do not."""
    agreeing = 0
    measured = [(name, run["episodes"]) for name, run in runs.items() if "episodes" in run]
    for first, (name, episodes) in enumerate(measured):
        for other_name, others in measured[first + 1 :]:
            for one, other in zip(episodes, others, strict=False):
                _require_compatible(one, other, name, other_name)
                _require_compatible(other, one, other_name, name)
                if one["proven"] and other["proven"]:
                    require_equal(one["outcome"], other["outcome"], name, other_name)
                    agreeing += 1
    return agreeing


def require_equal(one: float, other: float, name: str, other_name: str) -> None:
    """Refuse proven outcomes that differ."""
    if abs(one - other) > _slack(one):
        raise DisagreementError(f"{name} found {one!r}, {other_name} {other!r}; both say that nothing is better.")


def _require_compatible(one: Content, other: Content, name: str, other_name: str) -> None:
    bound = one["upper_bound"]
    if bound is not None and other["outcome"] > bound + _slack(bound):
        raise DisagreementError(f"{name} says at most {bound!r}, but {other_name} found {other['outcome']!r}.")


def _slack(value: float) -> float:
    return AGREEMENT * max(1.0, abs(value))


def resident_mib() -> float | None:
    """Memory of this process now."""
    return _memory("VmRSS")


def peak_mib() -> float | None:
    """The most memory that this process ever had.

    From the kernel's account of this very program: the peak that `getrusage` reports starts with the parent's size.
    """
    return _memory("VmHWM")


def _memory(name: str) -> float | None:
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    (line,) = (line for line in status.read_text(encoding="utf-8").splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) / 1024
