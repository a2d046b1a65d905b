"""Bounds for ensemble problems: what no common sequence can exceed, from bounds of every member.

Any objective (E1) that is monotone (E3) in each member's outcome keeps upper bounds (E4): docs/theory.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ifonly.bounds.base import ChildBound, Nodes
from ifonly.objective import Objective


class EnsembleChildBound(ChildBound):
    """(E4): the objective of the members' bounds, for P problems that share members, objective, reward, horizon and
    budget."""

    def __init__(self, objective: Objective, bounds: Sequence[ChildBound]) -> None:
        """`bounds` has one bound for each member, made of that member's problem in each of the P."""
        self._objective, self._bounds = objective, bounds
        self.method = bounds[0].method
        self.rests_on_constants = any(bound.rests_on_constants for bound in bounds)
        self.has_reward_to_go = all(bound.has_reward_to_go for bound in bounds)

    def root(self) -> Tensor:
        """For the observed sequences [P, K, T, A]."""
        return self._objective(torch.stack([bound.root() for bound in self._bounds], dim=-1))

    def children(self, nodes: Nodes) -> Tensor:
        """Bounds [N, K - level, T, A] for nodes with states [N, T, M, D] and outcomes [N, M]."""
        parts = [
            bound.children(
                Nodes(
                    nodes.level,
                    nodes.problem,
                    nodes.start,
                    states=nodes.states[:, :, member],
                    outcomes=nodes.outcomes[:, member],
                    changes_left=nodes.changes_left,
                )
            )
            for member, bound in enumerate(self._bounds)
        ]
        return self._objective(torch.stack(parts, dim=-1))

    def reward_to_go(
        self, t: int, problem: Tensor, states: Tensor, changes_left: int, cutoff: Tensor | None = None
    ) -> Tensor:
        """Every member's bounds [N, R + 1, M], from states [N, M, D]; a cutoff of the objective says nothing of single
        members."""
        parts = [
            bound.reward_to_go(t, problem, states[:, member], changes_left) for member, bound in enumerate(self._bounds)
        ]
        return torch.stack(parts, dim=-1)

    def details(self, problem: int = 0) -> Mapping[str, Any]:
        """What the members' bounds tell: once where all tell the same, else one entry for each."""
        of_members = [dict(bound.details(problem)) for bound in self._bounds]
        gathered = {name: [details[name] for details in of_members] for name in of_members[0]}
        return {
            name: values[0] if all(value == values[0] for value in values) else values
            for name, values in gathered.items()
        }
