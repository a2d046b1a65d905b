"""What cases say of how far to trust their answers: of results, of runs of every kind, of models that failed."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ifonly
from ifonly.errors import InputError, ReplayError, StoreError
from ifonly.evidence import examine
from ifonly.evidence.behaviour import BehaviourModel, load_behaviour, save_behaviour
from ifonly.models.standing import HiddenSigns, Standing
from ifonly.problem import BaseProblem, EnsembleProblem
from ifonly.query import Query
from ifonly.records import to_plain
from ifonly.report.cases import Case, OpenedRun, case_of, cases_of_run, observed_case, open_run
from ifonly.report.cases.case import EvidencePage
from ifonly.result import Agreement, Evidence, LocalCalibration, Result, SupportReport
from ifonly.result.evidence import SupportFlag
from ifonly.result.verdict import HonestGain
from ifonly.runs import RunSettings, solve_cohort
from ifonly.search.solve import solve

sys.path.insert(0, str(Path(__file__).parents[2] / "evidence"))
from random_behaviour import made_behaviour

FAILED = Standing("fail", ("noise_by_action", "distance"), 40, "c0")
PASSED = Standing("pass", (), 40, "c0")
IDS = 2


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ensemble, a behaviour model, a run that was examined, and one of all refits together that needs support."""
    folder = tmp_path_factory.mktemp("evidence")
    cohort = ifonly.simulate.simulate_cohort(20, seed=3, horizon=4)
    ifonly.save_cohort(cohort, folder / "cohort")
    untrained = ifonly.LocationScale(cohort.schema, hidden=(6,))
    ensemble = ifonly.fit_ensemble(untrained, cohort, members=4, epochs=1, seed=0)
    ifonly.save_model(ensemble, folder / "model")
    ensemble.standing = PASSED
    problem = ifonly.Problem.from_episode(cohort[0], ensemble, Query(ifonly.minus("SOFA"), 1))
    behaviour = made_behaviour(problem, seed=0)
    save_behaviour(behaviour, folder / "behaviour")
    sources = {"episodes": folder / "cohort", "model": folder / "model", "behaviour": folder / "behaviour"}
    settings = RunSettings(workers=1, episodes=cohort.ids[:IDS], sources=sources)
    for name, more in (
        ("examined", {"sensitivity": True, "each_refit": True}),
        ("ensemble", {"objective": "worst", "min_support": 0.03}),
    ):
        query = Query(ifonly.minus("SOFA"), 2, **more)  # type: ignore[arg-type]
        solve_cohort(cohort, ensemble, query, out=folder / name, behaviour=behaviour, settings=settings)
    return folder


@pytest.fixture
def own(tree: Path, tmp_path: Path) -> Path:
    """A copy to be altered."""
    return Path(shutil.copytree(tree, tmp_path / "own"))


@pytest.fixture(scope="module")
def opened(tree: Path) -> OpenedRun:
    return open_run(tree / "examined")


@pytest.fixture(scope="module")
def behaviour(tree: Path) -> BehaviourModel:
    return load_behaviour(tree / "behaviour")


def told_of(problem: BaseProblem, result: Result, evidence: Evidence) -> EvidencePage:
    return case_of(problem, replace(result, evidence=evidence)).evidence


def plain(case: Case) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(to_plain(case), allow_nan=False))
    return content


def test_a_case_says_what_the_examination_found(opened: OpenedRun, behaviour: BehaviourModel) -> None:
    problem = opened.problem(opened.cohort.ids[0])
    result = solve(problem)
    found = examine(problem, result, behaviour=behaviour, each_refit=True, sensitivity=True)
    case = case_of(problem, replace(result, evidence=found))
    told = case.evidence
    assert found.refits is not None
    assert found.support is not None
    assert found.sensitivity is not None
    assert told.examined
    assert str(told.statement).startswith(
        f"Uncertain: the organs do not bear the gain out. Model check: pass; {found.refits.helping} of 4 refits agree; "
    )
    assert len(told.warnings) == len(found.warnings)
    # cumulative SOFA, of which less is better: its improvement is that of the reward
    assert told.gains is not None
    assert told.gains.improvements == pytest.approx(found.refits.improvements.tolist())
    assert told.gains.own == pytest.approx(result.improvement)
    assert told.support is not None
    steps = {step.step: step for step in told.support.steps}
    assert set(steps) == {step.step for step in found.support.steps if step.changed or step.flags}
    assert all(steps[step.step].beyond == bool(step.flags) for step in found.support.steps if step.step in steps)
    assert len(told.sensitivity) > len(found.sensitivity.steps)
    assert plain(case)["answer"]["result"]["evidence"]["refits"]["steps"] == [vars(step) for step in found.refits.steps]  # type: ignore[union-attr]


def test_a_run_tells_what_a_fresh_examination_would(opened: OpenedRun, behaviour: BehaviourModel) -> None:
    for id in opened.cohort.ids:
        problem, kept = opened.problem(id), opened.result(id)
        fresh = examine(problem, kept, behaviour=behaviour, each_refit=True, sensitivity=True)
        told = case_of(problem, kept).evidence
        assert told == told_of(problem, kept, fresh)
        assert told.sensitivity
        assert cases_of_run(opened, [id], alternatives=1)[0].evidence == told


def test_nothing_is_examined_again(opened: OpenedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    id = opened.cohort.ids[0]

    def fail(*_: object, **__: object) -> None:
        raise ReplayError("a refit finds no finite noise")

    monkeypatch.setattr("ifonly.report.cases.opening.examine", fail)
    expected = case_of(opened.problem(id), opened.result(id)).evidence
    assert cases_of_run(opened, [id], alternatives=2)[0].evidence == expected


def test_an_answer_that_the_run_had_not_proven_is_examined_as_the_run_did(own: Path, tmp_path: Path) -> None:
    cohort, model = ifonly.load(own / "cohort"), ifonly.load_model(own / "model")
    behaviour = load_behaviour(own / "behaviour")
    query = Query(ifonly.minus("SOFA"), 2, solver={"name": "greedy"}, sensitivity=True)
    settings = RunSettings(workers=1, episodes=cohort.ids[:1])
    run = solve_cohort(cohort, model, query, out=tmp_path / "greedy", behaviour=behaviour, settings=settings)
    (case,) = cases_of_run(open_run(run, episodes=cohort, model=model, behaviour=behaviour), cohort.ids[:1])
    assert case.answer is not None
    assert case.answer.claim.proven
    evidence = case.answer.result.evidence
    assert None not in (evidence.refits, evidence.support, evidence.sensitivity)


def test_flags_and_numbers_of_evidence_are_told(opened: OpenedRun) -> None:
    id = opened.cohort.ids[0]
    problem, result = opened.problem(id), opened.result(id)
    evidence = result.evidence
    assert evidence.support is not None
    assert evidence.refits is not None
    first, *rest = evidence.changed_steps
    last = problem.horizon - 1
    odd = {
        step.step: replace(step, probability=0.0, flags=(SupportFlag.NEVER_CHOSEN,))
        if step.step == first
        else replace(step, probability=0.004, flags=(SupportFlag.UNLIKELY,))
        if step.step in rest
        else replace(step, percentile=99.7, flags=(SupportFlag.FAR,) if step.step == last else ())
        for step in evidence.support.steps
    }
    support = SupportReport(evidence.support.behaviour, tuple(odd.values()))
    told = told_of(problem, result, replace(evidence, support=support)).support
    assert told is not None
    assert str(told.steps[0].messages[0]).endswith("one that nobody in the data ever chose")
    if last not in evidence.changed_steps:
        assert "lies farther from the data than 99.7 % of recorded states" in str(told.steps[-1].messages[0])
    assert all(step.beyond for step in told.steps)
    broken = {first: replace(evidence.support.steps[first], probability=None, flags=(SupportFlag.NOT_FINITE,))}
    support = replace(support, steps=tuple(broken.get(step.step, step) for step in evidence.support.steps))
    told = told_of(problem, result, replace(evidence, support=support)).support
    assert told is not None
    assert "the model gives no finite state" in " ".join(str(one) for step in told.steps for one in step.messages)

    wild = Agreement(np.array([1.0, -np.inf, 2.0, -np.inf]), helping=2)
    gains = told_of(problem, result, replace(evidence, refits=wild)).gains
    assert gains is not None
    assert (gains.low, gains.high, gains.many) == (None, 2.0, False)
    many = Agreement(np.arange(1.0, 21.0), helping=20)
    gains = told_of(problem, result, replace(evidence, refits=many)).gains
    assert gains is not None
    assert (gains.low, gains.high) == pytest.approx((1.95, 19.05))
    assert gains.many
    fewer = told_of(problem, result, replace(evidence, refits=replace(evidence.refits, unsolved=2))).refits
    assert any("2 of 4" in str(message) for message in fewer)


def test_a_case_begins_with_the_verdict_and_tells_what_is_left_of_the_promise(opened: OpenedRun) -> None:
    id = opened.cohort.ids[0]
    problem, result = opened.problem(id), opened.result(id)
    records = LocalCalibration(result.improvement, result.improvement, deviation=0.5, transitions=100)
    checked = replace(PASSED, hidden=HiddenSigns(choice=0.0, earlier=0.0))
    honest = HonestGain(promised=2.0, judged=1.0)
    evidence = replace(result.evidence, check=checked, honest=honest, calibration=records)
    assert evidence.judgement is not None
    case = case_of(problem, replace(result, evidence=evidence))
    assert str(case.evidence.statement).startswith(("Supported: ", "Uncertain: ", "Not to be believed: "))
    (gain,) = case.evidence.gain
    assert "without what the promise owes to having been chosen" in str(gain)
    assert plain(case)["evidence"]["gain"] == [to_plain(gain)]
    assert plain(case)["answer"]["result"]["evidence"]["honest"] == to_plain(honest)
    assert told_of(problem, result, result.evidence).gain == ()


def test_a_run_keeps_the_thresholds_that_it_warned_by(own: Path) -> None:
    then = open_run(own / "examined")
    asked = then.run.manifest["examination"]["thresholds"]
    assert vars(then.result(then.cohort.ids[0]).evidence.thresholds) == asked


def test_a_behaviour_model_without_recorded_states_changes_nothing(own: Path, behaviour: BehaviourModel) -> None:
    before = open_run(own / "examined")
    shutil.rmtree(own / "behaviour")
    save_behaviour(behaviour, own / "behaviour", with_states=False)
    then = open_run(own / "examined")
    assert then.behaviour is not None
    for one, other in zip(cases_of_run(before, before.cohort.ids), cases_of_run(then, then.cohort.ids), strict=True):
        assert one.evidence == other.evidence


def test_what_was_not_examined(opened: OpenedRun) -> None:
    problem = opened.problem(opened.cohort.ids[0])
    result = solve(problem)
    told = case_of(problem, result).evidence
    assert str(told.statement) == "Model check: pass. This answer was not examined any further."
    assert not told.examined
    assert (told.refits, told.gains, told.support, told.sensitivity) == ((), None, None, ())
    unchecked = replace(problem, standing=None)
    statement = str(case_of(unchecked, solve(unchecked)).evidence.statement)
    assert statement.startswith("The model was not checked. This answer was not")
    assert str(observed_case(unchecked).evidence.statement) == "The model was not checked."
    nothing = solve(problem.with_max_changes(0))
    told = told_of(problem.with_max_changes(0), nothing, examine(problem, nothing))
    assert str(told.statement) == "Model check: pass. Nothing is changed, so there is nothing to examine."
    assert not told.examined


def test_an_examination_that_failed_is_a_warning(opened: OpenedRun) -> None:
    from ifonly.evidence import unexamined

    problem = opened.problem(opened.cohort.ids[0])
    result = solve(problem)
    told = told_of(problem, result, unexamined(problem, result, InputError("no refits")))
    assert str(told.statement) == (
        "Uncertain: a part of it could not be examined. Model check: pass; could not be examined: no refits."
    )
    assert len(told.warnings) == 1


def test_a_check_that_is_younger_than_the_run_is_told(own: Path) -> None:
    now = open_run(own / "examined")
    now.model.standing = FAILED
    case = cases_of_run(now, now.cohort.ids[:1], alternatives=1)[0]
    assert str(case.evidence.statement).startswith("Not to be believed: the model failed its check and ")
    assert str(case.evidence.warnings[0]).startswith("the model failed its check: the model misses effects of the act")
    assert case.answer is not None
    assert case.answer.result.evidence.check == FAILED


def test_a_failed_model_can_be_reported_and_is_said_to_have_failed(own: Path) -> None:
    findings = [{"kind": kind, "level": "fail"} for kind in FAILED.findings]
    fingerprint = open_run(own / "examined").model.fingerprint()
    check = to_plain(FAILED) | {"findings": findings, "model": fingerprint, "figures": {"features": []}}
    (own / "model" / "check.json").write_text(json.dumps(check))
    now = open_run(own / "examined")  # when it ran, the model had passed
    case = cases_of_run(now, now.cohort.ids[:1])[0]
    assert case.model.check == FAILED
    assert str(case.model.said) == "Model check: fail."
    assert "failed its check (the model misses effects of the actions and " in str(case.model.caution)
    (own / "model" / "check.json").unlink()
    manifest = json.loads((own / "examined" / "run.json").read_text())
    (own / "examined" / "run.json").write_text(json.dumps(manifest | {"model_check": to_plain(FAILED)}))
    then = open_run(own / "examined")  # nothing is known of it now
    assert observed_case(then.problem(then.cohort.ids[0])).model == case.model


def test_refits_asked_together_with_support_are_opened_and_shown(tree: Path) -> None:
    opened = open_run(tree / "ensemble")
    cases = cases_of_run(opened, opened.cohort.ids, alternatives=2)
    assert any(case.answer is not None and case.answer.best.changes for case in cases)
    for case in cases:
        ensemble, result = opened.problem(case.episode), opened.run.result(case.episode)
        assert isinstance(ensemble, EnsembleProblem)
        assert case.answer is not None
        assert "for the worst of 4 refits of this model" in str(case.answer.claim.statement)
        assert str(case.question.objective) == "the worst of 4 refits"
        assert any("at least 3 % of situations comparable" in str(rule) for rule in case.question.rules)
        assert np.array(case.answer.best.states) == pytest.approx(result.states, abs=1e-6)
        outcomes = [member.outcome(result.actions) for member in ensemble.members]
        assert case.answer.best.outcome == pytest.approx(ensemble.reward.show(min(outcomes)).value)
        assert case.answer.best.improvement == pytest.approx(result.relative_improvement)
        assert all(
            ensemble.admissible(ensemble.observed_actions.new_tensor([one.actions])) for one in case.answer.alternatives
        )
        assert case.model.refits == 4
        assert case.observed.outcome is not None
        assert case.answer.best.outcome is not None
        assert sum(share.share for share in case.answer.contributions) == pytest.approx(
            case.observed.outcome - case.answer.best.outcome
        )
        assert plain(case)


def test_of_refits_asked_together_it_is_said_whose_gain_would_be_undone(tree: Path) -> None:
    opened = open_run(tree / "ensemble")
    result = next(result for result in map(opened.result, opened.cohort.ids) if result.changes)
    ensemble = opened.problem(result.episode)
    evidence = examine(ensemble, result, sensitivity=True)
    assert evidence.sensitivity is not None
    assert evidence.sensitivity.member is not None
    shown = told_of(ensemble, result, evidence).sensitivity
    assert f"under refit {evidence.sensitivity.member + 1}, which gains least" in str(shown[0])


def test_the_behaviour_model_of_a_run(own: Path, tmp_path: Path, behaviour: BehaviourModel) -> None:
    shutil.move(own / "behaviour", tmp_path / "elsewhere")
    examined = open_run(own / "examined")
    assert examined.behaviour is None, "what it said is in the table"
    case = cases_of_run(examined, examined.cohort.ids[:1])[0]
    assert case.evidence.support is not None
    assert case.evidence.support.steps
    with pytest.raises(StoreError, match=r"its behaviour lay in .*, which is gone; pass --behaviour"):
        open_run(own / "ensemble")
    assert open_run(own / "ensemble", behaviour=tmp_path / "elsewhere").behaviour is not None
    other = replace(behaviour, temperature=2.0)
    with pytest.raises(InputError, match="the behaviour model given is not what this run was about"):
        open_run(own / "examined", behaviour=other)
    manifest = json.loads((own / "examined" / "run.json").read_text())
    manifest["examination"]["behaviour"] = None
    (own / "examined" / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="not asked about a behaviour model; leave out --behaviour"):
        open_run(own / "examined", behaviour=behaviour)


def test_bands_hold_the_best_course_of_every_refit(opened: OpenedRun) -> None:
    problem = opened.problem(opened.cohort.ids[0])
    case = case_of(problem, solve(problem))
    assert case.answer is not None
    (band,) = case.answer.bands
    sequence = torch.as_tensor(case.answer.best.actions)
    members = EnsembleProblem.from_problem(problem, problem.models[0])  # type: ignore[arg-type]
    column = [feature.name for feature in problem.episode.schema.dynamic].index("SOFA")
    replayed = [one.decode(one.replay(sequence[None])[0][0])[:, column] for one in members.members]
    assert (band.feature, band.refits, band.many) == ("SOFA", 4, False)
    assert band.low == pytest.approx(np.min(replayed, axis=0))
    assert band.high == pytest.approx(np.max(replayed, axis=0))
    first = case.answer.best.changes[0].step
    assert band.low[: first + 1] == band.high[: first + 1] == case.features[column].observed[: first + 1]
    assert band.high[-1] > band.low[-1], "refits differ"  # type: ignore[operator]


def test_one_model_alone_and_answers_without_changes_have_no_band(opened: OpenedRun) -> None:
    problem = opened.problem(opened.cohort.ids[0])
    model: Any = problem.models[0]
    alone = ifonly.Problem.from_episode(problem.episode, model.members[0], problem.query)
    kept = problem.with_max_changes(0)
    for one in (alone, kept):
        answer = case_of(one, solve(one)).answer
        assert answer is not None
        assert answer.bands == ()
