"""Figures 2 and 4: the paper's A* beside branch and bound, as one quantity or the choice of anchors is varied."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import polars as pl
from matplotlib.figure import Figure

from paper.bench import Bench
from paper.experiment import Experiment
from paper.laboratory import Laboratory, Limits
from paper.solves import (
    OURS,
    PAPERS,
    PROVEN,
    AnchorPlan,
    SolveCell,
    SolveSettings,
    Strategy,
    by_value,
    estimate,
    parts_of,
    proven_of,
    require_agreement,
    solve_row,
    solve_table,
)
from paper.style import (
    BLUE,
    BROWN,
    GREEN,
    PINK,
    Line,
    dodged,
    draw_estimates,
    label_places,
    paper_panels,
    put_legend,
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
    astar_patients: int | None = None
    """Of the patients, how many A* is asked about, at most; None: all."""
    astar_seconds: float | None = None
    """Limit of every search by A*; None: as for the others."""


@dataclass(frozen=True)
class LipschitzSettings(EfficiencySettings):
    """Which L_h; L_phi is that of all experiments."""

    location: tuple[float, ...] = (0.8, 0.9, 1.0, 1.1, 1.2, 1.3)


EfficiencyT = TypeVar("EfficiencyT", bound=EfficiencySettings)


class Point(NamedTuple):
    """One place on the horizontal axis."""

    value: float
    limits: Limits | None
    samples: int
    max_changes: int


class Efficiency(Experiment[EfficiencyT]):
    """EBF and runtime of A*, runtime and nodes of branch and bound, against one quantity."""

    axis: str
    """Label of the horizontal axis."""
    symbol: str
    """The quantity in a table and in a sentence."""
    reference: float
    """Where the paper's other experiments are made: there it reports an EBF of about 2.1."""

    @abstractmethod
    def points(self, settings: EfficiencyT, laboratory: Laboratory) -> Sequence[Point]:
        """Where to measure."""

    def run(self, bench: Bench, settings: EfficiencyT) -> pl.DataFrame:
        """Branch and bound for every patient at every point, and A* for those that it is asked about.

        Patient by patient, so that an unfinished run is balanced.
        """
        points, patients = self.points(settings, bench.laboratory), bench.laboratory.patients(settings.patients)
        papers = len(patients) if settings.astar_patients is None else settings.astar_patients
        slower = settings if settings.astar_seconds is None else replace(settings, seconds=settings.astar_seconds)
        wanted = [
            (point, _cell(episode, point.limits, point.max_changes, plan, slower if plan else settings))
            for number, episode in enumerate(patients)
            for point in points
            for plan in ((AnchorPlan(samples=point.samples), None) if number < papers else (None,))
        ]
        rows = bench.measure((cell for _, cell in wanted), self.name)
        require_agreement(rows)
        known = (solve_row(cell, rows[cell], value=point.value) for point, cell in wanted if cell in rows)
        return solve_table(known, value=pl.Float64)

    def plot(self, table: pl.DataFrame) -> Figure:
        """Left as in the paper, with ours on its right axis; right the nodes."""
        groups = by_value(table)
        values = [value for value, _ in groups]
        papers, ours = (parts_of(table, solver=solver) for solver in (PAPERS, OURS))
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
                label_places(panel, self.axis, groups)
        return figure

    def summary(self, table: pl.DataFrame) -> pl.DataFrame:
        """A line per value: means over patients with 95 % intervals."""
        return pl.DataFrame([self._line(value, part) for value, part in by_value(table)])

    def _line(self, value: float, part: pl.DataFrame) -> dict[str, str]:
        papers, ours = (part.filter(solver=solver) for solver in (PAPERS, OURS))
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
        groups = by_value(table, solver=PAPERS)
        (first, low), (last, high) = groups[0], groups[-1]
        at_reference = [estimate(part, "branching_factor") for value, part in groups if value == self.reference]
        return [
            *(f"EBF {found.show()} at {self.symbol} = {self.reference:,g}." for found in at_reference),
            f"EBF {estimate(low, 'branching_factor').show()} at {self.symbol} = {first:g} and "
            f"{estimate(high, 'branching_factor').show()} at {self.symbol} = {last:g}; runtime of A* "
            f"{estimate(low, 'seconds').show('{:.3g}')} s and {estimate(high, 'seconds').show('{:.3g}')} s.",
            *speed_ratio(table),
        ]


class EfficiencyByLipschitz(Efficiency[LipschitzSettings]):
    """L_h from 0.8 to 1.3; a model is fitted for each."""

    name = "fig2a"
    title = "Efficiency against the Lipschitz constant L_h"
    paper = (
        "EBF about 2.1 at L_h = 1 (M = 2,000, k = 3, T = 12); EBF and runtime increase with L_h, since the heuristic "
        "function becomes looser."
    )
    axis = "Lipschitz constant of the location network $L_h$"
    symbol = "L_h"
    reference = 1.0
    full = LipschitzSettings()
    quick = LipschitzSettings(4, 10.0, location=(0.8, 1.0, 1.2), samples=(100,), max_changes=(2,))

    def points(self, settings: LipschitzSettings, laboratory: Laboratory) -> Sequence[Point]:
        """One per constant."""
        scale = laboratory.conditions.lipschitz[1]
        return [
            Point(location, (location, scale), settings.samples[0], settings.max_changes[0])
            for location in settings.location
        ]


class EfficiencyBySamples(Efficiency[EfficiencySettings]):
    """M from 500 to 3,000; branch and bound needs no anchors, so that its line is the same everywhere."""

    name = "fig2b"
    title = "Efficiency against the number M of sampled sequences"
    paper = "EBF and runtime decrease as the number of Monte Carlo samples M increases (L_h = 1, k = 3)."
    axis = "Number of sampled sequences, $M$"
    symbol = "M"
    reference = 2000
    full = EfficiencySettings(samples=(500, 1000, 1500, 2000, 2500, 3000))
    quick = EfficiencySettings(4, 10.0, samples=(50, 100, 200), max_changes=(2,))

    def points(self, settings: EfficiencySettings, laboratory: Laboratory) -> Sequence[Point]:
        """One per number of sequences."""
        return [Point(samples, laboratory.standard, samples, settings.max_changes[0]) for samples in settings.samples]


class EfficiencyByChanges(Efficiency[EfficiencySettings]):
    """k from 0 to 6; the larger ones reach a time limit, and are shown as lower bounds."""

    name = "fig2c"
    title = "Efficiency against the number k of changes allowed"
    paper = (
        "EBF and runtime increase with k, since the search space grows exponentially; at k = 3 the EBF is about 2.1, "
        "for more than 3 million sequences."
    )
    axis = "Number of changes allowed, $k$"
    symbol = "k"
    reference = 3
    full = EfficiencySettings(max_changes=(0, 1, 2, 3, 4, 5, 6))
    quick = EfficiencySettings(4, 10.0, samples=(100,), max_changes=(0, 1, 2))

    def points(self, settings: EfficiencySettings, laboratory: Laboratory) -> Sequence[Point]:
        """One per number of changes."""
        return [Point(k, laboratory.standard, settings.samples[0], k) for k in settings.max_changes]


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


class AnchorStrategies(Experiment[AnchorSettings]):
    """EBF and runtime of A* for each strategy, beside branch and bound, which has no anchors."""

    name = "fig4"
    title = "Anchor strategies against the size of the anchor set"
    paper = (
        "Facility-Location stays above EBF 3; MC-Lipschitz and MC-Uniform are close to 2 and decrease rapidly with the "
        "size of the anchor set, MC-Lipschitz being the lowest."
    )
    full = AnchorSettings()
    quick = AnchorSettings(3, 10.0, sizes=(200, 400, 800), max_changes=2)

    def run(self, bench: Bench, settings: AnchorSettings) -> pl.DataFrame:
        """Every strategy at every size for every patient, and branch and bound once."""
        limits = bench.laboratory.standard
        wanted = [
            (size, name, _cell(episode, limits, settings.max_changes, plan, settings))
            for episode in bench.laboratory.patients(settings.patients)
            for size in settings.sizes
            for name, plan in _plans(size, max(settings.sizes)).items()
        ]
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
                parts, places = parts_of(table, strategy=name), dodged(values, number, len(STRATEGIES))
                draw_estimates(left, line, places, [estimate(part, "branching_factor") for part in parts])
                draw_estimates(right, line, places, [estimate(part, "seconds") for part in parts])
            draw_estimates(
                right, OUR_RUNTIME, values, [estimate(part, "seconds") for part in parts_of(table, strategy=OURS)]
            )
            left.set_ylabel("Effective branching factor")
            right.set_ylabel("Runtime (s)")
            put_legend(left, list(STRATEGIES.values()), hollow=False)
            put_legend(right, [OUR_RUNTIME], hollow=hollow)
            for panel in (left, right):
                label_places(panel, "Size of the anchor set, $|\\mathcal{S}_\\dagger|$", groups)
        return figure

    def summary(self, table: pl.DataFrame) -> pl.DataFrame:
        """A line per size and strategy."""
        lines = []
        for value, part in by_value(table):
            for name, line in [*STRATEGIES.items(), (OURS, OUR_RUNTIME)]:
                solves = part.filter(strategy=name)
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
                estimate(part.filter(strategy=name), "branching_factor").show() for _, part in (groups[0], groups[-1])
            )
            found.append(f"{line.label}: EBF {low} with {groups[0][0]:,.0f} anchors, {high} with {groups[-1][0]:,.0f}.")
        return [*found, *speed_ratio(table)]


def _plans(size: int, most: int) -> dict[str, AnchorPlan | None]:
    """What each line of figure 4 is made with; facility locations are the first of the `most` that are chosen."""
    plans: dict[str, AnchorPlan | None] = {OURS: None}
    return plans | {name: AnchorPlan(name, size=size, of=most if name == "facility" else None) for name in STRATEGIES}


def _cell(
    episode: str, limits: Limits | None, max_changes: int, anchors: AnchorPlan | None, settings: SolveSettings
) -> SolveCell:
    """A* with these anchors; without any, branch and bound."""
    solver = OURS if anchors is None else PAPERS
    return SolveCell(episode, solver, limits, max_changes, anchors, settings.seconds, settings.device)


def speed_ratio(table: pl.DataFrame) -> list[str]:
    """How much longer A* took than branch and bound on the same question, in a sentence; nothing if it is not known."""
    keys = ["episode", "max_changes", "value"]
    proven = table.filter(PROVEN)
    papers = proven.filter(solver=PAPERS).select(*keys, papers="seconds")
    ours = proven.filter(solver=OURS).select(*keys, ours="seconds")
    both = papers.join(ours.unique(keys), on=keys)
    if both.is_empty():
        return []
    ratio = (both["papers"] / both["ours"]).median()
    assert isinstance(ratio, float)
    return [
        f"Where both proved the optimum ({both.height:,} solves) their outcomes are equal, and A* took {ratio:.3g} "
        "times as long as branch and bound (median)."
    ]
