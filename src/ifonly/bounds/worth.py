"""What single changes are worth at given states: their polynomials evaluated, their rests looked up.

Offsets from the observed states are in gauge units, and numbers in single precision, with room for what that rounds:
bounds are many, and need few digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.bounds.gains import GainTables
from ifonly.bounds.looks import GRID, RADII
from ifonly.bounds.polynomials import (
    ROUNDING,
    features,
    looked_up,
    packed,
    padded,
    quadratic,
    room_for,
    share_rounded,
    single,
    single_limits,
)
from ifonly.bounds.tails import TailTables
from ifonly.models.smooth import norm_limit

Which = Tensor | slice
"""Some of the problems."""


@dataclass(frozen=True)
class TailsAt:
    """The tails of C steps, from M states at each."""

    gauge: Tensor  # [P, C, M]
    bowed: Tensor  # [P, C, M], their second-order terms, with room for rounding ...
    steep: Tensor  # [P, C, M], ... and at most how steep these are


@dataclass(frozen=True)
class Worths:
    """Single changes at C steps, from M states at each."""

    gain: Tensor  # [P, C, A, M], the polynomials over the tail's second-order expansion
    rest: Tensor  # [P, C, A, M], what the step's expansion and rounding leave out at most
    reached: Tensor  # [P, C, A, M], the gauge at the next step, at most
    tails: TailsAt


class Worth:
    """Polynomials and tables of all single changes before the last step; C = T - 1."""

    def __init__(self, tails: TailTables, gains: GainTables, changes: Tensor) -> None:
        """`changes` [P, C, A] are those that are allowed; of the others nothing is to be expected."""
        radii = torch.tensor(RADII, dtype=torch.float64, device=changes.device)
        self._actions, size = changes.shape[-1], tails.gradient.shape[-1]
        cells = torch.arange(round(RADII[-2] * GRID) + 2, device=radii.device)
        self.places = torch.bucketize(cells.to(radii) / GRID, radii[:-1] + 1e-9)
        """The first radius that covers each cell of a grid of gauges; G where none does."""
        self.places[-1] = len(RADII)  # what only the last radius covers is not worth a longer table
        self._beyond = (radii[-2] + 0.5 / GRID).float()
        unit = tails.unit[:, :-1]
        # What is not allowed may lead beyond all numbers.
        gains = gains.masked(changes)
        bow = unit @ tails.hessian[:, :-1] @ unit
        gradient = (gains.gradient.unsqueeze(-2) @ unit.unsqueeze(2)).squeeze(-2)
        hessian = unit.unsqueeze(2) @ gains.hessian @ unit.unsqueeze(2)
        jacobian = gains.jacobian @ unit.unsqueeze(2)
        turned = (jacobian.mT @ gains.effect.unsqueeze(-1)).squeeze(-1)
        length = gains.effect.square().sum(-1)
        forms = packed(torch.stack((bow / 2, bow @ bow), dim=2))
        value = gains.value.masked_fill(~changes, -torch.inf)
        coefficients = (
            quadratic(value, gradient, hessian / 2),
            quadratic(length, 2 * turned, jacobian.mT @ jacobian),  # the square of the gauge reached
            torch.nn.functional.pad(forms, (1 + size, 0)),
        )
        self._polynomials = single(torch.cat(coefficients, dim=2))  # [P, C, 2 * A + 2, F]
        self._bow = single(bow)
        # [P, C, 2 * A, G + 1], per third power of the gauge and per second power
        limits = padded(torch.cat((gains.rest / radii**3, gains.bend / radii**2), dim=2))
        # Zero for what is not allowed, at any distance: a gain of -inf plus an infinite limit would be NaN.
        self._limits = single_limits(limits.masked_fill(~changes.repeat(1, 1, 2).unsqueeze(-1), 0.0))
        self._steepness = single_limits(gains.steepness.unsqueeze(-1))
        self._bowed = single_limits(norm_limit(hessian).unsqueeze(-1))
        self._spread = single_limits(gains.spread.unsqueeze(-1))
        self._tail_bowed = single_limits(norm_limit(bow).unsqueeze(-1))
        # What rounding does at most, per square of 1 + gauge: to gains and tails, and to squares under a root.
        share = share_rounded(self._polynomials.shape[-1])
        bow_size = bow.flatten(-2).norm(dim=-1, keepdim=True)
        sizes = gains.value.abs() + gradient.norm(dim=-1) + hessian.flatten(-2).norm(dim=-1)
        squares = length.sqrt() + jacobian.flatten(-2).norm(dim=-1)
        tables = (sizes.amax(-1, keepdim=True) + bow_size, squares.amax(-1, keepdim=True) ** 2, bow_size**2)
        self._rounding, self._rounding_reached, self._rounding_steep = (room_for(table, share) for table in tables)

    def place(self, gauges: Tensor) -> Tensor:
        """The first radius that covers each gauge; G where none does."""
        return self.places[self.cells(gauges)]

    def cells(self, gauges: Tensor) -> Tensor:
        """Where gauges stand in the grid."""
        return torch.fmin(gauges, self._beyond).mul_(GRID).ceil_().long()  # fmin: what is no number lies beyond, too

    def tails(self, which: Which, steps: slice, y: Tensor, off: Tensor) -> TailsAt:
        """The tails of `steps` at offsets y [P, C, D, M], and at any states that are `off` [P, C, M] from there."""
        pulled = self._bow[which, steps] @ y
        bowed, steep = (pulled * y).sum(2) / 2, pulled.square().sum(2)
        return self._tails(which, steps, y, bowed, steep, off)

    def _tails(self, which: Which, steps: slice, y: Tensor, bowed: Tensor, steep: Tensor, off: Tensor) -> TailsAt:
        gauge = y.square().sum(2).sqrt_().mul_(1 + ROUNDING).add_(off)
        powers = (1 + gauge) ** 2
        steep = (steep + self._rounding_steep[which, steps] * powers).clamp_(min=0).sqrt_()
        steep = steep.addcmul_(self._tail_bowed[which, steps], off, value=0.5).mul_(1 + ROUNDING)
        return TailsAt(gauge, bowed + self._rounding[which, steps] * powers, steep)

    def values(self, which: Which, steps: slice, y: Tensor) -> Tensor:
        """All polynomials [P, C, 2 * A + 2, M] at offsets y [P, C, D, M]."""
        return self._polynomials[which, steps] @ features(y)

    def at(self, which: Which, steps: slice, y: Tensor, values: Tensor, off: Tensor | None = None) -> Worths:
        """From their values at offsets y; with `off` [P, C, M]: at any states so far from there, gain and tail at the
        offset itself."""
        gain, square, forms = values.split((self._actions, self._actions, 2), dim=2)
        nothing = torch.zeros_like(forms[:, :, 0]) if off is None else off
        tails = self._tails(which, steps, y, forms[:, :, 0], forms[:, :, 1], nothing)
        place = self.place(tails.gauge)
        limits = looked_up(self._limits[which, steps], place)
        powers = (1 + tails.gauge) ** 2
        rest = (self._rounding[which, steps] * powers).unsqueeze(2)
        rest = torch.addcmul(rest, limits[:, :, : self._actions], (tails.gauge**3).unsqueeze(2))
        rounding = (self._rounding_reached[which, steps] * powers).unsqueeze(2)
        reached = (square + rounding).clamp_(min=0).sqrt_()
        reached.addcmul_(limits[:, :, self._actions :], (tails.gauge**2).unsqueeze(2))
        if off is not None:
            away = off.unsqueeze(2)
            rest.addcmul_(self._steepness[which, steps], away)
            rest.addcmul_(self._bowed[which, steps], ((tails.gauge - off / 2) * off).unsqueeze(2))
            reached.addcmul_(self._spread[which, steps], away)
        return Worths(gain, rest, reached.mul_(1 + ROUNDING), tails)
