"""Problems whose outcomes are written down: any number for any sequence."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from ifonly.data.episode import Episode
from ifonly.data.schema import ActionSpace, Feature, Schema
from ifonly.models.analytic import LinearModel
from ifonly.problem import Problem
from ifonly.query import Query
from ifonly.rewards import Custom


def table_problem(
    worth: Mapping[tuple[int, ...], float], observed: Sequence[int], *, actions: int, max_changes: int | None
) -> Problem:
    """A sequence that `worth` does not list is worth nothing.

    The state is the history, written as a number with one digit per action behind a leading 1; the reward looks the
    whole sequence up at the last step. It is anything but Lipschitz: only for solvers that need no constants.
    """
    horizon = len(observed)
    table = torch.zeros(2 * actions ** (horizon + 1), dtype=torch.float64)

    def code(sequence: Sequence[int]) -> int:
        number = 1
        for action in sequence:
            number = number * actions + action
        return number

    for sequence, value in worth.items():
        table[code(sequence)] = value

    def look_up(states: torch.Tensor, taken: torch.Tensor) -> torch.Tensor:
        return table[states[..., 0].round().long() * actions + taken]

    schema = Schema((Feature("history", "dynamic"),), ActionSpace.categories([str(a) for a in range(actions)]))
    model = LinearModel(schema, np.full((actions, 1, 1), float(actions)), offsets=np.arange(actions)[:, np.newaxis])
    states = [[float(code(observed[:step]))] for step in range(horizon)]
    episode = Episode("table", schema, states=np.array(states), actions=np.array(observed))
    return Problem.from_episode(episode, model, Query(Custom(look_up, 0.0, space="scaled"), max_changes))
