"""Figure 2c: efficiency against the number of changes allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from paper.base import Settings
from paper.efficiency import Efficiency, EfficiencySettings, Point
from paper.laboratory import Laboratory


class EfficiencyByChanges(Efficiency):
    """k from 0 to 6; the larger ones reach a time limit, and are shown as lower bounds."""

    name: ClassVar[str] = "fig2c"
    title: ClassVar[str] = "Efficiency against the number k of changes allowed"
    paper: ClassVar[str] = (
        "EBF and runtime increase with k, since the search space grows exponentially; at k = 3 the EBF is about 2.1, "
        "for more than 3 million sequences."
    )
    axis: ClassVar[str] = "Number of changes allowed, $k$"
    symbol: ClassVar[str] = "k"
    reference: ClassVar[float] = 3

    def settings(self, *, quick: bool) -> Settings:
        """The paper's values, or the first few."""
        if quick:
            return EfficiencySettings(4, 10.0, samples=(100,), max_changes=(0, 1, 2))
        return EfficiencySettings(max_changes=(0, 1, 2, 3, 4, 5, 6))

    def points(self, settings: EfficiencySettings, laboratory: Laboratory) -> Sequence[Point]:
        """One per number of changes."""
        return [Point(k, laboratory.standard, settings.samples[0], k) for k in settings.max_changes]
