import numpy as np
import pytest
import torch
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st
from made_behaviour import QUICK, learned, small_cohort

from ifonly.errors import InputError
from ifonly.evidence.behaviour import BehaviourSettings, Neighbours, fit_behaviour
from ifonly.evidence.behaviour import behaviour as behaviour_module


def naive(recorded: np.ndarray, states: np.ndarray, k: int) -> list[float]:
    """The definition, in plain loops."""

    def kth(state: np.ndarray, others: np.ndarray) -> float:
        return sorted(float(np.sqrt(((state - other) ** 2).sum())) for other in others)[k - 1]

    own = [kth(state, np.delete(recorded, place, axis=0)) for place, state in enumerate(recorded)]
    distances = [kth(state, recorded) for state in states]
    return [100 * sum(near < distance * (1 - 1e-9) for near in own) / len(own) for distance in distances]


@settings(max_examples=some(40), deadline=None)
@given(
    count=st.integers(2, 30), size=st.integers(1, 4), k=st.integers(1, 5), seed=st.integers(0, 1000), ties=st.booleans()
)
def test_percentiles_are_those_of_the_definition(count: int, size: int, k: int, seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    recorded = rng.integers(-2, 3, size=(count, size)).astype(float) if ties else rng.normal(size=(count, size))
    states = np.concatenate([recorded[:3], 2 * rng.normal(size=(5, size)), np.full((1, size), 50.0)])
    found = Neighbours.of(torch.as_tensor(recorded), k=k)
    assert found.k == min(k, count - 1)
    percentiles = found.percentiles(torch.as_tensor(states))
    assert percentiles.tolist() == pytest.approx(naive(recorded, states, found.k))
    assert percentiles[-1] == 100


def test_parts_make_no_difference(monkeypatch) -> None:
    states = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = Neighbours.of(states, k=4)
    monkeypatch.setattr(behaviour_module, "PAIRS_AT_ONCE", 120)
    told = []
    parts = Neighbours.of(states, k=4, progress=told.append)
    assert torch.equal(whole.distances, parts.distances)
    assert torch.equal(whole.percentiles(states + 0.3), parts.percentiles(states + 0.3))
    assert (told[-1].done, told[-1].total) == (50, 50)
    assert len(told) == 25
    assert whole.percentiles(states[:0]).shape == (0,)


def test_the_whole_cohort_is_measured_or_as_many_states_as_are_asked_for() -> None:
    cohort = small_cohort(40)
    behaviour = fit_behaviour(cohort, settings=QUICK)
    assert len(behaviour.neighbours.states) == 200
    encoded = behaviour.scaler.states.encode(cohort.states)
    kept = behaviour.neighbours.states.numpy()
    np.testing.assert_array_equal(kept[np.lexsort(kept.T)], encoded[np.lexsort(encoded.T)])
    assert not np.array_equal(kept, encoded), "in no order that tells whose they are"
    few = fit_behaviour(cohort, settings=BehaviourSettings(hidden=(), epochs=2, most_states=30), seed=5)
    assert {tuple(row) for row in few.neighbours.states.tolist()} <= {
        tuple(row) for row in few.scaler.states.encode(cohort.states).tolist()
    }
    assert len(few.neighbours.states) == 30


def test_recorded_states_are_spread_over_all_percentiles_and_strange_ones_are_far() -> None:
    behaviour = learned()
    others = torch.as_tensor(behaviour.scaler.states.encode(small_cohort(seed=77).states))
    percentiles = behaviour.distance_percentile(others).numpy()
    assert abs(np.median(percentiles) - 50) < 10
    assert behaviour.distance_percentile(torch.full((1, 2), 30.0)).item() == 100


def test_distances_need_states() -> None:
    bare = fit_behaviour(small_cohort(), settings=BehaviourSettings(hidden=(), epochs=2, keep_states=False))
    assert bare.neighbours is None
    with pytest.raises(InputError, match="without recorded states"):
        bare.distance_percentile(torch.zeros(1, 2))
    with pytest.raises(InputError, match="at least two"):
        Neighbours.of(torch.zeros(1, 2), k=1)
