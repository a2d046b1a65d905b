"""Means and shares over patients with their 95 % intervals, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from ifonly.intervals import Interval, mean_interval, share_interval


@dataclass(frozen=True)
class Estimate:
    """The mean of some numbers with its 95 % interval; None where one number, or none, says nothing of it.

    `at_least`: some of them are only lower bounds, and so is the mean.
    """

    count: int
    mean: float
    interval: Interval | None = None
    at_least: bool = False

    @classmethod
    def of(cls, values: Iterable[float | None], *, at_least: bool = False) -> Self:
        """From numbers; those that are None do not count. NaN if there is none."""
        known = np.array([value for value in values if value is not None], dtype=np.float64)
        mean = float(known.mean()) if len(known) else math.nan
        return cls(len(known), mean, mean_interval(known), at_least)

    def show(self, pattern: str = "{:.2f}") -> str:
        """As people write it.

        >>> Estimate(200, 2.1, Interval(2.06, 2.14), at_least=True).show(), Estimate(1, 2.1).show()
        ('≥ 2.10 ± 0.04', '2.10')
        """
        if not self.count:
            return "-"
        mean = ("≥ " if self.at_least else "") + _without_minus_zero(pattern.format(self.mean))
        return mean if self.interval is None else f"{mean}{self._around(pattern, self.interval)}"

    def _around(self, pattern: str, interval: Interval) -> str:
        return f" ± {pattern.format(interval.high - self.mean)}"


class Percentage(Estimate):
    """For how many of the patients something holds, in percent, with an interval that ends at 0 and 100."""

    @classmethod
    def of(cls, values: Iterable[float | None], *, at_least: bool = False) -> Self:
        """From yes and no (or 1 and 0); what is None does not count. NaN if there is none."""
        known = [bool(value) for value in values if value is not None]
        if not known:
            return cls(0, math.nan, None, at_least)
        low, high = share_interval(sum(known), len(known))
        return cls(len(known), 100 * sum(known) / len(known), Interval(100 * low, 100 * high), at_least)

    def _around(self, pattern: str, interval: Interval) -> str:
        """Both ends, since they are not equally far away.

        >>> Percentage.of([True, True, True]).show("{:.0f}")
        '100 (44 to 100)'
        """
        return f" ({pattern.format(interval.low)} to {pattern.format(interval.high)})"


def _without_minus_zero(number: str) -> str:
    return number.removeprefix("-") if not number.strip("-0.,") else number
