"""What a cohort run says as a whole: improvements, their distribution, interesting cases, evidence, work done."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.data.schema import Schema
from ifonly.errors import InputError
from ifonly.models.standing import HiddenSigns
from ifonly.query import Query
from ifonly.records import finite, from_plain
from ifonly.report import improvements as figures
from ifonly.report import patterns as recurring
from ifonly.report.cases.badge import LEVELS, with_badges
from ifonly.report.improvements import By, Examination, Statistics, improvements, statistics_by
from ifonly.result import Evidence, Status, Verdict
from ifonly.result.improvement import as_it_is, improvement_between
from ifonly.result.table import believed
from ifonly.result.verdict import the_rule
from ifonly.text.summaries import summary_lines, summary_statement
from ifonly.version import __version__

FORMAT = "ifonly.summary"
VERSION = 5

INTERESTING = 0.15
"""The paper's threshold: cases that improve by at least this much deserve an expert's look."""

ALL = "all answers"
_EPISODE_COLUMNS = (
    *("episode", "subject", "horizon", "status", "observed", "counterfactual", "improvement", "upper_improvement"),
    *("changes", "changed_steps", "verdict", "badge", "doubts", "refits_agree", "refits", "warnings"),
    "patterns",
)
_LISTED = (
    *("histogram", "by_horizon", "by_budget", "by_group", "changes_used", "change_times"),
    *("by_examination", "warnings", "agreement", "failures", "patterns"),
)


@dataclass(frozen=True)
class AnswerCounts:
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

    @property
    def left(self) -> int:
        """Episodes that are still to come, as far as is known."""
        return max(0, (self.expected or 0) - self.episodes)


@dataclass(frozen=True)
class OutcomeAverages:
    """Observed and counterfactual outcomes, clipped to the features' ranges, as people read them; None: unknown."""

    label: str
    higher_is_better: bool
    observed_mean: float | None
    observed_median: float | None
    counterfactual_mean: float | None
    counterfactual_median: float | None


@dataclass(frozen=True)
class SearchWork:
    """What the answers cost, added over all workers."""

    seconds: float
    median_seconds: float
    slowest_seconds: float
    answers_per_second: float | None
    """Per second of one worker."""
    nodes: int
    model_steps: int


@dataclass(frozen=True)
class EvidenceCounts:
    """How many answers were examined, and what came of it."""

    model_check: Mapping[str, Any] | None
    """What a check concluded about the model (a `Standing`, in plain types); None where it was not checked."""
    verdicts: Mapping[str, int]
    """Answers by the verdict of their evidence."""
    examined: int
    """Answers that change something and were examined."""
    without_warnings: int
    median_without_warnings: float | None
    """The median improvement of these."""
    unchanged: int
    """Answers that change nothing: there is nothing to examine."""
    not_examined: int
    refits: int
    """Answers of which the refits of an ensemble were asked."""
    all_refits_agree: int
    """Of those, the ones that help under every refit."""
    median_agreement: float | None
    """The median share of refits under which an answer helps."""
    judged_by_organs: int
    """Answers that claim a gain of a score which its organs can bear out."""
    not_borne_out: int
    """Of those, the ones whose organs do not."""
    debiased: int
    """Answers that are believed, and of which it is known what their promised gains owe to having been chosen."""
    share_left: float | None
    """What is left of the promised gains of these without it, as a share of their sum; None where nothing is
    promised."""

    @property
    def model_failed(self) -> bool:
        """Whether the model failed its check, and was asked all the same."""
        return self.model_check is not None and self.model_check["verdict"] == "fail"

    @property
    def hidden_clearly(self) -> bool:
        """Whether the check shows clear signs of something that matters and is not recorded: then nothing is
        supported."""
        return self.model_check is not None and the_rule().is_hidden_clearly(HiddenSigns(**self.model_check["hidden"]))


@dataclass(frozen=True, eq=False)
class RunSummary:
    """A cohort run in numbers. Improvements are relative to the observed outcome: 0.05 is 5 % better."""

    threshold: float
    counts: AnswerCounts
    improvement: Statistics
    outcomes: OutcomeAverages
    work: SearchWork
    evidence: EvidenceCounts
    abstained: int
    """Answers that are not to be believed, and so not in improvement, outcomes, cases and what these are broken down
    by; 0 where nothing is kept out."""
    possible_cases: int
    """Limited answers below the threshold whose upper bound, if any, does not exclude that they belong above it."""
    group_labels: Mapping[str, str]
    """Each grouping's name with its unit."""
    episodes: pl.DataFrame
    """One row per answer: who, status, outcomes as shown, improvement, upper_improvement, changes, changed_steps, and
    the evidence: verdict, badge (good, reserved or bad) and doubts (codes of what keeps it from being good; both null
    without a schema), refits_agree (of so many refits), warnings (codes; null where it was not examined), and the
    patterns that its changes belong to (null without a schema)."""
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
    by_examination: pl.DataFrame
    """`Statistics` and the number of cases of all answers, and of those of every `Examination` that there is."""
    warnings: pl.DataFrame
    """warning (a `WarningCode`), episodes, share (of the answers that were examined)."""
    agreement: pl.DataFrame
    """low, high, episodes: bins of the share of refits under which an answer helps; empty where none were asked."""
    failures: pl.DataFrame
    """reason (without ids and numbers), episodes, example (an id)."""
    patterns: pl.DataFrame
    """Which changes recur, and in whom (`cohort_patterns`), with small cells kept back; empty without a schema."""
    smallest_cell: int
    """Fewer subjects than this are not shown in `patterns`."""

    @property
    def believed(self) -> pl.DataFrame:
        """The rows of `episodes` that improvements, outcomes and cases are about: all but those `abstained` from."""
        return believed(self.episodes) if self.abstained else self.episodes

    @property
    def statement(self) -> str:
        """What is and is not proven, in words."""
        return summary_statement(self)

    def __str__(self) -> str:
        return summary_lines(self)

    def frames(self) -> dict[str, pl.DataFrame]:
        """The tables by name, flat enough for CSV: lists of steps and codes become text."""
        return {name: _flat(getattr(self, name)) for name in ("episodes", "cases", *_LISTED)}

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON, numbers and codes; the rows of all episodes are left to `episodes`."""
        parts = ("improvement", "outcomes", "work", "evidence")
        return {
            "format": FORMAT,
            "version": VERSION,
            "ifonly": __version__,
            "threshold": self.threshold,
            "counts": asdict(self.counts) | {"answered": self.counts.answered},
            **{name: asdict(getattr(self, name)) for name in parts},
            "abstained": self.abstained,
            "possible_cases": self.possible_cases,
            "smallest_cell": self.smallest_cell,
            "cases": self.cases.to_dicts(),
            **{name: getattr(self, name).to_dicts() for name in _LISTED},
        }

    def to_json(self) -> str:
        """One JSON document."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)


def summarize(
    table: pl.DataFrame,
    query: Query | None = None,
    *,
    schema: Schema | None = None,
    threshold: float = INTERESTING,
    by: By = (),
    values: Cohort | pl.DataFrame | None = None,
    expected: int | None = None,
    abstain: bool = True,
    smallest_cell: int = recurring.SMALLEST_CELL,
) -> RunSummary:
    """Summarise a run's table (`run.table()`) with what the run was asked (`run.query`).

    The query says how outcomes are shown and what changes cost; without it, outcomes are shown as they are. The
    `schema` (`run.provenance.schema`) says which values are plausible, which badges need, and how doses are
    ordered, which patterns need: of these, cells of fewer than `smallest_cell` subjects are not shown. `by` names
    features of `values` (a cohort: their values at the first step; or a table with a column `episode`), or columns of
    `table`, to group by; as a mapping, it also says at which edges to cut each, None for quartiles. `expected` is how
    many episodes the finished run has. Answers whose verdict is "not believable" are kept out of all figures about
    improvements, and counted as `abstained`, unless `abstain` is False.
    """
    if not (math.isfinite(threshold) and threshold >= 0):
        raise InputError(f"threshold={threshold}: must be a number of at least 0, such as 0.15 for 15 %.")
    answers = improvements(table, query)
    failures = figures.failures(table)
    if answers.is_empty():
        raise _nothing_to_summarize(table, failures)
    episodes, kept = _shown(answers, query, schema), believed(answers) if abstain else answers
    listed = episodes.filter(pl.col("episode").is_in(kept["episode"].implode()))
    by_group, labels = figures.by_group(kept, by, values=values, threshold=threshold)
    known = kept["improvement"].drop_nulls().to_numpy()
    agreement = answers["refits_agree"].drop_nulls().to_numpy()
    budgets = figures.improvements_by_budget(table.filter(pl.col("episode").is_in(kept["episode"].implode())), query)
    open_ended = pl.col("upper_improvement").fill_null(math.inf) >= threshold
    return RunSummary(
        threshold=threshold,
        counts=_counts(table, answers, expected),
        improvement=Statistics.of(kept),
        outcomes=_outcomes(listed, query),
        work=_work(answers),
        evidence=_evidence(answers, kept),
        abstained=answers.height - kept.height,
        possible_cases=kept.filter((pl.col("improvement") < threshold) & ~pl.col("proven") & open_ended).height,
        group_labels=labels,
        episodes=episodes,
        cases=listed.filter(pl.col("improvement") >= threshold).sort(
            "improvement", descending=True, maintain_order=True
        ),
        histogram=figures.histogram(known, figures.bin_edges(known)),
        by_horizon=statistics_by(kept, "horizon", sorted(kept["horizon"].unique()), threshold),
        by_budget=statistics_by(budgets, "max_changes", sorted(budgets["max_changes"].unique()), math.inf).drop(
            "cases"
        ),
        by_group=by_group,
        changes_used=figures.changes_used(kept),
        change_times=figures.change_times(kept),
        by_examination=_by_examination(answers, threshold),
        warnings=_warnings(answers),
        agreement=figures.histogram(agreement, np.round(np.linspace(0, 1, 11), 12)),
        failures=failures,
        patterns=pl.DataFrame(schema=recurring.COLUMNS)
        if schema is None
        else recurring.cohort_patterns(kept, schema, by=by, values=values, smallest_cell=smallest_cell),
        smallest_cell=smallest_cell,
    )


def _nothing_to_summarize(table: pl.DataFrame, failures: pl.DataFrame) -> InputError:
    if table.is_empty():
        return InputError("this run has no episodes yet; let it answer at least one before it is summarised.")
    reason, count = failures["reason"][0], failures["episodes"][0]
    return InputError(
        f"all {table.height} episodes of this run failed, so there is nothing to summarise; the most frequent reason "
        f"({count} times): {reason}"
    )


def _counts(table: pl.DataFrame, answers: pl.DataFrame, expected: int | None) -> AnswerCounts:
    limited = answers.filter(~pl.col("proven"))
    sums = answers["clipped_outcome"] + answers["observed_clipped_outcome"]
    unknown = int((~sums.is_finite().fill_null(False)).sum())
    statuses = Counter(answers["status"])
    return AnswerCounts(
        episodes=table.height,
        expected=expected,
        proven=answers.height - limited.height,
        limited=limited.height,
        without_bound=limited["upper_bound"].null_count(),
        failed=table.height - answers.height,
        without_improvement=answers["improvement"].null_count() - unknown,
        without_outcome=unknown,
        statuses={status.value: statuses[status.value] for status in Status if statuses[status.value]},
    )


def _shown(answers: pl.DataFrame, query: Query | None, schema: Schema | None) -> pl.DataFrame:
    """Every episode, with its outcomes as people read them, and its badge where the schema is known."""
    if schema is None:
        words = pl.lit(None, pl.List(pl.String))
        judged = answers.with_columns(badge=pl.lit(None, LEVELS), doubts=words, patterns=words)
    else:
        belongs = recurring.patterns_by_episode(answers, schema)
        judged = with_badges(answers, schema.dynamic).with_columns(belongs["patterns"])
    show = as_it_is if query is None else query.reward.show
    outcomes = answers.select("observed_clipped_outcome", "clipped_outcome").cast(pl.Float64).fill_null(math.nan)
    found = [improvement_between(show, *pair) for pair in outcomes.iter_rows()]
    shown = pl.DataFrame(
        {name: [finite(getattr(one, name).value) for one in found] for name in ("observed", "counterfactual")},
        schema={"observed": pl.Float64, "counterfactual": pl.Float64},
    )
    return pl.concat([judged, shown], how="horizontal").select(_EPISODE_COLUMNS)


def _outcomes(episodes: pl.DataFrame, query: Query | None) -> OutcomeAverages:
    """Means and medians of outcomes as people read them."""
    example = (as_it_is if query is None else query.reward.show)(0.0)
    averages = {
        f"{name}_{average}": _number(getattr(episodes[name], average)())
        for name in ("observed", "counterfactual")
        for average in ("mean", "median")
    }
    return OutcomeAverages(example.label, example.higher_is_better, **averages)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, float) else None


def _work(answers: pl.DataFrame) -> SearchWork:
    stats = answers["stats"].struct
    seconds = (stats.field("seconds_bounds") + stats.field("seconds_search")).to_numpy()
    total = float(seconds.sum())
    return SearchWork(
        seconds=total,
        median_seconds=float(np.median(seconds)),
        slowest_seconds=float(seconds.max()),
        answers_per_second=len(seconds) / total if total > 0 else None,
        nodes=int(stats.field("nodes_expanded").sum()),
        model_steps=int(stats.field("model_steps").sum()),
    )


def _evidence(answers: pl.DataFrame, believed: pl.DataFrame) -> EvidenceCounts:
    found = Counter(answers["examination"])
    verdicts = Counter(answers["verdict"])
    clean = answers.filter(pl.col("examination") == Examination.CLEAN.value)
    agreement = answers["refits_agree"].drop_nulls()
    borne_out = _borne_out(answers["evidence"])
    debiased, share_left = _left_of_promises(believed["evidence"])
    return EvidenceCounts(
        # The same in all rows: a run tells the newest check that it knows of.
        model_check=answers["evidence"][0]["check"],
        verdicts={verdict.value: verdicts[verdict.value] for verdict in Verdict if verdicts[verdict.value]},
        examined=found[Examination.CLEAN] + found[Examination.WARNED],
        without_warnings=found[Examination.CLEAN],
        median_without_warnings=_number(clean["improvement"].median()),
        unchanged=found[Examination.UNCHANGED],
        not_examined=found[Examination.NOT_EXAMINED],
        refits=len(agreement),
        all_refits_agree=int((agreement == 1).sum()),
        median_agreement=_number(agreement.median()),
        judged_by_organs=len(borne_out),
        not_borne_out=borne_out.count(False),
        debiased=debiased,
        share_left=share_left,
    )


def _borne_out(evidence: pl.Series) -> list[bool]:
    """Of every answer whose score's gain is judged by its organs, whether they bear it out."""
    scored = (row for row in evidence if row.get("scores"))
    parts = (from_plain(Evidence, row, what="evidence") for row in scored)
    judged = ([one.is_borne_out(part.thresholds) for one in part.scores] for part in parts)
    return [False not in told for told in judged if any(one is not None for one in told)]


def _left_of_promises(evidence: pl.Series) -> tuple[int, float | None]:
    """Of how many answers it is known what they owe to having been chosen, and what share of their gains is left."""
    judged = (from_plain(Evidence, row, what="evidence") for row in evidence if row.get("honest"))
    gains = [(one.promised, one.estimate.gain) for one in judged if one.promised is not None and one.estimate]
    promised, left = (math.fsum(column) for column in zip(*gains, strict=True)) if gains else (0.0, 0.0)
    return len(gains), left / promised if promised > 0 else None


def _by_examination(answers: pl.DataFrame, threshold: float) -> pl.DataFrame:
    found = set(answers["examination"])
    everyone = statistics_by(answers.with_columns(examination=pl.lit(ALL)), "examination", [ALL], threshold)
    kinds = [kind.value for kind in Examination if kind in found]
    return pl.concat([everyone, statistics_by(answers, "examination", kinds, threshold)])


def _warnings(answers: pl.DataFrame) -> pl.DataFrame:
    examined = answers["warnings"].drop_nulls()
    found = Counter(examined.explode().drop_nulls().to_list())
    lines = [{"warning": code, "episodes": n, "share": n / len(examined)} for code, n in found.most_common()]
    return pl.DataFrame(lines, schema={"warning": pl.String, "episodes": pl.Int64, "share": pl.Float64})


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    between = {"warnings": "; ", "doubts": "; ", "patterns": "; "}
    return frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(between.get(name, " ")) for name in lists)
