"""Where to put anchors: the paper's three strategies."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.data.episode import as_matrix
from ifonly.errors import InputError
from ifonly.problem import Problem
from ifonly.progress import look_at_clock

SAMPLES_PER_ROUND = 100
STALE_ROUNDS = 20
"""Sampling by size gives up after this many rounds that bring no new state."""


@dataclass(frozen=True)
class Anchors:
    """The anchor set of each step: points[t] is [M_t, D]; it always holds the observed state of the step."""

    points: tuple[Tensor, ...]

    @property
    def total(self) -> int:
        """Number of anchors, summed over steps."""
        return sum(len(points) for points in self.points)

    def shared(self) -> Anchors:
        """The union of all steps' anchors at every step: the paper's single anchor set."""
        union = torch.unique(torch.cat(self.points), dim=0)
        return Anchors((union,) * len(self.points))


class AnchorStrategy(ABC):
    """Frozen settings that choose anchors for a problem."""

    @abstractmethod
    def choose(self, problem: Problem, constants: Tensor, generator: torch.Generator) -> Anchors:
        """Anchors for every step, given the constants L_t [T]."""


def observed_anchors(problem: Problem) -> Anchors:
    """The smallest useful choice: each step's observed state."""
    return Anchors(tuple(problem.observed_states.unsqueeze(1)))


@dataclass(frozen=True)
class MonteCarlo(AnchorStrategy):
    """States visited by random counterfactual sequences, changes falling more often on steps with large L_t.

    Each sequence draws a number of changes from 1..k, as many steps (with probability proportional to L_t, or
    uniformly) and an allowed action for each, as in the paper. Give the number of sequences, `samples`, or the number
    of anchors over all steps, `size` (never fewer than the observed states, never more than can be reached).
    """

    samples: int | None = 2000
    size: int | None = None
    weighting: Literal["lipschitz", "uniform"] = "lipschitz"

    def __post_init__(self) -> None:
        if (self.samples is None) == (self.size is None):
            raise InputError("Monte Carlo anchors: give either samples=... or size=... (and samples=None).")
        if any(number is not None and number < 1 for number in (self.samples, self.size)):
            raise InputError("Monte Carlo anchors: samples and size must be positive.")
        if self.weighting not in ("lipschitz", "uniform"):
            raise InputError(f"Monte Carlo anchors: weighting {self.weighting!r}; choose 'lipschitz' or 'uniform'.")

    def choose(self, problem: Problem, constants: Tensor, generator: torch.Generator) -> Anchors:
        """Sample sequences, replay them, keep the distinct states of each step."""
        weights = constants if self.weighting == "lipschitz" else torch.ones_like(constants)
        anchors = observed_anchors(problem)
        if problem.max_changes == 0:
            return anchors
        if self.samples is not None:
            return _extended(anchors, problem, _random_sequences(problem, weights, self.samples, generator))
        stale = 0
        while anchors.total < (self.size or 0) and stale < STALE_ROUNDS:
            before = anchors
            sequences = _random_sequences(problem, weights, SAMPLES_PER_ROUND, generator)
            anchors = _extended(anchors, problem, sequences)
            stale = stale + 1 if anchors.total == before.total else 0
        surplus = anchors.total - (self.size or 0)
        return anchors if surplus <= 0 else _thinned(anchors, problem, surplus, generator)


@dataclass(frozen=True, eq=False)
class FacilityLocation(AnchorStrategy):
    """States of a cohort chosen so that no other of its states is far away (farthest-point clustering).

    `pool` [N, D] holds a cohort's states in original units, such as `cohort.states`. The same `size` points serve
    every step, together with the step's observed state.
    """

    size: int
    pool: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError(f"facility location: size={self.size} must be positive.")
        object.__setattr__(self, "pool", as_matrix("facility location: pool", self.pool))

    def __repr__(self) -> str:
        """In one line, by which results know their anchors: a checksum tells pools of equal size apart."""
        checksum = hashlib.sha256(self.pool.astype("<f8").tobytes()).hexdigest()[:12]
        return f"FacilityLocation(size={self.size}, pool=[{len(self.pool)} states, {checksum}])"

    def choose(self, problem: Problem, constants: Tensor, generator: torch.Generator) -> Anchors:
        """Start anywhere; add the point of the pool farthest from all chosen so far, until there are enough."""
        width = len(problem.episode.schema.dynamic)
        columns = problem.model.scaler.states
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = columns.encode(self.pool) if self.pool.shape[1] == width else np.array([np.nan])
        if not np.isfinite(scaled).all():
            raise InputError(
                f"facility location: the pool must be states [N, {width}] in original units, finite and, where a "
                "feature has a logarithmic scale, with a logarithm."
            )
        pool = torch.unique(torch.as_tensor(scaled, device=problem.device), dim=0)
        if len(pool) < self.size:
            raise InputError(f"facility location: size={self.size}, but the pool has {len(pool)} distinct states.")
        chosen = [int(torch.randint(len(pool), (1,), generator=generator))]
        distance = torch.linalg.vector_norm(pool - pool[chosen[0]], dim=1)
        while len(chosen) < self.size:
            look_at_clock()
            chosen.append(int(distance.argmax()))
            distance = torch.minimum(distance, torch.linalg.vector_norm(pool - pool[chosen[-1]], dim=1))
        points = pool[chosen]
        return Anchors(tuple(torch.cat([points, state.unsqueeze(0)]) for state in problem.observed_states))


def _thinned(anchors: Anchors, problem: Problem, surplus: int, generator: torch.Generator) -> Anchors:
    """Without `surplus` anchors drawn at random; observed states stay."""
    pairs = zip(anchors.points, problem.observed_states, strict=True)
    keep = [(points == observed).all(-1).cpu() for points, observed in pairs]
    flat = torch.cat(keep)
    spare = (~flat).nonzero().squeeze(-1)
    chosen = spare[torch.randperm(len(spare), generator=generator)[: max(0, len(spare) - surplus)]]
    flat[chosen] = True
    parts = flat.split([len(points) for points in anchors.points])
    return Anchors(tuple(points[part.to(points.device)] for points, part in zip(anchors.points, parts, strict=True)))


def _extended(anchors: Anchors, problem: Problem, sequences: Tensor) -> Anchors:
    states, _ = problem.rollout(sequences)
    states = states[torch.isfinite(states).all(-1).all(-1)]  # a course that overflows anchors nothing
    merged = (torch.cat([old, states[:, t]]) for t, old in enumerate(anchors.points))
    return Anchors(tuple(torch.unique(points, dim=0) for points in merged))


def _random_sequences(problem: Problem, weights: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Sequences [count, T] with 1..k changed steps; drawn on the CPU, so that every device sees the same ones."""
    horizon, actions = problem.allowed.shape
    limit = min(problem.max_changes, horizon)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    # The largest of log-weights plus Gumbel noise are a draw without replacement, proportional to the weights.
    gumbel = -torch.log(-torch.log(uniform(count, horizon).clamp(1e-300, 1 - 1e-16)))
    ranks = (weights.cpu().clamp(min=1e-300).log() + gumbel).argsort(dim=1, descending=True).argsort(dim=1)
    changes = torch.randint(1, limit + 1, (count, 1), generator=generator)
    drawn = (uniform(count, horizon, actions) * problem.allowed.cpu()).argmax(-1)
    observed = problem.observed_actions.cpu().expand(count, -1)
    return torch.where(ranks < changes, drawn, observed).to(problem.device)
