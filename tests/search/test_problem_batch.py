"""A batch of problems: its rollouts are those of plain loops, and idle changes are dropped, no others."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from effort import some
from table_problems import table_problem
from torch import Tensor

from ifonly.constraints import Constraints
from ifonly.data.episode import Episode
from ifonly.data.schema import ActionSpace, Feature, Schema
from ifonly.models.analytic import LinearModel
from ifonly.problem import BaseProblem, Problem
from ifonly.problem.batch import Branches, ProblemBatch, drop_idle_changes, ranks_within
from ifonly.query import Query
from ifonly.rewards import minus
from ifonly.testing.instances import random_ensemble, random_problem


def batch_of(seed: int, count: int = 3) -> ProblemBatch:
    """Problems under one model that differ in rules, cost and recording; every third time put to an ensemble."""
    make = random_ensemble if seed % 3 == 0 else random_problem
    first: BaseProblem = make(seed, horizon=4, actions=3, max_changes=3, rules=seed % 2 == 0)
    return ProblemBatch([first, first.with_constraints(Constraints()), first][:count])


def some_sequences(batch: ProblemBatch, count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    problem = torch.randint(batch.count, (count,), generator=generator)
    drawn = torch.randint(batch.action_count, (count, batch.horizon), generator=generator)
    return problem, torch.where(torch.rand(count, 1, generator=generator) < 0.2, batch.observed[problem], drawn)


def plain_rollout(problem: BaseProblem, sequence: Tensor) -> tuple[list[Tensor], list[Tensor], float]:
    """The states, the sums of rewards before each step, and the outcome of one sequence, step by step."""
    states, sums = [problem.first_states], [torch.zeros(problem.members_shape, dtype=torch.float64)]
    for t, action in enumerate(sequence):
        sums.append(sums[-1] + problem.rewards(t, states[-1], action))
        if t < problem.horizon - 1:
            states.append(problem.step(t, states[-1], action))
    return states, sums, float(problem.counted(sums[-1]))


@torch.no_grad()
@pytest.mark.parametrize("count", [1, 3])
def test_rollouts_are_those_of_single_sequences(count: int) -> None:
    for seed in range(some(12)):
        batch = batch_of(seed, count)
        problem, sequences = some_sequences(batch, 20, seed)
        paths = batch.rollout(problem, sequences)
        for row, (number, sequence) in enumerate(zip(problem.tolist(), sequences, strict=True)):
            states, sums, outcome = plain_rollout(batch.problems[number], sequence)
            torch.testing.assert_close(paths.states[row], torch.stack(states), rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(paths.earned[row], torch.stack(sums[:-1]), rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(paths.totals[row], sums[-1], rtol=1e-12, atol=1e-12)
            assert float(paths.outcomes[row]) == pytest.approx(outcome, rel=1e-12, abs=1e-12)


@torch.no_grad()
def test_following_branches_gives_whole_rollouts_and_drops_what_is_not_kept() -> None:
    for seed in range(some(12)):
        batch = batch_of(seed)
        problem, sequences = some_sequences(batch, 30, seed)
        whole = batch.rollout(problem, sequences)
        rows = torch.arange(30)
        step = torch.randint(batch.horizon, (30,), generator=torch.Generator().manual_seed(seed))
        branches = Branches(
            problem, sequences.to(torch.int16), step, whole.states[rows, step], whole.earned[rows, step]
        )
        torch.testing.assert_close(batch.follow(branches), whole.totals, rtol=1e-12, atol=1e-12)
        met: list[tuple[int, int]] = []

        def keep_even(t: int, rows: Tensor, states: Tensor, earned: Tensor, met: list[tuple[int, int]] = met) -> Tensor:
            met.extend((t, row) for row in rows.tolist())
            return rows % 2 == 0

        totals = batch.follow(branches, keep=keep_even)
        kept = (rows % 2 == 0) | (step == batch.horizon - 1)  # the last step has none after it to be dropped at
        torch.testing.assert_close(totals[kept], whole.totals[kept], rtol=1e-12, atol=1e-12)
        assert bool((totals[~kept] == -torch.inf).all())
        last = {int(row): min(int(step[row]) + 1, batch.horizon) for row in rows if row % 2}
        assert {(t, row) for t, row in met if row % 2} == {(t, row) for row, t in last.items() if t < batch.horizon}


def test_ranks_within_groups() -> None:
    group, key = torch.tensor([1, 0, 1, 1, 0]), torch.tensor([2.0, 1.0, 3.0, 2.0, 5.0])
    assert ranks_within(group, key).tolist() == [1, 1, 0, 2, 0]
    assert ranks_within(group, key, ties=torch.tensor([9, 0, 0, 1, 0])).tolist() == [2, 1, 0, 1, 0]
    assert ranks_within(group[:0], key[:0]).tolist() == []


def kept(problem: BaseProblem, actions: Sequence[int], tolerance: float | None = None) -> list[int]:
    """One sequence without its idle changes."""
    first, sequences = torch.tensor([0]), torch.tensor([list(actions)])
    found, outcomes = drop_idle_changes(ProblemBatch([problem]), first, sequences, tolerance=tolerance)
    assert float(outcomes) == pytest.approx(problem.outcome(found[0]), rel=1e-12)
    row: list[int] = found[0].tolist()
    return row


class TestIdleChanges:
    """Changes that gain nothing are undone, whatever a solver returned."""

    def test_they_are_undone(self) -> None:
        # SOFA follows the actions alone, so that the change at the last step has no recorded effect.
        schema = Schema((Feature("SOFA", "dynamic"),), ActionSpace.categories(["none", "a", "b", "both"]))
        model = LinearModel(schema, np.zeros((4, 1, 1)), offsets=[[10.0], [9.0], [8.0], [7.0]])
        episode = Episode("case 7", schema, states=[[10.0], [9.5], [10.5], [8.0]], actions=[0, 0, 1, 0])
        problem = Problem.from_episode(episode, model, Query(minus("SOFA"), 2))
        assert kept(problem, [3, 0, 1, 2], 1e-9) == [3, 0, 1, 0]

    def test_changes_that_only_help_together_stay(self) -> None:
        """Either change alone costs 1, both together gain 1: undoing one would be a loss."""
        worth = {(0, 0): 0.0, (0, 1): -1.0, (1, 0): -1.0, (1, 1): 1.0}
        assert kept(table_problem(worth, (0, 0), actions=2, max_changes=2), (1, 1), 1e-9) == [1, 1]
        worth[1, 1] = -1.0 + 1e-12
        assert kept(table_problem(worth, (0, 0), actions=2, max_changes=2), (1, 1), 1e-9) == [0, 0]

    def test_rounding_is_no_gain_and_losses_do_not_add_up(self) -> None:
        """Each of four changes gains 0.4 of the tolerance: two may go, not all four."""
        worth = {tuple(row): 0.4 * sum(row) for row in np.ndindex(2, 2, 2, 2)}
        problem = table_problem(worth, (0, 0, 0, 0), actions=2, max_changes=4)
        assert sum(kept(problem, (1, 1, 1, 1), 1.0)) == 2

    def test_each_problem_has_its_own_tolerance_unless_one_is_given(self) -> None:
        problem = random_problem(4, model_kind="linear", horizon=4, max_changes=3, rules=False)
        every = [1 - min(1, action) for action in problem.observed_actions.tolist()]
        assert kept(problem, every) == kept(problem, every, problem.tolerance)
        assert kept(problem, every, math.inf) == problem.observed_actions.tolist()


def one_by_one(problem: BaseProblem, actions: Tensor, tolerance: float) -> Tensor:
    """The same by definition: while undoing some change keeps the sequence admissible and costs no more, undo it."""
    least = problem.outcome(actions) - tolerance
    while True:
        trials = []
        for step in (actions != problem.observed_actions).nonzero().flatten().tolist():
            trial = actions.clone()
            trial[step] = problem.observed_actions[step]
            if problem.admissible(trial.unsqueeze(0)).all():
                trials.append((problem.outcome(trial), trial))
        if not trials or not (best := max(trials, key=lambda pair: pair[0]))[0] >= least:
            return actions
        actions = best[1]


@torch.no_grad()
def test_idle_changes_of_a_batch_are_those_of_each_problem() -> None:
    undone = 0
    for seed in range(7):
        batch = batch_of(seed)
        problem, sequences = some_sequences(batch, 14, seed)
        pairs = zip(problem, sequences, strict=True)
        fine = torch.cat([batch.problems[number].admissible(row.unsqueeze(0)) for number, row in pairs])
        problem, sequences = problem[fine], sequences[fine]
        spread = float(batch.rollout(problem, sequences).outcomes.std()) if len(problem) > 1 else 1.0
        given = sequences.clone()
        for tolerance in (1e-9, 0.3 * spread):
            found, outcomes = drop_idle_changes(batch, problem, sequences, tolerance=tolerance)
            assert torch.equal(sequences, given)
            for row, number in enumerate(problem.tolist()):
                asked = batch.problems[number]
                assert found[row].tolist() == one_by_one(asked, sequences[row], tolerance).tolist()
                assert float(outcomes[row]) == pytest.approx(asked.outcome(found[row]), rel=1e-12, abs=1e-12)
            undone += int((found != sequences).any(1).sum())
    assert undone > 30
