"""Some cases of a run, each with the alternatives to its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ifonly.cases.case import Case, case_from_row, case_of
from ifonly.cases.opening import OpenedRun
from ifonly.data.plain import repeated
from ifonly.errors import InputError
from ifonly.progress import Progress, Tick, silent
from ifonly.query import Limits
from ifonly.result import Status
from ifonly.runs.task import one_thread
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.solve import solve

STAGE = "cases"


def cases_of_run(
    opened: OpenedRun,
    ids: Sequence[str],
    *,
    alternatives: int = 5,
    seconds: float | None = 10.0,
    progress: Progress = silent,
) -> list[Case]:
    """The cases with these ids, in this order, with so many of the best sequences each, the best included.

    A case is solved again for its alternatives, within `seconds`; where it takes longer, the run's own answer is shown
    without them. The run's own answer stays the case's, unless solving again proves what the run had not.
    """
    solver, limits = BranchAndBound(alternatives=alternatives), Limits(seconds=seconds)
    if twice := repeated(list(ids)):
        raise InputError(f"episode {twice[0]!r} is asked for more than once.")
    for id in ids:
        opened.row(id)  # refuses ids without an answer before anything is solved
    cases = []
    progress(Tick(STAGE, 0, len(ids)))
    with one_thread():
        for done, id in enumerate(ids, start=1):
            cases.append(_case(opened, id, solver, limits))
            progress(Tick(STAGE, done, len(ids)))
    return cases


def _case(opened: OpenedRun, id: str, solver: BranchAndBound, limits: Limits) -> Case:
    problem, row = opened.problem(id), opened.row(id)
    again, limits_then = opened.examination, opened.run.warning_limits
    if solver.alternatives == 1:
        return case_from_row(problem, row, again=again, limits=limits_then)
    result = solve(problem, solver, limits=limits)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if result.status is not Status.OPTIMAL or not result.certificate.details["alternatives_proven"]:
        return case_from_row(problem, row, again=again, limits=limits_then)
    others = [one.actions for one in result.alternatives]
    case = case_from_row(problem, row, alternatives=others, again=again, limits=limits_then)
    if case.answer is None or not case.answer.proven:
        return case_of(problem, replace(result, trust=again.attempt(problem, result).to_dict()))
    return case
