"""The base of all problems: an episode, a reward, and rules about which sequences are admissible."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.automaton import START, Automaton, completions, nearest_sequence
from ifonly.constraints import Constraints
from ifonly.data.episode import Episode, FloatArray
from ifonly.errors import FailedModelError, InputError
from ifonly.models.base import TransitionModel
from ifonly.models.standing import Standing
from ifonly.problem.batch import ProblemBatch
from ifonly.problem.support import Support
from ifonly.query import Query
from ifonly.rewards import Reward
from ifonly.rewards.bound import BoundReward
from ifonly.text.checks import refusal_message

AnyProblem = TypeVar("AnyProblem", bound="BaseProblem")

MOVED = ("observed_states", "observed_actions", "context", "noise", "allowed")
"""The tensors of a problem that every problem has, of one shape for one horizon."""

STATE_ROUNDING, RELATIVE_ROUNDING = 1e-11, 1e-12
"""(R2): how far rounding may move a replayed state, in scaled units, and relative to the terms that a step adds up."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BaseProblem(ABC):
    """Among all action sequences that differ from the observed one in at most `max_changes` steps: which is best?

    Tensors are float64, in scaled coordinates, on one device. A problem that is put to M models at once has states
    [..., M, D] and rewards [..., M]; put to one model, [..., D] and [...]. Below, [..., (M,)] stands for both.
    """

    episode: Episode
    query: Query
    bound_reward: BoundReward
    observed_states: Tensor  # [T, D]
    observed_actions: Tensor  # [T]
    context: Tensor  # [T, C]
    noise: Tensor  # [T-1, (M,) D]
    allowed: Tensor  # [T, A], true where an action may be taken; for the observed one too, unless another is required
    automaton: Automaton
    """All rules but the number of changes, on the CPU: `allowed`, and rules that depend on earlier actions."""
    support: Support | None = None
    """Which changes are admissible at the states that sequences reach; None: all."""
    standing: Standing | None = None
    """The conclusion of the check of the model (or ensemble); None if it was not checked."""

    @property
    @abstractmethod
    def models(self) -> tuple[TransitionModel, ...]:
        """The models behind the problem: one, or the members of an ensemble problem."""

    @property
    def members_shape(self) -> tuple[int, ...]:
        """(M,) for a problem that is put to M models at once; () for one."""
        return ()

    # The methods below are for one model; ensemble problems override them.

    def advance(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """The next states [..., (M,) D] from states, context [..., C], actions [...] and noise [..., (M,) D]."""
        return self.models[0].step(states, context, actions, noise)

    def counted(self, totals: Tensor) -> Tensor:
        """The outcomes [...] of sums of rewards [..., (M,)]."""
        return totals

    def are_supported(self, t: int, states: Tensor, context: Tensor) -> Tensor:
        """Which actions [N, A] are supported at states [N, (M,) D] of step t with context [N, C]."""
        if self.support is None:
            return torch.ones(len(states), self.action_count, dtype=torch.bool, device=self.device)
        # A support sees the recorded context only, not the columns that a model adds to it.
        return self.support.supported(t, states, context[..., : len(self.episode.schema.context)])

    def shown_states(self, states: Tensor, totals: Tensor) -> Tensor:
        """The states [..., T, D] to show for [..., T, (M,) D], where the sums of rewards are [..., (M,)]."""
        return states

    def fingerprint(self) -> str:
        """A hash of the model, or of the members."""
        return self.models[0].fingerprint()

    def claims(self) -> dict[str, Any]:
        """What a certificate must say about the problem, in plain types: the support that changes need."""
        return {} if self.support is None else {"support": dict(self.support.settings())}

    @abstractmethod
    def _answered_by(self, model: Any) -> dict[str, Any]:
        """The fields that hold the model or members, given the frozen `model`."""

    def on(self, device: torch.device | str, model: Any, *, support: Support | None = None) -> Self:
        """The same problem on another device, where `model` is the frozen copy of this one's model or members.

        `support` is the copy of the support there; without it, the support stays where it is and states are moved to
        it. It is faster to build many problems on the CPU and then move them: a GPU is slow at small single steps.
        """
        return all_on([self], device, model, support=support)[0]

    @property
    def reward(self) -> Reward:
        """What counts as better, in original units."""
        return self.query.reward

    @property
    def constraints(self) -> Constraints:
        """Which sequences may be considered, as the query says."""
        return self.query.constraints

    @property
    def change_cost(self) -> float:
        """Reward lost for every step that differs from the observed one; part of `rewards`."""
        return self.query.change_cost

    @property
    def max_changes(self) -> int:
        """How many steps may differ, K; at most T."""
        return self.query.budget(self.horizon)

    def with_query(self, **changes: Any) -> Self:
        """The same episode and noise under a query with some entries changed.

        Reward and support are bound when a problem is built, and one model has no objective: to change those, build
        another problem.
        """
        fixed = {"reward", "min_support"} if self.members_shape else {"reward", "min_support", "objective"}
        if bound := sorted(fixed & set(changes)):
            raise InputError(f"with_query: {bound[0]} was bound when the problem was built; build another problem.")
        changed = replace(self, query=self.query.with_changes(**changes))
        return changed if not {"constraints", "max_changes"} & set(changes) else changed._ruled()

    def with_constraints(self, constraints: Constraints) -> Self:
        """The same problem under other rules, with the same noise."""
        return self.with_query(constraints=constraints)

    def with_max_changes(self, max_changes: int | None) -> Self:
        """The same problem with another budget."""
        return self.with_query(max_changes=max_changes)

    def _ruled(self) -> Self:
        """With the rules of the query's constraints; refused if no sequence obeys them."""
        rules = self.constraints.automaton(self.episode, self.max_changes)
        changed = replace(self, automaton=rules, allowed=torch.tensor(rules.symbols > 0, device=self.device))
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

    @cached_property
    def steps(self) -> Tensor:
        """The numbers of all steps [T]."""
        return torch.arange(self.horizon, device=self.device)

    @cached_property
    def reward_constants(self) -> Tensor:
        """How fast the reward of each step and action can change with the state [T, A]."""
        return self.bound_reward.lipschitz.expand(self.horizon, self.action_count)

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

        It grows with the rewards (rounding of their sums), with their slopes, and with states and noise (rounding of
        replayed states): docs/theory.md, "Rounding of a replay", (R1) to (R3).
        """
        rewards = self.bound_reward(self.observed_states.unsqueeze(1), self._every_action(), self.steps.unsqueeze(1))
        sizes = rewards.abs() + self.change_cost
        sizes = torch.where(self.allowed & sizes.isfinite(), sizes, 0.0)
        slope = float(self.bound_reward.lipschitz.max())
        if math.isinf(slope):  # on a logarithmic scale slopes are unbounded: take ten times the recorded ones
            slope = 10 * float(self.bound_reward.steepness(self.observed_states).max())
        added = max(float(self.observed_states.abs().max()), float(self.noise.abs().max()))  # (R2)
        off = max(STATE_ROUNDING, RELATIVE_ROUNDING * added)
        return 1e-14 * float(sizes.amax(1).sum()) + off * self.horizon * slope  # (R3)

    @cached_property
    def largest_outcome(self) -> float:
        """A bound on the outcome of any sequence, whatever states it reaches; infinite if rewards are unbounded."""
        return self._sum_of_largest(self.largest_rewards)

    @cached_property
    def largest_rewards(self) -> Tensor:
        """What no reward can exceed [T, A], whatever the state, less the cost of a change; minus infinity where an
        action is neither allowed nor recorded."""
        return self._largest_rewards(None)

    @cached_property
    def plausible_outcome(self) -> float:
        """A bound on the outcome of any sequence whose states stay plausible; infinite if rewards are unbounded."""
        ends = [feature.plausible or (-math.inf, math.inf) for feature in self.episode.schema.dynamic]
        most = self._sum_of_largest(self._largest_rewards(self.observed_states.new_tensor(ends).mT))
        return min(most, self.largest_outcome)

    def _largest_rewards(self, ranges: Tensor | None) -> Tensor:
        changed = self._every_action() != self.observed_actions.unsqueeze(1)
        rewards = self.bound_reward.largest(ranges) - self.change_cost * changed.to(torch.float64)
        return rewards.masked_fill(changed & ~self.allowed, -torch.inf)

    def _sum_of_largest(self, rewards: Tensor) -> float:
        """An outcome that no sequence exceeds, from the largest rewards [T, A]."""
        return float(rewards.amax(1).sum()) + self.tolerance

    @property
    def first_states(self) -> Tensor:
        """The recorded first state, repeated for each model [(M,) D]."""
        return self.observed_states[0].expand(*self.members_shape, -1)

    def per_member(self, values: Tensor) -> Tensor:
        """Values [...], such as actions, reshaped to broadcast with states and rewards: [...] or [..., 1]."""
        return values.unsqueeze(-1) if self.members_shape else values

    def step(self, t: int, states: Tensor, actions: Tensor) -> Tensor:
        """States [..., (M,) D] at t+1, had `actions` [...] been taken at `states` at t, under the same noise."""
        return self.advance(states, self.context[t], actions, self.noise[t])

    def free_rewards(self, t: int | slice, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [..., (M,)] at step t, or [..., T, (M,)] at some steps, without the cost of changes."""
        steps = t if isinstance(t, int) else self.per_member(self.steps[t])
        return self.bound_reward(states, self.per_member(actions), steps)

    def rewards(self, t: int | slice, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [..., (M,)] at step t, or [..., T, (M,)] at some steps, less the cost of changes."""
        rewards = self.free_rewards(t, states, actions)
        if self.change_cost:
            changed = self.per_member(actions != self.observed_actions[t])
            rewards = rewards - changed.to(rewards.dtype) * self.change_cost
        return rewards

    def rewards_all(self, t: int, states: Tensor) -> Tensor:
        """Rewards [N, A, (M,)] of every action at each of `states` [N, (M,) D]."""
        return self.rewards(t, states.unsqueeze(1), self._every_action())

    def _every_action(self) -> Tensor:
        return torch.arange(self.action_count, device=self.device)

    @cached_property
    def must_change(self) -> Tensor:
        """The steps [T] at which the observed action is not allowed because another one is required."""
        return ~self.allowed.gather(1, self.observed_actions.unsqueeze(1)).squeeze(1)

    @cached_property
    def is_restricted(self) -> bool:
        """Whether there are rules beyond `allowed` and `max_changes`: some look back, or changes are required."""
        return self.automaton.looks_back or bool(self.must_change.any())

    @cached_property
    def nearest_actions(self) -> Tensor:
        """The sequence [T] with the fewest changes that obeys the rules: the observed one, unless changes are required.

        Changes that are required need not be supported.
        """
        sequence = nearest_sequence(self.automaton, self.episode.actions)
        assert sequence is not None, "checked when the problem was built"
        return torch.as_tensor(sequence, device=self.device)

    @cached_property
    def as_batch(self) -> ProblemBatch:
        """This problem as a batch of one, where everything that also works on many problems is computed."""
        return ProblemBatch([self])

    def _rows(self, sequences: Tensor) -> Tensor:
        """The index [B] of the only problem of the batch, for each of the sequences."""
        return torch.zeros(len(sequences), dtype=torch.int64, device=self.device)

    def obey_rules(self, sequences: Tensor) -> Tensor:
        """Which sequences [B, T] obey every rule and make at most `max_changes` changes [B]."""
        return self.as_batch.obey_rules(self._rows(sequences), sequences)

    def admissible(self, sequences: Tensor) -> Tensor:
        """Which sequences [B, T] obey the rules and change to supported actions only [B].

        If there is a support, sequences are replayed, since it judges the states that they reach.
        """
        fine = self.obey_rules(sequences)
        if self.support is not None and fine.any():
            rows = fine.nonzero().squeeze(-1)
            fine[rows] = self.have_support(sequences[rows], self.rollout(sequences[rows])[0])
        return fine

    def have_support(self, sequences: Tensor, states: Tensor) -> Tensor:
        """Whether every change of sequences [B, T], which reach states [B, T, (M,) D], is supported [B]."""
        return self.as_batch.have_support(self._rows(sequences), sequences, states)

    def alternatives(self, t: int) -> Tensor:
        """The allowed actions at step t other than the observed one [n]."""
        mask = self.allowed[t].clone()
        mask[self.observed_actions[t]] = False
        return mask.nonzero().squeeze(-1)

    def replay(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """States [B, T, (M,) D] and sums of rewards [B, (M,)] of action sequences [B, T]."""
        paths = self.as_batch.rollout(self._rows(actions), actions)
        return paths.states, paths.totals

    def rollout(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        """States [B, T, (M,) D] and outcomes [B] of action sequences [B, T]."""
        paths = self.as_batch.rollout(self._rows(actions), actions)
        return paths.states, paths.outcomes

    def outcome(self, actions: npt.ArrayLike | Tensor) -> float:
        """The outcome of one action sequence [T], in the reward's units."""
        return float(self.rollout(self.checked_sequence(actions).unsqueeze(0))[1][0])

    def checked_sequence(self, actions: npt.ArrayLike | Tensor) -> Tensor:
        """The sequence [T] on the problem's device; refused unless it is a sequence of the problem's actions."""
        sequence = actions if isinstance(actions, Tensor) else torch.as_tensor(np.array(actions), device=self.device)
        known = (sequence >= 0) & (sequence < self.action_count)
        if sequence.shape != (self.horizon,) or sequence.is_floating_point() or not known.all():
            raise InputError(
                f"an action sequence must be {self.horizon} whole numbers from 0 to {self.action_count - 1}; "
                f"found {sequence.tolist()}."
            )
        return sequence.to(self.device)

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
        return self.models[0].scaler.states.decode(states.cpu().numpy())

    def sequence_count(self, max_changes: int | None = None) -> int:
        """The number of sequences that obey the rules: the most that exhaustive search must enumerate; of those with at
        most `max_changes`, if fewer are asked about."""
        budget = self.max_changes if max_changes is None else max_changes
        return int(completions(self.automaton, self.episode.actions, budget)[0, START, -1])

    def _check_feasible(self) -> None:
        nearest = nearest_sequence(self.automaton, self.episode.actions)
        if nearest is None:
            raise InputError(
                f"episode {self.episode.id!r}: the constraints contradict each other: no action "
                "sequence satisfies all of them; drop a requirement or widen a limit."
            )
        needed = int((nearest != self.episode.actions).sum())
        if needed > self.max_changes:
            raise InputError(
                f"episode {self.episode.id!r}: the constraints require at least {needed} changes, but "
                f"max_changes={self.max_changes}; allow more changes or require fewer."
            )


def all_on(
    problems: Sequence[AnyProblem], device: torch.device | str, model: Any, *, support: Support | None = None
) -> list[AnyProblem]:
    """`on` for each of some problems with one model and query; those of one horizon are moved together."""
    reward = problems[0].reward.bind(problems[0].episode.schema, problems[0].models[0].scaler, device)
    moved: dict[int, AnyProblem] = {}
    for horizon in dict.fromkeys(problem.horizon for problem in problems):
        numbers = [number for number, problem in enumerate(problems) if problem.horizon == horizon]
        group, here = [problems[number] for number in numbers], reward.over(horizon)
        stacked = (torch.stack([getattr(problem, name) for problem in group]) for name in MOVED)
        tensors: list[Any] = [one.to(device).unbind() for one in stacked]
        for place, (number, problem) in enumerate(zip(numbers, group, strict=True)):
            moved[number] = replace(
                problem,
                bound_reward=here,
                support=problem.support if support is None else support,
                **{name: one[place] for name, one in zip(MOVED, tensors, strict=True)},
                **problem._answered_by(model),
            )
    return [moved[number] for number in range(len(problems))]


def checked_standing(standing: Standing | None, *, allow_failed_model: bool) -> Standing | None:
    """The standing itself; a model that failed its check is refused unless that is explicitly allowed."""
    if standing is not None and standing.failed and not allow_failed_model:
        words = refusal_message(standing.findings, "allow_failed_model=True, --allow-failed-model")
        raise FailedModelError(str(words), standing.findings)
    return standing
