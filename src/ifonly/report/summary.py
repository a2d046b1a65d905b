"""What a cohort run says as a whole: improvements, their distribution, interesting cases, subgroups, work done."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.errors import InputError
from ifonly.report import breakdowns, trusting
from ifonly.report.breakdowns import By
from ifonly.report.improvements import Asked, Statistics, improvements, statistics_of
from ifonly.report.summary_text import described, statement
from ifonly.report.trusting import TrustCounts
from ifonly.result import Status
from ifonly.rewards import Reward
from ifonly.version import __version__

FORMAT = "ifonly.summary"
VERSION = 2

INTERESTING = 0.15
"""The paper's threshold: cases that improve by at least this much deserve an expert's look."""


@dataclass(frozen=True)
class Counts:
    """How the episodes of a run ended."""

    episodes: int
    """Rows of the run's table."""
    expected: int | None
    """Episodes that the run is about, as far as is known; more than `episodes` while it is not finished."""
    proven: int
    """Answers that are optimal under the model."""
    limited: int
    """Answers that are not: their improvement is a lower bound of what was possible."""
    without_bound: int
    """Of the limited ones those without an upper bound."""
    failed: int
    without_improvement: int
    """Answers without a relative improvement, since their observed outcome is zero."""
    without_outcome: int
    """Answers without a relative improvement, since their outcome, clipped to the features' ranges, is no number."""
    statuses: Mapping[str, int]

    @property
    def answered(self) -> int:
        """Episodes with an answer, proven or not."""
        return self.proven + self.limited


@dataclass(frozen=True)
class Outcomes:
    """Observed and counterfactual outcomes, clipped to the features' ranges, as people read them; None: unknown."""

    label: str
    higher_is_better: bool
    observed_mean: float | None
    observed_median: float | None
    counterfactual_mean: float | None
    counterfactual_median: float | None


@dataclass(frozen=True)
class Work:
    """What the answers cost, added over all workers."""

    seconds: float
    median_seconds: float
    slowest_seconds: float
    answers_per_second: float | None
    """Per second of one worker."""
    nodes: int
    model_steps: int


@dataclass(frozen=True, eq=False)
class Summary:
    """A cohort run in numbers. Improvements are relative to the observed outcome: 0.05 is 5 % better."""

    threshold: float
    counts: Counts
    improvement: Statistics
    outcomes: Outcomes
    work: Work
    trust: TrustCounts
    possible_cases: int
    """Limited answers below the threshold whose upper bound, if any, does not exclude that they belong above it."""
    group_labels: Mapping[str, str]
    """Each grouping's name with its unit."""
    episodes: pl.DataFrame
    """One row per answer: who, status, outcomes as shown, improvement, upper_improvement, changes, changed_steps, and
    how far to trust it: trust, refits_agree (of so many refits), warnings; null where it was not examined."""
    cases: pl.DataFrame
    """The rows of `episodes` that improve by at least the threshold, best first."""
    histogram: pl.DataFrame
    """low, high, episodes: bins [low, high) of the improvement."""
    by_horizon: pl.DataFrame
    """`Statistics` and the number of cases for every number of steps."""
    by_budget: pl.DataFrame
    """`Statistics` for every budget of changes, over the same episodes; empty where the solver gave no frontier."""
    by_group: pl.DataFrame
    """`Statistics` and the number of cases for every group of every grouping asked for."""
    changes_used: pl.DataFrame
    """changes, episodes, share: how many answers change so many steps."""
    change_times: pl.DataFrame
    """step, episodes (that reach it), changed, share (changed / episodes)."""
    by_standing: pl.DataFrame
    """`Statistics` and the number of cases of all answers, and of those without and with warnings."""
    warnings: pl.DataFrame
    """warning (its kind), episodes, share (of the answers that were examined)."""
    agreement: pl.DataFrame
    """low, high, episodes: bins of the share of refits under which an answer helps; empty where none were asked."""
    failures: pl.DataFrame
    """reason (without ids and numbers), episodes, example (an id)."""

    @property
    def statement(self) -> str:
        """What is and is not proven, in words."""
        return statement(self)

    def __str__(self) -> str:
        return described(self)

    def frames(self) -> dict[str, pl.DataFrame]:
        """The tables by name, flat enough for CSV: lists of steps become text."""
        names = ("episodes", "cases", *_LISTED)
        return {name: _flat(getattr(self, name)) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; the rows of all episodes are left to `episodes`."""
        parts = {name: asdict(getattr(self, name)) for name in ("counts", "improvement", "outcomes", "work", "trust")}
        counts = parts.pop("counts") | {"answered": self.counts.answered}
        return {
            "format": FORMAT,
            "version": VERSION,
            "ifonly": __version__,
            "statement": self.statement,
            "threshold": self.threshold,
            "counts": counts,
            **parts,
            "possible_cases": self.possible_cases,
            "cases": self.cases.to_dicts(),
            **{name: getattr(self, name).to_dicts() for name in _LISTED},
        }

    def to_json(self) -> str:
        """One JSON document."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)


_LISTED = (
    *("histogram", "by_horizon", "by_budget", "by_group", "changes_used", "change_times"),
    *("by_standing", "warnings", "agreement", "failures"),
)


def summarize(
    table: pl.DataFrame,
    *,
    threshold: float = INTERESTING,
    by: By = (),
    values: Cohort | pl.DataFrame | None = None,
    asked: Asked | None = None,
) -> Summary:
    """Summarise a run's table (`load_run(folder).table()`).

    `by` names features of `values` (a cohort: their values at the first step; or a table with a column `episode`), or
    columns of `table`, to group by; as a mapping, it also says at which edges to cut each, None for quartiles.
    `asked`, what the run was asked, says how outcomes are shown, what changes cost, and how many episodes there are to
    be; `Asked.of(manifest)` has it from the run.
    """
    asked = asked or Asked()
    if not (math.isfinite(threshold) and threshold >= 0):
        raise InputError(f"threshold={threshold}: must be a number of at least 0, such as 0.15 for 15 %.")
    answers = trusting.with_standing(improvements(table, asked))
    failures = breakdowns.failures(table)
    if answers.is_empty():
        raise _nothing_to_summarize(table, failures)
    outcomes, episodes = _shown(answers, asked.reward)
    cases = episodes.filter(pl.col("improvement") >= threshold).sort(
        "improvement", descending=True, maintain_order=True
    )
    by_group, labels = breakdowns.by_group(answers, by, values=values, threshold=threshold)
    known = answers["improvement"].drop_nulls().to_numpy()
    open_ended = pl.col("upper_improvement").fill_null(math.inf) >= threshold
    return Summary(
        threshold=threshold,
        counts=_counts(table, answers, asked.episodes),
        improvement=statistics_of(answers),
        outcomes=outcomes,
        work=_work(answers),
        trust=trusting.trust_counts(answers, asked.model_check),
        possible_cases=answers.filter((pl.col("improvement") < threshold) & ~pl.col("proven") & open_ended).height,
        group_labels=labels,
        episodes=episodes,
        cases=cases,
        histogram=breakdowns.histogram(known),
        by_horizon=breakdowns.statistics_by(answers, "horizon", sorted(answers["horizon"].unique()), threshold),
        by_budget=breakdowns.by_budget(table, asked),
        by_group=by_group,
        changes_used=breakdowns.changes_used(answers),
        change_times=breakdowns.change_times(answers),
        by_standing=trusting.by_standing(answers, threshold),
        warnings=trusting.warning_kinds(answers),
        agreement=trusting.agreement_histogram(answers),
        failures=failures,
    )


def _nothing_to_summarize(table: pl.DataFrame, failures: pl.DataFrame) -> InputError:
    if table.is_empty():
        return InputError("this run has no episodes yet; let it answer at least one before it is summarised.")
    reason, count = failures["reason"][0], failures["episodes"][0]
    return InputError(
        f"all {table.height} episodes of this run failed, so there is nothing to summarise; the most frequent reason "
        f"({count} times): {reason}"
    )


def _counts(table: pl.DataFrame, answers: pl.DataFrame, expected: int | None) -> Counts:
    limited = ~pl.col("proven")
    unknown = answers.filter(
        ~(pl.col("clipped_outcome") + pl.col("observed_clipped_outcome")).is_finite().fill_null(False)
    )
    statuses = answers["status"].to_list()
    return Counts(
        episodes=table.height,
        expected=expected,
        proven=answers.filter("proven").height,
        limited=answers.filter(limited).height,
        without_bound=answers.filter(limited & pl.col("upper_bound").is_null()).height,
        failed=table.height - answers.height,
        without_improvement=answers["improvement"].null_count() - unknown.height,
        without_outcome=unknown.height,
        statuses={s.value: statuses.count(s.value) for s in Status if s.value in statuses},
    )


def _shown(answers: pl.DataFrame, reward: Reward | None) -> tuple[Outcomes, pl.DataFrame]:
    """Outcomes as people read them, of all and of each episode."""

    def read(column: str) -> pl.Series:
        values = answers[column].to_list()
        shown = [value if reward is None or value is None else reward.show(value).value for value in values]
        series = pl.Series(shown, dtype=pl.Float64)
        return pl.select(pl.when(series.is_finite()).then(series)).to_series()

    observed, found = read("observed_clipped_outcome"), read("clipped_outcome")
    example = None if reward is None else reward.show(0.0)
    outcomes = Outcomes(
        label="outcome" if example is None else example.label,
        higher_is_better=example is None or example.higher_is_better,
        observed_mean=_number(observed.mean()),
        observed_median=_number(observed.median()),
        counterfactual_mean=_number(found.mean()),
        counterfactual_median=_number(found.median()),
    )
    episodes = answers.with_columns(observed=observed, counterfactual=found).select(
        "episode",
        "subject",
        "horizon",
        "status",
        "observed",
        "counterfactual",
        "improvement",
        "upper_improvement",
        "changes",
        "changed_steps",
        "trust",
        "refits_agree",
        pl.col("refit_improvements").list.len().cast(pl.Int64).alias("refits"),
        "warnings",
    )
    return outcomes, episodes


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, float) else None


def _work(answers: pl.DataFrame) -> Work:
    seconds = answers["seconds"].fill_null(0.0).to_numpy()
    total = float(seconds.sum())
    return Work(
        seconds=total,
        median_seconds=float(np.median(seconds)),
        slowest_seconds=float(seconds.max()),
        answers_per_second=len(seconds) / total if total > 0 else None,
        nodes=int(answers["nodes"].fill_null(0).sum()),
        model_steps=int(answers["model_steps"].fill_null(0).sum()),
    )


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    between = {"warnings": "; "}
    return frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(between.get(name, " ")) for name in lists)
