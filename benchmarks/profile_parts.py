"""Where the time of a solve goes: its parts in processor time, for questions of several sizes in one run.

    python benchmarks/profile_parts.py                      # models are fitted first: a minute
    python benchmarks/profile_parts.py --cache runs/bench/models --json benchmarks/measured/4-parts.json

Parts are told by the functions that do them; the time of a function is its own, without that of another part inside it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from measuring import Content
from page import parts_of_solves
from rich.console import Console
from solvers import Training, fit_model, machine
from stays import Question, RandomQuestion, warm_up_problem

import ifonly
from ifonly.problem import Problem

SEARCH, BOUND = "ifonly.search.branch_and_bound", "ifonly.bounds.taylor.bound"
PARTS = {
    "first sequences": ((SEARCH, "PrefixCache"), (SEARCH, "offer_given"), (SEARCH, "offer_starts")),
    "values": ((BOUND, "expand_values"),),
    "changes": ((BOUND, "expand_advantages"),),
    "tables": ((BOUND, "build_tables"),),
    "children": ((SEARCH, "bound_root"), (SEARCH, "bound_children"), (SEARCH, "prune")),
    "look ahead": ((SEARCH, "look_ahead"),),
    "replays": ((SEARCH, "expand"), (SEARCH, "try_leaves")),
    "results": (("ifonly.search.solve", "result_of"), ("ifonly.search.batch", "build_results")),
}
"""What a part is called, and the functions that do it, by the modules in which they are called."""
REST = "rest"
MODELS = ("penalised", "constrained")
CHANGES, FEATURES = 3, 32


@dataclass
class Meter:
    """Seconds of the processor, each counted for the part that was begun last and has not ended."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    begun: list[str] = field(default_factory=lambda: [REST])
    since: float = field(default_factory=time.process_time)

    def turn(self) -> None:
        """Count what has passed."""
        now = time.process_time()
        self.seconds[self.begun[-1]] += now - self.since
        self.since = now

    def counting(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time counted for a part."""

        def counted(*args: Any, **options: Any) -> Any:
            self.turn()
            self.begun.append(part)
            try:
                return function(*args, **options)
            finally:
                self.turn()
                self.begun.pop()

        return counted


@contextmanager
def metered() -> Iterator[Meter]:
    """What is solved inside is counted, part by part."""
    meter, before = Meter(), []
    for part, functions in PARTS.items():
        for name, function in functions:
            module = importlib.import_module(name)
            before.append((module, function, getattr(module, function)))
            setattr(module, function, meter.counting(part, getattr(module, function)))
    try:
        yield meter
        meter.turn()
    finally:
        for module, function, original in before:
            setattr(module, function, original)


def of_each(problems: Sequence[Problem]) -> list[dict[str, float]]:
    """The parts of every solve by itself."""
    found = []
    for problem in problems:
        with metered() as meter:
            ifonly.solve(problem)
        found.append(dict(meter.seconds))
    return found


def of_all(problems: Sequence[Problem]) -> list[dict[str, float]]:
    """The parts of one call for all problems, as shares of each."""
    with metered() as meter:
        ifonly.solve_batch(list(problems))
    return [{part: seconds / len(problems) for part, seconds in meter.seconds.items()}]


def measured(name: str, horizon: str, problems: Iterator[Problem], *, together: bool = False) -> Content:
    """One row: medians over stays of milliseconds, in all and of each part."""
    started = time.process_time()
    every = list(problems)
    building = (time.process_time() - started) / len(every)
    found = of_all(every) if together else of_each(every)
    names = [part for part in (*PARTS, REST) if part in {name for one in found for name in one}]
    middle = {part: statistics.median(one.get(part, 0.0) for one in found) for part in names}
    return {
        "model": name,
        "horizon": horizon,
        "stays": len(every),
        "together": together,
        "milliseconds": 1e3 * statistics.median(sum(one.values()) for one in found),
        "problem": 1e3 * building,
        "parts": {part: 1e3 * seconds for part, seconds in middle.items()},
    }


def rows(options: argparse.Namespace, folder: Path) -> Iterator[Content]:
    """Every row, after the models that it asks."""
    trainings = {name: Training(name, options.training, options.epochs) for name in MODELS}
    for training in trainings.values():
        if not training.path(folder).exists():
            fit_model(training, folder)
    ifonly.solve(warm_up_problem())
    for horizon in options.horizons:
        for name in MODELS:
            question = Question(trainings[name].path(folder), CHANGES, options.count, horizon)
            yield measured(name, str(horizon), question.problems())
    shortest, (least, most) = min(options.horizons), options.spread
    wide = RandomQuestion(options.features, CHANGES, min(3, options.count), shortest)
    yield measured(f"random weights, D = {options.features}", str(shortest), wide.problems())
    question = Question(trainings["penalised"].path(folder), CHANGES, options.batch, (least, most))
    yield measured("penalised", f"{least} to {most}", question.problems(), together=True)


def main() -> None:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--count", type=int, default=20, help="stays of each question")
    add("--batch", type=int, default=200, help="stays in one call")
    add("--horizons", type=int, nargs="+", default=[12, 20], help="T")
    add("--spread", type=int, nargs=2, default=[10, 20], help="T of the stays in one call, from and to")
    add("--features", type=int, default=FEATURES, help="D of the model with random weights")
    add("--training", type=int, default=1000, help="simulated stays to fit on")
    add("--epochs", type=int, default=40)
    add("--cache", type=Path, help="folder that keeps the fitted models for the next run")
    add("--about", default="", help="a sentence for the page")
    add("--json", type=Path, help="write all figures here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        found = list(rows(options, options.cache or Path(folder)))
    settings = {name: getattr(options, name) for name in ("count", "batch", "training", "epochs", "about")}
    content: Content = {"machine": machine("cpu"), "settings": settings, "parts": found}
    Console(width=160).print(parts_of_solves(content).as_rich())
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
