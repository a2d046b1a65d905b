"""What an ensemble costs, as ratios inside one run: training it, against one fit; using it, against one solve.

    python benchmarks/ensemble_cost.py                     # everything; about half an hour on two cores
    python benchmarks/ensemble_cost.py --quick             # the same with little of everything, to see it work
    python benchmarks/ensemble_cost.py --rounds 0 --ensemble FOLDER    # only its use, with an ensemble that is there

Training: every round fits once and trains the ensemble once, one after the other, so that what else the machine does
touches both; where it is busy only now and then the fastest of each is the fairest figure. The single fit uses one
thread, as it does by default (batches this small gain nothing from more); the ensemble one per core, as by default.
Twenty members come with a centre: twenty-one models are trained.

Use: an ensemble is trained in full, and each of some simulated stays (12 steps, 25 actions) is solved for its first
member alone and for all members together under each objective, one after the other in the same process. Seconds are
those of the processor, so that other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from ifonly import Ensemble, EnsembleProblem, LocationScale, Problem, load_model, minus, solve
from ifonly.data import Cohort
from ifonly.models.fit import FitSettings, fit
from ifonly.models.fit_ensemble import fit_ensemble
from ifonly.problem import BaseProblem
from ifonly.query import Query
from ifonly.result import Status
from ifonly.simulate import simulate_cohort

ASKED_SEED = 1
"""Of the simulated stays that are asked about; models are fitted to those of seed 0."""
OBJECTIVES: tuple[str | float, ...] = ("mean", "worst", 0.1)


@dataclass(frozen=True)
class Timing:
    """Seconds of one piece of work: by the clock, and of processors."""

    wall: float
    processor: float

    @classmethod
    def of(cls, work: Callable[[], object]) -> Timing:
        """Do it and take the time."""
        wall, processor = time.perf_counter(), time.process_time()
        work()
        return cls(time.perf_counter() - wall, time.process_time() - processor)


@dataclass(frozen=True)
class Training:
    """How members are trained when the time is taken."""

    members: int
    epochs: int
    threads: int
    rounds: int


def training(model: LocationScale, cohort: Cohort, how: Training) -> dict[str, float]:
    """How long one ensemble takes, as multiples of one fit; printed as well, round after round."""
    together = FitSettings(epochs=how.epochs, threads=how.threads)
    # What PyTorch loads and prepares on first use belongs to neither.
    fit(model, cohort, epochs=1)
    fit_ensemble(model, cohort, members=1, epochs=1)
    singles, wholes = [], []
    for number in range(how.rounds):
        singles.append(Timing.of(lambda: fit(model, cohort, epochs=how.epochs)))
        wholes.append(Timing.of(lambda: fit_ensemble(model, cohort, members=how.members, settings=together)))
        single, whole = singles[-1], wholes[-1]
        print(
            f"round {number + 1}: one fit {single.wall:6.2f} s ({single.processor:.2f} processor), "
            f"ensemble of {how.members} {whole.wall:6.2f} s ({whole.processor:.2f} processor): "
            f"{whole.wall / single.wall:.2f} times",
            flush=True,
        )
    pairs = list(zip(wholes, singles, strict=True))
    found = {
        "median": statistics.median(whole.wall / single.wall for whole, single in pairs),
        "fastest": min(whole.wall for whole in wholes) / min(single.wall for single in singles),
        "processor": statistics.median(whole.processor / single.processor for whole, single in pairs),
    }
    print(
        f"training, {how.threads} threads, {how.epochs} epochs, {how.rounds} rounds: {found['median']:.2f} times one "
        f"fit (median), {found['fastest']:.2f} (fastest of each), {found['processor']:.2f} its processor time"
    )
    return found


def use(ensemble: Ensemble, *, stays: int, changes: int) -> list[dict[str, Any]]:
    """For every stay, seconds and nodes of the first member alone and of all members under each objective."""
    asked = simulate_cohort(stays, seed=ASKED_SEED, horizon=12)
    members = [member.for_search() for member in ensemble.members]
    # What torch loads on first use belongs to no solve in particular.
    solve(Problem.from_episode(asked[0], members[0], Query(minus("SOFA"), min(changes, 2))))
    rows = []
    for number in range(stays):
        problem = Problem.from_episode(asked[number], members[0], Query(minus("SOFA"), changes))
        row = {"alone": _solved(problem)}
        for objective in OBJECTIVES:
            row[str(objective)] = _solved(EnsembleProblem.from_problem(problem, members, objective=objective))
        rows.append(row)
    return rows


def _solved(question: BaseProblem) -> dict[str, Any]:
    started = time.process_time()
    result = solve(question)
    return {
        "seconds": time.process_time() - started,
        "proven": result.status is Status.OPTIMAL,
        "nodes": result.stats.nodes_expanded,
        "improvement": result.improvement,
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """For each objective, the seconds of all members over those of one: the median over stays, and the largest."""
    found = {}
    for objective in map(str, OBJECTIVES):
        ratios = [row[objective]["seconds"] / row["alone"]["seconds"] for row in rows]
        found[objective] = {
            "median_ratio": statistics.median(ratios),
            "largest_ratio": max(ratios),
            "median_seconds": statistics.median(row[objective]["seconds"] for row in rows),
            "median_nodes": statistics.median(row[objective]["nodes"] for row in rows),
            "proven": sum(row[objective]["proven"] for row in rows),
        }
    return found


def show_use(rows: Sequence[dict[str, Any]], figures: dict[str, dict[str, float]], title: str) -> None:
    """Print the figures as a table."""
    table = Table(title=title)
    for heading in ("objective", "ratio (median)", "ratio (largest)", "seconds", "nodes", "proven"):
        table.add_column(heading, justify="left" if heading == "objective" else "right")
    for name, entry in figures.items():
        ratios = f"{entry['median_ratio']:.1f}", f"{entry['largest_ratio']:.1f}"
        rest = f"{entry['median_seconds']:.2f}", f"{entry['median_nodes']:,.0f}", f"{entry['proven']} of {len(rows)}"
        table.add_row(name, *ratios, *rest)
    seconds, nodes = (statistics.median(row["alone"][name] for row in rows) for name in ("seconds", "nodes"))
    table.add_row("one member alone", "1.0", "1.0", f"{seconds:.2f}", f"{nodes:,.0f}", "")
    Console().print(table)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=4, help="of every round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of the ensemble")
    parser.add_argument("--ensemble", type=Path, help="folder of an ensemble to use, instead of training one in full")
    parser.add_argument("--full-epochs", type=int, default=40, help="of the ensemble that is used")
    parser.add_argument("--stays", type=int, default=5, help="to solve")
    parser.add_argument("--changes", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="little of everything")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.episodes, chosen.members, chosen.hidden, chosen.epochs, chosen.rounds = 30, 2, 8, 1, 1
        chosen.full_epochs, chosen.stays, chosen.changes = 1, 1, 1
    return chosen


def main() -> None:
    """Measure, print, and write the figures if asked to."""
    chosen = arguments()
    cohort = simulate_cohort(chosen.episodes, seed=0)
    model = LocationScale(cohort.schema, hidden=(chosen.hidden,), lipschitz=(1.0, 0.1))
    figures: dict[str, Any] = {"settings": {name: str(value) for name, value in vars(chosen).items()}}
    if chosen.rounds:
        how = Training(chosen.members, chosen.epochs, chosen.threads, chosen.rounds)
        figures["training"] = training(model, cohort, how)
    if chosen.ensemble is None:
        settings = FitSettings(epochs=chosen.full_epochs, threads=chosen.threads)
        ensemble = fit_ensemble(model, cohort, members=chosen.members, settings=settings, seed=0)
    else:
        ensemble = load_model(chosen.ensemble)
        if not isinstance(ensemble, Ensemble):
            raise SystemExit(f"{chosen.ensemble}: holds one model, not an ensemble.")
    torch.set_num_threads(1)
    rows = use(ensemble, stays=chosen.stays, changes=chosen.changes)
    figures["use"] = summary(rows)
    show_use(rows, figures["use"], f"{len(ensemble)} members, k = {chosen.changes}, {len(rows)} stays of 12 steps")
    if chosen.json:
        chosen.json.write_text(json.dumps({**figures, "stays": rows}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
