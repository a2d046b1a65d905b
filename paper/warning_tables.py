"""The tables of the warning study: what is true, and how well each signal tells wrong recommendations from right ones.

Scores are larger where a signal gives less cause for concern; a recommendation is flagged where its score lies below a
limit. Limits are chosen on some seeds and judged on others, so that no recommendation is judged by a limit that it had
a part in. Worlds with the same seed are not independent, so seeds are what intervals are taken over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from ifonly.data.episode import FloatArray, IntArray
from ifonly.evidence.check.figures import ratio
from ifonly.intervals import Interval, share_interval
from ifonly.result import Thresholds
from paper.estimates import Estimate, Percentage
from paper.warning_worlds import RIGHT, SCENARIOS, BoolArray, falls_short, is_near_optimal, is_wrong, recommended

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
    below: FloatArray = np.asarray(counted, dtype=float)
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


LIMITS_IN_USE = {
    "verdict": 2.0,
    "refits_agree": Thresholds().agreeing,
    "least_support": Thresholds().unlikely,
    "farthest": -Thresholds().far,
    "undone_by": Thresholds().influence,
}
"""By column, the scores below which `ifonly.evidence` warns."""


def truth_table(table: pl.DataFrame) -> pl.DataFrame:
    """For each scenario, in percent of its recommendations: what is true of them; and the verdicts about its models."""
    lines = []
    for scenario in SCENARIOS.values():
        part = recommended(table.filter(pl.col("scenario") == scenario.name))
        seeds = part["seed"].to_numpy()

        def percent(which: BoolArray, seeds: IntArray = seeds) -> str:
            return share_over_seeds(which, np.ones(len(which)), seeds).show("{:.0f}")

        verdicts = part.group_by("seed").agg(pl.col("verdict").first())["verdict"].value_counts(sort=True)
        lines.append(
            {
                "scenario": scenario.label,
                "recommendations": f"{len(part)}",
                "truly help %": percent(~is_wrong(part)),
                "at least half as promised %": percent(~falls_short(part)),
                "near-optimal %": percent(is_near_optimal(part)),
                "promised": _mean_over_seeds(part, "promised").show(),
                "true": _mean_over_seeds(part, "true").show(),
                "attainable": _mean_over_seeds(part, "attainable").show(),
                "verdicts": ", ".join(f"{verdict} {count}" for verdict, count in verdicts.sort("verdict").rows()),
            }
        )
    return pl.DataFrame(lines)


def caught_table(table: pl.DataFrame, wrong: Callable[[pl.DataFrame], BoolArray] = is_wrong) -> pl.DataFrame:
    """A line for each signal, and one for all together: its limit, how well it separates, and percents flagged.

    `wrong` says which recommendations should be caught; the limit flags a tenth of the others.
    """
    asked = recommended(table)
    judged = Judged.of(asked, wrong(asked))
    words = {signal.label: signal.limit_in_words(judged.limit(signal.label)) for signal in SIGNALS}
    words[TOGETHER] = f"one rarer than {judged.limit(TOGETHER):.1%}"
    lines = [
        {"signal": label, "flagged where": limit, "AUC": judged.separation(label).show()}
        | _flagged(asked, judged, judged.flags(label))
        for label, limit in words.items()
    ]
    return pl.DataFrame(lines)


def separation_table(table: pl.DataFrame) -> pl.DataFrame:
    """How well each signal about single recommendations tells right from wrong within a scenario: its AUC."""
    lines = []
    for scenario in SCENARIOS.values():
        part = recommended(table.filter(pl.col("scenario") == scenario.name))
        judged = Judged.of(part, is_wrong(part))
        found = {signal.label: judged.separation(signal.label).show() for signal in SIGNALS if not signal.of_model}
        lines.append({"scenario": scenario.label, "wrong": f"{judged.wrong.sum()}"} | found)
    return pl.DataFrame(lines)


def limits_in_use_table(table: pl.DataFrame) -> pl.DataFrame:
    """The same for the limits that `ifonly.evidence` warns by, whatever they flag; the last lines are any of them.

    Limits that were set after looking at this very table are flattered by it.
    """
    asked = recommended(table)
    judged = Judged.of(asked, is_wrong(asked))
    used = [signal for signal in SIGNALS if signal.column in LIMITS_IN_USE]
    flags = {signal: judged.scores[signal.label] < LIMITS_IN_USE[signal.column] for signal in used}
    lines = [
        {"signal": signal.label, "flagged where": signal.limit_in_words(LIMITS_IN_USE[signal.column])}
        | _flagged(asked, judged, found)
        for signal, found in flags.items()
    ]
    unions = {
        "any about the answer": [found for signal, found in flags.items() if not signal.of_model],
        TOGETHER: list(flags.values()),
    }
    lines += [
        {"signal": label, "flagged where": "-"} | _flagged(asked, judged, np.any(found, axis=0))
        for label, found in unions.items()
    ]
    return pl.DataFrame(lines)


def _flagged(asked: pl.DataFrame, judged: Judged, flags: BoolArray) -> dict[str, str]:
    """Percents of right and of wrong recommendations that are flagged, the latter by scenario too."""

    def percent(counted: BoolArray) -> str:
        return share_over_seeds(flags, counted, judged.seeds).show("{:.0f}")

    scenarios = asked["scenario"].to_numpy()
    found = {
        "false alarms %": percent(~judged.wrong),
        "false alarms, model right %": percent(~judged.wrong & (scenarios == RIGHT)),
        "caught %": percent(judged.wrong),
    }
    return found | {one.label: percent(judged.wrong & (scenarios == one.name)) for one in SCENARIOS.values()}


def _mean_over_seeds(part: pl.DataFrame, column: str) -> Estimate:
    return Estimate.of(part.group_by("seed", maintain_order=True).agg(pl.col(column).mean())[column].to_list())
