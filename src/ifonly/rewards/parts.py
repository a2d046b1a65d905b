"""The kinds of reward that goals are made of: sums of features, penalties beyond thresholds, costs of actions, code."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ifonly.data.plain import did_you_mean
from ifonly.data.scaling import Scaler
from ifonly.data.schema import Schema
from ifonly.errors import InputError
from ifonly.models.layers import ROUNDING
from ifonly.rewards.bound import (
    BoundCustom,
    BoundGoals,
    BoundHinges,
    BoundLinear,
    BoundReward,
    BoundTable,
    BoundTotal,
    Forms,
    as_float64,
    goals_of,
)
from ifonly.rewards.decoding import Decoder


@dataclass(frozen=True)
class Shown:
    """An outcome as people read it: cumulative SOFA 92.0, lower is better."""

    label: str
    value: float
    higher_is_better: bool
    feature: str | None = None
    """The dynamic feature that it speaks of; None where it is no single feature's."""


class Reward(ABC):
    """A reward R(state, action), stated in original units."""

    @abstractmethod
    def bind(self, schema: Schema, scaler: Scaler, device: torch.device | str = "cpu") -> BoundReward:
        """The same reward in scaled coordinates, with its constants."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain types; `reward_from_dict` gives the reward back where that is possible."""

    def show(self, outcome: float) -> Shown:
        """An outcome as people read it."""
        return Shown("outcome", outcome, True)

    def __add__(self, other: Reward) -> Reward:
        return Total((*parts_of(self), *parts_of(other))) if isinstance(other, Reward) else NotImplemented

    def __radd__(self, other: object) -> Reward:
        """So that `sum(rewards)`, which begins at 0, is the total."""
        return self if other == 0 else NotImplemented


@dataclass(frozen=True)
class Linear(Reward):
    """A weighted sum of dynamic features, in original units, plus a constant."""

    weights: Mapping[str, float]
    constant: float = 0.0

    def __post_init__(self) -> None:
        check_finite("weights", self.weights)
        check_finite("numbers", {"constant": self.constant})
        object.__setattr__(self, "weights", _plain_weights(self.weights))
        object.__setattr__(self, "constant", float(self.constant))

    def bind(self, schema: Schema, scaler: Scaler, device: torch.device | str = "cpu") -> BoundReward:
        """A weighted sum of decoded values; on a logarithmic scale it has no Lipschitz constant."""
        return BoundLinear(_forms([self], schema, scaler, device), len(schema.actions))

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        return {"kind": "linear", "weights": dict(self.weights), "constant": self.constant}

    def show(self, outcome: float) -> Shown:
        """`minus(feature)` is shown as the feature's sum over all steps, lower being better."""
        if len(self.weights) == 1 and self.constant == 0:
            ((feature, weight),) = self.weights.items()
            if abs(weight) == 1:
                return Shown(f"cumulative {feature}", float(weight) * outcome, bool(weight > 0), feature)
        return super().show(outcome)


@dataclass(frozen=True)
class ActionCost(Reward):
    """Minus a cost per step for each action, by its number or its label; actions not named cost nothing."""

    costs: Mapping[int | str, float]

    def __post_init__(self) -> None:
        check_finite("costs", self.costs)
        for key in self.costs:
            if isinstance(key, bool) or not isinstance(key, int | np.integer | str):
                raise InputError(f"reward: no action {key!r}; name an action by its number or its label.")
        costs = {str(key) if isinstance(key, str) else int(key): float(cost) for key, cost in self.costs.items()}
        object.__setattr__(self, "costs", costs)

    def bind(self, schema: Schema, scaler: Scaler, device: torch.device | str = "cpu") -> BoundReward:
        """A table lookup with constant zero."""
        table = torch.zeros(len(schema.actions), dtype=torch.float64)
        named: dict[int, int | str] = {}
        for key, cost in self.costs.items():
            action = _action_number(schema, key)
            if action in named:
                raise InputError(
                    f"reward: {named[action]!r} and {key!r} are the same action, with two costs; name it once."
                )
            named[action] = key
            table[action] = -cost
        return BoundTable(table.to(device), Decoder.of(scaler.states, device))

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        return {"kind": "action cost", "costs": [[key, cost] for key, cost in self.costs.items()]}


@dataclass(frozen=True)
class Hinge:
    """factor * max(0, weights . features + constant), in original units."""

    factor: float
    weights: Mapping[str, float]
    constant: float

    def __post_init__(self) -> None:
        check_finite("weights", self.weights)
        check_finite("numbers", {"constant": self.constant, "factor": self.factor})
        object.__setattr__(self, "weights", _plain_weights(self.weights))
        object.__setattr__(self, "constant", float(self.constant))
        object.__setattr__(self, "factor", float(self.factor))


@dataclass(frozen=True)
class PiecewiseLinear(Reward):
    """A sum of hinges: penalties that start beyond a threshold, distances from a target."""

    hinges: tuple[Hinge, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "hinges", tuple(self.hinges))
        if not self.hinges:
            raise InputError("reward: a piecewise linear reward needs at least one hinge.")

    def bind(self, schema: Schema, scaler: Scaler, device: torch.device | str = "cpu") -> BoundReward:
        """Up to ten hinges: the largest slope over all on/off patterns (exact if each occurs), else a sum of norms."""
        forms = _forms(self.hinges, schema, scaler, device)
        factors = as_float64(np.array([hinge.factor for hinge in self.hinges]), device)
        slopes = factors.unsqueeze(1) * forms.slopes()
        if not slopes.isfinite().all():
            largest = slopes.new_full((), torch.inf)
        elif len(slopes) <= 10:
            patterns = slopes.new_tensor(list(itertools.product((0.0, 1.0), repeat=len(slopes))))
            largest = (patterns @ slopes).norm(dim=1).max()
        else:
            largest = slopes.norm(dim=1).sum()
        return BoundHinges(forms, factors, (largest * (1 + ROUNDING)).expand(len(schema.actions)))

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        hinges = [{"factor": h.factor, "weights": dict(h.weights), "constant": h.constant} for h in self.hinges]
        return {"kind": "piecewise linear", "hinges": hinges}


@dataclass(frozen=True)
class Custom(Reward):
    """Any function of states and actions, with Lipschitz constants that YOU declare; proofs rest on them.

    `function(states [..., D], actions [...]) -> [...]` must be written in torch, accept broadcastable inputs and give
    one number per row. States are float64; mind that torch makes `0.1 * actions` float32 (`0.1 * actions.double()`).
    With `space="original"` it sees original units, and `lipschitz` says how fast it can change in each feature:
    {"SOFA": 1.0} means one unit of SOFA changes the reward by at most 1. With `space="scaled"` it sees the model's
    coordinates, and `lipschitz` is a Euclidean constant, one for all actions or one per action.
    """

    function: Callable[[Tensor, Tensor], Tensor]
    lipschitz: Mapping[str, float] | float | Sequence[float]
    space: Literal["original", "scaled"] = "original"
    name: str = "custom reward"

    def bind(self, schema: Schema, scaler: Scaler, device: torch.device | str = "cpu") -> BoundReward:
        """Wrap the function and translate the declared constants."""
        if self.space == "original":
            if not isinstance(self.lipschitz, Mapping):
                raise InputError(f"{self.name}: declare lipschitz per feature, such as {{'SOFA': 1.0}}.")
            if any(constant < 0 for constant in self.lipschitz.values()):
                raise InputError(f"{self.name}: Lipschitz constants must be finite and not negative.")
            slopes = _forms([Linear(self.lipschitz)], schema, scaler, device).slopes()
            if not slopes.isfinite().all():
                raise InputError(
                    f"{self.name}: a feature with a constant is on a logarithmic scale, where a function of its value "
                    "has no Lipschitz constant; give it another scaling, or write the reward with space='scaled'."
                )
            constants = np.full(len(schema.actions), float(slopes.norm()) * (1 + ROUNDING))
        elif self.space == "scaled":
            if isinstance(self.lipschitz, Mapping):
                raise InputError(f"{self.name}: in scaled space declare one constant, or one per action.")
            declared = np.asarray(self.lipschitz, dtype=np.float64)
            if declared.shape not in ((), (len(schema.actions),)):
                raise InputError(
                    f"{self.name}: {declared.size} Lipschitz constants for {len(schema.actions)} actions; declare one "
                    "for all, or one per action."
                )
            constants = np.broadcast_to(declared, (len(schema.actions),)).copy()
        else:
            raise InputError(f"{self.name}: space {self.space!r} is unknown; choose 'original' or 'scaled'.")
        if not (np.isfinite(constants).all() and (constants >= 0).all()):
            raise InputError(f"{self.name}: Lipschitz constants must be finite and not negative.")
        return BoundCustom(self, scaler, as_float64(constants, device))

    def to_dict(self) -> dict[str, Any]:
        """A function cannot be stored: only its name is."""
        return {"kind": "custom", "name": self.name}


@dataclass(frozen=True)
class Total(Reward):
    """The sum of several rewards."""

    parts: tuple[Reward, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise InputError("reward: a total needs at least one part.")

    def bind(self, schema: Schema, scaler: Scaler, device: torch.device | str = "cpu") -> BoundReward:
        """Constants add up."""
        parts = [part.bind(schema, scaler, device) for part in self.parts]
        decoder = Decoder.of(scaler.states, device)
        if any(isinstance(part, BoundGoals) for part in parts):
            return BoundGoals([goal for part in parts for goal in goals_of(part)], decoder)
        return BoundTotal(parts, decoder)

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        return {"kind": "total", "parts": [part.to_dict() for part in self.parts]}


@dataclass(frozen=True)
class NotStored(Reward):
    """A reward that is code, read from a file that only names it: it can be shown, not asked."""

    content: Mapping[str, Any]

    def bind(self, schema: Schema, scaler: Scaler, device: torch.device | str = "cpu") -> BoundReward:
        """Refused."""
        raise InputError(f"the reward {self.content.get('name')!r} is code and was not stored; pass reward=... again.")

    def to_dict(self) -> dict[str, Any]:
        """What the file says of it."""
        return dict(self.content)


def check_finite(what: str, numbers: Mapping[Any, float]) -> None:
    """Refuse what is not a mapping to finite numbers."""
    if not isinstance(numbers, Mapping):
        raise InputError(f"reward: {what} must be a mapping from names to numbers, such as {{'SOFA': -1.0}}.")
    for name, number in numbers.items():
        try:
            finite = math.isfinite(number)
        except (TypeError, ValueError, OverflowError):
            finite = False
        if not finite:
            raise InputError(f"reward: {number!r} for {name!r} must be a finite number.")


def _plain_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """Without NumPy's numbers and strings: results store rewards as JSON, which does not know them."""
    return {str(name): float(weight) for name, weight in weights.items()}


def parts_of(reward: Reward) -> tuple[Reward, ...]:
    """The parts of a total; another reward is its only one."""
    return reward.parts if isinstance(reward, Total) else (reward,)


def _forms(functions: Sequence[Linear | Hinge], schema: Schema, scaler: Scaler, device: torch.device | str) -> Forms:
    """The linear functions of values, as functions of scaled states."""
    rows = np.zeros((len(functions), len(schema.dynamic)))
    for row, function in zip(rows, functions, strict=True):
        if not function.weights:
            raise InputError("reward: name at least one dynamic feature.")
        for name, weight in function.weights.items():
            row[schema.dynamic_index(name)] = weight
    constants = np.array([function.constant for function in functions])
    return Forms(as_float64(rows, device), as_float64(constants, device), Decoder.of(scaler.states, device))


def _action_number(schema: Schema, key: int | str) -> int:
    if isinstance(key, str):
        if key not in schema.actions.labels:
            raise InputError(
                f"reward: no action {key!r}; labels are {list(schema.actions.labels[:8])} ..."
                f"{did_you_mean(key, schema.actions.labels)}"
            )
        return schema.actions.labels.index(key)
    if not 0 <= key < len(schema.actions):
        raise InputError(f"reward: action {key} is unknown; actions are numbered 0 to {len(schema.actions) - 1}.")
    return key
