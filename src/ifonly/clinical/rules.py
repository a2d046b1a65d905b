"""How event tables are made of typed rows: with a reason for every row that is removed.

Each `Rule` is a query over the passes' rows with a column `reason`, null for rows that stay, and a second query that
makes the event table of those. Reasons are tried in the order in which they are written.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ifonly.clinical.database import quoted

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


def same_admission(before: float, after: float) -> str:
    """Rows of the stay's admission (or of none, but of its patient) within the stay and these margins around it."""
    return (
        f"s.subject = r.subject AND (r.admission IS NULL OR r.admission = s.admission) "
        f"AND {hour('r.time')} BETWEEN {-before} AND s.hours + {after}"
    )
