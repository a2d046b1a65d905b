"""Every single change of the observed sequences: its path, how that moves with the state, and how far this is known.

A branch (c, a) of a problem follows the observed actions but for a at step c. As a function of its state at c, which is
the observed one plus y, its path has a flow X_t(y) and its value V(y), the sum of the rewards from c on. Kept are the
first derivatives of the flows, the first two of the values at y = 0, and how far both can be from these expansions.
How large y is, is measured by a gauge |y|_c: the Euclidean length of inverse_c y, in which what changes before c do to
the state at c looks alike in all directions. Arrays are [P, C, A, ...] with C = T steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.bounds.limits import (
    LARGE,
    Scale,
    along_square,
    capped,
    form_limit,
    frobenius,
    growth,
    inner_product,
    single_means_single,
    trace,
)
from ifonly.models.smooth import SmoothStep, Surroundings, Weights, norm_limit, positive_limit
from ifonly.problem import Problem

RADII = (1e-6, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.5, 1000.0)
"""Gauges up to which rests are limited; the first is for the observed path, the last for models that hardly bend."""

WEAK = 0.02
"""Scales whose third derivative is smaller everywhere: directions hardly matter."""

NEAR = 2.0
"""Gauge up to which limits of third derivatives know how far hidden units are from their bends."""

FLOOR = 0.15
"""Of the largest mean square of effects in any direction: what is allowed for in all others."""

STRONG = 0.5
"""Networks whose third derivative may be larger are expanded at every branch's own states, with rounder gauges."""


@dataclass(frozen=True)
class BranchTables:
    """What is known of the branches of P problems; G radii."""

    center: Tensor  # [P, T, D], the observed path as the model replays it
    path: Tensor  # [P, C, A, T, D], minus the observed path; zero before c
    flow: Tensor  # [P, C, A, T, D, D], derivatives of the path in the state at c
    value: Tensor  # [P, C, A]
    gradient: Tensor  # [P, C, A, D]
    hessian: Tensor  # [P, C, A, D, D]
    unit: Tensor  # [P, T, D, D], symmetric: states of gauge at most 1 are unit_c times the unit ball
    inverse: Tensor  # [P, T, D, D]
    bend: Tensor  # [P, C, A, T, G], limits of |X_t(y) - X_t(0) - flow_t y|
    rest: Tensor  # [P, C, A, G], limits of how far the value is from its second-order expansion


@dataclass(frozen=True)
class _Around:
    """One step at N states of branches."""

    parts: list[Surroundings]
    slopes: list[Tensor]  # of the parts' tops, times the noise [N, D]
    curvatures: list[Tensor]  # of the same
    near: Tensor  # [N, 1], how far limits of third derivatives hold


@dataclass(frozen=True)
class _Forms:
    """One step at N states of branches, with the flow that leads there in units of the gauge; limits [N, 1]."""

    along: Tensor  # [N, D, D], second derivatives of gradient.step
    twice: Tensor  # of the step's second derivatives along the flow, both times
    once: Tensor  # along the flow and any direction
    never: Tensor  # along any two directions
    cubic: Tensor  # [N, D, D], positive: near the states |z| z.cubic z limits the third derivative of gradient.step ...
    whole: Tensor  # [N, D, D], ... and |z| z.whole z that of the step, both without what scales add
    scales: list[Scale]  # of parts under softplus


class BranchBuilder:
    """Sweeps forward and backward over the steps, all branches of all problems at once."""

    def __init__(
        self,
        problems: Sequence[Problem],
        smooth: SmoothStep,
        check: Callable[[], None] = lambda: None,
        *,
        round_gauge: bool = False,
    ) -> None:
        """`check` is called now and then, and may raise to end the work; a round gauge is the Euclidean length."""
        first = problems[0]
        self._check = check
        self._round = round_gauge
        self._problems, self._smooth = problems, smooth
        self._model, self._reward = first.model, first.bound_reward
        self._count, self._horizon, self._actions = len(problems), first.horizon, first.action_count
        self._size = first.observed_states.shape[1]
        self._device = first.device
        self._radii = torch.tensor(RADII, dtype=torch.float64, device=first.device)
        self._observed = torch.stack([problem.observed_actions for problem in problems])
        self._allowed = torch.stack([problem.allowed for problem in problems])
        self._context = torch.stack([problem.context for problem in problems])
        self._noise = torch.stack([problem.noise for problem in problems])
        self._strong = sum(part.limits[2] for part in smooth.parts) > STRONG

    @single_means_single
    def build(self) -> BranchTables:
        """All sweeps."""
        self._replay()
        self._choose_gauges()
        self._look_around()
        self._pull_back()
        self._push_forward()
        gradient = self._adjoint.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2)
        return BranchTables(
            center=self._center,
            path=self._path,
            flow=self._flow,
            value=self._value,
            gradient=gradient.contiguous(),
            hessian=self._hessian,
            unit=self._unit,
            inverse=self._inverse,
            bend=self._bend,
            rest=self._rest,
        )

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(self._count, self._horizon, self._actions, *shape, dtype=torch.float64, device=self._device)

    def _is_after(self) -> Tensor:
        """Whether step t is at or after c [C, 1, T, 1]."""
        steps = torch.arange(self._horizon, device=self._device)
        return (steps >= steps[:, None])[:, None, :, None]

    def _taken(self, t: int) -> Tensor:
        """Actions at step t of the branches with c <= t [P, t+1, A]."""
        taken = self._observed[:, t, None, None].expand(-1, t + 1, self._actions).clone()
        taken[:, t] = torch.arange(self._actions, device=self._device)
        return taken

    def _replay(self) -> None:
        """Paths and what they earn."""
        horizon = self._horizon
        states = torch.stack([problem.observed_states[0] for problem in self._problems])
        center = [states]
        for t in range(horizon - 1):
            states = self._model.step(states, self._context[:, t], self._observed[:, t], self._noise[:, t])
            center.append(states)
        self._center = torch.stack(center, dim=1)
        tangents = self._reward.tangents(self._center)
        assert tangents is not None, "callers ask can_expand first"
        self._weights = tangents  # [P, T, D]
        path, self._value = self._zeros(horizon, self._size), self._zeros()
        costs = torch.tensor([problem.change_cost for problem in self._problems], dtype=torch.float64)
        costs = costs.to(self._device)[:, None, None]
        for t in range(horizon):
            path[:, t, :, t] = self._center[:, None, t]
            taken, states = self._taken(t), path[:, : t + 1, :, t]
            rewards = self._rewards(t, states, taken) - (taken != self._observed[:, t, None, None]) * costs
            self._value[:, : t + 1] += rewards
            if t < horizon - 1:
                context, noise = self._context[:, None, None, t], self._noise[:, None, None, t]
                path[:, : t + 1, :, t + 1] = self._model.step(states, context, taken, noise)
        self._path = path - torch.where(self._is_after(), self._center[:, None, None], 0.0)

    def _rewards(self, t: int, states: Tensor, taken: Tensor) -> Tensor:
        """Rewards [P, t+1, A] as the tangents at the observed path continue them: never below the true ones."""
        center = self._center[:, None, None, t]
        return self._reward(center, taken) + ((states - center) * self._weights[:, None, None, t]).sum(-1)

    def _rows(self, t: int) -> tuple[Tensor, Tensor, Tensor]:
        """States [N, D], context [N, C] and actions [N] of the branches with c <= t, in a row."""
        taken = self._taken(t)
        context = self._context[:, None, None, t].expand(*taken.shape, -1)
        states = self._center[:, None, None, t] + self._path[:, : t + 1, :, t]
        return states.flatten(0, 2), context.flatten(0, 2), taken.flatten()

    def _of_noise(self, t: int) -> Tensor:
        """The noise of the same rows [N, D]."""
        return self._noise[:, None, None, t].expand(-1, t + 1, self._actions, -1).flatten(0, 2)

    def _choose_gauges(self) -> None:
        """For each step the mean square of what single changes do to its state, scaled so that none exceeds gauge 1."""
        if self._round:
            eye = torch.eye(self._size, dtype=torch.float64, device=self._device)
            self._unit = self._inverse = eye.expand(self._count, self._horizon, -1, -1)
            return
        changes = self._allowed.scatter(2, self._observed.unsqueeze(-1), False)
        effects = torch.where(changes[..., None, None], self._path, 0.0)
        # Any gauge is valid, also where a branch leads beyond all numbers.
        effects = effects.nan_to_num(0.0, 0.0, 0.0).clamp(-LARGE, LARGE).flatten(1, 2).transpose(1, 2)  # [P, T, C*A, D]
        values, vectors = torch.linalg.eigh(effects.mT @ effects)
        largest = values[..., -1:]
        nothing = largest < 1e-18  # then any gauge will do
        values = torch.where(nothing, 1.0, values.clamp(min=0) + (1.0 if self._strong else FLOOR) * largest)
        gauges = ((effects @ vectors) / values.sqrt().unsqueeze(-2)).norm(dim=-1).amax(-1, keepdim=True)  # [P, T, 1]
        scales = values.sqrt() * torch.where(nothing, 1.0, gauges)
        self._unit = (vectors * scales.unsqueeze(-2)) @ vectors.mT
        self._inverse = (vectors / scales.unsqueeze(-2)) @ vectors.mT

    def _now(self, t: int) -> tuple[slice, slice, slice]:
        """The branches with c <= t."""
        return slice(None), slice(0, t + 1), slice(None)

    def _shape(self, t: int) -> tuple[int, int, int]:
        return self._count, t + 1, self._actions

    def _look_around(self) -> None:
        """Every step's derivatives at every state of every branch; the flows, and how far they lead."""
        horizon, size = self._horizon, self._size
        self._jacobian, self._flow = self._zeros(horizon, size, size), self._zeros(horizon, size, size)
        self._square, self._length = self._zeros(horizon, size, size), self._zeros(horizon, 1)
        self._around: list[_Around] = []
        eye = torch.eye(size, dtype=torch.float64, device=self._device)
        for t in range(horizon - 1):
            self._check()
            now = (*self._now(t), t)
            self._flow[:, t, :, t] = eye
            scaled = self._flow[now] @ self._unit[:, : t + 1, None]
            square = self._square[now] = scaled @ scaled.mT
            length = self._length[now] = (positive_limit(square).sqrt() * (1 + 1e-12)).unsqueeze(-1)
            effect = self._path[now].norm(dim=-1)
            near = torch.maximum(NEAR * length.squeeze(-1), effect).flatten()
            rows, noise = self._rows(t), self._of_noise(t)
            weak = [part.top == "softplus" and part.limits[2] < WEAK for part in self._smooth.parts]
            parts = [
                part.around(*rows, None if one else near) for part, one in zip(self._smooth.parts, weak, strict=True)
            ]
            around = _Around(parts, [], [], near.unsqueeze(1))
            jacobian = torch.zeros_like(scaled).flatten(0, 2)
            if self._smooth.skip is not None:
                jacobian = self._smooth.skip[rows[2]]
            for part, near_part in zip(self._smooth.parts, around.parts, strict=True):
                slope, curvature = part.top_derivatives(near_part.value, noise)
                around.slopes.append(slope)
                around.curvatures.append(curvature)
                jacobian = jacobian + slope.unsqueeze(-1) * near_part.jacobian
            self._around.append(around)
            step = self._jacobian[now] = jacobian.unflatten(0, self._shape(t))
            self._flow[(*self._now(t), t + 1)] = step @ self._flow[now]

    def _pull_back(self) -> None:
        """The gradient of what follows at every state of every branch."""
        horizon = self._horizon
        self._adjoint = self._zeros(horizon, self._size)
        weights = self._weights[:, None, None]
        self._adjoint[..., horizon - 1, :] = weights[..., horizon - 1, :]
        for t in range(horizon - 2, -1, -1):
            later, step = self._adjoint[:, : t + 1, :, t + 1], self._jacobian[:, : t + 1, :, t]
            self._adjoint[:, : t + 1, :, t] = weights[..., t, :] + (later.unsqueeze(-2) @ step).squeeze(-2)

    def _push_forward(self) -> None:
        """Second derivatives of values, and limits of what the expansions leave out: docs/theory.md, "Rests"."""
        horizon, several = self._horizon, len(self._radii)
        self._bend, self._rest = self._zeros(horizon, several), self._zeros(several)
        self._hessian = self._zeros(self._size, self._size)
        for t in range(horizon - 1):
            self._check()
            now, shape = self._now(t), self._shape(t)
            forms = self._step_forms(t)
            flow, slope = self._flow[(*now, t)], norm_limit(self._jacobian[(*now, t)], squarings=5).view(-1, 1)
            self._hessian[now] += flow.mT @ forms.along.unflatten(0, shape) @ flow
            rest, added = self._rests(t, forms)
            self._rest[now] += rest.unflatten(0, shape)
            bend = slope * self._bend[(*now, t)].flatten(0, 2) + added
            self._bend[(*now, t + 1)] = capped(bend * (1 + 1e-9)).unflatten(0, shape)
        self._rest = capped(self._rest) * (1 + 1e-9)

    def _rests(self, t: int, forms: _Forms) -> tuple[Tensor, Tensor]:
        """What step t adds to the rest [N, G] and to the bend [N, G]."""
        radii, now = self._radii, (*self._now(t), t)
        length, bend, square = (table[now].flatten(0, 2) for table in (self._length, self._bend, self._square))
        reach = length * radii + bend
        cubic, whole = (
            (form_limit(form, square).sqrt() * radii + trace(form).sqrt() * bend) ** 2 * reach
            for form in (forms.cubic, forms.whole)
        )
        cubes, far = reach**3, reach > self._around[t].near
        gradient = self._adjoint[:, : t + 1, :, t + 1].flatten(0, 2).norm(dim=1, keepdim=True)
        everywhere = self._third_anywhere(t) * cubes
        cubic, whole = (
            torch.where(far, limit, torch.minimum(form, limit))
            for form, limit in ((cubic, gradient * everywhere), (whole, everywhere))
        )
        for scale in forms.scales:
            outer = scale.outer(reach) * cubes
            cubic, whole = cubic + scale.weighted * outer, whole + scale.largest * outer
        lost = 1e-13 * trace(square) * frobenius(forms.along) ** 2  # by cancellation
        crossed = (inner_product(forms.along @ square, forms.along) + lost).sqrt() * radii * bend
        rest = cubic / 6 + crossed + frobenius(forms.along) * bend**2 / 2
        added = forms.twice * radii**2 / 2 + forms.once * radii * bend + forms.never * bend**2 / 2 + whole / 6
        return capped(rest), capped(added)

    def _third_anywhere(self, t: int) -> Tensor:
        """Limits [N, 1] of what forms limit near the states, wherever the state is."""
        largest = self._of_noise(t).abs().amax(1, keepdim=True)
        total = torch.zeros_like(largest)
        for part in self._smooth.parts:
            total = total + part.limits[2] * (1 if part.top == "identity" else largest)
        return total

    def _step_forms(self, t: int) -> _Forms:
        """Second derivatives of step t at the states of all branches with c <= t, and limits near them."""
        around, gradient = self._around[t], self._adjoint[:, : t + 1, :, t + 1].flatten(0, 2)
        noise, now = self._of_noise(t), (*self._now(t), t)
        square, effect = (table[now].flatten(0, 2) for table in (self._square, self._path))
        # How far from the branch's own state the second derivatives are taken.
        distance = torch.zeros_like(effect[:, :1]) if self._strong else effect.norm(dim=1, keepdim=True)
        zero = torch.zeros_like(square)
        along = cubic = whole = beyond = zero
        apart, scales = zero[:, 0, :1], []
        (twice, once, never), bent = self._second_limits(t, square)
        for number, part in enumerate(self._smooth.parts):
            near, slope = around.parts[number], around.slopes[number]
            along = along + near.contracted(gradient * slope)
            weights, lengths = Weights(signed=gradient), Weights()
            if part.top == "softplus":
                curvature = (gradient * around.curvatures[number]).unsqueeze(-1)
                along = along + near.jacobian.mT @ (curvature * near.jacobian)
                inner = bent[number] + part.limits[2] * distance
                noised = (gradient * noise).norm(dim=1, keepdim=True)
                scale = Scale(part.limits, frobenius(near.jacobian), inner, noise.abs().amax(1, keepdim=True), noised)
                scales.append(scale)
                apart = apart + scale.largest * scale.outer(distance) * distance
                grown = growth(near.jacobian.norm(dim=2), inner, part.limits[2], around.near, slope, noise)
                weights = Weights(signed=gradient * slope, unsigned=gradient * grown)
                lengths = Weights(lengths=slope.abs() + grown)
            cubic, whole = cubic + near.third(weights, None), whole + near.third(lengths, None)
            if not self._strong:
                beyond = beyond + near.third(lengths, effect)
        beyond = beyond + apart.unsqueeze(-1) * torch.eye(self._size, dtype=torch.float64, device=self._device)
        more, most = form_limit(beyond, square), trace(beyond)
        twice, once, never = twice + more, once + (more * most).sqrt(), never + most
        return _Forms(along, twice, once, never, cubic, whole, scales)

    def _second_limits(self, t: int, square: Tensor) -> tuple[tuple[Tensor, Tensor, Tensor], list[Tensor]]:
        """Limits [N, 1] of the second derivatives of step t where branches with c <= t take it: along the flow twice,
        once and not at all; and of those of each part's network.

        They are taken at the observed state for all branches, unless networks bend strongly.
        """
        shape, rows = self._shape(t), torch.arange(self._count, device=self._device)
        latest = torch.arange(len(square), device=self._device).view(shape)[:, t].flatten()
        chosen: Tensor | slice = slice(None) if self._strong else latest
        second, inner = self._second_derivatives(t, chosen)
        norms = [frobenius(tensors) for tensors in inner]
        if self._strong:
            unit = self._unit[:, : t + 1, None].expand(*shape, -1, -1).flatten(0, 2)
            scaled = self._flow[(*self._now(t), t)].flatten(0, 2) @ unit
            once = second @ scaled.unsqueeze(1)
            return (frobenius(scaled.mT.unsqueeze(1) @ once), frobenius(once), frobenius(second)), norms
        second = second.unflatten(0, (self._count, self._actions))
        observed = self._observed[:, t]
        earlier = along_square(second[rows, observed], square.unflatten(0, shape)[:, :t])
        once = second @ self._unit[:, t, None, None]
        own = tuple(
            torch.linalg.vector_norm(tensors, dim=(2, 3, 4)).unsqueeze(1)
            for tensors in (self._unit[:, t, None, None] @ once, once, second)
        )
        twice, once, never = (
            torch.cat(parts, dim=1).view(-1, 1) * (1 + 1e-9) for parts in zip(earlier, own, strict=True)
        )
        bent = []
        for norm in norms:
            own_norm = norm.view(self._count, 1, self._actions)
            earlier_norm = own_norm[rows, :, observed].unsqueeze(-1).expand(-1, t, self._actions)
            bent.append(torch.cat((earlier_norm, own_norm), dim=1).view(-1, 1))
        return (twice, once, never), bent

    def _second_derivatives(self, t: int, chosen: Tensor | slice) -> tuple[Tensor, list[Tensor]]:
        """Those of step t at some of the branches' states [n, D, D, D], and those of each part's network."""
        around, total = self._around[t], self._weights.new_zeros(1, *[self._size] * 3)
        inner = [near.curvature(chosen) for near in around.parts]
        for number, part in enumerate(self._smooth.parts):
            own = inner[number]
            if part.top == "softplus":
                jacobian = around.parts[number].jacobian[chosen]
                slope, curvature = (
                    table[number][chosen][..., None, None] for table in (around.slopes, around.curvatures)
                )
                own = slope * own + curvature * jacobian.unsqueeze(-1) * jacobian.unsqueeze(-2)
            total = total + own
        count = len(self._rows(t)[2][chosen])
        return total.expand(count, -1, -1, -1), inner
