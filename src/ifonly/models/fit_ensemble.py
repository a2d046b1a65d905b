"""Fitting an ensemble: a model for everyone and bootstrap refits of it, all trained together.

Each refit is trained on as many subjects as the first model, drawn with replacement from all, and is what `fit` would
make of them: the same loss, batches and choice of the best epoch. The models' weights are stacked, so that a batch of
every model costs one pass (`ifonly.models.stacked`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ifonly.data.cohort import Cohort
from ifonly.data.plain import check_whole
from ifonly.data.scaling import Scaler
from ifonly.files import available_cores
from ifonly.models.adam import StackedAdam
from ifonly.models.base import TrainableModel
from ifonly.models.bootstrap import BootstrapSample, SubjectIndex, notes_on
from ifonly.models.ensemble import Ensemble
from ifonly.models.fit import (
    EVALUATION_ROWS,
    EncodedTransitions,
    TrainingRun,
    broke_down,
    chosen_device,
    correlate,
    fresh_copy,
    torch_threads,
    train,
)
from ifonly.models.fit_report import FitReport, FitSettings
from ifonly.models.networks import NetworkModel
from ifonly.models.stacked import STACKABLE, Members, StackedModel, seen_weights, set_weights, weights_of
from ifonly.models.training_state import TrainingState
from ifonly.progress import Progress, Tick, part_of, silent

MEMBERS = 20
"""How many refits an ensemble has unless told otherwise."""


def fit_ensemble(
    model: TrainableModel,
    cohort: Cohort,
    *,
    members: int = MEMBERS,
    settings: FitSettings | None = None,
    epochs: int | None = None,
    seed: int = 0,
    journal: Path | None = None,
    progress: Progress = silent,
) -> Ensemble:
    """An `Ensemble` of models like `model`: one fitted to everyone, and `members` bootstrap refits.

    The centre is what `fit(model, cohort, settings=settings, seed=seed)` gives, up to rounding. Each member draws, with
    replacement, as many subjects as the centre trains on, and holds out as many as the centre does, all from those it
    did not draw, to choose its epoch.

    All models share the centre's scaling, so that their states, distances and constants mean the same. Samples, initial
    weights and batches of member i follow from `seed` and i alone, whatever the number of members; rounding apart, so
    do its weights. `settings.threads` is the number of groups trained side by side, each by a thread of its own;
    without settings there are as many as cores. `ensemble.notes` says what limits what the members' agreement can mean.

    Models of the package's own classes are trained together; those of another class, or with frozen weights, one after
    the other. With a `journal`, a file that whoever is done with it removes, the training together is written down
    every now and then, and goes on from there, to the same weights, if it was stopped.

    >>> from ifonly import simulate
    >>> from ifonly.models import LocationScale
    >>> cohort = simulate.simulate_cohort(40, seed=0)
    >>> model = LocationScale(cohort.schema, hidden=(16,), lipschitz=(1.0, 0.1))
    >>> ensemble = fit_ensemble(model, cohort, members=3, epochs=2)
    >>> len(ensemble), ensemble[0].fit_report.settings.epochs
    (3, 2)
    """
    settings = settings or FitSettings(threads=available_cores())
    settings = settings if epochs is None else replace(settings, epochs=epochs)
    check_whole("fit: seed", seed, least=0)
    check_whole("fit_ensemble: members", members, least=1)
    model.schema.require_same(cohort.schema, here="the model", there="the cohort")
    subjects = SubjectIndex.of(cohort)
    samples = [subjects.everyone(settings, seed), *(subjects.draw(settings, seed, number) for number in range(members))]
    scaler = Scaler.fit(cohort.filter(subjects.trained_on(samples[0])))
    request = (cohort.fingerprint(), type(model).__qualname__, model.settings(), settings, seed, members)
    state = None if journal is None else TrainingState(journal, *request)
    wanted = [Wanted(sample, settings.curvature) for sample in samples]
    centre, *refits = fit_samples(
        model, cohort, wanted, scaler=scaler, settings=settings, state=state, progress=progress
    )
    return Ensemble(refits, centre=centre, notes=notes_on(cohort, subjects, samples[1:])).eval()


def fit_strengths(
    model: TrainableModel,
    cohort: Cohort,
    strengths: Sequence[float],
    *,
    settings: FitSettings | None = None,
    seed: int = 0,
    journal: Path | None = None,
    progress: Progress = silent,
) -> list[TrainableModel]:
    """Models like `model`, one for each strength of the curvature penalty, trained together.

    Each is what `fit` gives with that strength, up to rounding: the same subjects, initial weights and batches. With a
    `journal` a training that was stopped goes on, as that of `fit_ensemble`.
    """
    settings = settings or FitSettings()
    sample, scaler = _everyone(model, cohort, settings, seed)
    wanted = [Wanted(sample, strength) for strength in strengths]
    request = (cohort.fingerprint(), type(model).__qualname__, model.settings(), settings, seed, tuple(strengths))
    state = None if journal is None else TrainingState(journal, *request)
    return fit_samples(model, cohort, wanted, scaler=scaler, settings=settings, state=state, progress=progress)


def fit_limits(
    models: Sequence[TrainableModel],
    cohort: Cohort,
    *,
    settings: FitSettings | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> list[TrainableModel]:
    """Models that differ in Lipschitz limits alone, trained together: each is what `fit` gives, up to rounding."""
    settings = settings or FitSettings()
    sample, scaler = _everyone(models[0], cohort, settings, seed)
    wanted = [Wanted(sample, settings.curvature, like=model) for model in models]
    return fit_samples(models[0], cohort, wanted, scaler=scaler, settings=settings, progress=progress)


def _everyone(
    model: TrainableModel, cohort: Cohort, settings: FitSettings, seed: int
) -> tuple[BootstrapSample, Scaler]:
    """Whom `fit` trains on, and the scaling that it learns from them."""
    model.schema.require_same(cohort.schema, here="the model", there="the cohort")
    subjects = SubjectIndex.of(cohort)
    sample = subjects.everyone(settings, seed)
    return sample, Scaler.fit(cohort.filter(subjects.trained_on(sample)))


@dataclass(frozen=True)
class Wanted:
    """A model that is to be fitted: to whom, how strongly penalised, and from which inputs."""

    sample: BootstrapSample
    curvature: float
    """The strength of its curvature penalty."""
    left_out: tuple[int, ...] = ()
    """Inputs that its networks do not see: columns of the state, then of the context."""
    like: TrainableModel | None = None
    """A model with the limits that it is to have, where they differ; None: those of all others."""


def fit_samples(
    model: TrainableModel,
    cohort: Cohort,
    wanted: Sequence[Wanted],
    *,
    scaler: Scaler,
    settings: FitSettings,
    state: TrainingState | None = None,
    progress: Progress = silent,
) -> list[TrainableModel]:
    """Models like `model`, one for each of `wanted`, in one scaling: trained together where their class can be.

    Each is what `fit` makes of its sample, up to rounding. Weights of inputs that are left out are zero, and stay so:
    what a model is, and what bounds say of it, follows from its weights as always.
    """
    started = time.perf_counter()
    learners = []
    for one in wanted:
        generator = torch.Generator().manual_seed(one.sample.seed)
        fresh = fresh_copy(one.like or model, scaler, generator).to(chosen_device(settings))
        seen = None
        if one.left_out:
            assert isinstance(fresh, NetworkModel), "others have no inputs to leave out"
            seen = seen_weights(fresh, one.left_out)
            set_weights(fresh, weights_of(fresh) * seen)
        learners.append(_Learner(fresh, one.sample, generator, one.curvature, seen))
    rows = EncodedTransitions.for_densities(learners[0].model, cohort)
    if type(model) in STACKABLE and all(parameter.requires_grad for parameter in learners[0].model.parameters()):
        losses = _train_together(learners, rows, settings, progress, state)
    else:
        losses = _train_one_by_one(learners, rows, settings, progress)
    for learner in learners:
        correlate(learner.model, rows.take(learner.sample.rows), settings)
    for learner, (training_loss, validation_loss) in zip(learners, losses, strict=True):
        learner.model.fit_report = FitReport(
            settings=replace(settings, curvature=learner.curvature),
            seed=learner.sample.seed,
            training=learner.sample.training,
            validation=learner.sample.validation,
            training_loss=tuple(training_loss),
            validation_loss=tuple(validation_loss),
            seconds=time.perf_counter() - started,
        )
    return [learner.model.to("cpu").eval() for learner in learners]


class _Learner(NamedTuple):
    """A model to be trained on a sample of the rows, with random numbers of its own."""

    model: TrainableModel
    sample: BootstrapSample
    generator: torch.Generator
    curvature: float
    """The strength of its curvature penalty."""
    seen: Tensor | None = None
    """1 for the weights [P] that are trained, 0 for those that stay as they are; None: all are trained."""


_Losses = tuple[list[float], list[float]]
"""Training and validation losses, epoch by epoch."""


def _train_one_by_one(
    learners: Sequence[_Learner], rows: EncodedTransitions, settings: FitSettings, progress: Progress
) -> list[_Losses]:
    """Train each model as `fit` does."""
    losses = []
    for number, (model, sample, generator, *_) in enumerate(learners):
        report = part_of(progress, number, len(learners))
        held_rows = rows.take(sample.held_out) if sample.validation else None
        with torch_threads(1):  # as `fit` by default: more gain nothing here
            losses.append(train(model, rows.take(sample.rows), held_rows, TrainingRun(settings, generator, report)))
        model.eval()
    return losses


def _train_together(
    learners: Sequence[_Learner],
    rows: EncodedTransitions,
    settings: FitSettings,
    progress: Progress,
    state: TrainingState | None = None,
) -> list[_Losses]:
    """Train all models epoch by epoch, in as many groups as there are threads; what `state` tells is not done again."""
    # Longest first: in the last batches of an epoch those that still have rows are then the first ones.
    order = sorted(range(len(learners)), key=lambda number: -len(learners[number].sample.rows))
    count = min(settings.threads, len(learners))
    places = [order[start::count] for start in range(count)]
    groups = [_Group([learners[place] for place in group], rows, settings) for group in places]
    kept = None if state is None else state.read()
    losses: list[_Losses] = [([], []) for _ in learners] if kept is None else _resumed(groups, kept)
    with torch_threads(1), ThreadPoolExecutor(count) as pool:
        for epoch in range(len(losses[0][0]) + 1, settings.epochs + 1):
            found = list(pool.map(_Group.train_epoch, groups, [settings.rate(epoch)] * count))
            figures = torch.empty(len(learners), 2, dtype=torch.float64)
            for group, values in zip(places, found, strict=True):
                figures[group] = values
            held_out = learners[0].sample.validation is not None
            finite = figures[:, : 1 + held_out].isfinite().all(1)
            if not finite.all():
                raise broke_down(epoch, settings, where=f"fit_ensemble, in one or more of {len(learners)} models")
            means = figures.mean(0).tolist()
            for (training_loss, validation_loss), (training, validation) in zip(losses, figures.tolist(), strict=True):
                training_loss.append(training)
                if held_out:
                    validation_loss.append(validation)
            shown = dict(zip(("training loss", "validation loss"), means[: 1 + held_out], strict=False))
            progress(Tick("fit", epoch, settings.epochs, shown))
            if state is not None:
                state.keep(lambda: _state_of(groups, losses), last=epoch == settings.epochs)
    for trained in groups:
        trained.hand_out_weights()
    return losses


def _state_of(groups: Sequence[_Group], losses: Sequence[_Losses]) -> dict[str, Tensor]:
    """All that the rest of a training depends on."""
    kinds = {"training": 0, "validation": 1}
    found = {name: torch.tensor([loss[kind] for loss in losses], dtype=torch.float64) for name, kind in kinds.items()}
    for number, group in enumerate(groups):
        found |= {f"{number} {name}": tensor for name, tensor in group.state().items()}
    return found


def _resumed(groups: Sequence[_Group], kept: Mapping[str, Tensor]) -> list[_Losses]:
    """Put the groups where they were; the losses of the epochs until then."""
    for number, group in enumerate(groups):
        group.resume({name: kept[f"{number} {name}"] for name in group.state()})
    return list(zip(kept["training"].tolist(), kept["validation"].tolist(), strict=True))


class _Group:
    """Models that one thread trains together, those with the most rows first."""

    def __init__(self, learners: Sequence[_Learner], rows: EncodedTransitions, settings: FitSettings) -> None:
        self._learners = learners
        self._rows = rows
        self._settings = settings
        self._drawn = [learner.sample.rows.to(rows.actions.device) for learner in learners]
        self._held_out = [learner.sample.held_out.to(rows.actions.device) for learner in learners]
        self._validates = learners[0].sample.validation is not None
        self._stacked = StackedModel(*(learner.model for learner in learners))
        self._weights = torch.stack([weights_of(learner.model) for learner in learners])
        self._seen = _stacked_seen(learners, self._weights)
        self._optimizer = StackedAdam(self._weights)
        self._best = self._weights.clone()
        self._lowest = torch.full((len(learners),), math.inf, dtype=torch.float64)

    def train_epoch(self, rate: float) -> Tensor:
        """One pass over each model's rows; training and validation losses [K, 2] (NaN: none, or broken down)."""
        self._optimizer.rate = rate
        losses = torch.full((len(self._learners), 2), math.nan, dtype=torch.float64)
        try:
            losses[:, 0] = self._pass_over_rows()
            if self._validates:
                losses[:, 1] = self._validation_losses()
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            return losses  # the norm of a matrix that is no longer finite
        losses[~self._weights.isfinite().all(1).cpu()] = math.nan
        if not (self._validates and self._settings.restore_best):
            self._best = self._weights
        else:
            better = losses[:, 1] < self._lowest
            self._lowest[better] = losses[better, 1]
            self._best[better] = self._weights[better]
        return losses

    def state(self) -> dict[str, Tensor]:
        """All that the next epochs depend on, the random numbers of each model included."""
        drawn = {f"generator {number}": learner.generator.get_state() for number, learner in enumerate(self._learners)}
        own = {"weights": self._weights, "best": self._best, "lowest": self._lowest}
        return own | self._optimizer.state() | drawn

    def resume(self, kept: Mapping[str, Tensor]) -> None:
        """Take up a state again; what it is has the shape of what `state` gives."""
        for number, learner in enumerate(self._learners):
            learner.generator.set_state(kept[f"generator {number}"])
        for name, tensor in self.state().items():
            if not name.startswith("generator"):
                tensor.copy_(kept[name])

    def hand_out_weights(self) -> None:
        """Give every model the weights to keep."""
        for learner, weights in zip(self._learners, self._best, strict=True):
            set_weights(learner.model, weights)

    def _pass_over_rows(self) -> Tensor:
        """The mean loss [K] of each model's transitions while its weights move."""
        shuffled = [
            rows[torch.randperm(len(rows), generator=learner.generator)]
            for rows, learner in zip(self._drawn, self._learners, strict=True)
        ]
        totals = torch.zeros(len(shuffled), dtype=torch.float64)
        for batch in _batches(shuffled, self._settings.batch_size):
            active = len(batch.positions)
            weights = self._weights[:active].detach().requires_grad_()
            losses = -(self._log_prob(weights, batch, slice(active)) * batch.counts).sum(1) / batch.sizes
            penalty = self._penalties(weights)
            (losses if penalty is None else losses + penalty).sum().backward()
            assert weights.grad is not None
            self._optimizer.step(weights.grad if self._seen is None else weights.grad * self._seen[:active])
            totals[:active] += (losses.detach() * batch.sizes).cpu()
        return totals / torch.tensor([len(rows) for rows in shuffled])

    def _penalties(self, weights: Tensor) -> Tensor | None:
        """Curvature penalties [K] of the first K models, given their weights; None where nobody has any."""
        if not any(learner.curvature for learner in self._learners[: len(weights)]):
            return None
        strengths = weights.new_tensor([learner.curvature for learner in self._learners[: len(weights)]])
        return strengths * self._stacked.curvature(weights, slice(len(weights)))

    @torch.no_grad()
    def _validation_losses(self) -> Tensor:
        """The mean loss [K] of the rows held out from each model."""
        held_out = self._held_out
        order = sorted(range(len(held_out)), key=lambda number: -len(held_out[number]))
        totals = torch.zeros(len(held_out), dtype=torch.float64)
        for batch in _batches([held_out[number] for number in order], max(1, EVALUATION_ROWS // len(held_out))):
            places = order[: len(batch.positions)]
            densities = self._log_prob(self._weights[places], batch, places).double() * batch.counts
            totals[places] -= densities.sum(1).cpu()
        return totals / torch.tensor([len(rows) for rows in held_out])

    def _log_prob(self, weights: Tensor, batch: _Batch, members: Members) -> Tensor:
        return self._stacked.objective(weights, self._rows.take(batch.positions), self._settings, members)


def _stacked_seen(learners: Sequence[_Learner], weights: Tensor) -> Tensor | None:
    """Factors of gradients, as weights [K, P]; None where everything is trained."""
    if all(learner.seen is None for learner in learners):
        return None
    pairs = zip(learners, weights, strict=True)
    return torch.stack([torch.ones_like(own) if one.seen is None else one.seen.to(own) for one, own in pairs])


class _Batch(NamedTuple):
    """Rows for the first K models of a group; where a model has fewer than others, one of its rows fills up."""

    positions: Tensor  # [K, B]
    counts: Tensor  # [K, B], 0 for what merely fills up
    sizes: Tensor  # [K], of rows that count


def _batches(rows: Sequence[Tensor], size: int) -> list[_Batch]:
    """The rows of each model, the longest first, in parts of at most `size`."""
    batches = []
    for start in range(0, len(rows[0]), size):
        parts = [part[start : start + size] for part in rows if len(part) > start]
        sizes = torch.tensor([len(part) for part in parts], device=rows[0].device)
        width = len(parts[0])
        positions = torch.stack([torch.cat((part, part[:1].expand(width - len(part)))) for part in parts])
        counts = torch.arange(width, device=sizes.device) < sizes.unsqueeze(1)
        batches.append(_Batch(positions, counts, sizes))
    return batches
