"""Regressions on what was known before, cross-validated by subject: ridges on inputs and on random bends of them."""

from __future__ import annotations

import math

import numpy as np

from ifonly.data.episode import FloatArray, IntArray
from ifonly.evidence.check.baselines import FOLDS
from ifonly.evidence.check.sample import BoolArray

MOST_ROWS = 20_000
"""Transitions that the regressions use at most."""

HIDDEN = 120
"""Random nonlinear features of the inputs that the regression may use beside the inputs themselves."""

PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Ridge penalties per row, of which the best on subjects left out is taken; the largest predicts next to nothing."""


def some_subjects(subjects: IntArray, *, seed: int) -> BoolArray:
    """Rows of so many random subjects that they are not too many [N]."""
    unique, numbers = np.unique(subjects, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(unique))
    rows = np.bincount(numbers)[order]
    enough = max(FOLDS, int(np.searchsorted(np.cumsum(rows), MOST_ROWS, side="right")))
    return np.asarray(np.isin(numbers, order[:enough]))


def standardised(values: FloatArray) -> FloatArray:
    """Columns [N, p] with mean zero and deviation one; constant ones are zero."""
    deviation = values.std(axis=0)
    return np.asarray((values - values.mean(axis=0)) / np.where(deviation > 1e-9, deviation, 1.0))


def basis(inputs: FloatArray, generator: np.random.Generator) -> FloatArray:
    """The inputs [N, p] and random bends of them [N, p + HIDDEN], all standardised."""
    weights = generator.standard_normal((inputs.shape[1], HIDDEN)) / math.sqrt(max(1, inputs.shape[1]))
    bends = np.tanh(inputs @ weights + generator.standard_normal(HIDDEN))
    return np.concatenate([inputs, standardised(bends)], axis=1)


def out_of_fold(known: FloatArray, targets: FloatArray, folds: IntArray) -> FloatArray:
    """Predictions [N, k] from columns [N, p], for each fold by ridges on the others, each with its best penalty."""
    predictions = np.zeros((len(PENALTIES), *targets.shape))
    for fold in range(FOLDS):
        test, train = folds == fold, folds != fold
        squares, axes = np.linalg.eigh(known[train].T @ known[train])
        projected = axes.T @ (known[train].T @ targets[train])
        ahead = known[test] @ axes
        for number, penalty in enumerate(PENALTIES):
            shrunk = projected / (np.maximum(squares, 0.0) + penalty * train.sum())[:, None]
            predictions[number, test] = ahead @ shrunk
    best = ((predictions - targets) ** 2).sum(axis=1).argmin(axis=0)
    return np.asarray(predictions[best, :, np.arange(targets.shape[1])].T)
