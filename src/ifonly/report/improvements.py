"""How much better each episode of a run could have gone, and figures over many episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl

from ifonly.data.episode import FloatArray
from ifonly.errors import InputError
from ifonly.evidence.trusted import CHECKED
from ifonly.intervals import mean_interval
from ifonly.result import Status
from ifonly.rewards import Reward, reward_from_dict
from ifonly.runs.rows import COLUMNS, FAILED, FIRST_COLUMNS, ZERO

ROUNDING = 1e-9
"""Gaps of at most this size, relative to the outcome, are none: an answer that is proven is known up to rounding."""


@dataclass(frozen=True)
class Asked:
    """What a run was asked, as far as its figures depend on it."""

    reward: Reward | None = None
    """How outcomes are shown; None shows them as they are."""
    episodes: int | None = None
    """How many the finished run has; None where that is not known."""
    max_changes: int | None = None
    """How many were allowed; None: at every step."""
    change_cost: float = 0.0
    """The reward lost for every change: bounds count it, improvements do not."""
    model_check: Mapping[str, Any] | None = None
    """What a check concluded about the model; None where it was not checked."""

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Self:
        """From a run's manifest (`load_run(folder).manifest`); a reward that is code is not stored, and is None."""
        question = manifest["question"]
        content = question["reward"]
        return cls(
            reward=None if _is_code(content) else reward_from_dict(content),
            episodes=manifest["cohort"]["episodes"],
            max_changes=question["max_changes"],
            change_cost=question["change_cost"],
            model_check=manifest.get("model_check"),
        )


def _is_code(content: Mapping[str, Any]) -> bool:
    return content["kind"] == "custom" or any(_is_code(part) for part in content.get("parts", ()))


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
    def of(cls, improvements: FloatArray, upper: FloatArray) -> Statistics:
        """From improvements [N] and what they could at most have been [N], infinite where that is unknown."""
        count = len(improvements)
        if count == 0:
            return cls(0)
        mean = float(improvements.mean())
        deviation = float(improvements.std(ddof=1)) if count > 1 else None
        interval = mean_interval(improvements)
        lower, median, higher = (float(value) for value in np.quantile(improvements, (0.25, 0.5, 0.75)))
        return cls(
            episodes=count,
            mean=mean,
            deviation=deviation,
            low=None if interval is None else interval.low,
            high=None if interval is None else interval.high,
            median=median,
            lower_quartile=lower,
            upper_quartile=higher,
            smallest=float(improvements.min()),
            largest=float(improvements.max()),
            upper_mean=_known(float(upper.mean())),
            upper_median=_known(_median(upper)),
        )


def improvements(table: pl.DataFrame, asked: Asked | None = None) -> pl.DataFrame:
    """One row per answered episode of a run's table, in its order, failed ones left out.

    `improvement` is (clipped_outcome - observed_clipped_outcome) / |observed_clipped_outcome|; null where the observed
    outcome is zero, or an outcome unknown. `upper_improvement` adds the gap that the search left open and, since costs
    of changes count in gaps but not in improvements, the costs of those that were not used; null where no bound is
    known. For proven answers the two are the same. `warnings` are null where an answer was not examined, since nothing
    is changed or nothing is known but what a check said of the model.
    """
    answered = complete(table).filter(pl.col("status") != FAILED)
    examined = (pl.col("changes") > 0) & ~pl.col("trust").is_in(list(CHECKED.values()))
    proven = pl.col("status") == Status.OPTIMAL.value
    improvement = _relative(pl.col("clipped_outcome") - pl.col("observed_clipped_outcome"))
    asked = asked or Asked()
    budget = pl.col("horizon") if asked.max_changes is None else pl.min_horizontal(asked.max_changes, "horizon")
    room = _open_gap() + asked.change_cost * (budget - pl.col("changes")).clip(lower_bound=0)
    return answered.with_columns(
        proven=proven,
        improvement=improvement,
        upper_improvement=improvement + pl.when(proven).then(0.0).otherwise(_relative(room)),
        warnings=pl.when(examined).then(pl.col("warnings")),
    )


def improvements_by_budget(table: pl.DataFrame, asked: Asked | None = None) -> pl.DataFrame:
    """Columns episode, max_changes, improvement, upper_improvement: the best for every budget, from the frontiers.

    Only episodes for which the best is known for every budget from 0 to the largest, so that budgets compare the same
    episodes. An episode with fewer steps than the budget counts with all its steps changed.
    """
    rows = improvements(table).filter(pl.col("improvement").is_not_null() & (pl.col("frontier").list.len() > 0))
    improvement = _relative(pl.col("clipped_outcome") - pl.col("observed_clipped_outcome"))
    unused = _costs_not_used((asked or Asked()).change_cost)
    entries = (
        rows.select("episode", "horizon", "observed_clipped_outcome", "observed_actions", "frontier")
        .with_row_index("position")
        .explode("frontier")
        .unnest("frontier")
        .with_columns(improvement=improvement, upper_improvement=improvement + _relative(_open_gap() + unused))
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


def _costs_not_used(change_cost: float) -> pl.Expr:
    """Of entries of a frontier that are not proven: what the changes would cost that they leave unused."""
    if not change_cost:
        return pl.lit(0.0)
    changes = (pl.col("actions") - pl.col("observed_actions")).list.eval(pl.element() != 0).list.sum()
    is_open = _open_gap() > ROUNDING * pl.max_horizontal(1.0, pl.col("outcome").abs())
    return pl.when(is_open).then(change_cost * (pl.col("max_changes") - changes)).otherwise(0.0)


def complete(table: pl.DataFrame) -> pl.DataFrame:
    """The table with all columns of a run; those that earlier versions had not are null: nobody asked."""
    missing = [name for name in FIRST_COLUMNS if name not in table.columns]
    if missing:
        raise InputError(
            f"this table lacks the columns {missing}; pass the table of a cohort run, as `load_run(folder).table()` "
            "gives it."
        )
    later = [name for name in COLUMNS if name not in table.columns]
    return table.with_columns(pl.lit(None, COLUMNS[name]).alias(name) for name in later)


def _median(values: FloatArray) -> float:
    """The median; infinite as soon as an infinite value takes part in it."""
    ordered = np.sort(values)
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
    return float(middle.mean())


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
