"""Figures 3b and 3c: how much better it could have gone for every patient of the cohort, and for one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from ifonly import Schema
from ifonly.report.cohort_plots import plot_improvement_distribution
from ifonly.report.improvements import improvements
from ifonly.report.summary import INTERESTING, RunSummary, summarize
from ifonly.result.table import FAILED
from ifonly.text.summaries import statement_messages
from paper import asking
from paper.bench import Bench
from paper.experiment import Experiment
from paper.laboratory import Laboratory, Settings
from paper.style import BLUE, GREY, paper_panels


@dataclass(frozen=True)
class RetrospectSettings(Settings):
    """Of the run over the cohort."""

    distribution: int | None = None
    """How many patients, the first of the cohort; None: all."""
    max_changes: int = 3
    seconds: float | None = 60.0
    """Limit of every single solve; None: no limit."""
    device: str = "cpu"


QUICK = RetrospectSettings(distribution=12, max_changes=2, seconds=10.0)


def cohort_rows(bench: Bench, settings: RetrospectSettings) -> pl.DataFrame:
    """The table of the run, as `ifonly cohort` makes it; of what is finished, if nothing is to be solved."""
    laboratory = bench.laboratory
    ids = laboratory.cohort().ids[: settings.distribution]
    # A folder for each combination of settings, so that none is in the other's way.
    limit = "" if settings.seconds is None else f"-{settings.seconds:g}s"
    name = f"{len(ids)}-episodes-{settings.max_changes}-changes{limit}-{settings.device.replace(':', '-')}"
    folder = laboratory.folder / "cohort-runs" / name
    if bench.finished_only:
        table = asking.finished_rows(folder)
    else:
        bench.fit_models([laboratory.standard])
        table = asking.run_cohort(
            laboratory.cohort(),
            laboratory.load_model(laboratory.standard),
            asking.Question(settings.max_changes, laboratory.reward, settings.device, seconds=settings.seconds),
            folder,
            episodes=ids,
            workers=bench.workers,
            progress=bench.progress,
        )
    bench.count(len(ids), table.height, table.filter(status=FAILED).height)
    return table


class ImprovementDistribution(Experiment[RetrospectSettings]):
    """The improvement of all patients, with the tail of interesting cases."""

    name = "fig3b"
    title = "Distribution of the counterfactual improvement"
    paper = (
        "Median improvement 5 % (k = 3); 176 of 15,992 patients (1.1 %) improve by at least 15 %: interesting cases."
    )
    full = RetrospectSettings()
    quick = QUICK

    def run(self, bench: Bench, settings: RetrospectSettings) -> pl.DataFrame:
        """The table of the cohort run, without the states; `expected` says how many rows it has when it is finished."""
        table = asking.without_states(cohort_rows(bench, settings))
        return table.with_columns(expected=pl.lit(bench.tally.wanted, pl.Int64))

    def plot(self, table: pl.DataFrame) -> Figure:
        """The histogram with the median and the tail."""
        return plot_improvement_distribution(_summarized(table))

    def summary(self, table: pl.DataFrame) -> pl.DataFrame:
        """A few figures of the distribution."""
        found = _summarized(table)
        figures = found.improvement
        percents = {
            "mean": figures.mean,
            "lower quartile": figures.lower_quartile,
            "median": figures.median,
            "upper quartile": figures.upper_quartile,
            "largest": figures.largest,
        }
        lines = {f"{name} improvement (%)": "-" if x is None else f"{100 * x:.2f}" for name, x in percents.items()}
        lines |= {
            "patients": f"{figures.episodes:,}",
            f"improve by at least {found.threshold:.0%}": f"{found.cases.height:,}",
            "proven": f"{found.counts.proven:,} of {found.counts.answered:,}",
            "median seconds per solve": f"{found.work.median_seconds:.2g}",
        }
        return pl.DataFrame({"figure": list(lines), "value": list(lines.values())})

    def findings(self, table: pl.DataFrame) -> Sequence[str]:
        """The median and the number of interesting cases."""
        found = _summarized(table)
        share = found.cases.height / max(found.improvement.episodes, 1)
        median = found.improvement.median
        limited = f" {found.counts.limited:,} answers are lower bounds." if found.counts.limited else ""
        unfinished = " ".join(str(one) for one in statement_messages(found) if one.code == "summary.unfinished")
        return [
            f"Median improvement {'-' if median is None else f'{100 * median:.1f} %'}; {found.cases.height:,} of "
            f"{found.improvement.episodes:,} patients ({share:.1%}) improve by at least {found.threshold:.0%}."
            f"{limited} {unfinished}".rstrip()
        ]


def _summarized(table: pl.DataFrame) -> RunSummary:
    return summarize(table, expected=table["expected"][0])


class InterestingCase(Experiment[RetrospectSettings]):
    """The patient of the cohort run whose improvement is the largest."""

    name = "fig3c"
    title = "The most interesting case: observed and counterfactual course"
    paper = (
        "An example with 19.9 % improvement (k = 3): an early higher dosage of fluids, and vasopressors in place of "
        "some of the later fluids, would have kept the SOFA score lower."
    )
    full = RetrospectSettings()
    quick = QUICK

    def run(self, bench: Bench, settings: RetrospectSettings) -> pl.DataFrame:
        """One row per step of the patient."""
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
