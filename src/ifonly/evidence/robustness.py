"""How large a shift of the noise cannot undo a gain: proven lower bounds (docs/sensitivity.md has the proofs)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ifonly.bounds.taylor.radii import radii_on
from ifonly.bounds.taylor.recorded import RecordedPaths
from ifonly.bounds.taylor.value_expansion import expand_values_together
from ifonly.evidence.shifts import ShiftedCourse
from ifonly.problem import Problem
from ifonly.rewards import ActionCost, DoseCost, Goal, Linear, Reward, Total

MARGIN = 1 - 1e-9
"""Bounds are shortened by this for rounding."""
HALVINGS = 60
LONGEST = 100.0
"""Standard deviations up to which bounds on shifts at all steps are looked for."""


def at_steps(course: ShiftedCourse, steps: list[int]) -> Tensor:
    """Lengths [S] of standardised noise below which no shift at that step alone undoes the gain; 0: nothing proven."""
    slopes = _slopes(course)
    gain = course.gain - course.problem.tolerance
    if slopes is None or gain <= 0:
        return course.states.new_zeros(len(steps))
    moved = slopes[steps].unsqueeze(2) * course.factor  # [S, D, D]: how the next state moves with standardised noise
    reach: Tensor = torch.linalg.matrix_norm(moved, ord=2)
    bounds = gain / (reach * _rates(course)[[step + 1 for step in steps]])
    if _expands(course.problem):
        bounds = torch.maximum(bounds, _by_expansion(course, steps, moved, reach, gain))
    return bounds.nan_to_num(nan=0.0, posinf=torch.inf) * MARGIN


def of_features(course: ShiftedCourse) -> Tensor:
    """Numbers of deviations [D] below which no common shift of that feature's noise, at all steps, undoes the gain."""
    slopes = _slopes(course)
    gain = course.gain - course.problem.tolerance
    low = course.states.new_zeros(course.states.shape[1])
    if slopes is None or gain <= 0:
        return low
    high = torch.full_like(low, LONGEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        harmless = _largest_loss(course, slopes, middle) < gain
        low, high = torch.where(harmless, middle, low), torch.where(harmless, high, middle)
    return low * MARGIN


def _slopes(course: ShiftedCourse) -> Tensor | None:
    problem = course.problem
    return problem.model.noise_slopes(course.states[:-1], problem.context[:-1], course.sequence[:-1])


def _rates(course: ShiftedCourse) -> Tensor:
    """How fast what follows can change with the state at each step [T]: C_a plus K times the rate of the next step."""
    problem = course.problem
    constants = problem.reward_constants.gather(1, course.sequence.unsqueeze(1)).squeeze(1)
    growth = problem.model.lipschitz(problem.context[:-1], course.sequence[:-1], problem.noise)
    rates = [constants[-1]]
    for t in range(problem.horizon - 2, -1, -1):
        rates.append(constants[t] + growth[t] * rates[-1])
    return torch.stack(rates[::-1])


def _largest_loss(course: ShiftedCourse, slopes: Tensor, sizes: Tensor) -> Tensor:
    """At most how much [D] is lost when feature i's noise is shifted by up to sizes_i deviations at every step."""
    problem, first = course.problem, course.first
    pushes = sizes * course.deviations  # [D]
    ends = torch.diag(pushes).unsqueeze(1)  # [D, 1, D]
    noise, context, actions = problem.noise[first:], problem.context[first:-1], course.sequence[first:-1]
    growth = torch.maximum(*(problem.model.lipschitz(context, actions, noise + sign * ends) for sign in (1, -1)))
    constants = problem.reward_constants.gather(1, course.sequence.unsqueeze(1)).squeeze(1)
    distance, loss = torch.zeros_like(sizes), torch.zeros_like(sizes)
    for t in range(first, problem.horizon - 1):
        distance = growth[:, t - first] * distance + slopes[t] * pushes
        loss = loss + constants[t + 1] * distance
    return loss.nan_to_num(nan=torch.inf)


def _expands(problem: Problem) -> bool:
    """Whether the value of what follows has derivatives with known limits: expansions of the reward must be exact."""
    return _is_linear(problem.reward) and problem.model.smooth() is not None


def _is_linear(reward: Reward) -> bool:
    if isinstance(reward, Total):
        return all(_is_linear(part) for part in reward.parts)
    return _is_linear(reward.reward) if isinstance(reward, Goal) else isinstance(reward, Linear | ActionCost | DoseCost)


def _by_expansion(course: ShiftedCourse, steps: list[int], moved: Tensor, reach: Tensor, gain: float) -> Tensor:
    """Bounds [S] by the value expansion (T5) of what follows, around the next states, and its remainder (T29)."""
    problem = course.problem
    smooth = problem.model.smooth()
    assert smooth is not None, "asked before"
    free = problem.with_query(change_cost=0.0)
    own = replace(free, observed_actions=course.sequence, observed_states=course.states)
    values = expand_values_together(RecordedPaths.of([own], smooth, both_sides=True), euclidean=True)
    following = torch.tensor(steps, device=problem.device) + 1
    gradient, hessian = values.gradient[0, following], values.hessian[0, following]
    remainder = values.value_remainder[0, following, -1]
    first = (gradient.unsqueeze(1) @ moved).squeeze(1).norm(dim=1).unsqueeze(1)  # [S, 1]
    curved = torch.linalg.eigvalsh(moved.mT @ hessian @ moved)[:, :1]  # what bends downwards most
    second = (-curved).clamp(min=0)
    radii = radii_on(problem.device)
    low, high = torch.zeros_like(remainder), radii / reach.unsqueeze(1)  # [S, G]
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        # (T30): within a radius, the remainder shrinks at least with the second power of the distance.
        loss = first * middle + second * middle**2 / 2 + remainder * (reach.unsqueeze(1) * middle / radii) ** 2
        low, high = torch.where(loss < gain, middle, low), torch.where(loss < gain, high, middle)
    return low.amax(1)
