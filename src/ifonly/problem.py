"""The counterfactual question, fully determined: abduct the noise once, then replay under other actions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.constraints import BoolArray, Constraints, changes_to_go, count_sequences, nearest_sequence
from ifonly.episodes.episode import Episode, FloatArray, IntArray
from ifonly.episodes.plain import as_number
from ifonly.errors import InputError, ReplayError
from ifonly.models.base import TransitionModel
from ifonly.rewards import BoundReward, Reward

REPLAY_TOLERANCE = 1e-6
"""How far, in scaled units, a replayed state may lie from the observed one."""


def array_scale(device: torch.device) -> int:
    """How many times larger arrays may be than is best on a processor, whose caches are small."""
    return 1 if device.type == "cpu" else 64


@dataclass(frozen=True, eq=False)
class Problem:
    """Among all action sequences that differ from the observed one in at most `max_changes` steps: which is best?

    Build it with `Problem.from_episode`. Tensors are float64, in the model's scaled coordinates, on one device.
    """

    episode: Episode
    model: TransitionModel
    reward: Reward
    bound_reward: BoundReward
    observed_states: Tensor  # [T, D]
    observed_actions: Tensor  # [T]
    context: Tensor  # [T, C]
    noise: Tensor  # [T-1, D]
    allowed: Tensor  # [T, A], true where an action may be taken; for the observed one too, unless another is required
    max_changes: int
    links: Tensor | None = None  # [T, A, A], links[t, a, b]: b may follow a at step t; None: anything may follow
    change_cost: float = 0.0
    """Reward lost for every step that differs from the observed one; part of `rewards`."""
    constraints: Constraints | None = None
    _mask: BoolArray | None = field(default=None, repr=False)
    """The actions allowed [T, A] before the constraints; None: every one."""

    @classmethod
    def from_episode(
        cls,
        episode: Episode,
        model: TransitionModel,
        reward: Reward,
        max_changes: int | None,
        *,
        constraints: Constraints | None = None,
        allowed: npt.ArrayLike | None = None,
        last_action_fixed: bool = False,
        change_cost: float = 0.0,
        device: torch.device | str = "cpu",
    ) -> Problem:
        """Abduct the episode's noise and check that replaying the observed actions gives the observed states back.

        `constraints` are rules in words; `allowed` [T, A] restricts the actions per step, and the observed action must
        stay allowed. `max_changes=None` means no limit. `last_action_fixed` keeps the last step's action (a
        discharge). `change_cost` is the reward lost for every step that differs.
        """
        model.schema.require_same(episode.schema, here="the model", there=f"episode {episode.id!r}")
        frozen = model if model.is_for_search(device) else model.for_search(device)
        columns = frozen.scaler

        def tensor(values: FloatArray) -> Tensor:
            return torch.as_tensor(values, dtype=torch.float64, device=device)

        states = tensor(columns.states.encode(episode.states))
        context = tensor(columns.context.encode(episode.context))
        actions = torch.as_tensor(np.array(episode.actions), device=device)
        noise = frozen.abduct(states[:-1], context[:-1], actions[:-1], states[1:])
        if not torch.isfinite(noise).all():
            step = int((~torch.isfinite(noise)).any(-1).nonzero()[0])
            raise ReplayError(
                f"episode {episode.id!r}, step {step}: the model finds no finite noise that explains the transition; "
                "the state lies outside what the model can produce, or the model is broken."
            )
        problem = cls(
            episode=episode,
            model=frozen,
            reward=reward,
            bound_reward=reward.bind(episode.schema, frozen.scaler, device),
            observed_states=states,
            observed_actions=actions,
            context=context,
            noise=noise,
            allowed=torch.empty(0),
            max_changes=_checked_changes(max_changes, len(episode)),
            change_cost=_checked_cost(change_cost),
            _mask=_allowed_mask(episode, allowed, last_action_fixed),
        ).with_constraints(constraints)
        problem._check_replay()
        problem._check_reward()
        return problem

    def with_constraints(self, constraints: Constraints | None) -> Problem:
        """The same question under other rules; what was abducted is kept."""
        if constraints is not None and not isinstance(constraints, Constraints):
            raise InputError(f"constraints must be Constraints(...) or None, not {constraints!r}.")
        shape = (self.horizon, len(self.episode.schema.actions))
        allowed = np.ones(shape, dtype=bool) if self._mask is None else self._mask
        links = None
        if constraints is not None:
            allowed = allowed & constraints.allowed(self.episode)
            links = constraints.links(self.episode)
        changed = replace(
            self,
            constraints=constraints,
            allowed=torch.tensor(allowed, device=self.device),
            links=None if links is None else torch.tensor(links, device=self.device),
        )
        changed._check_feasible()
        return changed

    @property
    def horizon(self) -> int:
        """Number of steps, T."""
        return len(self.observed_actions)

    @property
    def action_count(self) -> int:
        """Number of actions, A."""
        return self.allowed.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.observed_states.device

    @cached_property
    def observed_outcome(self) -> float:
        """The outcome of the observed actions."""
        return float(self.rollout(self.observed_actions.unsqueeze(0))[1][0])

    @cached_property
    def tolerance(self) -> float:
        """Differences in outcome up to this size are rounding: far above float64 noise, far below anything of interest.

        It grows with the size of the rewards (what sums of them lose) and with their slopes (what states lose).
        """
        sizes = self.bound_reward(self.observed_states.unsqueeze(1), self._every_action()).abs() + self.change_cost
        sizes = torch.where(self.allowed & sizes.isfinite(), sizes, 0.0)
        slopes = float(self.bound_reward.lipschitz.max())
        return 1e-14 * float(sizes.amax(1).sum()) + 1e-11 * self.horizon * slopes

    def with_max_changes(self, max_changes: int | None) -> Problem:
        """The same question with another budget."""
        changed = replace(self, max_changes=_checked_changes(max_changes, self.horizon))
        changed._check_feasible()
        return changed

    def on(self, device: torch.device | str, model: TransitionModel) -> Problem:
        """The same question on another device, where `model` is the frozen copy of this one's model.

        Many problems are built quicker on a processor and then moved: a GPU is slow at single small steps.
        """
        return replace(
            self,
            model=model,
            bound_reward=self.reward.bind(self.episode.schema, model.scaler, device),
            observed_states=self.observed_states.to(device),
            observed_actions=self.observed_actions.to(device),
            context=self.context.to(device),
            noise=self.noise.to(device),
            allowed=self.allowed.to(device),
            links=None if self.links is None else self.links.to(device),
        )

    def step(self, t: int, states: Tensor, actions: Tensor) -> Tensor:
        """States [..., D] at t+1, had `actions` [...] been taken at `states` [..., D] at t, under the same noise."""
        return self.model.step(states, self.context[t], actions, self.noise[t])

    def rewards(self, t: int, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [...] at step t, less the cost of a change."""
        rewards = self.bound_reward(states, actions)
        if self.change_cost:
            rewards = rewards - (actions != self.observed_actions[t]).to(rewards.dtype) * self.change_cost
        return rewards

    def rewards_all(self, t: int, states: Tensor) -> Tensor:
        """Rewards [N, A] of every action at each of `states` [N, D]."""
        return self.rewards(t, states.unsqueeze(1), self._every_action())

    def _every_action(self) -> Tensor:
        return torch.arange(self.action_count, device=self.device)

    @cached_property
    def must_change(self) -> Tensor:
        """The steps [T] at which the observed action is not allowed, since another one is required."""
        return ~self.allowed.gather(1, self.observed_actions.unsqueeze(1)).squeeze(1)

    @cached_property
    def is_restricted(self) -> bool:
        """Whether more than `allowed` and `max_changes` decides what is admissible: links, or required changes."""
        return self.links is not None or bool(self.must_change.any())

    @cached_property
    def changes_to_go(self) -> Tensor:
        """The fewest changes [T, A] after step t of any admissible continuation of an action there; over T: none is."""
        return torch.as_tensor(changes_to_go(*self._rules()), device=self.device)

    @cached_property
    def nearest_actions(self) -> Tensor:
        """The admissible sequence [T] with the fewest changes: the observed one, unless changes are required."""
        sequence = nearest_sequence(*self._rules())
        assert sequence is not None, "checked when the problem was built"
        return torch.as_tensor(sequence, device=self.device)

    def _rules(self) -> tuple[BoolArray, BoolArray | None, IntArray]:
        links = None if self.links is None else self.links.cpu().numpy()
        return self.allowed.cpu().numpy(), links, self.episode.actions

    def admissible(self, sequences: Tensor) -> Tensor:
        """Which sequences [B, T] use allowed actions and links only, and no more than `max_changes` changes [B]."""
        steps = torch.arange(self.horizon, device=self.device)
        fine = self.allowed[steps, sequences].all(-1) & (self.changes(sequences) <= self.max_changes)
        if self.links is not None:
            fine &= self.links[steps[1:], sequences[:, :-1], sequences[:, 1:]].all(-1)
        return fine

    def alternatives(self, t: int) -> Tensor:
        """The allowed actions at step t other than the observed one [n]."""
        mask = self.allowed[t].clone()
        mask[self.observed_actions[t]] = False
        return mask.nonzero().squeeze(-1)

    def rollout(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """States [B, T, D] and outcomes [B] of action sequences [B, T]."""
        states = self.observed_states[0].expand(len(actions), -1)
        path = [states]
        outcomes = self.rewards(0, states, actions[:, 0])
        for t in range(self.horizon - 1):
            states = self.step(t, states, actions[:, t])
            path.append(states)
            outcomes = outcomes + self.rewards(t + 1, states, actions[:, t + 1])
        return torch.stack(path, dim=1), outcomes

    def outcome(self, actions: npt.ArrayLike | Tensor) -> float:
        """The outcome of one action sequence [T], in the reward's units."""
        sequence = actions if isinstance(actions, Tensor) else torch.as_tensor(np.array(actions), device=self.device)
        known = (sequence >= 0) & (sequence < self.action_count)
        if sequence.shape != (self.horizon,) or sequence.is_floating_point() or not known.all():
            raise InputError(
                f"an action sequence must be {self.horizon} whole numbers from 0 to {self.action_count - 1}; "
                f"found {sequence.tolist()}."
            )
        return float(self.rollout(sequence.unsqueeze(0))[1][0])

    def require_finite(self, outcomes: Tensor) -> None:
        """Refuse outcomes [...] of which none could be called best. (Minus infinity is merely bad.)"""
        if outcomes.isnan().any() or (outcomes == torch.inf).any():
            raise InputError(
                f"episode {self.episode.id!r}: a counterfactual sequence has an outcome that is NaN or infinite, so "
                "none can be called best; restrict `allowed`, or use a model and a reward that do not overflow."
            )

    def changes(self, actions: Tensor) -> Tensor:
        """In how many steps each sequence [..., T] differs from the observed one [...]."""
        return (actions != self.observed_actions).sum(-1)

    def decode(self, states: Tensor) -> FloatArray:
        """Scaled states [..., D] in original units."""
        return self.model.scaler.states.decode(states.cpu().numpy())

    def sequence_count(self) -> int:
        """How many action sequences are admissible: the size of what exhaustive search must enumerate."""
        return count_sequences(*self._rules(), self.max_changes)

    def _check_feasible(self) -> None:
        nearest = nearest_sequence(*self._rules())
        if nearest is None:
            raise InputError(
                f"episode {self.episode.id!r}: the constraints contradict each other or `allowed`: no action "
                "sequence satisfies all of them; drop a requirement or widen a limit."
            )
        needed = int((nearest != self.episode.actions).sum())
        if needed > self.max_changes:
            raise InputError(
                f"episode {self.episode.id!r}: the constraints require at least {needed} changes, but "
                f"max_changes={self.max_changes}; allow more changes or require fewer."
            )

    def _check_replay(self) -> None:
        states, outcomes = self.rollout(self.observed_actions.unsqueeze(0))
        errors = (states[0] - self.observed_states).abs()
        scale = self.observed_states.abs().clamp(min=1.0)
        wrong = ~(errors <= REPLAY_TOLERANCE * scale)
        if wrong.any():
            step, feature = (int(i) for i in wrong.nonzero()[0])
            raise ReplayError(
                f"episode {self.episode.id!r}, step {step}: replaying the observed actions misses the observed "
                f"{self.episode.schema.dynamic[feature].name} by {float(errors[step, feature]):.3g} scaled units "
                f"(at most {REPLAY_TOLERANCE:g} is accepted); the model's abduct does not invert its step."
            )
        if not outcomes.isfinite().all():
            raise InputError(
                f"episode {self.episode.id!r}: the observed outcome is {float(outcomes[0])}; the reward must be finite "
                "at every recorded state and action."
            )

    def _check_reward(self) -> None:
        """A reward must give one number per state and action, whatever else is in the batch."""
        together = self.bound_reward(self.observed_states, self.observed_actions)
        pairs = zip(self.observed_states, self.observed_actions, strict=True)
        alone = torch.stack([self.bound_reward(*pair) for pair in pairs])
        if together.shape != alone.shape or not torch.allclose(together, alone, rtol=1e-9, atol=1e-12):
            raise InputError(
                f"episode {self.episode.id!r}: the reward of a step changes with what else is in the batch; it must "
                "map states [..., D] and actions [...] to one number each [...], row by row."
            )


def _checked_changes(max_changes: Any, horizon: int) -> int:
    if max_changes is None:
        return horizon
    if isinstance(max_changes, bool) or not isinstance(max_changes, int | np.integer) or max_changes < 0:
        raise InputError(f"max_changes={max_changes!r}: must be a whole number of at least 0, or None for no limit.")
    return min(int(max_changes), horizon)


def _checked_cost(change_cost: Any) -> float:
    cost = as_number("change_cost", change_cost)
    if cost < 0:
        raise InputError(f"change_cost={change_cost!r}: must not be negative; it is the reward lost for every change.")
    return cost


def _allowed_mask(episode: Episode, allowed: npt.ArrayLike | None, last_action_fixed: bool) -> BoolArray:
    shape = (len(episode), len(episode.schema.actions))
    where = f"episode {episode.id!r}: allowed"
    if allowed is None:
        mask = np.ones(shape, dtype=bool)
    else:
        mask = np.array(allowed)
        if mask.shape != shape or mask.dtype != np.bool_:
            raise InputError(
                f"{where} must be a table of true and false [T, A] = {list(shape)}; found {mask.dtype} "
                f"{list(mask.shape)}."
            )
    steps = np.arange(len(episode))
    if last_action_fixed:
        mask[-1] = False
        mask[-1, episode.actions[-1]] = True
    forbidden = np.flatnonzero(~mask[steps, episode.actions])
    if forbidden.size:
        raise InputError(
            f"{where} forbids the action observed at step {int(forbidden[0])}; the recorded sequence must stay "
            "admissible (it is the answer with zero changes); to demand a change, use constraints."
        )
    return mask
