"""Measuring cells over worker processes; each is written down as soon as it is finished."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Self, TypeVar

from ifonly.errors import IfonlyError, PlausibilityWarning
from ifonly.journal import alone
from ifonly.progress import Progress, Tick, silent
from ifonly.runs.rows import FAILED
from ifonly.runs.task import one_thread
from ifonly.runs.workers import LocalWorkers, ThisProcess
from paper.cells import Cell, Row, SolveCell
from paper.facility import choose_points, points_file
from paper.journal import FinishedCells, read_header
from paper.laboratory import Laboratory, Limits

JOURNAL = "cells.jsonl"

Argument = TypeVar("Argument")
Value = TypeVar("Value")


@dataclass
class Tally:
    """How many cells an experiment asked for, and what became of them."""

    wanted: int = 0
    finished: int = 0
    """Those that failed included."""
    failed: int = 0


@dataclass
class Bench:
    """Where cells are measured: those that the folder's journal holds are not measured again, unless they failed.

    A bench has its folder to itself until it is closed; it closes itself at the end of a `with` block. With
    `finished_only` nothing is measured at all, experiments get the cells that there are, and others may be at work on
    the folder.
    """

    laboratory: Laboratory
    workers: int = 1
    progress: Progress = silent
    finished_only: bool = False
    journal: FinishedCells = field(init=False)
    tally: Tally = field(default_factory=Tally)
    """Of the experiment under way."""
    _failed: set[str] = field(default_factory=set, init=False)
    """Keys of cells that failed on this bench; not to be tried once more for another experiment."""
    _lock: ExitStack = field(default_factory=ExitStack, init=False, repr=False)

    def __post_init__(self) -> None:
        path, header = self.laboratory.folder / JOURNAL, self.laboratory.header()
        if self.finished_only:
            header["ifonly"] = read_header(path)["ifonly"]  # what another version measured may be drawn by this one
            self.journal = FinishedCells(path, header, read_only=True)
            return
        with ExitStack() as stack:
            stack.enter_context(alone(path, work="these experiments"))
            self.journal = FinishedCells(path, header)
            self.laboratory.prepare_cohort(self.progress)
            self._lock = stack.pop_all()  # kept, since all went well

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others work on the folder."""
        self._lock.close()

    def measure(self, cells: Iterable[Cell], stage: str) -> dict[Cell, Row]:
        """The rows of the cells, measured in their order; without those that failed, which count as finished.

        Cells that failed on an earlier bench are measured again: what was in their way may be gone.
        """
        asked = list(dict.fromkeys(cells))
        missing = [] if self.finished_only else [cell for cell in asked if self._is_to_do(cell)]
        if missing:
            self._prepare(missing)
            self._measure(missing, f"measuring {stage}", already=len(asked) - len(missing))
        rows = {cell: self.journal.rows[cell.key] for cell in asked if cell.key in self.journal.rows}
        answered = {cell: row for cell, row in rows.items() if row["status"] != FAILED}
        self.tally.wanted += len(asked)
        self.tally.finished += len(rows)
        self.tally.failed += len(rows) - len(answered)
        return answered

    def _is_to_do(self, cell: Cell) -> bool:
        row = self.journal.rows.get(cell.key)
        return row is None or (row["status"] == FAILED and cell.key not in self._failed)

    def _measure(self, cells: Sequence[Cell], stage: str, *, already: int) -> None:
        total, failed = already + len(cells), 0
        self.progress(Tick(stage, already, total))
        for number, (cell, row) in enumerate(self._spread(_measured, cells), start=already + 1):
            self.journal.add(cell.key, row)
            if row["status"] == FAILED:
                self._failed.add(cell.key)
                failed += 1
            self.progress(Tick(stage, number, total, {"failed": failed} if failed else {}))

    def _prepare(self, cells: Sequence[Cell]) -> None:
        """Fit the models and choose the points that the cells need."""
        solves = [cell for cell in cells if isinstance(cell, SolveCell)]
        limits = dict.fromkeys(cell.limits for cell in solves)
        self.fit_models([pair for pair in limits if pair is not None])
        plans = {
            (cell.limits, cell.anchors.of or cell.anchors.size or 0, cell.device)
            for cell in solves
            if cell.anchors is not None and cell.anchors.strategy == "facility"
        }
        for number, (model, size, device) in enumerate(plans):
            if not points_file(self.laboratory, model, size).exists():
                self.progress(Tick("choosing anchors", number, len(plans), {"anchors": size}))
                choose_points(self.laboratory, model, size, device)

    def fit_models(self, limits: Sequence[Limits]) -> None:
        """Fit those models that are not stored yet; several at once, where there are workers for it."""
        missing = [pair for pair in limits if not self.laboratory.model_folder(pair).exists()]
        if len(missing) == 1:
            self.laboratory.fit_model(missing[0], self.progress)  # here, where every epoch can be reported
            return
        if missing:
            self.progress(Tick("fitting models", 0, len(missing)))
        for number, _ in enumerate(self._spread(_fitted, missing), start=1):
            self.progress(Tick("fitting models", number, len(missing)))

    def _spread(
        self, work: Callable[[Laboratory, Argument], Value], arguments: Sequence[Argument]
    ) -> Iterator[tuple[Argument, Value]]:
        """Pairs of argument and value as they are finished, over the workers or, with one, in this process."""
        waiting = list(reversed(arguments))
        running: dict[Future[Value], Argument] = {}
        with _staff(min(self.workers, len(arguments))) as executor:
            while waiting or running:
                while waiting and len(running) < self.workers:
                    argument = waiting.pop()
                    running[executor.submit(_quietly, work, self.laboratory, argument)] = argument
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), _value(future)


@contextmanager
def _staff(workers: int) -> Iterator[Executor]:
    """Who does the work; processes of our own end with the block, at once if it ends with an error."""
    if workers <= 1:
        yield ThisProcess()
        return
    executor = LocalWorkers(workers)
    try:
        yield executor
    except BaseException:
        executor.shutdown(cancel_futures=True)
        raise
    executor.shutdown()


def _quietly(work: Callable[[Laboratory, Argument], Value], laboratory: Laboratory, argument: Argument) -> Value:
    """What a worker does: with one thread, so that seconds compare whatever the number of workers."""
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", PlausibilityWarning)
        return work(laboratory, argument)


def _value(future: Future[Value]) -> Value:
    try:
        return future.result()
    except BrokenExecutor:
        raise IfonlyError(
            "a worker process ended without an answer (killed, or out of memory). What was finished is kept: give the "
            "same command again to go on, with fewer workers if memory was short."
        ) from None


def _measured(laboratory: Laboratory, cell: Cell) -> Row:
    """The cell's row; a cell that fails costs no other one."""
    try:
        return cell.measure(laboratory)
    except IfonlyError as error:
        return {"status": FAILED, "reason": str(error)}


def _fitted(laboratory: Laboratory, limits: Limits) -> None:
    laboratory.fit_model(limits)
