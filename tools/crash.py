"""Kill commands that write with kill -9 before a write, give them again, and compare with commands that nobody killed.

Every moment is a real process that ends by SIGKILL before its n-th write, n drawn anew each time; cohort runs also lose
their workers; a process that saves notes is killed at any time, and so is `ifonly serve`, while notes are sent to it.
Nothing may be lost, repeated or altered.
Ends with 1 where something was. `make crash` runs it; `tests/test_crashes.py` does the same with fewer moments.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

# Imported once, and forked for every moment: nothing here may start a thread.
import matplotlib as mpl  # noqa: E402
import matplotlib.figure  # noqa: E402

mpl.use("Agg")
from crash_commands import ALREADY_DONE, COMMANDS, Command, invoke, make_world, products, start  # noqa: E402
from unpainted_figures import write_head  # noqa: E402
from writes import Write, tell_writes  # noqa: E402

import ifonly.evidence.check.check  # noqa: E402
import ifonly.report.case_report  # noqa: E402
import ifonly.report.folders  # noqa: E402
import ifonly.study.stages  # noqa: E402
import ifonly.web.app  # noqa: E402, F401
from ifonly.web.notes import Note, Notes  # noqa: E402

NOTES, WORKERS, SERVER = "notes", "cohort, workers killed", "serve"
KILLED = -signal.SIGKILL
ACKNOWLEDGED = Counter[str]()
"""Notes, by the servers that were killed."""


def in_a_child(work: Callable[[], int]) -> int:
    """What `work` returns (0 to 255) in a process of its own; minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1):
                os.dup2(quiet, stream)
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_killed(command: Command, folder: Path, at: int) -> int:
    """Do the command in a child that is killed before its `at`-th write."""

    def work() -> int:
        seen = 0

        def before(write: Write) -> None:
            nonlocal seen
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)

        tell_writes(before, folder, setattr)
        return invoke(command.arguments(folder))[0]

    return in_a_child(work)


def count_writes(command: Command, folder: Path, record: Path) -> None:
    """Do the command in a child, and write down how many writes it took."""

    def work() -> int:
        writes: list[str] = []
        tell_writes(lambda write: writes.append(write.kind), folder, setattr)
        code, output = invoke(command.arguments(folder))
        record.write_text(json.dumps({"writes": len(writes), "code": code, "output": output[-2000:]}))
        return 0

    in_a_child(work)


def compared(command: Command, folder: Path, done: Path, code: int) -> int:
    """Do the command again in a child; 0 where it ends as the one that nobody killed, in whose folder `done` is."""

    def work() -> int:
        again, output = invoke(command.arguments(folder))
        if again != code and ALREADY_DONE not in output:
            print(f"{command.name}: ended with {again}\n{output[-1500:]}", file=sys.stderr)
            return 1
        found, expected = products(folder), products(done)
        wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        if wrong:
            print(f"{command.name}: lost, left over or altered: {', '.join(wrong)}", file=sys.stderr)
        return 1 if wrong else 0

    return in_a_child(work)


class Trial:
    """One command and the folder of the one that nobody killed; folders are alike in their names, which pages show."""

    def __init__(self, command: Command, world: Path, place: Path) -> None:
        self.command, self.world, self.place = command, world, place
        start(command, world, place / "done" / "world")
        count_writes(command, place / "done" / "world", place / "record.json")
        record = json.loads((place / "record.json").read_text())
        assert record["code"] in (0, 6), record["output"]
        self.writes, self.code = record["writes"], record["code"]

    def kill(self, at: int) -> bool:
        """Whether a command that was killed before its `at`-th write ends well when it is given again."""
        folder = self.place / str(at) / "world"
        start(self.command, self.world, folder)
        ended = run_killed(self.command, folder, at)
        fine = ended == KILLED and compared(self.command, folder, self.place / "done" / "world", self.code) == 0
        if fine:
            shutil.rmtree(folder.parent)
        else:
            print(f"{self.command.name}: killed before write {at} of {self.writes}; see {folder}", file=sys.stderr)
        return fine


def lose_workers(world: Path, place: Path, seed: int) -> bool:
    """Whether a run with two workers, both killed at some time, ends with the table of a run here."""
    command = next(one for one in COMMANDS if one.name == "cohort")
    start(command, world, place / "done" / "world")
    in_a_child(lambda: invoke(command.arguments(place / "done" / "world"))[0])
    folder = place / "lost" / "world"
    start(command, world, folder)
    arguments = command.arguments(folder)
    arguments[arguments.index("--workers") + 1] = 2
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os._exit(invoke(arguments)[0])
    time.sleep(random.Random(seed).uniform(0.5, 8.0))
    for child in _children(pid):
        os.kill(child, signal.SIGKILL)
    os.waitpid(pid, 0)
    fine = compared(command, folder, place / "done" / "world", 0) == 0
    shutil.rmtree(place) if fine else print(f"{WORKERS}: see {folder}", file=sys.stderr)
    return fine


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def kill_saving(place: Path, seed: int) -> bool:
    """Whether every note that was acknowledged before a kill is there, once, and at most one more."""
    place.mkdir()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        notes = Notes(place / "notes.sqlite", cohort="c", model="m")
        number = 0
        while True:
            notes.save(Note(f"e{number % 7}", note=f"note {number}", revision=number // 7))
            os.write(writing, b".")
            number += 1
    os.close(writing)
    time.sleep(random.Random(seed).uniform(0.0, 0.15))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    saved = 0
    while part := os.read(reading, 65536):
        saved += len(part)
    os.close(reading)
    notes = Notes(place / "notes.sqlite", cohort="c", model="m")
    latest = [note for found in notes.reviews().values() for note in found]
    last = sorted(int(note.note.split()[1]) for note in latest)
    revisions = sum(note.revision for note in latest)
    notes.close()
    found = last[-1] + 1 if last else 0
    fine = saved <= found <= saved + 1 and revisions == found and last == list(range(max(0, found - 7), found))
    shutil.rmtree(place) if fine else print(f"{NOTES}: {saved} saved, {found} found; see {place}", file=sys.stderr)
    return fine


@contextmanager
def server(place: Path) -> Iterator[tuple[int, int]]:
    """`ifonly serve` in a child: its process and its port. It ends by SIGKILL, here or before."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sources = ["--episodes", place / "whole", "--model", place / "fitted", "--run", place / "run"]
    pid = os.fork()
    if pid == 0:
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 1), os.dup2(quiet, 2)
        os._exit(invoke(["serve", *sources, "--notes", place / "notes.sqlite", "--port", port, "--workers", 1])[0])
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=60).close()
                break
            except ConnectionRefusedError:
                assert os.waitpid(pid, os.WNOHANG) == (0, 0), "the server has not started"
                time.sleep(0.01)
        yield pid, port
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> Any:
    """What the server answers to a request that it must not refuse."""
    connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status == 200, content
    return json.loads(content)


def kill_server(world: Path, place: Path, seed: int) -> bool:
    """Whether a server that is started again has every note that was acknowledged before a kill, and no other but the
    one that nobody heard of."""
    draw = random.Random(seed)
    for name in ("whole", "fitted", "run"):
        shutil.copytree(world / name, place / name)
    saved: dict[tuple[str, str], tuple[int, str]] = {}
    asked, wrong = ("", ""), list[str]()
    with server(place) as (pid, port):
        signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        ids = [row["episode"] for row in ask(connection, "GET", "/api/episodes")["rows"]]
        soon = draw.randrange(30)
        try:
            while True:
                if sum(count for count, _ in saved.values()) == soon:
                    signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0001, 0.03))
                asked, text = (draw.choice(ids), draw.choice("ab")), f"note {draw.random()}" * draw.choice((1, 200))
                note = {"episode": asked[0], "reviewer": asked[1], "note": text, "revision": saved.get(asked, (0,))[0]}
                saved[asked] = (ask(connection, "PUT", "/api/notes", note)["revision"], text)
        except (OSError, http.client.HTTPException):
            signal.setitimer(signal.ITIMER_REAL, 0)
    ACKNOWLEDGED[SERVER] += sum(count for count, _ in saved.values())
    with server(place) as (_, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for episode in ids:
            for reviewer in "ab":
                found = ask(connection, "GET", f"/api/notes?{urlencode({'episode': episode, 'reviewer': reviewer})}")
                known = saved.get((episode, reviewer), (0, ""))
                unheard = (episode, reviewer) == asked and found["revision"] == known[0] + 1
                if (found["revision"], found["note"]) != known and not unheard:
                    wrong.append(f"{episode}, {reviewer}: {known[0]} notes acknowledged, found {found['revision']}")
    shutil.rmtree(place) if not wrong else print(f"{SERVER}: {wrong}; see {place}", file=sys.stderr)
    return not wrong


def jobs(moments: int, seed: int, world: Path, place: Path, chosen: list[str]) -> list[tuple[str, Callable[[], bool]]]:
    """What is to be tried: as many moments of each command, of notes, and a few of workers."""
    draw = random.Random(seed)
    names = chosen or [command.name for command in COMMANDS] + [NOTES, WORKERS, SERVER]
    weights = [0.1 if name == WORKERS else 1.0 for name in names]
    counts = Counter(draw.choices(names, weights, k=moments))
    found: list[tuple[str, Callable[[], bool]]] = []
    for number, name in enumerate(names):
        own = place / str(number)
        own.mkdir()
        if name == NOTES:
            found += [(name, lambda own=own, n=n: kill_saving(own / str(n), seed + n)) for n in range(counts[name])]
        elif name == WORKERS:
            found += [(name, lambda own=own, n=n: lose_workers(world, own / str(n), n)) for n in range(counts[name])]
        elif name == SERVER:
            found += [(name, lambda own=own, n=n: kill_server(world, own / str(n), n)) for n in range(counts[name])]
        elif counts[name]:
            trial = Trial(next(one for one in COMMANDS if one.name == name), world, own)
            order = draw.sample(range(1, trial.writes + 1), trial.writes)
            for at in (order[number % trial.writes] for number in range(counts[name])):
                found.append((name, lambda trial=trial, at=at: (trial.place / str(at)).exists() or trial.kill(at)))
    draw.shuffle(found)
    return found


def main() -> int:
    """Try, and say how many moments of which command were survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="begin no further moment after this")
    parser.add_argument("--only", action="append", default=[], help="a command; may be repeated")
    options = parser.parse_args()
    mpl.figure.Figure.savefig = write_head  # to paint them takes longest
    place = Path(tempfile.mkdtemp(prefix="ifonly-crash-"))
    in_a_child(lambda: (make_world(place / "world"), 0)[1])
    began, tried, failed = time.monotonic(), Counter[str](), Counter[str]()
    for name, survive in jobs(options.moments, options.seed, place / "world", place, options.only):
        if options.seconds is not None and time.monotonic() - began > options.seconds:
            break
        tried[name] += 1
        failed[name] += not survive()
        if sum(tried.values()) % 50 == 0:
            print(f"{sum(tried.values())} moments, {sum(failed.values())} not survived", file=sys.stderr, flush=True)
    for name in sorted(tried):
        print(f"{name}: {tried[name]} moments, {failed[name]} not survived")
    print(f"notes that servers acknowledged before they were killed: {ACKNOWLEDGED[SERVER]}")
    print(f"in all: {sum(tried.values())} moments, {sum(failed.values())} not survived")
    if not sum(failed.values()):
        shutil.rmtree(place)
    return 1 if sum(failed.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
