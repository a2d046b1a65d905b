"""Means and other ratios over rows that belong to subjects, with 95 % intervals: subjects are independent, rows not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ifonly.data.episode import FloatArray, IntArray
from ifonly.intervals import NORMAL_QUANTILE, student_quantile


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval; without one where there are too few subjects to have any."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def surely_above(self) -> float:
        """The number that it exceeds for sure: the lower end of the interval, or minus infinity."""
        return -math.inf if self.low is None else self.low

    @property
    def surely_below(self) -> float:
        """The number that exceeds it for sure."""
        return math.inf if self.high is None else self.high

    def from_zero(self) -> float:
        """How far from zero it is for sure: the end of the interval that is closer to zero, or nothing."""
        return max(0.0, self.surely_above, -self.surely_below)

    def moved(self, shift: float, scale: float = 1.0) -> Estimate:
        """The estimate of (figure + shift) times a positive scale."""
        ends = (None if end is None else (end + shift) * scale for end in (self.low, self.high))
        return Estimate((self.value + shift) * scale, *ends)

    def among(self, count: int) -> Estimate:
        """With the interval widened, so that of `count` such intervals all hold at once, at 95 %."""
        if self.low is None or self.high is None:
            return self
        wider = NormalDist().inv_cdf(1 - 0.025 / max(1, count)) / NORMAL_QUANTILE
        return Estimate(
            self.value, self.value - wider * (self.value - self.low), self.value + wider * (self.high - self.value)
        )


def ratios(numerator: FloatArray, denominator: FloatArray, subjects: IntArray) -> list[Estimate]:
    """Sum over sum, for every column of `numerator` [N, K] and `denominator` [N, K] (or [N], the same for all).

    The interval is Student's, with the variance of a ratio linearised over `subjects` [N]: however many rows a subject
    has, it counts as one observation. Columns with a denominator of zero are NaN.
    """
    _, numbers = np.unique(subjects, return_inverse=True)
    below = np.broadcast_to(denominator if denominator.ndim == 2 else denominator[:, None], numerator.shape)
    return [_ratio(numerator[:, column], below[:, column], numbers) for column in range(numerator.shape[1])]


def ratio(numerator: FloatArray, denominator: FloatArray, subjects: IntArray) -> Estimate:
    """The same for one column [N]."""
    return ratios(numerator[:, None], denominator[:, None], subjects)[0]


def _ratio(numerator: FloatArray, denominator: FloatArray, numbers: IntArray) -> Estimate:
    above, below = np.bincount(numbers, weights=numerator), np.bincount(numbers, weights=denominator)
    counted = below != 0
    above, below, count = above[counted], below[counted], int(counted.sum())
    total = float(below.sum())
    if count == 0 or total == 0:
        return Estimate(math.nan)
    value = float(above.sum()) / total
    if count < 2:
        return Estimate(value)
    deviations = above - value * below
    error = math.sqrt(count / (count - 1) * float(deviations @ deviations)) / total
    margin = student_quantile(count - 1) * error
    return Estimate(value, value - margin, value + margin)
