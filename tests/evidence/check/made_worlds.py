"""Small worlds whose truth is known, recorded, and models of them that are right or wrong in a chosen way."""

from collections.abc import Callable

import numpy as np
import torch

from ifonly import ActionSpace, Cohort, Feature, LinearModel, Schema
from ifonly.data.episode import Origin

SCHEMA = Schema(
    (
        Feature("pressure", "dynamic", unit="mmHg"),
        Feature("lactate", "dynamic", unit="mmol/L", scaling="log"),
        Feature("age", "static", unit="years"),
    ),
    ActionSpace.categories(["wait", "treat", "treat more"]),
)
STATE = np.array([[0.7, -0.3], [0.2, 0.6]])
ACTION = np.array([[0.0, 0.0], [0.5, -0.3], [1.0, -0.6]])
CONTEXT = np.array([[0.2], [0.3]])
SCALE = np.array([0.5, 0.4])


def gaussian(rng, shape, state):
    return rng.normal(size=shape)


def heavy_tailed(rng, shape, state):
    return rng.standard_t(3, size=shape) / np.sqrt(3)


def of_varying_size(rng, shape, state):
    return rng.normal(size=shape) * (1 + 0.6 * np.tanh(2 * state))


def together(rng, shape, state):
    common = rng.normal(size=(shape[0], 1))
    return 0.6 * common + 0.8 * rng.normal(size=shape)


def record(
    subjects: int = 250, *, noise=gaussian, lasting: float = 0.0, steps: int = 10, seed: int = 0, weights=None
) -> Cohort:
    """Episodes of z' = STATE z + CONTEXT c + ACTION[a] + SCALE * noise with z = (pressure, log lactate).

    `lasting` is the share of the noise's deviation that a hidden factor of the episode has; `weights` are the
    probabilities of the actions.
    """
    rng = np.random.default_rng(seed)
    age = np.repeat(rng.normal(size=subjects), steps).reshape(subjects, steps, 1)
    actions = rng.choice(3, p=weights, size=(subjects, steps))
    hidden = rng.normal(size=(subjects, 2))
    states = np.empty((subjects, steps, 2))
    states[:, 0] = rng.normal(size=(subjects, 2))
    for t in range(steps - 1):
        fresh = noise(rng, (subjects, 2), states[:, t])
        mixed = lasting * hidden + np.sqrt(1 - lasting**2) * fresh
        states[:, t + 1] = states[:, t] @ STATE.T + age[:, t] @ CONTEXT.T + ACTION[actions[:, t]] + SCALE * mixed
    states[..., 1] = np.exp(states[..., 1])
    return Cohort(
        schema=SCHEMA,
        ids=tuple(f"episode {i}" for i in range(subjects)),
        offsets=np.arange(subjects + 1) * steps,
        states=states.reshape(-1, 2),
        context=age.reshape(-1, 1),
        actions=actions.reshape(-1),
    )


def model(*, state=STATE, action=ACTION, context=CONTEXT, scale=SCALE) -> LinearModel:
    return LinearModel(SCHEMA, np.stack([state] * 3), offsets=action, context_matrix=context, noise_scale=scale)


def fitted(cohort: Cohort, *, actions: bool = True, lags: bool = True) -> LinearModel:
    """The least-squares model of a cohort, without effects of actions, or of lactate on pressure, if so asked."""
    rows = cohort.transitions()
    now, after = (np.column_stack([s[:, 0], np.log(s[:, 1])]) for s in (rows.states, rows.next_states))
    indicators = np.eye(3)[rows.actions] if actions else np.ones((len(rows), 1))
    coefficients = np.zeros((2 + 1 + indicators.shape[1], 2))
    for column in range(2):
        states = now if lags or column else now[:, :1]
        design = np.column_stack([states, rows.context, indicators])
        found = np.linalg.lstsq(design, after[:, column], rcond=None)[0]
        kept = [0, 1] if states.shape[1] == 2 else [0]
        coefficients[kept, column] = found[: len(kept)]
        coefficients[2:, column] = found[len(kept) :]
    offsets = coefficients[3:] if actions else np.repeat(coefficients[3:], 3, axis=0)
    predicted = now @ coefficients[:2] + rows.context @ coefficients[2:3] + offsets[rows.actions]
    return model(
        state=coefficients[:2].T, action=offsets, context=coefficients[2:3].T, scale=(after - predicted).std(axis=0)
    )


LARGE = 1500


def _of_other_noise(noise) -> tuple[LinearModel, Cohort]:
    return fitted(record(LARGE, noise=noise, seed=4)), record(noise=noise, seed=5)


SCENARIOS: dict[str, Callable[[], tuple[LinearModel, Cohort]]] = {
    "right": lambda: (model(), record(seed=2)),
    "fitted": lambda: (fitted(record(LARGE, seed=1)), record(seed=2)),
    "actions ignored": lambda: (fitted(record(LARGE, seed=1), actions=False), record(seed=2)),
    "a lag removed": lambda: (fitted(record(LARGE, seed=1), lags=False), record(seed=2)),
    "too little data": lambda: (fitted(record(3, seed=3)), record(seed=2)),
    "heavy tails": lambda: _of_other_noise(heavy_tailed),
    "varying size": lambda: _of_other_noise(of_varying_size),
    "noise together": lambda: _of_other_noise(together),
    "hidden factor": lambda: (
        fitted(record(LARGE, lasting=0.6, seed=4)),
        record(lasting=0.6, seed=5),
    ),
    "too sure": lambda: (model(scale=SCALE / 1.6), record(seed=2)),
    "shifted": lambda: (model(action=ACTION + np.array([0.3, 0.0])), record(seed=2)),
}
"""Models and cohorts to check them on, by what is wrong with the model."""


def carried(subjects: int = 250, *, share: float = 0.1, steps: int = 10, seed: int = 0) -> Cohort:
    """Episodes of which only `share` of the entries after the first step are measured, at random; the others repeat.

    What is measured is what `model()` makes of the state that the record holds before.
    """
    rng = np.random.default_rng(seed)
    age = np.repeat(rng.normal(size=subjects), steps).reshape(subjects, steps, 1)
    actions = rng.choice(3, size=(subjects, steps))
    measured = rng.random((subjects, steps, 2)) < share
    measured[:, 0] = True
    states = np.empty((subjects, steps, 2))
    states[:, 0] = rng.normal(size=(subjects, 2))
    for t in range(steps - 1):
        moved = states[:, t] @ STATE.T + age[:, t] @ CONTEXT.T + ACTION[actions[:, t]]
        moved = moved + SCALE * rng.normal(size=(subjects, 2))
        states[:, t + 1] = np.where(measured[:, t + 1], moved, states[:, t])
    states[..., 1] = np.exp(states[..., 1])
    return Cohort(
        schema=SCHEMA,
        ids=tuple(f"episode {i}" for i in range(subjects)),
        offsets=np.arange(subjects + 1) * steps,
        states=states.reshape(-1, 2),
        context=age.reshape(-1, 1),
        actions=actions.reshape(-1),
        origins=np.where(measured, Origin.MEASURED, Origin.CARRIED).reshape(-1, 2).astype(np.uint8),
    )


class Drifting(LinearModel):
    """The truth from recorded states; where it leads itself it drifts, by so much a step in deviations of the noise."""

    def follow(self, cohort: Cohort, drift: float) -> "Drifting":
        """Remember what was recorded."""
        self.recorded = {tuple(row) for row in self.scaler.states.encode(cohort.states).round(9).tolist()}
        self.drift = drift
        return self

    def step(self, states, context, actions, noise):
        """Next states."""
        known = [tuple(row) in self.recorded for row in states.reshape(-1, 2).numpy().round(9).tolist()]
        away = ~torch.tensor(known).reshape(*states.shape[:-1], 1)
        return super().step(states, context, actions, noise) + away * self.drift * self.noise_scale


def drifting(cohort: Cohort, drift: float) -> Drifting:
    """A model that is right one step ahead of every state of `cohort`."""
    made = Drifting(SCHEMA, np.stack([STATE] * 3), offsets=ACTION, context_matrix=CONTEXT, noise_scale=SCALE)
    return made.follow(cohort, drift)
