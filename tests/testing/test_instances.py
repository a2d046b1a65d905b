import itertools

import numpy as np
import pytest
import torch
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st

from ifonly.errors import InputError
from ifonly.testing.instances import (
    MODEL_KINDS,
    REWARD_KINDS,
    SINGLE_REWARDS,
    partition_exists,
    partition_problem,
    random_problem,
)


def split_exists(values: list[int]) -> bool:
    """By trying every subset."""
    return any(
        2 * sum(v for v, take in zip(values, mask, strict=True) if take) == sum(values)
        for mask in itertools.product((0, 1), repeat=len(values))
    )


def best_outcome(problem) -> float:
    """By trying every sequence of the two actions."""
    sequences = torch.tensor(list(itertools.product((0, 1), repeat=problem.horizon)))
    return problem.rollout(sequences)[1].max().item()


values_lists = st.lists(st.integers(1, 12), min_size=1, max_size=7)


@settings(deadline=None, derandomize=True, max_examples=some(60))
@given(values=values_lists)
def test_the_best_outcome_decides_partition(values):
    problem = partition_problem(values)
    assert partition_exists(values) == split_exists(values) == (best_outcome(problem) == 0)
    assert best_outcome(problem) <= 0


@settings(deadline=None, derandomize=True, max_examples=some(30))
@given(values=values_lists, seed=st.integers(0, 100))
def test_states_outcomes_and_noise_are_those_of_the_proof(values, seed):
    problem = partition_problem(values)
    assert problem.horizon == len(values) + 1
    assert problem.max_changes == problem.horizon
    assert problem.observed_states[:, 0].tolist() == [sum(values[:t]) for t in range(len(values) + 1)]
    assert problem.observed_states[:, 1].tolist() == [*values, 0]
    assert problem.noise.tolist() == [[v, w] for v, w in zip(values, [*values[1:], 0], strict=True)]
    assert problem.outcome(problem.observed_actions) == -sum(values) / 2
    # lem:np-helper-2: the total counts the values whose action was "null".
    actions = torch.tensor(np.random.default_rng(seed).integers(2, size=(1, problem.horizon)))
    states = problem.rollout(actions)[0][0]
    kept = sum(v for v, a in zip(values, actions[0].tolist(), strict=False) if a == 0)
    assert states[-1].tolist() == [kept, 0]


def sampled_reward_slope(problem, *, low, high) -> float:
    """The largest slope of the reward found between random neighbours."""
    generator = torch.Generator().manual_seed(0)
    size = problem.observed_states.shape[1]
    states = low + (high - low) * torch.rand(4000, size, generator=generator, dtype=torch.float64)
    shifts = 1e-4 * torch.randn(4000, size, generator=generator, dtype=torch.float64)
    slopes = []
    for action in range(problem.action_count):
        rewards = [problem.rewards(0, x, torch.tensor(action)) for x in (states, states + shifts)]
        slopes.append(((rewards[1] - rewards[0]).abs() / shifts.norm(dim=-1)).max())
    return torch.stack(slopes)


def test_the_papers_constant_is_too_small_and_ours_is_not():
    values = [10, 10, 10]
    half = sum(values) / 2
    problem = partition_problem(values)
    slopes = sampled_reward_slope(problem, low=-20.0, high=40.0)
    stated = 2 * (1 + half) ** 0.5  # lem:np-helper
    constant = problem.bound_reward.lipschitz
    assert slopes.max() > 2 * stated
    assert (slopes <= constant * (1 + 1e-7)).all()
    assert constant[0].item() == pytest.approx(max((1 + half**2) ** 0.5, 2 * half), rel=1e-9)


@pytest.mark.parametrize("values", [[], [0, 1], [-1], [1.5, 2]])
def test_partition_values_must_be_positive_whole_numbers(values):
    with pytest.raises(InputError, match="positive whole number"):
        partition_problem(values)
    with pytest.raises(InputError, match="positive whole number"):
        partition_exists(values)


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_random_problems_are_what_was_asked_for(kind):
    for seed in range(6):
        problem = random_problem(
            seed,
            model_kind=kind,
            horizon=4,
            actions=3,
            state_size=1 + seed % 3,
            context_size=seed % 4,
            max_changes=seed,
        )
        assert problem.model.kind == kind
        assert problem.observed_states.shape == (4, 1 + seed % 3)
        assert problem.context.shape == (4, seed % 4)
        assert problem.noise.shape == (3, 1 + seed % 3)
        assert problem.allowed.shape == (4, 3)
        assert problem.max_changes == min(seed, 4)
        assert problem.model.is_for_search("cpu")


def test_the_same_seed_gives_the_same_problem_and_another_seed_another():
    def content(seed):
        problem = random_problem(seed)
        actions = problem.observed_actions.unsqueeze(0)
        return problem.model.fingerprint(), problem.noise.tolist(), problem.rollout(actions)[1].item()

    seen = [content(seed) for seed in range(15)]
    assert seen == [content(seed) for seed in range(15)]
    assert len({fingerprint for fingerprint, _, _ in seen}) == 15


def test_random_problems_vary():
    problems = [random_problem(seed) for seed in range(60)]
    assert {problem.model.kind for problem in problems} == set(MODEL_KINDS)
    kinds = {
        str([part["kind"] for part in problem.reward.to_dict().get("parts", [problem.reward.to_dict()])])
        for problem in problems
    }
    assert len(kinds) == len(SINGLE_REWARDS)
    assert {bool(problem.allowed.all()) for problem in problems} == {True, False}
    limited = {problem.model.settings().get("lipschitz") is None for problem in problems}
    assert limited == {True, False}


def test_noise_of_random_problems_is_of_unit_size():
    """Episodes come from the model itself: no noise is far out."""
    noise = torch.cat([random_problem(seed, horizon=6).noise.flatten() for seed in range(80)])
    assert noise.abs().median() < 2
    assert noise.abs().max() < 30


@pytest.mark.parametrize("reward_kind", REWARD_KINDS)
def test_random_rewards_respect_their_constants(reward_kind):
    for seed in range(5):
        problem = random_problem(seed, reward_kind=reward_kind, model_kind="linear")
        slopes = sampled_reward_slope(problem, low=-5.0, high=5.0)
        assert (slopes <= problem.reward_constants[0] * (1 + 1e-6) + 1e-9).all()


def test_long_horizons_and_strong_weights_stay_finite():
    for seed in range(60):
        problem = random_problem(seed, horizon=12, strength=4.0)
        assert problem.observed_states.abs().max() < 1e6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_kind": "oracle"}, "model_kind 'oracle' is unknown"),
        ({"reward_kind": "fame"}, "reward_kind 'fame' is unknown"),
        ({"horizon": 1}, "horizon=1 must be at least 2"),
        ({"colour": 1}, "no fields"),
    ],
)
def test_impossible_wishes_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        random_problem(0, **changes)


def test_settings_are_kept():
    assert random_problem(0, model_kind="linear", horizon=3).horizon == 3
    assert random_problem(0, model_kind="linear", horizon=7).model.kind == "linear"
