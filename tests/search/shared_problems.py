"""Random problems and the truth about them, made once: problems never change, and several tests ask the same ones."""

from functools import cache

import torch

from ifonly.problem import BaseProblem
from ifonly.search.exhaustive import outcome_frontier
from ifonly.testing import instances

random_problem = cache(instances.random_problem)
random_ensemble = cache(instances.random_ensemble)


@cache
def best_by_budget(problem: BaseProblem) -> torch.Tensor:
    """The best outcome [K + 1] for every budget, by enumeration."""
    return outcome_frontier(problem)
