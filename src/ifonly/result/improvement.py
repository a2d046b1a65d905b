"""How much better a course is than the recorded one, in units of the outcome and in percent.

Lines, tables, pages and files all take improvements from here, so that their numbers agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ifonly.records import finite
from ifonly.rewards import Shown

ZERO = 1e-9
"""Observed outcomes of at most this size count as zero: rounding in a sum of zeros."""


@dataclass(frozen=True)
class Improvement:
    """A recorded outcome and another one as shown to people, with every state within its plausible range."""

    observed: Shown
    counterfactual: Shown

    @property
    def amount(self) -> float:
        """The gain, in units of the outcome as shown; positive is better."""
        gained = self.counterfactual.value - self.observed.value
        return gained if self.observed.higher_is_better else 0.0 - gained

    @property
    def relative(self) -> float | None:
        """The gain relative to the size of the recorded outcome; None if that is zero or unknown."""
        size = abs(self.observed.value)
        return finite(self.amount / size) if size > ZERO else None

    @property
    def moved(self) -> float | None:
        """The relative change of the outcome as shown: minus the relative improvement if lower is better."""
        return self.relative if self.relative is None or self.observed.higher_is_better else 0.0 - self.relative


def improvement_between(show: Callable[[float], Shown], observed: float, counterfactual: float) -> Improvement:
    """The improvement between two outcomes, both without the cost of changes; `show` is that of the reward."""
    return Improvement(show(observed), show(counterfactual))


def as_it_is(outcome: float) -> Shown:
    """An outcome shown as it is, without a reward that says how to show it."""
    return Shown("outcome", outcome, True)
