"""Advantages of single changes over the recorded policy, as functions of the state.

From the recorded state at c plus y, a change (c, a) leads to the state at c + 1 that lies d = e + J y + ... from the
recorded one; from there the recorded policy goes on. Its advantage over the recorded policy at c is a quadratic
polynomial of y, plus a remainder of the step's expansion, plus the value remainder at the state reached. Equation
numbers are those of docs/theory.md. All numbers are float64; norms of D^2 f are multiplied in float32, with (T54).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ifonly.bounds.taylor.norms import REMAINDER_MARGIN, capped, framed_form_norm
from ifonly.bounds.taylor.radii import radii_on
from ifonly.bounds.taylor.recorded import RecordedPaths
from ifonly.bounds.taylor.remainders import step_remainders_anywhere
from ifonly.bounds.taylor.value_expansion import ValueExpansion
from ifonly.models.layers import ROUNDING
from ifonly.models.smooth import eigenvalue_bound, norm_bound
from ifonly.problem import array_scale
from ifonly.progress import look_at_clock

STEPS_TOGETHER = 800
"""Steps that are expanded together, on a CPU."""


@dataclass(frozen=True)
class Advantages:
    """Every change (c, a) of P problems but those of the last step; G radii, C = T - 1. U is the metric root at c."""

    value: Tensor  # [P, C, A], Adv(0) (T32)
    gradient: Tensor  # [P, C, A, D] (T32)
    hessian: Tensor  # [P, C, A, D, D] (T32)
    gradient_norm: Tensor  # [P, C, A], |U grad Adv|
    largest_eigenvalue: Tensor  # [P, C, A], of U hess Adv U, or zero if that is negative: max(0, mu) of (T42)
    remainder: Tensor  # [P, C, A, G], step(rho) (T33)
    effect: Tensor  # [P, C, A, D], U'^{-1} e, with U' the metric root at c + 1
    jacobian: Tensor  # [P, C, A, D, D], U'^{-1} J
    jacobian_norm: Tensor  # [P, C, A], |U'^{-1} J U|
    effect_remainder: Tensor  # [P, C, A, G], |U'^{-1}| b(rho) (T36)

    def masked(self, changes: Tensor) -> Advantages:
        """With zeros for all but `changes` [P, C, A]."""

        def kept(array: Tensor) -> Tensor:
            return torch.where(changes.view(*changes.shape, *[1] * (array.dim() - 3)), array, 0.0)

        return Advantages(**{field.name: kept(getattr(self, field.name)) for field in fields(self)})


@dataclass(frozen=True)
class _Changed:
    """The part of (T31) to (T36) that needs local expansions, for N changes."""

    hessian: Tensor  # [N, D, D], J^T H' J + q . D^2 f
    pulled: Tensor  # [N, D], J^T q
    remainder: Tensor  # [N, G]
    effect_remainder: Tensor  # [N, G]
    jacobian: Tensor  # [N, D, D]
    jacobian_norm: Tensor  # [N]


def expand_advantages(paths: RecordedPaths, values: ValueExpansion) -> Advantages:
    """Every change of the steps before the last."""
    effects, size = paths.effects, paths.effects.shape[-1]
    pulled_effects = (effects.unsqueeze(-2) @ values.hessian[:, 1:, None]).squeeze(-2)  # H' e
    adjoint = values.gradient[:, 1:, None] + pulled_effects  # q = lambda' + H' e, the gradient of P_{c+1} at e
    changed = _expand_changes(paths, values, adjoint)
    look_at_clock()
    hessian = changed.hessian - values.hessian[:, :-1, None]
    gradient = changed.pulled + (paths.rewards.slope - values.gradient)[:, :-1, None]
    root = values.metric_root[:, :-1, None]
    framed = root @ hessian @ root
    # The largest eigenvalue: of the matrix shifted until it is positive semidefinite, less the shift.
    shift = norm_bound(framed)
    eye = torch.eye(size, dtype=torch.float64, device=effects.device)
    largest = capped(eigenvalue_bound(framed + shift[..., None, None] * eye) - shift).clamp(min=0)
    value = _rewards(paths)[:, :-1] + values.value[:, 1:, None] - values.value[:, :-1, None]
    value = value + ((values.gradient[:, 1:, None] + pulled_effects / 2) * effects).sum(-1)
    return Advantages(
        value=value,
        gradient=gradient,
        hessian=hessian,
        gradient_norm=(gradient.unsqueeze(-2) @ root).squeeze(-2).norm(dim=-1) * (1 + ROUNDING),
        largest_eigenvalue=largest,
        remainder=changed.remainder,
        effect=(effects.unsqueeze(-2) @ values.inverse_root[:, 1:, None]).squeeze(-2),
        jacobian=changed.jacobian,
        jacobian_norm=changed.jacobian_norm,
        effect_remainder=changed.effect_remainder,
    )


def _expand_changes(paths: RecordedPaths, values: ValueExpansion, adjoint: Tensor) -> _Changed:
    """All changes [P, C, A, ...], so many steps at a time that temporary arrays stay small; adjoints [P, C, A, D]."""
    count, steps, actions, _ = adjoint.shape
    problem, step = torch.ones_like(adjoint[..., 0, 0]).nonzero(as_tuple=True)
    together = max(1, STEPS_TOGETHER * array_scale(adjoint.device) // actions)
    parts = []
    for p, c in zip(problem.split(together), step.split(together), strict=True):
        look_at_clock()
        parts.append(_expand_block(paths, values, adjoint, p, c))
    shape = (count, steps, actions)
    return _Changed(
        *(torch.cat([getattr(part, field.name) for part in parts]).unflatten(0, shape) for field in fields(_Changed))
    )


def _expand_block(paths: RecordedPaths, values: ValueExpansion, adjoint: Tensor, p: Tensor, c: Tensor) -> _Changed:
    """Every action at steps c [B] of problems p [B]: N = B * A changes, grouped by step, so that products with the
    matrices of a step (U, H', U'^{-1}) are single large ones."""
    actions, size, groups = adjoint.shape[2], adjoint.shape[3], len(p)
    radii = radii_on(adjoint.device)
    q = adjoint[p, c].flatten(0, 1)
    every = torch.arange(actions, device=adjoint.device)
    step = paths.expand_step(
        p.repeat_interleave(actions), c.repeat_interleave(actions), every.repeat(groups), q, third=False
    )
    frames, later_hessian = values.metric_root[p, c], values.hessian[p, c + 1]  # U and H'
    inverse = values.inverse_root[p, c + 1]  # U'^{-1}
    adjoint_remainder, remainder = step_remainders_anywhere(step, frames, radii)  # [N, G], [B, G]
    off = step.hessian_error * frames.square().sum((1, 2)).repeat_interleave(actions).unsqueeze(1)
    b = (framed_form_norm(step.hessian, frames) + off) * radii**2 / 2
    b = capped(b + remainder.repeat_interleave(actions, 0) / 6)  # (T31)
    beside = step.jacobian.unflatten(0, (groups, actions)).transpose(1, 2).flatten(2)  # J of a group, [B, D, A * D]
    pulled, jacobian = (
        (matrix @ beside).unflatten(2, (actions, size)).transpose(1, 2).flatten(0, 1)
        for matrix in (later_hessian, inverse)
    )  # H' J and U'^{-1} J, [N, D, D]
    hessian = step.jacobian.mT @ pulled + step.adjoint_hessian  # (T32)
    framed = (torch.cat((pulled, jacobian), dim=1).view(groups, -1, size) @ frames).view(len(q), 2 * size, size)
    steepness, jacobian_norm = norm_bound(framed[:, :size]), capped(norm_bound(framed[:, size:]))
    total = adjoint_remainder / 6 + steepness.unsqueeze(1) * radii * b
    total = capped(total + norm_bound(later_hessian).repeat_interleave(actions).unsqueeze(1) * b**2 / 2)  # (T33)
    inverse_norm = norm_bound(inverse).repeat_interleave(actions).unsqueeze(1)
    return _Changed(
        hessian=hessian,
        pulled=(q.unsqueeze(1) @ step.jacobian).squeeze(1),
        remainder=total * (1 + REMAINDER_MARGIN),
        effect_remainder=capped(inverse_norm * b * (1 + REMAINDER_MARGIN)),  # (T36)
        jacobian=jacobian,
        jacobian_norm=jacobian_norm,
    )


def last_advantages(paths: RecordedPaths) -> Tensor:
    """(T37): advantages [P, A] of changes at the last step, which do not depend on the state."""
    rewards = _rewards(paths)[:, -1]
    return rewards - rewards.gather(1, paths.actions[:, -1:])


def _rewards(paths: RecordedPaths) -> Tensor:
    """r_a [P, T, A]: rewards of all actions at the recorded states, less the costs of changes (T60)."""
    first = paths.problems[0]
    every = torch.arange(first.action_count, device=paths.states.device)
    costs = torch.tensor([problem.change_cost for problem in paths.problems], dtype=torch.float64)
    changes = every != paths.actions.unsqueeze(-1)
    rewards: Tensor = first.bound_reward(paths.states.unsqueeze(2), every, first.steps.unsqueeze(1))
    return rewards + paths.rewards.offset.unsqueeze(2) - changes * costs.to(rewards)[:, None, None]
