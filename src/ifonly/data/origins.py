"""Values that repeat exactly from step to step: measured again, or carried forward because nothing was measured?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray, IntArray, Origin, OriginArray

MOST_REPEAT = 0.5
"""Features of which more than this share of transitions repeat the value exactly look carried forward."""

FEW_LEVELS = 30
"""Whole numbers of at most so many different values, such as scores, recur by themselves."""


def repeats(states: FloatArray, starts: IntArray) -> npt.NDArray[np.bool_]:
    """Which entries [N, D] equal those of the step before (`starts` [N]: the first row of each row's episode)."""
    same = np.zeros(states.shape, dtype=np.bool_)
    same[1:] = states[1:] == states[:-1]
    same[np.arange(len(states)) == starts] = False
    return same


def seems_held(states: FloatArray, starts: IntArray) -> npt.NDArray[np.bool_]:
    """Which entries [N, D] repeat a value other than zero: where nothing was sold, or fell, often nothing is next."""
    return np.asarray(repeats(states, starts) & (states != 0))


def recurs_by_itself(values: FloatArray) -> bool:
    """Whether values [N] are whole numbers of few levels, whose repeats say nothing about their origin."""
    return bool((values == np.floor(values)).all()) and len(np.unique(values)) <= FEW_LEVELS


def carried_where_repeated(states: FloatArray, starts: IntArray) -> OriginArray:
    """Origins [N, D] of states [N, D]: exact repeats but of zeros were carried forward, all else was measured.

    Features that are whole numbers of few levels count as measured throughout.
    """
    origins = np.where(seems_held(states, starts), Origin.CARRIED, Origin.MEASURED).astype(np.uint8)
    origins[:, [recurs_by_itself(column) for column in states.T]] = Origin.MEASURED
    return origins


def seemingly_carried(cohort: Cohort) -> tuple[str, ...]:
    """Dynamic features that repeat so often that they look carried forward; none where origins are known."""
    if cohort.origins is not None:
        return ()
    starts = np.repeat(cohort.offsets[:-1], cohort.lengths)
    transitions = len(cohort.states) - len(cohort)
    shares = seems_held(cohort.states, starts).sum(axis=0) / transitions
    return tuple(
        feature.name
        for feature, share, column in zip(cohort.schema.dynamic, shares, cohort.states.T, strict=True)
        if share > MOST_REPEAT and not recurs_by_itself(column)
    )
