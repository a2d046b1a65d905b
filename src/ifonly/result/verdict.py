"""All evidence in one word: signals, each between -1 and 1, weighed by a rule that was fitted where truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ifonly.result.evidence import Evidence


def _limited(value: float) -> float:
    return min(1.0, max(-1.0, value))


def _members(evidence: Evidence) -> float | None:
    """The share of members, by weight, under which the answer helps."""
    refits = evidence.refits
    return None if refits is None else 2 * float(refits.weights @ (refits.improvements > 0)) - 1


def _strength(evidence: Evidence) -> float | None:
    """The mean gain over members against how much they differ."""
    refits = evidence.refits
    if refits is None:
        return None
    deviation = refits.deviation
    return math.tanh(refits.mean / deviation / 2) if math.isfinite(deviation) and deviation > 0 else 0.0


def _kept(evidence: Evidence) -> float | None:
    """The share of the promise that is left in the mean of members."""
    return None if evidence.refits is None else _limited(evidence.refits.mean / evidence.gain)


SIGNALS: dict[str, Callable[[Evidence], float | None]] = {}


def signals_of(evidence: Evidence) -> dict[str, float]:
    """Every signal; 0 where nothing is known."""
    return {name: 0.0 if (value := find(evidence)) is None else value for name, find in SIGNALS.items()}
