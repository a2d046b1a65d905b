"""What a cohort holds, in figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ifonly.data.cohort import Cohort


@dataclass(frozen=True)
class FeatureSummary:
    """Figures of one feature over all steps, in its unit."""

    name: str
    kind: str
    unit: str
    mean: float
    deviation: float
    minimum: float
    maximum: float
    implausible: int


@dataclass(frozen=True)
class CohortSummary:
    """What a cohort holds."""

    episodes: int
    subjects: int
    steps: int
    shortest: int
    longest: int
    features: tuple[FeatureSummary, ...]
    action_counts: tuple[int, ...]

    @classmethod
    def of(cls, cohort: Cohort) -> CohortSummary:
        """Summarise a cohort."""
        columns = cohort.columns()
        features = tuple(
            FeatureSummary(
                name=feature.name,
                kind=feature.kind,
                unit=feature.unit,
                mean=float(values.mean()),
                deviation=float(values.std()),
                minimum=float(values.min()),
                maximum=float(values.max()),
                implausible=cohort.implausible.get(feature.name, 0),
            )
            for feature, values in zip(cohort.schema.features, columns.values(), strict=True)
        )
        counts = np.bincount(cohort.actions, minlength=len(cohort.schema.actions))
        return cls(
            episodes=len(cohort),
            subjects=len(set(cohort.subjects)),
            steps=len(cohort.actions),
            shortest=int(cohort.lengths.min()),
            longest=int(cohort.lengths.max()),
            features=features,
            action_counts=tuple(int(count) for count in counts),
        )

    def __str__(self) -> str:
        used = sum(count > 0 for count in self.action_counts)
        lines = [
            f"{self.episodes} episodes of {self.subjects} subjects, {self.steps} steps "
            f"(horizons {self.shortest} to {self.longest}), {used} of {len(self.action_counts)} actions used"
        ]
        lines += [
            f"  {f.name:<24} {f.kind:<10} mean {f.mean:10.4g}  sd {f.deviation:10.4g}  "
            f"range {f.minimum:.4g} to {f.maximum:.4g} {f.unit}".rstrip()
            + (f"  ({f.implausible} implausible)" if f.implausible else "")
            for f in self.features
        ]
        return "\n".join(lines)
