"""What is measured: the noise against its prior, what predicts it, courses several steps ahead, actions and groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ifonly.data.episode import FloatArray, IntArray
from ifonly.data.groups import make_groups
from ifonly.evidence.check.figures import Estimate, FeatureOfPart, PairFigures, PartFigures, ratio, ratios
from ifonly.evidence.check.sample import FOLDS, ROWS_AT_ONCE, BoolArray, NoiseSample, subject_folds
from ifonly.evidence.check.thresholds import CheckThresholds

LEVELS = {"50": 0.5, "80": 0.8, "95": 0.95}
"""Predictive intervals that are counted."""

RANK_BINS = 20
"""Of a histogram of ranks."""

MOST_ROWS = 20_000
"""Transitions that the regressions use at most."""

HIDDEN = 120
"""Random nonlinear features of the inputs that the regression may use beside the inputs themselves."""

PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Ridge penalties per row, of which the best on subjects left out is taken; the largest predicts next to nothing."""

HORIZONS = (1, 2, 4, 8)
"""Steps ahead at which the model is compared with the record."""

STARTS = 1000
STARTS_AT_ONCE = 100
COURSES = 100
"""Simulated courses from each start."""

ACTION = "action"
"""The grouping of transitions by what was done."""

Groupings = Mapping[str, Sequence[float] | None]
"""Features or columns to group episodes by, with the edges at which numbers are cut (None: their quartiles)."""


# The noise of each feature against its prior


def inside(ranks: FloatArray, share: float) -> FloatArray:
    """1.0 where a rank lies in the central interval that holds `share` of the prior, 0.0 elsewhere."""
    return (np.abs(ranks - 0.5) <= share / 2).astype(np.float64)


def coverage(sample: NoiseSample) -> dict[str, list[Estimate]]:
    """Share of recorded next values inside the predictive intervals, by level and feature [D]."""
    one = np.ones(len(sample))
    return {level: ratios(inside(sample.ranks, share), one, sample.subject) for level, share in LEVELS.items()}


def distances(sample: NoiseSample) -> list[Estimate]:
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


def histograms(sample: NoiseSample, smallest: int) -> list[tuple[float | None, ...]]:
    """Shares of ranks in equal bins, for each feature [D]; None where fewer than `smallest` subjects are."""
    bins = np.minimum((sample.ranks * RANK_BINS).astype(np.int64), RANK_BINS - 1)
    return [_histogram(column, sample.subject, smallest) for column in bins.T]


def _histogram(bins: IntArray, subjects: IntArray, smallest: int) -> tuple[float | None, ...]:
    counts = np.bincount(bins, minlength=RANK_BINS)
    pairs = np.unique(np.stack([bins, subjects], axis=1), axis=0)
    people = np.bincount(pairs[:, 0], minlength=RANK_BINS)
    return tuple(
        None if 0 < few < smallest else float(count / len(bins)) for count, few in zip(counts, people, strict=True)
    )


def centre_and_size(sample: NoiseSample) -> tuple[list[Estimate], list[Estimate]]:
    """Mean of the scores (0 where the model is right) and mean of their squares (1) [D] each."""
    one = np.ones(len(sample))
    return ratios(sample.scores, one, sample.subject), ratios(sample.scores**2, one, sample.subject)


def tails(sample: NoiseSample) -> list[Estimate]:
    """Share of the noise outside the central 99 % of its prior [D]."""
    return ratios(1.0 - inside(sample.ranks, 0.99), np.ones(len(sample)), sample.subject)


def lasting(sample: NoiseSample) -> list[Estimate] | None:
    """Correlation of the noise with that of the next step [D]; None where no episode has two transitions."""
    first = sample.successive
    if not len(first):
        return None
    scores = sample.scores - sample.scores.mean(axis=0)
    return ratios(scores[first] * scores[first + 1], scores[first] ** 2, sample.subject[first])


def together(sample: NoiseSample) -> list[PairFigures]:
    """Every pair of features that vary, and how much more their noise goes together than the prior says."""
    names = [feature.name for feature in sample.model.schema.dynamic]
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
        PairFigures((names[pair[0]], names[pair[1]]), float(prior[pair]), correlation.moved(-float(prior[pair])))
        for pair, correlation in zip(pairs, found, strict=True)
    ]


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
    predicted, and figures are zero or slightly below.
    """
    chosen = _some_subjects(sample.subject, seed=seed)
    subjects = sample.subject[chosen]
    folds = subject_folds(subjects, seed=seed)
    scores = sample.scores[chosen]
    scores = scores - scores.mean(axis=0)
    inputs = _standardised(sample.inputs[chosen])
    everything = np.concatenate([inputs, _standardised(sample.action_inputs[chosen])], axis=1)
    generator = np.random.default_rng(seed)
    by_state = _basis(inputs, generator)
    by_all = np.concatenate([by_state, _basis(everything, generator)], axis=1)
    with_state = _out_of_fold(by_state, scores, folds)
    with_all = _out_of_fold(by_all, scores, folds)
    total = scores**2
    left_by_state, left_by_all = (scores - with_state) ** 2, (scores - with_all) ** 2
    return Dependence(
        state=ratios(total - left_by_state, total, subjects),
        action=ratios(left_by_state - left_by_all, total, subjects),
        size=_size(left_by_all, _out_of_fold(by_all, left_by_all - left_by_all.mean(axis=0), folds), subjects),
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


def _some_subjects(subjects: IntArray, *, seed: int) -> BoolArray:
    """Rows of so many random subjects that they are not too many [N]."""
    unique, numbers = np.unique(subjects, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(unique))
    rows = np.bincount(numbers)[order]
    enough = max(FOLDS, int(np.searchsorted(np.cumsum(rows), MOST_ROWS, side="right")))
    return np.asarray(np.isin(numbers, order[:enough]))


def _standardised(values: FloatArray) -> FloatArray:
    deviation = values.std(axis=0)
    return np.asarray((values - values.mean(axis=0)) / np.where(deviation > 1e-9, deviation, 1.0))


def _basis(inputs: FloatArray, generator: np.random.Generator) -> FloatArray:
    """The inputs [N, p] and random bends of them [N, p + HIDDEN], all standardised."""
    weights = generator.standard_normal((inputs.shape[1], HIDDEN)) / math.sqrt(max(1, inputs.shape[1]))
    bends = np.tanh(inputs @ weights + generator.standard_normal(HIDDEN))
    return np.concatenate([inputs, _standardised(bends)], axis=1)


def _out_of_fold(basis: FloatArray, targets: FloatArray, folds: IntArray) -> FloatArray:
    """Predictions [N, k] for each fold by ridge regressions on the others, each target with its best penalty."""
    predictions = np.zeros((len(PENALTIES), *targets.shape))
    for fold in range(FOLDS):
        test, train = folds == fold, folds != fold
        squares, axes = np.linalg.eigh(basis[train].T @ basis[train])
        projected = axes.T @ (basis[train].T @ targets[train])
        ahead = basis[test] @ axes
        for number, penalty in enumerate(PENALTIES):
            shrunk = projected / (np.maximum(squares, 0.0) + penalty * train.sum())[:, None]
            predictions[number, test] = ahead @ shrunk
    best = ((predictions - targets) ** 2).sum(axis=1).argmin(axis=0)
    return np.asarray(predictions[best, :, np.arange(targets.shape[1])].T)


def _strongest(predicted: FloatArray, inputs: FloatArray, sample: NoiseSample) -> list[str]:
    schema = sample.model.schema
    names = [feature.name for feature in (*schema.dynamic, *schema.context)]
    along = np.abs(predicted.T @ inputs)  # inputs are standardised: proportional to correlations
    return [names[int(row.argmax())] for row in along]


# Several steps ahead on its own


@dataclass(frozen=True)
class Ahead:
    """The model so many steps ahead of recorded states, with the recorded actions and context; lists are [D]."""

    steps: int
    starts: int
    subjects: int
    error: FloatArray
    """Mean absolute error of the median course, in original units."""
    persistence: FloatArray
    """The same for the state at the start."""
    skill: list[Estimate]
    """Share of persistence's error, in scaled units, that the model removes."""
    coverage: dict[str, list[Estimate]]
    """Share of recorded values inside the central intervals of the courses, by level."""
    diverged: float
    """Share of starts from which some course is no longer finite."""


@torch.no_grad()
def run_ahead(sample: NoiseSample, *, seed: int) -> list[Ahead]:
    """Simulate courses from up to `STARTS` random recorded states, for all horizons that fit into episodes."""
    generator = torch.Generator().manual_seed(seed)
    starts = np.sort(np.random.default_rng(seed).permutation(len(sample))[:STARTS])
    left = _steps_left(sample)
    found = []
    medians, ranks = _forecast(sample, starts, left, generator)
    for number, steps in enumerate(HORIZONS):
        fits = left[starts] >= steps
        if fits.any():
            found.append(_compare(sample, starts[fits], steps, (medians[number, fits], ranks[number, fits])))
    return found


def _steps_left(sample: NoiseSample) -> IntArray:
    """How many transitions of the same episode, without a gap, follow each one, itself included [N]."""
    left = np.ones(len(sample), dtype=np.int64)
    for row in sample.successive[::-1]:
        left[row] = left[row + 1] + 1
    return left


def _forecast(
    sample: NoiseSample, starts: IntArray, left: IntArray, generator: torch.Generator
) -> tuple[FloatArray, ...]:
    """Medians of the simulated courses and ranks of the record among them, each [horizons, starts, D]; NaN if none."""
    shape = (len(HORIZONS), len(starts), sample.model.state_size)
    medians, ranks = np.full(shape, np.nan), np.full(shape, np.nan)
    for begin in range(0, len(starts), STARTS_AT_ONCE):
        part = np.arange(begin, min(begin + STARTS_AT_ONCE, len(starts)))
        rows = torch.as_tensor(starts[part])
        courses = sample.rows.states[rows].expand(COURSES, -1, -1)
        for step in range(1, min(HORIZONS[-1], int(left[starts[part]].max())) + 1):
            going = left[starts[part]] >= step
            part, rows, courses = part[going], rows[torch.as_tensor(going)], courses[:, torch.as_tensor(going)]
            at = rows + step - 1
            noise = sample.prior.sample(courses.shape[:2], generator=generator)
            courses = sample.model.step(courses, sample.rows.context[at], sample.rows.actions[at], noise)
            if step in HORIZONS:
                number = HORIZONS.index(step)
                medians[number, part] = courses.quantile(0.5, dim=0).numpy()
                ranks[number, part] = _ranks(courses, sample.rows.next_states[at], generator)
    return medians, ranks


def _ranks(courses: Tensor, recorded: Tensor, generator: torch.Generator) -> FloatArray:
    """Where the record [n, D] stands among the courses [COURSES, n, D]; a random place between two neighbours."""
    below = (courses < recorded).double().sum(0)
    between = torch.rand(below.shape, generator=generator, dtype=torch.float64)
    ranks = (below + between) / (len(courses) + 1)
    return np.asarray(ranks.masked_fill(~torch.isfinite(courses).all(0), torch.nan).numpy())


def _compare(sample: NoiseSample, starts: IntArray, steps: int, forecast: tuple[FloatArray, FloatArray]) -> Ahead:
    medians, ranks = forecast
    finite = np.isfinite(ranks).all(axis=1)
    rows = starts[finite]
    medians, ranks = medians[finite], ranks[finite]
    before = sample.rows.states.numpy()[rows]
    after = sample.rows.next_states.numpy()[rows + steps - 1]
    decode = sample.model.scaler.states.decode
    in_units = [np.abs(decode(guess) - decode(after)) for guess in (medians, before)]
    ours, theirs = np.abs(medians - after), np.abs(before - after)
    subjects, one = sample.subject[rows], np.ones(len(rows))
    return Ahead(
        steps=steps,
        starts=len(starts),
        subjects=len(np.unique(subjects)),
        error=in_units[0].mean(axis=0) if len(rows) else np.full(medians.shape[1], np.nan),
        persistence=in_units[1].mean(axis=0) if len(rows) else np.full(medians.shape[1], np.nan),
        skill=ratios(theirs - ours, theirs, subjects),
        coverage={level: ratios(inside(ranks, share), one, subjects) for level, share in LEVELS.items()},
        diverged=1.0 - len(rows) / len(starts),
    )


# After each action, and in each group of episodes


@torch.no_grad()
def prediction_errors(sample: NoiseSample) -> FloatArray:
    """Recorded next values minus the medians that the model predicts [N, D], in original units."""
    middle = torch.as_tensor(np.median(sample.draws, axis=0))
    decode = sample.model.scaler.states.decode
    found = []
    for states, context, actions, following in sample.rows.batches(ROWS_AT_ONCE):
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
    one = np.ones(count)
    biases = ratios(sample.scores[rows], one, subjects)
    covered = ratios(inside(sample.ranks[rows], 0.8), one, subjects)
    features = tuple(
        FeatureOfPart(feature.name, biases[i], float(np.median(errors[rows, i])), covered[i])
        for i, feature in enumerate(sample.model.schema.dynamic)
        if not sample.constant[i]
    )
    gain = ratio((sample.log_prob - baseline)[rows], one, subjects)
    return PartFigures(*names, transitions=count, subjects=people, gain=gain, features=features)
