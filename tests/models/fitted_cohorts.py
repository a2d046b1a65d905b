"""Cohorts of a known truth, and small models to fit to them."""

import numpy as np
import torch

from ifonly import ActionSpace, Cohort, Feature, LocationScale, Schema

SCHEMA = Schema(
    (Feature("pressure", "dynamic"), Feature("lactate", "dynamic", scaling="log"), Feature("age", "static")),
    ActionSpace.categories(["wait", "treat", "treat more"]),
)
STATE = np.array([[0.8, -0.2], [0.1, 0.6]])
ACTION = np.array([[0.0, 0.0], [0.5, -0.3], [1.0, -0.6]])
CONTEXT = np.array([0.2, 0.3])
FACTOR = np.array([[0.5, 0.0], [0.2, 0.3]])
COVARIANCE = FACTOR @ FACTOR.T


def make_cohort(mean, *, subjects: int, seed: int, episodes_each: int = 1, steps: int = 12) -> Cohort:
    """Episodes of link-space dynamics z' = mean(z, context, actions) + FACTOR u, where z = (pressure, log lactate)."""
    rng = np.random.default_rng(seed)
    count = subjects * episodes_each
    context = np.repeat(rng.normal(size=count), steps).reshape(count, steps, 1)
    actions = rng.integers(3, size=(count, steps))
    states = np.empty((count, steps, 2))
    states[:, 0] = rng.normal(size=(count, 2))
    for t in range(steps - 1):
        centre = mean(states[:, t], context[:, t], actions[:, t])
        states[:, t + 1] = centre + rng.normal(size=(count, 2)) @ FACTOR.T
    states[..., 1] = np.exp(states[..., 1])
    return Cohort(
        schema=SCHEMA,
        ids=tuple(f"episode {i}" for i in range(count)),
        subjects=tuple(f"subject {i // episodes_each}" for i in range(count)),
        offsets=np.arange(count + 1) * steps,
        states=states.reshape(-1, 2),
        context=context.reshape(-1, 1),
        actions=actions.reshape(-1),
    )


def linear(states, context, actions):
    return states @ STATE.T + context * CONTEXT + ACTION[actions]


def wavy(states, context, actions):
    return 2 * np.sin(2 * states) + ACTION[actions]


def small(**settings) -> LocationScale:
    return LocationScale(SCHEMA, hidden=(16,), **settings)


def weights(model) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same_bits(one, two) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
