"""The noise against its prior, feature by feature: its distribution, its intervals, its company in time and space."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ifonly.data.episode import FloatArray, IntArray
from ifonly.evidence.check.estimates import Estimate, ratios
from ifonly.evidence.check.sample import Sample

LEVELS = {"50": 0.5, "80": 0.8, "95": 0.95}
"""Predictive intervals that are counted."""

BINS = 20
"""Of a histogram of ranks."""


def inside(ranks: FloatArray, share: float) -> FloatArray:
    """1.0 where a rank lies in the central interval that holds `share` of the prior, 0.0 elsewhere."""
    return (np.abs(ranks - 0.5) <= share / 2).astype(np.float64)


def coverage(sample: Sample) -> dict[str, list[Estimate]]:
    """Share of recorded next values inside the predictive intervals, by level and feature [D]."""
    one = np.ones(len(sample))
    return {level: ratios(inside(sample.ranks, share), one, sample.subject) for level, share in LEVELS.items()}


def distances(sample: Sample) -> list[Estimate]:
    """The largest difference between the share of noise below a quantile of the prior and that quantile [D].

    The distance of Kolmogorov and Smirnov, looked for at a hundred quantiles; with the interval of the share at the one
    where it is largest.
    """
    quantiles = np.arange(1, 100) / 100
    found = []
    for column in range(sample.ranks.shape[1]):
        shares = np.searchsorted(np.sort(sample.ranks[:, column]), quantiles, side="right") / max(1, len(sample))
        worst = float(quantiles[np.abs(shares - quantiles).argmax()])
        below = (sample.ranks[:, column] <= worst).astype(np.float64)[:, None]
        share = ratios(below, np.ones(len(sample)), sample.subject)[0]
        found.append(_size_of(share.moved(-worst)))
    return found


def _size_of(difference: Estimate) -> Estimate:
    """The estimate without its sign; the interval never claims a sign that was not seen."""
    if difference.value >= 0 or difference.low is None or difference.high is None:
        return Estimate(abs(difference.value), difference.low, difference.high)
    return Estimate(-difference.value, -difference.high, -difference.low)


def histograms(sample: Sample, smallest: int) -> list[tuple[float | None, ...]]:
    """Shares of ranks in `BINS` equal bins, for each feature [D]; None where fewer than `smallest` subjects are."""
    bins = np.minimum((sample.ranks * BINS).astype(np.int64), BINS - 1)
    return [_histogram(column, sample.subject, smallest) for column in bins.T]


def _histogram(bins: IntArray, subjects: IntArray, smallest: int) -> tuple[float | None, ...]:
    counts = np.bincount(bins, minlength=BINS)
    pairs = np.unique(np.stack([bins, subjects], axis=1), axis=0)
    people = np.bincount(pairs[:, 0], minlength=BINS)
    return tuple(
        None if 0 < few < smallest else float(count / len(bins)) for count, few in zip(counts, people, strict=True)
    )


def centre_and_size(sample: Sample) -> tuple[list[Estimate], list[Estimate]]:
    """Mean of the scores (0 where the model is right) and mean of their squares (1) [D] each."""
    one = np.ones(len(sample))
    return ratios(sample.scores, one, sample.subject), ratios(sample.scores**2, one, sample.subject)


def tails(sample: Sample) -> list[Estimate]:
    """Share of the noise outside the central 99 % of its prior [D]."""
    return ratios(1.0 - inside(sample.ranks, 0.99), np.ones(len(sample)), sample.subject)


def lasting(sample: Sample) -> list[Estimate] | None:
    """Correlation of the noise with that of the next step [D]; None where no episode has two transitions."""
    first = sample.successive
    if not len(first):
        return None
    scores = sample.scores - sample.scores.mean(axis=0)
    return ratios(scores[first] * scores[first + 1], scores[first] ** 2, sample.subject[first])


@dataclass(frozen=True)
class Pair:
    """Two features whose noise goes together more, or less, than the prior says."""

    features: tuple[int, int]
    expected: float
    excess: Estimate
    """Correlation of their scores minus the prior's."""


def together(sample: Sample) -> list[Pair]:
    """Every pair of features that vary."""
    scores = sample.scores - sample.scores.mean(axis=0)
    deviations = scores.std(axis=0)
    prior = np.atleast_2d(np.corrcoef(sample.prior_scores, rowvar=False))
    usable = [column for column in range(scores.shape[1]) if deviations[column] > 0 and not sample.constant[column]]
    pairs = [(one, other) for number, one in enumerate(usable) for other in usable[number + 1 :]]
    if not pairs:
        return []
    products = np.stack([scores[:, i] * scores[:, j] / (deviations[i] * deviations[j]) for i, j in pairs], axis=1)
    found = ratios(products, np.ones(len(sample)), sample.subject)
    return [
        Pair(pair, float(prior[pair]), correlation.moved(-float(prior[pair])))
        for pair, correlation in zip(pairs, found, strict=True)
    ]
