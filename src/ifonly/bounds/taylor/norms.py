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
import torch.nn.functional as F
from torch import Tensor

from ifonly.bounds.taylor.polynomials import packed
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


def framed_terms(size: int) -> int:
    """Terms per sum in float32 products of third derivatives of D features and their frames: of D entries up to three
    times or, of few features, of packed pairs."""
    return max(3 * size, size * (size + 1) // 2 if size <= PACKED_SIZE else 0)


def largest_product_margin(size: int, units: int) -> float:
    """The largest (T54) that is added to any norm in a model of D features and so many hidden units in a layer: of many
    features, sums run over D^2 entries in a Gram matrix, too, and over all units."""
    single = second_derivatives_dtype(size) == torch.float32
    return product_margin(max(framed_terms(size), size**2 if single else 0, units if single else 0))


@dataclass(frozen=True)
class FramedTrilinear:
    """Bounds on trilinear maps S [N, O, D, D, D], symmetric in their arguments, with frames [N, S, D, D] in these."""

    plain: Tensor  # [N, 1, 1], |S|_F
    once: Tensor  # [N, S, 1], |S[F., ., .]|_F
    twice: Tensor  # [N, S, 1], |S[F., F., .]|_F
    thrice: Tensor  # [N, S, 1], |S[F., F., F.]|, the norm of the map from one argument to the rest

    def mapped(self, change: Callable[[Tensor], Tensor]) -> FramedTrilinear:
        """With `change` applied to every array."""
        return FramedTrilinear(change(self.plain), change(self.once), change(self.twice), change(self.thrice))

    def mixed(self, radii: Tensor, first_remainder: Tensor) -> Tensor:
        """(T12): bounds [N, S, G] on |S[z, z, z] - S[F y', F y', F y']| for z = F y' + R1, |y'| <= radii [G] and
        |R1| <= first_remainder [N, S, G]."""
        crossed = self.twice * radii**2 + self.once * radii * first_remainder
        return 3 * first_remainder * crossed + self.plain * first_remainder**3

    def bound(self, radii: Tensor, first_remainder: Tensor) -> Tensor:
        """Bounds [N, S, G] on |S[z, z, z]|, for the same z: the first two terms of (T14)."""
        return self.thrice * radii**3 + self.mixed(radii, first_remainder)


@dataclass(frozen=True)
class Grams:
    """Gram matrices of trilinear maps as maps from one argument to the rest, float64: all norms follow from them."""

    plain: Tensor  # [N, D, D], of S
    framed: Tensor  # [N, S, D, D], of S[., F., F.]
    error: float = 0.0  # by which share of its trace a gram is off at most (T54)

    @classmethod
    def of_steps(cls, steps: Sequence[Grams], several: int) -> Grams:
        """Those of C steps, each with its first frames of so many, together [N * C, ...]; zero for the other frames."""
        framed = [F.pad(one.framed, (0, 0, 0, 0, 0, several - one.framed.shape[1])) for one in steps]
        plain = torch.stack([one.plain for one in steps], dim=1)
        return cls(plain.flatten(0, 1), torch.stack(framed, dim=1).flatten(0, 1), steps[0].error)

    def bounds(self, frames: Tensor) -> FramedTrilinear:
        """The bounds for frames [N, S, D, D], with (T54) for framed maps, which are products in float32."""
        size, square = frames.shape[-1], frames @ frames.mT
        plain, framed, lengths = trace(self.plain).unsqueeze(1), trace(self.framed), trace(square).sqrt()
        eye = torch.eye(size, dtype=frames.dtype, device=frames.device)
        # The margin also keeps what rounding leaves of small grams positive.
        thrice = frames.mT @ (self.framed + (self.error + ROUNDING) * framed.unsqueeze(-1) * eye) @ frames
        once = (self.plain.unsqueeze(1) * square).sum((-2, -1)).unsqueeze(-1) + self.error * plain * lengths**2
        squares = (once, framed * (1 + self.error), eigenvalue_bound(thrice).unsqueeze(-1))
        plain = (plain * (1 + self.error)).sqrt() * (1 + product_margin(0))
        margin = product_margin(framed_terms(size))
        once, twice, thrice = (
            one.clamp(min=0).sqrt() + margin * plain * lengths**power for power, one in enumerate(squares, 1)
        )
        return FramedTrilinear(plain, once, twice, thrice)


def framed_trilinear(tensors: Tensor, frames: Tensor) -> tuple[Tensor, Grams]:
    """S[F., F., F.] [N, S, D, D, D, O] and the grams, for maps S [N, O, D, D, D] and frames [N, S, D, D]; products in
    the precision of the maps."""
    twice, flat = _framed_twice(tensors, frames)
    plain, framed = tensors.flatten(1, 3).double(), twice.double()
    thrice = contract(twice, flat).view(*frames.shape, frames.shape[-1], -1)
    return thrice, Grams(plain.mT @ plain, (framed.mT @ framed).view_as(frames))


def packed_framed_trilinear(entries: Tensor, frames: Tensor) -> Grams:
    """The grams for maps of which packed entries [N, O, E] are given; products in the precision of these."""
    count, size = len(entries), frames.shape[-1]
    if size > PACKED_SIZE:
        return _grams_by_outputs(entries, frames)
    i, j = pairs(size, frames.device)[0]
    places = triples(size, frames.device)[1].view(size, size, size)[:, i, j]  # of one argument and a pair
    beside = spread(entries, places.flatten()).view(count, -1, size, len(i)).transpose(1, 2)  # [N, D, O, E]
    maps = _packed_maps(frames.flatten(0, 1).to(entries)).unflatten(0, (count, -1))
    framed = (beside.flatten(1, 2).unsqueeze(1) @ maps).view(*frames.shape[:3], -1).double()  # [N, S, D, O * E]
    plain = (beside * entry_weights(size, frames.device).to(entries)).flatten(2).double()
    return Grams(plain @ plain.mT, framed @ framed.mT)


def _grams_by_outputs(entries: Tensor, frames: Tensor) -> Grams:
    """The same of many features: output by output, so that temporary arrays fit a processor's cache."""
    count, size = len(entries), frames.shape[-1]
    places = triples(size, frames.device)[1]
    plain, framed = frames.new_zeros(count, size, size), torch.zeros_like(frames)
    for one in entries.split(1, dim=1):
        tensors = spread(one, places).view(count, 1, size, size, size)
        flat, twice = tensors.flatten(1, 3), _framed_twice(tensors, frames)[0]
        plain += flat.mT @ flat
        framed += (twice.mT @ twice).view_as(frames)
    # Each entry sums D^2 products per output; those that are not normal in float32 may all be zero.
    lost = torch.eye(size).to(plain) * entries.shape[1] * size**3 * torch.finfo(torch.float32).tiny
    return Grams(plain + lost, framed + lost, error=product_margin(size**2))


def _framed_twice(tensors: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
    """S[., F., F.] [N * S, D * D * O, D] for maps S [N, O, D, D, D] and frames [N, S, D, D], in the precision of the
    maps; and the frames [N * S, D, D] in it."""
    count, several, size, _ = frames.shape
    single = frames.to(tensors)
    once = contract(tensors.flatten(1, 3), single.transpose(2, 3).reshape(count, -1, size).mT)
    flat = single.flatten(0, 1)
    return contract(once.view(count * several, -1, size), flat).view(count * several, -1, size), flat


def contract(tensors: Tensor, frames: Tensor) -> Tensor:
    """Tensors [N, X, D] times frames [N, D, E], the new axis first: [N, E, X].

    One product of long rows is faster than many of short ones. A second call contracts what was the last axis but one,
    without copies.
    """
    return frames.mT @ tensors.mT


SQUARED = 1e-12
"""Margin for float64 rounding in products with F F^T, relative to the product of the sizes of their factors: what is
left of them where F is small in most directions may be much less."""

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
    framed = (forms.flatten(0, 1).unflatten(0, (groups, -1)).float() @ _packed_maps(frames.float())).view(
        len(forms), -1
    )
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
    """The maps [B, E, E] from packed entries of S to those of F^T S F, times `entry_weights`, of frames [B, D, D]."""
    size = frames.shape[-1]
    i, j = pairs(size, frames.device)[0]
    left, right = frames.index_select(1, i), frames.index_select(1, j)  # [B, E, D]
    maps = left.index_select(2, i) * right.index_select(2, j)
    maps.addcmul_(left.index_select(2, j), right.index_select(2, i))
    # An entry i < j of S contributes both terms, one with i = j half of them.
    weights = entry_weights(size, frames.device).to(frames)
    return maps * (weights.square() / 2).unsqueeze(1) * weights


def quartic_seminorms(sizes: Tensor, rows: Tensor, frames: Tensor) -> Tensor:
    """q(F) of (T13) [N, K, S, 1]: bounds on the fourth root of the sum over units h of sizes_h (w_h.F y)^4 over unit y,
    for K times sizes [N, K, H], w_h in the columns of `rows` [D, H] and frames [N, S, D, D]."""
    i, j = pairs(len(rows), rows.device)[0]
    products, square = rows[i] * rows[j], frames @ frames.mT  # w w^T, packed [E, H], and F F^T
    lengths = packed(square) @ products  # |F^T w_h|^2
    lengths = lengths.clamp_(min=0) + SQUARED * trace(square) * rows.square().sum(0)
    forms = unpacked((sizes.unsqueeze(2) * lengths.unsqueeze(1)) @ products.mT, len(rows))
    framed = frames.unsqueeze(1).mT @ forms @ frames.unsqueeze(1)
    framed.diagonal(dim1=-2, dim2=-1).add_(SQUARED * trace(forms) * trace(square).unsqueeze(1))
    return eigenvalue_bound(framed).unsqueeze(-1).pow(0.25) * (1 + ROUNDING)


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
    """Traces [..., 1]: upper bounds on the largest eigenvalues of positive semidefinite matrices [..., D, D]."""
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
