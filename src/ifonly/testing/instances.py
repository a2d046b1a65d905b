"""Problems made to order: the hardness proof's, whose answer is known, and small random ones for tests."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.constraints import Constraints
from ifonly.data.episode import Episode
from ifonly.data.scaling import Columns, Scaler
from ifonly.data.schema import ActionSpace, Axis, Feature, Schema
from ifonly.errors import InputError, ReplayError
from ifonly.models.additive import Additive
from ifonly.models.analytic import LinearModel, PartitionModel
from ifonly.models.base import TrainableModel, TransitionModel
from ifonly.models.flow import MonotoneFlow
from ifonly.models.location_scale import LocationScale
from ifonly.models.networks import NetworkModel
from ifonly.models.noise import PRIORS
from ifonly.models.post_nonlinear import PostNonlinear, Spline
from ifonly.models.recipes import find_recipe
from ifonly.problem import EnsembleProblem, Problem
from ifonly.query import Query
from ifonly.rewards import ActionCost, Custom, Goal, Hinge, Linear, PiecewiseLinear, Reward, Total, Within
from ifonly.testing.random_rules import random_constraints

NETWORK_MODELS: dict[str, type[LocationScale | Additive | PostNonlinear | MonotoneFlow]] = {
    model.kind: model for model in (LocationScale, Additive, PostNonlinear, MonotoneFlow)
}
MODEL_KINDS = (*NETWORK_MODELS, LinearModel.kind)
"""The kinds of model that random problems have."""
LARGEST_NOISE = 20.0
"""Larger noise magnifies rounding beyond what counts as rounding."""
SINGLE_REWARDS = ("linear", "piecewise linear", "penalties", "with action costs", "custom")
"""Rewards that are the same at every step: of these the seed chooses."""
REWARD_KINDS = (*SINGLE_REWARDS, "goals")
"""The kinds of reward that random problems have."""


def partition_problem(values: Sequence[int]) -> Problem:
    """The problem of the hardness proof (app:hardness): its best outcome is 0 exactly when `values` can be split
    into two parts of equal sum, and negative otherwise.

    At step t the running total is the sum of the first t values and the next value is due; action "diff" drops it from
    the total. Every observed action is "null" and any number of changes is allowed. With h half the sum of all
    values, the reward is -max(0, total - h - h next) - max(0, h - total - h next): zero until the last step, where it
    is minus the distance of the total from h.

    The constant 2 sqrt(1 + h) that lem:np-helper states for this reward is too small: its proof drops a square on h.
    One hinge has slope sqrt(1 + h^2), both together 2 h; the bound reward's constant is the larger of the two.

    >>> partition_problem([3, 1, 2]).outcome([0, 1, 1, 0])  # 3 = 1 + 2
    0.0
    >>> problem = partition_problem([10, 10])
    >>> states = torch.tensor([[10.0, 0.0], [10.0, -1.0]], dtype=torch.float64)  # at distance 1
    >>> slope = -float(problem.rewards(0, states, torch.tensor(0)).diff())
    >>> slope, slope > 2 * (1 + 10) ** 0.5, slope <= float(problem.bound_reward.lipschitz[0])
    (20.0, True, True)
    """
    numbers = _checked_values(values)
    half = sum(numbers) / 2
    totals = np.cumsum([0, *numbers])
    model = PartitionModel()
    states = np.stack([totals, [*numbers, 0]], axis=1).astype(np.float64)
    actions = np.zeros(len(states), dtype=np.int64)
    episode = Episode(f"partition of {len(numbers)} values", model.schema, states=states, actions=actions)
    reward = PiecewiseLinear(
        (
            Hinge(-1.0, {"total": 1.0, "next": -half}, -half),
            Hinge(-1.0, {"total": -1.0, "next": -half}, half),
        )
    )
    return Problem.from_episode(episode, model, Query(reward, None))


def partition_exists(values: Sequence[int]) -> bool:
    """Whether `values` can be split into two parts of equal sum, by listing all sums of subsets.

    >>> partition_exists([3, 1, 2]), partition_exists([3, 1, 3])
    (True, False)
    """
    numbers = _checked_values(values)
    sums = {0}
    for number in numbers:
        sums |= {total + number for total in sums}
    return sum(numbers) % 2 == 0 and sum(numbers) // 2 in sums


def _checked_values(values: Sequence[int]) -> list[int]:
    numbers = [int(value) for value in values]
    if not numbers or any(number < 1 or number != value for number, value in zip(numbers, values, strict=True)):
        raise InputError(f"partition: {list(values)} must be at least one positive whole number.")
    return numbers


@dataclass(frozen=True)
class RandomProblemSettings:
    """What a random problem looks like; None lets the seed choose."""

    model_kind: str | None = None
    """One of `MODEL_KINDS`."""
    horizon: int = 5
    actions: int = 3
    state_size: int = 2
    context_size: int = 1
    max_changes: int | None = 2
    reward_kind: str | None = None
    """One of `REWARD_KINDS`."""
    masked: bool | None = None
    """Whether some actions are forbidden at some steps."""
    rules: bool | None = False
    """Whether there are random `Constraints` (of every kind) and a cost of changes; actions are doses then."""
    constrained: bool | None = None
    """Whether networks have Lipschitz limits."""
    strength: float = 2.0
    """Factor on the initial weights of saturating networks without limits: large ones bend and saturate."""
    hidden: tuple[int, ...] = (6,)
    scaling: str = "linear"
    """Of the dynamic features: "linear", "bounded", "log", or "mixed", each feature another."""
    residual: str | None = "none"
    """What locations add to their networks: "none", "identity" or "diagonal"; None also draws among all priors."""
    recipe: str | None = None
    """A recipe of `fit` whose kind of model is asked, with random weights; it goes before `model_kind`."""

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("model_kind", self.model_kind, MODEL_KINDS),
            ("reward_kind", self.reward_kind, REWARD_KINDS),
        ):
            if value is not None and value not in choices:
                raise InputError(f"random problem: {name} {value!r} is unknown; choose from {list(choices)}.")
        for name, least in (("horizon", 2), ("actions", 1), ("state_size", 1), ("context_size", 0)):
            if getattr(self, name) < least:
                raise InputError(f"random problem: {name}={getattr(self, name)} must be at least {least}.")


def random_problem(seed: int, **settings: Any) -> Problem:
    """A small problem, the same for the same seed and settings, which are fields of `RandomProblemSettings`.

    Model, scaling, reward and restrictions are random; the episode is drawn from the model itself, so that its noise
    is what the model expects.

    >>> problem = random_problem(7, model_kind="linear", horizon=4)
    >>> problem.horizon, problem.model.kind, problem.noise.shape
    (4, 'linear', torch.Size([3, 2]))
    """
    unknown = set(settings) - {field.name for field in fields(RandomProblemSettings)}
    if unknown:
        raise InputError(f"random problem: {sorted(unknown)} are no fields of RandomProblemSettings.")
    chosen = RandomProblemSettings(**settings)
    rng = np.random.default_rng(seed)
    if chosen.rules is None:
        chosen = replace(chosen, rules=rng.random() < 0.5)
    schema = _random_schema(rng, chosen)
    model = random_model(schema, rng, chosen).for_search()
    episode = _random_episode(f"random {seed}", model, rng, chosen)
    problem = Problem.from_episode(
        episode,
        model,
        Query(
            _random_reward(schema, rng, chosen),
            chosen.max_changes,
            constraints=_random_choices(episode, rng, chosen),
            change_cost=float(rng.choice([0.0, 0.1, 0.5])) if chosen.rules else 0.0,
        ),
    )
    return _with_random_rules(problem, rng) if chosen.rules else problem


def random_ensemble(
    seed: int, *, members: int = 3, objective: str | float = "mean", **settings: Any
) -> EnsembleProblem:
    """The query of `random_problem`, put to its model and to `members - 1` others that know nothing of it.

    They are of the kind asked for, or each of any kind, so they disagree on everything but the recording. Those for
    which the recording is a wild coincidence (noise of more than `LARGEST_NOISE`) are drawn again.

    >>> ensemble = random_ensemble(7, members=4, objective="worst", model_kind="linear")
    >>> len(ensemble.models), ensemble.noise.shape
    (4, torch.Size([4, 4, 2]))
    """
    problem = random_problem(seed, **settings)
    rng = np.random.default_rng([seed, 1])
    models = [problem.model]
    while len(models) < members:
        model = random_model(problem.episode.schema, rng, RandomProblemSettings(**settings))
        model.set_scaler(problem.model.scaler)
        with torch.no_grad(), suppress(ReplayError):
            other = problem.put_to(model)
            if other.noise.abs().max() <= LARGEST_NOISE:
                models.append(other.model)
    return EnsembleProblem.from_problem(problem, models, objective=objective)


def _with_random_rules(problem: Problem, rng: np.random.Generator) -> Problem:
    """Rules that leave at least one sequence: drawn again, and again with fewer of them, until some do."""
    for attempt in range(100):
        try:
            rules = random_constraints(problem.episode, rng, share=0.5 * 0.97**attempt)
            return problem.with_constraints(replace(rules, choices=problem.constraints.choices))
        except InputError:  # a contradiction, or more requirements than changes
            continue
    return problem


def random_model(
    schema: Schema, rng: np.random.Generator, settings: RandomProblemSettings | None = None
) -> TransitionModel:
    """A model with random weights in every part, networks in float32."""
    settings = settings or RandomProblemSettings()
    kind = settings.model_kind or str(rng.choice(MODEL_KINDS))
    scaler = _random_scaler(schema, rng)
    model: NetworkModel
    if settings.recipe is not None:
        model = find_recipe(settings.recipe).untrained(schema, hidden=settings.hidden)
        model.set_scaler(scaler)
    elif kind == LinearModel.kind:
        return _random_linear_model(schema, rng, scaler)
    else:
        model = _untrained(NETWORK_MODELS[kind], schema, rng, settings, scaler)
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    model.initialize(generator)
    # Where nothing saturates, large weights would make states grow without end.
    strength = settings.strength if model.activation in ("tanh", "sigmoid") else 1.0
    with torch.no_grad():
        for network in model.networks():
            for matrix in network.matrices():
                matrix.raw.mul_(strength)
        # Biases, priors and distortions start at zero: give them a life of their own.
        for name, parameter in model.named_parameters():
            if not name.endswith(".raw"):
                parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator))
    return model


def _untrained(
    model_class: type[LocationScale | Additive | PostNonlinear | MonotoneFlow],
    schema: Schema,
    rng: np.random.Generator,
    settings: RandomProblemSettings,
    scaler: Scaler,
) -> LocationScale | Additive | PostNonlinear | MonotoneFlow:
    constrained = rng.random() < 0.5 if settings.constrained is None else settings.constrained
    limits = [float(limit) for limit in rng.uniform(0.1, 1.2, size=4)]
    common: dict[str, Any] = {
        "hidden": settings.hidden,
        "activation": str(rng.choice(["tanh", "tanh", "tanh", "softplus", "relu", "sigmoid"])),
        "prior": str(rng.choice(["gaussian", "independent", "laplace"])),
        "scaler": scaler,
    }
    common["residual"] = settings.residual
    if settings.residual is None:
        common |= {"residual": str(rng.choice(["identity", "diagonal"])), "prior": str(rng.choice(list(PRIORS)))}
    if model_class is PostNonlinear:
        common["distortion"] = Spline(bins=4, reach=3.0, steepness=4.0)
    if constrained:
        several: dict[type, Any] = {LocationScale: (limits[0], limits[1]), MonotoneFlow: limits}
        common["lipschitz"] = several.get(model_class, limits[0])
    return model_class(schema, **common)


def _random_linear_model(schema: Schema, rng: np.random.Generator, scaler: Scaler) -> LinearModel:
    actions, states, contexts = len(schema.actions), len(schema.dynamic), len(schema.context)
    return LinearModel(
        schema,
        rng.normal(size=(actions, states, states)) / np.sqrt(states),
        offsets=rng.normal(size=(actions, states)),
        context_matrix=rng.normal(size=(states, contexts)),
        noise_scale=rng.uniform(0.2, 1.5, size=states),
        scaler=scaler,
    )


def _random_schema(rng: np.random.Generator, settings: RandomProblemSettings) -> Schema:
    dynamic = [_random_feature(i, rng, settings.scaling) for i in range(settings.state_size)]
    context = [
        Feature(f"context {i}", "static" if i == 0 else "contextual", scaling="log" if i == 1 else "linear")
        for i in range(settings.context_size)
    ]
    count = settings.actions
    style = rng.integers(3)
    if settings.rules:
        space = ActionSpace.product(*_dose_axes(count))
    elif style == 0:
        space = ActionSpace.categories([f"choice {i}" for i in range(count)])
    elif style == 1:
        space = ActionSpace.product(Axis("dose", "mg", tuple(float(level) for level in range(count))))
    else:
        space = ActionSpace.from_vectors(rng.normal(size=(count, 2)).tolist())
    return Schema((*dynamic, *context), space)


def _random_feature(i: int, rng: np.random.Generator, scaling: str) -> Feature:
    kind = ("bounded", "log", "linear")[i % 3] if scaling == "mixed" else scaling
    if kind != "bounded":
        offset = 0.3 if kind == "log" and i % 2 == 1 else 0.0  # some are cut at zero, others never get there
        return Feature(f"state {i}", "dynamic", scaling=kind, log_offset=offset)  # type: ignore[arg-type]
    low, high = -rng.uniform(0.5, 3), rng.uniform(0.5, 3)
    return Feature(f"state {i}", "dynamic", scaling="bounded", plausible=(low, high))


def _dose_axes(count: int) -> list[Axis]:
    """Two axes where the number of actions is a product, one of them with three levels or more; else one."""
    shorter = max(size for size in range(1, count + 1) if count % size == 0 and size * size <= count)
    sizes = [count] if shorter == 1 or count // shorter < 3 else [shorter, count // shorter]
    names = ("dose", "other dose")
    return [Axis(name, "mg", tuple(float(level) for level in range(n))) for name, n in zip(names, sizes, strict=False)]


def _random_scaler(schema: Schema, rng: np.random.Generator) -> Scaler:
    def vary(columns: Columns) -> Columns:
        size = len(columns.offset)
        return replace(columns, offset=rng.normal(size=size), scale=rng.uniform(0.5, 2.0, size=size))

    identity = Scaler.identity(schema)
    return Scaler(vary(identity.states), vary(identity.context), identity.actions)


def _random_episode(
    id: str, model: TransitionModel, rng: np.random.Generator, settings: RandomProblemSettings
) -> Episode:
    """An episode drawn from the model, every step's action at random."""
    horizon = settings.horizon
    generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
    context = rng.normal(size=(horizon, settings.context_size))
    context[:, :1] = context[:1, :1]  # the first one is static
    actions = rng.integers(settings.actions, size=horizon)
    states = [torch.as_tensor(rng.normal(size=settings.state_size))]
    assert isinstance(model, TrainableModel | LinearModel)
    with torch.no_grad():
        for t in range(horizon - 1):
            inputs = states[-1], torch.as_tensor(context[t]), torch.tensor(actions[t])
            states.append(model.sample(*inputs, generator=generator))
    decoded = model.scaler.states.decode(torch.stack(states).numpy())
    return Episode(id, model.schema, states=decoded, actions=actions, context=model.scaler.context.decode(context))


def _random_reward(schema: Schema, rng: np.random.Generator, settings: RandomProblemSettings) -> Reward:
    kind = settings.reward_kind or str(rng.choice(SINGLE_REWARDS))
    names = [feature.name for feature in schema.dynamic]

    def weights() -> dict[str, float]:
        return {name: float(weight) for name, weight in zip(names, rng.normal(size=len(names)), strict=True)}

    if kind == "linear":
        return Linear(weights(), float(rng.normal()))
    if kind == "piecewise linear":
        return PiecewiseLinear(tuple(Hinge(float(rng.normal()), weights(), float(rng.normal())) for _ in range(3)))
    if kind == "penalties":
        hinges = tuple(Hinge(-float(abs(rng.normal())), weights(), float(rng.normal())) for _ in range(3))
        return Linear(weights()) + PiecewiseLinear(hinges)
    if kind == "with action costs":
        costs = rng.uniform(0, 1, size=len(schema.actions))
        return Linear(weights()) + ActionCost({action: float(cost) for action, cost in enumerate(costs)})
    if kind == "goals":
        return Total(tuple(_random_goal(names, len(schema.actions), rng) for _ in range(rng.integers(1, 4))))
    return _wave(rng.normal(size=len(names)), rng.normal(size=len(schema.actions)))


def _random_goal(names: list[str], actions: int, rng: np.random.Generator) -> Reward:
    """A goal that bends nowhere upwards, at some steps."""
    feature, low = str(rng.choice(names)), float(rng.normal())
    penalties = rng.uniform(0, 2, size=2).tolist()
    rewards: list[Reward] = [
        Linear({feature: float(rng.normal())}),
        Within(feature, low, low + float(rng.exponential()), *penalties),
        Within(feature, None, low),
        ActionCost({action: float(cost) for action, cost in enumerate(rng.uniform(0, 1, size=actions))}),
    ]
    return Goal(
        rewards[int(rng.choice(4, p=[0.4, 0.3, 0.2, 0.1]))],
        weight=float(rng.uniform(0.2, 3)),
        over=str(rng.choice(["all", "end", "last 2 steps", "first 2 steps"])),
        discount=float(rng.choice([1.0, 0.8])),
    )


def _wave(direction: npt.NDArray[np.float64], extra: npt.NDArray[np.float64]) -> Custom:
    """(1 + |extra_a|) sin(direction . x) + extra_a in scaled coordinates: bounded, with many local optima."""
    line, table = torch.as_tensor(direction), torch.as_tensor(extra)

    def reward(states: Tensor, actions: Tensor) -> Tensor:
        own = table.to(states.device)[actions]
        return (1 + own.abs()) * torch.sin(states @ line.to(states.device)) + own

    constants = (1 + np.abs(extra)) * np.linalg.norm(direction) * (1 + 1e-12)
    return Custom(reward, constants.tolist(), space="scaled", name="wave")


def _random_choices(episode: Episode, rng: np.random.Generator, settings: RandomProblemSettings) -> Constraints:
    masked = rng.random() < 0.3 if settings.masked is None else settings.masked
    if not masked:
        return Constraints()
    mask = rng.random((settings.horizon, settings.actions)) < 0.6
    mask[np.arange(settings.horizon), episode.actions] = True
    return Constraints().restricted_to(mask, episode)
