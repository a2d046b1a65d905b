"""What rewards cannot exceed at any state, by the checker's own reckoning: (G2) of docs/theory.md."""

from __future__ import annotations

import numpy as np

from ifonly.proofs.question import Array, LoggedReward, Question, RewardPart

MARGIN = 1e-13
"""Relative margin of sums of rewards: above what float64 rounding does to so few terms."""


def most_to_go(question: Question) -> Array:
    """What the rewards from each step on cannot exceed [T+1, 2], without a change and with some; infinite where they
    are not limited."""
    reward, actions = question.reward, np.arange(question.allowed.shape[1])
    with np.errstate(invalid="ignore"):  # zero times infinity, where nothing counts
        states = [_largest(part, reward) for part in reward.parts]
    to_go = np.zeros((question.horizon + 1, 2))
    for t in range(question.horizon - 1, -1, -1):
        each = np.zeros(len(actions))
        for part, most in zip(reward.parts, states, strict=True):
            if part.steps[t] > 0:
                each = each + part.steps[t] * (most + part.table)
        kept = actions == question.observed[t]
        each = np.where(kept | question.allowed[t], each - question.change_cost * ~kept, -np.inf)
        to_go[t] = to_go[t + 1] + (each[kept].max(), each.max())
    return to_go


def _largest(part: RewardPart, reward: LoggedReward) -> float:
    """What the part's sums of values cannot exceed."""
    floor, ceiling = reward.decoder["floor"], reward.decoder["ceiling"]
    if part.kind != "hinges":
        return float(_largest_sums(part.weights, floor, ceiling).sum() + part.constants.sum())
    used = part.weights != 0
    together = used.sum(1) > 1
    most = part.factors * np.maximum(_largest_sums(part.weights, floor, ceiling) + part.constants, 0.0)
    total = float(np.where(part.factors > 0, most, 0.0)[together].sum())
    without = used.sum(1) == 0
    total += float((part.factors * np.maximum(part.constants, 0.0))[without].sum())
    for feature in np.flatnonzero(used[~together].any(0)):
        rows = used[:, feature] & ~together
        hinges = part.weights[rows, feature], part.constants[rows], part.factors[rows]
        total += _highest(hinges, float(floor[feature]), float(ceiling[feature]))
    return total


def _largest_sums(weights: Array, floor: Array, ceiling: Array) -> Array:
    """The largest values [J] of weighted sums of values within their limits."""
    ends = np.where(weights > 0, weights * ceiling, weights * floor)
    return np.asarray(np.where(weights == 0, 0.0, ends).sum(1))


def _highest(hinges: tuple[Array, Array, Array], floor: float, ceiling: float) -> float:
    """The highest point of a sum of hinges of one value: at a kink or at an end."""
    weights, constants, factors = hinges
    outward = factors * weights
    if (ceiling == np.inf and outward[weights > 0].sum() > 0) or (floor == -np.inf and outward[weights < 0].sum() < 0):
        return np.inf
    ends = [end for end in (floor, ceiling) if np.isfinite(end)]
    places = np.clip(np.append(-constants / weights, ends), floor, ceiling)
    return float((np.maximum(places[:, None] * weights + constants, 0.0) @ factors).max())
