"""The recorded paths that everything is expanded around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ifonly.bounds.taylor.local_expansion import LocalExpansion, expand_step, no_step, with_reward
from ifonly.models.smooth import SmoothStep
from ifonly.problem import Problem
from ifonly.progress import look_at_clock
from ifonly.rewards.decoding import ValueCurve


@dataclass(frozen=True)
class RecordedPaths:
    """P problems that share model, reward, horizon and actions, stacked; the recorded path as the model replays it.

    All numbers are float64.
    """

    problems: Sequence[Problem]
    smooth: SmoothStep
    actions: Tensor  # [P, T], recorded
    context: Tensor  # [P, T, C]
    noise: Tensor  # [P, T-1, D], abducted
    states: Tensor  # [P, T, D], x_t
    rewards: ValueCurve  # [P, T, D], what touches the reward at the recorded path, and its derivatives (T57)
    has_curved_rewards: bool
    effects: Tensor  # [P, T-1, A, D], e: the next state under each action, less the recorded one

    @classmethod
    def of(cls, problems: Sequence[Problem], smooth: SmoothStep, *, both_sides: bool = False) -> RecordedPaths:
        """Replay the recorded actions, and every single action from the recorded states.

        With `both_sides`, what touches the reward is also nowhere below it, but for what remainders bound.
        """
        first = problems[0]
        actions = torch.stack([problem.observed_actions for problem in problems])
        context = torch.stack([problem.context for problem in problems])
        noise = torch.stack([problem.noise for problem in problems])
        current = torch.stack([problem.observed_states[0] for problem in problems])
        replayed = [current]
        for t in range(first.horizon - 1):
            look_at_clock()
            current = first.model.step(current, context[:, t], actions[:, t], noise[:, t])
            replayed.append(current)
        states = torch.stack(replayed, dim=1)
        rewards = first.bound_reward.expand(states, both_sides=both_sides)
        assert rewards is not None, "callers ask can_expand first"
        every = torch.arange(first.action_count, device=first.device)
        before, same_noise = states[:, :-1, None], noise[:, :, None]
        shape = (*before.shape[:2], first.action_count)
        following = first.model.step(
            before.expand(*shape, -1), context[:, :-1, None].expand(*shape, -1), every.expand(shape), same_noise
        )
        return cls(
            problems=problems,
            smooth=smooth,
            actions=actions,
            context=context,
            noise=noise,
            states=states,
            rewards=rewards,
            has_curved_rewards=not first.bound_reward.is_flat(),
            effects=following - states[:, 1:, None],
        )

    def select(self, rows: Tensor) -> RecordedPaths:
        """Some of the problems."""
        here = rows.to(self.actions.device)
        arrays = ("actions", "context", "noise", "states", "effects")
        return replace(
            self,
            problems=[self.problems[row] for row in rows.tolist()],
            rewards=self.rewards.take(here),
            **{name: getattr(self, name)[here] for name in arrays},
        )

    def changes(self) -> Tensor:
        """The actions [P, T, A] that are allowed and differ from the recorded one."""
        allowed = torch.stack([problem.allowed for problem in self.problems])
        return allowed.scatter(2, self.actions.unsqueeze(-1), False)

    def expand_step(
        self, problem: Tensor, step: Tensor, action: Tensor, adjoint: Tensor, *, third: bool
    ) -> LocalExpansion:
        """Local expansions of single steps from recorded states: problems, steps and actions [N], adjoints [N, D]."""
        states, context, noise = (table[problem, step] for table in (self.states, self.context, self.noise))
        expansion = expand_step(self.smooth, states, context, action, noise, adjoint, third=third)
        return expansion if not self.has_curved_rewards else with_reward(expansion, self.rewards.take((problem, step)))

    def expand_last_reward(self) -> LocalExpansion:
        """The reward of the last step alone [P, ...]: no step follows it."""
        return with_reward(no_step(self.states[:, -1]), self.rewards.take((slice(None), -1)))
