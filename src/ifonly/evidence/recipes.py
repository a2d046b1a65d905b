"""Which recipe suits a cohort: all are fitted to some subjects and compared on others.

Compared are the densities of features one step ahead, each on its own, for nothing else matters to counterfactuals
(`TrainableModel.entry_log_prob`), and the error of replays over several steps, which count the same: a model whose
single steps are good can drift, and what is asked of models are courses. Both losses are in nats per transition. The
error of replays is turned into nats by the density that it implies (Laplace noise of that mean size): the sum over
features of the logarithm of the mean absolute error.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.errors import InputError
from ifonly.evidence.check.check import check_model
from ifonly.journal import Journal
from ifonly.models.base import TrainableModel
from ifonly.models.effect_choice import SubjectEffect, fit_as_chosen
from ifonly.models.ensemble import Ensemble
from ifonly.models.fit import EncodedTransitions, FitSettings, objective
from ifonly.models.fit_ensemble import fit_strengths
from ifonly.models.fit_report import RecipeRow
from ifonly.models.recipes import FALLBACK, FALLBACK_STRENGTH, RECIPES, Recipe
from ifonly.problem import Problem
from ifonly.progress import Progress, Tick, silent
from ifonly.query import Limits, Query
from ifonly.rewards import Linear
from ifonly.search.solve import solve

HELD_OUT = 0.2
"""Share of subjects on which recipes are compared."""
HORIZONS = (2, 4, 8)
"""Steps ahead at which replays are compared with the record; of these, those that episodes are long enough for."""
RESAMPLES = 400
"""Bootstrap samples of subjects, for the standard error of a difference."""
ASKED, CHANGES, PATIENCE = 5, 3, 2.0
"""Questions put to the best model of each recipe to see how fast they are proven, their changes, and seconds each."""
LEAST_SUBJECTS = 10
"""With fewer subjects there is nothing to compare recipes on."""


@dataclass(frozen=True)
class _Losses:
    """What a model does on subjects held out: sums over each subject's transitions; S subjects."""

    density: FloatArray  # [S], negative log densities
    transitions: FloatArray  # [S]
    errors: FloatArray  # [S, H, D], absolute errors of replays, in scaled units
    replays: FloatArray  # [S, H, D], how many entries these are

    def combined(self, weights: FloatArray) -> FloatArray:
        """The mean [B] of both losses, in nats per transition, for weights of subjects [B, S]."""
        one_step = weights @ self.density / (weights @ self.transitions)
        return (one_step + self.replay_loss(weights)) / 2 if self.errors.shape[1] else one_step

    def replay_loss(self, weights: FloatArray) -> FloatArray:
        """The loss [B] of replays, averaged over horizons."""
        means = np.einsum("bs,shd->bhd", weights, self.errors) / np.einsum("bs,shd->bhd", weights, self.replays)
        return np.asarray(np.log(2 * np.e * np.maximum(means, 1e-9)).sum(-1).mean(-1))

    def replay_error(self) -> float | None:
        """Mean absolute error of replays, over horizons and features, in deviations."""
        if not self.errors.shape[1]:
            return None
        return float((self.errors.sum(0) / self.replays.sum(0)).mean())


def fit_recipe(
    cohort: Cohort,
    *,
    recipes: Sequence[Recipe] | None = None,
    hidden: Sequence[int] = (200,),
    refits: int = 0,
    subject_effect: SubjectEffect = False,
    settings: FitSettings | None = None,
    seed: int = 0,
    journal: Path | None = None,
    progress: Progress = silent,
) -> TrainableModel:
    """The recipe that suits the cohort, fitted to all of it; `model.fit_report.recipes` is the table of all.

    Recipes are fitted to four fifths of the subjects and compared on the others (`compare_recipes`). Among those within
    one standard error of the best, the one with the largest curvature penalty is taken: it costs nothing that could be
    told from chance, and questions are proven fastest. `refits` members of bootstrap samples make it an `Ensemble`.
    With `subject_effect` the recipe, compared without, is fitted with an effect of each subject (`fit_with_effects`);
    "auto" does so where that pays on subjects held out (`choose_effects`).
    With a `journal` what is finished is kept, and an interrupted comparison goes on. A recipe with one strength needs
    no comparison, and with fewer than ten subjects there is none: a residual location with a penalty of 0.1 is taken.

    >>> from ifonly import simulate
    >>> cohort = simulate.simulate_cohort(40, seed=0)
    >>> model = fit_recipe(cohort, recipes=[RECIPES["residual"]], hidden=(8,), settings=FitSettings(epochs=2))
    >>> sum(row.chosen for row in model.fit_report.recipes)
    1
    """
    settings = settings or FitSettings()
    listed = list(RECIPES.values()) if recipes is None else list(recipes)
    recipe, strength, rows = listed[0], listed[0].strengths[0], list[RecipeRow]()
    if len(listed) > 1 or len(recipe.strengths) > 1:
        if len(set(cohort.subjects)) < LEAST_SUBJECTS:
            recipe, strength = (FALLBACK if len(listed) > 1 else recipe), FALLBACK_STRENGTH
        else:
            rows = compare_recipes(
                cohort, listed, hidden=hidden, settings=settings, seed=seed, journal=journal, progress=progress
            )
            chosen = next(row for row in rows if row.chosen)
            recipe, strength = next(one for one in listed if one.name == chosen.recipe), chosen.curvature
    model, own = recipe.untrained(cohort.schema, hidden), replace(recipe.settings(settings), curvature=strength)
    fitted = fit_as_chosen(
        model, cohort, subject_effect=subject_effect, members=refits, settings=own, seed=seed, progress=progress
    )
    for member in (fitted.centre, *fitted.members) if isinstance(fitted, Ensemble) else (fitted,):
        assert member.fit_report is not None, "it was just fitted"
        member.fit_report = replace(member.fit_report, recipes=tuple(rows))
    return fitted


def compare_recipes(
    cohort: Cohort,
    recipes: Sequence[Recipe],
    *,
    hidden: Sequence[int] = (200,),
    settings: FitSettings | None = None,
    seed: int = 0,
    journal: Path | None = None,
    progress: Progress = silent,
) -> list[RecipeRow]:
    """Every recipe at every strength of its penalty, compared on subjects held out; one row is `chosen`."""
    settings = settings or FitSettings()
    subjects = len(set(cohort.subjects))
    if subjects < LEAST_SUBJECTS:
        raise InputError(
            f"fit: {subjects} subjects are too few to compare recipes on; name one, such as 'paper' or 'residual'."
        )
    training, held_out = cohort.split(test=HELD_OUT, seed=seed)
    kept = _Kept.at(journal, cohort, recipes, hidden, settings, seed)
    entries: list[dict[str, Any]] = []
    for number, recipe in enumerate(recipes):
        if (entry := kept.entries.get(recipe.name)) is None:

            def report(tick: Tick, done: int = number) -> None:
                progress(
                    Tick("recipes", done * settings.epochs + tick.done, len(recipes) * settings.epochs, tick.figures)
                )

            models = fit_strengths(
                recipe.untrained(cohort.schema, hidden),
                training,
                recipe.strengths,
                settings=recipe.settings(settings),
                seed=seed,
                progress=report,
            )
            entry = _measured(recipe, models, held_out, seed, ask=len(recipes) > 1)
            kept.keep(entry)
        entries.append(entry)
        progress(Tick("recipes", (number + 1) * settings.epochs, len(recipes) * settings.epochs, {}))
    return _judged(recipes, entries, seed)


def _measured(
    recipe: Recipe, models: Sequence[TrainableModel], held_out: Cohort, seed: int, *, ask: bool
) -> dict[str, Any]:
    """What is kept of a recipe: losses of every strength; with `ask`, of the best one the verdict of its check, and how
    fast its answers are proven."""
    losses = [_losses(model.for_search(), held_out) for model in models]
    everyone = np.ones((1, len(losses[0].density)))
    best = models[int(np.argmin([float(loss.combined(everyone)[0]) for loss in losses]))]
    proven, seconds = _speed(best, held_out) if ask else (None, None)
    return {
        "recipe": recipe.name,
        "losses": [{name: values.tolist() for name, values in vars(loss).items()} for loss in losses],
        "verdict": check_model(best, held_out, seed=seed).verdict.value if ask else None,
        "proven": proven,
        "seconds": seconds,
    }


@torch.no_grad()
def _losses(model: TrainableModel, cohort: Cohort) -> _Losses:
    rows, transitions = EncodedTransitions.of(model, cohort), cohort.transitions()
    _, owners = np.unique(np.array(cohort.subjects), return_inverse=True)
    subject = torch.as_tensor(owners[transitions.episode])
    count, size = int(subject.max()) + 1, model.state_size
    margins = FitSettings(density="margins")
    log_prob = torch.cat([objective(model, batch, margins).double() for batch in rows.batches()])
    horizons = [horizon for horizon in HORIZONS if horizon < int(cohort.lengths.max())]
    errors, replays = torch.zeros(2, count, len(horizons), size, dtype=torch.float64)
    for number, (rows_at, wrong, counts) in enumerate(_replays(model, rows, transitions.episode, horizons)):
        errors[:, number].index_add_(0, subject[rows_at], wrong)
        replays[:, number].index_add_(0, subject[rows_at], counts)
    return _Losses(
        density=_sums(-log_prob, subject, count),
        transitions=_sums(torch.ones_like(log_prob), subject, count),
        errors=errors.numpy(),
        replays=replays.numpy(),
    )


def _replays(
    model: TrainableModel, rows: EncodedTransitions, episode: np.ndarray[Any, Any], horizons: Sequence[int]
) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
    """For each horizon: from which transitions recorded actions were replayed, without noise, how far the state reached
    is from the recorded one [n, D], and which entries count [n, D].

    Entries that were not measured stay as they are, as in the record and in the check.
    """
    owner = torch.as_tensor(episode)
    at, states = torch.arange(len(owner)), rows.states
    for step in range(1, max(horizons, default=0) + 1):
        moved = model.step(states, rows.context[at], rows.actions[at], torch.zeros_like(states))
        measured = torch.ones_like(states, dtype=torch.bool) if rows.measured is None else rows.measured[at]
        states = torch.where(measured, moved, states)
        if step in horizons:
            counts = measured.to(states)
            yield at, (states - rows.next_states[at]).abs().clamp(max=1e6).nan_to_num(1e6) * counts, counts
        goes_on = (at + 1 < len(owner)) & (owner[(at + 1).clamp(max=len(owner) - 1)] == owner[at])
        at, states = at[goes_on] + 1, states[goes_on]


def _sums(values: Tensor, groups: Tensor, count: int) -> FloatArray:
    return np.asarray(torch.zeros(count, dtype=torch.float64).index_add_(0, groups, values).numpy())


def _speed(model: TrainableModel, cohort: Cohort) -> tuple[float, float | None]:
    """The share of a few questions that are proven in time, and their median seconds; all features are to be low."""
    deviations = np.maximum(cohort.states.std(axis=0), 1e-9)
    weights = {f.name: -1 / float(s) for f, s in zip(cohort.schema.dynamic, deviations, strict=True)}
    query = Query(Linear(weights), CHANGES, limits=Limits(seconds=PATIENCE))
    searched = model.for_search()
    results = [solve(Problem.from_episode(episode, searched, query)) for episode in cohort[:ASKED]]
    proven = [result.stats.seconds for result in results if result.status == "optimal"]
    return len(proven) / len(results), statistics.median(proven) if proven else None


def _judged(recipes: Sequence[Recipe], entries: Sequence[dict[str, Any]], seed: int) -> list[RecipeRow]:
    """The table, and who is chosen in it: the largest penalty within one standard error of the best."""
    found = [
        (recipe, strength, _Losses(**{name: np.array(values) for name, values in loss.items()}), entry)
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
    return [
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
    ]


@dataclass(frozen=True)
class _Kept:
    """What a journal has of a comparison; nothing without one."""

    journal: Journal | None
    entries: dict[str, dict[str, Any]]

    @classmethod
    def at(cls, path: Path | None, cohort: Cohort, *what: object) -> _Kept:
        """The journal at `path`, begun anew where it is of another comparison."""
        if path is None:
            return cls(None, {})
        journal = Journal(path, "comparison of recipes", "delete it to start again")
        head = {"comparison": [cohort.fingerprint(), repr(what)]}
        lines = list(journal.lines()) if path.exists() else []
        if not lines or lines[0].entry != head:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            journal.append([json.dumps(head)])
            return cls(journal, {})
        journal.cut(lines[-1].end)
        return cls(journal, {line.entry["recipe"]: line.entry for line in lines[1:]})

    def keep(self, entry: dict[str, Any]) -> None:
        """Write an entry down at once."""
        if self.journal is not None:
            self.journal.append([json.dumps(entry)])
