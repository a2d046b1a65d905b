"""Every solver, bound, result and verification keeps the rules about sequences."""

import itertools
import json
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st
from ruled_problems import drawn_problem, listed, obeys, plain_outcomes

from ifonly.bounds import MonteCarlo
from ifonly.bounds.lipschitz import AnchorBound, value_constants
from ifonly.constraints import Constraints
from ifonly.errors import InputError, StoreError, VerificationError
from ifonly.problem import Problem
from ifonly.problem.batch import ProblemBatch, drop_idle_changes
from ifonly.query import Limits, Query
from ifonly.result import Result, Status
from ifonly.search.astar import AnchorAStar
from ifonly.search.base import Solver
from ifonly.search.exhaustive import Exhaustive, best_values, outcome_frontier
from ifonly.search.heuristics import Beam, Greedy, RandomSearch, TopSingleChanges, random_sequences
from ifonly.search.solve import solve
from ifonly.search.verify import verify
from ifonly.testing import check_bound, check_solver
from ifonly.testing.instances import random_problem

EXACT = 1e-9
HEURISTICS = (Greedy(), Beam(width=3), TopSingleChanges(), RandomSearch(samples=30))
seeds = st.integers(0, 100_000)
profile = settings(deadline=None, derandomize=True, max_examples=some(36))


@profile
@given(seed=seeds)
def test_exhaustive_finds_the_best_of_them_for_every_budget(seed: int) -> None:
    problem = drawn_problem(seed)
    every, fine = listed(problem)
    sequences = torch.tensor(every)
    outcomes = plain_outcomes(problem, sequences).masked_fill(~fine, -math.inf)
    result = solve(problem, Exhaustive(batch=7))
    assert result.outcome == pytest.approx(float(outcomes.max()), abs=EXACT)
    assert result.status is Status.OPTIMAL
    assert result.certificate.details["sequences"] == result.certificate.details["sequences_seen"] == int(fine.sum())
    assert problem.admissible(torch.tensor(result.actions).unsqueeze(0)).all()
    changes = problem.changes(sequences)
    wanted = [float(outcomes.masked_fill(changes > k, -math.inf).max()) for k in range(problem.max_changes + 1)]
    assert outcome_frontier(problem, batch=5).tolist() == pytest.approx(wanted, abs=EXACT)


@profile
@given(seed=seeds)
def test_values_of_continuations_know_what_came_before(seed: int) -> None:
    problem = drawn_problem(seed)
    every, _ = listed(problem)
    sequences = torch.tensor(every)
    states, _ = problem.rollout(sequences)
    t = seed % (problem.horizon - 1) + 1
    used = (sequences != problem.observed_actions)[:, :t].sum(1)
    starts = (used <= problem.max_changes).nonzero().squeeze(1)
    starts = starts[torch.randperm(len(starts), generator=torch.Generator().manual_seed(seed))]
    spent = used[starts] == problem.max_changes
    starts = torch.cat([starts[spent][:6], starts[~spent][:3]])
    known = best_values(problem, t, states[starts, t], used[starts], actions=sequences[starts, :t], batch=5)
    unknown = best_values(problem, t, states[starts, t], used[starts], batch=5)
    for row, start in enumerate(starts.tolist()):
        tails = [s for s in every if s[:t] == every[start][:t]]
        batch = torch.tensor(tails)
        gained = plain_outcomes(problem, batch) - _earned(problem, batch, t)
        steps = torch.arange(t, problem.horizon)
        within = problem.allowed[steps, batch[:, t:]].all(1) & (problem.changes(batch) <= problem.max_changes)
        kept = torch.tensor([obeys(problem.constraints, problem.episode, tail) for tail in tails])
        later = torch.tensor([obeys(problem.constraints, problem.episode, tail, start=t) for tail in tails])
        best, relaxed = (gained.masked_fill(~mask, -math.inf).max() for mask in (within & kept, within & later))
        assert float(known[row]) == pytest.approx(float(best), abs=EXACT)
        assert float(unknown[row]) == pytest.approx(float(relaxed), abs=EXACT)


def _earned(problem: Problem, sequences: torch.Tensor, until: int) -> torch.Tensor:
    states, _ = problem.rollout(sequences)
    return sum(
        (problem.rewards(t, states[:, t], sequences[:, t]) for t in range(until)),
        start=torch.zeros(len(sequences), dtype=torch.float64),
    )


@profile
@given(seed=seeds)
def test_heuristics_return_admissible_sequences_only(seed: int) -> None:
    problem = drawn_problem(seed, masked=seed % 2 == 0)
    start = problem.outcome(problem.nearest_actions)
    optimum = solve(problem, Exhaustive()).outcome
    for solver in HEURISTICS:
        result = solve(problem, solver)
        assert problem.admissible(torch.tensor(result.actions).unsqueeze(0)).all(), solver.name
        assert start - EXACT <= result.outcome <= optimum + EXACT
        stopped = solve(problem, solver, limits=Limits(nodes=0))
        assert problem.admissible(torch.tensor(stopped.actions).unsqueeze(0)).all(), solver.name
    drawn = random_sequences(problem, 50, generator=torch.Generator().manual_seed(seed))
    assert problem.admissible(drawn).all()


def test_random_sequences_under_rules_are_uniform() -> None:
    problem = uniform_problem()
    every, fine = listed(problem)
    wanted = {sequence for sequence, good in zip(every, fine, strict=True) if good}
    assert 20 < len(wanted) < 200
    draws = 200 * len(wanted)
    drawn = random_sequences(problem, draws, generator=torch.Generator().manual_seed(3))
    counts = Counter(map(tuple, drawn.tolist()))
    assert set(counts) == wanted
    chi_squared = sum((count - 200) ** 2 / 200 for count in counts.values())
    assert chi_squared < len(wanted) + 6 * math.sqrt(2 * len(wanted))


def uniform_problem() -> Problem:
    problem = random_problem(1, rules=True, horizon=4, actions=6, max_changes=3, masked=False)
    action = int(problem.observed_actions[1] + 1) % 6
    return problem.with_constraints(Constraints(required={1: action}, max_jump={"other dose": 1}))


@pytest.mark.parametrize("solver", [Exhaustive(batch=3), *HEURISTICS], ids=lambda solver: solver.name)
def test_the_contract_of_solvers_holds_under_rules(solver: Solver) -> None:
    check_solver(solver, [random_problem(seed, rules=True, horizon=4) for seed in range(some(12))])


def test_a_star_keeps_all_rules() -> None:
    solver, restricted = AnchorAStar(MonteCarlo(samples=20)), 0
    for seed in range(25):
        problem = random_problem(seed, rules=True, horizon=4)
        restricted += problem.is_restricted
        result = solve(problem, solver)
        assert result.status is Status.OPTIMAL
        assert problem.admissible(torch.tensor(result.actions).unsqueeze(0)).all()
        assert result.outcome == pytest.approx(solve(problem, Exhaustive()).outcome, abs=EXACT)
    assert 5 < restricted < 23


def test_the_anchor_bound_stays_valid_under_rules() -> None:
    for seed in range(some(12)):
        problem = random_problem(seed, rules=True, horizon=4)
        constants = value_constants(problem)
        anchors = MonteCarlo(samples=10).choose(problem, constants, torch.Generator().manual_seed(0))
        check_bound(AnchorBound(problem, anchors, constants), problem, samples=3)


class TestCostOfChanges:
    def test_it_is_in_the_outcome_and_not_in_what_is_shown(self) -> None:
        free = random_problem(1, reward_kind="linear", masked=False)
        costly = Problem.from_episode(
            free.episode, free.model, Query(free.reward, free.max_changes, change_cost=0.1 + 0.2)
        )
        sequences = torch.tensor(list(itertools.product(range(3), repeat=5)))
        wanted = free.rollout(sequences)[1] - (0.1 + 0.2) * free.changes(sequences).double()
        assert torch.allclose(costly.rollout(sequences)[1], wanted, rtol=0, atol=1e-13)  # not float32's 0.3
        assert costly.observed_outcome == free.observed_outcome
        result = solve(costly, Exhaustive())
        count = len(result.changes)
        assert count
        recorded = free.reward.show(free.observed_outcome)
        assert replace(result.shown[0], value=recorded.value) == recorded
        assert result.shown[0].value == pytest.approx(recorded.value, rel=1e-12)
        assert result.shown[1].value == pytest.approx(free.reward.show(free.outcome(result.actions)).value)
        assert result.outcome == pytest.approx(free.outcome(result.actions) - 0.3 * count)
        assert "outcomes within plausible ranges" in str(verify(result, free.episode, free.model))

    def test_changes_that_gain_less_are_not_made(self) -> None:
        free = random_problem(3, masked=False)
        gain = solve(free, Exhaustive()).improvement
        assert gain > 0
        for solver in (Exhaustive(), AnchorAStar(MonteCarlo(samples=20)), *HEURISTICS):
            costly = free.with_query(change_cost=gain + 1e-3)
            assert solve(costly, solver).changes == ()

    @pytest.mark.parametrize("cost", [-0.1, math.nan, math.inf, "much", True])
    def test_nonsense_is_refused(self, cost: object) -> None:
        problem = random_problem(3)
        with pytest.raises(InputError, match="change_cost"):
            Problem.from_episode(problem.episode, problem.model, Query(problem.reward, 1, change_cost=cost))  # type: ignore[arg-type]


def test_idle_changes_are_undone_only_where_that_is_admissible() -> None:
    for seed in range(some(40)):
        problem = drawn_problem(seed)
        every, fine = listed(problem)
        rows = torch.tensor(every)[fine]
        few = rows[:: max(1, len(rows) // 5)]
        first = torch.zeros(len(few), dtype=torch.int64)
        kept, _ = drop_idle_changes(ProblemBatch([problem]), first, few, tolerance=math.inf)
        assert problem.admissible(kept).all()
        assert (problem.changes(kept) <= problem.changes(few)).all()


@profile
@given(seed=seeds)
def test_results_and_their_verification_keep_the_rules(seed: int) -> None:
    problem = drawn_problem(seed, masked=seed % 2 == 0)
    reward = problem.reward if problem.reward.to_dict()["kind"] == "custom" else None
    for solver in (Exhaustive(), Greedy()):
        result = Result.from_json(solve(problem, solver).to_json())
        assert result.query.to_dict() == problem.query.to_dict()
        assert result.query.constraints == problem.constraints
        report = verify(result, problem.episode, problem.model, reward=reward, samples=20)
        assert report.proof_repeated is solver.exact


def required_and_linked() -> tuple[Problem, Result]:
    problem = uniform_problem()
    assert problem.automaton.looks_back
    assert problem.must_change.tolist() == [False, True, False, False]
    return problem, solve(problem, Exhaustive())


def test_verification_refuses_sequences_against_the_rules() -> None:
    problem, result = required_and_linked()
    custom = problem.reward if problem.reward.to_dict()["kind"] == "custom" else None

    def check(claim: Result) -> None:
        verify(claim, problem.episode, problem.model, reward=custom)

    check(result)
    every, _ = listed(problem)
    sequences = torch.tensor(every)
    steps = torch.arange(4)
    allowed = problem.allowed[steps, sequences].all(1) & (problem.changes(sequences) <= 3)
    unlinked = sequences[allowed & ~problem.admissible(sequences)][0]
    with pytest.raises(VerificationError, match="rules that look back"):
        check(replace(result, actions=unlinked.numpy()))
    with pytest.raises(VerificationError, match="sequence"):
        check(replace(result, actions=problem.episode.actions))
    with pytest.raises(VerificationError, match="cannot be put"):
        check(asked_otherwise(result, max_changes=0))
    with pytest.raises(VerificationError, match="sequence"):
        check(asked_otherwise(result, constraints=Constraints(locked=[1])))
    with pytest.raises(VerificationError, match="outcome"):
        check(asked_otherwise(result, change_cost=result.query.change_cost + 1.0))


def asked_otherwise(result: Result, **changes: Any) -> Result:
    """The result as the answer to another query."""
    return replace(result, provenance=replace(result.provenance, query=result.query.with_changes(**changes)))


def test_results_of_other_versions_are_refused() -> None:
    problem = random_problem(2, masked=True, model_kind="location-scale", reward_kind="linear")
    content = json.loads(solve(problem, Exhaustive()).to_json())
    with pytest.raises(StoreError, match="version 4"):
        Result.from_dict(content | {"version": 4})
