"""Every single change of the observed sequences: its path, how that moves with the state, and how far this is known.

A branch (c, a) of a problem follows the observed actions but for a at step c. As a function of its state at c, which is
the observed one plus y, its path has a flow X_t(y) and its value V(y), the sum of the rewards from c on. Kept are the
first derivatives of the flows and the first two of the values at y = 0, and limits of their higher derivatives over the
balls |y| <= radius. Arrays are [P, C, A, ...] with C = T steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.models.smooth import LIMITS, Part, SmoothStep, bilinear_limit, norm_limit
from ifonly.problem import Problem

RADII = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.25, 1.6, 2.0, 1000.0)
"""Balls, in scaled units, over which derivatives are limited; the last is for models that hardly bend."""

LARGE = 1e100
"""Stands for infinity: zero times this is zero, and times any distance between states it is still beyond all use."""


@dataclass(frozen=True)
class BranchTables:
    """What is known of the branches of P problems; G radii."""

    center: Tensor  # [P, T, D], the observed path as the model replays it
    path: Tensor  # [P, C, A, T, D], minus the observed path; zero before c
    flow: Tensor  # [P, C, A, T, D, D], derivatives of the path in the state at c
    earned: Tensor  # [P, C, A, T], rewards from step c up to and without each step
    value: Tensor  # [P, C, A]
    gradient: Tensor  # [P, C, A, D]
    hessian: Tensor  # [P, C, A, D, D]
    flow_limit: Tensor  # [P, C, A, T, G], of the flow's first derivative
    bend_limit: Tensor  # [P, C, A, T, G], of its second
    reach: Tensor  # [P, C, A, T, G], of how far the path moves
    third_limit: Tensor  # [P, C, A, G], of the value's third derivative
    gain_third_limit: Tensor  # [P, C, A, G], the same for what is gained over the observed action


@dataclass(frozen=True)
class _Point:
    """Derivatives of one step at the branches' states, and the parts' own that limits need."""

    jacobian: Tensor  # [N, D, D]
    hessian: Tensor  # [N, D, D, D]
    inner_norms: list[tuple[Tensor, Tensor]]  # of parts under softplus: Jacobian and Hessian norms [N]
    slopes: list[Tensor]  # of parts under softplus: the top's slopes [N, D]


class BranchBuilder:
    """Sweeps forward and backward over the steps, all branches of all problems at once."""

    def __init__(
        self,
        problems: Sequence[Problem],
        smooth: SmoothStep,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`check` is called now and then, and may raise to end the work."""
        first = problems[0]
        self._check = check
        self._problems, self._smooth = problems, smooth
        self._model, self._reward = first.model, first.bound_reward
        self._count, self._horizon, self._actions = len(problems), first.horizon, first.action_count
        self._size = first.observed_states.shape[1]
        self._device = first.device
        self._radii = torch.tensor(RADII, dtype=torch.float64, device=first.device)
        self._observed = torch.stack([problem.observed_actions for problem in problems])
        self._context = torch.stack([problem.context for problem in problems])
        self._noise = torch.stack([problem.noise for problem in problems])
        self._scaled_third = [self._third_under_noise(part) for part in smooth.parts]

    def build(self) -> BranchTables:
        """All sweeps."""
        self._replay()
        self._pull_back()
        self._push_forward()
        self._add_up()
        gradient = self._adjoint.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2)
        return BranchTables(
            center=self._center,
            path=self._path - torch.where(self._is_after(), self._center[:, None, None], 0.0),
            flow=self._flow,
            earned=self._earned,
            value=self._value,
            gradient=gradient.contiguous(),
            hessian=self._hessian,
            flow_limit=self._flow_limit,
            bend_limit=self._bend_limit,
            reach=self._reach,
            third_limit=self._third_limit,
            gain_third_limit=self._third_of_gains(),
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
        self._path, self._earned = self._zeros(horizon, self._size), self._zeros(horizon)
        costs = torch.tensor([problem.change_cost for problem in self._problems], dtype=torch.float64)
        costs = costs.to(self._device)[:, None, None]
        for t in range(horizon):
            self._path[:, t, :, t] = self._center[:, None, t]
            taken, states = self._taken(t), self._path[:, : t + 1, :, t]
            rewards = self._rewards(t, states, taken) - (taken != self._observed[:, t, None, None]) * costs
            total = self._earned[:, : t + 1, :, t] + rewards
            if t == horizon - 1:
                self._value = total
                break
            self._earned[:, : t + 1, :, t + 1] = total
            context, noise = self._context[:, None, None, t], self._noise[:, None, None, t]
            self._path[:, : t + 1, :, t + 1] = self._model.step(states, context, taken, noise)

    def _rewards(self, t: int, states: Tensor, taken: Tensor) -> Tensor:
        """Rewards [P, t+1, A] as the tangents at the observed path continue them: never below the true ones."""
        center = self._center[:, None, None, t]
        return self._reward(center, taken) + ((states - center) * self._weights[:, None, None, t]).sum(-1)

    def _rows(self, t: int) -> tuple[Tensor, Tensor, Tensor]:
        """States [N, D], context [N, C] and actions [N] of the branches with c <= t, in a row."""
        taken = self._taken(t)
        context = self._context[:, None, None, t].expand(*taken.shape, -1)
        return self._path[:, : t + 1, :, t].flatten(0, 2), context.flatten(0, 2), taken.flatten()

    def _of_noise(self, t: int) -> Tensor:
        """The noise of the same rows [N, D]."""
        return self._noise[:, None, None, t].expand(-1, t + 1, self._actions, -1).flatten(0, 2)

    def _pull_back(self) -> None:
        """The Jacobian of every step, and the gradient of what follows at every state of every branch."""
        horizon = self._horizon
        self._jacobian = self._zeros(horizon, self._size, self._size)
        for t in range(horizon - 1):
            self._check()
            jacobians = self._smooth.jacobians(*self._rows(t), self._of_noise(t))
            self._jacobian[:, : t + 1, :, t] = jacobians.unflatten(0, (self._count, t + 1, self._actions))
        self._adjoint = self._zeros(horizon, self._size)
        weights = self._weights[:, None, None]
        self._adjoint[..., horizon - 1, :] = weights[..., horizon - 1, :]
        for t in range(horizon - 2, -1, -1):
            later, step = self._adjoint[:, : t + 1, :, t + 1], self._jacobian[:, : t + 1, :, t]
            self._adjoint[:, : t + 1, :, t] = weights[..., t, :] + (later.unsqueeze(-2) @ step).squeeze(-2)

    def _point(self, t: int) -> _Point:
        states, context, actions = self._rows(t)
        noise = self._of_noise(t)
        jacobian = self._jacobian[:, : t + 1, :, t].flatten(0, 2)
        hessian = self._weights.new_zeros(len(states), *[self._size] * 3)
        norms, slopes = [], []
        for part in self._smooth.parts:
            inner = part.inner(states, context, actions, second=True)
            assert inner.hessian is not None
            slope, curvature = part.top_derivatives(inner.value, noise)
            hessian = hessian + slope[..., None, None] * inner.hessian
            if part.top == "softplus":
                outer = inner.jacobian.unsqueeze(-1) * inner.jacobian.unsqueeze(-2)
                hessian = hessian + curvature[..., None, None] * outer
                norms.append((norm_limit(inner.jacobian), bilinear_limit(inner.hessian)))
                slopes.append(slope)
        return _Point(jacobian, hessian, norms, slopes)

    def _push_forward(self) -> None:
        """Derivatives of the flows, and limits of their first three over the balls."""
        horizon, size, radii = self._horizon, self._size, self._radii
        several = len(radii)
        self._flow = self._zeros(horizon, size, size)
        self._flow_limit, self._bend_limit, self._reach = (self._zeros(horizon, several) for _ in range(3))
        self._limits = [self._zeros(horizon, several) for _ in range(5)]
        self._hessian = self._zeros(size, size)
        bend = self._zeros(size, size, size)
        third = self._zeros(several)
        for t in range(horizon - 1):
            self._flow[:, t, :, t] = torch.eye(size, dtype=torch.float64, device=self._device)
            self._flow_limit[:, t, :, t] = 1.0
            self._reach[:, t, :, t] = radii
            self._check()
            point = self._point(t)
            now = (slice(None), slice(0, t + 1))
            flow, reach, l1, l2 = (
                table[(*now, slice(None), t)].flatten(0, 2)
                for table in (self._flow, self._reach, self._flow_limit, self._bend_limit)
            )
            l3, psi = third[now].flatten(0, 2), bend[now].flatten(0, 2)
            slope, curve, bent, along, cubic = self._step_limits(t, point, reach)
            following = point.jacobian @ flow
            psi = _second_of_composition(point, flow, psi)
            l3 = _capped(bent * l1**3 + 3 * curve * l1 * l2 + slope * l3)
            first, second = norm_limit(following).unsqueeze(1), bilinear_limit(psi).unsqueeze(1)
            l2_next = _capped(torch.minimum(second + radii * l3, curve * l1 * l1 + slope * l2))
            l1_next = _capped(torch.minimum(first + radii * second + radii**2 / 2 * l3, slope * l1))
            moved = radii * first + radii**2 / 2 * second + radii**3 / 6 * l3
            moved = _capped(torch.minimum(torch.minimum(moved, radii * l1_next), slope * reach))
            for table, values in (
                (self._flow, following),
                (self._flow_limit, l1_next),
                (self._bend_limit, l2_next),
                (self._reach, moved),
            ):
                table[(*now, slice(None), t + 1)] = values.unflatten(0, (self._count, t + 1, self._actions))
            for table, values in zip(self._limits, (slope, curve, bent, along, cubic), strict=True):
                table[(*now, slice(None), t)] = values.unflatten(0, (self._count, t + 1, self._actions))
            bend[now] = psi.unflatten(0, (self._count, t + 1, self._actions))
            third[now] = l3.unflatten(0, (self._count, t + 1, self._actions))
            self._hessian[now] += torch.einsum("pi,pcaijk->pcajk", self._weights[:, t + 1], bend[now])

    def _step_limits(self, t: int, point: _Point, reach: Tensor) -> tuple[Tensor, ...]:
        """Limits over the tubes [N, G]: of the step's three derivatives, and of the last two along the gradient."""
        shape = (self._count, t + 1, self._actions)
        noise = self._of_noise(t)
        largest = noise.abs().amax(1, keepdim=True)
        gradient = self._adjoint[:, : t + 1, :, t + 1].flatten(0, 2)
        bent = torch.zeros_like(reach)
        cubic = torch.zeros_like(reach)
        steepest, most_curved = self._skip_norms(t, reach), torch.zeros_like(reach)
        tops = iter(zip(point.inner_norms, point.slopes, strict=True))
        for number, part in enumerate(self._smooth.parts):
            n1, n2, n3 = part.limits
            if part.top == "identity":
                bent = bent + n3
                cubic = cubic + self._along(part, gradient).unsqueeze(1)
                steepest, most_curved = steepest + n1, most_curved + n2
                continue
            (norm, curvature), slopes = next(tops)
            v2 = (curvature.unsqueeze(1) + reach * n3).clamp(max=n2)
            v1 = (norm.unsqueeze(1) + reach * curvature.unsqueeze(1) + reach**2 / 2 * n3).clamp(max=n1)
            _, s2, s3 = LIMITS["softplus"]
            outer = s3 * v1**3 + 3 * s2 * v1 * v2
            scaled = self._scaled_third[number][:, t, None, None].expand(shape).reshape(-1, 1)
            bent = bent + scaled + largest * outer
            weighted = gradient * noise
            length = weighted.norm(dim=1, keepdim=True)
            # The logistic function grows by a factor of at most exp(d) over a distance d.
            stretch = torch.expm1((v1 * reach).clamp(max=700.0))
            signed = self._along(part, gradient * slopes).unsqueeze(1)
            unsigned = self._along(part, gradient * slopes, any_sign=True).unsqueeze(1)
            inner = torch.minimum(signed + stretch * unsigned, length * n3)
            cubic = cubic + inner + length * outer
            top = torch.minimum(slopes.abs().amax(1, keepdim=True) * (1 + stretch), largest)
            steepest, most_curved = steepest + top * v1, most_curved + largest * s2 * v1**2 + top * v2
        slope0, curve0 = norm_limit(point.jacobian).unsqueeze(1), bilinear_limit(point.hessian).unsqueeze(1)
        curve = torch.minimum(curve0 + reach * bent, most_curved)
        slope = torch.minimum(slope0 + reach * curve0 + reach**2 / 2 * bent, steepest)
        along0 = norm_limit((gradient.unsqueeze(1) @ point.hessian.flatten(2)).view(-1, self._size, self._size))
        return slope, curve, bent, along0.unsqueeze(1).expand_as(bent), cubic

    def _skip_norms(self, t: int, reach: Tensor) -> Tensor:
        if self._smooth.skip is None:
            return torch.zeros_like(reach)
        return norm_limit(self._smooth.skip)[self._taken(t).flatten()].unsqueeze(1).expand_as(reach)

    def _along(self, part: Part, gradient: Tensor, *, any_sign: bool = False) -> Tensor:
        """Limits [N] of the third derivative of gradient.network, for gradients [N, D]; or with any signs of these."""
        if not part.is_shallow:
            lengths: Tensor = torch.linalg.vector_norm(gradient, dim=1)
            return lengths * part.limits[2]
        matrix = part.matrices[0]
        weights = gradient.abs() @ matrix.abs() if any_sign else (gradient @ matrix).abs()
        return part.form_norms(weights * part.third_weights)

    def _third_under_noise(self, part: Part) -> Tensor:
        """Limits [P, T-1] of the third derivative of noise * network, the top's slope left out."""
        largest = self._noise.abs().amax(-1) * part.limits[2]
        if not part.by_noise or not part.is_shallow:
            return largest
        weights = (self._noise**2 @ part.matrices[0] ** 2).sqrt() * part.third_weights
        return torch.minimum(largest, part.form_norms(weights.flatten(0, 1)).view_as(largest))

    def _add_up(self) -> None:
        """Limits of the values' third derivatives: what each step adds, seen through the gradient of what follows."""
        total = self._zeros(len(self._radii))
        drift = self._zeros(len(self._radii))  # of the gradient, over the tube
        for t in range(self._horizon - 2, -1, -1):
            now = (slice(None), slice(0, t + 1), slice(None))
            slope, curve, bent, along, cubic = (table[(*now, t)] for table in self._limits)
            l1, l2, reach = (table[(*now, t)] for table in (self._flow_limit, self._bend_limit, self._reach))
            moved = drift[now]
            total[now] += (cubic + moved * bent) * l1**3 + 3 * (along + reach * cubic + moved * curve) * l1 * l2
            drift[now] = moved * slope + reach * along + reach**2 / 2 * cubic
        self._third_limit = _capped(total) * (1 + 1e-9)

    def _third_of_gains(self) -> Tensor:
        """The observed action's limit added."""
        index = self._observed[..., None, None].expand(-1, -1, 1, len(self._radii))
        return self._third_limit + self._third_limit.gather(2, index)


def _capped(limits: Tensor) -> Tensor:
    """Overflow, and what overflow made undefined, is as good as unknown."""
    return limits.nan_to_num(nan=LARGE, posinf=LARGE).clamp(max=LARGE)


def _second_of_composition(point: _Point, flow: Tensor, bend: Tensor) -> Tensor:
    """Second derivatives [N, D, D, D] of a step after a flow: H[flow, flow] + J bend."""
    size = flow.shape[-1]
    one = (point.hessian.flatten(1, 2) @ flow).unflatten(1, (size, size))  # [N, i, k, b]
    both = (flow.mT.unsqueeze(1) @ one).flatten(2)  # [N, i, a * b]
    second: Tensor = both + point.jacobian @ bend.flatten(2)
    return second.view(-1, size, size, size)
