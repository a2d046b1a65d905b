"""What a robust answer costs: solving for a panel of models, as a multiple of solving for one of them.

    python benchmarks/panel_cost.py                        # fits a model first; some ten minutes on one core
    python benchmarks/panel_cost.py --model FOLDER         # a model or an ensemble that is there already
    python benchmarks/panel_cost.py --quick                # the same with little of everything, to see it work

The stays are simulated, 12 steps and 25 actions. Of an ensemble its members are asked; of a single model `--members`
copies whose weights are multiplied by 1 + 0.05 times normal noise, which keep its Lipschitz limits. Each stay is solved
for the first member alone and for the panel under each objective, one after the other in the same process; seconds
are those of the processor, so that other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from ifonly import LocationScale, Problem, TransitionModel, fit, load_model, minus, solve
from ifonly.problem import Panel
from ifonly.search.result import Status
from ifonly.simulate import simulate_cohort

TEST_SEED = 1
"""Of the simulated stays that are asked about; the model is fitted to those of seed 0."""
OBJECTIVES: tuple[str | float, ...] = ("mean", "worst", 0.1)


@dataclass(frozen=True)
class Settings:
    """How much is done."""

    training: int = 2000
    epochs: int = 40
    hidden: int = 200
    members: int = 20
    stays: int = 5
    changes: int = 3
    noise: float = 0.05


QUICK = Settings(training=20, epochs=1, hidden=8, members=2, stays=1, changes=1)


def fitted(settings: Settings) -> TransitionModel:
    """The paper's kind of model, fitted to simulated stays."""
    stays = simulate_cohort(settings.training, seed=0)
    model = LocationScale(stays.schema, hidden=(settings.hidden,), lipschitz=(1.0, 0.1))
    return fit(model, stays, epochs=settings.epochs, seed=0)


def panel_models(model: TransitionModel, settings: Settings) -> list[TransitionModel]:
    """The members of an ensemble, or copies of a model with somewhat different weights; ready for searches."""
    members = getattr(model, "members", None)
    if members is None:
        members = [_varied(model, seed, settings.noise) for seed in range(settings.members)]
    return [member.for_search() for member in members]


def _varied(model: TransitionModel, seed: int, noise: float) -> TransitionModel:
    generator = torch.Generator().manual_seed(seed)
    varied = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in varied.parameters():
            parameter.mul_(1 + noise * torch.randn(parameter.shape, generator=generator))
    return varied


def measure(models: Sequence[TransitionModel], settings: Settings) -> list[dict[str, Any]]:
    """For every stay, seconds and nodes of the first member alone and of the panel under each objective."""
    stays = simulate_cohort(settings.stays, seed=TEST_SEED, horizon=12)
    first = Problem.from_episode(stays[0], models[0], minus("SOFA"), settings.changes)
    solve(first)  # what torch loads on first use belongs to no solve in particular
    rows = []
    for number in range(settings.stays):
        problem = Problem.from_episode(stays[number], models[0], minus("SOFA"), settings.changes)
        row = {"alone": _solved(problem)}
        for objective in OBJECTIVES:
            row[str(objective)] = _solved(Panel.from_problem(problem, models, objective=objective))
        rows.append(row)
    return rows


def _solved(question: Problem | Panel) -> dict[str, Any]:
    started = time.process_time()
    result = solve(question)
    return {
        "seconds": time.process_time() - started,
        "proven": result.status is Status.OPTIMAL,
        "expanded": result.stats.nodes_expanded,
        "generated": result.stats.nodes_generated,
        "improvement": result.improvement,
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """For each objective the median over stays, and the largest, of the panel's seconds over those of one member."""
    found = {}
    for objective in map(str, OBJECTIVES):
        ratios = [row[objective]["seconds"] / row["alone"]["seconds"] for row in rows]
        found[objective] = {
            "median_ratio": statistics.median(ratios),
            "largest_ratio": max(ratios),
            "median_seconds": statistics.median(row[objective]["seconds"] for row in rows),
            "median_nodes": statistics.median(row[objective]["expanded"] for row in rows),
            "proven": sum(row[objective]["proven"] for row in rows),
        }
    return found


def main() -> None:
    """Measure and print, and write the figures if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="folder of a fitted model or ensemble")
    parser.add_argument("--members", type=int, help="copies of a single model")
    parser.add_argument("--stays", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    chosen = {name: getattr(arguments, name) for name in ("members", "stays") if getattr(arguments, name) is not None}
    settings = Settings(**{**asdict(QUICK if arguments.quick else Settings()), **chosen})
    torch.set_num_threads(1)
    models = panel_models(load_model(arguments.model) if arguments.model else fitted(settings), settings)
    rows = measure(models, settings)
    figures = summary(rows)
    table = Table(title=f"{len(models)} members, k = {settings.changes}, {len(rows)} stays of 12 steps")
    for heading in ("objective", "ratio (median)", "ratio (largest)", "seconds", "nodes", "proven"):
        table.add_column(heading, justify="left" if heading == "objective" else "right")
    for name, entry in figures.items():
        ratios = f"{entry['median_ratio']:.1f}", f"{entry['largest_ratio']:.1f}"
        rest = f"{entry['median_seconds']:.2f}", f"{entry['median_nodes']:,.0f}", f"{entry['proven']} of {len(rows)}"
        table.add_row(name, *ratios, *rest)
    alone = statistics.median(row["alone"]["seconds"] for row in rows)
    nodes = statistics.median(row["alone"]["expanded"] for row in rows)
    table.add_row("one member alone", "1.0", "1.0", f"{alone:.2f}", f"{nodes:,.0f}", "")
    Console().print(table)
    if arguments.json:
        content = {"settings": asdict(settings), "members": len(models), "summary": figures, "stays": rows}
        arguments.json.write_text(json.dumps(content, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
