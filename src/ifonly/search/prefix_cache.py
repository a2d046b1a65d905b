"""Paths that a search keeps: a sequence shares its prefix with one of them, and only the rest is replayed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ifonly.problem import array_scale
from ifonly.problem.batch import Branches, Paths, ProblemBatch, changed

KEPT = 2**24
"""Numbers in the paths of single changes that are kept on a processor, at most: 128 MiB. On a GPU eight times that."""


class PrefixCache:
    """The observed path of every problem, and those of all its single changes unless they are too many."""

    def __init__(self, batch: ProblemBatch) -> None:
        self._batch = batch
        everyone = torch.arange(batch.count, device=batch.device)
        self._paths = self.observed = batch.rollout(everyone, batch.observed)
        self.steps_taken = torch.full_like(everyone, batch.horizon - 1)
        """Model steps [P] that these paths took."""
        self._rows: Tensor | None = None
        numbers = math.prod(self.observed.states.shape[1:]) * batch.changeable.sum()
        if 0 < int(numbers) <= KEPT * min(8, array_scale(batch.device)):
            self._keep_single_changes()

    def _keep_single_changes(self) -> None:
        batch = self._batch
        problem, step, action = batch.changeable.nonzero(as_tuple=True)
        sequences = changed(batch.observed[problem], step, action)
        parts = (
            self._continued(problem[rows], problem[rows], sequences[rows], step[rows])
            for rows in torch.arange(len(problem), device=problem.device).split(batch.rows)
        )
        self._paths = Paths.join([self.observed, *parts])
        beyond = batch.count + len(problem)  # an index out of range: what is no change has no path, not a wrong one
        self._rows = torch.full_like(batch.changeable, beyond, dtype=torch.int64)
        self._rows[problem, step, action] = torch.arange(len(problem), device=problem.device) + batch.count
        self.steps_taken.index_add_(0, problem, batch.horizon - 1 - step)

    def replay(self, problem: Tensor, sequences: Tensor) -> tuple[Paths, Tensor]:
        """The paths of sequences [N, T], and how many model steps each of them took [N].

        A sequence is replayed from its second change on, and one with a single change not at all.
        """
        batch = self._batch
        last = batch.horizon - 1
        changes = sequences != batch.observed[problem]
        rows = problem
        if self._rows is not None:
            first = changes.int().argmax(1, keepdim=True)
            single = self._rows[problem, first.squeeze(1), sequences.gather(1, first).squeeze(1)]
            rows = torch.where(changes.any(1), single, problem)
            changes = changes.scatter(1, first, False)
        step = torch.where(changes.any(1), changes.int().argmax(1), last)
        return self._continued(rows, problem, sequences, step), last - step

    def _continued(self, rows: Tensor, problem: Tensor, sequences: Tensor, step: Tensor) -> Paths:
        """Sequences [N, T] that leave the kept paths numbered `rows` [N] at `step` [N]."""
        paths = self._paths.select(rows)
        each = torch.arange(len(rows), device=rows.device)
        branches = Branches(problem, sequences, step, paths.states[each, step], paths.earned[each, step])
        return self._batch.continued(paths, branches)
