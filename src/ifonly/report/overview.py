"""What a cohort holds, in counts and quantiles that give away no single subject."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray, IntArray
from ifonly.data.schema import Feature
from ifonly.text.cards import overview_lines

BoolArray = np.ndarray[tuple[int], np.dtype[np.bool_]]

LOW, HIGH = 0.01, 0.99
"""Shares of the quantiles that stand for a feature's range."""

SMALLEST_CELL = 5
"""Figures that rest on fewer subjects are not shown, unless asked for."""


@dataclass(frozen=True, eq=False)
class Discretion:
    """Rows that belong to subjects, and how many subjects a shown number must rest on."""

    subjects: IntArray
    """The number of each row's subject [N], from 0."""
    smallest: int
    """Cells that rest on fewer subjects (but at least one) are not shown; 1 shows everything."""

    @classmethod
    def of(cls, cohort: Cohort, smallest: int) -> tuple[Discretion, Discretion]:
        """About a cohort's episodes, and about its steps."""
        _, subjects = np.unique(np.array(cohort.subjects), return_inverse=True)
        return cls(subjects, smallest), cls(np.repeat(subjects, cohort.lengths), smallest)

    def counts(self, cells: IntArray, number: int) -> tuple[int | None, ...]:
        """How many rows fall into each of `number` cells; None where too few subjects do. `cells` [N], -1 for none."""
        inside = cells >= 0
        rows = np.bincount(cells[inside], minlength=number)
        total = int(self.subjects.max()) + 1
        pairs = np.unique(cells[inside] * total + self.subjects[inside])
        people = np.bincount(pairs // total, minlength=number)
        hidden = (people > 0) & (people < self.smallest)
        return tuple(None if hide else int(count) for count, hide in zip(rows, hidden, strict=True))

    def quantile(self, values: FloatArray, share: float) -> float | None:
        """A quantile of `values` [N]; None where too few subjects lie at it or beyond it, away from the middle."""
        found = float(np.quantile(values, share))
        return found if self.enough(values <= found if share <= 0.5 else values >= found) else None

    def mean(self, values: FloatArray) -> float | None:
        """The mean of `values` [N]; None where they are those of too few subjects."""
        return float(values.mean()) if self.enough(slice(None)) else None

    def deviation(self, values: FloatArray) -> float | None:
        """The deviation of `values` [N]; None where they are those of too few subjects."""
        return float(values.std()) if self.enough(slice(None)) else None

    def enough(self, rows: BoolArray | slice) -> bool:
        """Whether the chosen rows [N] belong to enough subjects for their figures to be shown."""
        return len(np.unique(self.subjects[rows])) >= self.smallest


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
        return overview_lines(self)


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
    values = cohort.columns()[feature.name]
    return values[cohort.offsets[:-1]] if feature.kind == "static" else values
