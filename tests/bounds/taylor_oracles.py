"""States beside the observed path, and by how much bounds there exceed the truth."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ifonly.bounds.base import Nodes
from ifonly.bounds.taylor import TaylorChildBound
from ifonly.problem import Problem
from ifonly.search.exhaustive import best_values


def moved(problem: Problem, c: int, offsets: Tensor, level: int = 0) -> Nodes:
    """Nodes whose states at step c are the observed one plus `offsets` [N, D]; nothing was earned before."""
    states = problem.observed_states.repeat(len(offsets), 1, 1)
    states[:, c] += offsets
    outcomes = torch.zeros(len(offsets), dtype=torch.float64)
    for t in range(c, problem.horizon):
        outcomes = outcomes + problem.rewards(t, states[:, t], problem.observed_actions[t])
        if t < problem.horizon - 1:
            states[:, t + 1] = problem.step(t, states[:, t], problem.observed_actions[t])
    which = torch.zeros(len(offsets), dtype=torch.int64)
    return Nodes(level, which, torch.full_like(which, c), states, outcomes)


@torch.no_grad()
def excess(problem: Problem, bounds: Tensor, nodes: Nodes) -> Tensor:
    """By how much bounds [N, R, T, A] exceed the best outcome with a change there and so many in all; 0 elsewhere."""
    found, every, start = torch.zeros_like(bounds), torch.arange(problem.action_count), int(nodes.start[0])
    changes = problem.allowed.scatter(1, problem.observed_actions.unsqueeze(1), False)
    rewards = [problem.rewards(t, nodes.states[:, t], problem.observed_actions[t]) for t in range(problem.horizon)]
    earned = nodes.outcomes - sum(rewards[start:])
    for t in range(start, problem.horizon):
        following = None
        if t < problem.horizon - 1:
            following = problem.step(t, nodes.states[:, t].unsqueeze(1), every).flatten(0, 1)
        for left in range(bounds.shape[1]):
            truth = earned.unsqueeze(1) + problem.rewards_all(t, nodes.states[:, t])
            if following is not None:
                used = torch.full((len(following),), problem.max_changes - left)
                truth = truth + best_values(problem, t + 1, following, used).view_as(truth)
            found[:, left, t] = torch.where(changes[t], bounds[:, left, t] - truth, 0.0)
        earned = earned + rewards[t]
    return found


def moved_ahead(problem: Problem, radii: Sequence[float]) -> Nodes:
    """First states shifted so far, along what the first change does and against it."""
    reached = problem.step(0, problem.observed_states[:1], torch.tensor([1]))
    ahead = torch.nn.functional.normalize(reached - problem.observed_states[1:2], dim=1)
    shifts = torch.tensor(radii, dtype=torch.float64).unsqueeze(1)
    return moved(problem, 0, torch.cat((shifts * ahead, -shifts * ahead)))


@torch.no_grad()
def future_excess(problem: Problem, bound: TaylorChildBound, t: int, states: Tensor) -> Tensor:
    """By how much bounds on what follows from states [N, D] at t exceed the truth [N, K + 1]."""
    used = [torch.full((len(states),), problem.max_changes - r) for r in range(problem.max_changes + 1)]
    truth = torch.stack([best_values(problem, t, states, changes) for changes in used], dim=1)
    return bound.reward_to_go(t, torch.zeros(len(states), dtype=torch.int64), states, problem.max_changes) - truth
