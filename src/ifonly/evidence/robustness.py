"""How large a shift of the noise cannot undo a gain: proven lower bounds (docs/sensitivity.md has the proofs)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ifonly.bounds.taylor.applicability import TABLE_ELEMENTS, table_elements
from ifonly.bounds.taylor.radii import radii_on
from ifonly.bounds.taylor.recorded import RecordedPaths
from ifonly.bounds.taylor.value_expansion import expand_values_together
from ifonly.evidence.shifts import Courses
from ifonly.problem import Problem
from ifonly.progress import look_at_clock
from ifonly.rewards import ActionCost, DoseCost, Goal, Linear, Reward, Total

MARGIN = 1 - 1e-9
"""Bounds are shortened by this for rounding."""
HALVINGS = 60
LONGEST = 100.0
"""Standard deviations up to which bounds on shifts at all steps are looked for."""


def at_steps(courses: Courses, owner: Tensor, steps: Tensor) -> Tensor:
    """Lengths [S] of standardised noise below which no shift at that step alone undoes the gain; 0: nothing proven.

    `steps` [S] are of the courses `owner` [S].
    """
    slopes, gains = _slopes(courses), _gains(courses)[owner]
    if slopes is None:
        return torch.zeros_like(gains)
    moved = slopes[owner, steps].unsqueeze(2) * courses.factor  # [S, D, D]: how the next state moves with the noise
    reach: Tensor = torch.linalg.matrix_norm(moved, ord=2)
    bounds = gains / (reach * _rates(courses)[owner, steps + 1])
    if _expands(courses.all[0].problem):
        bounds = torch.maximum(bounds, _by_expansion(courses, owner, steps, moved, reach, gains))
    return torch.where(gains > 0, bounds.nan_to_num(nan=0.0, posinf=torch.inf), 0.0) * MARGIN


def of_features(courses: Courses) -> Tensor:
    """Numbers of deviations [P, D] below which no common shift of that feature's noise, at all steps, undoes gains."""
    slopes, gains = _slopes(courses), _gains(courses).unsqueeze(1)
    low = courses.states.new_zeros(len(courses), courses.states.shape[2])
    if slopes is None:
        return low
    high = torch.full_like(low, LONGEST)
    for _ in range(HALVINGS):
        look_at_clock()
        middle = (low + high) / 2
        harmless = _largest_loss(courses, slopes, middle) < gains
        low, high = torch.where(harmless, middle, low), torch.where(harmless, high, middle)
    return torch.where(gains > 0, low, 0.0) * MARGIN


def _gains(courses: Courses) -> Tensor:
    """What may be lost [P]."""
    return courses.floats([course.gain - course.problem.tolerance for course in courses.all])


def _slopes(courses: Courses) -> Tensor | None:
    """[P, T-1, D], or None."""
    problem, batch = courses.all[0].problem, courses.batch
    return problem.model.noise_slopes(courses.states[:, :-1], batch.context[:, :-1], courses.sequences[:, :-1])


def _constants(courses: Courses) -> Tensor:
    """How fast the reward can change with the state at each step [P, T], under the action taken there."""
    constants = torch.stack([course.problem.reward_constants for course in courses.all])
    return constants.gather(2, courses.sequences.unsqueeze(2)).squeeze(2)


def _rates(courses: Courses) -> Tensor:
    """How fast what follows can change with the state [P, T]: C_a plus K times the rate of the next step."""
    constants, batch, model = _constants(courses), courses.batch, courses.all[0].problem.model
    growth = model.lipschitz(batch.context[:, :-1], courses.sequences[:, :-1], batch.noise)
    rates = [constants[:, -1]]
    for t in range(batch.horizon - 2, -1, -1):
        rates.append(constants[:, t] + growth[:, t] * rates[-1])
    return torch.stack(rates[::-1], dim=1)


def _largest_loss(courses: Courses, slopes: Tensor, sizes: Tensor) -> Tensor:
    """At most how much [P, D] is lost when feature i's noise is shifted by up to sizes_i deviations at every step."""
    batch, model = courses.batch, courses.all[0].problem.model
    start = int(courses.firsts.min())
    pushes = sizes * courses.all[0].deviations  # [P, D]
    ends = torch.diag_embed(pushes).unsqueeze(2)  # [P, D, 1, D]
    noise, context = batch.noise[:, None, start:], batch.context[:, None, start:-1]
    actions, constants = courses.sequences[:, None, start:-1], _constants(courses)
    growth = torch.maximum(*(model.lipschitz(context, actions, noise + sign * ends) for sign in (1, -1)))  # [P, D, n]
    distance, loss = torch.zeros_like(sizes), torch.zeros_like(sizes)
    for t in range(start, batch.horizon - 1):
        pushed = torch.where((courses.firsts <= t).unsqueeze(1), slopes[:, t] * pushes, 0.0)
        distance = growth[:, :, t - start] * distance + pushed
        loss = loss + constants[:, t + 1].unsqueeze(1) * distance
    return loss.nan_to_num(nan=torch.inf)


def _expands(problem: Problem) -> bool:
    """Whether the value of what follows has derivatives with known limits, and their tables fit into memory.

    Expansions of the reward must be exact.
    """
    fits = table_elements(problem) <= TABLE_ELEMENTS
    return fits and _is_linear(problem.reward) and problem.model.smooth() is not None


def _is_linear(reward: Reward) -> bool:
    if isinstance(reward, Total):
        return all(_is_linear(part) for part in reward.parts)
    return _is_linear(reward.reward) if isinstance(reward, Goal) else isinstance(reward, Linear | ActionCost | DoseCost)


def _by_expansion(
    courses: Courses, owner: Tensor, steps: Tensor, moved: Tensor, reach: Tensor, gains: Tensor
) -> Tensor:
    """Bounds [S] by the value expansion (T5) of what follows, around the next states, and its remainder (T29)."""
    smooth = courses.all[0].problem.model.smooth()
    assert smooth is not None, "asked before"
    own = [
        replace(
            course.problem.with_query(change_cost=0.0), observed_actions=course.sequence, observed_states=course.states
        )
        for course in courses.all
    ]
    values = expand_values_together(RecordedPaths.of(own, smooth, both_sides=True), euclidean=True)
    place = owner, steps + 1
    gradient, hessian = values.gradient[place], values.hessian[place]
    remainder = values.value_remainder[:, :, -1][place]
    gains = gains.unsqueeze(1)
    first = (gradient.unsqueeze(1) @ moved).squeeze(1).norm(dim=1).unsqueeze(1)  # [S, 1]
    curved = torch.linalg.eigvalsh(moved.mT @ hessian @ moved)[:, :1]  # what bends downwards most
    second = (-curved).clamp(min=0)
    radii = radii_on(courses.device)
    low, high = torch.zeros_like(remainder), radii / reach.unsqueeze(1)  # [S, G]
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        # (T30): within a radius, the remainder shrinks at least with the second power of the distance.
        loss = first * middle + second * middle**2 / 2 + remainder * (reach.unsqueeze(1) * middle / radii) ** 2
        low, high = torch.where(loss < gains, middle, low), torch.where(loss < gains, high, middle)
    return low.amax(1)
