"""The local expansion (jet) of one step at many states: its derivatives, and bounds on those that are not known.

All numbers are float64, but for the second derivatives of changes in models of many features
(`second_derivatives_dtype`), whose margin (T54) stands beside them. Letters are those of docs/theory.md: f the step,
lambda the adjoint of what follows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ifonly.bounds.taylor.norms import product_margin, second_derivatives_dtype
from ifonly.models.layers import ROUNDING
from ifonly.models.smooth import (
    DERIVATIVE_BOUNDS,
    Jet,
    Part,
    SmoothStep,
    entry_weights,
    norm_bound,
    pairs,
    spread,
    triples,
    unpacked,
)
from ifonly.progress import look_at_clock
from ifonly.rewards.decoding import ValueCurve


@dataclass(frozen=True)
class ScaleExpansion:
    """A part u * softplus(n(x)): what bounds third and fourth derivatives of each of its O outputs (T19), (T20)."""

    network_bounds: Tensor  # [4, O], n1, ..., n4 of (T17), for each output by itself
    is_deep: bool  # then its third derivative is bounded, not known
    jacobian: Tensor  # [N, O, D], Dn_i
    hessian_norm: Tensor  # [N, O], |D^2 n_i|
    noise: Tensor  # [N, O], |u_i|
    adjoint_noise: Tensor  # [N, O], |lambda_i u_i|

    def mapped(self, change: Callable[[Tensor], Tensor]) -> ScaleExpansion:
        """With `change` applied to every array: rows selected, or an axis added."""
        arrays = (self.jacobian, self.hessian_norm, self.noise, self.adjoint_noise)
        return ScaleExpansion(self.network_bounds, self.is_deep, *(change(array) for array in arrays))

    def together(self, bounds: Tensor) -> tuple[Tensor, Tensor]:
        """From bounds [N, ..., O] on every output to those on the sum along the adjoint, and on the whole [N, ...]."""
        whole: Tensor = torch.linalg.vector_norm(self.noise.unsqueeze(-2) * bounds, dim=-1)
        return (self.adjoint_noise.unsqueeze(-2) * bounds).sum(-1), whole


@dataclass(frozen=True)
class RewardRemainder:
    """What bounds the third and fourth derivatives of a curved reward, feature by feature (T57), (T60)."""

    third: Tensor  # [N, 1], bounds the third derivative, times exp(growth |z|)
    growing: Tensor  # [N, 1], bounds the fourth of log-scaled features, times exp(growth |z|)
    growth: Tensor  # [N, 1]
    cut: Tensor  # [N, 1], six times the factor of |z|^3 by which cut values exceed uncut ones

    def mapped(self, change: Callable[[Tensor], Tensor]) -> RewardRemainder:
        """With `change` applied to every array."""
        return RewardRemainder(*(change(array) for array in (self.third, self.growing, self.growth, self.cut)))


@dataclass(frozen=True)
class LocalExpansion:
    """One step f at N states, with the adjoint lambda [N, D] of what follows, and the reward of the state if it is
    curved: then lambda . f below stands for lambda . f plus the reward.

    In networks with more than one hidden layer the third derivatives are not known: `deep_third` bounds them.
    """

    jacobian: Tensor  # [N, D, D], J
    hessian: Tensor  # [N, D, E], D^2 f, packed entries i <= j; float32 where they are many
    hessian_error: Tensor  # [N, 1], how far, as |.|_F of the whole map, it is off at most (T54)
    adjoint_hessian: Tensor  # [N, D, D], S2 = lambda . D^2 f of (T4)
    adjoint_third: Tensor | None  # [N, D, D, D], S3 = lambda . D^3 f, if asked for
    third: Tensor | None  # [N, D, E], D^3 f, packed entries i <= j <= k, if asked for
    unit_rows: Tensor  # [D, H], first-layer rows w_h of shallow networks, as columns: the same for every step
    adjoint_quartic: Tensor  # [N, H], |lambda . v_h| s4 of (T13)
    quartic: Tensor  # [N, H], |v_h| s4: the same for the step itself
    deep_third: Tensor  # [N, 1], n3 of deep networks (T18)
    third_form: Tensor  # [N, D, D], Q of (T15), of parts without softplus
    adjoint_norm: Tensor  # [N, 1], |lambda|
    slope_bound: Tensor  # [N, 1], f1: bounds the step's first derivative anywhere
    curvature_bound: Tensor  # [N, 1], f2: bounds its second derivative anywhere
    scales: tuple[ScaleExpansion, ...]  # parts under softplus
    reward: RewardRemainder | None = None


def expand_step(
    smooth: SmoothStep,
    states: Tensor,
    context: Tensor,
    actions: Tensor,
    noise: Tensor,
    adjoint: Tensor,
    *,
    third: bool,
) -> LocalExpansion:
    """The local expansion at states [N, D], context [N, C], actions [N], noise [N, D], for adjoints [N, D]; with third
    derivatives if `third`."""
    count, size = states.shape
    jacobian = states.new_zeros(count, size, size) if smooth.skip is None else smooth.skip[actions]
    dtype = torch.float64 if third else second_derivatives_dtype(size)
    single = dtype == torch.float32
    hessian = states.new_zeros(count, size, size * (size + 1) // 2, dtype=dtype)
    hessian_error, pulled = states.new_zeros(count, 1), states.new_zeros(count, hessian.shape[2])
    adjoint_hessian = states.new_zeros(count, size, size)
    places = triples(size, states.device)[1]
    packed_third = states.new_zeros(count, size, int(places.max()) + 1 if third else 0)
    form = states.new_zeros(1, size, size)
    rows, adjoint_quartic, quartic = states.new_zeros(size, 0), [states.new_zeros(count, 0)], [states.new_zeros(0)]
    deep_third, scales = states.new_zeros(1, 1), []
    slope_bound, curvature_bound = states.new_zeros(count, 1), states.new_zeros(count, 1)
    if smooth.skip is not None:
        slope_bound = norm_bound(smooth.skip)[actions].unsqueeze(1)
    largest_noise = noise.abs().amax(1, keepdim=True)
    for part in smooth.parts:  # derivatives, and bounds on them, add up over parts
        look_at_clock()
        jet = part.jet(states, context, actions, single=single)
        assert jet.hessian is not None, "a jet has two derivatives"
        top = part.top_derivatives(jet.value, noise)
        jacobian = jacobian + top[0].unsqueeze(-1) * jet.jacobian
        hessian = hessian + (jet.hessian if part.top == "identity" else _hessian(top, jet)).to(dtype)
        pulled = pulled + part.pulled_hessian(jet, adjoint * top[0])
        if single:
            hessian_error = hessian_error + _rounding(part, top, jet)
        if jet.third is not None and third:
            packed_third = packed_third + (jet.third() if part.top == "identity" else _third(top, jet))
        n1, n2, n3, _ = part.derivative_bounds
        if part.top == "softplus":
            adjoint_hessian = adjoint_hessian + jet.jacobian.mT @ ((adjoint * top[1]).unsqueeze(-1) * jet.jacobian)
            scales.append(_scale(part, jet, noise, adjoint))
            s1, s2, *_ = DERIVATIVE_BOUNDS["softplus"]
            o1, o2, *_ = part.output_bounds
            slope_bound = slope_bound + torch.minimum(largest_noise * s1 * n1, _length(noise * s1 * o1))
            curved = torch.minimum(largest_noise * (s2 * n1**2 + s1 * n2), _length(noise * (s2 * o1**2 + s1 * o2)))
            curvature_bound = curvature_bound + curved
        elif part.is_shallow:  # (T13)
            s4 = DERIVATIVE_BOUNDS[part.activation][3]
            rows = torch.cat((rows, part.state.mT), dim=1)
            adjoint_quartic.append((adjoint @ part.matrices[0]).abs() * s4)
            quartic.append(part.column_norms * s4)
        else:  # (T18)
            deep_third = deep_third + n3
        if part.top == "identity":  # (T15)
            form, slope_bound, curvature_bound = form + part.third_form, slope_bound + n1, curvature_bound + n2
    look_at_clock()
    adjoint_third = (adjoint.unsqueeze(1) @ packed_third).squeeze(1)[:, places] if third else None
    return LocalExpansion(
        jacobian=jacobian,
        hessian=hessian,
        hessian_error=hessian_error,
        adjoint_hessian=adjoint_hessian + unpacked(pulled, size),  # (T4)
        adjoint_third=None if adjoint_third is None else adjoint_third.view(-1, size, size, size),
        third=packed_third if third else None,
        unit_rows=rows,
        adjoint_quartic=torch.cat(adjoint_quartic, dim=1),
        quartic=torch.cat(quartic).expand(count, -1),
        deep_third=deep_third.expand(count, -1),
        third_form=form.expand(count, -1, -1),
        adjoint_norm=adjoint.norm(dim=1, keepdim=True) * (1 + ROUNDING),
        slope_bound=slope_bound,
        curvature_bound=curvature_bound,
        scales=tuple(scales),
    )


def no_step(states: Tensor) -> LocalExpansion:
    """The expansion of no step at all at states [N, D]: zeros."""
    (count, size), zero = states.shape, states.new_zeros(())

    def zeros(*shape: int) -> Tensor:
        return zero.expand(count, *shape)

    return LocalExpansion(
        jacobian=zeros(size, size),
        hessian=zeros(size, size * (size + 1) // 2),
        hessian_error=zeros(1),
        adjoint_hessian=zeros(size, size),
        adjoint_third=zeros(size, size, size),
        third=zeros(size, size * (size + 1) * (size + 2) // 6),
        unit_rows=states.new_zeros(size, 0),
        adjoint_quartic=zeros(0),
        quartic=zeros(0),
        deep_third=zeros(1),
        third_form=zeros(size, size),
        adjoint_norm=zeros(1),
        slope_bound=zeros(1),
        curvature_bound=zeros(1),
        scales=(),
    )


def with_reward(step: LocalExpansion, reward: ValueCurve) -> LocalExpansion:
    """The step with the reward of its state [N, ...] added to what the adjoint weighs (T58).

    Seen from the bound, the features of a bounded reward are further hidden units, each with a row of the identity.
    """
    size = reward.slope.shape[1]
    i, eye = torch.arange(size, device=reward.slope.device), torch.eye(size, dtype=torch.float64)
    third = None
    if step.adjoint_third is not None:
        third = step.adjoint_third.clone()
        third[:, i, i, i] += reward.third
    return replace(
        step,
        adjoint_hessian=step.adjoint_hessian + torch.diag_embed(reward.curvature),
        adjoint_third=third,
        unit_rows=torch.cat((step.unit_rows, eye.to(reward.slope)), dim=1),
        adjoint_quartic=torch.cat((step.adjoint_quartic, reward.quartic), dim=1),
        quartic=torch.cat((step.quartic, torch.zeros_like(reward.quartic)), dim=1),
        reward=RewardRemainder(
            third=reward.third_bound.amax(1, keepdim=True),
            growing=reward.growing.amax(1, keepdim=True),
            growth=reward.growth,
            cut=6 * reward.cut.amax(1, keepdim=True),
        ),
    )


def _hessian(top: tuple[Tensor, Tensor, Tensor], jet: Jet) -> Tensor:
    """Second derivatives [N, D, E] of top(network), packed entries i <= j, by the chain rule."""
    assert jet.hessian is not None
    slope, curvature, _ = (table.unsqueeze(-1).to(jet.hessian) for table in top)
    jacobian = jet.jacobian.to(jet.hessian)
    i, j = pairs(jacobian.shape[-1], jacobian.device)[0]
    products = spread(jacobian, i).mul_(spread(jacobian, j))
    return (slope * jet.hessian).addcmul_(curvature, products)


def _rounding(part: Part, top: tuple[Tensor, Tensor, Tensor], jet: Jet) -> Tensor:
    """(T54): by how much |D^2 of top(network)| [N, 1] is off where it was multiplied in float32, at most."""
    slope, curvature, _ = (table.abs() for table in top)
    sizes = slope * part.hessian_sizes(jet) + curvature * jet.jacobian.square().sum(-1)
    return product_margin(len(part.state)) * _length(sizes)


def _third(top: tuple[Tensor, Tensor, Tensor], jet: Jet) -> Tensor:
    """Third derivatives [N, D, E] of top(network), packed entries i <= j <= k, by the chain rule."""
    assert jet.hessian is not None
    assert jet.third is not None
    slope, curvature, third = (table.unsqueeze(-1) for table in top)
    size, jacobian, hessian = jet.jacobian.shape[-1], jet.jacobian, jet.hessian
    places = pairs(size, jacobian.device)[1].view(size, size)
    i, j, k = triples(size, jacobian.device)[0]
    first, second, last = (spread(jacobian, each) for each in (i, j, k))
    mixed = first * spread(hessian, places[j, k])
    mixed.addcmul_(second, spread(hessian, places[i, k]))
    mixed.addcmul_(last, spread(hessian, places[i, j]))
    return (slope * jet.third()).addcmul_(curvature, mixed).addcmul_(third, first * second * last)


def _scale(part: Part, jet: Jet, noise: Tensor, adjoint: Tensor) -> ScaleExpansion:
    assert jet.hessian is not None
    hessians = jet.hessian.double() * entry_weights(noise.shape[1], noise.device)
    is_single = jet.hessian.dtype == torch.float32
    off = product_margin(len(part.state)) * part.hessian_sizes(jet) if is_single else 0.0  # (T54)
    return ScaleExpansion(
        part.output_bounds,
        not part.is_shallow,
        jacobian=jet.jacobian,
        hessian_norm=_length(hessians).squeeze(-1) + off,
        noise=noise.abs(),
        adjoint_noise=(adjoint * noise).abs(),
    )


def _length(vectors: Tensor) -> Tensor:
    """Euclidean lengths [..., 1] of vectors [..., D]."""
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return lengths * (1 + ROUNDING)
