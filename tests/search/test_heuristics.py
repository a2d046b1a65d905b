"""The heuristics: never better than the optimum, never worse than what was observed, always admissible."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st
from table_problems import table_problem

from ifonly.errors import InputError
from ifonly.problem import Problem
from ifonly.problem.batch import changed
from ifonly.progress import Tick, silent
from ifonly.query import Limits
from ifonly.result import Result, Status
from ifonly.search.base import Monitor, Solver
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.heuristics import (
    Beam,
    Greedy,
    Incumbent,
    RandomSearch,
    TopSingleChanges,
    greedy_actions,
    random_sequences,
    single_changes,
)
from ifonly.search.solve import solve
from ifonly.testing.instances import MODEL_KINDS, random_problem

EXACT = 1e-10
HEURISTICS: list[Solver] = [RandomSearch(samples=30), TopSingleChanges(), Greedy(), Beam(width=3)]
by_name = pytest.mark.parametrize("solver", HEURISTICS, ids=lambda solver: solver.name)


def raw(problem: Problem, solver: Solver) -> torch.Tensor:
    """The sequence as the solver itself returns it, before `solve` undoes idle changes."""
    with torch.no_grad():
        return solver.search(problem, watched()).actions


def watched() -> Monitor:
    return Monitor(Limits(), silent, 1e-11)


def is_admissible(problem: Problem, actions: torch.Tensor) -> bool:
    steps = torch.arange(problem.horizon)
    return bool(problem.allowed[steps, actions].all()) and int(problem.changes(actions)) <= problem.max_changes


@by_name
@pytest.mark.parametrize("seed", range(some(20)))
def test_between_observed_and_optimal(solver: Solver, seed: int) -> None:
    problem = random_problem(
        seed, model_kind=MODEL_KINDS[seed % len(MODEL_KINDS)], horizon=4, max_changes=[0, 1, 2, None][seed % 4]
    )
    best = solve(problem, Exhaustive()).outcome
    result = solve(problem, solver)
    assert result.observed_outcome - EXACT <= result.outcome <= best + EXACT
    assert is_admissible(problem, raw(problem, solver))
    assert result.status is Status.HEURISTIC
    assert math.isinf(result.upper_bound)
    assert not result.certificate.proven
    assert Result.from_json(result.to_json()).provenance.solver == {"name": solver.name, **solver.settings()}


@by_name
def test_the_same_answer_every_time(solver: Solver) -> None:
    problem = random_problem(5, horizon=6, actions=4, max_changes=3)
    assert np.array_equal(solve(problem, solver).actions, solve(problem, solver).actions)


@settings(deadline=None, derandomize=True, max_examples=some(20))
@given(seed=st.integers(0, 10_000))
def test_one_change_is_easy(seed: int) -> None:
    problem = random_problem(seed, horizon=4, max_changes=1)
    best = solve(problem, Exhaustive()).outcome
    for solver in (Greedy(), TopSingleChanges(), Beam(width=1)):
        assert solve(problem, solver).outcome == pytest.approx(best, abs=EXACT)


@settings(deadline=None, derandomize=True, max_examples=some(20))
@given(seed=st.integers(0, 10_000))
def test_a_wide_beam_is_exhaustive(seed: int) -> None:
    problem = random_problem(seed, horizon=4, max_changes=3)
    wide = solve(problem, Beam(width=problem.sequence_count()))
    assert wide.outcome == pytest.approx(solve(problem, Exhaustive()).outcome, abs=EXACT)


@settings(deadline=None, derandomize=True, max_examples=some(20))
@given(seed=st.integers(0, 10_000))
def test_no_single_change_improves_a_greedy_answer(seed: int) -> None:
    problem = random_problem(seed, horizon=4, max_changes=2)
    actions, outcome = greedy_actions(problem)
    assert outcome == pytest.approx(problem.outcome(actions), abs=EXACT)
    for step in range(problem.horizon):
        for action in problem.allowed[step].nonzero().flatten().tolist():
            trial = actions.clone()
            trial[step] = action
            if int(problem.changes(trial)) <= problem.max_changes:
                assert problem.outcome(trial) <= outcome + EXACT


@settings(deadline=None, derandomize=True, max_examples=some(20))
@given(seed=st.integers(0, 10_000))
def test_single_changes_are_all_of_them_with_their_outcomes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(seed, horizon=4, actions=3, masked=True)
    allowed = problem.allowed.numpy()
    sequences = torch.tensor([[rng.choice(np.flatnonzero(row)) for row in allowed] for _ in range(3)])
    changeable = torch.as_tensor(rng.random((3, 4)) < 0.7)
    with torch.no_grad():
        found, outcomes = single_changes(Incumbent(problem, watched()), sequences, changeable)
    wanted = [
        changed(sequences[row : row + 1], torch.tensor([step]), torch.tensor([action]))[0].tolist()
        for row in range(3)
        for step in range(4)
        for action in range(3)
        if changeable[row, step] and allowed[step, action] and action != sequences[row, step]
    ]
    assert found.tolist() == wanted
    for sequence, outcome in zip(found, outcomes.tolist(), strict=True):
        assert outcome == pytest.approx(problem.outcome(sequence), abs=EXACT)


def test_random_sequences_are_uniform() -> None:
    problem = random_problem(3, model_kind="linear", horizon=3, actions=3, max_changes=2, masked=False)
    sequences = random_sequences(problem, 6000, generator=torch.Generator().manual_seed(0))
    unique, counts = sequences.unique(dim=0, return_counts=True)
    assert len(unique) == 3 * 2 * 2  # pairs of steps, two alternatives each
    assert set(problem.changes(unique).tolist()) == {2}
    deviation = math.sqrt(1 / 12 * 11 / 12 / 6000)
    assert float((counts / 6000 - 1 / 12).abs().max()) < 5 * deviation


@settings(deadline=None, derandomize=True, max_examples=some(20))
@given(seed=st.integers(0, 10_000), max_changes=st.integers(0, 5))
def test_random_sequences_respect_what_is_allowed(seed: int, max_changes: int) -> None:
    problem = random_problem(seed, model_kind="linear", horizon=5, max_changes=max_changes, masked=True)
    sequences = random_sequences(problem, 200, generator=torch.Generator().manual_seed(seed))
    assert all(is_admissible(problem, sequence) for sequence in sequences)
    changeable = sum(len(problem.alternatives(t)) > 0 for t in range(5))
    assert set(problem.changes(sequences).tolist()) == {min(max_changes, changeable)}


def test_seeds_differ() -> None:
    problem = random_problem(5, horizon=8, actions=6, max_changes=3)
    answers = {tuple(raw(problem, RandomSearch(samples=3, seed=seed)).tolist()) for seed in range(8)}
    assert len(answers) > 1


@pytest.mark.parametrize("build", [lambda: RandomSearch(samples=0), lambda: Beam(width=0)], ids=["samples", "width"])
def test_nonsense_settings_are_refused(build: Callable[[], Solver]) -> None:
    with pytest.raises(InputError, match="at least 1"):
        build()


@by_name
def test_interruption_returns_the_best_so_far(solver: Solver) -> None:
    def interrupt(_: Tick) -> None:
        raise KeyboardInterrupt

    problem = random_problem(5, horizon=4)
    result = solve(problem, solver, progress=interrupt)
    if solver.name != "top-single-changes":  # over before it could be interrupted
        assert result.status is Status.INTERRUPTED
    assert result.outcome >= result.observed_outcome


def test_limits_end_a_random_search() -> None:
    problem = random_problem(5, horizon=4)
    assert solve(problem, RandomSearch(samples=10**9), limits=Limits(nodes=1)).status is Status.NODE_LIMIT
    assert solve(problem, RandomSearch(samples=10**9), limits=Limits(seconds=0.05)).status is Status.TIME_LIMIT


def test_greedy_revises_what_it_changed_before() -> None:
    worth = {(1, 0): 1.0, (2, 0): 0.5, (0, 1): 0.4, (1, 1): 2.0, (2, 1): 3.0}
    assert solve(table_problem(worth, (0, 0), actions=3, max_changes=2), Greedy()).actions.tolist() == [2, 1]


def test_greedy_returns_to_the_observed_action() -> None:
    worth = {(1, 0, 0): 1.0, (1, 1, 0): 2.0, (0, 1, 0): 3.0, (0, 1, 1): 4.0}
    assert solve(table_problem(worth, (0, 0, 0), actions=2, max_changes=2), Greedy()).actions.tolist() == [0, 1, 1]


def test_single_changes_that_harm_together_are_not_made_together() -> None:
    worth = {(1, 0, 0): 5.0, (0, 1, 0): 4.0, (0, 0, 1): 3.0, (1, 1, 0): -3.0, (1, 1, 1): -4.0}
    problem = table_problem(worth, (0, 0, 0), actions=2, max_changes=3)
    assert solve(problem, TopSingleChanges()).actions.tolist() == [1, 0, 0]
    worth[1, 1, 1] = 6.0
    problem = table_problem(worth, (0, 0, 0), actions=2, max_changes=3)
    assert solve(problem, TopSingleChanges()).actions.tolist() == [1, 1, 1]
    assert solve(problem.with_max_changes(2), TopSingleChanges()).actions.tolist() == [1, 0, 0]


def test_a_beam_keeps_each_sequence_once() -> None:
    """(1, 1, 0) comes from both sequences of the first level; counted twice it would push (1, 0, 1) out."""
    worth = {(1, 0, 0): 10.0, (0, 1, 0): 9.0, (1, 1, 0): 8.0, (1, 0, 1): 7.0, (1, 2, 1): 20.0}
    problem = table_problem(worth, (0, 0, 0), actions=3, max_changes=3)
    assert solve(problem, Beam(width=2)).actions.tolist() == [1, 2, 1]
    assert solve(problem, Beam(width=1)).actions.tolist() == [1, 0, 0]


@by_name
def test_overflowing_sequences_are_no_candidates(solver: Solver) -> None:
    worth = {(1, 0): math.nan, (0, 1): 2.0, (2, 0): math.inf, (0, 2): 1.0}
    result = solve(table_problem(worth, (0, 0), actions=3, max_changes=1), solver)
    assert result.actions.tolist() == [0, 1]
