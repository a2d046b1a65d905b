"""The rule that turns signals into a verdict: fitted on known worlds, judged on worlds that it was not fitted to.

Signals are those of `ifonly.result.verdict`, each between -1 (speaks against an answer) and 1 (speaks for it). The rule
is a logistic regression whose weights must not be negative, so that no signal can speak for what it warns of; every
world counts the same. It is fitted on all worlds but one and judged on that one, for each in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ifonly.data.episode import FloatArray
from ifonly.result.verdict import SIGNALS, signals_of
from paper.evidence_study import Cell

BoolArray = npt.NDArray[np.bool_]

RIDGE = 1.0
"""Penalty on squared weights, in nats of all answers of a world together."""
STEPS = 3000
"""Of the accelerated projected gradient: more change nothing in the third digit."""


@dataclass(frozen=True, eq=False)
class Judged:
    """N answers with their S signals and the truth."""

    signals: FloatArray  # [N, S]
    helps: BoolArray  # [N]
    world: npt.NDArray[np.str_]  # [N]
    cell: npt.NDArray[np.str_]  # [N]
    promised: FloatArray  # [N]
    true: FloatArray  # [N]

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> Judged:
        """The centre's answers of all cells."""
        rows = [(cell.settings, one) for cell in cells for one in cell.answers if one.evidence is not None]
        return cls(
            np.array([[signals_of(one.evidence)[name] for name in SIGNALS] for _, one in rows if one.evidence]),
            np.array([one.helps for _, one in rows]),
            np.array([settings.world for settings, _ in rows]),
            np.array([f"{settings.world}-{settings.variant}-{settings.episodes}" for settings, _ in rows]),
            np.array([one.promised for _, one in rows]),
            np.array([one.true for _, one in rows]),
        )

    def take(self, rows: BoolArray) -> Judged:
        """Some of them."""
        return Judged(*(values[rows] for values in vars(self).values()))


def world_weights(world: npt.NDArray[np.str_]) -> FloatArray:
    """Weights [N] with a mean of one, so that every world counts the same."""
    names, place, counts = np.unique(world, return_inverse=True, return_counts=True)
    return np.asarray(len(world) / (len(names) * counts[place]))


def fit_rule(judged: Judged, *, ridge: float = RIDGE) -> FloatArray:
    """Offset and weights [1 + S] of the logistic regression; weights are not negative."""
    inputs = np.column_stack([np.ones(len(judged.helps)), judged.signals])
    shares = world_weights(judged.world) / len(judged.helps)
    penalty = np.r_[0.0, np.full(judged.signals.shape[1], ridge / len(judged.helps))]
    rate = 1 / (0.25 * float(np.linalg.eigvalsh((inputs * shares[:, None]).T @ inputs)[-1]) + penalty.max())
    found = ahead = np.zeros(inputs.shape[1])
    for step in range(STEPS):
        errors = 1 / (1 + np.exp(-inputs @ ahead)) - judged.helps
        moved = ahead - rate * (inputs.T @ (shares * errors) + penalty * ahead)
        moved[1:] = moved[1:].clip(min=0)
        found, ahead = moved, moved + step / (step + 3) * (moved - found)
    return found


def probabilities(rule: FloatArray, signals: FloatArray) -> FloatArray:
    """How likely an answer is to help [N], by its signals [N, S]."""
    return np.asarray(1 / (1 + np.exp(-(rule[0] + signals @ rule[1:]))))


def left_out(judged: Judged, *, ridge: float = RIDGE) -> FloatArray:
    """The probability [N] of every answer, by a rule that was fitted to the other worlds."""
    found = np.empty(len(judged.helps))
    for name in np.unique(judged.world):
        own = judged.world == name
        found[own] = probabilities(fit_rule(judged.take(~own), ridge=ridge), judged.signals[own])
    return found
