"""Does the evidence know which answers are wrong? Answers in known worlds, what is told of them, and what is true.

A cell is a world, a variant of it, an amount of data and a seed: a model is fitted as `ifonly fit` does it, checked,
asked about episodes that it has not seen, and every answer is examined as `ifonly cohort` does it and then replayed in
the world. The verdict is judged by world: the rule that judges a world was fitted to the others (`paper.verdicts`).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from ifonly import (
    BehaviourSettings,
    Cohort,
    Ensemble,
    Episode,
    Evidence,
    FitSettings,
    Limits,
    Problem,
    Query,
    Result,
    check_model,
    examine,
    fit_behaviour,
    load_model,
    save_model,
    solve,
)
from ifonly.data.episode import FloatArray
from ifonly.errors import InputError
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.evidence.recipes import fit_recipe
from ifonly.models.base import TrainableModel
from ifonly.models.recipes import RECIPES, Recipe
from ifonly.progress import Progress, silent
from ifonly.records import from_plain, to_plain
from paper.cells import CellFolder
from paper.effect_slope import effect_slope
from paper.worlds import PLAIN, WORLDS, Recording
from paper.worlds_study import NEGLIGIBLE, attainable, require_known, variants_of

FORMAT: dict[str, Any] = {"format": "paper.evidence", "version": 2}

HELD_OUT = 200
"""Episodes, at least, on which a model is checked; those that are asked about are among them."""
HIDDEN = (64,)
STRENGTHS = (0.003, 0.01, 0.03, 0.1)
"""Fewer units than by default, and fewer strengths of the penalty: there are many cells."""
CHOICES = BehaviourSettings(epochs=10)
MODELS = "models"
"""In the folder of the cells, where their models are."""


@dataclass(frozen=True)
class CellSettings:
    """All that the numbers of a cell depend on."""

    world: str
    variant: str
    seed: int = 0
    episodes: int = 500
    """That a model learns from."""
    asked: int = 25
    """Others, for which an answer is sought."""
    epochs: int = 100
    max_changes: int = 3
    seconds: float = 5.0
    """Limit of a single search."""

    def __post_init__(self) -> None:
        if self.world not in WORLDS:
            raise InputError(f"evidence study: no world {self.world!r}; choose from {list(WORLDS)}.")
        WORLDS[self.world].variant(self.variant)
        for name in ("episodes", "asked", "max_changes"):
            if getattr(self, name) < 1:
                raise InputError(f"evidence study: {name}={getattr(self, name)} must be at least 1.")

    @property
    def file(self) -> str:
        """Where the cell is kept, in the folder of the study."""
        return f"{self.world}-{self.variant}-{self.episodes}-{self.seed}.json"


@dataclass(frozen=True, eq=False)
class Answer:
    """One answer: what was promised, what is told of it, and what is true. Gains are over the recorded outcome."""

    episode: str
    promised: float
    true: float
    attainable: float
    evidence: Evidence
    seconds: float
    """Of the search."""
    examined: float
    """Seconds that the evidence took."""

    @property
    def helps(self) -> bool:
        """Whether it truly does."""
        return self.true > NEGLIGIBLE


@dataclass(frozen=True, eq=False)
class Cell:
    """What came out for one cell; answers that change nothing are not among them."""

    settings: CellSettings
    verdict: str
    """Of the check."""
    kinds: tuple[str, ...]
    """Of the members, in the order of their gains."""
    weights: tuple[float, ...]
    recipe: str
    effects: bool
    """Whether the model has subject effects."""
    unchanged: int
    answers: tuple[Answer, ...]
    effect_slope: float | None
    """How much of the effects that the model claims is found again in other episodes (`effect_slope`)."""
    effect_error: float | None
    """Its standard error."""
    seconds: float
    fit_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        rows = [{**vars(one), "evidence": to_plain(one.evidence)} for one in self.answers]
        return {**FORMAT, **vars(self), "settings": asdict(self.settings), "answers": rows}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        values = {name: value for name, value in content.items() if name not in FORMAT}
        values["settings"] = CellSettings(**content["settings"])
        values["kinds"], values["weights"] = tuple(content["kinds"]), tuple(content["weights"])
        values["answers"] = tuple(
            Answer(**{**row, "evidence": from_plain(Evidence, row["evidence"], what="evidence")})
            for row in content["answers"]
        )
        return cls(**values)


def combinations(
    worlds: Iterable[str], variants: Iterable[str], seeds: Iterable[int]
) -> Iterator[tuple[str, str, int]]:
    """Every world, variant and seed that there is; of no worlds or variants named, all.

    World by world, each with one variant, and the next world beginning with the next one: so what is finished first is
    of all worlds, and of all variants.
    """
    names, wanted = list(worlds) or list(WORLDS), list(variants)
    require_known("world", names, WORLDS)
    known = [_beginning_with(number, variants_of(WORLDS[name])) for number, name in enumerate(names)]
    require_known("variant", wanted, [variant for of_world in known for variant in of_world])
    for seed in seeds:
        for together in itertools.zip_longest(*known):
            pairs = zip(names, together, strict=True)
            yield from ((name, one, seed) for name, one in pairs if one and (not wanted or one in wanted))


def _beginning_with(first: int, variants: Sequence[str]) -> list[str]:
    """The same ones, in turn, from that number on."""
    return [variants[(first + number) % len(variants)] for number in range(len(variants))]


def cells_of(
    worlds: Iterable[str], variants: Iterable[str], seeds: Iterable[int], sizes: Iterable[int], **settings: Any
) -> list[CellSettings]:
    """Every combination, seed by seed and the largest first; little data is asked of plain variants alone."""
    places, largest = list(combinations(worlds, variants, seeds)), max(sizes := list(sizes))
    return [
        CellSettings(name, variant, seed, size, **settings)
        for now in dict.fromkeys(seed for *_, seed in places)
        for size in sorted(sizes, reverse=True)
        for name, variant, seed in places
        if seed == now and (size == largest or variant == PLAIN)
    ]


def carry_out(
    cells: Sequence[CellSettings], folder: Path, *, workers: int = 1, progress: Progress = silent
) -> list[Cell]:
    """Measure every cell that the folder does not hold, each kept as soon as it is finished; all of them, in order.

    Models are kept beside the cells, and not fitted again: so a folder without its cells is examined anew.
    """
    kept = partial(measure, models=folder / MODELS)
    found = kept_in(folder).carry_out(cells, kept, workers=workers, progress=progress)
    return in_order(found)


def kept_in(folder: Path) -> CellFolder[Cell]:
    """The cells that a folder holds."""
    return CellFolder(folder, Cell, FORMAT)


def read_cells(folder: Path) -> list[Cell]:
    """All that a folder holds, in order."""
    return in_order(kept_in(folder).all())


def in_order(cells: Iterable[Cell]) -> list[Cell]:
    """By world and variant, the larger cells first."""

    def place(cell: Cell) -> tuple[int, int, int, int]:
        settings = cell.settings
        variant = variants_of(WORLDS[settings.world]).index(settings.variant)
        return list(WORLDS).index(settings.world), variant, -settings.episodes, settings.seed

    return sorted(cells, key=place)


def measure(settings: CellSettings, *, models: Path | None = None) -> Cell:
    """Record, fit, check, ask, examine, and replay every answer in the world, with the noise that truly was.

    In the folder `models` the fitted model is kept, or found.
    """
    started = time.perf_counter()
    world = WORLDS[settings.world]
    recording = world.record(settings.episodes + max(settings.asked, HELD_OUT), settings.seed, settings.variant)
    cohort = recording.cohort(settings.variant, "bounded")
    train, held_out = cohort[: settings.episodes], cohort[settings.episodes :]
    fitted = _fitted(settings, train, models)
    model = fitted.centre if isinstance(fitted, Ensemble) else fitted
    behaviour = fit_behaviour(train, settings=CHOICES, seed=settings.seed)
    fit_seconds = time.perf_counter() - started
    check = check_model(fitted, held_out, seed=settings.seed)
    frozen = fitted.for_search()
    weights = np.array([-world.penalties.get(feature.name, 0.0) for feature in train.schema.dynamic])
    effects = effect_slope(frozen, behaviour, held_out, weights)
    asker = _Asker(settings, recording, frozen, behaviour)
    asked = held_out[: settings.asked]
    best = attainable(recording, asked.ids, settings.max_changes).tolist()
    found = [asker(*pair) for pair in zip(asked, best, strict=True)]
    answers = tuple(answer for answer in found if answer is not None)
    labels = fitted.labels if isinstance(fitted, Ensemble) else ()
    assert model.fit_report is not None, "it was just fitted"
    return Cell(
        settings=settings,
        verdict=check.verdict.value,
        kinds=tuple(label.kind for label in labels),
        weights=tuple(label.weight for label in labels),
        recipe=next((row.recipe for row in model.fit_report.recipes if row.chosen), ""),
        effects=bool(model.fit_report.effects),
        unchanged=settings.asked - len(answers),
        answers=answers,
        effect_slope=None if effects is None else effects.slope,
        effect_error=None if effects is None else effects.error,
        seconds=time.perf_counter() - started,
        fit_seconds=fit_seconds,
    )


def _fitted(settings: CellSettings, train: Cohort, models: Path | None) -> TrainableModel:
    """The model of a cell: the one that is kept, or a new one, which is kept then."""
    place = models and models / f"{Path(settings.file).stem}-{settings.epochs}"
    if place and place.exists():
        return cast(TrainableModel, load_model(place, schema=train.schema))
    fitted = fit_recipe(
        train,
        recipes=usual_recipes(),
        hidden=HIDDEN,
        refits="kinds",
        subject_effect="auto",
        settings=FitSettings.thorough(train, epochs=settings.epochs),
        seed=settings.seed,
    )
    if place:
        place.parent.mkdir(parents=True, exist_ok=True)
        save_model(fitted, place)
    return fitted


def usual_recipes() -> list[Recipe]:
    """All recipes, with fewer strengths to compare."""
    several = ((recipe, len(recipe.strengths) > 1) for recipe in RECIPES.values())
    return [replace(recipe, strengths=STRENGTHS) if compared else recipe for recipe, compared in several]


@dataclass(frozen=True, eq=False)
class _Asker:
    """Puts the questions of a cell about one episode."""

    settings: CellSettings
    recording: Recording
    model: TrainableModel
    behaviour: BehaviourModel

    def __call__(self, episode: Episode, best: float) -> Answer | None:
        """The answer, examined; None where nothing is changed. `best` is what is attainable."""
        query = Query(
            self.recording.world.reward,
            self.settings.max_changes,
            limits=Limits(seconds=self.settings.seconds),
            allow_failed_model=True,
            sensitivity=True,
            honest=True,
        )
        problem = Problem.from_episode(episode, self.model, query)
        result = solve(problem)
        if not result.changes:
            return None
        started = time.perf_counter()
        evidence = examine(problem, result, behaviour=self.behaviour)
        return Answer(
            episode=result.episode,
            promised=result.improvement,
            true=true_gain(self.recording, result),
            attainable=best,
            evidence=evidence,
            seconds=result.stats.seconds,
            examined=time.perf_counter() - started,
        )


def true_gain(recording: Recording, result: Result) -> float:
    """What an answer truly gains over the recorded outcome."""
    ids, actions = [result.episode], np.array([result.actions])
    before: FloatArray = recording.outcomes[recording.places(ids)]
    return float(recording.replay(ids, actions).outcomes[0] - before[0])
