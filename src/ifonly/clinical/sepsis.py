"""Who is in the cohort, and which part of the stay: suspected infection, its onset, the window around it."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from ifonly.clinical.grid import STEP_HOURS
from ifonly.errors import InputError

ADULT_AGE = 18.0
CULTURE_WITHIN = 24.0
"""Hours after an antibiotic in which a culture makes it a suspected infection."""
ANTIBIOTIC_WITHIN = 72.0
"""Hours after a culture in which an antibiotic makes it a suspected infection."""
EARLIEST_ONSET = -24.0
"""Hours from admission to intensive care; earlier infections do not belong to the stay."""
LEAST_SOFA = 2


@dataclass(frozen=True)
class Window:
    """The part of a stay that becomes an episode, in hours around onset and in steps.

    `margin` is added on both sides, as the AI Clinician does: 28 hours before onset to 52 after, which is where
    horizons of 20 steps come from.
    """

    before: float = 24.0
    after: float = 48.0
    margin: float = STEP_HOURS
    shortest: int = 10
    longest: int = 20

    def __post_init__(self) -> None:
        if not 2 <= self.shortest <= self.longest:
            raise InputError(
                f"window: {self.shortest} to {self.longest} steps; an episode has at least 2, the fewest come first."
            )
        if min(self.before, self.after, self.margin) < 0:
            raise InputError("window: before, after and margin are hours, and not negative.")


def suspected_infections(antibiotics: pl.DataFrame, cultures: pl.DataFrame) -> pl.DataFrame:
    """Every onset (columns stay, onset) of a suspected infection, from tables with the columns stay and hour.

    An antibiotic followed by a culture within 24 hours, or a culture followed by an antibiotic within 72 hours; the
    onset is the earlier of the two (Seymour et al., JAMA 315 (2016)).
    """
    given, taken = _times(antibiotics), _times(cultures)
    onsets = pl.concat(
        [_followed(given, taken, within=CULTURE_WITHIN), _followed(taken, given, within=ANTIBIOTIC_WITHIN)]
    )
    return onsets.unique().sort("stay", "onset")


def first_onset(stays: pl.DataFrame, infections: pl.DataFrame) -> pl.DataFrame:
    """The first onset (columns stay, onset) from 24 hours before admission to intensive care until its end."""
    during = infections.join(stays.select("stay", "hours"), on="stay").filter(
        pl.col("onset").is_between(EARLIEST_ONSET, pl.col("hours"))
    )
    return during.group_by("stay").agg(pl.col("onset").min()).sort("stay")


def windows_around_onset(stays: pl.DataFrame, window: Window) -> pl.DataFrame:
    """The stays with `start` (hours) and `steps` of the window around the column `onset`, within the stay."""
    start = pl.max_horizontal(pl.lit(0.0), pl.col("onset") - window.before - window.margin)
    end = pl.min_horizontal(pl.col("hours"), pl.col("onset") + window.after + window.margin)
    return _in_steps(stays, start, end, window)


def windows_from_admission(stays: pl.DataFrame, window: Window) -> pl.DataFrame:
    """The stays with `start` (0) and `steps` of a window that begins with the stay."""
    return _in_steps(stays, pl.lit(0.0), pl.col("hours"), window)


def _in_steps(stays: pl.DataFrame, start: pl.Expr, end: pl.Expr, window: Window) -> pl.DataFrame:
    """Whole steps only: in a part of a step, less is given and passed than in four hours."""
    # Seconds decide, so that rounding of hours never costs a step.
    whole = ((end - start) * 3600).round().cast(pl.Int64) // round(STEP_HOURS * 3600)
    return stays.with_columns(start=start, steps=whole.clip(0, window.longest))


def _times(events: pl.DataFrame) -> pl.DataFrame:
    return events.select("stay", "hour").drop_nulls().unique().sort("stay", "hour")


def _followed(first: pl.DataFrame, second: pl.DataFrame, *, within: float) -> pl.DataFrame:
    """The times of `first` that `second` follows, at once or within so many hours."""
    pairs = first.join_asof(
        second.with_columns(follows=pl.col("hour")),
        on="hour",
        by="stay",
        strategy="forward",
        check_sortedness=False,
    )
    # Compared in seconds: hours are rounded numbers, and the limits count as within.
    delay = ((pl.col("follows") - pl.col("hour")) * 3600).round()
    return pairs.filter(delay <= within * 3600).select("stay", onset="hour")
