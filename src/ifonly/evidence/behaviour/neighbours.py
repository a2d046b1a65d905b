"""How far states lie from recorded ones: the distance to the k-th nearest, and its rank among the recorded states'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ifonly.errors import InputError
from ifonly.progress import Progress, Tick, silent

PAIRS_AT_ONCE = 4_000_000
"""Distances computed at once; bounds the memory."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Recorded states [R, D] in scaled coordinates, and how far each is from its k-th nearest other one.

    The states are those of patients, without ids and in no particular order.
    """

    states: Tensor  # [R, D], float64
    distances: Tensor  # [R], increasing: each state's distance to its k-th nearest other one
    k: int

    @classmethod
    def of(cls, states: Tensor, *, k: int, progress: Progress = silent) -> Self:
        """Measure `states` [R, D] against each other; with few of them the k-th nearest is the last there is."""
        if len(states) < 2:
            raise InputError("distances between recorded states need at least two of them.")
        states, k = states.double(), min(k, len(states) - 1)
        parts, done = [], 0
        for rows in states.split(_rows_at_once(len(states))):
            # A state is its own nearest neighbour, or as near as its doubles: one more is asked for to leave it out.
            parts.append(_kth_distance(rows, states, k + 1))
            done += len(rows)
            progress(Tick("distances", done, len(states)))
        return cls(states, torch.cat(parts).sort().values, k)

    def percentiles(self, states: Tensor) -> Tensor:
        """For states [N, D]: the share of recorded states, in percent, that lie nearer to the others [N]."""
        parts = [_kth_distance(rows, self.states, self.k) for rows in states.split(_rows_at_once(len(self.states)))]
        # A state as far as a recorded one is, is not farther; rounding must not decide that.
        found = torch.cat(parts) * (1 - 1e-9) if parts else states.new_empty(0)
        return 100 * torch.searchsorted(self.distances, found).double() / len(self.distances)


def _rows_at_once(columns: int) -> int:
    return max(1, PAIRS_AT_ONCE // columns)


def _kth_distance(rows: Tensor, states: Tensor, k: int) -> Tensor:
    """Distances [n] from each of `rows` [n, D] to the k-th nearest of `states` [R, D], those at zero counted too."""
    # Differences and no matrix product, which would lose small distances to rounding.
    pairs = torch.cdist(rows, states, compute_mode="donot_use_mm_for_euclid_dist")
    return pairs.topk(k, dim=1, largest=False).values[:, -1]
