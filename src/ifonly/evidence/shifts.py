"""Counterfactual courses: action sequences as callers give them, replayed under other noise than was abducted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ifonly.evidence.check.sample import prior_of
from ifonly.problem import Problem

ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class ShiftedCourse:
    """One sequence of a problem, and what is needed to replay it with shifts of its noise.

    Shifts are [B, T-1, D], in the units of the noise. Until the first change the course is the recorded one, so that
    its noise is known there; only steps from `first` on are uncertain.
    """

    problem: Problem
    sequence: Tensor  # [T]
    states: Tensor  # [T, D], under the abducted noise
    gain: float
    """Of the sequence over the observed outcome."""
    first: int
    """The first changed step; T where nothing is changed."""
    factor: Tensor  # [D, D], lower triangular: noise = factor @ standardised noise

    @classmethod
    def of(cls, problem: Problem, sequence: Tensor) -> ShiftedCourse:
        """Replay `sequence` [T] once."""
        states, outcomes = problem.rollout(sequence.unsqueeze(0))
        changed = (sequence != problem.observed_actions).nonzero().flatten().tolist()
        covariance = prior_of(problem.model).covariance().detach().double().to(problem.device)
        return cls(
            problem=problem,
            sequence=sequence,
            states=states[0],
            gain=float(outcomes[0]) - problem.observed_outcome,
            first=changed[0] if changed else problem.horizon,
            factor=torch.linalg.cholesky(covariance),
        )

    @property
    def deviations(self) -> Tensor:
        """The prior's standard deviation of each noise entry [D]."""
        lengths: Tensor = torch.linalg.vector_norm(self.factor, dim=1)
        return lengths

    @property
    def uncertain(self) -> range:
        """The steps whose noise could have been another one: from the first change on, but for the last step."""
        return range(self.first, self.problem.horizon - 1)

    def gains(self, shifts: Tensor) -> Tensor:
        """Gains over the observed outcome [B] under the noise plus `shifts`."""
        return torch.cat([self._gains(rows) for rows in shifts.split(ROWS_AT_ONCE)])

    def _gains(self, shifts: Tensor) -> Tensor:
        problem, count, start = self.problem, len(shifts), min(self.first, self.problem.horizon - 1)
        states = self.states[start].expand(count, -1)
        # What was earned before the first shift is the same for all, and added at the end.
        totals = torch.zeros(count, dtype=torch.float64, device=problem.device)
        for t in range(start, problem.horizon):
            actions = self.sequence[t].expand(count)
            totals = totals + problem.rewards(t, states, actions)
            if t < problem.horizon - 1:
                states = problem.advance(states, problem.context[t], actions, problem.noise[t] + shifts[:, t])
        return totals + (self._earned - problem.observed_outcome)

    @cached_property
    def _earned(self) -> float:
        """The rewards before the first change, or before the last step if that comes first."""
        steps = range(min(self.first, self.problem.horizon - 1))
        return sum(float(self.problem.rewards(t, self.states[t : t + 1], self.sequence[t : t + 1])) for t in steps)

    def replayed_gain(self, shift: Tensor) -> float:
        """The gain under the noise plus one shift [T-1, D], by the problem's own replay of the whole sequence."""
        shifted = replace(self.problem, noise=self.problem.noise + shift)
        return shifted.outcome(self.sequence) - self.problem.observed_outcome

    def next_state(self, step: int, shift: Tensor) -> Tensor:
        """The next state [D] after `step` from the course's own state there, its noise shifted by `shift` [D]."""
        problem = self.problem
        state, action = self.states[step], self.sequence[step]
        return problem.advance(state, problem.context[step], action, problem.noise[step] + shift)
