"""How much the noise would have to differ before a recommended change stops helping, and what that would look like."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.data.episode import FloatArray
from ifonly.data.schema import Schema, moment
from ifonly.errors import InputError
from ifonly.evidence import robustness, witnesses
from ifonly.evidence.sequences import checked_sequence
from ifonly.evidence.shifts import Course
from ifonly.evidence.words import finite, rounded_down, rounded_up
from ifonly.problem import Problem

LARGEST = 10.0
"""Standard deviations up to which shifts are tried."""

SHOWN_EFFECTS = 3
"""Features that a sentence names, those that move most."""


@dataclass(frozen=True)
class StepSensitivity:
    """An unrecorded influence at one step. Sizes are lengths of standardised noise: prior standard deviations."""

    step: int
    harmless_below: float
    """No smaller shift undoes the gain: proven; 0 where nothing is, infinity where no shift at all does."""
    undone_by: float | None
    """The size of a shift that does: the smallest found; None where none was found up to the limit."""
    effect: tuple[float, ...]
    """What that shift adds to each dynamic feature of the next state, in original units; zeros where there is none."""
    scaled_effect: tuple[float, ...]
    """The same in the model's scaled coordinates, in which features can be compared."""


@dataclass(frozen=True)
class FeatureSensitivity:
    """An unrecorded factor that pushes one feature's noise at every step from the first change on, by the same shift.

    Sizes are in prior standard deviations of that feature's noise.
    """

    feature: str
    harmless_below: float
    undone_by: float | None
    """With its sign; None where none was found up to the limit."""
    effect: float
    """What that shift adds to the feature from one step to the next, on average, in original units."""


@dataclass(frozen=True)
class Sensitivity:
    """What would undo the gain of one sequence."""

    schema: Schema
    gain: float
    """Over the observed outcome, in the reward's units."""
    changes: int
    largest: float
    """Up to this size shifts were tried."""
    steps: tuple[StepSensitivity, ...]
    """From the first change on, before which the course is the recorded one; the last step has no noise."""
    features: tuple[FeatureSensitivity, ...]

    @property
    def helps(self) -> bool:
        """Whether there is a gain that could be undone."""
        return self.gain > 0

    @property
    def weakest(self) -> StepSensitivity | None:
        """The step at which the smallest influence undoes the gain; None where none was found to."""
        found = [step for step in self.steps if step.undone_by is not None]
        return min(found, key=lambda step: step.undone_by or 0.0, default=None)

    @property
    def summary(self) -> str:
        """In one sentence."""
        if not self.changes:
            return "nothing is changed, so there is no gain to undo"
        if not self.helps:
            return "the changes do not help, so there is no gain to undo"
        if not self.steps:
            return "only the last action is changed, which no later influence can undo"
        weakest = self.weakest
        if weakest is None:
            return (
                f"no unrecorded influence at a single step was found to undo the gain, up to {self.largest:g} of its "
                "usual standard deviations"
            )
        assert weakest.undone_by is not None
        return (
            f"an unrecorded influence at {moment(self.schema, weakest.step)} as large as "
            f"{rounded_up(weakest.undone_by)} of its usual standard deviations would be enough to undo the gain"
            f"{_harmless(min(step.harmless_below for step in self.steps))}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; what is infinite is null."""
        return {
            "summary": self.summary,
            "gain": finite(self.gain),
            "largest_tried": self.largest,
            "steps": [
                {
                    "step": step.step,
                    "harmless_below": finite(step.harmless_below),
                    "undone_by": step.undone_by,
                    "effect": dict(zip(self._names, step.effect, strict=True)),
                }
                for step in self.steps
            ],
            "features": [{**vars(item), "harmless_below": finite(item.harmless_below)} for item in self.features],
        }

    @property
    def _names(self) -> list[str]:
        return [feature.name for feature in self.schema.dynamic]

    def __str__(self) -> str:
        lines = [self.summary]
        lines += [f"  at {moment(self.schema, step.step)}: {self._step_in_words(step)}" for step in self.steps]
        pushes = [item for item in self.features if item.undone_by is not None]
        lines += [f"  at every step: {self._feature_in_words(item)}" for item in sorted(pushes, key=_size)]
        if self.features and not pushes:
            lines.append(f"  at every step: no common push of a single feature undoes it, up to {self.largest:g}")
        if self.steps:
            lines.append(
                "  (Sizes are standard deviations of the noise as the model knows it; smaller influences than those "
                "found may exist, but none below what is said to be harmless.)"
            )
        return "\n".join(lines)

    def _step_in_words(self, step: StepSensitivity) -> str:
        if math.isinf(step.harmless_below):
            return "no influence can undo it"
        if step.undone_by is None:
            return f"nothing found that undoes it, up to {self.largest:g}{_harmless(step.harmless_below)}"
        return (
            f"{rounded_up(step.undone_by)} undoes it ({self._effect_in_words(step)} at "
            f"{moment(self.schema, step.step + 1)}){_harmless(step.harmless_below)}"
        )

    def _effect_in_words(self, step: StepSensitivity) -> str:
        moves = sorted(
            zip(step.scaled_effect, step.effect, self.schema.dynamic, strict=True), key=lambda move: -abs(move[0])
        )
        shown = [(value, feature) for _, value, feature in moves[:SHOWN_EFFECTS] if value]
        return ", ".join(f"{feature.name} {value:+.3g} {feature.unit}".rstrip() for value, feature in shown)

    def _feature_in_words(self, item: FeatureSensitivity) -> str:
        assert item.undone_by is not None
        unit = self.schema.dynamic[self.schema.dynamic_index(item.feature)].unit
        effect = f"about {item.effect:+.3g} {unit}".rstrip()
        size = rounded_up(abs(item.undone_by))
        return f"{item.feature} pushed by {size} undoes it ({effect} a step){_harmless(item.harmless_below)}"


@torch.no_grad()
def sensitivity(problem: Problem, actions: npt.ArrayLike | Tensor, *, largest: float = LARGEST) -> Sensitivity:
    """How much the noise would have to differ before `actions` [T], a result's for instance, stop helping.

    For every step by itself, in any direction; and for every feature, by the same shift at all steps. Shifts up to
    `largest` prior standard deviations are tried; each that is reported was replayed and leaves no gain. Lower bounds
    are proven where the model's constants allow it. Everything rests on the model: a wrong one may be wrong about this.
    """
    if not isinstance(problem, Problem):
        raise InputError("sensitivity: ask it of one model's problem; a panel has one in `members` for each model.")
    if not (math.isfinite(largest) and largest > 0):
        raise InputError(f"sensitivity: largest={largest} must be a positive number of standard deviations.")
    course = Course.of(problem, checked_sequence(problem, actions))
    if not math.isfinite(course.gain):
        problem.require_finite(torch.tensor(course.gain))
    helps = course.gain > problem.tolerance
    steps = list(course.uncertain) if helps else []
    return Sensitivity(
        schema=problem.episode.schema,
        gain=course.gain if helps or course.gain < 0 else 0.0,
        changes=int(problem.changes(course.sequence)),
        largest=largest,
        steps=_steps(course, steps, largest) if steps else (),
        features=_features(course, largest) if steps else (),
    )


def _steps(course: Course, steps: list[int], largest: float) -> tuple[StepSensitivity, ...]:
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


def _features(course: Course, largest: float) -> tuple[FeatureSensitivity, ...]:
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


def _added(course: Course, step: int, shift: Tensor) -> tuple[FloatArray, Tensor]:
    """What a shift [D] of the noise at `step` adds to the next state, in original units and scaled [D]."""
    shifted, usual = course.next_state(step, shift), course.next_state(step, torch.zeros_like(shift))
    return course.problem.decode(shifted) - course.problem.decode(usual), shifted - usual


def _harmless(bound: float) -> str:
    """What is proven not to undo the gain, if that is anything."""
    if bound < 0.01:
        return ""
    return f"; influences below {rounded_down(bound)} cannot"


def _size(item: FeatureSensitivity) -> float:
    return abs(item.undone_by or 0.0)
