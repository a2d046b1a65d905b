"""MEDS datasets of any hospital as the typed rows that rules read.

A MEDS dataset is a folder with data/*.parquet: subject_id, time, code and numeric_value (or value), one row per event.
It has neither stays nor intervals, so both are made of codes of starts and ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ifonly.clinical.cache import Counts, code_of
from ifonly.clinical.code_map import CodeMap, Part, read_code_map
from ifonly.clinical.database import Database, parquet_relation, parquet_relations, quoted_name
from ifonly.clinical.rules import values
from ifonly.clinical.stages import ExtractStage, Report
from ifonly.data.plain import first_names
from ifonly.errors import InputError

SUBJECTS = ("subject_id", "patient_id")
NUMBERS = ("numeric_value", "value")
EVENTS = "meds_events"
TABLES = (
    *("stays", "patients", "admissions", "charted", "labs", "outputs", "inputs_metavision", "procedures"),
    *("prescriptions", "microbiology"),
)
"""The typed rows that are made of events, in this order, by the names that rules know."""
SHOWN = 8


@dataclass(frozen=True)
class MedsSource:
    """A MEDS dataset, recognised, and what its codes stand for."""

    folder: Path
    files: tuple[Path, ...]
    codes: CodeMap
    subject: str
    number: str
    release: str = "MEDS"
    rows: tuple[str, ...] = TABLES
    items: Any = field(default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", self.codes.items)

    @property
    def relation(self) -> str:
        """All rows, as SQL."""
        ends = quoted_name(self.codes.ends) if self.codes.ends else "NULL"
        chosen = f"SELECT {self.subject} AS subject, time, code, {self.number} AS number, {ends}::TIMESTAMP AS stop"
        return f"({chosen} FROM {parquet_relations(self.files)})"

    def stages(self, database: Database) -> Iterator[ExtractStage]:
        """One pass over all files for the events of known codes, then the typed rows that are made of these."""
        counted: dict[str | None, int] = dict(
            database.rows(f"SELECT code, count(*) FROM {self.relation} GROUP BY code")
        )
        found = self.codes.resolve(code for code in counted if code is not None)
        if not found:
            raise InputError(f"{self.folder}: no code of the dataset is in the code map; is it the map of another one?")
        query = _events_query(self, found)
        stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in self.files]
        code = code_of("meds", "code_map", "database")

        def write_events(path: Path, report: Report) -> Counts:
            database.write(query, path)
            ((kept,),) = database.rows(f"SELECT count(*) FROM {parquet_relation(path)}")
            others = [rows for code, rows in counted.items() if code not in found]
            matched = {item for item, _ in found.values()}
            idle = [entry for number, entry in enumerate(self.codes.entries, 1) if number not in matched]
            return {
                "file": "data/*.parquet",
                "rows": sum(counted.values()),
                "needed": kept,
                "codes not in the map": len(others),
                "rows of codes not in the map": sum(others),
                "entries of the map without a code in the data": [entry.codes[0][0] for entry in idle],
            }

        asked = _events_query(self, found, names=True)
        yield ExtractStage(EVENTS, {"files": stats, "query": asked, "code": code}, write_events, EVENTS)
        said = _template(self)
        for name in TABLES:
            sql = getattr(said, name)()

            def write(path: Path, report: Report, sql: str = sql, name: str = name) -> Counts:
                database.write(sql, path)
                ((rows,),) = database.rows(f"SELECT count(*) FROM {parquet_relation(path)}")
                return {"file": "data/*.parquet", "rows": rows, **_pair_counts(database, said, name)}

            yield ExtractStage(name, {"files": stats, "query": sql, "events": asked, "code": code}, write, name)

    def notes(self, database: Database, counts: Mapping[str, Counts]) -> Iterator[str]:
        """What a reader should know: what the map leaves out, what cannot be known, and what was ambiguous."""
        events = counts[EVENTS]
        yield (
            f"{events['needed']:,} of {events['rows']:,} rows have codes of the map; "
            f"{events['codes not in the map']:,} other codes, with {events['rows of codes not in the map']:,} rows, "
            "are not read."
        )
        if idle := events["entries of the map without a code in the data"]:
            named = ", ".join(first_names(idle[:SHOWN]))
            yield f"{len(idle):,} entries of the code map match no code of the data ({named}); are they spelt as there?"
        if lacking := self.codes.missing():
            named = ", ".join(lacking)
            yield f"the code map names no code for {named}: these are taken as never measured and never given."
        if not any(entry.purpose == "died_in_hospital" for entry in self.codes.entries):
            yield "the code map names no code for deaths in hospital: whether patients died is not known."
        for name, pairs in ((name, pairs) for one in counts.values() for name, pairs in one.get("pairs", {}).items()):
            if pairs["ambiguous"]:
                yield (
                    f"{name}: {pairs['ambiguous']:,} of {pairs['paired']:,} intervals overlap others of the same "
                    "codes, so that it cannot be known which end belongs to which start; they are paired in the order "
                    "of their times."
                )
            for words in ("starts without an end", "ends without a start"):
                if pairs[words]:
                    yield f"{name}: {pairs[words]:,} {words} are left out."


def meds_files(folder: Path) -> list[Path]:
    """The data files of a MEDS dataset; none where the folder is something else."""
    files = sorted((folder / "data").rglob("*.parquet")) if (folder / "data").is_dir() else []
    return files if files and {"time", "code"} <= set(_schema(files[0])) else []


def find_meds(folder: Path, codes: Path | None) -> MedsSource:
    """A MEDS dataset with its code map, checked."""
    files = meds_files(folder)
    if codes is None:
        raise InputError(
            f"{folder} is a MEDS dataset, and codes are its hospital's own: say which stand for what in a code map, "
            f"and give it with --set codes=FILE; `ifonly init {folder}` writes a first one."
        )
    subject, number = (one_of(names, files) for names in (SUBJECTS, NUMBERS))
    known = read_code_map(codes)
    wanted = {subject: "whole numbers", "time": "times without a zone", "code": "text", number: "numbers"}
    if known.ends:
        wanted[known.ends] = "times without a zone"
    for file in files:
        found = _schema(file)
        for column, kind in wanted.items():
            if column not in found or not _is(kind, found[column]):
                there = f"it holds {found[column]}" if column in found else "it is missing"
                raise InputError(f"{file}: the column {column!r} of a MEDS dataset must hold {kind}; {there}.")
    return MedsSource(folder, tuple(files), known, subject, number)


def _events_query(source: MedsSource, found: Mapping[str, tuple[int, Part]], *, names: bool = False) -> str:
    """Events of known codes, each distinct one once, with a number of its own; `names`: without paths, for recipes."""
    rows = [
        (code, item, part, source.codes.entries[item - 1].purpose, source.codes.entries[item - 1].factor)
        for code, (item, part) in sorted(found.items())
    ]
    relation = "data" if names else source.relation
    distinct = "SELECT DISTINCT r.subject, r.time::TIMESTAMP AS time, c.item, c.part, c.purpose, "
    return (
        f"SELECT row_number() OVER () AS id, * FROM ({distinct} r.number::DOUBLE * c.factor AS number, r.stop "
        f"FROM {relation} r JOIN {values(rows, 'c', 'code', 'item', 'part', 'purpose', 'factor')} USING (code))"
    )


def _template(source: MedsSource) -> Any:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "sql"), undefined=StrictUndefined, trim_blocks=True
    )
    treated = [
        (number, entry.purpose, entry.unit or "ml", entry.number_at)
        for number, entry in enumerate(source.codes.entries, 1)
        if entry.purpose in ("vasopressors", "fluids")
    ]
    environment.globals |= {
        "treated": values(treated or [(-1, "fluids", "ml", "at")], "t", "item", "purpose", "unit", "number_at"),
        "ending": [number for number, entry in enumerate(source.codes.entries, 1) if entry.ends_by_itself] or [-1],
        "knows_deaths": any(entry.purpose == "died_in_hospital" for entry in source.codes.entries),
    }
    template: Any = environment.get_template("meds.sql")
    return template.make_module({})


def _pair_counts(database: Database, said: Any, name: str) -> Counts:
    """How intervals were paired, for the tables that are made of intervals."""
    purposes = {"stays": ("stays",), "inputs_metavision": ("vasopressors", "fluids")}.get(name, ())
    pairs = {}
    for purpose in purposes:
        ((paired, ambiguous, starts, ends),) = database.rows(
            "SELECT count_if(start IS NOT NULL AND stop IS NOT NULL), count_if(ambiguous AND stop IS NOT NULL), "
            f"count_if(stop IS NULL), count_if(start IS NULL) FROM ({said.paired(purpose)})"
        )
        words = ("paired", "ambiguous", "starts without an end", "ends without a start")
        # Of no rows at all DuckDB counts nothing, not zero.
        pairs[purpose] = {
            word: count or 0 for word, count in zip(words, (paired, ambiguous, starts, ends), strict=True)
        }
    return {"pairs": pairs} if pairs else {}


def _schema(file: Path) -> dict[str, pl.DataType]:
    try:
        return dict(pl.read_parquet_schema(file))
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"{file}: not a Parquet file, or cut off; get it again.") from None


def one_of(names: tuple[str, ...], files: list[Path]) -> str:
    """The first of these columns that a dataset has."""
    found = _schema(files[0])
    for name in names:
        if name in found:
            return name
    wanted = " or ".join(map(repr, names))
    raise InputError(f"{files[0]}: a MEDS dataset has the column {wanted}; found {list(found)[:SHOWN]}.")


def _is(kind: str, found: pl.DataType) -> bool:
    if kind == "whole numbers":
        return found.is_integer()
    if kind == "numbers":
        return found.is_numeric()
    if kind == "text":
        return isinstance(found, pl.String | pl.Categorical | pl.Enum)
    return isinstance(found, pl.Datetime) and found.time_zone is None
