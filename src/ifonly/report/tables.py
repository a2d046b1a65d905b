"""Results as a table for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ifonly.rewards import Shown
from ifonly.search.result import Result, Status

STATUS_STYLES = {Status.OPTIMAL: "green", Status.GAP_REACHED: "green", Status.HEURISTIC: "yellow"}
"""Colours of the status; limits are red. The words say the same without colour."""


def results_table(results: Sequence[Result]) -> Table:
    """One row per result: outcomes and bound in original units, the changes in words, and the work done.

    `bound` is the best outcome that any admissible sequence could have under the model, as far as is proven. Figures
    that belong together stand below each other, which leaves room for the words at 100 columns.
    """
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("episode", overflow="fold")
    table.add_column(f"{escape(_common_label(results))} observed\n-> counterfactual", justify="right", no_wrap=True)
    table.add_column("changes", overflow="fold")
    table.add_column("status", no_wrap=True)
    table.add_column("bound\ngap", justify="right", no_wrap=True)
    table.add_column("nodes\nseconds", justify="right", no_wrap=True)
    for position, result in enumerate(results):
        table.add_row(*_cells(result), end_section=position < len(results) - 1)
    return table


def _cells(result: Result) -> list[RenderableType]:
    return [
        Text(result.episode_id),
        _outcomes(*result.shown),
        _changes(result),
        Text(result.status.value, style=STATUS_STYLES.get(result.status, "red")),
        f"{_bound(result)}\n{_gap(result)}",
        f"{result.stats.nodes_expanded:,}\n{result.stats.seconds:.2f}",
    ]


def _changes(result: Result) -> RenderableType:
    """One line per change; a second dose changed at the same step, and words too long, continue below the first."""
    if not result.changes:
        return "none"
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for change in result.changes:
        words = change.words.replace(", ", "\n") if result.schema.actions.axes else change.words
        grid.add_row(f"step {change.step}:", Text(words))
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


def _gap(result: Result) -> str:
    if math.isinf(result.gap):
        return "-"
    return "0" if result.gap <= result.certificate.tolerance else f"{result.gap:.3g}"


def _common_label(results: Sequence[Result]) -> str:
    labels = {result.shown[1].label for result in results}
    return labels.pop() if len(labels) == 1 else "outcome"
