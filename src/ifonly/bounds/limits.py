"""Limits of linear, bilinear and trilinear maps, by products and sums alone: many small matrices at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from ifonly.models.smooth import LIMITS, entry_lengths, pairs, positive_limit, unpacked

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
    """A network n under softplus, times the noise u: limits of its third and fourth derivatives."""

    limits: tuple[float, float, float, float]
    rough: bool  # whether the third derivatives are not known
    norm: Tensor  # [N, 1], of n's Jacobian
    bent: Tensor  # [N, 1], of its second derivatives
    largest: Tensor  # [N, 1], of |u_i|
    weighted: Tensor  # [N, 1], length of gradient * u

    def changed(self, change: Callable[[Tensor], Tensor]) -> Scale:
        """With each table changed, some of its rows chosen, say."""
        tables = (self.norm, self.bent, self.largest, self.weighted)
        return Scale(self.limits, self.rough, *(change(table) for table in tables))

    def third(self, reach: Tensor) -> Tensor:
        """Limits [N, G] of third derivatives within `reach`, for noise of length 1."""
        first, second, third = self._inner(reach)
        s1, s2, s3, _ = LIMITS["softplus"]
        return s3 * first**3 + 3 * s2 * first * second + s1 * third

    def fourth(self, reach: Tensor) -> Tensor:
        """Limits [N, G] of fourth derivatives."""
        first, second, third = self._inner(reach)
        s1, s2, s3, s4 = LIMITS["softplus"]
        bent = 3 * second**2 + 4 * first * third
        return s4 * first**4 + 6 * s3 * first**2 * second + s2 * bent + s1 * self.limits[3]

    def _inner(self, reach: Tensor) -> tuple[Tensor, Tensor, float]:
        n1, n2, n3, _ = self.limits
        first = (self.norm + reach * self.bent + reach**2 / 2 * n3).clamp(max=n1)
        return first, (self.bent + reach * n3).clamp(max=n2), n3


@dataclass(frozen=True)
class Turned:
    """Trilinear maps T [N, O, D, D, D], symmetric in the last three, with frames [N, S, D, D] in their places."""

    never: Tensor  # [N, 1, 1], limits of T itself, ...
    once: Tensor  # [N, S, 1], ... with a frame in one place, ...
    twice: Tensor  # [N, S, 1], ... in two ...
    thrice: Tensor  # [N, S, 1], ... and in all three
    tensors: Tensor  # [N, S, D, D, D, O], with frames in all places

    @classmethod
    def of(cls, tensors: Tensor, frames: Tensor) -> Turned:
        """In double or single precision."""
        count, outputs, size = tensors.shape[:3]
        several = frames.shape[1]
        flat = frames.flatten(0, 1)
        once = turned(tensors.flatten(1, 3), frames.transpose(2, 3).reshape(count, -1, size).mT)
        once = once.view(len(flat), -1, size)
        twice = turned(once, flat).view_as(once)
        thrice = turned(twice, flat)
        gram = (thrice @ thrice.mT).double()
        limit = positive_limit(gram).unsqueeze(-1) + rounding(thrice.shape[-1]) * trace(gram)
        limit = limit.sqrt().view(count, several, 1)
        never = frobenius(tensors).unsqueeze(1) * (1 + rounding(0))
        lengths = torch.linalg.vector_norm(frames.double(), dim=(2, 3)).unsqueeze(-1)
        limits = (*(frobenius(part).view(count, several, 1) for part in (once, twice)), limit)
        # Room for what single precision rounds in up to three products.
        room = rounding(3 * size)
        rounded = [part + room * never * lengths**power for power, part in enumerate(limits, start=1)]
        thrice = thrice.view(count, several, size, size, size, outputs)
        return cls(never, rounded[0], rounded[1], rounded[2], thrice)

    def mixed(self, radii: Tensor, off: Tensor) -> Tensor:
        """Limits [N, S, G] of T along z, three times, less T along z's first part: z is a frame times a vector as long
        as the radius, plus one as long as `off` [N, S, G]."""
        return 3 * off * (self.twice * radii**2 + self.once * radii * off) + self.never * off**3

    def limit(self, radii: Tensor, off: Tensor) -> Tensor:
        """Limits [N, S, G] of T along z, three times."""
        return self.thrice * radii**3 + self.mixed(radii, off)


def turned(tensors: Tensor, frames: Tensor) -> Tensor:
    """Tensors [N, X, D] times frames [N, D, E], the new axis first: [N, E, X].

    Products of many short rows are slow. Done again, this comes to what was the last axis but one, without copies.
    """
    return frames.mT @ tensors.mT


MAPPED = 12
"""Sizes up to which the map from the entries of a form to those of another is small."""


def lengths_in_frames(forms: Tensor, frames: Tensor) -> Tensor:
    """Upper limits [N, 1] of the lengths of F^T S F, over all entries of several forms S each.

    Forms [N, O, E] are given by their entries i <= j; they come in groups, each with one of the frames F [B, D, D].
    """
    size, groups = frames.shape[-1], len(frames)
    if size > MAPPED:
        full = unpacked(forms, size).view(groups, -1, size)
        once = turned(full, frames).reshape(groups, -1, size)  # [B, D * (N / B * O), D]
        twice = turned(once, frames).view(groups, size * size, len(forms) // groups, -1)
        return frobenius(twice.transpose(1, 2).flatten(0, 1))
    framed = (forms.flatten(0, 1).unflatten(0, (groups, -1)).float() @ _entry_maps(frames)).view(len(forms), -1)
    # In single precision: over all entries a map is at most twice as long as the square of its frame.
    square = frames.square().sum((1, 2)).repeat_interleave(len(forms) // groups).unsqueeze(1)
    return frobenius(framed) + rounding(forms.shape[-1]) * frobenius(forms) * square


def _entry_maps(frames: Tensor) -> Tensor:
    """From entries i <= j of S to those of F^T S F [B, E, E], multiplied by how much they count in its length; in
    single precision."""
    size = frames.shape[-1]
    i, j = pairs(size, frames.device)[0]
    single = frames.float()
    left, right = single.index_select(1, i), single.index_select(1, j)  # [B, E, D]
    maps = left.index_select(2, i) * right.index_select(2, j)
    maps.addcmul_(left.index_select(2, j), right.index_select(2, i))
    # Both terms of an entry i < j; of one with i = j half of them.
    lengths = entry_lengths(size, frames.device).float()
    return maps * (lengths.square() / 2).unsqueeze(1) * lengths


def rounding(terms: int) -> float:
    """By which share of the product of their lengths sums of so many products change in single precision, at most."""
    return (terms + 16) * 2.0**-22


def quartic_limit(sizes: Tensor, units: Tensor) -> Tensor:
    """Limits [..., 1] of the fourth root of the sum of sizes [..., H] times fourth powers of units.y, for units in
    columns [..., D, H], over unit y: that root is a norm of y."""
    weighted = units * (sizes * units.square().sum(-2)).unsqueeze(-2)
    return positive_limit(weighted @ units.mT).unsqueeze(-1).pow(0.25) * (1 + 1e-12)


def form_limit(form: Tensor, square: Tensor) -> Tensor:
    """Limits [..., 1] of y.F^T form F y over unit y, for squares F F^T: the eighth root of an eighth power's trace."""
    product = form @ square
    size = product.diagonal(dim1=-2, dim2=-1).sum(-1).clamp(min=1e-300)
    power = product / size[..., None, None]
    for _ in range(2):
        power = power @ power
    eighth = (power * power.mT).sum((-2, -1)).clamp(min=0) * (1 + 1e-9)
    return (size * eighth.pow(1 / 8)).unsqueeze(-1)


def capped(limits: Tensor) -> Tensor:
    """Overflow, and what overflow made undefined, is as good as unknown."""
    return limits.nan_to_num(nan=LARGE, posinf=LARGE).clamp(max=LARGE)


def trace(matrices: Tensor) -> Tensor:
    """Upper limits [N, 1] of the largest eigenvalues of positive matrices."""
    return matrices.diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True)


def frobenius(matrices: Tensor) -> Tensor:
    """Upper limits [N, 1] of the norms of linear and bilinear maps, in double precision."""
    norms: Tensor = torch.linalg.vector_norm(matrices.flatten(1), dim=1, keepdim=True, dtype=torch.float64)
    return norms * (1 + 1e-12)
