"""The warm start (a primal heuristic): greedy changes, each the best single one, and then exchanges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.problem.batch import ProblemBatch, changed, ranks_within
from ifonly.search.prefix_cache import PrefixCache

PROMISING = 4
"""Actions per step that are tried in later rounds: those that are best as the first change."""


@dataclass(frozen=True)
class WarmStart:
    """Admissible sequences of one round, replayed."""

    problem: Tensor  # [N] int64
    sequences: Tensor  # [N, T] int64
    outcomes: Tensor  # [N] float64
    model_steps: Tensor  # [N] int64

    def select(self, rows: Tensor) -> WarmStart:
        """Some of the rows: a mask or an index."""
        return WarmStart(self.problem[rows], self.sequences[rows], self.outcomes[rows], self.model_steps[rows])


def greedy_warm_start(batch: ProblemBatch, cache: PrefixCache) -> Iterator[WarmStart]:
    """Rounds of local search: every sequence one change away from the nearest one, then promising ones near the best.

    Each problem goes on from the best of its round: as many rounds as changes, and one to exchange what is no longer
    best. A problem without a neighbour drops out.
    """
    problem = torch.arange(batch.count, device=batch.device)
    sequences = batch.nearest
    first_outcomes = None
    for _ in range(batch.budget + 1):
        problem, sequences, places = _neighbours(batch, problem, sequences, first_outcomes)
        if not len(problem):
            return
        starts, fine = _replayed(batch, cache, problem, sequences)
        starts = starts.select(fine)
        if not len(starts.problem):
            return
        yield starts
        outcomes = starts.outcomes.nan_to_num(nan=-torch.inf)
        if first_outcomes is None:
            lowest = torch.finfo(torch.float64).min  # above minus infinity, which stands for what is not permitted
            first_outcomes = torch.full_like(batch.allowed, lowest, dtype=torch.float64)
            first_outcomes[starts.problem, places[0][fine], places[1][fine]] = outcomes.clamp(min=lowest)
        best = ranks_within(starts.problem, outcomes) == 0
        problem, sequences = starts.problem[best], starts.sequences[best]


def _replayed(batch: ProblemBatch, cache: PrefixCache, problem: Tensor, sequences: Tensor) -> tuple[WarmStart, Tensor]:
    """Sequences [N, T] replayed, and whether their changes are supported [N]."""
    outcomes, steps, fine = [], [], []
    for rows, part in zip(problem.split(batch.rows), sequences.split(batch.rows), strict=True):
        replayed, taken = cache.replay(rows, part)
        outcomes.append(replayed.outcomes)
        steps.append(taken)
        fine.append(batch.have_support(rows, part, replayed.states))
    return WarmStart(problem, sequences, torch.cat(outcomes), torch.cat(steps)), torch.cat(fine)


def _neighbours(
    batch: ProblemBatch, problem: Tensor, sequences: Tensor, first_outcomes: Tensor | None
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Sequences that obey the rules and differ from one of these in a single step, and the steps and actions of that.

    Every one of them or, with `first_outcomes` [P, T, A], those whose change is among the best first ones of its step.
    """
    others = batch.allowed[problem].scatter(2, sequences.unsqueeze(-1), False)
    if first_outcomes is not None:
        order = first_outcomes[problem].masked_fill(~others, -torch.inf).argsort(dim=2, descending=True, stable=True)
        others &= torch.zeros_like(others).scatter(2, order[..., :PROMISING], True)
    row, step, action = others.nonzero(as_tuple=True)
    neighbours = changed(sequences[row], step, action)
    fine = batch.obey_rules(problem[row], neighbours)
    return problem[row][fine], neighbours[fine], (step[fine], action[fine])
