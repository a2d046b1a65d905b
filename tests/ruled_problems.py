"""Rules by their definition, one sequence at a time, and problems under random rules."""

import itertools

import numpy as np
import torch

from ifonly.constraints import Constraints
from ifonly.data.episode import Episode
from ifonly.data.schema import ActionSpace, Axis, Feature, Schema
from ifonly.problem import Problem
from ifonly.testing.instances import random_problem

DOSES = ActionSpace.product(Axis("drug", "mg", (0, 5, 20)), Axis("fluid", "mL", (0, 80)))  # number 2 drug + fluid


def doses_episode(actions: tuple[int, ...] = (0, 3, 5, 0), space: ActionSpace = DOSES) -> Episode:
    schema = Schema((Feature("x", "dynamic"),), space)
    return Episode("case 7", schema, states=np.arange(len(actions), dtype=float)[:, np.newaxis], actions=actions)


def levels(space: ActionSpace, action: int) -> dict[str, int]:
    return {axis.name: axis.levels.index(dose) for axis, dose in zip(space.axes, space.vectors[action], strict=True)}


def obeys(rules: Constraints, episode: Episode, sequence: tuple[int, ...], *, start: int = 0) -> bool:
    """The rules as a person reads them, for one sequence; as if nothing had been before step `start`."""
    space, recorded = episode.schema.actions, [int(action) for action in episode.actions]

    def number(action: int | str) -> int:
        return action if isinstance(action, int) else space.labels.index(action)

    def within(one: int, other: int, limit: object) -> bool:
        if limit is None:
            return True
        first, second = levels(space, one), levels(space, other)
        most = limit if isinstance(limit, dict) else dict.fromkeys(first, limit)
        return all(abs(first[axis] - second[axis]) <= count for axis, count in most.items())

    for step, action in list(enumerate(sequence))[start:]:
        if step in rules.required and action != number(rules.required[step]):
            return False
        if action != recorded[step]:
            if step in rules.locked or (rules.last_action_fixed and step == len(sequence) - 1):
                return False
            if action in map(number, (*rules.forbidden.get(None, ()), *rules.forbidden.get(step, ()))):
                return False
            if rules.window is not None and not rules.window[0] <= step <= rules.window[1]:
                return False
            if step in rules.choices and action not in map(number, rules.choices[step]):
                return False
            if not within(action, recorded[step], rules.max_shift):
                return False
        pair = (sequence[step - 1], action)
        if step > start and pair != (recorded[step - 1], recorded[step]) and not within(*pair, rules.max_jump):
            return False
    changed = [step for step, action in enumerate(sequence) if action != recorded[step] and step >= start]
    if rules.stretches is not None and sum(step - 1 not in changed for step in changed) > rules.stretches:
        return False
    if rules.pace is None:
        return True
    length, unit = rules.pace.within.split()
    assert unit in ("step", "steps")
    return all(sum(step - int(length) < other <= step for other in changed) <= rules.pace.changes for step in changed)


def drawn_problem(seed: int, *, masked: bool = False) -> Problem:
    rng = np.random.default_rng(seed)
    return random_problem(
        seed,
        rules=True,
        masked=masked,
        horizon=int(rng.integers(2, 6)),
        actions=int(rng.choice([1, 2, 3, 4, 6])) if rng.random() < 0.5 else 4,
        max_changes=[None, 0, 1, 2, 3][int(rng.integers(5))],
    )


def listed(problem: Problem) -> tuple[list[tuple[int, ...]], torch.Tensor]:
    """Every sequence of the right length, and which of them are admissible by definition."""
    every = list(itertools.product(range(problem.action_count), repeat=problem.horizon))
    recorded = problem.episode.actions
    rules = problem.constraints
    fine = [
        obeys(rules, problem.episode, sequence) and int((recorded != sequence).sum()) <= problem.max_changes
        for sequence in every
    ]
    return every, torch.tensor(fine)


def plain_outcomes(problem: Problem, sequences: torch.Tensor) -> torch.Tensor:
    """Outcomes with the cost of changes counted by hand."""
    free = problem.with_query(change_cost=0.0)
    return free.rollout(sequences)[1] - problem.change_cost * problem.changes(sequences).double()
