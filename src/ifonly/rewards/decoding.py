"""Original units as smooth functions of scaled coordinates: values, derivatives, and bounds on those not known.

Feature by feature, a value is g(z) of its scaled coordinate z: linear, an exponential (log scaling) that is cut at
zero, or a logistic curve (bounded scaling) that is cut at the ends of the feature's range. Equation numbers are those
of docs/theory.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ifonly.data.scaling import Columns
from ifonly.models.layers import ROUNDING
from ifonly.models.smooth import DERIVATIVE_BOUNDS, curve_derivatives

CUBIC = 4 / 27
"""The largest value of (x - 1) / x^3: a cut that begins at a distance d exceeds CUBIC d (x / d)^3 nowhere."""


@dataclass(frozen=True, eq=False)
class Decoder:
    """g of every dynamic feature, on one device, in float64."""

    scale: Tensor  # [D]
    offset: Tensor  # [D]
    log: Tensor  # [D], whether g is an exponential
    log_offset: Tensor  # [D]
    bounded: Tensor  # [D], whether g is a logistic curve
    floor: Tensor  # [D], values are cut here
    ceiling: Tensor  # [D]
    low: Tensor  # [D], lower end of the logistic curve; 0 for others
    width: Tensor  # [D], its height; 1 for others

    @classmethod
    def of(cls, columns: Columns, device: torch.device | str) -> Decoder:
        """The inverse of the columns' map."""
        link = columns.link

        def tensor(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Tensor:
            return torch.as_tensor(values, dtype=torch.float64, device=device)

        return cls(
            scale=tensor(columns.scale),
            offset=tensor(columns.offset),
            log=torch.as_tensor(link.log, device=device),
            log_offset=tensor(link.log_offset),
            bounded=torch.as_tensor(link.bounded, device=device),
            floor=tensor(link.floor),
            ceiling=tensor(link.ceiling),
            low=tensor(np.where(link.bounded, link.low, 0.0)),
            width=tensor(np.where(link.bounded, link.high - link.low, 1.0)),
        )

    @property
    def curved(self) -> Tensor:
        """Which features [D] are not linear functions of their coordinate."""
        return self.log | self.bounded

    def take(self, features: Tensor) -> Decoder:
        """Some of the features."""
        return Decoder(**{name: table[features] for name, table in vars(self).items()})

    def __call__(self, states: Tensor) -> Tensor:
        """Values [..., D] in original units at scaled states [..., D], cut where they would be impossible."""
        return torch.clamp(self._uncut(states), min=self.floor, max=self.ceiling)

    def _uncut(self, states: Tensor) -> Tensor:
        linked = states * self.scale + self.offset
        values = torch.where(self.log, linked.exp() - self.log_offset, linked)
        return torch.where(self.bounded, self.low + self.width * torch.sigmoid(linked), values)

    def steepest(self) -> Tensor:
        """The largest slope [D] of each feature's value; infinite for log-scaled ones."""
        s1 = DERIVATIVE_BOUNDS["sigmoid"][0]
        slopes = torch.where(self.bounded, self.width * s1 * self.scale, self.scale)
        return torch.where(self.log, torch.inf, slopes) * (1 + ROUNDING)

    def largest(self, weights: Tensor, ranges: Tensor | None = None) -> Tensor:
        """The largest value [...] of the weighted sum of values, for weights [..., D], at any state, or with values
        within `ranges` [2, D]; often infinite."""
        floor, ceiling = (self.floor, self.ceiling) if ranges is None else ranges
        ends = torch.where(weights > 0, weights * ceiling, weights * floor)
        return torch.where(weights == 0, 0.0, ends).sum(-1)

    def expand(self, states: Tensor, weights: Tensor, *, both_sides: bool = False) -> ValueCurve:
        """The weighted sum of values around states [..., D], for weights [..., D] in original units.

        What is expanded is never below the sum; with `both_sides` it is equal to it up to the bounded remainder.
        """
        linked = states * self.scale + self.offset
        _, s1, s2, s3 = curve_derivatives("sigmoid", linked)
        grown = linked.exp()
        factors = (self.scale, self.scale**2, self.scale**3)
        first, second, third = (
            weights * torch.where(self.bounded, self.width * curve, torch.where(self.log, grown, straight)) * factor
            for curve, factor, straight in zip((s1, s2, s3), factors, (1.0, 0.0, 0.0), strict=True)
        )
        sizes, none = weights.abs() * self.scale**3, torch.zeros_like(weights)
        # exp(z) >= 1 + z + z^2/2 + z^3/6: minus an exponential needs no bound on its fourth derivative from above.
        grows = self.log & ((weights != 0) if both_sides else (weights > 0))
        bounded_third, bounded_fourth = (self.width * bound for bound in DERIVATIVE_BOUNDS["sigmoid"][2:])
        offset, cubic = self._cuts(states, linked, weights, both_sides=both_sides)
        return ValueCurve(
            slope=first,
            curvature=second,
            third=third,
            third_bound=sizes * torch.where(self.bounded, bounded_third, torch.where(self.log, grown, none)),
            quartic=sizes * self.scale * torch.where(self.bounded, bounded_fourth, none),
            growing=sizes * self.scale * torch.where(grows, grown, none),
            growth=torch.where(grows, self.scale, none).amax(-1, keepdim=True),
            cut=cubic,
            offset=offset,
        )

    def _cuts(self, states: Tensor, linked: Tensor, weights: Tensor, *, both_sides: bool) -> tuple[Tensor, Tensor]:
        """How far cut values can lie above uncut ones, beyond the difference that there is here: a constant [...] and
        a factor [..., D] of |z|^3 (T60).

        Beyond the end of the range, at a distance d from here, the uncut curve goes on with a slope of at most s, and
        by the width of the margin at most. So the cut adds no more than that, and no more than s (|z| - d), which is
        at most 4/27 s |z|^3 / d^2. Only the end where the cut RAISES the sum counts, unless both do. Where it lowers
        the sum here, what it took away comes back within the range.
        """
        lowered = (weights * (self._uncut(states) - self(states))).clamp(min=0)
        offset, cubic = torch.zeros_like(weights) if both_sides else lowered, torch.zeros_like(weights)
        for end, side, raises in ((self.ceiling, 1, weights < 0), (self.floor, -1, weights > 0)):
            cut = self.bounded | (self.log & (self.log_offset > 0) & (side < 0))
            counts = cut & ((weights != 0) if both_sides else raises)
            share = torch.where(self.bounded, (end - self.low) / self.width, 0.5)
            # Where a logarithmic scale is cut, its curve and its slope both are the offset, times the scale.
            there = torch.where(self.log, self.log_offset.log(), torch.logit(share))
            distance = (side * (there - linked)).clamp(min=0) / self.scale
            steepness = torch.where(self.log, self.log_offset, self.width * share * (1 - share))
            beyond = torch.where(self.log, self.log_offset, self.width * torch.minimum(share, 1 - share))
            factor = CUBIC * weights.abs() * steepness * self.scale / distance.square()
            most = weights.abs() * beyond
            near = counts & (factor > most) & (not both_sides)
            offset = offset + torch.where(near, most, 0.0)
            cubic = cubic + torch.where(counts & ~near, factor, 0.0)
        return offset.sum(-1), cubic * (1 + ROUNDING)


@dataclass(frozen=True, eq=False)
class ValueCurve:
    """A weighted sum of values around N states: derivatives feature by feature, for there are no mixed ones.

    For a displacement z: |third derivative| <= third_bound exp(growth |z|), and the fourth is bounded by quartic +
    growing exp(growth |z|), feature by feature (T57).
    """

    slope: Tensor  # [..., D]
    curvature: Tensor  # [..., D]
    third: Tensor  # [..., D]
    third_bound: Tensor  # [..., D]
    quartic: Tensor  # [..., D]
    growing: Tensor  # [..., D]
    growth: Tensor  # [..., 1]
    cut: Tensor  # [..., D], factor of |z|^3 by which cut values exceed uncut ones
    offset: Tensor  # [...], a constant by which they do

    def take(self, rows: tuple[Tensor | slice | int, ...] | Tensor) -> ValueCurve:
        """Some of the states."""
        return ValueCurve(**{name: table[rows] for name, table in vars(self).items()})
