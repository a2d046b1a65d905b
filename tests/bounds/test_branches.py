"""Tables of every single change against rollouts, automatic differentiation and sampled states."""

import math
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from smooth_problems import LINEAR, POLYNOMIALS
from smooth_problems import smooth_problems as all_smooth_problems
from torch import Tensor
from torch.func import hessian, jacrev

from ifonly.bounds.branches import RADII, STRONG, BranchBuilder, BranchTables
from ifonly.bounds.limits import Scale
from ifonly.episodes import ActionSpace, Episode, Feature, Schema
from ifonly.models import LocationScale
from ifonly.problem import Problem
from ifonly.rewards import Linear

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
"""By torch, when it first differentiates forward."""

ROUNDING = 1e-10

smooth_problems = partial(all_smooth_problems, rewards=LINEAR)
"""Where the reward is its own tangent, tables must agree with rollouts."""


@torch.no_grad()
def tables(problems: list[Problem], *, round_gauge: bool = False) -> BranchTables:
    first = problems[0]
    smooth = first.model.smooth()
    assert smooth is not None
    return BranchBuilder(problems, smooth, round_gauge=round_gauge).build()


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


def rests(problem: Problem, found: BranchTables, c: int, y: Tensor, number: int = 0) -> tuple[Tensor, Tensor]:
    """What expansions at offsets y [A, S, G, D] leave out of later states [A, S, G, T - c - 1] and values [A, S, G]."""
    taken = torch.arange(problem.action_count)[:, None, None].expand(y.shape[:-1]).flatten()
    path, value = branch(problem, c, taken, (found.center[number, c] + y).flatten(0, 2))
    path, value = path[:, 1:].unflatten(0, y.shape[:-1]), value.unflatten(0, y.shape[:-1])
    moved = torch.einsum("atij,asgj->asgti", found.flow[number, c, :, c + 1 :], y)
    straight = (found.center[number, c + 1 :] + found.path[number, c, :, c + 1 :])[:, None, None] + moved
    polynomial = (
        found.value[number, c][:, None, None]
        + torch.einsum("ai,asgi->asg", found.gradient[number, c], y)
        + torch.einsum("aij,asgi,asgj->asg", found.hessian[number, c], y, y) / 2
    )
    # Less what may be rounding.
    bent = (path - straight).norm(dim=-1) - ROUNDING * (1 + path.norm(dim=-1) + straight.norm(dim=-1))
    left_out = (value - polynomial).abs() - ROUNDING * (1 + polynomial.abs() + value.abs())
    return bent.clamp(min=0), left_out.clamp(min=0)


def directions(size: int, count: int, generator: torch.Generator) -> Tensor:
    """Unit vectors [count, D]: in all directions, or at random ones where there are too many."""
    if size == 1:
        return torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(-(-count // 2))[:count].unsqueeze(1)
    if size == 2:
        angles = torch.linspace(0, 2 * math.pi, count + 1, dtype=torch.float64)[:-1]
        return torch.stack((angles.cos(), angles.sin()), dim=1)
    drawn = torch.randn(count, size, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(drawn, dim=1)


def check_limits(problem: Problem, found: BranchTables, *, samples: int, seed: int) -> int:
    """Every limit at offsets of every radius, and of random smaller gauges; how many limits say something."""
    generator = torch.Generator().manual_seed(seed)
    radii = torch.tensor(RADII, dtype=torch.float64)
    toward = directions(problem.observed_states.shape[1], samples, generator)[:, None]  # [S, 1, D]
    compared = 0
    for c in range(problem.horizon):
        least = torch.rand(samples, len(radii), generator=generator, dtype=torch.float64)
        for parts in (torch.ones_like(least), least):
            y = (toward * (parts * radii).unsqueeze(-1)) @ found.unit[0, c]
            bent, left_out = rests(problem, found, c, y.expand(problem.action_count, -1, -1, -1))
            bend, rest = found.bend[0, c, :, None, c + 1 :].mT, found.rest[0, c].unsqueeze(1)
            assert not int((bent > bend).sum()), "bend"
            assert not int((left_out > rest * parts**3).sum()), "rest"
        compared += int((rest < 10 * (1 + found.value[0, c].abs().max())).sum())
    return compared


@pytest.mark.parametrize("round_gauge", [False, True], ids=["gauge", "round"])
@pytest.mark.parametrize("strength", [0.1, 0.2, 0.7, 2.0, 5.0])
def test_limits_hold_within_every_radius(strength: float, round_gauge: bool) -> None:
    compared, strong, activations = 0, set(), set()
    for seed, problem in enumerate(smooth_problems(12, start=2040, strength=strength)):
        found = tables([problem], round_gauge=round_gauge)
        with torch.no_grad():
            compared += check_limits(problem, found, samples=12, seed=seed)
        smooth = problem.model.smooth()
        assert smooth is not None
        if smooth.parts:
            strong |= {sum(part.limits[2] for part in smooth.parts) > STRONG}
        activations |= {part.activation for part in smooth.parts}
    assert compared > 300  # limits that say nothing hold as well
    assert strong == {True, False}
    assert activations == {"tanh", "softplus", "sigmoid"}


CLOSE = {
    "scale": 2.2,
    "scale's third": 2.0,
    "weak scale and far": 1.9,
    "steep scale": 2.1,
    "weak and turned": 1.2,
    "towards a bend": 50.0,  # less further away
    "far from a bend": 1.8,
    "late": 1.6,
    "late scale": 4.5,
    "switching": 3.0,
    "deep": 1.7,
}
"""How many times what expansions leave out their limits may be, up to a gauge of 0.4; elsewhere 1.12."""


@pytest.mark.parametrize("round_gauge", [False, True], ids=["gauge", "round"])
@pytest.mark.parametrize("name", POLYNOMIALS)
@torch.no_grad()
def test_limits_where_nothing_is_to_spare(name: str, round_gauge: bool) -> None:
    problem, close = POLYNOMIALS[name], CLOSE.get(name, 1.12)
    found = tables([problem], round_gauge=round_gauge)
    check_limits(problem, found, samples=24, seed=0)
    toward = directions(problem.observed_states.shape[1], 24, torch.Generator())
    small = slice(1, 5)
    for c in range(problem.horizon - 1):
        y = (toward[:, None] * torch.tensor(RADII, dtype=torch.float64)[small, None]) @ found.unit[0, c]
        bent, left_out = rests(problem, found, c, y.expand(problem.action_count, -1, -1, -1))
        for limits, largest in ((found.rest[0, c, :, small], left_out), (found.bend[0, c, :, c + 1 :, small].mT, bent)):
            assert bool((limits <= close * (largest.amax(1) + 3 * ROUNDING)).all())


def test_slopes_of_scales_may_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of third derivatives count it, though what softplus itself adds to rests would hide that."""
    problem = POLYNOMIALS["scale's third"]
    found, last = tables([problem]), problem.horizon - 2
    monkeypatch.setattr("ifonly.bounds.branches.growth", lambda *given: torch.zeros_like(given[-1]))
    fewer = tables([problem])
    assert bool((fewer.rest[0, last, :, 1:10] < found.rest[0, last, :, 1:10]).all())
    assert bool((fewer.bend[0, last, :, -1, 1:10] < found.bend[0, last, :, -1, 1:10]).all())


@pytest.mark.parametrize("name", [name for name in POLYNOMIALS if "scale" in name])
@torch.no_grad()
def test_second_derivatives_of_scales(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are known where branches are, though taken at the observed path."""
    problem, seen = POLYNOMIALS[name], []

    def remembering(*given: Any) -> Scale:
        seen.append(Scale(*given))
        return seen[-1]

    monkeypatch.setattr("ifonly.bounds.branches.Scale", remembering)
    found, smooth = tables([problem]), problem.model.smooth()
    assert smooth is not None
    for t, scale in enumerate(seen):
        states = (found.center[0, t] + found.path[0, : t + 1, :, t]).flatten(0, 1)
        taken = problem.observed_actions[t].repeat(t + 1, problem.action_count)
        taken[t] = torch.arange(problem.action_count)
        inner = smooth.parts[1].inner(states, problem.context[t].expand(len(states), -1), taken.flatten(), second=True)
        assert inner.hessian is not None
        for limits, derivatives in ((scale.norm, inner.jacobian), (scale.bent, inner.hessian)):
            assert bool((derivatives.flatten(1).norm(dim=1) <= limits.squeeze(1) + 1e-12).all())
    assert len(seen) == problem.horizon - 1


def test_linear_models_are_known_exactly() -> None:
    for problem in smooth_problems(5, start=100, model_kind="linear"):
        for round_gauge in (False, True):
            found = tables([problem], round_gauge=round_gauge)
            for nothing in (found.hessian, found.bend, found.rest):
                assert not nothing.any()


def test_limits_grow_with_the_radius() -> None:
    """Of rests as fast as its third power, of bends as its square, at least."""
    radii = torch.tensor(RADII, dtype=torch.float64)
    for problem in smooth_problems(24, start=3000):
        for round_gauge in (False, True):
            found = tables([problem], round_gauge=round_gauge)
            for limits in (found.rest / radii**3, found.bend / radii**2):
                assert bool((limits.diff(dim=-1) >= -1e-9 * limits[..., 1:]).all())


def test_the_gauge_of_effects() -> None:
    """No single change before a step leads further than 1; where there is none, and for a round gauge, it is length."""
    for problem in smooth_problems(12, start=4000, rules=False):
        found, eye = tables([problem]), torch.eye(problem.observed_states.shape[1], dtype=torch.float64)
        torch.testing.assert_close(found.unit @ found.inverse, eye.expand_as(found.unit), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(found.unit, found.unit.mT, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found.unit[0, 0], eye)
        changes = problem.allowed.scatter(1, problem.observed_actions.unsqueeze(1), False)
        gauges = torch.einsum("tij,catj->cati", found.inverse[0], found.path[0]).norm(dim=-1)
        largest = torch.where(changes.unsqueeze(-1), gauges, 0.0).amax((0, 1))
        moved = torch.where(changes.unsqueeze(-1), found.path[0].norm(dim=-1), 0.0).amax((0, 1)) > 1e-9
        torch.testing.assert_close(largest, moved.double())
        round_one = tables([problem], round_gauge=True)
        assert torch.equal(round_one.unit, eye.expand_as(round_one.unit))
        assert torch.equal(round_one.inverse, eye.expand_as(round_one.inverse))


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
                # Limits of third derivatives are known in single precision.
                close = 1e-5 if field.name in ("bend", "rest") else 1e-9
                torch.testing.assert_close(mine, getattr(alone, field.name)[0], rtol=close, atol=1e-11, msg=field.name)


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
        for round_gauge in (False, True):
            check_limits(problem, tables([problem], round_gauge=round_gauge), samples=20, seed=0)


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
