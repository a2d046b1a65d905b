"""Intervals of means and shares: against the distributions they come from, and as sure as they say."""

import math

import numpy as np
import pytest

from ifonly.intervals import mean_interval, share_interval, student_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 7, 14, 29, 30, 31, 32, 50, 120, 5000])
def test_quantiles_leave_a_fortieth_above(freedom: int) -> None:
    """The density of Student's t distribution, integrated from the middle."""
    points = np.linspace(0, student_quantile(freedom), 200_001)
    size = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    density = size * (1 + points**2 / freedom) ** (-(freedom + 1) / 2)
    assert np.trapezoid(density, points) == pytest.approx(0.475, abs=2e-5)


def test_quantiles_fall_towards_the_normal_one() -> None:
    found = [student_quantile(freedom) for freedom in range(1, 500)]
    assert found == sorted(found, reverse=True)
    assert student_quantile(10**9) == pytest.approx(1.959964, abs=1e-6)


@pytest.mark.parametrize("count", [2, 3, 5, 20])
def test_intervals_of_few_cover_the_truth_as_often_as_they_say(count: int) -> None:
    samples = np.random.default_rng(count).normal(3.0, 2.0, size=(4000, count))
    found = [mean_interval(sample) for sample in samples]
    covered = sum(one is not None and one.low <= 3.0 <= one.high for one in found)
    assert 0.935 <= covered / len(samples) <= 0.965


def test_one_number_has_no_interval() -> None:
    assert mean_interval(np.array([1.0])) is None
    assert mean_interval(np.zeros(0)) is None


@pytest.mark.parametrize("count", [1, 3, 10, 200])
def test_shares_are_bracketed_within_nothing_and_all(count: int) -> None:
    for hits in {0, 1, count // 2, count}:
        low, high = share_interval(hits, count)
        assert 0 <= low <= hits / count <= high <= 1
        assert high - low > 0.01, "nothing is certain after so few"
        # The ends solve (share - p)^2 = z^2 p (1 - p) / n, where they are no ends of the scale.
        for end in (low, high):
            if 0 < end < 1:
                assert (hits / count - end) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / count, abs=1e-12)
