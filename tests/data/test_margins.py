"""Scales learned from transitions: where changes go by factors, where they do not, and at the ends of scores."""

import numpy as np
import pytest

from ifonly import ActionSpace, Cohort, Feature, Schema
from ifonly.data.margins import LARGEST, SMALLEST, learn_log_offset, learn_margins
from ifonly.data.scaling import Scaler

EPISODES, STEPS = 60, 20


def cohort_of(values: np.ndarray, **feature: object) -> Cohort:
    """Episodes [E, T] of one bounded feature from 0 to 1, with an action that does nothing."""
    schema = Schema(
        (Feature("x", "dynamic", scaling="bounded", plausible=(0, 1), **feature),), ActionSpace.categories(["a", "b"])
    )
    count = values.size
    return Cohort(
        schema,
        tuple(f"e{n}" for n in range(len(values))),
        np.arange(len(values) + 1) * values.shape[1],
        values.reshape(count, 1),
        np.empty((count, 0)),
        np.arange(count) % 2,
    )


def by_factors(rng: np.random.Generator) -> np.ndarray:
    """Shares of thousandths that grow and shrink by a tenth or so at each step."""
    return 2e-3 * np.exp(np.cumsum(0.15 * rng.standard_normal((EPISODES, STEPS)), axis=1)).clip(1e-2, 1e2)


def by_sums(rng: np.random.Generator) -> np.ndarray:
    """Shares that go back to a third, with steps of equal size wherever they are."""
    values = np.empty((EPISODES, STEPS))
    values[:, 0] = 0.3
    for step in range(1, STEPS):
        noise = rng.uniform(-0.1, 0.1, EPISODES)
        values[:, step] = 0.3 + 0.7 * (values[:, step - 1] - 0.3) + noise * (2 / 3)
    return values


def margins_of(cohort: Cohort) -> np.ndarray:
    found: np.ndarray = learn_margins(
        cohort.schema.dynamic, cohort.transitions(), np.array(cohort.schema.actions.vectors)
    )[0]
    return found


def test_changes_by_factors_have_a_scale_that_ends_where_values_do() -> None:
    for seed in range(5):
        assert margins_of(cohort_of(by_factors(np.random.default_rng(seed))))[0] < 1e-3


def test_changes_of_equal_size_have_one_that_ends_beyond() -> None:
    for seed in range(5):
        assert margins_of(cohort_of(by_sums(np.random.default_rng(seed))))[0] == pytest.approx(LARGEST)


def test_the_upper_end_is_learned_like_the_lower_one() -> None:
    values = by_factors(np.random.default_rng(0))
    one, two = margins_of(cohort_of(values)), margins_of(cohort_of(1 - values))
    assert two[1] < 1e-3
    assert one[0] < 1e-3


def test_a_score_is_widened_by_about_half_a_point() -> None:
    rng = np.random.default_rng(1)
    points = np.clip(np.cumsum(rng.integers(-1, 2, size=(EPISODES, STEPS)), axis=1) + 4, 0, 12)
    low, high = margins_of(cohort_of(points / 12))
    for margin in (low, high):
        assert margin * 1.0001 >= 0.5 / 12
        assert margin <= LARGEST


def test_recorded_extremes_stay_finite_and_are_reproduced() -> None:
    values = by_factors(np.random.default_rng(2))
    values[0, 3], values[1, 5] = 0.0, 1.0
    cohort = cohort_of(values)
    columns = Scaler.fit(cohort).states
    scaled = columns.encode(cohort.states)
    assert np.isfinite(scaled).all()
    np.testing.assert_allclose(columns.decode(scaled), cohort.states, atol=1e-12)
    assert margins_of(cohort)[0] >= SMALLEST


def test_a_margin_in_the_schema_is_kept() -> None:
    cohort = cohort_of(by_factors(np.random.default_rng(3)), margin=0.02)
    assert np.isnan(margins_of(cohort)).all()
    link = Scaler.fit(cohort).states.link
    np.testing.assert_allclose([link.low[0], link.high[0]], [-0.02, 1.02])


def test_many_episodes_of_one_length_give_what_fewer_do() -> None:
    """Every second row of episodes of three steps would be a first step."""
    rng = np.random.default_rng(6)
    values = (
        2e-3 * np.exp(np.cumsum(0.15 * rng.standard_normal((6000, 3)), axis=1)) * np.exp(rng.normal(size=(6000, 1)))
    )
    values[:, 0] = 0.5  # says nothing about small values
    few, many = (margins_of(cohort_of(values[:count]))[0] for count in (1500, 6000))
    assert 0.2 < few / many < 5


def test_few_transitions_and_values_at_an_end_alone_have_a_margin() -> None:
    for values in (np.array([[0.2, 0.4]]), np.zeros((3, 4)), np.ones((3, 4))):
        assert (margins_of(cohort_of(values)) > 0).all()


def test_offsets_of_logarithms_follow_the_changes_too() -> None:
    rng = np.random.default_rng(4)
    factors, sums = 1e3 * by_factors(rng), 100 * by_sums(rng)
    small = learn_log_offset(factors[:, :-1].ravel(), factors[:, 1:].ravel())
    large = learn_log_offset(sums[:, :-1].ravel(), sums[:, 1:].ravel())
    assert small < np.median(factors)
    assert large == pytest.approx(LARGEST * sums.max())
    with_zeros = np.where(rng.random(factors.shape) < 0.1, 0.0, factors)
    assert learn_log_offset(with_zeros[:, :-1].ravel(), with_zeros[:, 1:].ravel()) > 0
