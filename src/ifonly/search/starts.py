"""Good answers to begin with: greedy changes, each the best single one, and then exchanges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.problem.batch import ProblemBatch, changed
from ifonly.search.paths import KnownPaths
from ifonly.search.pool import ranks_within

PROMISING = 4
"""Actions per step that are tried in later rounds: those that are best as the first change."""


@dataclass(frozen=True)
class Starts:
    """Admissible sequences, replayed."""

    problem: Tensor  # [N]
    sequences: Tensor  # [N, T]
    outcomes: Tensor  # [N]
    model_steps: Tensor  # [N]

    def select(self, rows: Tensor) -> Starts:
        """Some of the rows."""
        return Starts(self.problem[rows], self.sequences[rows], self.outcomes[rows], self.model_steps[rows])


def greedy_starts(questions: ProblemBatch, paths: KnownPaths) -> Iterator[Starts]:
    """First every sequence one step away from the nearest one, then promising ones one step away from the best.

    Each problem goes on from the best of its round: as many rounds as changes, and one to exchange what is no longer
    best. A problem without a neighbour drops out.
    """
    problem = torch.arange(questions.count, device=questions.device)
    sequences = torch.stack([each.nearest_actions for each in questions.problems])
    worth = None
    for _ in range(questions.budget + 1):
        problem, sequences, places = _neighbours(questions, problem, sequences, worth)
        if not len(problem):
            return
        starts, fine = _replayed(questions, paths, problem, sequences)
        starts = starts.select(fine)
        if not len(starts.problem):
            return
        yield starts
        outcomes = starts.outcomes.nan_to_num(nan=-torch.inf)
        if worth is None:
            lowest = torch.finfo(torch.float64).min  # what is not permitted is worth even less
            worth = torch.full_like(questions.allowed, lowest, dtype=torch.float64)
            worth[starts.problem, places[0][fine], places[1][fine]] = outcomes.clamp(min=lowest)
        best = ranks_within(starts.problem, outcomes) == 0
        problem, sequences = starts.problem[best], starts.sequences[best]


def _replayed(questions: ProblemBatch, paths: KnownPaths, problem: Tensor, sequences: Tensor) -> tuple[Starts, Tensor]:
    """Sequences [N, T] replayed, and whether their changes are supported [N]."""
    outcomes, steps, fine = [], [], []
    for rows, part in zip(problem.split(questions.rows), sequences.split(questions.rows), strict=True):
        replayed, taken = paths.replay(rows, part)
        outcomes.append(replayed.outcomes)
        steps.append(taken)
        fine.append(questions.have_support(rows, part, replayed))
    return Starts(problem, sequences, torch.cat(outcomes), torch.cat(steps)), torch.cat(fine)


def _neighbours(
    questions: ProblemBatch, problem: Tensor, sequences: Tensor, worth: Tensor | None
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Sequences that obey the rules and differ from one of these in a single step, and the steps and actions of that.

    Every one of them, or those whose change has the most `worth` [P, T, A] at its step.
    """
    others = questions.allowed[problem].scatter(2, sequences.unsqueeze(-1), False)
    if worth is not None:
        order = worth[problem].masked_fill(~others, -torch.inf).argsort(dim=2, descending=True, stable=True)
        others &= torch.zeros_like(others).scatter(2, order[..., :PROMISING], True)
    row, step, action = others.nonzero(as_tuple=True)
    neighbours = changed(sequences[row], step, action)
    fine = questions.obey_rules(problem[row], neighbours)
    return problem[row][fine], neighbours[fine], (step[fine], action[fine])
