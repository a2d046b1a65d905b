"""What each measurement brings to the gain of a course: one after the other takes the values of that course."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ifonly.problem import BaseProblem, EnsembleProblem
from ifonly.report.cases.case import GainSource
from ifonly.rewards import Reward
from ifonly.search.build_result import clipped_outcomes

ROUNDING = 1e-9
"""Gains of at most this size, relative to the recorded outcome, are none."""


def shown_unit(reward: Reward) -> float:
    """What one unit of the reward adds to the outcome as shown; less than nothing where lower is better."""
    return reward.show(1.0).value - reward.show(0.0).value


@torch.no_grad()
def sources_of(problem: BaseProblem, actions: Tensor, states: Tensor) -> tuple[GainSource, ...]:
    """Where the gain of a sequence over the recording comes from; nothing for refits that are asked together.

    `actions` [2, T] and the `states` [2, T, D] that they reach are the recorded ones and those of the sequence. A
    measurement's part is the gain where it alone takes the values of the sequence, all else being as recorded. For
    outcomes that are sums over measurements these parts add up to the gain; what is left of others, hinges of a
    weighted sum or code of one's own for instance, is "together".
    """
    if isinstance(problem, EnsembleProblem) or torch.equal(actions[0], actions[1]):
        return ()
    names = [feature.name for feature in problem.episode.schema.dynamic]
    one_by_one = states[:1].repeat(len(names), 1, 1)
    for column in range(len(names)):
        one_by_one[column, :, column] = states[1, :, column]
    mixed = torch.cat([states, states[:1], one_by_one])
    taken = torch.cat([actions, actions[1:], actions[:1].expand(len(names), -1)])
    before, after, dosed, *outcomes = clipped_outcomes(problem, mixed, taken)
    size = abs(shown_unit(problem.reward))
    parts = [GainSource("treatment", "", size * (dosed - before))]
    parts += [
        GainSource("feature", name, size * (outcome - before)) for name, outcome in zip(names, outcomes, strict=True)
    ]
    parts.append(GainSource("together", "", size * (after - before) - sum(part.gain for part in parts)))
    if not np.isfinite([part.gain for part in parts]).all():
        return ()
    least = ROUNDING * size * max(1.0, abs(before))
    return tuple(sorted((part for part in parts if abs(part.gain) > least), key=lambda part: -part.gain))
