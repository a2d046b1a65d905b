"""Rewards: what counts as a good step. An episode's outcome is the sum of its steps' rewards.

People state rewards in original units; `bind` translates one to a model's scaled coordinates, where its Lipschitz
constants per action (def:lipschitz_scm) are those of the theory. A `Goal` says at which steps a reward counts, and how
much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ifonly.errors import InputError
from ifonly.rewards.goals import DoseCost, Goal, TimeInRange, Within
from ifonly.rewards.parts import (
    ActionCost,
    Custom,
    Hinge,
    Linear,
    NotStored,
    PiecewiseLinear,
    Reward,
    Shown,
    Total,
    parts_of,
)

__all__ = [
    "ActionCost",
    "Custom",
    "DoseCost",
    "Goal",
    "Hinge",
    "Linear",
    "NotStored",
    "PiecewiseLinear",
    "Reward",
    "Shown",
    "TimeInRange",
    "Total",
    "Within",
    "declared_constants",
    "features_of",
    "minus",
    "reward_from_dict",
]


def minus(feature: str) -> Linear:
    """The negated feature, such as `minus("SOFA")`: the paper's reward."""
    return Linear({feature: -1.0})


def features_of(reward: Reward) -> set[str]:
    """The dynamic features that a reward names; of one that is code, those that its constants name."""
    names: set[str] = set()
    for part in _single_parts(reward):
        if isinstance(part, Linear):
            names |= set(part.weights)
        elif isinstance(part, PiecewiseLinear):
            names |= {name for hinge in part.hinges for name in hinge.weights}
        elif isinstance(part, Within | TimeInRange):
            names.add(part.feature)
        elif isinstance(part, Custom) and isinstance(part.lipschitz, Mapping):
            names |= set(part.lipschitz)
    return names


def declared_constants(reward: Reward) -> list[str]:
    """Names of the parts whose Lipschitz constants somebody declared: proofs rely on them being true."""
    return [part.name for part in _single_parts(reward) if isinstance(part, Custom)]


def _single_parts(reward: Reward) -> list[Reward]:
    """The parts that are neither goals nor totals, of all of these."""
    if isinstance(reward, Goal):
        return _single_parts(reward.reward)
    if isinstance(reward, Total):
        return [one for part in parts_of(reward) for one in _single_parts(part)]
    return [reward]


def reward_from_dict(content: Mapping[str, Any]) -> Reward:
    """The reward that `to_dict` described; a custom one must be handed over by whoever wrote it."""
    if not isinstance(content, Mapping):
        raise InputError(f"reward: expected a mapping with its kind, found {type(content).__name__}.")
    kind = content.get("kind")
    try:
        if kind == "linear":
            return Linear(dict(content["weights"]), float(content["constant"]))
        if kind == "action cost":
            return ActionCost({key: float(cost) for key, cost in content["costs"]})
        if kind == "piecewise linear":
            return PiecewiseLinear(
                tuple(Hinge(h["factor"], dict(h["weights"]), h["constant"]) for h in content["hinges"])
            )
        if kind == "total":
            return Total(tuple(reward_from_dict(part) for part in content["parts"]))
        own = {name: value for name, value in content.items() if name != "kind"}
        if kind == "goal":
            return Goal(**{**own, "reward": reward_from_dict(content["reward"])})
        if kind in KINDS:
            return KINDS[kind](**own)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"reward of kind {kind!r}: incomplete ({type(error).__name__}: {error}).") from None
    if kind == "custom":
        return NotStored(dict(content))
    raise InputError(f"reward of kind {kind!r} is unknown.")


KINDS: dict[str, type[Reward]] = {"within": Within, "time in range": TimeInRange, "dose cost": DoseCost}
"""Kinds of reward that are stored as their fields."""
