"""Stacking weights: the best of all weights above the floor, by brute force over the simplex."""

import itertools

import numpy as np
import pytest

from ifonly.errors import InputError
from ifonly.models.stacking import ENOUGH, stacking_weights


def mean_log(logs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean log density [...] of mixtures with weights [..., K]."""
    top = logs.max(1, keepdims=True)
    return (np.log(weights @ np.exp(logs - top).T) + top[:, 0]).mean(-1)


def grid(count: int, steps: int, floor: float) -> np.ndarray:
    """All weights on a grid of the simplex above the floor."""
    parts = [cells for cells in itertools.product(range(steps + 1), repeat=count - 1) if sum(cells) <= steps]
    free = np.array([[*cells, steps - sum(cells)] for cells in parts]) / steps
    return floor + (1 - count * floor) * free


@pytest.mark.parametrize("least", [0.1, 0.0, 0.5])
@pytest.mark.parametrize(("count", "steps"), [(2, 2000), (3, 120)])
def test_no_weights_of_a_grid_do_better(count: int, steps: int, least: float) -> None:
    every = grid(count, steps, least / count)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        centres = rng.normal(size=count) * (0.2, 1.0, 3.0)[seed % 3]
        values = rng.normal(size=(60, 1)) + rng.choice(centres, size=(60, 1))
        logs = -0.5 * (values - centres) ** 2 - rng.uniform(0, 1, size=count) - 700 * (seed == 7)
        found = stacking_weights(logs, least=least)
        assert found.sum() == pytest.approx(1)
        assert found.min() >= least / count - 1e-12
        best = mean_log(logs, every).max()
        assert mean_log(logs, found) >= best - ENOUGH
        assert mean_log(logs, found) == pytest.approx(best, abs=5e-3)


def test_alike_models_share_and_a_hopeless_one_keeps_the_floor() -> None:
    logs = np.random.default_rng(0).normal(size=(40, 1)).repeat(4, axis=1)
    np.testing.assert_allclose(stacking_weights(logs), 0.25)
    logs[:, 3] -= 50
    np.testing.assert_allclose(stacking_weights(logs)[3], 0.025, atol=1e-6)
    logs[:, 3] = np.nan
    np.testing.assert_allclose(stacking_weights(logs), [0.325, 0.325, 0.325, 0.025], atol=1e-6)


def test_rows_that_nobody_explains_say_nothing() -> None:
    logs = np.log([[0.9, 0.1], [0.2, 0.8], [0.6, 0.3]])
    more = np.vstack([logs, [[-np.inf, -np.inf], [np.nan, np.nan]]])
    np.testing.assert_allclose(stacking_weights(more), stacking_weights(logs))
    np.testing.assert_allclose(stacking_weights(more[3:]), 0.5)


def test_wrong_shapes_and_floors_are_refused() -> None:
    for wrong in (np.zeros(3), np.zeros((0, 2)), np.zeros((2, 0))):
        with pytest.raises(InputError, match="rows, models"):
            stacking_weights(wrong)
    with pytest.raises(InputError, match="least="):
        stacking_weights(np.zeros((2, 2)), least=1.5)
