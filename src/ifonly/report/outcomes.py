"""Something that happened to an episode or not, such as a death, as tables have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from ifonly.errors import InputError
from ifonly.report.measured import id_column_of

YES, NO = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")


@dataclass(frozen=True)
class Outcome:
    """Which episodes it happened to; those of which nothing is known are left out."""

    name: str
    of_episode: Mapping[str, bool]

    @classmethod
    def from_table(cls, table: pl.DataFrame, column: str) -> Outcome:
        """Read a column of 0 and 1, or yes and no, of a table with a row per episode or per step."""
        ids = id_column_of(table, "outcome table")
        if column not in table.columns:
            raise InputError(f"outcome table: has no column {column!r}; found {table.columns[:30]}.")
        words = table[column].cast(pl.String).str.strip_chars().str.to_lowercase()
        known = words.is_not_null() & (words != "")
        if not words.filter(known).is_in([*YES, *NO]).all():
            raise InputError(f"outcome table: column {column!r} must hold 0 or 1, or yes or no, and nothing else.")
        rows = pl.DataFrame({"id": table[ids].cast(pl.String), "yes": words.is_in(YES)}).filter(known).unique()
        if rows["id"].is_duplicated().any():
            raise InputError(f"outcome table: column {column!r} differs between rows of the same episode.")
        return cls(column, dict(zip(rows["id"], rows["yes"], strict=True)))
