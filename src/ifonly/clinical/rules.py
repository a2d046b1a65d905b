"""How event tables are made of typed rows: with a reason for every row that is removed.

Each `EventRule` is a query over the passes' rows with a column `reason`, null for rows that stay, and a second query
that makes the event table of those; both stand in a file of sql/, as templates. Reasons are tried in the order in which
they are written. Rows removed for reasons that may be the table's fault are reported, and refused where they are most
of their kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ifonly.clinical.database import quoted
from ifonly.clinical.items import ids_of
from ifonly.clinical.treatments import DEFAULT_WEIGHT, MOST_FLUID, MOST_RATE, PLAUSIBLE_WEIGHT
from ifonly.errors import InputError

RULES = (
    *("admitted", "stays", "gcs_parts", "measurements", "urine", "ventilation", "vasopressors", "fluids"),
    *("antibiotics", "cultures"),
)
"""In the order in which they are applied: each may read the tables of those before it."""


@dataclass(frozen=True)
class EventRule:
    """How one event table is made: rows with reasons, and the table of those without."""

    name: str
    rows: str
    """Query with the columns `kind` and `reason`, read by `table` under the name `{name}_rows`."""
    table: str
    passes: tuple[str, ...]
    """Which passes it reads."""
    after: tuple[str, ...] = ()
    """Which event tables it reads."""
    figures: tuple[tuple[str, str], ...] = ()
    """What else to count: words, and a query for one number."""
    intermediate: bool = False
    """Whether only other rules read it."""


def read_rules(release: str, tables: Collection[str], items: Mapping[str, Any]) -> Iterator[EventRule]:
    """The rules for a source with these tables and items."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "sql"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        **{helper.__name__: helper for helper in (by_item, ids_of, quoted, values)},
        "items": items,
        "DEFAULT_WEIGHT": DEFAULT_WEIGHT,
        "MOST_FLUID": MOST_FLUID,
        "MOST_RATE": MOST_RATE,
        "PLAUSIBLE_WEIGHT": PLAUSIBLE_WEIGHT,
    }
    for name in RULES:
        file = "infection" if name in ("antibiotics", "cultures") else name
        template: Any = environment.get_template(f"{file}.sql")
        said = template.make_module({"name": name, "release": release, "tables": tables})
        yield EventRule(
            name,
            rows=said.rows(),
            table=said.table(),
            passes=tuple(said.passes),
            after=tuple(getattr(said, "after", ())),
            figures=tuple(getattr(said, "figures", {}).items()),
            intermediate=getattr(said, "intermediate", False),
        )


def values(rows: Iterable[tuple[Any, ...]], name: str, *columns: str) -> str:
    """A small table written into the query."""

    def written(value: Any) -> str:
        return quoted(value) if isinstance(value, str) else str(value)

    content = ", ".join("(" + ", ".join(map(written, row)) + ")" for row in rows)
    return f"(VALUES {content}) AS {name}({', '.join(columns)})"


def by_item(
    groups: Mapping[str, Mapping[str, Any]], factors: Mapping[str, float] | None = None
) -> list[tuple[int, str] | tuple[int, str, float]]:
    """Item ids with the name of their group, and with the group's factor where there are any."""
    return [
        (int(item), name) if factors is None else (int(item), name, factors[name])
        for name, group in groups.items()
        for item in group
    ]


DOUBTFUL = {
    "no time": "have no time",
    "negative duration": "end before they begin",
    "negative or no duration": "do not end after they begin",
    "negative amount": "have a negative amount",
    "negative rate": "have a negative rate",
    "unit not known": "have a unit that is not known",
    "implausible": "hold implausible values",
}
"""Reasons that a whole table may have in common, as when columns are swapped or units are others, in words.

Reasons that are usual (an order that was cancelled, a laboratory value from before intensive care, stays that a user
has left out) are not among them.
"""
ON_PURPOSE = "no evidence"
"""The reason of kinds of which nothing is meant to be kept."""
MOST = 0.5
"""Of the rows of a kind, without those removed for usual reasons; if more are doubtful, the table is not as shipped."""
FEW = 20
"""Doubtful rows of a kind up to this many are no error: in a handful of rows most may be slips."""

Kinds = Mapping[str, Mapping[str, int]]
"""Rows by kind and reason; the reason of those that stay is `kept`."""


def check_losses(table: str, kinds: Kinds, *, files: str) -> None:
    """Refuse an event table of which a kind has lost most rows for `DOUBTFUL` reasons; `files` says where to look."""
    for kind, counts in kinds.items():
        doubtful = {reason: counts[reason] for reason in DOUBTFUL if reason in counts}
        lost = sum(doubtful.values())
        if lost > FEW and lost > MOST * (lost + counts.get("kept", 0)):
            worst = max(doubtful, key=lambda reason: doubtful[reason])
            raise InputError(
                f"{files}: {lost:,} of {lost + counts.get('kept', 0):,} rows for {table} ({kind}) cannot be used; "
                f"{doubtful[worst]:,} of them {DOUBTFUL[worst]}. Are columns swapped, or are units others than "
                "expected? Read the file as it was shipped."
            )


def loss_notes(table: str, kinds: Kinds) -> Iterator[str]:
    """What was removed for each of the `DOUBTFUL` reasons, and kinds of which nothing is left."""
    for reason, words in DOUBTFUL.items():
        lost = {kind: counts[reason] for kind, counts in kinds.items() if reason in counts}
        if lost:
            listed = "; ".join(f"{kind}: {number:,} of {_total(kinds[kind]):,}" for kind, number in lost.items())
            yield f"{table}: {sum(lost.values()):,} rows {words} and are left out ({listed})."
    for kind, counts in kinds.items():
        if "kept" not in counts and set(counts) != {ON_PURPOSE}:
            why = ", ".join(f"{reason}: {number:,}" for reason, number in counts.items())
            yield f"{table}: none of {_total(counts):,} rows of {kind} is left ({why})."


def _total(counts: Mapping[str, Any]) -> int:
    return sum(counts.values())
