"""The value expansion along the recorded policy.

From step s on, and from the recorded state plus y, the recorded actions lead along a path X_t(y) and earn the value
W_s(y). Kept are the first two derivatives of both at y = 0 (the first- and second-order sensitivities of the path; the
gradient, or adjoint, and the Hessian of the value) and, on balls of an ellipsoidal norm |y|_s, bounds on the remainders
of these expansions. Equation numbers are those of docs/theory.md. All numbers are float64; norms of third derivatives
are multiplied in float32, with the margin (T54).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ifonly.bounds.taylor.local_expansion import LocalExpansion
from ifonly.bounds.taylor.norms import LARGE, REMAINDER_MARGIN, capped, contract, full_precision_float32_matmul
from ifonly.bounds.taylor.radii import radii_on
from ifonly.bounds.taylor.recorded import RecordedPaths
from ifonly.bounds.taylor.remainders import step_remainders
from ifonly.models.layers import ROUNDING
from ifonly.models.smooth import norm_bound, unpacked
from ifonly.problem import array_scale
from ifonly.progress import look_at_clock

ELEMENTS = 2**22
"""Numbers in the largest temporary arrays, on a CPU."""

FLOOR = 0.15
"""Share of the largest eigenvalue that is added to all others in the metric (T10): no direction counts as nothing."""


@dataclass(frozen=True)
class ValueExpansion:
    """Expansions for P problems; starting steps s and later steps t, [P, S, T, ...] with S = T; G radii."""

    value: Tensor  # [P, S], W_s(0)
    gradient: Tensor  # [P, S, D], lambda_s (T3)
    hessian: Tensor  # [P, S, D, D], H_s (T4)
    metric_root: Tensor  # [P, S, D, D], U_s (T10), symmetric: the unit ball of |.|_s is U_s times the Euclidean one
    inverse_root: Tensor  # [P, S, D, D], the inverse of U_s
    sensitivity: Tensor  # [P, S, T, D, D], Phi_t (T1)
    second_sensitivity: Tensor  # [P, S, T, D, D, D], B_t[U_s., U_s.] (T2)
    first_remainder: Tensor  # [P, S, T, G], bounds |R1_t| (T22): the path less its first-order expansion
    second_remainder: Tensor  # [P, S, T, G], bounds |R2_t| (T23): the path less its second-order expansion
    value_remainder: (
        Tensor  # [P, S, T + 1, G], RV_{s,t} (T28): of the rewards before t and lambda_t . z_t; t = T: of W_s
    )


def expand_values(paths: RecordedPaths) -> ValueExpansion:
    """The value expansion of every problem, so many at a time that temporary arrays stay small.

    `check` is called now and then, and may raise to end the work.
    """
    count, horizon, size = paths.states.shape
    together = max(1, ELEMENTS * array_scale(paths.states.device) // (horizon * size**4))
    if count <= together:
        return expand_values_together(paths)
    blocks = torch.arange(count).split(together)
    parts = [expand_values_together(paths.select(rows)) for rows in blocks]
    return ValueExpansion(
        *(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(ValueExpansion))
    )


@full_precision_float32_matmul
def expand_values_together(paths: RecordedPaths, *, euclidean: bool = False) -> ValueExpansion:
    """All sweeps over the steps, for all starting steps of all problems at once; with `euclidean`, |.|_s is the
    Euclidean norm."""
    count, horizon = paths.actions.shape
    before = (paths.states[:, :-1], paths.context[:, :-1], paths.actions[:, :-1], paths.noise)
    states, context, actions, noise = (array.flatten(0, 1) for array in before)
    jacobians = paths.smooth.jacobians(states, context, actions, noise).unflatten(0, (count, -1))  # [P, T-1, D, D]
    sensitivity, gradient = _sensitivities(jacobians, paths.states), _adjoints(jacobians, paths.rewards.slope)
    metric_root, inverse_root = _metric(paths, jacobians, euclidean=euclidean)
    problem, step = torch.ones_like(gradient[:, 1:, 0]).nonzero(as_tuple=True)
    flat = paths.expand_step(problem, step, actions, gradient[problem, step + 1], third=True)
    steps = [_at_step(flat, count, t) for t in range(horizon - 1)]
    if paths.has_curved_rewards:
        steps.append(paths.expand_last_reward())
    look_at_clock()
    sweep = _sweep_remainders(steps, sensitivity, metric_root)
    return ValueExpansion(
        value=_values(paths),
        gradient=gradient,
        hessian=_hessians(steps, jacobians, metric_root),
        metric_root=metric_root,
        inverse_root=inverse_root,
        sensitivity=sensitivity,
        second_sensitivity=sweep.second_sensitivity,
        first_remainder=sweep.first_remainder,
        second_remainder=sweep.second_remainder,
        value_remainder=sweep.value_remainder,
    )


def _at_step(expansions: LocalExpansion, count: int, t: int) -> LocalExpansion:
    """Step t of every problem, of expansions [P * (T - 1), ...]."""
    return expansions.mapped(lambda array: array.unflatten(0, (count, -1))[:, t])


def _values(paths: RecordedPaths) -> Tensor:
    """W_s(0) [P, S]: rewards of the recorded path, summed backwards."""
    rewards: Tensor = paths.problems[0].free_rewards(slice(None), paths.states, paths.actions)
    return (rewards + paths.rewards.offset).flip(1).cumsum(1).flip(1)


def _sensitivities(jacobians: Tensor, states: Tensor) -> Tensor:
    """(T1): Phi [P, S, T, D, D], zero before s."""
    count, horizon, size = states.shape
    phi = states.new_zeros(count, horizon, horizon, size, size)
    for t in range(horizon):
        if t > 0:
            phi[:, :t, t] = jacobians[:, None, t - 1] @ phi[:, :t, t - 1]
        phi[:, t, t] = torch.eye(size, dtype=phi.dtype, device=phi.device)
    return phi


def _adjoints(jacobians: Tensor, tangents: Tensor) -> Tensor:
    """(T3): lambda [P, T, D], backwards in time."""
    adjoint = tangents.clone()
    for t in range(tangents.shape[1] - 2, -1, -1):
        adjoint[:, t] += (adjoint[:, t + 1].unsqueeze(1) @ jacobians[:, t]).squeeze(1)
    return adjoint


def _hessians(steps: list[LocalExpansion], jacobians: Tensor, like: Tensor) -> Tensor:
    """(T4): H [P, T, D, D], backwards in time; `like` has the shape."""
    hessian, last = torch.zeros_like(like), like.shape[1] - 1
    for t in range(len(steps) - 1, -1, -1):
        hessian[:, t] = steps[t].adjoint_hessian
        if t < last:
            hessian[:, t] += jacobians[:, t].mT @ hessian[:, t + 1] @ jacobians[:, t]
    return hessian


def _metric(paths: RecordedPaths, jacobians: Tensor, *, euclidean: bool) -> tuple[Tensor, Tensor]:
    """(T10): the metric root U and its inverse [P, T, D, D]. Any positive matrix gives a true bound; this one makes
    the effects of single changes look alike in all directions, the largest of norm 1."""
    count, horizon, size = paths.states.shape
    if euclidean:
        eye = torch.eye(size, dtype=torch.float64, device=paths.states.device).expand(count, horizon, -1, -1)
        return eye, eye
    # Effects of what is not allowed may overflow; they need not be covered.
    effects = torch.where(paths.changes()[:, :-1, :, None], paths.effects, 0.0)
    effects = effects.permute(0, 3, 1, 2)
    pushed = effects.new_zeros(count, horizon, *effects.shape[1:])  # [P, T, D, C, A], Phi e
    for t in range(1, horizon):
        if t > 1:
            pushed[:, t] = (jacobians[:, t - 1] @ pushed[:, t - 1].flatten(2)).view_as(pushed[:, t])
        pushed[:, t, :, t - 1] = effects[:, :, t - 1]
    pushed = pushed.flatten(3).nan_to_num(0.0, 0.0, 0.0).clamp(-LARGE, LARGE)
    values, vectors = torch.linalg.eigh(pushed @ pushed.mT)
    largest = values[..., -1:]
    nothing = largest < 1e-18  # no effects: the Euclidean norm
    values = torch.where(nothing, 1.0, values.clamp(min=0) + FLOOR * largest)
    norms = ((vectors.mT @ pushed) / values.sqrt().unsqueeze(-1)).norm(dim=-2).amax(-1, keepdim=True)
    scales = values.sqrt() * torch.where(nothing, 1.0, norms)
    metric_root = (vectors * scales.unsqueeze(-2)) @ vectors.mT
    inverse_root = (vectors / scales.unsqueeze(-2)) @ vectors.mT
    return metric_root, inverse_root


@dataclass(frozen=True)
class _Sweep:
    """Arrays of the forward sweep over steps t, for all starting steps s <= t at once. The second group is filled in
    place, step by step; bounds at step t are [P, t + 1, G]."""

    radii: Tensor  # [G], rho
    frames: Tensor  # [P, S, T, D, D], F = Phi_t U_s
    growth: Tensor  # [P, S, T], |Phi_{s -> t}|
    straight: Tensor  # [P, S, T, G], |F| rho (T11)

    second_sensitivity: Tensor  # [P, S, T, D, D, D], B_t[U_s., U_s.]
    first_remainder: Tensor  # [P, S, T, G]
    second_remainder: Tensor  # [P, S, T, G]
    value_remainder: Tensor  # [P, S, T + 1, G]
    source: Tensor  # [P, S, T, G], bounds |v_t| (T25)
    cubic: Tensor  # [P, S, D, D, D], C_t[U_s., U_s., U_s.] of (T9), up to the present step
    fourth: Tensor  # [P, S, G], the sum of bounds on |N_u| of (T9), up to the present step

    @classmethod
    def empty(cls, sensitivity: Tensor, metric_root: Tensor) -> _Sweep:
        """Before the first step."""
        radii, size, pairs = radii_on(sensitivity.device), sensitivity.shape[-1], sensitivity.shape[:3]
        frames = sensitivity @ metric_root.unsqueeze(2)
        growth = norm_bound(sensitivity)
        growth.diagonal(dim1=1, dim2=2).fill_(1.0)  # the norm of the identity, without a margin
        second = sensitivity.new_zeros(*pairs, size, size, size)
        first, middle, source = sensitivity.new_zeros(3, *pairs, len(radii)).unbind()
        value = sensitivity.new_zeros(*pairs[:2], pairs[2] + 1, len(radii))
        return cls(
            radii=radii,
            frames=frames,
            growth=growth,
            straight=norm_bound(frames).unsqueeze(-1) * radii,
            second_sensitivity=second,
            first_remainder=first,
            second_remainder=middle,
            value_remainder=value,
            source=source,
            cubic=torch.zeros_like(second[:, :, 0]),
            fourth=torch.zeros_like(first[:, :, 0]),
        )


def _sweep_remainders(steps: list[LocalExpansion], sensitivity: Tensor, metric_root: Tensor) -> _Sweep:
    """B (T2) and the bounds (T22) to (T28), forward in time."""
    sweep, last = _Sweep.empty(sensitivity, metric_root), sensitivity.shape[2] - 1
    reaches = norm_bound(metric_root).unsqueeze(-1) * sweep.radii  # [P, S, G], |z_s| <= |U_s| rho
    for t, step in enumerate(steps):
        look_at_clock()
        reach, r1 = _bound_paths(sweep, t, reaches[:, : t + 1])
        framed_third, over, remainder = step_remainders(step, sweep.frames[:, : t + 1, t], sweep.radii, r1, reach)
        look_at_clock()
        _add_value_remainder(sweep, t, step, framed_third, over)
        look_at_clock()
        if t == last:
            break
        _add_path_remainder(sweep, t, step, remainder, reach)
        # (T27) for paths that have begun; the others begin with |U_s| rho.
        steep = norm_bound(step.jacobian)[:, None, None] + step.curvature_bound.unsqueeze(1) * reach / 2
        reached = torch.minimum(step.slope_bound.unsqueeze(1), steep) * reach
        reaches = torch.cat((reached, reaches[:, t + 1 :]), dim=1)
    look_at_clock()
    if len(steps) == last:  # no reward is curved: the last step leaves nothing out
        _bound_paths(sweep, last, reaches)
        sweep.value_remainder[:, :, -1] = sweep.value_remainder[:, :, -2]
    sweep.value_remainder.copy_(capped(sweep.value_remainder) * (1 + REMAINDER_MARGIN))
    return sweep


def _bound_paths(sweep: _Sweep, t: int, reach: Tensor) -> tuple[Tensor, Tensor]:
    """(T22) and (T23) at step t; returned are (T24) and the bound on |R1_t|, both [P, t + 1, G]."""
    straight, r2 = sweep.straight[:, : t + 1, t], sweep.second_remainder[:, : t + 1, t]
    second = sweep.second_sensitivity[:, : t + 1, t]
    curved = norm_bound(second.flatten(3)).unsqueeze(-1) * sweep.radii**2 / 2  # |beta_t| (T11)
    r1 = capped(torch.minimum(curved + r2, reach + straight))  # (T22)
    sweep.first_remainder[:, : t + 1, t] = r1
    sweep.second_remainder[:, : t + 1, t] = capped(torch.minimum(r2, reach + straight + curved))  # (T23)
    return torch.minimum(reach, straight + r1), r1  # (T24)


def _add_value_remainder(sweep: _Sweep, t: int, step: LocalExpansion, framed_third: Tensor, over: Tensor) -> None:
    """(T28) at t + 1, from S3[F., F., F.] and `over`, the adjoint remainder of step t."""
    frames, radii = sweep.frames[:, : t + 1, t], sweep.radii
    r1, r2 = sweep.first_remainder[:, : t + 1, t], sweep.second_remainder[:, : t + 1, t]
    second = sweep.second_sensitivity[:, : t + 1, t]
    pulled = frames.mT @ step.adjoint_hessian.unsqueeze(1)  # F^T S2
    mixed = (pulled @ second.flatten(3)).view_as(second)
    mixed = mixed + mixed.transpose(2, 3) + mixed.transpose(2, 4)  # 3 sym(Phi^T S2 B) of (T9)
    sweep.cubic[:, : t + 1] += framed_third + mixed
    crossed = norm_bound(pulled).unsqueeze(-1) * radii * r2
    fourth = crossed + norm_bound(step.adjoint_hessian)[:, None, None] * r1**2 / 2 + over / 6  # |N_t| of (T9)
    sweep.fourth[:, : t + 1] += capped(fourth)
    third = norm_bound(sweep.cubic[:, : t + 1].flatten(3)).unsqueeze(-1) * radii**3 / 6
    sweep.value_remainder[:, : t + 1, t + 1] = third + sweep.fourth[:, : t + 1]  # (T28)


def _add_path_remainder(sweep: _Sweep, t: int, step: LocalExpansion, remainder: Tensor, reach: Tensor) -> None:
    """(T25) at t, then (T26) and (T2) at t + 1, from 6 |Rf| <= `remainder` and |z_t| <= `reach`."""
    frames, radii, size = sweep.frames[:, : t + 1, t], sweep.radii, step.jacobian.shape[-1]
    r1, second = sweep.first_remainder[:, : t + 1, t], sweep.second_sensitivity[:, : t + 1, t]
    hessian = unpacked(step.hessian, size)
    once = contract(hessian.flatten(1, 2).unsqueeze(1), frames)  # D^2 f[F., .]
    twice = contract(once.view(*once.shape[:2], -1, size), frames).unflatten(3, (size, -1))
    twice = twice.permute(0, 1, 4, 2, 3)  # D^2 f[F., F.]
    near = _lengths(once.flatten(2)) * radii * r1
    near = near + _lengths(hessian.flatten(1)).unsqueeze(1) * r1**2 / 2
    straight = norm_bound(twice.flatten(3)).unsqueeze(-1) * radii**2 / 2
    anywhere = step.curvature_bound.unsqueeze(1) * reach**2 / 2 + straight
    sweep.source[:, : t + 1, t] = capped(torch.minimum(near + remainder / 6, anywhere))  # (T25)
    # Phi_{u+1 -> t+1} is taken as a whole: what decays in the product decays in its norm.
    total = sweep.growth[:, None, 1 : t + 2, t + 1, None] * sweep.source[:, : t + 1, : t + 1]
    sweep.second_remainder[:, : t + 1, t + 1] = capped(total.sum(2) * (1 + REMAINDER_MARGIN))  # (T26)
    pushed = (step.jacobian.unsqueeze(1) @ second.flatten(3)).view_as(second)
    sweep.second_sensitivity[:, : t + 1, t + 1] = pushed + twice  # (T2)


def _lengths(arrays: Tensor) -> Tensor:
    """Euclidean lengths [..., 1] along the last axis, with a margin for rounding."""
    lengths: Tensor = torch.linalg.vector_norm(arrays, dim=-1, keepdim=True)
    return lengths * (1 + ROUNDING)
