"""The facility-location anchors, chosen once for all patients: they depend on the cohort alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ifonly.bounds.anchors import Anchors, AnchorStrategy, FacilityLocation
from ifonly.files import atomic_file
from ifonly.problem import Problem
from paper.laboratory import Laboratory, Limits


@dataclass(frozen=True, eq=False)
class FixedPoints(AnchorStrategy):
    """The same points [M, D], in scaled coordinates, at every step, together with the step's observed state."""

    points: Tensor

    def __repr__(self) -> str:
        return f"FixedPoints([{len(self.points)} states])"

    def choose(self, problem: Problem, constants: Tensor, generator: torch.Generator) -> Anchors:
        """Nothing is left to choose."""
        points = self.points.to(problem.device)
        return Anchors(tuple(torch.cat([points, state.unsqueeze(0)]) for state in problem.observed_states))


def points_file(laboratory: Laboratory, limits: Limits | None, size: int) -> Path:
    """Where `size` points are stored, or will be, in the coordinates of the model with these limits."""
    name = "given" if limits is None else laboratory.model_folder(limits).name
    return laboratory.folder / "anchors" / f"{name}-{size}.safetensors"


def choose_points(laboratory: Laboratory, limits: Limits | None, size: int, device: str) -> None:
    """Choose `size` points by farthest-point clustering of all states of the cohort, and store them in their order."""
    patient = laboratory.cohort()[laboratory.patients(1)[0]]
    model = laboratory.load_model(limits, device)
    problem = Problem.from_episode(patient, model, laboratory.reward, 1, device=device)
    generator = torch.Generator().manual_seed(laboratory.conditions.seed)
    strategy = FacilityLocation(size=size, pool=laboratory.cohort().states)
    first = strategy.choose(problem, torch.empty(0), generator).points[0]
    with atomic_file(points_file(laboratory, limits, size)) as scratch:
        save_file({"points": first[:-1].cpu().contiguous()}, scratch)  # the last one is the patient's own state


@lru_cache(maxsize=2)
def _read(file: Path) -> Tensor:
    points: Tensor = load_file(file)["points"]
    return points


def facility_anchors(laboratory: Laboratory, limits: Limits | None, *, size: int, of: int) -> FixedPoints:
    """The first `size` of the `of` points that were chosen.

    Farthest-point clustering adds point after point, so these are what it gives for `size`.
    """
    return FixedPoints(_read(points_file(laboratory, limits, of))[:size])
