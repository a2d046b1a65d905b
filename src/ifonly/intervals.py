"""95 % intervals of means and of shares."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

NORMAL_QUANTILE = 1.959964
"""The 97.5 % quantile of the normal distribution."""

_STUDENT_QUANTILES = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""The 97.5 % quantiles of Student's t distribution with 1 to 30 degrees of freedom."""


class Interval(NamedTuple):
    """From where to where."""

    low: float
    high: float


def student_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t distribution with so many degrees of freedom, at least one.

    >>> student_quantile(2), round(student_quantile(100), 3)
    (4.303, 1.984)
    """
    if freedom <= len(_STUDENT_QUANTILES):
        return _STUDENT_QUANTILES[freedom - 1]
    z = NORMAL_QUANTILE
    # The first terms of the expansion in 1 / freedom; with more than 30 the rest is below 0.0001.
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def mean_interval(values: npt.NDArray[np.float64]) -> Interval | None:
    """The 95 % interval of the mean of values [N] by Student's t distribution; None for fewer than two."""
    count = len(values)
    if count < 2:
        return None
    mean = float(values.mean())
    margin = student_quantile(count - 1) * float(values.std(ddof=1)) / math.sqrt(count)
    return Interval(mean - margin, mean + margin)


def share_interval(hits: int, count: int) -> Interval:
    """The 95 % interval of a share, of which `hits` of `count` are seen, by Wilson's score.

    Unlike mean and deviation it does not claim to be sure where none or all of a few are seen.

    >>> [round(end, 2) for end in share_interval(3, 3)]
    [0.44, 1.0]
    """
    z2 = NORMAL_QUANTILE**2
    middle = (hits + z2 / 2) / (count + z2)
    margin = math.sqrt(z2 * (hits * (count - hits) / count + z2 / 4)) / (count + z2)
    # Where none or all are seen an end is that share itself, not what rounding makes of it.
    return Interval(
        0.0 if hits == 0 else middle - margin,
        1.0 if hits == count else middle + margin,
    )
