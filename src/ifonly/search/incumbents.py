"""The best sequences found so far, for every number of changes, and the best few of all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ifonly.problem.batch import ProblemBatch

MOST_WITHIN = 1000
"""How many sequences close to the best are listed when no number is given."""


class Incumbents:
    """For each of P problems and each number of changes 0..K the best outcome so far, and a sequence that has it.

    Of sequences whose outcomes differ by no more than the tolerance the lexicographically smallest is kept.
    """

    def __init__(self, batch: ProblemBatch) -> None:
        self._batch = batch
        shape = (batch.count, batch.budget + 1)
        self.best = torch.full(shape, -torch.inf, dtype=torch.float64, device=batch.device)
        """The best outcome [P, K+1] with exactly so many changes."""
        self._held = self.best.clone()
        """The outcome [P, K+1] of the sequence that is kept: lower than the best by no more than the tolerance."""
        self.sequences = batch.observed.unsqueeze(1).repeat(1, shape[1], 1).to(torch.int16)  # [P, K+1, T]

    def by_budget(self) -> Tensor:
        """The best outcome [P, K+1] with at most so many changes."""
        return self.best.cummax(1).values

    def simplest(self) -> Tensor:
        """For each budget [P, K+1], the fewest changes that reach its best outcome up to the tolerance."""
        enough = self.best.unsqueeze(1) >= (self.by_budget() - self._batch.tolerance.unsqueeze(1)).unsqueeze(2)
        return enough.to(torch.int8).argmax(2)

    def offer(self, problem: Tensor, outcomes: Tensor, sequences: Tensor) -> None:
        """Consider sequences [N, T] (int16); the same one may come more than once."""
        slots = problem * self.best.shape[1] + self._batch.changes(problem, sequences)
        peaks = self.best.flatten().scatter_reduce(0, slots, outcomes, "amax").view_as(self.best)
        least = (peaks - self._batch.tolerance.unsqueeze(1)).flatten()
        rows = ((outcomes >= least[slots]) & (outcomes > -torch.inf)).nonzero().squeeze(-1)
        if not len(rows):
            return
        touched = slots[rows].unique()
        touched = touched[self._held.flatten()[touched] >= least[touched]]
        held = self.sequences.flatten(0, 1)[touched]
        values = torch.cat([self._held.flatten()[touched], outcomes[rows]])
        self._hold(torch.cat([touched, slots[rows]]), values, torch.cat([held, sequences[rows]]))
        self.best = peaks

    def _hold(self, slots: Tensor, values: Tensor, sequences: Tensor) -> None:
        """Keep the first of each slot's sequences."""
        columns = sequences.cpu().numpy().T
        order = np.lexsort((*columns[::-1], slots.cpu().numpy()))
        kept, first = np.unique(slots.cpu().numpy()[order], return_index=True)
        chosen = torch.as_tensor(order[first], device=slots.device)
        where = torch.as_tensor(kept, device=slots.device)
        self.sequences.flatten(0, 1)[where] = sequences[chosen]
        self._held.flatten()[where] = values[chosen]


@dataclass(frozen=True)
class Apart:
    """Sequences from each of which every further one must differ in at least so many steps."""

    chosen: Tensor  # [n, T] int64
    steps: int

    def allows(self, sequences: Tensor) -> Tensor:
        """Whether sequences [N, T] differ from each chosen one in enough steps [N]."""
        differing = (sequences.to(torch.int64).unsqueeze(1) != self.chosen).sum(2)
        return (differing >= self.steps).all(1)

    def leaves_any(self, batch: ProblemBatch) -> bool:
        """False where no sequence of a single problem can be far enough, for too few steps may be changed."""
        changes = (self.chosen != batch.observed[0]).sum(1)
        return bool((changes + batch.budget >= self.steps).all()) and self.steps <= batch.horizon


class Ranking:
    """The best sequences of the full budget: a fixed number, or all within a distance of the best."""

    def __init__(self, batch: ProblemBatch, *, alternatives: int, within: float) -> None:
        self._batch = batch
        self._within = within
        self._listed = MOST_WITHIN if alternatives == 1 else alternatives
        self._most = self._listed + (1 if within > 0 else 0)  # one more tells whether the list is cut
        count, device = batch.count, batch.device
        self._problem = torch.empty(0, dtype=torch.int64, device=device)
        self._outcomes = torch.empty(0, dtype=torch.float64, device=device)
        self._sequences = torch.empty(0, batch.horizon, dtype=torch.int16, device=device)
        self._best = torch.full((count,), -torch.inf, dtype=torch.float64, device=device)

    def thresholds(self) -> Tensor:
        """Outcomes [P] up to which nothing more need be found.

        The last of a full list, or the distance below the best with twice the tolerance for rounding, so that it is
        never above the optimum less the distance. Minus infinity while the list is not full.
        """
        ends = torch.bincount(self._problem, minlength=self._batch.count).cumsum(0)
        counts = ends.diff(prepend=ends.new_zeros(1))
        full = counts == self._most
        last = torch.full_like(self._best, -torch.inf)
        last[full] = self._outcomes[ends[full] - 1]
        near = self._best - self._within - 2 * self._batch.tolerance
        return torch.maximum(last, near) if self._within > 0 else last

    def offer(self, problem: Tensor, outcomes: Tensor, sequences: Tensor) -> None:
        """Consider sequences [N, T] (int16); the same one may come more than once."""
        self._best = self._best.scatter_reduce(0, problem, outcomes, "amax")
        rows = ((outcomes >= self.thresholds()[problem]) & (outcomes > -torch.inf)).nonzero().squeeze(-1)
        if not len(rows):
            return
        problems = torch.cat([self._problem, problem[rows]])
        values = torch.cat([self._outcomes, outcomes[rows]])
        whole = torch.cat([self._sequences, sequences[rows]])
        if self._within > 0:
            near = values >= (self._best - self._within - self._batch.tolerance)[problems]
            problems, values, whole = problems[near], values[near], whole[near]
        self._rank(problems, values, whole)

    def _rank(self, problems: Tensor, values: Tensor, whole: Tensor) -> None:
        _, first = np.unique(
            np.concatenate([problems.cpu().numpy()[:, np.newaxis], whole.cpu().numpy()], axis=1),
            axis=0,
            return_index=True,
        )  # each once, and in lexicographic order
        rows = torch.as_tensor(first, device=problems.device)
        changes = self._batch.changes(problems[rows], whole[rows])
        rows = rows[changes.argsort(stable=True)]
        rows = rows[values[rows].argsort(descending=True, stable=True)]
        rows = rows[problems[rows].argsort(stable=True)]
        ordered = problems[rows]
        places = torch.arange(len(rows), device=rows.device) - torch.searchsorted(ordered, ordered)
        kept = rows[places < self._most]
        self._problem, self._outcomes, self._sequences = problems[kept], values[kept], whole[kept]

    def is_cut(self) -> Tensor:
        """Whether more sequences are within the distance than are listed [P]."""
        counts = torch.bincount(self._problem, minlength=self._batch.count)
        return counts > self._listed

    def of(self, problem: int) -> tuple[Tensor, Tensor]:
        """One problem's sequences [n, T] and outcomes [n], best first."""
        mine = (self._problem == problem).nonzero().squeeze(-1)[: self._listed]
        return self._sequences[mine].to(torch.int64), self._outcomes[mine]
