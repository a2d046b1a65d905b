"""Ensembles and supported problems by brute force: every sequence, every member, step by step in plain loops."""

import itertools
import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from half_spaces import HalfSpaces

from ifonly.problem import BaseProblem, EnsembleProblem


@dataclass(frozen=True)
class Truth:
    """Every admissible sequence of a problem, with its outcome under each member and what counts of them."""

    sequences: np.ndarray  # [n, T]
    changes: np.ndarray  # [n]
    member_outcomes: np.ndarray  # [n, M]
    outcomes: np.ndarray  # [n]
    last_rewards: np.ndarray  # [n, M, 2], of the last action, and of the recorded one in its place

    def frontier(self, max_changes: int) -> list[float]:
        """The best outcome for every budget; minus infinity where there is no sequence."""
        return [
            max(self.outcomes[self.changes <= budget].tolist(), default=-math.inf) for budget in range(max_changes + 1)
        ]


def counted(goal: str | float, outcomes: np.ndarray, weights: tuple[float, ...] | None = None) -> np.ndarray:
    """Mean, minimum or order statistic along the last axis, of members that may have weights."""
    if goal == "worst":
        return outcomes.min(-1)
    if weights is not None:
        flat = outcomes.reshape(-1, outcomes.shape[-1])
        return np.array([_weighted(goal, row.tolist(), weights) for row in flat]).reshape(outcomes.shape[:-1])
    if goal == "mean":
        return outcomes.mean(-1)
    count = outcomes.shape[-1]
    # The smallest number that a share of at least `goal` of all numbers does not exceed.
    place = next(k for k in range(1, count + 1) if k >= goal * count - 1e-9)
    return np.sort(outcomes, axis=-1)[..., place - 1]


def _weighted(goal: str | float, row: list[float], weights: tuple[float, ...]) -> float:
    """By the definitions: the sum of products, or the smallest outcome with enough weight at or below it."""
    if goal == "mean":
        return math.fsum(value * weight for value, weight in zip(row, weights, strict=True)) / math.fsum(weights)
    for candidate in sorted(row):
        below = math.fsum(weight for value, weight in zip(row, weights, strict=True) if value <= candidate)
        if below / math.fsum(weights) >= goal - 1e-9:
            return candidate
    return max(row)


def are_supported(support: HalfSpaces, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Whether each action [n] is, at its state [n, D]."""
    return (support.normals.numpy()[actions] * states).sum(1) <= support.offsets.numpy()[actions]


@cache
def truth(problem: BaseProblem) -> Truth:
    """By enumeration: states by the models' own steps, support state by state, outcomes added up by hand.

    (Which sequences obey rules is tested against their definition elsewhere.)
    """
    recorded = [int(action) for action in problem.episode.actions]
    every = torch.tensor(list(itertools.product(range(problem.action_count), repeat=problem.horizon)))
    taken = every[problem.obey_rules(every)]
    sequences = taken.numpy()
    noise = problem.noise if isinstance(problem, EnsembleProblem) else problem.noise.unsqueeze(1)
    outcomes, votes, lasts = [], np.zeros(sequences.shape, dtype=np.int64), []
    for member, model in enumerate(problem.models):
        states = problem.observed_states[:1].repeat(len(sequences), 1)
        total = torch.zeros(len(sequences), dtype=torch.float64)
        for t in range(problem.horizon):
            if isinstance(problem.support, HalfSpaces):
                votes[:, t] += are_supported(problem.support, states.numpy(), sequences[:, t])
            total = total + problem.bound_reward(states, taken[:, t], t)
            total = total - problem.change_cost * (taken[:, t] != recorded[t]).double()
            if t < problem.horizon - 1:
                states = model.step(states, problem.context[t], taken[:, t], noise[t, member])
        stays = torch.full_like(taken[:, -1], recorded[-1])
        lasts.append(torch.stack([problem.bound_reward(states, last, -1) for last in (taken[:, -1], stays)], dim=-1))
        outcomes.append(total)
    member_outcomes = torch.stack(outcomes, dim=-1).numpy()
    changed = sequences != np.array(recorded)
    share = problem.support_share if isinstance(problem, EnsembleProblem) else 1.0
    fine = np.ones(len(sequences), dtype=bool)
    if problem.support is not None:
        fine = (~changed | (votes >= share * len(problem.models) - 1e-9)).all(1)
    goal, weights = "mean", None
    if isinstance(problem, EnsembleProblem):
        goal, weights = problem.objective.goal, problem.weights
    return Truth(
        sequences[fine],
        changed.sum(1)[fine],
        member_outcomes[fine],
        counted(goal, member_outcomes, weights)[fine],
        torch.stack(lasts, dim=1).numpy()[fine],
    )


def ranking(problem: BaseProblem, every: Truth) -> list[tuple[float, tuple[int, ...]]]:
    """All admissible sequences, best first, without those whose last change may be undone and changes no reward."""
    known = {tuple(sequence) for sequence in every.sequences.tolist()}
    last = int(problem.episode.actions[-1])
    same = (every.last_rewards[..., 0] == every.last_rewards[..., 1]).all(1)
    rows = zip(every.outcomes.tolist(), map(tuple, every.sequences.tolist()), same.tolist(), strict=True)
    listed = [
        (value, sequence)
        for value, sequence, idle in rows
        if not (idle and sequence[-1] != last and (*sequence[:-1], last) in known)
    ]
    return sorted(listed, key=lambda row: -row[0])
