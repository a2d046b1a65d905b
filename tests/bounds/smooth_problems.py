"""Random problems that the Taylor bound knows: smooth models, rewards linear in the state or with penalties."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ifonly.bounds.taylor import can_expand
from ifonly.episodes import ActionSpace, Episode, Feature, Schema
from ifonly.instances import random_problem
from ifonly.models import Additive, LocationScale
from ifonly.problem import Problem
from ifonly.rewards import Linear

KINDS = ("location-scale", "additive", "linear")
LINEAR = ("linear", "with action costs")
REWARDS = (*LINEAR, "penalties")


def smooth_problems(count: int, start: int = 0, rewards: Sequence[str] = REWARDS, **settings: Any) -> Iterator[Problem]:
    """Kinds, depths, strengths, budgets, masks, rules and costs vary with the seed; `settings` fixes some.

    Activations are drawn by the seed; seeds that draw one with a kink are skipped.
    """
    seed = start
    while count:
        given = {
            "model_kind": KINDS[seed % len(KINDS)],
            "reward_kind": rewards[seed // len(KINDS) % len(rewards)],
            "max_changes": (3, 2, None, 1, 2)[seed % 5],
            "horizon": 2 + seed % 4,
            "actions": 2 + seed % 2,
            "state_size": 1 + seed // 2 % 3,
            "hidden": ((6,), (5, 4))[seed // 3 % 2],
            "strength": (0.3, 1.0, 2.0)[seed % 7 % 3],
            "rules": None,
        }
        problem = random_problem(seed, **{**given, **settings})
        seed += 1
        if can_expand(problem):
            count -= 1
            yield problem


def polynomial_arrays(slope: float, curvature: float, third: float, *, value: float = 0.0) -> dict[str, Any]:
    """A network of one state x and an action's shift: near zero, a polynomial of x + shift with these derivatives.

    Wide units give the slope and the curvature, a narrower one the third derivative where it is largest. With positive
    derivatives everything grows together: what limits the derivatives is nearly attained, so no part of it can miss.
    """
    wide, narrow, bent = 0.003, 0.2, math.atanh(3**-0.5)
    curving = curvature / (4 / 3**1.5 * wide**2)
    cubic = -third / (2 * narrow**3)
    level = (slope - curving * wide * 2 / 3 - cubic * narrow) / wide
    weights = [[wide], [wide], [narrow]]
    return {
        "state": weights,
        "action": weights,
        "bias": [0.0, -bent, 0.0],
        "output": [[level, curving, cubic]],
        "output_bias": [value + curving * 3**-0.5],
    }


def polynomial_problem(
    step: Sequence[float],
    scale: Sequence[float] | None = None,
    *,
    shifts: Sequence[float] = (0.05, 0.1),
    horizon: int = 4,
    max_changes: int = 3,
) -> Problem:
    """Next = polynomial, plus softplus of another times the noise if `scale` is given; the observed path stays at 0."""
    schema = Schema((Feature("x", "dynamic"),), ActionSpace.from_vectors([[0.0], *([shift] for shift in shifts)]))
    model: Additive | LocationScale
    if scale is None:
        model = Additive(schema, hidden=(3,)).double()
        model.set_scaler(model.scaler)
        model.location.load_weights("location", polynomial_arrays(*step))
    else:
        arrays = polynomial_arrays(*step, value=-math.log(2.0))  # the noise 1 times softplus(0)
        model = LocationScale.from_weights(schema, location=arrays, scale=polynomial_arrays(*scale), covariance=[[1.0]])
    episode = Episode("polynomial", schema, states=np.zeros((horizon, 1)), actions=np.zeros(horizon, dtype=np.int64))
    return Problem.from_episode(episode, model, Linear({"x": 1.0}), max_changes)


POLYNOMIALS: dict[str, Problem] = {
    "slope": polynomial_problem((0.9, 0.05, 0.05)),
    "curvature": polynomial_problem((0.8, 0.8, 0.05)),
    "third": polynomial_problem((0.8, 0.1, 1.5)),
    "all": polynomial_problem((0.7, 0.5, 0.5)),
    "scale": polynomial_problem((0.5, 0.1, 0.05), (0.3, 1.5, 0.1)),
    "near": polynomial_problem((0.8, 0.02, 1.5), shifts=(0.005, 0.01)),
    "far": polynomial_problem((0.6, 0.05, 1.5), shifts=(0.3, 0.5)),
    "far and curved": polynomial_problem((0.5, 0.5, 0.8), shifts=(0.2, 0.4)),
    "many changes": polynomial_problem((0.8, 0.6, 0.1), shifts=(0.1, 0.2), horizon=5, max_changes=4),
    "steep scale": polynomial_problem((0.3, 0.1, 0.05), (1.0, 0.2, 0.2)),
}
