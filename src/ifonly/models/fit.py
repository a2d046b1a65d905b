"""Fitting: maximum likelihood with Adam, validated on subjects held out, the same weights for the same seed."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from ifonly.episodes.cohort import Cohort, Transitions
from ifonly.episodes.scaling import Scaler
from ifonly.errors import FitError, InputError
from ifonly.models.base import TrainableModel
from ifonly.progress import Progress, Tick, silent

EVALUATION_ROWS = 8192
"""Transitions evaluated at once where no gradient is needed; bounds the memory."""

Model = TypeVar("Model", bound=TrainableModel)


@dataclass(frozen=True)
class FitSettings:
    """How a model is trained. Optimiser, rate, batches and epochs are the paper's."""

    epochs: int = 100
    batch_size: int = 256
    learning_rate: float = 1e-3
    validation: float = 0.1
    """Share of SUBJECTS held out to choose the best epoch; 0 trains on all and keeps the last epoch."""
    restore_best: bool = True
    """Whether the weights of the epoch with the lowest validation loss are returned, or the last ones."""
    device: str = "cpu"
    """Where training runs; the fitted model comes back to the CPU."""
    threads: int = 1
    """CPU threads used. Batches this small gain nothing from more, and on a busy machine lose much by waiting.

    torch counts threads for the whole process: while a fit runs, the number holds for everything else in it too.
    """

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "threads"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"fit: {name}={value!r} must be a whole number of at least 1.")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"fit: learning_rate={self.learning_rate} must be positive and finite.")
        if not 0 <= self.validation < 1:
            raise InputError(f"fit: validation={self.validation} must be a share of subjects, 0 (none) to below 1.")

    def to_dict(self) -> dict[str, Any]:
        """Plain types; `FitSettings(**content)` gives the settings back."""
        return asdict(self)


@dataclass(frozen=True)
class Counts:
    """How much data a part of a cohort holds."""

    episodes: int
    subjects: int
    transitions: int

    @classmethod
    def of(cls, cohort: Cohort) -> Counts:
        """Count a cohort."""
        return cls(len(cohort), len(set(cohort.subjects)), len(cohort.actions) - len(cohort))

    def __str__(self) -> str:
        return f"{self.episodes} episodes of {self.subjects} subjects, {self.transitions} transitions"


@dataclass(frozen=True)
class FitReport:
    """How training went. Losses are negative log-likelihoods per transition, in the model's scaled coordinates."""

    settings: FitSettings
    seed: int
    training: Counts
    validation: Counts | None
    """None when no subjects were held out."""
    training_loss: tuple[float, ...]
    """Per epoch, averaged over its batches while the weights move."""
    validation_loss: tuple[float, ...]
    """Per epoch, of the weights at its end; empty when no subjects were held out."""
    seconds: float

    @property
    def best_epoch(self) -> int | None:
        """The epoch, counted from 1, with the lowest validation loss."""
        return 1 + int(np.argmin(self.validation_loss)) if self.validation_loss else None

    @property
    def kept_epoch(self) -> int:
        """The epoch, counted from 1, whose weights the model has."""
        return (self.best_epoch if self.settings.restore_best else None) or len(self.training_loss)

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; `from_dict` gives the report back."""
        content = asdict(self)
        for name in ("training_loss", "validation_loss"):
            content[name] = list(content[name])
        return content | {"best_epoch": self.best_epoch, "kept_epoch": self.kept_epoch}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FitReport:
        """Read what `to_dict` wrote."""
        try:
            held_out = content["validation"]
            return cls(
                settings=FitSettings(**content["settings"]),
                seed=int(content["seed"]),
                training=Counts(**content["training"]),
                validation=None if held_out is None else Counts(**held_out),
                training_loss=tuple(float(loss) for loss in content["training_loss"]),
                validation_loss=tuple(float(loss) for loss in content["validation_loss"]),
                seconds=float(content["seconds"]),
            )
        except (KeyError, TypeError) as error:
            raise InputError(f"fit report: an entry is missing, unknown or of the wrong kind ({error}).") from None

    def __str__(self) -> str:
        settings = self.settings
        lines = [
            f"fitted in {self.seconds:.1f} s: {len(self.training_loss)} epochs, batches of {settings.batch_size}, "
            f"learning rate {settings.learning_rate:g}, seed {self.seed}",
            f"  training    {self.training}: loss {self.training_loss[0]:.4f} -> {self.training_loss[-1]:.4f}",
        ]
        if self.validation is None:
            lines.append("  validation  none; the last epoch is kept")
        else:
            lines.append(
                f"  validation  {self.validation}: loss {self.validation_loss[0]:.4f} -> "
                f"{self.validation_loss[self.kept_epoch - 1]:.4f} at epoch {self.kept_epoch}, which is kept"
            )
        return "\n".join(lines)


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
    started = time.perf_counter()
    _check_seed(seed)
    model.schema.require_same(cohort.schema, here="the model", there="the cohort")
    train, held_out = _split(cohort, settings, seed)
    generator = torch.Generator().manual_seed(seed)
    fitted = _fresh_copy(model, Scaler.fit(train), generator).to(_device(settings))
    with _threads(settings.threads):
        training_loss, validation_loss = _train(fitted, train, held_out, _Run(settings, generator, progress))
    fitted.fit_report = FitReport(
        settings=settings,
        seed=seed,
        training=Counts.of(train),
        validation=None if held_out is None else Counts.of(held_out),
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
    own = _mean_log_prob(model, _Rows.of(model, cohort))
    return own + _log_volume_change(model.scaler, coordinates, cohort.transitions())


def _log_volume_change(
    own: Scaler, coordinates: Scaler | Literal["model", "original"], transitions: Transitions
) -> float:
    """The mean over transitions of log |dz / dy|, z the next state in `own` and y in the other coordinates."""
    columns = own.states
    if isinstance(coordinates, Scaler):
        other = coordinates.states
        if not (np.array_equal(other.log, columns.log) and np.array_equal(other.log_offset, columns.log_offset)):
            raise InputError("evaluate: the scaler was made for other features than the model's.")
        return float(np.log(other.scale / columns.scale).sum())
    if coordinates == "model":
        return 0.0
    if coordinates != "original":
        raise InputError(f"evaluate: coordinates={coordinates!r}; choose 'model', 'original' or a Scaler.")
    logged = transitions.next_states[:, columns.log] + columns.log_offset[columns.log]
    return -float(np.log(columns.scale).sum()) - float(np.log(logged).sum(axis=1).mean())


class _Rows(NamedTuple):
    """Encoded transitions, in the order of `log_prob`'s arguments, all with N rows."""

    states: Tensor
    context: Tensor
    actions: Tensor
    next_states: Tensor

    @classmethod
    def of(cls, model: TrainableModel, cohort: Cohort) -> Self:
        """The transitions of a cohort in the coordinates, precision and place of `model`."""
        like = model.action_vectors
        scaler, transitions = model.scaler, cohort.transitions()

        def tensor(values: Any) -> Tensor:
            return torch.as_tensor(values).to(dtype=like.dtype, device=like.device)

        return cls(
            tensor(scaler.states.encode(transitions.states)),
            tensor(scaler.context.encode(transitions.context)),
            torch.tensor(transitions.actions, device=like.device),
            tensor(scaler.states.encode(transitions.next_states)),
        )

    def shuffled(self, generator: torch.Generator) -> _Rows:
        """The rows in random order: one gather per epoch, after which batches are mere slices."""
        order = torch.randperm(len(self.actions), generator=generator).to(self.actions.device)
        return _Rows(*(column.index_select(0, order) for column in self))

    def batches(self, size: int) -> Iterator[_Rows]:
        """Parts of at most `size` rows."""
        return (_Rows(*part) for part in zip(*(column.split(size) for column in self), strict=True))


class _Run(NamedTuple):
    """What the parts of one fit share."""

    settings: FitSettings
    generator: torch.Generator
    progress: Progress


def _train(model: TrainableModel, train: Cohort, held_out: Cohort | None, run: _Run) -> tuple[list[float], list[float]]:
    """Train `model` in place and leave it with the weights to keep; returns both loss curves."""
    settings = run.settings
    rows = _Rows.of(model, train)
    held_rows = None if held_out is None else _Rows.of(model, held_out)
    optimizer = torch.optim.Adam(
        # A schema without context has matrices without entries, which fused kernels need not know about.
        [p for p in model.parameters() if p.requires_grad and p.numel()],
        lr=settings.learning_rate,
        fused=True,
    )
    training_loss: list[float] = []
    validation_loss: list[float] = []
    best: dict[str, Tensor] = {}
    for epoch in range(1, settings.epochs + 1):
        try:
            figures = {"training loss": _train_epoch(model, rows, optimizer, run)}
            if held_rows is not None:
                figures["validation loss"] = -_mean_log_prob(model.eval(), held_rows)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            figures = {"training loss": math.nan}  # the norm of a matrix that is no longer finite
        if not (all(map(math.isfinite, figures.values())) and _weights_finite(model)):
            raise _broke_down(epoch, settings)
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


def _train_epoch(model: TrainableModel, rows: _Rows, optimizer: torch.optim.Optimizer, run: _Run) -> float:
    """One pass over the rows in random order; the mean loss of its transitions, not finite if training broke down."""
    model.train()
    total = 0.0
    for batch in rows.shuffled(run.generator).batches(run.settings.batch_size):
        loss = -model.log_prob(*batch).mean()
        value = loss.item()
        if not math.isfinite(value):
            return value
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += value * len(batch.actions)
    return total / len(rows.actions)


@torch.no_grad()
def _mean_log_prob(model: TrainableModel, rows: _Rows) -> float:
    total = sum(float(model.log_prob(*batch).double().sum()) for batch in rows.batches(EVALUATION_ROWS))
    return total / len(rows.actions)


def _weights_finite(model: TrainableModel) -> bool:
    return all(bool(torch.isfinite(p).all()) for p in model.parameters())


def _broke_down(epoch: int, settings: FitSettings) -> FitError:
    return FitError(
        f"fit: the loss or the weights are no longer finite at epoch {epoch} of {settings.epochs}. Lower the learning "
        f"rate (it is {settings.learning_rate:g}), and look for dynamic features that hardly vary, take few values or "
        "have extreme ones: a density can grow without limit on the first kinds and overflow on the last."
    )


def _split(cohort: Cohort, settings: FitSettings, seed: int) -> tuple[Cohort, Cohort | None]:
    if settings.validation == 0:
        return cohort, None
    if len(set(cohort.subjects)) < 2:
        raise InputError(
            f"fit: validation={settings.validation:g} holds out subjects, and the cohort has only one; give it more, "
            "or fit with FitSettings(validation=0)."
        )
    return cohort.split(by="subject", test=settings.validation, seed=seed)


def _fresh_copy(model: Model, scaler: Scaler, generator: torch.Generator) -> Model:
    if not any(p.requires_grad for p in model.parameters()):
        raise InputError(
            "fit: the model has no weights to train; if it is a copy made for search, pass the model it was made from."
        )
    fresh = copy.deepcopy(model).to(device="cpu", dtype=torch.float32)
    fresh.set_scaler(scaler)
    fresh.initialize(generator)
    return fresh


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads for a while: in the WHOLE process, other Python threads included."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _device(settings: FitSettings) -> torch.device:
    try:
        device = torch.device(settings.device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"fit: device {settings.device!r} cannot be used here ({reason}); try 'cpu'.") from None
    return device


def _check_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"fit: seed={seed!r} must be a whole number of at least 0.")
