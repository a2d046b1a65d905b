"""What the past says beyond the present, of actions and of noise: signs of causes that are not recorded.

Where state and context hold all that matters, and actions are chosen by what is recorded and by whim, the past says
nothing more. If something hidden moves the state and those who act see it, or their actions move it, then earlier
actions show something of it, and predict the noise; and the noise of earlier steps, which is what else can be seen of
it, predicts their choices. Neither needs a right model: the present is taken out of both sides by regressions of its
own.
"""

from __future__ import annotations

import numpy as np

from ifonly.data.episode import FloatArray, IntArray
from ifonly.evidence.check.baselines import FOLDS, subject_folds
from ifonly.evidence.check.figures import Estimate, ratio, ratios
from ifonly.evidence.check.regression import basis, out_of_fold, some_subjects, standardised
from ifonly.evidence.check.sample import NoiseSample


def choice_by_noise(sample: NoiseSample, *, seed: int) -> Estimate | None:
    """The share of what the present leaves open about actions that the noise of earlier steps explains, out of sample.

    The present is here state, context, step, the action before and the mean of all before: habits, and the ways of
    those who give everybody more, are no sign, though given the state they are tied to earlier noise. Shares are of the
    variance of doses, or of indicators of actions that are categories. None where too few subjects have two
    transitions, or nobody chooses.
    """
    rows = _with_past(sample, np.arange(len(sample)), seed)
    if rows is None:
        return None
    steps = (sample.position - _starts(sample)[sample.episode]).astype(np.float64)[:, None]
    chosen, doses = _chosen(sample)[rows], standardised(_chosen(sample))
    before = _earlier(sample, doses, np.ones(doses.shape))
    present = np.concatenate([sample.inputs[rows], steps[rows], before[rows]], axis=1)
    # What is hidden may act by way of an action, as a price does: then the noise tells it only times the dose.
    noise = np.concatenate([sample.scores, *(sample.scores * dose[:, None] for dose in doses.T)], axis=1)
    counted = np.tile(sample.counted, (1, 1 + doses.shape[1]))
    left, still = _beyond(present, _earlier(sample, noise, counted)[rows], chosen, _folds(sample, rows, seed), seed)
    found = ratio((left**2 - still**2).sum(axis=1), (left**2).sum(axis=1), sample.subject[rows])
    return found if np.isfinite(found.value) else None


def noise_by_earlier(sample: NoiseSample, *, seed: int) -> list[Estimate | None]:
    """The share of the scores' variance that earlier actions predict beyond state, context and action [D].

    Earlier actions are the one before and the mean of all before. None where too few subjects have two transitions.
    """
    count = sample.noise.shape[1]
    if sample.measured is None:
        found = _by_earlier(sample, np.arange(len(sample)), np.arange(count), seed)
        return [None] * count if found is None else list(found)
    each = [_by_earlier(sample, sample.rows_of(column), np.array([column]), seed) for column in range(count)]
    return [None if found is None else found[0] for found in each]


def _by_earlier(sample: NoiseSample, rows: IntArray, columns: IntArray, seed: int) -> list[Estimate] | None:
    """That of some features in some rows."""
    known = _with_past(sample, rows, seed)
    if known is None:
        return None
    doses = standardised(_chosen(sample))
    past = _earlier(sample, doses, np.ones(doses.shape))[known]
    present = np.concatenate([sample.inputs[known], sample.action_inputs[known]], axis=1)
    scores = sample.scores[known[:, None], columns]
    left, still = _beyond(present, past, scores, _folds(sample, known, seed), seed)
    return ratios(left**2 - still**2, left**2, sample.subject[known])


def _with_past(sample: NoiseSample, rows: IntArray, seed: int) -> IntArray | None:
    """Those rows whose step before is known, of not too many subjects; None where these are too few."""
    known = np.intersect1d(rows, sample.successive + 1)
    if len(np.unique(sample.subject[known])) < FOLDS:
        return None
    return np.asarray(known[some_subjects(sample.subject[known], seed=seed)])


def _folds(sample: NoiseSample, rows: IntArray, seed: int) -> IntArray:
    return subject_folds(sample.subject[rows], seed=seed)


def _beyond(
    present: FloatArray, past: FloatArray, targets: FloatArray, folds: IntArray, seed: int
) -> tuple[FloatArray, FloatArray]:
    """What the present leaves of targets [n, k], and what is left of that by the past [n, q], on other subjects.

    The present [n, p], with random bends of it, is taken out of targets and past alike: so that an error of one of
    these regressions alone does not look like a trace of the past (double machine learning, Chernozhukov et al. 2018).
    """
    known = basis(standardised(present), np.random.default_rng(seed))
    centred, past = targets - targets.mean(axis=0), standardised(past)
    left = centred - out_of_fold(known, centred, folds)
    unexpected = standardised(past - out_of_fold(known, past, folds))
    return left, left - out_of_fold(unexpected, left, folds)


def _chosen(sample: NoiseSample) -> FloatArray:
    """What was chosen [N, ...]: doses in their deviations, or an indicator of each action."""
    if sample.model.schema.actions.is_categorical:
        return sample.action_inputs
    return standardised(sample.model.action_vectors.numpy()[sample.rows.actions.numpy()])


def _starts(sample: NoiseSample) -> IntArray:
    """The first transition of every episode of the cohort [E]."""
    return np.asarray(sample.cohort.offsets[:-1] - np.arange(len(sample.cohort)))


def _earlier(sample: NoiseSample, values: FloatArray, counted: FloatArray) -> FloatArray:
    """Values [N, 2 k] of the row before, and their means over all rows before in the episode; 0 where none counts."""
    values = values * counted
    before = np.concatenate([np.zeros((1, values.shape[1])), values[:-1]])
    sums, counts = (np.cumsum(column, axis=0) - column for column in (values, counted))
    first = np.flatnonzero(np.diff(sample.episode, prepend=-1))
    start = first[np.searchsorted(first, np.arange(len(sample)), side="right") - 1]
    means = (sums - sums[start]) / np.maximum(counts - counts[start], 1.0)
    return np.concatenate([before, means], axis=1)
