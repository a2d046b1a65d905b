"""Who does the work: this process, processes on this machine, or any executor of `concurrent.futures`."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

from ifonly.errors import IfonlyError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of `mallopt`, as glibc numbers them."""

MOST_STILLBIRTHS = 2
"""Processes in a row that may end at one place before they have begun; then something is wrong with all of them."""

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


class ThisProcess(Executor):
    """Works at once, where it is called."""

    def submit(
        self, fn: Callable[Arguments, Returned], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Returned]:
        """Call, then give the finished future back; Ctrl-C is not caught."""
        future: Future[Returned] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass
class _Place:
    """One worker process: a pool of its own, whether it came to life, and what it was last asked to do."""

    pool: ProcessPoolExecutor | None = None
    born: Future[None] | None = None
    last: Future[Any] | None = None
    stillbirths: int = 0
    """Processes before this one, without another between them, that never came to life."""

    @property
    def is_free(self) -> bool:
        return self.last is None or self.last.done()

    @property
    def is_broken(self) -> bool:
        return _broke(self.last)

    @property
    def was_stillborn(self) -> bool:
        return _broke(self.born)


def _broke(future: Future[Any] | None) -> bool:
    return future is not None and future.done() and isinstance(future.exception(), BrokenExecutor)


class LocalWorkers(Executor):
    """Processes on this machine, each a pool of its own.

    In one pool for all, the death of a process fails everything that any of them was asked to do. Here it fails one
    call, which is thereby known, and the next call gets a new process. Workers end with this process, however it ends.
    """

    def __init__(self, count: int) -> None:
        self._places = [_Place() for _ in range(count)]
        # Forked processes would share locks and threads of libraries, and the lock on the run's folder.
        self._context = multiprocessing.get_context("spawn")
        self._listening, self._alive = self._context.Pipe(duplex=False)

    def submit(
        self, fn: Callable[Arguments, Returned], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Returned]:
        """Ask a process that is free, or the first one to be so later."""
        place = next((place for place in self._places if place.is_free), self._places[0])
        pool = self._begin(place) if place.pool is None or place.is_broken else place.pool
        try:
            place.last = future = pool.submit(fn, *args, **kwargs)
        except BrokenExecutor:  # it died while it had nothing to do
            place.last = future = self._begin(place).submit(fn, *args, **kwargs)
        return future

    def never_began(self, call: Future[Any]) -> bool:
        """Whether the process that was to do this call ended before it came to life: the call is not to blame."""
        return any(place.last is call and place.was_stillborn for place in self._places)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes; with `cancel_futures` at once, whatever they do."""
        if cancel_futures:
            self._alive.close()
        for place in self._places:
            if place.pool is not None:
                place.pool.shutdown(wait=wait, cancel_futures=cancel_futures)
        self._alive.close()
        self._listening.close()

    def _begin(self, place: _Place) -> ProcessPoolExecutor:
        """A new process for a place, unless too many have ended there at once."""
        place.stillbirths = place.stillbirths + 1 if place.was_stillborn else 0
        if place.stillbirths == MOST_STILLBIRTHS:
            raise IfonlyError(
                f"{MOST_STILLBIRTHS} worker processes in a row ended as soon as they began. A script must begin runs "
                "under `if __name__ == '__main__':`; if it does, memory may be short for so many workers."
            )
        pool = ProcessPoolExecutor(1, mp_context=self._context, initializer=_begin_worker, initargs=(self._listening,))
        with without_interrupts():  # the process takes over what is held back here
            place.pool, place.born = pool, pool.submit(_be_born)
        return pool


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back, for it goes to all processes of a terminal: to end workers is up to whoever began them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _be_born() -> None:
    """Nothing to do: that it was done is what counts."""


def _begin_worker(listening: Connection) -> None:
    _keep_memory()
    threading.Thread(target=_end_with_parent, args=(listening,), daemon=True).start()


def _end_with_parent(listening: Connection) -> None:
    """Nothing is ever sent; the other end is closed when the parent says so, or dies."""
    listening.poll(None)
    os._exit(1)


def _keep_memory() -> None:
    """Ask the C library to keep what is freed: arrays of the same sizes come and go, and to return pages to the system
    and fetch them again takes up to a tenth of the time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 2**25)  # the largest that it accepts
        mallopt(M_TRIM_THRESHOLD, 2**29)
