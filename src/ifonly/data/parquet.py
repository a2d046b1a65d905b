"""Parquet files of unknown origin, read within limits: a few values over and over can fill any memory.

What pages unfold to is known before they are unfolded; what their texts come to, while cells still share those of a
dictionary.
"""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import polars as pl

from ifonly.data.parquet_pages import unfolded
from ifonly.data.plain import first_names
from ifonly.errors import StoreError

MOST_CELLS, MOST_BYTES, MOST_PER_BYTE = 10_000_000, 2**27, 100
"""More cells, or more bytes of pages or texts, are read where they are at most so many for each byte of the file."""

# A damaged Parquet file can make polars panic, which is no subclass of its other errors.
UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
_NO_HEADERS = (LookupError, TypeError, ValueError, AttributeError, OverflowError)


def parse_parquet(source: Path, data: bytes) -> pl.DataFrame:
    """The table that is the content of a Parquet file; refused where it would fill the memory out of a small file."""
    try:
        found = unfolded(data)
    except _NO_HEADERS:
        raise _broken(source) from None
    _require_measure(source, data, found.cells, MOST_CELLS)
    _require_measure(source, data, found.sizes, MOST_BYTES)
    try:
        frame = pl.read_parquet(io.BytesIO(data))
    except UNREADABLE:
        raise _broken(source) from None
    _require_measure(source, data, Counter({column.name: _text_bytes(column) for column in frame}), MOST_BYTES)
    return frame


def _require_measure(source: Path, data: bytes, found: Counter[str], most: int) -> None:
    """Refuse more cells or bytes, by column, than a file of this size has where data were recorded."""
    whole = found.total()
    if whole > most and whole > MOST_PER_BYTE * len(data):
        what = f"{whole:,} cells" if most == MOST_CELLS else f"{whole / 1e6:,.0f} MB of texts and pages"
        name, _ = found.most_common(1)[0]
        raise StoreError(
            f"{source}: {what} in a file of {len(data):,} bytes are no recorded data, and are not read; column "
            f"{first_names([name])[0]!r} has the most: leave it out, or hold the texts and lists in it short."
        )


def _text_bytes(column: pl.Series) -> int:
    """How long all texts of a column are, those within lists and records, too."""
    kind = column.dtype
    if kind == pl.String:
        return _total(column.str.len_bytes())
    if kind == pl.Binary:
        return _total(column.bin.size())
    if isinstance(kind, pl.Categorical | pl.Enum):
        return _total(column.cat.len_bytes())
    if isinstance(kind, pl.List | pl.Array):
        return _text_bytes(column.explode())
    if isinstance(kind, pl.Struct):
        return sum(_text_bytes(column.struct.field(one.name)) for one in kind.fields)
    return 0


def _total(lengths: pl.Series) -> int:
    return int(lengths.cast(pl.Int64).sum())  # as they are, in 32 bits, their sum may be too large


def _broken(source: Path) -> StoreError:
    return StoreError(f"{source}: is not a complete Parquet file; it is cut off, damaged or of another kind.")
