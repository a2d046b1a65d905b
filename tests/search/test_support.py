"""State-wise support: a change is admissible only where it is supported at the state that its sequence reaches."""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from effort import some
from ensemble_oracles import Truth, ranking, truth
from half_spaces import HalfSpaces, random_half_spaces
from shared_problems import random_ensemble, random_problem
from torch import Tensor

from ifonly.bounds import MonteCarlo
from ifonly.bounds.lipschitz import value_constants
from ifonly.constraints import Constraints
from ifonly.data import ActionSpace, Episode, Feature, Schema
from ifonly.errors import InputError, VerificationError
from ifonly.models import LinearModel
from ifonly.problem import BaseProblem, EnsembleProblem, Problem
from ifonly.query import Limits, Query
from ifonly.result import Result, Status
from ifonly.rewards import Linear, minus
from ifonly.search.astar import AnchorAStar
from ifonly.search.batch import solve_batch
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import Exhaustive, every_sequence, outcome_frontier
from ifonly.search.heuristics import Beam, Greedy, RandomSearch, TopSingleChanges
from ifonly.search.session import Session
from ifonly.search.solve import solve
from ifonly.search.verify import verify
from ifonly.testing import check_solver
from ifonly.testing.instances import MODEL_KINDS
from ifonly.text.results import statement


class Everywhere:
    """Supports every action, or none."""

    def __init__(self, answer: bool, actions: int) -> None:
        self.answer, self.actions = answer, actions

    def supported(self, t: int, states: Tensor, context: Tensor) -> Tensor:
        return torch.full((len(states), self.actions), self.answer)

    def settings(self) -> dict[str, Any]:
        return {"kind": "everywhere", "answer": self.answer}


@cache
def problems(count: int, start: int = 0, **given: Any) -> tuple[BaseProblem, ...]:
    """Problems and ensembles with random half-spaces; those where rules leave nothing that is supported are skipped."""
    seed, found = start, []
    while len(found) < count:
        settings = {
            "model_kind": MODEL_KINDS[seed % len(MODEL_KINDS)],
            "max_changes": (2, 1, 3, None)[seed % 4],
            "horizon": 2 + seed % 4,
            "actions": 2 + seed % 3,
            "rules": None,
            **given,
        }
        if settings["horizon"] == 5:
            settings["actions"] = min(settings["actions"], 3)
        base: BaseProblem = random_problem(seed, **settings)
        if seed % 3 == 2:
            goal, members = ("mean", "worst", 0.5)[seed % 9 // 3], 1 + seed % 4
            base = random_ensemble(seed, members=members, objective=goal, **settings)
            base = base.with_query(support_share=(1.0, 0.5)[seed % 2])
        seed += 1
        problem = replace(base, support=random_half_spaces(base, seed))
        if len(truth(problem).outcomes):
            found.append(problem)
    return tuple(found)


def check_against(result: Result, problem: BaseProblem, every: Truth, *, proven: bool = True) -> None:
    tolerance = 10 * problem.tolerance
    wanted = every.frontier(problem.max_changes)
    known = {tuple(row): value for row, value in zip(every.sequences.tolist(), every.outcomes, strict=True)}
    assert known[tuple(result.actions.tolist())] == pytest.approx(result.outcome, abs=tolerance)
    assert result.upper_bound >= wanted[-1] - tolerance
    if proven:
        assert result.status is Status.OPTIMAL
        assert result.outcome == pytest.approx(wanted[-1], abs=tolerance)
    for budget, best in zip(result.frontier, wanted, strict=bool(result.frontier)):
        assert budget.upper_bound >= best - tolerance
        assert (budget.actions is None) == (best == -math.inf) or not proven
        if budget.actions is not None:
            assert known[tuple(budget.actions.tolist())] == pytest.approx(budget.outcome, abs=tolerance)
            assert not proven or budget.outcome == pytest.approx(best, abs=tolerance)


@pytest.mark.parametrize("bound", ["none", "lipschitz", "auto"])
def test_every_budget_equals_enumeration(bound: str) -> None:
    kept, seen = 0, 0
    for number, problem in enumerate(problems(some(30), constrained=bound == "lipschitz" or None)):
        every = truth(problem)
        check_against(solve(problem, BranchAndBound(bound=bound, batch=1 + number % 5)), problem, every)
        kept, seen = kept + len(every.outcomes), seen + problem.sequence_count()
    assert 0.1 < kept / seen < 0.9  # the support matters, and so does what it leaves


def test_led_by_expansions_every_budget_equals_enumeration() -> None:
    kinds = {"reward_kind": "linear", "model_kind": "linear"}
    for problem in problems(some(20), start=200, **kinds):
        check_against(solve(problem, BranchAndBound(bound="taylor", batch=3)), problem, truth(problem))


def test_exhaustive_search_equals_enumeration() -> None:
    for problem in problems(some(30), start=300):
        every = truth(problem)
        check_against(solve(problem, Exhaustive(batch=5)), problem, every)
        assert outcome_frontier(problem).tolist() == pytest.approx(every.frontier(problem.max_changes), abs=1e-8)
        listed = {tuple(row) for block, _ in every_sequence(problem) for row in block.tolist()}
        assert listed == {tuple(row) for row in every.sequences.tolist()}


def test_admissible_is_what_enumeration_admits() -> None:
    for problem in problems(some(20), start=400):
        each = torch.cartesian_prod(*[torch.arange(problem.action_count)] * problem.horizon)
        found = {tuple(row) for row in each[problem.admissible(each)].tolist()}
        assert found == {tuple(row) for row in truth(problem).sequences.tolist()}


def test_a_star_keeps_to_the_support() -> None:
    tried, few = 0, MonteCarlo(samples=50)
    for problem in problems(some(26), start=500, rules=False, constrained=True):
        if isinstance(problem, EnsembleProblem):
            continue
        assert isinstance(problem, Problem)
        assert value_constants(problem).isfinite().all()
        check_against(solve(problem, AnchorAStar(few, batch=3)), problem, truth(problem))
        limited = solve(problem, AnchorAStar(few, batch=1), limits=Limits(nodes=1))
        check_against(limited, problem, truth(problem), proven=False)
        tried += 1
    assert tried > some(15)


@pytest.mark.parametrize(
    "solver", [Greedy(), Beam(3), TopSingleChanges(), RandomSearch(samples=60)], ids=lambda solver: solver.name
)
def test_heuristics_keep_to_the_support(solver: Any) -> None:
    for problem in problems(some(15), start=600, rules=False):
        check_against(solve(problem, solver), problem, truth(problem), proven=False)


def test_a_wide_beam_finds_everything() -> None:
    """Also what is supported only after another change that was made later."""
    for problem in problems(some(15), start=700, rules=False, horizon=4):
        best = truth(problem).frontier(problem.max_changes)[-1]
        assert solve(problem, Beam(10_000)).outcome == pytest.approx(best, abs=10 * problem.tolerance)


def test_contract() -> None:
    few = list(problems(some(8), start=800, constrained=True))
    check_solver(BranchAndBound(bound="lipschitz"), few)
    check_solver(Exhaustive(), few)


def test_best_few() -> None:
    for problem in problems(some(18), start=900):
        wanted = ranking(problem, truth(problem))
        for number in (2, 10_000):
            result = solve(problem, BranchAndBound(alternatives=number, batch=2))
            found = [one.outcome for one in result.alternatives]
            assert found == pytest.approx([value for value, _ in wanted[:number]], abs=1e-8)
        assert {tuple(one.actions.tolist()) for one in result.alternatives} == {row for _, row in wanted}


@pytest.mark.parametrize("limits", [Limits(nodes=0), Limits(nodes=2), Limits(seconds=0.0), Limits(gap=0.7)])
def test_limits_leave_valid_brackets(limits: Limits) -> None:
    for problem in problems(some(12), start=1000, constrained=True, rules=False):
        result = solve(problem, BranchAndBound(bound="lipschitz", batch=1), limits=limits)
        check_against(result, problem, truth(problem), proven=False)


@pytest.mark.parametrize("solver", [BranchAndBound(), Exhaustive(), AnchorAStar(), Greedy(), Beam(), RandomSearch()])
def test_nothing_supported_leaves_the_observed_answer(solver: Any) -> None:
    base = random_problem(3, rules=False, constrained=True, max_changes=2)
    problem = replace(base, support=Everywhere(False, base.action_count))
    result = solve(problem, solver)
    assert result.actions.tolist() == result.observed_actions.tolist()
    assert result.status is (Status.OPTIMAL if solver.exact else Status.HEURISTIC)
    assert not solver.exact or result.upper_bound == pytest.approx(result.observed_outcome)
    free = replace(base, support=Everywhere(True, base.action_count))
    assert solve(free, solver).actions.tolist() == solve(base, solver).actions.tolist()


def ladder() -> Problem:
    """x counts the climbs so far; a climb by 2 (action 2) is supported only from 1 on, a climb by 1 anywhere."""
    schema = Schema((Feature("x", "dynamic"),), ActionSpace.categories(["stay", "climb", "leap"]))
    model = LinearModel(schema, np.ones((3, 1, 1)), offsets=[[0.0], [1.0], [2.5]])
    episode = Episode("ladder", schema, states=np.zeros((4, 1)), actions=[0, 0, 0, 0])
    support = HalfSpaces(torch.tensor([[0.0], [0.0], [-1.0]]).double(), torch.tensor([0.0, 0.0, -0.5]).double())
    return Problem.from_episode(episode, model, Query(Linear({"x": 1.0}), 2), support=support)


def test_a_change_may_become_admissible_by_an_earlier_one() -> None:
    problem = ladder()
    for solver in (BranchAndBound(alternatives=5), Exhaustive(), Beam()):
        result = solve(problem, solver)
        assert result.actions.tolist() == [1, 2, 0, 0]  # a leap at once would be better, and is not supported
        assert result.outcome == pytest.approx(1.0 + 3.5 + 3.5)
    single = solve(problem.with_max_changes(1))
    assert single.actions.tolist() == [1, 0, 0, 0]
    # Without the first change the second is not admissible, so undoing it is no way to save a change.
    assert problem.admissible(torch.tensor([[1, 2, 0, 0], [0, 2, 0, 0], [2, 0, 0, 0], [0, 1, 2, 0]])).tolist() == [
        True,
        False,
        False,
        True,
    ]


def test_a_change_that_only_prepares_another_is_not_undone() -> None:
    """The first change alone gains nothing, costs nothing, and is what the second stands on."""
    schema = Schema((Feature("ready", "dynamic"), Feature("x", "dynamic")), ActionSpace.categories(["wait", "do"]))
    model = LinearModel(schema, np.zeros((2, 2, 2)), offsets=[[0.0, 0.0], [1.0, -1.0]])
    episode = Episode("case", schema, states=[[0.0, 0.0], [0.0, 5.0], [0.0, 5.0]], actions=[0, 0, 0])
    support = HalfSpaces(torch.tensor([[0.0, 0.0], [0.0, 1.0]]).double(), torch.tensor([0.0, 4.5]).double())
    problem = Problem.from_episode(episode, model, Query(minus("x"), None), support=support)
    # At step 1 the recorded x is 5; only after "do" at step 0 it is 4, where "do" is supported again.
    result = solve(problem)
    assert result.actions.tolist() == [1, 1, 0]
    assert result.outcome == pytest.approx(-8.0)


@pytest.mark.parametrize("solver", [BranchAndBound(), Exhaustive(), Greedy(), RandomSearch()])
def test_required_changes_must_be_supported_too(solver: Any) -> None:
    with pytest.raises(InputError, match=r"'ladder'.*every change supported"):
        solve(ladder().with_constraints(Constraints(required={0: 2})), solver)


@pytest.mark.parametrize("solver", [BranchAndBound(), Exhaustive(), Greedy()])
def test_a_required_change_may_need_another_one_first(solver: Any) -> None:
    result = solve(ladder().with_constraints(Constraints(required={2: 2})), solver)
    assert result.actions.tolist() == [1, 0, 2, 0]
    assert not result.frontier or [budget.outcome is None for budget in result.frontier] == [True, True, False]


def test_a_session_keeps_to_the_support() -> None:
    for problem in problems(some(10), start=1100, rules=False, max_changes=3):
        session = Session(problem, BranchAndBound(alternatives=3))
        session.solve()
        for step in range(problem.horizon):
            rules = Constraints(locked=[step])
            wanted = truth(problem.with_constraints(rules)).frontier(problem.max_changes)[-1]
            assert session.solve(rules).outcome == pytest.approx(wanted, abs=10 * problem.tolerance)


def test_problems_with_one_support_are_searched_together() -> None:
    base = random_problem(5, rules=False, max_changes=2)
    support = random_half_spaces(base, 5)
    together = [replace(base, support=support).with_max_changes(2) for _ in range(3)] + [base]
    results = solve_batch(together)
    assert [one.provenance.support is None for one in results] == [False, False, False, True]
    for problem, result in zip(together, results, strict=True):
        check_against(result, problem, truth(problem))


def test_results_are_stored_and_verified() -> None:
    for problem in problems(some(10), start=1200, reward_kind="linear"):
        result = Result.from_json(solve(problem, BranchAndBound(alternatives=3)).to_json())
        assert statement(result).startswith("No admissible and supported sequence does better ")
        assert result.provenance.support is not None
        assert result.certificate.details["support"]["kind"] == "half spaces"
        models = problem.models if isinstance(problem, EnsembleProblem) else problem.models[0]
        report = verify(result, problem.episode, models, support=problem.support)
        assert "supported ones of" in str(report)
        with pytest.raises(VerificationError, match=r"pass support=\.\.\."):
            verify(result, problem.episode, models)
        with pytest.raises(VerificationError, match="support: another one"):
            verify(result, problem.episode, models, support=random_half_spaces(problem, 99))


def test_an_unsupported_answer_is_not_verified() -> None:
    problem = ladder()
    free = solve(replace(problem, support=None))
    assert problem.support is not None
    asked = replace(free.provenance, support=problem.support.settings())
    false = replace(free, provenance=asked)
    with pytest.raises(VerificationError, match="support of changes"):
        verify(false, problem.episode, problem.model, support=problem.support)
    with pytest.raises(VerificationError, match="no support was asked for"):
        verify(free, problem.episode, problem.model, support=problem.support)


@pytest.mark.parametrize(("share", "wanted"), [(1.0, 0), (0.75, 0), (0.5, 2), (0.25, 2)])
def test_enough_members_must_support_a_change(share: float, wanted: int) -> None:
    """Under two of four members the first step leads to a state in which acting again is supported."""
    schema = Schema((Feature("x", "dynamic"),), ActionSpace.categories(["wait", "act"]))
    models = [LinearModel(schema, np.ones((2, 1, 1)), offsets=[[0.0], [-step]]) for step in (1.0, 1.0, 3.0, 3.0)]
    episode = Episode("case", schema, states=[[4.0], [4.0], [4.0]], actions=[0, 0, 0])

    class Below:
        def supported(self, t: int, states: Tensor, context: Tensor) -> Tensor:
            fine = states[:, 0] < 2 if t else torch.ones(len(states), dtype=torch.bool)
            return torch.stack([fine, fine], dim=1)

        def settings(self) -> dict[str, Any]:
            return {"kind": "below"}

    ensemble = EnsembleProblem.from_episode(
        episode, models, Query(minus("x"), None, support_share=share), support=Below()
    )
    result = solve(ensemble)
    assert result.actions[0] == 1
    assert int(result.actions[1]) == (wanted > 0)
    assert result.member_outcomes is not None
    assert result.query.support_share == share


def test_supports_that_break_their_promise_are_refused() -> None:
    problem = random_problem(2, rules=False)

    def ask(support: Any) -> Problem:
        return Problem.from_episode(problem.episode, problem.model, Query(problem.reward, 2), support=support)

    class Odd(Everywhere):
        def supported(self, t: int, states: Tensor, context: Tensor) -> Tensor:
            return super().supported(t, states, context).double()

    class Moody(Everywhere):
        def supported(self, t: int, states: Tensor, context: Tensor) -> Tensor:
            return super().supported(t, states, context) & (len(states) > 1)

    with pytest.raises(InputError, match=r"true and false \[N, A\]"):
        ask(Odd(True, problem.action_count))
    with pytest.raises(InputError, match=r"true and false \[N, A\]"):
        ask(Everywhere(True, problem.action_count + 1))
    with pytest.raises(InputError, match="judges a state differently"):
        ask(Moody(True, problem.action_count))
    with pytest.raises(InputError, match="must have `supported` and `settings`"):
        ask(0.05)
    for share in (0.0, 1.5, -1.0):
        with pytest.raises(InputError, match="support_share"):
            EnsembleProblem.from_problem(problem.with_query(support_share=share), [problem.model])


def test_a_support_that_knows_no_probabilities_cannot_answer_for_them() -> None:
    problem = random_problem(5, rules=False, max_changes=2)
    query = problem.query.with_changes(min_support=0.5)
    with pytest.raises(InputError, match=r"min_support of 0\.5, which \w+ cannot judge by"):
        Problem.from_episode(problem.episode, problem.model, query, support=random_half_spaces(problem, 5))
    with pytest.raises(InputError, match="takes a behaviour model"):
        Problem.from_episode(problem.episode, problem.model, query)


@pytest.mark.parametrize("change", [{"reward": minus("x")}, {"min_support": 0.1}, {"objective": "worst"}])
def test_what_was_bound_to_a_problem_is_not_changed_by_its_query(change: dict[str, Any]) -> None:
    problem = random_problem(5, rules=False, max_changes=2)
    with pytest.raises(InputError, match="was bound when the problem was built"):
        problem.with_query(**change)
