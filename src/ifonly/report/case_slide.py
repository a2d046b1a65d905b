"""A case as one slide: what happened, what could have been different, how sure that is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ifonly.report.case_picture import DrawnCourse, draw_course, draw_treatment, drawn_courses
from ifonly.report.cases import Case
from ifonly.report.cases.band import outcome_features
from ifonly.report.figure_style import GUIDE, OBSERVED, QUIET
from ifonly.result import Change
from ifonly.text.catalogue import say
from ifonly.text.numbers import outcomes

SIZE = (13.333, 7.5)
"""Inches: a slide of 16 to 9."""
MOST_LINES, MOST_LANES = 4, 3
"""Of changes in words, and of dose axes."""
LETTERS, FOOT_LETTERS = 50, 165
"""In a line of the left column, and of the claim with its evidence at the foot."""
COLOURS = {"good": "#1d5c2f", "reserved": "#6b4e00", "bad": "#6d1512"}
MARKS = {True: "+", False: "\u2013"}


def plot_slide(case: Case) -> Figure:
    """The case as a figure of 16 to 9: claim, changes in words and badge beside the outcome's course and the doses."""
    lines = drawn_courses(case)
    figure = Figure(figsize=SIZE, dpi=150, facecolor="white")
    lanes = min(len(case.treatments.axes) or 1, MOST_LANES)
    grid = figure.add_gridspec(
        1 + lanes, 1, left=0.47, right=0.975, top=0.8, bottom=0.18, hspace=0.5, height_ratios=[2.4, *[1] * lanes]
    )
    board = figure.add_subplot(grid[0])
    column = _outcome_column(case)
    draw_course(board, case, lines, column)
    for number in range(lanes):
        draw_treatment(figure.add_subplot(grid[1 + number]), case, lines, number)
    _write(figure, case, lines)
    return figure


def _outcome_column(case: Case) -> int:
    """The first dynamic feature that the outcome is made of."""
    names = [feature.name for feature in case.features if feature.kind == "dynamic"]
    return names.index(outcome_features(case.question.outcome, names)[0])


def _write(figure: Figure, case: Case, lines: list[DrawnCourse]) -> None:
    def put(y: float, words: str, size: float, **look: Any) -> None:
        figure.text(0.03, y, words, fontsize=size, va="top", parse_math=False, **look)

    put(0.95, say("slide.title", episode=case.episode), 12, color=QUIET)
    put(0.91, textwrap.fill(_headline(case), 90), 20, weight="bold", color=OBSERVED)
    below = 0.76
    for line, outcome in zip(lines, outcomes(*(line.course.outcome for line in lines)), strict=True):
        figure.text(
            0.03,
            below,
            f"{line.label}: {outcome}",
            fontsize=15,
            color=line.colour,
            va="top",
            parse_math=False,
        )
        below -= 0.05
    below -= 0.02
    for sentence in _change_lines(case):
        wrapped = textwrap.wrap(sentence, LETTERS, subsequent_indent="   ")
        put(below, "\n".join(wrapped), 13, color=OBSERVED)
        below -= 0.038 * len(wrapped) + 0.012
    if case.answer is not None:
        badge = case.answer.badge
        below -= 0.03
        put(below, say(f"badge.{badge.level}"), 15, weight="bold", color=COLOURS[badge.level])
        for number, part in enumerate(badge.parts):
            row, place = divmod(number, 2)
            words = f"{MARKS[part.holds]} {part.said}"
            figure.text(0.03 + 0.17 * place, below - 0.045 * (1 + row), words, fontsize=12.5, color=OBSERVED, va="top")
    foot = say("picture.no answer") if case.answer is None else str(case.answer.claim.statement)
    put(0.102, textwrap.fill(f"{foot} {case.evidence.statement}", FOOT_LETTERS), 10, color=QUIET)
    put(0.025, say("slide.foot", version=case.ifonly, subjects=case.words.subjects), 8.5, color=QUIET)
    figure.add_artist(Line2D([0.03, 0.975], [0.115, 0.115], color=GUIDE, linewidth=0.8))


def _headline(case: Case) -> str:
    outcome = case.question.outcome[:1].upper() + case.question.outcome[1:]
    courses = [case.observed, *([] if case.answer is None else [case.answer.best])]
    shown = outcomes(*(course.outcome for course in courses))
    values = {"outcome": outcome, "recorded": shown[0]}
    if case.answer is None:
        return say("view.headline", **values)
    best = case.answer.best
    count = len(best.changes)
    if not count:
        most = case.question.max_changes or 0
        return say("view.headline nothing", **values, changes=_changes(most))
    moved = ""
    if best.improvement is not None:
        falls = (best.improvement > 0) == case.question.lower_is_better
        sign = "\u2212" if falls else "+"
        moved = say("view.moved", moved=f"{sign}{100 * abs(best.improvement):.1f} %")
    return say("view.headline changed", **values, shown=shown[1], changes=_changes(count), moved=moved)


def _changes(count: int) -> str:
    return say("count.change", count=count, number=str(count) if count else say("count.none"))


def _change_lines(case: Case) -> Iterator[str]:
    """What is changed, in words; of many changes the first ones."""
    changes = () if case.answer is None else case.answer.best.changes
    rest = len(changes) - MOST_LINES + 1 if len(changes) > MOST_LINES else 0
    for change in changes[: len(changes) - rest]:
        text = say("change.when", when=f"{case.time.unit} {case.time.at[change.step]:g}", change=_doses(case, change))
        yield text[:1].upper() + text[1:]
    if rest:
        yield say("view.more changes listed", count=rest)


def _doses(case: Case, change: Change) -> str:
    before, after = (case.treatments.actions[action] for action in (change.observed, change.counterfactual))
    if not case.treatments.axes:
        return say("dose.other", before=before.label, after=after.label)
    said = []
    for axis, old, new in zip(case.treatments.axes, before.levels, after.levels, strict=True):
        if old != new:
            way = "dose.up" if new > old else "dose.down"
            unit = f" {axis.unit}" if axis.unit else ""
            said.append(say(way, name=axis.name, before=axis.shown[old], after=axis.shown[new], unit=unit))
    return "; ".join(said)
