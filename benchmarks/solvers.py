"""The exact solvers side by side, how time grows, and many episodes in one call.

    make bench                                    # everything, on the simulated cohort
    python benchmarks/solvers.py --quick          # few episodes, the slow solvers only where they are quickest
    python benchmarks/solvers.py --episodes COHORT --model MODEL    # also on stays and a model of your own

For T in {12, 20}, k in {3, 6, 10, no limit} and models with and without Lipschitz limits: branch and bound, the
paper's A* and exhaustive search, each in a fresh process. Proven outcomes must agree, or the run fails.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from measuring import ANCHORS, EXHAUSTIVE, NEW, Content, Method, check_agreement, in_child, run, run_batch, run_series
from page import page, sections
from rich.console import Console
from rich.status import Status
from stays import ACTIONS, STATE_SIZE, WIDTH, Question, RandomQuestion

import ifonly
from ifonly.simulate import simulate_cohort

LIMITS: dict[str, tuple[float, float] | None] = {"constrained": (1.0, 0.1), "unconstrained": None}
SLOW_HORIZON, SLOW_CHANGES = 12, 3
"""Where the slow solvers finish in some seconds, and are run on many stays."""
AXES: dict[str, tuple[int, ...]] = {
    "T": (8, 12, 16, 20, 30, 40),
    "k": (1, 2, 3, 4, 6, 8, 10),
    "A": (3, 5, 10, 15, 20, ACTIONS),
    "D": (2, 4, STATE_SIZE, 16, 32),
    "width": (25, 50, 100, WIDTH, 400, 800),
}
GROWTH_EPISODES = 5
USUAL_CHANGES = 2
"""Where sizes grow."""
BRIEF_TRAINING, BRIEF_EPOCHS = 500, 20
"""Models of other widths are fitted to so many stays for so many epochs."""
PARTS = ("solvers", "growth", "batch")


class Models:
    """Fitted models in a folder: fitted once, found again in the next run."""

    def __init__(self, folder: Path, status: Status) -> None:
        self.folder, self.status = folder, status

    def get(self, name: str, *, training: int, epochs: int, width: int = WIDTH) -> Path:
        """The folder of the model with the limits called `name`."""
        path = self.folder / f"{name}-{width}-{training}-{epochs}"
        if not path.exists():
            self.status.update(f"fitting {path.name}")
            train = simulate_cohort(training, seed=0)
            start = ifonly.LocationScale(train.schema, hidden=(width,), lipschitz=LIMITS[name])
            path.parent.mkdir(parents=True, exist_ok=True)
            ifonly.save_model(ifonly.fit(start, train, epochs=epochs, seed=0), path)
        return path


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


class Benchmark:
    """All parts of one run; `content` holds what is known so far, and is saved whenever there is more."""

    def __init__(self, options: argparse.Namespace, models: Models, status: Status) -> None:
        self.options, self.models, self.status = options, models, status
        settings = {name: str(v) if isinstance(v, Path) else v for name, v in vars(options).items()}
        folders = {"cache", "episodes", "model", "json", "page"}
        self.content: Content = {
            "machine": machine(options.device),
            "settings": {name: value for name, value in settings.items() if name not in folders},
        }

    def run(self) -> None:
        """Every part that was asked for."""
        for part in self.options.only:
            self.content[part] = []
            {"solvers": self.solvers, "growth": self.growth, "batch": self.batch}[part]()

    def save(self) -> None:
        """Write the figures, if a file was given."""
        if self.options.json:
            self.options.json.parent.mkdir(parents=True, exist_ok=True)
            self.options.json.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")

    def solvers(self) -> None:
        """The three exact solvers on every case."""
        for case in self.cases():
            runs = {NEW: self.measure(case, NEW, self.options.count)}
            sequences = max(episode["sequences"] for episode in runs[NEW]["episodes"])
            count = min(self.options.slow if case.is_slow_case else self.options.probes, self.options.count)
            for name in (ANCHORS, EXHAUSTIVE):
                if name == EXHAUSTIVE and sequences > self.options.most_sequences:
                    runs[name] = {"not_run": f"{sequences:.2g} sequences"}
                elif count:
                    runs[name] = self.measure(case, name, count)
            self.content["solvers"].append(
                {
                    "model": case.model,
                    "stays": case.stays,
                    "horizon": case.horizon,
                    "changes": case.question.changes,
                    "sequences": sequences,
                    "agreeing": check_agreement(runs),
                    "runs": runs,
                }
            )
            self.save()

    def cases(self) -> list[Case]:
        """Simulated stays, then those of a folder."""
        options = self.options
        cases = []
        for name in options.models:
            model = self.models.get(name, training=options.training, epochs=options.epochs)
            for horizon in options.horizons:
                for changes in options.changes:
                    question = Question(model, changes, options.count, horizon, device=options.device)
                    cases.append(Case(name, "simulated", str(horizon), question))
        if options.episodes:
            for model in options.model:
                for changes in options.changes:
                    question = Question(model, changes, options.count, cohort=options.episodes, feature=options.feature)
                    lengths = {len(episode) for episode in question.episodes()}
                    horizon = " to ".join(str(length) for length in sorted({min(lengths), max(lengths)}))
                    cases.append(Case(model.name, "given", horizon, question))
        return cases

    def measure(self, case: Case, name: str, count: int) -> Content:
        """One solver on the first `count` stays of a case."""
        self.status.update(f"{name}: {case.model}, {case.stays} stays, T={case.horizon}, k={case.question.changes}")
        question = Question(**{**vars(case.question), "count": count})
        return in_child(run, question, self.method(name))

    def method(self, name: str) -> Method:
        """A solver with the limit."""
        return Method(name, self.options.seconds, self.options.samples)

    def growth(self) -> None:
        """The new solver, one size growing at a time."""
        for axis in self.options.axes:
            for name in ("constrained",) if axis == "D" else self.options.models:
                values, questions = AXES[axis], [self.grown(axis, value, name) for value in AXES[axis]]
                self.status.update(f"growth with {axis}: {name}")
                series = in_child(run_series, questions, self.method(NEW))
                model = "random weights" if axis == "D" else name
                self.content["growth"] += [
                    {"axis": axis, "model": model, "value": value, "episodes": episodes}
                    for value, episodes in zip(values, series, strict=False)
                ]
                self.save()

    def grown(self, axis: str, value: int, name: str) -> Question | RandomQuestion:
        """The usual question with one size changed."""
        count = min(GROWTH_EPISODES, self.options.count)
        if axis == "D":
            return RandomQuestion(value, USUAL_CHANGES, count)
        training, epochs = self.options.training, self.options.epochs
        if axis == "width":
            training, epochs = min(BRIEF_TRAINING, training), min(BRIEF_EPOCHS, epochs)
        width = value if axis == "width" else WIDTH
        return Question(
            model=self.models.get(name, training=training, epochs=epochs, width=width),
            changes=value if axis == "k" else USUAL_CHANGES,
            count=count,
            horizon=value if axis == "T" else min(SLOW_HORIZON, max(self.options.horizons)),
            actions=value if axis == "A" else None,
        )

    def batch(self) -> None:
        """Many stays of different lengths in one call."""
        options = self.options
        for name in options.models:
            model = self.models.get(name, training=options.training, epochs=options.epochs)
            changes = min(SLOW_CHANGES, max(SLOW_CHANGES if k is None else k for k in options.changes))
            question = Question(model, changes, options.batch, (10, 20), device=options.device)
            self.status.update(f"solve_batch: {name}, {options.batch} stays")
            self.content["batch"].append({"model": name, **in_child(run_batch, question, sample=options.count)})
            self.save()


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
        benchmark = Benchmark(options, Models(options.cache or Path(folder), status), status)
        benchmark.run()
    for section in sections(benchmark.content):
        console.print(section.as_rich())
    if options.page:
        options.page.parent.mkdir(parents=True, exist_ok=True)
        options.page.write_text(page([benchmark.content]), encoding="utf-8")


def _budget(text: str) -> int | None:
    return None if text == "none" else int(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="at most 3 stays per case, no probes, 50 stays in one call")
    add("--only", nargs="+", choices=PARTS, default=list(PARTS), help="the parts to run")
    add("--count", type=int, default=20, help="stays per case")
    add("--slow", type=int, default=20, help="of these, for A* and exhaustive search at T = 12, k = 3")
    add("--probes", type=int, default=1, help="of these, for A* and exhaustive search elsewhere")
    add("--seconds", type=float, default=60.0, help="time limit of every solve")
    add("--most-sequences", type=float, default=2e7, help="more sequences than this are not enumerated")
    add("--models", nargs="+", choices=list(LIMITS), default=list(LIMITS))
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
    add("--feature", default="SOFA", help="what should be low in your own stays")
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
