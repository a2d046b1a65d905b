"""Figures that may be reasons for doubt, and what many of them together say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from ifonly.gate.estimates import Estimate
from ifonly.gate.result import SEVERITY, Finding, Level, Place
from ifonly.gate.thresholds import Limits
from ifonly.gate.words import listed


def level_of(size: float, limits: Limits) -> Level:
    """The level of a figure that is bad when it is large, where `size` is what it surely exceeds."""
    if size > limits.fail:
        return Level.FAIL
    return Level.WARN if size > limits.warn else Level.PASS


class Side(Enum):
    """On which side of zero a figure is a reason for doubt."""

    BOTH = auto()
    ABOVE = auto()
    """As for explained shares: below zero nothing was explained, which is no evidence against a model."""
    BELOW = auto()
    """As for gains and skills."""


@dataclass(frozen=True)
class Candidate:
    """A figure that may be a reason for doubt."""

    about: str
    figure: Estimate
    limits: Limits
    text: str
    bad_side: Side = Side.BOTH

    def judged(self, among: int) -> Place:
        """Its level, where it is one of so many that were looked at: each then needs a wider interval."""
        figure, limits = self.figure.among(among), self.limits
        if self.bad_side is Side.BELOW:
            size, limits = -figure.surely_below, Limits(-limits.warn, -limits.fail)
        else:
            size = max(0.0, figure.surely_above) if self.bad_side is Side.ABOVE else figure.from_zero()
        excess = (size - limits.warn) / max(limits.fail - limits.warn, 1e-9)
        return Place(self.about, level_of(size, limits), self.figure.value, excess, self.text)


def _order(place: Place) -> tuple[int, float]:
    return SEVERITY[place.level], -place.excess


def conclude(kind: str, candidates: Sequence[Candidate], bad: str, good: str) -> Finding:
    """The answer that all candidates together give; of those about the same thing only the worst is told."""
    judged = sorted((candidate.judged(len(candidates)) for candidate in candidates), key=_order)
    worst: dict[str, Place] = {}
    for place in judged:
        if place.level is not Level.PASS:
            worst.setdefault(place.about, place)
    if not worst:
        return Finding(kind, Level.PASS, good)
    first, *others = worst.values()
    also = f"; also {listed([place.about for place in others])}" if others else ""
    return Finding(kind, first.level, f"{bad}. {first.text}{also}", (first, *others))
