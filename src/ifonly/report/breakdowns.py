"""A run's improvements broken down: by horizon, budget and group, as a histogram, and by the changes made."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.data.groups import make_groups
from ifonly.report.improvements import Asked, Statistics, improvements_by_budget, statistics_of
from ifonly.runs.rows import COLUMNS, FAILED

By = str | Sequence[str] | Mapping[str, Sequence[float] | None]

MOST_BINS = 80
"""Of a histogram, so that a few far values do not make it endless."""

_STATISTICS = {name: pl.Int64 if name == "episodes" else pl.Float64 for name in Statistics.__dataclass_fields__}
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?(?!\w)")


def statistics_by(rows: pl.DataFrame, column: str, kinds: Iterable[Any], threshold: float) -> pl.DataFrame:
    """`Statistics` and the number of cases, improved by at least `threshold`, of the rows of each kind."""
    lines = []
    for kind in kinds:
        part = rows.filter(pl.col(column) == kind)
        cases = part.filter(pl.col("improvement") >= threshold).height
        lines.append({column: kind, **asdict(statistics_of(part)), "cases": cases})
    return pl.DataFrame(lines, schema={column: rows.schema[column], **_STATISTICS, "cases": pl.Int64})


def by_budget(table: pl.DataFrame, asked: Asked) -> pl.DataFrame:
    """`Statistics` for every budget of changes, over the same episodes."""
    rows = improvements_by_budget(table, asked)
    return statistics_by(rows, "max_changes", sorted(rows["max_changes"].unique()), math.inf).drop("cases")


def by_group(
    answers: pl.DataFrame, by: By, *, values: Cohort | pl.DataFrame | None, threshold: float
) -> tuple[pl.DataFrame, dict[str, str]]:
    """`Statistics` and the number of cases per group of every grouping, and each grouping's name with its unit."""
    frames = [pl.DataFrame(schema={"by": pl.String, "group": pl.String, **_STATISTICS, "cases": pl.Int64})]
    labels = {}
    for name, edges in _groupings(by).items():
        groups = make_groups(name, answers["episode"].to_list(), _source(name, answers, values), edges)
        labels[name] = groups.label
        grouped = answers.with_columns(group=pl.Series(groups.of_episode, dtype=pl.String))
        part = statistics_by(grouped, "group", groups.order, threshold)
        frames.append(part.select(pl.lit(name).alias("by"), pl.all()))
    return pl.concat(frames), labels


def _groupings(by: By) -> dict[str, Sequence[float] | None]:
    if isinstance(by, Mapping):
        return dict(by)
    return dict.fromkeys([by] if isinstance(by, str) else by)


def _source(name: str, answers: pl.DataFrame, values: Cohort | pl.DataFrame | None) -> Cohort | pl.DataFrame:
    """Where a grouping's values are: in what was passed, or in the run's own table."""
    own = answers.select(COLUMNS.names())
    if values is None:
        return own
    names = [f.name for f in values.schema.features] if isinstance(values, Cohort) else values.columns
    return own if name in COLUMNS and name not in names else values


def histogram(values: FloatArray) -> pl.DataFrame:
    """low, high, episodes: bins [low, high) of improvements [N]."""
    edges = bin_edges(values)
    counts = np.histogram(values, edges)[0] if len(values) else np.zeros(0, dtype=np.int64)
    return pl.DataFrame({"low": edges[:-1], "high": edges[1:], "episodes": counts})


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
    longest = max(answers["horizon"])
    changed = np.bincount(answers["changed_steps"].explode().drop_nulls().to_numpy(), minlength=longest)
    reached = (answers["horizon"].to_numpy()[:, None] > np.arange(longest)).sum(0)
    return pl.DataFrame({"step": range(longest), "episodes": reached, "changed": changed, "share": changed / reached})


def failures(table: pl.DataFrame) -> pl.DataFrame:
    """The reasons of failures, those that differ in ids and numbers only taken together; the most frequent first."""
    found: dict[str, list[str]] = {}
    for episode, reason in table.filter(pl.col("status") == FAILED).select("episode", "reason").iter_rows():
        found.setdefault(_kind_of(reason or "no reason was recorded", episode), []).append(episode)
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    lines = [{"reason": reason, "episodes": len(ids), "example": ids[0]} for reason, ids in ordered]
    return pl.DataFrame(lines, schema={"reason": pl.String, "episodes": pl.Int64, "example": pl.String})


def _kind_of(reason: str, episode: str) -> str:
    return _NUMBER.sub("…", reason.replace(repr(episode), "…"))
