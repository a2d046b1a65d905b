"""The course of an episode under one sequence of treatments: states, outcome, and what differs from the recording."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.data.episode import FloatArray, IntArray, as_actions
from ifonly.data.schema import ActionSpace, Feature
from ifonly.errors import InputError
from ifonly.problem import BaseProblem
from ifonly.runs.rows import ZERO, clipped_sums

ROUNDING = 1e-9
"""Values that leave a plausible range by no more than this share of its width have not left it."""


@dataclass(frozen=True)
class Change:
    """One step at which a course is treated differently from what was recorded."""

    step: int
    at: float
    """The time of the step, in the schema's unit."""
    before: int
    after: int
    words: str
    directions: Mapping[str, str] = field(default_factory=dict)
    """For each dose axis up, down or same; empty where treatments have no doses."""

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return {
            "step": self.step,
            "at": self.at,
            "from": self.before,
            "to": self.after,
            "words": self.words,
            "directions": dict(self.directions),
        }


@dataclass(frozen=True)
class Implausible:
    """The steps at which a feature lies outside its plausible range, or has no finite value."""

    feature: str
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Course:
    """How an episode went, or would have gone under the model, in original units."""

    actions: tuple[int, ...]  # [T]
    states: tuple[tuple[float | None, ...], ...]  # [T][D]
    """Dynamic features; None where the model gives no finite value."""
    outcome: float | None
    """As people read it, without the cost of changes; None where it is not finite."""
    improvement: float | None
    """Relative to the recorded outcome, values brought back into their plausible ranges; None where that is zero."""
    changes: tuple[Change, ...]
    implausible: tuple[Implausible, ...]
    admissible: bool
    """Whether the course keeps the rules and the number of changes of the question."""

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON, all numbers finite."""
        return {
            "actions": list(self.actions),
            "states": [list(row) for row in self.states],
            "outcome": self.outcome,
            "improvement": self.improvement,
            "changes": [change.to_dict() for change in self.changes],
            "implausible": [{"feature": one.feature, "steps": list(one.steps)} for one in self.implausible],
            "admissible": self.admissible,
        }


def course_of(problem: BaseProblem, actions: npt.ArrayLike | Tensor) -> Course:
    """The course under `actions` [T], whether or not they keep the rules of the question."""
    given = actions.tolist() if isinstance(actions, Tensor) else actions
    sequence = as_actions("a course", given, locate=lambda step: f"a course, step {step}")
    if len(sequence) != problem.horizon or not ((sequence >= 0) & (sequence < problem.action_count)).all():
        raise InputError(
            f"a course of episode {problem.episode.id!r} takes {problem.horizon} actions, numbered from 0 to "
            f"{problem.action_count - 1}; found others, or another number of them."
        )
    return courses_of(problem, [sequence])[0]


@torch.no_grad()
def courses_of(problem: BaseProblem, sequences: Sequence[IntArray]) -> list[Course]:
    """The courses under several sequences [T] of actions, replayed together."""
    batch = torch.as_tensor(np.stack([problem.episode.actions, *sequences]), device=problem.device)
    states, totals = problem.replay(batch)
    outcomes = problem.counted(totals)
    clipped = clipped_sums(problem, states, batch)
    # Whole numbers times a number would be of single precision.
    without_cost = (outcomes + problem.change_cost * problem.changes(batch).to(outcomes.dtype)).tolist()
    fine = problem.admissible(batch).tolist()
    shown = problem.decode(problem.shown_states(states, totals))
    return [
        _course(
            problem,
            actions,
            path,
            outcome=finite(problem.reward.show(without_cost[place]).value),
            improvement=_relative(clipped[place], clipped[0]),
            admissible=fine[place],
        )
        for place, (actions, path) in enumerate(zip(sequences, shown[1:], strict=True), start=1)
    ]


def _course(
    problem: BaseProblem,
    actions: IntArray,
    path: FloatArray,
    *,
    outcome: float | None,
    improvement: float | None,
    admissible: bool,
) -> Course:
    recorded = problem.episode
    steps = [int(step) for step in np.flatnonzero(actions != recorded.actions)]
    # Up to the first change the course is the recorded one: what replaying loses to rounding is given back.
    same = steps[0] + 1 if steps else len(recorded)
    states = np.concatenate([recorded.states[:same], path[same:]])
    return Course(
        actions=tuple(actions.tolist()),
        states=tuple(tuple(finite(value) for value in row) for row in states.tolist()),
        outcome=outcome,
        improvement=improvement,
        changes=tuple(_change(problem, step, int(actions[step])) for step in steps),
        implausible=tuple(_implausible(recorded.schema.dynamic, states)),
        admissible=admissible,
    )


def _change(problem: BaseProblem, step: int, after: int) -> Change:
    schema = problem.episode.schema
    before = int(problem.episode.actions[step])
    levels = action_levels(schema.actions)
    directions = {
        axis.name: "up" if new > old else "down" if new < old else "same"
        for axis, old, new in zip(schema.actions.axes, levels[before], levels[after], strict=True)
    }
    words = schema.actions.describe_change(before, after)
    return Change(step, step * schema.step_length, before, after, words, directions)


def action_levels(space: ActionSpace) -> list[tuple[int, ...]]:
    """For every action the level of each dose axis, by its number; nothing where there are no axes."""
    return (
        list(itertools.product(*(range(len(axis.levels)) for axis in space.axes))) if space.axes else [()] * len(space)
    )


def _implausible(features: Sequence[Feature], states: FloatArray) -> list[Implausible]:
    found = []
    for feature, values in zip(features, states.T, strict=True):
        low, high = feature.plausible or (-math.inf, math.inf)
        slack = ROUNDING * (high - low) if feature.plausible else 0.0
        outside = ~np.isfinite(values) | (values < low - slack) | (values > high + slack)
        if outside.any():
            found.append(Implausible(feature.name, tuple(np.flatnonzero(outside).tolist())))
    return found


def _relative(value: float, observed: float) -> float | None:
    """By how much an outcome is better, relative to the size of the recorded one."""
    return finite((value - observed) / abs(observed)) if abs(observed) > ZERO else None


def finite(value: float) -> float | None:
    """The number, or None where it is none that JSON knows."""
    return value if math.isfinite(value) else None
