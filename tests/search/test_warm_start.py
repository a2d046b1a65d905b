"""Greedy starts: admissible, with true outcomes, within the budget, and each round goes on from its best."""

from functools import cache

import numpy as np
import pytest
import torch
from effort import some

from ifonly.constraints import Constraints
from ifonly.errors import InputError
from ifonly.problem import Problem
from ifonly.problem.batch import ProblemBatch
from ifonly.search.exhaustive import outcome_frontier
from ifonly.search.prefix_cache import PrefixCache
from ifonly.search.warm_start import PROMISING, WarmStart, greedy_warm_start, wide_start
from ifonly.testing.instances import (
    MODEL_KINDS,
    REWARD_KINDS,
    partition_problem,
    random_problem,
)
from ifonly.testing.random_rules import random_constraints


def rounds_of(members: list[Problem]) -> list[WarmStart]:
    """Every round of greedy starts."""
    batch = ProblemBatch(members)
    return list(greedy_warm_start(batch, PrefixCache(batch)))


@cache
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
    members = [first, first.with_constraints(Constraints())]
    for _ in range(4):
        try:
            members.append(first.with_constraints(random_constraints(first.episode, rng)))
        except InputError:  # rules that contradict each other
            continue
    return members


@torch.no_grad()
def test_every_start_is_an_answer() -> None:
    count = 0
    for seed in range(some(42)):
        members = family(seed)
        rounds = rounds_of(members)
        assert len(rounds) <= members[0].max_changes + 1
        for starts in rounds:
            problem, sequences, outcomes = starts.problem, starts.sequences, starts.outcomes
            assert len(problem) == len(sequences) == len(outcomes) == len(starts.model_steps)
            assert outcomes.dtype == torch.float64
            for number, member in enumerate(members):
                rows = problem == number
                mine = sequences[rows]
                assert bool(member.admissible(mine).all())
                assert bool((member.changes(mine) <= member.max_changes).all())
                assert len(mine.unique(dim=0)) == len(mine)
                torch.testing.assert_close(outcomes[rows], member.rollout(mine)[1], rtol=1e-12, atol=1e-12)
                count += len(mine)
    assert count > some(2000)


@pytest.mark.parametrize("most", [1, PROMISING])
@torch.no_grad()
def test_rounds_are_neighbours_of_the_best_before(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ifonly.search.warm_start.PROMISING", most)
    limited = 0
    for seed in range(some(25)):
        members = family(seed)
        rounds = rounds_of(members)
        for number, member in enumerate(members):
            best, worth = member.nearest_actions, None
            for starts in rounds:
                mine, values = starts.sequences[starts.problem == number], starts.outcomes[starts.problem == number]
                expected = neighbours(member, best)
                if worth is None:
                    worth = {place(best, other): value for other, value in zip(mine, values.tolist(), strict=True)}
                    assert sorted(mine.tolist()) == sorted(expected)
                else:
                    tried = promising(member, best, worth, most=most)
                    wanted = [other for other in expected if place(best, torch.tensor(other)) in tried]
                    assert sorted(mine.tolist()) == sorted(wanted)
                    limited += len(wanted) < len(expected)
                if not len(mine):
                    break
                best = mine[values.argmax()]
    assert most > 1 or limited > some(20)


def place(sequence: torch.Tensor, other: torch.Tensor) -> tuple[int, int]:
    """The step at which another sequence differs, and its action there."""
    step = int((sequence != other).nonzero()[0])
    return step, int(other[step])


def promising(
    problem: Problem, sequence: torch.Tensor, worth: dict[tuple[int, int], float], *, most: int
) -> set[tuple[int, int]]:
    """At each step the other permitted actions that were worth most as the first change; smaller ones first."""
    found = set()
    for t in range(problem.horizon):
        actions = [a for a in range(problem.action_count) if problem.allowed[t, a] and a != sequence[t]]
        actions.sort(key=lambda a: (-worth.get((t, a), -np.inf), a))
        found |= {(t, a) for a in actions[:most]}
    return found


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
    for seed in range(some(20)):
        problem = random_problem(seed, rules=False, max_changes=1, constrained=True)
        outcomes = torch.cat([starts.outcomes for starts in rounds_of([problem])])
        best = max(float(outcomes.max()), problem.observed_outcome)
        assert best == pytest.approx(float(outcome_frontier(problem)[-1]), abs=1e-9)


def wide_rounds(problem: Problem, width: int, monkeypatch: pytest.MonkeyPatch) -> list[WarmStart]:
    monkeypatch.setattr("ifonly.search.warm_start.WIDTH", width)
    return list(wide_start(problem.as_batch, PrefixCache(problem.as_batch), [0]))


@pytest.mark.parametrize("width", [2, 5])
@torch.no_grad()
def test_wide_rounds_are_all_neighbours_of_the_best_few_before(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    several = 0
    for seed in range(some(25)):
        for problem in family(seed):
            before, found = [problem.nearest_actions], -np.inf
            for starts in wide_rounds(problem, width, monkeypatch):
                wanted = {tuple(other) for best in before for other in neighbours(problem, best)}
                assert sorted(wanted) == sorted(tuple(row) for row in starts.sequences.tolist())
                torch.testing.assert_close(
                    starts.outcomes, problem.rollout(starts.sequences)[1], rtol=1e-12, atol=1e-12
                )
                order = starts.outcomes.argsort(descending=True, stable=True)[:width]
                before, several = list(starts.sequences[order]), several + (len(order) > 2)
                assert found < np.inf, "a round that finds nothing better is the last"
                found = float(starts.outcomes.max()) if float(starts.outcomes.max()) > found else np.inf
    assert width == 2 or several > some(40)


@torch.no_grad()
def test_what_one_problem_starts_from_does_not_depend_on_the_others() -> None:
    members = family(3)
    together = ProblemBatch(members)
    rounds = list(wide_start(together, PrefixCache(together), range(len(members))))
    for number, member in enumerate(members):
        mine = [starts for starts in rounds if starts.problem[0] == number]
        alone = list(wide_start(member.as_batch, PrefixCache(member.as_batch), [0]))
        assert [starts.sequences.tolist() for starts in mine] == [starts.sequences.tolist() for starts in alone]


@torch.no_grad()
def test_a_wide_start_finds_what_greedy_steps_miss() -> None:
    """Numbers that are to be split into two equal sums: single steps soon find nothing better."""
    rng = np.random.default_rng(0)
    missed = []
    for _ in range(some(10)):
        problem = partition_problem([int(value) for value in rng.integers(1, 1000, 10)])
        wide = list(wide_start(problem.as_batch, PrefixCache(problem.as_batch), [0]))
        found, steps = (max(float(one.outcomes.max()) for one in rounds) for rounds in (wide, rounds_of([problem])))
        assert found >= steps - 1e-9
        missed.append(found - steps)
    assert float(np.median(missed)) > 1


def test_nothing_to_change() -> None:
    problem = random_problem(1, rules=False, masked=False).with_max_changes(0)
    assert rounds_of([problem]) == []
