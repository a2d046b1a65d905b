"""Standard normal scores of a prior's noise: what makes priors of any shape alike, entry by entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ifonly.models.noise import NoisePrior

GRID = 4001
LONGEST = 1000.0
"""Deviations up to which densities are added up."""


@dataclass(frozen=True, eq=False)
class NormalScores:
    """The increasing map from each entry of a prior's noise to a standard normal score, as a table of G points.

    Between points it is linear, and beyond the last ones it goes on as between them: a bijection of all numbers, so
    that what goes there and back is what it was.
    """

    noise: Tensor  # [D, G], increasing
    scores: Tensor  # [D, G], increasing

    @classmethod
    @torch.no_grad()
    def of(cls, prior: NoisePrior) -> Self:
        """By Simpson's rule on the density of each entry, from either side, so that tails keep their digits."""
        deviations = prior.variances().sqrt().double()
        ends = torch.asinh(torch.tensor(LONGEST, dtype=torch.float64))
        # Evenly spaced before the hyperbolic sine: close together where the density is, far apart in the tails.
        even = torch.linspace(-1, 1, 2 * GRID - 1, dtype=torch.float64, device=deviations.device) * ends
        all_points, points = torch.sinh(even), torch.sinh(even[::2])
        noise = points.unsqueeze(1) * deviations  # [G, D]
        density = prior.entry_log_prob(all_points.unsqueeze(1) * deviations).exp() * torch.cosh(even).unsqueeze(1)
        parts = density[:-1:2] + 4 * density[1::2] + density[2::2]
        below = torch.cat([torch.zeros_like(parts[:1]), parts.cumsum(0)])
        above = torch.cat([parts.flip(0).cumsum(0).flip(0), torch.zeros_like(parts[:1])])
        total = below + above
        scores = torch.where(below < above, torch.special.ndtri(below / total), -torch.special.ndtri(above / total))
        return cls(noise.mT.contiguous(), _increasing(points, scores).mT.contiguous())

    def of_noise(self, noise: Tensor) -> Tensor:
        """The scores [..., D] of noise [..., D]."""
        return _interpolated(noise, self.noise, self.scores)

    def to_noise(self, scores: Tensor) -> Tensor:
        """The noise [..., D] with these scores [..., D]."""
        return _interpolated(scores, self.scores, self.noise)


def _increasing(points: Tensor, scores: Tensor) -> Tensor:
    """Scores [G, D] at `points` [G]; far out, where the tails hold nothing, they go on in a straight line."""
    known = scores.isfinite() & (scores.abs() < 8)
    first, last = known.double().argmax(0), len(points) - 1 - known.flip(0).double().argmax(0)
    columns = torch.arange(scores.shape[1], device=scores.device)
    ends = []
    for end, inner in ((first, first + 1), (last, last - 1)):
        slope = (scores[end, columns] - scores[inner, columns]) / (points[end] - points[inner])
        ends.append(scores[end, columns] + slope * (points.unsqueeze(1) - points[end]))
    rows = torch.arange(len(points), device=scores.device).unsqueeze(1)
    return torch.where(rows < first, ends[0], torch.where(rows > last, ends[1], scores))


def _interpolated(values: Tensor, given: Tensor, wanted: Tensor) -> Tensor:
    """Where values [..., D] lie among `given` [D, G], the same place among `wanted` [D, G]."""
    columns = values.reshape(-1, values.shape[-1]).mT.contiguous()  # [D, n]
    place = torch.searchsorted(given, columns).clamp(1, given.shape[1] - 1)
    low, high = given.gather(1, place - 1), given.gather(1, place)
    start, end = wanted.gather(1, place - 1), wanted.gather(1, place)
    found: Tensor = start + (columns - low) / (high - low) * (end - start)
    return found.mT.reshape(values.shape)
