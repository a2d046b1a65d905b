"""The exact solvers side by side, how time grows, and many episodes in one call.

    make bench                                    # everything, on the simulated cohort
    python benchmarks/solvers.py --quick          # few episodes, the slow solvers only where they are quickest
    python benchmarks/solvers.py --episodes COHORT --model MODEL    # also on stays and a model of your own

For T in {12, 20}, k in {3, 6, 10, no limit} and models with Lipschitz limits, with a curvature penalty and without
either: branch and bound, the paper's A* and exhaustive search, each in a fresh process. Proven outcomes must agree, or
the run fails. `--jobs N` keeps so many processes at work, each of one thread if OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from measuring import EXHAUSTIVE, NEW, SOLVERS, Content, Method, check_agreement, in_child, run, run_batch, run_series
from page import page, sections
from rich.console import Console
from rich.status import Status
from stays import ACTIONS, STATE_SIZE, WIDTH, Question, RandomQuestion

import ifonly
from ifonly import FitSettings
from ifonly.models.recipes import RECIPES
from ifonly.simulate import simulate_cohort

MODELS = ("constrained", "penalised", "unconstrained")
PENALISED, STRENGTH = RECIPES["residual-tails"], 0.03
"""What `ifonly fit` chooses for 1,000 simulated stays (docs/recipes.md); comparing recipes is no part of this."""
SLOW_HORIZON, SLOW_CHANGES = 12, 3
"""Where the slow solvers finish in some seconds, and are run on many stays."""
AXES: dict[str, tuple[int, ...]] = {
    "T": (8, 12, 16, 20, 30, 40),
    "k": (1, 2, 3, 4, 5, 6, 8),
    "A": (5, 10, 15, 20, ACTIONS),
    "D": (2, 4, STATE_SIZE, 16, 32),
    "width": (25, 50, 100, WIDTH, 400, 800),
}
GROWTH_EPISODES = 5
USUAL_CHANGES = 3
"""Where sizes grow: the fewest changes with which the Taylor bound leads at the usual sizes."""
BRIEF_TRAINING, BRIEF_EPOCHS = 500, 20
"""Models of other widths are fitted to so many stays for so many epochs."""
PARTS = ("solvers", "growth", "batch")


@dataclass(frozen=True)
class Training:
    """How a model of the benchmark is fitted."""

    name: str
    stays: int
    epochs: int
    width: int = WIDTH

    def path(self, folder: Path) -> Path:
        """Where it is kept."""
        return folder / f"{self.name}-{self.width}-{self.stays}-{self.epochs}"


def fit_model(training: Training, folder: Path) -> None:
    """Fit a model and store it; meant for a child process."""
    train = simulate_cohort(training.stays, seed=0)
    settings, hidden = FitSettings(epochs=training.epochs), (training.width,)
    if training.name == "penalised":
        start = PENALISED.untrained(train.schema, hidden)
        thorough = FitSettings.thorough(train, epochs=training.epochs, curvature=STRENGTH)
        settings = PENALISED.settings(thorough)
    else:
        limits = (1.0, 0.1) if training.name == "constrained" else None
        start = ifonly.LocationScale(train.schema, hidden=hidden, lipschitz=limits)
    training.path(folder).parent.mkdir(parents=True, exist_ok=True)
    ifonly.save_model(ifonly.fit(start, train, settings=settings, seed=0), training.path(folder))


@dataclass(frozen=True)
class Case:
    """One line of questions: a model, stays, a budget."""

    model: str
    stays: str
    horizon: str
    question: Question

    @property
    def is_slow_case(self) -> bool:
        """Whether the slow solvers get many stays."""
        return (self.horizon, self.question.changes) == (str(SLOW_HORIZON), SLOW_CHANGES)

    @property
    def is_hard(self) -> bool:
        """Whether searches may well not end."""
        return self.question.changes is None or self.question.changes > SLOW_CHANGES


@dataclass(frozen=True)
class Job:
    """What one child process does, and where its figures belong."""

    place: tuple[Any, ...]
    words: str
    work: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass
class Benchmark:
    """All parts of one run; what is known so far is saved whenever there is more."""

    options: argparse.Namespace
    folder: Path
    """Of the models."""
    status: Status
    found: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def run(self) -> None:
        """Every part that was asked for, after the models."""
        wanted = {training: training.path(self.folder) for training in self.trainings()}
        fits = [
            Job(("fit", training), f"fitting {path.name}", fit_model, (training, self.folder))
            for training, path in wanted.items()
            if not path.exists()
        ]
        self.carry_out(fits)
        parts = {"batch": self.batch_jobs, "growth": self.growth_jobs, "solvers": self.solver_jobs}
        self.carry_out([job for part in PARTS if part in self.options.only for job in parts[part]()])

    def carry_out(self, jobs: list[Job]) -> None:
        """Do all jobs, so many at a time, in their order."""
        done = 0
        with ThreadPoolExecutor(self.options.jobs) as pool:
            running = {pool.submit(in_child, job.work, *job.arguments): job for job in jobs}
            try:
                for future in as_completed(running):
                    job, done = running[future], done + 1
                    self.found[job.place] = future.result()
                    self.status.update(f"{done} of {len(jobs)} done: {job.words}")
                    self.save()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def content(self) -> Content:
        """The figures, as far as they are known."""
        settings = {name: str(v) if isinstance(v, Path) else v for name, v in vars(self.options).items()}
        left_out = {"cache", "episodes", "model", "json", "page"}
        content: Content = {
            "machine": machine(self.options.device),
            "settings": {name: value for name, value in settings.items() if name not in left_out},
        }
        known = {"solvers": self.solvers, "growth": self.growth, "batch": self.batch}
        return content | {part: known[part]() for part in known if part in self.options.only}

    def save(self) -> None:
        """Write the figures, if a file was given."""
        if self.options.json:
            self.options.json.parent.mkdir(parents=True, exist_ok=True)
            self.options.json.write_text(json.dumps(self.content()) + "\n", encoding="utf-8")

    def trainings(self) -> set[Training]:
        """The models that are asked for."""
        options, wanted = self.options, set()
        for name in options.models:
            wanted.add(self.training(name))
            if "growth" in options.only and ("width", name) in self.series():
                wanted |= {self.brief(name, width) for width in AXES["width"]}
        return wanted

    def training(self, name: str) -> Training:
        """The model of this name."""
        return Training(name, self.options.training, self.options.epochs)

    def brief(self, name: str, width: int) -> Training:
        """The same with another width."""
        options = self.options
        return Training(name, min(BRIEF_TRAINING, options.training), min(BRIEF_EPOCHS, options.epochs), width)

    def cases(self) -> Iterator[Case]:
        """Simulated stays, then those of a folder."""
        options = self.options
        for name in options.models:
            for horizon in options.horizons:
                for changes in options.changes:
                    path = self.training(name).path(self.folder)
                    question = Question(path, changes, options.count, horizon, device=options.device)
                    yield Case(name, "simulated", str(horizon), question)
        for model in options.model:
            for changes in options.changes:
                question = Question(model, changes, options.count, cohort=options.episodes, feature=options.feature)
                lengths = {len(episode) for episode in question.episodes()}
                horizon = " to ".join(str(length) for length in sorted({min(lengths), max(lengths)}))
                yield Case(model.name, options.stays, horizon, question)

    def count(self, case: Case, name: str) -> int:
        """How many stays of a case a solver gets; 0 where it has no chance."""
        options = self.options
        if name == NEW:
            return int(min(options.hard if case.is_hard else options.count, options.count))
        if name == EXHAUSTIVE and case.question.most_sequences() > options.most_sequences:
            return 0
        return int(min(options.slow if case.is_slow_case else options.probes, options.count))

    def solver_jobs(self) -> list[Job]:
        """The three exact solvers on every case; first what is quick, then what takes longest."""
        jobs = [
            Job(
                (case, name),
                f"{name}: {case.model}, {case.stays} stays, T={case.horizon}, k={case.question.changes}",
                run,
                (replace(case.question, count=self.count(case, name)), self.method(name)),
            )
            for case in self.cases()
            for name in SOLVERS
            if self.count(case, name)
        ]
        return sorted(jobs, key=lambda job: self.order(*job.place))

    def order(self, case: Case, name: str) -> int:
        """What is left of a run that was cut short should say as much as possible."""
        quick = name == NEW and not case.is_hard and case.model != "unconstrained"
        return 0 if quick else -self.count(case, name) + self.options.count + 1

    def solvers(self) -> list[Content]:
        """The cases that are finished, with what their solvers found."""
        return [self.compared(case) for case in self.cases() if all(self.is_known(case, name) for name in SOLVERS)]

    def is_known(self, case: Case, name: str) -> bool:
        """Whether nothing is left to do."""
        return (case, name) in self.found or not self.count(case, name)

    def compared(self, case: Case) -> Content:
        """The solvers side by side; they must agree."""
        sequences = case.question.most_sequences()
        runs = {name: self.found[case, name] for name in SOLVERS if (case, name) in self.found}
        if not self.count(case, EXHAUSTIVE) and sequences > self.options.most_sequences:
            runs[EXHAUSTIVE] = {"not_run": f"{sequences:.2g} sequences"}
        return {
            "model": case.model,
            "stays": case.stays,
            "horizon": case.horizon,
            "changes": case.question.changes,
            "sequences": sequences,
            "agreeing": check_agreement(runs),
            "runs": runs,
        }

    def method(self, name: str) -> Method:
        """A solver with the limit."""
        return Method(name, self.options.seconds, self.options.samples, self.options.processor)

    def series(self) -> Iterator[tuple[str, str]]:
        """What grows, and under which model."""
        for axis in self.options.axes:
            for name in ("random weights",) if axis == "D" else self.options.models:
                if (axis, name) != ("width", "unconstrained"):  # hours, to say what one width says
                    yield axis, name

    def growth_jobs(self) -> list[Job]:
        """The new solver, one size growing at a time."""
        return [
            Job(
                ("growth", axis, name),
                f"growth with {axis}: {name}",
                run_series,
                ([self.grown(axis, value, name) for value in AXES[axis]], self.method(NEW)),
            )
            for axis, name in self.series()
        ]

    def growth(self) -> list[Content]:
        """The series that are finished, size by size."""
        return [
            {"axis": axis, "model": name, "value": value, "episodes": episodes}
            for axis, name in self.series()
            for value, episodes in zip(AXES[axis], self.found.get(("growth", axis, name), ()), strict=False)
        ]

    def grown(self, axis: str, value: int, name: str) -> Question | RandomQuestion:
        """The usual question with one size changed."""
        count = min(GROWTH_EPISODES, self.options.count)
        usual = min(USUAL_CHANGES, max(USUAL_CHANGES if k is None else k for k in self.options.changes))
        if axis == "D":
            return RandomQuestion(value, usual, count)
        training = self.brief(name, value) if axis == "width" else self.training(name)
        return Question(
            model=training.path(self.folder),
            changes=value if axis == "k" else usual,
            count=count,
            horizon=value if axis == "T" else min(SLOW_HORIZON, max(self.options.horizons)),
            actions=value if axis == "A" else None,
        )

    def batch_jobs(self) -> list[Job]:
        """Many stays of different lengths in one call; without limits and penalty that would take hours."""
        options = self.options
        changes = min(SLOW_CHANGES, max(SLOW_CHANGES if k is None else k for k in options.changes))
        jobs = []
        for name in (name for name in options.models if name != "unconstrained"):
            path = self.training(name).path(self.folder)
            question = Question(path, changes, options.batch, (10, 20), device=options.device)
            words = f"solve_batch: {name}, {options.batch} stays"
            jobs.append(Job(("batch", name), words, run_batch, (question, min(GROWTH_EPISODES, options.count))))
        return jobs

    def batch(self) -> list[Content]:
        """What is finished of it."""
        names = [name for name in self.options.models if ("batch", name) in self.found]
        return [{"model": name, **self.found["batch", name]} for name in names]


def machine(device: str) -> Content:
    """Where the figures were measured, in general terms."""
    pages, size = (os.sysconf(name) if hasattr(os, "sysconf") else 0 for name in ("SC_PHYS_PAGES", "SC_PAGE_SIZE"))
    return {
        "system": f"{platform.system()} on {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": pages * size / 2**30,
        "accelerator": torch.cuda.get_device_name() if device.startswith("cuda") else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    """Measure, print tables, write files."""
    options = _options()
    console = Console(width=160)  # wide enough for the tables, also in a file
    with tempfile.TemporaryDirectory() as folder, console.status("starting") as status:
        benchmark = Benchmark(options, options.cache or Path(folder), status)
        benchmark.run()
        content = benchmark.content()
    for section in sections(content):
        console.print(section.as_rich())
    if options.page:
        options.page.parent.mkdir(parents=True, exist_ok=True)
        options.page.write_text(page([content]), encoding="utf-8")


def _budget(text: str) -> int | None:
    return None if text == "none" else int(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="at most 3 stays per case, no probes, 50 stays in one call")
    add("--only", nargs="+", choices=PARTS, default=list(PARTS), help="the parts to run")
    add("--count", type=int, default=20, help="stays per case")
    add("--hard", type=int, default=10, help="of these, where k exceeds 3 and searches may well not end")
    add("--slow", type=int, default=20, help="of these, for A* and exhaustive search at T = 12, k = 3")
    add("--probes", type=int, default=1, help="of these, for A* and exhaustive search elsewhere")
    add("--seconds", type=float, default=60.0, help="time limit of every solve")
    add("--most-sequences", type=float, default=2e7, help="more sequences than this are not enumerated")
    add("--models", nargs="*", choices=MODELS, default=list(MODELS))
    add("--horizons", nargs="+", type=int, default=[12, 20], help="T")
    add("--changes", nargs="+", type=_budget, default=[3, 6, 10, None], help="k; none for no limit")
    add("--samples", type=int, default=2000, help="Monte Carlo sequences for the anchors of A* (M)")
    add("--training", type=int, default=2000, help="simulated stays to fit on")
    add("--epochs", type=int, default=100)
    add("--axes", nargs="+", choices=list(AXES), default=list(AXES), help="what grows")
    add("--batch", type=int, default=1000, help="stays for solve_batch")
    add("--device", default="cpu", help="where problems are solved (growth: always cpu)")
    add("--cache", type=Path, help="folder that keeps the fitted models for the next run")
    add("--episodes", type=Path, help="folder with a cohort of your own, also asked about")
    add("--model", type=Path, action="append", default=[], help="folder with a model for it; may be repeated")
    add("--stays", default="given", help="what the stays of your own are called in tables")
    add("--about", default="", help="a sentence or two for the page")
    add("--feature", default="SOFA", help="what should be low in your own stays")
    add("--processor", action="store_true", help="tell processor seconds: for a machine on which others work")
    add("--jobs", type=int, default=1, help="processes at work")
    add("--json", type=Path, help="write all figures here, while they come")
    add("--page", type=Path, help="write a page of documentation here")
    options = parser.parse_args()
    if bool(options.episodes) != bool(options.model):
        parser.error("--episodes and --model belong together.")
    if options.quick:
        options.count, options.probes = min(options.count, 3), 0
        options.slow, options.batch = min(options.slow, 3), min(options.batch, 50)
    return options


if __name__ == "__main__":
    main()
