"""What each change of a sequence contributes: alone, together, and as its fair share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.data.episode import FloatArray
from ifonly.errors import InputError
from ifonly.problem import BaseProblem

MOST_CHANGES = 12
"""Every subset of the changes is replayed: 2^12 sequences."""


@dataclass(frozen=True)
class Contribution:
    """One change among others."""

    step: int
    action: int
    alone: float
    """Gain over the observed outcome when only this change is made."""
    lost_without: float
    """What is lost when this change alone is undone."""
    share: float
    """Its Shapley value: its gain averaged over all orders of making the changes; the shares add up to the whole."""


@dataclass(frozen=True)
class Contributions:
    """The changes of one sequence, in order of their steps, and the outcome of every subset of them."""

    changes: tuple[Contribution, ...]
    outcomes: Mapping[tuple[int, ...], float]
    """Keyed by the steps that are changed; () is the observed outcome.

    Subsets may break rules of the query and change to actions that have no support where they then are.
    """

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return {
            "changes": [vars(change).copy() for change in self.changes],
            "outcomes": [{"steps": list(steps), "outcome": value} for steps, value in self.outcomes.items()],
        }


@torch.no_grad()
def contributions(problem: BaseProblem, actions: npt.ArrayLike | Tensor) -> Contributions:
    """Replay every subset of the changes of `actions` [T], a result's for instance, and share the gain out.

    The cost of changes, if the query has one, is part of the outcomes; those of an ensemble problem are its
    objective's. More than 12 changes are refused.
    """
    sequence = problem.checked_sequence(actions)
    steps = (sequence != problem.observed_actions).nonzero().squeeze(-1)
    count = len(steps)
    if count > MOST_CHANGES:
        raise InputError(
            f"contributions: {count} changes have 2^{count} subsets; at most {MOST_CHANGES} changes can be shared out."
        )
    subsets = np.arange(2**count)
    members = (subsets[:, np.newaxis] >> np.arange(count)) & 1 == 1  # [2^n, n]
    trials = problem.observed_actions.repeat(len(subsets), 1)
    rows, columns = (torch.as_tensor(part, device=problem.device) for part in members.nonzero())
    trials[rows, steps[columns]] = sequence[steps[columns]]
    outcomes: FloatArray = problem.rollout(trials)[1].cpu().numpy()
    problem.require_finite(torch.as_tensor(outcomes))
    numbers = steps.tolist()
    return Contributions(
        changes=tuple(
            Contribution(
                step=number,
                action=int(sequence[number]),
                alone=float(outcomes[1 << place] - outcomes[0]),
                lost_without=float(outcomes[-1] - outcomes[len(subsets) - 1 - (1 << place)]),
                share=_shapley_value(outcomes, members, place),
            )
            for place, number in enumerate(numbers)
        ),
        outcomes={
            tuple(number for number, made in zip(numbers, row, strict=True) if made): float(value)
            for row, value in zip(members, outcomes, strict=True)
        },
    )


def _shapley_value(outcomes: FloatArray, members: npt.NDArray[np.bool_], place: int) -> float:
    count = members.shape[1]
    without = np.flatnonzero(~members[:, place])
    sizes = members[without].sum(1)
    weights = np.array([1 / (count * math.comb(count - 1, size)) for size in range(count)])
    return float(weights[sizes] @ (outcomes[without | (1 << place)] - outcomes[without]))
