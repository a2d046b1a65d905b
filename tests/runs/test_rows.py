"""Rows of answers: outcomes within plausible ranges."""

import numpy as np
import pytest
import torch
from paper.laboratory import on_linear_scales
from small_runs import REWARD, small_cohort

import ifonly
from ifonly.data import Scaler
from ifonly.models import LinearModel
from ifonly.result.table import to_row
from ifonly.search.build_result import clipped_outcomes

COHORT = on_linear_scales(small_cohort(4))


def steep_model() -> LinearModel:
    """Whose states leave their plausible ranges at once, on both sides."""
    actions, size = len(COHORT.schema.actions), len(COHORT.schema.dynamic)
    generator = torch.Generator().manual_seed(1)
    offsets = 30.0 * torch.randn(actions, size, generator=generator, dtype=torch.float64)
    matrices = torch.zeros(actions, size, size, dtype=torch.float64)
    return LinearModel(COHORT.schema, matrices, offsets=offsets, scaler=Scaler.fit(COHORT))


@pytest.mark.parametrize("position", range(4))
def test_clipped_outcomes_are_those_of_states_within_their_ranges(position: int) -> None:
    problem = ifonly.Problem.from_episode(COHORT[position], steep_model().for_search(), ifonly.Query(REWARD, 2))
    names = [feature.name for feature in COHORT.schema.dynamic]
    score = names.index("SOFA")
    low, high = COHORT.schema.dynamic[score].plausible

    def outcome(states: np.ndarray) -> float:
        return -sum(min(max(value, low), high) for value in states[:, score])

    result = ifonly.solve(problem)
    row = to_row(result)
    assert row["clipped_outcome"] == pytest.approx(outcome(result.states))
    assert row["observed_clipped_outcome"] == pytest.approx(outcome(COHORT[position].states))
    assert row["clipped_outcome"] < row["outcome"] - 1, "the best path of this model has a score below its range"
    assert row["frontier"][-1]["clipped_outcome"] == pytest.approx(row["clipped_outcome"])
    worst = max(range(len(COHORT.schema.actions)), key=lambda action: float(problem.model.offsets[action, score]))
    sequence = np.full(problem.horizon, worst)
    actions = torch.as_tensor(sequence[None])
    states, _ = problem.rollout(actions)
    shown = problem.model.scaler.states.decode(states[0].numpy())
    assert shown[:, score].max() > high
    assert clipped_outcomes(problem, states, actions) == pytest.approx([outcome(shown)])
