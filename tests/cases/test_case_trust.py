"""What cases say of how far to trust their answers: from results, from rows of runs, and from runs of every kind."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from ifonly.runs.rows import TRUST_COLUMNS, row_of

import ifonly
from ifonly.cases.case import Case, case_from_row, case_of, observed_case
from ifonly.cases.opening import OpenedRun, open_run
from ifonly.cases.selection import cases_of_run
from ifonly.cases.trust import trust_of
from ifonly.errors import InputError, ReplayError, StoreError
from ifonly.evidence import Examination, examine
from ifonly.evidence.behaviour import BehaviourModel, load_behaviour, save_behaviour
from ifonly.models.standing import Standing
from ifonly.problem import EnsembleProblem
from ifonly.runs import RunSettings, solve_cohort
from ifonly.search.solve import solve

sys.path.insert(0, str(Path(__file__).parents[1] / "trust"))
from random_behaviour import made_behaviour

FAILED = Standing("fail", "fail: of 9 checks 2 failed", 40, "c0")
PASSED = Standing("pass", "pass: nothing speaks against the model", 40, "c0")
IDS = 2


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ensemble, a behaviour model, a run that was examined, and one of a panel that needs support."""
    folder = tmp_path_factory.mktemp("trust")
    cohort = ifonly.simulate.simulate_cohort(20, seed=3, horizon=4)
    ifonly.save_cohort(cohort, folder / "cohort")
    untrained = ifonly.LocationScale(cohort.schema, hidden=(6,))
    ensemble = ifonly.fit_ensemble(untrained, cohort, members=4, epochs=1, seed=0)
    ifonly.save_model(ensemble, folder / "model")
    ensemble.standing = PASSED
    problem = ifonly.Problem.from_episode(cohort[0], ensemble, ifonly.Query(ifonly.minus("SOFA"), 1))
    behaviour = made_behaviour(problem, seed=0)
    save_behaviour(behaviour, folder / "behaviour")
    sources = {"episodes": folder / "cohort", "model": folder / "model", "behaviour": folder / "behaviour"}
    asked = {"workers": 1, "episodes": cohort.ids[:IDS], "sources": sources, "behaviour": behaviour}
    for name, more in (
        ("examined", {"sensitivity": True, "each_refit": True}),
        ("panel", {"objective": "worst", "min_support": 0.03}),
    ):
        settings = RunSettings(**asked, **more)
        solve_cohort(cohort, ensemble, ifonly.minus("SOFA"), max_changes=2, out=folder / name, settings=settings)
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


def plain(case: Case) -> dict[str, Any]:
    return json.loads(json.dumps(case.to_dict(), allow_nan=False))


def test_a_case_says_what_the_examination_found(opened: OpenedRun, behaviour: BehaviourModel) -> None:
    problem = opened.problem(opened.cohort.ids[0])
    result = solve(problem)
    trust = Examination(behaviour, each_refit=True, sensitivity=True).of(problem, result)
    case = plain(case_of(problem, replace(result, trust=trust.to_dict())))
    told = case["trust"]
    assert told["statement"].startswith(f"Model check: pass. {trust.refits.helping} of 4 refits agree; ")
    assert [text[:-1].lower() for text in told["warnings"]] == [text.lower() for text in trust.warnings]
    # cumulative SOFA, of which less is better: its improvement is that of the reward
    assert told["refits"]["improvements"] == pytest.approx(trust.refits.improvements.tolist())
    assert told["refits"]["own"] == pytest.approx(result.improvement)
    shares = [(step["same_step"], step["same_action"]) for step in told["refits"]["steps"]]
    assert shares == [(step.same_step / 4, step.same_action / 4) for step in trust.refits.steps]
    steps = {step["step"]: step for step in told["support"]["steps"]}
    assert set(steps) == {step.step for step in trust.support.steps if step.changed or step.flags}
    assert all(steps[step.step]["beyond"] == bool(step.flags) for step in trust.support.steps if step.step in steps)
    assert len(told["sensitivity"]["details"]) >= len(trust.sensitivity.steps)
    failed = replace(problem, standing=FAILED)
    told = case_of(failed, replace(result, trust=Examination().of(failed, result).to_dict())).trust
    assert told["statement"].startswith("The model failed its check; "), "said once"


def test_a_row_tells_the_same_as_far_as_it_knows(opened: OpenedRun) -> None:
    for id in opened.cohort.ids:
        problem, row = opened.problem(id), opened.row(id)
        brief = plain(case_from_row(problem, row))["trust"]
        whole = plain(case_from_row(problem, row, again=opened.examination))["trust"]
        for name in ("statement", "examined", "warnings"):
            assert brief[name] == whole[name]
        for name in ("refits", "helping", "improvements", "own", "median", "low", "high"):
            assert brief["refits"][name] == pytest.approx(whole["refits"][name]), name
        assert brief["refits"]["steps"] == whole["refits"]["steps"], "none is solved again"
        fewer = row | {"refits_unsolved": 2}
        for again in (None, opened.examination):
            assert case_from_row(problem, fewer, again=again).trust["refits"]["unsolved"] == 2
        assert [(step["step"], step["beyond"]) for step in brief["support"]["steps"]] == [
            (step["step"], step["beyond"]) for step in whole["support"]["steps"]
        ]
        assert whole["sensitivity"]["details"]
        assert not brief["sensitivity"]["details"]
        assert whole == plain(cases_of_run(opened, [id], alternatives=1)[0])["trust"]
        sturdy = row | {"harmless_below": None, "undone_by": None}  # a table keeps nothing that is infinite
        assert plain(case_from_row(problem, sturdy, again=opened.examination))["trust"] == whole


def test_a_case_is_told_from_its_row_where_it_cannot_be_examined_again(
    opened: OpenedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = opened.cohort.ids[0]
    problem, row = opened.problem(id), opened.row(id)

    def fail(*_: object, **__: object) -> None:
        raise ReplayError("a refit finds no finite noise")

    monkeypatch.setattr(Examination, "of", fail)
    assert case_from_row(problem, row, again=opened.examination).trust == case_from_row(problem, row).trust
    trust = opened.examination.attempt(problem, solve(problem))
    assert trust.summary == "could not be examined: a refit finds no finite noise"
    assert trust.warnings == (trust.summary,)
    assert opened.examination.attempt(problem, solve(problem.with_max_changes(0))).warnings == ()


def test_flags_that_only_a_row_remembers(opened: OpenedRun) -> None:
    id = opened.cohort.ids[0]
    problem, row = opened.problem(id), opened.row(id)
    first, *rest = row["changed_steps"]
    odd = {"change_support": [0.0, *([0.004] * len(rest))], "unsupported_steps": [first, *rest, problem.horizon - 1]}
    support = plain(case_from_row(problem, row | odd))["trust"]["support"]
    assert support["steps"][0]["words"][0].endswith("one that nobody in the data ever chose.")
    assert "lies farther from the data than 99 % of recorded states" in support["steps"][-1]["words"][0]
    assert all(step["beyond"] for step in support["steps"])
    wild = {"refit_improvements": [1.0, None, 2.0, None], "refits_agree": 0.5}
    refits = plain(case_from_row(problem, row | wild))["trust"]["refits"]
    assert (refits["helping"], refits["low"], refits["high"], refits["between"]) == (2, None, 2.0, "all")
    many = {"refit_improvements": [float(gain) for gain in range(1, 21)], "refits_agree": 1.0}
    refits = plain(case_from_row(problem, row | many))["trust"]["refits"]
    assert (refits["low"], refits["high"]) == pytest.approx((1.95, 19.05))
    assert refits["between"] == "nine of ten"


def test_a_row_is_read_by_the_limits_of_its_run(own: Path, behaviour: BehaviourModel) -> None:
    assert open_run(own / "examined").examination.behaviour is not None
    manifest = json.loads((own / "examined" / "run.json").read_text())
    manifest["question"]["examination"]["limits"] |= {"unlikely": 0.3, "far": 80.0}
    (own / "examined" / "run.json").write_text(json.dumps(manifest))
    then = open_run(own / "examined")
    assert then.run.warning_limits["far"] == 80.0
    assert then.examination.behaviour is None, "today's limits would say otherwise"
    id = then.cohort.ids[0]
    problem, row = then.problem(id), then.row(id)
    likely = [0.2] * row["changes"]
    odd = row | {"change_support": likely, "unsupported_steps": [*row["changed_steps"], problem.horizon - 1]}
    told = case_from_row(problem, odd, again=then.examination, limits=then.run.warning_limits).trust["support"]["steps"]
    assert told[0]["words"][0].endswith("this action was chosen in about 1 of 5 comparable situations.")
    last = case_from_row(problem, odd | {"change_support": [0.4] * row["changes"]}, limits=then.run.warning_limits)
    assert "farther from the data than 80 % of recorded states" in last.trust["support"]["steps"][-1]["words"][0]
    altered = then.table.with_columns(
        pl.Series(name, [odd[name]] * IDS) for name in ("change_support", "unsupported_steps")
    )
    shown = cases_of_run(replace(then, table=altered), [id], alternatives=1)[0]
    assert shown.trust["support"]["steps"] == told
    broken = case_from_row(problem, odd | {"change_support": [None] * row["changes"]}).trust["support"]["steps"][0]
    assert broken["words"][0].endswith("the model gives no finite state.")


def test_without_recorded_states_a_row_is_not_examined_again(own: Path, behaviour: BehaviourModel) -> None:
    shutil.rmtree(own / "behaviour")
    save_behaviour(behaviour, own / "behaviour", with_states=False)
    then = open_run(own / "examined")
    assert then.behaviour is not None
    assert then.examination.behaviour is None


def test_what_was_not_examined(opened: OpenedRun) -> None:
    problem = opened.problem(opened.cohort.ids[0])
    result = solve(problem)
    row = row_of(problem, result) | dict.fromkeys(TRUST_COLUMNS)  # as version 1 of a run's table is read
    for case in (case_from_row(problem, row), case_of(problem, result)):
        told = plain(case)["trust"]
        assert told["statement"] == "Model check: pass. This answer was not examined any further."
        assert not told["examined"]
        assert told["refits"] is told["support"] is told["sensitivity"] is None
    unchecked = replace(problem, standing=None)
    assert case_of(unchecked, result).trust["statement"].startswith("The model was not checked. This answer was not")
    assert observed_case(unchecked).trust["statement"] == "The model was not checked."
    nothing = solve(problem.with_max_changes(0))
    told = case_of(problem, replace(nothing, trust=Examination().of(problem, nothing).to_dict())).trust
    assert told["statement"] == "Model check: pass. Nothing is changed, so there is nothing to examine."
    assert not told["examined"]
    words = {"trust": "could not be examined: no refits", "warnings": ["could not be examined: no refits"]}
    broken = row | words | {"warning_kinds": ["could not be examined"]}
    told = case_from_row(problem, broken).trust
    assert told["statement"] == "Model check: pass. Could not be examined: no refits."
    assert len(told["warnings"]) == 1


def test_a_check_that_is_younger_than_the_row_is_told(opened: OpenedRun) -> None:
    id = opened.cohort.ids[0]
    problem, row = opened.problem(id), opened.row(id)
    unchecked = row | {"trust": f"the model was not checked; {row['trust']}"}
    assert plain(case_from_row(problem, unchecked))["trust"] == plain(case_from_row(problem, row))["trust"]
    failed = plain(case_from_row(replace(problem, standing=FAILED), unchecked))["trust"]
    assert failed["statement"].startswith("The model failed its check; ")
    assert "not checked" not in failed["statement"]
    assert failed["warnings"][0] == "The model failed its check (fail: of 9 checks 2 failed)."


def test_a_failed_model_can_be_reported_and_is_said_to_have_failed(own: Path) -> None:
    check = FAILED.to_dict() | {"model": open_run(own / "examined").model.fingerprint()}
    (own / "model" / "check.json").write_text(json.dumps(check))
    now = open_run(own / "examined")  # when it ran, the model had passed
    case = cases_of_run(now, now.cohort.ids[:1])[0]
    assert case.model["check"]["used_although_failed"]
    assert case.model["said"] == "Model check: fail."
    assert "failed its check (fail: of 9 checks 2 failed)" in case.model["caution"]
    (own / "model" / "check.json").unlink()
    manifest = json.loads((own / "examined" / "run.json").read_text())
    (own / "examined" / "run.json").write_text(json.dumps(manifest | {"model_check": FAILED.to_dict()}))
    then = open_run(own / "examined")  # nothing is known of it now
    assert observed_case(then.problem(then.cohort.ids[0])).model == case.model


def test_a_panel_with_support_is_opened_and_shown(tree: Path) -> None:
    opened = open_run(tree / "panel")
    cases = cases_of_run(opened, opened.cohort.ids, alternatives=2)
    assert any(case.answer is not None and case.answer.best.changes for case in cases)
    for case in cases:
        panel, row = opened.problem(case.episode), opened.row(case.episode)
        assert isinstance(panel, EnsembleProblem)
        assert case.answer is not None
        assert "for the worst of 4 refits of this model" in case.answer.statement
        assert case.question["judged_by"] == "the worst of 4 refits"
        assert any("at least 3 % of situations comparable" in rule for rule in case.question["rules"])
        assert np.array(case.answer.best.states) == pytest.approx(np.array(row["states"]), abs=1e-6)
        outcomes = [member.outcome(np.array(row["actions"])) for member in panel.members]
        assert case.answer.best.outcome == pytest.approx(panel.reward.show(min(outcomes)).value)
        observed = row["observed_clipped_outcome"]
        gained = (row["clipped_outcome"] - observed) / abs(observed)
        assert case.answer.best.improvement == pytest.approx(gained)
        assert all(
            panel.admissible(panel.observed_actions.new_tensor([one.actions])) for one in case.answer.alternatives
        )
        assert case.model["refits"] == 4
        assert sum(share.share for share in case.answer.contributions) == pytest.approx(
            case.observed.outcome - case.answer.best.outcome
        )
        assert json.dumps(case.to_dict(), allow_nan=False)


def test_of_a_panel_it_is_said_whose_gain_would_be_undone(tree: Path) -> None:
    opened = open_run(tree / "panel")
    case = next(case for case in cases_of_run(opened, opened.cohort.ids, alternatives=1) if case.answer.best.changes)
    panel = opened.problem(case.episode)
    trust = examine(panel, case.answer.best.actions, sensitivity=True)
    shown = trust_of(panel, case.answer.best, trust.to_dict())["sensitivity"]["details"]
    assert trust.sensitive_member is not None
    assert shown[0].startswith(f"All of this is about refit {trust.sensitive_member + 1},")


def test_the_behaviour_model_of_a_run(own: Path, tmp_path: Path, behaviour: BehaviourModel) -> None:
    shutil.move(own / "behaviour", tmp_path / "elsewhere")
    examined = open_run(own / "examined")
    assert examined.behaviour is None, "what it said is in the table"
    assert cases_of_run(examined, examined.cohort.ids[:1])[0].trust["support"]["steps"]
    with pytest.raises(StoreError, match=r"its behaviour lay in .*, which is gone; pass --behaviour"):
        open_run(own / "panel")
    assert open_run(own / "panel", behaviour=tmp_path / "elsewhere").behaviour is not None
    other = replace(behaviour, temperature=2.0)
    with pytest.raises(InputError, match="the behaviour model given is not what this run was about"):
        open_run(own / "examined", behaviour=other)
    manifest = json.loads((own / "examined" / "run.json").read_text())
    manifest["question"]["examination"]["behaviour"] = None
    (own / "examined" / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="not asked about a behaviour model; leave out --behaviour"):
        open_run(own / "examined", behaviour=behaviour)
