"""How quickly the review server starts and answers, with many users at once and a long search beside them.

    python benchmarks/review_load.py                          # 16,000 episodes, 20 users who pause between clicks
    python benchmarks/review_load.py --pause 0                # the same users without a pause: as fast as it goes
    python benchmarks/review_load.py --keep load --json f.json

Makes a cohort, a model and a run (its answers are drawn, not searched: the pages are as large, and made the same way),
starts `ifonly serve`, and lets users look at the list, filter it, open cases and try other doses. The users are threads
of this script, so that they take a part of the machine themselves.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

import ifonly
from ifonly.result import Budget, Certificate, Evidence, ModelReference, Provenance, Result, Stats, Status
from ifonly.result.table import to_row
from ifonly.runs.folder import opened
from ifonly.runs.task import Task, answer_of

MAX_CHANGES = 3
EDITS = 4
"""Doses that a user tries on a case."""
SOLVED_CHANGES = 8
"""Of the search beside them: more than it gets through."""


@dataclass
class Measured:
    """Milliseconds per kind of request."""

    times: dict[str, list[float]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, seconds: float) -> None:
        """One more request."""
        with self.lock:
            self.times.setdefault(kind, []).append(1e3 * seconds)

    def figures(self) -> dict[str, dict[str, float]]:
        """Count and quantiles of each kind."""
        return {
            kind: {
                "requests": len(times),
                **{f"p{level}": round(float(np.quantile(times, level / 100)), 1) for level in (50, 95, 99)},
                "max": round(max(times), 1),
            }
            for kind, times in sorted(self.times.items())
        }


def make_data(folder: Path, episodes: int) -> None:
    """A simulated cohort, a model fitted to a part of it, and a run with drawn answers."""
    cohort = ifonly.simulate.simulate_cohort(episodes, seed=5)
    ifonly.save_cohort(cohort, folder / "cohort")
    untrained = ifonly.LocationScale(cohort.schema, lipschitz=(1.0, 0.1))
    model = ifonly.fit(untrained, cohort[: min(episodes, 500)], epochs=2, seed=0)
    ifonly.save_model(model, folder / "model")
    query = ifonly.Query(ifonly.minus("SOFA"), MAX_CHANGES)
    task = Task(model=model.for_search(), query=query, solver=ifonly.BranchAndBound())
    about = {"episodes": len(cohort), "fingerprint": cohort.fingerprint()}
    generator = np.random.default_rng(0)
    with opened(folder / "run", {**task.describe(), "cohort": about}) as run:
        provenance = Provenance(query, cohort.schema, ModelReference("", ""), {})
        drawn = (_drawn_result(episode, provenance, generator) for episode in cohort)
        run.add([answer_of(place, to_row(result)) for place, result in enumerate(drawn)])
        run.finish()


def _drawn_result(episode: ifonly.Episode, provenance: Provenance, generator: np.random.Generator) -> Result:
    """A result as a search would leave it."""
    observed = -float(episode.states[:, episode.schema.dynamic_index("SOFA")].sum())
    gain = generator.uniform(0, 0.2, MAX_CHANGES).cumsum() / MAX_CHANGES
    outcomes = [observed, *(observed * (1 - gain)).tolist()]
    sequences = [episode.actions]
    for step in generator.permutation(len(episode))[:MAX_CHANGES]:
        other = sequences[-1].copy()
        other[step] = (other[step] + generator.integers(1, len(episode.schema.actions))) % len(episode.schema.actions)
        sequences.append(other)
    return Result(
        episode=episode.id,
        subject=episode.subject,
        status=Status.OPTIMAL,
        actions=sequences[-1],
        observed_actions=episode.actions,
        states=episode.states,
        observed_states=episode.states,
        outcome=outcomes[-1],
        observed_outcome=observed,
        clipped_outcome=outcomes[-1],
        observed_clipped_outcome=observed,
        upper_bound=outcomes[-1],
        certificate=Certificate("taylor", proven=True),
        stats=Stats(nodes_expanded=100, seconds_search=0.5),
        provenance=provenance,
        frontier=tuple(
            Budget(k, outcome, outcome, actions, outcome)
            for k, (outcome, actions) in enumerate(zip(outcomes, sequences, strict=True))
        ),
        evidence=Evidence(changed_steps=tuple(np.flatnonzero(sequences[-1] != episode.actions).tolist())),
    )


@contextmanager
def server(folder: Path) -> Iterator[tuple[int, float]]:
    """A server of its own: its port, and the seconds until it gave its first page."""
    notes = folder / "notes.sqlite"
    places = ["--episodes", folder / "cohort", "--model", folder / "model", "--run", folder / "run", "--notes", notes]
    command = [sys.executable, "-m", "ifonly", "serve", "--port", "0", "--seconds", "600", *map(str, places)]
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as one:
        try:
            assert one.stdout is not None
            line = next((line for line in one.stdout if line.startswith("review: ")), None)
            if line is None:
                raise SystemExit("the server did not start")
            port = int(re.findall(r":(\d+)/", line)[0])
            ask(http.client.HTTPConnection("127.0.0.1", port), "GET", "/")
            yield port, time.perf_counter() - began
        finally:
            one.send_signal(signal.SIGINT)


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> bytes:
    """One request; anything but success ends the benchmark."""
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {} if content is None else {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status not in (200, 202):
        raise SystemExit(f"{method} {path.partition('?')[0]}: status {answer.status}")
    return text


class User(threading.Thread):
    """Looks at the list, filters it, opens a case, tries doses; and again."""

    def __init__(self, number: int, port: int, pause: float, until: float, measured: Measured) -> None:
        super().__init__()
        self._random = random.Random(number)
        self._connection = http.client.HTTPConnection("127.0.0.1", port)
        self._pause, self._until, self._measured = pause, until, measured

    def run(self) -> None:
        """Click until time is up."""
        time.sleep(self._random.uniform(0, self._pause))  # not all at the same moment
        while time.monotonic() < self._until:
            self._measure("list page", "GET", f"/?{urlencode({'page': self._random.randrange(1, 50)})}")
            query = {"search": f"{self._random.randrange(1000):03}", "order": "steps", "at_least": 0.02, "size": 50}
            rows = json.loads(self._measure("list, filtered", "GET", f"/api/episodes?{urlencode(query)}"))["rows"]
            for row in self._random.sample(rows, min(2, len(rows))):
                self._review(row["episode"])
        self._connection.close()

    def _review(self, episode: str) -> None:
        self._measure("case page", "GET", f"/case?{urlencode({'episode': episode})}")
        case = json.loads(self._measure("case data", "GET", f"/api/case?{urlencode({'episode': episode})}"))
        actions = case["observed"]["actions"]
        for _ in range(EDITS):
            actions[self._random.randrange(len(actions))] = self._random.randrange(len(case["treatments"]["actions"]))
            self._measure("dose tried", "POST", "/api/course", {"episode": episode, "actions": actions})

    def _measure(self, kind: str, method: str, path: str, body: Any = None) -> bytes:
        if time.monotonic() > self._until + 60:
            raise SystemExit("the server does not keep up")
        began = time.perf_counter()
        answer = ask(self._connection, method, path, body)
        self._measured.add(kind, time.perf_counter() - began)
        if self._pause:
            time.sleep(self._random.uniform(0.5, 1.5) * self._pause)
        return answer


def measure(port: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Let the users click, with a search beside them."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    first = json.loads(ask(connection, "GET", "/api/episodes?order=steps&descending=true&size=1"))["rows"][0]["episode"]
    body = {"episode": first, "max_changes": SOLVED_CHANGES, "seconds": 600}
    job = json.loads(ask(connection, "POST", "/api/jobs", body))["job"]
    time.sleep(arguments.warm_up)  # workers are ready, the search is under way
    measured = Measured()
    until = time.monotonic() + arguments.seconds
    users = [User(number, port, arguments.pause, until, measured) for number in range(arguments.users)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    connection = http.client.HTTPConnection("127.0.0.1", port)  # the first one is closed by now
    state = json.loads(ask(connection, "GET", f"/api/jobs/{job}"))["state"]
    began = time.perf_counter()
    ask(connection, "POST", f"/api/jobs/{job}/stop")
    while json.loads(ask(connection, "GET", f"/api/jobs/{job}"))["state"] == "running":
        time.sleep(0.01)
    return {"search": state, "stop_ms": round(1e3 * (time.perf_counter() - began), 1), "requests": measured.figures()}


def main() -> None:
    """Make the data, start the server, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=16_000)
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long they click")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two clicks of a user, on average")
    parser.add_argument("--warm-up", type=float, default=8.0, help="seconds before they begin")
    parser.add_argument("--keep", type=Path, help="a folder for the data, used again when it is there")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        if not (folder / "run" / "results.parquet").exists():
            folder.mkdir(parents=True, exist_ok=True)
            make_data(folder, arguments.episodes)
        with server(folder) as (port, seconds):
            found = {"episodes": arguments.episodes, "users": arguments.users, "pause": arguments.pause}
            found |= {"start_seconds": round(seconds, 2), **measure(port, arguments)}
    _show(found)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _show(found: dict[str, Any]) -> None:
    print(f"{found['episodes']:,} episodes: first page {found['start_seconds']:.1f} s after the start")
    print(f"{found['users']} users, {found['pause']:g} s between clicks, a search beside them ({found['search']})")
    print(f"stopping the search took {found['stop_ms']:.0f} ms")
    print(f"{'ms':<16}{'requests':>9}{'p50':>9}{'p95':>9}{'p99':>9}{'max':>9}")
    for kind, row in found["requests"].items():
        quantiles = "".join(f"{row[name]:>9.1f}" for name in ("p50", "p95", "p99", "max"))
        print(f"{kind:<16}{row['requests']:>9}{quantiles}")


if __name__ == "__main__":
    main()
