"""Values that are recorded in steps: a right model passes, a wrong one does not, and all else is as it was."""

import itertools
from dataclasses import replace

import made_worlds as worlds
import numpy as np
import pytest
import torch
from effort import long

from ifonly import Cohort, Feature, LinearModel, Schema
from ifonly.evidence.check.ahead import run_ahead
from ifonly.evidence.check.check import check_model
from ifonly.evidence.check.model_check import Level, ModelCheck
from ifonly.evidence.check.sample import NoiseSample, normal_scores, prior_ranks
from ifonly.models.steps import outside


def from_uniform(ranks: np.ndarray) -> float:
    """Kolmogorov and Smirnov's distance times the root of the number: above 1.63 in one of 100 uniform samples."""
    ordered, count = np.sort(ranks), len(ranks)
    steps = np.arange(count + 1) / count
    distance = max(np.abs(ordered - steps[:-1]).max(), np.abs(ordered - steps[1:]).max())
    return float(distance * np.sqrt(count))


def below(scores: np.ndarray) -> np.ndarray:
    return torch.special.ndtr(torch.as_tensor(scores)).numpy()


STEP = 0.5
"""As large as the deviation of the noise."""
STATE, ACTION, CONTEXT = np.diag([1.0, 0.6]), worlds.ACTION * [0.0, 1.0], worlds.CONTEXT * [[0.0], [1.0]]

ABOUT_WIDTH = {"coverage", "distance", "coverage_ahead", "skill_ahead", "bias_ahead"}


def rounded_walk(subjects: int, *, steps: int = 10, step: float = STEP, seed: int = 0) -> Cohort:
    """Pressures wander by rounded amounts, so that two of five stay as they are; lactate is as in other worlds."""
    rng = np.random.default_rng(seed)
    age = np.repeat(rng.normal(size=subjects), steps).reshape(subjects, steps, 1)
    actions = rng.choice(3, size=(subjects, steps))
    states = np.zeros((subjects, steps, 2))
    for t in range(steps - 1):
        moved = states[:, t] @ STATE.T + age[:, t] @ CONTEXT.T + ACTION[actions[:, t]]
        moved = moved + worlds.SCALE * rng.normal(size=(subjects, 2))
        states[:, t + 1] = np.column_stack([step * np.round(moved[:, 0] / step), moved[:, 1]])
    states[..., 1] = np.exp(states[..., 1])
    return Cohort(
        schema=worlds.SCHEMA,
        ids=tuple(f"episode {i}" for i in range(subjects)),
        offsets=np.arange(subjects + 1) * steps,
        states=states.reshape(-1, 2),
        context=age.reshape(-1, 1),
        actions=actions.reshape(-1),
    )


def model(*, scale: np.ndarray = worlds.SCALE, shift: float = 0.0) -> LinearModel:
    return worlds.model(state=STATE, action=ACTION + np.array([shift, 0.0]), context=CONTEXT, scale=scale)


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return rounded_walk(600, seed=3)


@pytest.fixture(scope="module")
def sample(cohort: Cohort) -> NoiseSample:
    return NoiseSample.of(model().for_search(), cohort, seed=0)


def doubts(model: LinearModel, cohort: Cohort) -> dict[str, Level]:
    found = check_model(model, cohort).findings
    return {one.kind: one.level for one in found if one.level in (Level.FAIL, Level.WARN)}


def test_steps_are_found_where_values_repeat(sample: NoiseSample) -> None:
    assert sample.steps.tolist() == [STEP, 0.0]
    continuous = NoiseSample.of(worlds.model().for_search(), worlds.record(50, seed=3), seed=0)
    assert continuous.steps.tolist() == [0.0, 0.0]


def test_without_steps_a_right_model_would_seem_wrong(sample: NoiseSample) -> None:
    """Or nothing here would be needed."""
    assert from_uniform(prior_ranks(sample.draws, sample.noise)[:, 0]) > 3


def test_ranks_of_a_right_model_are_uniform(sample: NoiseSample) -> None:
    assert all(from_uniform(sample.ranks[:, column]) < 1.63 for column in range(2))
    one, next_one = sample.scores[sample.successive, 0], sample.scores[sample.successive + 1, 0]
    assert abs(np.corrcoef(one, next_one)[0, 1]) < 3 / np.sqrt(len(one))


def test_ranks_are_those_of_the_cells_by_hand(sample: NoiseSample) -> None:
    """Exact shares of the normal prior below both ends of a value's cell; the rank lies between them."""
    middle, value = sample.rows.states[:, 0].numpy(), sample.rows.next_states[:, 0].numpy()
    low, high = (below((value + side - middle) / worlds.SCALE[0]) for side in (-STEP / 2, STEP / 2))
    ranks = sample.ranks[:, 0]
    assert (low - 0.006 <= ranks).all()
    assert (ranks <= high + 0.006).all()
    places = ((ranks - low) / (high - low))[high - low > 0.2]
    assert from_uniform(np.clip(places, 0, 1)) < 1.63


@long
def test_a_right_model_passes_and_wrong_ones_do_not(cohort: Cohort) -> None:
    assert not ABOUT_WIDTH & set(doubts(model(), cohort))
    for factor in (0.5, 2.0):
        wrong = doubts(model(scale=worlds.SCALE * np.array([factor, 1.0])), cohort)
        assert {wrong.get("coverage"), wrong.get("distance")} >= {Level.FAIL}, factor
    shifted = doubts(model(shift=0.5), cohort)
    assert shifted.get("distance") is Level.FAIL


def test_the_check_says_which_values_are_recorded_in_steps(cohort: Cohort) -> None:
    check = check_model(model(), cohort)
    assert {item.name: item.step for item in check.figures.features} == {"pressure": STEP, "lactate": None}
    assert "values often repeat exactly, so they are compared in steps: pressure in 0.5 mmHg" in str(check)
    assert ModelCheck.from_dict(check.to_dict()) == check
    assert "compared in steps" not in str(check_model(worlds.model(), worlds.record(60, seed=3)))


def test_courses_are_compared_with_cells(sample: NoiseSample) -> None:
    for horizon in run_ahead(sample, seed=1):
        assert abs(horizon.coverage["50"][0].value - 0.5) < 0.08
        assert abs(horizon.centre[0].value) < 0.15
    first = run_ahead(sample, seed=1)[0]
    assert first.persistence[0] == pytest.approx(
        np.maximum(np.abs(np.diff(sample.cohort.states[:, 0].reshape(-1, 10), axis=1)) - STEP / 2, 0).mean(), abs=0.05
    ), "a change of one step is half a step outside of what was recorded"


def test_distances_from_cells() -> None:
    ends = np.array([0.0, 2.0, -np.inf]), np.array([1.0, 2.0, 0.0])
    found = outside(np.array([[0.5, 2.0, -9.0], [1.5, 1.0, 0.25], [-1.0, 5.0, 1.0]]), ends)
    assert found.tolist() == [[0.0, 0.0, 0.0], [0.5, 1.0, 0.25], [1.0, 3.0, 1.0]]


def test_cells_end_where_values_do() -> None:
    """The lowest and the highest value of a bounded scale stand for all beyond, too."""
    schema = Schema(
        (Feature("score", "dynamic", scaling="bounded", plausible=(0, 3), margin=0.2), Feature("other", "dynamic")),
        worlds.SCHEMA.actions,
    )
    rng = np.random.default_rng(0)
    states = np.column_stack([rng.integers(0, 4, 400), rng.normal(size=400)]).astype(float)
    cohort = Cohort(
        schema=schema,
        ids=tuple(f"episode {i}" for i in range(40)),
        offsets=np.arange(41) * 10,
        states=states,
        context=np.empty((400, 0)),
        actions=np.zeros(400, dtype=np.int64),
    )
    sample = NoiseSample.of(LinearModel(schema, np.zeros((3, 2, 2))).for_search(), cohort, seed=0)
    assert sample.steps == pytest.approx([1.0, 0.0])
    low, high = (end[:, 0].numpy() for end in sample.cells)
    values = cohort.transitions().next_states[:, 0]
    assert (np.isneginf(low) == (values == 0)).all()
    assert (np.isposinf(high) == (values == 3)).all()
    assert np.isfinite(sample.scores).all()
    shares = [(sample.ranks[values == value, 0].min(), sample.ranks[values == value, 0].max()) for value in range(4)]
    assert all(one[1] <= two[0] + 0.01 for one, two in itertools.pairwise(shares)), "cells do not overlap"
    assert shares[0][0] < 0.05
    assert shares[3][1] > 0.95


def test_models_whose_noise_is_shared_have_no_cells(cohort: Cohort) -> None:
    shared = model().for_search()
    shared.elementwise = False  # type: ignore[misc]
    assert NoiseSample.of(shared, cohort, seed=0).steps.tolist() == [0.0, 0.0]


def test_what_is_carried_forward_makes_no_steps() -> None:
    carried = worlds.carried(100, seed=1)
    assert NoiseSample.of(worlds.model().for_search(), carried, seed=0).steps.tolist() == [0.0, 0.0]
    unmarked = replace(carried, origins=None)
    steps = NoiseSample.of(worlds.model().for_search(), unmarked, seed=0).steps
    assert (steps < 0.2 * worlds.SCALE).all(), "repeated values of a continuous feature have small cells, and stand out"


def test_scores_are_those_of_the_ranks(sample: NoiseSample) -> None:
    np.testing.assert_array_equal(sample.scores, normal_scores(sample.ranks))
    again = NoiseSample.of(model().for_search(), sample.cohort, seed=0)
    np.testing.assert_array_equal(again.ranks, sample.ranks)
