"""A linear world whose truth is known, its cohort, and a model that is wrong about one action in one region."""

from functools import cache

import numpy as np
import torch

from ifonly.data import ActionSpace, Cohort, Episode, Feature, Schema
from ifonly.evidence.behaviour import BehaviourModel, BehaviourSettings, fit_behaviour
from ifonly.models.analytic import LinearModel

DOSES = 4
WRONG_ACTION = 3
BIAS = (0.8, 0.0)
"""How far the wrong model is off where it is wrong, in deviations of the noise."""

SCHEMA = Schema(
    (Feature("burden", "dynamic", scaling="none"), Feature("reserve", "dynamic", scaling="none")),
    ActionSpace(tuple((float(dose),) for dose in range(DOSES)), tuple(f"dose {dose}" for dose in range(DOSES))),
)
MATRICES = np.array([[[0.8, 0.1], [0.0, 0.7]]] * DOSES)
OFFSETS = np.array([[-0.3 * dose, 0.1 * dose] for dose in range(DOSES)])
SCALE = np.array([0.5, 0.5])


class WrongModel(LinearModel):
    """Off by BIAS for one action where the reserve is positive, and nowhere else."""

    kind = "wrong for one action"

    def _without_noise(self, states, context, actions):
        off = (actions == WRONG_ACTION) & (states[..., 1] > 0)
        push = self.noise_scale * torch.tensor(BIAS, dtype=torch.float64)
        return super()._without_noise(states, context, actions) - off.unsqueeze(-1) * push


def true_model() -> LinearModel:
    return LinearModel(SCHEMA, MATRICES, offsets=OFFSETS, noise_scale=SCALE)


def wrong_model() -> LinearModel:
    return WrongModel(SCHEMA, MATRICES, offsets=OFFSETS, noise_scale=SCALE)


@cache
def recorded(episodes: int = 800, steps: int = 21, seed: int = 0) -> Cohort:
    """Episodes of the true world; the higher the burden, the likelier a high dose."""
    rng = np.random.default_rng(seed)
    states, actions = np.zeros((episodes, steps, 2)), np.zeros((episodes, steps), dtype=int)
    states[:, 0] = rng.normal(size=(episodes, 2))
    for t in range(steps):
        urge = states[:, t, 0] + 1.5 + 1.2 * rng.normal(size=episodes)
        actions[:, t] = np.clip(np.round(urge), 0, DOSES - 1)
        if t + 1 < steps:
            mean = np.einsum("nij,nj->ni", MATRICES[actions[:, t]], states[:, t]) + OFFSETS[actions[:, t]]
            states[:, t + 1] = mean + SCALE * rng.normal(size=(episodes, 2))
    return Cohort.from_episodes(Episode(f"e{n}", SCHEMA, states[n], actions[n]) for n in range(episodes))


@cache
def behaviour_of(episodes: int = 800, seed: int = 0) -> BehaviourModel:
    settings = BehaviourSettings(hidden=(), epochs=2, most_states=100)
    return fit_behaviour(recorded(episodes, seed=seed), settings=settings)
