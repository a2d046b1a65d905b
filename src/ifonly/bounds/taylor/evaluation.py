"""Advantages evaluated at given states: their polynomials, and their remainders looked up by norm.

Pruning needs many bounds and few digits, so all of this is float32. Tables are made in float64 and rounded up (T55);
sums of products have the margin (T53). Displacements y are in metric units, U_c^{-1} times the displacement, so that
|y| is the ellipsoidal norm. Equation numbers are those of docs/theory.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.bounds.taylor.advantages import Advantages
from ifonly.bounds.taylor.polynomials import (
    FLOAT32_MARGIN,
    monomials,
    packed,
    quadratic,
    rounded_up_float32,
    rounding_margin,
    sum_margin,
    to_float32,
)
from ifonly.bounds.taylor.radii import RadiusIndex, looked_up, padded, radii_on
from ifonly.bounds.taylor.value_expansion import ValueExpansion
from ifonly.models.smooth import norm_bound

ProblemIndex = Tensor | slice
"""Some of the problems: their numbers, or all."""


@dataclass(frozen=True)
class AdvantageTables:
    """What evaluates the advantages of all changes before the last step, C = T - 1, in metric units; float32.

    U is the metric root at c, U' that at c + 1, H the Hessian of the value at c.
    """

    index: RadiusIndex
    polynomials: Tensor  # [P, C, 2 * A + 2, F], coefficients: A of Adv, A of |U'^{-1}(e + J y)|^2, and the forms
    # 1/2 y . UHU y and |UHU y|^2
    value_hessian: Tensor  # [P, C, D, D], UHU
    remainders: Tensor  # [P, C, 2 * A, G + 1], A of step(rho) / rho^3 (T34), A of |U'^{-1}| b(rho) / rho^2
    gradient_norm: Tensor  # [P, C, A, 1], |U grad Adv|
    hessian_norm: Tensor  # [P, C, A, 1], |U hess Adv U|
    jacobian_norm: Tensor  # [P, C, A, 1], |U'^{-1} J U|
    value_hessian_norm: Tensor  # [P, C, 1], |UHU|
    # Margins (T53), per (1 + |y|)^2:
    margin: Tensor  # [P, C, 1], of advantages and of the second-order term of the value
    reached_margin: Tensor  # [P, C, 1], of the squared norm that is reached
    slope_margin: Tensor  # [P, C, 1], of |UHU y|^2


@dataclass(frozen=True)
class CurvatureAt:
    """The second-order term of the value at M displacements of C steps, and on balls of radius `off` around them."""

    norm: Tensor  # [P, C, M], |y| + off, rounded up
    term: Tensor  # [P, C, M], 1/2 y . UHU y, with its margin
    slope: Tensor  # [P, C, M], bounds the slope of the term on the ball: |UHU y| + |UHU| off / 2


@dataclass(frozen=True)
class AdvantagesAt:
    """Advantages at M displacements of C steps, with bounds that hold on balls of radius `off` around them."""

    advantage: Tensor  # [P, C, A, M], the polynomial at the centre; minus infinity where the change is not allowed
    remainder: Tensor  # [P, C, A, M], what the step's expansion, the ball and rounding add at most
    reached: Tensor  # [P, C, A, M], bounds the norm of the state reached at the next step
    curvature: CurvatureAt


def advantage_tables(values: ValueExpansion, advantages: Advantages, changes: Tensor) -> AdvantageTables:
    """Tables for `changes` [P, C, A], those that are allowed; all others get minus infinity."""
    radii, size = radii_on(changes.device), values.gradient.shape[-1]
    root = values.metric_root[:, :-1]
    # Effects of what is not allowed may overflow.
    advantages = advantages.masked(changes)
    value_hessian = root @ values.hessian[:, :-1] @ root
    gradient = (advantages.gradient.unsqueeze(-2) @ root.unsqueeze(2)).squeeze(-2)
    hessian = root.unsqueeze(2) @ advantages.hessian @ root.unsqueeze(2)
    jacobian = advantages.jacobian @ root.unsqueeze(2)
    pulled = (jacobian.mT @ advantages.effect.unsqueeze(-1)).squeeze(-1)
    length = advantages.effect.square().sum(-1)
    forms = packed(torch.stack((value_hessian / 2, value_hessian @ value_hessian), dim=2))
    coefficients = (
        quadratic(advantages.value.masked_fill(~changes, -torch.inf), gradient, hessian / 2),  # Adv (T32)
        quadratic(length, 2 * pulled, jacobian.mT @ jacobian),  # the square of the first term of (T36)
        torch.nn.functional.pad(forms, (1 + size, 0)),
    )
    polynomials = to_float32(torch.cat(coefficients, dim=2))
    remainders = padded(torch.cat((advantages.remainder / radii**3, advantages.effect_remainder / radii**2), dim=2))
    # Zero for what is not allowed, at any norm: its advantage is -inf, and with an infinite remainder would be NaN.
    remainders = remainders.masked_fill(~changes.repeat(1, 1, 2).unsqueeze(-1), 0.0)
    # (T53): sizes of the coefficients of each kind of polynomial.
    share = sum_margin(polynomials.shape[-1])
    form_size = value_hessian.flatten(-2).norm(dim=-1, keepdim=True)
    sizes = advantages.value.abs() + gradient.norm(dim=-1) + hessian.flatten(-2).norm(dim=-1)
    squares = length.sqrt() + jacobian.flatten(-2).norm(dim=-1)
    return AdvantageTables(
        index=RadiusIndex.on(changes.device),
        polynomials=polynomials,
        value_hessian=to_float32(value_hessian),
        remainders=rounded_up_float32(remainders),
        gradient_norm=rounded_up_float32(advantages.gradient_norm.unsqueeze(-1)),
        hessian_norm=rounded_up_float32(norm_bound(hessian).unsqueeze(-1)),
        jacobian_norm=rounded_up_float32(advantages.jacobian_norm.unsqueeze(-1)),
        value_hessian_norm=rounded_up_float32(norm_bound(value_hessian).unsqueeze(-1)),
        margin=rounding_margin(sizes.amax(-1, keepdim=True) + form_size, share),
        reached_margin=rounding_margin(squares.amax(-1, keepdim=True) ** 2, share),
        slope_margin=rounding_margin(form_size**2, share),
    )


def evaluate_polynomials(tables: AdvantageTables, which: ProblemIndex, steps: slice, y: Tensor) -> Tensor:
    """All polynomials [P, C, 2 * A + 2, M] at displacements y [P, C, D, M]: one matrix product."""
    return tables.polynomials[which, steps] @ monomials(y)


def evaluate_advantages(
    tables: AdvantageTables, which: ProblemIndex, steps: slice, y: Tensor, off: Tensor | None = None
) -> AdvantagesAt:
    """Advantages at displacements y [P, C, D, M]; with `off` [P, C, M], bounds on balls of that radius around y."""
    return advantages_from(tables, which, steps, y, evaluate_polynomials(tables, which, steps, y), off)


def advantages_from(
    tables: AdvantageTables, which: ProblemIndex, steps: slice, y: Tensor, evaluated: Tensor, off: Tensor | None
) -> AdvantagesAt:
    """The same, of polynomials that were `evaluated` at y before."""
    actions = tables.gradient_norm.shape[2]
    advantage, square, forms = evaluated.split((actions, actions, 2), dim=2)
    radius = torch.zeros_like(forms[:, :, 0]) if off is None else off
    curvature = _curvature(tables, which, steps, y, (forms[:, :, 0], forms[:, :, 1]), radius)
    norm = curvature.norm
    bounds = looked_up(tables.remainders[which, steps], tables.index(norm))
    powers = (1 + norm) ** 2
    remainder = (tables.margin[which, steps] * powers).unsqueeze(2)
    remainder = torch.addcmul(remainder, bounds[:, :, :actions], (norm**3).unsqueeze(2))  # (T34)
    margin = (tables.reached_margin[which, steps] * powers).unsqueeze(2)
    reached = (square + margin).clamp_(min=0).sqrt_()
    reached.addcmul_(bounds[:, :, actions:], (norm**2).unsqueeze(2))  # (T36)
    if off is not None:  # (T47): the slope of the polynomial on the ball, times its radius
        away = off.unsqueeze(2)
        remainder.addcmul_(tables.gradient_norm[which, steps], away)
        remainder.addcmul_(tables.hessian_norm[which, steps], ((norm - off / 2) * off).unsqueeze(2))
        reached.addcmul_(tables.jacobian_norm[which, steps], away)
    return AdvantagesAt(advantage, remainder, reached.mul_(1 + FLOAT32_MARGIN), curvature)


def evaluate_curvature(
    tables: AdvantageTables, which: ProblemIndex, steps: slice, y: Tensor, off: Tensor
) -> CurvatureAt:
    """The second-order term of the value at displacements y [P, C, D, M], on balls of radius `off` [P, C, M]."""
    pulled = tables.value_hessian[which, steps] @ y
    return _curvature(tables, which, steps, y, ((pulled * y).sum(2) / 2, pulled.square().sum(2)), off)


def _curvature(
    tables: AdvantageTables, which: ProblemIndex, steps: slice, y: Tensor, forms: tuple[Tensor, Tensor], off: Tensor
) -> CurvatureAt:
    """From the forms 1/2 y . UHU y and |UHU y|^2, both [P, C, M]."""
    norm = y.square().sum(2).sqrt_().mul_(1 + FLOAT32_MARGIN).add_(off)
    powers = (1 + norm) ** 2
    slope = (forms[1] + tables.slope_margin[which, steps] * powers).clamp_(min=0).sqrt_()
    slope = slope.addcmul_(tables.value_hessian_norm[which, steps], off, value=0.5).mul_(1 + FLOAT32_MARGIN)
    return CurvatureAt(norm, forms[0] + tables.margin[which, steps] * powers, slope)
