"""Interactive figures: what is drawn, what the menu shows, and that the page fetches nothing and runs nothing."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_results import WORDS, made_result

from ifonly.data.schema import Axis
from ifonly.errors import InputError
from ifonly.report.interactive import interactive_episode


def test_the_rewarded_feature_is_shown_first_and_the_menu_shows_the_others() -> None:
    result = made_result({2: (0, 12), 5: (7, 18)})
    figure = interactive_episode(result)
    courses, strips = figure.data[:4], figure.data[4:]
    assert [trace.visible for trace in courses] == [False, False, True, True]
    assert np.array_equal(courses[2].x, np.arange(12) * 4.0)
    assert np.array_equal(courses[2].y, result.observed_states[:, 1])
    assert np.array_equal(courses[3].y, result.states[:, 1])
    assert (courses[2].line.dash, courses[3].line.dash) == ("solid", "dash")
    assert figure.layout.yaxis.title.text == "SOFA (points)"
    assert {shape.x0 for shape in figure.layout.shapes} == {8.0, 20.0}

    (menu,) = figure.layout.updatemenus
    assert ([button.label for button in menu.buttons], menu.active) == (["MAP", "SOFA"], 1)
    shown, title = menu.buttons[0].args
    assert shown["visible"] == [True, True, False, False, *[True] * len(strips)]
    assert title == {"yaxis.title.text": "MAP (mmHg)"}


def test_doses_stand_below_as_recorded_and_as_changed() -> None:
    result = made_result({2: (0, 12)})
    vectors = np.array(result.schema.actions.vectors)
    strips = interactive_episode(result, "MAP").data[4:]
    for place in range(2):
        observed, found = strips[2 * place : 2 * place + 2]
        assert np.array_equal(observed.y, vectors[result.observed_actions, place])
        assert np.array_equal(found.y, vectors[result.actions, place])
        assert observed.line.shape == "hv"


def test_actions_without_doses_stand_by_their_words() -> None:
    result = made_result({2: (0, 2)}, actions=WORDS)
    figure = interactive_episode(result)
    assert np.array_equal(figure.data[4].y, result.observed_actions)
    assert list(figure.layout.yaxis2.ticktext) == list(WORDS.labels)
    assert figure.layout.yaxis2.title.text == "action"


def test_an_unknown_feature_is_refused() -> None:
    with pytest.raises(InputError, match="lactate"):
        interactive_episode(made_result({}), "lactate")


def test_a_page_of_it_fetches_nothing_and_names_are_escaped(tmp_path: Path) -> None:
    result = made_result({2: (0, 1)})
    axes = (Axis("<script>alert(1)</script>", "mL", (0, 30)),)
    hostile = replace(result.schema, actions=type(result.schema.actions).product(*axes))
    bounded = {"actions": np.minimum(result.actions, 1), "observed_actions": np.minimum(result.observed_actions, 1)}
    figure = interactive_episode(replace(result, provenance=replace(result.provenance, schema=hostile), **bounded))
    assert figure.layout.yaxis2.title.text == "&lt;script&gt;alert(1)&lt;/script&gt;<br>(mL)"
    page = tmp_path / "page.html"
    figure.write_html(page, include_plotlyjs=True)
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"""<(?:script|link|img)\b[^>]*(?:src|href)=["']?(?:https?:)?//""", text)
