"""Figure 5: what Lipschitz limits cost in log-likelihood."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.figure import Figure

from ifonly import LocationScale, Scaler
from ifonly.models.crossval import CrossValidationRow
from ifonly.models.fit import evaluate
from ifonly.models.fit_ensemble import fit_limits
from paper.bench import Bench, Cell, Row
from paper.experiment import Experiment
from paper.laboratory import Laboratory, Limits, Settings
from paper.style import paper_panels

GRID = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.1, 1.2, 1.5)
"""Of both constants, as in the scripts that the paper's authors published; the paper itself names no values."""


@dataclass(frozen=True)
class FoldCell(Cell):
    """The log-likelihoods of one fold under models fitted to the others, which differ in their limits alone."""

    limits: tuple[Limits | None, ...]
    """None: unconstrained."""
    fold: int
    folds: int
    device: str = "cpu"

    kind: ClassVar[str] = "folds of limits"

    def measure(self, laboratory: Laboratory) -> Row:
        """Fit and evaluate, as `ifonly.cross_validate` does, but all models together."""
        started = time.perf_counter()
        conditions, cohort = laboratory.conditions, laboratory.cohort()
        train, held_out = cohort.folds(self.folds, seed=conditions.seed)[self.fold]
        models = [LocationScale(cohort.schema, hidden=conditions.hidden, lipschitz=limits) for limits in self.limits]
        settings = replace(laboratory.fit_settings(), device=self.device)
        fitted = fit_limits(models, train, settings=settings, seed=conditions.seed + self.fold)
        coordinates = Scaler.fit(cohort)
        return {
            "status": "done",
            "reason": None,
            "log_likelihoods": [evaluate(model, held_out, coordinates=coordinates) for model in fitted],
            "seconds": time.perf_counter() - started,
        }


@dataclass(frozen=True)
class GridSettings(Settings):
    """Which limits, and how many folds."""

    location: tuple[float, ...] = GRID
    scale: tuple[float, ...] = GRID
    folds: int = 5
    device: str = "cpu"


class LikelihoodLoss(Experiment[GridSettings]):
    """A cross-validation by patient over the grid, and of the unconstrained model; the fits of some limits on a
    fold are one cell."""

    name = "fig5"
    title = "Loss of log-likelihood under Lipschitz limits"
    paper = (
        "L_h matters most, above all below 1; L_phi has a milder effect, especially where L_h is at least 1. With "
        "L_h = 1 and L_phi = 0.1 the log-likelihood is 6 % lower than without any limit."
    )
    full = GridSettings()
    quick = GridSettings((0.5, 1.0, 1.5), (0.1, 1.0), folds=2)

    def run(self, bench: Bench, settings: GridSettings) -> pl.DataFrame:
        """One row per pair of limits, the unconstrained model (null) first; only those with every fold finished."""
        grid: list[Limits | None] = [None, *((one, two) for one in settings.location for two in settings.scale)]
        # On a GPU all limits of a fold are trained together; on processors, which have several folds to do at once,
        # those of one L_h.
        groups = [tuple(grid)]
        if settings.device == "cpu":
            groups = [(None,), *(tuple((one, two) for two in settings.scale) for one in settings.location)]
        # Fold by fold, so that an unfinished run has few folds of all limits rather than all folds of a few.
        cells = [
            FoldCell(group, fold, settings.folds, settings.device) for fold in range(settings.folds) for group in groups
        ]
        rows = bench.measure(cells, self.name)
        found = {
            (limits, cell.fold): float(value)
            for cell in cells
            if cell in rows
            for limits, value in zip(cell.limits, rows[cell]["log_likelihoods"], strict=True)
        }
        complete = [fold for fold in range(settings.folds) if all((limits, fold) in found for limits in grid)]
        if len(complete) < 2:
            return pl.DataFrame()
        values = {limits: [found[limits, fold] for fold in complete] for limits in grid}
        compared = [CrossValidationRow.of(limits, values[limits], values[None]) for limits in grid]
        return pl.DataFrame(
            {
                "location": [None if limits is None else limits[0] for limits in grid],
                "scale": [None if limits is None else limits[1] for limits in grid],
                "log_likelihood": [row.mean for row in compared],
                "standard_error": [row.standard_error for row in compared],
                "decrease": [row.decrease for row in compared],
                "decrease_error": [row.decrease_error for row in compared],
                "folds": len(complete),
            },
            schema_overrides={"location": pl.Float64, "scale": pl.Float64},
        )

    def plot(self, table: pl.DataFrame) -> Figure:
        """The grid as a picture with its numbers; darker: a larger loss."""
        rows = table.drop_nulls("location")
        locations, scales = (sorted(rows[name].unique().to_list()) for name in ("location", "scale"))
        losses = np.full((len(scales), len(locations)), np.nan)
        for row in rows.iter_rows(named=True):
            losses[scales.index(row["scale"]), locations.index(row["location"])] = row["decrease"]
        width, height = max(3.6, 0.5 * len(locations) + 1.2), max(2.2, 0.32 * len(scales) + 0.8)
        with paper_panels(1, width, height) as (figure, (panel,)):
            image = panel.imshow(losses, cmap=mpl.colormaps["magma_r"], origin="lower", aspect="auto")
            middle = (float(np.nanmin(losses)) + float(np.nanmax(losses))) / 2
            for (i, j), loss in np.ndenumerate(losses):
                shade = "white" if loss > middle else "black"
                panel.text(j, i, f"{loss:.1f}", ha="center", va="center", fontsize=7, color=shade)
            panel.set_xticks(range(len(locations)), [f"{value:g}" for value in locations])
            panel.set_yticks(range(len(scales)), [f"{value:g}" for value in scales])
            panel.set_xlabel("$L_h$")
            panel.set_ylabel("$L_\\phi$")
            bar = figure.colorbar(image, ax=panel)
            bar.set_label("Loss of log-likelihood (%)")
        return figure

    def summary(self, table: pl.DataFrame) -> pl.DataFrame:
        """A line per L_h, a column per L_phi: the loss in percent, with its standard error over folds."""
        rows = table.drop_nulls("location")
        scales = sorted(rows["scale"].unique().to_list())
        shown = {
            (row["location"], row["scale"]): f"{row['decrease']:.1f} ± {row['decrease_error']:.1f}"
            for row in rows.iter_rows(named=True)
        }
        return pl.DataFrame(
            [
                {"L_h": f"{location:g}"} | {f"L_phi = {scale:g}": shown.get((location, scale), "-") for scale in scales}
                for location in sorted(rows["location"].unique().to_list())
            ]
        )

    def findings(self, table: pl.DataFrame) -> Sequence[str]:
        """The unconstrained log-likelihood, and the loss at the paper's limits or at the nearest to them."""
        free = table.filter(pl.col("location").is_null()).row(0, named=True)
        rows = table.drop_nulls("location")
        distance = (pl.col("location") - 1.0).abs() + (pl.col("scale") - 0.1).abs()
        near = rows.sort(distance).row(0, named=True)
        best = rows.sort("decrease").row(0, named=True)
        return [
            f"Without limits the held-out log-likelihood is {free['log_likelihood']:.3f} ± "
            f"{free['standard_error']:.3f} nats per transition ({free['folds']} folds, standard errors).",
            f"With L_h = {near['location']:g} and L_phi = {near['scale']:g} it is {near['decrease']:.1f} ± "
            f"{near['decrease_error']:.1f} % lower (negative: higher); the smallest loss is {best['decrease']:.1f} %, "
            f"at L_h = {best['location']:g} and L_phi = {best['scale']:g}.",
            _effects(rows),
        ]


def _effects(rows: pl.DataFrame) -> str:
    """How much the loss spans as one constant varies and the other stays, on average."""
    location, scale = (_mean_span(rows, other) for other in ("scale", "location"))
    return f"The loss spans {location:.1f} points as L_h varies and {scale:.1f} as L_phi does (means over the other)."


def _mean_span(rows: pl.DataFrame, fixed: str) -> float:
    span = pl.col("decrease").max() - pl.col("decrease").min()
    return float(rows.group_by(fixed).agg(span.alias("span"))["span"].to_numpy().mean())
