"""Rewards in a model's scaled coordinates, with their Lipschitz constants per action (def:lipschitz_scm)."""

from __future__ import annotations

import math
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
    """C_a for every action [A], or for every step and action [T, A] where steps count differently; infinite where there
    is none, as for values on a logarithmic scale."""

    @abstractmethod
    def __call__(self, states: Tensor, actions: Tensor, steps: Tensor | int | None = None) -> Tensor:
        """Rewards [...] of scaled states [..., D] and actions [...] at `steps`, broadcast.

        Only goals (`BoundGoals`) need to know at which step: all others are the same at every one.
        """

    def over(self, horizon: int) -> BoundReward:
        """The reward of episodes with so many steps."""
        return self

    @property
    def single_steps(self) -> BoundReward:
        """What single steps earn before it counts at which of them they are."""
        return self

    @property
    def levels_off(self) -> bool:
        """Whether better values earn nothing more from some point on: then sequences may earn the most there is."""
        return False

    def largest(self, ranges: Tensor | None = None) -> Tensor:
        """What no reward of each action [A], or at each step [T, A], can exceed, at any state, or with values of
        features within `ranges` [2, D]; infinite where nothing is known."""
        return torch.full_like(self.lipschitz, torch.inf)

    def steepness(self, states: Tensor) -> Tensor:
        """How steep the reward is at states [..., D], at most, on whichever side of its kinks they are [...].

        Here and in `weights`, states of goals are those of all steps, [..., T, D].
        """
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

    def __post_init__(self) -> None:
        sizes = self.weights * torch.where(self.decoder.curved, self.decoder.width, self.decoder.scale)
        require_finite(torch.cat([sizes, self._scaled[1].unsqueeze(1)], 1), "weights, times what features vary by")

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

    def __call__(self, states: Tensor, actions: Tensor, steps: Tensor | int | None = None) -> Tensor:
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

    def __call__(self, states: Tensor, actions: Tensor, steps: Tensor | int | None = None) -> Tensor:
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
    most: float = math.inf  # what the sum is known not to exceed
    decoder: Decoder = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder", self.forms.decoder)

    def __call__(self, states: Tensor, actions: Tensor, steps: Tensor | int | None = None) -> Tensor:
        """Rewards [...], as `BoundReward` says."""
        values = torch.relu(self.forms(states)) @ self.factors
        return values.expand(np.broadcast_shapes(values.shape, actions.shape))

    def steepness(self, states: Tensor) -> Tensor:
        """As `BoundReward.steepness` asks."""
        return self.forms.steepness(states) @ self.factors.abs()

    @property
    def levels_off(self) -> bool:
        """As `BoundReward.levels_off` asks."""
        return True

    def largest(self, ranges: Tensor | None = None) -> Tensor:
        """As `BoundReward.largest` asks: penalties are zero at best."""
        most = torch.where(self.factors > 0, self.factors * self.forms.largest(ranges).clamp(min=0), 0.0)
        return most.sum().clamp(max=self.most).expand_as(self.lipschitz)

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

    def __call__(self, states: Tensor, actions: Tensor, steps: Tensor | int | None = None) -> Tensor:
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

    def __call__(self, states: Tensor, actions: Tensor, steps: Tensor | int | None = None) -> Tensor:
        """Rewards [...], as `BoundReward` says."""
        return torch.stack([part(states, actions) for part in self.parts]).sum(0)

    def steepness(self, states: Tensor) -> Tensor:
        """As `BoundReward.steepness` asks."""
        return torch.stack([part.steepness(states) for part in self.parts]).sum(0)

    @property
    def levels_off(self) -> bool:
        """As `BoundReward.levels_off` asks."""
        return any(part.levels_off for part in self.parts)

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


@dataclass(frozen=True)
class Schedule:
    """How often each step counts (G1); `first` and `last`: how many steps at either end do, None: all."""

    weight: float
    first: int | None
    last: int | None
    discount: float
    step_weights: tuple[float, ...] | None

    def weights(self, horizon: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The weights [T] of an episode with so many steps."""
        steps = np.arange(horizon)
        counts = (steps < (self.first or horizon)) & (steps >= horizon - (self.last or horizon))
        found = self.weight * self.discount**steps * counts
        if self.step_weights is not None:
            if len(self.step_weights) != horizon:
                raise InputError(
                    f"goal: {len(self.step_weights)} step_weights for an episode of {horizon} steps; give one for each "
                    "step, or say over which steps a goal counts, such as over: last 6 steps."
                )
            found = found * np.array(self.step_weights)
        return np.asarray(found, dtype=np.float64)


class BoundGoals(BoundReward):
    """Rewards that count at some steps more than at others: sum_j w_j(t) R_j(s, a), with w >= 0 (G1).

    Weights are not negative, so what is nowhere below a reward stays so, and constants and slopes scale with them.
    """

    def __init__(
        self, goals: list[tuple[BoundReward, tuple[Schedule, ...]]], decoder: Decoder, horizon: int | None = None
    ) -> None:
        self.goals, self.decoder = goals, decoder
        self.parts = [part for part, _ in goals]
        self.lipschitz = torch.full_like(self.parts[0].lipschitz, torch.inf)
        self._step_weights: Tensor | None = None
        if horizon is not None:
            every = np.ones(horizon)
            with np.errstate(over="ignore"):
                weights = [math.prod((one.weights(horizon) for one in own), start=every) for _, own in goals]
            self._step_weights = as_float64(np.stack(weights), decoder.scale.device)
            require_finite(self._step_weights, "weights of goals, times those of their steps")
            self.lipschitz = self._total(*(part.lipschitz for part in self.parts), trailing=1)

    @property
    def step_weights(self) -> Tensor:
        """How often each part counts at each step [J, T]."""
        assert self._step_weights is not None, "the length of the episode is said by `over`"
        return self._step_weights

    def over(self, horizon: int) -> BoundGoals:
        """As `BoundReward.over` asks."""
        return BoundGoals(self.goals, self.decoder, horizon)

    @property
    def single_steps(self) -> BoundReward:
        """As `BoundReward.single_steps` asks."""
        return BoundTotal(self.parts, self.decoder)

    def __call__(self, states: Tensor, actions: Tensor, steps: Tensor | int | None = None) -> Tensor:
        """Rewards [...], as `BoundReward` says."""
        assert steps is not None, "a goal must know which steps it is asked about"
        values = [part(states, actions) for part in self.parts]
        return torch.stack([weighted(w[steps], v) for w, v in zip(self.step_weights, values, strict=True)]).sum(0)

    def _total(self, *values: Tensor, trailing: int = 0) -> Tensor:
        """The sum over parts of values [..., T], or [A] and [..., T, D] where an axis is `trailing`, as they count."""
        weights = self.step_weights.view(*self.step_weights.shape, *[1] * trailing)
        return torch.stack([weighted(w, v) for w, v in zip(weights, values, strict=True)]).sum(0)

    def steepness(self, states: Tensor) -> Tensor:
        """As `BoundReward.steepness` asks."""
        return self._total(*(part.steepness(states) for part in self.parts))

    @property
    def levels_off(self) -> bool:
        """As `BoundReward.levels_off` asks."""
        return any(part.levels_off for part in self.parts)

    def largest(self, ranges: Tensor | None = None) -> Tensor:
        """As `BoundReward.largest` asks."""
        return self._total(*(part.largest(ranges) for part in self.parts), trailing=1)

    def weights(self, states: Tensor) -> Tensor | None:
        """As `BoundReward.weights` asks."""
        weights = [part.weights(states) for part in self.parts]
        known = [weight for weight in weights if weight is not None]
        return self._total(*known, trailing=1) if len(known) == len(weights) else None

    def is_flat(self) -> bool:
        """As `BoundReward.is_flat` asks."""
        return all(part.is_flat() for part in self.parts)


def goals_of(reward: BoundReward) -> list[tuple[BoundReward, tuple[Schedule, ...]]]:
    """The parts of a reward, each with the schedules by which it counts: all of them, multiplied."""
    if isinstance(reward, BoundGoals):
        return reward.goals
    return [(part, ()) for part in (reward.parts if isinstance(reward, BoundTotal) else [reward])]


def weighted(weights: Tensor, values: Tensor) -> Tensor:
    """Values times weights; nothing where a step does not count, whatever the value."""
    return torch.where(weights == 0, 0.0, weights * values)


def require_finite(numbers: Tensor, what: str) -> None:
    """Refuse products of numbers that are reasonable one by one, and beyond any number together."""
    if not bool(numbers.isfinite().all()):
        raise InputError(f"reward: {what}, are beyond the largest number there is; write smaller ones.")


def as_float64(values: np.ndarray[Any, np.dtype[np.float64]], device: torch.device | str) -> Tensor:
    """Values as a tensor of float64 on a device."""
    return torch.as_tensor(values, dtype=torch.float64, device=device)
