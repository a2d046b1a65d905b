"""The paper's bound: values at anchors, carried to any state by Lipschitz constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ifonly.bounds.anchors import Anchors
from ifonly.bounds.base import UpperBound
from ifonly.errors import InputError
from ifonly.models.layers import ROUNDING
from ifonly.problem import Problem
from ifonly.progress import Progress, Tick, silent

PAIRS_PER_BLOCK = 2**17
"""State-anchor pairs handled at a time: a megabyte of distances, which stays in the processor's cache."""
PAIRS_PER_BLOCK_GPU = 2**26

CHILDREN_PER_BLOCK = 50_000
"""Children held in memory at a time."""


def value_constants(problem: Problem) -> Tensor:
    """L_t [T] with |V(s, l, t) - V(s', l, t)| <= L_t |s - s'| for every number l of changes used (lem:lipschitz).

    L_{T-1} = C and L_t = C + L_{t+1} K_{u_t}, C and K maximised over the actions allowed at step t.
    """
    actions = torch.arange(problem.action_count, device=problem.device)
    transition = problem.model.lipschitz(problem.context[:-1, None], actions, problem.noise[:, None])
    transition = transition.expand(problem.horizon - 1, problem.action_count)
    slopes = torch.where(problem.allowed[:-1], transition, 0.0).amax(1)
    rewards = torch.where(problem.allowed, problem.bound_reward.lipschitz, 0.0).amax(1)
    constants = [rewards[-1]]
    for slope, reward in zip(slopes.flip(0), rewards[:-1].flip(0), strict=True):
        constants.append((reward + constants[-1] * slope) * (1 + ROUNDING))
    values = torch.stack(constants).flip(0)
    if not torch.isfinite(values).all():
        raise InputError(
            f"episode {problem.episode.id!r}: the Lipschitz constants of the model or the reward are not finite, so "
            "the anchor bound says nothing; fit with a Lipschitz limit, or use another solver."
        )
    return values


@dataclass(frozen=True)
class Children:
    """What follows N nodes at one step: n actions each, the observed one first."""

    actions: Tensor  # [n]
    states: Tensor  # [N, n, D], at the next step
    rewards: Tensor  # [N, n], earned by the action
    bounds: Tensor  # [N, n], the reward plus a bound on all that can follow


class AnchorBound(UpperBound):
    """Upper bounds at the anchors of every step (alg:dp), extended to all states (eq:heuristic).

    `values[t]` [k+1, M_t] bounds V at the anchors of step t. Only the anchors of step t+1 are ever read at step t,
    so each step may have its own (or all the same: `anchors.shared()`, as in the paper). Costs O(k A M_t M_{t+1} D)
    per step.
    """

    method = "Lipschitz anchors"

    def __init__(
        self,
        problem: Problem,
        anchors: Anchors,
        constants: Tensor,
        *,
        progress: Progress = silent,
        on_block: Callable[[], None] = lambda: None,
    ) -> None:
        """Fill the table backwards; `on_block` is called often while it is filled, and may raise to stop."""
        self.problem = problem
        self.anchors = anchors
        self.constants = constants
        self._on_block = on_block
        last = problem.horizon - 1
        self.values: list[Tensor] = [torch.empty(0)] * problem.horizon
        for t in range(last, -1, -1):
            self.values[t] = self._backup(t, anchors.points[t])
            progress(Tick("bounds", problem.horizon - t, problem.horizon, {"anchors": len(anchors.points[t])}))
        self._on_block = lambda: None

    def __call__(self, t: int, states: Tensor, changes_used: Tensor) -> Tensor:
        """The heuristic [N] of eq:heuristic; 0 beyond the last step."""
        if t == self.problem.horizon:
            return torch.zeros(len(states), dtype=torch.float64, device=states.device)
        levels = self._backup(t, states)
        return levels.gather(0, changes_used.unsqueeze(0)).squeeze(0)

    def reach(self, t: int, states: Tensor, levels: range) -> Tensor:
        """min over anchors of value + L_t distance, [N, len(levels)]: itself a bound on V at step t."""
        anchors, slope = self.anchors.points[t], self.constants[t]
        values = self.values[t][levels.start : levels.stop]
        bounds = torch.empty(len(states), len(levels), dtype=torch.float64, device=states.device)
        pairs = PAIRS_PER_BLOCK if states.device.type == "cpu" else PAIRS_PER_BLOCK_GPU
        rows = max(1, pairs // len(anchors))
        for start in range(0, len(states), rows):
            # Exact distances: the default matrix form is off by up to 5e-4 in float32, and too small.
            distance = torch.cdist(
                states[start : start + rows], anchors, compute_mode="donot_use_mm_for_euclid_dist"
            ).mul_(slope * (1 + ROUNDING))
            for column in range(len(levels)):
                bounds[start : start + rows, column] = (distance + values[column]).amin(1)
            self._on_block()
        return unknown_as_infinite(bounds)

    def children(self, t: int, states: Tensor, changes_used: int) -> Children:
        """The children of states [N, D] at step t < T-1 that all have `changes_used` changes behind them."""
        problem = self.problem
        spent = changes_used == problem.max_changes
        actions, following, rewards = self._edges(t, states, observed_only=spent)
        bounds = rewards.clone()
        bounds[:, :1] += self.reach(t + 1, following[:, 0], range(changes_used, changes_used + 1))
        if len(actions) > 1:
            others = self.reach(t + 1, following[:, 1:].flatten(0, 1), range(changes_used + 1, changes_used + 2))
            bounds[:, 1:] += others.view(len(states), -1)
        return Children(actions, following, rewards, bounds)

    def _edges(self, t: int, states: Tensor, *, observed_only: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Available actions [n], the observed one first, next states [N, n, D] and rewards [N, n]."""
        problem = self.problem
        actions = problem.observed_actions[t : t + 1]
        if not observed_only:
            actions = torch.cat([actions, problem.alternatives(t)])
        following = problem.step(t, states.unsqueeze(1), actions)
        return actions, following, problem.rewards(t, states.unsqueeze(1), actions)

    def _backup(self, t: int, states: Tensor) -> Tensor:
        """Bounds [k+1, N] at states [N, D]: the best action by what it reaches."""
        if t == self.problem.horizon - 1:
            return last_step_values(self.problem, states)
        return torch.cat(
            [
                self._backup_block(t, block)
                for block in states.split(max(1, CHILDREN_PER_BLOCK // self.problem.action_count))
            ],
            dim=1,
        )

    def _backup_block(self, t: int, states: Tensor) -> Tensor:
        budget = self.problem.max_changes
        actions, following, rewards = self._edges(t, states, observed_only=budget == 0)
        values = (rewards[:, :1] + self.reach(t + 1, following[:, 0], range(budget + 1))).mT
        if len(actions) > 1:
            reached = self.reach(t + 1, following[:, 1:].flatten(0, 1), range(1, budget + 1))
            changed = (rewards[:, 1:, None] + reached.view(len(states), -1, budget)).amax(1).mT
            values[:budget] = torch.maximum(values[:budget], changed)
        return values

    def details(self) -> Mapping[str, Any]:
        """Sizes and constants."""
        return {"anchors": self.anchors.total, "constants": [float(value) for value in self.constants]}


def last_step_values(problem: Problem, states: Tensor) -> Tensor:
    """V at the last step [k+1, N], exactly: the best allowed reward, or the observed action's with no change left."""
    t = problem.horizon - 1
    rewards = problem.rewards_all(t, states)
    observed = rewards[:, problem.observed_actions[t]]
    best = rewards.masked_fill(~problem.allowed[t], -torch.inf).amax(1)
    return torch.stack([best] * problem.max_changes + [observed])


def unknown_as_infinite(bounds: Tensor) -> Tensor:
    """NaN, where states or rewards overflowed, turned into infinity: comparisons with NaN would prune silently."""
    return torch.where(bounds.isnan(), torch.inf, bounds)
