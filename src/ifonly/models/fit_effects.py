"""Fitting a model with subject effects, in two rounds (`ifonly.models.effects`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ifonly.data.cohort import Cohort
from ifonly.models.base import TrainableModel
from ifonly.models.effects import Shrinkage, SubjectEffectModel, like, with_effects
from ifonly.models.ensemble import Ensemble
from ifonly.models.fit import fit, hold_out_subjects
from ifonly.models.fit_ensemble import fit_ensemble
from ifonly.models.fit_report import EffectShare, FitSettings
from ifonly.progress import Progress, Tick, silent


def fit_with_effects(
    model: TrainableModel,
    cohort: Cohort,
    *,
    members: int = 0,
    settings: FitSettings | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> SubjectEffectModel | Ensemble:
    """A model like `model` with an effect of each subject on each dynamic feature; `fit_report.effects` has shares.

    Both rounds are what `fit` makes of the same subjects. Variances are learned from the subjects trained on, and the
    losses reported are those with effects from each subject's other steps, which flatter nobody. With `members`, the
    second round is an `Ensemble`: all refits take the effects as the first round gives them, so their agreement says
    nothing about how well effects are known.

    >>> from ifonly import simulate
    >>> from ifonly.models import LocationScale
    >>> cohort = simulate.simulate_cohort(40, seed=0)
    >>> model = fit_with_effects(LocationScale(cohort.schema, hidden=(8,)), cohort, settings=FitSettings(epochs=2))
    >>> model.context_size - len(cohort.schema.context) == len(cohort.schema.dynamic) == len(model.fit_report.effects)
    True
    """
    chosen = settings or FitSettings()
    first = fit(model, cohort, settings=replace(chosen, threads=1), seed=seed, progress=_half(progress, 0))
    shrinkage, shares = Shrinkage.learn(first, hold_out_subjects(cohort, chosen, seed)[0])
    effects = shrinkage.without_own_step(first.for_search(), cohort)
    wide = cohort.with_context(with_effects(cohort.schema), np.concatenate([cohort.context, effects], axis=1))
    fresh = like(model, wide.schema)
    if not members:
        second = fit(fresh, wide, settings=chosen, seed=seed, progress=_half(progress, 1))
        return _together(first, second, shrinkage, shares)
    found = fit_ensemble(fresh, wide, members=members, settings=settings, seed=seed, progress=_half(progress, 1))
    centre, *refits = (_together(first, one, shrinkage, shares) for one in (found.centre, *found.members))
    return Ensemble(refits, centre=centre, notes=found.notes).eval()


def _together(
    first: TrainableModel, second: TrainableModel, shrinkage: Shrinkage, shares: tuple[EffectShare, ...]
) -> SubjectEffectModel:
    made = SubjectEffectModel(first, second, shrinkage).eval()
    assert second.fit_report is not None, "it was just fitted"
    made.fit_report = replace(second.fit_report, effects=shares)
    return made


def _half(progress: Progress, number: int) -> Progress:
    """A callback that reports the first or the second round as half of the work."""

    def report(tick: Tick) -> None:
        total = tick.total or 0
        progress(Tick(tick.stage, number * total + tick.done, 2 * total or None, tick.figures))

    return report
