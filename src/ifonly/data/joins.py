"""Further tables that bring columns to the rows of a table, found by keys: ages by patient, weather by day and hour."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ifonly.data.plain import as_list, check_keys, check_name, check_text, first_names, repeated
from ifonly.errors import InputError

Reader = Callable[[Path], pl.DataFrame]
"""Reads one table."""


@dataclass(frozen=True)
class JoinedTable:
    """A further table with exactly one row for each key of the table's rows."""

    file: str
    """Relative to the schema file."""
    by: tuple[str, ...]
    """The columns, of the same names in both tables, whose values together find a row."""
    columns: tuple[str, ...] = ()
    """Those that are taken over; (): all. One that the table has itself is refused."""

    def __post_init__(self) -> None:
        check_text("table: join", "file", self.file)
        object.__setattr__(self, "by", tuple(as_list("table: join", "by", self.by)))
        object.__setattr__(self, "columns", tuple(as_list("table: join", "columns", self.columns)))
        if not self.by or repeated(self.by):
            raise InputError(f"table: join of {self.file}: name the key column, or the key columns once each, as `by`.")
        for name in (*self.by, *self.columns):
            check_name(f"table: join of {self.file}", "column", name)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> JoinedTable:
        """Read what `to_dict` or a person wrote; `by` may be one name."""
        check_keys("table: join", content, required={"file", "by"}, optional={"columns"})
        by: Any = (content["by"],) if isinstance(content["by"], str) else content["by"]
        return cls(content["file"], by, content.get("columns", ()))

    def to_dict(self) -> dict[str, Any]:
        """Plain types, as a schema file holds them."""
        content: dict[str, Any] = {"file": self.file, "by": list(self.by)}
        return content | ({"columns": list(self.columns)} if self.columns else {})


def join_tables(frame: pl.DataFrame, joins: Sequence[JoinedTable], folder: Path, read: Reader) -> pl.DataFrame:
    """The table with the columns of all further ones; a row that finds none, or several, is refused."""
    for join in joins:
        try:
            frame = _joined(frame, read(folder / join.file), join)
        except InputError as error:
            text, place = str(error), folder / join.file
            raise InputError(text if text.startswith(str(place)) else f"{os.path.normpath(place)}: {text}") from None
    return frame


def _joined(frame: pl.DataFrame, other: pl.DataFrame, join: JoinedTable) -> pl.DataFrame:
    for where, table in (("the table", frame), (join.file, other)):
        if missing := [name for name in join.by if name not in table.columns]:
            raise InputError(f"{where} has no column {missing[0]!r} to join by; found {first_names(table.columns)}.")
    taken = list(join.columns) or [name for name in other.columns if name not in join.by]
    if unknown := [name for name in taken if name not in other.columns]:
        raise InputError(f"has no column {unknown[0]!r}; found {first_names(other.columns)}.")
    if both := [name for name in taken if name in frame.columns]:
        raise InputError(
            f"column(s) {both} stand in the table, too; say under `columns` which ones are wanted, or rename them."
        )
    keys = [f"\x1fkey {number}" for number in range(len(join.by))]
    ours, theirs = (
        pl.DataFrame([_key(table[name]).alias(key) for name, key in zip(join.by, keys, strict=True)])
        for table in (frame, other)
    )
    if (twice := theirs.is_duplicated()).any():
        first = int(twice.arg_true()[0]) + 1
        raise InputError(
            f"row {first}: its key ({', '.join(join.by)}) occurs more than once; keep one row for each, or join by "
            "more columns."
        )
    numbered = theirs.with_row_index("\x1frow")
    rows = ours.join(numbered, on=keys, how="left", maintain_order="left")["\x1frow"]
    if rows.null_count():
        first = int(rows.is_null().arg_true()[0]) + 1
        plain = pl.all().str.strip_chars_start("0")
        lost = ours.select(plain).join(theirs.select(plain), on=keys, how="anti").is_empty()
        what = "give keys the zeros in front that one of the tables has lost"
        remedy = what if lost else f"add what is missing for their {', '.join(join.by)}, or drop those episodes"
        raise InputError(
            f"has no row for {rows.null_count():,} of {len(rows):,} rows of the table (the first is row {first}); "
            f"{remedy}."
        )
    return frame.hstack(other[rows.to_numpy(), taken].get_columns())


def _key(column: pl.Series) -> pl.Series:
    """Keys as text, without spaces around them: one table may hold them as numbers, the other as text."""
    if column.dtype.is_float() and bool((column == column.floor()).all()):
        column = column.cast(pl.Int64, strict=False)
    return column.cast(pl.String).str.strip_chars()


def guess_join(frame: pl.DataFrame, other: pl.DataFrame, file: str) -> JoinedTable:
    """How a further table is joined: by what finds a single row of it; columns that both tables have are left out."""
    by = _guess_keys(frame, other)
    new = [name for name in other.columns if name not in frame.columns]
    if not new:
        raise InputError(f"{file}: brings no column that the first table does not have; leave it out.")
    return JoinedTable(file, by, tuple(new) if len(new) + len(by) < other.width else ())


def _guess_keys(frame: pl.DataFrame, other: pl.DataFrame) -> tuple[str, ...]:
    """The fewest columns of the same names that find one row of the other table; an error where none do."""
    shared = [name for name in other.columns if name in frame.columns]
    alone = [name for name in shared if not _key(other[name]).is_duplicated().any()]
    if alone:
        return (alone[0],)
    if shared and not other.select(_key(other[name]) for name in shared).is_duplicated().any():
        return tuple(shared)
    raise InputError(
        "no columns of the same names in both tables find a single row of it; rename its key as in the first table, "
        f"and keep one row for each (found {first_names(other.columns)})."
    )
