"""Rewards in a model's scaled coordinates, with their Lipschitz constants per action (def:lipschitz_scm)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ifonly.data.scaling import Scaler
from ifonly.errors import InputError
from ifonly.models.layers import ROUNDING

if TYPE_CHECKING:
    from ifonly.rewards import Custom


class BoundReward(ABC):
    """A reward in a model's scaled coordinates, on one device, in float64."""

    lipschitz: Tensor
    """C_a for every action [A]."""

    @abstractmethod
    def __call__(self, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [...] of scaled states [..., D] and actions [...], broadcast."""

    def tangents(self, states: Tensor) -> Tensor | None:
        """Slopes [..., D] of linear functions that touch the reward at states [..., D] and are nowhere below it.

        They must not depend on the action. For a reward that is linear in the state these are its weights; where it
        bends upwards there are none (None).
        """
        return None


@dataclass(frozen=True)
class BoundLinear(BoundReward):
    """Linear in the state, whatever the action."""

    weights: Tensor  # [D]
    constant: float
    actions: int
    lipschitz: Tensor = field(init=False)

    def __post_init__(self) -> None:
        norm = torch.linalg.vector_norm(self.weights) * (1 + ROUNDING)
        object.__setattr__(self, "lipschitz", norm.expand(self.actions))

    def __call__(self, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [...], as `BoundReward` says."""
        values = states @ self.weights + self.constant
        return values.expand(np.broadcast_shapes(values.shape, actions.shape))

    def tangents(self, states: Tensor) -> Tensor:
        """As `BoundReward.tangents` asks."""
        return self.weights.expand_as(states)


@dataclass(frozen=True)
class BoundTable(BoundReward):
    """A number for each action, whatever the state."""

    table: Tensor  # [A]
    lipschitz: Tensor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lipschitz", torch.zeros_like(self.table))

    def __call__(self, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [...], as `BoundReward` says."""
        values = self.table[actions]
        return values.expand(np.broadcast_shapes(values.shape, states.shape[:-1]))

    def tangents(self, states: Tensor) -> Tensor:
        """As `BoundReward.tangents` asks."""
        return torch.zeros_like(states)


@dataclass(frozen=True)
class BoundHinges(BoundReward):
    """A sum of hinges, whatever the action."""

    weights: Tensor  # [J, D]
    constants: Tensor  # [J]
    factors: Tensor  # [J]
    lipschitz: Tensor  # [A]

    def __call__(self, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [...], as `BoundReward` says."""
        values = torch.relu(states @ self.weights.mT + self.constants) @ self.factors
        return values.expand(np.broadcast_shapes(values.shape, actions.shape))

    def tangents(self, states: Tensor) -> Tensor | None:
        """Penalties (negative factors) bend downwards, so each side of a hinge continues above the other."""
        if bool((self.factors > 0).any()):
            return None
        beyond = states @ self.weights.mT + self.constants > 0
        return (beyond * self.factors) @ self.weights


class BoundCustom(BoundReward):
    """A function that somebody wrote."""

    def __init__(self, reward: Custom, scaler: Scaler, lipschitz: Tensor) -> None:
        self.reward = reward
        self.lipschitz = lipschitz
        columns = scaler.states
        self.scale, self.offset = (as_float64(v, lipschitz.device) for v in (columns.scale, columns.offset))
        self.log = torch.as_tensor(columns.log, device=lipschitz.device)
        self.log_offset = as_float64(columns.log_offset, lipschitz.device)

    def __call__(self, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [...], as `BoundReward` says."""
        if self.reward.space == "original":
            linked = states * self.scale + self.offset
            states = torch.where(self.log, linked.exp() - self.log_offset, linked)
        values = self.reward.function(states, actions)
        wanted = np.broadcast_shapes(states.shape[:-1], actions.shape)
        if not isinstance(values, Tensor):
            raise InputError(f"{self.reward.name}: returned {type(values).__name__}; it must return a torch tensor.")
        if not _expands_to(values.shape, wanted):
            raise InputError(
                f"{self.reward.name}: returned shape {list(values.shape)} for states {list(states.shape)} and actions "
                f"{list(actions.shape)}; expected one number each, {list(wanted)}."
            )
        return values.to(torch.float64).expand(wanted)


def _expands_to(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(size in (1, full) for size, full in pairs)


class BoundTotal(BoundReward):
    """A sum of rewards."""

    def __init__(self, parts: list[BoundReward]) -> None:
        self.parts = parts
        self.lipschitz = torch.stack([part.lipschitz for part in parts]).sum(0)

    def __call__(self, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [...], as `BoundReward` says."""
        return torch.stack([part(states, actions) for part in self.parts]).sum(0)

    def tangents(self, states: Tensor) -> Tensor | None:
        """As `BoundReward.tangents` asks."""
        slopes = [part.tangents(states) for part in self.parts]
        known = [slope for slope in slopes if slope is not None]
        return torch.stack(known).sum(0) if len(known) == len(slopes) else None


def as_float64(values: np.ndarray[Any, np.dtype[np.float64]], device: torch.device | str) -> Tensor:
    """Values as a tensor of float64 on a device."""
    return torch.as_tensor(values, dtype=torch.float64, device=device)
