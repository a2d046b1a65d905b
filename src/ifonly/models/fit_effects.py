"""Fitting a model with subject effects (`ifonly.models.effects`)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.models.base import TrainableModel
from ifonly.models.effects import Shrinkage, SubjectEffectModel, like, with_effects
from ifonly.models.ensemble import Ensemble
from ifonly.models.fit import EncodedTransitions, Rows, fit, fit_further, hold_out_subjects
from ifonly.models.fit_ensemble import fit_ensemble
from ifonly.models.fit_report import EffectShare, FitSettings
from ifonly.progress import Progress, part_of, silent


def fit_with_effects(
    model: TrainableModel,
    cohort: Cohort,
    *,
    members: int = 0,
    begun: TrainableModel | None = None,
    settings: FitSettings | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> SubjectEffectModel | Ensemble:
    """A model like `model` with an effect of each subject on each dynamic feature; `fit_report.effects` has shares.

    It is fitted without effects, and trained on as long again with those that its noise gives (`fit_lasting`). Losses
    are of the steps that gave the effects, and flattered by them. With `members`, they are refits around it, an
    `Ensemble`: all take the same draw of its effects, so their agreement says nothing about how well these are known.
    `begun` is what `fit_without_effects` made of the same arguments: then that is not repeated.

    >>> from ifonly import simulate
    >>> from ifonly.models import LocationScale
    >>> cohort = simulate.simulate_cohort(40, seed=0)
    >>> model = fit_with_effects(LocationScale(cohort.schema, hidden=(8,)), cohort, settings=FitSettings(epochs=2))
    >>> model.context_size - len(cohort.schema.context) == len(cohort.schema.dynamic) == len(model.fit_report.effects)
    True
    """
    chosen, parts = settings or FitSettings(), 3 if members else 2
    begun = begun or fit_without_effects(
        model, cohort, settings=chosen, seed=seed, progress=part_of(progress, 0, parts)
    )
    lasting = lasting_features(begun, cohort, chosen, seed)
    found = fit_lasting(begun, cohort, lasting, settings=chosen, seed=seed, progress=part_of(progress, 1, parts))
    shrinkage, shares = Shrinkage.learn(found, hold_out_subjects(cohort, chosen, seed)[0], lasting)
    centre = _together(found, copy.deepcopy(found), shrinkage, shares)
    if not members:
        return centre
    wide = with_columns(cohort, shrinkage.draw(found.for_search(), cohort, np.random.default_rng(seed)))
    last = part_of(progress, 2, parts)
    refits = fit_ensemble(like(model, wide.schema), wide, members=members, settings=settings, seed=seed, progress=last)
    others = [_together(found, one, shrinkage, shares) for one in refits.members]
    return Ensemble(others, centre=centre, notes=refits.notes).eval()


def lasting_features(begun: TrainableModel, cohort: Cohort, settings: FitSettings, seed: int) -> list[bool]:
    """The dynamic features [D] whose noise lies between the subjects that were trained on, beyond chance."""
    return [value > 0 for value in Shrinkage.learn(begun, hold_out_subjects(cohort, settings, seed)[0])[0].between]


def fit_lasting(
    begun: TrainableModel,
    cohort: Cohort,
    lasting: Sequence[bool],
    *,
    settings: FitSettings,
    seed: int,
    progress: Progress = silent,
) -> TrainableModel:
    """What `fit_without_effects` began, trained on with effects on `lasting` features; itself where there are none.

    Before every epoch effects are drawn anew from what its noise says by now. A model without effects takes what lasts
    in a subject for persistence and for what actions do, and unlearns that by and by: effects that stay as that model
    gives them would leave a part of it. Variances are learned from the subjects trained on, each time.
    """
    if not any(lasting):
        return begun
    generator = np.random.default_rng(seed)
    training, held_out = hold_out_subjects(cohort, settings, seed)

    def follow(model: TrainableModel, rows: Rows) -> Rows:
        frozen, (train_rows, held_rows) = model.for_search(), rows
        shrinkage, _ = Shrinkage.learn(frozen, training, lasting)
        train_rows = _with_effects(train_rows, training, shrinkage.draw(frozen, training, generator))
        if held_rows is not None and held_out is not None:
            held_rows = _with_effects(held_rows, held_out, shrinkage.draw(frozen, held_out, generator))
        return train_rows, held_rows

    wide = with_columns(cohort, nobody(cohort))
    return fit_further(begun, wide, follow, settings=replace(settings, threads=1), seed=seed, progress=progress)


def _with_effects(rows: EncodedTransitions, cohort: Cohort, effects: FloatArray) -> EncodedTransitions:
    """The transitions of a cohort with effects [T, D] as the last columns of their context."""
    new = torch.as_tensor(np.delete(effects, cohort.offsets[1:] - 1, axis=0)).to(
        rows.context
    )  # last steps lead nowhere
    return rows._replace(context=torch.cat([rows.context[:, : -new.shape[1]], new], dim=1))


def fit_without_effects(
    model: TrainableModel,
    cohort: Cohort,
    *,
    begun: TrainableModel | None = None,
    settings: FitSettings,
    seed: int,
    progress: Progress = silent,
) -> TrainableModel:
    """A model like `model` of the schema with effects, all of which are zero; with `begun`, that one trained as long
    again."""
    wide, own = with_columns(cohort, nobody(cohort)), replace(settings, threads=1)
    if begun is not None:
        return fit_further(begun, wide, lambda _, rows: rows, settings=own, seed=seed, progress=progress)
    return fit(like(model, wide.schema), wide, settings=own, seed=seed, progress=progress)


def nobody(cohort: Cohort) -> FloatArray:
    """Effects [T, D] of zero."""
    return np.zeros((len(cohort.actions), len(cohort.schema.dynamic)))


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
