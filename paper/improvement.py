"""Figure 3a and the heuristics: how much better it could have gone with more and more changes, and who finds it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ifonly import Beam, Status
from ifonly.errors import InputError
from paper.bench import Bench, Cell, Row
from paper.estimates import Estimate, Percentage
from paper.experiment import Experiment
from paper.solves import (
    EQUAL,
    HEURISTICS,
    OURS,
    PROVEN,
    SolveCell,
    SolveSettings,
    by_value,
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
    GREY,
    PINK,
    Line,
    dodged,
    draw_estimates,
    label_places,
    paper_panels,
    put_legend,
)

ROUNDING = 1e-6
"""Percents below zero by no more than this are zeros."""

IMPROVEMENT = Line("average improvement", PINK, "o")


@dataclass(frozen=True)
class BudgetSettings(SolveSettings):
    """Which numbers of changes."""

    max_changes: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)


class ImprovementByBudget(Experiment[BudgetSettings]):
    """Every patient's optimum by branch and bound for every k; a bracket where a time limit ends the search.

    The lower end of a bracket is the best that it or beam search found with as many changes or fewer.
    """

    name = "fig3a"
    title = "Average counterfactual improvement against k"
    paper = "The average improvement increases with k, with diminishing returns."
    full = BudgetSettings()
    quick = BudgetSettings(4, 10.0, max_changes=(0, 1, 2))

    def run(self, bench: Bench, settings: BudgetSettings) -> pl.DataFrame:
        """The exact solver and beam search for every patient and budget."""
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
        found = [_percent_improved(part, "improvement") for _, part in groups]
        room = [_percent_improved(part, "upper_improvement") for _, part in groups]
        with paper_panels(1, 3.6, 2.5) as (figure, (panel,)):
            for value, low, high in zip(values, found, room, strict=True):
                if high.count == low.count and high.mean > low.mean:
                    panel.plot([value, value], [low.mean, high.mean], ":", color=GREY, linewidth=1.2)
                    panel.plot(value, high.mean, "_", color=GREY, markersize=9)
            draw_estimates(panel, IMPROVEMENT, values, found)
            label_places(panel, "Number of changes allowed, $k$", groups)
            panel.set_ylabel("Average improvement (%)")
            if _lowest(found) > -ROUNDING:
                panel.set_ylim(bottom=0)
            put_legend(panel, [IMPROVEMENT], hollow=any(estimate.at_least for estimate in found))
        return figure

    def summary(self, table: pl.DataFrame) -> pl.DataFrame:
        """A line per budget."""
        return pl.DataFrame(
            [
                {
                    "k": f"{value:g}",
                    "improvement (%)": _percent_improved(part, "improvement").show(),
                    "at most (%)": _upper_mean(part),
                    "proven": proven_of(part),
                }
                for value, part in by_value(table)
            ]
        )

    def findings(self, table: pl.DataFrame) -> Sequence[str]:
        """What each further change adds."""
        groups = by_value(table)
        means = [_percent_improved(part, "improvement").mean for _, part in groups]
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


def _percent_improved(part: pl.DataFrame, column: str) -> Estimate:
    return Estimate.of((100 * part[column]).to_list(), at_least=part.filter(~PROVEN).height > 0)


def _lowest(estimates: Sequence[Estimate]) -> float:
    """The lowest end of their intervals, or the lowest mean of those that have none."""
    known = [estimate for estimate in estimates if estimate.count]
    return min((e.mean if e.interval is None else e.interval.low for e in known), default=0.0)


def _upper_mean(part: pl.DataFrame) -> str:
    """What the bounds leave room for, on average."""
    upper = _percent_improved(part, "upper_improvement")
    return f"{abs(upper.mean):.2f}" if upper.count == part["improvement"].count() else "unknown"


HEURISTIC_LINES = {
    "random": Line("random", BROWN, "v", ":"),
    "top-k": Line("top-k", BLUE, "s", "--"),
    "greedy": Line("greedy", GREEN, "^", "-."),
    "beam": Line("beam", PINK, "o"),
}

COMPARED = {
    "episode": pl.String,
    "value": pl.Float64,
    "heuristic": pl.String,
    "proven": pl.Boolean,
    "observed": pl.Float64,
    "outcome": pl.Float64,
    "best": pl.Float64,
    "upper_bound": pl.Float64,
    "share": pl.Float64,
    "least_share": pl.Float64,
    "shortfall": pl.Float64,
    "most_shortfall": pl.Float64,
    "reached": pl.Boolean,
    "seconds": pl.Float64,
}
"""`best` is the best outcome that any solver found, the optimum where `proven`; no sequence is above `upper_bound`.

`share` is the part of the improvement from `observed` to `best` that the heuristic's outcome brings, `least_share` the
same up to `upper_bound`; `shortfall` and `most_shortfall` are the outcome's distances from the two, in units of the
outcome; `reached`: the heuristic is as good as `best`.
"""


class Baselines(Experiment[BudgetSettings]):
    """Random, top-k, greedy and beam search beside branch and bound.

    Where a time limit leaves only a bracket around the optimum, the best known outcome stands for it (the heuristics
    then look better than they may be) and the bracket's upper end gives the other side.
    """

    name = "baselines"
    title = "Heuristics against the optimum"
    paper = "The paper reports no comparison with heuristics."
    full = BudgetSettings()
    quick = BudgetSettings(4, 10.0, max_changes=(0, 1, 2))

    def run(self, bench: Bench, settings: BudgetSettings) -> pl.DataFrame:
        """Every solver for every patient and budget."""
        patients = [
            budget_cells(bench, settings, episode, (OURS, *HEURISTICS))
            for episode in bench.laboratory.patients(settings.patients)
        ]
        rows = bench.measure((cell for cells in patients for cell in cells), self.name)
        require_agreement(rows)
        known = (row for cells in patients for row in _compared(cells, rows))
        return pl.DataFrame(list(known), schema=COMPARED, orient="row")

    def plot(self, table: pl.DataFrame) -> Figure:
        """Left how much of the possible improvement, right how often all of it."""
        table = table.filter(pl.col("value") > 0)
        if table.is_empty():
            raise InputError("without any change there is nothing to compare.")
        groups = by_value(table)
        values = [value for value, _ in groups]
        hollow = not table["proven"].all()
        with paper_panels(2, 7.2, 2.7) as (figure, (left, right)):
            for number, (name, line) in enumerate(HEURISTIC_LINES.items()):
                parts, places = parts_of(table, heuristic=name), dodged(values, number, len(HEURISTIC_LINES))
                draw_estimates(left, line, places, [_percent_share(part, "share") for part in parts])
                draw_estimates(right, line, places, [_reached(part) for part in parts])
                _draw_room(left, line, places, parts)
            left.set_ylabel("Share of the possible\nimprovement (%)")
            right.set_ylabel("Patients for whom the\noptimum is found (%)")
            put_legend(left, list(HEURISTIC_LINES.values()), hollow=False, columns=2)
            put_legend(right, [], hollow=hollow, words="hollow: of the best known (optimum not proven)")
            for panel in (left, right):
                label_places(panel, "Number of changes allowed, $k$", groups)
                panel.set_ylim(0, 104)
        return figure

    def summary(self, table: pl.DataFrame) -> pl.DataFrame:
        """A line per budget and heuristic."""
        lines = []
        for value, part in by_value(table):
            for name in HEURISTIC_LINES:
                rows = part.filter(heuristic=name)
                lines.append(
                    {
                        "k": f"{value:g}",
                        "heuristic": name,
                        "share of the improvement (%)": _show(rows, "share", "least_share", "at most"),
                        "shortfall": _show(rows, "shortfall", "most_shortfall", "at least"),
                        "optimum found (%)": ("" if rows["proven"].all() else "at most ")
                        + Percentage.of(rows["reached"].to_list()).show("{:.0f}"),
                        "optimum proven": f"{int(rows['proven'].sum())} of {rows.height}",
                        "seconds": Estimate.of(rows["seconds"].to_list()).show("{:.2g}"),
                    }
                )
        return pl.DataFrame(lines)

    def findings(self, table: pl.DataFrame) -> Sequence[str]:
        """For the largest budget at which every optimum is proven, how good each heuristic is."""
        proven = [(value, part) for value, part in by_value(table) if part["proven"].all()]
        if not proven:
            return ["No budget has a proven optimum for every patient."]
        value, part = proven[-1]
        return [
            f"{name} at k = {value:g}: {_percent_share(rows, 'share').show('{:.1f}')} % of the possible improvement, "
            f"optimal for {_reached(rows).show('{:.0f}')} % of the patients."
            for name in HEURISTIC_LINES
            for rows in [part.filter(heuristic=name)]
        ]


def _compared(cells: Sequence[SolveCell], rows: Mapping[Cell, Row]) -> Iterator[dict[str, Any]]:
    """A row for each budget and heuristic, compared with the best that is known of one patient.

    What was found with fewer changes counts too. Nothing where the exact solver has no answer.
    """
    best = -math.inf
    for k in dict.fromkeys(cell.max_changes for cell in cells):
        answers = {cell.solver: rows[cell] for cell in cells if cell.max_changes == k and cell in rows}
        if OURS not in answers:
            continue
        exact = answers[OURS]
        proven = exact["status"] == Status.OPTIMAL.value
        best = max([best, *(row["outcome"] for row in answers.values())])
        reference = exact["outcome"] if proven else best
        bound = reference if proven else exact["upper_bound"]
        who = {"episode": cells[0].episode, "value": float(k), "proven": proven}
        for solver, name in HEURISTICS.items():
            if solver in answers:
                yield who | {"heuristic": name} | _comparison(answers[solver], reference, bound)


def _comparison(row: Row, best: float, bound: float | None) -> dict[str, Any]:
    outcome, observed = row["outcome"], row["observed_outcome"]
    equal = EQUAL * max(1.0, abs(best))
    return {
        "observed": observed,
        "outcome": outcome,
        "best": best,
        "upper_bound": bound,
        "share": _share(outcome - observed, best - observed, equal),
        "least_share": None if bound is None else _share(outcome - observed, bound - observed, equal),
        "shortfall": max(best - outcome, 0.0),
        "most_shortfall": None if bound is None else max(bound - outcome, 0.0),
        "reached": outcome >= best - equal,
        "seconds": row["seconds"],
    }


def _share(gain: float, possible: float, equal: float) -> float:
    """All of it where nothing was possible."""
    return 1.0 if possible <= equal else min(gain / possible, 1.0)


def _draw_room(panel: Axes, line: Line, values: Sequence[float], parts: Sequence[pl.DataFrame]) -> None:
    """Where optima are not proven, down to which mean share the bounds leave room."""
    for value, part in zip(values, parts, strict=True):
        if not part["proven"].all() and part["least_share"].null_count() == 0:
            high, low = _percent_share(part, "share").mean, _percent_share(part, "least_share").mean
            panel.plot([value, value], [high, low], ":", color=line.colour, linewidth=1.0)
            panel.plot(value, low, "_", color=line.colour, markersize=7)


def _percent_share(part: pl.DataFrame, column: str) -> Estimate:
    """The mean of a column of shares, marked where optima are not all proven."""
    return Estimate.of((100 * part[column]).to_list(), at_least=not part["proven"].all())


def _reached(part: pl.DataFrame) -> Percentage:
    """For how many patients the best known outcome is found, marked where optima are not all proven."""
    return Percentage.of(part["reached"].to_list(), at_least=not part["proven"].all())


def _show(rows: pl.DataFrame, column: str, other: str, side: str) -> str:
    """The mean; where optima are not all proven, also the other end of what it may be, or on which `side` it lies."""
    factor, pattern = (100, "{:.1f}") if column == "share" else (1, "{:.3f}")
    near, far = (Estimate.of((factor * rows[name]).to_list()) for name in (column, other))
    if rows["proven"].all():
        return near.show(pattern)
    if far.count < near.count:
        return f"{side} {pattern.format(near.mean)}"
    return f"{pattern.format(near.mean)} to {pattern.format(far.mean)}"
