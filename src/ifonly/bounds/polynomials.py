"""Quadratic polynomials of many states at once, and tables that are looked up by how far a state is away.

States stand in columns [..., D, M]: then all that is done to single numbers runs along M.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ifonly.bounds.limits import LARGE

TOO_LARGE = 1e30
"""In single precision, what is not less is as good as infinite."""

ROUNDING = 1e-5
"""Relative room for what single precision does to a number, and to sums of few of them."""


def features(y: Tensor) -> Tensor:
    """1, y_i and y_i y_j, i <= j, [..., F, M] of offsets [..., D, M]."""
    i, j = torch.triu_indices(y.shape[-2], y.shape[-2], device=y.device)
    products = y.index_select(-2, i) * y.index_select(-2, j)
    return torch.cat((torch.ones_like(y[..., :1, :]), y, products), dim=-2)


def quadratic(value: Tensor, gradient: Tensor, form: Tensor) -> Tensor:
    """Coefficients [..., F] of value [...] + gradient [..., D] . y + y . form [..., D, D] y, for a symmetric form."""
    return torch.cat((value.unsqueeze(-1), gradient, packed(form)), dim=-1)


def packed(form: Tensor) -> Tensor:
    """Coefficients [..., D (D + 1) / 2] of y_i y_j, i <= j, in y . form y."""
    size = form.shape[-1]
    i, j = torch.triu_indices(size, size, device=form.device)
    twice = torch.where(i == j, 1.0, 2.0).to(form)
    entries: Tensor = form[..., i, j]
    return entries * twice


def padded(limits: Tensor) -> Tensor:
    """With LARGE for what lies beyond the last radius, the last axis."""
    limits = limits.clamp(max=LARGE)
    return torch.cat((limits, torch.full_like(limits[..., :1], LARGE)), dim=-1)


def looked_up(table: Tensor, place: Tensor) -> Tensor:
    """Entries [..., X, M] of tables [..., X, G] at places [..., M]."""
    return table.gather(-1, place.unsqueeze(-2).expand(*table.shape[:-1], place.shape[-1]))


def single(tables: Tensor) -> Tensor:
    """In single precision. What LARGE stands for is infinite there: it makes all it touches unknown."""
    return tables.masked_fill(tables >= TOO_LARGE, torch.inf).float()


def single_limits(tables: Tensor) -> Tensor:
    """Limits, none of them negative, in single precision: rounded up."""
    return single(tables * (1 + ROUNDING))


def room_for(sizes: Tensor, share: float) -> Tensor:
    """A share of the sizes of coefficients; infinite where single precision cannot hold these, at most twice that."""
    return single_limits(torch.where(sizes < TOO_LARGE / 2, share * sizes, torch.inf))


def share_rounded(count: int) -> float:
    """By which share of the sum of their sizes single precision changes a sum of products at most, four times."""
    return count * 2.0**-22
