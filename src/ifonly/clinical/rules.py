"""How event tables are made of typed rows: with a reason for every row that is removed.

Each `Rule` is a query over the passes' rows with a column `reason`, null for rows that stay, and a second query that
makes the event table of those. Reasons are tried in the order in which they are written. Rows removed for reasons that
may be the table's fault are reported, and refused where they are most of their kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ifonly.clinical.database import quoted
from ifonly.errors import InputError

CHART_MARGIN = 24.0
"""Hours before admission to intensive care from which charted values and infusions of a stay count."""


@dataclass(frozen=True)
class Rule:
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


def values(rows: Iterable[tuple[Any, ...]], name: str, *columns: str) -> str:
    """A small table written into the query."""

    def written(value: Any) -> str:
        return quoted(value) if isinstance(value, str) else str(value)

    content = ", ".join("(" + ", ".join(map(written, row)) + ")" for row in rows)
    return f"(VALUES {content}) AS {name}({', '.join(columns)})"


def by_item(groups: Mapping[str, Mapping[str, Any]]) -> list[tuple[int, str]]:
    """Pairs of item id and the name of its group."""
    return [(int(item), name) for name, group in groups.items() for item in group]


def kept_where(name: str, condition: str) -> str:
    """The query for how many of a rule's rows that stay meet a condition."""
    return f"SELECT count(*) FROM {name}_rows WHERE reason IS NULL AND {condition}"


def hour(column: str) -> str:
    """Hours from admission to intensive care until a time."""
    return f"(epoch({column}) - epoch(s.intime)) / 3600"


def reasons(*cases: tuple[str, str]) -> str:
    """The first reason whose condition holds, else null."""
    return "CASE " + " ".join(f"WHEN {condition} THEN {quoted(reason)}" for reason, condition in cases) + " END"


NO_STAY = (("no stay", "r.stay IS NULL"), ("unknown stay", "s.stay IS NULL"))
FLAGGED = ("flagged as an error", "r.flagged")


def outside(start: str, stop: str) -> tuple[str, str]:
    """The reason for what lies outside the stay (from `CHART_MARGIN` before it)."""
    return "outside the stay", f"{stop} < {-CHART_MARGIN} OR {start} > s.hours"


def charted_reasons(*own: tuple[str, str], last: tuple[tuple[str, str], ...] = ()) -> str:
    """The reason of rows that are charted at a time: what they have in common around those of their `own`."""
    no_time = ("no time", "r.time IS NULL")
    return reasons(*NO_STAY, no_time, FLAGGED, *own, outside(hour("r.time"), hour("r.time")), *last)


def same_admission(before: float, after: float) -> str:
    """Rows of the stay's admission (or of none, but of its patient) within the stay and these margins around it."""
    return (
        f"s.subject = r.subject AND (r.admission IS NULL OR r.admission = s.admission) "
        f"AND {hour('r.time')} BETWEEN {-before} AND s.hours + {after}"
    )


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
                "MIMIC's? Read the file as it was shipped."
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
