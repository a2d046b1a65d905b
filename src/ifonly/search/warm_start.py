"""The warm start (a primal heuristic): greedy changes, each the best single one, and then exchanges.

Before budgets that a search may not prove in time, rounds go on from the best few sequences and try every action: what
they find may well be what users get.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.problem.batch import ProblemBatch, changed, ranks_within
from ifonly.search.prefix_cache import PrefixCache

PROMISING = 4
"""Actions per step that are tried in later rounds: those that are best as the first change."""


WIDTH, TRIALS = 32, 12_000
"""From how many sequences a wide round goes on, at most, and how many it tries, about."""


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
    yield from _rounds(batch, cache, torch.arange(batch.count, device=batch.device), width=1)


def wide_start(batch: ProblemBatch, cache: PrefixCache, problems: Sequence[int]) -> Iterator[WarmStart]:
    """The same for some of the problems, but from the best few sequences of each round and with every action, until no
    round finds a better one.

    One problem after the other, so that what is found for it depends on no other.
    """
    width = max(2, min(WIDTH, TRIALS // (batch.horizon * batch.action_count)))
    for one in problems:
        yield from _rounds(batch, cache, torch.tensor([one], device=batch.device), width=width)


def _rounds(batch: ProblemBatch, cache: PrefixCache, problem: Tensor, *, width: int) -> Iterator[WarmStart]:
    """The rounds of problems [n], each from the `width` best of the one before."""
    sequences, first_outcomes, found = batch.nearest[problem], None, -torch.inf
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
        if width > 1:
            if not float(outcomes.max()) > found:
                return
            found = float(outcomes.max())
        elif first_outcomes is None:
            lowest = torch.finfo(torch.float64).min  # above minus infinity, which stands for what is not permitted
            first_outcomes = torch.full_like(batch.allowed, lowest, dtype=torch.float64)
            first_outcomes[starts.problem, places[0][fine], places[1][fine]] = outcomes.clamp(min=lowest)
        best = ranks_within(starts.problem, outcomes) < width
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
    """Sequences that obey the rules and differ from one of these in a single step, each once, and the steps and actions
    of that.

    Every one of them or, with `first_outcomes` [P, T, A], those whose change is among the best first ones of its step.
    """
    others = batch.allowed[problem].scatter(2, sequences.unsqueeze(-1), False)
    if first_outcomes is not None:
        order = first_outcomes[problem].masked_fill(~others, -torch.inf).argsort(dim=2, descending=True, stable=True)
        others &= torch.zeros_like(others).scatter(2, order[..., :PROMISING], True)
    row, step, action = others.nonzero(as_tuple=True)
    neighbours = changed(sequences[row], step, action)
    fine = batch.obey_rules(problem[row], neighbours).nonzero().squeeze(-1)
    if len(sequences) > len(problem.unique()):  # several of one problem may have neighbours in common
        fine = fine[_first_of_equals(torch.cat((problem[row][fine].unsqueeze(1), neighbours[fine]), dim=1))]
    return problem[row][fine], neighbours[fine], (step[fine], action[fine])


def _first_of_equals(rows: Tensor) -> Tensor:
    """The places [M] at which each of the distinct rows [N, X] comes first, in order."""
    kinds, number = rows.unique(dim=0, return_inverse=True)
    first = torch.full((len(kinds),), len(rows), device=rows.device)
    return first.scatter_reduce_(0, number, torch.arange(len(rows), device=rows.device), "amin").sort().values
