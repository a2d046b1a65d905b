"""Whether the effects of actions that a model claims are found again in episodes that it has not seen.

What follows a recorded action is compared with what the model says of it and of all that could have been done instead:
the regression of one on the other (the best linear predictor of effects, Chernozhukov et al.) has slope one where
effects are what the model says, and zero where they are chance. What is not recorded can keep the slope at one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ifonly import Cohort
from ifonly.data.episode import FloatArray
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.models.base import TransitionModel

STEPS = 4
"""After an action, over which its consequences are added up."""


@dataclass(frozen=True)
class EffectSlope:
    """How much of a claimed effect is found again, and the standard error of that, by episode."""

    slope: float
    error: float


@torch.no_grad()
def effect_slope(
    model: TransitionModel, behaviour: BehaviourModel, cohort: Cohort, weights: FloatArray
) -> EffectSlope | None:
    """Of `weights` [D] times the states; `model` is a copy for search. None where the model claims no effects.

    All episodes have equally many steps. `behaviour` says what else could have been done, and how often.
    """
    count, horizon = len(cohort), int(cohort.lengths[0])
    recorded = (cohort.states @ weights).reshape(count, horizon)
    states = torch.as_tensor(model.scaler.states.encode(cohort.states)).view(count, horizon, -1)
    context = torch.as_tensor(model.encode_context(cohort)).view(count, horizon, -1)
    actions = torch.tensor(cohort.actions).view(count, horizon)
    options = len(model.schema.actions)
    claimed, usual, found = [], [], []
    for t in range(horizon - STEPS):
        reached = states[:, t].repeat_interleave(options, 0)
        total = np.zeros(count * options)
        for ahead in range(STEPS):
            taken = actions[:, t + ahead].repeat_interleave(options)
            taken = torch.arange(options).repeat(count) if ahead == 0 else taken
            fixed = context[:, t + ahead].repeat_interleave(options, 0)
            reached = model.step(reached, fixed, taken, torch.zeros_like(reached))
            total += model.scaler.states.decode(reached.numpy()) @ weights
        values = total.reshape(count, options)
        shown = context[:, t, : len(model.schema.context)]
        chances = behaviour.probabilities(states[:, t], shown, torch.full((count,), t), scaler=model.scaler).numpy()
        expected = (values * chances).sum(axis=1)
        claimed.append(values[np.arange(count), actions[:, t].numpy()] - expected)
        usual.append(expected)
        found.append(recorded[:, t + 1 : t + 1 + STEPS].sum(axis=1) - expected)
    return _slope(*(np.stack(values, axis=1) for values in (claimed, usual, found)))


def _slope(claimed: FloatArray, usual: FloatArray, found: FloatArray) -> EffectSlope | None:
    """Of the regression of `found` on `claimed`, given what is usual, all [E, t]; errors of an episode go together."""
    others = np.column_stack([np.ones(usual.size), usual.ravel()])
    effect = claimed.ravel() - others @ np.linalg.lstsq(others, claimed.ravel(), rcond=None)[0]
    size = float(effect @ effect)
    if not size > 1e-12 * claimed.size:
        return None
    slope = float(effect @ found.ravel()) / size
    rest = found.ravel() - others @ np.linalg.lstsq(others, found.ravel(), rcond=None)[0] - slope * effect
    by_episode = (effect * rest).reshape(claimed.shape).sum(axis=1)
    return EffectSlope(slope, float(np.sqrt(by_episode @ by_episode)) / size)
