"""Random problems that the Taylor bound knows: smooth models, rewards linear in the state or with penalties."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ifonly.bounds.taylor import can_expand
from ifonly.constraints import Constraints
from ifonly.data import ActionSpace, Axis, Episode, Feature, Schema
from ifonly.models import Additive, LocationScale
from ifonly.problem import Problem
from ifonly.query import Query
from ifonly.rewards import Linear, minus
from ifonly.testing.instances import random_problem

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


FAMILIES: dict[str, dict[str, Any]] = {
    "constrained": {"model_kind": "location-scale", "constrained": True, "hidden": (6,)},
    "strong scale": {"model_kind": "location-scale", "constrained": False, "hidden": (6,), "strength": 1.5},
    "additive": {"model_kind": "additive", "hidden": (6,), "strength": 1.5},
    "deep": {"model_kind": "location-scale", "hidden": (5, 4), "strength": 0.7},
    "deep and constrained": {"model_kind": "additive", "constrained": True, "hidden": (4, 3, 3)},
}
"""Kinds of models for which the expansions know different things."""


def family(name: str, count: int, start: int = 0, **settings: Any) -> Iterator[Problem]:
    """Problems of a kind; the reward is its own tangent, so that expansions can be held against rollouts."""
    given = {"horizon": 5, "actions": 3, "state_size": 3, "max_changes": 2, "rules": False}
    yield from smooth_problems(count, start, LINEAR, **{**given, **FAMILIES[name], **settings})


def polynomial_arrays(slope: float, curvature: float, third: float, *, value: float = 0.0) -> dict[str, Any]:
    """A network of one state x and an action's shift: near zero, a polynomial of x + shift with these derivatives.

    Wide units give the slope and the curvature, a narrower one the third derivative where it is largest. With positive
    derivatives everything grows together: what bounds the remainders is nearly attained, so no part of it can miss.
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


def with_unit(arrays: dict[str, Any], weight: float, bias: float, output: float) -> dict[str, Any]:
    """One more hidden unit, which is zero at zero."""
    state = [*arrays["state"], [weight]]
    return {
        "state": state,
        "action": state,
        "bias": [*arrays["bias"], bias],
        "output": [[*arrays["output"][0], output]],
        "output_bias": [arrays["output_bias"][0] - output * math.tanh(bias)],
    }


def turned(arrays: dict[str, Any], ahead: Sequence[float], onto: Sequence[float]) -> dict[str, Any]:
    """A network of one state, of `ahead`.x for states x [D], and what it gives times `onto` [D]."""
    return {
        **arrays,
        "state": np.outer(arrays["state"], ahead),
        "output": np.outer(onto, arrays["output"]),
        "output_bias": np.asarray(onto) * arrays["output_bias"][0],
    }


def still_problem(
    model: Additive | LocationScale, *, reward: Sequence[float] = (1.0,), horizon: int = 4, max_changes: int = 3
) -> Problem:
    """The observed path stays at zero."""
    names = [feature.name for feature in model.schema.dynamic]
    states = np.zeros((horizon, len(names)))
    episode = Episode("still", model.schema, states=states, actions=np.zeros(horizon, dtype=np.int64))
    return Problem.from_episode(episode, model, Query(Linear(dict(zip(names, reward, strict=True))), max_changes))


def shifting_schema(shifts: Sequence[float], size: int = 1) -> Schema:
    """Actions shift the state before the step; the first, which is the observed one, does not."""
    features = tuple(Feature(f"x{number}", "dynamic") for number in range(size))
    return Schema(features, ActionSpace.from_vectors([[0.0], *([shift] for shift in shifts)]))


def additive_model(schema: Schema, arrays: dict[str, Any]) -> Additive:
    model = Additive(schema, hidden=(len(arrays["bias"]),)).double()
    model.set_scaler(model.scaler)
    model.location.load_weights("location", arrays)
    return model


def polynomial_problem(
    step: Sequence[float], *, shifts: Sequence[float] = (0.05, 0.1), horizon: int = 4, max_changes: int = 3
) -> Problem:
    """Next = polynomial of the state."""
    model = additive_model(shifting_schema(shifts), polynomial_arrays(*step))
    return still_problem(model, horizon=horizon, max_changes=max_changes)


def scale_problem(step: Sequence[float], scale: Sequence[float], *, shifts: Sequence[float] = (0.05, 0.1)) -> Problem:
    """Next = polynomial, plus softplus of another times the noise."""
    model = LocationScale.from_weights(
        shifting_schema(shifts),
        location=polynomial_arrays(*step, value=-math.log(2.0)),  # the noise 1 times softplus(0)
        scale=polynomial_arrays(*scale),
        covariance=[[1.0]],
    )
    return still_problem(model)


def turned_problem(step: Sequence[float], *, shifts: Sequence[float]) -> Problem:
    """A polynomial along a line in the plane; where it leads, and what it earns, lie a little aside."""
    ahead, onto, reward = ([math.cos(angle), math.sin(angle)] for angle in (0.5, 0.7, 0.3))
    arrays = turned(polynomial_arrays(*step), ahead, onto)
    return still_problem(additive_model(shifting_schema(shifts, size=2), arrays), reward=reward)


def bending_problem(weight: float, bias: float) -> Problem:
    """A hidden unit that hardly bends at the observed path, and much at -bias / weight."""
    arrays = with_unit(polynomial_arrays(0.7, 0.05, 0.01), weight=weight, bias=bias, output=0.3)
    return still_problem(additive_model(shifting_schema((0.05, 0.1)), arrays), horizon=2, max_changes=2)


def with_late_action(problem: Problem) -> Problem:
    """The last action is allowed from the second step on: it leads far beyond what earlier ones do."""
    allowed = np.ones((problem.horizon, problem.action_count), dtype=bool)
    allowed[0, -1] = False
    return Problem.from_episode(
        problem.episode,
        problem.model,
        Query(problem.reward, problem.max_changes, constraints=Constraints().restricted_to(allowed, problem.episode)),
    )


def late_problem() -> Problem:
    """Something bends between the observed path and where a late action leads."""
    arrays = with_unit(polynomial_arrays(0.7, 0.01, 0.01), weight=1.0, bias=0.0, output=-0.2)
    arrays["action"] = [[0.94 * row[0]] for row in arrays["state"][:3]] + [[0.0]]
    return with_late_action(still_problem(additive_model(shifting_schema((0.01, 1.0)), arrays)))


def late_scale_problem() -> Problem:
    """The scale's network is straight along the observed path, and curved where a late action leads."""
    slope, third = 0.3, 0.4
    value = -(slope + third / 6)  # zero where the late action leads
    arrays = polynomial_arrays(0.5, 0.0, 0.01, value=-math.log1p(math.exp(value)))
    arrays["action"] = [[2.0 * row[0]] for row in arrays["state"]]
    scale = {**polynomial_arrays(slope, 0.0, third, value=value), "action": [[0.0]] * 3}
    model = LocationScale.from_weights(shifting_schema((0.01, 1.0)), location=arrays, scale=scale, covariance=[[1.0]])
    return with_late_action(still_problem(model))


def switching_problem() -> Problem:
    """An action that switches a curvature on: second changes are worth the more, the further the first ones lead."""
    arrays = with_unit(polynomial_arrays(0.8, 1.0, 0.01), weight=0.3, bias=-6.0, output=0.5)
    arrays["action"] = [[0.0]] * 3 + [[6.0 - 0.6585]]
    return still_problem(additive_model(shifting_schema((1.0,)), arrays), horizon=3)


def deep_problem(*, weight: float = 0.9, slope: float = 0.9) -> Problem:
    """Next = slope tanh(weight x) / weight, of which a second hidden layer makes next to nothing else."""
    model = Additive(shifting_schema((0.1, 0.2)), hidden=(1, 1)).double()
    model.set_scaler(model.scaler)
    network, small = model.location, 1e-3
    with torch.no_grad():
        for matrix in (network.state, network.action):
            matrix.raw.fill_(weight)
        for bias in network.biases:
            bias.zero_()
        network.layers[0].raw.fill_(small * slope / weight)
        network.layers[1].raw.fill_(1 / small)
    return still_problem(model)


POLYNOMIALS: dict[str, Problem] = {
    "slope": polynomial_problem((0.9, 0.05, 0.05)),
    "curvature": polynomial_problem((0.8, 0.8, 0.05)),
    "third": polynomial_problem((0.8, 0.1, 1.5)),
    "all": polynomial_problem((0.7, 0.5, 0.5)),
    "scale": scale_problem((0.5, 0.1, 0.05), (0.3, 1.5, 0.1)),
    "scale's third": scale_problem((0.6, 0.05, 0.05), (0.5, 0.05, 0.4)),
    "near": polynomial_problem((0.8, 0.02, 1.5), shifts=(0.005, 0.01)),
    "far": polynomial_problem((0.6, 0.05, 1.5), shifts=(0.3, 0.5)),
    "far and curved": polynomial_problem((0.5, 0.5, 0.8), shifts=(0.2, 0.4)),
    "weak and far": polynomial_problem((0.7, 0.05, 0.45), shifts=(0.4, 0.8)),
    "weak scale and far": scale_problem((0.4, 0.05, 0.05), (0.5, 0.3, 0.3), shifts=(0.3, 0.6)),
    "many changes": polynomial_problem((0.8, 0.6, 0.1), shifts=(0.1, 0.2), horizon=5, max_changes=4),
    "steep scale": scale_problem((0.3, 0.1, 0.05), (1.0, 0.2, 0.2)),
    "turned": turned_problem((0.8, 0.5, 1.0), shifts=(0.1, 0.2)),
    "weak and turned": turned_problem((0.8, 0.4, 0.4), shifts=(0.4, 0.8)),
    "towards a bend": bending_problem(weight=1.5, bias=3.2),
    "far from a bend": bending_problem(weight=6.0, bias=18.0),
    "late": late_problem(),
    "late scale": late_scale_problem(),
    "switching": switching_problem(),
    "deep": deep_problem(),
}
"""Problems whose remainders are nearly as large as their bounds."""


def weak_model(seed: int) -> LocationScale:
    """The paper's size, 9 features, 25 actions and 200 units, with effects as small as those of learned models."""
    levels = (0.0, 0.5, 1.0, 1.5, 2.0)
    schema = Schema(
        tuple(Feature(f"x{number}", "dynamic") for number in range(9)),
        ActionSpace.product(Axis("drug", "mg", levels), Axis("fluid", "L", levels)),
    )
    model = LocationScale(schema)
    generator = torch.Generator().manual_seed(seed)
    model.initialize(generator)
    with torch.no_grad():
        for network, strength in ((model.location, 0.6), (model.scale, 0.3)):
            network.state.raw.mul_(strength)
            network.action.raw.mul_(0.3)
            network.layers[0].raw.mul_(strength)
            for bias in network.biases:
                bias.copy_(0.2 * torch.randn(bias.shape, generator=generator))
    return model.for_search()


@torch.no_grad()
def full_size_problem(horizon: int = 6) -> Problem:
    """An episode of that model, with three changes: bounds are close, and most of the tree is pruned."""
    model = weak_model(0)
    generator = torch.Generator().manual_seed(1)
    actions = torch.randint(25, (horizon,), generator=generator)
    context = torch.zeros(horizon, 0, dtype=torch.float64)
    states = [torch.randn(9, generator=generator, dtype=torch.float64)]
    for t in range(horizon - 1):
        states.append(model.sample(states[-1], context[t], actions[t], generator=generator))
    episode = Episode(
        "full size",
        model.schema,
        states=model.scaler.states.decode(torch.stack(states).numpy()),
        actions=actions.numpy(),
    )
    return Problem.from_episode(episode, model, Query(minus("x0"), 3))
