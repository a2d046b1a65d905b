"""Many problems at once give what one by one gives; a session gives what fresh searches give."""

from functools import cache

import numpy as np
import pytest
import torch
from effort import some

from ifonly.bounds.base import NoChildBound
from ifonly.bounds.lipschitz import LipschitzChildBound
from ifonly.constraints import Constraints
from ifonly.errors import IfonlyError, InputError
from ifonly.problem import Problem
from ifonly.progress import Tick
from ifonly.query import Limits, Query
from ifonly.result import Result, Status
from ifonly.rewards import Custom
from ifonly.search.batch import solve_batch
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.heuristics import Greedy
from ifonly.search.session import Session
from ifonly.search.solve import solve
from ifonly.testing.instances import random_problem
from ifonly.testing.random_rules import random_constraints

BOUNDS = ("none", "lipschitz", "auto")


@cache
def family(seed: int, count: int = 6, **settings: object) -> list[Problem]:
    """Problems with one model: other rules, other budgets."""
    given = {"rules": True, "max_changes": 3, "horizon": 5, "actions": 4, "constrained": True}
    base = random_problem(seed, **{**given, **settings})
    rng = np.random.default_rng(seed)
    members = [base, base.with_constraints(Constraints()), base.with_constraints(Constraints()).with_max_changes(2)]
    while len(members) < count:
        try:
            members.append(base.with_constraints(random_constraints(base.episode, rng)))
        except InputError:
            continue
    return members


def same(one: Result, other: Result) -> None:
    assert one.status is other.status
    assert np.array_equal(one.actions, other.actions)
    assert one.outcome == pytest.approx(other.outcome, abs=1e-9)
    assert one.upper_bound == pytest.approx(other.upper_bound, abs=1e-9)
    for first, second in zip(one.frontier, other.frontier, strict=True):
        assert (first.actions is None) == (second.actions is None)
        assert first.actions is None or np.array_equal(first.actions, second.actions)
    assert [a.actions.tolist() for a in one.alternatives] == [a.actions.tolist() for a in other.alternatives]


@pytest.mark.parametrize("bound", BOUNDS)
def test_together_as_one_by_one(bound: str) -> None:
    for seed in range(some(5)):
        members = family(seed) + family(seed + 100, 3)
        solver = BranchAndBound(bound=bound, alternatives=1 + seed % 3)
        together = solve_batch(members, solver)
        for problem, result in zip(members, together, strict=True):
            alone = solve(problem, solver)
            same(result, alone)
            assert result.certificate == alone.certificate
            assert result.stats.nodes_expanded == alone.stats.nodes_expanded
            assert result.provenance.model.fingerprint == problem.model.fingerprint()


def test_each_problem_chooses_its_own_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(some(4)):
        members = family(seed)
        sizes = sorted(problem.sequence_count() for problem in members)
        for threshold in ("SMALL", "ENUMERABLE"):
            monkeypatch.setattr(f"ifonly.bounds.factory.{threshold}", sizes[len(sizes) // 2])
        together = solve_batch(members)
        for problem, result in zip(members, together, strict=True):
            alone = solve(problem, BranchAndBound())
            same(result, alone)
            assert result.certificate == alone.certificate
            assert result.stats.nodes_generated == alone.stats.nodes_generated
            assert result.provenance.solver == alone.provenance.solver
        methods = {result.certificate.method for result in together}
        assert len(methods) == 2 or sizes[len(sizes) // 2] == sizes[-1]


def test_infinite_constants_of_one_problem_are_no_matter_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ifonly.bounds.factory.SMALL", 0)
    monkeypatch.setattr("ifonly.bounds.factory.ENUMERABLE", 0)
    steep = random_problem(
        2, model_kind="linear", reward_kind="custom", horizon=4, actions=5, constrained=True, rules=False, masked=False
    )
    unused = min(set(range(5)) - set(steep.observed_actions.tolist()))

    def lipschitz(context: torch.Tensor, actions: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        shape = torch.broadcast_shapes(context.shape[:-1], actions.shape, noise.shape[:-1])
        return torch.where(actions == unused, torch.inf, 2.0).to(torch.float64).expand(shape)

    monkeypatch.setattr(steep.model, "lipschitz", lipschitz)
    bounded = steep.with_constraints(Constraints(forbidden={None: [unused]}))
    alone = [solve(steep, BranchAndBound()), solve(bounded, BranchAndBound())]
    for results in (solve_batch([steep, bounded]), solve_batch([bounded, steep])[::-1], alone):
        assert [one.certificate.method for one in results] == [NoChildBound.method, LipschitzChildBound.method]
    with pytest.raises(InputError, match="not finite"):
        solve(steep, BranchAndBound(bound="lipschitz"))


@pytest.mark.parametrize(("room", "sizes"), [(5, [4, 4, 3]), (11, [11]), (4, [4, 4, 3]), (1, [1] * 11), (0, [1] * 11)])
def test_problems_that_do_not_fit_together_are_split_evenly(
    room: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ifonly.search.batch._room", lambda device: room)
    monkeypatch.setattr("ifonly.search.batch._elements", lambda problem, bound: 1)
    problem = random_problem(1, horizon=3, actions=3)
    ticks: list[Tick] = []
    solve_batch([problem] * 11, progress=ticks.append)
    assert np.diff([0, *(tick.done for tick in ticks)]).tolist() == sizes


def test_node_limit_is_per_problem() -> None:
    members = family(3, rules=False)
    solver, limits = BranchAndBound(bound="none", batch=1), Limits(nodes=5)
    for problem, result in zip(members, solve_batch(members, solver, limits=limits), strict=True):
        same(result, solve(problem, solver, limits=limits))
        assert result.query.limits.nodes == 5


def test_other_solvers_and_no_problems() -> None:
    members = family(5)
    for problem, result in zip(members, solve_batch(members, Greedy()), strict=True):
        same(result, solve(problem, Greedy()))
    assert solve_batch([]) == []


def test_one_failure_costs_no_other() -> None:
    base = random_problem(1, horizon=4, actions=3, model_kind="linear")
    origin = base.observed_states

    def reward(states: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        far = (states.unsqueeze(-2) - origin).abs().sum(-1).amin(-1) > 1e-6
        return torch.where(far, torch.nan, 0.0).to(torch.float64)

    broken = Problem.from_episode(base.episode, base.model, Query(Custom(reward, 1.0, space="scaled"), 2))
    fine = broken.with_max_changes(0)
    allowed = np.zeros((4, 3), dtype=bool)
    allowed[np.arange(4), base.episode.actions] = True
    idle = Problem.from_episode(
        base.episode,
        base.model,
        Query(broken.reward, 2, constraints=Constraints().restricted_to(allowed, base.episode)),
    )
    answers = solve_batch([fine, broken, idle, base], BranchAndBound(bound="none"), on_error="return")
    assert [isinstance(answer, Result) for answer in answers] == [True, False, True, True]
    assert isinstance(answers[1], IfonlyError)
    with pytest.raises(InputError, match="NaN or infinite"):
        solve_batch([fine, broken, idle], BranchAndBound(bound="none"))


def test_progress_counts_problems() -> None:
    seen: list[Tick] = []
    members = family(2)
    solve_batch(members, progress=seen.append)
    assert seen[-1].done == seen[-1].total == len(members)


def test_interruption_ends_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    members = family(4, rules=False)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ifonly.search.branch_and_bound.bound_root", interrupt)
    results = solve_batch(members)
    assert [result.status for result in results] == [Status.INTERRUPTED] * len(members)


@pytest.mark.parametrize("bound", BOUNDS)
def test_session_as_fresh_searches(bound: str) -> None:
    for seed in range(some(5)):
        first, *others = family(seed, 8)
        session = Session(first, BranchAndBound(bound=bound))
        assert session.solve().outcome == pytest.approx(solve(first, Exhaustive()).outcome, abs=1e-9)
        for problem in others:
            if problem.constraints == Constraints() or problem.max_changes != first.max_changes:
                continue
            result = session.solve(problem.constraints)
            assert result.outcome == pytest.approx(solve(problem, Exhaustive()).outcome, abs=1e-9)
            assert result.status is Status.OPTIMAL
            assert result.query.constraints == problem.constraints


def test_session_adds_rules_one_by_one() -> None:
    problem = random_problem(11, model_kind="linear", reward_kind="linear", horizon=6, actions=4, masked=False)
    session = Session(problem)
    first = session.solve()
    change = first.changes[0]
    without = session.forbid(change.step, change.counterfactual)
    assert without.actions[change.step] != change.counterfactual
    assert without.outcome <= first.outcome
    locked = session.lock(change.step)
    assert locked.actions[change.step] == change.observed
    assert locked.outcome <= without.outcome + 1e-9
    same(session.reset(), first)
    required = session.require(change.step, change.counterfactual)
    assert np.array_equal(required.actions, first.actions)
    with pytest.raises(InputError):
        session.require(99, 0)
    same(session.solve(), required)


def test_session_needs_a_solver_that_can_start_anywhere() -> None:
    with pytest.raises(InputError, match="keeps nothing"):
        Session(random_problem(1), Greedy())


def test_a_session_asks_the_solver_of_the_query() -> None:
    problem = random_problem(7, model_kind="linear", horizon=4)
    asked = problem.with_query(solver={"name": "branch-and-bound", "alternatives": 3})
    same(Session(asked).solve(), solve(asked))
    assert len(Session(asked).solve().alternatives) == 3


def test_what_a_session_knows_from_other_rules_is_no_alternative() -> None:
    problem = random_problem(
        0, model_kind="linear", reward_kind="linear", horizon=3, actions=3, max_changes=2, rules=False, masked=False
    )
    solver = BranchAndBound(alternatives=4)
    session = Session(problem, solver)
    session.require(2, 2)  # under this rule the last change is no idle one
    again, fresh = session.reset(), solve(problem, solver)
    assert [one.actions.tolist() for one in again.alternatives] == [one.actions.tolist() for one in fresh.alternatives]


def test_node_limits_hold_when_memory_is_short() -> None:
    for seed in range(8):
        problem = random_problem(seed, horizon=6, actions=4, max_changes=3)
        result = solve(problem, BranchAndBound(bound="none"), limits=Limits(memory=0.0, nodes=2))
        assert result.stats.nodes_expanded <= 2


def test_every_problem_is_solved_as_its_own_query_says() -> None:
    base = random_problem(6, rules=False, reward_kind="linear")
    asked = [
        base.with_query(limits=Limits(nodes=1)),
        base.with_query(solver="greedy"),
        base,
        base.with_query(solver={"name": "branch-and-bound", "alternatives": 2}),
    ]
    for order in (asked, asked[::-1]):
        for problem, result in zip(order, solve_batch(order), strict=True):
            alone = solve(problem)
            assert result.query == problem.query
            assert result.provenance.solver == alone.provenance.solver
            assert (result.status, result.actions.tolist()) == (alone.status, alone.actions.tolist())
            assert len(result.alternatives) == len(alone.alternatives)
