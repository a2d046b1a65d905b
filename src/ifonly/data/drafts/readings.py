"""Columns of a raw table as they are read: their numbers, and which of their cells are none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from ifonly.data.episode import FloatArray
from ifonly.data.tables import EXACT
from ifonly.data.text_tables import MISSING_WORDS
from ifonly.data.times import holds_times, seconds_of


@dataclass(frozen=True, eq=False)
class Reading:
    """One column [N]: its numbers, and which of its cells are none."""

    name: str
    texts: pl.Series
    """Every cell as text, null where there is no value."""
    numbers: pl.Series
    """Float64, null where there is no finite number; of times, in seconds."""
    wrong: pl.Series
    """Cells with something else than a number."""
    infinite: pl.Series
    is_date: bool

    @cached_property
    def missing(self) -> pl.Series:
        """Cells without a value."""
        return self.texts.is_null()

    @cached_property
    def is_complete(self) -> bool:
        """Whether every row has a value."""
        return not self.missing.any()

    @cached_property
    def is_numeric(self) -> bool:
        """Whether most of its values are numbers; the others are then mistakes."""
        found = int(self.numbers.is_not_null().sum()) + int(self.infinite.sum())
        return not self.is_date and found > 0 and found >= int(self.wrong.sum())

    @cached_property
    def is_whole(self) -> bool:
        """Whether all its numbers are whole."""
        values = self.values
        return bool(values.size) and bool((values == np.floor(values)).all())

    @cached_property
    def is_clean(self) -> bool:
        """Whether every cell holds a finite number, or a time."""
        return (self.is_numeric or self.is_date) and self.numbers.null_count() == 0

    @cached_property
    def values(self) -> FloatArray:
        """The finite numbers, without gaps."""
        return self.numbers.drop_nulls().to_numpy()

    @cached_property
    def distinct(self) -> int:
        """How many different values there are."""
        return int((self.numbers if self.is_numeric and self.is_exact else self.texts).drop_nulls().n_unique())

    @cached_property
    def is_exact(self) -> bool:
        """Whether its numbers are not so long, as ids can be, that different ones are equal as floats."""
        return not self.values.size or bool(np.abs(self.values).max() < EXACT)

    @cached_property
    def is_binary(self) -> bool:
        """Whether its values are 0 and 1."""
        return self.is_numeric and self.distinct == 2 and set(np.unique(self.values)) == {0.0, 1.0}


def read_columns(frame: pl.DataFrame) -> dict[str, Reading]:
    """Every column of a raw table, by its name."""
    return {name: read_column(frame[name]) for name in frame.columns}


def read_column(column: pl.Series) -> Reading:
    """One column: text as CSV files have it, or the types of a Parquet file."""
    if holds_times(column):
        return _times(column)
    if not (column.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Null) or column.dtype.is_numeric()):
        return _no_numbers(column)
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        floats = column.cast(pl.Float64).fill_nan(None)
        # Ids are compared as text: 7 and 7.0 are the same one.
        texts = column.cast(pl.String) if column.dtype.is_integer() else floats.cast(pl.String)
    else:
        texts, floats = _parsed(column.cast(pl.String).str.strip_chars())
    infinite = floats.is_infinite().fill_null(False)
    return Reading(
        name=column.name,
        texts=texts,
        numbers=floats.set(infinite, None),
        wrong=texts.is_not_null() & floats.is_null(),
        infinite=infinite,
        is_date=False,
    )


def _parsed(cells: pl.Series) -> tuple[pl.Series, pl.Series]:
    """The texts, null where there is no value, and the numbers that they spell.

    Words for missing values count as such only among numbers: 'none' may well be an action.
    """
    known = cells.set((cells == "").fill_null(False), None)
    marked = known.set(known.str.to_lowercase().is_in(MISSING_WORDS).fill_null(False), None)
    floats = marked.cast(pl.Float64, strict=False).fill_nan(None)
    numeric = floats.count() > 0 and marked.count() <= 2 * floats.count()
    return (marked if numeric else known), floats


def _times(column: pl.Series) -> Reading:
    texts = column.cast(pl.String).str.strip_chars()
    texts, seconds = texts.set((texts == "").fill_null(False), None), seconds_of(column)
    return Reading(
        name=column.name,
        texts=texts,
        numbers=seconds,
        wrong=texts.is_not_null() & seconds.is_null(),
        infinite=pl.Series(column.name, [False] * len(column)),
        is_date=True,
    )


def _no_numbers(column: pl.Series) -> Reading:
    """Dates, lists and the like: there or not, and no numbers."""
    there = column.is_not_null()
    return Reading(
        name=column.name,
        texts=there.replace_strict([True, False], ["there", None], return_dtype=pl.String),
        numbers=pl.Series(column.name, [None] * len(column), dtype=pl.Float64),
        wrong=there,
        infinite=pl.Series(column.name, [False] * len(column)),
        is_date=column.dtype.is_temporal(),
    )
