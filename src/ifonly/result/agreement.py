"""What members of an ensemble say of one sequence: numbers, no sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ifonly.data.episode import FloatArray
from ifonly.models.standing import EnsembleNote, MemberLabel
from ifonly.records import Outcomes

INTERVAL = (0.05, 0.95)
"""The quantiles over refits between which nine of ten lie."""

MANY = 20
"""Refits from which on that is a statement; of fewer, all are told."""


@dataclass(frozen=True)
class StepAgreement:
    """How many of `of` refits, each solved on its own, do the same at a changed step in their own best sequence."""

    step: int
    action: int
    same_step: int
    """They change this step."""
    same_action: int
    """They change it to this very action."""
    of: int


@dataclass(frozen=True, eq=False)
class Agreement:
    """One sequence under every one of M refits."""

    improvements: Outcomes
    """[M], over the observed outcome, in the reward's units, the cost of changes included; minus infinity where a
    refit gives no finite outcome.
    """
    helping: int
    """Refits under which it helps, by more than rounding."""
    steps: tuple[StepAgreement, ...] | None = None
    """One for each changed step; None where the refits were not solved themselves."""
    unsolved: int = 0
    """Refits without a proven best sequence of their own, within the limits; 0 where not asked."""
    notes: tuple[EnsembleNote, ...] = ()
    """What limits what the agreement can mean, as the ensemble says."""
    labels: tuple[MemberLabel, ...] = ()
    """Who the members are [M]; empty for refits that all count the same."""

    @property
    def of_kinds(self) -> bool:
        """Whether the members are of different kinds, each fitted to a half of the subjects, rather than refits."""
        return any(label.half is not None for label in self.labels)

    @property
    def weights(self) -> FloatArray:
        """What each member counts [M]; their sum is 1."""
        counts = [label.weight for label in self.labels] or [1.0] * self.count
        return np.array(counts) / math.fsum(counts)

    @property
    def mean(self) -> float:
        """The mean improvement, each member with its weight."""
        return float(self.weights @ self.improvements)

    @property
    def count(self) -> int:
        """How many refits there are, M."""
        return len(self.improvements)

    @property
    def share(self) -> float:
        """The share of refits under which it helps."""
        return self.helping / self.count

    @property
    def median(self) -> float:
        """The median improvement over refits."""
        return _quantile(self.improvements, 0.5)

    @property
    def low(self) -> float:
        """The 5 % quantile of the improvements: the lower end of a 90 % interval over refits."""
        return _quantile(self.improvements, INTERVAL[0])

    @property
    def high(self) -> float:
        """The 95 % quantile of the improvements: the upper end."""
        return _quantile(self.improvements, INTERVAL[1])

    @property
    def many(self) -> bool:
        """Whether there are enough refits for an interval that holds nine of ten of them."""
        return self.count >= MANY

    @property
    def spread(self) -> tuple[float, float]:
        """Between which improvements nine of ten refits lie; all of them where they are fewer than `MANY`."""
        if self.many:
            return self.low, self.high
        return float(self.improvements.min()), float(self.improvements.max())


def _quantile(values: FloatArray, level: float) -> float:
    """Between two values in proportion; minus infinity next to minus infinity."""
    with np.errstate(invalid="ignore"):
        found = float(np.quantile(values, level))
    return -math.inf if math.isnan(found) else found
