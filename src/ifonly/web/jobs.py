"""Searches that take a while: a queue, a few worker processes, and what is known of each search."""

from __future__ import annotations

import multiprocessing
import secrets
import threading
import time
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Literal

from ifonly.report.cases import Case
from ifonly.runs.workers import without_interrupts
from ifonly.text.catalogue import say
from ifonly.web.guard import RefusalError
from ifonly.web.worker import News, Order, SearchProgress, Setup, Work, work_for

State = Literal["waiting", "running", "finished", "stopped", "failed"]
GRACE = 30.0
"""Seconds beyond its limit, or after it was told to stop, before a worker that does not answer is replaced."""
SECONDS_TO_END = 5.0
SECONDS_BETWEEN_LOOKS = 0.2
"""At what was asked of a search that says nothing itself."""


@dataclass(frozen=True, eq=False)
class JobAnswer:
    """A search, and its case once it has ended."""

    job: str
    episode: str
    state: State
    progress: SearchProgress | None
    case: Case | None
    error: str | None


@dataclass(frozen=True)
class JobLimits:
    """How much may be asked of the workers."""

    workers: int = 2
    waiting: int = 16
    """Jobs that wait for a worker."""
    per_client: int = 4
    """Jobs of one address that wait or are worked on."""
    kept: int = 64
    """Jobs that have ended, to be asked about."""
    seconds_kept: float = 3600.0


@dataclass(eq=False)
class Job:
    """One search that somebody asked for; changed only under the desk's lock."""

    client: str
    work: Work
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    state: State = "waiting"
    progress: SearchProgress | None = None
    case: Case | None = None
    error: str | None = None
    deadline: float | None = None
    ended: float | None = None
    is_stopping: bool = False
    """Somebody wants the answer so far."""

    @property
    def is_open(self) -> bool:
        """Whether it waits or is worked on."""
        return self.state in ("waiting", "running")

    @property
    def answer(self) -> JobAnswer:
        """What is known of it now."""
        return JobAnswer(self.id, self.work.episode.id, self.state, self.progress, self.case, self.error)


class JobDesk:
    """Takes jobs, has them done by worker processes in the order in which they came, and remembers them for a while."""

    def __init__(self, setup: Setup, limits: JobLimits | None = None) -> None:
        self.limits = limits or JobLimits()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._workers = [_Worker(setup) for _ in range(self.limits.workers)]
        self._attendants = [
            threading.Thread(target=self._attend, args=(worker,), daemon=True) for worker in self._workers
        ]

    def open(self) -> None:
        """Start the workers; they get ready while the server answers already."""
        for attendant in self._attendants:
            attendant.start()

    def close(self) -> None:
        """End the workers, whatever they do."""
        with self._changed:
            self._is_closed = True
            for job in self._waiting:
                _end(job, "failed", error=say("job.server stopped"))
            self._waiting.clear()
            self._changed.notify_all()
        for worker in self._workers:
            worker.retire()
        for attendant in self._attendants:
            attendant.join()

    def submit(self, client: str, work: Work) -> JobAnswer:
        """A new job; refused when too many wait, or when this client has too many."""
        with self._changed:
            self._forget_old()
            if sum(job.client == client and job.is_open for job in self._jobs.values()) >= self.limits.per_client:
                raise _too_many("client busy")
            if len(self._waiting) >= self.limits.waiting or self._is_closed:
                raise _too_many("server busy")
            job = Job(client, work)
            self._jobs[job.id] = job
            self._waiting.append(job)
            self._changed.notify()
            return job.answer

    def look(self, id: str) -> JobAnswer:
        """What is known of a job now."""
        with self._changed:
            return self._find(id).answer

    def stop(self, id: str) -> JobAnswer:
        """Ask for the answer so far; a job that has not begun has none. One that has ended stays as it is."""
        with self._changed:
            job = self._find(id)
            if job.state == "waiting":
                self._waiting.remove(job)
                _end(job, "stopped")
            elif job.state == "running" and not job.is_stopping:
                job.is_stopping = True
                job.deadline = time.monotonic() + GRACE
            return job.answer

    def _find(self, id: str) -> Job:
        self._forget_old()
        if id not in self._jobs:
            raise RefusalError(404, "unknown job")
        return self._jobs[id]

    def _forget_old(self) -> None:
        """Let go of jobs that ended long ago, or that are too many."""
        ended = [job for job in self._jobs.values() if job.ended is not None]
        ended.sort(key=lambda job: job.ended or 0.0)
        oldest = time.monotonic() - self.limits.seconds_kept
        surplus = len(ended) - self.limits.kept
        for number, job in enumerate(ended):
            if number < surplus or (job.ended or 0.0) < oldest:
                del self._jobs[job.id]

    def _attend(self, worker: _Worker) -> None:
        """One worker's thread: gives it the next job, and writes down what it says."""
        try:
            with suppress(Exception):  # it is tried again, and said, when there is work
                worker.begin()
            while (job := self._next()) is not None:
                try:
                    self._have_done(job, worker)
                except Exception as error:  # no process can be started: memory, or handles, are short
                    self._fail(job, say("job.not started", kind=type(error).__name__))
        finally:
            worker.retire()

    def _next(self) -> Job | None:
        """The job that has waited longest; None when the desk is closed."""
        with self._changed:
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                return None
            job = self._waiting.popleft()
            job.state = "running"
            job.deadline = time.monotonic() + (job.work.query.limits.seconds or 0.0) + GRACE
            return job

    def _have_done(self, job: Job, worker: _Worker) -> None:
        worker.begin()
        worker.send(Order(job.id, job.work))
        is_told = False
        while job.is_open:
            if job.is_stopping and not is_told:
                worker.send(Order(job.id))
                is_told = True
            message = worker.listen(seconds=SECONDS_BETWEEN_LOOKS)
            if message is not None:
                self._note(job, message)
            elif not worker.is_alive:
                self._fail(job, say("job.server stopped" if self._is_closed else "job.died"))
            elif job.deadline is not None and time.monotonic() > job.deadline:
                worker.end()
                self._fail(job, say("job.silent"))

    def _note(self, job: Job, message: News) -> None:
        with self._changed:
            if message.ended is None:
                job.progress = message.progress
            elif message.ended == "failed":
                _end(job, "failed", error=message.error)
            else:
                job.case = message.case
                _end(job, "stopped" if message.ended == "stopped" else "finished")

    def _fail(self, job: Job, error: str) -> None:
        with self._changed:
            _end(job, "failed", error=error)


class _Worker:
    """A process that is started when it is needed, and again when it has died.

    One thread attends to it; others may only end it.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        # Forked processes would share locks and threads of libraries.
        self._context = multiprocessing.get_context("spawn")
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._is_retired = False

    @property
    def is_alive(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.is_alive()

    def begin(self) -> None:
        """Start a process, unless there is one or there shall be none any more."""
        with self._lock:
            if self.is_alive or self._is_retired:
                return
            if self._connection is not None:
                self._connection.close()
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=work_for, args=(theirs, self._setup), daemon=True)
            with without_interrupts():  # the server ends its workers itself
                process.start()
            theirs.close()
            self._process, self._connection = process, ours

    def send(self, order: Order) -> None:
        """Tell the process; one that has died is not told.

        Without the lock: a process that does not read must not keep anybody from ending it.
        """
        with suppress(OSError):
            if self._connection is not None:
                self._connection.send(order)

    def listen(self, *, seconds: float) -> News | None:
        """What the process says next; None when it says nothing for so long, or has died."""
        if self._process is None or self._connection is None:
            return None
        wait([self._connection, self._process.sentinel], timeout=seconds)
        try:
            return self._connection.recv() if self._connection.poll() else None
        except (EOFError, OSError):
            self._process.join(SECONDS_TO_END)
            return None

    def end(self) -> None:
        """End the process at once; it keeps nothing that could be lost."""
        with self._lock:
            self._kill()

    def retire(self) -> None:
        """End the process, and never start one again."""
        with self._lock:
            self._is_retired = True
            self._kill()

    def _kill(self) -> None:
        if self._process is not None and self._process.is_alive():
            self._process.kill()
            self._process.join(SECONDS_TO_END)


def _end(job: Job, state: State, *, error: str | None = None) -> None:
    job.state, job.error, job.ended = state, error, time.monotonic()


def _too_many(code: str) -> RefusalError:
    return RefusalError(429, code, headers={"Retry-After": "10"})
