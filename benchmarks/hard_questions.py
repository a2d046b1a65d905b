"""Questions that are hard: many changes, which no search proves within seconds, and time within a range.

    python benchmarks/hard_questions.py                       # fits a model first; some 15 minutes on one core
    python benchmarks/hard_questions.py --model FOLDER        # with a model that is there
    python benchmarks/hard_questions.py --quick               # little of everything, to see it work

Simulated stays are asked for a smaller SOFA with many changes: told is how far the upper bound lies above the best
outcome found, in percent of that outcome and of the gain, as the range over the stays. Then mean arterial pressure is
to stay above 65, where nearly all steps can be brought, or from 85 to 100, where few can, with three changes. The
model is `residual-tails` with a curvature penalty of 0.03, fitted to 1,500 stays of another seed.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import ifonly
from ifonly.models import TransitionModel
from ifonly.models.fit import fit
from ifonly.models.fit_report import FitSettings
from ifonly.models.recipes import RECIPES
from ifonly.rewards import Reward, TimeInRange, Within

ASKED_SEED = 77
"""Of the stays that are asked about; the model is fitted to those of seed 0."""
RANGES: dict[str, Reward] = {
    "time in range, 65 and more": TimeInRange("MAP", 65, None, margin=5),
    "time in range, 85 to 100": TimeInRange("MAP", 85, 100, margin=5),
    "keep, 65 and more": Within("MAP", 65, None),
    "keep, 85 to 100": Within("MAP", 85, 100),
}


def fitted(folder: Path | None, stays: int, epochs: int) -> TransitionModel:
    """The model in a folder, or a new one."""
    if folder is not None:
        return ifonly.load_model(folder)
    cohort = ifonly.simulate.simulate_cohort(stays, seed=0)
    recipe = RECIPES["residual-tails"]
    settings = recipe.settings(FitSettings(epochs=epochs, curvature=0.03))
    return fit(recipe.untrained(cohort.schema), cohort, settings=settings)


def answers(
    model: TransitionModel, reward: Reward, horizon: int, changes: int | None, count: int, seconds: float
) -> Iterator[ifonly.Result]:
    """The same question put to some stays."""
    query = ifonly.Query(reward, changes, allow_failed_model=True)
    for episode in ifonly.simulate.simulate_cohort(count, seed=ASKED_SEED, horizon=horizon):
        problem = ifonly.Problem.from_episode(episode, model, query)
        yield ifonly.solve(problem, limits=ifonly.Limits(seconds=seconds))


def proven(results: Sequence[ifonly.Result]) -> str:
    """How many of the answers are proven."""
    return f"{sum(one.proven for one in results)} of {len(results)}"


def shares(results: Sequence[ifonly.Result], of_gain: bool) -> str:
    """The range of the gap, in percent of the outcome or of the gain, over the answers that have a useful bound."""
    known = [one for one in results if math.isfinite(one.gap)]
    found = [one.gap / abs(one.improvement if of_gain else one.outcome) for one in known]
    told = f"{min(found):.0%} to {max(found):.0%}" if found else "no useful bound"
    return told if len(known) in (0, len(results)) else f"{told} ({len(known)} of {len(results)})"


def main() -> None:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="a model that is there")
    parser.add_argument("--count", type=int, default=4, metavar="N", help="stays")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="limit of a search")
    parser.add_argument("--quick", action="store_true", help="little of everything")
    given = parser.parse_args()
    horizons, budgets = ([8], [5]) if given.quick else ([12, 20], [5, 6, None])
    count, seconds = (1, 0.5) if given.quick else (given.count, given.seconds)
    torch.set_num_threads(1)
    model = fitted(given.model, *((40, 1) if given.quick else (1500, 60))).for_search()
    many = Table("T", "k", "proven", "above the outcome", "of the gain", title=f"SOFA, {seconds:g} s")
    for horizon in horizons:
        for changes in budgets:
            found = list(answers(model, ifonly.minus("SOFA"), horizon, changes, count, seconds))
            row = (str(horizon), str(changes or "any"), proven(found))
            many.add_row(*row, shares(found, of_gain=False), shares(found, of_gain=True))
    ranges = Table("MAP", "T", "proven", "median seconds", "longest", "median nodes", title="3 changes")
    for name, reward in RANGES.items():
        for horizon in horizons:
            found = list(answers(model, reward, horizon, 3, count, seconds))
            took = [one.stats.seconds for one in found]
            nodes = statistics.median(one.stats.nodes_expanded for one in found)
            row = (name, str(horizon), proven(found), f"{statistics.median(took):.2f}", f"{max(took):.2f}")
            ranges.add_row(*row, f"{nodes:,.0f}")
    console = Console(width=100)
    console.print(many)
    console.print(ranges)


if __name__ == "__main__":
    main()
