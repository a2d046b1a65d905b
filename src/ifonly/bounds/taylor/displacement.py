"""Where the recorded policy leads from a displaced state: to second order, and how far off that can be.

From a displacement y at step t the recorded actions lead to p = Phi y + 1/2 B[y, y] at a later step c, up to R2 (T49).
Displacements are in metric units. Tables are made in float64; those that are looked up are float32, rounded up (T55),
with the margin (T53) for the products that give p. Equation numbers are those of docs/theory.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.bounds.taylor.evaluation import ProblemIndex
from ifonly.bounds.taylor.polynomials import (
    monomials,
    packed,
    rounded_up_float32,
    rounding_margin,
    sum_margin,
    to_float32,
)
from ifonly.bounds.taylor.radii import RadiusIndex, looked_up, padded, radii_on
from ifonly.bounds.taylor.value_expansion import ValueExpansion
from ifonly.models.smooth import norm_bound
from ifonly.progress import look_at_clock


@dataclass(frozen=True)
class DisplacementTables:
    """From every step t to every later step c; F = Phi U_t, G radii."""

    stretch: Tensor  # [P, T, T, 1], |U_c^{-1} F|, float64
    second_stretch: Tensor  # [P, T, T, 1], |U_c^{-1} B[U_t., U_t.]|, float64
    crossed: Tensor  # [P, T, T, G], (T40): bounds the bracket of (T39) on balls, float64
    second_remainder: Tensor  # [P, T, T, G + 1], |U_c^{-1}| R2 / rho, with a margin for p; float32
    value_remainder: (
        Tensor  # [P, T, T, G + 1], RV_{t,c} / rho^2 (T30), with a margin for the second-order term; float32
    )
    maps: tuple[Tensor, ...]  # of each t < T-1: [P, T-1-t, D + 1, F - 1], coefficients of p at c, and of
    # 1/2 (Phi y) . H_c (Phi y), in the monomials of y without the constant; float32


@dataclass(frozen=True)
class Displaced:
    """M displacements of step t followed to C later steps."""

    y: Tensor  # [P, C, D, M], p
    off: Tensor  # [P, C, M], how far from p the true displacement is at most
    first_order_term: Tensor  # [P, C, M], 1/2 (Phi y) . H_c (Phi y)
    remainder: Tensor  # [P, C, M], RV_{t,c}: what the expansion of the rewards before c leaves out


def displacement_tables(values: ValueExpansion) -> DisplacementTables:
    """Tables from the value expansion."""
    radii = radii_on(values.value.device)
    frames, inverse = values.sensitivity @ values.metric_root.unsqueeze(2), values.inverse_root[:, None]
    stretch = norm_bound(inverse @ frames).unsqueeze(-1)
    stretch.diagonal(dim1=1, dim2=2).fill_(1 + 1e-9)  # the identity, up to rounding
    second_stretch = norm_bound(inverse @ values.second_sensitivity.flatten(-2)).unsqueeze(-1)
    hessian = values.hessian[:, None]
    pulled, form = hessian @ frames, frames.mT @ hessian @ frames
    crossed = norm_bound(pulled).unsqueeze(-1) * radii * values.first_remainder
    crossed += norm_bound(values.hessian)[:, None, :, None] * values.first_remainder**2 / 2  # (T40)
    share = sum_margin(monomials(frames[0, 0, 0, :, :1]).shape[0])
    margin = share * (stretch + second_stretch * radii) * frames.shape[-1]
    second = values.second_remainder * norm_bound(values.inverse_root)[:, None, :, None] / radii
    value_margin = rounding_margin(form.flatten(-2).norm(dim=-1).unsqueeze(-1), share)
    return DisplacementTables(
        stretch=stretch,
        second_stretch=second_stretch,
        crossed=crossed,
        second_remainder=rounded_up_float32(padded(second + margin)),
        value_remainder=rounded_up_float32(padded(values.value_remainder[:, :, :-1] / radii**2)) + value_margin,
        maps=tuple(_maps(values, t) for t in range(values.value.shape[1] - 1)),
    )


def _maps(values: ValueExpansion, t: int) -> Tensor:
    """[P, T-1-t, D + 1, F - 1]."""
    look_at_clock()
    frames = values.sensitivity[:, t, t:-1] @ values.metric_root[:, None, t]
    half = frames.mT @ values.hessian[:, t:-1] @ frames / 2
    paths = torch.cat((frames, packed(values.second_sensitivity[:, t, t:-1] / 2)), dim=-1)
    forms = torch.nn.functional.pad(packed(half), (frames.shape[-1], 0))
    return to_float32(torch.cat((values.inverse_root[:, t:-1] @ paths, forms.unsqueeze(2)), dim=2))


def follow_recorded(
    tables: DisplacementTables,
    index: RadiusIndex,
    which: ProblemIndex,
    steps: slice,
    y: Tensor,
    norm: Tensor,
) -> Displaced:
    """(T49): displacements y [P, D, M] of norms [P, M] at step t = steps.start, followed to `steps`, t among them."""
    t, radius, power = steps.start, index(norm), norm.unsqueeze(1)
    maps = tables.maps[t][which, : steps.stop - t]
    led = (maps.flatten(1, 2) @ monomials(y)[:, 1:]).unflatten(1, maps.shape[1:3])
    return Displaced(
        y=led[:, :, :-1],
        off=looked_up(tables.second_remainder[which, t, steps], radius) * power,
        first_order_term=led[:, :, -1],
        remainder=looked_up(tables.value_remainder[which, t, steps], radius) * power**2,
    )
