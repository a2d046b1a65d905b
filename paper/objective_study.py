"""What to maximise where a cohort is asked: the objectives of an ensemble compared in worlds of which all is known.

A cell is a world, a variant of it and a seed: an ensemble of kinds is fitted, and its members are asked, one objective
after the other, about the same episodes. Every answer is replayed in the world.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from ifonly import (
    BehaviourSettings,
    Cohort,
    Ensemble,
    EnsembleProblem,
    FitSettings,
    Limits,
    Problem,
    Query,
    Result,
    fit_behaviour,
    solve_batch,
)
from ifonly.data.episode import IntArray
from ifonly.errors import InputError
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.evidence.recipes import fit_recipe
from ifonly.models.recipes import RECIPES
from ifonly.progress import Progress, silent
from paper.cells import CellFolder
from paper.evidence_study import HIDDEN as USUAL_HIDDEN
from paper.evidence_study import combinations, usual_recipes
from paper.worlds import WORLDS, Recording
from paper.worlds_study import NEGLIGIBLE, attainable, variants_of

FORMAT: dict[str, Any] = {"format": "paper.objectives", "version": 1}

COMPARED, STRENGTHS = ("residual", "plain-tails"), (0.03,)
"""Recipes of the members, each with this strength of its penalty; with those of `EXTRA_KINDS` they are eight."""
HIDDEN = (32,)
CHOICES = BehaviourSettings(epochs=10)
CENTRE, DEBIASED = "centre", "debiased"
MEMBERS: tuple[str | float, ...] = ("mean", "worst", 0.25)
"""Objectives of all members together."""
LEAST_SUPPORT = 0.05
"""How likely changes must be for those who act, where they must."""
WITH_SUPPORT = " with support"
OBJECTIVES = (
    CENTRE,
    *map(str, MEMBERS),
    CENTRE + WITH_SUPPORT,
    "mean" + WITH_SUPPORT,
    "worst" + WITH_SUPPORT,
    DEBIASED,
)
"""All that are compared. "debiased": of what is best for the mean of either half's members, that of which the other
half says most; none where that is nothing."""


Fits = Literal["small", "usual"]


@dataclass(frozen=True)
class CellSettings:
    """All that the numbers of a cell depend on."""

    world: str
    variant: str
    seed: int = 0
    episodes: int = 500
    """That members learn from."""
    asked: int = 15
    """Others, for which answers are sought."""
    epochs: int = 40
    max_changes: int = 3
    seconds: float = 1.0
    """Limit of a search; those of one objective about all episodes have theirs together."""
    fits: Fits = "small"
    """How members are fitted: small ones, of few kinds, or as in the study of verdicts."""

    def __post_init__(self) -> None:
        if self.world not in WORLDS:
            raise InputError(f"study of objectives: no world {self.world!r}; choose from {list(WORLDS)}.")
        WORLDS[self.world].variant(self.variant)
        if self.fits not in get_args(Fits):
            raise InputError(f"study of objectives: no fits {self.fits!r}; choose from {list(get_args(Fits))}.")
        for name in ("episodes", "asked", "max_changes"):
            if getattr(self, name) < 1:
                raise InputError(f"study of objectives: {name}={getattr(self, name)} must be at least 1.")

    @property
    def file(self) -> str:
        """Where the cell is kept, in the folder of the study."""
        return f"{self.world}-{self.variant}-{self.seed}{'' if self.fits == 'small' else f'-{self.fits}'}.json"


@dataclass(frozen=True)
class Choice:
    """What one objective chose for one episode; gains are over the recorded outcome."""

    objective: str
    episode: str
    changes: int
    promised: float
    true: float
    proven: bool

    @property
    def helps(self) -> bool:
        """Whether it truly does."""
        return self.true > NEGLIGIBLE


@dataclass(frozen=True)
class ObjectiveCell:
    """What came out for one cell: a choice of every objective for every episode."""

    settings: CellSettings
    members: int
    attainable: float
    """The mean over episodes of what so many changes truly gain, chosen in the world itself."""
    choices: tuple[Choice, ...]
    searched: Mapping[str, float]
    """Seconds of all searches of an objective."""
    seconds: float

    def of(self, objective: str) -> tuple[Choice, ...]:
        """The choices of one objective."""
        return tuple(choice for choice in self.choices if choice.objective == objective)

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return {**FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        values = {name: value for name, value in content.items() if name not in FORMAT}
        values["settings"] = CellSettings(**content["settings"])
        values["choices"] = tuple(Choice(**row) for row in content["choices"])
        return cls(**values)


def cells_of(
    worlds: Iterable[str], variants: Iterable[str], seeds: Iterable[int], **settings: Any
) -> list[CellSettings]:
    """Every combination; of no worlds or variants named, all."""
    return [CellSettings(*place, **settings) for place in combinations(worlds, variants, seeds)]


def carry_out(
    cells: Sequence[CellSettings], folder: Path, *, workers: int = 1, progress: Progress = silent
) -> list[ObjectiveCell]:
    """Measure every cell that the folder does not hold, each kept as soon as it is finished; all of them, in order."""
    found = kept_in(folder).carry_out(cells, measure, workers=workers, progress=progress)
    return sorted(found, key=_order)


def kept_in(folder: Path) -> CellFolder[ObjectiveCell]:
    """The cells that a folder holds."""
    return CellFolder(folder, ObjectiveCell, FORMAT)


def read_cells(folder: Path) -> list[ObjectiveCell]:
    """All that a folder holds, in order."""
    return sorted(kept_in(folder).all(), key=_order)


def _order(cell: ObjectiveCell) -> tuple[str, int, int, int]:
    settings = cell.settings
    variant = variants_of(WORLDS[settings.world]).index(settings.variant)
    return settings.fits, list(WORLDS).index(settings.world), variant, settings.seed


def measure(settings: CellSettings) -> ObjectiveCell:
    """Record, fit, ask in every way, and replay every choice in the world, with the noise that truly was."""
    started = time.perf_counter()
    recording = WORLDS[settings.world].record(settings.episodes + settings.asked, settings.seed, settings.variant)
    cohort = recording.cohort(settings.variant, "bounded")
    train, asked = cohort[: settings.episodes], cohort[settings.episodes :]
    small = [replace(RECIPES[name], strengths=STRENGTHS) for name in COMPARED]
    recipes, hidden = (small, HIDDEN) if settings.fits == "small" else (usual_recipes(), USUAL_HIDDEN)
    fitted = fit_recipe(
        train,
        recipes=recipes,
        hidden=hidden,
        refits="kinds",
        subject_effect="auto",
        settings=FitSettings.thorough(train, epochs=settings.epochs),
        seed=settings.seed,
    )
    assert isinstance(fitted, Ensemble), "there are enough subjects for both halves"
    frozen = fitted.for_search()
    assert isinstance(frozen, Ensemble), "as it was"
    asker = _Asker(settings, asked, frozen, fit_behaviour(train, settings=CHOICES, seed=settings.seed))
    choices: list[Choice] = []
    searched: dict[str, float] = {}
    for objective in OBJECTIVES:
        begun = time.perf_counter()
        found = asker(objective)
        searched[objective] = time.perf_counter() - begun
        choices += [_choice(recording, objective, id, *chosen) for id, chosen in zip(asked.ids, found, strict=True)]
    best = attainable(recording, asked.ids, settings.max_changes)
    return ObjectiveCell(
        settings, len(fitted), float(best.mean()), tuple(choices), searched, time.perf_counter() - started
    )


Chosen = tuple[IntArray, float, bool]
"""Actions [T], what they promise, and whether nothing better exists."""


def _choice(recording: Recording, objective: str, id: str, actions: IntArray, promised: float, proven: bool) -> Choice:
    place = recording.places([id])
    after = recording.replay([id], np.array([actions])).outcomes
    changes = int((actions != recording.actions[place[0]]).sum())
    return Choice(objective, id, changes, promised, float(after[0] - recording.outcomes[place][0]), proven)


@dataclass(frozen=True, eq=False)
class _Asker:
    """Puts the questions of a cell about all of its episodes."""

    settings: CellSettings
    asked: Cohort
    model: Ensemble
    behaviour: BehaviourModel

    def __call__(self, objective: str) -> list[Chosen]:
        """What an objective chooses for every episode."""
        if objective == DEBIASED:
            return self._debiased()
        goal, support, _ = objective.partition(WITH_SUPPORT)
        query = self._query(min_support=LEAST_SUPPORT if support else None)
        behaviour = self.behaviour if support else None
        if goal == CENTRE:
            problems = Problem.from_episodes(list(self.asked), self.model, query, support=behaviour)
            return [_chosen(result) for result in self._solved(problems)]
        query = query.with_changes(objective=goal if goal in ("mean", "worst") else float(goal))
        together = EnsembleProblem.from_episodes(list(self.asked), self.model, query, support=behaviour)
        return [_chosen(result) for result in self._solved(together)]

    def _query(self, **changes: Any) -> Query:
        reward = WORLDS[self.settings.world].reward
        return Query(reward, self.settings.max_changes, allow_failed_model=True, **changes)

    def _solved(self, problems: Sequence[Problem] | Sequence[EnsembleProblem]) -> list[Result]:
        return solve_batch(problems, limits=Limits(seconds=self.settings.seconds))

    def _debiased(self) -> list[Chosen]:
        """Of what is best for either half, that of which the other half says most."""
        halves = [self._half(half) for half in (0, 1)]
        put = [EnsembleProblem.from_episodes(list(self.asked), half, self._query(objective="mean")) for half in halves]
        found: list[list[Chosen]] = []
        for choosing, judging in ((0, 1), (1, 0)):
            results = self._solved(put[choosing])
            judges = zip(results, put[judging], strict=True)
            found.append([(result.actions, _judged(judge, result), _is_proven(result)) for result, judge in judges])
        best = [max(pair, key=lambda chosen: chosen[1]) for pair in zip(*found, strict=True)]
        return [
            chosen if chosen[1] > NEGLIGIBLE else (episode.actions, 0.0, chosen[2])
            for chosen, episode in zip(best, self.asked, strict=True)
        ]

    def _half(self, half: int) -> Ensemble:
        own = [number for number, label in enumerate(self.model.labels) if label.half == half]
        members = [self.model.members[number] for number in own]
        return Ensemble(members, labels=[self.model.labels[number] for number in own])


def _chosen(result: Result) -> Chosen:
    return result.actions, result.improvement, _is_proven(result)


def _is_proven(result: Result) -> bool:
    return result.status == "optimal"


def _judged(judge: EnsembleProblem, result: Result) -> float:
    """What the members of an ensemble problem say of an answer, each with its weight."""
    sequence: Tensor = torch.as_tensor(np.asarray(result.actions))
    before, after = judge.rollout(torch.stack([judge.observed_actions, sequence]))[1].tolist()
    return float(after - before)
