"""A run's summary as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
from rich import box
from rich.table import Table
from rich.text import Text

from ifonly.report.improvements import ROUNDING
from ifonly.report.summary import Summary
from ifonly.report.summary_text import percent

AT_LEAST = "≥ "
SHOWN_CASES = 10
"""Of the interesting cases only the best are shown."""


def summary_tables(summary: Summary) -> Iterator[Table]:
    """Improvement by budget, group and warnings, the warnings, and the best of the interesting cases; what there is."""
    if summary.by_budget.height:
        yield _breakdown("changes allowed", summary.by_budget, "max_changes")
    for name, label in summary.group_labels.items():
        yield _breakdown(label, summary.by_group.filter(pl.col("by") == name), "group")
    if summary.trust.examined:
        yield _breakdown("trust", summary.by_standing, "standing")
    if summary.warnings.height:
        yield _warnings(summary)
    if summary.cases.height:
        yield _cases(summary)


def _breakdown(heading: str, frame: pl.DataFrame, column: str) -> Table:
    table = _table(heading, "episodes", "mean improvement", "95 % interval", "median")
    for row in frame.iter_rows(named=True):
        interval = "-" if row["low"] is None else f"{percent(row['low'])} to {percent(row['high'])}"
        mean, median = (_average(row[name], row[f"upper_{name}"]) for name in ("mean", "median"))
        table.add_row(Text(str(row[column])), f"{row['episodes']:,}", mean, interval, median)
        if AT_LEAST in mean + median:
            table.caption = f"{AT_LEAST}at least: some answers are not proven optimal"
    return table


def _average(value: float | None, upper: float | None) -> str:
    """An average, marked where it is a lower bound."""
    if value is None:
        return "-"
    is_known = upper is not None and upper - value <= ROUNDING
    return percent(value) if is_known else f"{AT_LEAST}{percent(value)}"


def _warnings(summary: Summary) -> Table:
    table = _table("warnings", "answers", "of those examined")
    for kind, count, share in summary.warnings.iter_rows():
        table.add_row(Text(kind), f"{count:,}", percent(share))
    return table


def _cases(summary: Summary) -> Table:
    table = _table("interesting cases", f"{summary.outcomes.label}", "improvement", "changed steps", "status")
    for row in summary.cases.head(SHOWN_CASES).iter_rows(named=True):
        table.add_row(*_case(row))
    if summary.cases.height > SHOWN_CASES:
        table.add_row(f"and {summary.cases.height - SHOWN_CASES:,} more")
    return table


def _case(row: dict[str, Any]) -> list[Text | str]:
    steps = ", ".join(str(step) for step in row["changed_steps"])
    outcomes = f"{row['observed']:.1f} -> {row['counterfactual']:.1f}"  # known, or there were no improvement
    return [Text(row["episode"]), outcomes, percent(row["improvement"]), steps, row["status"]]


def _table(first: str, *others: str) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        header_style="bold",
        caption_justify="left",
    )
    table.add_column(Text(first), overflow="fold")
    for heading in others:
        table.add_column(Text(heading), justify="right", no_wrap=True)
    return table
