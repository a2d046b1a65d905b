"""Which database a folder holds - MIMIC-III, MIMIC-IV, eICU -, where its tables are, and how their files are written.

Headers are read here, before any database opens a file: a missing table or column or a wrong delimiter is then
reported in words, and dialect and columns are passed to the reader instead of being inferred from a sample.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from ifonly.clinical.items import eicu_items, mimic_items
from ifonly.data.text_tables import MOST_TIMES_UNPACKED, MOST_UNPACKED, unmeasured
from ifonly.errors import InputError, StoreError

Release = Literal["MIMIC-III", "MIMIC-IV", "eICU"]

GZIP_MAGIC = b"\x1f\x8b"
PACKED_LOOKED_AT = 2**20
"""Bytes at the beginning of a packed file; real tables unfold to some ten times that."""
OMOP = {"person", "visit_occurrence", "measurement", "drug_exposure"}
"""Tables by which another kind of database is told."""
MOST_LOOKED_INTO = 200
"""Folders inside one that holds no tables."""
WRONG_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True)
class Use:
    """What is read from a column, in a word that `passes` knows: an id, a time, a number, text, a mark."""

    kind: str
    column: str
    """Empty for what is true of every row."""
    required: bool

    @classmethod
    def of(cls, text: str) -> Use:
        """As the list of tables writes it: "number valuenum", with a question mark where the column may be absent."""
        kind, _, column = text.partition(" ")
        return cls(kind, column.removesuffix("?"), bool(column) and not column.endswith("?"))


@dataclass(frozen=True)
class Layout:
    """Where a release keeps one table, and what is read of it."""

    file: str
    """Without extension, with its folder."""
    reads: Mapping[str, tuple[Use, ...]]
    """By our names; of several uses one must hold."""
    also: tuple[str, ...] = ()
    """Columns that only say which rows count."""
    items: str | None = None
    """Rows of these items of `items_of` count."""
    required: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that must be there."""
        return (*(use.column for uses in self.reads.values() for use in uses if use.required), *self.also)


@dataclass(frozen=True)
class Table:
    """One file of a source: its columns in the order of the file, lower case."""

    path: Path
    columns: tuple[str, ...]
    compressed: bool

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.path.stat().st_size

    def has(self, column: str) -> bool:
        """Whether the file has this column (some come and go between releases)."""
        return column in self.columns


@dataclass(frozen=True)
class Source:
    """A folder of a database's tables, recognised; `tables` by the names of `LAYOUTS`."""

    folder: Path
    release: Release
    tables: Mapping[str, Table]
    items: Mapping[str, Any]
    """Which items are read; the packaged list, with what a user has added."""


def _layouts() -> Mapping[Release, Mapping[str, Layout]]:
    text = resources.files("ifonly.clinical").joinpath("tables.json").read_text(encoding="utf-8")
    return {
        release: {
            name: Layout(
                table["file"],
                {
                    ours: tuple(Use.of(text) for text in ([given] if isinstance(given, str) else given))
                    for ours, given in table["columns"].items()
                },
                tuple(table.get("also", "").split()),
                table.get("items"),
                table.get("required", True),
            )
            for name, table in tables.items()
        }
        for release, tables in json.loads(text).items()
    }


LAYOUTS = _layouts()
"""Every table that is read, per release, with what is read of it; what may be absent is marked as such."""
STAYS: Mapping[Release, str] = {"MIMIC-IV": "stays", "MIMIC-III": "stays", "eICU": "patient"}
"""The table of stays, by which a release is recognised."""


def find_source(folder: str | Path) -> Source:
    """Recognise MIMIC-III, MIMIC-IV or eICU in `folder`, and check its tables' headers.

    File names count in any case, as `.csv` or `.csv.gz`; of both, the packed one, as PhysioNet ships it, is read.
    """
    root = Path(folder)
    if not root.is_dir():
        raise StoreError(f"{root} is not a folder; point at the folder with the tables as PhysioNet ships them.")
    around, other = root.resolve().parent, {"icu": "patients", "hosp": "stays"}.get(root.resolve().name.casefold())
    if other is not None and _find_file(around, LAYOUTS["MIMIC-IV"][other].file) is not None:
        root = around  # who points at one of MIMIC-IV's two folders means the release
    release = _release(root)
    tables: dict[str, Table] = {}
    for name, layout in LAYOUTS[release].items():
        path = _find_file(root, layout.file)
        if path is not None:
            tables[name] = _open_table(path, layout, release)
        elif layout.required:
            raise StoreError(
                f"{root} looks like {release}, but the table {layout.file}.csv.gz (or .csv) is missing; "
                "get the release as a whole."
            )
    return Source(root, release, tables, eicu_items() if release == "eICU" else mimic_items())


def _release(root: Path) -> Release:
    """The release whose table of ICU stays is there."""
    for release, stays in STAYS.items():
        if _find_file(root, LAYOUTS[release][stays].file) is not None:
            return release
    names = {item.name.casefold().removesuffix(".gz") for item in root.iterdir()}
    marks: tuple[tuple[Release, str], ...] = (
        ("MIMIC-IV", "hosp"),
        ("MIMIC-III", "chartevents.csv"),
        ("eICU", "vitalperiodic.csv"),
    )
    for release, mark in marks:
        if mark in names:
            missing = LAYOUTS[release][STAYS[release]].file
            raise StoreError(
                f"{root} looks like {release}, but its table of ICU stays, {missing}.csv.gz (or .csv), is missing."
            )
    if len(OMOP & {name.partition(".")[0] for name in names}) > 1:
        raise StoreError(
            f"{root} looks like an OMOP database, which is read by way of MEDS: make a MEDS dataset of it, by meds_etl "
            "for instance, and point at that."
        )
    inner = next(filter(_holds_stays, islice(chain(root.glob("*/"), root.glob("*/*/")), MOST_LOOKED_INTO)), None)
    if inner is not None:
        raise StoreError(f"{root} holds no tables itself, but {inner} does: point at that folder.")
    raise StoreError(
        f"{root} holds neither MIMIC-III (ICUSTAYS.csv.gz and others, side by side) nor MIMIC-IV (the folders hosp and "
        "icu) nor eICU (patient.csv.gz, vitalPeriodic.csv.gz and others) nor a MEDS dataset (Parquet files with the "
        "columns time and code, in a folder data); point at the folder that holds them directly, or at a table's file."
    )


def _holds_stays(folder: Path) -> bool:
    try:
        return any(_find_file(folder, LAYOUTS[release][stays].file) is not None for release, stays in STAYS.items())
    except OSError:  # one that may not be read
        return False


def _find_file(root: Path, name: str) -> Path | None:
    """The file `name` (with its folder), packed or not, whatever the case of its name."""
    folders = [root]
    *parents, base = name.casefold().split("/")
    for part in parents:
        folders = [item for folder in folders for item in sorted(folder.iterdir()) if item.name.casefold() == part]
        folders = [folder for folder in folders if folder.is_dir()]
    found = {item.name.casefold(): item for folder in folders for item in sorted(folder.iterdir()) if item.is_file()}
    return found.get(f"{base}.csv.gz") or found.get(f"{base}.csv")


def _open_table(path: Path, layout: Layout, release: Release) -> Table:
    header, compressed = _read_header(path)
    columns = tuple(column.strip().casefold() for column in header)
    missing = [column for column in layout.columns if column not in columns]
    if missing and len(columns) == 1:
        for delimiter, word in WRONG_DELIMITERS.items():
            if delimiter in columns[0]:
                raise InputError(
                    f"{path}: the columns are separated by {word}; tables of {release} have commas. Read the file as "
                    "it was shipped, or write it anew with commas."
                )
    if missing:
        raise InputError(
            f"{path}: the column {missing[0]!r} is missing ({release} needs {', '.join(layout.columns)}); "
            f"the header names {len(columns)} column(s). Is it the table of another release, or was it edited?"
        )
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise InputError(f"{path}: the header names the column {twice[0]!r} twice; which one counts cannot be known.")
    return Table(path, columns, compressed)


def _read_header(path: Path) -> tuple[list[str], bool]:
    """The names of the first line, and whether the file is packed (by its content, not by its name)."""
    try:
        with path.open("rb") as raw:
            compressed = raw.read(2) == GZIP_MAGIC
        if path.suffix.casefold() == ".gz" and not compressed and path.stat().st_size:
            raise StoreError(f"{path} is named as a gzip file but is none; get it again, or unpacked as .csv.")
        if compressed:
            _require_measure(path)
        with gzip.open(path, "rb") if compressed else path.open("rb") as file:
            line = file.readline(1_000_000).decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise truncated(path) from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: the header is not text in UTF-8; read the file as it was shipped.") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read ({error.strerror}).") from None
    if not line.strip():
        raise StoreError(f"{path} is empty, without even a header; it may be an incomplete download. Get it again.")
    return next(csv.reader([line])), compressed


def _require_measure(path: Path) -> None:
    """Refuse a packed file whose beginning repeats itself: a few megabytes may unfold to days of reading."""
    with path.open("rb") as raw:
        packed = raw.read(PACKED_LOOKED_AT)
    most = max(MOST_UNPACKED, MOST_TIMES_UNPACKED * len(packed))
    if len(zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(packed, most + 1)) > most:
        raise unmeasured(path)


def truncated(path: Path) -> StoreError:
    """The error for a gzip file that ends too early or is damaged."""
    return StoreError(
        f"{path} is cut off or damaged: its gzip stream does not end as it should, as after an incomplete download. "
        "Get the file again (and compare its checksum with SHA256SUMS.txt of the release)."
    )
