"""What a check concluded goes with the model: into problems, which may refuse it, and into every result."""

import json
from dataclasses import replace

import made_worlds as worlds
import pytest

from ifonly.errors import FailedModelError, StoreError, VerificationError
from ifonly.evidence import examine
from ifonly.evidence.check.check import check_model
from ifonly.models import LocationScale, load_model, save_model
from ifonly.models.checkpoint import CHECK
from ifonly.models.ensemble import Ensemble
from ifonly.models.fit import FitSettings, fit
from ifonly.models.standing import Standing, worst_of
from ifonly.problem import EnsembleProblem, Problem
from ifonly.query import Query
from ifonly.records import to_plain
from ifonly.result import Result, Verdict
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.session import Session
from ifonly.search.solve import solve
from ifonly.search.verify import verify
from ifonly.testing.instances import random_problem
from ifonly.text.results import statement

FAILED = Standing("fail", ("noise_by_action", "coverage", "distance"), 500, "c0ffee")
PASSED = Standing("pass", (), 500, "c0ffee")


def problem_of(standing: Standing | None) -> Problem:
    problem = random_problem(5, model_kind="location-scale", reward_kind="linear", horizon=4, max_changes=2)
    problem.model.standing = standing
    return problem


def asked(problem: Problem, **further: object) -> Problem:
    return Problem.from_episode(problem.episode, problem.model, Query(problem.reward, 2, **further))


def examined_by(result: Result, check: Standing | None) -> Result:
    return replace(result, evidence=replace(result.evidence, check=check))


def test_a_failed_model_is_asked_only_with_permission_and_every_result_says_so() -> None:
    problem = problem_of(FAILED)
    with pytest.raises(FailedModelError, match=r"the model misses effects of the actions.*=True, --allow-failed-model"):
        asked(problem)
    allowed = asked(problem, allow_failed_model=True)
    result = solve(allowed, Exhaustive())
    assert result.evidence.check == FAILED
    assert result.evidence.verdict is Verdict.NOT_BELIEVABLE
    assert "But the model failed its check" in statement(result)
    assert "model check: fail" in str(result)
    stored = json.loads(result.to_json())
    assert stored["evidence"]["check"]["verdict"] == "fail"
    again = Result.from_json(result.to_json())
    assert again.evidence.check == FAILED
    assert statement(again) == statement(result)
    verify(again, allowed.episode, allowed.model, reward=allowed.reward)
    assert Session(allowed).solve().evidence.check == FAILED


def test_a_stored_verdict_is_compared_with_what_the_model_keeps() -> None:
    problem = asked(problem_of(FAILED), allow_failed_model=True)
    result = solve(problem, Exhaustive())
    assert result.changes
    examined = replace(result, evidence=examine(problem, result, sensitivity=True))
    about = {"episode": problem.episode, "model": problem.model, "reward": problem.reward}
    told = str(verify(examined, **about))
    assert "model check: fail in the result, fail kept with the model" in told
    assert "not checked: the evidence that the result tells" in told
    with pytest.raises(VerificationError, match="model check: pass in the result, fail kept with the model"):
        verify(examined_by(result, PASSED), **about)
    elsewhere = examined_by(result, replace(PASSED, cohort="of others"))
    assert "pass in the result, fail kept" in str(verify(elsewhere, **about))
    assert "none in the result, fail kept" in str(verify(examined_by(result, None), **about))
    assert to_plain(Result.from_json(examined.to_json()).evidence) == to_plain(examined.evidence)


@pytest.mark.parametrize(
    "standing", [None, PASSED, Standing("warn", ("distance",), 10, "c"), Standing("not judged", ("too_few",), 0, "c")]
)
def test_any_other_model_needs_no_permission(standing: Standing | None) -> None:
    result = solve(asked(problem_of(standing)), Exhaustive())
    assert result.evidence.check == standing
    assert "failed its check" not in statement(result)
    assert Result.from_json(result.to_json()).evidence.check == standing


def test_a_verdict_that_nobody_gives_is_refused() -> None:
    content = json.loads(solve(asked(problem_of(PASSED)), Exhaustive()).to_json())
    content["evidence"]["check"]["verdict"] = "splendid"
    with pytest.raises(StoreError, match="splendid"):
        Result.from_dict(content)


def test_an_ensemble_problem_is_as_good_as_its_worst_member_or_as_its_ensemble() -> None:
    problem = problem_of(None)
    good, bad = (problem.model.for_search() for _ in range(2))
    good.standing, bad.standing = PASSED, FAILED
    query = Query(problem.reward, 2, objective="mean")
    with pytest.raises(FailedModelError):
        EnsembleProblem.from_episode(problem.episode, [good, bad], query)
    allowed = EnsembleProblem.from_episode(problem.episode, [good, bad], query.with_changes(allow_failed_model=True))
    assert solve(allowed, Exhaustive()).evidence.check == FAILED
    ensemble = Ensemble([problem.model.for_search() for _ in range(2)])
    ensemble.standing = PASSED
    together = EnsembleProblem.from_episode(problem.episode, ensemble, Query(problem.reward, 2))
    assert together.standing == PASSED
    assert [member.standing for member in together.members] == [member.standing for member in ensemble.members]
    ensemble.standing = FAILED
    with pytest.raises(FailedModelError):
        EnsembleProblem.from_episode(problem.episode, ensemble, Query(problem.reward, 2))
    assert worst_of([None, None]) is None
    assert (
        EnsembleProblem.from_episode(problem.episode, [good, problem.model], Query(problem.reward, 2)).standing is None
    )


def test_a_question_put_to_other_models_has_their_standing() -> None:
    problem = asked(problem_of(PASSED))
    other = problem.model.for_search()
    other.standing = FAILED
    assert "failed its check" in statement(solve(problem.put_to(other), Exhaustive()))
    together = EnsembleProblem.from_problem(problem, [other, problem.model])
    assert solve(together, Exhaustive()).evidence.check == FAILED
    other.standing = None
    assert problem.put_to(other).standing is None


def test_a_check_is_remembered_by_the_model_its_copies_and_its_folder(tmp_path) -> None:
    model = worlds.model()
    check = check_model(model, worlds.record(60, seed=1))
    assert model.standing == check.standing == model.for_search().standing
    save_model(model, tmp_path / "model")
    assert load_model(tmp_path / "model").standing is None
    check.save(tmp_path / "model" / CHECK)
    assert load_model(tmp_path / "model").standing == check.standing
    content = json.loads((tmp_path / "model" / CHECK).read_text())
    (tmp_path / "model" / CHECK).write_text(json.dumps({**content, "model": "of other weights"}))
    assert load_model(tmp_path / "model").standing is None
    for broken in ("{", json.dumps({"model": content["model"]}), json.dumps({**content, "verdict": "splendid"})):
        (tmp_path / "model" / CHECK).write_text(broken)
        with pytest.raises(StoreError, match=r"check\.json.*check the model again"):
            load_model(tmp_path / "model")


def test_a_refitted_model_was_not_checked() -> None:
    model = LocationScale(worlds.SCHEMA, hidden=(4,))
    model.standing = FAILED
    assert fit(model, worlds.record(10), settings=FitSettings(epochs=1), seed=0).standing is None
