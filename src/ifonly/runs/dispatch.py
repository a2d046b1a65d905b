"""Handing episodes to workers in chunks until each has its answer, even if workers die."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

from ifonly.data.cohort import Cohort
from ifonly.errors import IfonlyError
from ifonly.result.table import failed_row
from ifonly.runs.parcels import Parcel, pack, solve_parcel
from ifonly.runs.task import Answer, Task, answer_of
from ifonly.runs.workers import LocalWorkers, ThisProcess
from ifonly.version import __version__

MOST_DEATHS = 3
"""Workers that may die over one episode before it is recorded as failed."""

RESUME = "what was finished is kept; run the same again to go on"


@dataclass(frozen=True)
class Chunk:
    """Episodes that are handed over together."""

    positions: tuple[int, ...]
    deaths: int = 0
    """Workers that died while they solved it; counted once it is a single episode."""
    with_parcel: bool = False


def chunks_of(positions: Sequence[int], cohort: Cohort, size: int) -> list[Chunk]:
    """Chunks of equal horizon, longest first, so that the last ones are quick."""
    lengths = cohort.lengths
    ordered = sorted(positions, key=lambda position: -lengths[position])
    return [
        Chunk(tuple(part))
        for _, same in itertools.groupby(ordered, key=lambda position: lengths[position])
        for part in _parts(list(same), size)
    ]


def _parts(positions: list[int], size: int) -> Iterator[list[int]]:
    return (positions[start : start + size] for start in range(0, len(positions), size))


@dataclass(frozen=True)
class Staff:
    """The workers, and how chunks are handed to them."""

    executor: Executor
    most_running: int
    """Chunks in their hands at a time."""
    chunk: int
    """Episodes in a chunk, at most."""
    share: Callable[[bytes], Any] | None = None
    """Shares bytes with all workers; None: a worker that lacks the task says so, and gets it with a chunk."""


@dataclass
class Dispatch:
    """One task for one cohort, handed to a staff."""

    task: Task
    cohort: Cohort
    staff: Staff
    _parcel: Parcel | None = field(default=None, init=False)
    _shared: Any = field(default=None, init=False)
    _tickets: Iterator[int] = field(default_factory=itertools.count, init=False)

    def answers(self, positions: Sequence[int]) -> Iterator[list[Answer]]:
        """The answers for the episodes at these positions as they arrive; those that arrive together in one list."""
        waiting = deque(chunks_of(positions, self.cohort, self.staff.chunk))
        running: dict[Future[list[Answer] | None], Chunk] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.staff.most_running:
                    chunk = waiting.popleft()
                    running[self._submit(chunk)] = chunk
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                found: list[Answer] = []
                for future in done:
                    found += self._received(running.pop(future), future, waiting)
                if found:
                    yield found
        finally:
            for future in running:
                future.cancel()

    def _submit(self, chunk: Chunk) -> Future[list[Answer] | None]:
        episodes = [(position, self.cohort[position]) for position in chunk.positions]
        executor = self.staff.executor
        if isinstance(executor, ThisProcess):
            return executor.submit(self.task.answer, episodes)
        if self._parcel is None:
            self._parcel = pack(self.task)
        try:
            content = self._content(self._parcel, chunk)
            return executor.submit(solve_parcel, self._parcel.name, content, episodes, __version__, next(self._tickets))
        except RuntimeError as error:  # broken, or shut down
            raise IfonlyError(
                f"the executor takes no more work ({type(error).__name__}: {error}); {RESUME}."
            ) from error

    def _content(self, parcel: Parcel, chunk: Chunk) -> Any:
        """The parcel's content as an argument of a call; None if workers may have it already."""
        if self.staff.share is None:
            return parcel.content if chunk.with_parcel else None
        if self._shared is None:
            self._shared = self.staff.share(parcel.content)
        return self._shared

    def _received(self, chunk: Chunk, future: Future[list[Answer] | None], waiting: deque[Chunk]) -> list[Answer]:
        """The answers of a finished future; a chunk that must be done again goes back to the head of the queue."""
        try:
            answers = future.result()
        except CancelledError:
            who = "executor" if self.staff.share is None else "scheduler"
            raise IfonlyError(f"the {who} is gone or has cancelled the work; {RESUME}.") from None
        except Exception as error:
            if not _is_death(error):
                raise IfonlyError(
                    f"a worker could not do its part ({type(error).__name__}: {error}); {RESUME}."
                ) from error
            executor = self.staff.executor
            if isinstance(executor, LocalWorkers) and executor.never_began(future):
                waiting.appendleft(chunk)
                return []
            return self._after_death(chunk, waiting)
        if answers is None:
            waiting.appendleft(replace(chunk, with_parcel=True))
            return []
        return answers

    def _after_death(self, chunk: Chunk, waiting: deque[Chunk]) -> list[Answer]:
        if len(chunk.positions) > 1:  # retry one by one to find the culprit
            waiting.extendleft(Chunk((position,)) for position in chunk.positions)
            return []
        deaths = chunk.deaths + 1
        if deaths < MOST_DEATHS:
            waiting.appendleft(replace(chunk, deaths=deaths))
            return []
        (position,) = chunk.positions
        episode = self.cohort[position]
        reason = IfonlyError(
            f"episode {episode.id!r}: {deaths} processes died while solving it, which happens when memory runs out "
            "or compiled code crashes; solve it alone, with a limit on memory or nodes."
        )
        return [answer_of(position, failed_row(episode, reason))]


def _is_death(error: BaseException) -> bool:
    """Whether the worker died before it could answer, as any of the executors reports it."""
    return isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker"
