"""What was measured and what was filled in, from the masks that a build keeps beside its cohort."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.errors import InputError

MASK_PREFIX = "measured_"
"""Of columns that say whether a value was measured within the step."""

KNOWN_PREFIX = "known_"
"""Of columns that say whether a value was measured, or held from an earlier step within its limit."""

ID_COLUMNS = ("episode", "stay")


@dataclass(frozen=True)
class Measured:
    """Shares of a cohort's steps: with a value measured in them, and what stands in the others."""

    measured: float
    """A value was measured within the step."""
    missing_before: float
    """None was: missing before holds."""
    held: float | None
    """None was, and an earlier one is held; None where the grid does not tell."""
    missing_after: float | None
    """Neither measured nor held, so that a default stands there, or nothing; None where the grid does not tell."""


def measured_shares(grid: pl.DataFrame, cohort: Cohort) -> dict[str, Measured]:
    """For every feature with a mask in the grid, over the steps of the cohort's episodes."""
    rows = _rows_of(grid, cohort)
    features = [feature.name for feature in cohort.schema.features if f"{MASK_PREFIX}{feature.name}" in grid.columns]
    return {name: _shares(rows, name) for name in features}


def id_column_of(table: pl.DataFrame, what: str) -> str:
    """The column with the ids of episodes."""
    found = next((name for name in ID_COLUMNS if name in table.columns), None)
    if found is None:
        raise InputError(f"{what}: needs a column {' or '.join(map(repr, ID_COLUMNS))}; found {table.columns[:30]}.")
    return found


def _rows_of(grid: pl.DataFrame, cohort: Cohort) -> pl.DataFrame:
    """The grid's rows about the cohort's steps, in order, with the column `episode`."""
    id_column = id_column_of(grid, "grid")
    if "step" not in grid.columns:
        raise InputError(f"grid: has no column 'step'; found {grid.columns[:30]}.")
    steps = pl.DataFrame(
        {
            "episode": pl.Series(cohort.ids, dtype=pl.String).gather(np.repeat(np.arange(len(cohort)), cohort.lengths)),
            "step": np.arange(len(cohort.actions)) - np.repeat(cohort.offsets[:-1], cohort.lengths),
        }
    )
    own = grid.with_columns(pl.col(id_column).cast(pl.String).alias("episode"), pl.col("step").cast(pl.Int64))
    found = steps.join(own, on=["episode", "step"], how="inner", maintain_order="left")
    if found.is_empty():
        raise InputError("grid: holds none of the cohort's episodes; it belongs to another cohort.")
    return found


def _shares(rows: pl.DataFrame, name: str) -> Measured:
    measured = _share(rows, f"{MASK_PREFIX}{name}")
    if f"{KNOWN_PREFIX}{name}" in rows.columns:
        known = _share(rows, f"{KNOWN_PREFIX}{name}")
        return Measured(measured, 1.0 - measured, held=known - measured, missing_after=1.0 - known)
    return Measured(measured, 1.0 - measured, held=None, missing_after=None)


def _share(rows: pl.DataFrame, column: str) -> float:
    return float(rows[column].cast(pl.Boolean).fill_null(False).sum()) / rows.height
