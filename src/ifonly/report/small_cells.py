"""Counts and quantiles that give away no single subject: what fewer than a few subjects share is not shown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray, IntArray

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
        people = self._people(cells, number)
        hidden = (people > 0) & (people < self.smallest)
        return tuple(None if hide else int(count) for count, hide in zip(rows, hidden, strict=True))

    def _people(self, cells: IntArray, number: int) -> IntArray:
        """Different subjects in each cell [number]."""
        inside = cells >= 0
        total = int(self.subjects.max()) + 1
        pairs = np.unique(cells[inside] * total + self.subjects[inside])
        return np.bincount(pairs // total, minlength=number)

    def quantile(self, values: FloatArray, share: float) -> float | None:
        """A quantile of `values` [N]; None where too few subjects lie at it or beyond it, away from the middle."""
        found = float(np.quantile(values, share))
        beyond = values <= found if share <= 0.5 else values >= found
        return found if len(np.unique(self.subjects[beyond])) >= self.smallest else None

    def mean(self, values: FloatArray) -> float | None:
        """The mean of `values` [N]; None where they are those of too few subjects."""
        return float(values.mean()) if self._enough_in_all else None

    def deviation(self, values: FloatArray) -> float | None:
        """The deviation of `values` [N]; None where they are those of too few subjects."""
        return float(values.std()) if self._enough_in_all else None

    @property
    def _enough_in_all(self) -> bool:
        return len(np.unique(self.subjects)) >= self.smallest

    def enough(self, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> bool:
        """Whether the chosen rows [N] belong to enough subjects for their figures to be shown."""
        return len(np.unique(self.subjects[rows])) >= self.smallest
