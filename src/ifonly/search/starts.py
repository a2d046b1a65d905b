"""Good answers to begin with: greedy changes, each the best single one, and then exchanges."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ifonly.search.pool import ranks_within
from ifonly.search.questions import Questions


def greedy_starts(questions: Questions) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Problems [N], admissible sequences [N, T] and outcomes [N]: in each round every sequence one step away.

    Each problem goes on from the best of its round: as many rounds as changes, and one to exchange what is no longer
    best. A problem without a neighbour drops out.
    """
    problem = torch.arange(questions.count, device=questions.device)
    sequences = torch.stack([each.nearest_actions for each in questions.problems])
    for _ in range(questions.budget + 1):
        problem, sequences = _neighbours(questions, problem, sequences)
        if not len(problem):
            return
        outcomes, fine = _replayed(questions, problem, sequences)
        problem, sequences, outcomes = problem[fine], sequences[fine], outcomes[fine]
        if not len(problem):
            return
        yield problem, sequences, outcomes
        best = ranks_within(problem, outcomes.nan_to_num(nan=-torch.inf)) == 0
        problem, sequences = problem[best], sequences[best]


def _replayed(questions: Questions, problem: Tensor, sequences: Tensor) -> tuple[Tensor, Tensor]:
    """Outcomes [N] of sequences [N, T], and whether their changes are supported [N]."""
    outcomes, fine = [], []
    for rows, part in zip(problem.split(questions.rows), sequences.split(questions.rows), strict=True):
        paths = questions.rollout(rows, part)
        outcomes.append(paths.outcomes)
        fine.append(questions.have_support(rows, part, paths))
    return torch.cat(outcomes), torch.cat(fine)


def _neighbours(questions: Questions, problem: Tensor, sequences: Tensor) -> tuple[Tensor, Tensor]:
    """Every sequence that obeys the rules and differs from one of these in a single step."""
    others = questions.allowed[problem].scatter(2, sequences.unsqueeze(-1), False)
    row, step, action = others.nonzero(as_tuple=True)
    changed = sequences[row]
    changed[torch.arange(len(row), device=row.device), step] = action
    fine = questions.obey_rules(problem[row], changed)
    return problem[row][fine], changed[fine]
