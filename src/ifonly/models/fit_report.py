"""How models are trained, and how a training went."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ifonly.data.cohort import Cohort
from ifonly.data.plain import check_whole
from ifonly.errors import InputError
from ifonly.records import KnownNumber, from_plain, to_plain


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
            check_whole(f"fit: {name}", getattr(self, name), least=1)
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"fit: learning_rate={self.learning_rate} must be positive and finite.")
        if not 0 <= self.validation < 1:
            raise InputError(f"fit: validation={self.validation} must be a share of subjects, 0 (none) to below 1.")


@dataclass(frozen=True)
class DataCounts:
    """How much data a part of a cohort holds."""

    episodes: int
    subjects: int
    transitions: int

    @classmethod
    def of(cls, cohort: Cohort) -> DataCounts:
        """Count a cohort."""
        return cls(len(cohort), len(set(cohort.subjects)), len(cohort.actions) - len(cohort))

    def __str__(self) -> str:
        return f"{self.episodes} episodes of {self.subjects} subjects, {self.transitions} transitions"


@dataclass(frozen=True)
class FitReport:
    """How training went. Losses are negative log-likelihoods per transition, in the model's scaled coordinates."""

    settings: FitSettings
    seed: int
    training: DataCounts
    validation: DataCounts | None
    """None when no subjects were held out."""
    training_loss: tuple[KnownNumber, ...]
    """Per epoch, averaged over its batches while the weights move."""
    validation_loss: tuple[KnownNumber, ...]
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
        return {**to_plain(self), "best_epoch": self.best_epoch, "kept_epoch": self.kept_epoch}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> FitReport:
        """Read what `to_dict` wrote."""
        derived = ("best_epoch", "kept_epoch")
        return from_plain(cls, {key: value for key, value in content.items() if key not in derived}, what="fit report")

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
