"""Branch and bound led by the Taylor bound finds what enumeration finds: every budget, every alternative."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from effort import some
from smooth_problems import full_size_problem, smooth_problems

from ifonly.bounds.taylor import TaylorChildBound
from ifonly.constraints import Constraints
from ifonly.data import Episode
from ifonly.errors import InputError
from ifonly.problem import Problem
from ifonly.query import Query
from ifonly.result import Result, Status
from ifonly.search.batch import solve_batch
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import Exhaustive, outcome_frontier
from ifonly.search.solve import solve
from ifonly.testing import check_solver
from ifonly.testing.instances import random_problem
from ifonly.testing.random_rules import random_constraints

EXACT = 1e-9


def drawn_episode(problem: Problem, rng: np.random.Generator, id: str) -> Episode:
    """Another course of events under the same model: random actions, noise and context."""
    model, horizon = problem.model, problem.horizon
    size = problem.observed_states.shape[1]
    actions = torch.as_tensor(rng.integers(problem.action_count, size=horizon))
    noise = torch.as_tensor(rng.normal(size=(horizon, size)))
    states = [torch.as_tensor(rng.normal(size=size))]
    for t in range(horizon - 1):
        states.append(model.step(states[-1], problem.context[t], actions[t], noise[t]))
    return Episode(
        id,
        problem.episode.schema,
        states=problem.decode(torch.stack(states)),
        actions=actions.numpy(),
        context=problem.episode.context,
    )


def siblings(problem: Problem, count: int, seed: int) -> list[Problem]:
    """Problems with one model, reward, budget and cost: other episodes, masks and rules."""
    rng = np.random.default_rng(seed)
    members = [problem]
    while len(members) < count:
        episode = drawn_episode(problem, rng, f"{problem.episode.id} / {len(members)}")
        allowed = rng.random((problem.horizon, problem.action_count)) < 0.8
        allowed[np.arange(problem.horizon), episode.actions] = True
        other = Problem.from_episode(
            episode,
            problem.model,
            Query(
                problem.reward,
                problem.max_changes,
                constraints=Constraints().restricted_to(allowed, episode) if rng.random() < 0.3 else Constraints(),
                change_cost=problem.change_cost,
            ),
        )
        try:
            ruled = other.with_constraints(random_constraints(episode, rng)) if rng.random() < 0.3 else other
        except InputError:  # rules that contradict each other
            ruled = other
        members.append(ruled)
    return members


def check_every_budget(problem: Problem, result: Result) -> None:
    assert result.status is Status.OPTIMAL
    assert result.certificate.proven
    truth = outcome_frontier(problem).tolist()
    assert len(result.frontier) == len(truth)
    for budget, best in zip(result.frontier, truth, strict=True):
        if best == -math.inf:
            assert budget.outcome is None
            continue
        assert budget.outcome == pytest.approx(best, abs=EXACT, rel=EXACT)
        assert budget.upper_bound == pytest.approx(best, abs=EXACT, rel=EXACT)
        assert int(problem.changes(torch.tensor(budget.actions))) <= budget.max_changes
        assert problem.outcome(budget.actions) == pytest.approx(best, abs=EXACT, rel=EXACT)


def families() -> Iterator[list[Problem]]:
    """16 models, 224 problems, in the long run; weak networks, whose bounds prune, as often as strong ones."""
    for number, problem in enumerate(smooth_problems(some(16), start=10_000)):
        yield siblings(problem, 14, seed=number)


def test_every_budget_of_many_problems() -> None:
    with torch.no_grad():
        for number, members in enumerate(families()):
            solver = BranchAndBound(bound="taylor", batch=(64, 1, 7)[number % 3])
            for problem, result in zip(members, solve_batch(members, solver), strict=True):
                assert result.certificate.method == TaylorChildBound.method or problem.max_changes == 0
                check_every_budget(problem, result)


def test_every_budget_one_by_one() -> None:
    for problem in smooth_problems(some(24), start=20_000):
        check_every_budget(problem, solve(problem, BranchAndBound(bound="taylor", batch=3)))


def test_contract() -> None:
    check_solver(BranchAndBound(bound="taylor"), smooth_problems(some(16), start=21_000))


def sorted_outcomes(problem: Problem) -> torch.Tensor:
    """Outcomes of every admissible sequence, best first; of the last step's changes that earn the same, one."""
    every = torch.tensor(list(itertools.product(range(problem.action_count), repeat=problem.horizon)))
    fine = every[problem.admissible(every)]
    states, outcomes = problem.rollout(fine)
    last = problem.observed_actions[-1]
    same = problem.free_rewards(-1, states[:, -1], fine[:, -1]) == problem.free_rewards(-1, states[:, -1], last)
    stays = fine.clone()
    stays[:, -1] = last
    idle = (fine[:, -1] != last) & same & problem.admissible(stays)
    return outcomes[~idle].sort(descending=True).values


def test_alternatives_and_what_lies_within() -> None:
    for number, problem in enumerate(smooth_problems(some(24), start=22_000)):
        with torch.no_grad():
            outcomes = sorted_outcomes(problem)
        wanted = 2 + number % 6
        result = solve(problem, BranchAndBound(bound="taylor", alternatives=wanted))
        found = torch.tensor([one.outcome for one in result.alternatives], dtype=torch.float64)
        torch.testing.assert_close(found, outcomes[:wanted], rtol=EXACT, atol=EXACT)
        # Halfway between two outcomes, so that rounding decides nothing.
        place = min(number % 5, len(outcomes) - 2)
        if place < 0 or outcomes[place] - outcomes[place + 1] < 1e-6:
            continue
        within = float(outcomes[0] - (outcomes[place] + outcomes[place + 1]) / 2)
        result = solve(problem, BranchAndBound(bound="taylor", within=within))
        found = torch.tensor([one.outcome for one in result.alternatives], dtype=torch.float64)
        torch.testing.assert_close(found, outcomes[: place + 1], rtol=EXACT, atol=EXACT)


@torch.no_grad()
def test_full_size() -> None:
    problem = full_size_problem()
    assert problem.sequence_count() > 250_000
    result, truth = solve(problem), solve(problem, Exhaustive())
    assert result.certificate.method == TaylorChildBound.method  # the default choice
    assert result.status is Status.OPTIMAL
    assert result.outcome == pytest.approx(truth.outcome, abs=EXACT)
    assert result.improvement > 0.01
    assert result.stats.model_steps < truth.stats.model_steps / 20  # it prunes
    check_every_budget(problem, result)


def test_bounds_beyond_float32_exclude_nothing() -> None:
    """Deep networks with huge weights have third derivatives of more than 1e38, perhaps."""
    shape = {"max_changes": 4, "horizon": 4, "actions": 3, "state_size": 9, "hidden": (4, 4, 4), "strength": 1e4}
    problem = random_problem(31841, model_kind="additive", reward_kind="with action costs", rules=None, **shape)
    assert max(part.derivative_bounds[2] for part in problem.model.smooth().parts) > 1e38
    result = solve(problem, BranchAndBound(bound="taylor"))
    assert result.status is Status.OPTIMAL
    assert result.outcome == solve(problem, Exhaustive()).outcome
