"""Figure 2b: efficiency against the number of sequences that the anchors are taken from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from paper.base import Settings
from paper.efficiency import Efficiency, EfficiencySettings, Point
from paper.laboratory import Laboratory


class EfficiencyBySamples(Efficiency):
    """M from 500 to 3,000; branch and bound needs no anchors, so that its line is the same everywhere."""

    name: ClassVar[str] = "fig2b"
    title: ClassVar[str] = "Efficiency against the number M of sampled sequences"
    paper: ClassVar[str] = "EBF and runtime decrease as the number of Monte Carlo samples M increases (L_h = 1, k = 3)."
    axis: ClassVar[str] = "Number of sampled sequences, $M$"
    symbol: ClassVar[str] = "M"
    reference: ClassVar[float] = 2000

    def settings(self, *, quick: bool) -> Settings:
        """The paper's values, or three small ones."""
        if quick:
            return EfficiencySettings(4, 10.0, samples=(50, 100, 200), max_changes=(2,))
        return EfficiencySettings(samples=(500, 1000, 1500, 2000, 2500, 3000))

    def points(self, settings: EfficiencySettings, laboratory: Laboratory) -> Sequence[Point]:
        """One per number of sequences."""
        return [Point(samples, laboratory.standard, samples, settings.max_changes[0]) for samples in settings.samples]
