"""Cohorts whose clinicians follow a policy that is written down."""

from functools import cache

import numpy as np

from ifonly.data import ActionSpace, Feature, Schema
from ifonly.data.cohort import Cohort
from ifonly.evidence.behaviour import BehaviourModel, BehaviourSettings, fit_behaviour
from ifonly.simulate.patients import FLUID_THRESHOLDS, HESITATION, LEVELS, PRESSOR_THRESHOLDS, treatment
from ifonly.simulate.world import sepsis_schema, world_scaler

QUICK = BehaviourSettings(hidden=(16,), epochs=15, most_states=500)


def small_schema(actions: int = 3) -> Schema:
    return Schema(
        (Feature("x", "dynamic"), Feature("dose", "dynamic", scaling="log", log_offset=1.0), Feature("age", "static")),
        ActionSpace.categories([f"choice {number}" for number in range(actions)]),
        step_length=4,
        step_unit="h",
    )


def small_cohort(subjects: int = 60, steps: int = 5, *, seed: int = 0, unused: bool = False) -> Cohort:
    """Action 1 is likelier the larger x is; with `unused`, action 2 is never taken."""
    rng = np.random.default_rng(seed)
    count = subjects * steps
    states = np.column_stack([rng.normal(size=count), rng.gamma(2.0, size=count)])
    urge = 1 / (1 + np.exp(-2 * states[:, 0]))
    actions = (rng.random(count) < urge).astype(int)
    if not unused:
        actions = np.where(rng.random(count) < 0.1, 2, actions)
    return Cohort(
        schema=small_schema(),
        ids=tuple(f"e{number}" for number in range(subjects)),
        offsets=np.arange(subjects + 1) * steps,
        states=states,
        context=np.repeat(rng.uniform(20, 90, size=subjects), steps)[:, np.newaxis],
        actions=actions,
    )


@cache
def learned() -> BehaviourModel:
    """A behaviour model of the small cohort, not to be altered."""
    return fit_behaviour(small_cohort(), settings=QUICK)


def clinician_cohort(episodes: int, *, seed: int, steps: int = 5) -> Cohort:
    """States at random, treated by the simulated world's clinician in an even mood."""
    rng = np.random.default_rng(seed)
    schema, scaler = sepsis_schema(), world_scaler()
    states = np.clip(rng.normal(scale=0.7, size=(episodes, steps, len(schema.dynamic))), -1.2, 0.8)
    static = np.column_stack([rng.random(episodes) < 0.5, rng.random(episodes) < 0.1, rng.uniform(40, 80, episodes)])
    context = np.concatenate(
        [np.repeat(static[:, None], steps, axis=1), rng.integers(2, size=(episodes, steps, 1))], axis=2
    )
    draws = rng.random((steps, episodes, 2))
    actions = np.stack([treatment(states[:, t], t, np.zeros((episodes, 2)), draws[t]) for t in range(steps)], axis=1)
    return Cohort(
        schema=schema,
        ids=tuple(f"e{number}" for number in range(episodes)),
        offsets=np.arange(episodes + 1) * steps,
        states=scaler.states.decode(states).reshape(-1, states.shape[2]),
        context=context.reshape(-1, context.shape[2]),
        actions=actions.ravel(),
    )


def clinician_probabilities(states: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """What `treatment` does in an even mood [N, 25], from its definition: ordered logistic choices of two doses."""
    names = [feature.name for feature in sepsis_schema().dynamic]
    column = {name: states[:, place] for place, name in enumerate(names)}
    debt = column["FiO2"] - column["PaO2"]
    needs = (
        (PRESSOR_THRESHOLDS, -column["MAP"] + 0.3 * column["SOFA"]),
        (FLUID_THRESHOLDS, -0.7 * column["urine"] - 0.5 * column["MAP"] - 0.25 * debt + 1.2 * 0.7**steps),
    )
    levels = []
    for thresholds, need in needs:
        above = 1 / (1 + np.exp((np.array(thresholds) - need[:, None]) / HESITATION))
        edges = np.column_stack([np.ones(len(need)), above, np.zeros(len(need))])
        levels.append(edges[:, :-1] - edges[:, 1:])
    return (levels[0][:, :, None] * levels[1][:, None, :]).reshape(len(states), LEVELS * LEVELS)
