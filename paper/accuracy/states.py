"""Errors of a learned model's counterfactual states, feature by feature and step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ifonly.data.cohort import Cohort
from ifonly.data.episode import Episode, FloatArray, IntArray
from ifonly.data.scaling import Scaler
from ifonly.errors import InputError
from ifonly.models.base import TransitionModel
from ifonly.problem import Problem
from ifonly.progress import Progress, Tick, silent
from ifonly.rewards import Reward, minus

LEARNED, NO_EFFECT, NO_NOISE = METHODS = ("learned", "no effect", "no noise")
"""The learned model's counterfactual; the observed states, as if treatment did nothing; and the learned model's
prediction from the first state under the new actions with all noise zero, as if nothing were known of this patient's
course."""

SHOWN_STEPS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Steps after the first change that a printed report shows."""


@dataclass(frozen=True, eq=False)
class AccuracyReport:
    """Mean absolute errors against the true counterfactual states, over all steps after the first change.

    Each is a mapping from method (`METHODS`) to an array. Deviations are those of the feature over the cohort's steps,
    of its logarithm where the feature is log-scaled.
    """

    episodes: int
    sequences: int
    """Random action sequences per episode."""
    changes: int
    seed: int
    features: tuple[str, ...]
    units: tuple[str, ...]
    by_feature: Mapping[str, FloatArray]  # [D], in original units
    by_feature_scaled: Mapping[str, FloatArray]  # [D], in deviations
    by_step: Mapping[str, FloatArray]  # [S], in deviations, mean over features; entry i: i + 1 steps after the change
    outcome: Mapping[str, float]
    """Error of the outcome, in the reward's units; that of "no effect" is the mean size of the true effect."""

    @property
    def skill(self) -> float:
        """The share of the "no effect" error, mean over features in deviations, that the learned model removes."""
        return 1 - float(self.by_feature_scaled[LEARNED].mean() / self.by_feature_scaled[NO_EFFECT].mean())

    def __str__(self) -> str:
        lines = [
            f"counterfactual states of {self.episodes} episodes x {self.sequences} random sequences with up to "
            f"{self.changes} changes: mean absolute error after the first change",
            f"  {'':<12} {'original units':^32}  {'':<8}  {'in deviations':^32}",
            f"  {'':<12} " + _columns(METHODS) + f"  {'':<8}  " + _columns(METHODS),
        ]
        for index, (name, unit) in enumerate(zip(self.features, self.units, strict=True)):
            original = [f"{self.by_feature[method][index]:.4g}" for method in METHODS]
            scaled = [f"{self.by_feature_scaled[method][index]:.3f}" for method in METHODS]
            lines.append(f"  {name:<12} {_columns(original)}  {unit:<8}  {_columns(scaled)}")
        lines.append(f"  {'all features':<12} {'':<32}  {'':<8}  {_columns(self._means())}")
        lines.append(f"  {'outcome':<12} " + _columns([f"{self.outcome[method]:.4g}" for method in METHODS]))
        lines.append("  by steps after the first change, all features, in deviations")
        for step in SHOWN_STEPS:
            if step <= len(self.by_step[LEARNED]):
                row = [f"{self.by_step[method][step - 1]:.3f}" for method in METHODS]
                lines.append(f"  {step:<12} {'':<32}  {'':<8}  {_columns(row)}")
        lines.append(f"  skill against 'no effect': {self.skill:.1%}")
        return "\n".join(line.rstrip() for line in lines)

    def _means(self) -> list[str]:
        return [f"{self.by_feature_scaled[method].mean():.3f}" for method in METHODS]

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""

        def plain(table: Mapping[str, FloatArray]) -> dict[str, list[float]]:
            return {method: values.tolist() for method, values in table.items()}

        return {
            "episodes": self.episodes,
            "sequences": self.sequences,
            "changes": self.changes,
            "seed": self.seed,
            "features": list(self.features),
            "units": list(self.units),
            "error_by_feature": plain(self.by_feature),
            "error_by_feature_in_deviations": plain(self.by_feature_scaled),
            "error_by_step_in_deviations": plain(self.by_step),
            "outcome_error": dict(self.outcome),
            "skill": self.skill,
        }


def counterfactual_accuracy(
    world: TransitionModel,
    model: TransitionModel,
    cohort: Cohort,
    *,
    reward: Reward | None = None,
    changes: int = 3,
    sequences: int = 20,
    seed: int = 0,
    progress: Progress = silent,
) -> AccuracyReport:
    """Compare `model` with the truth, `world`, on random questions about the episodes of `cohort`.

    For each episode `sequences` action sequences are drawn, each with one to `changes` changes at random steps. The
    world and the model each abduct the noise and replay it. Errors count from the first change on, the states before
    being the observed ones. `reward` (default: minus SOFA) says what the outcome is.
    """
    if changes < 1 or sequences < 1:
        raise InputError(f"accuracy: changes={changes} and sequences={sequences} must both be at least 1.")
    reward = reward or minus("SOFA")
    world, model = world.for_search(), model.for_search()
    totals = _Totals(cohort, Scaler.fit(cohort))
    for position, episode in enumerate(cohort):
        rng = np.random.default_rng([seed, position])
        actions = random_changes(episode, changes=changes, count=sequences, rng=rng)
        totals.add(episode, actions, *_answers(world, model, episode, actions, reward))
        progress(Tick("accuracy", position + 1, len(cohort)))
    return totals.report(changes=changes, sequences=sequences, seed=seed)


def random_changes(episode: Episode, *, changes: int, count: int, rng: np.random.Generator) -> IntArray:
    """`count` action sequences [count, T] with one to `changes` changes each, none at the last step (no effect)."""
    choices, alternatives = len(episode) - 1, len(episode.schema.actions) - 1
    actions = np.tile(episode.actions, (count, 1))
    for row in actions:
        number = rng.integers(1, min(changes, choices), endpoint=True)
        steps = rng.choice(choices, size=number, replace=False)
        # An offset of 1 to A - 1, modulo A, is any action but the observed one.
        row[steps] = (row[steps] + rng.integers(1, alternatives, size=number, endpoint=True)) % (alternatives + 1)
    return actions


@dataclass(frozen=True)
class _Answer:
    """What one method says about an episode's sequences."""

    states: FloatArray  # [B, T, D], original units
    outcomes: FloatArray  # [B]


def _answers(
    world: TransitionModel, model: TransitionModel, episode: Episode, actions: IntArray, reward: Reward
) -> tuple[_Answer, dict[str, _Answer]]:
    """The true answer, and each method's."""
    sequences = torch.as_tensor(actions)
    truth, learned = (Problem.from_episode(episode, m, reward, None, allow_failed_model=True) for m in (world, model))
    observed = learned.observed_actions.expand(len(actions), -1)
    return _answer(truth, sequences), {
        LEARNED: _answer(learned, sequences),
        NO_EFFECT: _answer(learned, observed),
        NO_NOISE: _answer(replace(learned, noise=torch.zeros_like(learned.noise)), sequences),
    }


@torch.no_grad()
def _answer(problem: Problem, actions: Tensor) -> _Answer:
    states, outcomes = problem.rollout(actions)
    return _Answer(problem.decode(states), outcomes.numpy())


class _Totals:
    """Running sums of absolute errors over the steps after the first change."""

    def __init__(self, cohort: Cohort, scaler: Scaler) -> None:
        self.cohort, self.scaler = cohort, scaler
        steps, features = int(cohort.lengths.max()) - 1, len(cohort.schema.dynamic)
        self.original = {method: np.zeros((steps, features)) for method in METHODS}
        self.scaled = {method: np.zeros((steps, features)) for method in METHODS}
        self.states = np.zeros(steps)
        self.outcome = dict.fromkeys(METHODS, 0.0)
        self.sequences = 0

    def add(self, episode: Episode, actions: IntArray, truth: _Answer, answers: Mapping[str, _Answer]) -> None:
        """Sort the errors of one episode by the number of steps since each sequence's first change."""
        since = np.arange(len(episode)) - (actions != episode.actions).argmax(axis=1)[:, None] - 1  # [B, T]
        after = since >= 0
        np.add.at(self.states, since[after], 1)
        encode = self.scaler.states.encode
        for method, answer in answers.items():
            np.add.at(self.original[method], since[after], np.abs(answer.states - truth.states)[after])
            np.add.at(self.scaled[method], since[after], np.abs(encode(answer.states) - encode(truth.states))[after])
            self.outcome[method] += float(np.abs(answer.outcomes - truth.outcomes).sum())
        self.sequences += len(actions)

    def report(self, *, changes: int, sequences: int, seed: int) -> AccuracyReport:
        """Means."""
        count, dynamic = self.states.sum(), self.cohort.schema.dynamic
        return AccuracyReport(
            episodes=len(self.cohort),
            sequences=sequences,
            changes=changes,
            seed=seed,
            features=tuple(feature.name for feature in dynamic),
            units=tuple(feature.unit for feature in dynamic),
            by_feature={method: sums.sum(axis=0) / count for method, sums in self.original.items()},
            by_feature_scaled={method: sums.sum(axis=0) / count for method, sums in self.scaled.items()},
            by_step={
                method: sums[self.states > 0].mean(axis=1) / self.states[self.states > 0]
                for method, sums in self.scaled.items()
            },
            outcome={method: total / self.sequences for method, total in self.outcome.items()},
        )


def _columns(cells: tuple[str, ...] | list[str]) -> str:
    return " ".join(f"{cell:>10}" for cell in cells)
