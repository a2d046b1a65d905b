"""The tables of results, as a terminal shows it."""

import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from made_results import WORDS, made_result, without_bound
from rich.console import Console
from rich.table import Table

from ifonly.report.tables import alternatives_table, contributions_table, frontier_table, results_table
from ifonly.result import Alternative, Budget, Certificate, Result, Status
from ifonly.rewards import Linear
from ifonly.search.contributions import Contribution, Contributions

MANY = [
    made_result({2: (0, 12), 11: (2, 22)}),
    without_bound({0: (1, 4)}, episode="patient-00018"),
    made_result({}, episode="patient-00019"),
    made_result(
        {3: (1, 2)},
        episode="patient-00020",
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


def test_a_bound_of_nothing_has_no_sign() -> None:
    assert rows(shown([made_result({1: (0, 1)}, upper_bound=0.0)]))[0][-2] == "0.0"


def test_a_bound_on_a_gain_keeps_its_sign() -> None:
    gain = made_result({1: (0, 1)}, reward=Linear({"MAP": 2.0}), upper_bound=4.0)
    assert rows(shown([gain]))[0][-2] == "4.0"


def test_a_gap_of_rounding_is_none() -> None:
    result = made_result({1: (0, 1)}, certificate=Certificate("bound", proven=True, tolerance=1e-9))
    almost = made_result({1: (0, 1)}, upper_bound=result.outcome + 1e-12, certificate=result.certificate)
    assert re.search(r" 0 +1\.75$", shown([almost]), flags=re.MULTILINE)


def test_categories_labels_with_commas_and_brackets_stay_as_they_are() -> None:
    result = made_result({1: (1, 2)}, actions=WORDS, episode="[bold]7[/bold]")
    text = shown([result])
    assert "step 1: talk it over with the family -> operate" in text
    assert "[bold]7[/bold]" in text


def test_nothing_changed_and_nothing_to_divide_by() -> None:
    zero = made_result({}, outcome=0.0, observed_outcome=0.0, upper_bound=0.0)
    text = shown([zero])
    assert "none" in text
    assert "0.0 -> 0.0" in text
    assert "%" not in text


def test_different_rewards_share_a_neutral_heading() -> None:
    other = made_result({}, reward=Linear({"MAP": 1.0}))
    assert "outcome observed" in shown([made_result({}), other])


def test_no_results() -> None:
    assert "episode" in shown([])


def printed(table: Table, width: int = 120) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    assert max(len(line) for line in console.file.getvalue().splitlines()) <= width
    return console.file.getvalue()


def sequence(result: Result, **changes: int) -> np.ndarray:
    """The observed actions with others at some steps: s2=12."""
    actions = result.observed_actions.copy()
    for step, action in changes.items():
        actions[int(step[1:])] = action
    return actions


def test_the_frontier() -> None:
    result = made_result({2: (0, 12)}, change_cost=0.5)
    budgets = (
        Budget(0, None, None, None, -math.inf),
        Budget(1, None, None, None, -50.0),
        Budget(2, -60.0, -59.0, sequence(result, s2=12, s3=4), -60.0 + 1e-12),
        Budget(3, -60.0, -60.0, sequence(result), math.inf),
    )
    text = printed(frontier_table(replace(result, frontier=budgets)))
    lines = [line.split() for line in text.splitlines()[2:]]
    assert lines[0] == ["0", "-", "-", "no", "admissible", "sequence"]
    assert lines[1] == ["1", "-", "-", "nothing", "found", "yet"]
    assert " ".join(lines[2]).startswith(
        "2 59 0 step 2: vasopressors 0 -> 0.113 mcg/kg/min"
    )  # without costs of changes
    assert "step 3: fluids 30 -> 850 mL/4 h" in text
    assert lines[-1] == ["3", "60", "-", "none"]


def test_alternatives() -> None:
    result = made_result({2: (0, 12)})
    listed = (Alternative(sequence(result, s2=12), -60.0), Alternative(sequence(result, s5=2), -60.25))
    text = printed(alternatives_table(replace(result, alternatives=listed)), width=80)
    assert re.search(r"^ *1 +60 +0 +step 2: vasopressors 0 -> 0.113 mcg/kg/min", text, flags=re.MULTILINE)
    assert re.search(r"^ *2 +60.25 +0.25 +step 5: fluids 30 -> 80 mL/4 h", text, flags=re.MULTILINE)


def test_a_gain_keeps_its_sign_in_every_table() -> None:
    gain = made_result({1: (0, 1)}, reward=Linear({"[good]": 1.0}))
    text = printed(frontier_table(replace(gain, frontier=(Budget(0, 1.0, 1.0, sequence(gain), 1.0),))))
    assert "[good]" in text
    assert re.search(r"^ *0 +1 +0 +none", text, flags=re.MULTILINE)


def test_contributions() -> None:
    result = made_result({2: (0, 12), 3: (2, 4)})
    shares = Contributions((Contribution(2, 12, 1.0, 1.5, 1.25), Contribution(3, 4, 2.0, 2.5, 2.25)), {})
    lines = printed(contributions_table(result, shares)).splitlines()
    row = next(line for line in lines if line.startswith("step 2"))
    assert row.split("  ")[0] == "step 2: vasopressors 0 -> 0.113 mcg/kg/min, fluids 0 -> 80 mL/4 h"
    assert row.split()[-3:] == ["1.5", "1", "1.25"]
    assert next(line for line in lines if line.startswith("together")).split() == ["together", "3.5"]
