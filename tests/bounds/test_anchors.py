"""The three anchor strategies."""

import itertools

import numpy as np
import pytest
import torch

from ifonly.bounds import FacilityLocation, MonteCarlo, value_constants
from ifonly.bounds.anchors import _random_sequences
from ifonly.errors import InputError
from ifonly.problem import Problem
from ifonly.query import Query
from ifonly.rewards import minus
from ifonly.simulate import SepsisWorld, simulate_cohort
from ifonly.testing.instances import random_problem


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_observed_states_are_always_anchors() -> None:
    problem = random_problem(4)
    pool = np.random.default_rng(0).uniform(0.5, 2.0, size=(30, problem.noise.shape[1]))
    for strategy in (MonteCarlo(samples=5), MonteCarlo(samples=None, size=20), FacilityLocation(3, pool)):
        anchors = strategy.choose(problem, value_constants(problem), _generator())
        for points, observed in zip(anchors.points, problem.observed_states, strict=True):
            assert (points == observed).all(-1).any()


def test_sampled_sequences_are_admissible_and_change_something() -> None:
    for seed in range(10):
        problem = random_problem(seed, max_changes=3, masked=True)
        sequences = _random_sequences(problem, value_constants(problem), 200, _generator(seed))
        assert (problem.changes(sequences) <= 3).all()
        steps = torch.arange(problem.horizon).expand_as(sequences)
        assert problem.allowed[steps, sequences].all()
        assert len(torch.unique(problem.changes(sequences))) > 1


def test_steps_are_sampled_in_proportion_to_the_constants() -> None:
    """With one change per sequence the share of each step is L_t / sum L, within four standard errors."""
    problem = random_problem(1, actions=3, max_changes=1, masked=False)
    weights = torch.tensor([8.0, 4.0, 2.0, 1.0, 1.0], dtype=torch.float64)
    count = 20_000
    sequences = _random_sequences(problem, weights, count, _generator())
    changed = (sequences != problem.observed_actions).double().mean(0)
    # A drawn action equals the observed one in a third of the cases; then nothing changes.
    expected = weights / weights.sum() * 2 / 3
    error = (expected * (1 - expected) / count).sqrt()
    assert ((changed - expected).abs() <= 4 * error).all()


def test_monte_carlo_by_size_reaches_the_size_or_all_there_is() -> None:
    problem = random_problem(0, horizon=5, actions=3, masked=False, max_changes=2)
    constants = value_constants(problem)
    for size in (problem.horizon, 20, 40):
        anchors = MonteCarlo(samples=None, size=size).choose(problem, constants, _generator())
        assert anchors.total == size
        assert all(
            (points == s).all(-1).any() for points, s in zip(anchors.points, problem.observed_states, strict=True)
        )
    everything = MonteCarlo(samples=None, size=10**6).choose(problem, constants, _generator())
    assert 40 < everything.total <= problem.sequence_count() * problem.horizon


def test_farthest_points_cover_the_pool_within_twice_the_best_radius() -> None:
    """The guarantee of farthest-point clustering, against all subsets of a small pool."""
    problem = random_problem(2, state_size=2, model_kind="linear")
    pool = problem.decode(torch.randn(9, 2, generator=_generator(3), dtype=torch.float64))
    scaled = torch.as_tensor(problem.model.scaler.states.encode(pool))
    distances = torch.cdist(scaled, scaled)
    best = min(float(distances[list(chosen)].amin(0).max()) for chosen in itertools.combinations(range(9), 3))
    anchors = FacilityLocation(3, pool).choose(problem, value_constants(problem), _generator())
    chosen = anchors.points[0][:3]
    assert float(torch.cdist(chosen, scaled).amin(0).max()) <= 2 * best + 1e-12


def test_shared_anchors_are_the_union() -> None:
    problem = random_problem(6)
    anchors = MonteCarlo(samples=10).choose(problem, value_constants(problem), _generator())
    union = {tuple(row.tolist()) for points in anchors.points for row in points}
    for points in anchors.shared().points:
        assert {tuple(row.tolist()) for row in points} == union


def test_same_seed_same_anchors() -> None:
    problem = random_problem(6)
    constants = value_constants(problem)
    first, again, other = (MonteCarlo(samples=10).choose(problem, constants, _generator(s)) for s in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first.points, again.points, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.points, other.points, strict=True))


def test_no_budget_needs_no_samples() -> None:
    problem = random_problem(6, max_changes=0)
    assert MonteCarlo(samples=10).choose(problem, value_constants(problem), _generator()).total == problem.horizon


@pytest.mark.parametrize(
    "wrong",
    [
        {"samples": None},
        {"samples": 10, "size": 10},
        {"samples": 0},
        {"samples": None, "size": -1},
        {"weighting": "best"},
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match="Monte Carlo anchors"):
        MonteCarlo(**wrong)  # type: ignore[arg-type]


def test_facility_location_needs_enough_distinct_states() -> None:
    problem = random_problem(0, state_size=2)
    with pytest.raises(InputError, match="distinct states"):
        FacilityLocation(5, np.ones((10, 2))).choose(problem, value_constants(problem), _generator())
    with pytest.raises(InputError, match=r"states \[N, 2\]"):
        FacilityLocation(5, np.ones((10, 3))).choose(problem, value_constants(problem), _generator())
    with pytest.raises(InputError, match="not a rectangular table"):
        FacilityLocation(5, [[1.0], [1.0, 2.0]])  # type: ignore[arg-type]
    world = SepsisWorld()
    stay = simulate_cohort(1, seed=0, horizon=4)[0]
    sepsis = Problem.from_episode(stay, world, Query(minus("SOFA"), 1))
    below_zero = FacilityLocation(1, -stay.states)
    with pytest.raises(InputError, match="with a logarithm"):
        below_zero.choose(sepsis, value_constants(sepsis), _generator())
    gap = FacilityLocation(1, np.array([[1.0, np.nan], [1.0, 2.0]]))
    with pytest.raises(InputError, match="finite and"):
        gap.choose(problem, value_constants(problem), _generator())
    with pytest.raises(InputError, match="must be positive"):
        FacilityLocation(0, np.ones((10, 2)))
