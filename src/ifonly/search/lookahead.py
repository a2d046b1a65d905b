"""Lookahead: a child takes one exact model step after its change, and what follows is bounded from the state reached.

That is sharper than any bound from the parent's states, and cheaper than a replay (docs/theory.md, "In the search").
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.bounds.base import ChildBound, unknown_as_infinite
from ifonly.problem.batch import Branches, ProblemBatch

FEW = 64
"""Leaves that are replayed to the end: to bound them at every step takes longer than the steps."""


@dataclass(frozen=True)
class Replayed:
    """What became of N leaves: those replayed to the end have outcomes, the others were fathomed on the way."""

    outcomes: Tensor  # [N] float64, minus infinity where fathomed
    fathomed_bounds: Tensor  # [N] float64, what a fathomed leaf cannot exceed; minus infinity where replayed
    steps: Tensor  # [N] int64, model steps taken


def replay_or_fathom(batch: ProblemBatch, bound: ChildBound, leaves: Branches, cutoffs: Tensor) -> Replayed:
    """Replay leaves step by step, each as long as its bound exceeds its cutoff [N]; the last few to the end.

    The bound on the rest has no changes left: it is that of the observed actions from the state reached.
    """
    fathomed = torch.full_like(cutoffs, -torch.inf)
    if not bound.has_reward_to_go:
        return Replayed(batch.outcomes(leaves), fathomed, batch.steps_from(leaves))
    last = torch.full_like(leaves.step, batch.horizon - 1)

    def exceed_cutoff(t: int, rows: Tensor, states: Tensor, earned: Tensor) -> Tensor:
        if len(rows) <= FEW:
            return torch.ones_like(rows, dtype=torch.bool)
        to_go = bound.reward_to_go(t, leaves.problem[rows], states, 0)
        bounds = batch.counted(earned.unsqueeze(1) + to_go).squeeze(1)
        kept = ~(bounds <= cutoffs[rows])  # NaN bounds are never pruned
        pruned = rows[~kept]
        fathomed[pruned], last[pruned] = bounds[~kept], t
        return kept

    totals = batch.follow(leaves, keep=exceed_cutoff)
    return Replayed(batch.counted(totals), fathomed, last - leaves.step)


def one_step_bounds(
    batch: ProblemBatch, bound: ChildBound, branches: Branches, actions: Tensor, bounds: Tensor, cutoffs: Tensor
) -> Tensor:
    """Bounds [N, R] for branches that take `actions` [N] where they leave, with 0 to R - 1 changes left after that.

    The smaller of `bounds` [N, R] and those one step later, which are as sharp as it takes to compare them with
    `cutoffs` [N, R]. At the last step there is no step to take.
    """
    sharp = bounds.clone()
    for t in branches.step.unique().tolist():
        if t == batch.horizon - 1:
            continue
        rows = (branches.step == t).nonzero().squeeze(-1)
        for part in rows.split(batch.rows):
            problem, taken, states = branches.problem[part], actions[part], branches.states[part]
            earned = branches.earned[part] + batch.rewards(t, problem, states, taken)
            following = batch.step(t, problem, states, taken)
            # What the rest must earn. For an ensemble no single member's rest must earn any certain amount.
            missing = cutoffs[part] - earned.unsqueeze(1) if earned.dim() == 1 else None
            to_go = bound.reward_to_go(t + 1, problem, following, bounds.shape[1] - 1, missing)
            later = unknown_as_infinite(batch.counted(earned.unsqueeze(1) + to_go))
            sharp[part] = torch.minimum(bounds[part], later)
    return sharp
