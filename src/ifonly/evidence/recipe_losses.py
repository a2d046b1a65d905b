"""How well a model predicts subjects that it has not seen, one step ahead and several.

Measured are the densities of features one step ahead, each on its own, for nothing else matters to counterfactuals
(`TrainableModel.entry_log_prob`), and the error of replays over several steps, which count the same: a model whose
single steps are good can drift, and what is asked of models are courses. Both losses are in nats per transition. The
error of replays is turned into nats by the density that it implies (Laplace noise of that mean size): the sum over
features of the logarithm of the mean absolute error.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.models.base import TrainableModel
from ifonly.models.fit import EncodedTransitions, FitSettings, objective
from ifonly.models.steps import spread_over_cells
from ifonly.problem import Problem
from ifonly.query import Limits, Query
from ifonly.rewards import Linear
from ifonly.search.solve import solve

HORIZONS = (2, 4, 8)
"""Steps ahead at which replays are compared with the record; of these, those that episodes are long enough for."""
ASKED, CHANGES, PATIENCE = 5, 3, 2.0
"""Questions put to the best model of each recipe to see how fast they are proven, their changes, and seconds each."""


@dataclass(frozen=True)
class Losses:
    """What a model does on subjects held out: sums over each subject's transitions; S subjects."""

    density: FloatArray  # [S], negative log densities
    transitions: FloatArray  # [S]
    errors: FloatArray  # [S, H, D], absolute errors of replays, in scaled units
    replays: FloatArray  # [S, H, D], how many entries these are

    @classmethod
    def join(cls, parts: Sequence[Losses]) -> Losses:
        """Those of several groups of subjects, one after the other."""
        return cls(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)))

    def combined(self, weights: FloatArray) -> FloatArray:
        """The mean [B] of both losses, in nats per transition, for weights of subjects [B, S]."""
        one_step = weights @ self.density / (weights @ self.transitions)
        return (one_step + self.replay_loss(weights)) / 2 if self.errors.shape[1] else one_step

    def replay_loss(self, weights: FloatArray) -> FloatArray:
        """The loss [B] of replays, averaged over horizons; what nobody measured costs nobody anything."""
        errors, counts = (np.einsum("bs,shd->bhd", weights, part) for part in (self.errors, self.replays))
        logs = np.log(2 * np.e * np.maximum(errors / np.maximum(counts, 1e-9), 1e-9))
        return np.asarray(np.where(counts > 0, logs, 0.0).sum(-1).mean(-1))

    def replay_error(self) -> float | None:
        """Mean absolute error of replays, over horizons and features, in deviations."""
        counts = self.replays.sum(0)
        known = counts > 0
        return float((self.errors.sum(0)[known] / counts[known]).mean()) if known.any() else None


def horizons_of(cohort: Cohort) -> list[int]:
    """The horizons that some episode is long enough for."""
    return [horizon for horizon in HORIZONS if horizon < int(cohort.lengths.max())]


@torch.no_grad()
def log_densities(model: TrainableModel, rows: EncodedTransitions) -> Tensor:
    """For each transition [N], the sum of the log densities of its features, each on its own; float64."""
    margins = FitSettings(density="margins")
    return torch.cat([objective(model, batch, margins).double() for batch in rows.batches()])


@torch.no_grad()
def losses_of(model: TrainableModel, cohort: Cohort, horizons: Sequence[int]) -> Losses:
    """What a model, made for search, does on a cohort that it has not seen."""
    rows, transitions = EncodedTransitions.of(model, cohort), cohort.transitions()
    _, owners = np.unique(np.array(cohort.subjects), return_inverse=True)
    subject = torch.as_tensor(owners[transitions.episode])
    count, size = int(subject.max()) + 1, model.state_size
    log_prob = log_densities(model, spread_over_cells(model, rows))
    errors, entries = torch.zeros(2, count, len(horizons), size, dtype=torch.float64)
    for number, (rows_at, wrong, counts) in enumerate(replays(model, rows, transitions.episode, horizons)):
        errors[:, number].index_add_(0, subject[rows_at], wrong)
        entries[:, number].index_add_(0, subject[rows_at], counts)
    return Losses(
        density=_sums(-log_prob, subject, count),
        transitions=_sums(torch.ones_like(log_prob), subject, count),
        errors=errors.numpy(),
        replays=entries.numpy(),
    )


def replays(
    model: TrainableModel, rows: EncodedTransitions, episode: np.ndarray[Any, Any], horizons: Sequence[int]
) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
    """For each horizon: from which transitions recorded actions were replayed, without noise, how far the state reached
    is from the recorded one [n, D], and which entries count [n, D].

    Entries that were not measured stay as they are, as in the record and in the check.
    """
    owner = torch.as_tensor(episode)
    at, states = torch.arange(len(owner)), rows.states
    for step in range(1, max(horizons, default=0) + 1):
        moved = model.step(states, rows.context[at], rows.actions[at], torch.zeros_like(states))
        measured = torch.ones_like(states, dtype=torch.bool) if rows.measured is None else rows.measured[at]
        states = torch.where(measured, moved, states)
        if step in horizons:
            counts = measured.to(states)
            yield at, (states - rows.next_states[at]).abs().clamp(max=1e6).nan_to_num(1e6) * counts, counts
        goes_on = (at + 1 < len(owner)) & (owner[(at + 1).clamp(max=len(owner) - 1)] == owner[at])
        at, states = at[goes_on] + 1, states[goes_on]


def _sums(values: Tensor, groups: Tensor, count: int) -> FloatArray:
    return np.asarray(torch.zeros(count, dtype=torch.float64).index_add_(0, groups, values).numpy())


def speed_of(model: TrainableModel, cohort: Cohort) -> tuple[float, float | None]:
    """The share of a few questions that are proven in time, and their median seconds; all features are to be low."""
    deviations = np.maximum(cohort.states.std(axis=0), 1e-9)
    weights = {f.name: -1 / float(s) for f, s in zip(cohort.schema.dynamic, deviations, strict=True)}
    query = Query(Linear(weights), CHANGES, limits=Limits(seconds=PATIENCE))
    searched = model.for_search()
    results = [solve(Problem.from_episode(episode, searched, query)) for episode in cohort[:ASKED]]
    proven = [result.stats.seconds for result in results if result.status == "optimal"]
    return len(proven) / len(results), statistics.median(proven) if proven else None
