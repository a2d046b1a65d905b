"""The picture of a case says all that is claimed, and draws what was recorded."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from ifonly.report.case_picture import plot_case
from ifonly.report.cases import TriedCourse
from ifonly.text.catalogue import Message

sys.path.insert(0, str(Path(__file__).parent / "pages"))
from made_cases import made_case, with_organs


def words(figure: Figure) -> str:
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


def panel(figure: Figure, title: str) -> Any:
    (found,) = (one for one in figure.axes if one.get_title(loc="left").startswith(title))
    return found


def test_courses_are_drawn_in_original_units() -> None:
    case = made_case()
    assert case.answer is not None
    tried = case.answer.alternatives[-1]
    figure = plot_case(replace(case, edited=TriedCourse(**vars(tried))))
    lines = [line for line in panel(figure, "MAP (mmHg)").lines if len(line.get_xdata()) == len(case.time.at)]
    courses = [case.observed, case.answer.best, tried]
    for line, course in zip(lines, courses, strict=True):
        assert list(line.get_xdata()) == list(case.time.at)
        assert list(line.get_ydata()) == [state[1] for state in course.states]
    assert len({line.get_linestyle() for line in lines}) == len({line.get_marker() for line in lines}) == 3
    assert f"tried by the reviewer: {courses[2].outcome:.1f}" in words(figure)


@pytest.mark.parametrize("length", [3, 60])
def test_a_claim_is_never_cut_short(length: int) -> None:
    case = made_case(proven=False)
    assert case.answer is not None
    statement = Message("page.sentence", {"text": " ".join(f"word{number}" for number in range(length)) + " end"})
    claim = replace(case.answer.claim, statement=statement)
    figure = plot_case(replace(case, answer=replace(case.answer, claim=claim)))
    assert str(statement) in words(figure)
    assert "best found with at most 2 changes: 34.0" in words(figure)
    figure.canvas.draw()
    said = figure.texts[-1].get_window_extent()
    titles = [one._left_title.get_window_extent() for one in figure.axes]
    assert said.y0 > max(title.y1 for title in titles), "above the panels"


def test_treatments_without_doses_have_names() -> None:
    case = made_case(ordered=False)
    shown = [label.get_text() for label in panel(plot_case(case), "treatment").get_yticklabels()]
    assert len(shown) == len(case.treatments.actions)
    assert shown[0] == case.treatments.actions[0].label


def test_a_case_without_an_answer_says_so() -> None:
    assert "No answer" in words(plot_case(made_case(answered=False)))


def test_recorded_values_are_marked_by_where_they_come_from() -> None:
    case = with_organs(made_case())
    figure = plot_case(case)
    marks = {
        (line.get_marker(), line.get_markerfacecolor() == "white"): list(line.get_xdata())
        for line in panel(figure, "MAP").lines
        if line.get_linestyle() == "None" and line.get_markersize() == 3
    }
    at = list(case.time.at)
    assert marks == {("x", False): at[:1], ("o", False): at[1:2], ("o", True): at[2:]}
    assert "filled marks were measured, hollow ones carried forward, crosses assumed" in words(figure)
    assert "filled marks" not in words(plot_case(made_case()))


def test_a_score_is_drawn_thin_as_its_organs_make_it() -> None:
    case = with_organs(made_case())
    figure = plot_case(case)
    thin = [line for line in panel(figure, "SOFA").lines if line.get_linewidth() < 1 and len(line.get_xdata()) == 6]
    assert [list(line.get_ydata()) for line in thin] == [[6, 7, 8, 9, 10, 11]] * 2
    assert "Thin lines: SOFA recomputed from the organ values." in words(figure)
