"""Results and summaries of runs as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import polars as pl
from rich import box
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ifonly.data.episode import IntArray
from ifonly.report.improvements import ROUNDING
from ifonly.report.patterns import ALL
from ifonly.result import Budget, Result, Status
from ifonly.result.improvement import Improvement
from ifonly.search.contributions import Contributions
from ifonly.text.catalogue import say
from ifonly.text.numbers import NOT_SHOWN, outcomes, percent
from ifonly.text.summaries import pattern_message

if TYPE_CHECKING:
    from ifonly.report.summary import RunSummary

STATUS_STYLES = {Status.OPTIMAL: "green", Status.GAP_REACHED: "green", Status.HEURISTIC: "yellow"}
"""Colours of the status; limits are red. The words say the same without colour."""

SHOWN_PATTERNS = 8
"""Of the changes that recur only the most frequent are shown."""
SHOWN_CASES = 10
"""Of the interesting cases of a run only the best are shown."""


def results_table(results: Sequence[Result]) -> Table:
    """One row per result: outcomes and bound in original units, the changes in words, and the work done.

    `bound` is the best outcome that any admissible sequence could have under the model, as far as is proven. Figures
    that belong together stand below each other, which leaves room for the words at 100 columns.
    """
    labels = {result.shown[1].label for result in results}
    label = labels.pop() if len(labels) == 1 else "outcome"
    table = _empty_table("episode")
    _add_figures(table, f"{label} observed\n-> counterfactual")
    table.add_column("changes", overflow="fold")
    table.add_column("status", no_wrap=True)
    _add_figures(table, "bound\ngap", "nodes\nseconds")
    for position, result in enumerate(results):
        table.add_row(*_cells(result), end_section=position < len(results) - 1)
    return table


def frontier_table(result: Result) -> Table:
    """One row per number of changes from 0: the best outcome with at most so many, how it is reached, and the gap."""
    table = _empty_table()
    _add_figures(table, "at most", result.shown[1].label, "gap")
    table.add_column("changes", overflow="fold")
    for budget in result.frontier:
        table.add_row(str(budget.max_changes), *_budget_cells(result, budget))
    return table


def alternatives_table(result: Result) -> Table:
    """One row per sequence, best first: its outcome, how much it falls short of the best, and its changes."""
    table = _empty_table()
    _add_figures(table, "rank", result.shown[1].label, "short of best")
    table.add_column("changes", overflow="fold")
    for rank, one in enumerate(result.alternatives, start=1):
        short = result.alternatives[0].outcome - one.outcome
        table.add_row(
            str(rank),
            f"{shown_value(result, one.outcome, one.actions):.6g}",
            _difference(short, result.certificate.tolerance),
            _changes(result, one.actions),
        )
    return table


def contributions_table(result: Result, contributions: Contributions) -> Table:
    """One row per change: what is lost if it alone is undone, what it gains alone, and its fair (Shapley) share.

    A gain is an improvement, whichever way the shown outcome is better; the shares add up to the whole one.
    """
    table = _empty_table()
    table.show_footer = True
    table.add_column("change", footer="together", overflow="fold")
    _add_figures(table, "lost if undone", "gain alone", "fair share")
    table.columns[-1].footer = f"{sum(change.share for change in contributions.changes):.4g}"
    words = dict(changes_in_words(result, result.actions))
    for change in contributions.changes:
        figures = (change.lost_without, change.alone, change.share)
        table.add_row(Text(f"step {change.step}: {words[change.step]}"), *(f"{figure:.4g}" for figure in figures))
    return table


def summary_tables(summary: RunSummary) -> Iterator[Table]:
    """Improvement by budget, group and evidence, the warnings, and the best of the interesting cases; what there is."""
    if summary.by_budget.height:
        yield _breakdown("changes allowed", summary.by_budget, "max_changes")
    for name, label in summary.group_labels.items():
        yield _breakdown(label, summary.by_group.filter(pl.col("by") == name), "group")
    if summary.evidence.examined:
        yield _breakdown("evidence", summary.by_examination, "examination")
    if summary.warnings.height:
        table = _empty_table("warnings")
        _add_figures(table, "answers", "of those examined")
        for code, count, share in summary.warnings.iter_rows():
            table.add_row(Text(say(f"warned.{code}")), f"{count:,}", percent(share))
        yield table
    if summary.patterns.height:
        yield _patterns(summary)
    if summary.cases.height:
        yield _cases(summary)


def shown_value(result: Result, outcome: float, actions: IntArray) -> float:
    """The outcome of `actions` [T] as `result` shows its own: read in its direction, without the cost of changes."""
    changes = int((actions != result.observed_actions).sum())
    value = outcome + result.query.change_cost * changes
    return value if result.shown[1].higher_is_better else 0.0 - value


def changes_in_words(result: Result, actions: IntArray) -> list[tuple[int, str]]:
    """The steps at which `actions` [T] differ from the observed ones, and how."""
    describe = result.schema.actions.describe_change
    pairs = zip(result.observed_actions.tolist(), actions.tolist(), strict=True)
    return [(step, describe(before, after)) for step, (before, after) in enumerate(pairs) if before != after]


def _empty_table(first: str | None = None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    if first is not None:
        table.add_column(Text(first), overflow="fold")
    return table


def _add_figures(table: Table, *headings: str) -> None:
    """Columns of numbers."""
    for heading in headings:
        table.add_column(escape(heading), justify="right", no_wrap=True)


def _budget_cells(result: Result, budget: Budget) -> list[RenderableType]:
    if budget.outcome is None or budget.clipped_outcome is None or budget.actions is None:
        code = "no admissible sequence" if budget.upper_bound == -math.inf else "nothing found yet"
        return [NOT_SHOWN, NOT_SHOWN, say(f"table.{code}")]
    return [
        f"{result.query.reward.show(budget.clipped_outcome).value:.6g}",
        _difference(budget.upper_bound - budget.outcome, result.certificate.tolerance),
        _changes(result, budget.actions),
    ]


def _cells(result: Result) -> list[RenderableType]:
    return [
        Text(result.episode),
        _outcomes(result.shown_improvement),
        _changes(result, result.actions),
        Text(result.status.value, style=STATUS_STYLES.get(result.status, "red")),
        f"{_bound(result)}\n{_difference(result.gap, result.certificate.tolerance)}",
        f"{result.stats.nodes_expanded:,}\n{result.stats.seconds:.2f}",
    ]


def _changes(result: Result, actions: IntArray) -> RenderableType:
    """One line per change; a second dose changed at the same step, and words too long, continue below the first."""
    changes = changes_in_words(result, actions)
    if not changes:
        return say("table.no change")
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for step, words in changes:
        grid.add_row(f"step {step}:", Text(words.replace(", ", "\n") if result.schema.actions.axes else words))
    return grid


def _outcomes(found: Improvement) -> str:
    values = " -> ".join(outcomes(found.observed.value, found.counterfactual.value))
    return values if found.moved is None else f"{values}\n{found.moved:+.1%}"


def _bound(result: Result) -> str:
    """The upper bound as people read outcomes: for a sum that should be low it is a lower bound."""
    if math.isinf(result.upper_bound):
        return say("table.no bound")
    bound = result.upper_bound if result.shown[1].higher_is_better else -result.upper_bound
    return outcomes(*(shown.value for shown in result.shown), bound)[-1]


def _difference(value: float, tolerance: float) -> str:
    """A difference of outcomes; one that is mere rounding is none."""
    if math.isinf(value):
        return NOT_SHOWN
    return "0" if value <= tolerance else f"{value:.3g}"


def _breakdown(heading: str, frame: pl.DataFrame, column: str) -> Table:
    table = _empty_table(heading)
    table.caption_justify = "left"
    _add_figures(table, "episodes", "mean improvement", "95 % interval", "median")
    for row in frame.iter_rows(named=True):
        interval = NOT_SHOWN if row["low"] is None else f"{percent(row['low'])} to {percent(row['high'])}"
        mean, median = (_average(row[name], row[f"upper_{name}"]) for name in ("mean", "median"))
        table.add_row(Text(str(row[column])), f"{row['episodes']:,}", mean, interval, median)
        if say("table.at least") in mean + median:
            table.caption = say("table.at least.caption")
    return table


def _average(value: float | None, upper: float | None) -> str:
    """An average, marked where it is a lower bound."""
    is_known = value is None or (upper is not None and upper - value <= ROUNDING)
    shown = percent(value, unknown=NOT_SHOWN)
    return shown if is_known else f"{say('table.at least')}{shown}"


def _patterns(summary: RunSummary) -> Table:
    """The most frequent patterns, each with its groups below it."""
    table = _empty_table(say("pattern.title").lower())
    table.caption_justify = "left"
    table.caption = say("pattern.means", smallest=summary.smallest_cell)
    _add_figures(table, *(say(f"pattern.{name}") for name in ("subjects", "share", "supported")))
    shown = summary.patterns["pattern"].unique(maintain_order=True).head(SHOWN_PATTERNS)
    for row in summary.patterns.filter(pl.col("pattern").is_in(shown.implode())).iter_rows(named=True):
        is_all = row["by"] == ALL
        words = str(pattern_message(row)) if is_all else f"  {say('pattern.by', by=row['by'], group=row['group'])}"
        ends = {name: percent(row[name], 0) for name in ("share", "low", "high")}
        supported = NOT_SHOWN if row["supported"] is None else f"{row['supported']:,}"
        table.add_row(Text(words), f"{row['subjects']:,} of {row['of']:,}", say("pattern.interval", **ends), supported)
    return table


def _cases(summary: RunSummary) -> Table:
    table = _empty_table("interesting cases")
    _add_figures(table, summary.outcomes.label, "improvement", "changed steps", "status")
    for row in summary.cases.head(SHOWN_CASES).iter_rows(named=True):
        steps = ", ".join(str(step) for step in row["changed_steps"])
        pair = " -> ".join(outcomes(row["observed"], row["counterfactual"]))  # known, or there were no improvement
        table.add_row(Text(row["episode"]), pair, percent(row["improvement"]), steps, row["status"])
    if summary.cases.height > SHOWN_CASES:
        table.add_row(say("table.more rows", number=f"{summary.cases.height - SHOWN_CASES:,}"))
    return table
