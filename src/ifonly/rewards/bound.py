"""Rewards in a model's scaled coordinates, with their Lipschitz constants per action (def:lipschitz_scm)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ifonly.data.scaling import Scaler
from ifonly.errors import InputError
from ifonly.models.layers import ROUNDING
from ifonly.rewards.decoding import Decoder, ValueCurve

if TYPE_CHECKING:
    from ifonly.rewards import Custom


class BoundReward(ABC):
    """A reward in a model's scaled coordinates, on one device, in float64."""

    decoder: Decoder
    """From scaled coordinates to values in original units; needed where there are `weights`."""
    lipschitz: Tensor
    """C_a for every action [A]; infinite where there is none, as for values on a logarithmic scale."""

    @abstractmethod
    def __call__(self, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [...] of scaled states [..., D] and actions [...], broadcast."""

    def largest(self, ranges: Tensor | None = None) -> Tensor:
        """What no reward of each action [A] can exceed, at any state, or with values of features within `ranges`
        [2, D]; infinite where nothing is known."""
        return torch.full_like(self.lipschitz, torch.inf)

    def steepness(self, states: Tensor) -> Tensor:
        """How steep the reward is at states [..., D], at most, on whichever side of its kinks they are [...]."""
        return self.lipschitz.max().expand(states.shape[:-1])

    def weights(self, states: Tensor) -> Tensor | None:
        """Weights [..., D] of sums of values, in original units, that touch the reward at states [..., D] and are
        nowhere below it.

        They must not depend on the action. For a reward that is linear in the values these are its weights; where it
        bends upwards there are none (None).
        """
        return None

    def expand(self, states: Tensor, *, both_sides: bool = False) -> ValueCurve | None:
        """How those sums of values depend on the state, around states [..., D]; None where there are none."""
        weights = self.weights(states)
        return None if weights is None else self.decoder.expand(states, weights, both_sides=both_sides)

    def is_flat(self) -> bool:
        """Whether those sums are linear in scaled coordinates."""
        return not bool(self.decoder.curved.any())


@dataclass(frozen=True, eq=False)
class Forms:
    """J linear functions of the values of features, in original units, as functions of scaled states."""

    weights: Tensor  # [J, D], of values in original units
    constants: Tensor  # [J]
    decoder: Decoder

    @cached_property
    def _scaled(self) -> tuple[Tensor, Tensor]:
        """Weights [J, D] and constants [J] of what is linear in scaled coordinates."""
        straight = torch.where(self.decoder.curved, 0.0, self.weights)
        return straight * self.decoder.scale, straight @ self.decoder.offset + self.constants

    @cached_property
    def _curved(self) -> tuple[Tensor, Decoder, Tensor] | None:
        """Features [n] with a weight that are not linear in their coordinate, their decoder, and weights [J, n]."""
        features = (self.decoder.curved & (self.weights != 0).any(0)).nonzero().squeeze(-1)
        return (features, self.decoder.take(features), self.weights[:, features]) if len(features) else None

    def __call__(self, states: Tensor) -> Tensor:
        """Values [..., J] at states [..., D]."""
        weights, constants = self._scaled
        values = states @ weights.mT + constants
        if self._curved is not None:
            features, decoder, curved = self._curved
            values = values + decoder(states[..., features]) @ curved.mT
        return values

    def is_flat(self) -> bool:
        """Whether all are linear in scaled coordinates."""
        return self._curved is None

    def slopes(self) -> Tensor:
        """How steep each can be along each coordinate [J, D], at most, with its sign."""
        return torch.where(self.weights == 0, 0.0, self.weights * self.decoder.steepest())

    def steepness(self, states: Tensor) -> Tensor:
        """How steep each is at states [..., D], where nothing is cut [..., J]."""
        found: Tensor = self.decoder.expand(states.unsqueeze(-2), self.weights).slope.norm(dim=-1)
        return found

    def largest(self, ranges: Tensor | None = None) -> Tensor:
        """The largest value of each [J], at any state."""
        return self.decoder.largest(self.weights, ranges) + self.constants


@dataclass(frozen=True, eq=False)
class BoundLinear(BoundReward):
    """A weighted sum of values, whatever the action."""

    form: Forms  # one row
    actions: int
    decoder: Decoder = field(init=False)
    lipschitz: Tensor = field(init=False)

    def __post_init__(self) -> None:
        norm = torch.linalg.vector_norm(self.form.slopes()) * (1 + ROUNDING)
        object.__setattr__(self, "lipschitz", norm.expand(self.actions))
        object.__setattr__(self, "decoder", self.form.decoder)

    def __call__(self, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [...], as `BoundReward` says."""
        values = self.form(states).squeeze(-1)
        return values.expand(np.broadcast_shapes(values.shape, actions.shape))

    def steepness(self, states: Tensor) -> Tensor:
        """As `BoundReward.steepness` asks."""
        return self.form.steepness(states).squeeze(-1)

    def largest(self, ranges: Tensor | None = None) -> Tensor:
        """As `BoundReward.largest` asks."""
        return self.form.largest(ranges).expand(self.actions)

    def weights(self, states: Tensor) -> Tensor:
        """As `BoundReward.weights` asks."""
        return self.form.weights[0].expand_as(states)

    def is_flat(self) -> bool:
        """As `BoundReward.is_flat` asks."""
        return self.form.is_flat()


@dataclass(frozen=True, eq=False)
class BoundTable(BoundReward):
    """A number for each action, whatever the state."""

    table: Tensor  # [A]
    decoder: Decoder
    lipschitz: Tensor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lipschitz", torch.zeros_like(self.table))

    def __call__(self, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [...], as `BoundReward` says."""
        values = self.table[actions]
        return values.expand(np.broadcast_shapes(values.shape, states.shape[:-1]))

    def largest(self, ranges: Tensor | None = None) -> Tensor:
        """As `BoundReward.largest` asks."""
        return self.table

    def weights(self, states: Tensor) -> Tensor:
        """As `BoundReward.weights` asks."""
        return torch.zeros_like(states)

    def is_flat(self) -> bool:
        """As `BoundReward.is_flat` asks."""
        return True


@dataclass(frozen=True, eq=False)
class BoundHinges(BoundReward):
    """A sum of hinges, whatever the action."""

    forms: Forms
    factors: Tensor  # [J]
    lipschitz: Tensor  # [A]
    decoder: Decoder = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder", self.forms.decoder)

    def __call__(self, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [...], as `BoundReward` says."""
        values = torch.relu(self.forms(states)) @ self.factors
        return values.expand(np.broadcast_shapes(values.shape, actions.shape))

    def steepness(self, states: Tensor) -> Tensor:
        """As `BoundReward.steepness` asks."""
        return self.forms.steepness(states) @ self.factors.abs()

    def largest(self, ranges: Tensor | None = None) -> Tensor:
        """As `BoundReward.largest` asks: penalties are zero at best."""
        most = torch.where(self.factors > 0, self.factors * self.forms.largest(ranges).clamp(min=0), 0.0)
        return most.sum().expand_as(self.lipschitz)

    def weights(self, states: Tensor) -> Tensor | None:
        """Penalties (negative factors) bend downwards, so each side of a hinge continues above the other."""
        if bool((self.factors > 0).any()):
            return None
        return ((self.forms(states) > 0) * self.factors) @ self.forms.weights

    def is_flat(self) -> bool:
        """As `BoundReward.is_flat` asks."""
        return self.forms.is_flat()


class BoundCustom(BoundReward):
    """A function that somebody wrote."""

    def __init__(self, reward: Custom, scaler: Scaler, lipschitz: Tensor) -> None:
        self.reward = reward
        self.lipschitz = lipschitz
        self.decoder = Decoder.of(scaler.states, lipschitz.device)

    def __call__(self, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [...], as `BoundReward` says."""
        if self.reward.space == "original":
            states = self.decoder(states)
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

    def __init__(self, parts: list[BoundReward], decoder: Decoder) -> None:
        self.parts = parts
        self.decoder = decoder
        self.lipschitz = torch.stack([part.lipschitz for part in parts]).sum(0)

    def __call__(self, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [...], as `BoundReward` says."""
        return torch.stack([part(states, actions) for part in self.parts]).sum(0)

    def steepness(self, states: Tensor) -> Tensor:
        """As `BoundReward.steepness` asks."""
        return torch.stack([part.steepness(states) for part in self.parts]).sum(0)

    def largest(self, ranges: Tensor | None = None) -> Tensor:
        """As `BoundReward.largest` asks."""
        return torch.stack([part.largest(ranges) for part in self.parts]).sum(0)

    def weights(self, states: Tensor) -> Tensor | None:
        """As `BoundReward.weights` asks."""
        weights = [part.weights(states) for part in self.parts]
        known = [weight for weight in weights if weight is not None]
        return torch.stack(known).sum(0) if len(known) == len(weights) else None

    def is_flat(self) -> bool:
        """As `BoundReward.is_flat` asks."""
        return all(part.is_flat() for part in self.parts)


def as_float64(values: np.ndarray[Any, np.dtype[np.float64]], device: torch.device | str) -> Tensor:
    """Values as a tensor of float64 on a device."""
    return torch.as_tensor(values, dtype=torch.float64, device=device)
