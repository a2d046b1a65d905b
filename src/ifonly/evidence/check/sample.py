"""Recorded transitions as a model sees them: the noise that explains each, its density, the prior's own draws.

Where a cohort says which entries were measured, only those count: a value that was carried forward is no observation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray, IntArray, Origin
from ifonly.models.base import TransitionModel
from ifonly.models.fit import EncodedTransitions
from ifonly.models.noise import Gaussian, NoisePrior
from ifonly.models.steps import cells, recorded_steps, spread_over_cells

BoolArray = npt.NDArray[np.bool_]

PRIOR_DRAWS = 100_000
"""Draws by which ranks within the prior are found: they are then exact to about 0.2 %."""

ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class NoiseSample:
    """N transitions of a cohort under a model, those at which it is finite; float64."""

    model: TransitionModel
    prior: NoisePrior
    cohort: Cohort
    rows: EncodedTransitions
    following: FloatArray  # [N, D], the next states whose densities are compared
    noise: FloatArray  # [N, D]
    log_prob: FloatArray  # [N], in scaled coordinates
    draws: FloatArray  # [PRIOR_DRAWS, D], of the prior, each column sorted on its own
    prior_scores: FloatArray  # [20,000, D], normal scores of draws that belong together
    episode: IntArray  # [N]
    position: IntArray  # [N], of the transition among all of the cohort
    broken: int
    """Transitions left out because noise or density are not finite there."""
    measured: BoolArray | None = None
    """Whose noise counts [N, D]: that of measured entries; None: all."""
    seed: int = 0
    """Of the random places of values within the steps that they are recorded in."""

    @classmethod
    def of(cls, model: TransitionModel, cohort: Cohort, *, seed: int) -> NoiseSample:
        """Abduct every transition of `cohort`; `model` is a copy for search."""
        rows, prior = _rows_of(model, cohort), prior_of(model)
        counted, spread = _noise_that_counts(model, rows), spread_over_cells(model, rows)
        noise, log_prob = _noise_and_density(model, prior, rows._replace(measured=counted))
        if spread is not rows:
            _, log_prob = _noise_and_density(model, prior, spread._replace(measured=counted))
        if counted is not None:
            noise = noise.masked_fill(~counted & ~torch.isfinite(noise), 0.0)  # nobody looks at it
        finite = torch.isfinite(noise).all(-1) & torch.isfinite(log_prob)
        with torch.no_grad():
            draws = prior.sample((PRIOR_DRAWS,), generator=torch.Generator().manual_seed(seed)).numpy()
        ordered = np.sort(draws, axis=0)
        return cls(
            model=model,
            prior=prior,
            cohort=cohort,
            rows=rows.mapped(lambda column: column[finite]),
            following=spread.next_states[finite].numpy(),
            noise=noise[finite].numpy(),
            log_prob=log_prob[finite].numpy(),
            draws=ordered,
            prior_scores=normal_scores(prior_ranks(ordered, draws[:20_000])),
            episode=cohort.transitions().episode[finite.numpy()],
            position=np.flatnonzero(finite.numpy()),
            broken=int((~finite).sum()),
            measured=None if counted is None else counted[finite].numpy(),
            seed=seed,
        )

    def __len__(self) -> int:
        return len(self.episode)

    @cached_property
    def subject(self) -> IntArray:
        """The number of each transition's subject [N]."""
        _, numbers = np.unique(np.array(self.cohort.subjects), return_inverse=True)
        return np.asarray(numbers[self.episode], dtype=np.int64)

    @cached_property
    def counted(self) -> FloatArray:
        """1.0 where the noise of an entry counts, 0.0 elsewhere [N, D]."""
        return np.ones(self.noise.shape) if self.measured is None else self.measured.astype(np.float64)

    def rows_of(self, column: int) -> IntArray:
        """The rows in which the noise of a feature counts."""
        return np.arange(len(self)) if self.measured is None else np.flatnonzero(self.measured[:, column])

    @cached_property
    def subjects_of(self) -> IntArray:
        """How many subjects have noise that counts, for each feature [D]."""
        return np.array([len(np.unique(self.subject[self.rows_of(i)])) for i in range(self.noise.shape[1])])

    @cached_property
    def entries(self) -> FloatArray:
        """How many entries of each transition count [N]."""
        return np.asarray(self.counted.sum(axis=1))

    @cached_property
    def steps(self) -> FloatArray:
        """The step in which each feature is recorded [D], in original units; 0 where values hardly ever repeat."""
        return recorded_steps(self.model, self.rows)

    @cached_property
    def cells(self) -> tuple[Tensor, Tensor]:
        """The ends [N, D] of what recorded next values stand for, in scaled coordinates."""
        return cells(self.model, self.rows, self.steps)

    @cached_property
    def ranks(self) -> FloatArray:
        """The share of the prior that lies below each noise [N, D]: uniform where the model is right.

        Of a value that is recorded in steps, a random place between the ranks of its cell's ends.
        """
        ranks, stepped = prior_ranks(self.draws, self.noise), self.steps > 0
        if not stepped.any():
            return ranks
        low, high = (prior_ranks(self.draws, self._noise_at(end)) for end in self.cells)
        places = np.random.default_rng(self.seed).random(ranks.shape)
        return np.where(stepped, low + places * (high - low), ranks)

    @torch.no_grad()
    def _noise_at(self, following: Tensor) -> FloatArray:
        """The noise [N, D] that would explain other next states; what is recorded stands where there is none."""
        found = self.model.abduct(self.rows.states, self.rows.context, self.rows.actions, following).numpy()
        return np.where(np.isnan(found), self.noise, found)

    @cached_property
    def scores(self) -> FloatArray:
        """The ranks as normal scores [N, D]: standard normal, and independent of all before, where the model is right.

        Unlike the noise itself they have no outliers that a few extreme transitions could decide everything by.
        """
        return normal_scores(self.ranks)

    @cached_property
    def successive(self) -> IntArray:
        """Positions [P] of transitions whose next row is the next transition of the same episode."""
        together = (np.diff(self.episode) == 0) & (np.diff(self.position) == 1)
        return np.flatnonzero(together)

    def succession(self, column: int) -> tuple[IntArray, IntArray]:
        """Rows [P] of a feature's noise that counts, and those [P] of the next such noise of the same episode.

        Where entries were carried forward in between, they are passed over.
        """
        if self.measured is None:
            return self.successive, self.successive + 1
        rows = self.rows_of(column)
        together = np.diff(self.episode[rows]) == 0
        return rows[:-1][together], rows[1:][together]

    @cached_property
    def constant(self) -> BoolArray:
        """Which dynamic features have a single value in the whole cohort [D], among those measured."""
        states, origins = self.cohort.states, self.cohort.origins
        if origins is None:
            return np.asarray(states.min(axis=0) == states.max(axis=0))
        known = origins == Origin.MEASURED
        low, high = np.where(known, states, np.inf).min(axis=0), np.where(known, states, -np.inf).max(axis=0)
        return np.asarray(low == high)

    @cached_property
    def inputs(self) -> FloatArray:
        """State and recorded context [N, D + C]."""
        recorded = self.rows.context.numpy()[:, : len(self.model.schema.context)]
        return np.concatenate([self.rows.states.numpy(), recorded], axis=1)

    @cached_property
    def action_inputs(self) -> FloatArray:
        """The action's vector and, unless that is the same, an indicator of each action [N, ...]."""
        space, actions = self.model.schema.actions, self.rows.actions.numpy()
        indicators = np.eye(len(space))[actions]
        if space.is_categorical:
            return np.asarray(indicators)
        vectors = self.model.action_vectors.numpy()[actions]
        return np.concatenate([vectors, indicators], axis=1, dtype=np.float64)


def _rows_of(model: TransitionModel, cohort: Cohort) -> EncodedTransitions:
    """The cohort's transitions; nothing about what was measured where everything was."""
    rows = EncodedTransitions.of(model, cohort)
    return rows._replace(measured=None) if rows.measured is not None and rows.measured.all() else rows


def _noise_that_counts(model: TransitionModel, rows: EncodedTransitions) -> Tensor | None:
    """Which entries of the noise follow from measured values alone [N, D]; None: all.

    Where features do not each have a noise of their own, every noise follows from the whole next state.
    """
    if rows.measured is None or model.elementwise:
        return rows.measured
    return rows.measured.all(-1, keepdim=True).expand_as(rows.measured)


def prior_of(model: TransitionModel) -> NoisePrior:
    """The model's prior; a model without one is taken to mean standard normal noise."""
    prior = getattr(model, "prior", None)
    return prior if isinstance(prior, NoisePrior) else Gaussian(model.state_size).double()


def prior_ranks(ordered: FloatArray, values: FloatArray) -> FloatArray:
    """Where each value [N, D] stands among the sorted columns of `ordered` [M, D]: strictly between 0 and 1."""
    ranks = np.empty(values.shape)
    for column in range(values.shape[1]):
        below, up_to = (np.searchsorted(ordered[:, column], values[:, column], side) for side in ("left", "right"))
        ranks[:, column] = ((below + up_to) / 2 + 0.5) / (len(ordered) + 1)
    return ranks


def normal_scores(ranks: FloatArray) -> FloatArray:
    """The quantiles of the standard normal distribution at these ranks."""
    return np.asarray(torch.special.ndtri(torch.as_tensor(ranks)).numpy())


def _noise_and_density(model: TransitionModel, prior: NoisePrior, rows: EncodedTransitions) -> tuple[Tensor, ...]:
    """The abducted noise [N, D] and the log density [N] of the next states, or of their entries that count."""
    found = [_of_batch(model, prior, batch) for batch in rows.batches(ROWS_AT_ONCE)]
    return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def _of_batch(model: TransitionModel, prior: NoisePrior, rows: EncodedTransitions) -> tuple[Tensor, Tensor]:
    density = getattr(model, "log_prob", None)
    in_part = rows.measured is not None and model.elementwise
    if density is not None:
        with torch.no_grad():
            noise = model.abduct(*rows[:4])
            return noise, density(*rows) if in_part else _of_whole_rows(density(*rows[:4]), rows.measured)
    following = rows.next_states.clone().requires_grad_()
    noise = model.abduct(rows.states, rows.context, rows.actions, following)
    volume = _log_determinant(noise, following, rows.measured if model.elementwise else None, model.elementwise)
    with torch.no_grad():
        noise = noise.detach()
        if rows.measured is not None and in_part:
            return noise, prior.marginal_log_prob(noise, rows.measured) + volume
        return noise, _of_whole_rows(prior.log_prob(noise) + volume, rows.measured)


def _of_whole_rows(log_prob: Tensor, measured: Tensor | None) -> Tensor:
    """Log densities [n], and nothing where not the whole next state was measured."""
    return log_prob if measured is None else torch.where(measured.all(-1), log_prob, 0.0)


def _log_determinant(noise: Tensor, following: Tensor, measured: Tensor | None, elementwise: bool) -> Tensor:
    """log |det d noise / d next states| [n] by automatic differentiation; of the measured entries [n, D] if given."""
    if elementwise:
        (slopes,) = torch.autograd.grad(noise.sum(), following)
        volumes = slopes.abs().log()
        return (volumes if measured is None else torch.where(measured, volumes, 0.0)).sum(-1)
    columns = noise.sum(0)
    jacobians = [torch.autograd.grad(column, following, retain_graph=True)[0] for column in columns]
    volume: Tensor = torch.linalg.slogdet(torch.stack(jacobians, dim=1)).logabsdet
    return volume
