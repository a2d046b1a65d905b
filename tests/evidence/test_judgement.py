"""One verdict per answer: the rule by hand, what keeps an answer from being supported, and what is said of it."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_evidence import CHECKED, QUERY, SCHEMA, scored, sensitive

import ifonly
from ifonly import FitSettings, Query, RunSettings, examine, minus, simulate, solve_cohort
from ifonly.evidence import recipe_losses
from ifonly.evidence.recipes import fit_recipe
from ifonly.models import Ensemble
from ifonly.models.recipes import RECIPES
from ifonly.models.standing import HiddenSigns, MemberLabel, Standing
from ifonly.records import from_plain, to_plain
from ifonly.result import (
    Agreement,
    Coupling,
    Evidence,
    LocalCalibration,
    Sensitivity,
    SupportReport,
    Verdict,
    WarningCode,
)
from ifonly.result.coupling import CouplingGain
from ifonly.result.evidence import BEYOND_THE_RULE, ExaminationFailure, Reason, ReasonCode, StepSupport
from ifonly.result.verdict import HonestGain, Signal, the_rule
from ifonly.text import catalogue as texts
from ifonly.text.catalogue import say
from ifonly.text.evidence import evidence_lines, lines_of, messages_of
from ifonly.text.verdict import REASONS, verdict_message

HALVES = tuple(MemberLabel(kind, half, 0.25) for kind in ("paper", "residual") for half in (0, 1))
FAILURE = ExaminationFailure("sensitivity", Reason(ReasonCode.REFUSED, "no prior."))
PARTS = ("check", "refits", "support", "sensitivity", "calibration", "honest", "promised")
"""What the rule needs, all of it."""


def judged(
    *,
    promised: float = 6.0,
    owed: float = 2.0,
    spread: float = 1.0,
    deviation: float = 0.0,
    influence: float | None = 1.0,
    probability: float = 0.2,
    choice: float | None = 0.0,
    earlier: float | None = 0.0,
    **changes: Any,
) -> Evidence:
    """Complete evidence: a gain promised and what is owed to chance, how far it is open, and the other signals."""
    gains = promised + spread * np.array([1.0, -1.0, 1.0, -1.0])  # a standard deviation of exactly `spread`
    steps = tuple(StepSupport(t, 1, True, one, 50.0) for t, one in enumerate((1.0, probability)))
    parts: dict[str, Any] = {
        "changed_steps": (0, 1),
        "check": replace(CHECKED["pass"], hidden=HiddenSigns(choice=choice, earlier=earlier)),
        "refits": Agreement(gains, int((gains > 0).sum()), labels=HALVES),
        "support": SupportReport("b0", steps),
        "sensitivity": sensitive(influence),
        "calibration": LocalCalibration(promised, promised, deviation, 100),
        "promised": promised,
        "honest": HonestGain(promised=5.0, judged=5.0 - owed),
    }
    return Evidence(**(parts | changes))


def probability_of(evidence: Evidence) -> float:
    assert evidence.judgement is not None
    return evidence.judgement.probability


def with_probability(wanted: float) -> Evidence:
    """Evidence whose probability is `wanted`: how likely the rarest change is decides it, all else being the same.

    A low one needs a small influence, too.
    """
    for influence in (1.0, 0.1):
        rest = probability_of(judged(probability=1.0, influence=influence))  # a support signal of 0
        score = math.log(rest / (1 - rest))
        signal = (math.log(wanted / (1 - wanted)) - score) / the_rule().weights["support"]
        if -4 < signal < 0:
            return judged(probability=10**signal, influence=influence)
    raise AssertionError("the probability would be cut")


# --- the rule


@pytest.mark.parametrize(
    ("values", "certainty", "influence", "support", "recorded"),
    [
        # a gain of 6 - 2 / 2 = 5, open by hypot(3, 4) = 5
        ({"spread": 3.0, "deviation": 4.0}, math.tanh(1 / 3), math.log(1.02), math.log10(0.2), 0.0),
        # a gain of 1 - 4 / 2 = -1, open by 2; nothing undoes it, so the largest influence counts; half of a sign
        (
            {"promised": 1.0, "owed": 4.0, "spread": 2.0, "influence": None, "choice": 0.001},
            math.tanh(-1 / 6),
            math.log(3.02),
            math.log10(0.2),
            -0.5,
        ),
        # an action never taken counts as a rare one, an influence of 9 as one of 3; the larger sign counts
        (
            {"spread": 5.0, "probability": 0.0, "influence": 9.0, "choice": 0.001, "earlier": 0.03},
            math.tanh(1 / 3),
            math.log(3.02),
            -4.0,
            -0.75,
        ),
        # nothing open at all: certain; what was not measured is no sign
        (
            {"spread": 0.0, "influence": 0.0, "choice": None},
            1.0,
            math.log(0.02),
            math.log10(0.2),
            0.0,
        ),
    ],
)
def test_the_probability_is_that_of_the_formula(
    values: dict[str, Any], certainty: float, influence: float, support: float, recorded: float
) -> None:
    rule, evidence = the_rule(), judged(**values)
    found = evidence.judgement
    assert found is not None
    signals = {"certainty": certainty, "influence": influence, "support": support, "recorded": recorded}
    assert found.signals == pytest.approx(signals)
    score = rule.offset + sum(rule.weights[name] * value for name, value in signals.items())
    assert found.probability == pytest.approx(1 / (1 + math.exp(-score)))
    assert found.helped == rule.helped
    short = {name: rule.weights[name] * (rule.usual[name] - value) for name, value in signals.items()}
    assert set(found.reasons) == {name for name in short if short[name] > 0}
    assert [short[name] for name in found.reasons] == sorted((short[name] for name in found.reasons), reverse=True)


def test_the_rule_weighs_for_what_speaks_for_an_answer() -> None:
    rule = the_rule()
    assert set(rule.weights) == set(rule.usual) == set(Signal)
    assert all(weight > 0 for weight in rule.weights.values()), "larger signals speak for an answer"
    assert 0 < rule.believable < rule.supported < rule.helped <= 1
    assert rule.low < 0 < rule.high


def test_signals_of_a_usual_answer_that_helps_leave_nothing_against_it() -> None:
    """Else an answer could be uncertain without a reason."""
    rule = the_rule()
    score = rule.offset + sum(rule.weights[name] * rule.usual[name] for name in Signal)
    assert 1 / (1 + math.exp(-score)) > rule.supported


@pytest.mark.parametrize(
    ("threshold", "above", "below"),
    [
        ("supported", Verdict.SUPPORTED, Verdict.UNCERTAIN),
        ("believable", Verdict.UNCERTAIN, Verdict.NOT_BELIEVABLE),
    ],
)
def test_the_verdict_changes_at_its_thresholds(threshold: str, above: Verdict, below: Verdict) -> None:
    limit = getattr(the_rule(), threshold)
    for shift, verdict in ((1e-6, above), (-1e-6, below)):
        evidence = with_probability(limit + shift)
        assert probability_of(evidence) == pytest.approx(limit + shift, abs=1e-9)
        assert evidence.verdict is verdict


BETTER = {
    "promised": lambda value, by: value + by,
    "owed": lambda value, by: value - by,
    "influence": lambda value, by: value + by,
    "probability": lambda value, by: min(1.0, value + by),
    "choice": lambda value, by: max(0.0, value - by),
    "earlier": lambda value, by: max(0.0, value - by),
}
"""A signal's numbers, made better."""


@given(
    values=st.fixed_dictionaries(
        {
            "promised": st.floats(-20, 20),
            "owed": st.floats(-10, 10),
            "spread": st.floats(0.01, 10),
            "deviation": st.floats(0, 10),
            "influence": st.floats(0, 5),
            "probability": st.floats(0, 1),
            "choice": st.floats(0, 0.1),
            "earlier": st.floats(0, 0.1),
        }
    ),
    name=st.sampled_from(sorted(BETTER)),
    by=st.floats(0, 5),
)
def test_a_better_signal_never_lowers_the_probability(values: dict[str, float], name: str, by: float) -> None:
    before = probability_of(judged(**values))
    after = probability_of(judged(**(values | {name: BETTER[name](values[name], by)})))
    assert after >= before - 1e-12
    undone = probability_of(judged(**(values | {"influence": None})))
    assert undone >= before - 1e-12, "nothing that undoes it is better than anything"


@given(gain=st.floats(0.1, 20), spread=st.floats(0.01, 10), less=st.floats(0, 1))
def test_a_gain_that_is_less_open_is_likelier(gain: float, spread: float, less: float) -> None:
    wide, narrow = (judged(promised=gain, owed=0.0, spread=size) for size in (spread, less * spread))
    assert probability_of(narrow) >= probability_of(wide) - 1e-12


# --- what keeps it from being supported


GOOD = judged(influence=3.0, spread=0.5)


def test_good_evidence_is_supported() -> None:
    assert GOOD.verdict is Verdict.SUPPORTED
    assert GOOD.warnings == ()
    assert GOOD.judgement is GOOD.judgement, "judged once"


def test_a_failed_check_is_never_believed() -> None:
    failed = replace(GOOD, check=CHECKED["fail"])
    assert probability_of(failed) > the_rule().supported
    assert failed.verdict is Verdict.NOT_BELIEVABLE
    assert str(verdict_message(failed)) == "Not to be believed: the model failed its check."


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"kept_within_ranges": 0.3}, WarningCode.LEAVES_RANGES, "values leave their plausible ranges"),
        ({"scores": (scored(10.0, 1.0),)}, WarningCode.NOT_BORNE_OUT, "the organs do not bear the gain out"),
        ({"failures": (FAILURE,)}, WarningCode.NOT_EXAMINED, "a part of it could not be examined"),
    ],
)
def test_what_the_rule_does_not_know_of_keeps_an_answer_from_being_supported(
    changes: dict[str, Any], code: WarningCode, said: str
) -> None:
    evidence = replace(GOOD, **changes)
    assert code in BEYOND_THE_RULE
    assert [warning.code for warning in evidence.warnings] == [code]
    assert probability_of(evidence) == probability_of(GOOD)
    assert evidence.verdict is Verdict.UNCERTAIN
    assert str(verdict_message(evidence)) == f"Uncertain: {said}."


def test_warnings_about_signals_that_the_rule_weighs_do_not_overrule_it() -> None:
    checked = Standing("warn", ("noise_size",), 40, "c0", HiddenSigns(0.0, 0.0, 0.0, 0.0))
    warned = replace(GOOD, check=checked)
    assert [warning.code for warning in warned.warnings] == [WarningCode.MODEL_CHECK]
    assert warned.verdict is Verdict.SUPPORTED


@pytest.mark.parametrize("sign", ["choice", "earlier"])
def test_clear_signs_of_something_hidden_withhold_support_however_good_the_rest(sign: str) -> None:
    limit = the_rule().clear[sign]
    best = {"promised": 60.0, "owed": 0.0, "influence": None, "probability": 1.0}
    below, beyond = (judged(**best, **{sign: size}) for size in (limit, limit + 1e-9))
    assert min(probability_of(below), probability_of(beyond)) > the_rule().supported
    assert (below.verdict, beyond.verdict) == (Verdict.SUPPORTED, Verdict.UNCERTAIN)
    assert not below.hidden_clearly
    said = str(verdict_message(beyond))
    assert said == "Uncertain: there are clear signs that something which matters is not recorded."
    unlikely = replace(beyond, support=SupportReport("b0", (StepSupport(0, 1, True, 0.0, 50.0),)))
    assert "seems not to be recorded" not in str(verdict_message(unlikely)), "said once"
    failed = replace(beyond, check=replace(beyond.check, verdict="fail"))
    assert failed.verdict is Verdict.NOT_BELIEVABLE, "at best uncertain, not at least"


def test_signs_that_are_clear_by_no_limit_of_the_rule_keep_nothing_back() -> None:
    check = replace(CHECKED["pass"], hidden=HiddenSigns(lasting=0.9, earlier=0.0, between=0.9, choice=0.0))
    assert replace(GOOD, check=check).verdict is Verdict.SUPPORTED


def test_a_change_that_was_hardly_ever_made_is_never_supported() -> None:
    best = {"promised": 60.0, "owed": 0.0, "influence": None}
    limit = GOOD.thresholds.unlikely
    usual, rare, never = (judged(**best, probability=one) for one in (limit, limit - 1e-9, 0.0))
    assert min(probability_of(usual), probability_of(rare)) > the_rule().supported
    assert [one.verdict for one in (usual, rare, never)] == [Verdict.SUPPORTED, Verdict.UNCERTAIN, Verdict.UNCERTAIN]
    assert (usual.rarely_chosen, rare.rarely_chosen) == (False, True)
    assert str(verdict_message(rare)) == "Uncertain: it takes actions that were rare in such states."
    assert str(verdict_message(never)).count("rare") == 1, "said once"
    kept = replace(rare, thresholds=replace(rare.thresholds, unlikely=0.0))
    assert kept.verdict is Verdict.SUPPORTED, "by the threshold in force"
    failed = replace(rare, check=replace(rare.check, verdict="fail"))
    assert failed.verdict is Verdict.NOT_BELIEVABLE, "at best uncertain, not at least"


@pytest.mark.parametrize("part", PARTS)
def test_without_one_of_its_parts_there_is_no_judgement(part: str) -> None:
    evidence = replace(GOOD, **{part: None})
    assert evidence.judgement is None
    assert evidence.verdict is Verdict.UNCERTAIN
    assert (evidence.estimate is None) == (part in ("refits", "calibration", "honest", "promised"))
    told = ("Model check: pass", "The model was not checked")
    opening = "Uncertain: it was not examined in full. "
    assert str(messages_of(evidence, SCHEMA, QUERY).statement).startswith(tuple(opening + one for one in told))


@pytest.mark.parametrize(
    "changes",
    [
        {"calibration": LocalCalibration(6.0, 6.0, None, 100)},
        {"refits": Agreement(np.array([1.0, -np.inf, 1.0, 1.0]), 3, labels=HALVES)},
        {"honest": HonestGain(math.inf, 0.0)},
        {"support": SupportReport("b0", ())},
        {"changed_steps": ()},
    ],
    ids=["deviation", "member", "honest", "support", "nothing changed"],
)
def test_what_is_not_finite_or_not_changed_is_not_judged(changes: dict[str, Any]) -> None:
    evidence = replace(GOOD, **changes)
    assert evidence.judgement is None
    assert evidence.verdict is not Verdict.SUPPORTED


# --- what is left of the promise


@pytest.mark.parametrize(
    ("values", "gain", "scale"),
    [
        ({"promised": 6.0, "owed": 2.0, "spread": 3.0, "deviation": 4.0}, 5.0, 5.0),
        ({"promised": 1.0, "owed": 4.0, "spread": 2.0, "deviation": 0.0}, -1.0, 2.0),
        ({"promised": 2.0, "owed": -1.0, "spread": 0.0, "deviation": 1.5}, 2.5, 1.5),
    ],
)
def test_half_of_what_was_owed_to_the_choice_is_taken_off(values: dict[str, float], gain: float, scale: float) -> None:
    found, rule = judged(**values).estimate, the_rule()
    assert found is not None
    expected = (gain, gain + rule.low * scale, gain + rule.high * scale, scale, rule.held)
    assert (found.gain, found.low, found.high, found.scale, found.held) == pytest.approx(expected)


def test_the_promise_is_told_with_what_is_left_of_it_in_the_direction_of_the_outcome() -> None:
    rule = the_rule()
    (said,) = messages_of(judged(spread=3.0, deviation=4.0), SCHEMA, QUERY).gain
    low, high = (f"{abs(5 + end * 5):.4g}" for end in (rule.low, rule.high))
    assert str(said) == (
        "cumulative SOFA 6 lower as promised; 5 lower without what the promise owes to having been chosen, "
        f"in an interval from {low} higher to {high} lower; such intervals held {100 * rule.held:.0f} % of the true "
        "gains in worlds where the truth is known"
    )
    assert messages_of(replace(GOOD, honest=None), SCHEMA, QUERY).gain == ()


def test_no_interval_is_told_of_what_is_not_to_be_believed() -> None:
    failed = judged(check=CHECKED["fail"])
    (said,) = messages_of(failed, SCHEMA, QUERY).gain
    assert str(said) == (
        "cumulative SOFA 6 lower as promised; 5 lower without what the promise owes to having been chosen, and no "
        "interval, since it is not to be believed"
    )
    assert failed.estimate is not None, "it stays available"


# --- words


def test_the_statement_begins_with_the_verdict() -> None:
    begins = {
        Verdict.SUPPORTED: f"Supported: of such answers {100 * the_rule().helped:.0f} % truly helped in worlds where",
        Verdict.UNCERTAIN: "Uncertain: ",
        Verdict.NOT_BELIEVABLE: "Not to be believed: ",
    }
    shown = [GOOD, with_probability(0.75), with_probability(0.5)]
    assert [evidence.verdict for evidence in shown] == list(begins)
    for evidence in shown:
        statement, gain, *rest = lines_of(evidence, SCHEMA, QUERY)
        assert statement.startswith(begins[evidence.verdict])
        assert "Model check: pass; 4 of 4 models of other kinds and subjects agree" in statement
        assert gain.startswith("gain: cumulative SOFA 6 lower as promised; ")
        parts = [line for line in rest if not line.startswith(("warning: ", "model check, "))]
        assert parts[0].startswith("models of other kinds and subjects: cumulative SOFA 6 lower in the median; ")


def test_at_most_two_reasons_are_named_the_heaviest_first_and_those_beyond_the_rule_before() -> None:
    worst = judged(promised=-5.0, spread=2.0, influence=0.0, probability=0.01, choice=the_rule().clear["choice"])
    found = worst.judgement
    assert found is not None
    assert set(found.reasons) == set(Signal)
    message = verdict_message(worst)
    assert message is not None
    named = [reason.code for reason in message.values["reasons"]]
    assert named == [f"judged.because.{signal}" for signal in found.reasons[:REASONS]]
    more = verdict_message(replace(worst, check=CHECKED["fail"], scores=(scored(10.0, 1.0),)))
    assert more is not None
    assert [one.code for one in more.values["reasons"]] == [
        "judged.because.model check",
        "judged.because.not borne out",
    ]


def test_every_reason_has_its_words() -> None:
    for code in ("model check", "hidden", *BEYOND_THE_RULE, *Signal):
        assert say(f"judged.because.{code}")
    for verdict in (Verdict.UNCERTAIN, Verdict.NOT_BELIEVABLE):
        assert "nothing" in say(f"judged.{verdict.value}", reasons="nothing")
    failure = replace(FAILURE, part="honest")
    assert lines_of(replace(GOOD, honest=None, failures=(failure,)), SCHEMA, QUERY)[1] == (
        "warning: could not be examined: what the promise owes to having been chosen (no prior)"
    )


@pytest.mark.parametrize(("labels", "whose"), [(HALVES, "models of other kinds and subjects"), ((), "refits")])
def test_members_are_called_what_they_are(labels: tuple[MemberLabel, ...], whose: str) -> None:
    gains = np.array([1.0, -1.0, -np.inf, -2.0])
    told = messages_of(Evidence((0,), refits=Agreement(gains, 1, unsolved=2, labels=labels)), SCHEMA, QUERY)
    assert str(told.statement) == (
        f"Uncertain: it was not examined in full. The model was not checked; 1 of 4 {whose} agree."
    )
    assert str(told.warnings[0]) == f"too few {whose} agree that the changes help"
    assert [whose in str(line) for line in told.refits] == [True] * 3


# --- stored


def test_stored_evidence_gives_the_same_verdict() -> None:
    for evidence in (GOOD, with_probability(0.75), with_probability(0.5), replace(GOOD, failures=(FAILURE,))):
        content = json.dumps(to_plain(evidence), allow_nan=False)
        again = from_plain(Evidence, json.loads(content), what="evidence")
        assert json.dumps(to_plain(again)) == content
        assert again.verdict is evidence.verdict
        assert again.judgement == evidence.judgement
        assert again.estimate == evidence.estimate
        assert lines_of(again, SCHEMA, QUERY) == lines_of(evidence, SCHEMA, QUERY)
        assert "probability" not in json.loads(content), "what follows from the parts is not kept"


def test_an_answer_that_was_examined_under_another_rule_says_so() -> None:
    own = replace(GOOD, rule=the_rule().fingerprint)
    before = replace(GOOD, rule=replace(the_rule(), offset=0.0).fingerprint)
    assert own.rule != before.rule
    (_, told) = messages_of(before, SCHEMA, QUERY).gain
    assert str(told).startswith("the answer was examined when another rule of verdicts was in force")
    for silent in (own, GOOD, replace(before, honest=None)):
        assert not silent.judged_anew, "the same rule, an unknown one, or no verdict by a rule"
    assert lines_of(own, SCHEMA, QUERY) == lines_of(GOOD, SCHEMA, QUERY)
    again = from_plain(Evidence, json.loads(json.dumps(to_plain(before))), what="evidence")
    assert again.judged_anew


def test_with_an_objective_there_is_no_verdict_but_what_the_halves_say() -> None:
    query = replace(QUERY, honest=True, objective="worst")
    together = replace(GOOD, honest=replace(GOOD.honest, together=True))
    assert together.judgement is None
    assert together.estimate is None
    assert together.verdict is Verdict.UNCERTAIN
    (told,) = messages_of(together, SCHEMA, query).gain
    assert "There is no verdict by the rule where several models choose together" in str(told)
    assert messages_of(replace(GOOD, honest=None), SCHEMA, query).gain == ()
    again = from_plain(Evidence, to_plain(together), what="evidence")
    assert again.honest == together.honest
    older = to_plain(GOOD)
    del older["honest"]["together"]
    assert from_plain(Evidence, older, what="evidence").honest == GOOD.honest


def test_another_wording_breaks_nothing_that_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.dumps(to_plain(GOOD))
    other = {code: f"({code})" for code in texts.catalogue()}
    monkeypatch.setattr(texts, "catalogue", lambda: other)
    again = from_plain(Evidence, json.loads(content), what="evidence")
    assert json.dumps(to_plain(again)) == content
    assert again.verdict is Verdict.SUPPORTED
    assert lines_of(again, SCHEMA, QUERY)[0] == "(evidence.judged)"


# --- from a cohort to a verdict


def test_a_small_cohort_gives_a_judgement(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """With members of kinds, a behaviour model, a check and everything asked; whatever it says."""
    monkeypatch.setattr(recipe_losses, "ASKED", 1)
    monkeypatch.setattr(recipe_losses, "PATIENCE", 0.1)
    cohort = simulate.simulate_cohort(40, seed=1, horizon=6)
    quick = FitSettings(epochs=2)
    model = fit_recipe(cohort, recipes=[RECIPES["residual"]], hidden=(8,), refits="kinds", settings=quick)
    assert isinstance(model, Ensemble)
    behaviour = ifonly.fit_behaviour(cohort, settings=ifonly.BehaviourSettings(hidden=(), epochs=2))
    ifonly.check_model(model, simulate.simulate_cohort(20, seed=2, horizon=6))
    query = Query(minus("SOFA"), max_changes=2, honest=True, sensitivity=True, allow_failed_model=True)
    problem = ifonly.Problem.from_episode(cohort[0], model, query)
    result = ifonly.solve(problem)
    assert result.changes
    result = replace(result, evidence=examine(problem, result, behaviour=behaviour))
    evidence = result.evidence
    assert evidence.failures == ()
    assert evidence.promised == pytest.approx(result.improvement, abs=1e-5)
    assert evidence.judgement is not None
    assert evidence.rule == the_rule().fingerprint
    assert evidence.estimate is not None
    assert evidence.honest is not None
    expected = result.improvement - (evidence.honest.promised - evidence.honest.judged) / 2
    assert evidence.estimate.gain == pytest.approx(expected, abs=1e-5)
    lines = evidence_lines(result)
    assert lines[0].startswith(("Supported: ", "Uncertain: ", "Not to be believed: "))
    assert lines[1].startswith("gain: cumulative SOFA ")
    again = ifonly.Result.from_json(result.to_json())
    assert again.evidence.verdict is evidence.verdict
    assert again.evidence.judgement == evidence.judgement
    assert evidence_lines(again) == lines

    settings = RunSettings(workers=1)
    run = solve_cohort(cohort[:2], model, query, out=tmp_path / "run", behaviour=behaviour, settings=settings)
    kept = run.result(cohort[0].id)
    assert kept.evidence.judgement == evidence.judgement
    assert run.table()["verdict"][0] == evidence.verdict.value


@pytest.mark.parametrize("promised", [-3.0, -0.01, 0.0])
def test_what_gains_nothing_is_not_supported_although_no_influence_was_found_to_undo_it(promised: float) -> None:
    nothing = judged(promised=promised, owed=0.0, probability=0.9, sensitivity=Sensitivity(promised, 3.0))
    assert nothing.judgement is not None
    assert nothing.judgement.signals[Signal.INFLUENCE] == pytest.approx(math.log(0.02))
    assert nothing.verdict is Verdict.NOT_BELIEVABLE


def test_a_gain_of_which_nothing_is_left_is_not_supported_however_good_the_other_signals() -> None:
    kept, owed = (judged(promised=1.0, owed=owed, influence=None, probability=1.0) for owed in (1.9, 2.1))
    assert kept.judgement is not None
    assert owed.judgement is not None
    assert min(kept.judgement.probability, owed.judgement.probability) > the_rule().supported
    assert (kept.verdict, owed.verdict) == (Verdict.SUPPORTED, Verdict.UNCERTAIN)


def test_no_gain_that_is_open_by_nothing_is_no_certainty() -> None:
    for promised, certainty in ((2.0, 1.0), (0.0, 0.0), (-2.0, -1.0)):
        found = judged(promised=promised, owed=0.0, spread=0.0).judgement
        assert found is not None
        assert found.signals[Signal.CERTAINTY] == certainty


def test_other_luck_alone_is_an_examination() -> None:
    gains = (CouplingGain(1.0, 2.0, 2.0, 2.0),)
    assert Evidence(changed_steps=(1,), coupling=Coupling(gains, None, 2)).verdict is Verdict.UNCERTAIN


def test_a_model_that_could_not_be_judged_has_no_supported_answers() -> None:
    best = judged(owed=0.0, influence=None, probability=1.0)
    unjudged = replace(best, check=replace(CHECKED["pass"], verdict="not judged"))
    assert (best.verdict, unjudged.verdict) == (Verdict.SUPPORTED, Verdict.UNCERTAIN)
    assert str(verdict_message(unjudged)) == "Uncertain: the model could not be judged."


def test_shares_below_zero_are_no_sign_of_something_hidden_and_correlations_are() -> None:
    below = {"value": -0.02, "low": -0.03, "high": -0.01}
    figures = {"features": [{"lasting": below, "by_earlier": below, "between": below}], "choice_by_noise": below}
    assert HiddenSigns.of_figures(figures) == HiddenSigns(lasting=0.01, earlier=0.0, between=0.0, choice=0.0)


def test_signs_that_were_not_measured_are_not_clean() -> None:
    """An older check, or one of too few subjects, says nothing about what is hidden: then there is no verdict."""
    unknown = judged(choice=None, earlier=None)
    assert unknown.judgement is None
    assert unknown.verdict is Verdict.UNCERTAIN
