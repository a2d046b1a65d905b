"""Figure 2a: efficiency against the Lipschitz constant of the location network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from paper.base import Settings
from paper.efficiency import Efficiency, EfficiencySettings, Point
from paper.laboratory import Laboratory


@dataclass(frozen=True)
class LipschitzSettings(EfficiencySettings):
    """Which L_h; L_phi is that of all experiments."""

    location: tuple[float, ...] = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3)


class EfficiencyByLipschitz(Efficiency):
    """L_h from 0.8 to 1.3; a model is fitted for each."""

    settings_class: ClassVar[type[Settings]] = LipschitzSettings
    name: ClassVar[str] = "fig2a"
    title: ClassVar[str] = "Efficiency against the Lipschitz constant L_h"
    paper: ClassVar[str] = (
        "EBF about 2.1 at L_h = 1 (M = 2,000, k = 3, T = 12); EBF and runtime increase with L_h, since the heuristic "
        "function becomes looser."
    )
    axis: ClassVar[str] = "Lipschitz constant of the location network $L_h$"
    symbol: ClassVar[str] = "L_h"
    reference: ClassVar[float] = 1.0

    def settings(self, *, quick: bool) -> Settings:
        """The paper's values, or three of them."""
        if quick:
            return LipschitzSettings(4, 10.0, location=(0.8, 1.0, 1.2), samples=(100,), max_changes=(2,))
        return LipschitzSettings()

    def points(self, settings: EfficiencySettings, laboratory: Laboratory) -> Sequence[Point]:
        """One per constant."""
        assert isinstance(settings, LipschitzSettings)
        scale = laboratory.conditions.lipschitz[1]
        return [
            Point(location, (location, scale), settings.samples[0], settings.max_changes[0])
            for location in settings.location
        ]
