"""Greedy starts: admissible, with true outcomes, within the budget, and each round goes on from its best."""

import numpy as np
import pytest
import torch

from ifonly.errors import InputError
from ifonly.instances import MODEL_KINDS, REWARD_KINDS, random_constraints, random_problem
from ifonly.problem import Problem
from ifonly.search.exhaustive import outcome_frontier
from ifonly.search.questions import Questions
from ifonly.search.starts import greedy_starts


def family(seed: int) -> list[Problem]:
    """Problems with one model and budget under several rules, some of which demand changes."""
    first = random_problem(
        seed,
        model_kind=MODEL_KINDS[seed % len(MODEL_KINDS)],
        reward_kind=REWARD_KINDS[seed // len(MODEL_KINDS) % len(REWARD_KINDS)],
        max_changes=(2, 1, 3, None, 0)[seed % 5],
        horizon=2 + seed % 4,
        actions=2 + seed % 3,
        rules=None,
        constrained=True,
    )
    rng = np.random.default_rng(seed)
    members = [first, first.with_constraints(None)]
    for _ in range(4):
        try:
            members.append(first.with_constraints(random_constraints(first.episode, rng)))
        except InputError:  # rules that contradict each other
            continue
    return members


@torch.no_grad()
def test_every_start_is_an_answer() -> None:
    count = 0
    for seed in range(60):
        members = family(seed)
        rounds = list(greedy_starts(Questions(members)))
        assert len(rounds) <= members[0].max_changes + 1
        for problem, sequences, outcomes in rounds:
            assert len(problem) == len(sequences) == len(outcomes)
            assert outcomes.dtype == torch.float64
            for number, member in enumerate(members):
                rows = problem == number
                mine = sequences[rows]
                assert bool(member.admissible(mine).all())
                assert bool((member.changes(mine) <= member.max_changes).all())
                assert len(mine.unique(dim=0)) == len(mine)
                torch.testing.assert_close(outcomes[rows], member.rollout(mine)[1], rtol=1e-12, atol=1e-12)
                count += len(mine)
    assert count > 2000


@torch.no_grad()
def test_rounds_are_all_neighbours_of_the_best_before() -> None:
    for seed in range(40):
        members = family(seed)
        rounds = list(greedy_starts(Questions(members)))
        for number, member in enumerate(members):
            best = member.nearest_actions
            for problem, sequences, outcomes in rounds:
                mine, values = sequences[problem == number], outcomes[problem == number]
                expected = neighbours(member, best)
                assert sorted(mine.tolist()) == sorted(expected)
                if not expected:
                    break
                best = mine[values.argmax()]


def neighbours(problem: Problem, sequence: torch.Tensor) -> list[list[int]]:
    """Every admissible sequence that differs in one step, by definition."""
    found = []
    for t in range(problem.horizon):
        for action in range(problem.action_count):
            other = sequence.clone()
            other[t] = action
            if action != sequence[t] and problem.admissible(other.unsqueeze(0)).all():
                found.append(other.tolist())
    return found


@torch.no_grad()
def test_single_changes_are_settled_by_the_first_round() -> None:
    for seed in range(20):
        problem = random_problem(seed, rules=False, max_changes=1, constrained=True)
        outcomes = torch.cat([outcomes for _, _, outcomes in greedy_starts(Questions([problem]))])
        best = max(float(outcomes.max()), problem.observed_outcome)
        assert best == pytest.approx(float(outcome_frontier(problem)[-1]), abs=1e-9)


def test_nothing_to_change() -> None:
    problem = random_problem(1, rules=False, masked=False).with_max_changes(0)
    assert list(greedy_starts(Questions([problem]))) == []
