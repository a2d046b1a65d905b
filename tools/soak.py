"""Let a review server work for a long time, with users and with faults, and see that nothing is lost and memory stays.

    python tools/soak.py --minutes 30                  # what the documents tell
    python tools/soak.py --minutes 2 --rate 20         # a look

Users look at lists and cases, try doses, search, save notes and fetch files; beside them come requests that make no
sense, connections that ask nothing or half a question, and kill -9 for the processes that search. Ends with 1 where
an answer was none of those that the API describes, a note that was acknowledged is not there, or memory grew.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import io
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

import ifonly  # noqa: E402

EPISODES = 200
SECONDS_BETWEEN_LOOKS = 5.0
"""At the memory of the server and of the processes that search."""
SETTLED = 0.25
"""Of the time has passed when caches are full and memory is as large as it should ever be."""
MOST_GROWTH = 0.05
"""Of the server's memory, from the quarter after that to the last one."""
MOST_IDLE = 40
"""Connections that ask nothing, held at a time."""


def make_data(folder: Path) -> list[str]:
    """A cohort, a model and a run of half of it; gives the ids of its episodes."""
    cohort = ifonly.simulate.simulate_cohort(EPISODES, seed=5, horizon=(4, 8))
    ifonly.save_cohort(cohort, folder / "cohort")
    model = ifonly.fit(ifonly.LocationScale(cohort.schema, hidden=(8,)), cohort, epochs=1, seed=0)
    ifonly.save_model(model, folder / "model")
    settings = ifonly.RunSettings(episodes=cohort.ids[: EPISODES // 2], workers=1)
    ifonly.solve_cohort(cohort, model, ifonly.Query(ifonly.minus("SOFA"), 1), out=folder / "run", settings=settings)
    return list(cohort.ids)


@contextmanager
def server(folder: Path) -> Iterator[tuple[int, int]]:
    """A server of its own: its process and its port."""
    places = ["--episodes", folder / "cohort", "--model", folder / "model", "--run", folder / "run"]
    command = [sys.executable, "-m", "ifonly", "serve", "--port", "0", "--seconds", "5", *map(str, places)]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=surroundings) as one:
        try:
            assert one.stdout is not None
            line = next((line for line in one.stdout if line.startswith("review: ")), None)
            if line is None:
                raise SystemExit("the server did not start")
            yield one.pid, int(re.findall(r":(\d+)/", line)[0])
        finally:
            one.send_signal(signal.SIGINT)


def megabytes(process: int) -> float | None:
    """What a process holds; None where it is no more."""
    with suppress(OSError):
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
        return int(found[1]) / 1024 if found else None
    return None


def children(process: int) -> list[int]:
    """The processes that a process has started, from any of its threads."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


@dataclass
class Soak:
    """What is done, and what came of it."""

    process: int
    port: int
    ids: list[str]
    draw: random.Random
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    saved: dict[str, tuple[int, str]] = field(default_factory=dict)
    """The revision and the text of the last note that was acknowledged, by episode."""
    jobs: list[tuple[str, str]] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    idle: list[socket.socket] = field(default_factory=list)
    memory: list[tuple[float, float, float]] = field(default_factory=list)
    """Seconds since the beginning; megabytes of the server; of all processes that search."""
    _connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: Any = None, *, fine: tuple[int, ...] = (200,)) -> Any:
        """The content of an answer; another status than those that are fine is wrong. None: there is none."""
        kind = f"{method} {path.partition('?')[0].split('/jobs/')[0]}"
        for fresh in (False, True):  # the server may have closed a connection on which nothing was asked
            if fresh or self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            content = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
            try:
                headers = {} if content is None else {"Content-Type": "application/json"}
                self._connection.request(method, path, content, headers)
                answer = self._connection.getresponse()
                data = answer.read()
                break
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if fresh:
                    self.wrong.append(f"{kind}: {type(error).__name__}")
                    return None
        self.statuses[f"{kind} {answer.status}"] += 1
        if answer.status not in fine:
            self.wrong.append(f"{kind}: status {answer.status}")
        is_json = answer.headers.get_content_type() == "application/json"
        return json.loads(data) if is_json and "/export" not in path else data

    @property
    def someone(self) -> str:
        """The query string for an episode."""
        return urlencode({"episode": self.draw.choice(self.ids)})

    def look_at_lists(self) -> None:
        """The list, a part of it, patterns, notes."""
        query = {"search": f"{self.draw.randrange(100)}", "order": "steps", "size": 20}
        paths = ["/", f"/api/episodes?{urlencode(query)}", "/api/patterns", "/api/about", "/api/notes.csv"]
        self.ask("GET", self.draw.choice(paths))

    def look_at_a_case(self) -> None:
        """Its page, its data, or a file of it."""
        kinds = ["/case?", "/case?", "/api/case?", "/api/export?kind=html&", "/api/export?kind=json&"]
        kinds += ["/api/export?kind=png&"] if self.draw.random() < 0.3 else []
        self.ask("GET", self.draw.choice(kinds) + self.someone)

    def try_a_dose(self) -> None:
        """Another action at one step."""
        case = self.ask("GET", f"/api/case?{self.someone}")
        if case is None:
            return
        actions = case["observed"]["actions"]
        actions[self.draw.randrange(len(actions))] = self.draw.randrange(len(case["treatments"]["actions"]))
        self.ask("POST", "/api/course", {"episode": case["episode"], "actions": actions})

    def save_a_note(self) -> None:
        """On what was read; now and then on an old revision, which must be refused."""
        episode = self.draw.choice(self.ids)
        known, _ = self.saved.get(episode, (0, ""))
        is_old = known > 0 and self.draw.random() < 0.1
        text = f"note {self.draw.random()}"
        body = {"episode": episode, "note": text, "verdict": "unsure", "revision": known - 1 if is_old else known}
        found = self.ask("PUT", "/api/notes", body, fine=(409,) if is_old else (200,))
        if found is not None and not is_old:
            self.saved[episode] = (found["revision"], text)

    def search(self) -> None:
        """Ask for a search, see how far the others are, stop one."""
        body = {"episode": self.draw.choice(self.ids), "max_changes": self.draw.randint(0, 3), "seconds": 5}
        found = self.ask("POST", "/api/jobs", body, fine=(202, 429))
        if found is not None and "job" in found:
            self.jobs.append((found["job"], found["episode"]))
        for job, episode in [*self.jobs]:
            if self.draw.random() < 0.1:
                self.ask("POST", f"/api/jobs/{job}/stop")
            now = self.ask("GET", f"/api/jobs/{job}")
            if now is not None and now["state"] not in ("waiting", "running"):
                self.jobs.remove((job, episode))
                self.ended[now["state"]] += 1
                if now["case"] is not None:
                    self.ask("GET", f"/api/export?{urlencode({'episode': episode, 'kind': 'json', 'job': job})}")

    def make_no_sense(self) -> None:
        """Requests that must be refused, and are no error."""
        asked: list[tuple[str, str, Any, tuple[int, ...]]] = [
            ("GET", f"/api/case?{urlencode({'episode': '<script>' * 20})}", None, (404,)),
            ("GET", "/static/../../etc/passwd", None, (404,)),
            ("GET", "/api/episodes?page=-1", None, (422,)),
            ("PUT", "/api/notes", b"[" * 50_000, (400, 422)),
            ("POST", "/api/course", {"episode": self.ids[0], "actions": [10**5] * 5_000}, (422,)),
            ("POST", "/api/jobs", {"episode": self.ids[0], "max_changes": 10**9}, (422,)),
            ("POST", "/api/jobs", b"x" * 100_000, (413,)),
            ("DELETE", "/api/notes", b"{}", (405,)),
        ]
        method, path, body, fine = self.draw.choice(asked)
        self.ask(method, path, body, fine=fine)

    def hold_connections(self) -> None:
        """Some that ask nothing, or half a question; the oldest are let go."""
        for _ in range(5):
            with suppress(OSError):
                one = socket.create_connection(("127.0.0.1", self.port), timeout=10)
                one.sendall(self.draw.choice([b"", b"GET / HT", b"PUT /api/notes HTTP/1.1\r\nHost: 127.0.0.1\r\n"]))
                self.idle.append(one)
        while len(self.idle) > MOST_IDLE:
            self.idle.pop(0).close()

    def kill_a_searcher(self) -> None:
        """End a process that searches at once; another takes its place."""
        found = [child for child in children(self.process) if "spawn_main" in _command(child)]
        if found:
            os.kill(self.draw.choice(found), signal.SIGKILL)
            self.kills += 1

    def see_memory(self, since: float) -> None:
        """Write down what the server and its processes hold."""
        own = megabytes(self.process)
        if own is None:
            raise SystemExit("the server has ended")
        others = sum(megabytes(child) or 0.0 for child in children(self.process))
        self.memory.append((since, own, others))

    def compare_notes(self) -> None:
        """Every note that was acknowledged must be there, as it was."""
        rows = csv.DictReader(io.StringIO(self.ask("GET", "/api/notes.csv").decode()))
        found = {row["episode"]: (int(row["revision"]), row["note"]) for row in rows}
        self.wrong += [f"a note is lost: {note}" for id, note in self.saved.items() if found.get(id) != note]


def _command(process: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text()
    return ""


def run(soak: Soak, seconds: float, rate: float) -> None:
    """Do something at random, so many times a second, until time is up."""
    weights: dict[Callable[[], None], float] = {
        soak.look_at_lists: 30,
        soak.look_at_a_case: 30,
        soak.try_a_dose: 20,
        soak.save_a_note: 15,
        soak.search: 8,
        soak.make_no_sense: 8,
        soak.hold_connections: 2,
        soak.kill_a_searcher: 0.5,
    }
    began, looked = time.monotonic(), -SECONDS_BETWEEN_LOOKS
    while (since := time.monotonic() - began) < seconds:
        if since - looked >= SECONDS_BETWEEN_LOOKS:
            soak.see_memory(since)
            looked = since
        soak.draw.choices([*weights], [*weights.values()])[0]()
        time.sleep(soak.draw.expovariate(rate))
    soak.compare_notes()
    soak.see_memory(time.monotonic() - began)


def grown(soak: Soak, seconds: float) -> tuple[float, float]:
    """The server's memory once its caches are full, and in the last quarter: medians, in megabytes."""

    def of(first: float, last: float) -> float:
        return statistics.median(own for since, own, _ in soak.memory if first * seconds <= since <= last * seconds)

    return of(SETTLED, 2 * SETTLED), of(1 - SETTLED, 2.0)


def main() -> int:
    """Let it work, and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=10.0, help="requests a second, about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write what was measured here")
    options = parser.parse_args()
    seconds = 60 * options.minutes
    with tempfile.TemporaryDirectory() as scratch:
        ids = make_data(Path(scratch))
        with server(Path(scratch)) as (process, port):
            soak = Soak(process, port, ids, random.Random(options.seed))
            run(soak, seconds, options.rate)
    before, after = grown(soak, seconds)
    is_flat = after <= before * (1 + MOST_GROWTH)
    print(f"{options.minutes:g} minutes, {sum(soak.statuses.values()):,} answers, {len(soak.wrong)} wrong")
    print(f"searches ended: {dict(soak.ended)}; processes killed: {soak.kills}")
    lost = sum(one.startswith("a note is lost") for one in soak.wrong)
    print(f"notes acknowledged: {sum(revision for revision, _ in soak.saved.values())}, lost at the end: {lost}")
    print(f"server: {before:.0f} MB in the second quarter, {after:.0f} MB in the last: {'flat' if is_flat else 'GREW'}")
    print(f"processes that search, together: at most {max(others for _, _, others in soak.memory):.0f} MB")
    for name, count in Counter(soak.wrong).most_common(20):
        print(f"wrong: {name} ({count} times)")
    if options.json:
        found = {"statuses": dict(soak.statuses), "wrong": soak.wrong, "memory": soak.memory, "kills": soak.kills}
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0 if is_flat and not soak.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
