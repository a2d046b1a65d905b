"""Counterfactual courses: action sequences as callers give them, replayed under other noise than was abducted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ifonly.data.episode import FloatArray
from ifonly.evidence.check.sample import prior_of
from ifonly.problem import Problem, ProblemBatch, array_scale
from ifonly.progress import look_at_clock

ROWS_AT_ONCE = 4096
"""Rows of shifts that are replayed together on a processor."""


@dataclass(frozen=True, eq=False)
class ShiftedCourse:
    """One sequence of a problem, and what is needed to replay it with shifts of its noise.

    Shifts are [B, T-1, D], in the units of the noise. Until the first change the course is the recorded one, so that
    its noise is known there; only steps from `first` on are uncertain.
    """

    problem: Problem
    sequence: Tensor  # [T]
    states: Tensor  # [T, D], under the abducted noise
    observed: float
    """The observed outcome."""
    gain: float
    """Of the sequence over that."""
    first: int
    """The first changed step; T where nothing is changed."""
    factor: Tensor  # [D, D], lower triangular: noise = factor @ standardised noise

    @classmethod
    def of(cls, problem: Problem, sequence: Tensor) -> ShiftedCourse:
        """Replay `sequence` [T] once."""
        return Courses.of([problem], [sequence]).all[0]

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
        return self.alone.gains(torch.zeros(len(shifts), dtype=torch.int64, device=shifts.device), shifts)

    @cached_property
    def alone(self) -> Courses:
        """This course as one of one."""
        return Courses((self,))


@dataclass(frozen=True, eq=False)
class Courses:
    """P courses of problems that share model, reward and horizon; `owner` [B] says whose every row is.

    As one of a single course everything is computed just as for that course.
    """

    all: tuple[ShiftedCourse, ...]

    @classmethod
    def of(cls, problems: Sequence[Problem], sequences: Sequence[Tensor]) -> Courses:
        """Replay every problem's sequence [T], and what was done."""
        batch, covariance = ProblemBatch(problems), prior_of(problems[0].model).covariance().detach().double()
        factor = torch.linalg.cholesky(covariance.to(batch.device))
        owner = torch.arange(len(problems), device=batch.device)
        paths = batch.rollout(owner, torch.stack(list(sequences)))
        rows = zip(
            problems, sequences, paths.states, paths.outcomes.tolist(), batch.observed_outcomes.tolist(), strict=True
        )
        return cls(
            tuple(
                ShiftedCourse(
                    problem, sequence, states, observed, outcome - observed, _first(problem, sequence), factor
                )
                for problem, sequence, states, outcome, observed in rows
            )
        )

    def __len__(self) -> int:
        return len(self.all)

    @cached_property
    def batch(self) -> ProblemBatch:
        """The problems, stacked."""
        return ProblemBatch([course.problem for course in self.all])

    @cached_property
    def sequences(self) -> Tensor:
        """[P, T]."""
        return torch.stack([course.sequence for course in self.all])

    @cached_property
    def states(self) -> Tensor:
        """[P, T, D], under the abducted noise."""
        return torch.stack([course.states for course in self.all])

    @cached_property
    def firsts(self) -> Tensor:
        """The first changed step of every course [P]."""
        return torch.tensor([course.first for course in self.all], device=self.device)

    @cached_property
    def uncertain(self) -> tuple[Tensor, Tensor]:
        """Every step whose noise could have been another one: courses [S] and steps [S]."""
        pairs = [(number, step) for number, course in enumerate(self.all) for step in course.uncertain]
        owner, steps = torch.tensor(pairs, dtype=torch.int64, device=self.device).view(-1, 2).unbind(1)
        return owner, steps

    @property
    def factor(self) -> Tensor:
        """That of the noise [D, D], which all share."""
        return self.all[0].factor

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        return self.factor.device

    def floats(self, values: Sequence[float]) -> Tensor:
        """Numbers [P] on the device."""
        return torch.tensor(values, dtype=torch.float64, device=self.device)

    @cached_property
    def earned(self) -> Tensor:
        """What every course has earned before each step [P, T], less its observed outcome."""
        owner = torch.arange(len(self), device=self.device)
        sums = [-self.floats([course.observed for course in self.all])]
        for t in range(self.batch.horizon - 1):
            sums.append(sums[-1] + self.batch.rewards(t, owner, self.states[:, t], self.sequences[:, t]))
        return torch.stack(sums, dim=1)

    def gains(self, owner: Tensor, shifts: Tensor, *, whole: bool = False) -> Tensor:
        """Gains over the observed outcome [B] under the noise plus `shifts` [B, T-1, D].

        Replayed from the first step that is shifted; with `whole`, from the first step of all.
        """
        size = ROWS_AT_ONCE * array_scale(self.device)
        parts = zip(owner.split(size), shifts.split(size), strict=True)
        return torch.cat([self._gains(*part, whole=whole) for part in parts])

    def _gains(self, owner: Tensor, shifts: Tensor, *, whole: bool) -> Tensor:
        """In one sweep over the steps, which every row joins where it leaves its course."""
        batch, last = self.batch, self.batch.horizon - 1
        starts = torch.zeros_like(owner) if whole else _first_shifts(shifts)
        order = starts.argsort(stable=True)
        owner, shifts, starts = owner[order], shifts[order], starts[order]
        joined = torch.searchsorted(starts, torch.arange(last + 1, device=self.device), right=True).tolist()
        sequences, states = self.sequences[owner], self.states[owner[:0], 0]
        totals = torch.zeros(len(shifts), dtype=torch.float64, device=self.device)
        for t, count in enumerate(joined):
            look_at_clock()
            states = torch.cat([states, self.states[owner[len(states) : count], t]])
            if count:
                now = owner[:count]
                totals[:count] += batch.rewards(t, now, states, sequences[:count, t])
                if t < last:
                    states = self.following(now, t, states, shifts[:count, t])
        gains = torch.empty_like(totals)
        gains[order] = totals + self.earned[owner, starts]
        return gains

    def following(self, owner: Tensor, step: int | Tensor, states: Tensor, shifts: Tensor) -> Tensor:
        """Next states [B, D] after `step`, one or [B], from states [B, D], the noise shifted by [B, D]."""
        batch, sequences = self.batch, self.sequences
        first, noise = self.all[0].problem, batch.noise[owner, step] + shifts
        return first.advance(states, batch.context[owner, step], sequences[owner, step], noise)

    def added(self, owner: Tensor, steps: Tensor, shifts: Tensor) -> tuple[FloatArray, Tensor]:
        """What shifts [B, D] of the noise at `steps` [B] add to the next states, in original units and scaled."""
        states, problem = self.states[owner, steps], self.all[0].problem
        shifted, usual = (self.following(owner, steps, states, moved) for moved in (shifts, torch.zeros_like(shifts)))
        return problem.decode(shifted) - problem.decode(usual), shifted - usual


def _first_shifts(shifts: Tensor) -> Tensor:
    """The first step [B] at which shifts [B, T-1, D] are not zero; T - 1 where all are."""
    moved = (shifts != 0).any(-1)
    return torch.cat([moved, moved.new_ones(len(moved), 1)], dim=1).to(torch.int64).argmax(1)


def _first(problem: Problem, sequence: Tensor) -> int:
    """The first step at which a sequence [T] changes anything; T where nothing is changed."""
    changed = (sequence != problem.observed_actions).nonzero().flatten().tolist()
    return changed[0] if changed else problem.horizon
