"""Recorded transitions as a model sees them: the noise that explains each, its density, the prior's own draws; and
their densities under two plain baselines.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray, IntArray
from ifonly.models.base import TransitionModel
from ifonly.models.fit import EncodedTransitions
from ifonly.models.noise import Gaussian, NoisePrior

BoolArray = npt.NDArray[np.bool_]

PRIOR_DRAWS = 100_000
"""Draws by which ranks within the prior are found: they are then exact to about 0.2 %."""

ROWS_AT_ONCE = 8192

FOLDS = 5
RIDGE = 1.0
"""Weight of the squared coefficients of the linear baseline against squared errors, in scaled units."""

LEAST_DEVIATION = 1e-4
"""In scaled units: keeps the density of a feature that a baseline predicts exactly finite."""

PERSISTENCE, LINEAR = BASELINES = ("persistence", "linear")


@dataclass(frozen=True, eq=False)
class NoiseSample:
    """N transitions of a cohort under a model, those at which it is finite; float64."""

    model: TransitionModel
    prior: NoisePrior
    cohort: Cohort
    rows: EncodedTransitions
    noise: FloatArray  # [N, D]
    log_prob: FloatArray  # [N], in scaled coordinates
    draws: FloatArray  # [PRIOR_DRAWS, D], of the prior, each column sorted on its own
    prior_scores: FloatArray  # [20,000, D], normal scores of draws that belong together
    episode: IntArray  # [N]
    position: IntArray  # [N], of the transition among all of the cohort
    broken: int
    """Transitions left out because noise or density are not finite there."""

    @classmethod
    def of(cls, model: TransitionModel, cohort: Cohort, *, seed: int) -> NoiseSample:
        """Abduct every transition of `cohort`; `model` is a copy for search."""
        rows, prior = EncodedTransitions.of(model, cohort), prior_of(model)
        found = [_noise_and_density(model, prior, batch) for batch in rows.batches(ROWS_AT_ONCE)]
        noise, log_prob = (torch.cat(parts) for parts in zip(*found, strict=True))
        finite = torch.isfinite(noise).all(-1) & torch.isfinite(log_prob)
        with torch.no_grad():
            draws = prior.sample((PRIOR_DRAWS,), generator=torch.Generator().manual_seed(seed)).numpy()
        ordered = np.sort(draws, axis=0)
        return cls(
            model=model,
            prior=prior,
            cohort=cohort,
            rows=EncodedTransitions(*(column[finite] for column in rows)),
            noise=noise[finite].numpy(),
            log_prob=log_prob[finite].numpy(),
            draws=ordered,
            prior_scores=normal_scores(prior_ranks(ordered, draws[:20_000])),
            episode=cohort.transitions().episode[finite.numpy()],
            position=np.flatnonzero(finite.numpy()),
            broken=int((~finite).sum()),
        )

    def __len__(self) -> int:
        return len(self.episode)

    @cached_property
    def subject(self) -> IntArray:
        """The number of each transition's subject [N]."""
        _, numbers = np.unique(np.array(self.cohort.subjects), return_inverse=True)
        return np.asarray(numbers[self.episode], dtype=np.int64)

    @cached_property
    def ranks(self) -> FloatArray:
        """The share of the prior that lies below each noise [N, D]: uniform where the model is right."""
        return prior_ranks(self.draws, self.noise)

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

    @cached_property
    def constant(self) -> BoolArray:
        """Which dynamic features have a single value in the whole cohort [D]."""
        return np.asarray(self.cohort.states.min(axis=0) == self.cohort.states.max(axis=0))

    @cached_property
    def inputs(self) -> FloatArray:
        """State and context [N, D + C]."""
        return np.concatenate([self.rows.states.numpy(), self.rows.context.numpy()], axis=1)

    @cached_property
    def action_inputs(self) -> FloatArray:
        """The action's vector and, unless that is the same, an indicator of each action [N, ...]."""
        space, actions = self.model.schema.actions, self.rows.actions.numpy()
        indicators = np.eye(len(space))[actions]
        if space.is_categorical:
            return np.asarray(indicators)
        vectors = self.model.action_vectors.numpy()[actions]
        return np.concatenate([vectors, indicators], axis=1, dtype=np.float64)


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


def _noise_and_density(model: TransitionModel, prior: NoisePrior, rows: EncodedTransitions) -> tuple[Tensor, Tensor]:
    """The abducted noise [n, D] and the log density [n] of the next states."""
    density = getattr(model, "log_prob", None)
    if density is not None:
        with torch.no_grad():
            return model.abduct(*rows), density(*rows)
    following = rows.next_states.clone().requires_grad_()
    noise = model.abduct(rows.states, rows.context, rows.actions, following)
    volume = _log_determinant(noise, following, elementwise=model.elementwise)
    with torch.no_grad():
        return noise.detach(), prior.log_prob(noise.detach()) + volume


def _log_determinant(noise: Tensor, following: Tensor, *, elementwise: bool) -> Tensor:
    """log |det d noise / d next states| [n] by automatic differentiation."""
    if elementwise:
        (slopes,) = torch.autograd.grad(noise.sum(), following)
        return slopes.abs().log().sum(-1)
    columns = noise.sum(0)
    jacobians = [torch.autograd.grad(column, following, retain_graph=True)[0] for column in columns]
    volumes: Tensor = torch.linalg.slogdet(torch.stack(jacobians, dim=1)).logabsdet
    return volumes


# Baselines: two plain models that a good one must beat. Nothing changes but by chance; and a linear one with Gaussian
# noise.


@dataclass(frozen=True)
class _LinearGaussian:
    """next = [1, inputs] @ coefficients + noise with a full covariance."""

    coefficients: FloatArray  # [p + 1, D]
    factor: FloatArray  # [D, D], Cholesky factor of the covariance

    @classmethod
    def fit(cls, inputs: FloatArray, targets: FloatArray) -> _LinearGaussian:
        design = _design(inputs)
        penalty = RIDGE * np.eye(design.shape[1])
        penalty[0, 0] = 1e-9  # the intercept is free
        coefficients = np.linalg.solve(design.T @ design + penalty, design.T @ targets)
        errors = targets - design @ coefficients
        covariance = errors.T @ errors / len(errors) + LEAST_DEVIATION**2 * np.eye(targets.shape[1])
        return cls(
            np.asarray(coefficients, dtype=np.float64), np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        )

    def log_prob(self, inputs: FloatArray, targets: FloatArray) -> FloatArray:
        errors = targets - _design(inputs) @ self.coefficients
        white = np.linalg.solve(self.factor, errors.T)
        volume = float(np.log(np.diag(self.factor)).sum()) + targets.shape[1] / 2 * np.log(2 * np.pi)
        return np.asarray(-0.5 * (white**2).sum(axis=0) - volume)


def _design(inputs: FloatArray) -> FloatArray:
    return np.concatenate([np.ones((len(inputs), 1)), inputs], axis=1)


def subject_folds(subjects: IntArray, *, seed: int) -> IntArray:
    """A fold, 0 to `FOLDS` - 1, for every row [N]; all rows of a subject are in the same."""
    unique, numbers = np.unique(subjects, return_inverse=True)
    return np.asarray(np.random.default_rng(seed).permutation(len(unique))[numbers] % FOLDS)


def baseline_log_prob(sample: NoiseSample, *, seed: int) -> dict[str, FloatArray]:
    """Log densities [N] of the next states under each baseline, in the model's coordinates.

    Every transition is judged by baselines fitted to other subjects of the same cohort, four fifths of them.
    """
    now, following = sample.rows.states.numpy(), sample.rows.next_states.numpy()
    nothing = np.empty((len(sample), 0))
    everything = np.concatenate([sample.inputs, sample.action_inputs], axis=1)
    folds = subject_folds(sample.subject, seed=seed)
    found = {name: np.empty(len(sample)) for name in BASELINES}
    for fold in range(FOLDS):
        test, train = folds == fold, folds != fold
        # Both are fitted to the change: shrinking the coefficients then leads to persistence.
        for name, inputs in ((PERSISTENCE, nothing), (LINEAR, everything)):
            model = _LinearGaussian.fit(inputs[train], (following - now)[train])
            found[name][test] = model.log_prob(inputs[test], (following - now)[test])
    return found
