"""The picture of a case says all that is claimed, and draws what was recorded."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from ifonly.report.case_picture import plot_case
from ifonly.report.case_slide import plot_slide
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
    shown = [label.get_text() for label in panel(plot_case(case), "action").get_yticklabels()]
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


def slide_words(figure: Figure) -> str:
    return " ".join(" ".join(text.get_text().split()) for text in figure.texts)


def test_a_slide_says_what_could_have_been_different_and_how_sure_that_is() -> None:
    case = made_case(examined=True)
    figure = plot_slide(case)
    said = slide_words(figure)
    assert "Cumulative SOFA 40.0 as recorded; 34.0 with 2 changes (\u221215.0 %)." in said
    assert "Hour 4: vasopressors raised, 0 \u2192 0.04 mcg/kg/min" in said
    assert "Not believable" in said
    assert "\u2013 model check failed" in said
    assert "+ proven best" in said
    assert case.answer is not None
    assert str(case.answer.claim.statement) in said
    assert figure.get_size_inches()[0] / figure.get_size_inches()[1] == pytest.approx(16 / 9, rel=1e-3)
    assert figure.axes[0].get_title(loc="left").startswith("SOFA")
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.texts]
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width and box.y0 >= 0 for box in boxes)
    overlaps = [one for one in boxes for two in boxes if one is not two and one.shrunk(0.9, 0.9).overlaps(two)]
    assert not overlaps


@pytest.mark.parametrize(("answered", "ordered"), [(False, True), (True, False)])
def test_a_slide_of_other_cases(answered: bool, ordered: bool) -> None:
    said = slide_words(plot_slide(made_case(answered=answered, ordered=ordered)))
    assert ("No answer: this case was not solved." in said) != answered
    assert "40.0 as recorded" in said


def test_an_axis_that_does_not_reach_zero_is_marked() -> None:
    figure = plot_case(made_case())
    for name, cut in (("MAP", True), ("SOFA", True)):
        strokes = [line for line in panel(figure, name).lines if not line.get_clip_on()]
        assert len(strokes) == (2 if cut else 0)
    assert "does not begin at zero" in words(figure)
