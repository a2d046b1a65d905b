"""Models as `ifonly fit` makes them, but on one thread, since studies work on many cells at once."""

from __future__ import annotations

from dataclasses import replace

from ifonly import Cohort, fit
from ifonly.evidence.recipes import fit_recipe
from ifonly.models.base import TrainableModel
from ifonly.progress import Progress, silent
from ifonly.study.plan import OWN_RECIPE, FitPlan


def fit_as_planned(cohort: Cohort, plan: FitPlan, *, progress: Progress = silent) -> TrainableModel:
    """The model that a study file with this plan, or the options of `ifonly fit` that it stands for, would give."""
    settings = replace(plan.settings(cohort), threads=1)
    if plan.recipe == OWN_RECIPE:
        return fit(plan.untrained(cohort.schema), cohort, settings=settings, seed=plan.seed, progress=progress)
    return fit_recipe(
        cohort,
        recipes=plan.recipes,
        hidden=plan.hidden,
        refits=plan.refits or 0,
        subject_effect=plan.subject_effect or False,
        settings=settings,
        seed=plan.seed,
        progress=progress,
    )
