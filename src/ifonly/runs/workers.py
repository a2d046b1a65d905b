"""Executors that do the work: this process, or processes on this machine."""

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
"""Options of glibc's `mallopt`."""

MOST_FAILED_STARTS = 2
"""Processes in a row that may die while they start; then something is wrong with all of them."""

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


class ThisProcess(Executor):
    """An executor that does each call at once, in the calling thread."""

    def submit(
        self, fn: Callable[Arguments, Returned], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Returned]:
        """Call `fn` and return the finished future; Ctrl-C is not caught."""
        future: Future[Returned] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass
class _Worker:
    """One worker process: a pool of its own, whether it has started, and its latest call."""

    pool: ProcessPoolExecutor | None = None
    ping: Future[None] | None = None
    last: Future[Any] | None = None
    failed_starts: int = 0
    """Processes in a row, up to this one, that died before they answered the ping."""

    @property
    def is_free(self) -> bool:
        return self.last is None or self.last.done()

    @property
    def is_broken(self) -> bool:
        return _broke(self.last)

    @property
    def failed_to_start(self) -> bool:
        return _broke(self.ping)


def _broke(future: Future[Any] | None) -> bool:
    return future is not None and future.done() and isinstance(future.exception(), BrokenExecutor)


class LocalWorkers(Executor):
    """Processes on this machine, each in a pool of its own.

    In a shared pool the death of one process fails the calls of all of them. Here it fails one call, so the culprit is
    known, and the next call gets a new process. Workers end with this process, however it ends.
    """

    def __init__(self, count: int) -> None:
        self._workers = [_Worker() for _ in range(count)]
        # Forked processes would share locks and threads of libraries, and the lock on the run's folder.
        self._context = multiprocessing.get_context("spawn")
        self._listening, self._alive = self._context.Pipe(duplex=False)

    def submit(
        self, fn: Callable[Arguments, Returned], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Returned]:
        """Give the call to a free process, or queue it for the first one."""
        worker = next((worker for worker in self._workers if worker.is_free), self._workers[0])
        pool = self._start(worker) if worker.pool is None or worker.is_broken else worker.pool
        try:
            worker.last = future = pool.submit(fn, *args, **kwargs)
        except BrokenExecutor:  # it died while it was idle
            worker.last = future = self._start(worker).submit(fn, *args, **kwargs)
        return future

    def never_began(self, call: Future[Any]) -> bool:
        """Whether the process for this call died while it started, so that the call is not to blame."""
        return any(worker.last is call and worker.failed_to_start for worker in self._workers)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes; with `cancel_futures` at once, even in the middle of a call."""
        if cancel_futures:
            self._alive.close()
        for worker in self._workers:
            if worker.pool is not None:
                worker.pool.shutdown(wait=wait, cancel_futures=cancel_futures)
        self._alive.close()
        self._listening.close()

    def _start(self, worker: _Worker) -> ProcessPoolExecutor:
        """Start a new process, unless too many in a row have failed to start."""
        worker.failed_starts = worker.failed_starts + 1 if worker.failed_to_start else 0
        if worker.failed_starts == MOST_FAILED_STARTS:
            raise IfonlyError(
                f"{MOST_FAILED_STARTS} worker processes in a row ended as soon as they began. A script must begin runs "
                "under `if __name__ == '__main__':`; if it does, memory may be short for so many workers."
            )
        pool = ProcessPoolExecutor(1, mp_context=self._context, initializer=_begin_worker, initargs=(self._listening,))
        with without_interrupts():  # the new process inherits the blocked signal
            worker.pool, worker.ping = pool, pool.submit(_ping)
        return pool


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Block Ctrl-C, which a terminal sends to all its processes: workers are ended by the process that began them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ping() -> None:
    """Do nothing: that the call returns shows that the process has started."""


def _begin_worker(listening: Connection) -> None:
    _keep_memory()
    threading.Thread(target=_end_with_parent, args=(listening,), daemon=True).start()


def _end_with_parent(listening: Connection) -> None:
    """Wait until the parent closes the other end of the pipe or dies; nothing is ever sent."""
    listening.poll(None)
    os._exit(1)


def _keep_memory() -> None:
    """Ask the C library to keep freed memory: arrays of the same sizes come and go, and returning pages to the system
    and fetching them again takes up to a tenth of the time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 2**25)  # the largest that it accepts
        mallopt(M_TRIM_THRESHOLD, 2**29)
