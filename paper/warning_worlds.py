"""The worlds of the warning study: what could be wrong with an answer, one thing at a time, and what is true of it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from ifonly import (
    BehaviourSettings,
    Cohort,
    Ensemble,
    Episode,
    Exhaustive,
    FitSettings,
    LocationScale,
    Problem,
    TransitionModel,
    check_model,
    fit_behaviour,
    fit_ensemble,
)
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.simulate import Clinician, SepsisWorld, simulate_cohort
from paper import asking
from paper.bench import Cell, Row
from paper.laboratory import Laboratory

BoolArray = npt.NDArray[np.bool_]

USUAL = Clinician()

LUNGS_INJURED = 1.0
"""The oxygen debt (world coordinates) above which nobody gives fluids, where treatment is never varied."""


@dataclass(frozen=True)
class Scenario:
    """A world, those who treat in it, and how much of it is recorded."""

    name: str
    label: str
    world: str = "plain"
    """By which name `SepsisWorld` knows it."""
    clinician: Clinician = USUAL
    scarce: bool = False
    """Whether models learn from few stays."""


RIGHT = "right"

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        # Plenty of stays, and nothing that matters is missing from the record.
        Scenario(RIGHT, "model right"),
        # The same world, of which few stays were recorded.
        Scenario("few", "too little data", scarce=True),
        # Vasopressors help a filled circulation and harm an empty one, and nobody measures how filled it is.
        Scenario("misspecified", "misspecified", "volume"),
        # Some patients are frailer than the record shows, which those who treat them notice.
        Scenario("confounded", "hidden confounder", "frailty", Clinician(insight=(0.6, 0.6))),
        # Nobody gives fluids to patients with badly injured lungs, so that no record shows what they would do.
        Scenario("unvaried", "never varied", "drowning", Clinician(no_fluids_above=LUNGS_INJURED)),
    )
}

FIT = FitSettings(batch_size=512, learning_rate=5e-3)
"""Large steps: the many models of a study should be fitted within minutes."""
CHOICES = BehaviourSettings(epochs=10)


@dataclass(frozen=True)
class WorldCell(Cell):
    """One scenario and seed: an ensemble fitted to simulated stays, and what it recommends for others."""

    scenario: str
    seed: int
    training: int
    """Stays that models learn from."""
    epochs: int
    held_out: int
    """Other stays, on which the model is checked."""
    episodes: int
    """How many of these get a recommendation."""
    steps: int
    max_changes: int
    members: int
    width: int
    """Hidden units."""
    device: str = "cpu"
    """Where models are fitted."""

    kind: ClassVar[str] = "warnings"

    def measure(self, laboratory: Laboratory) -> Row:
        """Fit, check, recommend and judge; `recommendations` has a row for each episode."""
        started = time.perf_counter()
        world = SepsisWorld(SCENARIOS[self.scenario].world)
        training = world.recorded(self._stays(world, self.training, seed=2 * self.seed))
        complete = self._stays(world, self.held_out, seed=2 * self.seed + 1)
        held_out = world.recorded(complete)
        ensemble = self._fitted(training, laboratory)
        check = check_model(ensemble, held_out, seed=self.seed)
        behaviour = fit_behaviour(training, settings=CHOICES, seed=self.seed)
        ensemble = ensemble.for_search()
        numbers = range(min(self.episodes, len(complete)))
        return {
            "status": "done",
            "reason": None,
            **asking.check_signals(check),
            "recommendations": [
                recommendation(
                    self._problem(held_out[number], ensemble), self._problem(complete[number], world), behaviour
                )
                for number in numbers
            ],
            "seconds": time.perf_counter() - started,
        }

    def _stays(self, world: SepsisWorld, count: int, *, seed: int) -> Cohort:
        """With all that the world hides."""
        clinician = SCENARIOS[self.scenario].clinician
        return simulate_cohort(count, seed=seed, horizon=self.steps, world=world, clinician=clinician)

    def _fitted(self, training: Cohort, laboratory: Laboratory) -> Ensemble:
        model = LocationScale(training.schema, hidden=(self.width,), lipschitz=laboratory.conditions.lipschitz)
        settings = replace(FIT, epochs=self.epochs, device=self.device)
        return fit_ensemble(model, training, members=self.members, settings=settings, seed=self.seed)

    def _problem(self, episode: Episode, model: TransitionModel) -> Problem:
        return asking.Question(self.max_changes, allow_failed_model=True).problem(episode, model)


def recommendation(problem: Problem, truth: Problem, behaviour: BehaviourModel) -> Row:
    """What the learned model recommends for an episode, what speaks for and against it, and what it is truly worth.

    `truth` is the same question put to the world, which knows what the record hides; its optimum is found by trying
    every sequence. Improvements are over the observed outcome, in points of SOFA summed over the stay.
    """
    advice, optimum = asking.answer(problem), asking.answer(truth, Exhaustive())
    return {
        "episode": problem.episode.id,
        "changes": len(advice.changes),
        "promised": advice.improvement,
        "true": truth.outcome(advice.actions) - truth.observed_outcome,
        "attainable": optimum.improvement,
        **asking.answer_signals(problem, advice, behaviour),
    }


NEAR = 0.9
"""The share of the best true improvement from which on a recommendation is near-optimal."""

COLUMNS: dict[str, Any] = {
    "scenario": pl.String,
    "seed": pl.Int64,
    "episode": pl.String,
    "verdict": pl.String,
    "lasting_noise": pl.Float64,
    "changes": pl.Int64,
    "promised": pl.Float64,
    "true": pl.Float64,
    "attainable": pl.Float64,
    "refits_agree": pl.Float64,
    "refit_low": pl.Float64,
    "least_support": pl.Float64,
    "farthest": pl.Float64,
    "harmless_below": pl.Float64,
    "undone_by": pl.Float64,
}


def study_table(rows: Iterable[tuple[WorldCell, Row]]) -> pl.DataFrame:
    """The recommendations of all cells; what is said of a model is said of each."""
    found = [
        {"scenario": cell.scenario, "seed": cell.seed, "verdict": row["verdict"], "lasting_noise": row["lasting_noise"]}
        | recommendation
        for cell, row in rows
        for recommendation in row["recommendations"]
    ]
    return pl.DataFrame(found, schema=COLUMNS)


def recommended(table: pl.DataFrame) -> pl.DataFrame:
    """Those episodes for which anything is recommended."""
    return table.filter(pl.col("changes") > 0)


def is_wrong(table: pl.DataFrame) -> BoolArray:
    """Which recommendations [N] would truly not have helped."""
    return _array(table, pl.col("true") <= 0)


def falls_short(table: pl.DataFrame) -> BoolArray:
    """Which recommendations [N] bring less than half of what was promised."""
    return _array(table, pl.col("true") < pl.col("promised") / 2)


def is_near_optimal(table: pl.DataFrame) -> BoolArray:
    """Which recommendations [N] bring nearly all of what is truly possible."""
    return _array(table, pl.col("true") >= NEAR * pl.col("attainable"))


def _array(table: pl.DataFrame, condition: pl.Expr) -> BoolArray:
    return np.asarray(table.select(condition).to_series().to_numpy(), dtype=bool)
