"""The value expansion along the recorded policy.

From step s on, and from the recorded state plus y, the recorded actions lead along a path X_t(y) and earn the value
W_s(y). Kept are the first two derivatives of both at y = 0 (the first- and second-order sensitivities of the path; the
gradient, or adjoint, and the Hessian of the value) and, on balls of an ellipsoidal norm |y|_s, bounds on the remainders
of these expansions. Equation numbers are those of docs/theory.md. All numbers are float64; norms of third derivatives
are multiplied in float32, with the margin (T54).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ifonly.bounds.taylor.local_expansion import LocalExpansion
from ifonly.bounds.taylor.norms import (
    LARGE,
    REMAINDER_MARGIN,
    Grams,
    capped,
    contract,
    framed_trilinear,
    full_precision_float32_matmul,
    packed_framed_trilinear,
)
from ifonly.bounds.taylor.radii import radii_on
from ifonly.bounds.taylor.recorded import RecordedPaths
from ifonly.bounds.taylor.remainders import FramedStep, FramedThirds
from ifonly.models.layers import ROUNDING
from ifonly.models.smooth import eigenvalue_bound, norm_bound, unpacked
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
    count = len(paths.actions)
    before = (paths.states[:, :-1], paths.context[:, :-1], paths.actions[:, :-1], paths.noise)
    states, context, actions, noise = (array.flatten(0, 1) for array in before)
    jacobians = paths.smooth.jacobians(states, context, actions, noise).unflatten(0, (count, -1))  # [P, T-1, D, D]
    sensitivity, gradient = _sensitivities(jacobians, paths.states), _adjoints(jacobians, paths.rewards.slope)
    metric_root, inverse_root = _metric(paths, jacobians, euclidean=euclidean)
    problem, step = torch.ones_like(gradient[:, 1:, 0]).nonzero(as_tuple=True)
    flat = paths.expand_step(problem, step, actions, gradient[problem, step + 1], third=True)
    steps = [flat, paths.expand_last_reward()] if paths.has_curved_rewards else [flat]
    look_at_clock()
    forms = torch.cat([step.adjoint_hessian.unflatten(0, (count, -1)) for step in steps], dim=1)  # [P, C, D, D], S2
    sweep = _sweep_remainders(steps, forms, sensitivity, metric_root)
    return ValueExpansion(
        value=_values(paths),
        gradient=gradient,
        hessian=_hessians(forms, jacobians, metric_root),
        metric_root=metric_root,
        inverse_root=inverse_root,
        sensitivity=sensitivity,
        second_sensitivity=sweep.known.second_sensitivity,
        first_remainder=sweep.first_remainder,
        second_remainder=sweep.second_remainder,
        value_remainder=sweep.value_remainder,
    )


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


def _hessians(forms: Tensor, jacobians: Tensor, like: Tensor) -> Tensor:
    """(T4): H [P, T, D, D], backwards in time, from S2 [P, C, D, D]; `like` has the shape."""
    hessian, last = torch.zeros_like(like), like.shape[1] - 1
    hessian[:, : forms.shape[1]] = forms
    for t in range(last - 1, -1, -1):
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
    lengths = (
        ((vectors.mT @ pushed) / values.sqrt().unsqueeze(-1)).square().sum(-2)
    )  # torch's norm takes 40 times longer
    norms = lengths.amax(-1, keepdim=True).sqrt()  # torch.norm takes many times longer along this axis
    scales = values.sqrt() * torch.where(nothing, 1.0, norms)
    metric_root = (vectors * scales.unsqueeze(-2)) @ vectors.mT
    inverse_root = (vectors / scales.unsqueeze(-2)) @ vectors.mT
    return metric_root, inverse_root


@dataclass(frozen=True)
class _Known:
    """All that no bound on a displacement is needed for: derivatives of paths and values, and their norms, from every
    starting step s at every later step t; zero before s. T' is T - 1, or T where the last reward is curved."""

    second_sensitivity: Tensor  # [P, S, T, D, D, D], B_t[U_s., U_s.]
    growth: Tensor  # [P, S, T], |Phi_{s -> t}|
    straight: Tensor  # [P, S, T, 1], |F| (T11), of frames F = Phi_t U_s
    bent: Tensor  # [P, S, T, 1], |B_t[U_s., U_s.]| (T11)
    steepness: Tensor  # [P, 1, T-1, 1], |J|
    slope_bound: Tensor  # [P, 1, T', 1], f1
    curvature_bound: Tensor  # [P, 1, T', 1], f2
    hessian: Tensor  # [P, 1, T-1, 1], |D^2 f|_F
    hessian_once: Tensor  # [P, S, T-1, 1], |D^2 f[F., .]|_F
    hessian_twice: Tensor  # [P, S, T-1, 1], |D^2 f[F., F.]|
    form: Tensor  # [P, 1, T', 1], |S2|
    pulled: Tensor  # [P, S, T', 1], |F^T S2|
    cubic: Tensor  # [P, S, T', 1], |C_{t+1}[U_s., U_s., U_s.]| of (T9)
    framed: list[FramedStep]  # each step t, through the frames of s <= t
    thirds: list[FramedThirds]  # the same

    @classmethod
    def of(cls, steps: Sequence[LocalExpansion], forms: Tensor, sensitivity: Tensor, metric_root: Tensor) -> _Known:
        """Of all steps before the last, and of what comes at the last, if anything; `forms` [P, T', D, D] are S2."""
        flat, (count, horizon, _, size, _) = steps[0], sensitivity.shape
        frames = sensitivity @ metric_root.unsqueeze(2)
        by_step = frames.transpose(1, 2)  # [P, T, S, D, D]
        growth = norm_bound(sensitivity)
        growth.diagonal(dim1=1, dim2=2).fill_(1.0)  # the norm of the identity, without a margin
        jacobian, hessian = (array.unflatten(0, (count, -1)) for array in (flat.jacobian, unpacked(flat.hessian, size)))
        beside = by_step[:, :-1].transpose(3, 4).flatten(2, 3).mT  # [P, T-1, D, S * D]
        once = contract(hessian.flatten(2, 3), beside)  # D^2 f[F., .], [P, T-1, S * D, O * D]
        once = once.unflatten(2, (horizon, size)).unflatten(4, (-1, size)).flatten(3, 4)  # [P, T-1, S, D * O, D]
        look_at_clock()
        twice = contract(once, by_step[:, :-1]).unflatten(4, (size, -1))  # D^2 f[F., F.], [P, T-1, S, D, D, O]
        second = sensitivity.new_zeros(count, horizon, horizon, size, size, size)
        second[:, :, 1:] = twice.permute(0, 2, 1, 5, 3, 4)
        hessian_twice = _norms(second[:, :, 1:])
        for t in range(1, horizon - 1):  # (T2)
            pushed = jacobian[:, None, t] @ second[:, : t + 1, t].flatten(3)
            second[:, : t + 1, t + 1] += pushed.unflatten(3, (size, size))
        look_at_clock()
        pulled = frames[:, :, : forms.shape[1]].mT @ forms.unsqueeze(1)  # F^T S2
        groups = zip(steps, by_step.split([horizon - 1, 1], dim=1), strict=False)
        framed = [FramedStep.of(step, several.flatten(0, 1)).mapped(_by_step(count)) for step, several in groups]
        thirds, cubic = _framed_thirds(steps, by_step, pulled, second)
        slope, curvature = (
            torch.cat([getattr(step, name).view(count, 1, -1, 1) for step in steps], dim=2)
            for name in ("slope_bound", "curvature_bound")
        )
        return cls(
            second_sensitivity=second,
            growth=growth,
            straight=norm_bound(frames).unsqueeze(-1),
            bent=_norms(second),
            steepness=norm_bound(jacobian)[:, None, :, None],
            slope_bound=slope,
            curvature_bound=curvature,
            hessian=_lengths(hessian.flatten(2))[:, None],
            hessian_once=_lengths(once.flatten(3)).transpose(1, 2),
            hessian_twice=hessian_twice,
            form=norm_bound(forms)[:, None, :, None],
            pulled=norm_bound(pulled).unsqueeze(-1),
            cubic=cubic,
            framed=[framed[t // (horizon - 1)].mapped(_begun(t % (horizon - 1), t)) for t in range(forms.shape[1])],
            thirds=[thirds.mapped(_begun(t, t)) for t in range(forms.shape[1])],
        )


def _framed_thirds(
    steps: Sequence[LocalExpansion], by_step: Tensor, pulled: Tensor, second: Tensor
) -> tuple[FramedThirds, Tensor]:
    """Third derivatives of every step t [P, T', ...] through frames [P, T, S, D, D] of s <= t, and
    |C_{t+1}[U_s., U_s., U_s.]| [P, S, T', 1] of (T9), where F^T S2 is `pulled` and B_t[U_s., U_s.] is `second`."""
    count, adjoint, own = len(by_step), list[Grams](), list[Grams]()
    cubic, grams = torch.zeros_like(second[:, :, 0]), torch.zeros_like(pulled)
    for step in steps:
        assert step.adjoint_third is not None
        assert step.third is not None
        known = (array.unflatten(0, (count, -1)).unbind(1) for array in (step.adjoint_third, step.third.float()))
        for adjoint_third, third in zip(*known, strict=True):
            look_at_clock()
            t = len(own)
            frames, begun = by_step[:, t, : t + 1], second[:, : t + 1, t]
            tensors, gram = framed_trilinear(adjoint_third.unsqueeze(1), frames)
            adjoint.append(gram)
            own.append(packed_framed_trilinear(third, frames))
            mixed = (pulled[:, : t + 1, t] @ begun.flatten(3)).view_as(begun)
            mixed = mixed + mixed.transpose(2, 3) + mixed.transpose(2, 4)  # 3 sym(Phi^T S2 B) of (T9)
            cubic[:, : t + 1] += tensors.squeeze(-1) + mixed
            flat = cubic[:, : t + 1].flatten(3)
            grams[:, : t + 1, t] = flat @ flat.mT
    every = by_step[:, : len(own)].flatten(0, 1)
    thirds = FramedThirds(*(Grams.of_steps(kind, every.shape[1]).bounds(every) for kind in (adjoint, own)))
    return thirds.mapped(_by_step(count)), (eigenvalue_bound(grams).sqrt() * (1 + ROUNDING)).unsqueeze(-1)


def _by_step(count: int) -> Callable[[Tensor], Tensor]:
    """From arrays [P * C, ...] of C steps to [P, C, ...]."""
    return lambda array: array.unflatten(0, (count, -1))


def _begun(c: int, t: int) -> Callable[[Tensor], Tensor]:
    """From arrays [P, C, S, ...] to those of step t, the one at place c, for s <= t."""
    return lambda array: array[:, c, : t + 1]


def _norms(maps: Tensor) -> Tensor:
    """Norms [..., 1] of maps [..., O, D, D] from matrices."""
    return norm_bound(maps.flatten(-2)).unsqueeze(-1)


@dataclass(frozen=True)
class _Sweep:
    """Arrays of the forward sweep over steps t, for all starting steps s <= t at once. Bounds are filled in place, step
    by step; those at step t are [P, t + 1, G]."""

    known: _Known
    radii: Tensor  # [G], rho
    first_remainder: Tensor  # [P, S, T, G]
    second_remainder: Tensor  # [P, S, T, G]
    value_remainder: Tensor  # [P, S, T + 1, G]
    source: Tensor  # [P, S, T, G], bounds |v_t| (T25)
    fourth: Tensor  # [P, S, G], the sum of bounds on |N_u| of (T9), up to the present step

    @classmethod
    def empty(cls, known: _Known) -> _Sweep:
        """Before the first step."""
        radii, pairs = radii_on(known.growth.device), known.growth.shape
        first, middle, source = known.growth.new_zeros(3, *pairs, len(radii)).unbind()
        value = known.growth.new_zeros(*pairs[:2], pairs[2] + 1, len(radii))
        return cls(known, radii, first, middle, value, source, torch.zeros_like(first[:, :, 0]))


def _sweep_remainders(
    steps: Sequence[LocalExpansion], forms: Tensor, sensitivity: Tensor, metric_root: Tensor
) -> _Sweep:
    """B (T2) and the bounds (T22) to (T28), forward in time; `forms` [P, T', D, D] are S2."""
    known = _Known.of(steps, forms, sensitivity, metric_root)
    sweep, last = _Sweep.empty(known), sensitivity.shape[2] - 1
    reaches = norm_bound(metric_root).unsqueeze(-1) * sweep.radii  # [P, S, G], |z_s| <= |U_s| rho
    for t, (step, thirds) in enumerate(zip(known.framed, known.thirds, strict=True)):
        look_at_clock()
        reach, r1 = _bound_paths(sweep, t, reaches[:, : t + 1])
        over, remainder = step.remainders(thirds, sweep.radii, r1, reach)
        _add_value_remainder(sweep, t, over)
        if t == last:
            break
        _add_path_remainder(sweep, t, remainder, reach)
        # (T27) for paths that have begun; the others begin with |U_s| rho.
        steep = known.steepness[:, :, t] + known.curvature_bound[:, :, t] * reach / 2
        reached = torch.minimum(known.slope_bound[:, :, t], steep) * reach
        reaches = torch.cat((reached, reaches[:, t + 1 :]), dim=1)
    look_at_clock()
    if len(known.framed) == last:  # no reward is curved: the last step leaves nothing out
        _bound_paths(sweep, last, reaches)
        sweep.value_remainder[:, :, -1] = sweep.value_remainder[:, :, -2]
    sweep.value_remainder.copy_(capped(sweep.value_remainder) * (1 + REMAINDER_MARGIN))
    return sweep


def _bound_paths(sweep: _Sweep, t: int, reach: Tensor) -> tuple[Tensor, Tensor]:
    """(T22) and (T23) at step t; returned are (T24) and the bound on |R1_t|, both [P, t + 1, G]."""
    r2, known = sweep.second_remainder[:, : t + 1, t], sweep.known
    straight = known.straight[:, : t + 1, t] * sweep.radii  # (T11)
    curved = known.bent[:, : t + 1, t] * sweep.radii**2 / 2  # |beta_t| (T11)
    r1 = capped(torch.minimum(curved + r2, reach + straight))  # (T22)
    sweep.first_remainder[:, : t + 1, t] = r1
    sweep.second_remainder[:, : t + 1, t] = capped(torch.minimum(r2, reach + straight + curved))  # (T23)
    return torch.minimum(reach, straight + r1), r1  # (T24)


def _add_value_remainder(sweep: _Sweep, t: int, over: Tensor) -> None:
    """(T28) at t + 1, from `over`, the adjoint remainder of step t."""
    radii, known = sweep.radii, sweep.known
    r1, r2 = sweep.first_remainder[:, : t + 1, t], sweep.second_remainder[:, : t + 1, t]
    fourth = known.pulled[:, : t + 1, t] * radii * r2 + known.form[:, :, t] * r1**2 / 2 + over / 6  # |N_t| of (T9)
    sweep.fourth[:, : t + 1] += capped(fourth)
    third = known.cubic[:, : t + 1, t] * radii**3 / 6
    sweep.value_remainder[:, : t + 1, t + 1] = third + sweep.fourth[:, : t + 1]  # (T28)


def _add_path_remainder(sweep: _Sweep, t: int, remainder: Tensor, reach: Tensor) -> None:
    """(T25) at t, then (T26) at t + 1, from 6 |Rf| <= `remainder` and |z_t| <= `reach`."""
    r1, radii, known = sweep.first_remainder[:, : t + 1, t], sweep.radii, sweep.known
    near = known.hessian_once[:, : t + 1, t] * radii * r1 + known.hessian[:, :, t] * r1**2 / 2
    straight = known.hessian_twice[:, : t + 1, t] * radii**2 / 2
    anywhere = known.curvature_bound[:, :, t] * reach**2 / 2 + straight
    sweep.source[:, : t + 1, t] = capped(torch.minimum(near + remainder / 6, anywhere))  # (T25)
    # Phi_{u+1 -> t+1} is taken as a whole: what decays in the product decays in its norm.
    total = known.growth[:, None, 1 : t + 2, t + 1, None] * sweep.source[:, : t + 1, : t + 1]
    sweep.second_remainder[:, : t + 1, t + 1] = capped(total.sum(2) * (1 + REMAINDER_MARGIN))  # (T26)


def _lengths(arrays: Tensor) -> Tensor:
    """Euclidean lengths [..., 1] along the last axis, with a margin for rounding."""
    lengths: Tensor = torch.linalg.vector_norm(arrays, dim=-1, keepdim=True)
    return lengths * (1 + ROUNDING)
