"""Whether subject effects pay, decided on subjects held out: every step judges an effect that all other steps gave."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.models.base import TrainableModel
from ifonly.models.effects import SubjectEffectModel
from ifonly.models.ensemble import Ensemble
from ifonly.models.fit import EncodedTransitions, fit
from ifonly.models.fit_effects import fit_with_effects, fit_without_effects, lasting_features, with_columns
from ifonly.models.fit_ensemble import fit_ensemble
from ifonly.models.fit_report import EffectChoice, FitSettings
from ifonly.progress import Progress, silent

SubjectEffect = bool | Literal["auto"]
"""Whether a model has subject effects; "auto": where they pay."""

HELD_OUT = 0.2
"""Share of subjects on which it is decided."""

LEAST_SUBJECTS = 20
"""With fewer there is nothing to decide by, and a model has no effects."""


def fit_as_chosen(
    model: TrainableModel,
    cohort: Cohort,
    *,
    subject_effect: SubjectEffect = False,
    members: int = 0,
    settings: FitSettings | None = None,
    seed: int = 0,
    journal: Path | None = None,
    progress: Progress = silent,
) -> TrainableModel:
    """A model like `model`, fitted with subject effects or without, as an `Ensemble` where there are `members`.

    With a `journal`, members without effects that were being trained when it was stopped go on (`fit_ensemble`).
    Where `subject_effect` is "auto", `fit_report.effect_choice` tells how it was decided.
    """
    settings = settings or FitSettings()
    choice = None
    if subject_effect == "auto":
        choice = choose_effects(model, cohort, settings=settings, seed=seed, progress=progress)
    fitted: TrainableModel
    if subject_effect is True or (choice is not None and choice.chosen):
        fitted = fit_with_effects(model, cohort, members=members, settings=settings, seed=seed, progress=progress)
    elif members:
        fitted = fit_ensemble(
            model, cohort, members=members, settings=settings, seed=seed, journal=journal, progress=progress
        )
    else:
        fitted = fit(model, cohort, settings=settings, seed=seed, progress=progress)
    for one in (fitted.centre, *fitted.members) if isinstance(fitted, Ensemble) else (fitted,):
        assert one.fit_report is not None, "it was just fitted"
        one.fit_report = replace(one.fit_report, effect_choice=choice)
    return fitted


def choose_effects(
    model: TrainableModel,
    cohort: Cohort,
    *,
    settings: FitSettings | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> EffectChoice:
    """Whether a model like `model` should have subject effects.

    Models without and with them are fitted to four fifths of the subjects, for equally long. Of the others, the errors
    of every step are compared, with the effect that all other steps of the subject give: so no step flatters itself.
    Earlier steps alone would be the wrong judge. Where those who act go by what lasts, actions tell of it, and a model
    without effects that takes them for its cause predicts nearly as well; effects of half an episode are too uncertain
    to make up for that. For the same reason the sign of the difference decides, and not its size: that something lasts
    was tested before, since where the noise of no feature lies between subjects beyond chance, the second model is not
    fitted. Errors, and not densities: effects of steps that have a part in them flatter these, and counterfactuals do
    not depend on how large the noise is thought to be.

    >>> from ifonly import simulate
    >>> from ifonly.models import LocationScale
    >>> cohort = simulate.simulate_cohort(40, seed=0)
    >>> choice = choose_effects(LocationScale(cohort.schema, hidden=(8,)), cohort, settings=FitSettings(epochs=2))
    >>> choice.chosen, choice.subjects
    (False, 8)
    """
    settings = settings or FitSettings()
    if len(set(cohort.subjects)) < LEAST_SUBJECTS:
        return EffectChoice(chosen=False, subjects=0)
    training, held_out = cohort.split(test=HELD_OUT, seed=seed)
    held_out = held_out.filter(lambda episode: len(episode) > 2)  # shorter ones have no other steps
    without = fit_without_effects(model, training, settings=settings, seed=seed, progress=progress)
    subjects = len(set(held_out.subjects))
    if subjects < 2 or not any(lasting_features(without, training, settings, seed)):
        return EffectChoice(chosen=False, subjects=subjects)
    found = fit_with_effects(model, training, begun=without, settings=settings, seed=seed, progress=progress)
    assert isinstance(found, SubjectEffectModel), "there are no members"
    longer = fit_without_effects(model, training, begun=without, settings=settings, seed=seed, progress=progress)
    gain, error = _gain_by_others(longer, found, held_out)
    return EffectChoice(chosen=gain > 0, subjects=subjects, gain=gain, error=error)


@torch.no_grad()
def _gain_by_others(without: TrainableModel, found: SubjectEffectModel, cohort: Cohort) -> tuple[float, float]:
    """By how much errors are smaller with effects of all other steps, in nats, and its standard error.

    The sum over features of the logarithm of the ratio of mean absolute errors. Subjects are independent, and their
    steps are not.
    """
    transitions = cohort.transitions()
    counted = True if transitions.measured is None else transitions.measured
    nobody = with_columns(cohort, np.zeros((len(cohort.actions), len(cohort.schema.dynamic))))
    plain, full = without.for_search(), found.for_search()
    context = np.delete(full.encode_context_by_others(cohort), cohort.offsets[1:] - 1, axis=0)
    rows = EncodedTransitions.of(full, cohort)._replace(context=torch.as_tensor(context))
    _, subjects = np.unique(np.array(cohort.subjects), return_inverse=True)
    sums = np.zeros((2, int(subjects.max()) + 1, len(cohort.schema.dynamic)))
    for total, errors in zip(
        sums, (_errors(plain, EncodedTransitions.of(plain, nobody)), _errors(full, rows)), strict=True
    ):
        np.add.at(total, subjects[transitions.episode], np.where(counted, errors, 0.0))
    before, after = np.maximum(sums.sum(axis=1), 1e-12)
    spread = (sums[0] / before - sums[1] / after).sum(axis=1)  # of the linearised logarithms, by subject
    count = len(spread)
    return float(np.log(before / after).sum()), math.sqrt(count / (count - 1) * float(spread @ spread))


def _errors(model: TrainableModel, rows: EncodedTransitions) -> FloatArray:
    """How far next states are from those without noise [N, D], in scaled units."""
    noise = torch.zeros_like(rows.states)
    return np.asarray((model.step(rows.states, rows.context, rows.actions, noise) - rows.next_states).abs().numpy())
