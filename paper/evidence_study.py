"""Does the evidence know which answers are wrong? Answers in known worlds, what is told of them, and what is true.

A cell is a world, a variant of it, an amount of data and a seed: a model is fitted as `ifonly fit` does it, checked,
asked about episodes that it has not seen, and every answer is examined as `ifonly cohort` does it and then replayed in
the world. The verdict is judged by world: the rule that judges a world was fitted to the others (`paper.verdicts`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from ifonly import (
    BehaviourSettings,
    Ensemble,
    EnsembleProblem,
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
    solve,
)
from ifonly.data.episode import FloatArray
from ifonly.errors import InputError
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.evidence.recipes import fit_recipe
from ifonly.models.base import TrainableModel
from ifonly.models.recipes import RECIPES, Recipe
from ifonly.progress import Progress, Tick, silent
from ifonly.records import from_plain, to_plain
from paper.cells import CellFolder
from paper.worlds import WORLDS, Recording
from paper.worlds_study import NEGLIGIBLE, attainable, require_known, variants_of

FORMAT: dict[str, Any] = {"format": "paper.evidence", "version": 1}

HELD_OUT = 200
"""Episodes, at least, on which a model is checked; those that are asked about are among them."""
HIDDEN = (64,)
STRENGTHS = (0.003, 0.01, 0.03, 0.1)
"""Fewer units than by default, and fewer strengths of the penalty: there are many cells."""
CHOICES = BehaviourSettings(epochs=10)
OBJECTIVES: tuple[str | float, ...] = ("mean", "worst", 0.25)
"""What else may be maximised, beside the outcome under the centre, where objectives are compared."""
CENTRE, WITH_SUPPORT = "centre", "supported"
LEAST_SUPPORT = 0.05
"""The `min_support` that is compared with them."""


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
    objectives: int = 0
    """Of the episodes asked about, those for which other objectives are solved, too."""

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
    objective: str
    """"centre", another objective, or "supported": the centre's best among what clinicians do."""
    promised: float
    true: float
    attainable: float
    evidence: Evidence | None
    """None for other objectives than the centre's."""
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
    seconds: float
    fit_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        rows = [{**vars(one), "evidence": one.evidence and to_plain(one.evidence)} for one in self.answers]
        return {**FORMAT, **vars(self), "settings": asdict(self.settings), "answers": rows}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        values = {name: value for name, value in content.items() if name not in FORMAT}
        values["settings"] = CellSettings(**content["settings"])
        values["kinds"], values["weights"] = tuple(content["kinds"]), tuple(content["weights"])
        values["answers"] = tuple(
            Answer(**{**row, "evidence": row["evidence"] and from_plain(Evidence, row["evidence"], what="evidence")})
            for row in content["answers"]
        )
        return cls(**values)


def cells_of(
    worlds: Iterable[str], variants: Iterable[str], seeds: Iterable[int], sizes: Iterable[int], **settings: Any
) -> list[CellSettings]:
    """Every combination; of no worlds or variants named, all. Little data is asked of plain variants alone."""
    names, wanted = list(worlds) or list(WORLDS), list(variants)
    require_known("world", names, WORLDS)
    require_known("variant", wanted, [variant for name in names for variant in variants_of(WORLDS[name])])
    largest = max(sizes := list(sizes))
    return [
        CellSettings(name, variant, seed, size, **settings)
        for seed in seeds
        for name in names
        for variant in variants_of(WORLDS[name])
        for size in sizes
        if (not wanted or variant in wanted) and (size == largest or variant == "plain")
    ]


def carry_out(
    cells: Sequence[CellSettings], folder: Path, *, workers: int = 1, progress: Progress = silent
) -> list[Cell]:
    """Measure every cell that the folder does not hold, each kept as soon as it is finished; all of them."""
    kept = kept_in(folder)
    missing = [settings for settings in cells if kept.find(settings) is None]  # refused before any work
    done = len(cells) - len(missing)
    progress(Tick("evidence", done, len(cells)))
    for number, _ in enumerate(_kept(missing, folder, workers), start=done + 1):
        progress(Tick("evidence", number, len(cells)))
    return [cell for settings in cells if (cell := kept.find(settings)) is not None]


def kept_in(folder: Path) -> CellFolder[Cell]:
    """The cells that a folder holds."""
    return CellFolder(folder, Cell, FORMAT)


def _kept(missing: Sequence[CellSettings], folder: Path, workers: int) -> Iterator[None]:
    """Measure and keep these cells; one item as soon as one is finished. A single worker is this very process."""
    if workers == 1:
        for settings in missing:
            _keep(settings, folder)
            yield
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from (finished.result() for finished in as_completed([pool.submit(_keep, s, folder) for s in missing]))


def _keep(settings: CellSettings, folder: Path) -> None:
    """Measure one cell and write it down."""
    torch.set_num_threads(1)
    kept_in(folder).keep(measure(settings))


def read_cells(folder: Path) -> list[Cell]:
    """All that a folder holds, in the order of worlds and variants, the larger cells first."""
    names = list(WORLDS)

    def order(cell: Cell) -> tuple[int, int, int, int]:
        settings = cell.settings
        variant = variants_of(WORLDS[settings.world]).index(settings.variant)
        return names.index(settings.world), variant, -settings.episodes, settings.seed

    return sorted(kept_in(folder).all(), key=order)


def measure(settings: CellSettings) -> Cell:
    """Record, fit, check, ask, examine, and replay every answer in the world, with the noise that truly was."""
    started = time.perf_counter()
    world = WORLDS[settings.world]
    recording = world.record(settings.episodes + max(settings.asked, HELD_OUT), settings.seed, settings.variant)
    cohort = recording.cohort(settings.variant, "bounded")
    train, held_out = cohort[: settings.episodes], cohort[settings.episodes :]
    recipes = [_quicker(recipe) for recipe in RECIPES.values()]
    fitted = fit_recipe(
        train,
        recipes=recipes,
        hidden=HIDDEN,
        refits="kinds",
        subject_effect="auto",
        settings=FitSettings.thorough(train, epochs=settings.epochs),
        seed=settings.seed,
    )
    model = fitted.centre if isinstance(fitted, Ensemble) else fitted
    behaviour = fit_behaviour(train, settings=CHOICES, seed=settings.seed)
    fit_seconds = time.perf_counter() - started
    check = check_model(fitted, held_out, seed=settings.seed)
    asker = _Asker(settings, recording, fitted.for_search(), behaviour)
    asked = held_out[: settings.asked]
    best = attainable(recording, asked.ids, settings.max_changes).tolist()
    answers = [answer for number, pair in enumerate(zip(asked, best, strict=True)) for answer in asker(number, *pair)]
    labels = fitted.labels if isinstance(fitted, Ensemble) else ()
    assert model.fit_report is not None, "it was just fitted"
    return Cell(
        settings=settings,
        verdict=check.verdict.value,
        kinds=tuple(label.kind for label in labels),
        weights=tuple(label.weight for label in labels),
        recipe=next((row.recipe for row in model.fit_report.recipes if row.chosen), ""),
        effects=bool(model.fit_report.effects),
        unchanged=settings.asked - sum(one.objective == CENTRE for one in answers),
        answers=tuple(answers),
        seconds=time.perf_counter() - started,
        fit_seconds=fit_seconds,
    )


def _quicker(recipe: Recipe) -> Recipe:
    """The recipe with fewer strengths to compare."""
    return replace(recipe, strengths=STRENGTHS) if len(recipe.strengths) > 1 else recipe


@dataclass(frozen=True, eq=False)
class _Asker:
    """Puts the questions of a cell about one episode."""

    settings: CellSettings
    recording: Recording
    model: TrainableModel
    behaviour: BehaviourModel

    def __call__(self, number: int, episode: Episode, best: float) -> Iterator[Answer]:
        """The centre's answer, examined; for the first few episodes also those of other objectives.

        `best` is what is attainable.
        """
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
            return
        started = time.perf_counter()
        evidence = examine(problem, result, behaviour=self.behaviour)
        seconds = time.perf_counter() - started
        yield replace(self._answer(CENTRE, result, best), evidence=evidence, examined=seconds)
        if number < self.settings.objectives:
            for objective in OBJECTIVES:
                asked = query.with_changes(objective=objective, honest=False)
                together = EnsembleProblem.from_episode(episode, self.model, asked)
                yield self._answer(str(objective), solve(together), best)
            least = query.with_changes(min_support=LEAST_SUPPORT, honest=False)
            yield self._answer(
                WITH_SUPPORT, solve(Problem.from_episode(episode, self.model, least, support=self.behaviour)), best
            )

    def _answer(self, objective: str, result: Result, best: float) -> Answer:
        ids, actions = [result.episode], np.array([result.actions])
        before: FloatArray = self.recording.outcomes[self.recording.places(ids)]
        return Answer(
            episode=result.episode,
            objective=objective,
            promised=result.improvement,
            true=float(self.recording.replay(ids, actions).outcomes[0] - before[0]),
            attainable=best,
            evidence=None,
            seconds=result.stats.seconds,
            examined=0.0,
        )
