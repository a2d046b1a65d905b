"""Quadratic polynomials at many states at once, in float32 with margins for its rounding.

States stand in columns [..., D, M]: then all element-wise work runs along M.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ifonly.models.smooth import pairs

FLOAT32_LARGE = 1e30
"""From here on float32 tables hold infinity: sums and products of a few smaller numbers do not overflow."""

FLOAT32_MARGIN = 1e-5
"""(T55): relative margin for rounding a number to float32, and for sums of a few such numbers."""


def monomials(y: Tensor) -> Tensor:
    """1, y_i and y_i y_j, i <= j, [..., F, M] of displacements [..., D, M]; F = (D + 1) (D + 2) / 2."""
    i, j = pairs(y.shape[-2], y.device)[0]
    products = y.index_select(-2, i) * y.index_select(-2, j)
    return torch.cat((torch.ones_like(y[..., :1, :]), y, products), dim=-2)


def quadratic(value: Tensor, gradient: Tensor, form: Tensor) -> Tensor:
    """Coefficients [..., F] of value [...] + gradient [..., D] . y + y . form [..., D, D] y, for a symmetric form."""
    return torch.cat((value.unsqueeze(-1), gradient, packed(form)), dim=-1)


def packed(form: Tensor) -> Tensor:
    """Coefficients [..., D (D + 1) / 2] of y_i y_j, i <= j, in y . form y."""
    size = form.shape[-1]
    i, j = pairs(size, form.device)[0]
    twice = torch.where(i == j, 1.0, 2.0).to(form)
    entries: Tensor = form[..., i, j]
    return entries * twice


def to_float32(tables: Tensor) -> Tensor:
    """Rounded to float32; what is not below FLOAT32_LARGE becomes infinity, which makes all it touches unknown."""
    return tables.masked_fill(tables >= FLOAT32_LARGE, torch.inf).float()


def rounded_up_float32(bounds: Tensor) -> Tensor:
    """Nonnegative bounds as float32, enlarged by (T55) so that rounding never lowers one."""
    return to_float32(bounds * (1 + FLOAT32_MARGIN))


def sum_margin(terms: int) -> float:
    """(T53): by which share of the sum of absolute terms a float32 sum of so many products differs from the exact one,
    at most; four times what rounding does."""
    return terms * 2.0**-22


def rounding_margin(sizes: Tensor, share: float) -> Tensor:
    """That share of the sizes of coefficients, rounded up to float32; infinite where float32 cannot hold them."""
    return rounded_up_float32(torch.where(sizes < FLOAT32_LARGE / 2, share * sizes, torch.inf))
