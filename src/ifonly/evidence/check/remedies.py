"""Trying what a check advises: the most promising recipes fitted to training data and checked on the same episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ifonly.data.cohort import Cohort
from ifonly.errors import InputError
from ifonly.evidence.check.advice import network_model, recipe_of
from ifonly.evidence.check.check import check_model
from ifonly.evidence.check.measure import Groupings
from ifonly.evidence.check.model_check import Level, ModelCheck
from ifonly.models.base import TrainableModel, TransitionModel
from ifonly.models.fit_ensemble import fit_strengths
from ifonly.models.fit_report import FitSettings
from ifonly.models.location_scale import LocationScale
from ifonly.models.recipes import RECIPES, Recipe
from ifonly.progress import Progress, Tick, part_of, silent

MOST = 2
"""Recipes that are tried unless told otherwise."""

STAGE = "remedies"
WEIGHTS = {Level.FAIL: 3, Level.WARN: 1}
"""How much a finding counts for the remedies that it names first; those named next count half as much, and so on."""

HIDDEN = (200,)
"""Widths where the model that was checked has none of its own."""


@dataclass(frozen=True, eq=False)
class TriedRemedy:
    """A remedy that was tried."""

    recipe: str
    curvature: float
    """The strength of the penalty that subjects held out of the training data preferred."""
    model: TrainableModel
    check: ModelCheck
    log_likelihood: float | None
    """Of the episodes that both were checked on, in the coordinates of the model that was checked; None: not known."""

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON, without the model."""
        return {
            "recipe": self.recipe,
            "curvature": self.curvature,
            "model": self.check.model,
            "verdict": self.check.verdict.value,
            "findings": {finding.kind: finding.level.value for finding in self.check.concerns()},
            "log_likelihood": self.log_likelihood,
        }


def promising(check: ModelCheck, model: TransitionModel | None = None, *, most: int = MOST) -> tuple[Recipe, ...]:
    """The recipes that the findings ask for most, the best first; not the one that the model was made by."""
    votes: Counter[str] = Counter()
    for finding in check.concerns():
        named = [code for code in finding.remedies if code in RECIPES]
        for place, code in enumerate(named):
            votes[code] += WEIGHTS[finding.level] / 2**place
    own = None if model is None else recipe_of(model)
    order = sorted((name for name in votes if name != own), key=lambda name: (-votes[name], list(RECIPES).index(name)))
    return tuple(RECIPES[name] for name in order[:most])


def try_remedies(
    model: TransitionModel,
    training: Cohort,
    held_out: Cohort,
    check: ModelCheck,
    *,
    by: Groupings | Sequence[str] | None = None,
    settings: FitSettings | None = None,
    most: int = MOST,
    journal: Path | None = None,
    progress: Progress = silent,
) -> tuple[TriedRemedy, ...]:
    """Fit the recipes that a check asks for most to `training`, and check them on the episodes of the check.

    `check` is that of `model` on `held_out`; recipes have the model's widths. Of every recipe the strength of the
    curvature penalty is taken that subjects held out of `training` prefer, so that the episodes of the check choose
    nothing but between the recipes. Empty where no finding asks for another recipe. With a `journal`, files with that
    name and more, which `forget_trials` removes, trials that were stopped go on.
    """
    training.schema.require_same(held_out.schema, here="the training cohort", there="the episodes of the check")
    if shared := _shared_episodes(training, held_out):
        raise InputError(
            f"remedies: {shared} of the episodes to check on are among those to fit to, and would flatter what is "
            "fitted; fit to episodes of other subjects."
        )
    settings = settings or FitSettings()
    recipes = promising(check, model, most=most)
    found = []
    for number, recipe in enumerate(recipes):
        done = part_of(progress, number, len(recipes), stage=STAGE, size=settings.epochs)
        kept = None if journal is None else journal.with_name(f"{journal.name}.{recipe.name}")
        fitted = _fitted(recipe, model, training, settings, check.seed, kept, done)
        again = check_model(fitted, held_out, thresholds=check.thresholds, by=by, seed=check.seed)
        strength = fitted.fit_report.settings.curvature if fitted.fit_report is not None else 0.0
        found.append(TriedRemedy(recipe.name, strength, fitted, again, _in_coordinates_of(model, fitted, again)))
        done(Tick(STAGE, settings.epochs))
    return tuple(found)


def _shared_episodes(training: Cohort, held_out: Cohort) -> int:
    """How many episodes are in both; an id alone says nothing, since simulated cohorts share them."""
    both = [id for id in held_out.ids if id in training]
    return sum(np.array_equal(training[id].states, held_out[id].states) for id in both)


def forget_trials(journal: Path) -> None:
    """Remove what trials with this journal have kept."""
    for name in RECIPES:
        journal.with_name(f"{journal.name}.{name}").unlink(missing_ok=True)


def _fitted(
    recipe: Recipe,
    model: TransitionModel,
    training: Cohort,
    settings: FitSettings,
    seed: int,
    journal: Path | None,
    progress: Progress,
) -> TrainableModel:
    """The recipe with the strength of its penalty that the fit's own held-out subjects prefer."""
    centre = network_model(model)
    hidden = centre.settings()["hidden"] if isinstance(centre, LocationScale) else HIDDEN
    models = fit_strengths(
        recipe.untrained(training.schema, hidden),
        training,
        recipe.strengths,
        settings=settings,
        seed=seed,
        journal=journal,
        progress=progress,
    )
    return min(models, key=_own_loss)


def _own_loss(model: TrainableModel) -> float:
    report = model.fit_report
    assert report is not None, "it was just fitted"
    return min(report.validation_loss or report.training_loss)


def _in_coordinates_of(model: TransitionModel, fitted: TransitionModel, check: ModelCheck) -> float | None:
    """The mean log-likelihood of a check of `fitted`, in the coordinates of `model`."""
    ours, theirs, found = model.scaler.states, fitted.scaler.states, check.figures.log_likelihood
    if found is None or not ours.link.same_as(theirs.link):
        return None
    shares = check.figures.measured
    counted = np.ones(len(ours.scale)) if shares is None else np.array(list(shares.values()))
    return found + float((counted * np.log(ours.scale / theirs.scale)).sum())
