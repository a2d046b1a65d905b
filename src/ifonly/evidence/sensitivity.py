"""How much the noise would have to differ before a recommended change stops helping, and what that would look like."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.data.episode import FloatArray
from ifonly.errors import InputError
from ifonly.evidence import robustness, witnesses
from ifonly.evidence.shifts import Courses
from ifonly.problem import Problem, array_scale
from ifonly.result import Sensitivity
from ifonly.result.sensitivity import FeatureSensitivity, StepSensitivity

LARGEST = 10.0
"""Standard deviations up to which shifts are tried."""
MOST_NUMBERS = 2**25
"""In the shifts that are tried together on a processor: a quarter of a gigabyte. Long courses have many more."""


@torch.no_grad()
def sensitivity(problem: Problem, actions: npt.ArrayLike | Tensor, *, largest: float = LARGEST) -> Sensitivity:
    """How much the noise would have to differ before `actions` [T], a result's for instance, stop helping.

    For every step by itself, in any direction; and for every feature, by the same shift at all steps. Shifts up to
    `largest` prior standard deviations are tried; each that is reported was replayed and leaves no gain. Lower bounds
    are proven where the model's constants allow it. Everything rests on the model: a wrong one may be wrong about this.
    """
    sequence = problem.checked_sequence(actions)
    return sensitivities([problem], [sequence], largest=largest)[0]


@torch.no_grad()
def sensitivities(
    problems: Sequence[Problem], sequences: Sequence[Tensor], *, largest: float = LARGEST
) -> list[Sensitivity]:
    """The same of each of some problems with one model and reward, and sequences [T] put to them.

    On a processor one after the other, so that no number depends on what else is asked; elsewhere small calls take all
    the time, so those of one horizon are asked together, and numbers differ by rounding.
    """
    if not all(isinstance(problem, Problem) for problem in problems):
        raise InputError("sensitivity: ask it of one model's problem: one of the `members` of an ensemble problem.")
    if not (math.isfinite(largest) and largest > 0):
        raise InputError(f"sensitivity: largest={largest} must be a positive number of standard deviations.")
    found: dict[int, Sensitivity] = {}
    for horizon in dict.fromkeys(problem.horizon for problem in problems):
        numbers = [number for number, problem in enumerate(problems) if problem.horizon == horizon]
        size = array_scale(problems[numbers[0]].device)
        for group in (numbers[start : start + size] for start in range(0, len(numbers), size)):
            courses = Courses.of([problems[number] for number in group], [sequences[number] for number in group])
            found |= dict(zip(group, _asked(courses, largest), strict=True))
    return [found[number] for number in range(len(problems))]


def _asked(courses: Courses, largest: float) -> list[Sensitivity]:
    """Of courses that share model, reward and horizon."""
    for course in courses.all:
        if not math.isfinite(course.gain):
            course.problem.require_finite(torch.tensor(course.gain))
    helps = [course.gain > course.problem.tolerance for course in courses.all]
    asked = [course for course, helping in zip(courses.all, helps, strict=True) if helping and course.uncertain]
    some = Courses(tuple(asked))
    told = dict(zip(map(id, asked), zip(_steps(some, largest), _features(some, largest), strict=True), strict=True))
    return [
        Sensitivity(course.gain if helping or course.gain < 0 else 0.0, largest, *told.get(id(course), ((), ())))
        for course, helping in zip(courses.all, helps, strict=True)
    ]


def _steps(courses: Courses, largest: float) -> list[tuple[StepSensitivity, ...]]:
    """For every course, all steps whose noise could have been another one."""
    if not len(courses):
        return []
    owner, steps = courses.uncertain
    bounds = robustness.at_steps(courses, owner, steps).tolist()
    tried = witnesses.shifts_per_step(courses) * courses.batch.noise[0].numel()
    part = max(1, MOST_NUMBERS * array_scale(courses.device) // tried)
    parts = zip(owner.split(part), steps.split(part), strict=True)
    smallest = [witnesses.smallest_at_steps(courses, *some, largest) for some in parts]
    sizes, shifts = (torch.cat(found) for found in zip(*smallest, strict=True))
    whole = shifts.new_zeros(len(steps), *courses.batch.noise.shape[1:])
    whole[torch.arange(len(steps), device=courses.device), steps] = shifts
    holds = sizes.isfinite() & (courses.gains(owner, whole, whole=True) <= 0)
    moved, scaled = courses.added(owner, steps, torch.where(holds.unsqueeze(1), shifts, 0.0))
    columns = (steps, holds, sizes, scaled)
    rows = zip(*(values.tolist() for values in columns), bounds, moved.tolist(), owner.tolist(), strict=True)
    found: list[list[StepSensitivity]] = [[] for _ in courses.all]
    for step, held, size, in_scale, bound, in_units, number in rows:
        told = StepSensitivity(step, bound, size if held else None, tuple(in_units), tuple(in_scale))
        found[number].append(told)
    return [tuple(one) for one in found]


def _features(courses: Courses, largest: float) -> list[tuple[FeatureSensitivity, ...]]:
    """For every course, the same shift of a feature's noise at all steps from its first change on."""
    if not len(courses):
        return []
    count, size = len(courses), courses.states.shape[2]
    owner = torch.arange(count, device=courses.device)
    pushes = torch.diag(courses.all[0].deviations)  # [D, D]
    both = torch.cat([pushes, -pushes]).expand(count, -1, -1).flatten(0, 1)
    lengths = witnesses.along_rays(
        courses,
        owner.repeat_interleave(2 * size),
        _lasting(courses, owner.repeat_interleave(2 * size), both),
        both.new_full((len(both),), largest),
    ).view(count, 2, size)
    signs = torch.where(lengths[:, 0] <= lengths[:, 1], 1.0, -1.0)  # [P, D]
    shortest = lengths.amin(1)
    finite = shortest.isfinite()
    pushed = (torch.where(finite, signs * shortest, 0.0).unsqueeze(2) * pushes).flatten(0, 1)  # [P D, D]
    each = owner.repeat_interleave(size)
    gone = courses.gains(each, _lasting(courses, each, pushed), whole=True) <= 0
    holds, bounds = (finite & gone.view(count, size)).tolist(), robustness.of_features(courses).tolist()
    effects, undone = _mean_effects(courses, pushed.view(count, size, size)), (signs * shortest).tolist()
    names = [feature.name for feature in courses.all[0].problem.episode.schema.dynamic]
    return [
        tuple(
            FeatureSensitivity(
                name,
                bounds[number][column],
                undone[number][column] if holds[number][column] else None,
                float(effects[number, column]) if holds[number][column] else 0.0,
            )
            for column, name in enumerate(names)
        )
        for number in range(count)
    ]


def _lasting(courses: Courses, owner: Tensor, pushes: Tensor) -> Tensor:
    """Shifts [B, T-1, D] by `pushes` [B, D] at every step from the first change of the `owner` on."""
    steps = torch.arange(courses.batch.horizon - 1, device=courses.device)
    lasts = steps >= courses.firsts[owner].unsqueeze(1)
    return lasts.unsqueeze(2) * pushes.unsqueeze(1)


def _mean_effects(courses: Courses, pushes: Tensor) -> FloatArray:
    """What pushes [P, D, D] of one feature's noise each add to that feature, the mean over uncertain steps [P, D]."""
    size = pushes.shape[1]
    owner, steps = courses.uncertain
    rows = (owner.repeat_interleave(size), steps.repeat_interleave(size))
    moved = courses.added(*rows, pushes[owner].flatten(0, 1))[0].reshape(-1, size, size)
    own, total = np.einsum("sii->si", moved), np.zeros(pushes.shape[:2])
    np.add.at(total, owner.cpu().numpy(), own)
    return np.asarray(total / np.bincount(owner.cpu().numpy())[:, np.newaxis])
