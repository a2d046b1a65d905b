"""Fitting: maximum likelihood with Adam, validated on subjects held out, the same weights for the same seed."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from ifonly.data.cohort import Cohort, Transitions
from ifonly.data.episode import FloatArray
from ifonly.data.plain import check_whole
from ifonly.data.scaling import Scaler
from ifonly.errors import FitError, InputError
from ifonly.models.adam import Adam
from ifonly.models.base import TrainableModel, TransitionModel
from ifonly.models.fit_report import DataCounts, FitReport, FitSettings
from ifonly.models.noise import StudentMargins
from ifonly.models.steps import spread_over_cells
from ifonly.progress import Progress, Tick, silent

__all__ = ["DataCounts", "FitReport", "FitSettings", "evaluate", "fit"]

EVALUATION_ROWS = 8192
"""Transitions evaluated at once where no gradient is needed; bounds the memory."""

Model = TypeVar("Model", bound=TrainableModel)


def fit(
    model: Model,
    cohort: Cohort,
    *,
    settings: FitSettings | None = None,
    epochs: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Model:
    """A new model like `model`, fitted to `cohort` by maximum likelihood; its `fit_report` says how it went.

    `model` says what to fit - its class and settings - and stays as it is: weights start afresh from `seed`, and the
    scaling is learned from the subjects trained on. Negative log-likelihood, Adam, float32. The same seed gives the
    same weights, bit for bit, on the same machine with the same settings; the global random state is neither used nor
    changed. `epochs` is a shortcut for `settings=FitSettings(epochs=...)`.

    >>> from ifonly import simulate
    >>> from ifonly.models import LocationScale
    >>> cohort = simulate.simulate_cohort(20, seed=0)
    >>> model = fit(LocationScale(cohort.schema, hidden=(16,), lipschitz=(1.0, 0.1)), cohort, epochs=3)
    >>> model.fit_report.settings.epochs, model.fit_report.validation.subjects
    (3, 2)
    """
    settings = settings or FitSettings()
    settings = settings if epochs is None else replace(settings, epochs=epochs)
    check_whole("fit: seed", seed, least=0)
    model.schema.require_same(cohort.schema, here="the model", there="the cohort")
    parts = hold_out_subjects(cohort, settings, seed)
    generator = torch.Generator().manual_seed(seed)
    fresh = fresh_copy(model, Scaler.fit(parts[0]), generator)
    return _fitted(fresh, parts, TrainingRun(settings, generator, progress), seed)


def fit_further(
    model: Model, cohort: Cohort, follow: Follow, *, settings: FitSettings, seed: int, progress: Progress = silent
) -> Model:
    """A copy of a fitted model, trained on with a context that follows from the model itself, as it is at each epoch.

    The coordinates stay, and so do the subjects that are held out.
    """
    begun = copy.deepcopy(model, _never_copied(model)).to(torch.float32)
    run = TrainingRun(settings, torch.Generator().manual_seed(seed), progress, follow)
    return _fitted(begun, hold_out_subjects(cohort, settings, seed), run, seed)


def _fitted(model: Model, parts: tuple[Cohort, Cohort | None], run: TrainingRun, seed: int) -> Model:
    """The model itself, trained from the weights that it has on the first part, its epoch chosen on the second."""
    started, settings = time.perf_counter(), run.settings
    training, held_out = parts
    fitted = model.to(chosen_device(settings))
    rows = EncodedTransitions.for_densities(fitted, training)
    held_rows = None if held_out is None else EncodedTransitions.for_densities(fitted, held_out)
    with torch_threads(settings.threads):
        training_loss, validation_loss = train(fitted, rows, held_rows, run)
        correlate(fitted, run.following(fitted, rows, None)[0], settings)
    fitted.fit_report = FitReport(
        settings=settings,
        seed=seed,
        training=DataCounts.of(training),
        validation=None if held_out is None else DataCounts.of(held_out),
        training_loss=tuple(training_loss),
        validation_loss=tuple(validation_loss),
        seconds=time.perf_counter() - started,
    )
    return fitted.to("cpu").eval()


def evaluate(
    model: TrainableModel, cohort: Cohort, *, coordinates: Scaler | Literal["model", "original"] = "model"
) -> float:
    """The mean log-likelihood per transition of `cohort`, in nats.

    A density depends on the units it is measured in. By default these are the model's own scaled coordinates, which
    differ between models fitted to different data; to compare such models measure them all in the coordinates of one
    `Scaler`, or in "original" units. With y the coordinates asked for and z the model's, the change of variables adds
    the mean of log |dz / dy|.
    """
    model.schema.require_same(cohort.schema, here="the model", there="the cohort")
    own = _mean(model, EncodedTransitions.of(model, cohort), FitSettings())
    return own + _log_volume_change(model.scaler, coordinates, cohort.transitions())


def _log_volume_change(
    own: Scaler, coordinates: Scaler | Literal["model", "original"], transitions: Transitions
) -> float:
    """The mean over transitions of log |dz / dy|, z the next state in `own` and y in the other coordinates."""
    columns = own.states
    if isinstance(coordinates, Scaler):
        other = coordinates.states
        if other.scale.shape != columns.scale.shape:
            raise InputError("evaluate: the scaler was made for other features than the model's.")
        links = (one.link.log_slopes(transitions.next_states) for one in (columns, other))
        return _mean_of_measured(np.subtract(*links) + np.log(other.scale / columns.scale), transitions)
    if coordinates == "model":
        return 0.0
    if coordinates != "original":
        raise InputError(f"evaluate: coordinates={coordinates!r}; choose 'model', 'original' or a Scaler.")
    slopes = columns.link.log_slopes(transitions.next_states) - np.log(columns.scale)
    return _mean_of_measured(slopes, transitions)


def _mean_of_measured(values: FloatArray, transitions: Transitions) -> float:
    """The mean over transitions of the sum of values [N, D] of the entries that were measured."""
    counted = values if transitions.measured is None else values * transitions.measured
    return float(counted.sum(axis=1).mean())


class EncodedTransitions(NamedTuple):
    """Encoded transitions, in the order of `log_prob`'s arguments, all with N rows."""

    states: Tensor
    context: Tensor
    actions: Tensor
    next_states: Tensor
    measured: Tensor | None = None
    """Which entries of the next states were measured [N, D]; None: all."""

    @classmethod
    def of(cls, model: TransitionModel, cohort: Cohort) -> Self:
        """The transitions of a cohort in the coordinates, precision and place of `model`."""
        like = model.action_vectors
        scaler, transitions = model.scaler, cohort.transitions()

        def tensor(values: Any) -> Tensor:
            return torch.as_tensor(values).to(dtype=like.dtype, device=like.device)

        return cls(
            tensor(scaler.states.encode(transitions.states)),
            tensor(np.delete(model.encode_context(cohort), cohort.offsets[1:] - 1, axis=0)),  # last steps lead nowhere
            torch.tensor(transitions.actions, device=like.device),
            tensor(scaler.states.encode(transitions.next_states)),
            None if transitions.measured is None else torch.tensor(transitions.measured, device=like.device),
        )

    @classmethod
    def for_densities(cls, model: TransitionModel, cohort: Cohort) -> EncodedTransitions:
        """The same to maximise or compare densities of, which have no steps (`spread_over_cells`)."""
        return spread_over_cells(model, cls.of(model, cohort))

    def mapped(self, change: Callable[[Tensor], Tensor]) -> EncodedTransitions:
        """With `change` applied to every column."""
        return EncodedTransitions(*(None if column is None else change(column) for column in self))  # type: ignore[arg-type]

    @property
    def given(self) -> tuple[Tensor, ...]:
        """The columns that there are: without `measured` where all entries were."""
        return tuple(column for column in self if column is not None)

    def take(self, positions: Tensor) -> EncodedTransitions:
        """The rows at `positions` [...]: columns [..., D] and so on."""
        flat = positions.flatten().to(self.actions.device)
        return self.mapped(lambda column: column.index_select(0, flat).unflatten(0, positions.shape))

    def shuffled(self, generator: torch.Generator) -> EncodedTransitions:
        """The rows in random order: one gather per epoch, after which batches are slices."""
        return self.take(torch.randperm(len(self.actions), generator=generator))

    def batches(self, size: int = EVALUATION_ROWS) -> Iterator[EncodedTransitions]:
        """Parts of at most `size` rows."""
        starts = range(0, len(self.actions), size)
        return (self.mapped(lambda column, at=start: column[at : at + size]) for start in starts)  # type: ignore[misc]


Rows = tuple[EncodedTransitions, EncodedTransitions | None]
"""Those trained on, and those held out."""
Follow = Callable[[TrainableModel, Rows], Rows]
"""Gives rows the context that follows from a model."""


class TrainingRun(NamedTuple):
    """What the parts of one fit share."""

    settings: FitSettings
    generator: torch.Generator
    progress: Progress
    follow: Follow | None = None
    """Before every epoch, where the context follows from the model."""

    def following(self, model: TrainableModel, rows: EncodedTransitions, held_rows: EncodedTransitions | None) -> Rows:
        """The rows with the context that follows from the model as it is."""
        return self.follow(model.eval(), (rows, held_rows)) if self.follow else (rows, held_rows)


def train(
    model: TrainableModel, rows: EncodedTransitions, held_rows: EncodedTransitions | None, run: TrainingRun
) -> tuple[list[float], list[float]]:
    """Train `model` in place and leave it with the weights to keep; returns both loss curves."""
    settings = run.settings
    optimizer = Adam(model.parameters())
    training_loss: list[float] = []
    validation_loss: list[float] = []
    best: dict[str, Tensor] = {}
    for epoch in range(1, settings.epochs + 1):
        rows, held_rows = run.following(model, rows, held_rows)
        try:
            figures = {"training loss": _train_epoch(model, rows, optimizer, settings.rate(epoch), run)}
            if held_rows is not None:
                figures["validation loss"] = -_mean(model.eval(), held_rows, settings)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            figures = {"training loss": math.nan}  # the norm of a matrix that is no longer finite
        if not (all(map(math.isfinite, figures.values())) and _weights_finite(model)):
            raise broke_down(epoch, settings)
        training_loss.append(figures["training loss"])
        if held_rows is not None:
            validation_loss.append(figures["validation loss"])
            # Of equally good epochs the first is kept, the one that `best_epoch` names.
            if settings.restore_best and validation_loss[-1] < min(validation_loss[:-1], default=math.inf):
                best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        run.progress(Tick("fit", epoch, settings.epochs, figures))
    if best:
        model.load_state_dict(best)
    return training_loss, validation_loss


def _train_epoch(
    model: TrainableModel, rows: EncodedTransitions, optimizer: Adam, rate: float, run: TrainingRun
) -> float:
    """One pass over the rows in random order; the mean loss of its transitions, not finite if training broke down."""
    model.train()
    total = 0.0
    for batch in rows.shuffled(run.generator).batches(run.settings.batch_size):
        loss = -objective(model, batch, run.settings).mean()
        value = loss.item()
        if not math.isfinite(value):
            return value
        if run.settings.curvature:
            loss = loss + run.settings.curvature * model.curvature()
        optimizer.step(loss, rate)
        total += value * len(batch.actions)
    return total / len(rows.actions)


def objective(model: TrainableModel, rows: EncodedTransitions, settings: FitSettings) -> Tensor:
    """What a fit maximises the mean of [N]: the log density of next states, or the sum of those of their entries."""
    if settings.density == "joint":
        return model.log_prob(*rows.given)
    entries = model.entry_log_prob(*rows[:4])
    return (entries if rows.measured is None else torch.where(rows.measured, entries, 0.0)).sum(-1)


@torch.no_grad()
def correlate(model: TrainableModel, rows: EncodedTransitions, settings: FitSettings) -> None:
    """Let the noise prior's entries go together as the noise of these rows does, where the fit has left that open."""
    if settings.density == "margins" or isinstance(model.prior, StudentMargins):
        noise = torch.cat([model.abduct(*batch[:4]) for batch in rows.batches()])
        model.prior.correlate(noise, rows.measured)


@torch.no_grad()
def _mean(model: TrainableModel, rows: EncodedTransitions, settings: FitSettings) -> float:
    total = sum(float(objective(model, batch, settings).double().sum()) for batch in rows.batches())
    return total / len(rows.actions)


def _weights_finite(model: TrainableModel) -> bool:
    return all(bool(torch.isfinite(p).all()) for p in model.parameters())


def broke_down(epoch: int, settings: FitSettings, *, where: str = "fit") -> FitError:
    """The error of a training that led to values that are not finite."""
    return FitError(
        f"{where}: the loss or the weights are no longer finite at epoch {epoch} of {settings.epochs}. Lower the "
        f"learning rate (it is {settings.learning_rate:g}), and look for dynamic features that hardly vary, take few "
        "values or have extreme ones: a density can grow without limit on the first kinds and overflow on the last."
    )


def hold_out_subjects(cohort: Cohort, settings: FitSettings, seed: int) -> tuple[Cohort, Cohort | None]:
    """The subjects to train on, and those held out to choose the epoch."""
    if settings.validation == 0:
        return cohort, None
    if len(set(cohort.subjects)) < 2:
        raise InputError(
            f"fit: validation={settings.validation:g} holds out subjects, and the cohort has only one; give it more, "
            "or fit with FitSettings(validation=0)."
        )
    return cohort.split(by="subject", test=settings.validation, seed=seed)


def fresh_copy(model: Model, scaler: Scaler, generator: torch.Generator) -> Model:
    """A float32 model like `model` in the coordinates of `scaler`, with initial weights from `generator`."""
    if not any(p.requires_grad for p in model.parameters()):
        raise InputError(
            "fit: the model has no weights to train; if it is a copy made for search, pass the model it was made from."
        )
    fresh = copy.deepcopy(model, _never_copied(model)).to(device="cpu", dtype=torch.float32)
    fresh.set_scaler(scaler)
    fresh.standing = None  # a check was about other weights
    fresh.initialize(generator)
    return fresh


def _never_copied(model: TrainableModel) -> dict[int, Any]:
    """For `deepcopy`: what is never modified."""
    return {id(frozen): frozen for frozen in (model.schema, model.scaler)}


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads for a while: in the WHOLE process, other Python threads included."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def chosen_device(settings: FitSettings) -> torch.device:
    """The device that the settings name, if it can be used."""
    try:
        device = torch.device(settings.device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"fit: device {settings.device!r} cannot be used here ({reason}); try 'cpu'.") from None
    return device
