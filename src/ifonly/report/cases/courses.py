"""The course of an episode under one sequence of treatments: states, outcome, and what differs from the recording."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.data.episode import Episode, FloatArray, IntArray, as_actions
from ifonly.data.schema import Feature
from ifonly.errors import InputError
from ifonly.evidence.organs import points_of
from ifonly.problem import BaseProblem
from ifonly.records import finite
from ifonly.result import Change
from ifonly.result.improvement import improvement_between
from ifonly.search.build_result import clipped_outcomes

ROUNDING = 1e-9
"""Values that leave a plausible range by no more than this share of its width have not left it."""


@dataclass(frozen=True)
class Implausible:
    """The steps at which a feature lies outside its plausible range, or has no finite value."""

    feature: str
    steps: tuple[int, ...]


@dataclass(frozen=True)
class ScoreCourse:
    """A score made anew of its organs' values, at every step."""

    feature: str
    values: tuple[int, ...]  # [T]


@dataclass(frozen=True)
class Course:
    """How an episode went, or would have gone under the model, in original units."""

    actions: tuple[int, ...]  # [T]
    states: tuple[tuple[float | None, ...], ...]  # [T][D]
    """Dynamic features; None where the model gives no finite value."""
    outcome: float | None
    """As people read it: values brought back into their plausible ranges, without the cost of changes; None where it
    is not finite."""
    improvement: float | None
    """Relative to the recorded outcome; None where that is zero."""
    changes: tuple[Change, ...]
    implausible: tuple[Implausible, ...]
    admissible: bool
    """Whether the course keeps the rules and the number of changes of the question."""
    scores: tuple[ScoreCourse, ...] = ()
    """What the schema's scores are by the organs of this course."""


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


@dataclass(frozen=True, eq=False)
class Replay:
    """Sequences under the model, in its coordinates; the first is the recorded one."""

    actions: Tensor  # [N, T]
    states: Tensor  # [N, T, (M,) D]
    totals: Tensor  # [N, (M,)]


@torch.no_grad()
def replay_of(problem: BaseProblem, sequences: Sequence[IntArray]) -> Replay:
    """The recorded sequence and these [T], replayed together."""
    actions = torch.as_tensor(np.stack([problem.episode.actions, *sequences]), device=problem.device)
    return Replay(actions, *problem.replay(actions))


def courses_of(problem: BaseProblem, sequences: Sequence[IntArray]) -> list[Course]:
    """The courses under several sequences [T] of actions, replayed together."""
    return courses_along(problem, replay_of(problem, sequences))


@torch.no_grad()
def courses_along(problem: BaseProblem, replay: Replay) -> list[Course]:
    """The course of every sequence of a replay but the first, the recorded one."""
    recorded = problem.episode
    recorded_outcome, *outcomes = clipped_outcomes(problem, replay.states, replay.actions)
    fine = problem.admissible(replay.actions).tolist()
    shown = problem.decode(problem.shown_states(replay.states, replay.totals))
    taken = replay.actions[1:].cpu().numpy()
    changed = taken != recorded.actions
    # Up to the first change a course is the recorded one: what replaying loses to rounding is given back.
    same = np.cumsum(changed, axis=1) - changed == 0
    reached_by = np.where(same[..., np.newaxis], recorded.states, shown[1:])
    scored = _scores(recorded, reached_by, taken)
    found = []
    rows = zip(taken, changed, reached_by, outcomes, fine[1:], scored, strict=True)
    for actions, differs, reached, outcome, keeps_rules, scores in rows:
        changes = tuple(
            Change(int(step), int(recorded.actions[step]), int(actions[step])) for step in np.flatnonzero(differs)
        )
        gained = improvement_between(problem.reward.show, recorded_outcome, outcome)
        found.append(
            Course(
                actions=tuple(actions.tolist()),
                states=tuple(tuple(finite(value) for value in row) for row in reached.tolist()),
                outcome=finite(gained.counterfactual.value),
                improvement=gained.relative,
                changes=changes,
                implausible=_implausible(recorded.schema.dynamic, reached),
                admissible=keeps_rules,
                scores=scores,
            )
        )
    return found


def _scores(episode: Episode, states: FloatArray, actions: IntArray) -> list[tuple[ScoreCourse, ...]]:
    """The scores of courses, states [N, T, D] and actions [N, T], by their organs."""
    found: list[tuple[ScoreCourse, ...]] = [()] * len(states)
    for score in episode.schema.scores:
        points = points_of(score, episode, states, actions).sum(axis=-1).tolist()
        found = [(*one, ScoreCourse(score.feature, tuple(along))) for one, along in zip(found, points, strict=True)]
    return found


def plausible_limits(feature: Feature) -> tuple[float, float]:
    """The smallest and the largest value that count as plausible, with room for rounding."""
    if feature.plausible is None:
        return -math.inf, math.inf
    low, high = feature.plausible
    slack = ROUNDING * (high - low)
    return low - slack, high + slack


def _implausible(features: Sequence[Feature], states: FloatArray) -> tuple[Implausible, ...]:
    found = []
    for feature, values in zip(features, states.T, strict=True):
        low, high = plausible_limits(feature)
        outside = ~np.isfinite(values) | (values < low) | (values > high)
        if outside.any():
            found.append(Implausible(feature.name, tuple(np.flatnonzero(outside).tolist())))
    return tuple(found)
