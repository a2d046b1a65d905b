"""How accuracy grows with the number of recorded patients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ifonly import Cohort, FitSettings, LocationScale, TransitionModel, fit
from ifonly.errors import InputError
from ifonly.models import TrainableModel
from ifonly.models.fit import evaluate
from ifonly.progress import Progress, Tick, silent
from ifonly.search.base import Solver
from ifonly.simulate import SepsisWorld, sepsis_schema, simulate_cohort
from paper.accuracy import (
    LEARNED,
    NO_EFFECT,
    NO_NOISE,
    AccuracyReport,
    RecommendationReport,
    counterfactual_accuracy,
    recommendation_quality,
    true_optima,
)

TEST_SEED = 1_000_003
"""Added to the seed for the test cohort, so that its patients are none of the training cohort's."""


@dataclass(frozen=True)
class AccuracySettings:
    """What is simulated, fitted and asked."""

    patients: int = 200
    """Test patients for counterfactual states."""
    solved: int = 30
    """How many of them get a recommendation; 0 skips that part."""
    horizon: int = 12
    """Steps of the test patients' stays; training stays have 10 to 20."""
    max_changes: int = 3
    sequences: int = 20
    """Random questions per test patient."""
    epochs: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("patients", "max_changes", "sequences", "epochs"):
            if getattr(self, name) < 1:
                raise InputError(f"accuracy: {name}={getattr(self, name)} must be at least 1.")
        if not 0 <= self.solved <= self.patients:
            raise InputError(f"accuracy: solved={self.solved} must be between 0 and patients={self.patients}.")


@dataclass(frozen=True, eq=False)
class Judgement:
    """A learned model beside the truth, on the same test patients."""

    states: AccuracyReport
    recommendations: RecommendationReport | None

    def __str__(self) -> str:
        return "\n\n".join(str(part) for part in (self.states, self.recommendations) if part is not None)

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        advice = None if self.recommendations is None else self.recommendations.to_dict()
        return {"states": self.states.to_dict(), "recommendations": advice}


@dataclass(frozen=True, eq=False)
class StudyRow:
    """One size of the training cohort."""

    size: int
    transitions: int
    log_likelihood_gap: float
    """Mean log-likelihood per test transition of the truth minus that of the learned model, in nats."""
    judgement: Judgement


@dataclass(frozen=True, eq=False)
class AccuracyStudy:
    """Accuracy by cohort size; prints itself as a table, followed by the largest cohort's reports."""

    settings: AccuracySettings
    model: dict[str, Any]
    """Kind and settings of the learned model."""
    rows: tuple[StudyRow, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.model['kind']} model fitted to cohorts of growing size, {self.settings.epochs} epochs, tested on "
            f"{self.settings.patients} others",
            f"  {'training patients':>17} {'log-likelihood gap':>19} {'state error':>12} {'skill':>7} "
            f"{'promised':>9} {'realised':>9} {'attainable':>11} {'of attainable':>14} {'helpful':>8}",
        ]
        lines += [_row_as_text(row) for row in self.rows]
        lines.append(
            f"  state error in deviations after the first change; 'no effect' {self._baseline(NO_EFFECT)}, "
            f"'no noise' {self._baseline(NO_NOISE)}; log-likelihood in nats per transition below the truth"
        )
        last = self.rows[-1]
        return "\n\n".join(["\n".join(lines), f"with {last.size} training patients:", str(last.judgement)])

    def _baseline(self, method: str) -> str:
        return f"{self.rows[-1].judgement.states.by_feature_scaled[method].mean():.3f}"

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return {
            "settings": asdict(self.settings),
            "model": self.model,
            "rows": [
                {
                    "training_patients": row.size,
                    "training_transitions": row.transitions,
                    "log_likelihood_gap": row.log_likelihood_gap,
                    **row.judgement.to_dict(),
                }
                for row in self.rows
            ],
        }


class Examiner:
    """The true world, its test patients and their true optima, by which learned models are judged."""

    def __init__(
        self, settings: AccuracySettings, *, solver: Solver | None = None, progress: Progress = silent
    ) -> None:
        """`solver` finds a model's recommendations (default: beam search)."""
        self.settings, self.solver, self.progress = settings, solver, progress
        self.world = SepsisWorld()
        seed, horizon = settings.seed + TEST_SEED, settings.horizon
        self.test = simulate_cohort(settings.patients, seed=seed, horizon=horizon, world=self.world, progress=progress)
        self.asked = [self.test[position] for position in range(settings.solved)]
        self.optima = true_optima(self.world, self.asked, max_changes=settings.max_changes, progress=progress)

    def judge(self, model: TransitionModel) -> Judgement:
        """Compare a learned model with the truth."""
        settings = self.settings
        states = counterfactual_accuracy(
            self.world,
            model,
            self.test,
            changes=settings.max_changes,
            sequences=settings.sequences,
            seed=settings.seed,
            progress=self.progress,
        )
        if not self.asked:
            return Judgement(states, None)
        advice = recommendation_quality(
            self.world,
            model,
            self.asked,
            max_changes=settings.max_changes,
            solver=self.solver,
            optima=self.optima,
            progress=self.progress,
        )
        return Judgement(states, advice)


def accuracy_by_cohort_size(
    sizes: Sequence[int],
    settings: AccuracySettings | None = None,
    *,
    model: TrainableModel | None = None,
    solver: Solver | None = None,
    progress: Progress = silent,
) -> AccuracyStudy:
    """Fit `model` to simulated cohorts of each of `sizes` patients and compare it with the truth.

    `model` says what is fitted (default: the paper's location-scale model with L_h = 1 and L_phi = 0.1); `solver`
    finds its recommendations (default: beam search). Smaller cohorts are the beginning of larger ones.
    """
    settings = settings or AccuracySettings()
    if not sizes or any(size < 2 for size in sizes):
        raise InputError(f"accuracy: sizes={list(sizes)} must name at least one cohort of at least two patients.")
    template = model or LocationScale(sepsis_schema(), lipschitz=(1.0, 0.1))
    examiner = Examiner(settings, solver=solver, progress=progress)
    world, test, fitting = examiner.world, examiner.test, FitSettings(epochs=settings.epochs)
    rows = []
    for number, size in enumerate(sorted(sizes), start=1):
        train = simulate_cohort(size, seed=settings.seed, world=world, progress=progress)
        fitted = fit(template, train, settings=fitting, seed=settings.seed, progress=progress)
        gap = _true_log_likelihood(world, test) - evaluate(fitted, test, coordinates=world.scaler)
        rows.append(StudyRow(size, len(train.transitions()), gap, examiner.judge(fitted)))
        progress(Tick("cohort sizes", number, len(sizes)))
    return AccuracyStudy(settings, {"kind": template.kind, **template.settings()}, tuple(rows))


@torch.no_grad()
def _true_log_likelihood(world: SepsisWorld, cohort: Cohort) -> float:
    """Mean log-likelihood per transition under the truth, in the world's coordinates."""
    rows, scaler = cohort.transitions(), world.scaler
    states, context, following = (
        torch.as_tensor(columns.encode(values))
        for columns, values in (
            (scaler.states, rows.states),
            (scaler.context, rows.context),
            (scaler.states, rows.next_states),
        )
    )
    return float(world.log_prob(states, context, torch.tensor(rows.actions), following).mean())


def _row_as_text(row: StudyRow) -> str:
    states, advice = row.judgement.states, row.judgement.recommendations
    error = states.by_feature_scaled[LEARNED].mean()
    text = f"  {row.size:>17} {row.log_likelihood_gap:>19.3f} {error:>12.3f} {states.skill:>7.1%}"
    if advice is None:
        return text
    return text + (
        f" {advice.promised.mean():>9.2%} {advice.gain.mean():>9.2%} {advice.attainable.mean():>11.2%} "
        f"{advice.share_realised:>14.1%} {advice.share_helpful:>8.1%}"
    )
