"""What is left of a gain where the same noise need not apply under another action: numbers, no sentences."""

from __future__ import annotations

from dataclasses import dataclass

from ifonly.records import LowerBound


@dataclass(frozen=True)
class CouplingGain:
    """The gain over the observed outcome where factual and counterfactual noise have one correlation.

    In the reward's units, the cost of changes included; minus infinity where that is not finite.
    """

    correlation: float
    """1: the same noise, the answer itself; 0: fresh noise, of which only the distribution is known."""
    expected: LowerBound
    low: LowerBound
    """The 5 % quantile."""
    high: LowerBound
    """The 95 % quantile."""


@dataclass(frozen=True)
class Coupling:
    """The gain of one sequence for several correlations of factual and counterfactual noise."""

    gains: tuple[CouplingGain, ...]
    """From correlation 1 downwards."""
    smallest: float | None
    """Down to this correlation the expected gain stays above zero; None: even at 0, or there is no gain to lose."""
    draws: int
    """Of fresh noise, by which each figure is found."""
    member: int | None = None
    """Of an ensemble problem, the member whose gains they are: the one that gains least; None: the one model's."""

    @property
    def gain(self) -> float:
        """The answer's own."""
        return self.gains[0].expected

    @property
    def helps(self) -> bool:
        """Whether there is a gain that could be lost."""
        return self.gain > 0
