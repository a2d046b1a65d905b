"""What a stopped A* says about the nodes that textbook A* visits holds."""

import pytest
from effort import some
from torch import Tensor

from ifonly.bounds.anchors import MonteCarlo
from ifonly.problem import Problem
from ifonly.query import Limits
from ifonly.result import Status
from ifonly.search.astar import AnchorAStar
from ifonly.search.solve import solve
from ifonly.testing.instances import random_problem


def nothing_changed(problem: Problem, seconds: float | None) -> tuple[Tensor, float]:
    """A poor first answer, so that the best one known stays far below the optimum for a while."""
    return problem.observed_actions, problem.observed_outcome


@pytest.mark.parametrize("batch", [4, 64])
@pytest.mark.parametrize("seed", range(some(12)))
def test_visits_of_a_stopped_search_are_a_lower_bound(seed: int, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ifonly.search.astar.greedy_actions", nothing_changed)
    problem = random_problem(
        seed, horizon=6, actions=4, max_changes=3, constrained=True, rules=False, model_kind="location-scale"
    )
    solver = AnchorAStar(anchors=MonteCarlo(samples=3), batch=batch)
    whole = solve(problem, solver)
    assert whole.status is Status.OPTIMAL
    assert "visited_at_least" not in whole.certificate.details
    certain = []
    for nodes in (0, 5, 20, 80):
        stopped = solve(problem, solver, limits=Limits(nodes=nodes))
        if stopped.status is Status.NODE_LIMIT:
            certain.append(stopped.certificate.details["visited_at_least"])
    assert all(count <= whole.stats.nodes_visited for count in certain)
    assert certain == sorted(certain)
