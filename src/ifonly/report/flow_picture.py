"""The picture of a flow: a box for who is left after each rule, and at its side whom the rule removed."""

from __future__ import annotations

import textwrap
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from ifonly.clinical.inclusion import Flow, FlowStep
from ifonly.report.plots import save_figure
from ifonly.text.catalogue import say

_ROW = 1.0
_BOX_HEIGHT = 0.56
_MAIN, _SIDE = 2.7, 6.1
"""Where the middle of the boxes is: those who are left, those who are removed."""
_MAIN_WIDTH, _SIDE_WIDTH = 4.6, 1.5
_WIDTH = 7.0
_LEFT, _REMOVED, _LAST = "#e8f1f8", "#f4f4f4", "#d7ecdf"
_INK, _QUIET = "#222222", "#666666"


def plot_flow(flow: Flow) -> Figure:
    """Boxes from top to bottom, one per rule, with the numbers of stays and subjects."""
    rows = len(flow.steps)
    figure = Figure(figsize=(_WIDTH, 0.9 * rows * _ROW + 0.1), dpi=150)
    panel = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    panel.set_xlim(0, _WIDTH)
    panel.set_ylim(-rows * _ROW + _ROW / 2 - 0.05, _ROW / 2 + 0.05)
    panel.set_axis_off()
    for number, step in enumerate(flow.steps):
        height = -number * _ROW
        colour = _LAST if number == rows - 1 else _LEFT
        _draw_box(panel, (_MAIN, height), (_MAIN_WIDTH, _BOX_HEIGHT + 0.1), _words(step), colour)
        if number:
            _draw_arrow(
                panel, (_MAIN, height + _ROW - _BOX_HEIGHT / 2 - 0.05), (_MAIN, height + _BOX_HEIGHT / 2 + 0.05)
            )
        if number and step.removed_stays:
            turn = height + _ROW / 2
            _draw_arrow(panel, (_MAIN, turn), (_SIDE - _SIDE_WIDTH / 2, turn))
            _draw_box(
                panel,
                (_SIDE, turn),
                (_SIDE_WIDTH, 0.36),
                say("figure.removed", stays=f"{step.removed_stays:,}"),
                _REMOVED,
            )
    return figure


def write_flow(flow: Flow, path: str | Path) -> None:
    """Save the picture as a PNG file."""
    save_figure(plot_flow(flow), path)


def _words(step: FlowStep) -> str:
    rule = "\n".join(textwrap.wrap(step.rule, 62))
    return say("figure.left", rule=rule, stays=f"{step.stays:,}", subjects=f"{step.subjects:,}")


def _draw_box(panel: Axes, middle: tuple[float, float], size: tuple[float, float], words: str, colour: str) -> None:
    corner = (middle[0] - size[0] / 2, middle[1] - size[1] / 2)
    panel.add_patch(
        FancyBboxPatch(
            corner, *size, boxstyle="round,pad=0,rounding_size=0.06", facecolor=colour, edgecolor=_QUIET, linewidth=0.8
        )
    )
    panel.text(*middle, words, ha="center", va="center", fontsize=8.5, color=_INK, linespacing=1.25)


def _draw_arrow(panel: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    panel.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "-|>", "color": _QUIET, "linewidth": 0.9})
