"""Figures of a data card: distributions, what was measured, actions, horizons, outcome by severity."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from ifonly.errors import InputError
from ifonly.report.card import Card, FeatureCard, Histogram, Masks
from ifonly.report.figure_style import (
    DARK,
    FILL,
    GUIDE,
    OBSERVED,
    PAGE_WIDTH,
    QUIET,
    TITLE_LENGTH,
    draw_hidden,
    one_panel,
    panels,
    small_panels,
)
from ifonly.text.cards import beyond
from ifonly.text.catalogue import say
from ifonly.text.numbers import shortened

MOST_BARS = 40
"""Up to so many actions have a bar with a label; more are shown as a curve."""

_MIDDLE: Any = {"ha": "center", "va": "center"}
_BAR: Any = {"edgecolor": OBSERVED, "linewidth": 0.5}
_MEASURED: Any = (
    ("measured", {"facecolor": DARK}, None),
    ("held", {"facecolor": FILL, "hatch": ".."}, True),
    ("neither", {"facecolor": "white"}, True),
    ("unknown", {"facecolor": GUIDE, "hatch": "xx"}, False),
)
"""Parts of a bar: codes of their words, their look, and whether the grid must know of holds, or must not."""


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
    with small_panels(len(card.features), 1.55) as (figure, found):
        for panel, feature in zip(found, card.features, strict=True):
            _draw_feature(panel, feature)
    return figure


def plot_measured(card: Card) -> Figure:
    """For every feature with a mask: the share of steps with a measured, a held, and neither value."""
    features = [feature for feature in card.features if feature.measured is not None]
    if not features:
        raise InputError("data card: there is no record of what was measured.")
    with one_panel(PAGE_WIDTH, 0.75 + 0.27 * len(features)) as (figure, panel):
        for row, feature in enumerate(features):
            _draw_measured(panel, row, feature)
        panel.set_yticks(range(len(features)), [feature.name for feature in features], parse_math=False)
        panel.set_ylim(len(features) - 0.4, -0.6)
        panel.set_xlim(0, 100.4)
        panel.set_xlabel(say("figure.share of steps"))
        exact = {feature.measured.held is not None for feature in features if feature.measured}
        words = "origin" if card.masks is Masks.ORIGINS else "held"
        handles = [
            Patch(edgecolor=OBSERVED, label=say(f"figure.{words}.{name}"), **style)
            for name, style, is_exact in _MEASURED
            if is_exact is None or is_exact in exact
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


def plot_actions(card: Card) -> Figure:
    """How often each action was taken: a heat map with numbers for two dose axes, bars otherwise."""
    if len(card.actions.axes) == 2:
        return _plot_heat_map(card)
    return _plot_action_bars(card) if len(card.actions.labels) <= MOST_BARS else _plot_action_curve(card)


def plot_horizons(card: Card) -> Figure:
    """How many episodes have how many steps."""
    with one_panel(0.62 * PAGE_WIDTH, 2.3) as (figure, panel):
        _draw_histogram(panel, card.horizons.histogram)
        panel.margins(x=0.05)
        left_out = beyond(card.horizons.histogram)
        panel.set_xlabel(
            say("figure.number of steps.beyond", beyond=left_out) if left_out else say("figure.number of steps")
        )
        panel.set_ylabel(say("figure.episodes"))
        panel.xaxis.set_major_locator(MaxNLocator(nbins=11, integer=True, min_n_ticks=1))
        panel.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True, min_n_ticks=1))
    return figure


def plot_severity(card: Card) -> Figure:
    """Mean change from the first to the last step by severity at the first, and the share with the outcome."""
    severity = card.severity
    groups = [group for group in severity.groups if group.change is not None] if severity else []
    if severity is None or not groups:
        raise InputError("data card: there are no groups of severity to draw.")
    outcome = severity.outcome is not None and any(group.outcome is not None for group in groups)
    with panels(PAGE_WIDTH if outcome else 0.62 * PAGE_WIDTH, 2.5, 1, 2 if outcome else 1) as (figure, found):
        places = np.arange(len(groups))
        changes, intervals = [group.change or 0.0 for group in groups], [group.half_interval or 0.0 for group in groups]
        found[0].errorbar(places, changes, yerr=intervals, fmt="o", color=DARK, ecolor=OBSERVED, capsize=3)
        found[0].axhline(0, color=QUIET, linewidth=0.7, linestyle=":")
        found[0].set_ylabel(say("figure.mean change", feature=severity.feature), parse_math=False)
        if outcome:
            shares = [100 * group.outcome if group.outcome is not None else np.nan for group in groups]
            found[1].bar(places, shares, width=0.6, color=FILL, edgecolor=OBSERVED, linewidth=0.6)
            hidden = _too_few(card.smallest_cell) if card.smallest_cell > 1 else say("card.unknown.short")
            for place in places[np.isnan(shares)]:
                found[1].text(place, 2, hidden, ha="center", va="bottom", fontsize=6.5, linespacing=0.9)
            found[1].set_ylabel(say("figure.in percent", name=severity.outcome or ""), parse_math=False)
            found[1].set_ylim(0, 100)
        words = [f"{group.label.replace('>=', '≥')}\nn = {group.episodes:,}" for group in groups]
        for panel in found:
            panel.set_xticks(places, words, parse_math=False, fontsize=7)
            panel.set_xlim(-0.6, len(groups) - 0.4)
            panel.set_xlabel(say("figure.at first step", label=severity.label), parse_math=False)
    return figure


def _too_few(smallest: int) -> str:
    return say("card.too few.short", smallest=smallest)


def _say_in_panel(panel: Axes, words: str) -> None:
    panel.text(0.5, 0.5, words, transform=panel.transAxes, color=QUIET, **_MIDDLE)
    panel.set_xticks([])
    panel.set_yticks([])


def _draw_histogram(panel: Axes, histogram: Histogram) -> None:
    """Bars; where too few subjects are counted, a small cross on the axis says that something is there."""
    if not histogram.counts:
        _say_in_panel(panel, say("figure.too few"))
        return
    edges = np.array(histogram.edges)
    heights = np.array([count or 0 for count in histogram.counts], dtype=float)
    middles = (edges[:-1] + edges[1:]) / 2
    # One or two values are no continuum: their bars stand apart.
    wide = np.diff(edges) * (0.6 if len(heights) <= 2 else 1.0)
    panel.bar(middles, heights, wide, color=FILL, edgecolor=OBSERVED, linewidth=0.4)
    draw_hidden(panel, middles, histogram.counts)
    panel.set_ylim(0, max(1.0, heights.max() * 1.05))


def _draw_feature(panel: Axes, feature: FeatureCard) -> None:
    panel.set_title(shortened(feature.label, TITLE_LENGTH), fontsize=8.5, parse_math=False)
    if feature.constant:
        _say_in_panel(panel, say("figure.constant"))
        return
    _draw_histogram(panel, feature.histogram)
    panel.set_yticks([])
    panel.spines["left"].set_visible(False)
    if not feature.histogram.counts:
        return
    panel.set_xlabel(beyond(feature.histogram), fontsize=6.5, color=QUIET, loc="right", labelpad=1)
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
    held = shares.held
    widths = [shares.measured, 1 - shares.measured] if held is None else [shares.measured, held, shares.missing_after]
    styles = [style for _, style, is_exact in _MEASURED if is_exact is None or is_exact == (held is not None)]
    left = 0.0
    for width, style in zip(widths, styles, strict=True):
        panel.barh(row, 100 * (width or 0.0), left=left, height=0.68, **_BAR, **style)
        left += 100 * (width or 0.0)
    first = 100 * shares.measured
    inside = first > 8
    around: Any = None if inside else {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    panel.text(
        first - 1 if inside else first + 1,
        row,
        f"{first:.0f}",
        ha="right" if inside else "left",
        va="center",
        fontsize=7.5,
        color="white" if inside else "black",
        bbox=around,
    )


def _plot_heat_map(card: Card) -> Figure:
    rows, columns = card.actions.axes
    counts = np.array([np.nan if count is None else count for count in card.actions.counts], dtype=float)
    table = counts.reshape(len(rows.levels), len(columns.levels))
    size = (max(3.2, 1.5 + 0.72 * table.shape[1]), max(2.2, 1.1 + 0.46 * table.shape[0]))
    with one_panel(*size) as (figure, panel):
        shade = np.sqrt(np.nan_to_num(table) / max(1.0, np.nanmax(table, initial=1.0)))
        panel.imshow(shade, cmap="Blues", vmin=0, vmax=1.25, aspect="auto", origin="lower")
        for (row, column), count in np.ndenumerate(table):
            _write_cell(panel, row, column, count, card.smallest_cell, dark=shade[row, column] > 0.72)
        panel.set_xticks(range(table.shape[1]), [columns.show(level) for level in columns.levels])
        panel.set_yticks(range(table.shape[0]), [rows.show(level) for level in rows.levels])
        panel.set_xlabel(columns.label, parse_math=False)
        panel.set_ylabel(rows.label, parse_math=False)
        panel.tick_params(length=0)
        panel.set_xticks(np.arange(table.shape[1] - 1) + 0.5, minor=True)
        panel.set_yticks(np.arange(table.shape[0] - 1) + 0.5, minor=True)
        panel.grid(which="minor", color="white", linewidth=1)
        panel.tick_params(which="minor", length=0)
    return figure


def _write_cell(panel: Axes, row: int, column: int, count: float, smallest: int, *, dark: bool) -> None:
    if count == 0:
        corner = (column - 0.5, row - 0.5)
        panel.add_patch(Rectangle(corner, 1, 1, facecolor="none", edgecolor=GUIDE, hatch="////", linewidth=0))
    hidden = math.isnan(count)
    words, colour = _too_few(smallest) if hidden else f"{int(count):,}", "white" if dark else "black"
    panel.text(column, row, words, fontsize=6.5 if hidden else 8, linespacing=0.9, color=colour, **_MIDDLE)


def _plot_action_bars(card: Card) -> Figure:
    labels, counts = card.actions.labels, card.actions.counts
    with one_panel(PAGE_WIDTH, 0.7 + 0.24 * len(labels)) as (figure, panel):
        widths = [count or 0 for count in counts]
        panel.barh(range(len(labels)), widths, height=0.7, color=FILL, **_BAR)
        for row, count in enumerate(counts):
            words = say("card.too few", smallest=card.smallest_cell) if count is None else f"{count:,}"
            panel.text(count or 0, row, f" {words}", va="center", fontsize=7.5)
        panel.set_yticks(range(len(labels)), [shortened(label, 40) for label in labels], parse_math=False)
        panel.set_ylim(len(labels) - 0.4, -0.6)
        panel.set_xlim(0, max(1, *widths) * 1.12)
        panel.set_xlabel(say("figure.steps"))
        panel.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    return figure


def _plot_action_curve(card: Card) -> Figure:
    counts = sorted((count or 0 for count in card.actions.counts), reverse=True)
    with one_panel(0.62 * PAGE_WIDTH, 2.4) as (figure, panel):
        panel.step(range(1, len(counts) + 1), counts, where="mid", color=DARK)
        panel.set_yscale("symlog", linthresh=10)
        panel.set_ylim(bottom=0)
        panel.set_xlabel(say("figure.actions by frequency"))
        panel.set_ylabel(say("figure.steps"))
    return figure
