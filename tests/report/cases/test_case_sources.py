"""Where a gain comes from: parts that add up to it, each what its measurement alone brings."""

import numpy as np
import pytest
from dosed_problems import dosed

import ifonly
from ifonly.report.cases import case_of, course_of
from ifonly.report.cases.case import GainSource
from ifonly.report.cases.courses import replay_of
from ifonly.report.cases.sources import sources_of
from ifonly.rewards import Linear


def total_of(problem: ifonly.Problem, states: np.ndarray) -> float:
    """The weighted sum over all steps, values within their plausible ranges, by hand."""
    values = {}
    for column, feature in enumerate(problem.episode.schema.dynamic):
        low, high = feature.plausible or (-np.inf, np.inf)
        values[feature.name] = np.clip(states[:, column], low, high)
    return float(sum(weight * values[name].sum() for name, weight in problem.query.reward.weights.items()))  # type: ignore[attr-defined]


def sources(problem: ifonly.Problem, actions: np.ndarray) -> tuple[GainSource, ...]:
    replay = replay_of(problem, [actions])
    return sources_of(problem, replay.actions, replay.states)


def test_parts_are_those_of_each_measurement_and_add_up() -> None:
    names = ["SOFA", "MAP"]
    problem = dosed(reward=Linear({"SOFA": -1.0, "MAP": 0.5}))
    actions = np.array(problem.episode.actions)
    actions[0] = (actions[0] + 2) % problem.action_count  # another drug dose, which moves both
    course = course_of(problem, actions)
    assert course.outcome is not None
    recorded, reached = problem.episode.states, np.array(course.states, dtype=float)
    found = {source.name: source.gain for source in sources(problem, actions)}
    assert set(found) == set(names)
    for column, name in enumerate(names):
        mixed = recorded.copy()
        mixed[:, column] = reached[:, column]
        assert found.get(name, 0.0) == pytest.approx(total_of(problem, mixed) - total_of(problem, recorded), abs=1e-6)
    before = course_of(problem, problem.episode.actions).outcome
    assert before is not None
    assert sum(found.values()) == pytest.approx(course.outcome - before, abs=1e-6)


def test_a_case_tells_them_the_largest_first_and_nothing_of_the_recording() -> None:
    problem = dosed()
    result = ifonly.solve(problem)
    answer = case_of(problem, result).answer
    assert answer is not None
    gains = [source.gain for source in answer.sources]
    assert gains == sorted(gains, reverse=True)
    assert [source.kind for source in answer.sources] == (["feature"] if answer.best.changes else [])
    assert sources(problem, problem.episode.actions) == ()
