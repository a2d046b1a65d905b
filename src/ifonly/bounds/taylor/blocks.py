"""Rows of many nodes in blocks: of alike first steps, of some problems each, and so small that temporary arrays fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    order, counts = problem.argsort(stable=True), torch.bincount(problem, minlength=count)
    first, many = counts.cumsum(0) - counts, counts.tolist()
    for start, end in _slots(many, width, elements):
        which = torch.tensor([one for one, rows in enumerate(many) if rows > start], device=problem.device)
        chosen = slice(None) if len(which) == count else which
        slots = torch.arange(start, end, device=problem.device)
        valid = slots < counts[chosen].unsqueeze(1)
        yield chosen, order[torch.where(valid, first[chosen].unsqueeze(1) + slots, 0)], valid


def _slots(counts: Sequence[int], width: int, elements: int) -> Iterator[tuple[int, int]]:
    """Which rows of every problem share a block, [start, end): as many as memory holds and leave little to fill up for
    problems that have fewer."""
    start, left = 0, sorted(rows for rows in counts if rows)
    while left:
        end, filled = left[0], 0
        for several, (rows, more) in enumerate(pairwise(left), 1):
            filled += several * (more - rows)
            if filled > FILLED:
                break
            end = more
        end = min(end, start + max(1, elements // (width * len(left))))
        yield start, end
        start, left = end, [rows for rows in left if rows > end]
