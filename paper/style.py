"""What the figures share: the paper's pink and green, several panels, markers that need no colour."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from ifonly.data.episode import FloatArray
from ifonly.intervals import Interval
from ifonly.report.figure_style import LOOK, SERIF
from paper.estimates import Estimate

PINK, GREEN, BLUE, BROWN, GREY = "#c2407a", "#1b7f4d", "#2456a4", "#8a5a12", "#555555"


MANY_TICKS = 300
"""A logarithmic axis that spans more than this has ticks at powers of ten only."""


@dataclass(frozen=True)
class Line:
    """How one quantity is drawn; the marker alone tells it from the others."""

    label: str
    colour: str
    marker: str
    dash: Literal["-", "--", "-.", ":"] = "-"


@contextmanager
def paper_panels(count: int, width: float, height: float) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure (inches) with panels side by side; what is drawn inside the block has the paper's look."""
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(width, height), dpi=200, layout="constrained")
        panels = list(figure.subplots(1, count, squeeze=False)[0])
        yield figure, panels
        for axes in figure.axes:
            if axes.get_yscale() == "log":
                _plain_powers(axes)
            axes.spines["top"].set_visible(False)
            axes.spines["right"].set_visible(axes.yaxis.get_ticks_position() == "right")
            # Tick labels are made only when the figure is drawn, by then outside this block.
            axes.tick_params(which="both", labelfontfamily=SERIF)


def draw_estimates(panel: Axes, line: Line, places: Sequence[float], estimates: Sequence[Estimate]) -> None:
    """Means with the intervals they have; hollow and thinly joined where one is only a bound; nothing where none is."""
    powers = panel.get_yscale() == "log"  # on which zero has no place
    known = [
        (x, estimate)
        for x, estimate in zip(places, estimates, strict=True)
        if estimate.count and (estimate.mean > 0 or not powers)
    ]
    if not known:
        return
    for x, estimate in known:
        if estimate.interval is not None:
            panel.errorbar(
                x,
                estimate.mean,
                yerr=_sides(estimate.mean, estimate.interval, powers),
                color=line.colour,
                linestyle="none",
                elinewidth=0.9,
                capsize=2.5,
            )
    for (x, one), (y, other) in itertools.pairwise(known):
        # A course between bounds is only half known, and should not be read as one.
        dash, thick = (":", 0.8) if one.at_least or other.at_least else (line.dash, 1.2)
        panel.plot([x, y], [one.mean, other.mean], linestyle=dash, linewidth=thick, color=line.colour)
    for x, estimate in known:
        panel.plot(
            x,
            estimate.mean,
            line.marker,
            color=line.colour,
            markersize=5,
            markerfacecolor="white" if estimate.at_least else line.colour,
            zorder=3,
            clip_on=False,
        )


def _sides(mean: float, interval: Interval, powers: bool) -> FloatArray:
    """How far an interval goes below and above the mean [2, 1]; on a logarithmic axis it ends above zero."""
    below, above = max(mean - interval.low, 0.0), max(interval.high - mean, 0.0)
    return np.array([[min(below, 0.9 * mean) if powers else below], [above]])


def put_legend(
    panel: Axes,
    lines: Sequence[Line],
    *,
    hollow: bool,
    columns: int = 1,
    words: str = "hollow: at least (limit reached)",
) -> None:
    """A legend above the panel; it says what hollow markers mean where there are some."""
    handles = [
        mpl.lines.Line2D(
            [], [], color=line.colour, marker=line.marker, linestyle=line.dash, markersize=5, linewidth=1.2
        )
        for line in lines
    ]
    labels = [line.label for line in lines]
    if hollow:
        handles.append(mpl.lines.Line2D([], [], color=GREY, marker="o", linestyle="none", markerfacecolor="white"))
        labels.append(words)
    if not handles:
        return
    panel.legend(
        handles,
        labels,
        frameon=False,
        ncols=columns,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.1,
        handlelength=2.2,
        columnspacing=1.2,
        labelspacing=0.25,
    )


def label_places(panel: Axes, axis: str, groups: Sequence[tuple[float, pl.DataFrame]]) -> None:
    """Name the horizontal axis, with ticks where something was measured, and say how many patients each place has.

    `groups` are the places with their rows.
    """
    counts = sorted({part["episode"].n_unique() for _, part in groups})
    least = "" if len(counts) == 1 else f"{counts[0]:,} to "
    panel.set_xlabel(f"{axis}\n({least}{counts[-1]:,} patient{'' if counts[-1] == 1 else 's'})")
    panel.xaxis.set_major_locator(FixedLocator([value for value, _ in groups]))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def dodged(values: Sequence[float], number: int, count: int) -> list[float]:
    """Places of one of `count` lines, a little beside the others', so that intervals do not cover each other."""
    step = 0.015 * (max(values) - min(values))
    return [value + (number - (count - 1) / 2) * step for value in values]


def _plain_powers(panel: Axes) -> None:
    """Ticks of a logarithmic axis as plain numbers, and few of them."""
    low, high = panel.get_ylim()
    few = high / low > MANY_TICKS
    panel.yaxis.set_major_locator(LogLocator(subs=(1.0,) if few else (1.0, 2.0, 5.0)))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    panel.yaxis.set_minor_locator(NullLocator())
