"""How far a learned model's counterfactual states are from the truth, and what its recommendations are truly worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ifonly import Beam, Cohort, Episode, Exhaustive, Limits, Problem, Result, Scaler, Status, TransitionModel
from ifonly.data.episode import FloatArray, IntArray
from ifonly.errors import InputError
from ifonly.progress import Progress, Tick, silent
from ifonly.rewards import Reward
from ifonly.search.base import Solver
from paper import asking
from paper.asking import LOW_SOFA, Question

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
    reward: Reward = LOW_SOFA,
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
    truth, learned = (Question(None, reward, allow_failed_model=True).problem(episode, one) for one in (world, model))
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


NEGLIGIBLE = 1e-9
"""Improvements up to this share of the outcome are none."""


@dataclass(frozen=True)
class Recommendation:
    """One episode: outcomes in the reward's units, higher is better."""

    episode: str
    observed: float
    promised: float
    """Outcome of the recommended sequence as the learned model sees it."""
    realised: float
    """Its true outcome."""
    optimum: float
    """The best true outcome found, of any admissible sequence."""
    proven: bool
    """Whether the optimum is proven to be one."""

    @property
    def attainable(self) -> float:
        """How much better than observed it could have gone."""
        return self.optimum - self.observed

    @property
    def gain(self) -> float:
        """How much better, truly, it would have gone with the recommendation."""
        return self.realised - self.observed

    @property
    def regret(self) -> float:
        """What the recommendation leaves on the table."""
        return self.optimum - self.realised


@dataclass(frozen=True)
class RecommendationReport:
    """Recommendations of a learned model, judged by the truth. Shares are relative to the observed outcome's size."""

    max_changes: int
    rows: tuple[Recommendation, ...]

    @property
    def attainable(self) -> FloatArray:
        """Truly attainable improvement per episode [E], as a share."""
        return self._share("attainable")

    @property
    def gain(self) -> FloatArray:
        """True improvement by the recommendation per episode [E], as a share; negative where it does harm."""
        return self._share("gain")

    @property
    def promised(self) -> FloatArray:
        """Improvement that the learned model promises per episode [E], as a share."""
        return np.array([(row.promised - row.observed) / abs(row.observed) for row in self.rows])

    @property
    def regret(self) -> FloatArray:
        """Outcome lost against the optimum per episode [E], in the reward's units."""
        return np.array([row.regret for row in self.rows])

    @property
    def share_realised(self) -> float:
        """Total true gain over total attainable gain."""
        total = sum(row.attainable for row in self.rows)
        return sum(row.gain for row in self.rows) / total if total > 0 else 1.0

    @property
    def share_helpful(self) -> float:
        """How many recommendations truly improve on what was done, or rightly leave it."""
        helpful = [
            gain > NEGLIGIBLE or best <= NEGLIGIBLE for gain, best in zip(self.gain, self.attainable, strict=True)
        ]
        return float(np.mean(helpful))

    @property
    def share_proven(self) -> float:
        """How many true optima are proven."""
        return float(np.mean([row.proven for row in self.rows]))

    def _share(self, name: str) -> FloatArray:
        return np.array([getattr(row, name) / abs(row.observed) for row in self.rows])

    def __str__(self) -> str:
        def line(name: str, values: FloatArray) -> str:
            low, middle, high = np.percentile(values, [10, 50, 90])
            return f"  {name:<34} mean {values.mean():7.2%}  median {middle:7.2%}  10-90 % {low:.2%} to {high:.2%}"

        return "\n".join(
            [
                f"recommendations with up to {self.max_changes} change{'s'[: self.max_changes > 1]} for "
                f"{len(self.rows)} episode{'s'[: len(self.rows) > 1]} "
                f"({self.share_proven:.0%} of the true optima proven)",
                line("improvement attainable in truth", self.attainable),
                line("improvement promised by the model", self.promised),
                line("improvement realised in truth", self.gain),
                f"  realised of what is attainable      {self.share_realised:.1%}",
                f"  recommendations that truly help     {self.share_helpful:.1%}",
                f"  regret in outcome                   mean {self.regret.mean():.3g}, worst {self.regret.max():.3g}",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON: the rows and their summary."""
        return {
            "max_changes": self.max_changes,
            "episodes": len(self.rows),
            "mean_attainable_improvement": float(self.attainable.mean()),
            "mean_promised_improvement": float(self.promised.mean()),
            "mean_realised_improvement": float(self.gain.mean()),
            "median_attainable_improvement": float(np.median(self.attainable)),
            "median_realised_improvement": float(np.median(self.gain)),
            "share_realised": self.share_realised,
            "share_helpful": self.share_helpful,
            "share_proven": self.share_proven,
            "mean_regret": float(self.regret.mean()),
            "rows": [asdict(row) for row in self.rows],
        }


def true_optima(
    world: TransitionModel,
    episodes: Iterable[Episode],
    *,
    max_changes: int = 3,
    solver: Solver | None = None,
    reward: Reward = LOW_SOFA,
    limits: Limits | None = None,
    progress: Progress = silent,
) -> dict[str, Result]:
    """The best sequence of each episode under the truth, by episode id (default: exhaustive search, thus proven)."""
    cases = list(episodes)
    world, question = world.for_search(), Question(max_changes, reward)
    optima = {}
    for number, episode in enumerate(cases, start=1):
        optima[episode.id] = asking.answer(question.problem(episode, world), solver or Exhaustive(), limits=limits)
        progress(Tick("true optima", number, len(cases)))
    return optima


def recommendation_quality(
    world: TransitionModel,
    model: TransitionModel,
    episodes: Iterable[Episode],
    *,
    max_changes: int = 3,
    solver: Solver | None = None,
    reward: Reward = LOW_SOFA,
    optima: Mapping[str, Result] | None = None,
    progress: Progress = silent,
) -> RecommendationReport:
    """Solve each episode under the learned `model` and judge the sequence by the truth, `world`.

    `solver` (default: beam search) finds the recommendation; `optima` are the true optima, as `true_optima` gives
    them (they are computed when absent, with the same budget of changes).
    """
    cases = list(episodes)
    if not cases:
        raise InputError("recommendation quality: needs at least one episode.")
    world, model = world.for_search(), model.for_search()
    if optima is None:
        optima = true_optima(world, cases, max_changes=max_changes, reward=reward, progress=progress)
    rows = []
    for number, episode in enumerate(cases, start=1):
        optimum = _optimum_of(episode, optima, max_changes)
        question = Question(max_changes, reward, allow_failed_model=True)
        advice = asking.answer(question.problem(episode, model), solver or Beam())
        truth = question.problem(episode, world)
        rows.append(
            Recommendation(
                episode=episode.id,
                observed=advice.observed_outcome,
                promised=advice.outcome,
                realised=truth.outcome(advice.actions),
                optimum=optimum.outcome,
                proven=optimum.status is Status.OPTIMAL,
            )
        )
        progress(Tick("recommendations", number, len(cases)))
    return RecommendationReport(max_changes, tuple(rows))


def _optimum_of(episode: Episode, optima: Mapping[str, Result], max_changes: int) -> Result:
    if episode.id not in optima:
        raise InputError(
            f"recommendation quality: no true optimum for episode {episode.id!r}; compute it, or pass none."
        )
    result = optima[episode.id]
    if result.max_changes != min(max_changes, len(episode)):
        raise InputError(
            f"recommendation quality: the true optimum of episode {episode.id!r} is for {result.max_changes} changes, "
            f"not {max_changes}; compute the optima with the same budget."
        )
    return result
