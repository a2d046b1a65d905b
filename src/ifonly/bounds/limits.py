"""Limits of linear, bilinear and trilinear maps, by products and sums alone: many small matrices at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from ifonly.models.smooth import LIMITS

LARGE = 1e100
"""Stands for infinity: zero times this is zero, and times any distance between states it is still beyond all use."""


Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def single_means_single(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Whatever a caller set torch to: products of single-precision numbers are taken in single precision, not less."""

    @wraps(function)
    def careful(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
        before = torch.get_float32_matmul_precision()
        if before == "highest":
            return function(*args, **kwargs)
        torch.set_float32_matmul_precision("highest")
        try:
            return function(*args, **kwargs)
        finally:
            torch.set_float32_matmul_precision(before)

    return careful


@dataclass(frozen=True)
class Scale:
    """A network n under softplus, times the noise u: what the top's own bends add to third derivatives."""

    limits: tuple[float, float, float]
    norm: Tensor  # [N, 1], of n's Jacobian
    bent: Tensor  # [N, 1], of its second derivatives
    largest: Tensor  # [N, 1], of |u_i|
    weighted: Tensor  # [N, 1], length of gradient * u

    def outer(self, reach: Tensor) -> Tensor:
        """Limits [N, G] within `reach`, for noise of length 1."""
        n1, n2, n3 = self.limits
        first = (self.norm + reach * self.bent + reach**2 / 2 * n3).clamp(max=n1)
        second = (self.bent + reach * n3).clamp(max=n2)
        _, s2, s3 = LIMITS["softplus"]
        return s3 * first**3 + 3 * s2 * first * second


def along_square(tensors: Tensor, squares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Frobenius norms [P, C, A] of bilinear maps H [P, O, D, D]: of H[F., F.], H[F., .] and H, for squares S = F F^T
    [P, C, A, D, D]; of the first it is sum_o tr(H_o S H_o S), a quadratic form of the entries of S."""
    size, flat = tensors.shape[-1], squares.flatten(1, 2).flatten(2)  # [P, C*A, D*D]
    quartic = torch.einsum("poij,pokl->pjkli", tensors, tensors).flatten(3).flatten(1, 2)
    twice = ((flat @ quartic) * flat).sum(-1)  # S is symmetric
    whole = tensors.square().sum((1, 2, 3)).unsqueeze(1)
    # What rounding can take away where large numbers cancel.
    twice = twice.clamp(min=0) + 1e-13 * whole * flat[..., :: size + 1].sum(-1) ** 2
    gram = torch.einsum("poij,poik->pjk", tensors, tensors).flatten(1).unsqueeze(-1)
    once = (flat @ gram).squeeze(-1).clamp(min=0) + 1e-13 * whole * flat[..., :: size + 1].sum(-1)
    shape = squares.shape[:3]
    return twice.sqrt().view(shape), once.sqrt().view(shape), whole.sqrt().unsqueeze(-1).expand(shape)


def form_limit(form: Tensor, square: Tensor) -> Tensor:
    """Limits [N, 1] of y.F^T form F y over unit y, for squares F F^T: the eighth root of an eighth power's trace."""
    product = form.to(square) @ square
    size = product.diagonal(dim1=1, dim2=2).sum(1).clamp(min=1e-300)
    power = product / size[:, None, None]
    for _ in range(2):
        power = power @ power
    return size.unsqueeze(1) * inner_product(power, power.mT).pow(1 / 8)


def growth(rows: Tensor, bent: Tensor, third: float, near: Tensor, slope: Tensor, noise: Tensor) -> Tensor:
    """By how much the slopes of softplus, times the noise, can differ [N, O] within `near` [N, 1] of the states.

    That is the logistic function, which changes by a factor of at most exp(d) over a distance d, and is below 1;
    `rows` [N, O] say how steep each output is, `bent` and `third` how far the network bends.
    """
    moved = (near * (rows + near * bent / 2 + near**2 * third / 6)).clamp(max=700.0)
    return torch.minimum(torch.expm1(moved) * slope.abs(), noise.abs())


def inner_product(one: Tensor, other: Tensor) -> Tensor:
    """Sums of products [N, 1] of matrices [N, D, D], slightly enlarged and not below zero."""
    return (one * other).sum((1, 2)).clamp(min=0).unsqueeze(1) * (1 + 1e-9)


def capped(limits: Tensor) -> Tensor:
    """Overflow, and what overflow made undefined, is as good as unknown."""
    return limits.nan_to_num(nan=LARGE, posinf=LARGE).clamp(max=LARGE)


def trace(matrices: Tensor) -> Tensor:
    """Upper limits [N, 1] of the largest eigenvalues of positive matrices."""
    return matrices.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True)


def frobenius(matrices: Tensor) -> Tensor:
    """Upper limits [N, 1] of the norms of linear and bilinear maps."""
    norms: Tensor = torch.linalg.vector_norm(matrices.flatten(1), dim=1, keepdim=True)
    return norms * (1 + 1e-12)
