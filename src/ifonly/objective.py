"""What an ensemble problem maximises: the mean over its members' outcomes, the worst of them, or a lower quantile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ifonly.errors import InputError

UNITS = 2**40
"""Weights are counted in whole parts of this size: sums of whole numbers do not depend on their order, so neither does
the outcome that is a quantile."""


@dataclass(frozen=True)
class Objective:
    """One number from the outcomes of M members, monotone in each of them: all that bounds need.

    `goal` is "mean", "worst" or a level q with 0 < q < 1. The lower q-quantile of M numbers is the smallest of them
    such that the members at or below it have a weight of at least q: one of the numbers itself, never something between
    two. Without `weights` [M], or where all are the same, that is the ceil(q M)-th smallest. At least a share 1 - q of
    the members do at least as well. The worst is the worst, whatever its weight.

    >>> outcomes = torch.tensor([5.0, 1.0, 3.0, 2.0])
    >>> [float(Objective(goal)(outcomes)) for goal in ("mean", "worst", 0.25, 0.26, 0.99)]
    [2.75, 1.0, 1.0, 2.0, 5.0]
    >>> [float(Objective(goal, (1, 1, 5, 1))(outcomes)) for goal in ("mean", "worst", 0.25, 0.26, 0.99)]
    [2.875, 1.0, 2.0, 3.0, 5.0]
    """

    goal: str | float
    weights: tuple[float, ...] | None = None
    """Of the members, positive, normalised to a sum of 1. None: equal weights."""

    def __post_init__(self) -> None:
        if self.weights is not None:
            object.__setattr__(self, "weights", _shares(self.weights))
        if self.goal in ("mean", "worst"):
            return
        is_level = isinstance(self.goal, int | float) and not isinstance(self.goal, bool)
        if not is_level or not 0 < float(self.goal) < 1:
            raise InputError(
                f"objective {self.goal!r}: choose 'mean', 'worst', or a number between 0 and 1, the level of a lower "
                "quantile."
            )
        object.__setattr__(self, "goal", float(self.goal))

    def rank(self, members: int) -> int | None:
        """The rank, from 1, of the outcome that counts; None for the mean and where weights decide."""
        if self.goal == "mean":
            return None
        if self.goal == "worst":
            return 1
        if self.weights is not None:
            return None
        # Less a little: 0.7 * 10 is above 7 in floating point.
        return max(1, math.ceil(float(self.goal) * members - 1e-9))

    def __call__(self, outcomes: Tensor) -> Tensor:
        """The objective [...] of outcomes, or of bounds on them, [..., M]; NaN if one of them is."""
        if self.goal == "mean":
            return self.mean(outcomes, dim=-1)
        rank = self.rank(outcomes.shape[-1])
        if rank == 1:
            return outcomes.amin(-1)
        if rank is None:
            ordered, order = outcomes.sort(dim=-1, stable=True)
            counted = ordered.gather(-1, self._place(order).unsqueeze(-1)).squeeze(-1)
        else:
            counted = outcomes.kthvalue(rank, dim=-1).values
        return torch.where(outcomes.isnan().any(-1), torch.nan, counted)

    def mean(self, values: Tensor, dim: int) -> Tensor:
        """The weighted mean over members, which are dimension `dim` of `values`."""
        if self.weights is None:
            return values.mean(dim)
        # One after the other: rounded sums are monotone in every value, and the same in every batch.
        first, *others = (value * weight for value, weight in zip(values.unbind(dim), self.weights, strict=True))
        return sum(others, start=first)

    def member(self, outcomes: Tensor) -> Tensor | None:
        """The member [...] whose outcome counts, of outcomes [..., M]; None for the mean."""
        if self.goal == "mean":
            return None
        order, rank = outcomes.argsort(dim=-1, stable=True), self.rank(outcomes.shape[-1])
        if rank is None:
            return order.gather(-1, self._place(order).unsqueeze(-1)).squeeze(-1)
        return order[..., rank - 1]

    def _place(self, order: Tensor) -> Tensor:
        """The index [...] of the outcome that counts among members [..., M] in ascending order of their outcomes."""
        units = torch.tensor(self._units, device=order.device)
        # Less a little, as above; sums of whole numbers are exact.
        least = float(self.goal) * sum(self._units) - 1e-9 * UNITS
        below: Tensor = units[order].cumsum(-1).double() < least  # a whole number and a float would meet in float32
        return below.sum(-1).clamp(max=order.shape[-1] - 1)

    @cached_property
    def _units(self) -> tuple[int, ...]:
        return tuple(max(1, round(weight * UNITS)) for weight in self.weights or ())


def _shares(weights: tuple[float, ...]) -> tuple[float, ...] | None:
    """The weights with a sum of 1; None if they are equal."""
    if not weights or not all(math.isfinite(weight) and weight > 0 for weight in weights):
        raise InputError(f"objective: the weights {list(weights)} of members must be positive and finite.")
    if all(weight == weights[0] for weight in weights):
        return None
    total = math.fsum(weights)
    if math.isclose(total, 1.0, rel_tol=1e-12):  # shares already: to divide once more would move their last digits
        return tuple(float(weight) for weight in weights)
    return tuple(float(weight / total) for weight in weights)
