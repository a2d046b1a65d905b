"""How models are trained, and how a training went."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from ifonly.data.cohort import Cohort
from ifonly.data.plain import check_whole
from ifonly.errors import InputError
from ifonly.records import KnownNumber, MaybeNumber, from_plain, to_plain

Density = Literal["joint", "margins"]
Schedule = Literal["constant", "cosine"]

BATCHES = 64
"""Batches of an epoch, as a rule, where the data decide on their size: of fewer, a hundred epochs are too few steps."""
BATCH_SIZES = (32, 512)
"""Between these."""
THOROUGH_RATE = 5e-3


@dataclass(frozen=True)
class FitSettings:
    """How a model is trained. Optimiser, rate, batches and epochs are the paper's."""

    epochs: int = 100
    batch_size: int = 256
    learning_rate: float = 1e-3
    schedule: Schedule = "constant"
    """What becomes of the learning rate: it stays, or falls along half a cosine, to a hundredth in the last epoch."""
    validation: float = 0.1
    """Share of SUBJECTS held out to choose the best epoch; 0 trains on all and keeps the last epoch."""
    restore_best: bool = True
    """Whether the weights of the epoch with the lowest validation loss are returned, or the last ones."""
    density: Density = "joint"
    """What is maximised: the density of next states, or the densities of their entries, each on its own ("margins");
    then correlations of the noise are estimated afterwards, and cannot distort what counterfactuals depend on."""
    curvature: float = 0.0
    """Strength of the curvature penalty: how much a bound on the networks' third derivatives costs, in nats."""
    device: str = "cpu"
    """Where training runs; the fitted model comes back to the CPU."""
    threads: int = 1
    """CPU threads used. Batches this small gain nothing from more, and on a busy machine lose much by waiting.

    torch counts threads for the whole process: while a fit runs, the number holds for everything else in it too.
    """

    @classmethod
    def thorough(cls, cohort: Cohort, **settings: Any) -> FitSettings:
        """Settings with which small cohorts are learned as thoroughly as large ones.

        The paper's batches and rate leave a cohort of some hundred episodes half learned after a hundred epochs: they
        are too few steps. Here batches are so small that an epoch has some `BATCHES` of them, and the rate begins five
        times as high and falls. `settings` count instead of these.
        """
        wanted = max(1, DataCounts.of(cohort).transitions // BATCHES)
        size = min(max(2 ** round(math.log2(wanted)), BATCH_SIZES[0]), BATCH_SIZES[1])
        return cls(**{"batch_size": size, "learning_rate": THOROUGH_RATE, "schedule": "cosine", **settings})

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 1."""
        if self.schedule == "constant" or self.epochs == 1:
            return self.learning_rate
        left = (1 + math.cos(math.pi * (epoch - 1) / (self.epochs - 1))) / 2
        return self.learning_rate * (0.01 + 0.99 * left)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "threads"):
            check_whole(f"fit: {name}", getattr(self, name), least=1)
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"fit: learning_rate={self.learning_rate} must be positive and finite.")
        if self.density not in get_args(Density):
            raise InputError(f"fit: density={self.density!r} is unknown; choose from {list(get_args(Density))}.")
        if self.schedule not in get_args(Schedule):
            raise InputError(f"fit: schedule={self.schedule!r} is unknown; choose from {list(get_args(Schedule))}.")
        if not (math.isfinite(self.curvature) and self.curvature >= 0):
            raise InputError(f"fit: curvature={self.curvature} must be finite and not negative.")
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
class RecipeRow:
    """One recipe at one strength of its curvature penalty, on subjects that were held out to compare recipes."""

    recipe: str
    curvature: float
    log_likelihood: KnownNumber
    """Mean over transitions of the sum of all features' log densities, each on its own, in nats; one step ahead."""
    replay_error: KnownNumber | None
    """Mean absolute error of replays over several steps, in deviations; None where episodes are too short."""
    excess: KnownNumber
    """By how much both losses together exceed the best row's, in nats per transition."""
    excess_error: KnownNumber
    """The standard error of that difference, by subject."""
    verdict: str | None
    """Of the check of the recipe's best model; None where nothing else was compared."""
    proven: KnownNumber | None
    """Share of a few questions that this model's searches prove in time."""
    seconds: KnownNumber | None
    """Their median seconds; None where none was proven."""
    chosen: bool


@dataclass(frozen=True)
class EffectShare:
    """How much of a feature's noise lies between subjects, as a fit without subject effects leaves it."""

    feature: str
    share: KnownNumber
    """Share of the variance of the noise that lies between subjects; 0 where it cannot be told from chance."""
    weight: KnownNumber
    """What an average subject's mean noise counts, 0 to 1; the rest is shrunk away."""


@dataclass(frozen=True)
class EffectChoice:
    """Whether subject effects pay, on subjects held out: inferred from all other steps of a subject, they must lower
    the errors of its steps."""

    chosen: bool
    subjects: int
    """Held out; 0 where there are too few to tell, and then there are no effects."""
    gain: MaybeNumber = None
    """By how much errors are smaller with effects of other steps, in nats per transition: the sum over features of the
    logarithm of the ratio of mean absolute errors. None where none were fitted, since the noise of no feature lies
    between subjects beyond chance."""
    error: MaybeNumber = None
    """The standard error of the gain, by subject."""


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
    recipes: tuple[RecipeRow, ...] = ()
    """The recipes that were compared; empty where one was named."""
    effects: tuple[EffectShare, ...] = ()
    """What lies between subjects, feature by feature; empty for a model without subject effects."""
    effect_choice: EffectChoice | None = None
    """How it was decided whether there are subject effects; None where that was said."""

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
        return "\n".join(
            [*lines, *_choice_lines(self.effect_choice), *_effect_lines(self.effects), *_recipe_lines(self.recipes)]
        )


def _choice_lines(choice: EffectChoice | None) -> list[str]:
    """Whether subject effects pay."""
    if choice is None:
        return []
    if choice.gain is None or choice.error is None:
        reason = (
            "the noise of no feature lies between subjects beyond chance" if choice.subjects else "too few subjects"
        )
        return [f"  subjects    no effects: {reason}"]
    return [
        f"  subjects    effects of all other steps lower errors of a step by {choice.gain:.3f} \u00b1 "
        f"{choice.error:.3f} nats per transition ({choice.subjects} subjects held out): "
        f"{'taken' if choice.chosen else 'not taken'}"
    ]


def _effect_lines(effects: tuple[EffectShare, ...]) -> list[str]:
    """Which features have a subject effect, and how much of their noise it is."""
    if not effects:
        return []
    told = sorted((row for row in effects if row.share > 0), key=lambda row: -row.share)
    listing = ", ".join(f"{row.feature} {100 * row.share:.0f} %" for row in told)
    return [f"  subjects    share of the noise's variance that lies between them: {listing or 'none of any feature'}"]


def _recipe_lines(rows: tuple[RecipeRow, ...]) -> list[str]:
    """The best row of every recipe, and the chosen one, as a table for people."""
    best = {row.recipe: row for row in sorted(rows, key=lambda row: -row.excess)}
    shown = [row for row in rows if row.chosen or row is best[row.recipe]]
    if not shown:
        return []
    heading = f"  {'recipe':<16}{'penalty':>8}{'log-lik.':>10}{'replays':>9}{'worse by':>17}  {'check':<6}{'proven':>8}"
    return [
        "recipes, each fitted to some subjects and compared on the others (nats per transition):",
        heading,
        *(_recipe_line(row) for row in shown),
    ]


def _recipe_line(row: RecipeRow) -> str:
    replays = "-" if row.replay_error is None else f"{row.replay_error:.3f}"
    worse = "best" if row.excess == 0 else f"{row.excess:.3f} \u00b1 {row.excess_error:.3f}"
    proven = "-" if row.seconds is None else f"{row.seconds:.2f} s"
    figures = f"{row.curvature:>8g}{row.log_likelihood:>10.3f}{replays:>9}{worse:>17}"
    return f"  {row.recipe:<16}{figures}  {row.verdict or '-':<6}{proven:>8}{'  <- chosen' if row.chosen else ''}"
