"""Runs with real processes, real signals and real limits: killed at any time, a run goes on where it was."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from effort import LONG as EVERYTHING
from effort import long
from small_runs import HERE, cohort_with, small_cohort, small_model, solve_small, without_seconds

from ifonly.errors import IfonlyError, StoreError
from ifonly.runs import RunSettings, dispatch, load_run
from ifonly.runs.workers import MOST_FAILED_STARTS, LocalWorkers

SCRIPT = """
import sys
from pathlib import Path
from small_runs import RunSettings, small_cohort, small_model, solve_small
from ifonly.runs.workers import LocalWorkers

if __name__ == "__main__":
    workers, pause, out, diary = sys.argv[1:]
    cohort = small_cohort(24)
    model = small_model(cohort, pause=float(pause), diary=Path(diary), lively=LIVELY)
    staff = LocalWorkers(1) if workers == "one beside" else None
    settings = RunSettings(workers=1 if staff else int(workers), chunk=1)
    solve_small(cohort, model, Path(out), settings, executor=staff)
"""
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
}
LONG = 60.0
"""Seconds to wait for what takes a few at most."""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.replace("LIVELY", "None"))
    return path


def wait_for(what, message: str) -> None:
    end = time.monotonic() + LONG
    while not what():
        assert time.monotonic() < end, message
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def rows_in(out: Path) -> int:
    journal = out / "rows.jsonl"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory):
    cohort = small_cohort(24)
    return solve_small(cohort, small_model(cohort), tmp_path_factory.mktemp("runs") / "whole")


@long
def test_two_workers_make_the_same_table(whole, tmp_path: Path) -> None:
    cohort = small_cohort(24)
    diary = tmp_path / "diary"
    model = small_model(cohort, diary=diary)
    run = solve_small(cohort, model, tmp_path / "run", RunSettings(workers=2, chunk=2))
    assert without_seconds(run).equals(without_seconds(whole))
    pids = diary.read_text().split()
    assert len(pids) == 24
    assert len(set(pids)) <= 2
    assert str(os.getpid()) not in pids
    wait_for(lambda: not any(is_alive(int(pid)) for pid in pids), "workers are left behind")


@long
def test_workers_that_die_cost_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MOST_DEATHS", 2)  # each death costs a process, and seconds
    cohort = cohort_with(3, 6, 4, 7, 5)
    model = small_model(cohort, trouble={6: "die", 7: "die once"}, diary=tmp_path / "diary")
    run = solve_small(cohort, model, tmp_path / "run", RunSettings(workers=2))
    table = run.table()
    assert table["status"].to_list() == ["optimal", "failed", "optimal", "optimal", "optimal"]
    assert "2 processes died while solving it" in table["reason"][1]["detail"]
    fine = [position for position in range(5) if position != 1]
    clean = solve_small(cohort, small_model(cohort), tmp_path / "clean")
    assert without_seconds(run)[fine].equals(without_seconds(clean)[fine])


@long
def test_killed_parent_while_workers_are_deep_in_a_search(whole, tmp_path: Path, script: Path) -> None:
    out, diary = tmp_path / "run", tmp_path / "diary"
    # The fifth and the sixth episode take longer than this test: workers would look up only when they are done.
    script.write_text(SCRIPT.replace("LIVELY", "4"))
    process = subprocess.Popen([sys.executable, script, "2", "0", out, diary], env=ENVIRONMENT)
    wait_for(lambda: rows_in(out) == 4 and diary.read_text().count("\n") == 6, "nothing was solved")
    with pytest.raises(StoreError, match="another process works on this run"):
        solve_small(small_cohort(24), small_model(small_cohort(24)), out)
    process.kill()
    process.wait()
    workers = {int(pid) for pid in diary.read_text().split()}
    assert process.pid not in workers
    try:
        wait_for(lambda: not any(is_alive(pid) for pid in workers), "workers outlive their parent")
    finally:
        for pid in filter(is_alive, workers):
            os.kill(pid, signal.SIGKILL)
    kept = load_run(out).table()
    assert kept.height == 4
    second = tmp_path / "second"
    resumed = solve_small(small_cohort(24), small_model(small_cohort(24), diary=second), out)
    assert without_seconds(resumed).equals(without_seconds(whole))
    assert len(second.read_text().split()) == 24 - kept.height
    again = resumed.table().join(kept.select("episode"), on="episode", how="semi")
    assert again["stats"].equals(kept["stats"]), "finished episodes were solved again"


def kill_at_start(monkeypatch: pytest.MonkeyPatch, count: int) -> list[int]:
    """Kill the first worker processes, so many, as soon as they are started."""
    start, killed = LocalWorkers._start, []

    def kill(workers: LocalWorkers, worker):
        pool = start(workers, worker)
        if len(killed) < count:
            (pid,) = pool._processes
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)
        return pool

    monkeypatch.setattr(LocalWorkers, "_start", kill)
    return killed


@long
def test_workers_killed_while_they_start_cost_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = small_cohort(4)
    killed = kill_at_start(monkeypatch, 2)  # one for each worker
    run = solve_small(cohort, small_model(cohort), tmp_path / "run", RunSettings(workers=2, chunk=4))
    assert len(killed) == 2
    expected = solve_small(cohort, small_model(cohort), tmp_path / "here")
    assert without_seconds(run).equals(without_seconds(expected))


def test_workers_that_never_start_end_the_run_and_blame_no_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = small_cohort(4)
    killed = kill_at_start(monkeypatch, 99)
    with pytest.raises(
        IfonlyError, match=f"{MOST_FAILED_STARTS} worker processes in a row ended as soon as they began"
    ):
        solve_small(cohort, small_model(cohort), tmp_path, RunSettings(workers=2, chunk=1))
    assert MOST_FAILED_STARTS <= len(killed) <= 2 * MOST_FAILED_STARTS
    assert load_run(tmp_path).counts == {}


@long
def test_full_disk(whole, tmp_path: Path, script: Path) -> None:
    out = tmp_path / "run"

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))

    done = subprocess.run(
        [sys.executable, script, "1", "0", out, tmp_path / "diary"],
        env=ENVIRONMENT,
        preexec_fn=small_disk,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "StoreError" in done.stderr
    assert "File too large" in done.stderr
    assert (out / "rows.jsonl").stat().st_size == 12_000
    kept = load_run(out).table()
    assert 0 < kept.height < 24
    diary = tmp_path / "second"
    resumed = solve_small(small_cohort(24), small_model(small_cohort(24), diary=diary), out)
    assert without_seconds(resumed).equals(without_seconds(whole))
    assert len(diary.read_text().split()) == 24 - kept.height


def test_ctrl_c_ends_workers_at_once(tmp_path: Path, script: Path) -> None:
    out, diary = tmp_path / "run", tmp_path / "diary"
    process = subprocess.Popen(
        [sys.executable, script, "2" if EVERYTHING else "one beside", "0.2", out, diary],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_for(lambda: rows_in(out) >= 2, "nothing was solved")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: parent and workers
    _, errors = process.communicate(timeout=LONG)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1, "workers complain"
    assert not any(is_alive(int(pid)) for pid in diary.read_text().split())
    kept = load_run(out)
    assert set(kept.counts) == {"optimal"}
    assert solve_small(small_cohort(24), small_model(small_cohort(24)), out, replace(HERE, chunk=5)).is_finished
    journal = [json.loads(line)["position"] for line in (out / "rows.jsonl").read_text().splitlines()]
    assert sorted(journal) == list(range(24))


@long
def test_a_script_without_a_guard_is_told_so(tmp_path: Path, script: Path) -> None:
    out = tmp_path / "run"
    one = script.read_text().replace("small_cohort(24)", "small_cohort(1)")  # for each further one, processes begin
    script.write_text(one.replace('if __name__ == "__main__":', "if True:"))
    done = subprocess.run(
        [sys.executable, script, "2", "0", out, tmp_path / "diary"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "worker processes in a row ended as soon as they began. A script must begin runs under" in done.stderr
    assert load_run(out).counts == {}, "episodes were blamed"
