"""Fitting a model with subject effects, in rounds (`ifonly.models.effects`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.data.plain import check_whole
from ifonly.models.base import TrainableModel
from ifonly.models.effects import Shrinkage, SubjectEffectModel, like, with_effects
from ifonly.models.ensemble import Ensemble
from ifonly.models.fit import fit, hold_out_subjects
from ifonly.models.fit_ensemble import fit_ensemble
from ifonly.models.fit_report import EffectShare, FitSettings
from ifonly.progress import Progress, part_of, silent

ROUNDS = 3
"""Rounds of a fit, unless told otherwise."""


def fit_with_effects(
    model: TrainableModel,
    cohort: Cohort,
    *,
    members: int = 0,
    rounds: int = ROUNDS,
    begun: TrainableModel | None = None,
    settings: FitSettings | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> SubjectEffectModel | Ensemble:
    """A model like `model` with an effect of each subject on each dynamic feature; `fit_report.effects` has shares.

    The first of `rounds` knows no effects; every other one is fitted with those that the round before gives. Two are
    too few where states persist: a model without effects takes what lasts in a subject for persistence. Each round is
    what `fit` makes of the same subjects; variances are learned from those trained on. Losses are of the steps that
    gave the effects, and flattered by them. With `members`, the last round is an `Ensemble`: all refits take the
    effects as the round before gives them, so their agreement says nothing about how well effects are known. `begun` is
    what `fit_without_effects` made of the same arguments: then the first round is not repeated.

    >>> from ifonly import simulate
    >>> from ifonly.models import LocationScale
    >>> cohort = simulate.simulate_cohort(40, seed=0)
    >>> model = fit_with_effects(LocationScale(cohort.schema, hidden=(8,)), cohort, settings=FitSettings(epochs=2))
    >>> model.context_size - len(cohort.schema.context) == len(cohort.schema.dynamic) == len(model.fit_report.effects)
    True
    """
    chosen = settings or FitSettings()
    check_whole("fit: rounds", rounds, least=2)
    fresh = like(model, with_effects(cohort.schema))
    training = hold_out_subjects(cohort, chosen, seed)[0]
    begun = begun or fit_without_effects(
        model, cohort, settings=chosen, seed=seed, progress=part_of(progress, 0, rounds)
    )
    first: TrainableModel = begun
    for number in range(1, rounds):
        shrinkage, shares = Shrinkage.learn(first, training)
        wide = with_columns(cohort, shrinkage.of_each_step(first.for_search(), cohort))
        part = part_of(progress, number, rounds)
        if number < rounds - 1:
            first = fit(fresh, wide, settings=replace(chosen, threads=1), seed=seed, progress=part)
    if not members:
        return _together(first, fit(fresh, wide, settings=chosen, seed=seed, progress=part), shrinkage, shares)
    found = fit_ensemble(fresh, wide, members=members, settings=settings, seed=seed, progress=part)
    centre, *refits = (_together(first, one, shrinkage, shares) for one in (found.centre, *found.members))
    return Ensemble(refits, centre=centre, notes=found.notes).eval()


def fit_without_effects(
    model: TrainableModel, cohort: Cohort, *, settings: FitSettings, seed: int, progress: Progress = silent
) -> TrainableModel:
    """The first round: a model like `model` of the schema with effects, all of which are zero."""
    wide = with_columns(cohort, np.zeros((len(cohort.actions), model.state_size)))
    fresh = like(model, wide.schema)
    return fit(fresh, wide, settings=replace(settings, threads=1), seed=seed, progress=progress)


def with_columns(cohort: Cohort, effects: FloatArray) -> Cohort:
    """The cohort with effects [steps, D] as further columns of its context."""
    return cohort.with_context(with_effects(cohort.schema), np.concatenate([cohort.context, effects], axis=1))


def _together(
    first: TrainableModel, second: TrainableModel, shrinkage: Shrinkage, shares: tuple[EffectShare, ...]
) -> SubjectEffectModel:
    made = SubjectEffectModel(first, second, shrinkage).eval()
    assert second.fit_report is not None, "it was just fitted"
    made.fit_report = replace(second.fit_report, effects=shares)
    return made
