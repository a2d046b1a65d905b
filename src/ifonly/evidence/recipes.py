"""Which recipe suits a cohort: each is fitted to either half of the subjects, and judged by the other half.

So every subject is judged exactly once, by models that have not seen it; what is measured is in `recipe_losses`. The
models are not thrown away: the best of each recipe on each half are the members of a structural ensemble (`kinds`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ifonly.data.cohort import Cohort
from ifonly.data.plain import check_whole
from ifonly.errors import InputError
from ifonly.evidence.check.check import check_model
from ifonly.evidence.kinds import EXTRA_KINDS, Halves, strengths_of
from ifonly.evidence.recipe_journal import Pair, RecipeJournal, training_beside
from ifonly.evidence.recipe_losses import Losses, horizons_of, losses_of, speed_of
from ifonly.models.base import TrainableModel
from ifonly.models.effect_choice import SubjectEffect, fit_as_chosen
from ifonly.models.effects import SubjectEffectModel
from ifonly.models.ensemble import Ensemble
from ifonly.models.fit import FitSettings
from ifonly.models.fit_report import RecipeRow
from ifonly.models.recipes import FALLBACK, FALLBACK_STRENGTH, RECIPES, Recipe
from ifonly.progress import Progress, Tick, part_of, silent

RESAMPLES = 400
"""Bootstrap samples of subjects, for the standard error of a difference."""
LEAST_SUBJECTS = 10
"""With fewer subjects there is nothing to compare recipes on."""
KINDS: Literal["kinds"] = "kinds"
"""Instead of a number of refits: members of different kinds."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Recipes that were compared."""

    rows: tuple[RecipeRow, ...]
    """Every recipe at every strength of its penalty; one is `chosen`."""
    kinds: Mapping[str, Pair]
    """Of every recipe, by its name, the best model of each half; with members wanted, those of `EXTRA_KINDS`, too."""
    halves: Halves

    @property
    def chosen(self) -> RecipeRow:
        """The row that is taken."""
        return next(row for row in self.rows if row.chosen)


def fit_recipe(
    cohort: Cohort,
    *,
    recipes: Sequence[Recipe] | None = None,
    hidden: Sequence[int] = (200,),
    refits: int | Literal["kinds"] = 0,
    subject_effect: SubjectEffect = False,
    settings: FitSettings | None = None,
    seed: int = 0,
    journal: Path | None = None,
    progress: Progress = silent,
) -> TrainableModel:
    """The recipe that suits the cohort, fitted to all of it; `model.fit_report.recipes` is the table of all.

    Recipes are fitted to both halves of the subjects, each judged by the other (`compare_recipes`). Among those within
    one standard error of the best, the one with the largest curvature penalty is taken: it costs nothing that could be
    told from chance, and questions are proven fastest. `refits` members of bootstrap samples make it an `Ensemble`; so
    does "kinds", whose members are the best models of each recipe and of `EXTRA_KINDS` on each half, with weights by
    stacking: they show what the kind of model changes, at hardly any cost beyond the comparison's.
    With `subject_effect` the recipe, compared without, is fitted with an effect of each subject (`fit_with_effects`);
    "auto" does so where that pays on subjects held out (`choose_effects`). Members of kinds are then fitted once more,
    with the same effects.
    With a `journal` what is finished is kept, and an interrupted comparison goes on, as does the training of refits
    (`training_beside` the journal). A recipe with one strength needs
    no comparison, and with fewer than ten subjects there is none, and no members of kinds: a residual location with a
    penalty of 0.1 is taken.

    >>> from ifonly import simulate
    >>> cohort = simulate.simulate_cohort(40, seed=0)
    >>> model = fit_recipe(cohort, recipes=[RECIPES["residual"]], hidden=(8,), settings=FitSettings(epochs=2))
    >>> sum(row.chosen for row in model.fit_report.recipes)
    1
    """
    if refits != KINDS:
        check_whole("fit: refits", refits, least=0)
    settings = settings or FitSettings.thorough(cohort)
    listed = list(RECIPES.values()) if recipes is None else list(recipes)
    recipe, strength, found = listed[0], listed[0].strengths[0], None
    if len(listed) > 1 or len(recipe.strengths) > 1 or refits == KINDS:
        if len(set(cohort.subjects)) < LEAST_SUBJECTS:
            recipe, strength = _without_comparison(listed)
        else:
            found = compare_recipes(
                cohort,
                listed,
                hidden=hidden,
                extra_kinds=refits == KINDS,
                settings=settings,
                seed=seed,
                journal=journal,
                progress=progress,
            )
            recipe, strength = next(one for one in listed if one.name == found.chosen.recipe), found.chosen.curvature
    model, own = recipe.untrained(cohort.schema, hidden), replace(recipe.settings(settings), curvature=strength)
    members = 0 if refits == KINDS else refits
    own = replace(own, threads=1) if refits == KINDS else own  # threads train groups of models
    fitted = fit_as_chosen(
        model,
        cohort,
        subject_effect=subject_effect,
        members=members,
        settings=own,
        seed=seed,
        journal=None if journal is None else training_beside(journal),
        progress=progress,
    )
    for member in (fitted.centre, *fitted.members) if isinstance(fitted, Ensemble) else (fitted,):
        assert member.fit_report is not None, "it was just fitted"
        member.fit_report = replace(member.fit_report, recipes=() if found is None else found.rows)
    if found is None or refits != KINDS:
        return fitted
    if isinstance(fitted, SubjectEffectModel):
        return found.halves.stacked(fitted, found.halves.with_effects(fitted, found.kinds, progress))
    return found.halves.stacked(fitted, found.kinds)


def _without_comparison(recipes: Sequence[Recipe]) -> tuple[Recipe, float]:
    """What is taken where there are too few subjects: a recipe, and the strength of its penalty."""
    recipe = FALLBACK if len(recipes) > 1 else recipes[0]
    return recipe, recipe.strengths[0] if len(recipe.strengths) == 1 else FALLBACK_STRENGTH


def compare_recipes(
    cohort: Cohort,
    recipes: Sequence[Recipe],
    *,
    hidden: Sequence[int] = (200,),
    extra_kinds: bool = False,
    settings: FitSettings | None = None,
    seed: int = 0,
    journal: Path | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Every recipe at every strength of its penalty, fitted to either half of the subjects and judged by the other.

    With `extra_kinds` members of a structural ensemble that are not compared are fitted, too.
    """
    settings = settings or FitSettings.thorough(cohort)
    subjects = len(set(cohort.subjects))
    if subjects < LEAST_SUBJECTS:
        raise InputError(
            f"fit: {subjects} subjects are too few to compare recipes on; name one, such as 'paper' or 'residual'."
        )
    halves = Halves.of(cohort, hidden, settings, seed)
    kept = RecipeJournal.at(journal, cohort, recipes, hidden, settings, seed)
    extra = EXTRA_KINDS if extra_kinds else ()
    kinds: dict[str, Pair] = {}
    entries: list[dict[str, Any]] = []

    def part(number: int) -> Progress:
        return part_of(progress, number, len(recipes) + len(extra), stage="recipes", size=settings.epochs)

    for number, recipe in enumerate(recipes):
        entry, kinds[recipe.name] = kept.find(recipe.name) or kept.keep(
            *_measured(recipe, halves, part(number), ask=len(recipes) > 1)
        )
        entries.append(entry)
        part(number)(Tick("recipes", settings.epochs))
    for number, kind in enumerate(extra, start=len(recipes)):
        _, kinds[kind] = kept.find(kind) or kept.keep(
            {"recipe": kind}, halves.fit_extra(kind, strengths_of(kinds), part(number))
        )
        part(number)(Tick("recipes", settings.epochs))
    return Comparison(_judged(recipes, entries, seed), kinds, halves)


def _measured(recipe: Recipe, halves: Halves, progress: Progress, *, ask: bool) -> tuple[dict[str, Any], Pair]:
    """What is kept of a recipe: the losses of every strength, and the best model of each half; with `ask`, of that of
    the first half the verdict of its check, and how fast its answers are proven."""
    horizons = horizons_of(halves.cohort)
    models = halves.fit(recipe, progress)
    losses = [
        [losses_of(model.for_search(), judge, horizons) for model in fitted]
        for fitted, judge in zip(models, halves.judges, strict=True)
    ]
    first, second = (fitted[_best(found)] for fitted, found in zip(models, losses, strict=True))
    judge = halves.judges[0]
    proven, seconds = speed_of(first, judge) if ask else (None, None)
    joined = [Losses.join(both) for both in zip(*losses, strict=True)]
    entry = {
        "recipe": recipe.name,
        "losses": [{name: values.tolist() for name, values in vars(loss).items()} for loss in joined],
        "verdict": check_model(first, judge, seed=halves.seed).verdict.value if ask else None,
        "proven": proven,
        "seconds": seconds,
    }
    return entry, (first, second)


def _best(losses: Sequence[Losses]) -> int:
    """The model with the smallest loss."""
    everyone = np.ones((1, len(losses[0].density)))
    return int(np.nanargmin([float(loss.combined(everyone)[0]) for loss in losses]))


def _judged(recipes: Sequence[Recipe], entries: Sequence[dict[str, Any]], seed: int) -> tuple[RecipeRow, ...]:
    """The table, and who is chosen in it: the largest penalty within one standard error of the best."""
    found = [
        (recipe, strength, Losses(**{name: np.array(values) for name, values in loss.items()}), entry)
        for recipe, entry in zip(recipes, entries, strict=True)
        for strength, loss in zip(recipe.strengths, entry["losses"], strict=True)
    ]
    subjects = len(found[0][2].density)
    everyone = np.ones((1, subjects))
    drawn = np.random.default_rng(seed).multinomial(subjects, np.full(subjects, 1 / subjects), size=RESAMPLES)
    totals = np.array([float(losses.combined(everyone)[0]) for _, _, losses, _ in found])
    with np.errstate(invalid="ignore", divide="ignore"):
        resampled = np.array([losses.combined(drawn.astype(np.float64)) for _, _, losses, _ in found])
    best = int(np.nanargmin(totals))
    errors = np.nan_to_num(np.nanstd(resampled - resampled[best], axis=1))
    eligible = [number for number in range(len(found)) if totals[number] - totals[best] <= errors[number]]
    chosen = max(eligible, key=lambda number: (found[number][1], -totals[number]))
    return tuple(
        RecipeRow(
            recipe=recipe.name,
            curvature=strength,
            log_likelihood=-float(losses.density.sum() / losses.transitions.sum()),
            replay_error=losses.replay_error(),
            excess=float(totals[number] - totals[best]),
            excess_error=float(errors[number]),
            verdict=entry["verdict"],
            proven=entry["proven"],
            seconds=entry["seconds"],
            chosen=number == chosen,
        )
        for number, (recipe, strength, losses, entry) in enumerate(found)
    )
