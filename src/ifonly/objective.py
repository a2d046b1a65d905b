"""What an ensemble problem maximises: the mean over its members' outcomes, the worst of them, or a lower quantile."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.errors import InputError


@dataclass(frozen=True)
class Objective:
    """One number from the outcomes of M members, monotone in each of them: all that bounds need.

    `goal` is "mean", "worst" or a level q with 0 < q < 1. The lower q-quantile of M numbers is the ceil(q M)-th
    smallest of them: one of the numbers itself, never something between two. At least a share 1 - q of the members do
    at least as well.

    >>> outcomes = torch.tensor([5.0, 1.0, 3.0, 2.0])
    >>> [float(Objective(goal)(outcomes)) for goal in ("mean", "worst", 0.25, 0.26, 0.99)]
    [2.75, 1.0, 1.0, 2.0, 5.0]
    """

    goal: str | float

    def __post_init__(self) -> None:
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
        """Which smallest outcome counts, from 1; None for the mean of all."""
        if self.goal == "mean":
            return None
        if self.goal == "worst":
            return 1
        # Less a little: 0.7 * 10 is above 7 in floating point.
        return max(1, math.ceil(float(self.goal) * members - 1e-9))

    def __call__(self, outcomes: Tensor) -> Tensor:
        """What counts [...] of outcomes, or of bounds on them, [..., M]; NaN where one of them is."""
        rank = self.rank(outcomes.shape[-1])
        if rank is None:
            return outcomes.mean(-1)
        if rank == 1:
            return outcomes.amin(-1)
        counted = outcomes.kthvalue(rank, dim=-1).values
        return torch.where(outcomes.isnan().any(-1), torch.nan, counted)

    def member(self, outcomes: Tensor) -> Tensor | None:
        """The member [...] whose outcome counts, of outcomes [..., M]; None where it is the mean of all."""
        rank = self.rank(outcomes.shape[-1])
        return None if rank is None else outcomes.argsort(dim=-1, stable=True)[..., rank - 1]
