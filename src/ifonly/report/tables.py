"""Results as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ifonly.data.episode import IntArray
from ifonly.result import Budget, Result, Status
from ifonly.rewards import Shown
from ifonly.search.contributions import Contributions

STATUS_STYLES = {Status.OPTIMAL: "green", Status.GAP_REACHED: "green", Status.HEURISTIC: "yellow"}
"""Colours of the status; limits are red. The words say the same without colour."""


def results_table(results: Sequence[Result]) -> Table:
    """One row per result: outcomes and bound in original units, the changes in words, and the work done.

    `bound` is the best outcome that any admissible sequence could have under the model, as far as is proven. Figures
    that belong together stand below each other, which leaves room for the words at 100 columns.
    """
    table = _empty_table()
    table.add_column("episode", overflow="fold")
    table.add_column(f"{escape(_common_label(results))} observed\n-> counterfactual", justify="right", no_wrap=True)
    table.add_column("changes", overflow="fold")
    table.add_column("status", no_wrap=True)
    table.add_column("bound\ngap", justify="right", no_wrap=True)
    table.add_column("nodes\nseconds", justify="right", no_wrap=True)
    for position, result in enumerate(results):
        table.add_row(*_cells(result), end_section=position < len(results) - 1)
    return table


def frontier_table(result: Result) -> Table:
    """One row per number of changes from 0: the best outcome with at most so many, how it is reached, and the gap."""
    table = _empty_table()
    table.add_column("at most", justify="right", no_wrap=True)
    table.add_column(escape(result.shown[1].label), justify="right", no_wrap=True)
    table.add_column("gap", justify="right", no_wrap=True)
    table.add_column("changes", overflow="fold")
    for budget in result.frontier:
        table.add_row(str(budget.max_changes), *_budget_cells(result, budget))
    return table


def alternatives_table(result: Result) -> Table:
    """One row per sequence, best first: its outcome, how much it falls short of the best, and its changes."""
    table = _empty_table()
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column(escape(result.shown[1].label), justify="right", no_wrap=True)
    table.add_column("short of best", justify="right", no_wrap=True)
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
    table.add_column("lost if undone", justify="right", no_wrap=True)
    table.add_column("gain alone", justify="right", no_wrap=True)
    shares = sum(change.share for change in contributions.changes)
    table.add_column("fair share", footer=f"{shares:.4g}", justify="right", no_wrap=True)
    words = dict(changes_in_words(result, result.actions))
    for change in contributions.changes:
        figures = (change.lost_without, change.alone, change.share)
        table.add_row(Text(f"step {change.step}: {words[change.step]}"), *(f"{figure:.4g}" for figure in figures))
    return table


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


def _empty_table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")


def _budget_cells(result: Result, budget: Budget) -> list[RenderableType]:
    if budget.outcome is None or budget.actions is None:
        nothing = "no admissible sequence" if budget.upper_bound == -math.inf else "nothing found yet"
        return ["-", "-", nothing]
    return [
        f"{shown_value(result, budget.outcome, budget.actions):.6g}",
        _difference(budget.upper_bound - budget.outcome, result.certificate.tolerance),
        _changes(result, budget.actions),
    ]


def _cells(result: Result) -> list[RenderableType]:
    return [
        Text(result.episode),
        _outcomes(*result.shown),
        _changes(result, result.actions),
        Text(result.status.value, style=STATUS_STYLES.get(result.status, "red")),
        f"{_bound(result)}\n{_difference(result.gap, result.certificate.tolerance)}",
        f"{result.stats.nodes_expanded:,}\n{result.stats.seconds:.2f}",
    ]


def _changes(result: Result, actions: IntArray) -> RenderableType:
    """One line per change; a second dose changed at the same step, and words too long, continue below the first."""
    changes = changes_in_words(result, actions)
    if not changes:
        return "none"
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for step, words in changes:
        grid.add_row(f"step {step}:", Text(words.replace(", ", "\n") if result.schema.actions.axes else words))
    return grid


def _outcomes(observed: Shown, found: Shown) -> str:
    values = f"{observed.value:.1f} -> {found.value:.1f}"
    if observed.value == 0:
        return values
    return f"{values}\n{(found.value - observed.value) / abs(observed.value):+.1%}"


def _bound(result: Result) -> str:
    """The upper bound as people read outcomes: for a sum that should be low it is a lower bound."""
    if math.isinf(result.upper_bound):
        return "none"
    return f"{result.upper_bound if result.shown[1].higher_is_better else -result.upper_bound:.1f}"


def _difference(value: float, tolerance: float) -> str:
    """A difference of outcomes; one that is mere rounding is none."""
    if math.isinf(value):
        return "-"
    return "0" if value <= tolerance else f"{value:.3g}"


def _common_label(results: Sequence[Result]) -> str:
    labels = {result.shown[1].label for result in results}
    return labels.pop() if len(labels) == 1 else "outcome"
