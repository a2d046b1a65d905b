"""How much better a course is than the recorded one: two outcomes, what lies between them, and that in percent.

Whatever shows an improvement - a line, a table, a page, a file - takes it from here, so that its numbers agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ifonly.records import finite
from ifonly.rewards import Shown

ZERO = 1e-9
"""Observed outcomes of at most this size count as zero: what is left of a sum of zeros after rounding."""


@dataclass(frozen=True)
class Improvement:
    """A recorded outcome and another one as people read them, every state within its feature's plausible range."""

    observed: Shown
    counterfactual: Shown

    @property
    def amount(self) -> float:
        """What is gained, in units of the outcome as shown; positive is better."""
        gained = self.counterfactual.value - self.observed.value
        return gained if self.observed.higher_is_better else 0.0 - gained

    @property
    def relative(self) -> float | None:
        """The same relative to the size of the recorded outcome; None where that is zero, or not known."""
        size = abs(self.observed.value)
        return finite(self.amount / size) if size > ZERO else None

    @property
    def moved(self) -> float | None:
        """By which share the outcome as shown rises: the relative improvement, less than zero where lower is better."""
        return self.relative if self.relative is None or self.observed.higher_is_better else 0.0 - self.relative


def improvement_between(show: Callable[[float], Shown], observed: float, counterfactual: float) -> Improvement:
    """From the recorded outcome to another one, both without the cost of changes; `show` is a reward's."""
    return Improvement(show(observed), show(counterfactual))


def as_it_is(outcome: float) -> Shown:
    """An outcome where no reward says how to read it."""
    return Shown("outcome", outcome, True)
