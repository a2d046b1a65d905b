"""Columns that follow from others of the same row: sums, scores, distances from a target, what an action costs.

A model gives every feature a noise of its own and keeps it. What is made of others has none: its counterfactual values
would no longer fit theirs, worst of all where it is a distance, and they may lie on either side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ifonly.data.drafts.readings import Reading
from ifonly.data.episode import FloatArray

ROWS = 4000
"""Rows that are looked at, at most; half of them to learn from, half to judge by."""
KNOTS = 12
"""Bends of the curve by which each column may have a part in another."""
MOST_COLUMNS = 40
EXPLAINED = 0.995
"""A column follows from others if they explain at least this share of its variance in other rows."""
LEAST_PART = 0.02
"""Parts that vary less, as shares of the variance, are not named."""

SUMMED = {"score", "total", "sum", "index", "deviation", "error", "cost", "costs", "balance", "net", "mean", "average"}
"""Words in the names of what is made of others: of columns that follow from each other these do."""


@dataclass(frozen=True)
class MadeOf:
    """A column, and those that it follows from."""

    column: str
    others: tuple[str, ...]


def made_of_others(states: Sequence[Reading], actions: Sequence[Reading]) -> tuple[MadeOf, ...]:
    """Which columns of states follow from others, or from actions of the same row, as a sum of a curve of each."""
    columns = {reading.name: reading.numbers.to_numpy() for reading in (*states[:MOST_COLUMNS], *actions)}
    names = [reading.name for reading in states[:MOST_COLUMNS]]
    rows = _some_rows(columns)
    columns = {name: _standardised(values[rows]) for name, values in columns.items()}
    columns = {name: values for name, values in columns.items() if values.any()}
    curves = {name: _curves(values) for name, values in columns.items()}
    found: list[MadeOf] = []
    left = [name for name in names if name in columns]
    while True:
        explained = [(one, *_explained(columns[one], {n: c for n, c in curves.items() if n != one})) for one in left]
        known = [(one, parts) for one, share, parts in explained if share >= EXPLAINED]
        if not known:
            return tuple(found)
        one, parts = max(known, key=lambda pair: (_is_summed(pair[0]), names.index(pair[0])))
        found.append(MadeOf(one, tuple(sorted(parts, key=lambda name: -parts[name]))))
        left.remove(one)
        del curves[one]


def _some_rows(columns: Mapping[str, FloatArray]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Random rows in which every column has a number."""
    known = np.flatnonzero(np.all([np.isfinite(values) for values in columns.values()], axis=0))
    return np.random.default_rng(0).permutation(known)[:ROWS]


def _standardised(values: FloatArray) -> FloatArray:
    size = float(np.abs(values).max(initial=0.0))
    scaled = values / size if size > 0 else values  # avoids overflow in the squares
    deviation = float(scaled.std()) if scaled.size else 0.0
    return np.asarray((scaled - scaled.mean()) / deviation if deviation > 1e-12 else np.zeros(len(values)))


def _curves(values: FloatArray) -> FloatArray:
    """The values and what they exceed each of some quantiles by [N, k]."""
    bends = np.unique(np.quantile(values, np.linspace(0, 1, KNOTS + 2)[1:-1]))
    return np.column_stack([values, np.maximum(values[:, None] - bends, 0.0)])


def _explained(target: FloatArray, curves: Mapping[str, FloatArray]) -> tuple[float, dict[str, float]]:
    """The share of a column's variance that curves of others explain in rows left out, and how much each varies."""
    sizes = [part.shape[1] for part in curves.values()]
    half = len(target) // 2
    if not sizes or half < 5 * sum(sizes):
        return 0.0, {}
    design = np.column_stack([*curves.values(), np.ones(len(target))])
    known, judged = design[:half], design[half:]
    matrix = known.T @ known + 1e-6 * half * np.eye(design.shape[1])
    weights = np.linalg.solve(matrix, known.T @ target[:half])
    errors, wanted = target[half:] - judged @ weights, target[half:] - target[half:].mean()
    if not (wanted**2).sum() > 0:
        return 0.0, {}
    parts = zip(curves.items(), np.split(weights[:-1], np.cumsum(sizes)[:-1]), strict=True)
    varying = {name: float((curve @ own).var()) for (name, curve), own in parts}
    return 1 - float((errors**2).sum() / (wanted**2).sum()), {n: v for n, v in varying.items() if v > LEAST_PART}


def _is_summed(name: str) -> bool:
    return bool(set(name.casefold().replace("-", "_").replace(" ", "_").split("_")) & SUMMED)
