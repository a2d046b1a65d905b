"""Whether a problem can be expanded: a step with three derivatives, a reward with tangents, tables that fit."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch

from ifonly.bounds.taylor.radii import RADII
from ifonly.models.base import TransitionModel
from ifonly.models.smooth import SmoothStep
from ifonly.problem import BaseProblem, Problem

TABLE_ELEMENTS = 2**26
"""Numbers in the tables of one problem, all members of an ensemble together, at most: 512 MiB."""

DIFFERENCE = 1e-4
"""Distance, in scaled units, of the central differences that are compared with the model's own derivatives."""

Marks = tuple[tuple[int, int], ...]

_SMOOTH: WeakKeyDictionary[TransitionModel, tuple[Marks, SmoothStep | None]] = WeakKeyDictionary()
"""What is known of models while their weights stay as they are: products of weights serve all of their episodes."""


def table_elements(problem: BaseProblem) -> int:
    """Numbers in the tables of one problem."""
    horizon, size = problem.horizon, problem.observed_states.shape[1]
    changes, pairs = horizon * problem.action_count, horizon**2
    return changes * (4 * size**2 + 5 * len(RADII)) + pairs * (2 * size**3 + 2 * size**2 + 4 * len(RADII))


def can_expand(problem: Problem) -> bool:
    """Whether the step has three derivatives, and the reward is nowhere above a smooth function that touches it."""
    return smooth_step(problem) is not None and problem.bound_reward.weights(problem.observed_states) is not None


def smooth_step(problem: Problem) -> SmoothStep | None:
    """How the model's step depends on the state, if what the model says of itself is true.

    A subclass that overrides `step` alone inherits a description of another step. Whatever else a subclass may have
    changed shows in the derivatives along the recorded path.
    """
    marks, known = _marks(problem.model), _SMOOTH.get(problem.model)
    if known is None or known[0] != marks:
        with torch.inference_mode(False), torch.no_grad():  # it is kept, and may be used in any mode
            known = _SMOOTH[problem.model] = marks, _described_step(problem)
    return known[1]


def _marks(model: TransitionModel) -> Marks:
    """Where the weights lie, and how often each was written to: other marks are other weights, or may be."""
    tensors = (*model.parameters(), *model.buffers())
    return tuple((one.data_ptr(), 0 if one.is_inference() else one._version) for one in tensors)


def _described_step(problem: Problem) -> SmoothStep | None:
    model = problem.model
    definer = next(kind for kind in type(model).__mro__ if {"step", "smooth"} & set(vars(kind)))
    smooth = model.smooth() if "smooth" in vars(definer) else None
    return smooth if smooth is not None and _is_as_described(smooth, problem) else None


def _is_as_described(smooth: SmoothStep, problem: Problem) -> bool:
    """Whether Jacobians agree with central differences of the step along the recorded path."""
    states, rest = problem.observed_states[:-1], (problem.context[:-1], problem.observed_actions[:-1], problem.noise)
    jacobians = smooth.jacobians(states, *rest)
    shift = DIFFERENCE * torch.nn.functional.normalize(torch.ones_like(states), dim=1)
    step = problem.model.step
    slopes = (step(states + shift, *rest) - step(states - shift, *rest)) / (2 * DIFFERENCE)
    wanted = (jacobians @ shift.unsqueeze(-1)).squeeze(-1) / DIFFERENCE
    return torch.allclose(slopes, wanted, rtol=1e-4, atol=1e-4)
