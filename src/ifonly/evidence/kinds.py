"""Structural ensembles: models of different kinds, fitted to different subjects, each with a weight that it has earned.

Bootstrap refits show what chance in the choice of subjects does to one kind of model. What the kind itself does shows
where kinds differ: in their location, their tails, the number of their units, the inputs that they see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.data.scaling import Scaler
from ifonly.evidence.recipe_journal import Pair
from ifonly.evidence.recipe_losses import log_densities
from ifonly.models.base import TrainableModel
from ifonly.models.bootstrap import Half, SubjectIndex, notes_on
from ifonly.models.effects import SubjectEffectModel
from ifonly.models.ensemble import Ensemble
from ifonly.models.fit import EncodedTransitions, hold_out_subjects
from ifonly.models.fit_effects import with_columns
from ifonly.models.fit_ensemble import Wanted, fit_samples
from ifonly.models.fit_report import FitSettings
from ifonly.models.recipes import FALLBACK, FALLBACK_STRENGTH, RECIPES, Recipe
from ifonly.models.stacking import stacking_weights
from ifonly.models.standing import MemberLabel
from ifonly.progress import Progress, part_of, silent

NARROW, PARTIAL = "narrow", "partial"
EXTRA_KINDS = (NARROW, PARTIAL)
"""Kinds that are members without being compared: a residual location with fewer units, and one with fewer inputs."""
NARROW_SHARE = 4
"""A narrow network has its number of hidden units divided by this."""
LEFT_OUT_SHARE = 3
"""Of so many columns of state and context one is left out."""


@dataclass(frozen=True, eq=False)
class Halves:
    """Two halves of a cohort's subjects, and what all models that are fitted to them share."""

    cohort: Cohort
    index: SubjectIndex
    parts: tuple[Half, Half]
    judges: tuple[Cohort, Cohort]
    """For each half the subjects that its models have not seen: the other one."""
    scaler: Scaler
    """That of a model fitted to everyone (`fit`), so that it can speak for those fitted to halves."""
    hidden: tuple[int, ...]
    settings: FitSettings
    seed: int

    @classmethod
    def of(cls, cohort: Cohort, hidden: Sequence[int], settings: FitSettings, seed: int) -> Halves:
        """Halves drawn at random; the same for the same seed."""
        index = SubjectIndex.of(cohort)
        parts = index.halves(settings, seed)
        first, second = (cohort.filter(~part.episodes) for part in parts)
        scaler = Scaler.fit(hold_out_subjects(cohort, settings, seed)[0])
        return cls(cohort, index, parts, (first, second), scaler, tuple(hidden), settings, seed)

    def fit(self, recipe: Recipe, progress: Progress = silent) -> tuple[list[TrainableModel], list[TrainableModel]]:
        """The recipe at every strength, fitted to the first half and to the second."""
        wanted = [Wanted(part.sample, strength) for part in self.parts for strength in recipe.strengths]
        models = self._fitted(recipe, self.hidden, wanted, progress)
        count = len(recipe.strengths)
        return models[:count], models[count:]

    def fit_extra(self, kind: str, strengths: tuple[float, float], progress: Progress = silent) -> Pair:
        """One of `EXTRA_KINDS`, fitted to both halves, each with its strength of the penalty."""
        narrow = tuple(max(1, width // NARROW_SHARE) for width in self.hidden)
        hidden = narrow if kind == NARROW else self.hidden
        wanted = [
            Wanted(part.sample, strength, self._left_out(half) if kind == PARTIAL else ())
            for half, (part, strength) in enumerate(zip(self.parts, strengths, strict=True))
        ]
        first, second = self._fitted(FALLBACK, hidden, wanted, progress)
        return first, second

    def with_effects(
        self, model: SubjectEffectModel, kinds: Mapping[str, Pair], progress: Progress = silent
    ) -> dict[str, Pair]:
        """The same kinds, fitted once more with a draw each of the subject effects of `model`, each with its strength.

        So they differ by how well effects are known, too.
        """
        first, found = model.first.for_search(), dict[str, Pair]()
        for number, (kind, pair) in enumerate(kinds.items()):
            effects = model.shrinkage.draw(first, self.cohort, np.random.default_rng([self.seed, number]))
            wide = Halves.of(with_columns(self.cohort, effects), self.hidden, self.settings, self.seed)
            one, other = wide._again(kind, pair, part_of(progress, number, len(kinds)))
            found[kind] = with_effects_of(model, one), with_effects_of(model, other)
        return found

    def _again(self, kind: str, pair: Pair, progress: Progress) -> Pair:
        """A kind with the strengths of an earlier pair."""
        strengths = curvatures_of(pair)
        if kind in EXTRA_KINDS:
            return self.fit_extra(kind, strengths, progress)
        wanted = [Wanted(part.sample, strength) for part, strength in zip(self.parts, strengths, strict=True)]
        first, second = self._fitted(RECIPES[kind], self.hidden, wanted, progress)
        return first, second

    def _fitted(
        self, recipe: Recipe, hidden: Sequence[int], wanted: Sequence[Wanted], progress: Progress
    ) -> list[TrainableModel]:
        model, settings = recipe.untrained(self.cohort.schema, hidden), recipe.settings(self.settings)
        return fit_samples(model, self.cohort, wanted, scaler=self.scaler, settings=settings, progress=progress)

    def _left_out(self, half: int) -> tuple[int, ...]:
        """Columns of state and context, drawn at random for each half: two models lack more than one does."""
        schema = self.cohort.schema
        columns = len(schema.dynamic) + len(schema.context)
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(2, half)))
        drawn = rng.permutation(columns)[: max(1, round(columns / LEFT_OUT_SHARE))]
        return tuple(sorted(drawn.tolist()))

    def stacked(self, centre: TrainableModel, kinds: Mapping[str, Pair]) -> Ensemble:
        """An ensemble of all kinds with stacking weights, for which `centre`, fitted to everyone, speaks."""
        densities = np.stack([self._unseen_densities(pair) for pair in kinds.values()], axis=1)
        weights = stacking_weights(densities)
        members: list[TrainableModel] = []
        labels: list[MemberLabel] = []
        for (kind, pair), weight in zip(kinds.items(), weights.tolist(), strict=True):
            members += pair
            labels += [MemberLabel(kind, half, weight / 2) for half in range(2)]
        samples = [part.sample for _ in kinds for part in self.parts]
        notes = notes_on(self.cohort, self.index, samples)
        return Ensemble(members, centre=centre, notes=notes, labels=labels).eval()

    def _unseen_densities(self, pair: Pair) -> FloatArray:
        """The log density [N] of every transition, under the model that has not seen its subject."""
        frozen = [model.for_search() for model in pair]
        rows = [EncodedTransitions.for_densities(*each) for each in zip(frozen, self.judges, strict=True)]
        return np.concatenate([log_densities(*each).numpy() for each in zip(frozen, rows, strict=True)])


def strengths_of(kinds: Mapping[str, Pair]) -> tuple[float, float]:
    """The strengths of the penalty that suit residual locations on either half; the usual one where none was tried."""
    return curvatures_of(kinds[FALLBACK.name]) if FALLBACK.name in kinds else (FALLBACK_STRENGTH, FALLBACK_STRENGTH)


def curvatures_of(pair: Pair) -> tuple[float, float]:
    """The strengths of the penalty with which two models were fitted."""
    reports = [model.fit_report for model in pair]
    first, second = (FALLBACK_STRENGTH if report is None else report.settings.curvature for report in reports)
    return first, second


def with_effects_of(model: SubjectEffectModel, member: TrainableModel) -> SubjectEffectModel:
    """A member of the schema with effects as one that infers them as `model` does."""
    made = SubjectEffectModel(model.first, member, model.shrinkage).eval()
    made.fit_report = member.fit_report
    return made
