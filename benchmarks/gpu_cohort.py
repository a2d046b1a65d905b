"""How long a cohort run takes from episodes to stored results, and which stage takes it; on a GPU or a processor.

    python benchmarks/gpu_cohort.py --device cuda                     # 16,000 simulated stays
    python benchmarks/gpu_cohort.py --device cpu --stays 300 --workers 1
    python benchmarks/gpu_cohort.py --device cuda --stays 2000 --profile 30
    python benchmarks/gpu_cohort.py --device cuda --stays 1000 --evidence    # and what a verdict needs, beside without

Prints JSON. Stages are measured in this process only, so with several workers there is nothing but the whole. On a
GPU each stage ends when the GPU has done its part. `--profile N` adds the N functions with the most time of their own,
which makes everything slower.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import ifonly
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.evidence.recipes import fit_recipe
from ifonly.models.base import TransitionModel
from ifonly.models.fit import fit
from ifonly.models.recipes import find_recipe
from ifonly.query import Query
from ifonly.runs import RunSettings, solve_cohort
from ifonly.simulate import simulate_cohort

STAGES = {
    "problems": ("ifonly.runs.task", "build_problems"),
    "bounds": ("ifonly.search.branch_and_bound", "make_child_bound"),
    "search": ("ifonly.search.batch", "branch_and_bound"),
    "results": ("ifonly.search.batch", "build_results"),
    "evidence": ("ifonly.runs.task", "examine_all"),
    "halves": ("ifonly.evidence.examination", "honest_gains"),
    "influences": ("ifonly.evidence.examination", "sensitivities"),
    "rows": ("ifonly.runs.task", "to_row"),
    "lines": ("ifonly.runs.folder", "RunFolder.add"),
    "table": ("ifonly.runs.folder", "RunFolder.finish"),
}
"""Where each stage is called; time in a stage within another counts for the inner one only."""


@dataclass
class Stopwatch:
    """Seconds spent in each stage."""

    device: str
    seconds: Counter[str] = field(default_factory=Counter)
    _open: list[float] = field(default_factory=list)

    def timed(self, stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work, with its time counted."""

        def timed_work(*args: Any, **kwargs: Any) -> Any:
            started = self._now()
            self._open.append(0.0)
            try:
                return work(*args, **kwargs)
            finally:
                whole = self._now() - started
                self.seconds[stage] += whole - self._open.pop()
                if self._open:
                    self._open[-1] += whole

        return timed_work

    def _now(self) -> float:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()
        return time.perf_counter()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count the time of every stage while this lasts."""
        patches = []
        for stage, (module, name) in STAGES.items():
            owner: Any = import_module(module)
            *classes, function = name.split(".")
            for one in classes:
                owner = getattr(owner, one)
            patches.append(patch.object(owner, function, self.timed(stage, getattr(owner, function))))
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()


def fitted(recipe: str, stays: int, epochs: int) -> TransitionModel:
    """A model of a recipe, fitted to simulated stays of another seed than those that are asked about."""
    training = simulate_cohort(stays, seed=0)
    return fit(find_recipe(recipe).untrained(training.schema), training, epochs=epochs)


def measure(options: argparse.Namespace, out: Path) -> dict[str, Any]:
    """The run of one cohort, in numbers; with evidence beside the same run without."""
    query = Query(ifonly.minus("SOFA"), options.changes, allow_failed_model=True)
    if not options.evidence:
        model = ifonly.load_model(options.model) if options.model else fitted(options.recipe, 2000, options.epochs)
        return measure_run(options, out, model, query)
    model, behaviour = with_members(options.epochs)
    without = measure_run(options, out / "without", model, query)
    asked = query.with_changes(honest=True, sensitivity=True)
    found = measure_run(options, out / "with", model, asked, behaviour=behaviour)
    times = (found["seconds"] - without["seconds"]) / without["seconds"]
    return {"without": without, "with": found, "evidence_in_times_of_a_run_without": round(times, 2)}


def with_members(epochs: int) -> tuple[TransitionModel, BehaviourModel]:
    """Members of kinds, fitted to either half of some simulated stays, and what clinicians do there."""
    training = simulate_cohort(500, seed=0)
    recipes = [replace(find_recipe(name), strengths=(0.03,)) for name in ("residual", "plain-tails")]
    settings = ifonly.FitSettings.thorough(training, epochs=epochs)
    model = fit_recipe(training, recipes=recipes, hidden=(64,), refits="kinds", settings=settings)
    return model, ifonly.fit_behaviour(training, settings=ifonly.BehaviourSettings(epochs=10))


def measure_run(
    options: argparse.Namespace,
    out: Path,
    model: TransitionModel,
    query: Query,
    behaviour: BehaviourModel | None = None,
) -> dict[str, Any]:
    """One query put to one cohort, in numbers."""
    settings = RunSettings(workers=options.workers, device=options.device, chunk=options.chunk)
    shortest, longest = options.steps
    warm = simulate_cohort(64, seed=2, horizon=(shortest, longest))
    solve_cohort(warm, model, query, out=out / "warm", behaviour=behaviour, settings=settings)
    cohort = simulate_cohort(options.stays, seed=1, horizon=(shortest, longest))
    watch, profile = Stopwatch(options.device), cProfile.Profile()
    started, processor = time.perf_counter(), time.process_time()
    with watch.watching():
        if options.profile:
            profile.enable()
        run = solve_cohort(cohort, model, query, out=out / "run", behaviour=behaviour, settings=settings)
        profile.disable()
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    table = run.table()
    stages = {stage: round(watch.seconds[stage], 3) for stage in STAGES}
    figures = {
        "device": torch.cuda.get_device_name() if options.device.startswith("cuda") else "cpu",
        "workers": settings.worker_count if options.device == "cpu" else 1,
        "torch": torch.__version__,
        "model": "kinds" if options.evidence else str(options.model or options.recipe),
        "stays": len(cohort),
        "steps": [shortest, longest],
        "changes": options.changes,
        "seconds": round(seconds, 2),
        "processor_seconds": round(processor, 2),
        "milliseconds_per_stay": round(1e3 * seconds / len(cohort), 3),
        "status": dict(Counter(table["status"].to_list())),
        "median_nodes": statistics.median(one["nodes_expanded"] for one in table["stats"]),
        "stages": {**stages, "rest": round(seconds - sum(stages.values()), 3)},
    }
    if options.device.startswith("cuda"):
        figures["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    if options.profile:
        figures["functions"] = slowest(profile, options.profile)
    return figures


def slowest(profile: cProfile.Profile, count: int) -> list[dict[str, Any]]:
    """The functions with the most time of their own."""
    pairs = sorted(pstats.Stats(profile).stats.items(), key=lambda pair: -pair[1][2])[:count]  # type: ignore[attr-defined]
    return [
        {
            "function": f"{Path(file).name}:{line} {name}",
            "calls": calls,
            "own": round(own, 3),
            "whole": round(whole, 3),
        }
        for (file, line, name), (_, calls, own, whole, _) in pairs
    ]


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """What is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--stays", type=int, default=16_000)
    parser.add_argument("--steps", type=int, nargs=2, default=(10, 20), metavar=("SHORTEST", "LONGEST"))
    parser.add_argument("--changes", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="processes, on a processor")
    parser.add_argument("--chunk", type=int, help="episodes solved together")
    parser.add_argument("--recipe", default="paper", help="of the model that is fitted, unless one is given")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--model", type=Path, help="a folder with a model")
    parser.add_argument("--evidence", action="store_true", help="members of kinds, and all that a verdict needs")
    parser.add_argument("--profile", type=int, default=0, metavar="N", help="list the N slowest functions")
    parser.add_argument("--json", type=Path, help="write the figures to this file, too")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print."""
    options = options_of(arguments)
    with tempfile.TemporaryDirectory() as folder:
        figures = json.dumps(measure(options, Path(folder)), indent=2)
    print(figures)
    if options.json:
        options.json.write_text(figures + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
