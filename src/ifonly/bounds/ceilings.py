"""What rewards cannot exceed, whatever the states, such as a whole step in range: (G2) of docs/theory.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ifonly.bounds.base import ChildBound, Nodes, unknown_as_infinite
from ifonly.problem import Problem

ROUNDING = 1e-14
"""What sums of rewards may be off by, as a share of their terms: far below the tolerance of outcomes."""


class CeilingBound(ChildBound):
    """The smaller of another bound and what is earned so far plus the most that the steps to come can earn (G2)."""

    has_reward_to_go = True

    def __init__(self, inner: ChildBound, problems: Sequence[Problem]) -> None:
        """`inner` is a bound for the same P problems."""
        self._inner, self._problems = inner, problems
        self.method, self.rests_on_constants = inner.method, inner.rests_on_constants
        self._most = torch.stack([problem.largest_rewards for problem in problems])  # [P, T, A]
        self._observed = torch.stack([problem.observed_actions for problem in problems])
        kept = self._most.gather(2, self._observed.unsqueeze(2)).squeeze(2)
        each = torch.stack([kept, self._most.amax(2)], dim=2)  # [P, T, 2], without a change and with one
        to_go = each.flip(1).cumsum(1).flip(1)
        self._to_go = torch.cat([to_go, torch.zeros_like(to_go[:, :1])], dim=1)  # [P, T+1, 2]

    def root(self) -> Tensor:
        """For the recorded sequences [P, K, T, A]."""
        states = torch.stack([problem.observed_states for problem in self._problems])
        every = torch.arange(len(states), device=states.device)
        outcomes = self._rewards(every, states).sum(1)
        return self._lowered(self._inner.root(), Nodes(0, every, torch.zeros_like(every), states, outcomes))

    def children(self, nodes: Nodes) -> Tensor:
        """Bounds [N, K - level, T, A]."""
        return self._lowered(self._inner.children(nodes), nodes)

    def reward_to_go(
        self, t: int, problem: Tensor, states: Tensor, changes_left: int, cutoff: Tensor | None = None
    ) -> Tensor:
        """Bounds [N, R + 1] on what is earned from step t on."""
        most = self._to_go[problem, t]
        most = torch.cat([most[:, :1], most[:, 1:].expand(-1, changes_left)], dim=1)
        if not self._inner.has_reward_to_go:
            return most
        return torch.minimum(self._inner.reward_to_go(t, problem, states, changes_left, cutoff), most)

    def details(self, problem: int = 0) -> Mapping[str, Any]:
        """Those of the other bound."""
        return self._inner.details(problem)

    def _rewards(self, problem: Tensor, states: Tensor) -> Tensor:
        """Rewards [N, T] of the recorded actions at states [N, T, D]."""
        return self._problems[0].free_rewards(slice(None), states, self._observed[problem])

    def _lowered(self, bounds: Tensor, nodes: Nodes) -> Tensor:
        """Bounds [N, R, T, A] of children, none above what the rewards to come allow."""
        rewards = self._rewards(nodes.problem, nodes.states)
        # Before the last change others were taken; what is said of those steps counts nowhere.
        to_come = rewards.flip(1).cumsum(1).flip(1)
        off = ROUNDING * (1 + nodes.outcomes.abs() + rewards.abs().sum(1))
        earned = (nodes.outcomes + off).unsqueeze(1) - to_come
        there = unknown_as_infinite(earned.unsqueeze(2) + self._most[nodes.problem])  # [N, T, A]
        after = self._to_go[nodes.problem, 1:].unbind(2)
        found = [there + after[later > 0].unsqueeze(2) for later in range(min(2, bounds.shape[1]))]
        return torch.minimum(bounds, torch.stack(found + found[1:] * (bounds.shape[1] - 2), dim=1))


def have_ceilings(problems: Sequence[Problem]) -> bool:
    """Whether the reward that problems share has ceilings such as searches can reach."""
    first = problems[0]
    return first.bound_reward.levels_off and math.isfinite(first.largest_outcome)


def with_ceilings(bound: ChildBound, problems: Sequence[Problem]) -> ChildBound:
    """The bound, below ceilings where there are any."""
    return CeilingBound(bound, problems) if have_ceilings(problems) else bound
