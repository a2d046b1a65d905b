"""One simulated world of the warning study: its recommendations, every signal about them, and what is true."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import ClassVar

from ifonly.data.cohort import Cohort
from ifonly.data.episode import Episode
from ifonly.errors import InputError
from ifonly.evidence import examine
from ifonly.evidence.behaviour import BehaviourModel, BehaviourSettings, fit_behaviour
from ifonly.evidence.check.check import check_model
from ifonly.evidence.check.model_check import ModelCheck
from ifonly.evidence.trusted import Trust
from ifonly.models.base import TransitionModel
from ifonly.models.ensemble import Ensemble
from ifonly.models.fit_ensemble import fit_ensemble
from ifonly.models.fit_report import FitSettings
from ifonly.models.location_scale import LocationScale
from ifonly.problem import Problem
from ifonly.rewards import minus
from ifonly.search.exhaustive import Exhaustive
from ifonly.result import Status
from ifonly.search.solve import solve
from ifonly.simulate import SepsisWorld, simulate_cohort
from paper.cells import Cell, Row
from paper.laboratory import Laboratory
from paper.scenarios import SCENARIOS

REWARD = minus("SOFA")

FIT = FitSettings(batch_size=512, learning_rate=5e-3)
"""Large steps: the many models of a study should be fitted within minutes."""
CHOICES = BehaviourSettings(epochs=10)


@dataclass(frozen=True)
class StudyCell(Cell):
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
        world = SepsisWorld(SCENARIOS[self.scenario].twist.name)
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
            "verdict": check.verdict.value,
            "lasting_noise": lasting_noise(check),
            "concerns": [f"{finding.kind}: {finding.level.value}" for finding in check.concerns()],
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
        return Problem.from_episode(episode, model, REWARD, self.max_changes, allow_failed_model=True)


def lasting_noise(check: ModelCheck) -> float | None:
    """The largest correlation of a feature's noise with that of the next step; None where it could not be judged."""
    found = [abs(feature.lasting.value) for feature in check.figures.features if feature.lasting is not None]
    return max(found, default=None)


def recommendation(problem: Problem, truth: Problem, behaviour: BehaviourModel) -> Row:
    """What the learned model recommends for an episode, what speaks for and against it, and what it is truly worth.

    `truth` is the same question put to the world, which knows what the record hides; its optimum is found by trying
    every sequence. Improvements are over the observed outcome, in points of SOFA summed over the stay.
    """
    advice = solve(problem)
    optimum = solve(truth, Exhaustive())
    if Status.INTERRUPTED in (advice.status, optimum.status):
        raise KeyboardInterrupt  # an answer cut short is no measurement
    return {
        "episode": problem.episode.id,
        "changes": len(advice.changes),
        "promised": advice.improvement,
        "true": truth.outcome(advice.actions) - truth.observed_outcome,
        "attainable": optimum.improvement,
        **_signals(examine(problem, advice, behaviour=behaviour, sensitivity=True), advice.improvement),
    }


def _signals(trust: Trust, promised: float) -> Row:
    """Of the warnings' columns those that say one thing each; None where nothing speaks against the answer."""
    if trust.failure:
        raise InputError(f"warning study: an answer could not be examined: {trust.failure}")
    row, refits = trust.to_row(), trust.refits
    assert refits is not None, "an ensemble has refits"
    changed = bool(trust.changed_steps)
    # A state that is not finite has no support at all.
    support = [0.0 if one is None else one for one in row["change_support"] or ()]
    return {
        "refits_agree": row["refits_agree"],
        "refit_low": refits.low / promised if changed and math.isfinite(refits.low) else None,
        "least_support": min(support, default=None),
        **{name: row[name] for name in ("farthest", "harmless_below", "undone_by")},
    }
