"""What all experiments of one folder share: a cohort, models fitted to it, and the conditions they were made under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeVar

from ifonly import (
    Cohort,
    FitSettings,
    LocationScale,
    TransitionModel,
    __version__,
    fit,
    load_model,
    minus,
    save_cohort,
    save_model,
)
from ifonly.data import load_cohort, load_metadata
from ifonly.errors import InputError, StoreError
from ifonly.progress import Progress, silent
from ifonly.rewards import Reward
from ifonly.simulate import simulate_cohort

MADE_BY = "python -m paper reproduce"

Limits = tuple[float, float]
"""Lipschitz limits (L_h, L_phi) of the location and the scale network."""


def on_linear_scales(cohort: Cohort) -> Cohort:
    """The cohort with features that the paper's models see as they are: none on a bounded scale."""
    features = tuple(
        replace(feature, scaling="linear") if feature.scaling == "bounded" else feature
        for feature in cohort.schema.features
    )
    return replace(cohort, schema=replace(cohort.schema, features=features))


@dataclass(frozen=True)
class Settings:
    """What can be set; subclasses hold numbers, words and tuples of them."""

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        try:
            return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in content.items()})
        except TypeError as error:
            raise StoreError(f"settings of an experiment: an entry is missing or unknown ({error}).") from None


SettingsT = TypeVar("SettingsT", bound=Settings)


@dataclass(frozen=True)
class Conditions(Settings):
    """What must be the same for everything in a folder; the defaults are the paper's, as far as they can be."""

    stays: int = 16_000
    """Simulated stays of 10 to 20 steps; the paper has 15,992. Of no meaning for a cohort that is given."""
    horizon: int = 12
    """Steps of the patients that single solves are about."""
    feature: str = "SOFA"
    """What should be low."""
    lipschitz: Limits = (1.0, 0.1)
    """L_h and L_phi of the model that experiments use unless they vary them."""
    hidden: tuple[int, ...] = (200,)
    epochs: int = 100
    seed: int = 0
    quick: bool = False
    """Whether this is only to see it work; nothing is to be concluded from it."""

    @classmethod
    def few(cls) -> Self:
        """Little of everything, to see it work within minutes."""
        return cls(stays=200, horizon=10, hidden=(32,), epochs=10, quick=True)

    @classmethod
    def of_header(cls, header: Mapping[str, Any]) -> Self:
        """The conditions that the first line of a folder's journal names, among other things."""
        return cls.from_dict({field.name: header[field.name] for field in fields(cls)})


@dataclass(frozen=True)
class Laboratory:
    """A folder of experiments: where its cohort and its models are; small, so that it travels to worker processes."""

    folder: Path
    conditions: Conditions
    episodes: Path | None = None
    """A stored cohort to use instead of simulated stays."""
    model: Path | None = None
    """A stored model to use wherever limits are not varied."""

    def header(self) -> dict[str, Any]:
        """What every number in the folder depends on, as plain types."""
        if self.episodes is None:
            cohort: dict[str, Any] = {"simulated": self.conditions.stays}
        else:
            cohort = {"sha256": load_metadata(self.episodes)["table"]["sha256"]}
        model = None if self.model is None else load_model(self.model).fingerprint()
        return {"ifonly": __version__, "cohort": cohort, "model": model, **self.conditions.to_dict()}

    @property
    def cohort_folder(self) -> Path:
        """Where the cohort is stored."""
        return self.episodes or self.folder / "cohort"

    def cohort(self) -> Cohort:
        """The cohort, read once per process."""
        return _read_cohort(self.cohort_folder)

    def prepare_cohort(self, progress: Progress = silent) -> None:
        """Simulate the stays, unless they are stored already or others are given."""
        if self.episodes is None and not self.cohort_folder.exists():
            conditions = self.conditions
            cohort = on_linear_scales(simulate_cohort(conditions.stays, seed=conditions.seed, progress=progress))
            provenance = {"made by": MADE_BY, "stays": conditions.stays, "seed": conditions.seed}
            save_cohort(cohort, self.cohort_folder, provenance=provenance)

    def patients(self, count: int | None) -> list[str]:
        """The first `count` (None: all) patients with exactly `horizon` steps; fewer where there are not so many."""
        cohort, horizon = self.cohort(), self.conditions.horizon
        found = [id for id, length in zip(cohort.ids, cohort.lengths, strict=True) if length == horizon]
        if not found:
            lengths = sorted(set(cohort.lengths.tolist()))
            raise InputError(
                f"no episode of the cohort has exactly {horizon} steps (there are some with {lengths[0]} to "
                f"{lengths[-1]}); choose another horizon."
            )
        return found[:count]

    @property
    def reward(self) -> Reward:
        """The paper's: the feature should be low."""
        return minus(self.conditions.feature)

    @property
    def standard(self) -> Limits | None:
        """The limits of the model that experiments use unless they vary them; None: the model that was given."""
        return None if self.model is not None else self.conditions.lipschitz

    def model_folder(self, limits: Limits | None) -> Path:
        """Where the model with these limits is stored, or will be; None stands for the model that was given."""
        if limits is not None:
            return self.folder / "models" / f"location-{limits[0]:g}-scale-{limits[1]:g}"
        if self.model is None:
            raise InputError("no model was given, so limits are needed to say which one is meant.")
        return self.model

    def load_model(self, limits: Limits | None, device: str = "cpu") -> TransitionModel:
        """The model with these limits, frozen for search, read once per process."""
        return _read_model(self.model_folder(limits), self.cohort_folder, device)

    def fit_model(self, limits: Limits, progress: Progress = silent) -> None:
        """Fit a model with these limits to the whole cohort and store it."""
        conditions, cohort = self.conditions, self.cohort()
        model = LocationScale(cohort.schema, hidden=conditions.hidden, lipschitz=limits)
        fitted = fit(model, cohort, settings=self.fit_settings(), seed=conditions.seed, progress=progress)
        save_model(fitted, self.model_folder(limits), provenance={"made by": MADE_BY, **self.header()})

    def fit_settings(self) -> FitSettings:
        """How every model of the folder is fitted."""
        return FitSettings(epochs=self.conditions.epochs)


@lru_cache(maxsize=2)
def _read_cohort(folder: Path) -> Cohort:
    return load_cohort(folder)


@lru_cache(maxsize=8)
def _read_model(folder: Path, cohort: Path, device: str) -> TransitionModel:
    return load_model(folder, schema=_read_cohort(cohort).schema).for_search(device)
