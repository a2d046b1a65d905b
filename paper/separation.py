"""How well a signal tells wrong recommendations from right ones.

Scores are larger where a signal gives less cause for concern; a recommendation is flagged where its score lies below a
limit. Limits are chosen on some seeds and judged on others, so that no recommendation is judged by a limit that it had
a part in. Worlds with the same seed are not independent, so seeds are what intervals are taken over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ifonly.data.episode import FloatArray, IntArray
from ifonly.evidence.check.figures import ratio
from ifonly.intervals import Interval, share_interval
from paper.estimates import Estimate, Percentage

BoolArray = npt.NDArray[np.bool_]

FALSE_ALARMS = 0.1
"""The share of right recommendations that a limit may flag."""

VERDICTS = {"fail": 0.0, "not judged": 0.0, "warn": 1.0, "pass": 2.0}


@dataclass(frozen=True)
class Signal:
    """A column of the study's table that may tell wrong from right."""

    column: str
    label: str
    sign: int
    """1 where large values are reassuring, -1 where small ones are."""
    show: Callable[[float], str] = "{:.2f}".format
    """How a value is written."""
    of_model: bool = False
    """Whether it says the same of all recommendations of a model."""

    def scores(self, table: pl.DataFrame) -> FloatArray:
        """[N]; what is null gives no cause for concern at all."""
        values = table[self.column]
        if self.column == "verdict":
            values = values.replace_strict(VERDICTS, return_dtype=pl.Float64)
        return self.sign * values.cast(pl.Float64).fill_null(self.sign * math.inf).to_numpy()

    def limit_in_words(self, limit: float) -> str:
        """When a recommendation is flagged whose score must not lie below `limit`."""
        if limit == -math.inf or (self.column == "verdict" and limit <= VERDICTS["fail"]):
            return "never"
        if self.column == "verdict":
            return "fails" if limit <= VERDICTS["warn"] else "warns or fails"
        return f"{'below' if self.sign > 0 else 'above'} {self.show(self.sign * limit)}"


SIGNALS = (
    Signal("verdict", "verdict of the check", 1, of_model=True),
    Signal("lasting_noise", "noise that lasts", -1, of_model=True),
    Signal("refits_agree", "share of refits that agree", 1),
    Signal("refit_low", "lower end of refits / promise", 1),
    Signal("least_support", "least likely change", 1, "{:.3f}".format),
    Signal("farthest", "farthest state (percentile)", -1, "{:.1f}".format),
    Signal("harmless_below", "harmless influence", 1),
    Signal("undone_by", "influence that undoes it", 1),
)

TOGETHER = "any of them"
"""A recommendation is as suspect as the most alarming of all signals makes it."""


def limit_for(scores: FloatArray, rate: float = FALSE_ALARMS) -> float:
    """The largest limit below which no more than a share `rate` of the scores [N] of right recommendations lie.

    Minus infinity, which flags nothing, where there are none to judge by.
    """
    if not len(scores):
        return -math.inf
    return float(np.sort(scores)[math.floor(rate * len(scores))])


def alarm(scores: FloatArray, right: FloatArray) -> FloatArray:
    """For each score [N] the share of `right` recommendations' scores that are no higher: the rarer, the worse."""
    no_higher: FloatArray = np.searchsorted(np.sort(right), scores, side="right") / max(len(right), 1)
    return no_higher


@dataclass(frozen=True, eq=False)
class Judged:
    """Recommendations, which of them are wrong, and which seed they come from: all that limits are judged by."""

    scores: dict[str, FloatArray]
    """By signal, [N]."""
    wrong: BoolArray
    seeds: IntArray

    @classmethod
    def of(cls, table: pl.DataFrame, wrong: BoolArray) -> Judged:
        """With the scores of all signals."""
        scores = {signal.label: signal.scores(table) for signal in SIGNALS}
        return cls(scores, wrong, table["seed"].to_numpy())

    def flags(self, label: str, rate: float = FALSE_ALARMS) -> BoolArray:
        """Who is flagged [N], each by a limit chosen on the other seeds."""
        flags = np.zeros(len(self.wrong), dtype=bool)
        for seed in np.unique(self.seeds):
            here = self.seeds == seed
            learned = ~here & ~self.wrong
            scores = self._scores(label, learned)
            flags[here] = scores[here] < limit_for(scores[learned], rate)
        return flags

    def limit(self, label: str, rate: float = FALSE_ALARMS) -> float:
        """The limit that all seeds together give: what to use elsewhere."""
        right = ~self.wrong
        return limit_for(self._scores(label, right)[right], rate)

    def separation(self, label: str) -> Estimate:
        """The AUC: how often a right recommendation scores higher than a wrong one of the same seed; ties count half.

        0.5 is chance, 1 a clean cut. The interval is over seeds.
        """
        scores = self._scores(label, ~self.wrong)
        pairs = [
            _pairs(scores[here & ~self.wrong], scores[here & self.wrong])
            for here in (self.seeds == seed for seed in np.unique(self.seeds))
        ]
        won, counted = np.array(pairs, dtype=float).reshape(-1, 2).T
        found = ratio(won, counted, np.unique(self.seeds))
        ends = None if found.low is None or found.high is None else _within(found.low, found.high)
        return Estimate(int(counted.sum()), found.value, ends)

    def _scores(self, label: str, learned: BoolArray) -> FloatArray:
        """A signal's scores; of all together, by how rare each is among the right recommendations learned from."""
        if label != TOGETHER:
            return self.scores[label]
        alarms: FloatArray = np.min([alarm(scores, scores[learned]) for scores in self.scores.values()], axis=0)
        return alarms


def share_over_seeds(hits: npt.ArrayLike, counted: npt.ArrayLike, seeds: IntArray) -> Percentage:
    """How many of those that are `counted` [N] are `hits` [N], in percent, with an interval over seeds [N].

    Where all or none are, seeds do not differ, and the interval is that of so many independent ones.
    """
    below: Any = np.asarray(counted, dtype=float)
    above = below * np.asarray(hits, dtype=float)
    found, count = ratio(above, below, seeds), int(below.sum())
    if not count:
        return Percentage(0, math.nan)
    if above.sum() in (0, count):
        low, high = share_interval(int(above.sum()), count)
    elif found.low is None or found.high is None:
        return Percentage(count, 100 * found.value)
    else:
        low, high = _within(found.low, found.high)
    return Percentage(count, 100 * found.value, Interval(100 * low, 100 * high))


def _pairs(right: FloatArray, wrong: FloatArray) -> tuple[float, int]:
    """Pairs that a signal orders rightly, and all pairs."""
    difference = np.sign(_finite(right)[:, None] - _finite(wrong)[None, :])
    return float((difference > 0).sum() + (difference == 0).sum() / 2), difference.size


def _finite(scores: FloatArray) -> FloatArray:
    """Infinite scores equal each other."""
    return np.nan_to_num(scores, posinf=np.finfo(float).max / 4, neginf=-np.finfo(float).max / 4)


def _within(low: float, high: float) -> Interval:
    return Interval(max(0.0, low), min(1.0, high))
