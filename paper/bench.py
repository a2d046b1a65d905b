"""The bench: cells are measured over worker processes, and each is written down as soon as it is finished."""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from ifonly.errors import IfonlyError, PlausibilityWarning, StoreError
from ifonly.journal import Journal, alone, line_of
from ifonly.models.fit import torch_threads
from ifonly.progress import Progress, Tick, silent
from ifonly.result.table import FAILED
from ifonly.runs.workers import LocalWorkers, ThisProcess
from paper.laboratory import Laboratory, Limits

JOURNAL = "cells.jsonl"
FORMAT: dict[str, Any] = {"format": "paper", "version": 1}

Row = dict[str, Any]
"""Plain types, as JSON has them."""

Argument = TypeVar("Argument")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Cell(ABC):
    """A unit of work that says all that its numbers depend on, so that the same one is never measured twice."""

    kind: ClassVar[str]

    @property
    def key(self) -> str:
        """What tells this cell from any other of the same folder."""
        return json.dumps([self.kind, asdict(self)], sort_keys=True)

    @property
    def model_limits(self) -> Limits | None:
        """Of the model of the laboratory that must be fitted before; None: it needs none."""
        return None

    def prepare(self, laboratory: Laboratory, progress: Progress) -> None:  # noqa: B027 - most need nothing
        """Store, before any cell is measured, what this one shares with others, unless it is stored already."""

    @abstractmethod
    def measure(self, laboratory: Laboratory) -> Row:
        """Do the work; `status` and `reason` are in every row."""


class FinishedCells:
    """Rows of finished cells by their keys, kept in a journal; of a cell that was measured again, the latest.

    The first line says what all cells have in common; a journal made under other conditions is refused. With
    `read_only` nothing is written, and what a stopped run left half-written is not cut off either: another process may
    be writing it just now. Without, the caller keeps other processes away (`ifonly.journal.alone`).
    """

    def __init__(self, path: Path, header: Mapping[str, Any], *, read_only: bool = False) -> None:
        self.rows: dict[str, Row] = {}
        self._file = _journal(path)
        wanted = {**FORMAT, **header}
        begun = path.exists() and self._read(wanted)
        if read_only:
            return
        if begun:
            self._file.cut_unended()  # what was being written when a run stopped
            return
        if path.exists() and not line_of(json.dumps(wanted)).startswith(path.read_bytes()):
            raise self._file.broken(1)  # not ours, and not a first line cut off: never overwritten
        self._file.cut(0)
        self._file.append([json.dumps(wanted)])

    def add(self, key: str, row: Mapping[str, Any]) -> None:
        """Note a finished cell; it is on disk when this returns."""
        self._file.append([json.dumps({"cell": key, "row": row}, allow_nan=False)])
        self.rows[key] = dict(row)

    def _read(self, wanted: Mapping[str, Any]) -> bool:
        """Take over what the file holds; returns whether it has a first line."""
        begun = False
        for line in self._file.lines():
            if line.number == 1:
                found = self._file.checked(line, FORMAT.keys())
                differing = differences(found, wanted)
                if differing:
                    raise StoreError(
                        f"{self._file.path.parent} holds experiments made under other conditions ({differing}). Go on "
                        "with the same cohort, model and settings, or choose another folder."
                    )
                begun = True
            else:
                entry = self._file.checked(line, {"cell", "row"})
                self.rows[entry["cell"]] = entry["row"]
        return begun


def differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In which entries two mappings differ, in words; empty where they are equal.

    >>> differences({"seed": 0, "epochs": 5}, {"seed": 1, "epochs": 5})
    'seed: 0 there, 1 now'
    """
    names = sorted(name for name in there.keys() | now.keys() if there.get(name) != now.get(name))
    return "; ".join(f"{name}: {there.get(name)} there, {now.get(name)} now" for name in names)


def read_header(folder: Path) -> dict[str, Any]:
    """What all cells of a folder have in common."""
    path = folder / JOURNAL
    if not path.is_file():
        raise StoreError(f"{path} does not exist; no experiment was run in this folder.")
    journal = _journal(path)
    first = next(journal.lines(), None)
    if first is None:
        raise journal.broken(1)
    return journal.checked(first, FORMAT.keys())


def _journal(path: Path) -> Journal:
    return Journal(path, "journal of experiments", "choose another folder")


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
            # What another version measured may be drawn by this one.
            header["ifonly"] = read_header(self.laboratory.folder)["ifonly"]
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
        self.count(len(asked), len(rows), len(rows) - len(answered))
        return answered

    def count(self, wanted: int, finished: int, failed: int) -> None:
        """Add cells, or episodes of a cohort run, to the tally."""
        self.tally.wanted += wanted
        self.tally.finished += finished
        self.tally.failed += failed

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
        """Fit the models and store what else the cells share."""
        self.fit_models(dict.fromkeys(cell.model_limits for cell in cells))
        for cell in cells:
            cell.prepare(self.laboratory, self.progress)

    def fit_models(self, limits: Iterable[Limits | None]) -> None:
        """Fit those models that are not stored yet; several at once, where there are workers for it."""
        missing = [pair for pair in limits if pair is not None and not self.laboratory.model_folder(pair).exists()]
        if len(missing) == 1:
            self.laboratory.fit_model(missing[0], self.progress)  # here, where every epoch can be reported
            return
        if missing:
            self.progress(Tick("fitting models", 0, len(missing)))
        for number, _ in enumerate(self._spread(Laboratory.fit_model, missing), start=1):
            self.progress(Tick("fitting models", number, len(missing)))

    def _spread(
        self, work: Callable[[Laboratory, Argument], Value], arguments: Sequence[Argument]
    ) -> Iterator[tuple[Argument, Value]]:
        """Pairs of argument and value as they are finished, over the workers or, with one, in this process."""
        waiting = list(reversed(arguments))
        running: dict[Future[Value], Argument] = {}
        with _executor(min(self.workers, len(arguments))) as executor:
            while waiting or running:
                while waiting and len(running) < self.workers:
                    argument = waiting.pop()
                    running[executor.submit(_quietly, work, self.laboratory, argument)] = argument
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), _value(future)


@contextmanager
def _executor(workers: int) -> Iterator[Executor]:
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
    with torch_threads(1), warnings.catch_warnings():
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
