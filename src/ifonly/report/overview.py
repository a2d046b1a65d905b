"""What a cohort holds, in a few lines that give away no single subject."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.data.schema import Feature
from ifonly.report.small_cells import SMALLEST_CELL, Discretion

LOW, HIGH = 0.01, 0.99
"""Shares of the quantiles that stand for a feature's range."""

NOT_SHOWN = "-"


@dataclass(frozen=True)
class FeatureOverview:
    """Figures of one feature in its unit: over steps, or over episodes where it is static; None: too few subjects."""

    name: str
    kind: str
    unit: str
    mean: float | None
    deviation: float | None
    low: float | None
    """The 1st percentile."""
    high: float | None
    """The 99th percentile."""
    implausible: int
    """Steps with a value outside the plausible range."""

    def __str__(self) -> str:
        mean, deviation, low, high = map(_shown, (self.mean, self.deviation, self.low, self.high))
        text = f"  {self.name:<24} {self.kind:<10} mean {mean:>9}  sd {deviation:>9}  1 % {low:>9}  99 % {high:>9}"
        implausible = f"  ({self.implausible} implausible)" if self.implausible else ""
        return f"{text} {self.unit}".rstrip() + implausible


@dataclass(frozen=True)
class Overview:
    """Counts and figures of a cohort; None stands for what rests on too few subjects to be shown."""

    episodes: int
    subjects: int
    steps: int
    shortest: float | None
    """The 1st percentile of the number of steps per episode."""
    longest: float | None
    """The 99th percentile."""
    features: tuple[FeatureOverview, ...]
    action_counts: tuple[int | None, ...]
    """Steps with each action."""
    smallest_cell: int

    @classmethod
    def of(cls, cohort: Cohort, *, smallest_cell: int = SMALLEST_CELL) -> Overview:
        """The overview of a cohort; figures rest on at least `smallest_cell` subjects."""
        per_episode, per_step = Discretion.of(cohort, smallest_cell)
        lengths = cohort.lengths.astype(np.float64)
        return cls(
            episodes=len(cohort),
            subjects=len(set(cohort.subjects)),
            steps=len(cohort.actions),
            shortest=per_episode.quantile(lengths, LOW),
            longest=per_episode.quantile(lengths, HIGH),
            features=tuple(
                _feature(feature, cohort, per_episode if feature.kind == "static" else per_step)
                for feature in cohort.schema.features
            ),
            action_counts=per_step.counts(np.array(cohort.actions), len(cohort.schema.actions)),
            smallest_cell=smallest_cell,
        )

    def __str__(self) -> str:
        used = sum(count != 0 for count in self.action_counts)
        lines = [
            f"{self.episodes:,} episodes of {self.subjects:,} subjects, {self.steps:,} steps (horizons: 1 % "
            f"{_shown(self.shortest)}, 99 % {_shown(self.longest)}), {used} of {len(self.action_counts)} actions used",
            *map(str, self.features),
        ]
        figures = [self.shortest, self.longest, *(value for f in self.features for value in (f.mean, f.low, f.high))]
        if None in figures:
            lines.append(f"  {NOT_SHOWN} stands for figures that rest on fewer than {self.smallest_cell} subjects")
        return "\n".join(lines)


def _feature(feature: Feature, cohort: Cohort, discretion: Discretion) -> FeatureOverview:
    values = values_of(cohort, feature)
    return FeatureOverview(
        name=feature.name,
        kind=feature.kind,
        unit=feature.unit,
        mean=discretion.mean(values),
        deviation=discretion.deviation(values),
        low=discretion.quantile(values, LOW),
        high=discretion.quantile(values, HIGH),
        implausible=cohort.implausible.get(feature.name, 0),
    )


def values_of(cohort: Cohort, feature: Feature) -> FloatArray:
    """A feature's values at all steps [N], or one per episode [E] where it is static."""
    if feature.kind == "dynamic":
        return cohort.states[:, cohort.schema.dynamic.index(feature)]
    values = cohort.context[:, cohort.schema.context.index(feature)]
    return values[cohort.offsets[:-1]] if feature.kind == "static" else values


def _shown(value: float | None) -> str:
    return NOT_SHOWN if value is None else f"{value:.4g}"
