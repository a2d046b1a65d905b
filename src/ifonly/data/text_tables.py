"""Tables as text: which encoding, separator and decimal sign a file uses, found in the file or refused with its line.

Lines are counted from 1, the header included. No message quotes a cell: tables hold patient data.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Never

import numpy as np
import polars as pl

from ifonly.data.plain import repeated
from ifonly.errors import InputError, StoreError

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""What can stand between cells, and what it is called."""

ROWS_TRIED, LETTERS_TRIED = 200, 1_000_000
"""Rows that decide what separates the cells, and how far they are looked for."""

MISSING_WORDS = ("na", "n/a", "#n/a", "n.a.", "nan", "null", "none", "missing", "-", "--", "?", ".")
"""What people and programs write among numbers where there is no value, in small letters."""

HALF = 0.5
"""A column with at least this share of numbers is one of numbers; the others are then mistakes."""

_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_WITH_POINT = r"^\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*$"
_WITH_COMMA = r"^\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*$"
_WITH_BOTH = r"^\s*[+-]?\d+(\.\d+)+,\d+\s*$|^\s*[+-]?\d+(,\d+)+\.\d+\s*$|^\s*[+-]?\d+(,\d+){2,}\s*$"
_THOUSANDS = r"^\s*[+-]?[1-9]\d{0,2},\d{3}\s*$"
_NAMELESS = "\x1fcolumn "
_NAMES_FIRST = "the first line must hold the names of all columns: take out what stands above them"
_FIRST_LINE = re.compile(r"(?:[ \t]*\r?\n)*")
_UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
"""Bytes that are no letters in Windows-1252."""
_NO_TEXT = {
    b"PAR1": ("a Parquet file", "end its name in .parquet"),
    b"PK\x03\x04": ("a spreadsheet or a packed folder", "save the sheet as CSV, or unpack the table"),
    b"\xd0\xcf\x11\xe0": ("a spreadsheet", "save the sheet as CSV"),
}
"""Other files that are taken for text, by how they begin."""
MOST_UNPACKED, MOST_TIMES_UNPACKED = 100 * 2**20, 100
"""A packed table of more bytes and times its size than that repeats itself, and could fill the memory."""


@dataclass(frozen=True)
class TextForm:
    """How a table was written down."""

    encoding: str = "UTF-8"
    separator: str = ","
    decimal_comma: bool = False

    def __str__(self) -> str:
        decimals = ", with decimal commas" if self.decimal_comma else ""
        return f"{self.encoding}, separated by {SEPARATORS[self.separator]}{decimals}"

    @property
    def is_usual(self) -> bool:
        """Whether it is what ifonly writes itself."""
        return self == TextForm()


def parse_text(source: Path, data: bytes) -> tuple[pl.DataFrame, TextForm]:
    """The table in the bytes of a file, packed with gzip or not, every cell as text; and how it was written.

    Cells stay what they are, so that ids such as 007 do; only decimal commas become points, in columns of numbers.
    Empty lines before the header and empty rows at the end are no part of the table.
    """
    text, encoding = _decoded(source, _unpacked(source, data))
    if "\n" not in text:
        text = text.replace("\r", "\n")  # as some spreadsheets end lines
    told = re.match(r"\s*sep=(.)\r?\n", text)  # as spreadsheets write it
    begins = _FIRST_LINE.match(text, told.end() if told else 0)
    assert begins is not None, "it matches nothing, too"
    skipped = text.count("\n", 0, begins.end())
    text = text[begins.end() :]
    if not text.strip():
        raise InputError(f"{source}: is empty.")
    separator = told[1] if told and told[1] in SEPARATORS else _separator(source, text)
    frame = _without_empty_rows(source, _parsed(source, text, separator, skipped), skipped)
    no_commas = separator == "," and '"' not in text  # within cells
    frame, commas = (frame, False) if no_commas else _with_points(source, frame, skipped)
    return frame, TextForm(encoding, separator, commas)


def _unpacked(source: Path, data: bytes) -> bytes:
    if not data.startswith(b"\x1f\x8b"):
        if source.suffix.lower() == ".gz":
            raise StoreError(f"{source}: is not packed with gzip, as its name says; take .gz off its name.")
        return data
    most = max(MOST_UNPACKED, MOST_TIMES_UNPACKED * len(data))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(most + 1)
    except (OSError, EOFError, zlib.error):
        raise StoreError(f"{source}: is packed with gzip, and cut off or damaged; get a fresh copy.") from None
    if len(unpacked) > most:
        raise unmeasured(source)
    return unpacked


def unmeasured(source: Path) -> StoreError:
    """The error for a packed file that repeats itself, and could fill the memory."""
    return StoreError(
        f"{source}: unpacks to more than {MOST_TIMES_UNPACKED} times its size, as no table of measurements does; "
        "unpack it yourself, if it is one."
    )


def _decoded(source: Path, data: bytes) -> tuple[str, str]:
    """The text, and the name of its encoding."""
    for first, (kind, remedy) in _NO_TEXT.items():
        if data.startswith(first):
            raise StoreError(f"{source}: is {kind} and no text; {remedy}.")
    if data.startswith(codecs.BOM_UTF8):
        return _strictly(source, data, "utf-8-sig"), "UTF-8"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return _strictly(source, data, "utf-16"), "UTF-16"
    if zero := data.find(b"\0") + 1:
        return _without_mark(source, data, zero), "UTF-16"
    try:
        return data.decode("utf-8"), "UTF-8"
    except UnicodeDecodeError as error:
        return _one_byte_each(source, data, error.start)


def _without_mark(source: Path, data: bytes, zero: int) -> str:
    """Text with two bytes for each letter: every other byte of what is mostly digits is zero then."""
    halves = {"utf-16-le": data[1:1000:2], "utf-16-be": data[:1000:2]}
    shares = {encoding: half.count(0) / max(len(half), 1) for encoding, half in halves.items()}
    likely = max(shares, key=lambda encoding: shares[encoding])
    if shares[likely] < HALF:
        raise _no_text(source, data[:zero].decode("latin-1"))
    return _strictly(source, data, likely)


def _no_text(source: Path, before: str) -> StoreError:
    return StoreError(f"{source}: line {_line(before)}: holds zero bytes, so it is no text; write it again, as UTF-8.")


def _strictly(source: Path, data: bytes, encoding: str) -> str:
    try:
        text = data.decode(encoding)
        if zero := text.find("\0") + 1:  # as in UTF-32, which begins as UTF-16 does
            raise _no_text(source, text[:zero])
        return text
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding, errors="ignore")
        raise StoreError(
            f"{source}: line {_line(before)}: is not valid {encoding.upper()}, as the file begins; it is cut off or "
            "damaged: write it again, as UTF-8."
        ) from None


def _one_byte_each(source: Path, data: bytes, first: int) -> tuple[str, str]:
    """Text with a byte for each letter, unless other letters show that it is UTF-8 with mistakes.

    Latin-1 and Windows-1252 agree on all letters; the bytes of neither are, by chance, UTF-8 that means something else.
    """
    line = _line(data[:first].decode("latin-1"))
    if any(len(letter.encode()) > 1 for letter in data.decode("utf-8", errors="ignore")):
        raise StoreError(
            f"{source}: line {line}: holds bytes that are not UTF-8, while others of the file are; it is damaged, or "
            "was joined from files of different encodings: write it again, as UTF-8."
        )
    if _UNDEFINED.search(data):
        raise StoreError(
            f"{source}: line {line}: is neither UTF-8 nor UTF-16, Latin-1 or Windows-1252; write it again, as UTF-8."
        )
    return data.decode("cp1252"), "Latin-1"


def _line(before: str) -> int:
    return before.count("\n") + 1


def _separator(source: Path, text: str) -> str:
    """What stands between cells: what gives all of the first rows as many cells as the header, and at least two."""
    fitting, in_header = {}, {}
    for sign in SEPARATORS:
        try:
            read = list(islice(_rows(text[:LETTERS_TRIED], sign), ROWS_TRIED))
        except csv.Error:
            continue
        cut_off = len(text) > LETTERS_TRIED and 1 < len(read) < ROWS_TRIED
        rows = [row for row in (read[:-1] if cut_off else read) if row]
        in_header[sign] = len(rows[0]) if rows else 0
        if rows and all(len(row) == len(rows[0]) > 1 for row in rows):
            fitting[sign] = len(rows[0])
    best = [sign for sign, count in fitting.items() if count == max(fitting.values())]
    if len(best) > 1:
        names = " or by ".join(SEPARATORS[sign] for sign in best)
        raise InputError(
            f"{source}: line 1: its cells could be separated by {names}; put names with such a sign in quotes."
        )
    if best:
        return best[0]
    return max(in_header, key=lambda sign: in_header[sign], default=",")


def _rows(text: str, separator: str, *, strict: bool = False) -> Any:
    return csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=strict)


def _parsed(source: Path, text: str, separator: str, skipped: int) -> pl.DataFrame:
    try:
        if text.find("\n", 0, LETTERS_TRIED) < 0 and len(text) > LETTERS_TRIED:
            raise InputError(f"{source}: its first line has more than {LETTERS_TRIED:,} letters; is it a table?")
        header: list[str] = next(_rows(text[:LETTERS_TRIED], separator), [])
        names = [_plain(name) or f"{_NAMELESS}{number}" for number, name in enumerate(header, 1)]
        if twice := repeated(names):
            raise InputError(f"{source}: columns {twice} occur more than once; keep one of each.")
        # polars leaves doubled quotes in column names as they are, so the names come from here.
        frame = pl.read_csv(io.BytesIO(text.encode()), separator=separator, infer_schema_length=0, new_columns=names)
        named = max((number for number, name in enumerate(header, 1) if name.strip()), default=1)
        if frame.to_series(named - 1).null_count():
            _require_cells(source, text, separator, named, skipped)
        return _with_names(source, frame.with_columns(pl.all().str.strip_chars()), skipped)
    except pl.exceptions.NoDataError:
        raise InputError(f"{source}: is empty.") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, csv.Error):
        # The parser's own message may quote whole rows: patient data.
        raise StoreError(f"{source}: {_what_is_wrong(text, separator, skipped)}") from None


def _require_cells(source: Path, text: str, separator: str, named: int, skipped: int) -> None:
    """Refuse rows that end before the last column with a name: which of their cells is missing cannot be known."""
    rows, begins = _rows(text, separator), 1
    for row in rows:
        if len(row) < named and any(cell.strip() for cell in row):
            raise InputError(
                f"{source}: line {begins + skipped}: has {len(row)} cells, fewer than the header ({named}); which is "
                f"not there cannot be known; write all {SEPARATORS[separator]}, those of empty cells too."
            )
        begins = rows.line_num + 1


def _plain(name: str) -> str:
    """A name without spaces around it, and with a plain one for line breaks and others that cannot be told from it."""
    return " ".join(re.sub("[\u200b\ufeff]", "", name).split()) if not name.isprintable() else name.strip()


def _with_names(source: Path, frame: pl.DataFrame, skipped: int) -> pl.DataFrame:
    """The table without nameless columns that hold nothing, as after separators at ends of lines.

    One that holds something is kept: programs write the numbers of rows so.
    """
    nameless = [name for name in frame.columns if name.startswith(_NAMELESS)]
    empty = [name for name in nameless if _is_empty(frame[name]).all()]
    named = [name for name in nameless if name not in empty]
    if len(named) > 1:
        numbers = " and ".join(name.removeprefix(_NAMELESS) for name in named[:2])
        raise InputError(f"{source}: line {skipped + 1}: columns {numbers} have no name; {_NAMES_FIRST}.")
    return frame.drop(empty).rename(dict.fromkeys(named, ""))


def _without_empty_rows(source: Path, frame: pl.DataFrame, skipped: int) -> pl.DataFrame:
    """The table without empty rows at its end; between others, where one would shift all that follow, it is refused."""
    rows = _is_empty(frame.to_series()).arg_true()  # of which alone others are looked at
    empty = rows.filter(frame[rows].select(pl.all_horizontal(pl.all().fill_null("") == "")).to_series()).to_numpy()
    surplus = int((empty[::-1] == frame.height - 1 - np.arange(empty.size)).cumprod().sum())  # at the end
    height = frame.height - surplus
    if empty.size > surplus:
        line = int(empty[0]) + 2 + skipped
        raise InputError(f"{source}: row {int(empty[0]) + 1} (line {line}): is empty; take it out.")
    return frame.head(height)


def _is_empty(cells: pl.Series) -> pl.Series:
    return cells.fill_null("") == ""


def _what_is_wrong(text: str, separator: str, skipped: int) -> str:
    """The first line that cannot be read, and why, for a file that the parser refused."""
    rows = _rows(text, separator, strict=True)
    header, begins = 0, 1
    try:
        for number, row in enumerate(rows):
            header = len(row) if number == 0 else header
            if len(row) > header == 1:
                return f"line {skipped + 1}: has a single cell, unlike those after it; {_NAMES_FIRST}."
            if len(row) > header:
                return (
                    f"line {begins + skipped}: has {len(row)} cells, more cells than the header ({header}); put cells "
                    f"with {SEPARATORS[separator]} in quotes, or take the surplus out."
                )
            begins = rows.line_num + 1
    except csv.Error:
        return f"line {begins + skipped}: a quote is opened and not closed; every quote must be closed."
    return "is not a readable CSV file; write it again, as UTF-8 with commas, and every quote closed."


def _with_points(source: Path, frame: pl.DataFrame, skipped: int) -> tuple[pl.DataFrame, bool]:
    """Decimal commas as points in all columns of numbers; and whether there were any.

    What could be a decimal comma or part the thousands is refused, unless other numbers of the file tell which it is.
    """

    def refuse(column: str, row: int, why: str) -> Never:
        raise InputError(f"{source}: column {column!r}, row {row + 1} (line {row + 2 + skipped}): {why}.")

    columns = [name for name in frame.columns if _is_of_numbers(frame[name])]
    ambiguous, decimal, pointed, with_point, with_comma = [], [], [], 0, 0
    for name in columns:
        cells = frame[name]
        if (row := _first(cells.str.contains(_WITH_BOTH))) is not None:
            refuse(name, row, "holds a number whose thousands are parted; take that out")
        commas, thousands = cells.str.contains(_WITH_COMMA), cells.str.contains(_THOUSANDS)
        ambiguous += [(name, row) for row in [_first(thousands)] if row is not None]
        decimal += [(name, row) for row in [_first(commas & ~thousands)] if row is not None]
        points = cells.str.contains(_WITH_POINT)
        pointed += [(name, row) for row in [_first(points)] if row is not None]
        with_point, with_comma = with_point + int(points.sum()), with_comma + int(commas.sum())
    if not decimal and not ambiguous:
        return frame, False
    if pointed:  # the sign that is rarer is the slip
        rare, usual = ("point", "comma") if with_point < with_comma else ("comma", "point")
        why = f"holds a number with a {rare}, while most of the file use a decimal {usual}; write all with one"
        refuse(*(pointed if rare == "point" else decimal or ambiguous)[0], why)
    if not decimal:
        why = "holds a number with a comma that may be a decimal comma or part the thousands; write it with a point"
        refuse(*ambiguous[0], why)
    touched = list(dict.fromkeys(name for name, _ in [*decimal, *ambiguous]))
    written = pl.col(touched)
    as_points = pl.when(written.str.contains(_WITH_COMMA)).then(written.str.replace(",", ".")).otherwise(written)
    return frame.with_columns(as_points), True


def _is_of_numbers(cells: pl.Series) -> bool:
    """Whether a column holds numbers with a comma, and mostly numbers."""
    filled = cells.filter(cells.str.strip_chars().fill_null("") != "")
    if not len(filled) or not filled.str.contains(",", literal=True).any():
        return False
    numbers = filled.str.contains(f"{_NUMBER}|{_WITH_COMMA}|{_WITH_BOTH}")
    return float(numbers.mean() or 0.0) >= HALF  # type: ignore[arg-type]


def _first(mask: pl.Series) -> int | None:
    rows = mask.arg_true()
    return int(rows[0]) if len(rows) else None
