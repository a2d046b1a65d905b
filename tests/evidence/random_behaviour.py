"""Behaviour models of random weights."""

import torch

from ifonly.data.scaling import Scaler
from ifonly.evidence.behaviour import BehaviourModel, BehaviourReport, ChoiceNetwork, Neighbours
from ifonly.evidence.behaviour.report import CohortPart
from ifonly.problem import BaseProblem

PART = CohortPart(1, 1)
REPORT = BehaviourReport(PART, PART, PART, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, (), ())


def made_behaviour(problem: BaseProblem, seed: int, *, with_states: bool = True) -> BehaviourModel:
    """A behaviour model of random weights, in other coordinates than the problem's model has."""
    schema = problem.episode.schema
    generator = torch.Generator().manual_seed(seed)
    sizes = (len(schema.dynamic), len(schema.context), len(schema.actions))
    network = ChoiceNetwork(sizes, (8,), 6)
    network.initialize(generator)
    with torch.no_grad():
        network.output.weight.normal_(std=1.5, generator=generator)
    return BehaviourModel(
        schema=schema,
        scaler=Scaler.identity(schema),
        network=network.double().requires_grad_(False),
        hidden=(8,),
        temperature=0.8,
        report=REPORT,
        neighbours=Neighbours.of(torch.randn(20, sizes[0], generator=generator), k=3) if with_states else None,
    )
