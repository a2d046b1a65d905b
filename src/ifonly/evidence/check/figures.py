"""The figures of a check: numbers with intervals, by feature, pair, horizon and part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ifonly.data.episode import FloatArray, IntArray
from ifonly.data.schema import Feature
from ifonly.intervals import NORMAL_QUANTILE, student_quantile
from ifonly.records import KnownNumber, MaybeNumber


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval; without one where there are too few subjects to have any."""

    value: KnownNumber
    low: MaybeNumber = None
    high: MaybeNumber = None

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


@dataclass(frozen=True)
class FeatureFigures:
    """The noise of one dynamic feature against its prior, one step ahead."""

    name: str
    unit: str
    ranks: tuple[float | None, ...]
    """Histogram of the noise's ranks within the prior, as shares; None where too few subjects are counted."""
    distance: Estimate
    centre: Estimate
    """Mean normal score: 0 where the model is right."""
    size: Estimate
    """Mean squared score: 1 where the model is right."""
    tails: Estimate
    """Share of the noise outside the central 99 % of its prior."""
    residual: KnownNumber
    """Median of recorded minus predicted median value, in original units."""
    coverage: Mapping[str, Estimate] | None
    """By level in percent; None for models whose features do not each have a noise of their own."""
    by_state: Estimate | None
    strongest: str | None
    """The input along which the part that state and context predict varies most."""
    by_action: Estimate | None
    varying_size: Estimate | None
    lasting: Estimate | None
    unchanged: MaybeNumber = None
    """Share of transitions after which the value is exactly what it was, other than zero."""
    step: MaybeNumber = None
    """The step in which values are recorded, where many repeat exactly; each then stands for a cell of this size."""
    by_earlier: Estimate | None = None
    """Share of the scores' variance that earlier actions predict beyond state, context and action."""
    between: Estimate | None = None
    """Share of the scores' variance that lies between subjects."""

    @property
    def label(self) -> str:
        """The name with its unit, as shown to people."""
        return Feature(self.name, "dynamic", unit=self.unit).label


@dataclass(frozen=True)
class FeatureAhead:
    """One feature, several steps ahead."""

    name: str
    error: KnownNumber
    """Mean absolute error of the median course, in original units."""
    persistence: KnownNumber
    skill: Estimate
    coverage: Mapping[str, Estimate]
    centre: Estimate | None = None
    """Mean normal score of the record's rank among the courses: 0 where the model is right."""


@dataclass(frozen=True)
class HorizonFigures:
    """The model on its own, so many steps ahead of recorded states."""

    steps: int
    starts: int
    diverged: KnownNumber
    """Share of starts from which courses are no longer finite."""
    features: tuple[FeatureAhead, ...]
    """Empty where too few subjects have episodes that long."""


@dataclass(frozen=True)
class Counts:
    """How many measured entries there are, and of how many subjects."""

    entries: int
    subjects: int


@dataclass(frozen=True)
class FeatureOfPart:
    """One feature after one action, or in one group."""

    name: str
    bias: Estimate
    """Mean normal score."""
    residual: KnownNumber
    """Median of recorded minus predicted median value, in original units."""
    coverage: Estimate
    """Of the 80 % interval."""
    measured: Counts | None = None
    """What these rest on; None: on every transition."""


@dataclass(frozen=True)
class PartFigures:
    """The transitions after one action, or of one group of episodes; figures are None where too few subjects count."""

    grouping: str
    """'action', or what episodes are grouped by."""
    name: str
    transitions: int | None
    subjects: int | None
    gain: Estimate | None
    """Log-likelihood over the linear baseline, in nats per transition."""
    features: tuple[FeatureOfPart, ...]
    entries: MaybeNumber = None
    """Measured entries per transition; None: all are."""


@dataclass(frozen=True)
class PairFigures:
    """Two features and how much more their noise is correlated than the prior says."""

    features: tuple[str, str]
    expected: KnownNumber
    excess: Estimate


@dataclass(frozen=True)
class CheckFigures:
    """All numbers of a check. Aggregates only: nothing here belongs to fewer subjects than the smallest cell."""

    log_likelihood: MaybeNumber
    """Mean per transition, in nats, in the model's scaled coordinates."""
    gains: Mapping[str, Estimate]
    """Over each baseline, in nats per transition."""
    features: tuple[FeatureFigures, ...]
    pairs: tuple[PairFigures, ...]
    ahead: tuple[HorizonFigures, ...]
    parts: tuple[PartFigures, ...]
    measured: Mapping[str, float] | None = None
    """Share of transitions that lead to a measured value, by feature: only these count. None: all were measured."""
    choice_by_noise: Estimate | None = None
    """Share of what the present leaves open about actions that the noise of earlier steps explains."""
