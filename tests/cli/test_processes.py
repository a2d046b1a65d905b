"""Real processes: what only they can show - signals, exit codes, clean streams, quick help."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from effort import long

import ifonly
from ifonly.cli.frame import ExitCode

# A shell that runs tests in the background tells its children to ignore Ctrl-C; these must not.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from ifonly.cli import main
main()
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "200"}


def command(*args: object) -> list[str]:
    return [sys.executable, "-c", PROGRAM, *(str(arg) for arg in args)]


@contextmanager
def on_a_terminal(*args: object) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process whose stderr is a terminal, on which it draws progress; stdout is a pipe."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command(*args), stdout=subprocess.PIPE, stderr=theirs, text=True, env=ENVIRONMENT)
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.communicate()
        os.close(ours)


def read_until(terminal: int, word: str) -> str:
    """What the process draws, up to `word`; all of it if it ends before."""
    seen = b""
    while word.encode() not in seen:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # how Linux says that the other side is closed
            part = b""
        if not part:
            break
        seen += part
    return seen.decode(errors="replace")


@pytest.fixture(scope="session")
def long_cohort(run, workplace: Path) -> Path:
    folder = workplace / "long cohort"
    assert run("simulate", "--patients", 30, "--horizon", 20, "--out", folder).exit_code == 0
    return folder


def test_ctrl_c_during_fit_leaves_nothing(long_cohort: Path, tmp_path: Path) -> None:
    args = (
        "fit",
        "--recipe",
        "paper",
        "--episodes",
        long_cohort,
        "--out",
        tmp_path / "m",
        "--epochs",
        10**7,
        "--hidden",
        4,
        "--json",
    )
    with on_a_terminal(*args, "--plot", tmp_path / "loss.png") as (process, terminal):
        assert "Fitting" in read_until(terminal, "training loss")
        process.send_signal(signal.SIGINT)
        drawn = read_until(terminal, "no such word")
        stdout, _ = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
    assert stdout == ""
    assert "interrupted: " in drawn
    assert "Traceback" not in drawn
    assert list(tmp_path.iterdir()) == []


@long
def test_ctrl_c_during_solve_gives_the_bracket(
    long_cohort: Path, model_folder: Path, workplace: Path, tmp_path: Path
) -> None:
    query = workplace / "astar.yaml"
    query.write_text("solver: {name: anchor-astar, samples: 30}\n")
    args = ("solve", "--episodes", long_cohort, "--model", model_folder, "--only", "patient-00004", "-k", 8)
    with on_a_terminal(*args, "--query", query, "--out", tmp_path / "r.json", "--json") as (process, terminal):
        assert "patient-00004" in read_until(terminal, "Searching")
        process.send_signal(signal.SIGINT)
        drawn = read_until(terminal, "no such word")
        stdout, _ = process.communicate(timeout=60)
    result = ifonly.Result.from_json(stdout)
    assert process.returncode == ExitCode.INTERRUPTED
    assert result.status is ifonly.Status.INTERRUPTED
    assert (
        result.observed_outcome < result.outcome < result.upper_bound
    )  # or no useful bound: so few anchors say little
    assert "Traceback" not in drawn
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    assert json.loads((tmp_path / "r.json").read_text()) == json.loads(stdout)


@long
def test_json_is_all_there_is_on_stdout(cohort_folder: Path, tmp_path: Path) -> None:
    args = (
        "fit",
        "--recipe",
        "paper",
        "--episodes",
        cohort_folder,
        "--out",
        tmp_path / "m",
        "--epochs",
        2,
        "--hidden",
        4,
        "--json",
    )
    with on_a_terminal(*args) as (process, terminal):
        drawn = read_until(terminal, "no such word")
        stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(stdout)["fit_report"]["settings"]["epochs"] == 2
    assert "Fitting" in drawn


def test_errors_have_no_traceback(tmp_path: Path) -> None:
    done = subprocess.run(
        command("info", tmp_path / "nowhere"), capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stdout == ""
    assert done.stderr == f"error: {tmp_path / 'nowhere'} does not exist.\n"


def test_help_and_import_do_not_wait_for_torch() -> None:
    code = """
import sys
import ifonly
from typer.testing import CliRunner
from ifonly.cli import app
assert "simulate" in dir(ifonly)
for args in (["--help"], ["solve", "--help"], ["solve", "--episodes", "x"], ["--version"]):
    CliRunner().invoke(app, args)
loaded = [name for name in ("torch", "numpy", "polars", "matplotlib") if name in sys.modules]
sys.exit(f"loaded: {loaded}" if loaded else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_an_installed_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ifonly", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"ifonly {ifonly.__version__}\n"
