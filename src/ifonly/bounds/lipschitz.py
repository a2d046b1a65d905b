"""The paper's bound: values at anchors, carried to any state by Lipschitz constants.

Equation numbers are those of docs/theory.md, labels those of the paper. All numbers are float64; constants and
distances are enlarged by a relative ROUNDING.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ifonly.bounds.anchors import Anchors, AnchorStrategy, MonteCarlo
from ifonly.bounds.base import ChildBound, Nodes, UpperBound, unknown_as_infinite
from ifonly.errors import InputError
from ifonly.models.layers import ROUNDING
from ifonly.problem import Problem
from ifonly.progress import Progress, Tick, look_at_clock, silent

PAIRS_PER_BLOCK = 2**17
"""State-anchor pairs handled at a time: a megabyte of distances, which stays in the processor's cache."""
PAIRS_PER_BLOCK_GPU = 2**26

CHILDREN_PER_BLOCK = 50_000
"""Children held in memory at a time."""


def value_constants(problem: Problem) -> Tensor:
    """L_t [T] with |V(s, l, t) - V(s', l, t)| <= L_t |s - s'| for every number l of changes used (lem:lipschitz).

    (L2): L_{T-1} = C and L_t = C + L_{t+1} K_t, C and K_t maximised over the actions allowed at step t.
    """
    actions = torch.arange(problem.action_count, device=problem.device)
    transition = problem.model.lipschitz(problem.context[:-1, None], actions, problem.noise[:, None])
    transition = transition.expand(problem.horizon - 1, problem.action_count)
    slopes = torch.where(problem.allowed[:-1], transition, 0.0).amax(1)
    rewards = torch.where(problem.allowed, problem.reward_constants, 0.0).amax(1)
    constants = [rewards[-1]]
    for slope, reward in zip(slopes.flip(0), rewards[:-1].flip(0), strict=True):
        constants.append((reward + constants[-1] * slope) * (1 + ROUNDING))  # (L2)
    values = torch.stack(constants).flip(0)
    if not torch.isfinite(rewards).all():
        raise InputError(
            f"episode {problem.episode.id!r}: the reward has no finite Lipschitz constant in the model's coordinates, "
            "as where it counts a feature on a logarithmic scale, so that the anchor bound says nothing; use branch "
            "and bound, whose other bounds need none."
        )
    if not torch.isfinite(values).all():
        raise InputError(
            f"episode {problem.episode.id!r}: the Lipschitz constants of the model, multiplied along the episode, are "
            "not finite, so that the anchor bound says nothing; fit with a Lipschitz limit, or use branch and bound, "
            "whose other bounds need none."
        )
    return values


@dataclass(frozen=True)
class Children:
    """What follows N nodes at one step: n actions each, the recorded one first."""

    actions: Tensor  # [n]
    states: Tensor  # [N, n, D], at the next step
    rewards: Tensor  # [N, n], earned by the action
    bounds: Tensor  # [N, n], the reward plus a bound on all that can follow


class AnchorBound(UpperBound):
    """Upper bounds at the anchors of every step (alg:dp), extended to all states (eq:heuristic): (L3) and (L4).

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
    ) -> None:
        """Fill the table backwards."""
        self.problem = problem
        self.anchors = anchors
        self.constants = constants
        last = problem.horizon - 1
        self.values: list[Tensor] = [torch.empty(0)] * problem.horizon
        for t in range(last, -1, -1):
            self.values[t] = self._backup(t, anchors.points[t])
            progress(Tick("bounds", problem.horizon - t, problem.horizon, {"anchors": len(anchors.points[t])}))

    def __call__(self, t: int, states: Tensor, changes_used: Tensor) -> Tensor:
        """The heuristic [N] of (L4), eq:heuristic; 0 beyond the last step."""
        if t == self.problem.horizon:
            return torch.zeros(len(states), dtype=torch.float64, device=states.device)
        levels = self._backup(t, states)
        return levels.gather(0, changes_used.unsqueeze(0)).squeeze(0)

    def reach(self, t: int, states: Tensor, levels: range) -> Tensor:
        """(L3): min over anchors of value + L_t distance, [N, len(levels)]; itself a bound on V at step t."""
        anchors, slope = self.anchors.points[t], self.constants[t]
        values = self.values[t][levels.start : levels.stop]
        bounds = torch.empty(len(states), len(levels), dtype=torch.float64, device=states.device)
        pairs = PAIRS_PER_BLOCK if states.device.type == "cpu" else PAIRS_PER_BLOCK_GPU
        rows = max(1, pairs // len(anchors))
        for start in range(0, len(states), rows):
            # Explicit differences: the default matrix form cancels, and would give distances that are too small.
            distance = torch.cdist(
                states[start : start + rows], anchors, compute_mode="donot_use_mm_for_euclid_dist"
            ).mul_(slope * (1 + ROUNDING))
            for column in range(len(levels)):
                bounds[start : start + rows, column] = (distance + values[column]).amin(1)
            look_at_clock()
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
        """Available actions [n], the recorded one first, next states [N, n, D] and rewards [N, n]."""
        problem = self.problem
        actions = problem.observed_actions[t : t + 1]
        if not observed_only:
            actions = torch.cat([actions, problem.alternatives(t)])
        following = problem.step(t, states.unsqueeze(1), actions)
        return actions, following, problem.rewards(t, states.unsqueeze(1), actions)

    def _backup(self, t: int, states: Tensor) -> Tensor:
        """(L4): bounds [k+1, N] at states [N, D], the best action by what it reaches."""
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
        """Sizes and constants, and the precision of all numbers."""
        return {
            "anchors": self.anchors.total,
            "constants": [float(value) for value in self.constants],
            "precision": {"outcomes": "float64", "pruning": "float64", "rounding_margin": ROUNDING},
        }


def last_step_values(problem: Problem, states: Tensor) -> Tensor:
    """(L1) at the last step [k+1, N], exactly: the best allowed reward, or the recorded action's (no change left)."""
    t = problem.horizon - 1
    rewards = problem.rewards_all(t, states)
    observed = rewards[:, problem.observed_actions[t]]
    best = rewards.masked_fill(~problem.allowed[t], -torch.inf).amax(1)
    return torch.stack([best] * problem.max_changes + [observed])


class LipschitzChildBound(ChildBound):
    """(L5): what a node earned, the reward of a change, and the anchor bound at the state that follows.

    Raises `InputError` where the Lipschitz constants are not finite.
    """

    method = AnchorBound.method
    rests_on_constants = True

    def __init__(self, problems: Sequence[Problem], *, anchors: AnchorStrategy | None = None, seed: int = 0) -> None:
        strategy = anchors or MonteCarlo()
        self._problems = problems
        self._bounds = []
        for problem in problems:
            constants = value_constants(problem)
            generator = torch.Generator().manual_seed(seed)
            self._bounds.append(AnchorBound(problem, strategy.choose(problem, constants, generator), constants))

    def root(self) -> Tensor:
        """Every single change of the recorded sequences [P, K, T, A]."""
        first = self._problems[0]
        outcomes = [problem.observed_outcome for problem in self._problems]
        nodes = Nodes(
            level=0,
            problem=torch.arange(len(self._problems), device=first.device),
            start=torch.zeros(len(self._problems), dtype=torch.int64, device=first.device),
            states=torch.stack([problem.observed_states for problem in self._problems]),
            outcomes=torch.tensor(outcomes, dtype=torch.float64, device=first.device),
        )
        return self.children(nodes)

    def children(self, nodes: Nodes) -> Tensor:
        """Bounds [N, K - level, T, A], problem by problem: each has anchors of its own."""
        first = self._problems[0]
        shape = (len(nodes.problem), first.max_changes - nodes.level, first.horizon, first.action_count)
        bounds = torch.full(shape, -torch.inf, dtype=torch.float64, device=first.device)
        for number in nodes.problem.unique().tolist():
            rows = (nodes.problem == number).nonzero().squeeze(-1)
            for t in range(int(nodes.start[rows].min()), first.horizon):
                late = rows[nodes.start[rows] <= t]
                bounds[late, :, t] = self._at(self._bounds[number], nodes, late, t)
        return unknown_as_infinite(bounds)

    def _at(self, bound: AnchorBound, nodes: Nodes, rows: Tensor, t: int) -> Tensor:
        """Bounds [n, K - level, A] for changes at step t of nodes that may change there."""
        problem, level = bound.problem, nodes.level
        actions = problem.alternatives(t)
        states = nodes.states[rows, t]
        levels = range(level + 1, problem.max_changes + 1)
        bounds = torch.full(
            (len(rows), len(levels), problem.action_count), -torch.inf, dtype=torch.float64, device=problem.device
        )
        if not len(actions):
            return bounds
        earned = nodes.outcomes[rows] - _observed_rewards(problem, nodes.states[rows, t:], t)
        values = (earned.unsqueeze(1) + problem.rewards(t, states.unsqueeze(1), actions)).unsqueeze(1)  # (L5)
        if t < problem.horizon - 1:
            following = problem.step(t, states.unsqueeze(1), actions).flatten(0, 1)
            reached = bound.reach(t + 1, following, levels).view(len(rows), len(actions), -1)
            # More changes used means fewer left: the last level leaves none, which is the first entry.
            values = values + reached.flip(2).mT
        bounds[:, :, actions] = values.expand(-1, len(levels), -1)
        return bounds

    def details(self, problem: int = 0) -> Mapping[str, Any]:
        """Sizes and constants of one problem's anchors."""
        return self._bounds[problem].details()


def _observed_rewards(problem: Problem, states: Tensor, t: int) -> Tensor:
    """What the recorded actions earn from step t on [N], at `states` [N, T - t, D]."""
    rewards: Tensor = problem.free_rewards(slice(t, None), states, problem.observed_actions[t:]).sum(1)
    return rewards
