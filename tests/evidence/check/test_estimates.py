import numpy as np
import pytest

from ifonly.evidence.check.figures import Estimate, ratio, ratios
from ifonly.intervals import mean_interval


def test_with_one_row_per_subject_it_is_the_interval_of_a_mean() -> None:
    values = np.random.default_rng(0).normal(size=40)
    found, expected = ratio(values, np.ones(40), np.arange(40)), mean_interval(values)
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(tuple(expected))


def test_rows_of_a_subject_count_once() -> None:
    rng = np.random.default_rng(1)
    values, subjects = rng.normal(size=(60, 2)), np.repeat(np.arange(20), 3)
    once = ratios(values, np.ones(60), subjects)
    often = ratios(np.tile(values, (5, 1)), np.ones(300), np.tile(subjects, 5))
    for one, many in zip(once, often, strict=True):
        assert (many.value, many.low, many.high) == pytest.approx((one.value, one.low, one.high))


def test_intervals_of_ratios_hold_what_they_promise() -> None:
    """Rows of a subject share most of what they have; subjects have different numbers of rows."""
    rng = np.random.default_rng(2)
    hits, trials = 0, 400
    for _ in range(trials):
        rows = rng.integers(1, 12, size=30)
        subjects = np.repeat(np.arange(30), rows)
        values = 1 + rng.normal(size=30)[subjects] + 0.3 * rng.normal(size=len(subjects))
        found = ratio(values, np.ones(len(subjects)), subjects)
        hits += found.low <= 1 <= found.high
    assert hits / trials == pytest.approx(0.95, abs=3 * np.sqrt(0.05 * 0.95 / trials) + 0.015)


def test_too_few_subjects_have_no_interval() -> None:
    assert ratio(np.ones(5), np.ones(5), np.zeros(5, dtype=int)) == Estimate(1.0)
    assert np.isnan(ratio(np.ones(3), np.zeros(3), np.arange(3)).value)


@pytest.mark.parametrize(
    ("estimate", "sure"),
    [
        (Estimate(0.5, 0.2, 0.8), 0.2),
        (Estimate(-0.5, -0.8, -0.2), 0.2),
        (Estimate(0.1, -0.2, 0.4), 0.0),
        (Estimate(3.0), 0.0),
    ],
)
def test_what_is_surely_away_from_zero(estimate: Estimate, sure: float) -> None:
    assert estimate.from_zero() == sure
    assert estimate.moved(0.0, 2.0).from_zero() == 2 * sure
