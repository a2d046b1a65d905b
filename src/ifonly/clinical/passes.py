"""One pass over each table of a source: the rows that are needed, typed, as Parquet.

Columns are read as text and cast here, so that what cannot be cast is counted, or refused with its file, column and
row, instead of ending the pass somewhere in the middle with a row of data in the message.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ifonly.clinical.cache import Counts, code_of
from ifonly.clinical.database import Database, csv_relation, parquet_relation, quoted
from ifonly.clinical.items import items_of
from ifonly.clinical.sources import LAYOUTS, Layout, Source, Table
from ifonly.clinical.stages import ExtractStage, Report
from ifonly.errors import InputError

MOST_TEXT = 0.05
"""A numeric column of which more than this fraction is text is the wrong column, or another way to write numbers.

All columns that are read as numbers are numeric in MIMIC's own tables; results in words ("less than ...") stand in the
text column beside them. Text in them is thus damage, of which single cells can be spared.
"""
FEW_TEXT = 5
"""Up to so many texts in a column are no error, however short the table."""

TYPES = {"id": "BIGINT", "whole": "INTEGER", "time": "TIMESTAMP", "number": "DOUBLE"}
"""What is cast, by the word that a layout has for it."""
EXPRESSIONS = {
    "text": "{column}",
    "capital": "upper(trim({column}))",
    "always": "true",
    # A row that is marked as an error, the end of an infusion, orders that were cancelled or rewritten as others.
    "one": "coalesce({column} = '1', false)",
    "end": "coalesce({column} IN ('Stopped', 'D/C''d'), false)",
    "void": "coalesce({column} IN ('Rewritten', 'Cancelled'), false)",
    "nonzero": "coalesce(TRY_CAST({column} AS INTEGER) <> 0, false)",
}
"""What is not, likewise; marks that a table lacks are set nowhere."""

KINDS = {"BIGINT": "a whole number", "INTEGER": "a whole number", "TIMESTAMP": "a time (2101-12-31 23:59:59)"}


@dataclass(frozen=True)
class Typed:
    """A column of a source, cast: `structural` ones (ids, times) must cast, numbers that do not are counted."""

    name: str
    column: str
    type: str
    structural: bool = True


@dataclass(frozen=True)
class Pass:
    """What to keep of one table: typed columns, further expressions by name, and which rows."""

    typed: tuple[Typed, ...]
    expressions: tuple[tuple[str, str], ...] = ()
    where: str = "true"

    def query(self, table: Table) -> str:
        """The pass as SQL. Rows whose item is no number are kept too, to be refused afterwards."""
        chosen = [f"TRY_CAST({typed.column} AS {typed.type}) AS {typed.name}" for typed in self.typed]
        chosen += [f"{_uncastable(typed)} AS bad_{typed.name}" for typed in self.typed]
        chosen += [f"{expression} AS {name}" for name, expression in self.expressions]
        return f"SELECT {', '.join(chosen)} FROM {csv_relation(table)} WHERE {self.where}"


def _uncastable(typed: Typed) -> str:
    return f"({typed.column} IS NOT NULL AND TRY_CAST({typed.column} AS {typed.type}) IS NULL)"


def pass_stages(source: Source, database: Database, wanted: Mapping[str, str]) -> Iterator[ExtractStage]:
    """The pass over every event table of this source, as its layout says; dictionaries have none.

    `wanted` says in SQL which rows of a table count, by its name. Small files come first: what is wrong with them shows
    before the hours that the largest ones take.
    """
    layouts = LAYOUTS[source.release]
    for name, table in sorted(source.tables.items(), key=lambda item: item[1].size):
        if not layouts[name].reads:
            continue
        chosen = _pass(layouts[name], table, source.items, wanted.get(name, "true"))

        def write(path: Path, report: Report, table: Table = table, chosen: Pass = chosen) -> Counts:
            return run_pass(database, table, chosen, path, report=report)

        yield ExtractStage(name, pass_recipe(table, chosen), write, table.path.name.split(".")[0], table.size)


def _pass(layout: Layout, table: Table, items: Mapping[str, Any], where: str) -> Pass:
    typed: list[Typed] = []
    expressions: list[tuple[str, str]] = []
    for ours, uses in layout.reads.items():
        if uses and uses[0].kind in TYPES:
            (use,) = uses
            typed.append(Typed(ours, use.column, TYPES[use.kind], structural=use.kind != "number"))
        else:
            there = [use for use in uses if not use.column or table.has(use.column)]
            known = [EXPRESSIONS[use.kind].format(column=use.column) for use in there]
            expressions.append((ours, " OR ".join(known) or "false"))
    if layout.items is not None:
        ids = ", ".join(map(str, sorted(items_of(layout.items, items))))
        item = next(one for one in typed if one.name == "item")
        where = f"TRY_CAST({item.column} AS {item.type}) IN ({ids}) OR {_uncastable(item)}"
    return Pass(tuple(typed), tuple(expressions), where)


def antibiotics_of(items: Mapping[str, Any], drug: str, route: str) -> str:
    """Prescriptions of antibiotics by name that are not for eyes, ears, skin, lungs alone or the like.

    `drug` and `route` are the columns that say so.
    """
    names = "|".join(items["antibiotics"])
    words = "|".join(items["not_systemic"]["words"])
    routes = ", ".join(quoted(route) for route in items["not_systemic"]["routes"])
    return (
        f"regexp_matches(lower({drug}), '{names}') AND NOT regexp_matches(lower({drug}), '\\b({words})\\b') "
        f"AND coalesce(upper(trim({route})) NOT IN ({routes}), true)"
    )


def run_pass(database: Database, table: Table, chosen: Pass, path: Path, *, report: Report) -> Counts:
    """Make one pass, write its rows to `path`, and count: rows, those kept, and what was no number."""
    rows = database.write(chosen.query(table), path, reading=table, report=report)
    found = parquet_relation(path)
    flags = ", ".join(f"count_if(bad_{typed.name}), count({typed.name})" for typed in chosen.typed)
    (kept, *figures), *_ = database.rows(f"SELECT count(*), {flags} FROM {found}")
    counts: Counts = {"file": table.path.name, "rows": rows, "needed": kept}
    for typed, bad, good in zip(chosen.typed, figures[::2], figures[1::2], strict=True):
        if not bad:
            continue
        row = _first_uncastable(database, table, chosen, typed)
        if typed.structural or (bad > FEW_TEXT and bad > MOST_TEXT * (bad + good)):
            raise InputError(
                f"{table.path}, row {row} after the header: the column {typed.column!r} holds something else than "
                f"{KINDS.get(typed.type, 'a number')}, as in {bad:,} of {bad + good:,} rows that are needed; read the "
                "file as it was shipped."
            )
        counts.setdefault("text", {})[typed.column] = {"values": bad, "first row": row}
    return counts


def _first_uncastable(database: Database, table: Table, chosen: Pass, typed: Typed) -> int:
    """The first row in which a column holds something else: a second pass over the file, only after an error."""
    numbered = f"SELECT row_number() OVER () AS number, * FROM {csv_relation(table)}"
    database.rows("SET preserve_insertion_order = true")
    first = f"SELECT min(number) FROM ({numbered}) WHERE ({chosen.where}) AND {_uncastable(typed)}"
    ((row,),) = database.rows(first, reading=table)
    database.rows("SET preserve_insertion_order = false")
    return int(row)


def pass_recipe(table: Table, chosen: Pass) -> dict[str, Any]:
    """What a pass depends on: the file as it is now, and the query put to it."""
    stat = table.path.stat()
    query = chosen.query(table).replace(csv_relation(table), ", ".join(table.columns))
    return {
        "file": table.path.name,
        "bytes": stat.st_size,
        "modified": stat.st_mtime_ns,
        "query": query,
        # How the query is run and counted; what is asked, other modules included, is the query itself.
        "code": code_of("passes", "database"),
    }
