"""Do proven-best answers truly help? Models learned in known worlds, and each answer replayed there."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import torch

from ifonly import Cohort, ModelCheck, Result, Status, check_model
from ifonly.data.episode import FloatArray
from ifonly.data.plain import did_you_mean
from ifonly.errors import InputError
from ifonly.models.base import TrainableModel
from ifonly.models.fit import evaluate
from ifonly.progress import Progress, silent
from ifonly.records import finite
from ifonly.study.plan import FitPlan
from paper import asking
from paper.accuracy import random_changes
from paper.cells import CellFolder
from paper.fitting import fit_as_planned
from paper.worlds import PLAIN, WORLDS, Recording, Scaling, World

FORMAT: dict[str, Any] = {"format": "paper.worlds", "version": 1}

HELD_OUT = 200
"""Episodes, at least, on which a model is checked; those that are asked about are among them."""
RANDOM_SEQUENCES = 20
"""Random changes per episode, to compare with."""
NEGLIGIBLE = 1e-9
"""Gains up to this size are none."""


RECIPES: dict[str, FitPlan] = {
    "paper": FitPlan(recipe="paper"),
    "free": FitPlan(lipschitz=(None, None)),
    "auto": FitPlan(refits=0),
}
"""How a model is made, by name: the paper's limits L_h = 1 and L_phi = 0.1, none, and `ifonly fit` without options, but
for the members beside its model, which change no answer."""


@dataclass(frozen=True)
class CellSettings:
    """All that the numbers of a cell depend on."""

    world: str
    variant: str
    recipe: str
    episodes: int = 1000
    """That a model learns from."""
    asked: int = 100
    """Others, for which an answer is sought."""
    max_changes: int = 3
    scaling: Scaling = "linear"
    """Of features with a hard range."""
    seconds: float = 20.0
    """Limit of a single search."""
    seed: int = 0

    def __post_init__(self) -> None:
        require_known("world", [self.world], WORLDS)
        require_known("recipe", [self.recipe], RECIPES)
        WORLDS[self.world].variant(self.variant)
        if self.scaling not in get_args(Scaling):
            raise InputError(f"worlds: no scaling {self.scaling!r}; choose from {list(get_args(Scaling))}.")
        for name in ("episodes", "asked", "max_changes"):
            if getattr(self, name) < 1:
                raise InputError(f"worlds: {name}={getattr(self, name)} must be at least 1.")

    @property
    def file(self) -> str:
        """Where the cell is kept, in the folder of the study."""
        return f"{self.world}-{self.variant}-{self.recipe}-{self.scaling}-{self.seed}.json"


@dataclass(frozen=True)
class Answer:
    """One episode: what was promised, and what is true. Gains are over the recorded outcome."""

    episode: str
    changes: int
    status: str
    promised: float
    clipped: float | None
    """The promise with every state brought back into its range."""
    true: float
    attainable: float
    """The true gain of so many changes, chosen in the world itself one by one: a lower bound of the best."""
    impossible: int
    """Predicted states after the first change with a value outside its hard range."""
    predicted: int
    """Predicted states after the first change."""
    state_error: float | None
    """Mean absolute error of these states, in deviations of the features."""
    seconds: float


@dataclass(frozen=True)
class WorldCell:
    """What came out for one world, variant and recipe."""

    settings: CellSettings
    verdict: str
    concerns: tuple[str, ...]
    log_likelihood: float | None
    """Mean over held-out transitions, in units of the features' deviations."""
    replay_error: float | None
    """Error of the model on its own, as far ahead as the check looks, over that of no change; mean over features.
    """
    random_sequences: int
    random_helped: int
    random_gain: float
    answers: tuple[Answer, ...]
    seconds: float

    @property
    def given(self) -> tuple[Answer, ...]:
        """Answers that change anything."""
        return tuple(answer for answer in self.answers if answer.changes)

    @property
    def helped(self) -> int:
        """How many of these truly help."""
        return sum(answer.true > NEGLIGIBLE for answer in self.given)

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return {**FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        values = {name: value for name, value in content.items() if name not in FORMAT}
        values["settings"] = CellSettings(**content["settings"])
        values["concerns"] = tuple(content["concerns"])
        values["answers"] = tuple(Answer(**row) for row in content["answers"])
        return cls(**values)


def carry_out(
    cells: Sequence[CellSettings], folder: Path, *, workers: int = 1, progress: Progress = silent
) -> list[WorldCell]:
    """Measure every cell that the folder does not hold, each kept as soon as it is finished; all of them."""
    return kept_in(folder).carry_out(cells, measure, workers=workers, progress=progress)


def kept_in(folder: Path) -> CellFolder[WorldCell]:
    """The cells that a folder holds."""
    return CellFolder(folder, WorldCell, FORMAT)


def read_cells(folder: Path) -> list[WorldCell]:
    """All that a folder holds, in the order of worlds, variants and recipes."""
    recipes = list(RECIPES)

    def order(cell: WorldCell) -> tuple[int, int, int, str, int]:
        settings = cell.settings
        variants = variants_of(WORLDS[settings.world])
        place = list(WORLDS).index(settings.world), variants.index(settings.variant), recipes.index(settings.recipe)
        return *place, settings.scaling, settings.seed

    return sorted(kept_in(folder).all(), key=order)


def variants_of(world: World) -> list[str]:
    """Names of all variants, the plain one first."""
    return [PLAIN, *(variant.name for variant in world.variants)]


def measure(settings: CellSettings) -> WorldCell:
    """Record, fit, check, ask, and replay every answer in the world, with the noise that the episode truly had."""
    started = time.perf_counter()
    world = WORLDS[settings.world]
    recording = world.record(settings.episodes + max(settings.asked, HELD_OUT), settings.seed, settings.variant)
    cohort = recording.cohort(settings.variant, settings.scaling)
    train, held_out = cohort[: settings.episodes], cohort[settings.episodes :]
    model = fit_as_planned(train, replace(RECIPES[settings.recipe], seed=settings.seed))
    check = check_model(model, held_out, seed=settings.seed)
    signals = asking.check_signals(check)
    likelihood = evaluate(model, held_out, coordinates="original") + float(np.log(train.states.std(axis=0)).sum())
    asked = held_out[: settings.asked]
    helped, gain = _random_baseline(recording, asked, settings)
    return WorldCell(
        settings=settings,
        verdict=signals["verdict"],
        concerns=tuple(signals["concerns"]),
        log_likelihood=finite(likelihood),
        replay_error=_replay_error(check),
        random_sequences=RANDOM_SEQUENCES * len(asked),
        random_helped=helped,
        random_gain=gain,
        answers=tuple(_answers(recording, asked, model, settings)),
        seconds=time.perf_counter() - started,
    )


def _replay_error(check: ModelCheck) -> float | None:
    """As `WorldCell.replay_error` says."""
    judged = [horizon for horizon in check.figures.ahead if horizon.features]
    if not judged:
        return None
    farthest = max(judged, key=lambda horizon: horizon.steps)
    return finite(float(np.mean([feature.error / feature.persistence for feature in farthest.features])))


def _random_baseline(recording: Recording, asked: Cohort, settings: CellSettings) -> tuple[int, float]:
    """How many random changes truly help, and their mean true gain."""
    rng = np.random.default_rng([settings.seed, 1])
    actions = [random_changes(one, changes=settings.max_changes, count=RANDOM_SEQUENCES, rng=rng) for one in asked]
    ids = np.repeat(asked.ids, RANDOM_SEQUENCES)
    gains = recording.replay(ids, np.concatenate(actions)).outcomes - np.repeat(
        _recorded(recording, asked.ids), RANDOM_SEQUENCES
    )
    return int((gains > NEGLIGIBLE).sum()), float(gains.mean())


def _recorded(recording: Recording, ids: Sequence[str]) -> FloatArray:
    """True outcomes [N] of the episodes as they were."""
    return recording.outcomes[recording.places(ids)]


def attainable(recording: Recording, ids: Sequence[str], max_changes: int) -> FloatArray:
    """True gains [N] of the best change, the best second change given the first, and so on."""
    world, recorded = recording.world, _recorded(recording, ids)
    best, outcomes = recording.actions[recording.places(ids)], recorded
    for _ in range(max_changes):
        start = best.copy()
        for step in range(world.steps - 1):
            for action in range(len(world.actions)):
                tried = start.copy()
                tried[:, step] = action
                found = recording.replay(ids, tried).outcomes
                better = found > outcomes
                best[better], outcomes = tried[better], np.where(better, found, outcomes)
    return outcomes - recorded


@torch.no_grad()
def _answers(recording: Recording, asked: Cohort, model: TrainableModel, settings: CellSettings) -> Iterator[Answer]:
    searched = model.for_search()
    question = asking.Question(
        settings.max_changes, recording.world.reward, allow_failed_model=True, seconds=settings.seconds
    )
    best = attainable(recording, asked.ids, settings.max_changes)
    deviations = asked.states.std(axis=0)
    for episode, most in zip(asked, best, strict=True):
        result = asking.answer(question.problem(episode, searched))
        course = recording.replay([episode.id], np.array([result.actions]))
        shown = [recording.world.columns("dynamic").index(feature.name) for feature in asked.schema.dynamic]
        judged = _judged(recording.world, result, course.states[0][:, shown], deviations)
        observed = result.observed_clipped_outcome
        yield Answer(
            episode=episode.id,
            changes=len(result.changes),
            status=result.status.value,
            promised=result.improvement,
            clipped=None
            if result.clipped_outcome is None or observed is None
            else finite(result.clipped_outcome - observed),
            true=float(course.outcomes[0] - _recorded(recording, [episode.id])[0]),
            attainable=float(most),
            **judged,
            seconds=result.stats.seconds,
        )


def _judged(world: World, result: Result, truth: FloatArray, deviations: FloatArray) -> dict[str, Any]:
    """The states of an answer after its first change, beside the true ones [T, D]."""
    changed = np.flatnonzero(np.asarray(result.actions) != np.asarray(result.observed_actions))
    if not len(changed):
        return {"impossible": 0, "predicted": 0, "state_error": None}
    after = slice(int(changed[0]) + 1, None)
    predicted = np.asarray(result.states)[after]
    hard = {one.name: one.range for one in world.quantities if one.hard}
    ranges = [hard.get(feature.name, (-np.inf, np.inf)) for feature in result.schema.dynamic]
    low, high = np.array(ranges).T
    outside = ~((predicted >= low) & (predicted <= high)).all(axis=1)
    error = (np.abs(predicted - truth[after]) / deviations).mean() if len(predicted) else np.nan
    return {"impossible": int(outside.sum()), "predicted": len(predicted), "state_error": finite(float(error))}


def is_proven(answer: Answer) -> bool:
    """Whether nothing better exists under the model."""
    return answer.status == Status.OPTIMAL.value


def cells_of(
    worlds: Iterable[str], variants: Iterable[str], recipes: Iterable[str], **settings: Any
) -> list[CellSettings]:
    """Every combination that there is, the plain variants first; of no worlds, variants or recipes named, all."""
    names = list(worlds) or list(WORLDS)
    require_known("world", names, WORLDS)
    known = {name: variants_of(WORLDS[name]) for name in names}
    there = list(dict.fromkeys([PLAIN, *(variant for name in names for variant in known[name])]))
    wanted = list(variants) or there
    require_known("variant", wanted, there)
    return [
        CellSettings(name, variant, recipe, **settings)
        for variant in wanted
        for name in names
        if variant in known[name]
        for recipe in (list(recipes) or RECIPES)
    ]


def require_known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Each of these names must be one of the known ones; an error names the choices."""
    choices = list(known)
    for name in names:
        if name not in choices:
            raise InputError(f"no {what} {name!r}; choose from {choices}.{did_you_mean(name, choices)}")
