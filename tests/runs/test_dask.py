"""Runs through a real Dask scheduler and its worker processes; one of them is killed on the way."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from effort import long
from small_runs import small_cohort, small_model, solve_small, without_seconds
from typer.testing import CliRunner

import ifonly
from ifonly.cli import app
from ifonly.cli.cohorts import cluster_at
from ifonly.errors import IfonlyError, InputError
from ifonly.progress import Tick
from ifonly.runs import RunSettings, load_run
from ifonly.runs.clusters import dask_client

distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'ifonly[dask]'")


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    with distributed.LocalCluster(
        processes=True, n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs="CRITICAL"
    ) as found:
        yield found


@pytest.fixture
def client(cluster) -> Iterator[object]:
    with distributed.Client(cluster) as found:
        yield found


@long
def test_killed_workers_cost_nothing_but_time(client, tmp_path: Path) -> None:
    """All of them: nobody is left who holds the task, which the scheduler has made again."""
    cohort = small_cohort(16)
    diary = tmp_path / "diary"
    killed: list[int] = []

    def kill(tick: Tick) -> None:
        if tick.done >= 3 and not killed:
            killed.extend(client.run(os.getpid).values())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    model = small_model(cohort, diary=diary, pause=0.2)
    run = solve_small(cohort, model, tmp_path / "run", RunSettings(chunk=2), executor=client, progress=kill)
    assert len(killed) == 2
    assert os.getpid() not in killed
    expected = solve_small(cohort, small_model(cohort), tmp_path / "here")
    assert run.counts == {"optimal": 16}
    assert without_seconds(run).equals(without_seconds(expected))


def test_an_executor_of_a_client_will_do(client, tmp_path: Path) -> None:
    cohort = small_cohort(5)
    run = solve_small(cohort, small_model(cohort), tmp_path / "run", executor=client.get_executor())
    again = solve_small(cohort, small_model(cohort), tmp_path / "again", executor=client.get_executor())
    expected = solve_small(cohort, small_model(cohort), tmp_path / "here")
    assert without_seconds(run).equals(without_seconds(expected))
    assert without_seconds(again).equals(without_seconds(expected))


def test_the_command_line_finds_the_scheduler(cluster, tmp_path: Path) -> None:
    cohort = small_cohort(5)
    ifonly.save_cohort(cohort, tmp_path / "cohort")
    ifonly.save_model(ifonly.LocationScale(cohort.schema, hidden=(4,)), tmp_path / "model")
    args = ["cohort", "--episodes", tmp_path / "cohort", "--model", tmp_path / "model", "-k", 1]
    results = {}
    for name, options in {"there": ["--workers", cluster.scheduler_address], "here": ["--workers", 1]}.items():
        done = CliRunner().invoke(app, [str(arg) for arg in [*args, "--out", tmp_path / name, *options]])
        assert done.exit_code == 0, done.output
        results[name] = without_seconds(ifonly.load_run(tmp_path / name))
    assert results["there"].equals(results["here"])


def test_no_scheduler_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ifonly.runs.clusters.SECONDS_TO_CONNECT", 0.3)
    with (
        pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
        dask_client("tcp://127.0.0.1:9"),
    ):
        pass


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[subprocess.Popen, str]]:
    """A scheduler without workers, in a process of its own, and its address."""
    file = tmp_path / "scheduler.json"
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file]
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *options], stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + 60
        while not file.exists():
            assert time.monotonic() < end, "no scheduler"
            time.sleep(0.05)
        yield process, json.loads(file.read_text())["address"]
    finally:
        process.kill()
        process.wait()


@long
def test_a_lost_scheduler_is_said_so_in_one_line(scheduler, tmp_path: Path) -> None:
    process, address = scheduler
    cohort = small_cohort(3)
    told: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = told.append
    logger = logging.getLogger("distributed.client")

    def ask(client: object) -> None:
        solve_small(cohort, small_model(cohort), tmp_path / "run", RunSettings(chunk=1), executor=client)

    def kill_when_asked(client: object) -> None:
        while len(client.futures) < 1 + len(cohort):  # the query, and each episode
            time.sleep(0.01)
        process.kill()

    logger.addHandler(handler)
    try:
        with cluster_at(address) as client:
            threading.Thread(target=kill_when_asked, args=(client,), daemon=True).start()
            with pytest.raises(IfonlyError, match=r"^the scheduler is gone.*is kept; run the same again"):
                ask(client)
    finally:
        logger.removeHandler(handler)
    assert [record for record in told if record.exc_info] == [], "a traceback under it"
    assert not logger.filters
    assert load_run(tmp_path / "run").counts == {}
    assert solve_small(cohort, small_model(cohort), tmp_path / "run").is_finished


@long
def test_a_scheduler_lost_in_mid_run_costs_nothing_but_time(scheduler, cluster, tmp_path: Path) -> None:
    """What was answered before is kept, and another cluster ends with the table of a run here."""
    process, address = scheduler
    cohort, diary = small_cohort(12), tmp_path / "diary"
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nworkers", "1", "--nthreads", "1"]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "env": surroundings}
    worker = subprocess.Popen([*command, "--no-dashboard", "--no-nanny", "--local-directory", tmp_path / "w"], **quiet)

    def kill(tick: Tick) -> None:
        if tick.done >= 4:
            process.kill()

    try:
        model = small_model(cohort, diary=diary, pause=0.3)
        with cluster_at(address) as client, pytest.raises(IfonlyError, match="the scheduler is gone"):
            solve_small(cohort, model, tmp_path / "run", RunSettings(chunk=1), executor=client, progress=kill)
    finally:
        worker.kill()
        worker.wait()
    before = sum(load_run(tmp_path / "run").counts.values())
    assert 4 <= before < 12
    kept = (tmp_path / "run" / "rows.jsonl").read_bytes()
    with distributed.Client(cluster) as other:
        run = solve_small(cohort, small_model(cohort, diary=diary), tmp_path / "run", executor=other)
    assert (tmp_path / "run" / "rows.jsonl").read_bytes().startswith(kept)
    assert len((tmp_path / "run" / "rows.jsonl").read_bytes().splitlines()) == 12, "nothing is solved twice"
    expected = solve_small(cohort, small_model(cohort), tmp_path / "here")
    assert without_seconds(run).equals(without_seconds(expected))
