"""Two plain models that a good one must beat: nothing changes but by chance, and a linear one with Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ifonly.data.episode import FloatArray, IntArray
from ifonly.evidence.check.sample import BoolArray, NoiseSample
from ifonly.models.noise import marginal_normal

FOLDS = 5
RIDGE = 1.0
"""Weight of the squared coefficients of the linear baseline against squared errors, in scaled units."""

LEAST_DEVIATION = 1e-4
"""In scaled units: keeps the density of a feature that a baseline predicts exactly finite."""

PAIRS_AS_ONE = 20.0
"""How many rows without correlation those that have both of two features stand against, where entries are missing."""

PERSISTENCE, LINEAR = BASELINES = ("persistence", "linear")


@dataclass(frozen=True)
class _LinearGaussian:
    """next = [1, inputs] @ coefficients + noise with a full covariance."""

    coefficients: FloatArray  # [p + 1, D]
    factor: FloatArray  # [D, D], Cholesky factor of the covariance

    @classmethod
    def fit(cls, inputs: FloatArray, targets: FloatArray) -> _LinearGaussian:
        design = _design(inputs)
        coefficients = np.linalg.solve(design.T @ design + _penalty(design), design.T @ targets)
        errors = targets - design @ coefficients
        covariance = errors.T @ errors / len(errors) + LEAST_DEVIATION**2 * np.eye(targets.shape[1])
        return cls(
            np.asarray(coefficients, dtype=np.float64), np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        )

    @classmethod
    def fit_measured(cls, inputs: FloatArray, targets: FloatArray, measured: BoolArray) -> _LinearGaussian:
        """The same of the measured entries [N, D]: coefficients feature by feature, correlations pair by pair."""
        design = _design(inputs)
        coefficients = np.zeros((design.shape[1], targets.shape[1]))
        for column, rows in enumerate(measured.T):
            known = design[rows]
            matrix = known.T @ known + _penalty(design)
            coefficients[:, column] = np.linalg.solve(matrix, known.T @ targets[rows, column])
        errors = np.where(measured, targets - design @ coefficients, 0.0)
        factor = np.linalg.cholesky(_pairwise_covariance(errors, measured))
        return cls(coefficients, np.asarray(factor, dtype=np.float64))

    def log_prob(self, inputs: FloatArray, targets: FloatArray, measured: BoolArray | None = None) -> FloatArray:
        """Log densities [N] of targets [N, D], or of their measured entries."""
        errors = targets - _design(inputs) @ self.coefficients
        if measured is not None:
            covariance = torch.as_tensor(self.factor @ self.factor.T)
            return marginal_normal(covariance, torch.as_tensor(errors), torch.as_tensor(measured)).numpy()
        white = np.linalg.solve(self.factor, errors.T)
        volume = float(np.log(np.diag(self.factor)).sum()) + targets.shape[1] / 2 * np.log(2 * np.pi)
        return np.asarray(-0.5 * (white**2).sum(axis=0) - volume)


def _design(inputs: FloatArray) -> FloatArray:
    return np.concatenate([np.ones((len(inputs), 1)), inputs], axis=1)


def _penalty(design: FloatArray) -> FloatArray:
    penalty = RIDGE * np.eye(design.shape[1])
    penalty[0, 0] = 1e-9  # the intercept is free
    return penalty


def _pairwise_covariance(errors: FloatArray, measured: BoolArray) -> FloatArray:
    """Covariance [D, D] of errors that are 0 where nothing was measured; positive definite.

    Correlations are those of rows that have both features, drawn towards none where these are few.
    """
    counts = measured.T.astype(np.float64) @ measured
    alone = np.diag(counts)
    variances = np.where(alone > 0, (errors**2).sum(axis=0) / np.maximum(alone, 1), 1.0) + LEAST_DEVIATION**2
    deviations = np.sqrt(variances)
    correlations = (errors.T @ errors) / np.outer(deviations, deviations) / (counts + PAIRS_AS_ONE)
    np.fill_diagonal(correlations, 1.0)
    values, axes = np.linalg.eigh(correlations)
    proper = (axes * np.maximum(values, 0.01)) @ axes.T
    sizes = deviations / np.sqrt(np.diag(proper))
    return np.asarray(proper * np.outer(sizes, sizes))


def subject_folds(subjects: IntArray, *, seed: int) -> IntArray:
    """A fold, 0 to `FOLDS` - 1, for every row [N]; all rows of a subject are in the same."""
    unique, numbers = np.unique(subjects, return_inverse=True)
    return np.asarray(np.random.default_rng(seed).permutation(len(unique))[numbers] % FOLDS)


def baseline_log_prob(sample: NoiseSample, *, seed: int) -> dict[str, FloatArray]:
    """Log densities [N] of the next states under each baseline, in the model's coordinates.

    Every transition is judged by baselines fitted to other subjects of the same cohort, four fifths of them; where not
    all was measured, by the measured entries.
    """
    now, following = sample.rows.states.numpy(), sample.following
    nothing = np.empty((len(sample), 0))
    everything = np.concatenate([sample.inputs, sample.action_inputs], axis=1)
    folds = subject_folds(sample.subject, seed=seed)
    found = {name: np.empty(len(sample)) for name in BASELINES}
    for fold in range(FOLDS):
        test, train = folds == fold, folds != fold
        # Both are fitted to the change: shrinking the coefficients then leads to persistence.
        for name, inputs in ((PERSISTENCE, nothing), (LINEAR, everything)):
            found[name][test] = _judged((inputs, following - now, sample.measured), train, test)
    return found


def _judged(data: tuple[FloatArray, FloatArray, BoolArray | None], train: BoolArray, test: BoolArray) -> FloatArray:
    """Log densities of the rows `test` of (inputs, targets, measured) by a model of the rows `train`."""
    inputs, targets, measured = data
    if measured is None:
        return _LinearGaussian.fit(inputs[train], targets[train]).log_prob(inputs[test], targets[test])
    model = _LinearGaussian.fit_measured(inputs[train], targets[train], measured[train])
    return model.log_prob(inputs[test], targets[test], measured[test])
