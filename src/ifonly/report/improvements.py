"""How much better each episode of a run could have gone, and figures over many episodes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from ifonly.episodes.episode import FloatArray
from ifonly.errors import InputError
from ifonly.runs.rows import COLUMNS, FAILED
from ifonly.search.result import Status

ZERO = 1e-9
"""Observed outcomes of at most this size count as zero: what is left of a sum of zeros after rounding."""

NORMAL_QUANTILE = 1.96
"""Of the 95 % interval, mean +- 1.96 s / sqrt(n)."""


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
    """The 95 % interval of the mean, by the normal approximation; None for fewer than two episodes."""
    median: float | None = None
    lower_quartile: float | None = None
    upper_quartile: float | None = None
    smallest: float | None = None
    largest: float | None = None
    upper_mean: float | None = None
    upper_median: float | None = None

    @classmethod
    def of(cls, improvements: FloatArray, upper: FloatArray) -> Statistics:
        """From improvements [N] and what they could at most have been [N], infinite where that is unknown."""
        count = len(improvements)
        if count == 0:
            return cls(0)
        mean = float(improvements.mean())
        deviation = float(improvements.std(ddof=1)) if count > 1 else None
        margin = None if deviation is None else NORMAL_QUANTILE * deviation / math.sqrt(count)
        lower, median, higher = (float(value) for value in np.quantile(improvements, (0.25, 0.5, 0.75)))
        return cls(
            episodes=count,
            mean=mean,
            deviation=deviation,
            low=None if margin is None else mean - margin,
            high=None if margin is None else mean + margin,
            median=median,
            lower_quartile=lower,
            upper_quartile=higher,
            smallest=float(improvements.min()),
            largest=float(improvements.max()),
            upper_mean=_known(float(upper.mean())),
            upper_median=_known(_median(upper)),
        )


def improvements(table: pl.DataFrame) -> pl.DataFrame:
    """One row per answered episode of a run's table, in its order, failed ones left out.

    `improvement` is (clipped_outcome - observed_clipped_outcome) / |observed_clipped_outcome|; null where the observed
    outcome is zero. `upper_improvement` adds the gap that the search left open; null where no bound is known. For
    proven answers the two are the same.
    """
    _check_columns(table)
    answered = table.filter(pl.col("status") != FAILED)
    proven = pl.col("status") == Status.OPTIMAL.value
    improvement = _relative(pl.col("clipped_outcome") - pl.col("observed_clipped_outcome"))
    return answered.with_columns(
        proven=proven,
        improvement=improvement,
        upper_improvement=improvement + pl.when(proven).then(0.0).otherwise(_relative(_open_gap())),
    )


def improvements_by_budget(table: pl.DataFrame) -> pl.DataFrame:
    """Columns episode, max_changes, improvement, upper_improvement: the best for every budget, from the frontiers.

    Only episodes for which the best is known for every budget from 0 to the largest, so that budgets compare the same
    episodes. An episode with fewer steps than the budget counts with all its steps changed.
    """
    rows = improvements(table).filter(pl.col("improvement").is_not_null() & (pl.col("frontier").list.len() > 0))
    improvement = _relative(pl.col("clipped_outcome") - pl.col("observed_clipped_outcome"))
    entries = (
        rows.select("episode", "horizon", "observed_clipped_outcome", "frontier")
        .with_row_index("position")
        .explode("frontier")
        .unnest("frontier")
        .with_columns(improvement=improvement, upper_improvement=improvement + _relative(_open_gap()))
    )
    most = entries["max_changes"].to_list()
    budgets = pl.DataFrame({"max_changes": range(max(most, default=-1) + 1)}, schema={"max_changes": pl.Int64})
    episodes = entries.select("position", "episode", "horizon").unique()
    wanted = episodes.join(budgets, how="cross").with_columns(entry=pl.min_horizontal("max_changes", "horizon"))
    known = entries.select("position", "improvement", "upper_improvement", entry="max_changes")
    found = wanted.join(known, on=["position", "entry"], how="left").sort("position", "max_changes")
    complete = pl.col("improvement").is_not_null().all().over("position")
    return found.filter(complete).select("episode", "max_changes", "improvement", "upper_improvement")


def statistics_of(rows: pl.DataFrame) -> Statistics:
    """Figures of the columns `improvement` and `upper_improvement`; rows without an improvement do not count."""
    known = rows.filter(pl.col("improvement").is_not_null())
    upper = known["upper_improvement"].fill_null(math.inf)
    return Statistics.of(known["improvement"].to_numpy(), upper.to_numpy())


def _relative(difference: pl.Expr) -> pl.Expr:
    """A difference of outcomes relative to the size of the observed one; null where that says nothing."""
    size = pl.col("observed_clipped_outcome").abs()
    value = pl.when(size > ZERO).then(difference / size)
    return pl.when(value.is_finite()).then(value)


def _open_gap() -> pl.Expr:
    """How much better than the outcome found another could be, as far as is proven."""
    return (pl.col("upper_bound") - pl.col("outcome")).clip(lower_bound=0.0)


def _check_columns(table: pl.DataFrame) -> None:
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise InputError(
            f"this table lacks the columns {missing}; pass the table of a cohort run, as `load_run(folder).table()` "
            "gives it."
        )


def _median(values: FloatArray) -> float:
    """The median; infinite as soon as an infinite value takes part in it."""
    ordered = np.sort(values)
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    return float(middle.mean())


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
