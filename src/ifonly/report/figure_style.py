"""The look of all figures: the paper's serif type or that of pages, colours, and panels readable in black and white."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ifonly.data.episode import FloatArray

COLUMN_WIDTH = 3.35
"""Of one column, in inches."""

PAGE_WIDTH = 7.0
"""Of figures that are not in a column."""

PANELS_PER_ROW = 4
TITLE_LENGTH = 26
"""Letters of a small panel's title."""

SERIF = ["STIXGeneral", "DejaVu Serif"]
"""Both come with matplotlib, so that figures look the same everywhere; the second has the rarer letters."""

SANS = ["DejaVu Sans"]
"""Of figures on pages, whose text has no serifs either."""

OBSERVED, COUNTERFACTUAL = "#333333", "#0072b2"
QUIET, GUIDE = "#666666", "#c8c8c8"
FILL, DARK = "#9fc5e0", "#33658a"
"""Of bars: a light and a dark side of the colour of counterfactuals, with dark edges to be seen without colour."""

AXIS_COLOURS = ("#d55e00", "#007a5a", "#8a5aa8", "#8c6d00")
"""One per dose axis; readable for the colour-blind, and never the only distinction."""

LOOK: Any = mpl.rc_params_from_file(Path(__file__).with_suffix(".mplstyle"), use_default_template=False)
"""Settings of matplotlib, for those who draw more than one panel."""

_ON_PAGES: Any = {
    **LOOK,
    "font.family": SANS,
    "mathtext.fontset": "dejavusans",
    **{f"{name}size": 8 for name in ("font.", "axes.label")},
    **{f"{name}.labelsize": 7 for name in ("xtick", "ytick")},
    "legend.fontsize": 7,
}
"""The same in the letters of pages, which are wider."""


@contextmanager
def panels(
    width: float, height: float, rows: int = 1, columns: int = 1, *, dpi: int = 150, letters: Sequence[str] = SANS
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure (inches) with panels, row by row; what is drawn on it inside the block has the look of pages, or with
    serif letters the paper's."""
    with mpl.rc_context(_ON_PAGES if letters is SANS else LOOK):
        figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
        found = list(figure.subplots(rows, columns, squeeze=False).ravel())
        yield figure, found
        for axes in [*found, *(child for panel in found for child in panel.child_axes)]:
            axes.spines[["top", "right"]].set_visible(False)
            # Tick labels are made only when the figure is drawn, by then outside this block.
            axes.tick_params(labelfontfamily=letters)


@contextmanager
def one_panel(
    width: float = PAGE_WIDTH, height: float = 2.3, *, dpi: int = 150, letters: Sequence[str] = SANS
) -> Iterator[tuple[Figure, Axes]]:
    """The same with one panel."""
    with panels(width, height, dpi=dpi, letters=letters) as (figure, (only,)):
        yield figure, only


@contextmanager
def column_figure(height: float = 2.3) -> Iterator[tuple[Figure, Axes]]:
    """The same, one column of the paper wide."""
    with one_panel(COLUMN_WIDTH, height, dpi=300, letters=SERIF) as found:
        yield found


@contextmanager
def small_panels(count: int, height: float, *, air: float = 0.1) -> Iterator[tuple[Figure, list[Axes]]]:
    """The same with a small panel for each of `count` features; `air` is left for what stands around them."""
    rows = math.ceil(count / PANELS_PER_ROW)
    with panels(PAGE_WIDTH, height * rows + air, rows, PANELS_PER_ROW) as (figure, found):
        for unused in found[count:]:
            unused.set_axis_off()
        yield figure, found[:count]


def draw_hidden(panel: Axes, places: FloatArray, counts: Sequence[float | None]) -> None:
    """A small cross on the axis for every bar that too few subjects share (None): something is there."""
    hidden = np.array([count is None for count in counts])
    if hidden.any():
        panel.plot(places[hidden], np.zeros(hidden.sum()), "x", color=QUIET, markersize=3, clip_on=False, zorder=3)
