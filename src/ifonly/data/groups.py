"""Subgroups of episodes: by a feature of a cohort, or by any column of a table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.data.plain import did_you_mean
from ifonly.errors import InputError

MOST_CATEGORIES = 6
"""Numbers with at most so many different values are groups as they are; others are cut."""

MOST_GROUPS = 30

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Groups:
    """A group for every episode, and all groups in their order, empty ones included."""

    name: str
    label: str
    """With the unit, as people read it."""
    of_episode: tuple[str, ...]
    order: tuple[str, ...]


def cohort_values(cohort: Cohort) -> pl.DataFrame:
    """A table of the cohort's episodes: column `episode`, and every feature at the first step, in original units."""
    first = cohort.offsets[:-1]
    return pl.DataFrame({"episode": cohort.ids} | {name: values[first] for name, values in cohort.columns().items()})


def make_groups(
    name: str, episodes: Sequence[str], values: Cohort | pl.DataFrame, edges: Sequence[float] | None = None
) -> Groups:
    """Group `episodes` (ids) by the column `name` of `values`, which has a row for each of them.

    Numbers are cut at `edges`, or at their quartiles; with at most six different values each is a group. Missing
    values are a group of their own.
    """
    frame = cohort_values(values) if isinstance(values, Cohort) else values
    column = _column(frame, name, episodes)
    label = _label(name, values)
    if edges is not None:
        cuts = _checked_edges(name, column, edges)
        return _cut(name, label, column, cuts, _distinct(cuts, digits=12))
    kinds = column.drop_nulls().unique().sort()
    if column.dtype.is_numeric() and len(kinds) > MOST_CATEGORIES:
        quartiles = _quartiles(column)
        return _cut(name, label, column, quartiles, _distinct(quartiles, digits=3))
    if len(kinds) > MOST_GROUPS:
        raise InputError(
            f"groups by {name!r}: it has {len(kinds)} different values; choose a column with at most {MOST_GROUPS}."
        )
    words = _distinct(kinds.to_list(), digits=6) if column.dtype.is_numeric() else [str(kind) for kind in kinds]
    named = dict(zip(kinds, words, strict=True))
    return _groups(name, label, [None if value is None else named[value] for value in column], words)


def _column(frame: pl.DataFrame, name: str, episodes: Sequence[str]) -> pl.Series:
    """The values of the episodes, in their order; NaN and infinite values count as missing."""
    if "episode" not in frame.columns:
        raise InputError("groups: the table of values needs a column 'episode' with the ids of the episodes.")
    choices = [column for column in frame.columns if column != "episode"]
    if name not in choices:
        raise InputError(
            f"groups by {name!r}: there is no such feature or column; choose from {choices}."
            f"{did_you_mean(name, choices)}"
        )
    if frame["episode"].is_duplicated().any():
        raise InputError(f"groups by {name!r}: the table of values has more than one row for some episodes.")
    if frame.schema[name].is_nested() or frame.schema[name] == pl.Object:
        raise InputError(f"groups by {name!r}: its values are no numbers or words; choose a column of such values.")
    known = {id: row for row, id in enumerate(frame["episode"])}
    missing = sum(id not in known for id in episodes)
    if missing:
        raise InputError(
            f"groups by {name!r}: {missing} of the run's {len(episodes)} episodes have no values there; pass the "
            "cohort that the run was made from, or a table with a row for each of its episodes."
        )
    column = frame[name][[known[id] for id in episodes]]
    return pl.select(pl.when(column.is_finite()).then(column)).to_series() if column.dtype.is_float() else column


def _label(name: str, values: Cohort | pl.DataFrame) -> str:
    """The name with its unit, where one is known."""
    features = values.schema.features if isinstance(values, Cohort) else ()
    return next((feature.label for feature in features if feature.name == name), name)


def _checked_edges(name: str, column: pl.Series, edges: Sequence[float]) -> list[float]:
    if not column.dtype.is_numeric():
        raise InputError(f"groups by {name!r}: its values are no numbers, so they cannot be cut at edges.")
    cuts = [float(edge) for edge in edges]
    rising = all(low < high for low, high in itertools.pairwise(cuts))
    if not cuts or not rising or not all(math.isfinite(edge) for edge in cuts):
        raise InputError(f"groups by {name!r}: edges {list(edges)} must be numbers that increase, at least one.")
    return cuts


def _quartiles(column: pl.Series) -> list[float]:
    """The quartiles that leave something on both of their sides; of very unequal numbers, what exceeds the smallest."""
    values = column.drop_nulls().to_numpy().astype(np.float64)
    edges = {float(edge) for edge in np.quantile(values, (0.25, 0.5, 0.75)) if edge > values.min()}
    return sorted(edges) or [float(values[values > values.min()].min())]


def _cut(name: str, label: str, column: pl.Series, edges: Sequence[float], shown: Sequence[str]) -> Groups:
    """Groups below the first edge, from each edge to below the next, and from the last edge on."""
    between = (f"{low} to < {high}" for low, high in itertools.pairwise(shown))
    order = [f"< {shown[0]}", *between, f">= {shown[-1]}"]
    positions = [None if value is None else int(np.searchsorted(edges, value, "right")) for value in column]
    return _groups(name, label, [None if position is None else order[position] for position in positions], order)


def _distinct(numbers: Sequence[float], digits: int) -> list[str]:
    """Numbers in words, all integer digits kept, with as many digits as it takes to tell them apart.

    >>> _distinct([12345.678, 0.25], 3), _distinct([1.0001, 1.0002], 3)
    (['12346', '0.25'], ['1.0001', '1.0002'])
    """
    for precision in range(digits, 17):
        words = [f"{number:.{max(precision, len(str(int(abs(number)))))}g}" for number in numbers]
        if len(set(words)) == len(words):
            return words
    return [repr(number) for number in numbers]


def _groups(name: str, label: str, found: Sequence[str | None], order: Sequence[str]) -> Groups:
    missing = [UNKNOWN] if None in found and UNKNOWN not in order else []
    return Groups(name, label, tuple(UNKNOWN if group is None else group for group in found), (*order, *missing))
