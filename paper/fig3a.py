"""Figure 3a: how much better it could have gone, on average, with more and more changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl
from matplotlib.figure import Figure

from ifonly.search.heuristics import Beam
from ifonly.search.result import Status
from paper.base import Experiment, Settings, SolveSettings
from paper.cells import OURS, Cell, Row, SolveCell
from paper.efficiency import by_value
from paper.estimates import Estimate
from paper.runner import Bench
from paper.solves import PROVEN, proven_of, require_agreement, solve_row, solve_table
from paper.style import (
    GREY,
    PINK,
    Line,
    draw_estimates,
    label_places,
    paper_panels,
    put_legend,
    tick_values,
)

ROUNDING = 1e-6
"""Percents below zero by no more than this are zeros."""

IMPROVEMENT = Line("average improvement", PINK, "o")


@dataclass(frozen=True)
class BudgetSettings(SolveSettings):
    """Which numbers of changes."""

    max_changes: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)


class ImprovementByBudget(Experiment):
    """Every patient's optimum by branch and bound for every k; a bracket where a time limit ends the search.

    The lower end of a bracket is the best that it or beam search found with as many changes or fewer.
    """

    name: ClassVar[str] = "fig3a"
    title: ClassVar[str] = "Average counterfactual improvement against k"
    paper: ClassVar[str] = "The average improvement increases with k, with diminishing returns."
    settings_class: ClassVar[type[Settings]] = BudgetSettings

    def settings(self, *, quick: bool) -> Settings:
        """The paper's values, or the first few."""
        return BudgetSettings(4, 10.0, max_changes=(0, 1, 2)) if quick else BudgetSettings()

    def run(self, bench: Bench, settings: Settings) -> pl.DataFrame:
        """The exact solver and beam search for every patient and budget."""
        assert isinstance(settings, BudgetSettings)
        solvers = (Beam.name, OURS)
        patients = [budget_cells(bench, settings, one, solvers) for one in bench.laboratory.patients(settings.patients)]
        rows = bench.measure((cell for cells in patients for cell in cells), self.name)
        require_agreement(rows)
        found = [row for cells in patients for row in _best_for_every_budget(cells, rows)]
        return with_improvements(solve_table(found, value=pl.Float64))

    def plot(self, table: pl.DataFrame) -> Figure:
        """Means with intervals; a thin line up to where the bounds leave room."""
        groups = by_value(table)
        values = [value for value, _ in groups]
        found = [_percent(part, "improvement") for _, part in groups]
        room = [_percent(part, "upper_improvement") for _, part in groups]
        with paper_panels(1, 3.6, 2.5) as (figure, (panel,)):
            for value, low, high in zip(values, found, room, strict=True):
                if high.count == low.count and high.mean > low.mean:
                    panel.plot([value, value], [low.mean, high.mean], ":", color=GREY, linewidth=1.2)
                    panel.plot(value, high.mean, "_", color=GREY, markersize=9)
            draw_estimates(panel, IMPROVEMENT, values, found)
            label_places(panel, "Number of changes allowed, $k$", [part for _, part in groups])
            panel.set_ylabel("Average improvement (%)")
            if _lowest(found) > -ROUNDING:
                panel.set_ylim(bottom=0)
            tick_values(panel, values)
            put_legend(panel, [IMPROVEMENT], hollow=any(estimate.at_least for estimate in found))
        return figure

    def summary(self, table: pl.DataFrame) -> pl.DataFrame:
        """A line per budget."""
        return pl.DataFrame(
            [
                {
                    "k": f"{value:g}",
                    "improvement (%)": _percent(part, "improvement").show(),
                    "at most (%)": _upper_mean(part),
                    "proven": proven_of(part),
                }
                for value, part in by_value(table)
            ]
        )

    def findings(self, table: pl.DataFrame) -> Sequence[str]:
        """What each further change adds."""
        groups = by_value(table)
        means = [_percent(part, "improvement").mean for _, part in groups]
        steps = [
            f"{after - before:.2f} from k = {low:g} to {high:g}"
            for (low, _), (high, _), before, after in zip(groups, groups[1:], means, means[1:], strict=False)
        ]
        limited = table.filter(~PROVEN).height
        proof = "All are proven." if not limited else f"{limited:,} of {table.height:,} are lower bounds."
        return [f"Percentage points gained: {'; '.join(steps)}. {proof}"]


def budget_cells(bench: Bench, settings: BudgetSettings, episode: str, solvers: Sequence[str]) -> list[SolveCell]:
    """Each solver's answer about one patient for every budget, the smallest first."""
    model = bench.laboratory.standard
    return [
        SolveCell(episode, solver, model, k, seconds=settings.seconds, device=settings.device)
        for k in sorted(settings.max_changes)
        for solver in solvers
    ]


def _best_for_every_budget(cells: Sequence[SolveCell], rows: Mapping[Cell, Row]) -> Iterator[Row]:
    """The exact solver's rows, where one is not proven with the best answer known: fewer changes are allowed too."""
    best: Row | None = None
    for cell in cells:
        row = rows.get(cell)
        if row is not None and (best is None or row["outcome"] > best["outcome"]):
            best = row
        if cell.solver != OURS or row is None or best is None:
            continue
        taken = {name: best[name] for name in ("outcome", "clipped_outcome", "changes")}
        shown = row if row["status"] == Status.OPTIMAL.value else row | taken
        yield solve_row(cell, shown, value=float(cell.max_changes))


def with_improvements(table: pl.DataFrame) -> pl.DataFrame:
    """A table of solves with `improvement`, relative to the observed outcome, both clipped to the score's range.

    `upper_improvement` adds the gap that the search left open.
    """
    size = pl.col("observed_clipped_outcome").abs()
    improvement = (pl.col("clipped_outcome") - pl.col("observed_clipped_outcome")) / size
    gap = pl.when(PROVEN).then(0.0).otherwise((pl.col("upper_bound") - pl.col("outcome")).clip(lower_bound=0.0))
    return table.with_columns(
        improvement=pl.when(size > 0).then(improvement),
        upper_improvement=pl.when(size > 0).then(improvement + gap / size),
    )


def _percent(part: pl.DataFrame, column: str) -> Estimate:
    return Estimate.of((100 * part[column]).to_list(), at_least=part.filter(~PROVEN).height > 0)


def _lowest(estimates: Sequence[Estimate]) -> float:
    """The lowest end of their intervals, or the lowest mean of those that have none."""
    known = [estimate for estimate in estimates if estimate.count]
    return min((e.mean if e.interval is None else e.interval.low for e in known), default=0.0)


def _upper_mean(part: pl.DataFrame) -> str:
    """What the bounds leave room for, on average."""
    upper = _percent(part, "upper_improvement")
    return f"{abs(upper.mean):.2f}" if upper.count == part["improvement"].count() else "unknown"
