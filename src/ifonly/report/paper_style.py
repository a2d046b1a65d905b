"""The look of the paper's figures: serif type, one column wide, readable in black and white."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLUMN_WIDTH = 3.35
"""Of one column, in inches."""

SERIF = ["STIXGeneral", "DejaVu Serif"]
"""Both come with matplotlib, so that figures look the same everywhere; the second has the rarer letters."""

LOOK: Any = {
    "font.family": SERIF,
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "legend.fontsize": 8,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
}
"""Settings of matplotlib, for those who draw more than one panel."""


@contextmanager
def paper_figure(width: float = COLUMN_WIDTH, height: float = 2.3) -> Iterator[tuple[Figure, Axes]]:
    """A figure (inches) with one panel; what is drawn on it inside the block has the paper's look."""
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(width, height), dpi=300, layout="constrained")
        panel = figure.subplots()
        yield figure, panel
        for axes in (panel, *panel.child_axes):
            axes.spines[["top", "right"]].set_visible(False)
            # Tick labels are made only when the figure is drawn, by then outside this block.
            axes.tick_params(labelfontfamily=SERIF)
