"""What would undo the gain of an answer: numbers, no sentences."""

from __future__ import annotations

from dataclasses import dataclass

from ifonly.records import KnownNumber, LowerBound, UpperBound


@dataclass(frozen=True)
class StepSensitivity:
    """An unrecorded influence at one step. Sizes are lengths of standardised noise: prior standard deviations."""

    step: int
    harmless_below: UpperBound
    """No smaller shift undoes the gain: proven; 0 where nothing is, infinity where no shift at all does."""
    undone_by: float | None
    """The size of a shift that does: the smallest found; None where none was found up to the limit."""
    effect: tuple[KnownNumber, ...]
    """What that shift adds to each dynamic feature of the next state, in original units; zeros where there is none."""
    scaled_effect: tuple[KnownNumber, ...]
    """The same in the model's scaled coordinates, in which features can be compared."""


@dataclass(frozen=True)
class FeatureSensitivity:
    """An unrecorded factor that pushes one feature's noise at every step from the first change on, by the same shift.

    Sizes are in prior standard deviations of that feature's noise.
    """

    feature: str
    harmless_below: UpperBound
    undone_by: float | None
    """With its sign; None where none was found up to the limit."""
    effect: KnownNumber
    """What that shift adds to the feature from one step to the next, on average, in original units."""


@dataclass(frozen=True)
class Sensitivity:
    """What would undo the gain of one sequence."""

    gain: LowerBound
    """Over the observed outcome, in the reward's units; minus infinity where that is not finite."""
    largest: float
    """Up to this size shifts were tried."""
    steps: tuple[StepSensitivity, ...] = ()
    """From the first change on, before which the course is the recorded one; the last step has no noise."""
    features: tuple[FeatureSensitivity, ...] = ()
    member: int | None = None
    """Of an ensemble problem, the member whose sensitivity it is: the one that gains least; None: the one model's."""

    @property
    def helps(self) -> bool:
        """Whether there is a gain that could be undone."""
        return self.gain > 0

    @property
    def weakest(self) -> StepSensitivity | None:
        """The step at which the smallest influence undoes the gain; None where none was found to."""
        found = [step for step in self.steps if step.undone_by is not None]
        return min(found, key=lambda step: step.undone_by or 0.0, default=None)

    @property
    def harmless_below(self) -> float | None:
        """No influence at one step that is smaller undoes the gain; None where there are no steps to ask about."""
        return min((step.harmless_below for step in self.steps), default=None)
