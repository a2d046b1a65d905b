"""Rows of many nodes in blocks: of alike first steps, of some problems each, and so small that temporary arrays fit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from ifonly.bounds.taylor.evaluation import ProblemIndex

ELEMENTS = 2**20
"""Numbers in the largest temporary arrays, on a CPU."""

FILLED = 128
"""Rows that may be filled up in vain, rather than split the problems into more blocks."""

START_GROUPS = 3
"""Groups of nodes by their first step."""


def rows_by_start(start: Tensor, horizon: int) -> Iterator[tuple[int, Tensor]]:
    """Rows that may change again from about the same step on, and the first of these steps; `start` [N]."""
    edges = [horizon * part // START_GROUPS for part in range(START_GROUPS)] + [horizon]
    for first, end in pairwise(edges):
        chosen = ((start >= first) & (start < end)).nonzero().squeeze(-1)
        if len(chosen):
            yield int(start[chosen].min()), chosen


def rows_by_problem(
    problem: Tensor, count: int, width: int, elements: int
) -> Iterator[tuple[ProblemIndex, Tensor, Tensor]]:
    """Rows of problems [N], `count` of them in all, as blocks: which problems, rows [P', M] of each, and whether a row
    is real [P', M] or fills up. Arrays with `width` numbers per row have about `elements` numbers at most."""
    if count == 1:
        every = torch.arange(len(problem), device=problem.device).unsqueeze(0)
        for rows in every.split(max(1, elements // width), dim=1):
            yield slice(None), rows, torch.ones_like(rows, dtype=torch.bool)
        return
    counts = torch.bincount(problem, minlength=count)
    order, first = problem.argsort(stable=True), counts.cumsum(0) - counts
    # Problems with about as many rows, up to a factor of two, share a block; all do where little is filled up.
    sizes = counts.clamp(min=1).log2().ceil().long().masked_fill(counts == 0, -1)
    if int((counts > 0).sum()) * int(counts.max()) < 2 * len(problem) + FILLED:
        sizes = sizes.clamp(max=0)
    for size in sizes.unique().tolist():
        which = (sizes == size).nonzero().squeeze(-1)
        if size >= 0:
            chosen = slice(None) if len(which) == len(counts) else which
            slots = torch.arange(int(counts[which].max()), device=problem.device)
            valid = slots < counts[which].unsqueeze(1)
            rows = order[torch.where(valid, first[which].unsqueeze(1) + slots, 0)]
            together = max(1, elements // (width * len(which)))
            for some in slots.split(together):
                yield chosen, rows[:, some], valid[:, some]
