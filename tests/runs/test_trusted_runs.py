"""Runs that tell how far to trust their answers: panels, support, refits, failed models, and runs of version 1."""

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from ifonly.evidence.limits import in_force
from ifonly.runs.rows import COLUMNS, FIRST_COLUMNS, TRUST_COLUMNS, clipped_outcomes, row_of
from small_runs import (
    HERE,
    REWARD,
    small_behaviour,
    small_cohort,
    small_ensemble,
    small_model,
    solve_small,
    without_seconds,
)

import ifonly
from ifonly.errors import FailedModelError, InputError, StoreError
from ifonly.evidence import Examination, examine, limits
from ifonly.models.standing import Standing
from ifonly.problem import EnsembleProblem, Problem
from ifonly.query import Limits, Query
from ifonly.runs import Run, load_run
from ifonly.runs.task import Task
from ifonly.search.baselines import Greedy

COHORT = small_cohort(5)
MODEL = small_ensemble(COHORT).for_search()
BEHAVIOUR = small_behaviour(COHORT)
ASKED = replace(HERE, objective=0.5, behaviour=BEHAVIOUR, min_support=0.02, each_refit=True, sensitivity=True)
FAILING = Standing("fail", "fail: of 14 checks 2 failed", 60, "0123")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All that can be asked about trust, not to be altered."""
    return solve_small(COHORT, MODEL, tmp_path_factory.mktemp("trusted") / "run", ASKED)


def question(position: int) -> EnsembleProblem:
    support = BEHAVIOUR.with_threshold(0.02, MODEL)
    return EnsembleProblem.from_episode(COHORT[position], MODEL, Query(REWARD, 2, objective=0.5), support=support)


def test_rows_are_what_solve_and_examine_give(whole: Run) -> None:
    table = whole.table()
    assert table.schema == COLUMNS
    assert whole.counts == {"optimal": 5}
    assert table["changes"].sum() > 5, "nothing to examine"
    for position, row in enumerate(table.iter_rows(named=True)):
        problem = question(position)
        result = ifonly.solve(problem)
        trust = examine(problem, result, behaviour=BEHAVIOUR, each_refit=True, sensitivity=True)
        assert row | {"seconds": 0} == row_of(problem, result) | trust.to_row() | {"seconds": 0}
        assert set(trust.to_row()) == set(TRUST_COLUMNS)
        assert all(row[name] is not None for name in ("trust", "warnings", "refits_agree", "harmless_below"))
        assert len(row["refit_improvements"]) == 3
        for name in ("step_agreement", "change_support"):
            assert len(row[name]) == row["changes"]
        assert min(row["change_support"]) >= 0.02
        assert "member_outcomes" not in row["frontier"][0]


def test_clipped_outcomes_of_a_panel_are_the_objective_of_its_members(whole: Run) -> None:
    for goal in ("mean", "worst", 0.5):
        panel = EnsembleProblem.from_episode(COHORT[0], MODEL, Query(REWARD, 2, objective=goal))
        sequences = [COHORT[0].actions, np.full(panel.horizon, 24), np.full(panel.horizon, 7)]
        alone = np.array([clipped_outcomes(member, sequences) for member in panel.members])  # [M, 3]
        expected = {"mean": alone.mean(0), "worst": alone.min(0), 0.5: np.sort(alone, axis=0)[1]}[goal]
        assert clipped_outcomes(panel, sequences) == pytest.approx(expected.tolist())


def test_the_manifest_says_what_was_asked(whole: Run) -> None:
    asked = whole.manifest["question"]
    assert whole.manifest["version"] == 2
    assert asked["objective"] == 0.5
    assert asked["support"] == {"kind": "behaviour", "min_support": 0.02, "behaviour": BEHAVIOUR.fingerprint}
    assert asked["examination"] == Examination(BEHAVIOUR, each_refit=True, sensitivity=True).to_dict()
    assert whole.warning_limits == asked["examination"]["limits"] == in_force()
    assert whole.manifest["model"]["fingerprint"] == MODEL.fingerprint()
    assert whole.manifest["model_check"] is None


OTHERS = {
    "question.objective: 0.5 there, null now": {"objective": None},
    "question.support.min_support: 0.02 there, 0.03 now": {"min_support": 0.03},
    "question.support: {": {"min_support": None},
    "question.examination.each_refit: true there, false now": {"each_refit": False},
    "question.examination.sensitivity": {"sensitivity": False},
    "question.examination.distances: true there, false now": {"behaviour": replace(BEHAVIOUR, neighbours=None)},
}


@pytest.mark.parametrize("named", OTHERS)
def test_another_question_is_refused(whole: Run, named: str) -> None:
    with pytest.raises(StoreError, match="another run") as caught:
        solve_small(COHORT, MODEL, whole.folder, replace(ASKED, **OTHERS[named]))
    assert named in str(caught.value)


def test_a_run_that_warned_by_other_limits_is_another_one(whole: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FAR", 50.0)
    with pytest.raises(
        StoreError, match=r"another run \(question\.examination\.limits\.far: [0-9.]+ there, 50.0 now\)"
    ):
        solve_small(COHORT, MODEL, whole.folder, ASKED)
    assert whole.warning_limits["far"] != 50.0


def test_a_finished_run_does_nothing(whole: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in whole.folder.iterdir()}
    monkeypatch.setattr(Task, "answer", lambda *_: pytest.fail("solved again"))
    assert solve_small(COHORT, MODEL, whole.folder, ASKED).table().equals(whole.table())
    assert {path.name: path.read_bytes() for path in whole.folder.iterdir()} == before


def trusted_task() -> Task:
    asked = {"objective": 0.5, "min_support": 0.02, "examination": ASKED.examination}
    return Task(MODEL, REWARD, 2, None, 0.0, ifonly.BranchAndBound(), Limits(), "cpu", **asked)


def rows(answers) -> list[dict]:
    ordered = sorted(answers, key=lambda answer: answer.position)
    return [json.loads(answer.line) | {"seconds": 0} for answer in ordered]


def test_a_task_that_was_sent_to_another_process_gives_the_same(whole: Run) -> None:
    """As pickled for workers, after it was used: with behaviour model and ensemble."""
    task, placed = trusted_task(), list(enumerate(COHORT))
    here = rows(task.answer(placed[:2]))
    assert rows(pickle.loads(pickle.dumps(task)).answer(placed[:2])) == here
    expected = whole.table().drop("seconds").to_dicts()[:2]
    assert [{name: row[name] for name in expected[0]} for row in here] == expected


def test_what_is_solved_together_as_on_a_gpu_is_solved_alone(whole: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    task, placed = trusted_task(), list(enumerate(COHORT))
    monkeypatch.setattr(Task, "_is_here", property(lambda _: False))
    together = rows(task.answer(placed))
    assert task._model_there is not task.model
    assert task._support_there is not task._support
    assert task._moved(task._problem(COHORT[0])).support is task._support_there
    for alone, row in zip(whole.table().to_dicts(), together, strict=True):
        assert row["outcome"] == pytest.approx(alone["outcome"])
        assert row["undone_by"] == pytest.approx(alone["undone_by"])
        for name in ("status", "actions", "refits_agree", "step_agreement", "unsupported_steps"):
            assert row[name] == alone[name]


def test_limits_hold_for_every_refit() -> None:
    problem, task = question(0), replace(trusted_task(), limits=Limits(seconds=0.0))
    row = task._trust(problem, ifonly.solve(problem))
    assert row["refits_agree"] is not None
    assert row["step_agreement"] is None, "none is proven"
    assert row["refits_unsolved"] == 3


@pytest.mark.parametrize("kind", [Problem, EnsembleProblem])
def test_a_question_that_was_moved_is_the_same_one(kind: type[Problem] | type[EnsembleProblem]) -> None:
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
    model = small_model(COHORT)
    plain = solve_small(COHORT, model, tmp_path / "plain").table()
    assert all(plain[name].null_count() == plain.height for name in TRUST_COLUMNS)
    model.standing = replace(FAILING, verdict="warn")
    checked = solve_small(COHORT, model, tmp_path / "checked").table()
    assert checked["trust"].to_list() == ["the model's check warns"] * 5
    assert checked["refits_agree"].null_count() == 5
    assert without_seconds(solve_small(COHORT, model, tmp_path / "plain")).equals(plain.drop("seconds"))
    known = load_run(tmp_path / "plain").manifest["model_check"]
    assert known["verdict"] == "warn", "the newest check is kept"
    model.standing = None
    solve_small(COHORT, model, tmp_path / "plain")
    assert load_run(tmp_path / "plain").manifest["model_check"] == known


def test_rows_that_are_older_than_the_check_tell_it_too(tmp_path: Path) -> None:
    model = small_ensemble(COHORT)
    before = solve_small(COHORT, model, tmp_path / "run").table()
    assert all(words.startswith("the model was not checked; ") for words in before["trust"])
    for verdict, said in (("warn", "the model's check warns; "), ("pass", "")):
        model.standing = replace(FAILING, verdict=verdict)
        table = solve_small(COHORT, model, tmp_path / "run").table()
        assert table["trust"].to_list() == [
            words.replace("the model was not checked; ", said) for words in before["trust"]
        ]
        extra = ["the model's check warns (fail: of 14 checks 2 failed)"] if verdict == "warn" else []
        assert table["warnings"].to_list() == [[*extra, *older] for older in before["warnings"]]
        kinds = ["the model's check"] if verdict == "warn" else []
        assert table["warning_kinds"].to_list() == [[*kinds, *older] for older in before["warning_kinds"]]
        assert table.drop("trust", "warnings", "warning_kinds").equals(
            before.drop("trust", "warnings", "warning_kinds")
        )
    (tmp_path / "run" / "results.parquet").unlink()
    solve_small(COHORT, model, tmp_path / "run")  # makes it anew, from rows that knew of no check
    assert pl.read_parquet(tmp_path / "run" / "results.parquet").equals(table)


def test_a_failed_model_needs_permission_which_the_run_remembers(tmp_path: Path) -> None:
    model = small_model(COHORT)
    model.standing = FAILING
    with pytest.raises(FailedModelError, match=r"2 failed.*allow_failed_model=True, --allow-failed-model"):
        solve_small(COHORT, model, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run = solve_small(COHORT, model, tmp_path / "run", replace(HERE, allow_failed_model=True))
    assert run.manifest["model_check"] == FAILING.to_dict()
    assert run.manifest["model_check"]["used_although_failed"] is True
    for row in run.table().iter_rows(named=True):
        assert "the model failed its check" in row["trust"]
        assert "2 failed" in row["warnings"][0]
    with pytest.raises(FailedModelError):
        solve_small(COHORT, model, tmp_path / "run", force=True)
    assert load_run(tmp_path / "run").is_finished


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"objective": "worst"}, "single model has no refits"),
        ({"each_refit": True}, "single model has no refits"),
        ({"objective": "median"}, "choose 'mean', 'worst'"),
        ({"behaviour": BEHAVIOUR, "min_support": 1.5}, "must be a probability"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_refused_at_once(tmp_path: Path, settings: dict, named: str) -> None:
    with pytest.raises(InputError, match=named):
        solve_small(COHORT, small_model(COHORT), tmp_path / "run", replace(HERE, **settings))
    assert not (tmp_path / "run").exists()


def test_settings_that_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a behaviour model"):
        replace(HERE, min_support=0.1)
    with pytest.raises(InputError, match="behaviour='folder'"):
        replace(HERE, behaviour="folder")
    with pytest.raises(InputError, match="'greedy' proves nothing"):
        solve_small(COHORT, MODEL, tmp_path / "run", replace(HERE, solver=Greedy(), each_refit=True))


@pytest.mark.parametrize("error", [InputError("there is no prior"), RuntimeError("a secret value: 3.5")])
def test_an_answer_that_cannot_be_examined_is_still_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Examination, "of", fail)
    model = small_model(COHORT)
    model.standing = replace(FAILING, verdict="warn")
    table = solve_small(COHORT, model, tmp_path, replace(HERE, sensitivity=True)).table()
    assert table["status"].unique().to_list() == ["optimal"]
    words = "there is no prior" if isinstance(error, InputError) else "unexpected RuntimeError"
    assert table["trust"].unique().to_list() == [f"the model's check warns; could not be examined: {words}"]
    assert all(warnings[1:] == [f"could not be examined: {words}"] for warnings in table["warnings"].to_list())
    assert all(warnings[0].startswith("the model's check warns (") for warnings in table["warnings"].to_list())


@pytest.fixture
def first(tmp_path: Path) -> tuple[Path, Run]:
    """A finished run as version 1 wrote it, and as it is written now."""
    now = solve_small(COHORT, small_model(COHORT), tmp_path / "now")
    folder = Path(shutil.copytree(now.folder, tmp_path / "then"))
    now.table().select(FIRST_COLUMNS.names()).write_parquet(folder / "results.parquet")
    table = {"file": "results.parquet", **_size_and_checksum(folder / "results.parquet")}
    manifest = json.loads((folder / "run.json").read_text()) | {"version": 1, "table": table}
    del manifest["model_check"]
    for name in ("objective", "support", "examination"):
        del manifest["question"][name]
    (folder / "run.json").write_text(json.dumps(manifest))
    lines = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    kept = [{name: line[name] for name in ("position", *FIRST_COLUMNS)} for line in lines]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in kept))
    return folder, now


def _size_and_checksum(file: Path) -> dict[str, object]:
    return {"bytes": file.stat().st_size, "sha256": ifonly.files.sha256_of(file)}


def test_runs_of_version_1_are_read_and_left_alone(first, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, now = first
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    run = load_run(folder)
    assert run.table().equals(now.table())
    assert run.manifest["question"] == now.manifest["question"]
    monkeypatch.setattr(Task, "answer", lambda *_: pytest.fail("solved again"))
    assert solve_small(COHORT, small_model(COHORT), folder).table().equals(now.table())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_run_that_version_1_began_goes_on(first) -> None:
    folder, now = first
    manifest = json.loads((folder / "run.json").read_text())
    kept = {key: value for key, value in manifest.items() if key not in ("counts", "table")}
    (folder / "run.json").write_text(json.dumps(kept | {"state": "running"}))
    (folder / "results.parquet").unlink()
    lines = (folder / "rows.jsonl").read_text().splitlines(keepends=True)
    (folder / "rows.jsonl").write_text("".join(lines[:2]))
    begun = load_run(folder).table()
    assert begun.schema == COLUMNS
    assert begun.height == 2
    finished = solve_small(COHORT, small_model(COHORT), folder)
    assert without_seconds(finished).equals(without_seconds(now))
    assert json.loads((folder / "run.json").read_text())["version"] == 2
    assert pl.read_parquet(folder / "results.parquet").schema == COLUMNS
