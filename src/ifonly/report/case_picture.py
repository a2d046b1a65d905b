"""A case as one picture: every measured value and every dose, as recorded and as it could have been."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from ifonly.report.figure_style import AXIS_COLOURS, COUNTERFACTUAL, GUIDE, OBSERVED, QUIET

COLUMNS = 3
_PANEL = (4.0, 2.1)
_HEAD, _LINE = 1.1, 0.17
"""Inches above the panels, and for every line of the statement."""
_LETTERS = 150
"""In a line of the statement."""
_LEFT = (0.02, 0.22, 0.58)
"""Where the words about each course begin, as shares of the width."""
_LONGEST_LABEL = 18
"""Letters of a treatment's name beside its panel."""

Plain = Mapping[str, Any]


@dataclass(frozen=True)
class _Line:
    """One course, and how it is drawn: never told apart by colour alone."""

    course: Plain
    label: str
    colour: str
    style: Literal["-", "--", ":"]
    marker: str


def plot_case(case: Plain, *, edited: Plain | None = None) -> Figure:
    """A case (`Case.to_dict()`) as a figure; `edited` (`Course.to_dict()`) is a course that somebody tried.

    One panel per dynamic feature, one per dose axis; steps that are treated differently are marked.
    """
    lines = _lines(case, edited)
    features = [feature for feature in case["features"] if feature["kind"] == "dynamic"]
    axes = case["treatments"]["axes"] or [None]
    rows = math.ceil((len(features) + len(axes)) / COLUMNS)
    said = textwrap.wrap(_statement(case), _LETTERS)
    head = _HEAD + _LINE * len(said)
    height = rows * _PANEL[1] + head
    figure = Figure(figsize=(COLUMNS * _PANEL[0], height), dpi=150)
    left, between = (0.06, 0.24) if case["treatments"]["axes"] else (0.1, 0.4)  # names are longer than doses
    figure.subplots_adjust(
        left=left, right=0.985, bottom=0.55 / height, top=1 - head / height, hspace=0.55, wspace=between
    )
    panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for column, (panel, feature) in enumerate(zip(panels, features, strict=False)):
        _draw_feature(panel, case, lines, column, feature)
    for number, panel in enumerate(panels[len(features) : len(features) + len(axes)]):
        _draw_treatment(panel, case, lines, number)
    for panel in panels[len(features) + len(axes) :]:
        panel.set_axis_off()
    _write_head(figure, case, lines, said, height)
    return figure


def _lines(case: Plain, edited: Plain | None) -> list[_Line]:
    lines = [_Line(case["observed"], "recorded", OBSERVED, "-", "o")]
    if case["answer"] is not None:
        best = case["answer"]["best"]
        lines.append(_Line(best, _best_label(case), COUNTERFACTUAL, "--", "D"))
    if edited is not None:
        lines.append(_Line(edited, "tried by the reviewer", AXIS_COLOURS[0], ":", "s"))
    return lines


def _best_label(case: Plain) -> str:
    most = case["question"]["max_changes"]
    allowed = f"with at most {most} change{'' if most == 1 else 's'}"
    return f"best {allowed}" if case["answer"]["proven"] else f"best found {allowed}"


def _draw_feature(panel: Axes, case: Plain, lines: Sequence[_Line], column: int, feature: Plain) -> None:
    for line in lines:
        values = [math.nan if state[column] is None else state[column] for state in line.course["states"]]
        _draw_line(panel, case, line, values)
    panel.set_title(feature["label"], loc="left", fontsize=9, parse_math=False)
    _finish(panel, case)


def _draw_treatment(panel: Axes, case: Plain, lines: Sequence[_Line], number: int) -> None:
    """Doses of one axis, evenly spaced by level; treatments without doses by their names."""
    actions, axes = case["treatments"]["actions"], case["treatments"]["axes"]
    for line in lines:
        taken = line.course["actions"]
        levels = [actions[action]["levels"][number] for action in taken] if axes else taken
        _draw_line(panel, case, line, [float(level) for level in levels], held=True)
    if axes:
        axis = axes[number]
        panel.set_yticks(range(len(axis["shown"])), axis["shown"], parse_math=False)
        title = f"{axis['name']} ({axis['unit']})" if axis["unit"] else axis["name"]
    else:
        names = [textwrap.shorten(action["label"], _LONGEST_LABEL, placeholder="…") for action in actions]
        panel.set_yticks(range(len(names)), names, parse_math=False)
        title = "treatment"
    panel.set_title(title, loc="left", fontsize=9, fontweight="bold", parse_math=False)
    _finish(panel, case)


def _draw_line(panel: Axes, case: Plain, line: _Line, values: Sequence[float], *, held: bool = False) -> None:
    """A course over time; a dose is held until the next step."""
    times = case["time"]["at"]
    drawstyle: Literal["steps-post", "default"] = "steps-post" if held else "default"
    panel.plot(
        times,
        values,
        line.style,
        color=line.colour,
        linewidth=1.5,
        marker=line.marker,
        markersize=2,
        drawstyle=drawstyle,
    )
    changed = [change["step"] for change in line.course["changes"]]
    panel.plot(
        [times[step] for step in changed],
        [values[step] for step in changed],
        line.marker,
        color=line.colour,
        markersize=6,
        markerfacecolor="white",
    )


def _finish(panel: Axes, case: Plain) -> None:
    times = case["time"]
    for line in {change["at"] for change in (case["answer"] or {"best": {"changes": ()}})["best"]["changes"]}:
        panel.axvline(line, color=GUIDE, linewidth=0.8, linestyle=":", zorder=0)
    panel.xaxis.set_major_locator(MultipleLocator(times["step"] * math.ceil(len(times["at"]) / 8)))
    panel.tick_params(labelsize=8, length=2)
    panel.set_xlabel(f"time ({times['unit']})", fontsize=8, labelpad=1)
    panel.margins(x=0.03, y=0.12)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _statement(case: Plain) -> str:
    found = case["answer"]["statement"] if case["answer"] is not None else "No answer: this case was not solved."
    return " ".join(part for part in (case["model"]["caution"], found, case["trust"]["statement"]) if part)


def _write_head(figure: Figure, case: Plain, lines: Sequence[_Line], said: Sequence[str], height: float) -> None:
    def place(inches: float) -> float:
        return 1 - inches / height

    objective = case["question"]["objective"]
    figure.text(0.02, place(0.32), f"{case['episode']}: {objective}", fontsize=13, fontweight="bold", parse_math=False)
    for number, line in enumerate(lines):
        outcome = line.course["outcome"]
        shown = "not known" if outcome is None else f"{outcome:.1f}" if abs(outcome) >= 1 else f"{outcome:.2g}"
        left = _LEFT[number]
        figure.text(
            left + 0.045, place(0.68), f"{line.label}: {shown}", fontsize=10, color=line.colour, parse_math=False
        )
        figure.add_artist(
            _sample(line, left, place(0.62))  # what the line looks like
        )
    figure.text(0.02, place(0.88), "\n".join(said), fontsize=9, color=QUIET, va="top", parse_math=False)


def _sample(line: _Line, left: float, y: float) -> Line2D:
    return Line2D(
        [left, left + 0.035], [y, y], color=line.colour, linestyle=line.style, marker=line.marker, markersize=4
    )
