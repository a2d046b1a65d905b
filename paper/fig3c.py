"""Figure 3c: one patient's observed and counterfactual course."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from ifonly.data.schema import Schema
from ifonly.report.improvements import improvements
from ifonly.report.summary import INTERESTING
from paper.base import Experiment, Settings
from paper.laboratory import Laboratory
from paper.retrospect import QUICK, RetrospectSettings, cohort_rows
from paper.runner import Bench
from paper.style import BLUE, GREY, paper_panels


class InterestingCase(Experiment):
    """The patient of the cohort run whose improvement is the largest."""

    name: ClassVar[str] = "fig3c"
    title: ClassVar[str] = "The most interesting case: observed and counterfactual course"
    paper: ClassVar[str] = (
        "An example with 19.9 % improvement (k = 3): an early higher dosage of fluids, and vasopressors in place of "
        "some of the later fluids, would have kept the SOFA score lower."
    )
    settings_class: ClassVar[type[Settings]] = RetrospectSettings

    def settings(self, *, quick: bool) -> Settings:
        """Those of the distribution, so that the run is shared."""
        return QUICK if quick else RetrospectSettings()

    def run(self, bench: Bench, settings: Settings) -> pl.DataFrame:
        """One row per step of the patient."""
        assert isinstance(settings, RetrospectSettings)
        answers = improvements(cohort_rows(bench, settings)).drop_nulls("improvement")
        if answers.is_empty():
            return pl.DataFrame()
        best = answers.sort("improvement", descending=True, maintain_order=True).row(0, named=True)
        return _course(best, bench.laboratory, settings.max_changes)

    def plot(self, table: pl.DataFrame) -> Figure:
        """Solid the observed, dashed the counterfactual course; arrows say which dose is higher or lower."""
        times, feature = table["time"].to_numpy(), table["feature"][0]
        with paper_panels(1, 4.2, 2.6) as (figure, (panel,)):
            panel.plot(times, table["observed"], "-o", color=GREY, markersize=3, label="observed")
            panel.plot(
                times,
                table["counterfactual"],
                "--s",
                color=BLUE,
                markersize=3,
                markerfacecolor="white",
                label="counterfactual",
            )
            for row in table.filter(pl.col("arrows") != "").iter_rows(named=True):
                panel.axvline(row["time"], color=GREY, linewidth=0.6, linestyle=":", zorder=0)
                panel.annotate(
                    row["arrows"],
                    xy=(row["time"], 1.0),
                    xycoords=("data", "axes fraction"),
                    xytext=(0, -2),
                    textcoords="offset points",
                    ha="center",
                    va="top",
                    fontsize=8.5,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
                )
            panel.margins(y=0.12)
            low, high = panel.get_ylim()
            panel.set_ylim(low, high + 0.25 * (high - low))  # room for the arrows
            panel.set_xlabel(f"Time ({table['time_unit'][0]})")
            panel.set_ylabel(feature)
            panel.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.1)
        return figure

    def summary(self, table: pl.DataFrame) -> pl.DataFrame:
        """A line per change."""
        changed = table.filter(pl.col("words") != "")
        return changed.select(pl.col("step").cast(pl.String), change="words")

    def findings(self, table: pl.DataFrame) -> Sequence[str]:
        """How much this patient improves, and whether that is above the paper's threshold."""
        row = table.row(0, named=True)
        side = "above" if row["improvement"] >= INTERESTING else "below"
        return [
            f"The largest improvement of the run is {row['improvement']:.1%} ({row['status']}, k = "
            f"{row['max_changes']}), {side} the threshold of {INTERESTING:.0%}."
        ]


def _course(answer: dict[str, Any], laboratory: Laboratory, max_changes: int) -> pl.DataFrame:
    cohort, name = laboratory.cohort(), laboratory.conditions.feature
    schema, episode = cohort.schema, cohort[answer["episode"]]
    column = schema.dynamic_index(name)
    low, high = schema.dynamic[column].plausible or (-np.inf, np.inf)
    pairs = list(zip(answer["observed_actions"], answer["actions"], strict=True))
    return pl.DataFrame(
        {
            "step": range(len(pairs)),
            "time": [step * schema.step_length for step in range(len(pairs))],
            "time_unit": schema.step_unit,
            "feature": name,
            "observed": np.clip(episode.states[:, column], low, high),
            "counterfactual": np.clip(np.array(answer["states"])[:, column], low, high),
            "arrows": [_arrows(schema, before, after) for before, after in pairs],
            "words": [
                "" if before == after else schema.actions.describe_change(before, after) for before, after in pairs
            ],
            "improvement": answer["improvement"],
            "status": answer["status"],
            "max_changes": max_changes,
        },
        schema_overrides={"time": pl.Float64},
    )


def _arrows(schema: Schema, before: int, after: int) -> str:
    """The initial of every dose axis with an arrow, one below the other; a star where actions are no doses."""
    if before == after:
        return ""
    if not schema.actions.axes:
        return "*"
    doses = zip(schema.actions.axes, schema.actions.vectors[before], schema.actions.vectors[after], strict=True)
    marks = [
        f"{axis.name[:1].upper()}$\\{'uparrow' if new > old else 'downarrow'}$"
        for axis, old, new in doses
        if new != old
    ]
    return "\n".join(marks)
