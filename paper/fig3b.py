"""Figure 3b: how much better it could have gone for every patient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import polars as pl
from matplotlib.figure import Figure

from ifonly.report.cohort_plots import plot_improvement_distribution
from ifonly.report.improvements import Asked
from ifonly.report.summary import Summary, summarize
from ifonly.report.summary_text import unfinished
from ifonly.runs.rows import COLUMNS
from paper.base import Experiment, Settings
from paper.retrospect import QUICK, RetrospectSettings, cohort_rows
from paper.runner import Bench


class ImprovementDistribution(Experiment):
    """The improvement of all patients, with the tail of interesting cases."""

    name: ClassVar[str] = "fig3b"
    title: ClassVar[str] = "Distribution of the counterfactual improvement"
    paper: ClassVar[str] = (
        "Median improvement 5 % (k = 3); 176 of 15,992 patients (1.1 %) improve by at least 15 %: interesting cases."
    )
    settings_class: ClassVar[type[Settings]] = RetrospectSettings

    def settings(self, *, quick: bool) -> Settings:
        """All patients, or a dozen."""
        return QUICK if quick else RetrospectSettings()

    def run(self, bench: Bench, settings: Settings) -> pl.DataFrame:
        """The table of the cohort run, without the states; `expected` says how many rows it has when it is finished."""
        assert isinstance(settings, RetrospectSettings)
        table = cohort_rows(bench, settings).with_columns(states=pl.lit(None, COLUMNS["states"]))
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
        return [
            f"Median improvement {'-' if median is None else f'{100 * median:.1f} %'}; {found.cases.height:,} of "
            f"{found.improvement.episodes:,} patients ({share:.1%}) improve by at least {found.threshold:.0%}.{limited}"
            f"{_unfinished(found)}"
        ]


def _summarized(table: pl.DataFrame) -> Summary:
    expected = table["expected"][0] if "expected" in table.columns else None  # tables of version 0.1.0 do not say
    return summarize(table, asked=Asked(episodes=expected))


def _unfinished(found: Summary) -> str:
    words = unfinished(found.counts)
    return f" {words}" if words else ""
