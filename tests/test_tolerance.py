"""The tolerance is above what rounding does to outcomes, however large noise and states are."""

from dataclasses import replace

import numpy as np
import torch
from effort import some

from ifonly.problem import Problem
from ifonly.testing.instances import random_problem


def jumpy_problem(seed: int) -> Problem:
    """A recording with jumps of up to 1e5 deviations, which its model can explain by noise alone."""
    rng = np.random.default_rng([seed, 9])
    problem = random_problem(
        seed,
        model_kind=("location-scale", "additive", "linear", "post-nonlinear")[seed % 4],
        horizon=int(rng.integers(3, 9)),
        state_size=int(rng.integers(1, 5)),
        strength=float(rng.choice([1, 4, 15])),
        reward_kind=str(rng.choice(["linear", "penalties", "piecewise linear"])),
        hidden=(int(rng.choice([6, 40])),),
        residual=str(rng.choice(["none", "identity", "diagonal"])),
    )
    states = problem.episode.states.copy()
    jumps = rng.normal(size=states[1:].shape) * 10.0 ** rng.uniform(0, 5)
    states[1:] += jumps * (rng.random(jumps.shape) < 0.3)
    return Problem.from_episode(replace(problem.episode, states=states), problem.model, problem.query)


def test_a_sequence_replayed_alone_and_among_others_differs_by_less_than_the_tolerance() -> None:
    sizes, large = [], 0
    for seed in range(some(120)):
        problem, generator = jumpy_problem(seed), torch.Generator().manual_seed(seed)
        if not problem.noise.abs().max() < 1e7:  # where a scale is next to nothing, noise is of any size
            continue
        sequences = torch.randint(problem.action_count, (200, problem.horizon), generator=generator)
        together = problem.rollout(sequences)[1]
        for part in (1, 7):
            alone = torch.cat([problem.rollout(rows)[1] for rows in sequences[:21].split(part)])
            sizes.append(float((alone - together[:21]).abs().max()) / problem.tolerance)
        large += bool(problem.noise.abs().max() > 1e3)
    assert max(sizes) < 1, "rounding is taken for an improvement"
    assert large > some(12), "noise must be large now and then"


def test_the_tolerance_stays_far_below_anything_of_interest() -> None:
    for seed in range(some(60)):
        problem = random_problem(seed, reward_kind="linear")
        assert problem.tolerance < 1e-8 * max(1.0, abs(problem.observed_outcome))
