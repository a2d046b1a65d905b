"""What is measured: the noise against its prior, what predicts it, and that after each action and in each group."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import polars as pl
import torch

from ifonly.data.episode import FloatArray, IntArray
from ifonly.data.groups import make_groups
from ifonly.evidence.check.baselines import FOLDS, subject_folds
from ifonly.evidence.check.figures import Counts, Estimate, FeatureOfPart, PairFigures, PartFigures, ratio, ratios
from ifonly.evidence.check.regression import basis, out_of_fold, some_subjects, standardised
from ifonly.evidence.check.sample import ROWS_AT_ONCE, BoolArray, NoiseSample
from ifonly.evidence.check.thresholds import CheckThresholds

LEVELS = {"50": 0.5, "80": 0.8, "95": 0.95}
"""Predictive intervals that are counted."""

RANK_BINS = 20
"""Of a histogram of ranks."""

ACTION = "action"
"""The grouping of transitions by what was done."""

Groupings = Mapping[str, Sequence[float] | None]
"""Features or columns to group episodes by, with the edges at which numbers are cut (None: their quartiles)."""


# The noise of each feature against its prior


def inside(ranks: FloatArray, share: float) -> FloatArray:
    """1.0 where a rank lies in the central interval that holds `share` of the prior, 0.0 elsewhere."""
    return (np.abs(ranks - 0.5) <= share / 2).astype(np.float64)


def means(values: FloatArray, sample: NoiseSample) -> list[Estimate]:
    """Means of values [N, D] over the entries that count, feature by feature [D]."""
    return ratios(values * sample.counted, sample.counted, sample.subject)


def coverage(sample: NoiseSample) -> dict[str, list[Estimate]]:
    """Share of recorded next values inside the predictive intervals, by level and feature [D]."""
    return {level: means(inside(sample.ranks, share), sample) for level, share in LEVELS.items()}


def distances(sample: NoiseSample) -> list[Estimate]:
    """The largest difference between the share of noise below a quantile of the prior and that quantile [D].

    The distance of Kolmogorov and Smirnov, looked for at a hundred quantiles; with the interval of the share at the one
    where it is largest.
    """
    quantiles = np.arange(1, 100) / 100
    found = []
    for column in range(sample.ranks.shape[1]):
        rows = sample.rows_of(column)
        ranks = sample.ranks[rows, column]
        shares = np.searchsorted(np.sort(ranks), quantiles, side="right") / max(1, len(rows))
        worst = float(quantiles[np.abs(shares - quantiles).argmax()])
        below = (ranks <= worst).astype(np.float64)[:, None]
        share = ratios(below, np.ones(len(rows)), sample.subject[rows])[0]
        found.append(_size_of(share.moved(-worst)))
    return found


def _size_of(difference: Estimate) -> Estimate:
    """The estimate without its sign; the interval never claims a sign that was not seen."""
    if difference.value >= 0 or difference.low is None or difference.high is None:
        return Estimate(abs(difference.value), difference.low, difference.high)
    return Estimate(-difference.value, -difference.high, -difference.low)


def histograms(sample: NoiseSample, smallest: int) -> list[tuple[float | None, ...]]:
    """Shares of ranks in equal bins, for each feature [D]; None where fewer than `smallest` subjects are."""
    bins = np.minimum((sample.ranks * RANK_BINS).astype(np.int64), RANK_BINS - 1)
    places = [(bins[rows, column], sample.subject[rows]) for column, rows in _columns(sample)]
    return [_histogram(found, subjects, smallest) for found, subjects in places]


def _columns(sample: NoiseSample) -> list[tuple[int, IntArray]]:
    """The number of every feature, and the rows in which its noise counts."""
    return [(column, sample.rows_of(column)) for column in range(sample.noise.shape[1])]


def _histogram(bins: IntArray, subjects: IntArray, smallest: int) -> tuple[float | None, ...]:
    counts = np.bincount(bins, minlength=RANK_BINS)
    pairs = np.unique(np.stack([bins, subjects], axis=1), axis=0)
    people = np.bincount(pairs[:, 0], minlength=RANK_BINS)
    return tuple(
        None if 0 < few < smallest else float(count / max(1, len(bins)))
        for count, few in zip(counts, people, strict=True)
    )


def centre_and_size(sample: NoiseSample) -> tuple[list[Estimate], list[Estimate]]:
    """Mean of the scores (0 where the model is right) and mean of their squares (1) [D] each."""
    return means(sample.scores, sample), means(sample.scores**2, sample)


def tails(sample: NoiseSample) -> list[Estimate]:
    """Share of the noise outside the central 99 % of its prior [D]."""
    return means(1.0 - inside(sample.ranks, 0.99), sample)


def unchanged(sample: NoiseSample, column: int) -> float:
    """Share of the transitions that count after which a feature has exactly the value that it had, other than zero."""
    rows = sample.rows_of(column)
    recorded = sample.cohort.transitions()
    now, then = (states[sample.position[rows], column] for states in (recorded.states, recorded.next_states))
    return float(((now == then) & (then != 0)).mean())


def lasting(sample: NoiseSample) -> list[Estimate] | None:
    """Correlation of the noise with the next that counts [D]; None where no episode has two transitions."""
    if not len(sample.successive):
        return None
    scores = _centred(sample)
    pairs = [(column, *sample.succession(column)) for column in range(scores.shape[1])]
    return [
        ratio(scores[first, i] * scores[then, i], scores[first, i] ** 2, sample.subject[first])
        for i, first, then in pairs
    ]


def between(sample: NoiseSample) -> list[Estimate]:
    """The share of the scores' variance that lies between subjects [D].

    The mean product of scores of two steps of a subject, over the mean square: their correlation within subjects. It
    can be below zero by chance, or where what lasts was taken out by the mean of the very same steps.
    """
    scores, (_, numbers) = _centred(sample), np.unique(sample.subject, return_inverse=True)
    sums, squares, counts = (np.zeros((int(numbers.max()) + 1, scores.shape[1])) for _ in range(3))
    for total, values in ((sums, scores), (squares, scores**2), (counts, sample.counted)):
        np.add.at(total, numbers, values)
    return ratios((sums**2 - squares) / np.maximum(counts - 1, 1), squares * (counts > 1), np.arange(len(sums)))


def _centred(sample: NoiseSample) -> FloatArray:
    """Scores [N, D] minus their means; 0 where they do not count."""
    counts = np.maximum(sample.counted.sum(axis=0), 1.0)
    middle = (sample.scores * sample.counted).sum(axis=0) / counts
    return np.asarray((sample.scores - middle) * sample.counted)


def together(sample: NoiseSample, shown: BoolArray | None = None, least: int = 1) -> list[PairFigures]:
    """Every pair of features that vary, and how much more their noise goes together than the prior says.

    Without features that are not `shown` [D] and pairs that fewer than `least` subjects have measured at once.
    """
    names = [feature.name for feature in sample.model.schema.dynamic]
    scores, counted = _centred(sample), sample.counted
    deviations = _deviations(scores, sample)
    prior = np.atleast_2d(np.corrcoef(sample.prior_scores, rowvar=False))
    shown = ~sample.constant if shown is None else shown
    usable = [column for column in range(scores.shape[1]) if deviations[column] > 0 and shown[column]]
    pairs = [(one, other) for number, one in enumerate(usable) for other in usable[number + 1 :]]
    if not pairs:
        return []
    products = np.stack([scores[:, i] * scores[:, j] / (deviations[i] * deviations[j]) for i, j in pairs], axis=1)
    both = np.stack([counted[:, i] * counted[:, j] for i, j in pairs], axis=1)
    found = ratios(products, both, sample.subject)
    return [
        PairFigures((names[pair[0]], names[pair[1]]), float(prior[pair]), correlation.moved(-float(prior[pair])))
        for pair, correlation, rows in zip(pairs, found, both.T, strict=True)
        if sample.measured is None or len(np.unique(sample.subject[rows > 0])) >= least
    ]


def _deviations(scores: FloatArray, sample: NoiseSample) -> FloatArray:
    """The deviation of each feature's scores that count [D]."""
    counts = np.maximum(sample.counted.sum(axis=0), 1.0)
    distances = (scores - scores.sum(axis=0) / counts) * sample.counted
    return np.asarray(np.sqrt((distances**2).sum(axis=0) / counts))


# Whether the noise can be predicted: from state and context, from the action, and how large it will be


@dataclass(frozen=True)
class Dependence:
    """What is predictable about the noise of each dynamic feature, out of sample."""

    state: list[Estimate]
    """Share of the scores' variance that state and context explain [D]."""
    action: list[Estimate]
    """Share that the action explains beyond state and context [D]."""
    size: list[Estimate]
    """By how much the size of the noise varies predictably, as a share of its mean size [D]."""
    strongest: list[str]
    """The feature of state or context along which the predictable part varies most [D]."""


def dependence(sample: NoiseSample, *, seed: int) -> Dependence:
    """Regress the noise's normal scores, and their squares, on what was known before; cross-validated by subject.

    The regression is a ridge on the inputs and random tanh features of them. Where the model is right nothing can be
    predicted, and figures are zero or slightly below. Where not all was measured, every feature has regressions of its
    own, on the rows in which it was.
    """
    count = sample.noise.shape[1]
    if sample.measured is None:
        return _dependence(sample, np.arange(len(sample)), np.arange(count), seed)
    found = [_dependence_of(sample, column, seed) for column in range(count)]
    return Dependence(*([one for each in found for one in getattr(each, field.name)] for field in fields(Dependence)))


def _dependence_of(sample: NoiseSample, column: int, seed: int) -> Dependence:
    """That of a single feature; unknown where too few subjects have it."""
    if sample.subjects_of[column] < FOLDS:
        unknown = Estimate(math.nan)
        return Dependence([unknown], [unknown], [unknown], [sample.model.schema.dynamic[column].name])
    return _dependence(sample, sample.rows_of(column), np.array([column]), seed)


def _dependence(sample: NoiseSample, rows: IntArray, columns: IntArray, seed: int) -> Dependence:
    """The dependence of the noise of some features in some rows."""
    chosen = rows[some_subjects(sample.subject[rows], seed=seed)]
    subjects = sample.subject[chosen]
    folds = subject_folds(subjects, seed=seed)
    scores = sample.scores[chosen[:, None], columns]
    scores = scores - scores.mean(axis=0)
    inputs = standardised(sample.inputs[chosen])
    everything = np.concatenate([inputs, standardised(sample.action_inputs[chosen])], axis=1)
    generator = np.random.default_rng(seed)
    by_state = basis(inputs, generator)
    by_all = np.concatenate([by_state, basis(everything, generator)], axis=1)
    with_state = out_of_fold(by_state, scores, folds)
    with_all = out_of_fold(by_all, scores, folds)
    total = scores**2
    left_by_state, left_by_all = (scores - with_state) ** 2, (scores - with_all) ** 2
    return Dependence(
        state=ratios(total - left_by_state, total, subjects),
        action=ratios(left_by_state - left_by_all, total, subjects),
        size=_size(left_by_all, out_of_fold(by_all, left_by_all - left_by_all.mean(axis=0), folds), subjects),
        strongest=_strongest(with_state, inputs, sample),
    )


def _size(squares: FloatArray, predicted: FloatArray, subjects: IntArray) -> list[Estimate]:
    """sd(E[e^2]) / (2 E[e^2]), the relative variation of the size of e, from the explained share of its squares."""
    mean = squares.mean(axis=0)
    centred = squares - mean
    shares = ratios(centred**2 - (centred - predicted) ** 2, centred**2, subjects)
    variances = centred.var(axis=0)

    def variation(share: float | None, column: int) -> float | None:
        if share is None or mean[column] == 0:
            return None
        return math.copysign(math.sqrt(abs(share) * variances[column]) / (2 * mean[column]), share)

    return [
        Estimate(variation(share.value, column) or 0.0, variation(share.low, column), variation(share.high, column))
        for column, share in enumerate(shares)
    ]


def _strongest(predicted: FloatArray, inputs: FloatArray, sample: NoiseSample) -> list[str]:
    schema = sample.model.schema
    names = [feature.name for feature in (*schema.dynamic, *schema.context)]
    along = np.abs(predicted.T @ inputs)  # inputs are standardised: proportional to correlations
    return [names[int(row.argmax())] for row in along]


# After each action, and in each group of episodes


@torch.no_grad()
def prediction_errors(sample: NoiseSample) -> FloatArray:
    """Recorded next values minus the medians that the model predicts [N, D], in original units."""
    middle = torch.as_tensor(np.median(sample.draws, axis=0))
    decode = sample.model.scaler.states.decode
    found = []
    for states, context, actions, following, _ in sample.rows.batches(ROWS_AT_ONCE):
        predicted = sample.model.step(states, context, actions, middle.expand(states.shape))
        found.append(decode(following.numpy()) - decode(predicted.numpy()))
    return np.concatenate(found)


def part_figures(
    sample: NoiseSample,
    baseline: FloatArray,
    errors: FloatArray,
    groupings: tuple[Groupings, pl.DataFrame | None],
    thresholds: CheckThresholds,
) -> tuple[PartFigures, ...]:
    """Figures for every action and group; `baseline` [N] is the linear one's density, `errors` [N, D] predictions'."""
    parts = (*_by_action(sample), *_by_group(sample, *groupings))
    return tuple(_part(names, rows, (sample, baseline, errors), thresholds.smallest_cell) for names, rows in parts)


def _by_action(sample: NoiseSample) -> Iterator[tuple[tuple[str, str], BoolArray]]:
    actions = sample.rows.actions.numpy()
    for number, label in enumerate(sample.model.schema.actions.labels):
        yield (ACTION, label), actions == number


def _by_group(
    sample: NoiseSample, by: Groupings, values: pl.DataFrame | None
) -> Iterator[tuple[tuple[str, str], BoolArray]]:
    cohort = sample.cohort
    for name, edges in by.items():
        groups = make_groups(name, cohort.ids, cohort if values is None else values, edges)
        of_row = np.array(groups.of_episode)[sample.episode]
        for group in groups.order:
            yield (groups.label, group), of_row == group


def _part(
    names: tuple[str, str], rows: BoolArray, data: tuple[NoiseSample, FloatArray, FloatArray], smallest: int
) -> PartFigures:
    sample, baseline, errors = data
    subjects, count = sample.subject[rows], int(rows.sum())
    people = len(np.unique(subjects))
    if 0 < people < smallest:
        return PartFigures(*names, transitions=None, subjects=None, gain=None, features=())
    if count == 0:
        return PartFigures(*names, transitions=0, subjects=0, gain=None, features=())
    features = tuple(_features_of_part(rows, sample, errors, smallest))
    gain = ratio((sample.log_prob - baseline)[rows], np.ones(count), subjects)
    entries = None if sample.measured is None else float(sample.entries[rows].mean())
    return PartFigures(*names, transitions=count, subjects=people, gain=gain, features=features, entries=entries)


def _features_of_part(
    rows: BoolArray, sample: NoiseSample, errors: FloatArray, smallest: int
) -> Iterator[FeatureOfPart]:
    """The noise of every feature in these rows, unless it counts for too few subjects to be shown."""
    counted, subjects = sample.counted[rows], sample.subject[rows]
    biases = ratios(sample.scores[rows] * counted, counted, subjects)
    covered = ratios(inside(sample.ranks[rows], 0.8) * counted, counted, subjects)
    for i, feature in enumerate(sample.model.schema.dynamic):
        here = counted[:, i] > 0
        people = len(np.unique(subjects[here]))
        if sample.constant[i] or people < smallest:
            continue
        residual = float(np.median(errors[rows, i][here]))
        measured = None if sample.measured is None else Counts(int(here.sum()), people)
        yield FeatureOfPart(feature.name, biases[i], residual, covered[i], measured)
