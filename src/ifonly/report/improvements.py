"""How much better each episode of a run could have gone, and figures over many episodes, also broken down."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.data.groups import make_groups
from ifonly.errors import InputError
from ifonly.intervals import mean_interval
from ifonly.query import Query
from ifonly.records import finite
from ifonly.result.improvement import as_it_is, improvement_between
from ifonly.result.table import COLUMNS, FAILED, reasons_of

By = str | Sequence[str] | Mapping[str, Sequence[float] | None]

ROUNDING = 1e-9
"""Gaps of at most this size, relative to the outcome, are none: an answer that is proven is known up to rounding."""

MOST_BINS = 80
"""Of a histogram, so that a few far values do not make it endless."""

_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?(?!\w)")


class Examination(StrEnum):
    """What came of examining an answer."""

    CLEAN = "no warnings"
    WARNED = "with warnings"
    UNCHANGED = "nothing changed"
    """There is nothing to examine."""
    NOT_EXAMINED = "not examined"
    """Nothing is known but, perhaps, what a check said of the model."""


@dataclass(frozen=True)
class Statistics:
    """Figures of the improvements of some episodes; what cannot be said of so few is None.

    `mean` and `median` are lower bounds where some answers are not proven; `upper_mean` and `upper_median` are the
    other end of the bracket, and None where missing bounds leave it open.
    """

    episodes: int
    mean: float | None = None
    deviation: float | None = None
    low: float | None = None
    high: float | None = None
    """The 95 % interval of the mean, by Student's t distribution; None for fewer than two episodes."""
    median: float | None = None
    lower_quartile: float | None = None
    upper_quartile: float | None = None
    smallest: float | None = None
    largest: float | None = None
    upper_mean: float | None = None
    upper_median: float | None = None

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Statistics:
        """From the columns `improvement` and `upper_improvement`; rows without an improvement do not count."""
        known = rows.filter(pl.col("improvement").is_not_null())
        values = known["improvement"].to_numpy()
        upper = known["upper_improvement"].fill_null(math.inf).to_numpy()
        if not len(values):
            return cls(0)
        interval = mean_interval(values)
        smallest, lower, median, higher, largest = (float(value) for value in np.quantile(values, np.arange(5) / 4))
        return cls(
            episodes=len(values),
            mean=float(values.mean()),
            deviation=float(values.std(ddof=1)) if len(values) > 1 else None,
            low=None if interval is None else interval.low,
            high=None if interval is None else interval.high,
            median=median,
            lower_quartile=lower,
            upper_quartile=higher,
            smallest=smallest,
            largest=largest,
            upper_mean=finite(float(upper.mean())),
            upper_median=finite(_median(upper)),
        )


_STATISTICS = {name: pl.Int64 if name == "episodes" else pl.Float64 for name in Statistics.__dataclass_fields__}


def _median(values: FloatArray) -> float:
    """The median; infinite as soon as an infinite value takes part in it, where numpy would give NaN."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1].mean())


# One row per episode


def improvements(table: pl.DataFrame, query: Query | None = None) -> pl.DataFrame:
    """One row per answered episode of a run's table, in its order, failed ones left out, with further columns.

    `upper_improvement` adds to `improvement` the gap that the search left open and, since costs of changes count in
    gaps but not in improvements, the costs of those that were not used; null where no bound is known. For proven
    answers the two are the same. `changed_steps`, `refits` (how many) and `refits_agree` (the share under which the
    answer helps) are taken from the evidence. `examination` says what came of examining the answer; where nothing was
    examined, `warnings` are null.
    """
    if missing := [name for name in COLUMNS if name not in table.columns]:
        raise InputError(
            f"this table lacks the columns {missing}; pass the table of a cohort run, as `load_run(folder).table()` "
            "gives it."
        )
    evidence = pl.col("evidence").struct
    refits = evidence.field("refits").struct
    count = refits.field("improvements").list.len().cast(pl.Int64)
    budget = pl.col("horizon")
    if query is not None and query.max_changes is not None:
        budget = pl.min_horizontal(query.max_changes, budget)
    gap = (pl.col("upper_bound") - pl.col("outcome")).clip(lower_bound=0.0)
    room = gap + _change_cost(query) * (budget - pl.col("changes")).clip(lower_bound=0)
    size = pl.col("observed_clipped_outcome").abs()
    upper = pl.col("improvement") + pl.when("proven").then(0.0).otherwise(room / size)
    examined = pl.col("examination").is_in([Examination.CLEAN.value, Examination.WARNED.value])
    return (
        table.filter(pl.col("status") != FAILED)
        .with_columns(
            upper_improvement=upper,
            changed_steps=evidence.field("changed_steps"),
            refits=count,
            refits_agree=refits.field("helping") / count,
            examination=_examination(),
        )
        .with_columns(warnings=pl.when(examined).then("warnings"))
    )


def _examination() -> pl.Expr:
    evidence = pl.col("evidence").struct
    parts = [evidence.field(name).is_not_null() for name in ("refits", "support", "sensitivity")]
    asked = pl.any_horizontal(*parts, evidence.field("failures").list.len() > 0)
    return (
        pl.when(pl.col("changes") == 0)
        .then(pl.lit(Examination.UNCHANGED.value))
        .when(~asked)
        .then(pl.lit(Examination.NOT_EXAMINED.value))
        .when(pl.col("warnings").list.len() == 0)
        .then(pl.lit(Examination.CLEAN.value))
        .otherwise(pl.lit(Examination.WARNED.value))
    )


def improvements_by_budget(table: pl.DataFrame, query: Query | None = None) -> pl.DataFrame:
    """Columns episode, max_changes, improvement, upper_improvement: the best for every budget, from the frontiers.

    Only episodes for which the best is known for every budget from 0 to the largest, so that budgets compare the same
    episodes. An episode with fewer steps than the budget counts with all its steps changed. More changes allowed never
    improve less: where a sequence with fewer is the better one within plausible ranges, that one counts.
    """
    names = ("episode", "horizon", "observed_clipped_outcome", "observed_actions", "frontier")
    known = pl.col("improvement").is_not_null() & (pl.col("frontier").list.len() > 0)
    rows = improvements(table).filter(known).select(names).to_dicts()
    most = max((entry["max_changes"] for row in rows for entry in row["frontier"]), default=-1)
    lines = []
    for row in rows:
        entries = {entry["max_changes"]: entry for entry in row["frontier"]}
        wanted = [entries.get(min(budget, row["horizon"])) for budget in range(most + 1)]
        found = [None if entry is None else _of_budget(row, entry, query) for entry in wanted]
        lines += _never_falling(row["episode"], found)
    schema = {"episode": pl.String, "max_changes": pl.Int64, "improvement": pl.Float64, "upper_improvement": pl.Float64}
    return pl.DataFrame(lines, schema=schema, orient="row")


def _of_budget(row: Mapping[str, Any], entry: Mapping[str, Any], query: Query | None) -> tuple[float, float] | None:
    """The improvement of an entry of a frontier, and what it could be at most; None where it is not known."""
    if entry["clipped_outcome"] is None:
        return None
    observed = row["observed_clipped_outcome"]
    show = as_it_is if query is None else query.reward.show
    improvement = improvement_between(show, observed, entry["clipped_outcome"]).relative
    if improvement is None or None in (entry["upper_bound"], entry["outcome"]):
        return None if improvement is None else (improvement, math.inf)
    gap = max(0.0, entry["upper_bound"] - entry["outcome"])
    if gap > ROUNDING * max(1.0, abs(entry["outcome"])):
        used = sum(a != b for a, b in zip(entry["actions"], row["observed_actions"], strict=False))
        gap += _change_cost(query) * (entry["max_changes"] - used)
    return improvement, improvement + gap / abs(observed)


def _never_falling(
    episode: str, found: Sequence[tuple[float, float] | None]
) -> list[tuple[str, int, float, float | None]]:
    """The lines of an episode; none where a budget is not known."""
    lines: list[tuple[str, int, float, float | None]] = []
    best = -math.inf
    for budget, one in enumerate(found):
        if one is None:
            return []
        best = max(best, one[0])
        lines.append((episode, budget, best, finite(max(best, one[1]))))
    return lines


def _change_cost(query: Query | None) -> float:
    return 0.0 if query is None else query.change_cost


# Broken down


def statistics_by(rows: pl.DataFrame, column: str, kinds: Iterable[Any], threshold: float) -> pl.DataFrame:
    """`Statistics` and the number of cases, improved by at least `threshold`, of the rows of each kind."""
    lines = []
    for kind in kinds:
        part = rows.filter(pl.col(column) == kind)
        cases = part.filter(pl.col("improvement") >= threshold).height
        lines.append({column: kind, **asdict(Statistics.of(part)), "cases": cases})
    return pl.DataFrame(lines, schema={column: rows.schema[column], **_STATISTICS, "cases": pl.Int64})


def by_group(
    answers: pl.DataFrame, by: By, *, values: Cohort | pl.DataFrame | None, threshold: float
) -> tuple[pl.DataFrame, dict[str, str]]:
    """`Statistics` and the number of cases per group of every grouping, and each grouping's name with its unit."""
    frames = [pl.DataFrame(schema={"by": pl.String, "group": pl.String, **_STATISTICS, "cases": pl.Int64})]
    labels = {}
    groupings = by if isinstance(by, Mapping) else dict.fromkeys([by] if isinstance(by, str) else by)
    for name, edges in groupings.items():
        groups = make_groups(name, answers["episode"].to_list(), source_of_groups(name, answers, values), edges)
        labels[name] = groups.label
        grouped = answers.with_columns(group=pl.Series(groups.of_episode, dtype=pl.String))
        part = statistics_by(grouped, "group", groups.order, threshold)
        frames.append(part.select(pl.lit(name).alias("by"), pl.all()))
    return pl.concat(frames), labels


def source_of_groups(name: str, answers: pl.DataFrame, values: Cohort | pl.DataFrame | None) -> Cohort | pl.DataFrame:
    """Where a grouping's values are: in what was passed, or in the run's own table."""
    own = answers.select(COLUMNS.names())
    if values is None:
        return own
    names = [f.name for f in values.schema.features] if isinstance(values, Cohort) else values.columns
    return own if name in COLUMNS and name not in names else values


def histogram(values: FloatArray, edges: FloatArray) -> pl.DataFrame:
    """low, high, episodes: bins [low, high) of values [N]; empty where there are none."""
    counts = np.histogram(values, edges)[0] if len(values) else np.zeros(0, dtype=np.int64)
    shown = len(counts)
    return pl.DataFrame({"low": edges[:shown], "high": edges[1 : shown + 1], "episodes": counts})


def bin_edges(values: FloatArray) -> FloatArray:
    """Edges of bins for improvements [N]: as wide as Freedman and Diaconis advise, made a round number; 0 is an edge.

    >>> bin_edges(np.array([0.01, 0.02, 0.04, 0.05, 0.12]))
    array([0.  , 0.05, 0.1 , 0.15])
    """
    if not len(values):
        return np.zeros(1)
    low, high = float(values.min()), float(values.max())
    spread = float(np.subtract(*np.quantile(values, (0.75, 0.25))))
    least = 0.001 if high > low else 0.01
    width = round_up(max(2 * spread / len(values) ** (1 / 3), (high - low) / MOST_BINS, least))
    first, last = math.floor(low / width) - 1, math.floor(high / width) + 2
    # Rounded, so that 0.15 is an edge and not its neighbour: cases are counted from there on.
    edges = np.round(np.arange(first, last + 1) * width, 12)
    return edges[np.searchsorted(edges, low, "right") - 1 : np.searchsorted(edges, high, "right") + 1]


def round_up(number: float) -> float:
    """The smallest of 1, 2, 5, 10, 20, 50, ... and their like below 1 that is not smaller.

    >>> round_up(0.3), round_up(20), round_up(21)
    (0.5, 20.0, 50.0)
    """
    power = 10.0 ** math.floor(math.log10(number))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= number * (1 - 1e-9))


def changes_used(answers: pl.DataFrame) -> pl.DataFrame:
    """changes, episodes, share: how many answers change so many steps."""
    counted = answers.group_by("changes").agg(episodes=pl.len().cast(pl.Int64)).sort("changes")
    return counted.with_columns(share=pl.col("episodes") / answers.height)


def change_times(answers: pl.DataFrame) -> pl.DataFrame:
    """step, episodes (that reach it), changed, share (changed / episodes)."""
    longest = max(answers["horizon"], default=0)
    changed = np.bincount(answers["changed_steps"].explode().drop_nulls().to_numpy(), minlength=longest)
    reached = (answers["horizon"].to_numpy()[:, None] > np.arange(longest)).sum(0)
    return pl.DataFrame({"step": range(longest), "episodes": reached, "changed": changed, "share": changed / reached})


def failures(table: pl.DataFrame) -> pl.DataFrame:
    """reason, episodes, example: reasons that differ in ids and numbers only are one; the most frequent first."""
    found: dict[str, list[str]] = {}
    for episode, reason in reasons_of(table).items():
        kind = _NUMBER.sub("…", reason.replace(repr(episode), "…"))
        found.setdefault(kind, []).append(episode)
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    lines = [{"reason": reason, "episodes": len(ids), "example": ids[0]} for reason, ids in ordered]
    return pl.DataFrame(lines, schema={"reason": pl.String, "episodes": pl.Int64, "example": pl.String})
