"""The open list: what is taken next."""

import torch

from ifonly.search.open_list import OpenList, OpenNodes

INF = torch.inf


def open_nodes(bounds: list[float], problem: list[int] | None = None) -> OpenNodes:
    """Single changes at one step each, with these bounds [N]."""
    each = torch.arange(len(bounds))
    return OpenNodes(
        problem=torch.zeros_like(each) if problem is None else torch.tensor(problem),
        step=each,
        action=torch.zeros_like(each),
        depth=torch.ones_like(each),
        sequences=torch.zeros(len(bounds), 3, dtype=torch.int16),
        bounds=torch.tensor(bounds, dtype=torch.float64),
    )


def taken(bounds: list[float], most: list[int], problem: list[int] | None = None) -> list[int]:
    """Which come next when each problem may expand so many."""
    nodes = OpenList(len(most), memory=INF)
    nodes.add(open_nodes(bounds, problem))
    return nodes.next(torch.tensor(most)).nonzero().squeeze(-1).tolist()


def test_the_best_bounds_of_each_problem_come_first() -> None:
    bounds = [1.0, 3.0, 4.0, 0.0, 9.0]
    assert taken(bounds, [2]) == [2, 4]
    assert taken(bounds, [2, 1], [0, 0, 0, 1, 1]) == [1, 2, 4]


def test_what_is_unknown_comes_first() -> None:
    assert taken([1.0, INF, 9.0], [1]) == [1]


def test_of_equals_the_earlier_step_comes_first() -> None:
    assert taken([INF, INF, INF], [2]) == [0, 1]
