"""What figures 2a, 2b and 2c share: the paper's A* beside branch and bound, as one quantity is varied."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import polars as pl
from matplotlib.figure import Figure

from paper.base import Experiment, Settings, SolveSettings
from paper.cells import OURS, PAPERS, AnchorPlan, SolveCell
from paper.laboratory import Laboratory, Limits
from paper.runner import Bench
from paper.solves import estimate, proven_of, require_agreement, solve_row, solve_table
from paper.style import (
    BLUE,
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

BRANCHING = Line("EBF of A*", PINK, "o")
RUNTIME = Line("runtime of A*", GREEN, "^")
OUR_RUNTIME = Line("runtime of branch and bound", BLUE, "s", "--")
VISITED = Line("nodes that A* visits", PINK, "o")
OUR_NODES = Line("nodes that branch and bound expands", BLUE, "s", "--")


@dataclass(frozen=True)
class EfficiencySettings(SolveSettings):
    """Each has one value, but for what the experiment varies."""

    samples: tuple[int, ...] = (2000,)
    """M, sequences from which A* takes its anchors."""
    max_changes: tuple[int, ...] = (3,)


class Point(NamedTuple):
    """One place on the horizontal axis."""

    value: float
    limits: Limits | None
    samples: int
    max_changes: int


class Efficiency(Experiment):
    """EBF and runtime of A*, runtime and nodes of branch and bound, against one quantity."""

    settings_class: ClassVar[type[Settings]] = EfficiencySettings
    axis: ClassVar[str]
    """Label of the horizontal axis."""
    symbol: ClassVar[str]
    """The quantity in a table and in a sentence."""
    reference: ClassVar[float]
    """Where the paper's other experiments are made: there it reports an EBF of about 2.1."""

    @abstractmethod
    def points(self, settings: EfficiencySettings, laboratory: Laboratory) -> Sequence[Point]:
        """Where to measure."""

    def run(self, bench: Bench, settings: Settings) -> pl.DataFrame:
        """Both solvers for every patient at every point; patient by patient, so that an unfinished run is balanced."""
        assert isinstance(settings, EfficiencySettings)
        points = self.points(settings, bench.laboratory)
        wanted = [
            (point, cell)
            for episode in bench.laboratory.patients(settings.patients)
            for point in points
            for cell in _cells(episode, point, settings)
        ]
        rows = bench.measure((cell for _, cell in wanted), self.name)
        require_agreement(rows)
        known = (solve_row(cell, rows[cell], value=point.value) for point, cell in wanted if cell in rows)
        return solve_table(known, value=pl.Float64)

    def plot(self, table: pl.DataFrame) -> Figure:
        """Left as in the paper, with ours on its right axis; right the nodes."""
        groups = by_value(table)
        values = [value for value, _ in groups]
        papers = [part.filter(pl.col("solver") == PAPERS) for _, part in groups]
        ours = [part.filter(pl.col("solver") == OURS) for _, part in groups]
        hollow = any(estimate(part, "seconds").at_least for part in [*papers, *ours])
        with paper_panels(2, 7.2, 2.7) as (figure, (left, right)):
            clock = left.twinx()
            clock.set_yscale("log")
            right.set_yscale("log")
            draw_estimates(
                left, BRANCHING, dodged(values, 0, 3), [estimate(part, "branching_factor") for part in papers]
            )
            draw_estimates(clock, RUNTIME, dodged(values, 1, 3), [estimate(part, "seconds") for part in papers])
            draw_estimates(clock, OUR_RUNTIME, dodged(values, 2, 3), [estimate(part, "seconds") for part in ours])
            draw_estimates(right, VISITED, dodged(values, 0, 2), [estimate(part, "visited") for part in papers])
            draw_estimates(right, OUR_NODES, dodged(values, 1, 2), [estimate(part, "nodes") for part in ours])
            left.set_ylabel("Effective branching factor", color=PINK)
            left.tick_params(axis="y", colors=PINK)
            clock.set_ylabel("Runtime (s)", color=GREEN)
            clock.tick_params(axis="y", which="both", colors=GREEN)
            right.set_ylabel("Nodes")
            put_legend(left, [BRANCHING, RUNTIME, OUR_RUNTIME], hollow=False)
            put_legend(right, [VISITED, OUR_NODES], hollow=hollow)
            for panel in (left, right):
                label_places(panel, self.axis, [part for _, part in groups])
                tick_values(panel, values)
        return figure

    def summary(self, table: pl.DataFrame) -> pl.DataFrame:
        """A line per value: means over patients with 95 % intervals."""
        return pl.DataFrame([self._line(value, part) for value, part in by_value(table)])

    def _line(self, value: float, part: pl.DataFrame) -> dict[str, str]:
        papers, ours = (part.filter(pl.col("solver") == solver) for solver in (PAPERS, OURS))
        return {
            self.symbol: f"{value:,.10g}",
            "EBF": estimate(papers, "branching_factor").show(),
            "A* seconds": estimate(papers, "seconds").show("{:.3g}"),
            "A* nodes": estimate(papers, "visited").show("{:,.0f}"),
            "A* proven": proven_of(papers),
            "ours seconds": estimate(ours, "seconds").show("{:.3g}"),
            "ours nodes": estimate(ours, "nodes").show("{:,.0f}"),
            "ours proven": proven_of(ours),
        }

    def findings(self, table: pl.DataFrame) -> list[str]:
        """How EBF and runtime go along the axis, and how the two solvers compare."""
        groups = [(value, part.filter(pl.col("solver") == PAPERS)) for value, part in by_value(table)]
        (first, low), (last, high) = groups[0], groups[-1]
        at_reference = [estimate(part, "branching_factor") for value, part in groups if value == self.reference]
        return [
            *(f"EBF {found.show()} at {self.symbol} = {self.reference:,g}." for found in at_reference),
            f"EBF {estimate(low, 'branching_factor').show()} at {self.symbol} = {first:g} and "
            f"{estimate(high, 'branching_factor').show()} at {self.symbol} = {last:g}; runtime of A* "
            f"{estimate(low, 'seconds').show('{:.3g}')} s and {estimate(high, 'seconds').show('{:.3g}')} s.",
            *speed_ratio(table, ["value"]),
        ]


def _cells(episode: str, point: Point, settings: EfficiencySettings) -> tuple[SolveCell, SolveCell]:
    def cell(solver: str, anchors: AnchorPlan | None) -> SolveCell:
        return SolveCell(episode, solver, point.limits, point.max_changes, anchors, settings.seconds, settings.device)

    return cell(PAPERS, AnchorPlan(samples=point.samples)), cell(OURS, None)


def by_value(table: pl.DataFrame) -> list[tuple[float, pl.DataFrame]]:
    """The rows of each value on the horizontal axis, in its order."""
    return [(value, table.filter(pl.col("value") == value)) for value in sorted(table["value"].unique().to_list())]


def speed_ratio(table: pl.DataFrame, by: Sequence[str]) -> list[str]:
    """How much longer A* took than branch and bound on the same question, in a sentence; nothing if it is not known."""
    keys = ["episode", "max_changes", *by]
    papers = table.filter(pl.col("solver") == PAPERS).select(*keys, "status", papers="seconds")
    ours = table.filter(pl.col("solver") == OURS).select(*keys, ours="seconds", our_status="status")
    both = papers.join(ours.unique(keys), on=keys).filter(
        (pl.col("status") == "optimal") & (pl.col("our_status") == "optimal")
    )
    if both.is_empty():
        return []
    ratio = (both["papers"] / both["ours"]).median()
    assert isinstance(ratio, float)
    return [
        f"Where both proved the optimum ({both.height:,} solves) their outcomes are equal, and A* took {ratio:.3g} "
        "times as long as branch and bound (median)."
    ]
