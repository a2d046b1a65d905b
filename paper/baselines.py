"""Heuristics against the optimum: how far from optimal, and how often optimal?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ifonly.errors import InputError
from ifonly.result import Status
from paper.base import Experiment, Settings
from paper.cells import HEURISTICS, OURS, Cell, Row, SolveCell
from paper.efficiency import by_value
from paper.estimates import Estimate, Percentage
from paper.fig3a import BudgetSettings, budget_cells
from paper.runner import Bench
from paper.solves import EQUAL, require_agreement
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
    tick_values,
)

LINES = {
    "random": Line("random", BROWN, "v", ":"),
    "top-k": Line("top-k", BLUE, "s", "--"),
    "greedy": Line("greedy", GREEN, "^", "-."),
    "beam": Line("beam", PINK, "o"),
}

COLUMNS = {
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


class Baselines(Experiment):
    """Random, top-k, greedy and beam search beside branch and bound.

    Where a time limit leaves only a bracket around the optimum, the best known outcome stands for it (the heuristics
    then look better than they may be) and the bracket's upper end gives the other side.
    """

    name: ClassVar[str] = "baselines"
    title: ClassVar[str] = "Heuristics against the optimum"
    paper: ClassVar[str] = "The paper reports no comparison with heuristics."
    settings_class: ClassVar[type[Settings]] = BudgetSettings

    def settings(self, *, quick: bool) -> Settings:
        """As for the improvement against k, so that the optima are shared."""
        return BudgetSettings(4, 10.0, max_changes=(0, 1, 2)) if quick else BudgetSettings()

    def run(self, bench: Bench, settings: Settings) -> pl.DataFrame:
        """Every solver for every patient and budget."""
        assert isinstance(settings, BudgetSettings)
        patients = [
            budget_cells(bench, settings, episode, (OURS, *HEURISTICS))
            for episode in bench.laboratory.patients(settings.patients)
        ]
        rows = bench.measure((cell for cells in patients for cell in cells), self.name)
        require_agreement(rows)
        known = (row for cells in patients for row in _compared(cells, rows))
        return pl.DataFrame(list(known), schema=COLUMNS, orient="row")

    def plot(self, table: pl.DataFrame) -> Figure:
        """Left how much of the possible improvement, right how often all of it."""
        table = table.filter(pl.col("value") > 0)
        if table.is_empty():
            raise InputError("without any change there is nothing to compare.")
        groups = by_value(table)
        values = [value for value, _ in groups]
        hollow = not table["proven"].all()
        with paper_panels(2, 7.2, 2.7) as (figure, (left, right)):
            for number, (name, line) in enumerate(LINES.items()):
                parts, places = _parts(table, name), dodged(values, number, len(LINES))
                draw_estimates(left, line, places, [_percent(part, "share") for part in parts])
                draw_estimates(right, line, places, [_reached(part) for part in parts])
                _draw_room(left, line, places, parts)
            left.set_ylabel("Share of the possible\nimprovement (%)")
            right.set_ylabel("Patients for whom the\noptimum is found (%)")
            put_legend(left, list(LINES.values()), hollow=False, columns=2)
            put_legend(right, [], hollow=hollow, words="hollow: of the best known (optimum not proven)")
            for panel in (left, right):
                label_places(panel, "Number of changes allowed, $k$", [part for _, part in groups])
                panel.set_ylim(0, 104)
                tick_values(panel, values)
        return figure

    def summary(self, table: pl.DataFrame) -> pl.DataFrame:
        """A line per budget and heuristic."""
        lines = []
        for value, part in by_value(table):
            for name in LINES:
                rows = part.filter(pl.col("heuristic") == name)
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
            f"{name} at k = {value:g}: {_percent(rows, 'share').show('{:.1f}')} % of the possible improvement, optimal "
            f"for {_reached(rows).show('{:.0f}')} % of the patients."
            for name in LINES
            for rows in [part.filter(pl.col("heuristic") == name)]
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


def _parts(table: pl.DataFrame, name: str) -> list[pl.DataFrame]:
    return [part.filter(pl.col("heuristic") == name) for _, part in by_value(table)]


def _draw_room(panel: Axes, line: Line, values: Sequence[float], parts: Sequence[pl.DataFrame]) -> None:
    """Where optima are not proven, down to which mean share the bounds leave room."""
    for value, part in zip(values, parts, strict=True):
        if not part["proven"].all() and part["least_share"].null_count() == 0:
            high, low = _percent(part, "share").mean, _percent(part, "least_share").mean
            panel.plot([value, value], [high, low], ":", color=line.colour, linewidth=1.0)
            panel.plot(value, low, "_", color=line.colour, markersize=7)


def _percent(part: pl.DataFrame, column: str) -> Estimate:
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
