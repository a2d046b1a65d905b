"""Cohort runs in one process: what the table says, and that nothing is lost, repeated or mixed up."""

import errno
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from small_runs import HERE, QUERY, cohort_with, small_cohort, small_model, solve_small, without_clock, without_seconds

import ifonly
from ifonly.errors import InputError, SchemaMismatchError, StoreError
from ifonly.journal import line_of
from ifonly.progress import Tick
from ifonly.query import Limits, Query
from ifonly.records import to_plain
from ifonly.result import Certificate, Status, Thresholds
from ifonly.result.table import COLUMNS, to_row
from ifonly.runs import RunSettings, load_run, solve_cohort
from ifonly.runs.folder import opened
from ifonly.runs.task import Task
from ifonly.search.base import Solution, Solver
from ifonly.search.heuristics import Greedy
from ifonly.testing.instances import random_problem

COHORT = small_cohort()
MODEL = small_model(COHORT)


class StopError(Exception):
    pass


def stop_at(rows: int):
    """Progress that stops the run once so many rows are written."""

    def progress(tick: Tick) -> None:
        if tick.done >= rows:
            raise StopError

    return progress


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory):
    """A run that nothing disturbed, not to be altered."""
    return solve_small(COHORT, MODEL, tmp_path_factory.mktemp("runs") / "whole")


def test_every_row_is_what_solve_gives(whole) -> None:
    table = whole.table()
    assert table.schema == COLUMNS
    assert tuple(table["episode"]) == COHORT.ids
    for row, episode in zip(table.iter_rows(named=True), COHORT, strict=True):
        problem = ifonly.Problem.from_episode(episode, MODEL.for_search(), QUERY)
        solved = ifonly.solve(problem)
        solved = replace(solved, evidence=ifonly.examine(problem, solved))
        expected = to_row(solved)
        assert row | {"stats": None} == expected | {"stats": None}
        assert row["stats"]["nodes_expanded"] == expected["stats"]["nodes_expanded"]
        assert row["status"] == "optimal"
        again = whole.result(episode.id)
        assert again.own_part() | {"stats": None} == solved.own_part() | {"stats": None}
        assert again.provenance.query == QUERY
        assert row["outcome"] == pytest.approx(ifonly.solve(problem, ifonly.Exhaustive()).outcome)


def test_the_manifest_says_what_was_asked(whole) -> None:
    manifest = json.loads((whole.folder / "run.json").read_text())
    assert manifest == whole.manifest
    assert manifest["format"] == "ifonly.run"
    assert manifest["state"] == "finished"
    assert manifest["counts"] == whole.counts == {"optimal": 8}
    assert manifest["query"] == QUERY.to_dict()
    assert whole.query == QUERY
    assert manifest["support"] is None
    assert manifest["examination"] == {"behaviour": None, "distances": False, "thresholds": to_plain(Thresholds())}
    assert manifest["model_check"] is None
    assert manifest["solver"]["name"] == "branch-and-bound"
    assert manifest["model"]["fingerprint"] == manifest["model_fingerprint"] == MODEL.fingerprint()
    assert manifest["cohort"] == {"episodes": 8, "fingerprint": COHORT.fingerprint()}
    assert ifonly.Schema.from_dict(manifest["schema"]).fingerprint == COHORT.schema.fingerprint
    assert load_run(whole.folder).manifest == manifest
    assert repr(whole) == f"Run({str(whole.folder)!r}, 8 episodes: 8 optimal)"


def test_a_finished_run_does_nothing(whole, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(whole.folder)
    monkeypatch.setattr(Task, "answer", lambda *_: pytest.fail("solved again"))
    again = solve_small(COHORT, MODEL, whole.folder)
    assert contents(whole.folder) == before
    assert again.table().equals(whole.table())


@pytest.mark.parametrize("rows", [0, 1, 3, 7, 8])
def test_a_stopped_run_goes_on_where_it_was(whole, tmp_path: Path, rows: int) -> None:
    diary = tmp_path / "diary"
    model, settings = small_model(COHORT, diary=diary), replace(HERE, chunk=1)
    out = tmp_path / "run"
    with pytest.raises(StopError):
        solve_small(COHORT, model, out, settings, progress=stop_at(rows))
    begun = load_run(out)
    assert not begun.is_finished
    assert begun.counts == ({"optimal": rows} if rows else {})
    kept = begun.table()
    assert kept.height == rows
    assert list(kept["episode"]) == sorted(kept["episode"])
    done = whole.table().filter(pl.col("episode").is_in(kept["episode"].to_list()))
    assert without_clock(kept).equals(without_clock(done))
    before = diary.read_text().count("\n") if diary.exists() else 0
    ticks: list[Tick] = []
    finished = solve_small(COHORT, model, out, settings, progress=ticks.append)
    assert before + 8 - rows == diary.read_text().count("\n")
    assert [tick.done for tick in ticks] == list(range(rows, 9))
    assert ticks[-1] == Tick("cohort", 8, 8, {"solved": 8, "limited": 0, "failed": 0})
    assert without_seconds(finished).equals(without_seconds(whole))
    timed = finished.table().filter(pl.col("episode").is_in(kept["episode"].to_list()))
    assert timed["stats"].equals(kept["stats"]), "finished episodes were solved again"


def test_a_torn_last_line_costs_one_row(whole, tmp_path: Path) -> None:
    rows = (whole.folder / "rows.jsonl").read_bytes()
    manifest = {key: value for key, value in whole.manifest.items() if key not in ("counts", "table")}
    for size in (len(rows) - 1, len(rows) - 300, rows.index(b"\n") + 1, 40):
        out = tmp_path / str(size)
        out.mkdir()
        (out / "run.json").write_text(json.dumps(manifest | {"state": "running"}))
        (out / "rows.jsonl").write_bytes(rows[:size])
        (out / ".run.json-0123").write_text("left by a process that was killed")
        assert load_run(out).table().height == rows[:size].count(b"\n")
        assert without_seconds(solve_small(COHORT, MODEL, out)).equals(without_seconds(whole))
        assert (out / "rows.jsonl").read_bytes().startswith(rows[: rows[:size].rfind(b"\n") + 1])
        assert set(contents(out)) == {"run.json", "rows.jsonl", "results.parquet"}


def test_rows_of_strangers_are_refused(whole, tmp_path: Path) -> None:
    with pytest.raises(StopError):
        solve_small(COHORT, MODEL, tmp_path / "run", progress=stop_at(4))
    journal = tmp_path / "run" / "rows.jsonl"
    lines = journal.read_text().splitlines()
    row = json.loads(lines[1]) | {"episode": "somebody"}
    journal.write_text("\n".join([lines[0], line_of(json.dumps(row)).decode().strip(), *lines[2:], ""]))
    with pytest.raises(StoreError, match=r"rows\.jsonl, line 2.*delete that line"):
        solve_small(COHORT, MODEL, tmp_path / "run")
    journal.write_text("\n".join([lines[0], *lines[2:], ""]))
    assert without_seconds(solve_small(COHORT, MODEL, tmp_path / "run")).equals(without_seconds(whole))


def test_an_altered_row_is_named_set_aside_and_solved_again(whole, tmp_path: Path) -> None:
    with pytest.raises(StopError):
        solve_small(COHORT, MODEL, tmp_path / "run", progress=stop_at(4))
    journal = tmp_path / "run" / "rows.jsonl"
    lines = journal.read_text().splitlines()
    altered = re.sub(r'("outcome": -?)(\d)', lambda found: f"{found[1]}{(int(found[2]) + 1) % 10}", lines[1], count=1)
    assert altered != lines[1]
    assert json.loads(altered)["episode"] == json.loads(lines[1])["episode"]
    journal.write_text("\n".join([lines[0], altered, *lines[2:], ""]))
    assert load_run(tmp_path / "run").table().height == 3
    found = solve_small(COHORT, MODEL, tmp_path / "run")
    assert without_seconds(found).equals(without_seconds(whole))
    assert found.damaged_lines == [2]
    assert journal.read_text().splitlines()[1] == altered, "it is kept to be looked at"
    assert load_run(tmp_path / "run").damaged_lines == [2]
    assert solve_small(COHORT, MODEL, tmp_path / "run").damaged_lines == [2]


OTHERS = {
    "query.max_changes: 2 there, 1 now": {"query": Query(QUERY.reward, 1)},
    "query.reward": {"query": Query(ifonly.rewards.Linear({"SOFA": -2.0}), 2)},
    "query.change_cost": {"query": QUERY.with_changes(change_cost=0.5)},
    "query.constraints": {"query": QUERY.with_changes(constraints=ifonly.Constraints(locked=[0]))},
    "solver.name": {"solver": Greedy()},
    "query.limits.nodes: null there, 9 now": {"query": QUERY.with_changes(limits=Limits(nodes=9))},
    "cohort.episodes: 8 there, 2 now": {"settings": replace(HERE, episodes=COHORT.ids[:2])},
    "cohort.fingerprint": {"cohort": small_cohort(seed=4)},
    "model.fingerprint": {"model": small_model(COHORT, seed=1)},
}


@pytest.mark.parametrize("named", OTHERS)
def test_a_folder_of_another_query_is_refused_and_left_alone(whole, named: str) -> None:
    before = contents(whole.folder)
    asked = {"cohort": COHORT, "model": MODEL, "query": QUERY, "settings": HERE} | OTHERS[named]
    with pytest.raises(StoreError, match=r"another run.*another folder") as caught:
        solve_cohort(asked.pop("cohort"), asked.pop("model"), asked.pop("query"), out=whole.folder, **asked)
    assert named in str(caught.value)
    assert contents(whole.folder) == before


def test_a_place_that_is_no_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(StoreError, match=r"holds notes and no run.json, so it is no run"):
        solve_small(COHORT, MODEL, tmp_path)
    with pytest.raises(StoreError, match="is a file"):
        solve_small(COHORT, MODEL, tmp_path / "notes")
    with pytest.raises(StoreError, match=r"no run\.json"):
        load_run(tmp_path)
    with pytest.raises(StoreError, match=r"holds notes and no run.json, so it is no run"):
        solve_small(COHORT, MODEL, tmp_path, force=True)
    assert contents(tmp_path) == {"notes": b"mine"}
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(StoreError, match="not valid JSON"):
        load_run(tmp_path)
    (tmp_path / "run.json").write_text('{"format": "ifonly.run", "version": 99}')
    with pytest.raises(StoreError, match="version 99"):
        load_run(tmp_path)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    refused = []

    def progress(tick: Tick) -> None:
        for force in (False, True):
            with pytest.raises(StoreError, match="another process works on this run"):
                solve_small(COHORT, MODEL, tmp_path, force=force)
            refused.append(tick.done)
        assert load_run(tmp_path).table().height == tick.done

    assert solve_small(COHORT, MODEL, tmp_path, progress=progress).is_finished
    assert refused


def test_a_selection_keeps_the_order_of_the_cohort(whole, tmp_path: Path) -> None:
    ids = [COHORT.ids[5], COHORT.ids[0], COHORT.ids[2]]
    run = solve_small(COHORT, MODEL, tmp_path / "some", replace(HERE, episodes=ids))
    expected = without_seconds(whole).filter(pl.col("episode").is_in(ids))
    assert without_seconds(run).equals(expected)
    with pytest.raises(InputError, match="more than once"):
        solve_small(COHORT, MODEL, tmp_path / "twice", replace(HERE, episodes=[ids[0], ids[0]]))
    with pytest.raises(InputError, match="no episode 'nobody'"):
        solve_small(COHORT, MODEL, tmp_path / "nobody", replace(HERE, episodes=["nobody"]))


def test_a_bad_episode_costs_no_other(tmp_path: Path) -> None:
    cohort = cohort_with(3, 6, 4, 7, 5)
    query = QUERY.with_changes(constraints=ifonly.Constraints(locked=[3]))
    model = small_model(cohort, trouble={6: "raise", 7: "nan"})
    run = solve_small(cohort, model, tmp_path, query=query)
    table = run.table()
    assert table["status"].to_list() == ["failed", "failed", "optimal", "failed", "optimal"]
    short, raising, fine, impossible, _ = table["reason"].to_list()
    assert (short["code"], raising) == ("refused", {"code": "unexpected", "detail": "RuntimeError"})
    assert "locked" in short["detail"]
    assert fine is None
    assert "episode 'e3', step 0: the model finds no finite noise" in impossible["detail"]
    failed = table.filter(pl.col("status") == "failed")
    assert failed["horizon"].to_list() == [3, 6, 7]
    assert failed["subject"].to_list() == ["s0", "s1", "s3"]
    assert all(failed[name].null_count() == 3 for name in ("outcome", "actions", "states", "frontier", "stats"))
    with pytest.raises(InputError, match="'e1' has no answer; unexpected RuntimeError"):
        run.result("e1")
    clean = solve_small(cohort, small_model(cohort), tmp_path, query=query)
    assert clean.table()["status"].to_list() == table["status"].to_list(), "a finished run does nothing"


def test_limits_give_brackets_and_no_gaps(tmp_path: Path) -> None:
    for name, limits, status in (
        ("nodes", Limits(nodes=1), "node limit"),
        ("seconds", Limits(seconds=0.0), "time limit"),
    ):
        run = solve_small(COHORT, MODEL, tmp_path / name, query=QUERY.with_changes(limits=limits))
        table = run.table()
        assert run.counts == {status: 8}
        for row in table.iter_rows(named=True):
            assert row["observed_outcome"] <= row["outcome"]
            assert row["upper_bound"] is None or row["outcome"] <= row["upper_bound"]  # None: no useful bound
            assert len(row["actions"]) == row["horizon"]
    ticks: list[Tick] = []
    limited = QUERY.with_changes(limits=Limits(nodes=1))
    solve_small(COHORT, MODEL, tmp_path / "ticks", query=limited, progress=ticks.append)
    assert ticks[-1].figures == {"solved": 0, "limited": 8, "failed": 0}


class Interrupted(Solver):
    """Says that somebody pressed Ctrl-C when it solved an episode of four steps."""

    name = "interrupted"
    exact = False

    def search(self, problem, monitor) -> Solution:
        status = Status.INTERRUPTED if problem.horizon == 4 else Status.HEURISTIC
        return Solution(problem.observed_actions, status, np.inf, Certificate("none", proven=False))

    def settings(self) -> dict[str, object]:
        return {}


@pytest.mark.parametrize("solver", [Interrupted(), None], ids=["solver", "model"])
def test_an_interrupted_episode_is_no_finished_one(tmp_path: Path, solver: Solver | None) -> None:
    cohort = cohort_with(5, 4, 3)
    model = small_model(cohort, trouble={4: "interrupt"})
    with pytest.raises(KeyboardInterrupt):
        solve_small(cohort, model, tmp_path, replace(HERE, chunk=1), solver=solver)
    assert load_run(tmp_path).table()["episode"].to_list() == ["e0"]


def test_a_full_disk_while_the_table_is_written(whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(pl.DataFrame, "write_parquet", fail)
        with pytest.raises(StoreError, match=r"results\.parquet.*No space left.*Every row is kept"):
            solve_small(COHORT, MODEL, tmp_path)
    assert set(contents(tmp_path)) == {"run.json", "rows.jsonl"}
    monkeypatch.setattr(Task, "answer", lambda *_: pytest.fail("solved again"))
    assert without_seconds(solve_small(COHORT, MODEL, tmp_path)).equals(without_seconds(whole))


def test_a_damaged_table_is_made_again(whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = solve_small(COHORT, MODEL, tmp_path)
    table = tmp_path / "results.parquet"
    complete = table.read_bytes()
    monkeypatch.setattr(Task, "answer", lambda *_: pytest.fail("solved again"))
    for damage in (lambda: table.write_bytes(complete[:-9]), table.unlink):
        damage()
        with pytest.raises(StoreError, match="missing, cut off or altered"):
            run.table()
        run = solve_small(COHORT, MODEL, tmp_path)
        assert without_seconds(run).equals(without_seconds(whole))


def test_what_fails_for_every_episode_is_refused_at_once(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(InputError, match="'pain' is not a dynamic feature"):
        solve_cohort(COHORT, MODEL, Query(ifonly.minus("pain"), 1), out=out)
    with pytest.raises(SchemaMismatchError):
        solve_cohort(COHORT, random_problem(0).model, QUERY, out=out)
    with pytest.raises(InputError, match="solver 'magic' is unknown"):
        solve_cohort(COHORT, MODEL, QUERY.with_changes(solver="magic"), out=out)
    with pytest.raises(InputError, match="executor=3"):
        solve_small(COHORT, MODEL, tmp_path / "executor", executor=3)
    assert not out.exists()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"workers": 0}, "workers=0"),
        ({"chunk": True}, "chunk=True"),
        ({"episodes": "patient-00001"}, "list of ids"),
        ({"device": "abacus"}, "device='abacus': cannot be used here"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused(settings: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        RunSettings(**settings)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_cuda_is_refused() -> None:
    with pytest.raises(InputError, match=r"device='cuda': cannot be used here.*'cpu' always can"):
        RunSettings(device="cuda")


def test_solved_together_as_on_a_gpu_is_solved_alone() -> None:
    cohort = cohort_with(4, 6, 4, 7, 4)
    model = small_model(cohort, trouble={6: "raise", 7: "nan"}).for_search()
    task = Task(model, QUERY, ifonly.BranchAndBound())
    placed = list(enumerate(cohort))
    together = {answer.position: json.loads(answer.line) for answer in task._together(placed)}
    for answer in task.answer(placed):
        alone, row = json.loads(answer.line), together[answer.position]
        assert {"status", "reason", "actions", "episode"} <= alone.keys()
        for name in ("status", "reason", "actions", "episode", "changes"):
            assert row[name] == alone[name]
        assert row["outcome"] == pytest.approx(alone["outcome"])


def test_threads_are_given_back(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        solve_small(COHORT, MODEL, tmp_path, replace(HERE, episodes=COHORT.ids[:1]))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_folder_begun_and_left_before_its_manifest_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").touch()
    with opened(tmp_path, {"query": 1}) as folder:
        assert folder.manifest["state"] == "running"
