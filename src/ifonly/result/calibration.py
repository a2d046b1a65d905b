"""How well a model explains recorded transitions like those of an answer: numbers, no sentences."""

from __future__ import annotations

from dataclasses import dataclass

from ifonly.records import KnownNumber, LowerBound, MaybeNumber


@dataclass(frozen=True)
class StepCalibration:
    """One step of a counterfactual course, by recorded transitions from such states under such actions.

    Tuples have a number for each dynamic feature, in standard deviations of its noise; null where nothing comparable
    was measured.
    """

    step: int
    action: int
    changed: bool
    records: int
    """Comparable transitions of others, at most 30."""
    same_action: int
    """Those of them under this very action; the others are under doses near it."""
    percentile: KnownNumber
    """The share of records, in percent, whose own comparable records are nearer."""
    bias: tuple[KnownNumber, ...]
    """The mean noise by which the model explains the comparable transitions: zero where it is right on average."""
    error: tuple[KnownNumber, ...]
    """The standard error of `bias`."""
    spread: tuple[KnownNumber, ...]
    """The standard deviation of the noise of the comparable transitions: one where the model is right about chance."""
    observed_bias: tuple[KnownNumber, ...]
    """The same as `bias` for what was recorded at this step: the recorded state and action."""
    shift: tuple[KnownNumber, ...]
    """What the adjusted course adds to the noise: `bias` less `observed_bias`, as far as they are beyond chance."""
    later: tuple[KnownNumber, ...]
    """The mean noise over the next four recorded steps after comparable transitions."""
    later_error: tuple[KnownNumber, ...]


@dataclass(frozen=True)
class LocalCalibration:
    """What recorded transitions like those of a counterfactual course do to its promise."""

    gain: LowerBound
    """Over the observed outcome, in the reward's units, as promised; minus infinity where that is not finite."""
    adjusted: LowerBound
    """The same with each step's noise shifted by what the model gets wrong in comparable records."""
    deviation: MaybeNumber
    """The standard deviation of the adjusted gain that comes from so few comparable records; None: not finite."""
    transitions: int
    """How many recorded ones there are in all."""
    steps: tuple[StepCalibration, ...] = ()
    """From the first change on; the last step leads nowhere."""
    member: int | None = None
    """Of an ensemble problem, the member that is judged: the one that gains least; None: the one model."""

    @property
    def share(self) -> float | None:
        """The share of the promised gain that is left; None where nothing is promised."""
        return self.adjusted / self.gain if self.gain > 0 else None

    @property
    def lower(self) -> float:
        """The adjusted gain less two standard deviations."""
        return self.adjusted - 2 * (self.deviation or 0.0)
