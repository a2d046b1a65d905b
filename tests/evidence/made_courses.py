"""Problems with sequences that help, and answers by other means."""

import itertools

import numpy as np
import torch

from ifonly.problem import Problem
from ifonly.rewards import Linear
from ifonly.testing.instances import random_problem


def helpful(problem: Problem) -> torch.Tensor | None:
    """The best of a few random sequences that gain something; None where none does."""
    rng = np.random.default_rng(0)
    best, gain = None, problem.tolerance
    for _ in range(40):
        sequence = problem.observed_actions.clone()
        for step in rng.choice(problem.horizon - 1, size=min(2, problem.horizon - 1), replace=False):
            sequence[step] = int(rng.integers(problem.action_count))
        found = problem.outcome(sequence) - problem.observed_outcome
        if found > gain:
            best, gain = sequence, found
    return best


def linear_problem(seed: int, **changes: object) -> Problem:
    settings = {"model_kind": "linear", "reward_kind": "linear", "rules": False, "masked": False, "horizon": 5}
    return random_problem(seed, **{**settings, **changes})


def linear_slopes(problem: Problem, sequence: torch.Tensor, deviations: np.ndarray) -> np.ndarray:
    """How the outcome of a linear problem changes with each noise entry in deviations [T-1, D], by hand."""
    assert isinstance(problem.reward, Linear)
    model = problem.model
    scale = model.scaler.states.scale
    names = [feature.name for feature in problem.episode.schema.dynamic]
    weights = np.array([problem.reward.weights.get(name, 0.0) for name in names]) * scale
    matrices, actions = model.state_matrices.numpy(), sequence.tolist()
    slopes = np.zeros(problem.noise.shape)
    for t in range(problem.horizon - 1):
        moved = np.diag(model.noise_scale.numpy() * deviations)  # of the next state, per deviation
        for step in range(t + 1, problem.horizon):
            slopes[t] += weights @ moved
            moved = matrices[actions[step]] @ moved
    return slopes


def by_enumeration(problem: Problem, least: float, behaviour) -> tuple[float, set[tuple[int, ...]]]:
    """The best outcome of all sequences whose changes are likely enough where they are made, and all such sequences."""
    best, fine = -np.inf, set()
    model, recorded = problem.model, problem.observed_actions.tolist()
    for actions in itertools.product(range(problem.action_count), repeat=problem.horizon):
        sequence = torch.tensor(actions)
        if not bool(problem.obey_rules(sequence.unsqueeze(0))[0]):
            continue
        state, supported = problem.observed_states[0], True
        for t, action in enumerate(actions):
            if action != recorded[t]:
                own = behaviour.scaler.states.encode(model.scaler.states.decode(state.numpy()))
                context = behaviour.scaler.context.encode(model.scaler.context.decode(problem.context[t].numpy()))
                given = behaviour.probabilities(torch.as_tensor(own)[None], torch.as_tensor(context)[None], t)
                supported &= float(given[0, action]) >= least
            if t < problem.horizon - 1:
                state = model.step(state, problem.context[t], torch.tensor(action), problem.noise[t])
        if supported:
            fine.add(actions)
            best = max(best, problem.outcome(sequence))
    return best, fine
