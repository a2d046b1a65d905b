"""Two plain models that a good one must beat: nothing changes but by chance, and a linear one with Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ifonly.data.episode import FloatArray, IntArray
from ifonly.evidence.check.sample import Sample

FOLDS = 5
RIDGE = 1.0
"""Weight of the squared coefficients of the linear baseline against squared errors, in scaled units."""

LEAST_DEVIATION = 1e-4
"""In scaled units: keeps the density of a feature that a baseline predicts exactly finite."""

PERSISTENCE, LINEAR = BASELINES = ("persistence", "linear")


@dataclass(frozen=True)
class _LinearGaussian:
    """next = [1, inputs] @ coefficients + noise with a full covariance."""

    coefficients: FloatArray  # [p + 1, D]
    factor: FloatArray  # [D, D], Cholesky factor of the covariance

    @classmethod
    def fit(cls, inputs: FloatArray, targets: FloatArray) -> _LinearGaussian:
        design = _design(inputs)
        penalty = RIDGE * np.eye(design.shape[1])
        penalty[0, 0] = 1e-9  # the intercept is free
        coefficients = np.linalg.solve(design.T @ design + penalty, design.T @ targets)
        errors = targets - design @ coefficients
        covariance = errors.T @ errors / len(errors) + LEAST_DEVIATION**2 * np.eye(targets.shape[1])
        return cls(
            np.asarray(coefficients, dtype=np.float64), np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        )

    def log_prob(self, inputs: FloatArray, targets: FloatArray) -> FloatArray:
        errors = targets - _design(inputs) @ self.coefficients
        white = np.linalg.solve(self.factor, errors.T)
        volume = float(np.log(np.diag(self.factor)).sum()) + targets.shape[1] / 2 * np.log(2 * np.pi)
        return np.asarray(-0.5 * (white**2).sum(axis=0) - volume)


def _design(inputs: FloatArray) -> FloatArray:
    return np.concatenate([np.ones((len(inputs), 1)), inputs], axis=1)


def subject_folds(subjects: IntArray, *, seed: int) -> IntArray:
    """A fold, 0 to `FOLDS` - 1, for every row [N]; all rows of a subject are in the same."""
    unique, numbers = np.unique(subjects, return_inverse=True)
    return np.asarray(np.random.default_rng(seed).permutation(len(unique))[numbers] % FOLDS)


def baseline_log_prob(sample: Sample, *, seed: int) -> dict[str, FloatArray]:
    """Log densities [N] of the next states under each baseline, in the model's coordinates.

    Every transition is judged by baselines fitted to other subjects of the same cohort, four fifths of them.
    """
    now, following = sample.rows.states.numpy(), sample.rows.next_states.numpy()
    nothing = np.empty((len(sample), 0))
    everything = np.concatenate([sample.inputs, sample.action_inputs], axis=1)
    folds = subject_folds(sample.subject, seed=seed)
    found = {name: np.empty(len(sample)) for name in BASELINES}
    for fold in range(FOLDS):
        test, train = folds == fold, folds != fold
        # Both are fitted to the change: shrinking the coefficients then leads to persistence.
        for name, inputs in ((PERSISTENCE, nothing), (LINEAR, everything)):
            model = _LinearGaussian.fit(inputs[train], (following - now)[train])
            found[name][test] = model.log_prob(inputs[test], (following - now)[test])
    return found
