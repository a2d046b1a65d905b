"""Means over patients with their 95 % intervals, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ifonly.report.improvements import NORMAL_QUANTILE


@dataclass(frozen=True)
class Estimate:
    """The mean of some numbers and half the width of its 95 % interval (zero where one number says nothing of it).

    `at_least`: some of them are only lower bounds, and so is the mean.
    """

    count: int
    mean: float
    half_width: float
    at_least: bool = False

    @classmethod
    def of(cls, values: Iterable[float | None], *, at_least: bool = False) -> Estimate:
        """From numbers; those that are None do not count. NaN if there is none."""
        known = np.array([value for value in values if value is not None], dtype=np.float64)
        if not len(known):
            return cls(0, math.nan, 0.0, at_least)
        width = NORMAL_QUANTILE * float(known.std(ddof=1)) / math.sqrt(len(known)) if len(known) > 1 else 0.0
        return cls(len(known), float(known.mean()), width, at_least)

    def show(self, pattern: str = "{:.2f}") -> str:
        """As people write it.

        >>> Estimate(200, 2.1, 0.04, at_least=True).show()
        '≥ 2.10 ± 0.04'
        """
        if not self.count:
            return "-"
        sign = "≥ " if self.at_least else ""
        return f"{sign}{_without_minus_zero(pattern.format(self.mean))} ± {pattern.format(self.half_width)}"


def _without_minus_zero(number: str) -> str:
    return number.removeprefix("-") if not number.strip("-0.,") else number
