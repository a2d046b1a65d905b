"""The recorded paths that everything is expanded around."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.bounds.taylor.local_expansion import LocalExpansion, expand_step
from ifonly.models.smooth import SmoothStep
from ifonly.problem import Problem


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
    tangents: Tensor  # [P, T, D], w_t: slopes of the reward's tangents at the recorded path
    effects: Tensor  # [P, T-1, A, D], e: the next state under each action, less the recorded one

    @classmethod
    def of(cls, problems: Sequence[Problem], smooth: SmoothStep) -> RecordedPaths:
        """Replay the recorded actions, and every single action from the recorded states."""
        first = problems[0]
        actions = torch.stack([problem.observed_actions for problem in problems])
        context = torch.stack([problem.context for problem in problems])
        noise = torch.stack([problem.noise for problem in problems])
        current = torch.stack([problem.observed_states[0] for problem in problems])
        replayed = [current]
        for t in range(first.horizon - 1):
            current = first.model.step(current, context[:, t], actions[:, t], noise[:, t])
            replayed.append(current)
        states = torch.stack(replayed, dim=1)
        tangents = first.bound_reward.tangents(states)
        assert tangents is not None, "callers ask can_expand first"
        every = torch.arange(first.action_count, device=first.device)
        before, same_noise = states[:, :-1, None], noise[:, :, None]
        shape = (*before.shape[:2], first.action_count)
        following = first.model.step(
            before.expand(*shape, -1), context[:, :-1, None].expand(*shape, -1), every.expand(shape), same_noise
        )
        return cls(problems, smooth, actions, context, noise, states, tangents, following - states[:, 1:, None])

    def select(self, rows: Tensor) -> RecordedPaths:
        """Some of the problems."""
        arrays = (self.actions, self.context, self.noise, self.states, self.tangents, self.effects)
        chosen = (array[rows.to(array.device)] for array in arrays)
        return RecordedPaths([self.problems[row] for row in rows.tolist()], self.smooth, *chosen)

    def changes(self) -> Tensor:
        """The actions [P, T, A] that are allowed and differ from the recorded one."""
        allowed = torch.stack([problem.allowed for problem in self.problems])
        return allowed.scatter(2, self.actions.unsqueeze(-1), False)

    def expand_step(
        self, problem: Tensor, step: Tensor, action: Tensor, adjoint: Tensor, *, third: bool
    ) -> LocalExpansion:
        """Local expansions of single steps from recorded states: problems, steps and actions [N], adjoints [N, D]."""
        states, context, noise = (table[problem, step] for table in (self.states, self.context, self.noise))
        return expand_step(self.smooth, states, context, action, noise, adjoint, third=third)
