"""Between which values the best course lies under the model's refits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ifonly.data.episode import FloatArray
from ifonly.data.margins import BoolArray
from ifonly.errors import IfonlyError
from ifonly.evidence.refits import own_refits, put_to_members
from ifonly.problem import BaseProblem
from ifonly.records import finite
from ifonly.report.cases.courses import Course
from ifonly.result.agreement import INTERVAL, MANY


@dataclass(frozen=True)
class RefitBand:
    """One measurement of the best course under every refit, each with noise of its own, in original units."""

    feature: str
    low: tuple[float | None, ...]  # [T]
    """Between this and `high` lie nine of ten refits where they are `many`, all of them where they are few; None where
    one of them gives no finite value."""
    high: tuple[float | None, ...]  # [T]
    refits: int
    many: bool


def outcome_features(outcome: str, names: Sequence[str]) -> list[str]:
    """The measurements that an outcome is made of: those that its name mentions, else the first, as pages take it.

    A name may have spaces, brackets and signs, and another one in it: the longest count first.

    >>> outcome_features("cumulative weekly cost (EUR)", ["stock", "cost", "weekly cost (EUR)"])
    ['weekly cost (EUR)']
    """
    words, named = outcome.lower(), set()
    for name in sorted(names, key=len, reverse=True):
        words, count = re.subn(rf"(?<![\w.]){re.escape(name.lower())}(?!\w|\.\w)", " ", words)
        named |= {name} if count else set()
    return [name for name in names if name in named] or list(names[:1])


@torch.no_grad()
def bands_of(problem: BaseProblem, best: Course) -> tuple[RefitBand, ...]:
    """A band for each of the outcome's measurements; none without refits, or where nothing is changed.

    All refits are replayed together. Until the first change all of them reproduce the record.
    """
    refits = own_refits(problem)
    if refits is None or not best.changes:
        return ()
    try:
        asked = put_to_members(problem, refits)
    except IfonlyError:  # a refit that cannot reproduce the record; the evidence says so
        return ()
    sequence = torch.as_tensor(np.array([best.actions]), device=asked.device)
    states = asked.decode(asked.replay(sequence)[0][0])  # [T, M, D]
    names = [feature.name for feature in problem.episode.schema.dynamic]
    shown = outcome_features(problem.reward.show(0.0).label, names)
    known = best.changes[0].step + 1  # what replaying loses to rounding is given back
    found = []
    for name in shown:
        column = names.index(name)
        low, high = _spread(states[..., column])
        recorded = problem.episode.states[:known, column]
        low[:known], high[:known] = recorded, recorded
        found.append(
            RefitBand(
                feature=name,
                low=tuple(finite(value) for value in low.tolist()),
                high=tuple(finite(value) for value in high.tolist()),
                refits=states.shape[1],
                many=states.shape[1] >= MANY,
            )
        )
    return tuple(found)


def _spread(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The lower and upper end [T] of values [T, M], NaN where any of them is not finite."""
    fine: BoolArray = np.isfinite(values)
    broken = (~fine).any(axis=1)
    levels = INTERVAL if values.shape[1] >= MANY else (0.0, 1.0)
    low, high = np.quantile(np.where(fine, values, 0.0), levels, axis=1)
    return np.where(broken, np.nan, low), np.where(broken, np.nan, high)
