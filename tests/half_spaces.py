"""A support that is easy to work out by other means: an action is supported on one side of a plane of states."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ifonly.problem import BaseProblem


@dataclass(frozen=True, eq=False)
class HalfSpaces:
    """A support: action a may be changed to where normals_a . state <= offsets_a, in scaled coordinates."""

    normals: Tensor  # [A, D]
    offsets: Tensor  # [A]

    def supported(self, t: int, states: Tensor, context: Tensor) -> Tensor:
        """Which actions [N, A] are on the right side, whatever the step and the context [N, C]."""
        # Sums of products and no matrix product, whose last digits depend on the size of the batch.
        return (states.unsqueeze(1) * self.normals).sum(-1) <= self.offsets

    def settings(self) -> dict[str, Any]:
        """The numbers themselves."""
        return {"kind": "half spaces", "normals": self.normals.tolist(), "offsets": self.offsets.tolist()}


def random_half_spaces(problem: BaseProblem, seed: int) -> HalfSpaces:
    """Half-spaces near the recorded states: which actions they support differs from state to state."""
    rng = np.random.default_rng(seed)
    states = problem.observed_states.cpu().numpy()
    normals = rng.normal(size=(problem.action_count, states.shape[1]))
    through = states[rng.integers(len(states), size=problem.action_count)]
    offsets = (normals * through).sum(1) + rng.normal(scale=0.5, size=len(normals))
    return HalfSpaces(*(torch.as_tensor(part, device=problem.device) for part in (normals, offsets)))
