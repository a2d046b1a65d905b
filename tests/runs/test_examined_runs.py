"""Runs that tell evidence about their answers: ensemble problems, support, refits, failed models."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import (
    QUERY,
    REWARD,
    small_behaviour,
    small_cohort,
    small_ensemble,
    small_model,
    solve_small,
    without_clock,
    without_seconds,
)

import ifonly
from ifonly.errors import FailedModelError, InputError, StoreError
from ifonly.evidence import examine
from ifonly.models.standing import Standing
from ifonly.problem import EnsembleProblem, Problem
from ifonly.query import Limits, Query
from ifonly.records import to_plain
from ifonly.result import Thresholds
from ifonly.result.table import COLUMNS, to_row
from ifonly.runs import Run, load_run, task
from ifonly.runs.task import Task
from ifonly.search.build_result import clipped_outcomes
from ifonly.search.heuristics import Greedy

COHORT = small_cohort(5)
MODEL = small_ensemble(COHORT).for_search()
BEHAVIOUR = small_behaviour(COHORT)
ASKED = Query(REWARD, 2, objective=0.5, min_support=0.02, each_refit=True, sensitivity=True)
FAILING = Standing("fail", ("noise_size", "noise_lasting"), 60, "0123")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All that can be asked about evidence, not to be altered."""
    return solve_asked(tmp_path_factory.mktemp("evidence") / "run")


def solve_asked(out: Path, query: Query = ASKED, **more: object) -> Run:
    return solve_small(COHORT, MODEL, out, query=query, **{"behaviour": BEHAVIOUR, **more})


def asked_of(position: int) -> EnsembleProblem:
    return EnsembleProblem.from_episode(COHORT[position], MODEL, ASKED, support=BEHAVIOUR)


def test_rows_are_what_solve_and_examine_give(whole: Run) -> None:
    table = whole.table()
    assert table.schema == COLUMNS
    assert whole.counts == {"optimal": 5}
    assert table["changes"].sum() > 5, "nothing to examine"
    for position, row in enumerate(table.iter_rows(named=True)):
        problem = asked_of(position)
        found = ifonly.solve(problem)
        evidence = examine(problem, found, behaviour=BEHAVIOUR, each_refit=True, sensitivity=True)
        result = replace(found, evidence=evidence)
        assert row | {"stats": None} == to_row(result) | {"stats": None}
        again = whole.result(row["episode"])
        assert again.own_part() | {"stats": None} == result.own_part() | {"stats": None}, "nothing is lost"
        assert to_plain(again.provenance) == to_plain(result.provenance)
        refits, support = again.evidence.refits, again.evidence.support
        assert refits is not None
        assert support is not None
        assert again.evidence.sensitivity is not None
        assert len(refits.improvements) == len(again.member_outcomes) == 3
        assert len(refits.steps or ()) == len(support.changed) == row["changes"]
        assert all(one.probability >= 0.02 for one in support.changed)


def test_clipped_outcomes_of_an_ensemble_are_the_objective_of_its_members(whole: Run) -> None:
    for goal in ("mean", "worst", 0.5):
        ensemble = EnsembleProblem.from_episode(COHORT[0], MODEL, Query(REWARD, 2, objective=goal))
        sequences = torch.tensor(np.stack([COHORT[0].actions, *(np.full(ensemble.horizon, a) for a in (24, 7))]))

        def clipped(problem: Problem | EnsembleProblem, sequences: torch.Tensor = sequences) -> list[float]:
            return clipped_outcomes(problem, problem.rollout(sequences)[0], sequences)

        alone = np.array([clipped(member) for member in ensemble.members])  # [M, 3]
        expected = {"mean": alone.mean(0), "worst": alone.min(0), 0.5: np.sort(alone, axis=0)[1]}[goal]
        assert clipped(ensemble) == pytest.approx(expected.tolist())


def test_the_manifest_says_what_was_asked(whole: Run) -> None:
    manifest = whole.manifest
    assert manifest["version"] == 5
    assert whole.query == ASKED
    assert manifest["support"] == {"kind": "behaviour", "min_support": 0.02, "behaviour": BEHAVIOUR.fingerprint}
    thresholds = to_plain(Thresholds())
    assert manifest["examination"] == {
        "behaviour": BEHAVIOUR.fingerprint,
        "distances": True,
        "thresholds": thresholds,
    }
    assert manifest["model_fingerprint"] == MODEL.fingerprint()
    assert manifest["model"]["members"] == [member.fingerprint() for member in MODEL.members]
    assert manifest["model_check"] is None


OTHERS = {
    "query.objective: 0.5 there, null now": {"objective": None},
    "query.min_support: 0.02 there, 0.03 now": {"min_support": 0.03},
    "query.min_support: 0.02 there, null now": {"min_support": None},
    "query.each_refit: true there, false now": {"each_refit": False},
    "query.sensitivity": {"sensitivity": False},
}


@pytest.mark.parametrize("named", OTHERS)
def test_another_query_is_refused(whole: Run, named: str) -> None:
    with pytest.raises(StoreError, match="another run") as caught:
        solve_asked(whole.folder, ASKED.with_changes(**OTHERS[named]))
    assert named in str(caught.value)


def test_another_behaviour_model_is_another_run(whole: Run) -> None:
    with pytest.raises(StoreError, match=r"another run \(examination\.distances: true there, false now\)"):
        solve_asked(whole.folder, behaviour=replace(BEHAVIOUR, neighbours=None))


def test_a_run_that_warned_by_other_thresholds_is_another_one(whole: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "Thresholds", lambda: Thresholds(far=50.0))
    with pytest.raises(StoreError, match=r"another run \(examination\.thresholds\.far: [0-9.]+ there, 50.0 now\)"):
        solve_asked(whole.folder)


def test_a_finished_run_does_nothing(whole: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in whole.folder.iterdir()}
    monkeypatch.setattr(Task, "answer", lambda *_: pytest.fail("solved again"))
    assert solve_asked(whole.folder).table().equals(whole.table())
    assert {path.name: path.read_bytes() for path in whole.folder.iterdir()} == before


def evidence_task() -> Task:
    return Task(MODEL, ASKED, ifonly.BranchAndBound(), behaviour=BEHAVIOUR)


def rows(answers) -> list[dict]:
    ordered = sorted(answers, key=lambda answer: answer.position)
    return [json.loads(answer.line) | {"stats": None} for answer in ordered]


def test_a_task_that_was_sent_to_another_process_gives_the_same(whole: Run) -> None:
    """As pickled for workers, after it was used: with behaviour model and ensemble."""
    task, placed = evidence_task(), list(enumerate(COHORT))
    here = rows(task.answer(placed[:2]))
    assert rows(pickle.loads(pickle.dumps(task)).answer(placed[:2])) == here
    expected = whole.table().drop("stats").to_dicts()[:2]
    assert [{name: row[name] for name in expected[0]} for row in here] == expected


def test_what_is_solved_together_as_on_a_gpu_is_solved_alone(whole: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    task, placed = evidence_task(), list(enumerate(COHORT))
    monkeypatch.setattr(Task, "_is_here", property(lambda _: False))
    together = rows(task.answer(placed))
    model, support = task._there
    assert model is not task.model
    assert support is not task._support
    assert task._moved(task._problem(COHORT[0])).support is support
    for alone, row in zip(whole.table().to_dicts(), together, strict=True):
        assert row["outcome"] == pytest.approx(alone["outcome"])
        for name in ("status", "actions", "verdict", "warnings"):
            assert row[name] == alone[name]
        found, wanted = row["evidence"], alone["evidence"]
        assert found["refits"]["steps"] == wanted["refits"]["steps"]
        assert [one["flags"] for one in found["support"]["steps"]] == [
            one["flags"] for one in wanted["support"]["steps"]
        ]
        for one, other in zip(found["sensitivity"]["steps"], wanted["sensitivity"]["steps"], strict=True):
            assert one["undone_by"] == pytest.approx(other["undone_by"])


def test_limits_hold_for_every_refit() -> None:
    limited = replace(evidence_task(), query=ASKED.with_changes(limits=Limits(seconds=0.0)))
    problem = asked_of(0)
    evidence = limited._examined(problem.with_query(limits=Limits(seconds=0.0)), ifonly.solve(problem)).evidence
    assert evidence.refits is not None
    assert evidence.refits.unsolved == 3, "none is proven"
    assert all(step.of == 0 for step in evidence.refits.steps or ())


@pytest.mark.parametrize("kind", [Problem, EnsembleProblem])
def test_a_problem_that_was_moved_is_the_same_one(kind: type[Problem] | type[EnsembleProblem]) -> None:
    supports = [BEHAVIOUR.with_threshold(0.05, MODEL) for _ in range(2)]
    rules = ifonly.Constraints(max_jump=2)
    problem = kind.from_episode(COHORT[1], MODEL, Query(REWARD, 2, constraints=rules), support=supports[0])
    copy = small_ensemble(COHORT).for_search()
    moved = problem.on("cpu", copy, support=supports[1])
    assert moved.support is supports[1]
    assert moved.models == (tuple(copy.members) if kind is EnsembleProblem else (copy,))
    assert problem.on("cpu", copy).support is supports[0]
    here, there = ifonly.solve(problem), ifonly.solve(moved)
    assert torch.equal(torch.tensor(here.actions), torch.tensor(there.actions))
    assert here.outcome == there.outcome


def test_a_single_model_is_told_about_only_where_something_is_asked_or_known(tmp_path: Path) -> None:
    cohort = replace(COHORT, schema=replace(COHORT.schema, scores=()))  # of which organs have nothing to say
    model = small_model(cohort)
    plain = solve_small(cohort, model, tmp_path / "plain")
    assert plain.table()["verdict"].to_list() == ["not examined"] * 5
    model.standing = replace(FAILING, verdict="warn")
    checked = solve_small(cohort, model, tmp_path / "checked").table()
    assert checked["verdict"].to_list() == ["uncertain"] * 5
    assert checked["warnings"].to_list() == [["model check"]] * 5
    again = solve_small(cohort, model, tmp_path / "plain")
    assert again.check == model.standing, "the newest check is kept"
    assert (
        without_seconds(again)
        .drop("evidence", "verdict", "warnings")
        .equals(without_seconds(plain).drop("evidence", "verdict", "warnings"))
    )
    model.standing = None
    assert solve_small(cohort, model, tmp_path / "plain").check == again.check


def test_rows_that_are_older_than_the_check_tell_it_too(tmp_path: Path) -> None:
    model = small_ensemble(COHORT)
    before = solve_small(COHORT, model, tmp_path / "run").table()
    assert before["evidence"].struct.field("check").null_count() == 5
    for verdict in ("warn", "pass", "fail"):
        model.standing = replace(FAILING, verdict=verdict)
        query = QUERY.with_changes(allow_failed_model=verdict == "fail")
        if verdict == "fail":  # permission is part of the query
            before = solve_small(COHORT, small_ensemble(COHORT), tmp_path / "fail", query=query).table()
        run = solve_small(COHORT, model, tmp_path / ("fail" if verdict == "fail" else "run"), query=query)
        table = run.table()
        extra = [] if verdict == "pass" else ["model check"]
        assert table["warnings"].to_list() == [[*extra, *older] for older in before["warnings"]]
        for row in table.iter_rows(named=True):
            result = run.result(row["episode"])
            assert result.evidence.check == model.standing
            assert result.evidence.verdict.value == row["verdict"], "the table's words are those of the evidence"
            assert [warning.code.value for warning in result.evidence.warnings] == row["warnings"]
        told = ("evidence", "verdict", "warnings")
        assert without_clock(table).drop(told).equals(without_clock(before).drop(told))


def test_a_failed_model_needs_permission_which_the_run_remembers(tmp_path: Path) -> None:
    model = small_model(COHORT)
    model.standing = FAILING
    with pytest.raises(FailedModelError, match=r"noise lasts from step.*allow_failed_model=True, --allow-failed-model"):
        solve_small(COHORT, model, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run = solve_small(COHORT, model, tmp_path / "run", query=QUERY.with_changes(allow_failed_model=True))
    assert run.check == FAILING
    assert run.query.allow_failed_model
    assert run.table()["verdict"].to_list() == ["not believable"] * 5
    with pytest.raises(FailedModelError):
        solve_small(COHORT, model, tmp_path / "run", force=True)
    assert load_run(tmp_path / "run").is_finished


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"objective": "worst"}, "single model has no refits"),
        ({"each_refit": True}, "single model has no refits"),
        ({"min_support": 0.1}, "takes a behaviour model"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_refused_at_once(tmp_path: Path, changes: dict, named: str) -> None:
    with pytest.raises(InputError, match=named):
        solve_small(COHORT, small_model(COHORT), tmp_path / "run", query=QUERY.with_changes(**changes))
    assert not (tmp_path / "run").exists()


def test_settings_that_contradict_each_other(tmp_path: Path) -> None:
    query = QUERY.with_changes(each_refit=True)
    with pytest.raises(InputError, match="'greedy' proves nothing"):
        solve_small(COHORT, MODEL, tmp_path / "run", query=query, solver=Greedy())


@pytest.mark.parametrize("error", [InputError("there is no prior"), RuntimeError("a secret value: 3.5")])
def test_an_answer_that_cannot_be_examined_is_still_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    for name in ("examine", "examine_all"):
        monkeypatch.setattr(task, name, fail)
    model = small_model(COHORT)
    model.standing = replace(FAILING, verdict="warn")
    run = solve_small(COHORT, model, tmp_path, query=QUERY.with_changes(sensitivity=True))
    assert run.table()["status"].unique().to_list() == ["optimal"]
    reason = "there is no prior" if isinstance(error, InputError) else "unexpected RuntimeError"
    changed = [row for row in run.table().iter_rows(named=True) if row["changes"]]
    assert changed
    for row in changed:
        assert row["warnings"] == ["model check", "could not be examined"]
        assert [str(failure.reason) for failure in run.result(row["episode"]).evidence.failures] == [reason]


def test_runs_of_other_versions_are_refused(tmp_path: Path) -> None:
    run = solve_small(COHORT, small_model(COHORT), tmp_path / "run")
    (run.folder / "run.json").write_text(json.dumps(run.manifest | {"version": 2}))
    with pytest.raises(StoreError, match=r"version 2; ifonly .* reads version 5"):
        load_run(run.folder)
