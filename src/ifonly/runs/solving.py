"""One query for a whole cohort: `solve_cohort`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ifonly.data.cohort import Cohort
from ifonly.errors import InputError
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.models.base import TransitionModel
from ifonly.models.fit import torch_threads
from ifonly.progress import Progress, Tick, silent
from ifonly.query import Query
from ifonly.result import Status
from ifonly.result.table import FAILED
from ifonly.runs.clusters import share_over_dask
from ifonly.runs.dispatch import Dispatch, Staff
from ifonly.runs.folder import RunFolder, opened
from ifonly.runs.manifest import SOURCES, relative_sources
from ifonly.runs.run import Run, has_table, load_run
from ifonly.runs.settings import RunSettings
from ifonly.runs.task import Task
from ifonly.runs.workers import LocalWorkers, ThisProcess
from ifonly.search.base import Solver
from ifonly.search.solvers import make_solver

STAGE = "cohort"
CHUNK = 16
"""Episodes handed to a worker at a time and searched together; with more, little is gained and a crash costs more."""
CHUNK_TOGETHER = 1024
"""Most episodes solved at once on a GPU; its memory may allow fewer."""
MOST_ELSEWHERE = 128
"""Chunks given to somebody else's executor at a time; each of the first ones may carry the model."""
MOST_ON_DASK = 1024
"""Chunks given to Dask at a time: enough to keep a growing cluster busy, few enough for memory."""
LIMITED = {status.value for status in Status if status.at_limit}


def solve_cohort(
    cohort: Cohort,
    model: TransitionModel,
    query: Query,
    *,
    out: str | Path,
    behaviour: BehaviourModel | None = None,
    solver: Solver | None = None,
    settings: RunSettings | None = None,
    executor: Any = None,
    force: bool = False,
    progress: Progress = silent,
) -> Run:
    """Put a query to every episode of a cohort; the folder `out` gets one row for each.

    Every answer is stored as soon as it is found: the same call resumes a run that was stopped, no matter how, and
    does nothing if the run is finished. A folder with another query is refused, unless `force` starts again in its
    place. An episode that cannot be solved has a row with the reason. With an ensemble as `model`, rows also say
    whether its members agree with each answer; with a `behaviour` model, how far the data support it. The solver is
    the query's unless another is given.

    The work is done by processes on this machine, by any `executor` of `concurrent.futures`, or by the workers of a
    Dask client. Unless `limits` are in seconds, the table does not depend on who does it or how many they are.
    Scripts must start processes under `if __name__ == "__main__":`, as `multiprocessing` requires.
    """
    settings = settings or RunSettings()
    wanted = settings.select(cohort)
    task = Task(
        model=model.for_search(),
        query=query,
        solver=solver or make_solver(query.solver, pool=cohort.states),
        device=settings.device,
        behaviour=behaviour,
    )
    task.check(wanted)
    about = {"episodes": len(wanted), "fingerprint": wanted.fingerprint()}
    description = {**task.describe(), "cohort": about}
    if settings.sources:
        description[SOURCES] = relative_sources(Path(out), settings.sources)
    with opened(Path(out), description, force=force) as folder:
        if not has_table(folder.path, folder.manifest):
            folder.read_rows(wanted)
            _solve_missing(folder, task, wanted, _staff(settings, executor), progress)
            folder.finish()
    return load_run(out)


def _solve_missing(folder: RunFolder, task: Task, cohort: Cohort, staff: Staff, progress: Progress) -> None:
    missing = [position for position in range(len(cohort)) if position not in folder.answered]
    progress(_tick(folder, len(cohort)))
    # Each core has its own episode, and sums are added in the same order everywhere.
    with torch_threads(1), _ending(staff.executor):
        for answers in Dispatch(task, cohort, staff).answers(missing):
            folder.add(answers)
            progress(_tick(folder, len(cohort)))


def _staff(settings: RunSettings, given: Any) -> Staff:
    """The workers: those given, or processes on this machine, or this process."""
    on_processor = torch.device(settings.device).type == "cpu"
    chunk = settings.chunk or (CHUNK if on_processor else CHUNK_TOGETHER)
    if given is not None:
        executor = _as_executor(given)
        share = share_over_dask(executor)
        return Staff(executor, MOST_ELSEWHERE if share is None else MOST_ON_DASK, chunk, share)
    count = settings.worker_count if on_processor else 1
    return Staff(ThisProcess() if count == 1 else LocalWorkers(count), count, chunk)


def _as_executor(given: Any) -> Executor:
    """The executor itself, or that of a Dask client, which is recognised without importing Dask."""
    executor = given.get_executor(pure=False) if hasattr(given, "get_executor") else given
    if not isinstance(executor, Executor):
        raise InputError(f"executor={given!r}: pass an executor of concurrent.futures or a Dask client, or None.")
    return executor


@contextmanager
def _ending(executor: Executor) -> Iterator[None]:
    """End processes of our own when the work ends: at once, if it ends with an error."""
    if not isinstance(executor, LocalWorkers):
        yield
        return
    try:
        yield
    except BaseException:
        executor.shutdown(cancel_futures=True)
        raise
    executor.shutdown()


def _tick(folder: RunFolder, total: int) -> Tick:
    failed, limited = folder.counts[FAILED], sum(folder.counts[status] for status in LIMITED)
    done = len(folder.answered)
    return Tick(STAGE, done, total, {"solved": done - limited - failed, "limited": limited, "failed": failed})
