"""Figures of a data card: distributions, what was measured, actions, horizons, outcome by severity."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from ifonly.errors import InputError
from ifonly.report.card import Card, FeatureCard, Histogram, beyond_in_words
from ifonly.report.cohort_plots import FILL
from ifonly.report.paper_style import LOOK, SERIF
from ifonly.report.plots import GUIDE, OBSERVED, QUIET

WIDTH = 7.0
"""Of all figures, in inches."""

PANELS_PER_ROW = 4
MOST_BARS = 40
"""Up to so many actions have a bar with a label; more are shown as a curve."""

DARK = "#33658a"
_NEVER_HATCH = "////"


def card_figures(card: Card) -> dict[str, Figure]:
    """Every figure that the card has something for, by name."""
    drawings: dict[str, Callable[[Card], Figure]] = {
        "features": plot_features,
        "measured": plot_measured,
        "actions": plot_actions,
        "horizons": plot_horizons,
        "severity": plot_severity,
    }
    absent = set()
    if not any(feature.measured for feature in card.features):
        absent.add("measured")
    if card.severity is None or all(group.change is None for group in card.severity.groups):
        absent.add("severity")
    return {name: draw(card) for name, draw in drawings.items() if name not in absent}


def plot_features(card: Card) -> Figure:
    """A small histogram for every feature, with its median dashed and its middle half marked below."""
    rows = math.ceil(len(card.features) / PANELS_PER_ROW)
    with _look():
        figure = Figure(figsize=(WIDTH, 1.55 * rows + 0.1), dpi=150, layout="constrained")
        panels = figure.subplots(rows, PANELS_PER_ROW, squeeze=False).ravel()
        for panel, feature in zip(panels, card.features, strict=False):
            _draw_feature(panel, feature)
        for panel in panels[len(card.features) :]:
            panel.set_axis_off()
        _finish(panels)
    return figure


def plot_measured(card: Card) -> Figure:
    """For every feature with a mask: the share of steps with a measured, a held, and neither value."""
    features = [feature for feature in card.features if feature.measured is not None]
    if not features:
        raise InputError("data card: there is no record of what was measured.")
    with _look():
        figure = Figure(figsize=(WIDTH, 0.75 + 0.27 * len(features)), dpi=150, layout="constrained")
        panel = figure.subplots()
        for row, feature in enumerate(features):
            _draw_measured(panel, row, feature)
        panel.set_yticks(range(len(features)), [feature.name for feature in features], parse_math=False)
        panel.set_ylim(len(features) - 0.4, -0.6)
        panel.set_xlim(0, 100.4)
        panel.set_xlabel("Steps (%)")
        handles = [
            Patch(facecolor=DARK, edgecolor=OBSERVED, label="measured in the step"),
            Patch(facecolor=FILL, edgecolor=OBSERVED, hatch="..", label="held"),
            Patch(facecolor="white", edgecolor=OBSERVED, label="neither"),
            Patch(facecolor=GUIDE, edgecolor=OBSERVED, hatch="xx", label="not measured, no more known"),
        ]
        exact = any(feature.measured and feature.measured.held is not None for feature in features)
        vague = any(feature.measured and feature.measured.held is None for feature in features)
        shown = [*handles[:1], *(handles[1:3] if exact else []), *(handles[3:] if vague else [])]
        figure.legend(handles=shown, loc="outside upper center", ncols=len(shown), frameon=False)
        _finish([panel])
    return figure


def plot_actions(card: Card) -> Figure:
    """How often each action was taken: a heat map with numbers for two dose axes, bars otherwise."""
    if len(card.actions.axes) == 2:
        return _plot_heat_map(card)
    return _plot_action_bars(card) if len(card.actions.labels) <= MOST_BARS else _plot_action_curve(card)


def plot_horizons(card: Card) -> Figure:
    """How many episodes have how many steps."""
    with _look():
        figure = Figure(figsize=(0.62 * WIDTH, 2.3), dpi=150, layout="constrained")
        panel = figure.subplots()
        _draw_histogram(panel, card.horizons.histogram)
        panel.margins(x=0.05)
        beyond = beyond_in_words(card.horizons.histogram)
        panel.set_xlabel(f"Number of steps ({beyond})" if beyond else "Number of steps")
        panel.set_ylabel("Episodes")
        panel.xaxis.set_major_locator(MaxNLocator(nbins=11, integer=True, min_n_ticks=1))
        panel.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
        _finish([panel])
    return figure


def plot_severity(card: Card) -> Figure:
    """Mean change from the first to the last step by severity at the first, and the share with the outcome."""
    severity = card.severity
    groups = [group for group in severity.groups if group.change is not None] if severity else []
    if severity is None or not groups:
        raise InputError("data card: there are no groups of severity to draw.")
    outcome = severity.outcome is not None and any(group.outcome is not None for group in groups)
    with _look():
        figure = Figure(figsize=(WIDTH if outcome else 0.62 * WIDTH, 2.5), dpi=150, layout="constrained")
        panels = figure.subplots(1, 2 if outcome else 1, squeeze=False)[0]
        places = np.arange(len(groups))
        panels[0].errorbar(
            places,
            [group.change for group in groups],
            yerr=[group.half_interval or 0.0 for group in groups],
            fmt="o",
            color=DARK,
            ecolor=OBSERVED,
            capsize=3,
        )
        panels[0].axhline(0, color=QUIET, linewidth=0.7, linestyle=":")
        panels[0].set_ylabel(f"Mean change of {severity.feature}\nfrom first to last step", parse_math=False)
        if outcome:
            shares = [100 * group.outcome if group.outcome is not None else np.nan for group in groups]
            panels[1].bar(places, shares, width=0.6, color=FILL, edgecolor=OBSERVED, linewidth=0.6)
            hidden = f"< {card.smallest_cell}\nsubj." if card.smallest_cell > 1 else "un-\nknown"
            for place in places[np.isnan(shares)]:
                panels[1].text(place, 2, hidden, ha="center", va="bottom", fontsize=6.5, linespacing=0.9)
            panels[1].set_ylabel(f"{severity.outcome} (%)", parse_math=False)
            panels[1].set_ylim(0, 100)
        words = [f"{group.label.replace('>=', '≥')}\nn = {group.episodes:,}" for group in groups]
        for panel in panels:
            panel.set_xticks(places, words, parse_math=False, fontsize=7)
            panel.set_xlim(-0.6, len(groups) - 0.4)
            panel.set_xlabel(f"{severity.label} at the first step", parse_math=False)
        _finish(panels)
    return figure


@contextmanager
def _look() -> Iterator[None]:
    with mpl.rc_context({**LOOK, "hatch.linewidth": 0.5}):
        yield


def _finish(panels: Iterable[Axes]) -> None:
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        # Tick labels are made only when the figure is drawn, by then outside the look's context.
        panel.tick_params(labelfontfamily=SERIF)


def _draw_histogram(panel: Axes, histogram: Histogram) -> None:
    """Bars; where too few subjects are counted, a small cross on the axis says that something is there."""
    if not histogram.counts:
        panel.text(0.5, 0.5, "too few subjects", transform=panel.transAxes, ha="center", va="center", color=QUIET)
        panel.set_xticks([])
        panel.set_yticks([])
        return
    edges = np.array(histogram.edges)
    heights = np.array([count or 0 for count in histogram.counts], dtype=float)
    middles = (edges[:-1] + edges[1:]) / 2
    # One or two values are no continuum: their bars stand apart.
    wide = np.diff(edges) * (0.6 if len(heights) <= 2 else 1.0)
    panel.bar(middles, heights, wide, color=FILL, edgecolor=OBSERVED, linewidth=0.4)
    hidden = np.array([count is None for count in histogram.counts])
    if hidden.any():
        panel.plot(middles[hidden], np.zeros(hidden.sum()), "x", color=QUIET, markersize=3, clip_on=False, zorder=3)
    panel.set_ylim(0, max(1.0, heights.max() * 1.05))


def _draw_feature(panel: Axes, feature: FeatureCard) -> None:
    panel.set_title(_shortened(feature.label), fontsize=8.5, parse_math=False)
    if feature.constant:
        panel.text(0.5, 0.5, "constant", transform=panel.transAxes, ha="center", va="center", color=QUIET)
        panel.set_xticks([])
        panel.set_yticks([])
        return
    _draw_histogram(panel, feature.histogram)
    panel.set_yticks([])
    panel.spines["left"].set_visible(False)
    if not feature.histogram.counts:
        return
    panel.set_xlabel(beyond_in_words(feature.histogram), fontsize=6.5, color=QUIET, loc="right", labelpad=1)
    low, middle, high = (feature.quantiles[share] for share in ("25", "50", "75"))
    if middle is not None and len(feature.histogram.counts) > 2:
        panel.axvline(middle, color="black", linestyle="--", linewidth=0.9)
    if low is not None and high is not None and len(feature.histogram.counts) > 2:
        panel.plot([low, high], [0, 0], color="black", linewidth=2.5, solid_capstyle="butt", clip_on=False, zorder=2)
    whole = len(feature.histogram.counts) <= 2
    panel.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=whole, min_n_ticks=2))
    formatter = ScalarFormatter(useOffset=False)
    formatter.set_scientific(False)
    panel.xaxis.set_major_formatter(formatter)


def _draw_measured(panel: Axes, row: int, feature: FeatureCard) -> None:
    shares = feature.measured
    assert shares is not None, "only features with a mask are drawn"
    first = 100 * shares.measured
    panel.barh(row, first, color=DARK, edgecolor=OBSERVED, linewidth=0.5, height=0.68)
    if shares.held is None:
        panel.barh(
            row, 100 - first, left=first, color=GUIDE, edgecolor=OBSERVED, hatch="xx", linewidth=0.5, height=0.68
        )
    else:
        held = 100 * shares.held
        panel.barh(row, held, left=first, color=FILL, edgecolor=OBSERVED, hatch="..", linewidth=0.5, height=0.68)
        rest = 100 - first - held
        panel.barh(row, rest, left=first + held, color="white", edgecolor=OBSERVED, linewidth=0.5, height=0.68)
    inside = first > 8
    panel.text(
        first - 1 if inside else first + 1,
        row,
        f"{first:.0f}",
        ha="right" if inside else "left",
        va="center",
        fontsize=7.5,
        color="white" if inside else "black",
        bbox=None if inside else {"facecolor": "white", "edgecolor": "none", "pad": 0.6},
    )


def _plot_heat_map(card: Card) -> Figure:
    rows, columns = card.actions.axes
    counts = np.array([np.nan if count is None else count for count in card.actions.counts], dtype=float)
    table = counts.reshape(len(rows.levels), len(columns.levels))
    with _look():
        size = (max(3.2, 1.5 + 0.72 * table.shape[1]), max(2.2, 1.1 + 0.46 * table.shape[0]))
        figure = Figure(figsize=size, dpi=150, layout="constrained")
        panel = figure.subplots()
        shade = np.sqrt(np.nan_to_num(table) / max(1.0, np.nanmax(table, initial=1.0)))
        panel.imshow(shade, cmap="Blues", vmin=0, vmax=1.25, aspect="auto", origin="lower")
        for (row, column), count in np.ndenumerate(table):
            _write_cell(panel, row, column, count, card.smallest_cell, dark=shade[row, column] > 0.72)
        panel.set_xticks(range(table.shape[1]), [columns.show(level) for level in columns.levels])
        panel.set_yticks(range(table.shape[0]), [rows.show(level) for level in rows.levels])
        panel.set_xlabel(_with_unit(columns.name, columns.unit), parse_math=False)
        panel.set_ylabel(_with_unit(rows.name, rows.unit), parse_math=False)
        panel.tick_params(length=0)
        panel.set_xticks(np.arange(table.shape[1] - 1) + 0.5, minor=True)
        panel.set_yticks(np.arange(table.shape[0] - 1) + 0.5, minor=True)
        panel.grid(which="minor", color="white", linewidth=1)
        panel.tick_params(which="minor", length=0)
        _finish([panel])
    return figure


def _write_cell(panel: Axes, row: int, column: int, count: float, smallest: int, *, dark: bool) -> None:
    if count == 0:
        corner = (column - 0.5, row - 0.5)
        panel.add_patch(Rectangle(corner, 1, 1, facecolor="none", edgecolor=GUIDE, hatch=_NEVER_HATCH, linewidth=0))
    words = f"< {smallest}\nsubj." if math.isnan(count) else f"{int(count):,}"
    panel.text(
        column,
        row,
        words,
        ha="center",
        va="center",
        fontsize=6.5 if math.isnan(count) else 8,
        linespacing=0.9,
        color="white" if dark else "black",
    )


def _plot_action_bars(card: Card) -> Figure:
    labels, counts = card.actions.labels, card.actions.counts
    with _look():
        figure = Figure(figsize=(WIDTH, 0.7 + 0.24 * len(labels)), dpi=150, layout="constrained")
        panel = figure.subplots()
        widths = [count or 0 for count in counts]
        panel.barh(range(len(labels)), widths, height=0.7, color=FILL, edgecolor=OBSERVED, linewidth=0.5)
        for row, count in enumerate(counts):
            words = f" < {card.smallest_cell} subjects" if count is None else f" {count:,}"
            panel.text(count or 0, row, words, va="center", fontsize=7.5)
        panel.set_yticks(range(len(labels)), [_shortened(label, 40) for label in labels], parse_math=False)
        panel.set_ylim(len(labels) - 0.4, -0.6)
        panel.set_xlim(0, max(1, *widths) * 1.12)
        panel.set_xlabel("Steps")
        panel.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        _finish([panel])
    return figure


def _plot_action_curve(card: Card) -> Figure:
    counts = sorted((count or 0 for count in card.actions.counts), reverse=True)
    with _look():
        figure = Figure(figsize=(0.62 * WIDTH, 2.4), dpi=150, layout="constrained")
        panel = figure.subplots()
        panel.step(range(1, len(counts) + 1), counts, where="mid", color=DARK)
        panel.set_yscale("symlog", linthresh=10)
        panel.set_ylim(bottom=0)
        panel.set_xlabel("Actions, the most frequent first")
        panel.set_ylabel("Steps")
        _finish([panel])
    return figure


def _with_unit(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def _shortened(text: str, length: int = 26) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
