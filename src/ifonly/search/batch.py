"""Many problems at once: those that share a model are searched together, as one array computation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, overload

import torch

from ifonly.bounds.factory import BoundName, choose_bound
from ifonly.bounds.taylor import table_elements
from ifonly.errors import IfonlyError, InputError
from ifonly.models.base import TransitionModel
from ifonly.problem import BaseProblem, EnsembleProblem
from ifonly.progress import Progress, Tick, silent
from ifonly.query import Limits
from ifonly.result import Result, Status
from ifonly.search.base import Monitor, Solver
from ifonly.search.branch_and_bound import BranchAndBound, branch_and_bound
from ifonly.search.build_result import build_results, provenance_of
from ifonly.search.solve import asked, solve
from ifonly.search.solvers import make_solver
from ifonly.search.tree import stats_of

CHUNK_ELEMENTS = 2**26
"""Numbers in the largest arrays of problems that are searched together on a processor, at most: 512 MiB."""


@overload
def solve_batch(
    problems: Iterable[BaseProblem],
    solver: Solver | None = None,
    *,
    limits: Limits | None = None,
    progress: Progress = silent,
    on_error: Literal["raise"] = "raise",
) -> list[Result]: ...
@overload
def solve_batch(
    problems: Iterable[BaseProblem],
    solver: Solver | None = None,
    *,
    limits: Limits | None = None,
    progress: Progress = silent,
    on_error: Literal["return"],
) -> list[Result | IfonlyError]: ...
def solve_batch(
    problems: Iterable[BaseProblem],
    solver: Solver | None = None,
    *,
    limits: Limits | None = None,
    progress: Progress = silent,
    on_error: Literal["raise", "return"] = "raise",
) -> list[Result] | list[Result | IfonlyError]:
    """What `solve` gives for each problem, in their order, but much faster for many problems with one model.

    Problems with the same model, reward, horizon and budget are searched together, and so are ensemble problems with
    the same members and objective; a support must be the same object. (Freeze the model once, with
    `model.for_search()`: problems made from an unfrozen one hold a copy each, which must be compared.)
    Solver and limits are those of each problem's query unless others are given; solvers other than branch and bound
    solve one problem after the other.
    `limits` are per problem, but problems searched together have their seconds together, and `memory` is for the open
    nodes of all of them; `stats` then tell each one's equal share of the time. Ctrl-C ends the search and leaves the
    brackets found so far. A problem that fails costs no other one: with `on_error="return"` its exception takes its
    place.
    """
    given = list(problems)
    if on_error not in ("raise", "return"):
        raise InputError(f"solve_batch: on_error={on_error!r}; choose 'raise' or 'return'.")
    if solver is not None and not isinstance(solver, Solver):
        raise InputError(
            f"solve_batch: {solver!r} is not a solver; pass one with its settings, such as BranchAndBound()."
        )
    answers: dict[int, Result | IfonlyError] = {}
    interrupted = False
    for chunk, used, stop in _asked_alike(given, solver, limits):
        members = [given[number] for number in chunk]
        if interrupted:
            found = [_not_begun(answer, stop) for answer in _solve_chunk(members, used, Limits(seconds=0.0))]
        else:
            found = _solve_chunk(members, used, stop)
        interrupted |= any(isinstance(one, Result) and one.status is Status.INTERRUPTED for one in found)
        if on_error == "raise":
            for answer in found:
                if isinstance(answer, IfonlyError):
                    raise answer
        answers |= dict(zip(chunk, found, strict=True))
        progress(Tick("solve", len(answers), len(given)))
    return [answers[number] for number in range(len(given))]


def _not_begun(answer: Result | IfonlyError, limits: Limits) -> Result | IfonlyError:
    """What was left to do when someone pressed Ctrl-C."""
    if isinstance(answer, Result) and answer.status is Status.TIME_LIMIT:
        query = answer.query.with_changes(limits=limits)
        return replace(answer, status=Status.INTERRUPTED, provenance=replace(answer.provenance, query=query))
    return answer


def _asked_alike(
    problems: Sequence[BaseProblem], solver: Solver | None, limits: Limits | None
) -> Iterator[tuple[list[int], Solver, Limits]]:
    """Numbers of problems that are searched together, by which solver, and when it stops."""
    groups: dict[tuple[str, Limits], list[int]] = {}
    for number, problem in enumerate(problems):
        named = "" if solver is not None else json.dumps(problem.query.solver, sort_keys=True)
        groups.setdefault((named, problem.query.limits if limits is None else limits), []).append(number)
    for (_, stop), numbers in groups.items():
        used = make_solver(problems[numbers[0]].query.solver) if solver is None else solver
        for chunk in _chunks([problems[number] for number in numbers], used):
            yield [numbers[place] for place in chunk], used, stop


def _chunks(problems: Sequence[BaseProblem], solver: Solver) -> Iterator[list[int]]:
    """Numbers of problems that are searched together."""
    if not isinstance(solver, BranchAndBound):
        yield from ([number] for number in range(len(problems)))
        return
    groups: list[tuple[object, list[int]]] = []
    models: dict[int, object] = {}
    for number, problem in enumerate(problems):
        for model in problem.models:
            if id(model) not in models:
                models[id(model)] = _identity(model)
        # With one bound for all of a group, each problem must be one that this bound would lead alone, too.
        key = ([models[id(model)] for model in problem.models], choose_bound(problem, solver.bound), *_shared(problem))
        # Rewards can be compared, but not hashed.
        members = next((members for same, members in groups if same == key), None)
        if members is None:
            groups.append((key, [number]))
        else:
            members.append(number)
    for _, members in groups:
        first = problems[members[0]]
        most = max(1, _room(first.device) // _elements(first, choose_bound(first, solver.bound)))
        count = -(-len(members) // most)
        size = -(-len(members) // count)  # of about equal size: a small one costs nearly as much as a large one
        yield from (members[start : start + size] for start in range(0, len(members), size))


def _identity(model: TransitionModel) -> object:
    """What tells models apart: for a class with a kind its fingerprint says all, for any other only the object does."""
    return model.fingerprint() if model.kind else id(model)


def _shared(problem: BaseProblem) -> tuple[object, ...]:
    """What problems that are searched together have in common, beside their models and the bound."""
    together = (problem.objective, problem.support_share) if isinstance(problem, EnsembleProblem) else None
    sizes = problem.horizon, problem.max_changes, problem.change_cost
    return (together, *sizes, problem.device, id(problem.support), problem.reward)


def _room(device: torch.device) -> int:
    """Numbers that the largest arrays may hold: on a GPU a quarter of what is free."""
    return torch.cuda.mem_get_info(device)[0] // 32 if device.type == "cuda" else CHUNK_ELEMENTS


def _elements(problem: BaseProblem, bound: BoundName) -> int:
    """The largest arrays that one problem needs: rollouts of its single changes, or tables of its pairs of changes."""
    changes, members = problem.horizon * problem.action_count, len(problem.models)
    if bound == "taylor":
        return table_elements(problem) * members
    return changes * max(problem.horizon * problem.observed_states.shape[1], problem.max_changes) * members + 1


def _solve_chunk(problems: list[BaseProblem], solver: Solver, limits: Limits) -> list[Result | IfonlyError]:
    if len(problems) > 1 and isinstance(solver, BranchAndBound):
        try:
            return list(_solve_together(problems, solver, limits))
        except IfonlyError:
            pass  # one of them fails: which one, and how, shows one by one
    answers: list[Result | IfonlyError] = []
    for problem in problems:
        try:
            answers.append(solve(problem, solver, limits=limits))
        except IfonlyError as error:
            answers.append(error)
    return answers


@torch.no_grad()
def _solve_together(problems: list[BaseProblem], solver: BranchAndBound, limits: Limits) -> list[Result]:
    count = len(problems)
    shared = limits if limits.seconds is None else replace(limits, seconds=limits.seconds * count)
    monitor = Monitor(shared, silent, max(problem.tolerance for problem in problems))
    solutions, tree = branch_and_bound(solver, problems, monitor)
    seconds = monitor.elapsed() / count
    shared_by_all = provenance_of(asked(problems[0], limits), solver)
    return build_results(
        problems,
        solutions,
        stats=[stats_of(tree, number).finished(seconds, tree.batch.horizon) for number in range(count)],
        provenances=[replace(shared_by_all, query=asked(problem, limits).query) for problem in problems],
    )
