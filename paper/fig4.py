"""Figure 4: the three ways to choose anchors, against how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl
from matplotlib.figure import Figure

from paper.base import Experiment, Settings, SolveSettings
from paper.cells import OURS, PAPERS, AnchorPlan, SolveCell, Strategy
from paper.efficiency import OUR_RUNTIME, by_value, speed_ratio
from paper.runner import Bench
from paper.solves import estimate, proven_of, require_agreement, solve_row, solve_table
from paper.style import (
    BROWN,
    GREEN,
    PINK,
    Line,
    dodged,
    draw_estimates,
    label_places,
    paper_panels,
    put_legend,
    tick_values,
)

STRATEGIES: dict[Strategy, Line] = {
    "lipschitz": Line("MC-Lipschitz", PINK, "o"),
    "uniform": Line("MC-Uniform", GREEN, "^"),
    "facility": Line("Facility-Location", BROWN, "D"),
}


@dataclass(frozen=True)
class AnchorSettings(SolveSettings):
    """How many anchors, over all steps for the Monte Carlo strategies, and at every step for facility location."""

    sizes: tuple[int, ...] = (10_000, 15_000, 20_000, 25_000, 30_000)
    max_changes: int = 3


class AnchorStrategies(Experiment):
    """EBF and runtime of A* for each strategy, beside branch and bound, which has no anchors."""

    name: ClassVar[str] = "fig4"
    title: ClassVar[str] = "Anchor strategies against the size of the anchor set"
    paper: ClassVar[str] = (
        "Facility-Location stays above EBF 3; MC-Lipschitz and MC-Uniform are close to 2 and decrease rapidly with the "
        "size of the anchor set, MC-Lipschitz being the lowest."
    )
    settings_class: ClassVar[type[Settings]] = AnchorSettings

    def settings(self, *, quick: bool) -> Settings:
        """The paper's sizes, or small ones."""
        return AnchorSettings(3, 10.0, sizes=(200, 400, 800), max_changes=2) if quick else AnchorSettings()

    def run(self, bench: Bench, settings: Settings) -> pl.DataFrame:
        """Every strategy at every size for every patient, and branch and bound once."""
        assert isinstance(settings, AnchorSettings)
        limits, most = bench.laboratory.standard, max(settings.sizes)
        wanted: list[tuple[int, str, SolveCell]] = []

        def add(episode: str, size: int, solver: str, name: str, anchors: AnchorPlan | None) -> None:
            cell = SolveCell(episode, solver, limits, settings.max_changes, anchors, settings.seconds, settings.device)
            wanted.append((size, name, cell))

        for episode in bench.laboratory.patients(settings.patients):
            for size in settings.sizes:
                add(episode, size, OURS, OURS, None)
                for name in STRATEGIES:
                    add(
                        episode,
                        size,
                        PAPERS,
                        name,
                        AnchorPlan(name, size=size, of=most if name == "facility" else None),
                    )
        rows = bench.measure((cell for _, _, cell in wanted), self.name)
        require_agreement(rows)
        known = (
            solve_row(cell, rows[cell], value=float(size), strategy=name) for size, name, cell in wanted if cell in rows
        )
        return solve_table(known, value=pl.Float64, strategy=pl.String)

    def plot(self, table: pl.DataFrame) -> Figure:
        """Left the EBF, right the runtime with ours beside it."""
        groups = by_value(table)
        values = [value for value, _ in groups]
        hollow = estimate(table, "seconds").at_least
        with paper_panels(2, 7.2, 2.7) as (figure, (left, right)):
            right.set_yscale("log")
            for number, (name, line) in enumerate(STRATEGIES.items()):
                parts, places = _parts(table, name), dodged(values, number, len(STRATEGIES))
                draw_estimates(left, line, places, [estimate(part, "branching_factor") for part in parts])
                draw_estimates(right, line, places, [estimate(part, "seconds") for part in parts])
            draw_estimates(right, OUR_RUNTIME, values, [estimate(part, "seconds") for part in _parts(table, OURS)])
            left.set_ylabel("Effective branching factor")
            right.set_ylabel("Runtime (s)")
            put_legend(left, list(STRATEGIES.values()), hollow=False)
            put_legend(right, [OUR_RUNTIME], hollow=hollow)
            for panel in (left, right):
                label_places(panel, "Size of the anchor set, $|\\mathcal{S}_\\dagger|$", [part for _, part in groups])
                tick_values(panel, values)
        return figure

    def summary(self, table: pl.DataFrame) -> pl.DataFrame:
        """A line per size and strategy."""
        lines = []
        for value, part in by_value(table):
            for name, line in [*STRATEGIES.items(), (OURS, OUR_RUNTIME)]:
                solves = part.filter(pl.col("strategy") == name)
                lines.append(
                    {
                        "size": f"{value:,.0f}",
                        "strategy": "branch and bound" if name == OURS else line.label,
                        "EBF": estimate(solves, "branching_factor").show(),
                        "seconds": estimate(solves, "seconds").show("{:.3g}"),
                        "proven": proven_of(solves),
                    }
                )
        return pl.DataFrame(lines)

    def findings(self, table: pl.DataFrame) -> Sequence[str]:
        """The EBF of each strategy at the smallest and the largest size."""
        groups = by_value(table)
        found = []
        for name, line in STRATEGIES.items():
            low, high = (
                estimate(part.filter(pl.col("strategy") == name), "branching_factor").show()
                for _, part in (groups[0], groups[-1])
            )
            found.append(f"{line.label}: EBF {low} with {groups[0][0]:,.0f} anchors, {high} with {groups[-1][0]:,.0f}.")
        return [*found, *speed_ratio(table, ["value"])]


def _parts(table: pl.DataFrame, strategy: str) -> list[pl.DataFrame]:
    return [part.filter(pl.col("strategy") == strategy) for _, part in by_value(table)]
