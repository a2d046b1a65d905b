"""What is left of a gain where the same noise need not apply under another action.

A bijective model says which noise explains a recorded transition, and that the very same noise would have applied had
another action been taken, or had the state been another: each feature keeps its quantile. Data cannot show that: they
determine the distribution under each action, not how the two go together. Here they go together less than fully: where
the state or the action differs from the record, the normal score of the noise is r z + sqrt(1 - r^2) z', with the
recorded score z and that of fresh noise, z'. For every r each feature's noise has the distribution that the model gives
to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.errors import InputError
from ifonly.evidence.check.sample import prior_of
from ifonly.evidence.shifts import ShiftedCourse
from ifonly.models.base import TransitionModel
from ifonly.models.noise import NoisePrior
from ifonly.problem import Problem
from ifonly.result.coupling import Coupling, CouplingGain

CORRELATIONS = (1.0, 0.9, 0.75, 0.5, 0.0)

DRAWS = 512
"""Of fresh noise: half of them, and the same with the opposite scores."""

HALVINGS = 12
"""Of the interval in which the smallest correlation is looked for."""

QUANTILES = (0.05, 0.95)

GRID = 4001
LONGEST = 1000.0
"""Deviations up to which densities are added up."""


@torch.no_grad()
def coupling(problem: Problem, actions: npt.ArrayLike | Tensor, *, draws: int = DRAWS, seed: int = 0) -> Coupling:
    """What `actions` [T], a result's for instance, gain for several correlations of factual and counterfactual noise.

    From the first change on, since from there the state or the action differs from the record.
    """
    if not isinstance(problem, Problem):
        raise InputError("coupling: ask it of one model's problem: one of the `members` of an ensemble problem.")
    if draws < 2 or draws % 2:
        raise InputError(f"coupling: draws={draws} must be an even number, at least 2.")
    replays = _Replays.of(ShiftedCourse.of(problem, problem.checked_sequence(actions)), draws, seed)
    gains = tuple(replays.at(correlation) for correlation in CORRELATIONS)
    return Coupling(gains, replays.smallest(gains), draws)


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
    def of(cls, model: TransitionModel) -> NormalScores:
        """By Simpson's rule on the density of each entry, from either side, so that tails keep their digits."""
        prior: NoisePrior = prior_of(model)
        deviations = prior.covariance().diagonal().sqrt().double()
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


@dataclass(frozen=True, eq=False)
class _Replays:
    """One course, and draws of the noise that may take the place of the recorded one."""

    course: ShiftedCourse
    table: NormalScores
    recorded: Tensor  # [S, D], scores of the recorded noise at the steps from the first change on
    fresh: Tensor  # [B, S, D], of fresh noise: the same draws for every correlation

    @classmethod
    def of(cls, course: ShiftedCourse, draws: int, seed: int) -> _Replays:
        problem = course.problem
        table, steps = NormalScores.of(problem.model), len(course.uncertain)
        prior = prior_of(problem.model)
        # Drawn where the generator is, whatever the device, so that the same seed gives the same draws.
        noise = prior.sample((draws // 2, steps), generator=torch.Generator().manual_seed(seed)).double()
        half = table.of_noise(noise.to(problem.device))
        recorded = table.of_noise(problem.noise[course.first :])
        return cls(course, table, recorded, torch.cat([half, -half]))

    def gains(self, correlation: float) -> Tensor:
        """Gains [B] over the observed outcome; one alone where nothing is drawn."""
        if correlation == 1 or not len(self.recorded):
            return torch.tensor([self.course.gain], dtype=torch.float64)
        scores = correlation * self.recorded + (1 - correlation**2) ** 0.5 * self.fresh
        shifts = self.fresh.new_zeros(len(scores), *self.course.problem.noise.shape)
        shifts[:, self.course.first :] = self.table.to_noise(scores) - self.course.problem.noise[self.course.first :]
        return self.course.gains(shifts).cpu().nan_to_num(nan=-torch.inf)

    def at(self, correlation: float) -> CouplingGain:
        """The figures of one correlation."""
        gains = self.gains(correlation)
        low, high = (float(gains.quantile(level, interpolation="lower")) for level in QUANTILES)
        return CouplingGain(correlation, float(gains.mean()), low, high)

    def smallest(self, gains: tuple[CouplingGain, ...]) -> float | None:
        """The correlation down from 1 at which the expected gain is no longer above zero; None where it always is."""
        least = self.course.problem.tolerance
        if not gains[0].expected > least:
            return None
        for above, below in pairwise(gains):
            if not below.expected > least:
                return self._between(below.correlation, above.correlation, least)
        return None

    def _between(self, low: float, high: float, least: float) -> float:
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if float(self.gains(middle).mean()) > least else (middle, high)
        return high
