"""The changes that recur over the answers of the run that is reviewed, and the way from a case to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.records import from_plain, to_plain
from ifonly.report.patterns import SMALLEST_CELL, cohort_patterns, pattern_rows, subgroups_of
from ifonly.result.table import believed
from ifonly.text.catalogue import Message


@dataclass(frozen=True)
class PatternShare:
    """How many subjects of a group have a pattern, and of these supported by evidence; None: too few to tell."""

    subjects: int
    of: int
    share: float
    low: float
    high: float
    supported: int | None
    supported_share: float | None
    supported_low: float | None
    supported_high: float | None


@dataclass(frozen=True)
class PatternGroup(PatternShare):
    """A pattern within a group of subjects."""

    by: str
    group: str


@dataclass(frozen=True)
class Pattern(PatternShare):
    """A change that recurs: in how many subjects, how often supported by evidence, and in which groups."""

    pattern: str
    """What cases are filtered by."""
    said: Message
    groups: tuple[PatternGroup, ...]


@dataclass(frozen=True)
class Patterns:
    """All patterns that may be shown, the most frequent first."""

    smallest_cell: int
    """Fewer subjects than this are not shown."""
    patterns: tuple[Pattern, ...]

    @classmethod
    def of(cls, table: pl.DataFrame | None, cohort: Cohort) -> Patterns:
        """Of a run's table, without answers that are not to be believed; none where there is no run."""
        if table is None:
            return cls(SMALLEST_CELL, ())
        found = cohort_patterns(believed(table), cohort.schema, by=subgroups_of(cohort), values=cohort)
        rows = pattern_rows(found)
        return cls(SMALLEST_CELL, tuple(from_plain(Pattern, to_plain(row), what="pattern") for row in rows))

    def among(self, named: Sequence[str]) -> list[Pattern]:
        """Those of these names."""
        return [one for one in self.patterns if one.pattern in named]
