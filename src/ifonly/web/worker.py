"""A worker process: it loads the model once and solves what it is sent; it ends with its server, however that ends."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import torch

from ifonly.constraints import Constraints
from ifonly.data.episode import Episode
from ifonly.errors import IfonlyError, StoreError
from ifonly.evidence import examine, unexamined
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.models.base import TransitionModel
from ifonly.models.checkpoint import load_model
from ifonly.models.standing import Standing
from ifonly.problem import BaseProblem, build_problem
from ifonly.progress import Tick
from ifonly.query import Query
from ifonly.records import finite
from ifonly.report.cases import Case, case_of
from ifonly.result import Evidence, Result, Status
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.session import Session
from ifonly.search.solvers import make_solver
from ifonly.text.catalogue import say

Key = TypeVar("Key")
Value = TypeVar("Value")

SESSIONS_KEPT = 4
"""Bounds are kept with them, and may be large."""
SECONDS_BETWEEN_TICKS = 0.1
NICENESS = 10
"""Pages come first: a search may use what they leave."""


@dataclass(frozen=True)
class Setup:
    """What every worker needs."""

    model: Path
    fingerprint: str
    """Of the model that the server has: the folder may have changed since it was read."""
    behaviour: BehaviourModel | None = None
    standing: Standing | None = None
    """What is known of the model beside what its folder says."""


@dataclass(frozen=True)
class Work:
    """One search: a query about an episode."""

    episode: Episode
    query: Query
    """With limits on its time, solved by branch and bound."""


@dataclass(frozen=True)
class Order:
    """From the server to a worker: do this work, or (None) stop doing it."""

    job: str
    work: Work | None = None


@dataclass(frozen=True)
class SearchProgress:
    """How far a search is, in units of the outcome as shown; what is not known is None.

    The cost of changes, where there is one, counts in all three: how many the best will need is not known yet.
    """

    found: float | None
    best_possible: float | None
    gap: float | None
    nodes: int
    seconds: float


@dataclass(frozen=True)
class News:
    """From a worker to the server, about one job; of the fields, those that there is something to say about.

    `ended` is "finished" or "stopped", with the case; or "failed", with the error.
    """

    job: str
    progress: SearchProgress | None = None
    ended: str | None = None
    case: Case | None = None
    error: str | None = None


def work_for(server: Connection, setup: Setup) -> None:
    """Do what `server` orders, one thing after the other, until it hangs up."""
    torch.set_num_threads(1)
    os.nice(NICENESS)
    inbox = _Inbox(server)
    bench: _Bench | None = None
    while True:
        order = inbox.next()
        try:
            bench = bench or _Bench(setup)
            assert order.work is not None
            message = bench.solve(order.job, order.work, inbox)
        except IfonlyError as error:
            message = News(order.job, ended="failed", error=str(error))
        except Exception as error:  # of what is unexpected only the kind is safe to tell
            message = News(order.job, ended="failed", error=say("job.broke down", kind=type(error).__name__))
        server.send(message)


class _Inbox:
    """Listens to the server while the search is at work."""

    def __init__(self, server: Connection) -> None:
        self.server = server
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._stopped: str | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def next(self) -> Order:
        """The next work to do."""
        return self._orders.get()

    def is_stopped(self, job: str) -> bool:
        """Whether the server wants this work no longer."""
        return self._stopped == job

    def _listen(self) -> None:
        while True:
            try:
                order: Order = self.server.recv()
            except (EOFError, OSError):  # the server has hung up, or is no more
                os._exit(0)
            if order.work is None:
                self._stopped = order.job
            else:
                self._orders.put(order)


class _Bench:
    """The model, and what was abducted and bounded of the episodes asked about last: other rules reuse it."""

    def __init__(self, setup: Setup) -> None:
        self._model = _load(setup)
        self._behaviour = setup.behaviour
        self._problems: OrderedDict[str, BaseProblem] = OrderedDict()
        self._sessions: OrderedDict[tuple[str, int | None], Session] = OrderedDict()

    def solve(self, job: str, work: Work, inbox: _Inbox) -> News:
        """Search; stopped, the answer is the bracket so far."""
        session, query = self._session(work), work.query
        solver = make_solver(query.solver)
        assert isinstance(solver, BranchAndBound), "as the server orders"
        session.solver = solver
        session.problem = session.problem.with_query(solver=query.solver, limits=query.limits)
        watch = _Watch(job, session.problem, inbox)
        result = session.solve(query.constraints, limits=query.limits, progress=watch.tick)
        result = replace(result, evidence=self._evidence(session.problem, result))
        ended = "stopped" if result.status is Status.INTERRUPTED else "finished"
        return News(job, ended=ended, case=case_of(session.problem, result))

    def _evidence(self, problem: BaseProblem, result: Result) -> Evidence:
        """Only what is quick: replays under refits, and what the data supports."""
        try:
            return examine(
                problem,
                result,
                behaviour=self._behaviour,
                each_refit=False,
                honest=False,
                sensitivity=False,
                coupling=False,
            )
        except IfonlyError as error:
            return unexamined(problem, result, error)

    def _session(self, work: Work) -> Session:
        """The session of an episode and a budget, whose bound is built without rules; an episode is abducted once."""
        id, most = work.episode.id, work.query.max_changes
        return _kept(self._sessions, (id, most), lambda: Session(self._problem(work).with_query(max_changes=most)))

    def _problem(self, work: Work) -> BaseProblem:
        """The query without rules and budget."""
        query = replace(work.query, constraints=Constraints(), max_changes=None, allow_failed_model=True)

        def build() -> BaseProblem:
            with torch.no_grad():
                return build_problem(work.episode, self._model, query, support=self._behaviour)

        return _kept(self._problems, work.episode.id, build)


def _kept(memory: OrderedDict[Key, Value], key: Key, make: Callable[[], Value]) -> Value:
    """What is remembered under a key, or is made now; the least recently used is forgotten."""
    if key not in memory:
        memory[key] = make()
    memory.move_to_end(key)
    if len(memory) > SESSIONS_KEPT:
        memory.popitem(last=False)
    return memory[key]


class _Watch:
    """Passes progress on, not too often, and stops the search when the server says so."""

    def __init__(self, job: str, problem: BaseProblem, inbox: _Inbox) -> None:
        self._job, self._problem, self._inbox = job, problem, inbox
        self._began = time.monotonic()
        self._last = 0.0

    def tick(self, tick: Tick) -> None:
        if self._inbox.is_stopped(self._job):
            raise KeyboardInterrupt  # a search that is interrupted returns its bracket
        now = time.monotonic()
        if now - self._last >= SECONDS_BETWEEN_TICKS:
            self._last = now
            self._inbox.server.send(News(self._job, progress=self._shown(tick, now - self._began)))

    def _shown(self, tick: Tick, seconds: float) -> SearchProgress:
        found, bound = tick.figures["incumbent"], tick.figures["bound"]
        gap = finite(bound - found)
        return SearchProgress(
            found=self._outcome(found),
            best_possible=self._outcome(bound),
            gap=None if gap is None else max(0.0, gap),
            nodes=tick.done,
            seconds=seconds,
        )

    def _outcome(self, value: float) -> float | None:
        return None if finite(value) is None else self._problem.reward.show(value).value


def _load(setup: Setup) -> TransitionModel:
    model = load_model(setup.model).for_search()
    if model.fingerprint() != setup.fingerprint:
        raise StoreError(say("job.model changed"))
    model.standing = setup.standing
    return model
