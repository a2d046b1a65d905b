"""The open list of a branch-and-bound search: candidates that are bounded but not yet rolled out, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

DEPTH_FIRST = 16
"""Candidates taken at a time when memory is short."""


@dataclass(frozen=True)
class Candidates:
    """Changes to make next: sequences [N, T] with `level` changes, the last of them `action` at `step`."""

    problem: Tensor  # [N]
    step: Tensor  # [N]
    action: Tensor  # [N]
    level: Tensor  # [N]
    sequences: Tensor  # [N, T], int16
    bounds: Tensor  # [N, K+1], on all that follows with so many changes in all; minus infinity below `level`

    def __len__(self) -> int:
        return len(self.problem)

    def select(self, rows: Tensor) -> Candidates:
        """Some of the rows: a mask or an index."""
        return Candidates(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def join(cls, parts: Sequence[Candidates]) -> Candidates:
        """One after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def bytes(self) -> int:
        """Memory in use."""
        return sum(part.numel() * part.element_size() for part in (getattr(self, f.name) for f in fields(self)))


class OpenList:
    """Candidates of P problems; what is taken next depends on a problem's own candidates only, memory permitting."""

    def __init__(self, problem_count: int, *, memory: float) -> None:
        """Above `memory` bytes the deepest candidates come first."""
        self._problem_count = problem_count
        self._memory = memory
        self._parts: list[Candidates] = []
        self.depth_first = False

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def add(self, candidates: Candidates) -> None:
        """Queue candidates."""
        if len(candidates):
            self._parts.append(candidates)

    def all(self) -> Candidates | None:
        """Everything that is open; None when nothing is."""
        if not self._parts:
            return None
        self._parts = [Candidates.join(self._parts)]
        return self._parts[0]

    def keep(self, rows: Tensor) -> None:
        """Drop all candidates of `all()` but these: a mask."""
        whole = self._parts[0].select(rows)
        self._parts = [whole] if len(whole) else []

    def counts(self) -> Tensor:
        """How many candidates each problem has [P]."""
        whole = self.all()
        assert whole is not None
        return torch.bincount(whole.problem, minlength=self._problem_count)

    def next(self, at_most: Tensor) -> Tensor:
        """Which of `all()` to expand next, a mask: the best bounds of each problem, at most so many [P].

        Of those that a budget leaves without a bound, the best finite ones. When memory is short it is the deepest.
        """
        whole = self.all()
        assert whole is not None
        if whole.bytes() > self._memory:
            self.depth_first = True
            return self._deepest(whole, at_most)
        finite = whole.bounds.masked_fill(whole.bounds == torch.inf, -torch.inf)
        ranks = ranks_within(whole.problem, whole.bounds.amax(1), finite.amax(1), ties=_order_of_equals(whole))
        return ranks < at_most[whole.problem]

    def _deepest(self, whole: Candidates, at_most: Tensor) -> Tensor:
        """The best of the deepest level at which some problem may still expand a node."""
        chosen = torch.zeros(len(whole), dtype=torch.bool, device=whole.level.device)
        rows = (at_most[whole.problem] > 0).nonzero().squeeze(-1)
        if not len(rows):
            return chosen
        rows = rows[whole.level[rows] == whole.level[rows].max()]
        keys = whole.bounds[rows].amax(1)
        rows = rows[ranks_within(whole.problem[rows], keys) < at_most[whole.problem[rows]]]
        best = whole.bounds[rows].amax(1).argsort(descending=True, stable=True)[:DEPTH_FIRST]
        chosen[rows[best]] = True
        return chosen


def ranks_within(problem: Tensor, *keys: Tensor, ties: Tensor | None = None) -> Tensor:
    """The place [N] of each row among those of its problem, from 0: largest keys first, of equal ones smallest tie."""
    order = torch.arange(len(problem), device=problem.device) if ties is None else ties.argsort(stable=True)
    for key in reversed(keys):
        order = order[key[order].argsort(descending=True, stable=True)]
    order = order[problem[order].argsort(stable=True)]
    ordered = problem[order]
    first = torch.searchsorted(ordered, ordered)
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order), device=order.device) - first
    return ranks


def _order_of_equals(whole: Candidates) -> Tensor:
    """Deeper, then earlier, then the smaller action, as one number."""
    return (-whole.level * (1 << 20) + whole.step) * (1 << 20) + whole.action
