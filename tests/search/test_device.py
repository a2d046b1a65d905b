"""Another device gives the same answer. Needs a GPU; skipped, with the reason, where there is none."""

import pytest
import torch

from ifonly.bounds import MonteCarlo
from ifonly.constraints import Constraints
from ifonly.problem import Problem
from ifonly.query import Query
from ifonly.search.astar import AnchorAStar
from ifonly.search.base import Solver
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.heuristics import Beam, Greedy, RandomSearch, TopSingleChanges
from ifonly.search.solve import solve
from ifonly.testing.instances import MODEL_KINDS, random_problem

SOLVERS: list[Solver] = [
    AnchorAStar(MonteCarlo(samples=20)),
    Exhaustive(),
    Greedy(),
    Beam(width=4),
    TopSingleChanges(),
    RandomSearch(samples=50, seed=0),
]


def on_device(problem: Problem, device: str) -> Problem:
    return Problem.from_episode(
        problem.episode,
        problem.model,
        Query(
            problem.reward,
            problem.max_changes,
            constraints=Constraints().restricted_to(problem.allowed.numpy(), problem.episode),
        ),
        device=device,
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_gpu_gives_the_same_answer(kind: str) -> None:
    for seed in range(4):
        problem = random_problem(seed, model_kind=kind, reward_kind="linear")
        for solver in SOLVERS:
            here, there = solve(problem, solver), solve(on_device(problem, "cuda"), solver)
            assert there.outcome == pytest.approx(here.outcome, rel=1e-9, abs=1e-9)
            assert there.status is here.status
            assert there.provenance.model == here.provenance.model
            if solver.exact:
                assert there.actions.tolist() == here.actions.tolist()


def test_the_comparison_itself_works() -> None:
    """The same test with the same device on both sides, so that it is exercised everywhere."""
    problem = random_problem(0, reward_kind="linear")
    for solver in SOLVERS:
        here, there = solve(problem, solver), solve(on_device(problem, "cpu"), solver)
        assert there.outcome == here.outcome
        assert there.actions.tolist() == here.actions.tolist()
