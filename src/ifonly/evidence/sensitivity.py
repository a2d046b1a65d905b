"""How much the noise would have to differ before a recommended change stops helping, and what that would look like."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.data.episode import FloatArray
from ifonly.errors import InputError
from ifonly.evidence import robustness, witnesses
from ifonly.evidence.shifts import ShiftedCourse
from ifonly.problem import Problem
from ifonly.result import Sensitivity
from ifonly.result.sensitivity import FeatureSensitivity, StepSensitivity

LARGEST = 10.0
"""Standard deviations up to which shifts are tried."""


@torch.no_grad()
def sensitivity(problem: Problem, actions: npt.ArrayLike | Tensor, *, largest: float = LARGEST) -> Sensitivity:
    """How much the noise would have to differ before `actions` [T], a result's for instance, stop helping.

    For every step by itself, in any direction; and for every feature, by the same shift at all steps. Shifts up to
    `largest` prior standard deviations are tried; each that is reported was replayed and leaves no gain. Lower bounds
    are proven where the model's constants allow it. Everything rests on the model: a wrong one may be wrong about this.
    """
    if not isinstance(problem, Problem):
        raise InputError("sensitivity: ask it of one model's problem: one of the `members` of an ensemble problem.")
    if not (math.isfinite(largest) and largest > 0):
        raise InputError(f"sensitivity: largest={largest} must be a positive number of standard deviations.")
    course = ShiftedCourse.of(problem, problem.checked_sequence(actions))
    if not math.isfinite(course.gain):
        problem.require_finite(torch.tensor(course.gain))
    helps = course.gain > problem.tolerance
    steps = list(course.uncertain) if helps else []
    return Sensitivity(
        gain=course.gain if helps or course.gain < 0 else 0.0,
        largest=largest,
        steps=_steps(course, steps, largest) if steps else (),
        features=_features(course, largest) if steps else (),
    )


def _steps(course: ShiftedCourse, steps: list[int], largest: float) -> tuple[StepSensitivity, ...]:
    bounds = robustness.at_steps(course, steps).tolist()
    sizes, shifts = witnesses.smallest_at_steps(course, steps, largest)
    found = []
    for step, bound, size, shift in zip(steps, bounds, sizes.tolist(), shifts, strict=True):
        whole = torch.zeros_like(course.problem.noise)
        whole[step] = shift
        holds = math.isfinite(size) and course.replayed_gain(whole) <= 0
        moved, scaled = _added(course, step, shift if holds else torch.zeros_like(shift))
        effects = (tuple(moved.tolist()), tuple(scaled.tolist()))
        found.append(StepSensitivity(step, bound, size if holds else None, *effects))
    return tuple(found)


def _features(course: ShiftedCourse, largest: float) -> tuple[FeatureSensitivity, ...]:
    size = course.states.shape[1]
    pushes = torch.diag(course.deviations)
    rays = course.states.new_zeros(2 * size, *course.problem.noise.shape)
    rays[:, course.first :] = torch.cat([pushes, -pushes]).unsqueeze(1)
    lengths = witnesses.along_rays(course, rays, rays.new_full((2 * size,), largest)).view(2, size)
    bounds = robustness.of_features(course).tolist()
    found = []
    for column, feature in enumerate(course.problem.episode.schema.dynamic):
        sign = 1 if lengths[0, column] <= lengths[1, column] else -1
        length = float(lengths[:, column].min())
        push = sign * length * pushes[column]
        whole = torch.zeros_like(course.problem.noise)
        effect = 0.0
        if holds := math.isfinite(length):
            whole[course.first :] = push
            holds = course.replayed_gain(whole) <= 0
            effect = float(np.mean([_added(course, step, push)[0][column] for step in course.uncertain]))
        found.append(
            FeatureSensitivity(feature.name, bounds[column], sign * length if holds else None, effect if holds else 0.0)
        )
    return tuple(found)


def _added(course: ShiftedCourse, step: int, shift: Tensor) -> tuple[FloatArray, Tensor]:
    """What a shift [D] of the noise at `step` adds to the next state, in original units and scaled [D]."""
    shifted, usual = course.next_state(step, shift), course.next_state(step, torch.zeros_like(shift))
    return course.problem.decode(shifted) - course.problem.decode(usual), shifted - usual
