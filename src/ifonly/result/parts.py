"""Parts of a result: how a search ended, what its bound rests on, its work, and its other sequences."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ifonly.records import Integers, MaybeNumber, Outcomes, Settings, UpperBound


class Status(StrEnum):
    """How a search ended."""

    OPTIMAL = "optimal"
    """No admissible sequence does better."""
    GAP_REACHED = "gap reached"
    TIME_LIMIT = "time limit"
    NODE_LIMIT = "node limit"
    INTERRUPTED = "interrupted"
    HEURISTIC = "heuristic"
    """Better sequences may exist; nothing is proven."""

    @property
    def at_limit(self) -> bool:
        """Whether a limit or a person stopped the search early."""
        return self in (Status.TIME_LIMIT, Status.NODE_LIMIT, Status.INTERRUPTED)


@dataclass(frozen=True)
class Certificate:
    """What the upper bound rests on."""

    method: str
    """The bound's name."""
    proven: bool
    """Whether the upper bound is proven (if not, there is none)."""
    tolerance: float = 0.0
    """Differences in outcome up to this size count as none."""
    details: Settings = field(default_factory=dict)
    """What else the proof rests on, by name: constants, precision with its margins, what was left open."""


@dataclass
class Stats:
    """The work that a search did."""

    nodes_expanded: int = 0
    """Nodes (for heuristics and enumeration: prefixes or sequences) whose continuations were computed."""
    nodes_generated: int = 0
    nodes_visited: int | None = None
    """Nodes that textbook A* visits with the same bound; known once A* has proven its answer."""
    model_steps: int = 0
    """Transitions computed, without those inside the bound of branch and bound."""
    seconds_bounds: float = 0.0
    seconds_search: float = 0.0
    effective_branching_factor: float | None = None
    """The paper's measure of efficiency, from the nodes visited."""

    @property
    def seconds(self) -> float:
        """Bounds and search together."""
        return self.seconds_bounds + self.seconds_search

    def finished(self, seconds: float, horizon: int) -> Stats:
        """With the total time and the effective branching factor filled in."""
        factor = None if self.nodes_visited is None else effective_branching_factor(self.nodes_visited, horizon)
        searched = max(0.0, seconds - self.seconds_bounds)
        return replace(self, seconds_search=searched, effective_branching_factor=factor)


def effective_branching_factor(nodes: int, horizon: int) -> float | None:
    """The b >= 1 with nodes = 1 + b + ... + b^horizon, as the paper measures efficiency; fewer nodes give 1, none None.

    >>> effective_branching_factor(13, 12), round(effective_branching_factor(8191, 12), 6)
    (1.0, 2.0)
    """
    if nodes < horizon + 1:
        return None if nodes < 1 else 1.0
    low, high = 1.0, float(nodes)
    for _ in range(200):
        middle = (low + high) / 2
        total = 0.0
        for _ in range(horizon + 1):
            total = total * middle + 1
            if total > nodes:
                break
        low, high = (low, middle) if total > nodes else (middle, high)
    return low


@dataclass(frozen=True, eq=False)
class Budget:
    """The best sequence with at most `max_changes` changes.

    If no admissible sequence has so few changes, the budget is not feasible: `actions` and outcomes are None and
    `upper_bound` is minus infinity. If none has been found yet, they are None too, but the bound is not.
    """

    max_changes: int
    outcome: float | None
    clipped_outcome: MaybeNumber
    actions: Integers | None  # [T]
    upper_bound: UpperBound
    member_outcomes: Outcomes | None = None  # [M], of an ensemble problem
    feasible: bool | None = None
    """Follows from the bound if left out; files need it, since JSON has one null for both infinities."""

    def __post_init__(self) -> None:
        if self.feasible is None:
            object.__setattr__(self, "feasible", self.upper_bound > -math.inf)
        elif not self.feasible:
            object.__setattr__(self, "upper_bound", -math.inf)


@dataclass(frozen=True, eq=False)
class Alternative:
    """One of the best sequences."""

    actions: Integers  # [T]
    outcome: float
    member_outcomes: Outcomes | None = None  # [M], of an ensemble problem


@dataclass(frozen=True)
class Change:
    """One step at which the counterfactual sequence acts differently."""

    step: int
    observed: int
    counterfactual: int


@dataclass(frozen=True)
class ModelReference:
    """The model behind an answer."""

    kind: str
    fingerprint: str
    """Of the model, or of all members of an ensemble problem together."""
    members: tuple[str, ...] = ()
    """The fingerprints of the members, if an ensemble problem was solved; otherwise empty."""
    weights: tuple[float, ...] = ()
    """Their weights; empty if these are equal."""
