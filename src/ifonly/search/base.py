"""What a solver is: a frozen bag of settings with one method, `search`; and how a search is watched and limited."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from torch import Tensor

from ifonly.problem import BaseProblem
from ifonly.progress import Progress, Tick
from ifonly.query import Limits
from ifonly.result import Alternative, Budget, Certificate, Stats, Status
from ifonly.search.proof import ProofLog


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
        if gap <= self.limits.gap:
            return Status.GAP_REACHED
        return self.limit_reached()

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
