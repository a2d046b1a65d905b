"""What tables beside a cohort say of it: which values were measured, and which episodes something happened to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.data.episode import Origin
from ifonly.data.plain import first_names
from ifonly.errors import InputError

MASK_PREFIX = "measured_"
"""Of columns that say whether a value was measured within the step."""

KNOWN_PREFIX = "known_"
"""Of columns that say whether a value was measured, or held from an earlier step within its limit."""

ID_COLUMNS = ("episode", "stay")
YES, NO = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")


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


@dataclass(frozen=True)
class Outcome:
    """Something that happened to an episode or not, such as a death; episodes of unknown outcome are left out."""

    name: str
    of_episode: Mapping[str, bool]

    @classmethod
    def from_table(cls, table: pl.DataFrame, column: str) -> Outcome:
        """Read a column of 0 and 1, or yes and no, of a table with a row per episode or per step."""
        ids = _id_column(table, "outcome table")
        if column not in table.columns:
            raise InputError(f"outcome table: has no column {column!r}; found {first_names(table.columns)}.")
        words = table[column].cast(pl.String).str.strip_chars().str.to_lowercase()
        known = words.is_not_null() & (words != "")
        if not words.filter(known).is_in([*YES, *NO]).all():
            raise InputError(f"outcome table: column {column!r} must hold 0 or 1, or yes or no, and nothing else.")
        rows = pl.DataFrame({"id": table[ids].cast(pl.String), "yes": words.is_in(YES)}).filter(known).unique()
        if rows["id"].is_duplicated().any():
            raise InputError(f"outcome table: column {column!r} differs between rows of the same episode.")
        return cls(column, dict(zip(rows["id"], rows["yes"], strict=True)))


def measured_shares(grid: pl.DataFrame, cohort: Cohort) -> dict[str, Measured]:
    """For every feature with a mask in the grid, over the steps of the cohort's episodes."""
    rows = _rows_of(grid, cohort)
    features = [feature.name for feature in cohort.schema.features if f"{MASK_PREFIX}{feature.name}" in grid.columns]
    return {name: _shares(rows, name) for name in features}


def shares_of_origins(cohort: Cohort) -> dict[str, Measured]:
    """The same for every dynamic feature, by the cohort's own record of origins; empty where that says nothing."""
    origins = cohort.origins
    if origins is None or not origins.any():  # without a record all counts as measured
        return {}
    found = {}
    for feature, column in zip(cohort.schema.dynamic, origins.T, strict=True):
        measured, carried, assumed = (float((column == origin).mean()) for origin in Origin)
        found[feature.name] = Measured(measured, 1.0 - measured, held=carried, missing_after=assumed)
    return found


def _id_column(table: pl.DataFrame, what: str) -> str:
    found = next((name for name in ID_COLUMNS if name in table.columns), None)
    if found is None:
        raise InputError(
            f"{what}: needs a column {' or '.join(map(repr, ID_COLUMNS))}; found {first_names(table.columns)}."
        )
    return found


def _rows_of(grid: pl.DataFrame, cohort: Cohort) -> pl.DataFrame:
    """The grid's rows about the cohort's steps, in order, with the column `episode`."""
    id_column = _id_column(grid, "grid")
    if "step" not in grid.columns:
        raise InputError(f"grid: has no column 'step'; found {first_names(grid.columns)}.")
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
    def share(column: str) -> float:
        return float(rows[column].cast(pl.Boolean).fill_null(False).sum()) / rows.height

    measured = share(f"{MASK_PREFIX}{name}")
    if f"{KNOWN_PREFIX}{name}" not in rows.columns:
        return Measured(measured, 1.0 - measured, held=None, missing_after=None)
    known = share(f"{KNOWN_PREFIX}{name}")
    return Measured(measured, 1.0 - measured, held=known - measured, missing_after=1.0 - known)
