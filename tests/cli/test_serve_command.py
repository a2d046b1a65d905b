"""`ifonly serve` as a process: it starts, answers, says nothing about patients, and leaves nobody behind."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from effort import long

from ifonly.cli.frame import ExitCode
from ifonly.models import load_model

PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it for what runs in the background
from ifonly.cli import main
main()
"""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TOKEN = "a-token-that-nobody-guesses"


@dataclass(frozen=True)
class Server:
    """A server that answers."""

    process: subprocess.Popen[str]
    address: str

    def workers(self) -> list[int]:
        """The processes that it has started."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        return [int(pid) for file in tasks.glob("*/children") for pid in file.read_text().split()]


@contextmanager
def serving(*arguments: object) -> Iterator[Server]:
    command = [sys.executable, "-c", PROGRAM, "serve", "--port", "0", *(str(argument) for argument in arguments)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, start_new_session=True
    )
    assert process.stdout is not None
    try:
        line = ""
        while not line.startswith("review: "):
            line = process.stdout.readline()
            assert line, process.communicate()[1]
        port = int(re.findall(r":(\d+)/", line)[0])
        yield Server(process, f"http://127.0.0.1:{port}")
    finally:
        process.kill()
        process.communicate()


def eventually(happened: Callable[[], bool], seconds: float = 60) -> bool:
    until = time.monotonic() + seconds
    while not happened() and time.monotonic() < until:
        time.sleep(0.05)
    return happened()


def is_gone(pid: int) -> bool:
    """Whether a process is no more, or is dead and waits to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.fixture
def server_arguments(cohort_folder: Path, model_folder: Path, tmp_path: Path) -> list[object]:
    return ["--episodes", cohort_folder, "--model", model_folder, "--notes", tmp_path / "n.sqlite", "--workers", 1]


def test_it_serves_and_ends_with_ctrl_c(server_arguments: list[object], tmp_path: Path) -> None:
    with serving(*server_arguments, "-k", 2) as server, httpx.Client(base_url=server.address, timeout=60) as client:
        assert client.get("/").status_code == 200
        about = client.get("/api/about").json()
        assert about["question"]["max_changes"] == 2
        assert about["run"] is None
        saved = client.put("/api/notes", json={"episode": "patient-00007", "note": "secret words", "revision": 0})
        assert saved.status_code == 200
        assert client.get("/api/case", params={"episode": "patient-99999"}).status_code == 404
        assert "server" not in client.get("/nowhere").headers
        job = client.post("/api/jobs", json={"episode": "patient-00007", "max_changes": 6}).json()["job"]
        assert eventually(lambda: client.get(f"/api/jobs/{job}").json()["progress"] is not None)
        workers = server.workers()
        assert len(workers) >= 1
        server.process.send_signal(signal.SIGINT)
        stdout, stderr = server.process.communicate(timeout=60)
    assert server.process.returncode == ExitCode.DONE
    assert eventually(lambda: all(is_gone(pid) for pid in workers), 10)
    for word in ("patient", "secret", "Traceback"):
        assert word not in stdout + stderr
    assert [path.name for path in tmp_path.iterdir()] == ["n.sqlite"]  # closed, nothing left to be written


@long
def test_killed_it_leaves_nobody_behind(server_arguments: list[object], tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    secured = ["--host", "0.0.0.0", "--token-file", token]
    with serving(*server_arguments, *secured) as server, httpx.Client(base_url=server.address, timeout=60) as client:
        assert client.get("/api/about").status_code == 401
        client.headers["authorization"] = f"Bearer {TOKEN}"
        assert client.get("/api/about").status_code == 200
        job = client.post("/api/jobs", json={"episode": "patient-00007", "max_changes": 6}).json()["job"]
        assert eventually(lambda: client.get(f"/api/jobs/{job}").json()["progress"] is not None)
        workers = server.workers()
        server.process.kill()
        stdout, stderr = server.process.communicate(timeout=60)
    assert len(workers) >= 1
    assert eventually(lambda: all(is_gone(pid) for pid in workers), 20)
    assert TOKEN not in stdout + stderr


def test_what_it_refuses(run, query, server_arguments: list[object], tmp_path: Path) -> None:
    def words(*more: object) -> str:
        result = run("serve", *server_arguments, *more)
        assert result.exit_code in (ExitCode.BAD_INPUT, ExitCode.USAGE), result.output
        return " ".join(result.output.replace("│", " ").split())

    assert "give a token" in words("--host", "0.0.0.0")
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o644)
    assert "chmod 600" in words("--host", "0.0.0.0", "--token-file", token)
    assert "--run already has a query" in words("--run", tmp_path, "-k", 2)
    assert "--run already has a query" in words("--run", tmp_path, "--minimize", "SOFA")
    assert "--run already has a query" in words("--run", tmp_path, *query(objective="mean"))
    assert "is no run" in words("--run", tmp_path)
    assert "needs --behaviour FOLDER" in words(*query(min_support=0.1), "--port", 0)
    assert "has no refits" in words(*query(objective="worst"), "--port", 0)
    assert "not a dynamic feature" in words("--minimize", "wealth", "--port", 0)
    assert "is no address" in words("--host", "no.such.host.invalid", "--token-file", _private(token))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "choose another --port" in words("--port", taken.getsockname()[1])
    assert not (tmp_path / "n.sqlite").exists()


def test_a_failed_model_is_served_only_with_permission(
    run, server_arguments, model_folder: Path, tmp_path: Path
) -> None:
    failed = Path(shutil.copytree(model_folder, tmp_path / "failed"))
    findings = [{"kind": "noise_size", "level": "fail"}]
    check = {"verdict": "fail", "findings": findings, "episodes": 40, "cohort": "c0", "figures": {"features": []}}
    (failed / "check.json").write_text(json.dumps(check | {"model": load_model(failed).fingerprint()}))
    result = run("serve", *server_arguments, "--model", failed, "--port", 0)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "the model failed its check" in result.output
    assert "--allow-failed-model" in result.output


def _private(token: Path) -> Path:
    token.chmod(0o600)
    return token


def test_missing_packages_are_named(run, server_arguments: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setattr("ifonly.cli.frame.find_spec", lambda name: None if name == "uvicorn" else object())
    result = run("serve", *server_arguments)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "needs uvicorn" in result.output
    assert "ifonly[web]" in result.output
