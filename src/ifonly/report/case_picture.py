"""A case as one picture: every measured value and every dose, as recorded and as it could have been."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from ifonly.report.cases import Case, Course
from ifonly.report.cases.case import CaseAnswer
from ifonly.report.figure_style import AXIS_COLOURS, COUNTERFACTUAL, GUIDE, OBSERVED, QUIET
from ifonly.text.catalogue import say
from ifonly.text.evidence import members_message
from ifonly.text.numbers import outcomes

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

BAND_ALPHA = 0.15
"""How faint the band of refits is, so that courses stand out before it."""

_MARKS: dict[str, dict[str, Any]] = {
    "measured": {"linestyle": "", "marker": "o", "markersize": 3},
    "carried": {"linestyle": "", "marker": "o", "markersize": 3, "markerfacecolor": "white", "markeredgewidth": 0.8},
    "assumed": {"linestyle": "", "marker": "x", "markersize": 3, "markeredgewidth": 0.8},
}
"""Recorded values by where they come from, as pages draw them."""


@dataclass(frozen=True)
class DrawnCourse:
    """One course, and how it is drawn: never told apart by colour alone."""

    course: Course
    label: str
    colour: str
    style: Literal["-", "--", ":"]
    marker: str


def plot_case(case: Case) -> Figure:
    """A case as a figure, with the course that somebody tried where it has one.

    One panel per dynamic feature, one per dose axis; steps that are treated differently are marked.
    """
    lines = drawn_courses(case)
    features = [feature for feature in case.features if feature.kind == "dynamic"]
    panes = len(features) + (len(case.treatments.axes) or 1)
    rows = math.ceil(panes / COLUMNS)
    said = textwrap.wrap(_statement(case), _LETTERS)
    head = _HEAD + _LINE * len(said)
    height = rows * _PANEL[1] + head
    figure = Figure(figsize=(COLUMNS * _PANEL[0], height), dpi=150)
    left, between = (0.06, 0.24) if case.treatments.axes else (0.1, 0.4)  # names are longer than doses
    figure.subplots_adjust(
        left=left, right=0.985, bottom=0.55 / height, top=1 - head / height, hspace=0.55, wspace=between
    )
    panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for column, panel in enumerate(panels[: len(features)]):
        draw_course(panel, case, lines, column)
    for number, panel in enumerate(panels[len(features) : panes]):
        draw_treatment(panel, case, lines, number)
    for panel in panels[panes:]:
        panel.set_axis_off()
    _write_head(figure, case, lines, said, height)
    return figure


def drawn_courses(case: Case) -> list[DrawnCourse]:
    """The courses of a case that are drawn."""
    lines = [DrawnCourse(case.observed, say("picture.recorded"), OBSERVED, "-", "o")]
    if case.answer is not None:
        most = case.question.max_changes
        allowed = say("case.any number") if most is None else say("case.at most", most=most)
        label = say("picture.best" if case.answer.claim.proven else "picture.best found", allowed=allowed)
        lines.append(DrawnCourse(case.answer.best, label, COUNTERFACTUAL, "--", "D"))
    if case.edited is not None:
        lines.append(DrawnCourse(case.edited, say("picture.tried"), AXIS_COLOURS[0], ":", "s"))
    return lines


def draw_course(panel: Axes, case: Case, lines: Sequence[DrawnCourse], column: int) -> None:
    """One dynamic feature along every course."""
    feature = [feature for feature in case.features if feature.kind == "dynamic"][column]
    for band in () if case.answer is None else case.answer.bands:
        if band.feature == feature.name:  # of the best course, under every refit
            low, high = ([math.nan if value is None else value for value in end] for end in (band.low, band.high))
            panel.fill_between(case.time.at, low, high, color=COUNTERFACTUAL, alpha=BAND_ALPHA, linewidth=0, zorder=0)
    for line in lines:
        reached = [state[column] for state in line.course.states]
        values = [math.nan if value is None else value for value in reached]
        _draw_line(panel, case, line, values, origins=feature.origins if line.course is case.observed else None)
        for score in line.course.scores:
            if score.feature == feature.name:  # made of its organs: thinner, and without marks
                panel.plot(case.time.at, score.values, line.style, color=line.colour, linewidth=0.7, alpha=0.8)
    panel.set_title(feature.label, loc="left", fontsize=9, parse_math=False)
    _finish(panel, case)
    _mark_cut(panel)


def draw_treatment(panel: Axes, case: Case, lines: Sequence[DrawnCourse], number: int) -> None:
    """Doses of one axis, evenly spaced by level; treatments without doses by their names."""
    actions, axes = case.treatments.actions, case.treatments.axes
    for line in lines:
        taken = line.course.actions
        levels = [actions[action].levels[number] for action in taken] if axes else taken
        _draw_line(panel, case, line, [float(level) for level in levels], held=True)
    if axes:
        axis = axes[number]
        panel.set_yticks(range(len(axis.shown)), axis.shown, parse_math=False)
        title = f"{axis.name} ({axis.unit})" if axis.unit else axis.name
    else:
        names = [textwrap.shorten(action.label, _LONGEST_LABEL, placeholder="…") for action in actions]
        panel.set_yticks(range(len(names)), names, parse_math=False)
        title = say("picture.treatment")
    panel.set_title(title, loc="left", fontsize=9, fontweight="bold", parse_math=False)
    _finish(panel, case)


def _draw_line(
    panel: Axes,
    case: Case,
    line: DrawnCourse,
    values: Sequence[float],
    *,
    held: bool = False,
    origins: Sequence[str] | None = None,
) -> None:
    """A course over time; a dose is held until the next step. Marks tell where recorded values come from."""
    times = case.time.at
    drawstyle: Literal["steps-post", "default"] = "steps-post" if held else "default"
    panel.plot(
        times,
        values,
        line.style,
        color=line.colour,
        linewidth=1.5,
        marker=line.marker if origins is None else "",
        markersize=2,
        drawstyle=drawstyle,
    )
    for origin in dict.fromkeys(origins or ()):
        steps = [step for step, one in enumerate(origins or ()) if one == origin]
        marked = [times[step] for step in steps], [values[step] for step in steps]
        panel.plot(*marked, color=line.colour, **_MARKS[origin])
    changed = [change.step for change in line.course.changes]
    panel.plot(
        [times[step] for step in changed],
        [values[step] for step in changed],
        line.marker,
        color=line.colour,
        markersize=6,
        markerfacecolor="white",
    )


def _mark_cut(panel: Axes) -> None:
    """Two strokes at the foot of an axis that does not reach zero."""
    low, high = panel.get_ylim()
    if low <= 0 <= high:
        return
    for up in (0.0, 0.04):
        place = [-0.015, 0.015], [up, up + 0.03]
        panel.plot(
            *place, transform=panel.transAxes, color=QUIET, linewidth=1, clip_on=False, scalex=False, scaley=False
        )


def _finish(panel: Axes, case: Case) -> None:
    time = case.time
    for change in () if case.answer is None else case.answer.best.changes:
        panel.axvline(time.at[change.step], color=GUIDE, linewidth=0.8, linestyle=":", zorder=0)
    panel.xaxis.set_major_locator(MultipleLocator(time.step * math.ceil(len(time.at) / 8)))
    panel.tick_params(labelsize=8, length=2)
    panel.set_xlabel(say("picture.time", unit=time.unit), fontsize=8, labelpad=1)
    panel.margins(x=0.03, y=0.12)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _statement(case: Case) -> str:
    found = say("picture.no answer") if case.answer is None else str(case.answer.claim.statement)
    caution = "" if case.model.caution is None else str(case.model.caution)
    marks = say("picture.origins") if any(feature.origins for feature in case.features) else ""
    band = "" if case.answer is None else _band_words(case.answer)
    thin = [score.feature for score in case.observed.scores]
    scores = say("picture.organs", scores=thin) if thin else ""
    return " ".join(
        part for part in (caution, found, str(case.evidence.statement), marks, scores, band, say("picture.cut")) if part
    )


def _band_words(answer: CaseAnswer) -> str:
    if not answer.bands:
        return ""
    members = members_message(answer.result.evidence.refits)
    band = answer.bands[0]
    return say("picture.band many" if band.many else "picture.band", refits=band.refits, members=members)


def _write_head(figure: Figure, case: Case, lines: Sequence[DrawnCourse], said: Sequence[str], height: float) -> None:
    def place(inches: float) -> float:
        return 1 - inches / height

    title = say("picture.title", episode=case.episode, outcome=case.question.outcome)
    figure.text(0.02, place(0.32), title, fontsize=13, fontweight="bold", parse_math=False)
    values = outcomes(*(line.course.outcome for line in lines))
    for number, (line, shown) in enumerate(zip(lines, values, strict=True)):
        left = _LEFT[number]
        figure.text(
            left + 0.045, place(0.68), f"{line.label}: {shown}", fontsize=10, color=line.colour, parse_math=False
        )
        figure.add_artist(
            _sample(line, left, place(0.62))  # what the line looks like
        )
    figure.text(0.02, place(0.88), "\n".join(said), fontsize=9, color=QUIET, va="top", parse_math=False)


def _sample(line: DrawnCourse, left: float, y: float) -> Line2D:
    return Line2D(
        [left, left + 0.035], [y, y], color=line.colour, linestyle=line.style, marker=line.marker, markersize=4
    )
