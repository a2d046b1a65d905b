"""How good a behaviour model is on subjects that it has not seen: likelihood, calibration, action by action."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from ifonly.data.episode import FloatArray, IntArray
from ifonly.text.checks import behaviour_lines

BINS = 15
"""Groups of equally many steps by which the calibration error is measured."""

PROBABILITY_EDGES = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Groups of action probabilities; finest where thresholds are."""

FEW_SUBJECTS = 30
"""With fewer held out than this, figures of calibration say little."""

FEWEST_USES = 20
"""An action that was taken less often says nothing about how well its own probabilities are calibrated."""


@dataclass(frozen=True)
class CohortPart:
    """How much data a part of the cohort holds."""

    subjects: int
    steps: int


@dataclass(frozen=True)
class Reliability:
    """Probabilities that were given, and how often what they are about happened."""

    low: float
    high: float
    count: int
    """Pairs of a step and an action whose probability is from `low` to below `high`."""
    given: float
    """Their mean probability."""
    happened: float
    """The share of them in which the action was taken."""


@dataclass(frozen=True)
class ActionReliability:
    """The same for one action, over all held-out steps."""

    action: int
    uses: int
    given: float
    happened: float
    calibration_error: float


@dataclass(frozen=True)
class BehaviourReport:
    """Figures of held-out subjects, who took no part in fitting or calibration. Log-likelihoods are nats per step."""

    training: CohortPart
    calibration: CohortPart
    held_out: CohortPart
    temperature: float
    log_likelihood: float
    uncalibrated_log_likelihood: float
    """The same before calibration."""
    marginal_log_likelihood: float
    """That of the frequencies of actions in the training part, whatever the state."""
    calibration_error: float
    """Mean difference between the probability of the likeliest action and how often it was taken, over 15 groups."""
    uncalibrated_error: float
    by_probability: tuple[Reliability, ...]
    by_action: tuple[ActionReliability, ...]
    """Actions with at least 20 held-out uses."""
    never_chosen: tuple[str, ...] = ()
    """Labels of actions that nobody in the cohort ever chose."""
    constant: tuple[str, ...] = ()
    """Dynamic features that never varied."""

    @property
    def rough(self) -> bool:
        """Whether so few subjects were held out that figures of calibration say little."""
        return self.held_out.subjects < FEW_SUBJECTS

    @property
    def worse_than_frequencies(self) -> bool:
        """Whether it tells less than how often each action is chosen, whatever the state."""
        return self.log_likelihood < self.marginal_log_likelihood

    def __str__(self) -> str:
        return "\n".join(behaviour_lines(self))


def calibration_error(given: FloatArray, happened: FloatArray, bins: int = BINS) -> float:
    """The mean of |given - happened| over `bins` groups of equally many of N probabilities, sorted by them."""
    order = np.argsort(given, kind="stable")
    groups = np.array_split(order, min(bins, len(order)))
    return sum(len(group) * abs(float((given[group] - happened[group]).mean())) for group in groups) / len(order)


def likeliest_error(probabilities: FloatArray, actions: IntArray) -> float:
    """The calibration error of the likeliest action of each step, for probabilities [N, A] and actions taken [N]."""
    chosen = probabilities.argmax(axis=1)
    return calibration_error(probabilities.max(axis=1), (chosen == actions).astype(np.float64))


def by_probability(probabilities: FloatArray, actions: IntArray) -> tuple[Reliability, ...]:
    """Reliability of all action probabilities [N, A], by size; groups without any are left out."""
    taken = np.eye(probabilities.shape[1])[actions].ravel()
    flat = probabilities.ravel()
    places = np.clip(np.searchsorted(PROBABILITY_EDGES, flat, side="right") - 1, 0, len(PROBABILITY_EDGES) - 2)
    groups = []
    for place, (low, high) in enumerate(itertools.pairwise(PROBABILITY_EDGES)):
        rows = places == place
        if rows.any():
            groups.append(Reliability(low, high, int(rows.sum()), float(flat[rows].mean()), float(taken[rows].mean())))
    return tuple(groups)


def by_action(probabilities: FloatArray, actions: IntArray) -> tuple[ActionReliability, ...]:
    """Reliability of each action that was taken often enough."""
    found = []
    for action in range(probabilities.shape[1]):
        taken = (actions == action).astype(np.float64)
        if taken.sum() >= FEWEST_USES:
            given = probabilities[:, action]
            found.append(
                ActionReliability(
                    action=action,
                    uses=int(taken.sum()),
                    given=float(given.mean()),
                    happened=float(taken.mean()),
                    calibration_error=calibration_error(given, taken),
                )
            )
    return tuple(found)
