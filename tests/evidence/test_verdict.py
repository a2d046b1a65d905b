"""What evidence concludes: verdicts and warnings by thresholds, as codes with numbers; and what is said of them."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from made_evidence import CHECKED, QUERY, SCHEMA, refits, scored, sensitive, support

from ifonly.errors import InputError, StoreError
from ifonly.models.standing import Standing
from ifonly.records import from_plain, to_plain
from ifonly.result import Evidence, LocalCalibration, Thresholds, Verdict, WarningCode
from ifonly.result.evidence import ExaminationFailure, Reason, ReasonCode, SupportFlag
from ifonly.text import catalogue as texts
from ifonly.text.evidence import caution_message, lines_of, messages_of, model_message, warned_message

PASS = CHECKED["pass"]
INCOMPLETE = "Uncertain: it was not examined in full. "
FAILURE = ExaminationFailure("sensitivity", Reason(ReasonCode.REFUSED, "no prior."))
EVERYTHING = Evidence(
    (0, 1),
    CHECKED["fail"],
    refits=refits(2, 20, [9, 12]),
    support=support(2),
    sensitivity=sensitive(0.3),
    failures=(FAILURE,),
    kept_within_ranges=0.3,
    scores=(scored(10.6, -1.0, 0.5),),
    calibration=LocalCalibration(gain=10.6, adjusted=3.1, deviation=1.2, transitions=100),
)


def codes(evidence: Evidence) -> list[WarningCode]:
    return [warning.code for warning in evidence.warnings]


@pytest.mark.parametrize(
    ("evidence", "verdict", "statement", "warnings"),
    [
        (Evidence((1,)), "not examined", "The model was not checked. This answer was not examined any further.", 0),
        (Evidence((1,), PASS), "not examined", "Model check: pass. This answer was not examined any further.", 0),
        (
            Evidence((1,), CHECKED["warn"]),
            "uncertain",
            INCOMPLETE + "Model check: warn. This answer was not examined any further.",
            1,
        ),
        (
            Evidence((1,), CHECKED["fail"], refits=refits(18, 20)),
            "not believable",
            "Not to be believed: the model failed its check. Model check: fail; 18 of 20 refits agree.",
            1,
        ),
        (
            Evidence((), CHECKED["not judged"]),
            "uncertain",
            "Model check: not judged, for want of data. Nothing is changed, so there is nothing to examine.",
            1,
        ),
        (
            Evidence((), PASS, refits=refits(0, 20)),
            "not examined",
            "Model check: pass. Nothing is changed, so there is nothing to examine.",
            0,
        ),
        (
            Evidence((0, 1), PASS, refits=refits(18, 20), support=support(1)),
            "uncertain",
            INCOMPLETE + "Model check: pass; 18 of 20 refits agree; 1 step goes beyond what the data supports.",
            1,
        ),
        (
            Evidence((1,), PASS, refits(18, 20)),
            "uncertain",
            INCOMPLETE + "Model check: pass; 18 of 20 refits agree.",
            0,
        ),
        (
            Evidence((1,), PASS, refits(17, 20)),
            "uncertain",
            INCOMPLETE + "Model check: pass; 17 of 20 refits agree.",
            1,
        ),
        (
            Evidence((1,), PASS, refits(0, 1)),
            "uncertain",
            INCOMPLETE + "Model check: pass; the only refit does not agree.",
            1,
        ),
        (
            Evidence((1,), PASS, refits(20, 20, [10, 20])),
            "uncertain",
            INCOMPLETE + "Model check: pass; 20 of 20 refits agree.",
            0,
        ),
        (
            Evidence((1,), PASS, refits(20, 20, [9, 0])),
            "uncertain",
            INCOMPLETE + "Model check: pass; 20 of 20 refits agree.",
            1,
        ),
        (
            Evidence((1,), PASS, refits(2, 20, [9, 0])),
            "uncertain",
            INCOMPLETE + "Model check: pass; 2 of 20 refits agree.",
            2,
        ),
        (
            Evidence((1,), PASS, sensitivity=sensitive(0.321)),
            "uncertain",
            INCOMPLETE
            + "Model check: pass; an unrecorded influence of 0.33 of its usual standard deviations at step 1 would "
            "undo the gain.",
            1,
        ),
        (
            Evidence((1,), PASS, sensitivity=sensitive(0.33, member=2)),
            "uncertain",
            INCOMPLETE
            + "Model check: pass; an unrecorded influence of 0.33 of its usual standard deviations at step 1 would "
            "undo the gain under refit 3, which gains least.",
            0,
        ),
        (
            Evidence((1,), PASS, sensitivity=sensitive(None)),
            "uncertain",
            INCOMPLETE
            + "Model check: pass; no unrecorded influence at a single step was found to undo the gain, up to 10 of its "
            "usual standard deviations.",
            0,
        ),
        (
            Evidence((1,), PASS, sensitivity=sensitive(None, gain=-1.0)),
            "uncertain",
            INCOMPLETE + "Model check: pass; the changes do not help, so there is no gain to undo.",
            0,
        ),
        (
            Evidence((1,), PASS, failures=(ExaminationFailure("all", FAILURE.reason),)),
            "uncertain",
            "Uncertain: a part of it could not be examined. Model check: pass; could not be examined: no prior.",
            1,
        ),
    ],
)
def test_verdicts_statements_and_warnings(evidence: Evidence, verdict: str, statement: str, warnings: int) -> None:
    assert evidence.verdict == verdict
    assert len(evidence.warnings) == warnings
    told = messages_of(evidence, SCHEMA, QUERY)
    assert str(told.statement) == statement
    assert len(told.warnings) == warnings
    lines = lines_of(evidence, SCHEMA, QUERY)
    assert lines[0] == statement
    assert lines[1 : 1 + warnings] == [f"warning: {warning}" for warning in told.warnings]
    content = json.loads(json.dumps(to_plain(evidence), allow_nan=False))
    again = from_plain(Evidence, content, what="evidence")
    assert to_plain(again) == content
    assert (again.verdict, again.warnings) == (evidence.verdict, evidence.warnings)
    assert [str(line) for line in lines_of(again, SCHEMA, QUERY)] == lines


def test_every_warning_has_its_code_its_numbers_and_its_words() -> None:
    assert codes(EVERYTHING) == list(WarningCode)
    values = {warning.code: warning.values for warning in EVERYTHING.warnings}
    assert values == {
        WarningCode.MODEL_CHECK: {"verdict": "fail"},
        WarningCode.REFITS_DISAGREE: {"helping": 2, "refits": 20},
        WarningCode.OTHER_STEPS: {"steps": [{"step": 0, "same_step": 9, "of": 20}]},
        WarningCode.BEYOND_DATA: {"steps": [0, 1]},
        WarningCode.SMALL_INFLUENCE: {"step": 1, "undone_by": 0.3, "member": None},
        WarningCode.LEAVES_RANGES: {"kept": 0.3},
        WarningCode.NOT_BORNE_OUT: {"score": "SOFA", "claimed": 10.6, "recomputed": -0.5},
        WarningCode.BEYOND_CALIBRATION: {"gain": 10.6, "adjusted": 3.1},
        WarningCode.NOT_EXAMINED: {"parts": ["sensitivity"]},
    }
    assert [str(warning) for warning in messages_of(EVERYTHING, SCHEMA, QUERY).warnings] == [
        "the model failed its check: the model misses effects of the actions and predictive intervals do not hold what "
        "they promise",
        "too few refits agree that the changes help",
        "few refits change the same step in their own best sequence (step 0: 9 of 20)",
        "2 steps go beyond what the data supports",
        "an unrecorded influence of 0.30 of its usual standard deviations at step 1 would undo the gain",
        "values leave their plausible ranges; of the gain 30 % is left when they are cut there",
        "the organs do not bear the gain out: by the model SOFA falls by 10.6 points in all; recomputed from the organ "
        "values it rises by 0.5 points in all, by the kidneys",
        "the gain of 10.6 becomes 3.1, give or take 1.2, where the model is corrected by what it gets wrong in "
        "comparable records",
        "could not be examined: what would undo the gain (no prior)",
    ]
    assert [str(warned_message(code)) for code in WarningCode] == [
        "the model's check",
        "other models disagree",
        "refits would change other steps",
        "beyond what the data supports",
        "a small unrecorded influence would undo the gain",
        "values leave their plausible ranges",
        "the organs do not bear the gain out",
        "comparable records do not bear the gain out",
        "could not be examined",
    ]


def test_a_failed_model_is_never_believable() -> None:
    for evidence in (EVERYTHING, Evidence((), CHECKED["fail"]), Evidence((1,), CHECKED["fail"], refits=refits(20, 20))):
        assert evidence.verdict is Verdict.NOT_BELIEVABLE
    caution = caution_message(CHECKED["fail"])
    assert str(caution).startswith("The model failed its check (the model misses effects of the actions and ")
    assert [caution_message(check) for check in (None, PASS, CHECKED["warn"])] == [None] * 3
    assert str(model_message(None)) == "The model was not checked."


def test_without_changes_only_the_check_can_warn() -> None:
    evidence = Evidence((), CHECKED["warn"], refits=refits(0, 20, []), failures=(FAILURE,))
    assert codes(evidence) == [WarningCode.MODEL_CHECK]
    assert evidence.verdict is Verdict.NOT_EXAMINED, "there is nothing to be uncertain of"
    assert not Evidence((), PASS, refits=refits(0, 20)).examined
    assert not Evidence((1,), PASS).examined
    assert Evidence((1,), None, support=support(0)).examined


@pytest.mark.parametrize(
    ("evidence", "thresholds", "code"),
    [
        (Evidence((1,), PASS, refits=refits(18, 20)), {"agreeing": 0.95}, WarningCode.REFITS_DISAGREE),
        (Evidence((1,), PASS, refits=refits(20, 20, [10])), {"same_step": 0.6}, WarningCode.OTHER_STEPS),
        (Evidence((1,), PASS, sensitivity=sensitive(0.4)), {"influence": 0.5}, WarningCode.SMALL_INFLUENCE),
    ],
)
def test_the_thresholds_in_force_decide(evidence: Evidence, thresholds: dict[str, float], code: WarningCode) -> None:
    assert evidence.verdict is Verdict.UNCERTAIN
    content = to_plain(evidence) | {"thresholds": to_plain(Thresholds(**thresholds))}
    strict = from_plain(Evidence, content, what="evidence")
    assert codes(strict) == [code]
    assert strict.verdict is Verdict.UNCERTAIN


def test_refits_without_an_answer_of_their_own_say_nothing_about_steps() -> None:
    assert codes(Evidence((1,), PASS, refits=refits(1, 1, [0]))) == [WarningCode.OTHER_STEPS]
    unsolved = to_plain(refits(1, 1, [0]))
    unsolved["steps"][0]["of"] = 0
    evidence = from_plain(Evidence, to_plain(Evidence((1,), PASS)) | {"refits": unsolved}, what="evidence")
    assert codes(evidence) == []


@pytest.mark.parametrize(
    "wrong", [{"unlikely": -0.1}, {"far": 101.0}, {"agreeing": 1.5}, {"same_step": -1.0}, {"influence": np.inf}]
)
def test_thresholds_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(InputError, match=name):
        Thresholds(**wrong)


def strings_in(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for item in content.values() if isinstance(content, dict) else content:
            yield from strings_in(item)


def test_no_sentence_is_stored() -> None:
    """Every text is a code, an id or a fingerprint; why an examination failed is the error's own message."""
    assert EVERYTHING.check is not None
    known = {
        *SupportFlag,
        *EVERYTHING.check.findings,
        "fail",
        "c0",
        "b0",
        "sensitivity",
        "refused",
        FAILURE.reason.detail,
    }
    known |= {"few subjects", "never taken", "wait", "SOFA", "renal", "liver", "urine"}
    found = set(strings_in(to_plain(EVERYTHING)))
    assert found <= known
    assert {"fail", "noise_by_action", "unlikely", "c0", "b0"} <= found


def test_another_wording_breaks_nothing_that_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.dumps(to_plain(EVERYTHING))
    other = {code: f"({code})" for code in texts.catalogue()}
    monkeypatch.setattr(texts, "catalogue", lambda: other)
    again = from_plain(Evidence, json.loads(content), what="evidence")
    assert json.dumps(to_plain(again)) == content
    assert again.verdict is EVERYTHING.verdict
    assert lines_of(again, SCHEMA, QUERY)[0] == "(evidence.judged)"


def test_a_verdict_that_nobody_gives_is_refused() -> None:
    with pytest.raises(InputError, match="splendid"):
        Standing("splendid", (), 1, "c")
    content = to_plain(Evidence((1,), PASS))
    content["check"]["verdict"] = "splendid"
    with pytest.raises(StoreError, match="splendid"):
        from_plain(Evidence, content, what="evidence")
