"""A cluster on machines of its own - network namespaces - whose cables are pulled in mid-run."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from effort import LONG
from small_runs import small_cohort, small_model, solve_small, without_seconds

from ifonly.errors import IfonlyError
from ifonly.progress import Tick
from ifonly.runs import RunSettings, load_run
from ifonly.runs.clusters import dask_client

distributed = pytest.importorskip("distributed", reason="needs Dask: pip install 'ifonly[dask]'")
dask = pytest.importorskip("dask")

PATIENCE = 11
"""Seconds until Dask takes a silent connection for a lost one: as few as it allows."""
ADDRESS = "198.18.77.{}"
"""Of a range that is for tests of networks."""
MACHINES = ("head", "near", "far")
EPISODES = 16


def why_not() -> str | None:
    """Why no networks can be made here; None where they can."""
    if not LONG:
        return "takes long: `make test-long` runs it"
    if not sys.platform.startswith("linux") or shutil.which("ip") is None:
        return "needs Linux with ip (Debian: apt-get install iproute2)"
    name = f"ifonly-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"makes network namespaces, which root may: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")


def ip(*words: object) -> None:
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


@dataclass
class Network:
    """Machines with a cable each to one switch, to which this process has one, too."""

    processes: list[subprocess.Popen] = field(default_factory=list)

    def space(self, machine: str) -> str:
        return f"ifonly-{os.getpid()}-{machine}"

    def cable(self, machine: str) -> str:
        return f"if{os.getpid()}{machine[0]}"

    @property
    def switch(self) -> str:
        return f"if{os.getpid()}sw"

    def address(self, machine: str) -> str:
        return ADDRESS.format(2 + MACHINES.index(machine))

    def build(self) -> None:
        ip("link", "add", self.switch, "type", "bridge")
        ip("addr", "add", f"{ADDRESS.format(1)}/24", "dev", self.switch)
        ip("link", "set", self.switch, "up")
        for machine in MACHINES:
            space, cable = self.space(machine), self.cable(machine)
            ip("netns", "add", space)
            ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", cable, "master", self.switch, "up")
            ip("-n", space, "addr", "add", f"{self.address(machine)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def take_down(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for machine in MACHINES:
            subprocess.run(["ip", "netns", "del", self.space(machine)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self.switch], check=False, capture_output=True)

    def start(self, machine: str, module: str, *words: object) -> None:
        """A program of Dask on a machine, which loses patience soon."""
        surroundings = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": f"{PATIENCE}s",
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": f"{PATIENCE}s",
        }
        command = ["ip", "netns", "exec", self.space(machine), sys.executable, "-m", f"distributed.cli.{module}"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.processes.append(subprocess.Popen([*command, *map(str, words)], env=surroundings, **quiet))

    def cut(self, machine: str) -> None:
        ip("link", "set", self.cable(machine), "down")

    def mend(self, machine: str) -> None:
        ip("link", "set", self.cable(machine), "up")


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """With a scheduler on "head" and a worker on each of the others."""
    made = Network()
    try:
        made.build()
        made.start("head", "dask_scheduler", "--host", made.address("head"), "--port", 8786, "--no-dashboard")
        for machine in MACHINES[1:]:
            options = ["--nworkers", 1, "--nthreads", 1, "--no-dashboard", "--no-nanny"]
            place = ["--host", made.address(machine), "--local-directory", tmp_path / machine]
            made.start(machine, "dask_worker", f"tcp://{made.address('head')}:8786", *options, *place)
        yield made
    finally:
        made.take_down()


@pytest.fixture
def address(network: Network, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of the scheduler, once both workers are there."""
    monkeypatch.setattr("ifonly.runs.clusters.SECONDS_TO_CONNECT", 60)
    with dask.config.set({"distributed.comm.timeouts.tcp": f"{PATIENCE}s"}):
        found = f"tcp://{network.address('head')}:8786"
        with dask_client(found) as client:
            client.wait_for_workers(2, timeout=60)
        yield found


@pytest.fixture
def expected(tmp_path: Path) -> object:
    cohort = small_cohort(EPISODES)
    return without_seconds(solve_small(cohort, small_model(cohort), tmp_path / "here"))


def cut_at(network: Network, machine: str, done: int, *, mended_after: float | None = None):
    """Pulls a cable once so many episodes are done."""
    pulled: list[float] = []

    def pull(tick: Tick) -> None:
        if tick.done >= done and not pulled:
            pulled.append(time.monotonic())
            network.cut(machine)
            if mended_after is not None:
                time.sleep(mended_after)
                network.mend(machine)

    return pull, pulled


def solved(tmp_path: Path, address: str, pull) -> object:
    cohort = small_cohort(EPISODES)
    model = small_model(cohort, diary=tmp_path / "diary", pause=0.3)
    with dask_client(address) as client:
        return solve_small(cohort, model, tmp_path / "run", RunSettings(chunk=1), executor=client, progress=pull)


def test_a_worker_that_is_cut_off_costs_nothing_but_time(network, address, expected, tmp_path: Path) -> None:
    """Nobody says that it has gone: its machine is silent, and works on."""
    pull, pulled = cut_at(network, "far", 4)
    run = solved(tmp_path, address, pull)
    assert pulled
    assert run.counts == {"optimal": EPISODES}
    assert without_seconds(run).equals(expected)
    abductions = (tmp_path / "diary").read_text().count("\n")
    assert abductions > EPISODES, "what the silent one had was done again"


def test_a_cut_that_is_mended_soon_is_not_noticed(network, address, expected, tmp_path: Path) -> None:
    pull, pulled = cut_at(network, "head", 4, mended_after=PATIENCE / 4)
    run = solved(tmp_path, address, pull)
    assert pulled
    assert without_seconds(run).equals(expected)


def test_a_scheduler_out_of_reach_is_said_so_and_the_run_goes_on_later(
    network, address, expected, tmp_path: Path
) -> None:
    pull, pulled = cut_at(network, "head", 4)
    with pytest.raises(IfonlyError, match=r"^the scheduler is gone.*is kept; run the same again"):
        solved(tmp_path, address, pull)
    assert time.monotonic() - pulled[0] < 10 * PATIENCE, "nobody waits for ever"
    kept = (tmp_path / "run" / "rows.jsonl").read_bytes()
    assert 4 <= sum(load_run(tmp_path / "run").counts.values()) < EPISODES
    cohort = small_cohort(EPISODES)
    run = solve_small(cohort, small_model(cohort, diary=tmp_path / "diary", pause=0.3), tmp_path / "run")
    rows = (tmp_path / "run" / "rows.jsonl").read_bytes()
    assert rows.startswith(kept)
    assert len(rows.splitlines()) == EPISODES, "nothing is solved twice"
    assert without_seconds(run).equals(expected)
