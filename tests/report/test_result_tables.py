"""The table of results, as a terminal shows it."""

import io
import re

import pytest
from made_results import WORDS, made_result, without_bound
from rich.console import Console

from ifonly.report.tables import results_table
from ifonly.rewards import Shown
from ifonly.search.result import Certificate, Result, Status

MANY = [
    made_result({2: (0, 12), 11: (2, 22)}),
    without_bound({0: (1, 4)}, episode_id="patient-00018"),
    made_result({}, episode_id="patient-00019"),
    made_result(
        {3: (1, 2)},
        episode_id="patient-00020",
        status=Status.TIME_LIMIT,
        upper_bound=-10.0,
        outcome=-12.5,
        certificate=Certificate("bound", proven=True),
    ),
]


def shown(results: list[Result], width: int = 120) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(results_table(results))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_one_row_says_everything() -> None:
    result = made_result({2: (0, 12), 3: (2, 4)})
    text = shown([result])
    observed, found = (f"{value.value:.1f}" for value in result.shown)
    assert f"{observed} -> {found}" in text
    assert f"{(result.shown[1].value / result.shown[0].value - 1):+.1%}" in text
    for part in ("patient-00017", "cumulative SOFA observed", "optimal", "1,234", "1.75"):
        assert part in text
    first = text.index("step 2: vasopressors 0 -> 0.113 mcg/kg/min ")
    assert first < text.index(" fluids 0 -> 80 mL/4 h ") < text.index("step 3: fluids 80 -> 850 mL/4 h ")


@pytest.mark.parametrize("width", [100, 110, 120])
def test_lines_fit_and_words_stay_whole(width: int) -> None:
    text = shown(MANY, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    for word in ("patient-00017", "vasopressors", "mcg/kg/min", "counterfactual", "time limit", "heuristic"):
        assert word in text
    assert "fluids 30 -> 850 mL/4 h" in text


def rows(text: str) -> list[list[str]]:
    """The first lines of the rows, split at runs of two or more spaces."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines() if line.startswith("patient")]


def test_bounds_are_in_the_units_that_are_shown() -> None:
    bounds = [row[-2] for row in rows(shown(MANY))]
    assert bounds == [f"{MANY[0].shown[1].value:.1f}", "none", f"{MANY[2].shown[1].value:.1f}", "10.0"]
    text = shown([MANY[3]])
    assert re.search(r" 2\.5 +1\.75$", text, flags=re.MULTILINE)  # the gap, and seconds


def test_a_bound_on_a_gain_keeps_its_sign() -> None:
    gain = made_result({1: (0, 1)}, shown=(Shown("outcome", 1.0, True), Shown("outcome", 3.0, True)), upper_bound=4.0)
    assert rows(shown([gain]))[0][-2] == "4.0"


def test_a_gap_of_rounding_is_none() -> None:
    result = made_result({1: (0, 1)}, certificate=Certificate("bound", proven=True, tolerance=1e-9))
    almost = made_result({1: (0, 1)}, upper_bound=result.outcome + 1e-12, certificate=result.certificate)
    assert re.search(r" 0 +1\.75$", shown([almost]), flags=re.MULTILINE)


def test_categories_labels_with_commas_and_brackets_stay_as_they_are() -> None:
    result = made_result({1: (1, 2)}, actions=WORDS, episode_id="[bold]7[/bold]")
    text = shown([result])
    assert "step 1: talk it over with the family -> operate" in text
    assert "[bold]7[/bold]" in text


def test_nothing_changed_and_nothing_to_divide_by() -> None:
    zero = made_result({}, shown=(Shown("SOFA", 0.0, False), Shown("SOFA", 0.0, False)))
    text = shown([zero])
    assert "none" in text
    assert "0.0 -> 0.0" in text
    assert "%" not in text


def test_different_rewards_share_a_neutral_heading() -> None:
    other = made_result({}, shown=(Shown("MAP", 1.0, True), Shown("MAP", 1.0, True)))
    assert "outcome observed" in shown([made_result({}), other])


def test_no_results() -> None:
    assert "episode" in shown([])
