"""Action sequences as callers give them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.problem import BaseProblem


def checked_sequence(problem: BaseProblem, actions: npt.ArrayLike | Tensor) -> Tensor:
    """The sequence [T] on the problem's device; what is no sequence of its actions is refused."""
    given = actions if isinstance(actions, Tensor) else np.array(actions)
    sequence = torch.as_tensor(given, device=problem.device)
    problem.outcome(sequence)
    return sequence
