"""Upper bounds on norms of linear, bilinear and trilinear maps, by products and sums alone: many small maps at once.

A *frame* is a matrix F [D, D] whose columns span the displacements of interest: a map "with a frame in an argument" is
S[F., ., .]. Results are float64; where factors are multiplied in float32, (T54) is added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from ifonly.models.layers import ROUNDING
from ifonly.models.smooth import eigenvalue_bound, entry_weights, pairs, spread, triples, unpacked
from ifonly.problem import array_scale

LARGE = 1e100
"""Stands for infinity in float64 tables: zero times this is zero, and times any distance it still prunes nothing."""

REMAINDER_MARGIN = 1e-9
"""Relative margin for float64 rounding in sums of many remainder bounds."""

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def full_precision_float32_matmul(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """Run `function` with float32 matrix products in full float32, whatever the caller set torch to (TF32, bfloat16):
    the margins (T53) and (T54) are for float32."""

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


def product_margin(terms: int) -> float:
    """(T54): by which share of the product of their Frobenius norms a chain of float32 products with so many terms per
    sum differs from the exact one, at most."""
    return (terms + 16) * 2.0**-22


def second_derivatives_dtype(size: int) -> torch.dtype:
    """In what second derivatives of changes are multiplied in models of D features: where they are many, in float32."""
    return torch.float32 if size > PACKED_SIZE else torch.float64


def largest_product_margin(size: int, units: int) -> float:
    """The largest (T54) that is added to any norm in a model of D features and so many hidden units in a layer: sums
    run over D^3 entries of third derivatives, three times D entries of frames, or all units."""
    single = second_derivatives_dtype(size) == torch.float32
    return product_margin(max(size**3, 3 * size, units if single else 0))


@dataclass(frozen=True)
class FramedTrilinear:
    """Bounds on trilinear maps S [N, O, D, D, D], symmetric in their arguments, with frames [N, S, D, D] in these."""

    plain: Tensor  # [N, 1, 1], |S|_F
    once: Tensor  # [N, S, 1], |S[F., ., .]|_F
    twice: Tensor  # [N, S, 1], |S[F., F., .]|_F
    thrice: Tensor  # [N, S, 1], |S[F., F., F.]|, the norm of the map from one argument to the rest

    def mixed(self, radii: Tensor, first_remainder: Tensor) -> Tensor:
        """(T12): bounds [N, S, G] on |S[z, z, z] - S[F y', F y', F y']| for z = F y' + R1, |y'| <= radii [G] and
        |R1| <= first_remainder [N, S, G]."""
        crossed = self.twice * radii**2 + self.once * radii * first_remainder
        return 3 * first_remainder * crossed + self.plain * first_remainder**3

    def bound(self, radii: Tensor, first_remainder: Tensor) -> Tensor:
        """Bounds [N, S, G] on |S[z, z, z]|, for the same z: the first two terms of (T14)."""
        return self.thrice * radii**3 + self.mixed(radii, first_remainder)


@dataclass(frozen=True)
class _Squares:
    """Squares of the norms of `FramedTrilinear` that were computed, of some of the outputs, float64."""

    plain: Tensor  # [N, 1]
    once: Tensor  # [N * S, 1]
    twice: Tensor  # [N * S, 1]
    gram: Tensor  # [N * S, D, D], of the map from one argument to the rest


def framed_trilinear(tensors: Tensor, frames: Tensor) -> tuple[Tensor, FramedTrilinear]:
    """S[F., F., F.] [N, S, D, D, D, O] and the bounds, for maps S [N, O, D, D, D] and frames [N, S, D, D].

    Products in the precision of the arguments, float64 or float32; bounds in float64, with (T54) added.
    """
    thrice, squares = _framed(tensors, frames)
    return thrice.view(*frames.shape, frames.shape[-1], -1), _bounds([squares], frames, tensors.shape[1])


def packed_framed_trilinear(entries: Tensor, frames: Tensor) -> FramedTrilinear:
    """The bounds for maps of which packed entries [N, O, E] are given, so few outputs at a time that temporary arrays
    fit a processor's cache."""
    size = frames.shape[-1]
    places = triples(size, frames.device)[1]
    together = max(1, CACHED * array_scale(frames.device) // (frames.shape[0] * frames.shape[1] * size**3))
    parts = [
        _framed(spread(some, places).unflatten(2, (size, size, size)), frames)[1]
        for some in entries.split(together, dim=1)
    ]
    return _bounds(parts, frames, entries.shape[1])


def _framed(tensors: Tensor, frames: Tensor) -> tuple[Tensor, _Squares]:
    """S[F., F., F.] [N * S, D, D * D * O] and squares of norms, for maps S [N, O, D, D, D] and frames [N, S, D, D]."""
    count, size, flat = len(tensors), frames.shape[-1], frames.flatten(0, 1)
    once = contract(tensors.flatten(1, 3), frames.transpose(2, 3).reshape(count, -1, size).mT)
    once = once.view(len(flat), -1, size)
    twice = contract(once, flat).view_as(once)
    thrice = contract(twice, flat)
    plain, *framed = (frobenius(part).square() for part in (tensors, once, twice))
    return thrice, _Squares(plain, framed[0], framed[1], (thrice @ thrice.mT).double())


def _bounds(parts: Sequence[_Squares], frames: Tensor, outputs: int) -> FramedTrilinear:
    """The bounds for maps whose outputs come in parts."""
    count, several, size = frames.shape[:3]
    gram = torch.stack([part.gram for part in parts]).sum(0)
    bound = eigenvalue_bound(gram).unsqueeze(-1) + product_margin(size**2 * outputs) * trace(gram)
    once, twice, plain = (
        torch.stack([getattr(part, name) for part in parts]).sum(0).sqrt() for name in ("once", "twice", "plain")
    )
    plain = plain.unsqueeze(1) * (1 + product_margin(0))
    lengths = torch.linalg.vector_norm(frames.double(), dim=(2, 3)).unsqueeze(-1)
    margin = product_margin(3 * size)  # (T54), for up to three products of D terms
    framed = (norm.view(count, several, 1) for norm in (once, twice, bound.sqrt()))
    return FramedTrilinear(plain, *(norm + margin * plain * lengths**power for power, norm in enumerate(framed, 1)))


def contract(tensors: Tensor, frames: Tensor) -> Tensor:
    """Tensors [N, X, D] times frames [N, D, E], the new axis first: [N, E, X].

    One product of long rows is faster than many of short ones. A second call contracts what was the last axis but one,
    without copies.
    """
    return frames.mT @ tensors.mT


UNDERFLOW = 2e-18
"""More than the length of `SUMMED` numbers whose squares are not normal in float32: 12 times 2^-63."""

CACHED = 2**17
"""Numbers in temporary arrays that a processor's cache holds."""

PACKED_SIZE = 12
"""Numbers of features up to which the map between packed forms is small."""


def framed_form_norm(forms: Tensor, frames: Tensor) -> Tensor:
    """|S[F., F.]|_F [N, 1], over all outputs of bilinear maps S [N, O, E] given by their packed entries i <= j.

    Maps come in groups of equal size, each with one of the frames [B, D, D].
    """
    (groups, size, _), count = frames.shape, len(forms) // len(frames)
    # Frames have the square of their length for every form that they are put around.
    square = frames.square().sum((1, 2)).repeat_interleave(count).unsqueeze(1)
    if size > PACKED_SIZE:
        framed = torch.cat([_framed_forms(*one) for one in zip(forms.split(count), frames, strict=True)])
        return framed + product_margin(2 * size) * frobenius(forms) * 2**0.5 * square
    framed = (forms.flatten(0, 1).unflatten(0, (groups, -1)).float() @ _packed_maps(frames)).view(len(forms), -1)
    # float32 products, with (T54): over all entries a packed map is at most twice as long as its frame squared.
    return frobenius(framed) + product_margin(forms.shape[-1]) * frobenius(forms) * square


def _framed_forms(forms: Tensor, frame: Tensor) -> Tensor:
    """|S[F., F.]|_F [N, 1] of maps S [N, O, E] in one frame [D, D], in float32 without its margin, so few at a time
    that they fit a processor's cache."""
    size, single = len(frame), frame.float()
    together = max(1, CACHED * array_scale(frame.device) // (forms.shape[1] * size**2))
    framed = []
    for some in forms.float().split(together):
        once = (unpacked(some, size).view(-1, size) @ single).view(-1, size, size)
        framed.append(frobenius((single.mT @ once).view(len(some), -1)))
    return torch.cat(framed)


def _packed_maps(frames: Tensor) -> Tensor:
    """The maps [B, E, E] from packed entries of S to those of F^T S F, times `entry_weights`; float32."""
    size = frames.shape[-1]
    i, j = pairs(size, frames.device)[0]
    single = frames.float()
    left, right = single.index_select(1, i), single.index_select(1, j)  # [B, E, D]
    maps = left.index_select(2, i) * right.index_select(2, j)
    maps.addcmul_(left.index_select(2, j), right.index_select(2, i))
    # An entry i < j of S contributes both terms, one with i = j half of them.
    weights = entry_weights(size, frames.device).float()
    return maps * (weights.square() / 2).unsqueeze(1) * weights


def quartic_seminorm(sizes: Tensor, rows: Tensor) -> Tensor:
    """q(F) of (T13) [..., 1]: bounds on the fourth root of the sum over units h of sizes_h (u_h.y)^4 over unit y, for
    sizes [..., H] and u_h in the columns of `rows` [..., D, H]."""
    weighted = rows * (sizes * rows.square().sum(-2)).unsqueeze(-2)
    return eigenvalue_bound(weighted @ rows.mT).unsqueeze(-1).pow(0.25) * (1 + ROUNDING)


def framed_eigenvalue_bound(form: Tensor, square: Tensor) -> Tensor:
    """p of (T15) [..., 1]: a bound on the largest eigenvalue of F^T Q F, for forms Q and squares F F^T [..., D, D]:
    the eighth root of the trace of (Q F F^T)^8, which has the same eigenvalues."""
    product = form @ square
    size = product.diagonal(dim1=-2, dim2=-1).sum(-1).clamp(min=1e-300)
    power = product / size[..., None, None]
    for _ in range(2):
        power = power @ power
    eighth = (power * power.mT).sum((-2, -1)).clamp(min=0) * (1 + REMAINDER_MARGIN)
    return (size * eighth.pow(1 / 8)).unsqueeze(-1)


def capped(bounds: Tensor) -> Tensor:
    """Overflow, and NaN that came of it, become LARGE: unknown."""
    return bounds.nan_to_num(nan=LARGE, posinf=LARGE).clamp(max=LARGE)


def trace(matrices: Tensor) -> Tensor:
    """Traces [N, 1]: upper bounds on the largest eigenvalues of positive semidefinite matrices [N, D, D]."""
    return matrices.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True)


SUMMED = 128
"""Squares that are summed in float32, at most, of maps in float32 of MANY numbers; the sums are added up in float64."""

MANY = 1000


def frobenius(maps: Tensor) -> Tensor:
    """Frobenius norms [N, 1] of maps [N, ...], float64: upper bounds on their operator norms."""
    flat, margin = maps.flatten(1), ROUNDING
    if flat.dtype == torch.float32 and flat.shape[1] > MANY:
        # Many times faster than converting every number; what underflows is covered by the constant.
        summed = next(terms for terms in range(SUMMED, 0, -1) if flat.shape[1] % terms == 0)
        flat = torch.linalg.vector_norm(flat.unflatten(1, (-1, summed)), dim=2).double() + UNDERFLOW
        margin = product_margin(summed)  # (T54)
    norms: Tensor = torch.linalg.vector_norm(flat, dim=1, keepdim=True, dtype=torch.float64)
    return norms * (1 + margin)
