"""Solvers keep the same contract on every device; where there is no GPU, its half is skipped and says so."""

import pytest
import torch
from effort import some
from shared_problems import random_ensemble, random_problem

from ifonly.bounds import MonteCarlo
from ifonly.bounds.factory import choose_bound, make_child_bound
from ifonly.bounds.taylor import can_expand
from ifonly.problem import BaseProblem
from ifonly.result import Status
from ifonly.search.astar import AnchorAStar
from ifonly.search.base import Solver
from ifonly.search.batch import solve_batch
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.heuristics import Beam, Greedy, RandomSearch, TopSingleChanges
from ifonly.search.solve import solve
from ifonly.testing import check_child_bound, check_solver
from ifonly.testing.instances import MODEL_KINDS

SOLVERS: list[Solver] = [
    BranchAndBound(),
    BranchAndBound(bound="lipschitz"),
    AnchorAStar(MonteCarlo(samples=20)),
    Exhaustive(),
    Greedy(),
    Beam(width=4),
    TopSingleChanges(),
    RandomSearch(samples=50, seed=0),
]
SMOOTH = tuple(kind for kind in MODEL_KINDS if can_expand(random_problem(0, model_kind=kind, reward_kind="linear")))


@pytest.fixture(
    params=[
        "cpu",
        pytest.param(
            "cuda",
            marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: torch finds no CUDA device here"),
        ),
    ]
)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def moved(problem: BaseProblem, device: str) -> BaseProblem:
    models = [model.for_search(device) for model in problem.models]
    return problem.on(device, models if problem.members_shape else models[0])


def small_problems(device: str, count: int, start: int = 0) -> list[BaseProblem]:
    """Every kind of model, with rules of every kind and without."""
    drawn = [
        random_problem(seed, model_kind=MODEL_KINDS[seed % len(MODEL_KINDS)], rules=None)
        for seed in range(start, start + count)
    ]
    return [moved(problem, device) for problem in drawn]


def smooth_problems(device: str, count: int) -> list[BaseProblem]:
    """Those that the Taylor bound can lead, of one horizon for each kind."""
    settings = {"reward_kind": "linear", "horizon": 5, "max_changes": 3, "rules": None}
    drawn = [random_problem(seed, model_kind=SMOOTH[seed % len(SMOOTH)], **settings) for seed in range(count)]
    return [moved(problem, device) for problem in drawn]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: f"{solver.name} {solver.settings().get('bound', '')}")
def test_contract(solver: Solver, device: str) -> None:
    check_solver(solver, small_problems(device, some(2 * len(MODEL_KINDS))))


def test_contract_under_the_taylor_bound(device: str) -> None:
    check_solver(BranchAndBound(bound="taylor"), smooth_problems(device, some(4 * len(SMOOTH))))


def test_contract_for_ensembles(device: str) -> None:
    ensembles = [random_ensemble(seed, members=3) for seed in range(some(12))]
    check_solver(BranchAndBound(), [moved(problem, device) for problem in ensembles])


@pytest.mark.parametrize("bound", ["taylor", "lipschitz"])
def test_bounds_are_above_the_truth(bound: str, device: str) -> None:
    for number, problem in enumerate(smooth_problems(device, some(3 * len(SMOOTH)))):
        check_child_bound(make_child_bound([problem], bound), [problem], samples=4, seed=number)


def test_together_as_one_by_one(device: str) -> None:
    problems = smooth_problems(device, some(18))
    for problem, together in zip(problems, solve_batch(problems), strict=True):
        alone = solve(problem)
        assert together.outcome == pytest.approx(alone.outcome, rel=1e-9, abs=10 * problem.tolerance)
        assert together.status is alone.status
        assert [one.max_changes for one in together.frontier] == [one.max_changes for one in alone.frontier]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: f"{solver.name} {solver.settings().get('bound', '')}")
def test_the_same_answer_as_on_the_processor(solver: Solver, device: str) -> None:
    for seed in range(len(MODEL_KINDS)):
        problem = random_problem(seed, model_kind=MODEL_KINDS[seed], reward_kind="linear")
        here, there = solve(problem, solver), solve(moved(problem, device), solver)
        assert there.outcome == pytest.approx(here.outcome, rel=1e-9, abs=1e-9)
        assert there.status is here.status
        assert there.provenance.model == here.provenance.model
        if solver.exact:
            assert there.actions.tolist() == here.actions.tolist()


def test_the_taylor_bound_leads_to_what_enumeration_finds(device: str) -> None:
    settings = {"reward_kind": "linear", "horizon": 10, "actions": 6, "max_changes": 3, "masked": False}
    large = [random_problem(seed, model_kind=SMOOTH[seed % len(SMOOTH)], **settings) for seed in range(some(9))]
    for problem in large:
        assert choose_bound(problem) == "none", "else enumeration takes long"
        there = solve(moved(problem, device), BranchAndBound(bound="taylor"))
        assert there.status is Status.OPTIMAL
        assert there.outcome == pytest.approx(solve(problem, Exhaustive()).outcome, rel=1e-9, abs=1e-9)
