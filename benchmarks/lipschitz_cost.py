"""What a Lipschitz limit costs in held-out likelihood, and what dropping it does to counterfactuals.

    python benchmarks/lipschitz_cost.py            # the figures of docs/lipschitz-cost.md: about 20 minutes on one core
    python benchmarks/lipschitz_cost.py --quick    # the same with little of everything, to see it work

Location-scale networks are fitted to simulated stays with several limits (L_h, L_phi) and with none, and compared with
the truth on other patients: log-likelihood per transition, errors of counterfactual states, and how much of the
attainable improvement the recommended changes truly bring. Each seed has its own training stays and starting weights;
all fits answer for the same test patients. Optima, the models' and the true ones, are exact (exhaustive search).
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
from paper.accuracy import LEARNED, counterfactual_accuracy, recommendation_quality, true_optima
from rich.console import Console
from rich.table import Table

from ifonly import Cohort, Exhaustive, LocationScale, Result, fit
from ifonly.models.fit import evaluate
from ifonly.simulate import SepsisWorld, simulate_cohort

Limits = tuple[float, float] | None

LIMITS: tuple[Limits, ...] = ((0.8, 0.1), (1.0, 0.1), (1.2, 0.1), (1.0, 0.3), None)
TEST_SEED = 1_000_003
"""Of the test patients; no training cohort has it."""


@dataclass(frozen=True)
class Settings:
    """What is fitted and asked."""

    epochs: tuple[tuple[int, int], ...] = ((500, 100), (2000, 60), (8000, 30))
    """Training stays, and the most epochs; the best of them on held-out training patients is kept."""
    seeds: int = 2
    limits: tuple[Limits, ...] = LIMITS
    test_stays: int = 500
    """For the likelihood, 10 to 20 steps each."""
    asked: int = 60
    """Further test stays of 12 steps for counterfactual states."""
    sequences: int = 10
    """Random questions for each, with up to `changes` changes."""
    solved: int = 20
    """How many of them get a recommendation."""
    changes: int = 2


QUICK = Settings(
    epochs=((30, 2), (60, 2)),
    seeds=1,
    limits=((1.0, 0.1), None),
    test_stays=10,
    asked=3,
    sequences=3,
    solved=2,
    changes=1,
)


@dataclass(frozen=True)
class Row:
    """One fit, judged by the truth."""

    stays: int
    limits: Limits
    seed: int
    epochs: int
    kept_epoch: int
    seconds: float
    constants: tuple[float, float]
    """Exact constants of the fitted networks (products of spectral norms)."""
    log_likelihood: float
    """Per held-out transition, in nats, in the world's coordinates."""
    gap: float
    """The truth's log-likelihood minus this one."""
    state_error: float
    skill: float
    promised: float
    realised: float
    attainable: float
    share_realised: float
    share_helpful: float


@dataclass(frozen=True)
class Test:
    """The patients that no model was fitted to, and the truth about them."""

    world: SepsisWorld
    stays: Cohort
    asked: Cohort
    optima: dict[str, Result]
    log_likelihood: float

    @classmethod
    def make(cls, settings: Settings) -> Test:
        """Simulate, and find the true optima."""
        world = SepsisWorld()
        stays = simulate_cohort(settings.test_stays, seed=TEST_SEED)
        asked = simulate_cohort(settings.asked, seed=TEST_SEED + 1, horizon=12)
        solved = [asked[position] for position in range(settings.solved)]
        optima = true_optima(world, solved, max_changes=settings.changes)
        return cls(world, stays, asked, optima, _true_log_likelihood(world, stays))


@torch.no_grad()
def _true_log_likelihood(world: SepsisWorld, cohort: Cohort) -> float:
    rows, scaler = cohort.transitions(), world.scaler
    states, following = (torch.as_tensor(scaler.states.encode(values)) for values in (rows.states, rows.next_states))
    context = torch.as_tensor(scaler.context.encode(rows.context))
    return float(world.log_prob(states, context, torch.tensor(rows.actions), following).mean())


def measure(test: Test, settings: Settings, *, stays: int, epochs: int, limits: Limits, seed: int) -> Row:
    """Fit one model and compare it with the truth."""
    train = simulate_cohort(stays, seed=seed)
    started = time.perf_counter()
    model = fit(LocationScale(train.schema, lipschitz=limits), train, epochs=epochs, seed=seed)
    seconds = time.perf_counter() - started
    assert model.fit_report is not None
    likelihood = evaluate(model, test.stays, coordinates=test.world.scaler)
    states = counterfactual_accuracy(
        test.world, model, test.asked, changes=settings.changes, sequences=settings.sequences
    )
    solved = [test.asked[position] for position in range(settings.solved)]
    advice = recommendation_quality(
        test.world, model, solved, max_changes=settings.changes, solver=Exhaustive(), optima=test.optima
    )
    return Row(
        stays=stays,
        limits=limits,
        seed=seed,
        epochs=epochs,
        kept_epoch=model.fit_report.kept_epoch,
        seconds=seconds,
        constants=(model.location.state_lipschitz(), model.scale.state_lipschitz()),
        log_likelihood=likelihood,
        gap=test.log_likelihood - likelihood,
        state_error=float(states.by_feature_scaled[LEARNED].mean()),
        skill=states.skill,
        promised=float(advice.promised.mean()),
        realised=float(advice.gain.mean()),
        attainable=float(advice.attainable.mean()),
        share_realised=advice.share_realised,
        share_helpful=advice.share_helpful,
    )


COLUMNS = {
    "kept_epoch": ("kept epoch", "{:.0f}"),
    "gap": ("likelihood below truth", "{:.3f}"),
    "state_error": ("state error", "{:.3f}"),
    "skill": ("skill", "{:.1%}"),
    "promised": ("promised", "{:.1%}"),
    "realised": ("realised", "{:.1%}"),
    "share_realised": ("of attainable", "{:.0%}"),
    "share_helpful": ("helpful", "{:.0%}"),
}


def groups(rows: list[Row]) -> list[list[Row]]:
    """The rows of one size and one limit, over the seeds."""
    keys = dict.fromkeys((row.stays, row.limits) for row in rows)
    return [[row for row in rows if (row.stays, row.limits) == key] for key in keys]


def _cell(values: list[float], pattern: str) -> str:
    """The mean over the seeds, and half of what lies between the lowest and the highest."""
    mean = pattern.format(statistics.fmean(values))
    return mean if len(values) == 1 else f"{mean} ± {pattern.format((max(values) - min(values)) / 2)}"


def cells(group: list[Row]) -> list[str]:
    """One line of the table."""
    limits = group[0].limits
    location, scale = (statistics.fmean(row.constants[i] for row in group) for i in (0, 1))
    return [
        f"{group[0].stays:,}",
        "none" if limits is None else f"{limits[0]:g}, {limits[1]:g}",
        f"{location:.2f}, {scale:.2f}",
        *(_cell([getattr(row, name) for row in group], pattern) for name, (_, pattern) in COLUMNS.items()),
    ]


def as_table(rows: list[Row], settings: Settings) -> Table:
    """A line for each size and limit."""
    table = Table(
        title=f"Lipschitz limits: mean ± half the range over {settings.seeds} seeds; "
        f"attainable improvement {rows[0].attainable:.1%}",
        caption="likelihood in nats per transition; state error in deviations after the first change",
    )
    for name in ("stays", "limits", "fitted constants", *(title for title, _ in COLUMNS.values())):
        table.add_column(name, justify="right")
    for before, group in zip([None, *groups(rows)], groups(rows), strict=False):
        if before and before[0].stays != group[0].stays:
            table.add_section()
        table.add_row(*cells(group))
    return table


def run(settings: Settings, console: Console) -> list[Row]:
    """All fits, one after the other."""
    with console.status("test patients") as status:
        test = Test.make(settings)
        rows = []
        for stays, epochs in settings.epochs:
            for limits in settings.limits:
                for seed in range(settings.seeds):
                    status.update(f"{stays} stays, limits {limits}, seed {seed}")
                    rows.append(measure(test, settings, stays=stays, epochs=epochs, limits=limits, seed=seed))
    return rows


def main() -> None:
    """Fit, compare, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little of everything, a few seconds")
    parser.add_argument("--seeds", type=int, help="training cohorts and starting weights per limit and size")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    settings = QUICK if options.quick else Settings()
    settings = replace(settings, seeds=options.seeds or settings.seeds)
    torch.set_num_threads(1)  # as fitting does; the rest is small
    console = Console(width=200)  # wide enough for the table, also in a file
    started = time.perf_counter()
    rows = run(settings, console)
    seconds = time.perf_counter() - started
    console.print(as_table(rows, settings))
    console.print(f"{seconds:.0f} s")
    if options.json:
        content: dict[str, Any] = {"settings": asdict(settings), "seconds": seconds, "rows": [asdict(r) for r in rows]}
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
