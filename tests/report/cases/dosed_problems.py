"""A problem whose every course can be computed by hand."""

from typing import Any

import torch

from ifonly.data.episode import Episode
from ifonly.data.schema import ActionSpace, Axis, Feature, Schema
from ifonly.models import LinearModel
from ifonly.problem import Problem
from ifonly.query import Query
from ifonly.rewards import minus

DOSES = ActionSpace.product(Axis("drug", "mg", (0, 5, 20)), Axis("fluid", "mL", (0, 80)))  # number 2 drug + fluid


def dosed(*, plausible: tuple[float, float] | None = (0.0, 10.0), max_changes: int | None = 2, **more: Any) -> Problem:
    """Every dose moves both features by itself: SOFA falls by 0.1 per mg and 0.01 per mL, MAP rises by 0.2 per mg."""
    schema = Schema(
        (
            Feature("age", "static", unit="years"),
            Feature("SOFA", "dynamic", plausible=plausible),
            Feature("MAP", "dynamic", unit="mmHg"),
            Feature("ventilated", "contextual"),
        ),
        DOSES,
        step_length=4.0,
        step_unit="h",
    )
    offsets = torch.tensor(
        [[-0.1 * dose - 0.01 * fluid, 0.2 * dose] for dose, fluid in DOSES.vectors], dtype=torch.float64
    )
    model = LinearModel(schema, torch.eye(2, dtype=torch.float64).expand(len(DOSES), 2, 2), offsets=offsets)
    episode = Episode(
        "case 7",
        schema,
        states=[[8, 60], [6, 62], [4, 70], [3, 71]],
        actions=[0, 3, 5, 0],
        context=[[63, 1], [63, 1], [63, 0], [63, 0]],
    )
    support = more.pop("support", None)
    query = Query(more.pop("reward", minus("SOFA")), max_changes, **more)
    return Problem.from_episode(episode, model, query, support=support)
