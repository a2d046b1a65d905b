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
from ifonly.models.normal_scores import NormalScores
from ifonly.problem import Problem
from ifonly.result.coupling import Coupling, CouplingGain

CORRELATIONS = (1.0, 0.9, 0.75, 0.5, 0.0)

DRAWS = 512
"""Of fresh noise: half of them, and the same with the opposite scores."""

HALVINGS = 12
"""Of the interval in which the smallest correlation is looked for."""

QUANTILES = (0.05, 0.95)


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
class _Replays:
    """One course, and draws of the noise that may take the place of the recorded one."""

    course: ShiftedCourse
    table: NormalScores
    recorded: Tensor  # [S, D], scores of the recorded noise at the steps from the first change on
    fresh: Tensor  # [B, S, D], of fresh noise: the same draws for every correlation

    @classmethod
    def of(cls, course: ShiftedCourse, draws: int, seed: int) -> _Replays:
        problem = course.problem
        table, steps = NormalScores.of(prior_of(problem.model)), len(course.uncertain)
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
