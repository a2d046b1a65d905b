"""Whether the organs bear a score's gain out: numbers known by hand, the warning, and where they are told."""

import json
import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from made_evidence import CHECKED, QUERY, SCHEMA, refits, scored

from ifonly import ActionSpace, Axis, Episode, Feature, LinearModel, Problem, Query, Result, Schema
from ifonly.data.scores import Score
from ifonly.errors import InputError
from ifonly.evidence import examine
from ifonly.evidence.organs import points_of, score_gains
from ifonly.problem import EnsembleProblem
from ifonly.records import to_plain
from ifonly.report.cases import case_of
from ifonly.report.summary import summarize
from ifonly.result import Evidence, Thresholds, Verdict, WarningCode
from ifonly.result.evidence import OrganGain, ScoreGain
from ifonly.result.table import COLUMNS, from_row, to_row
from ifonly.rewards import ActionCost, Custom, Hinge, Linear, PiecewiseLinear, Reward, features_of, minus
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.solve import solve
from ifonly.text.evidence import evidence_lines, gain_message, lines_of, messages_of

SMALL = Schema(
    (
        Feature("SOFA", "dynamic", unit="points", plausible=(0, 24)),
        Feature("MAP", "dynamic", unit="mmHg", plausible=(10, 250)),
        Feature("platelets", "dynamic", unit="10^9/L", plausible=(1, 2000)),
    ),
    ActionSpace.product(Axis("vasopressors", "mcg/kg/min", (0, 0.2)), Axis("fluids", "mL", (0, 500))),
    step_length=4.0,
    step_unit="h",
    scores=(Score("SOFA", {"MAP": "MAP", "platelets": "platelets", "vasopressors": "vasopressors"}),),
)
NOTHING, FLUIDS, VASOPRESSORS, BOTH = range(4)
STEPS = 5


def episode(*, score: float = 3.0, origins: np.ndarray | None = None) -> Episode:
    """Five steps of low pressure (one point) and few platelets (two points); nothing is given."""
    states = np.tile([score, 60.0, 90.0], (STEPS, 1))
    return Episode("stay", SMALL, states, np.full(STEPS, NOTHING), origins=origins)


def model(effects: dict[int, tuple[float, float, float]]) -> LinearModel:
    """States stay as they are, but for what an action adds to score, pressure and platelets."""
    offsets = np.zeros((4, 3))
    for action, effect in effects.items():
        offsets[action] = effect
    return LinearModel(SMALL, np.tile(np.eye(3), (4, 1, 1)), offsets=offsets)


def problem(
    effects: dict[int, tuple[float, float, float]], recorded: Episode | None = None, **asked: object
) -> Problem:
    query = Query(**{"reward": minus("SOFA"), "max_changes": 1, **asked})  # type: ignore[arg-type]
    return Problem.from_episode(recorded or episode(), model(effects), query)


SCORE_ALONE = {FLUIDS: (-2.0, 0.0, 0.0)}
WITH_PRESSURE = {FLUIDS: (-1.0, 15.0, 0.0)}
BY_VASOPRESSORS = {VASOPRESSORS: (-1.0, 15.0, 0.0)}


def at_once(action: int) -> list[int]:
    return [action, *[NOTHING] * (STEPS - 1)]


def gain(asked: Problem | EnsembleProblem, action: int) -> ScoreGain:
    (found,) = examine(asked, at_once(action)).scores
    return found


def test_a_score_that_falls_without_its_organs_is_flagged() -> None:
    """Fluids at the first step take two points off the four steps that follow; no organ moves."""
    found = examine(problem(SCORE_ALONE), at_once(FLUIDS))
    (score,) = found.scores
    assert (score.claimed, score.recomputed, score.share, score.leading) == (8.0, 0.0, 0.0, ())
    assert [warning.code for warning in found.warnings] == [WarningCode.NOT_BORNE_OUT]
    assert found.warnings[0].values == {"score": "SOFA", "claimed": 8.0, "recomputed": 0.0}
    assert found.verdict is Verdict.UNCERTAIN


def test_a_score_that_falls_with_an_organ_is_not() -> None:
    """The pressure rises to 75 mmHg: one point less at four steps, all of it the circulation's."""
    found = examine(problem(WITH_PRESSURE), at_once(FLUIDS))
    (score,) = found.scores
    assert (score.claimed, score.recomputed, score.share) == (4.0, 4.0, 1.0)
    assert score.leading == (OrganGain("cardiovascular", 4.0),)
    assert score.organs == (OrganGain("coagulation", 0.0), OrganGain("cardiovascular", 4.0))
    assert score.left_out == ("PaO2", "FiO2", "ventilation", "bilirubin", "GCS", "creatinine", "urine")
    assert score.recorded_difference == 0.0
    assert found.warnings == ()


def test_vasopressors_count_by_the_doses_of_the_sequence() -> None:
    """They cost three points where they are given, and bring one at each of four steps: one in all of four claimed."""
    score = gain(problem(BY_VASOPRESSORS), VASOPRESSORS)
    assert (score.claimed, score.recomputed) == (4.0, 1.0)
    assert score.leading == (OrganGain("cardiovascular", 1.0),)
    assert score.is_borne_out(Thresholds()) is False
    assert score.is_borne_out(Thresholds(borne_out=0.25)) is True
    recorded = replace(episode(), actions=np.array(at_once(VASOPRESSORS)))
    without = examine(problem({}, recorded), [NOTHING] * STEPS).scores[0]
    assert (without.claimed, without.recomputed) == (0.0, 3.0), "nor do they cost anything that was not given"


def test_a_loss_by_the_organs_names_the_organ_that_loses() -> None:
    score = gain(problem({FLUIDS: (-1.0, 0.0, -50.0)}), FLUIDS)
    assert (score.claimed, score.recomputed, score.leading) == (4.0, -4.0, (OrganGain("coagulation", -4.0),))


@pytest.mark.parametrize(
    ("gains", "told"),
    [
        ((3, 3, -3), "it falls by 3 points in all, by the circulation and the kidneys"),
        ((3, 0, -2), "it falls by 1 point in all, by the circulation"),
        ((3, 2, 0), "it falls by 5 points in all, most of it by the circulation"),
        ((4, 2, 2), "it falls by 8 points in all, by the circulation, the kidneys and the nervous system"),
        ((4, 3, 1), "it falls by 8 points in all, most of it by the circulation and the kidneys"),
        ((2, 3, -3), "it falls by 2 points in all, most of it by the kidneys"),
        ((-3, -3, 1), "it rises by 5 points in all, by the circulation and the kidneys"),
        ((2, 0, -3), "it rises by 1 point in all, by the nervous system"),
        ((3, 0, -3), "it stays the same"),
    ],
)
def test_most_of_a_gain_is_said_of_those_that_bring_more_than_half(gains: tuple[int, ...], told: str) -> None:
    """More than half of what all organs that move this way bring: where they tie, or share it, all are named. So it is
    after a round trip, too."""
    organs = zip(("cardiovascular", "renal", "nervous"), gains, strict=True)
    total = float(sum(gains))
    score = ScoreGain("SOFA", True, total, total, tuple(OrganGain(*one) for one in organs), (), 0.0)
    _, result = examined_result(WITH_PRESSURE)
    known = replace(result, evidence=replace(result.evidence, scores=(score,)))
    for again in (known, Result.from_json(known.to_json())):
        said = gain_message(again.evidence.scores[0])
        assert str(said).partition("organ values ")[2] == told


def test_gains_are_those_of_scores_within_their_range() -> None:
    assert gain(problem({FLUIDS: (-50.0, 0.0, 0.0)}), FLUIDS).claimed == 12.0


def test_what_was_assumed_scores_in_no_course() -> None:
    origins = np.zeros((STEPS, 3), dtype=np.uint8)
    origins[:, 1] = 2
    score = gain(problem(WITH_PRESSURE, episode(score=2.0, origins=origins)), FLUIDS)
    assert (score.claimed, score.recomputed, score.recorded_difference) == (4.0, 0.0, 0.0)


@pytest.mark.parametrize(("recorded", "judged"), [(4.0, True), (4.1, False), (1.9, False)])
def test_a_score_that_its_organs_do_not_make_is_not_judged(recorded: float, judged: bool) -> None:
    found = examine(problem(SCORE_ALONE, episode(score=recorded)), at_once(FLUIDS))
    (score,) = found.scores
    assert score.recorded_difference == pytest.approx(abs(recorded - 3.0))
    assert score.is_borne_out(found.thresholds) is (False if judged else None)
    assert [warning.code for warning in found.warnings] == [WarningCode.NOT_BORNE_OUT] * judged
    said = [str(message) for message in messages_of(found, SMALL, QUERY).organs]
    assert any(line.startswith("not judged: the recorded SOFA itself differs") for line in said) is not judged


@pytest.mark.parametrize(
    ("reward", "names"),
    [
        (minus("SOFA"), {"SOFA"}),
        (minus("SOFA") + ActionCost({1: 0.1}), {"SOFA"}),
        (Linear({"MAP": 1.0}), {"MAP"}),
        (ActionCost({1: 0.1}), set()),
        (PiecewiseLinear((Hinge(-1.0, {"SOFA": 1.0}, -2.0), Hinge(-1.0, {"MAP": -1.0}, 65.0))), {"SOFA", "MAP"}),
        (Custom(lambda states, actions: -states[..., 0], {"SOFA": 1.0}), {"SOFA"}),
    ],
)
def test_only_rewards_that_count_the_score_claim_its_gain(reward: Reward, names: set[str]) -> None:
    assert features_of(reward) == names
    found = examine(problem(SCORE_ALONE, reward=reward), at_once(FLUIDS))
    assert found.scores[0].asked is ("SOFA" in names)
    assert bool(found.warnings) is ("SOFA" in names)


def test_an_answer_without_changes_or_a_schema_without_scores_has_none() -> None:
    assert examine(problem(SCORE_ALONE), [NOTHING] * STEPS).scores == ()
    plain = replace(SMALL, scores=())
    unscored = Problem.from_episode(
        replace(episode(), schema=plain), model(SCORE_ALONE), Query(minus("SOFA"), max_changes=1)
    )
    found = examine(unscored, at_once(FLUIDS))
    assert found.scores == ()
    assert found.warnings == ()
    assert messages_of(found, plain, unscored.query).organs == ()


def test_of_an_ensemble_the_states_that_are_shown_count() -> None:
    query = Query(minus("SOFA"), max_changes=1, objective="worst")
    asked = EnsembleProblem.from_episode(episode(), [model(SCORE_ALONE), model(WITH_PRESSURE)], query)
    score = gain(asked, FLUIDS)
    assert (score.claimed, score.recomputed) == (4.0, 4.0), "those of the member that gains less"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_states_without_a_finite_value_claim_nothing(value: float) -> None:
    unbounded = replace(SMALL, features=tuple(replace(feature, plausible=None) for feature in SMALL.features))
    recorded = replace(episode(), schema=unbounded)
    states = np.stack([recorded.states, np.full_like(recorded.states, value)])
    (score,) = score_gains(recorded, minus("SOFA"), states, np.full((2, STEPS), NOTHING))
    assert math.isnan(score.claimed)
    assert (score.share, score.is_borne_out(Thresholds())) == (None, None)
    assert json.dumps(to_plain(score), allow_nan=False)


def examined_result(effects: dict[int, tuple[float, float, float]]) -> tuple[Problem, Result]:
    asked = problem(effects)
    result = solve(asked, Exhaustive())
    assert result.actions.tolist() == at_once(FLUIDS)
    return asked, replace(result, evidence=examine(asked, result))


def test_results_and_rows_keep_all_of_it() -> None:
    _, result = examined_result(WITH_PRESSURE)
    again = Result.from_json(result.to_json())
    assert again.evidence.scores == result.evidence.scores
    table = pl.DataFrame([to_row(result)], schema=COLUMNS)
    assert from_row(table.row(0, named=True), result.provenance).evidence.scores == result.evidence.scores
    content = json.loads(result.to_json())
    assert content["evidence"]["scores"][0]["organs"][1] == {"organ": "cardiovascular", "gain": 4.0}
    del content["evidence"]["scores"]
    assert Result.from_dict(content).evidence.scores == (), "results of before have none"


def test_lines_name_both_gains_and_the_organ() -> None:
    _, result = examined_result(WITH_PRESSURE)
    assert evidence_lines(result)[1:] == [
        "what the organs say: by the model SOFA falls by 4 points in all; recomputed from the organ values it falls by "
        "4 points in all, by the circulation",
        "  points by organ: the circulation -4",
        "  not recorded, and so left out of the recomputed SOFA: PaO2, FiO2, ventilation, bilirubin, GCS, creatinine "
        "and urine",
    ]
    _, flagged = examined_result(SCORE_ALONE)
    assert evidence_lines(flagged)[1] == (
        "warning: the organs do not bear the gain out: by the model SOFA falls by 8 points in all; recomputed from the "
        "organ values it stays the same"
    )
    unknown = Evidence((1,), scores=(scored(math.nan, 1.0),))
    assert "by the model SOFA has no finite value;" in lines_of(unknown, SCHEMA, QUERY)[1]


def test_cases_show_the_recomputed_course_beside_the_modelled_one() -> None:
    asked, result = examined_result(WITH_PRESSURE)
    case = case_of(asked, result)
    assert case.answer is not None
    assert [(one.feature, one.values) for one in case.observed.scores] == [("SOFA", (3, 3, 3, 3, 3))]
    assert [(one.feature, one.values) for one in case.answer.best.scores] == [("SOFA", (3, 2, 2, 2, 2))]
    assert str(case.evidence.organs[0]).endswith("4 points in all, by the circulation")
    counted = points_of(SMALL.scores[0], asked.episode, result.states, result.actions).sum(axis=-1)
    assert tuple(counted.tolist()) == case.answer.best.scores[0].values


def test_summaries_count_what_is_not_borne_out() -> None:
    results = [examined_result(effects)[1] for effects in (WITH_PRESSURE, SCORE_ALONE, SCORE_ALONE)]
    results.append(replace(results[0], evidence=replace(results[0].evidence, scores=(scored(2.0, 0.0, asked=False),))))
    rows = [to_row(replace(result, episode=f"stay {number}")) for number, result in enumerate(results)]
    summary = summarize(pl.DataFrame(rows, schema=COLUMNS), results[0].query)
    assert (summary.evidence.judged_by_organs, summary.evidence.not_borne_out) == (3, 2)
    assert "does not bear out the gain of 2 of 3 answers." in summary.statement
    assert summary.to_dict()["evidence"]["not_borne_out"] == 2
    unscored = [replace(result, evidence=replace(result.evidence, scores=())) for result in results]
    table = pl.DataFrame([to_row(result) for result in unscored[:1]], schema=COLUMNS)
    assert "bear out" not in summarize(table, results[0].query).statement


def test_thresholds_of_organs_are_checked() -> None:
    for wrong in ({"borne_out": 1.5}, {"borne_out": -0.1}, {"same_score": -1.0}, {"same_score": math.inf}):
        with pytest.raises(InputError, match="threshold"):
            Thresholds(**wrong)


def test_warnings_of_organs_stand_beside_others() -> None:
    evidence = Evidence((1,), CHECKED["pass"], refits=refits(20, 20), scores=(scored(4.0, 1.9),))
    assert evidence.verdict is Verdict.UNCERTAIN
    assert Evidence((1,), CHECKED["pass"], refits(20, 20), scores=(scored(4.0, 2.0),)).verdict is Verdict.UNCERTAIN
    assert Evidence((1,), CHECKED["pass"], scores=(scored(4.0, 4.0),)).verdict is Verdict.NOT_EXAMINED
