"""The badge of an answer: green only where proof, model, evidence and values all are."""

import itertools
from dataclasses import replace

import polars as pl
import pytest
from dosed_problems import dosed

from ifonly.data.schema import ActionSpace, Axis
from ifonly.models.standing import VERDICTS, Standing
from ifonly.report.cases import case_of
from ifonly.report.cases.badge import Badge, badge_of, with_badges
from ifonly.report.cases.build_case import _treatments
from ifonly.report.cases.courses import Course, course_of
from ifonly.result import Evidence, Result, Status, Verdict
from ifonly.result.table import COLUMNS, failed_row, to_row
from ifonly.search.solve import solve

pytestmark = pytest.mark.filterwarnings("ignore::ifonly.errors.PlausibilityWarning")


def answer(plausible: tuple[float, float] | None) -> tuple[Result, Course]:
    problem = dosed(plausible=plausible)
    result = solve(problem)
    return result, course_of(problem, result.actions)


def standing(verdict: str | None) -> Standing | None:
    return None if verdict is None else Standing(verdict, (), 10, "0" * 16)


def test_green_only_if_everything_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {True: answer((-100.0, 100.0)), False: answer((0.0, 1.0))}
    levels: dict[str, list[tuple[bool, str | None, Verdict, bool]]] = {"good": [], "reserved": [], "bad": []}
    for one in itertools.product((True, False), (None, *VERDICTS), Verdict, (True, False)):
        proven, check, verdict, plausible = one
        monkeypatch.setattr(Evidence, "verdict", verdict)
        found = badge_of(*answers[plausible], standing(check), proven=proven)
        levels[found.level].append(one)
        expected = [proven, check == "pass", verdict is Verdict.SUPPORTED, plausible]
        assert [part.holds for part in found.parts] == expected
        assert all(str(part.said) for part in found.parts)
    assert levels["good"] == [(True, "pass", Verdict.SUPPORTED, True)]
    assert all(check == "fail" or verdict is Verdict.NOT_BELIEVABLE for _, check, verdict, _ in levels["bad"])
    assert not any(check == "fail" for _, check, _, _ in levels["reserved"])


def test_a_table_has_the_badges_of_its_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [answer((-100.0, 100.0)), answer((0.0, 1.0)), answer(None)]
    nothing = dosed(max_changes=0)
    answers.append((solve(nothing), course_of(nothing, nothing.episode.actions)))
    seen = set()
    for (result, best), check, verdict, proven in itertools.product(answers, (None, *VERDICTS), Verdict, (True, False)):
        monkeypatch.setattr(Evidence, "verdict", verdict)
        status = Status.OPTIMAL if proven else Status.TIME_LIMIT
        made = replace(result, status=status, evidence=replace(result.evidence, check=standing(check)))
        rows = [to_row(made), failed_row(nothing.episode, ValueError("made up"))]
        found, failed = with_badges(pl.DataFrame(rows, schema=COLUMNS), result.schema.dynamic).to_dicts()
        expected = badge_of(made, best, standing(check), proven=proven)
        doubts = [part.said.code for part in expected.parts if not part.holds]
        assert (found["badge"], [f"badge.{code}" for code in found["doubts"]]) == (expected.level, doubts)
        assert (failed["badge"], failed["doubts"]) == (None, None)
        seen.add(expected.level)
    assert seen == {"good", "reserved", "bad"}


def said(badge: Badge) -> list[str]:
    return [str(part.said) for part in badge.parts]


def test_what_was_not_asked_does_not_hold() -> None:
    problem = dosed(plausible=None)
    found = case_of(problem, solve(problem)).answer
    assert found is not None
    assert said(found.badge) == ["proven best", "model not checked", "not examined", "plausible ranges not known"]
    kept = dosed(max_changes=0)
    nothing = case_of(kept, solve(kept)).answer
    assert nothing is not None
    assert said(nothing.badge)[2] == "nothing changed to examine"
    assert nothing.badge.level == "reserved"


def test_impossible_values_of_the_recording_count() -> None:
    result, best = answer((-100.0, 100.0))
    recorded = course_of(dosed(plausible=(0.0, 7.0)), result.observed_actions)
    assert recorded.implausible
    badge = badge_of(result, replace(best, implausible=recorded.implausible), standing("pass"), proven=True)
    assert said(badge)[3] == "values outside plausible ranges"


def test_doses_that_stand_for_yes_and_no_are_words() -> None:
    space = ActionSpace.product(
        Axis("steroid", "1 = given", (0, 1)), Axis("oxygen", "1=yes", (0, 1)), Axis("fluid", "1 = L", (0, 1, 2))
    )
    shown = [(axis.unit, axis.shown) for axis in _treatments(space).axes]
    assert shown == [("", ("no", "given")), ("", ("no", "yes")), ("1 = L", ("0", "1", "2"))]
