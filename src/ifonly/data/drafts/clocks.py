"""The grid that times are likely to be meant for, where clocks are not exact: 13:58 and 18:03 are four hours apart."""

from __future__ import annotations

import polars as pl

from ifonly.data.times import NEARLY_WHOLE, Duration

ROUND = (
    *(1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0),
    *(60.0 * minutes for minutes in (1, 2, 5, 10, 15, 20, 30)),
    *(3600.0 * hours for hours in (1, 2, 3, 4, 6, 8, 12)),
    *(86400.0 * days for days in (1, 2, 7)),
)
"""Lengths of time, in seconds, that people choose for steps."""

NEAR = 0.25
"""Distances that miss the usual one by less than this share of it are meant to be it."""


def round_distance(differences: pl.Series) -> float | None:
    """The round length, in seconds, that most distances [N] of times come near; None where there is none."""
    middle = differences.drop_nulls().median()
    if not isinstance(middle, float) or middle <= 0:
        return None
    nearest = min(ROUND, key=lambda length: abs(length - middle))
    return nearest if abs(nearest - middle) < NEAR * nearest else None


def reach(times: pl.Series, episodes: pl.Series, spacing: float) -> Duration | None:
    """How far times [N] lie off the grids that begin with their episodes' first, rounded up.

    None where they lie on them, or farther off than can be told from a missing step.
    """
    frame = pl.DataFrame({"time": times, "episode": episodes})
    since = (pl.col("time") - pl.col("time").min().over("episode")) / spacing
    farthest = frame.select((since - since.round()).abs().max()).item()
    enough = [length for length in ROUND if farthest is not None and length >= (farthest - NEARLY_WHOLE) * spacing]
    usable = farthest is not None and farthest > NEARLY_WHOLE and enough and 2 * enough[0] < spacing
    return Duration.of_seconds(enough[0]) if usable else None
