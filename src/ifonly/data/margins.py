"""How far the ends of a scale lie beyond what is possible, learned from recorded transitions.

A bounded scale that ends right where values do is a logarithm there: what is small changes by factors. One that ends
farther beyond is more nearly linear; and the same holds of log(v + offset). Which of them suits a feature is decided as
by Box and Cox (1964): by the likelihood, in original units, of a linear regression of the next value's coordinate, with
Gaussian noise of equal size everywhere. That is a coarse model of the feature; but where changes go by factors a
regression in linear coordinates is worse by far, and where they do not, one in logarithms is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ifonly.data.episode import FloatArray, IntArray
from ifonly.data.schema import MARGIN, Feature
from ifonly.errors import InputError

if TYPE_CHECKING:
    from ifonly.data.cohort import Transitions

BoolArray = npt.NDArray[np.bool_]

SMALLEST, LARGEST = 1e-6, 5 * MARGIN
"""Between which shares of its range a bounded scale is widened, and between which shares of the largest value the
offset of a logarithm lies. Not more: values beyond what is possible are shown as its end, but a course goes on from
them."""
CHOICES = 6
"""Values that are tried at each end."""
NEAR = 0.05
"""Where some values stand at an end itself, this quantile of the others' distances counts as the smallest distance."""
ROWS = 4000
"""Transitions that a choice looks at, at most."""


def learn_margins(features: tuple[Feature, ...], transitions: Transitions, actions: FloatArray) -> FloatArray:
    """Shares [D, 2] of their ranges by which bounded features are widened at their lower and upper ends.

    `actions` [A, a] are the vectors of the actions. Features that are not bounded, or say themselves, have NaN.
    """
    found = np.full((len(features), 2), np.nan)
    rows = _some_rows(len(transitions))
    before, after = transitions.states[rows], transitions.next_states[rows]
    given = np.column_stack([transitions.context[rows], actions[transitions.actions[rows]]])
    for number, feature in enumerate(features):
        if feature.hard_range is None or feature.margin is not None:
            continue
        others = np.column_stack([np.delete(before, number, axis=1), given])
        one, two = (_shares(values[:, number], feature.hard_range) for values in (before, after))
        measured = np.ones(len(after), dtype=bool)
        if transitions.measured is not None:
            measured = transitions.measured[rows][:, number]
        found[number] = _bounded(one, two, others, measured)
    return found


def learn_log_offset(before: FloatArray, after: FloatArray) -> float:
    """The offset under which log(v + offset) suits a feature that cannot be negative, from values [N] and the next."""
    before, after = (values[_some_rows(len(after))] for values in (before, after))
    values = np.concatenate([before, after])
    largest = float(values.max())
    if largest <= 0:
        raise InputError("learn_log_offset: needs a value above zero.")
    choices = largest * _choices(values / largest)
    regression = _Regression(np.empty((len(after), 0)), after > 0)
    scores = [
        regression.log_likelihood(np.log(before + offset), np.log(after + offset), -np.log(after + offset))
        for offset in choices
    ]
    return float(choices[int(np.argmax(scores))])


def _shares(values: FloatArray, ends: tuple[float, float]) -> FloatArray:
    """Where values lie in a range, 0 to 1."""
    return np.clip((values - ends[0]) / (ends[1] - ends[0]), 0.0, 1.0)


def _bounded(before: FloatArray, after: FloatArray, others: FloatArray, measured: BoolArray) -> tuple[float, float]:
    """The margins at both ends, one after the other, for places [N] in the range before and after transitions."""
    # At an end itself a density could be made as large as one likes.
    regression = _Regression(others, measured & (after > 0) & (after < 1))
    places = np.concatenate([before, after])
    margins = [MARGIN, MARGIN]
    for end, distances in enumerate((places, 1 - places)):
        scores = []
        choices = _choices(distances)
        for choice in choices:
            margins[end] = choice
            (one, _), (two, slopes) = (_log_odds(values, *margins) for values in (before, after))
            scores.append(regression.log_likelihood(one, two, slopes))
        margins[end] = float(choices[int(np.argmax(scores))])
    return margins[0], margins[1]


def _choices(distances: FloatArray) -> FloatArray:
    """Margins to try, for distances [N] from an end as shares of the range: half the smallest distance at least.

    What stands at the end itself is then no farther from the others, in coordinates, than they are from each other, as
    a score of 0 stands for all that rounds to it.
    """
    away = distances[distances > 0]
    if not away.size:
        return np.array([LARGEST])
    smallest = float(np.quantile(away, NEAR) if away.size < distances.size else away.min())
    return np.geomspace(np.clip(smallest / 2, SMALLEST, LARGEST), LARGEST, CHOICES)


def _some_rows(count: int) -> IntArray:
    """At most `ROWS` of so many rows; drawn, since every n-th could always be the same step of its episode."""
    if count <= ROWS:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, ROWS, replace=False))


def _log_odds(shares: FloatArray, low: float, high: float) -> tuple[FloatArray, FloatArray]:
    """Coordinates [N] of places in a range that is widened by `low` and `high`, and logarithms of the slopes there."""
    one, two = np.log(shares + low), np.log(1 + high - shares)
    return one - two, np.log(1 + low + high) - one - two


class _Regression:
    """Of a coordinate after N transitions on the one before and other columns [N, p]; of rows that `count` [N]."""

    def __init__(self, others: FloatArray, counts: BoolArray) -> None:
        self._counts = counts
        self._basis = np.linalg.qr(np.column_stack([np.ones(int(counts.sum())), others[counts]]))[0]

    def log_likelihood(self, before: FloatArray, after: FloatArray, log_slopes: FloatArray) -> float:
        """Of the values behind the coordinates `after` [N], up to a constant; `log_slopes` [N] are the coordinates'."""
        count, columns = self._basis.shape
        if count <= columns + 10:
            return 0.0  # too few to tell choices apart: the smallest is taken
        one, two = (self._unexplained(values[self._counts]) for values in (before, after))
        size = float(one @ one)
        residuals = two - one * (float(one @ two) / size if size > 0 else 0.0)
        variance = max(float(residuals @ residuals) / count, 1e-300)
        return float(log_slopes[self._counts].sum() - count / 2 * np.log(variance))

    def _unexplained(self, values: FloatArray) -> FloatArray:
        """What the other columns leave of values [n]."""
        return np.asarray(values - self._basis @ (self._basis.T @ values))
