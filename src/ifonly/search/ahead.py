"""A step ahead: candidates take one model step after their last change, and what follows is bounded from there.

That is sharper than any bound before the step, and cheaper than replaying what follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ifonly.bounds.base import ChildBound, unknown_as_infinite
from ifonly.problem.batch import Branches, Paths, ProblemBatch

Places = tuple[Tensor, Tensor, Tensor]
"""Rows of nodes, with the step and the action of a change of each."""


@dataclass(frozen=True)
class Rolled:
    """Nodes of one level, rolled out: what their children need."""

    level: int
    problem: Tensor  # [N]
    step: Tensor  # [N], of the last change; -1 at the root
    action: Tensor  # [N]
    sequences: Tensor  # [N, T], int16
    limits: Tensor  # [N, K+1], bounds known before
    paths: Paths

    def leave(self, rows: Tensor, step: Tensor) -> Branches:
        """Where some of the nodes are at some steps."""
        states, earned = self.paths.states[rows, step], self.paths.earned[rows, step]
        return Branches(self.problem[rows], self.sequences[rows], step, states, earned)


@dataclass(frozen=True)
class Followed:
    """What became of N branches: finished ones have outcomes, the others were given up."""

    outcomes: Tensor  # [N], minus infinity where given up
    bounds: Tensor  # [N], what a branch that was given up cannot exceed; minus infinity where finished
    steps: Tensor  # [N], model steps taken


def follow(questions: ProblemBatch, bound: ChildBound, branches: Branches, needed: Tensor) -> Followed:
    """Replay branches as long as they may still exceed what is needed [N]."""
    if not bound.has_reward_to_go:
        outcomes = questions.outcomes(branches)
        return Followed(outcomes, torch.full_like(outcomes, -torch.inf), questions.steps_from(branches))
    order = branches.step.argsort(stable=True)
    every_step = torch.arange(questions.horizon, device=order.device)
    joined = [0, *torch.searchsorted(branches.step[order], every_step, right=True).tolist()]
    outcomes = torch.full_like(needed, -torch.inf)
    bounds, last = torch.full_like(needed, -torch.inf), torch.full_like(branches.step, questions.horizon - 1)
    rows, states, earned = order[:0], branches.states[:0], branches.earned[:0]
    for t, (start, end) in enumerate(pairwise(joined)):
        new = order[start:end]
        rows = torch.cat((rows, new))
        states, earned = torch.cat((states, branches.states[new])), torch.cat((earned, branches.earned[new]))
        if not len(rows):
            continue
        problem, actions = branches.problem[rows], branches.sequences[rows, t].to(torch.int64)
        earned = earned + questions.rewards(t, problem, states, actions)
        if t == questions.horizon - 1:
            outcomes[rows] = questions.counted(earned)
            continue
        states = questions.step(t, problem, states, actions)
        most = questions.counted(earned.unsqueeze(1) + bound.reward_to_go(t + 1, problem, states, 0)).squeeze(1)
        hopeful = ~(most <= needed[rows])  # what is no number is not given up
        given_up = rows[~hopeful]
        bounds[given_up], last[given_up] = most[~hopeful], t + 1
        rows, states, earned = rows[hopeful], states[hopeful], earned[hopeful]
    return Followed(outcomes, bounds, last - branches.step)


def sharpened(
    questions: ProblemBatch, bound: ChildBound, branches: Branches, actions: Tensor, bounds: Tensor, needed: Tensor
) -> Tensor:
    """Bounds [N, R] for branches that take `actions` [N] where they leave, with 0 to R - 1 changes after that; as sharp
    as it takes to see which exceed what is needed [N, R]."""
    sharp = bounds.clone()
    for t in branches.step.unique().tolist():
        if t == questions.horizon - 1:
            continue
        rows = (branches.step == t).nonzero().squeeze(-1)
        for part in rows.split(questions.rows):
            problem, taken, states = branches.problem[part], actions[part], branches.states[part]
            earned = branches.earned[part] + questions.rewards(t, problem, states, taken)
            following = questions.step(t, problem, states, taken)
            missing = needed[part] - earned.unsqueeze(1) if earned.dim() == 1 else None  # of no single member
            later = bound.reward_to_go(t + 1, problem, following, bounds.shape[1] - 1, missing)
            most = unknown_as_infinite(questions.counted(earned.unsqueeze(1) + later))
            sharp[part] = torch.minimum(bounds[part], most)
    return sharp
