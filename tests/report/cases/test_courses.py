"""Courses against the problem's own rollout, the recording, and rules as a person reads them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from dosed_problems import dosed

from ifonly.constraints import Constraints
from ifonly.data.episode import Episode
from ifonly.errors import InputError
from ifonly.models import LinearModel
from ifonly.problem import Problem
from ifonly.query import Query
from ifonly.records import to_plain
from ifonly.report.cases import course_of
from ifonly.report.cases.courses import courses_of
from ifonly.result import Change
from ifonly.rewards import Linear, minus
from ifonly.testing.instances import random_problem


def drawn(seed: int) -> tuple[Problem, np.ndarray]:
    """A problem of any kind, and some sequences [N, T], the recorded one first."""
    problem = random_problem(seed, horizon=5, rules=None, max_changes=3)
    rng = np.random.default_rng(seed)
    sequences = rng.integers(problem.action_count, size=(6, problem.horizon))
    sequences[0] = problem.episode.actions
    sequences[1, :3] = problem.episode.actions[:3]
    return problem, sequences


@pytest.mark.parametrize("seed", range(12))
def test_states_and_outcomes_are_those_of_the_rollout(seed: int) -> None:
    problem, sequences = drawn(seed)
    batch = torch.as_tensor(sequences)
    states, outcomes = problem.rollout(batch)
    decoded = problem.decode(states)
    fine = problem.admissible(batch).tolist()
    for number, actions in enumerate(sequences):
        course = course_of(problem, actions)
        assert course.actions == tuple(actions)
        np.testing.assert_allclose(course.states, decoded[number], rtol=1e-5, atol=1e-6)
        changes = int((actions != problem.episode.actions).sum())
        shown = problem.reward.show(float(outcomes[number]) + changes * problem.change_cost)
        assert course.outcome == pytest.approx(shown.value, rel=1e-12, abs=1e-9)
        assert course.admissible == fine[number]
        assert [change.step for change in course.changes] == list(np.flatnonzero(actions != problem.episode.actions))
        together = courses_of(problem, list(sequences))[number]
        np.testing.assert_allclose(together.states, course.states, rtol=1e-6, atol=1e-6)
        assert replace(together, states=(), outcome=0, improvement=0) == replace(
            course, states=(), outcome=0, improvement=0
        )


@pytest.mark.parametrize("seed", range(12))
def test_the_recorded_course_is_the_recording_to_the_last_bit(seed: int) -> None:
    problem, sequences = drawn(seed)
    course = course_of(problem, problem.episode.actions)
    assert np.array_equal(course.states, problem.episode.states)
    assert course.changes == ()
    assert course.improvement in (0.0, None)
    later = course_of(problem, sequences[1])  # differs from step 3 on, if at all
    assert np.array_equal(later.states[:4], problem.episode.states[:4])


def test_changes_are_those_of_the_sequence() -> None:
    course = course_of(dosed(), [5, 0, 5, 1])
    assert course.changes == (Change(0, 0, 5), Change(1, 3, 0), Change(3, 0, 1))


def test_outcomes_are_shown_with_their_own_sign_and_without_costs() -> None:
    problem = dosed(change_cost=0.3)
    observed = course_of(problem, problem.episode.actions)
    assert observed.outcome == pytest.approx(8 + 6 + 4 + 3)
    # 20 mg and 80 mL instead of nothing at first: SOFA is lower by 2.8 from step 1 on.
    better = course_of(problem, [5, 3, 5, 0])
    assert better.outcome == pytest.approx(21 - 3 * 2.8, rel=1e-12)
    assert better.improvement == pytest.approx(3 * 2.8 / 21)
    assert course_of(dosed(reward=Linear({"MAP": 1.0})), [5, 3, 5, 0]).outcome == pytest.approx(263 + 3 * 4)


def test_values_outside_their_ranges_are_listed_and_do_not_count() -> None:
    course = course_of(dosed(), [5, 5, 5, 0])  # lower by 2.8 at step 1, by another 1.5 from step 2 on
    assert [row[0] for row in course.states] == pytest.approx([8, 3.2, -0.3, -1.3])
    assert [(one.feature, one.steps) for one in course.implausible] == [("SOFA", (2, 3))]
    assert course.outcome == pytest.approx(8 + 3.2)
    assert course.improvement == pytest.approx((21 - 8 - 3.2) / 21)
    assert course_of(dosed(plausible=None), [5, 5, 5, 0]).implausible == ()


def test_rounding_at_the_end_of_a_range_is_not_outside() -> None:
    problem = dosed(plausible=(3.0, 8.0))
    assert course_of(problem, problem.episode.actions).implausible == ()


def test_what_is_not_admissible_is_shown_and_said_to_be() -> None:
    problem = dosed(constraints=Constraints(locked=[0]))
    assert not course_of(problem, [5, 3, 5, 0]).admissible
    assert course_of(problem, [0, 5, 5, 0]).admissible
    assert not course_of(dosed(), [5, 5, 0, 0]).admissible, "more changes than asked for"


@pytest.mark.filterwarnings("ignore::ifonly.errors.PlausibilityWarning")
def test_no_relative_improvement_of_nothing() -> None:
    for plausible, known in ((None, False), ((0.0, 10.0), True)):  # the range makes -1 zero, and the sum 1
        problem = dosed(plausible=plausible)
        states, context = [[1, 60], [-1, 62]], [[63, 1], [63, 1]]
        episode = Episode("zero", problem.episode.schema, states, [0, 0], context)
        course = course_of(Problem.from_episode(episode, problem.model, Query(Linear({"SOFA": 1.0}), 1)), [5, 0])
        assert (course.improvement is not None) == known


def test_numbers_that_json_does_not_know_become_null() -> None:
    problem = dosed(plausible=None)
    growing = torch.eye(2, dtype=torch.float64).repeat(6, 1, 1)
    growing[5] *= 1e200
    model = LinearModel(problem.episode.schema, growing)
    states = np.cumsum(np.ones((4, 2)), axis=0)
    episode = Episode("large", problem.episode.schema, states, [0, 0, 0, 0], problem.episode.context)
    course = course_of(Problem.from_episode(episode, model, Query(minus("SOFA"), None)), [5, 5, 5, 0])
    assert course.states[-1][0] is None
    assert course.outcome is None
    assert course.improvement is None
    assert {one.feature: one.steps for one in course.implausible}["SOFA"] == (2, 3)
    json.dumps(to_plain(course), allow_nan=False)
    assert all(math.isfinite(value) for value in course.states[0] if value is not None)


@pytest.mark.parametrize("actions", [[0, 3, 5], [0, 3, 5, 6], [0, 3, 5, -1], [0, 3, 5, 0.5], "0350", [[0, 3, 5, 0]]])
def test_what_is_no_sequence_is_refused(actions: object) -> None:
    with pytest.raises(InputError):
        course_of(dosed(), actions)  # type: ignore[arg-type]
