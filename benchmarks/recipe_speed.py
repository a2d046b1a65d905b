"""How fast questions are proven with the default recipe, beside the paper's: both models asked in turn, in one run.

    python benchmarks/recipe_speed.py --out rows.jsonl           # 1,000 and 2,000 stays: about an hour on one core
    python benchmarks/recipe_speed.py --out rows.jsonl --quick   # little of everything, to see it work

For each number of simulated training stays and each seed the recipe that `ifonly fit` chooses and the paper's limits
are fitted, and both answer the same questions about other patients: at most three changes in 12 and in 20 steps. Each
answer is carried out in the world itself. Seconds are those of the processor, which other work beside it hardly
changes. A line of the file is a number of stays, a seed and a number of steps; the same command goes on after those
that stand there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import clone  # noqa: F401
import torch
from paper import asking

from ifonly import Cohort, FitSettings, fit
from ifonly.evidence.recipes import fit_recipe
from ifonly.models.base import TrainableModel
from ifonly.models.fit import EncodedTransitions, evaluate, objective
from ifonly.models.recipes import RECIPES
from ifonly.simulate import SepsisWorld, simulate_cohort

TEST_SEED = 1_000_003
"""Of the test patients; no training cohort has it."""
PAPER, DEFAULT = "paper", "default"
NEGLIGIBLE = 1e-9
"""Gains up to this size are none."""


@dataclass(frozen=True)
class Settings:
    """What is fitted and asked."""

    stays: tuple[int, ...] = (1000, 2000)
    seeds: tuple[int, ...] = (0, 1)
    horizons: tuple[int, ...] = (12, 20)
    asked: int = 24
    changes: int = 3
    seconds: float = 10.0
    """Limit of a single question."""
    test_stays: int = 500
    """For the likelihood."""
    epochs: int = 50
    hidden: int = 200

    def fit(self, recipe: str, cohort: Cohort) -> FitSettings:
        """As `ifonly fit` does it, with half the epochs; the paper's model with twice its batch and rate."""
        if recipe == DEFAULT:
            return FitSettings.thorough(cohort, epochs=self.epochs)
        return FitSettings(epochs=self.epochs, batch_size=512, learning_rate=2e-3)


QUICK = Settings(stays=(40,), seeds=(0,), horizons=(6,), asked=2, changes=1, test_stays=10, epochs=2, hidden=8)


def fitted(stays: int, seed: int, settings: Settings) -> dict[str, TrainableModel]:
    """Both models, of the same stays and subjects held out."""
    cohort, hidden, recipe = simulate_cohort(stays, seed=seed), (settings.hidden,), RECIPES[PAPER]
    own = recipe.settings(settings.fit(PAPER, cohort))
    paper = fit(recipe.untrained(cohort.schema, hidden), cohort, settings=own, seed=seed)
    chosen = fit_recipe(cohort, hidden=hidden, settings=settings.fit(DEFAULT, cohort), seed=seed)
    return {PAPER: paper, DEFAULT: chosen}


@torch.no_grad()
def likelihoods(model: TrainableModel, test: Cohort) -> dict[str, float]:
    """Log densities of held-out transitions, in nats: of whole states, and of features each on its own."""
    rows = EncodedTransitions.of(model, test)
    margins = objective(model, rows, FitSettings(density="margins")).double().mean()
    return {"joint": evaluate(model, test, coordinates=SepsisWorld().scaler), "margins": float(margins)}


def answers(models: dict[str, TrainableModel], stays: Cohort, settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """What each model answers about each stay; all models about one stay before the next, as machines slow down."""
    world = SepsisWorld().for_search()
    searched = {name: model.for_search() for name, model in models.items()}
    question = asking.Question(settings.changes, allow_failed_model=True, seconds=settings.seconds)
    asking.warm_up("cpu")
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in models}
    for number in range(len(stays)):
        truth = question.problem(stays[number], world)
        for name, model in searched.items():
            problem, began = question.problem(stays[number], model), time.process_time()
            result = asking.answer(problem)
            sequences = torch.stack([truth.observed_actions, torch.as_tensor(list(result.actions))])
            before, after = truth.replay(sequences)[1].tolist()
            rows[name].append(
                {
                    "proven": result.status.value == "optimal",
                    "seconds": time.process_time() - began,
                    "nodes": result.stats.nodes_expanded,
                    "promised": result.improvement,
                    "true": after - before,
                }
            )
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """A model's answers in a few numbers."""
    return {
        "proven": statistics.fmean(row["proven"] for row in rows),
        "median_seconds": statistics.median(row["seconds"] for row in rows),
        "mean_seconds": statistics.fmean(row["seconds"] for row in rows),
        "median_nodes": statistics.median(row["nodes"] for row in rows),
        "promised": statistics.fmean(row["promised"] for row in rows),
        "true": statistics.fmean(row["true"] for row in rows),
        "helped": statistics.fmean(row["true"] > NEGLIGIBLE for row in rows),
    }


def measure(stays: int, seed: int, settings: Settings) -> list[dict[str, Any]]:
    """A row for each number of steps."""
    models, test = fitted(stays, seed, settings), simulate_cohort(settings.test_stays, seed=TEST_SEED)
    report = models[DEFAULT].fit_report
    assert report is not None, "it was just fitted"
    chosen = next(row for row in report.recipes if row.chosen)
    known = {name: likelihoods(model, test) for name, model in models.items()}
    measured = []
    for horizon in settings.horizons:
        asked = simulate_cohort(settings.asked, seed=TEST_SEED + horizon, horizon=horizon)
        found = {name: known[name] | summary(rows) for name, rows in answers(models, asked, settings).items()}
        measured.append(
            {
                **key(stays, seed, settings),
                "horizon": horizon,
                "recipe": chosen.recipe,
                "curvature": chosen.curvature,
                "ratio": found[DEFAULT]["median_seconds"] / found[PAPER]["median_seconds"],
                **found,
            }
        )
    return measured


def key(stays: int, seed: int, settings: Settings) -> dict[str, Any]:
    """What says which rows of a file are already there."""
    common = {name: value for name, value in asdict(settings).items() if name not in ("stays", "seeds", "horizons")}
    return {"stays": stays, "seed": seed, "settings": common}


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    cells = [f"{row['stays']:,} stays, seed {row['seed']}, T={row['horizon']}: {row['recipe']} {row['curvature']:g}"]
    for name in (PAPER, DEFAULT):
        one = row[name]
        cells.append(
            f"{name} {one['proven']:.0%} proven, {one['median_seconds']:.2f} s, {one['median_nodes']:.0f} nodes, "
            f"likelihood {one['margins']:.3f} ({one['joint']:.3f} joint), "
            f"promised {one['promised']:.2f}, true {one['true']:.2f} ({one['helped']:.0%})"
        )
    return "; ".join([*cells, f"{row['ratio']:.2f} times the paper's seconds"])


def main() -> None:
    """Measure what the file does not hold yet, and print every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="rows, as lines of JSON")
    parser.add_argument("--quick", action="store_true", help="little of everything, a few seconds")
    parser.add_argument("--stays", type=int, action="append", help="training stays; may be repeated")
    parser.add_argument("--seed", type=int, action="append", help="may be repeated")
    parser.add_argument("--seconds", type=float, help="limit of a single question, by the clock")
    parser.add_argument("--units", type=int, help="hidden units of both models")
    options = parser.parse_args()
    given = {"stays": options.stays, "seeds": options.seed, "seconds": options.seconds, "hidden": options.units}
    settings = replace(QUICK if options.quick else Settings(), **{n: v for n, v in given.items() if v is not None})
    torch.set_num_threads(1)
    rows = [json.loads(text) for text in options.out.read_text().splitlines()] if options.out.exists() else []
    for stays in settings.stays:
        for seed in settings.seeds:
            wanted = key(stays, seed, settings)
            there = [row for row in rows if {name: row[name] for name in wanted} == wanted]
            found = there or measure(stays, seed, settings)
            if not there:
                with options.out.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(row) + "\n" for row in found)
            for row in found:
                print(line(row), flush=True)


if __name__ == "__main__":
    main()
