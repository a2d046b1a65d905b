"""The open list of a branch-and-bound search: nodes that are bounded but not yet expanded, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ifonly.problem.batch import ranks_within

DEPTH_FIRST = 16
"""Nodes taken at a time when memory is short."""


@dataclass(frozen=True)
class OpenNodes:
    """Sequences [N, T] with `depth` changes, the last of them `action` at `step`; the observed actions follow."""

    problem: Tensor  # [N] int64
    step: Tensor  # [N] int64
    action: Tensor  # [N] int64
    depth: Tensor  # [N] int64, the number of changes
    sequences: Tensor  # [N, T] int16: open lists are large
    bounds: Tensor  # [N] float64, on all below the node, within the budget that is being proven

    def __len__(self) -> int:
        return len(self.problem)

    def select(self, rows: Tensor) -> OpenNodes:
        """Some of the rows: a mask or an index."""
        return OpenNodes(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def join(cls, parts: Sequence[OpenNodes]) -> OpenNodes:
        """One after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def bytes(self) -> int:
        """Memory in use."""
        return sum(part.numel() * part.element_size() for part in (getattr(self, f.name) for f in fields(self)))


class OpenList:
    """The open nodes of P problems; while memory lasts, what is taken next depends on a problem's own nodes only."""

    def __init__(self, problem_count: int, *, memory: float) -> None:
        """Above `memory` bytes the search goes depth first."""
        self._problem_count = problem_count
        self._memory = memory
        self._parts: list[OpenNodes] = []
        self.depth_first = False

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def add(self, nodes: OpenNodes) -> None:
        """Open nodes."""
        if len(nodes):
            self._parts.append(nodes)

    def all(self) -> OpenNodes | None:
        """Everything that is open; None when nothing is."""
        if not self._parts:
            return None
        self._parts = [OpenNodes.join(self._parts)]
        return self._parts[0]

    def keep(self, rows: Tensor) -> None:
        """Drop all nodes of `all()` but these: a mask."""
        whole = self._parts[0].select(rows)
        self._parts = [whole] if len(whole) else []

    def counts(self) -> Tensor:
        """How many open nodes each problem has [P]."""
        whole = self.all()
        if whole is None:
            return torch.zeros(self._problem_count, dtype=torch.int64)
        return torch.bincount(whole.problem, minlength=self._problem_count)

    def next(self, at_most: Tensor) -> Tensor:
        """Which of `all()` to expand next, a mask: best bound first, at most so many of each problem [P]."""
        whole = self.all()
        assert whole is not None
        if whole.bytes() > self._memory:
            self.depth_first = True
            return self._deepest(whole, at_most)
        ranks = ranks_within(whole.problem, whole.bounds, ties=_order_of_equals(whole))
        return ranks < at_most[whole.problem]

    def _deepest(self, whole: OpenNodes, at_most: Tensor) -> Tensor:
        """The best nodes of the greatest depth at which some problem may still expand one."""
        chosen = torch.zeros(len(whole), dtype=torch.bool, device=whole.depth.device)
        rows = (at_most[whole.problem] > 0).nonzero().squeeze(-1)
        if not len(rows):
            return chosen
        rows = rows[whole.depth[rows] == whole.depth[rows].max()]
        rows = rows[ranks_within(whole.problem[rows], whole.bounds[rows]) < at_most[whole.problem[rows]]]
        best = whole.bounds[rows].argsort(descending=True, stable=True)[:DEPTH_FIRST]
        chosen[rows[best]] = True
        return chosen


def _order_of_equals(whole: OpenNodes) -> Tensor:
    """Deeper, then earlier, then the smaller action, as one number."""
    return (-whole.depth * (1 << 20) + whole.step) * (1 << 20) + whole.action
