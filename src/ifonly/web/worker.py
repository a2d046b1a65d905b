"""A worker process: it loads the model once and solves what it is sent; it ends with its server, however that ends."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from ifonly.cases import case_of
from ifonly.cases.question import CaseQuestion, ruled
from ifonly.constraints import Constraints
from ifonly.data.episode import Episode
from ifonly.errors import IfonlyError, StoreError
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.evidence.examination import Examination
from ifonly.models.base import TransitionModel
from ifonly.models.checkpoint import load_model
from ifonly.models.standing import Standing
from ifonly.problem import BaseProblem
from ifonly.progress import Tick
from ifonly.query import Limits
from ifonly.result import Status
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.session import Session
from ifonly.web.progress import shown_progress

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
    question: CaseQuestion
    behaviour: BehaviourModel | None = None
    standing: Standing | None = None
    """What is known of the model beside what its folder says."""


@dataclass(frozen=True)
class Work:
    """One search: an episode, a budget, rules, and how many of the best sequences are wanted."""

    episode: Episode
    max_changes: int
    constraints: Constraints | None
    alternatives: int
    seconds: float


@dataclass(frozen=True)
class Order:
    """From the server to a worker: do this work, or (None) stop doing it."""

    job: str
    work: Work | None = None


@dataclass(frozen=True)
class Message:
    """From a worker to the server, about one job; of the fields, those that there is something to say about.

    `ended` is "finished" or "stopped", with the case; or "failed", with the error.
    """

    job: str
    progress: dict[str, Any] | None = None
    ended: str | None = None
    case: dict[str, Any] | None = None
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
            message = Message(order.job, ended="failed", error=str(error))
        except Exception as error:  # of what is unexpected only the kind is safe to tell
            message = Message(order.job, ended="failed", error=f"The search broke down ({type(error).__name__}).")
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
    """The model, and the sessions of the episodes asked about last: other rules reuse their bounds."""

    def __init__(self, setup: Setup) -> None:
        self._question = setup.question
        self._model = _load(setup)
        self._behaviour = setup.behaviour
        self._sessions: OrderedDict[tuple[str, int], tuple[BaseProblem, Session]] = OrderedDict()

    def solve(self, job: str, work: Work, inbox: _Inbox) -> Message:
        """Search; stopped, the answer is the bracket so far."""
        problem, session = self._session(work)
        session.solver = BranchAndBound(alternatives=work.alternatives)
        watch = _Watch(job, problem, inbox)
        limits = Limits(seconds=work.seconds)
        result = session.solve(work.constraints or Constraints(), limits=limits, progress=watch.tick)
        asked = ruled(problem, work.max_changes, work.constraints)
        # Only what is quick: replays under refits, and what the data supports.
        trust = Examination(behaviour=self._behaviour).attempt(asked, result)
        case = case_of(asked, replace(result, trust=trust.to_dict()))
        ended = "stopped" if result.status is Status.INTERRUPTED else "finished"
        return Message(job, ended=ended, case=case.to_dict())

    def _session(self, work: Work) -> tuple[BaseProblem, Session]:
        """The episode's problem without rules, and its session."""
        key = (work.episode.id, work.max_changes)
        if key not in self._sessions:
            question = replace(self._question, max_changes=work.max_changes, constraints=None)
            with torch.no_grad():
                problem = question.about(work.episode, self._model, self._behaviour)
            self._sessions[key] = (problem, Session(problem))
        self._sessions.move_to_end(key)
        if len(self._sessions) > SESSIONS_KEPT:
            self._sessions.popitem(last=False)
        return self._sessions[key]


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
            progress = shown_progress(self._problem, tick, seconds=now - self._began)
            self._inbox.server.send(Message(self._job, progress=progress))


def _load(setup: Setup) -> TransitionModel:
    model = load_model(setup.model).for_search()
    if model.fingerprint() != setup.fingerprint:
        raise StoreError("The model's folder has changed since the server was started; start the server again.")
    model.standing = setup.standing
    return model
