"""The table of the warning study: a row for every episode, and what its columns amount to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from paper.cells import Row
from paper.separation import BoolArray
from paper.study_cell import StudyCell

NEAR = 0.9
"""The share of the best true improvement from which on a recommendation is near-optimal."""

COLUMNS: dict[str, Any] = {
    "scenario": pl.String,
    "seed": pl.Int64,
    "episode": pl.String,
    "verdict": pl.String,
    "lasting_noise": pl.Float64,
    "changes": pl.Int64,
    "promised": pl.Float64,
    "true": pl.Float64,
    "attainable": pl.Float64,
    "refits_agree": pl.Float64,
    "refit_low": pl.Float64,
    "least_support": pl.Float64,
    "farthest": pl.Float64,
    "harmless_below": pl.Float64,
    "undone_by": pl.Float64,
}


def study_table(rows: Iterable[tuple[StudyCell, Row]]) -> pl.DataFrame:
    """The recommendations of all cells; what is said of a model is said of each."""
    found = [
        {"scenario": cell.scenario, "seed": cell.seed, "verdict": row["verdict"], "lasting_noise": row["lasting_noise"]}
        | recommendation
        for cell, row in rows
        for recommendation in row["recommendations"]
    ]
    return pl.DataFrame(found, schema=COLUMNS)


def recommended(table: pl.DataFrame) -> pl.DataFrame:
    """Those episodes for which anything is recommended."""
    return table.filter(pl.col("changes") > 0)


def is_wrong(table: pl.DataFrame) -> BoolArray:
    """Which recommendations [N] would truly not have helped."""
    return _array(table, pl.col("true") <= 0)


def falls_short(table: pl.DataFrame) -> BoolArray:
    """Which recommendations [N] bring less than half of what was promised."""
    return _array(table, pl.col("true") < pl.col("promised") / 2)


def is_near_optimal(table: pl.DataFrame) -> BoolArray:
    """Which recommendations [N] bring nearly all of what is truly possible."""
    return _array(table, pl.col("true") >= NEAR * pl.col("attainable"))


def _array(table: pl.DataFrame, condition: pl.Expr) -> BoolArray:
    return np.asarray(table.select(condition).to_series().to_numpy(), dtype=bool)
