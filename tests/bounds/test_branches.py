"""Tables of every single change against rollouts, automatic differentiation and sampled states."""

from collections.abc import Callable
from dataclasses import fields
from functools import partial

import numpy as np
import pytest
import torch
from smooth_problems import LINEAR, POLYNOMIALS
from smooth_problems import smooth_problems as all_smooth_problems
from torch import Tensor
from torch.func import hessian, jacrev, jvp

from ifonly.bounds.branches import LARGE, RADII, BranchBuilder, BranchTables
from ifonly.episodes import ActionSpace, Episode, Feature, Schema
from ifonly.models import LocationScale
from ifonly.problem import Problem
from ifonly.rewards import Linear

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
"""By torch, when it first differentiates forward."""

smooth_problems = partial(all_smooth_problems, rewards=LINEAR)
"""Where the reward is its own tangent, tables must agree with rollouts."""


@torch.no_grad()
def tables(problems: list[Problem]) -> BranchTables:
    first = problems[0]
    smooth = first.model.smooth()
    assert smooth is not None
    return BranchBuilder(problems, smooth).build()


def branch(problem: Problem, c: int, actions: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """Paths [N, T - c, D] and values [N] from `states` [N, D] at c: `actions` [N] there, then the observed ones."""
    path, value = [states], problem.rewards(c, states, actions)
    for t in range(c, problem.horizon - 1):
        taken = actions if t == c else problem.observed_actions[t]
        states = problem.step(t, states, taken)
        path.append(states)
        value = value + problem.rewards(t + 1, states, problem.observed_actions[t + 1])
    return torch.stack(path, dim=1), value


def test_paths_and_what_they_earn() -> None:
    for problem in smooth_problems(10):
        found = tables([problem])
        horizon, actions = problem.horizon, problem.action_count
        observed = problem.observed_actions
        center, _ = problem.rollout(observed.unsqueeze(0))
        torch.testing.assert_close(found.center, center, rtol=1e-12, atol=1e-12)
        for c in range(horizon):
            sequences = observed.repeat(actions, 1)
            sequences[:, c] = torch.arange(actions)
            states, outcomes = problem.rollout(sequences)
            rewards = torch.stack([problem.rewards(t, states[:, t], sequences[:, t]) for t in range(horizon)], dim=1)
            torch.testing.assert_close(found.path[0, c, :, c:], (states - center)[:, c:], rtol=1e-11, atol=1e-11)
            assert not found.path[0, c, :, : c + 1].any()
            before = rewards[:, :c].sum(1)
            torch.testing.assert_close(found.value[0, c] + before, outcomes, rtol=1e-12, atol=1e-11)
            for t in range(c, horizon):
                torch.testing.assert_close(found.earned[0, c, :, t], rewards[:, c:t].sum(1), rtol=1e-11, atol=1e-11)


def test_derivatives_equal_automatic_ones() -> None:
    for problem in smooth_problems(10, start=1000):
        found = tables([problem])
        every = torch.arange(problem.action_count)
        for c in range(problem.horizon):
            here = found.center[0, c].repeat(len(every), 1)

            def value(x: Tensor, c: int = c, every: Tensor = every, problem: Problem = problem) -> Tensor:
                return branch(problem, c, every, x)[1].sum()

            def path(x: Tensor, c: int = c, every: Tensor = every, problem: Problem = problem) -> Tensor:
                return branch(problem, c, every, x)[0].sum(0)

            torch.testing.assert_close(found.gradient[0, c], jacrev(value)(here), rtol=1e-9, atol=1e-10)
            second = hessian(value)(here).diagonal(dim1=0, dim2=2).movedim(-1, 0)
            torch.testing.assert_close(found.hessian[0, c], second, rtol=1e-9, atol=1e-10)
            flow = jacrev(path)(here).movedim(2, 0)  # [A, T - c, D, D]
            torch.testing.assert_close(found.flow[0, c, :, c + 1 :], flow[:, 1:], rtol=1e-9, atol=1e-10)


def along(function: Callable[[Tensor], tuple[Tensor, ...]], points: Tensor, directions: Tensor) -> tuple:
    """Values and first three derivatives of `function`'s outputs along `directions`."""

    def first(x: Tensor) -> tuple:
        return jvp(function, (x,), (directions,))

    def second(x: Tensor) -> tuple:
        (value, slope), (_, curvature) = jvp(first, (x,), (directions,))
        return value, slope, curvature

    (value, slope, curvature), (_, _, third) = jvp(second, (points,), (directions,))
    return value, slope, curvature, third


def check_limits(problem: Problem, found: BranchTables, number: int, *, samples: int, seed: int) -> int:
    """Every limit of one problem at random offsets in every ball; how many finite ones were compared."""
    generator = torch.Generator().manual_seed(seed)
    size, actions = problem.observed_states.shape[1], problem.action_count
    radii = torch.tensor(RADII, dtype=torch.float64)
    compared = 0

    def unit(*shape: int) -> Tensor:
        return torch.nn.functional.normalize(
            torch.randn(*shape, size, generator=generator, dtype=torch.float64), dim=-1
        )

    def at_most(values: Tensor, limits: Tensor, what: str) -> None:
        excess = values - limits * (1 + 1e-9)
        assert float(excess.max()) <= 1e-9, what

    for c in range(problem.horizon - 1):
        lengths = radii * torch.rand(samples, len(radii), generator=generator, dtype=torch.float64) ** (1 / size)
        lengths[0] = radii
        toward = unit(actions, samples, len(radii))
        y = toward * lengths.unsqueeze(-1)  # [A, S, G, D]
        taken = torch.arange(actions)[:, None, None].expand(y.shape[:-1]).flatten()
        start = (found.center[number, c] + y).flatten(0, 2)

        def run(x: Tensor, c: int = c, taken: Tensor = taken) -> tuple[Tensor, Tensor]:
            return branch(problem, c, taken, x)

        for directions in (toward, unit(actions, samples, len(radii))):
            (path, value), (flow, _), (bend, _), (_, third) = (
                tuple(part.unflatten(0, y.shape[:-1]) for part in order)
                for order in along(run, start, directions.flatten(0, 2))
            )
            for t in range(c + 1, problem.horizon):
                here = (number, c, slice(None), t)
                moved = path[..., t - c, :] - found.center[number, t] - found.path[here][:, None, None]
                at_most(moved.norm(dim=-1), found.reach[here].unsqueeze(1), "reach")
                at_most(flow[..., t - c, :].norm(dim=-1), found.flow_limit[here].unsqueeze(1), "flow")
                at_most(bend[..., t - c, :].norm(dim=-1), found.bend_limit[here].unsqueeze(1), "bend")
            limit = found.third_limit[number, c].unsqueeze(1)
            at_most(third.abs(), limit, "third derivative")
            polynomial = (
                found.value[number, c][:, None, None]
                + torch.einsum("ai,asgi->asg", found.gradient[number, c], y)
                + torch.einsum("aij,asgi,asgj->asg", found.hessian[number, c], y, y) / 2
            )
            at_most((value - polynomial).abs(), limit * lengths**3 / 6 + 1e-9, "polynomial")
            compared += int((limit < LARGE).sum())
    return compared


@pytest.mark.parametrize("strength", [0.2, 0.7, 2.0, 5.0])
def test_limits_hold_in_every_ball(strength: float) -> None:
    compared = 0
    for seed, problem in enumerate(smooth_problems(6, start=2000, strength=strength)):
        with torch.no_grad():
            compared += check_limits(problem, tables([problem]), 0, samples=5, seed=seed)
    assert compared > 300  # limits that say nothing hold as well


@pytest.mark.parametrize("problem", POLYNOMIALS.values(), ids=POLYNOMIALS)
def test_limits_hold_where_nothing_is_to_spare(problem: Problem) -> None:
    with torch.no_grad():
        found = tables([problem])
        check_limits(problem, found, 0, samples=20, seed=0)

        def value(x: Tensor) -> Tensor:
            return branch(problem, 0, torch.tensor([1]), x)[1].sum()

        def third(x: Tensor) -> Tensor:
            return jacrev(jacrev(jacrev(value)))(x).sum()

        truth = float(third(torch.full((1, 1), RADII[1], dtype=torch.float64)))
    assert truth <= float(found.third_limit[0, 0, 1, 1]) <= 1.6 * truth


def test_linear_models_have_no_higher_derivatives() -> None:
    for problem in smooth_problems(5, start=100, model_kind="linear"):
        found = tables([problem])
        assert not found.hessian.any()
        assert not found.third_limit.any()
        assert not found.bend_limit.any()


def test_limits_grow_with_the_ball_and_are_tight_in_small_ones() -> None:
    for problem in smooth_problems(12, start=3000, strength=0.5, model_kind="additive"):
        found = tables([problem])
        for limits in (found.flow_limit, found.bend_limit, found.reach, found.third_limit, found.gain_third_limit):
            assert bool((limits.diff(dim=-1) >= -1e-12 * limits[..., 1:]).all())
        exact = torch.linalg.matrix_norm(found.flow, ord=2)
        c, t = torch.triu_indices(problem.horizon, problem.horizon, offset=1)
        small = found.flow_limit[0][c, :, t, 0]
        curvature = found.bend_limit[0][c, :, t, 0] * RADII[0]
        assert bool((small <= 1.1 * exact[0][c, :, t] + 2 * curvature + 1e-12).all())


def test_limits_of_gains_cover_both_actions() -> None:
    for problem in smooth_problems(6, start=4000):
        found = tables([problem])
        rows = torch.arange(problem.horizon)
        observed = found.third_limit[0, rows, problem.observed_actions]
        assert torch.equal(found.gain_third_limit[0], found.third_limit[0] + observed.unsqueeze(1))


def test_several_problems_are_each_on_their_own() -> None:
    for first in smooth_problems(8, start=5000, rules=True):
        members = [first, first.with_constraints(None)]
        states = first.observed_states.roll(1, 0)
        other = Problem.from_episode(
            Episode(
                "another",
                first.episode.schema,
                states=first.decode(states),
                actions=first.episode.actions[::-1].copy(),
                context=first.episode.context,
            ),
            first.model,
            first.reward,
            first.max_changes,
            change_cost=0.3,
        )
        members.append(other)
        together = tables(members)
        for number, member in enumerate(members):
            alone = tables([member])
            for field in fields(BranchTables):
                mine = getattr(together, field.name)[number]
                torch.testing.assert_close(mine, getattr(alone, field.name)[0], rtol=1e-9, atol=1e-11, msg=field.name)


def switched_on_model(schema: Schema) -> LocationScale:
    """A scale that is e^-35 at zero and large one unit further."""
    still = {"state": [[0.1]], "action": [[0.1]], "bias": [0.0], "output": [[0.1]], "output_bias": [0.0]}
    switch = {"state": [[1.0]], "action": [[0.0]], "bias": [0.0], "output": [[60.0]], "output_bias": [-35.0]}
    return LocationScale.from_weights(schema, location=still, scale=switch, covariance=[[1.0]])


def test_limits_hold_where_the_scale_is_switched_on() -> None:
    schema = Schema((Feature("x", "dynamic"),), ActionSpace.from_vectors([[0.0], [1.0]]))
    episode = Episode("switch", schema, states=np.array([[0.0], [1e-9], [0.1]]), actions=np.array([0, 1, 0]))
    problem = Problem.from_episode(episode, switched_on_model(schema), Linear({"x": 1.0}), 2)
    with torch.no_grad():
        check_limits(problem, tables([problem]), 0, samples=20, seed=0)


def test_penalties_count_as_the_tangents_at_the_observed_path() -> None:
    crossed = 0
    for problem in all_smooth_problems(20, rewards=("penalties",)):
        found = tables([problem])
        slopes = problem.bound_reward.tangents(found.center[0])
        assert slopes is not None
        for c in range(problem.horizon):
            sequences = problem.observed_actions.repeat(problem.action_count, 1)
            sequences[:, c] = torch.arange(problem.action_count)
            states, outcomes = problem.rollout(sequences)
            offsets = ((states - found.center[0]) * slopes).sum(-1)
            rewards = torch.stack(
                [problem.rewards(t, found.center[0, t], sequences[:, t]) for t in range(len(slopes))], 1
            )
            torch.testing.assert_close(found.value[0, c], (rewards + offsets)[:, c:].sum(1), rtol=1e-11, atol=1e-11)
            before = rewards[:, :c].sum(1)
            assert (found.value[0, c] + before >= outcomes - 1e-9).all()
            crossed += int((found.value[0, c] + before > outcomes + 1e-6).sum())
    assert crossed > 20
