"""Vasopressors and fluids: from intervals in one unit, which the rules make of orders and charted rates, to steps."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PLAUSIBLE_WEIGHT = (20, 300)
"""kg"""
DEFAULT_WEIGHT = 80.0
"""kg, where a rate that is not per kg meets a stay without a weight (as in the AI Clinician)."""
MOST_RATE = 10.0
"""Norepinephrine equivalents, mcg/kg/min; more is a slip."""
MOST_FLUID = 10_000
"""mL in one row; more is a slip."""


def rate_profile(intervals: Floats) -> tuple[Floats, Floats]:
    """How much runs at each moment: breakpoints `[M]`, and the summed rate `[M]` from each one to the next.

    `intervals [N, 3]` holds start, stop and rate of infusions, which run from start up to, but not including, stop.
    The last rate is always zero; an interval that does not last changes nothing.
    """
    lasting = intervals[intervals[:, 1] > intervals[:, 0]]
    starts, stops, rates = lasting.T
    times = np.unique(np.concatenate([starts, stops]))
    changes, running = np.zeros(len(times)), np.zeros(len(times), dtype=np.int64)
    for moments, sign in ((starts, 1), (stops, -1)):
        places = np.searchsorted(times, moments)
        np.add.at(changes, places, sign * rates)
        np.add.at(running, places, sign)
    # Rounding errors after all infusions have ended count as zero.
    profile = np.where(np.cumsum(running) > 0, np.maximum(np.cumsum(changes), 0.0), 0.0)
    return times, profile


def maximum_rate(intervals: Floats, edges: Floats) -> Floats:
    """The highest summed rate within each step `[n]`, for steps between `edges [n + 1]` (ascending).

    `intervals [N, 3]`: start, stop, rate (see `rate_profile`). Rates of several infusions that run at the same moment
    add up; rates at different moments do not.

    >>> both = np.array([[0.0, 6.0, 0.1], [5.0, 7.0, 0.2]])
    >>> maximum_rate(both, np.array([0.0, 4.0, 8.0, 12.0])).round(3).tolist()
    [0.1, 0.3, 0.0]
    """
    times, profile = rate_profile(intervals)
    # Every edge begins a segment of its own, with the rate that runs there.
    begins = np.unique(np.concatenate([times, edges]))
    place = np.searchsorted(times, begins, side="right") - 1
    rates = np.where(place >= 0, profile[place], 0.0) if len(times) else np.zeros(len(begins))
    first = np.searchsorted(begins, edges)
    return np.maximum.reduceat(rates, first)[:-1] if len(edges) > 1 else np.zeros(0)


def amount_per_step(intervals: Floats, edges: Floats) -> Floats:
    """How much of what was given falls into each step `[n]`, for steps between `edges [n + 1]` (ascending).

    `intervals [N, 3]`: start, stop and the whole amount, given evenly from start to stop; with start = stop a bolus,
    which falls into the step that holds its moment (a step's beginning belongs to it, its end to the next).

    >>> given = np.array([[2.0, 6.0, 400.0], [4.0, 4.0, 50.0]])
    >>> amount_per_step(given, np.array([0.0, 4.0, 8.0])).tolist()
    [200.0, 250.0]
    """
    starts, stops, amounts = (column[:, None] for column in intervals.T)
    lengths = stops - starts
    with np.errstate(divide="ignore", invalid="ignore"):
        fractions = np.clip((edges - starts) / lengths, 0.0, 1.0)
    fractions = np.where(lengths > 0, fractions, edges > starts)
    amounts_by_step: Floats = (np.diff(fractions, axis=1) * amounts).sum(axis=0)
    return amounts_by_step
