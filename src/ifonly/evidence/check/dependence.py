"""Whether the noise can be predicted: from state and context, from the action, and how large it will be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ifonly.data.episode import FloatArray, IntArray
from ifonly.evidence.check.baselines import FOLDS, subject_folds
from ifonly.evidence.check.estimates import Estimate, ratios
from ifonly.evidence.check.sample import BoolArray, Sample

MOST_ROWS = 20_000
HIDDEN = 120
"""Random nonlinear features of the inputs that the regression may use beside the inputs themselves."""

PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Ridge penalties per row, of which the best on subjects left out is taken; the largest predicts next to nothing."""


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


def dependence(sample: Sample, *, seed: int) -> Dependence:
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


def _strongest(predicted: FloatArray, inputs: FloatArray, sample: Sample) -> list[str]:
    schema = sample.model.schema
    names = [feature.name for feature in (*schema.dynamic, *schema.context)]
    along = np.abs(predicted.T @ inputs)  # inputs are standardised: proportional to correlations
    return [names[int(row.argmax())] for row in along]
