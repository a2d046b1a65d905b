"""What a solver is: a frozen bag of settings with one method, `search`; and how a search is watched and limited."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from ifonly.problem import BaseProblem
from ifonly.progress import Progress, Tick
from ifonly.query import Limits
from ifonly.result import Alternative, Budget, Certificate, Stats, Status
from ifonly.search.proof import ProofLog

USELESS = 1e6
"""A bound beyond the outcome by so many times its size says nothing."""


def if_useful(bounds: Tensor, outcomes: Tensor, plausible: Tensor, gained: Tensor) -> Tensor:
    """Upper bounds [...], or infinity where they tell no more than that values are plausible.

    `outcomes` [...] were found, better than the recorded ones by `gained` [...] (at least the gap granted), and
    `plausible` [...] ones are not exceeded by plausible values. Courses may leave the plausible ranges, so a bound
    cannot be cut there; but one beyond them is none that anybody could use. One that lies there needed no search, and
    counts where it leaves less open than was gained.
    """
    beyond = torch.where(outcomes > -torch.inf, outcomes + USELESS * (1 + outcomes.abs()), torch.inf)
    most = torch.where(outcomes <= plausible, torch.minimum(beyond, plausible), beyond)
    trivial = (bounds >= plausible) & (bounds > outcomes + gained)
    return torch.where((bounds > most) | trivial, torch.inf, bounds)


class LimitReached(Exception):  # noqa: N818 - not an error: carries a limit out of nested loops
    """Ends a search."""

    def __init__(self, status: Status) -> None:
        self.status = status


@dataclass
class Monitor:
    """What a running search tells the world, and what the world tells it: stop now, and why.

    Solvers count their work in `stats` and ask `stop` between batches.
    """

    limits: Limits
    progress: Progress
    tolerance: float
    """Differences in outcome up to this size are rounding, not improvement."""
    proof: ProofLog | None = None
    """Where a search that keeps a tree tells what became of it; None: nobody asked."""
    observed: float = -math.inf
    """The recorded outcome, of which a gap that is a share of the improvement is counted."""
    stats: Stats = field(default_factory=Stats)
    started: float = field(default_factory=time.perf_counter)

    def elapsed(self) -> float:
        """Seconds since the search began, bounds included."""
        return time.perf_counter() - self.started

    def report(self, incumbent: float, upper_bound: float, **figures: float) -> None:
        """Tell how far the search is, with any further figures."""
        self.progress(
            Tick("search", self.stats.nodes_expanded, None, {**self._figures(incumbent, upper_bound), **figures})
        )

    def close(self, outcome: float, upper_bound: float) -> None:
        """Tell where the search ended: its total is known now."""
        nodes = self.stats.nodes_expanded
        self.progress(Tick("search", nodes, nodes, self._figures(outcome, upper_bound)))

    def _figures(self, incumbent: float, upper_bound: float) -> dict[str, float]:
        return {
            "incumbent": incumbent,
            "bound": upper_bound,
            "gap": upper_bound - incumbent,
            "generated": self.stats.nodes_generated,
        }

    def stop(self, incumbent: float, upper_bound: float) -> Status | None:
        """The limit that is reached, or None to go on; also reports progress."""
        gap = upper_bound - incumbent
        self.report(incumbent, upper_bound)
        if gap <= self.tolerance:
            return Status.OPTIMAL
        if gap <= self.granted_gap(incumbent):
            return Status.GAP_REACHED
        return self.limit_reached()

    def granted_gap(self, incumbent: float) -> float:
        """What no sequence may be better by than the incumbent, for the search to end."""
        return float(self.limits.allowed_gap(torch.tensor(incumbent - self.observed, dtype=torch.float64)))

    def stop_at_seconds(self) -> None:
        """Raise `LimitReached` at the time limit."""
        if self.limits.seconds is not None and self.elapsed() >= self.limits.seconds:
            raise LimitReached(Status.TIME_LIMIT)

    def limit_reached(self) -> Status | None:
        """The time or node limit, if one is reached."""
        if self.limits.seconds is not None and self.elapsed() >= self.limits.seconds:
            return Status.TIME_LIMIT
        if self.limits.nodes is not None and self.stats.nodes_expanded >= self.limits.nodes:
            return Status.NODE_LIMIT
        return None


@dataclass(frozen=True)
class Solution:
    """What a solver returns: its best sequence [T] and what it knows about all others.

    A solver that gives a `frontier` (and perhaps `alternatives`) gives sequences without idle changes, and its last
    budget's is `actions`.
    """

    actions: Tensor
    status: Status
    upper_bound: float
    certificate: Certificate
    frontier: tuple[Budget, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    is_admissible: bool = True
    """False where rules require changes and no sequence was found with every change supported: there is no answer."""


class Solver(ABC):
    """Frozen settings of a search method. Subclasses are frozen dataclasses with a `name` and `search`."""

    name: ClassVar[str]
    exact: ClassVar[bool]
    """Whether, given time, it proves optimality."""

    @abstractmethod
    def search(self, problem: BaseProblem, monitor: Monitor) -> Solution:
        """Search until done or until `monitor.stop` says so."""

    def settings(self) -> dict[str, Any]:
        """The settings as plain types, for provenance."""
        return {
            f.name: value
            if isinstance(value := getattr(self, f.name), int | float | str | bool | None)
            else repr(value)
            for f in fields(self)  # type: ignore[arg-type]
        }
