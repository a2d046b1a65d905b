"""What a learned model's recommendations are truly worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ifonly.data.episode import Episode, FloatArray
from ifonly.errors import InputError
from ifonly.models.base import TransitionModel
from ifonly.problem import Problem
from ifonly.progress import Progress, Tick, silent
from ifonly.rewards import Reward, minus
from ifonly.search.base import Limits, Solver
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.heuristics import Beam
from ifonly.search.result import Result, Status
from ifonly.search.solve import solve

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
    reward: Reward | None = None,
    limits: Limits | None = None,
    progress: Progress = silent,
) -> dict[str, Result]:
    """The best sequence of each episode under the truth, by episode id (default: exhaustive search, thus proven)."""
    cases = list(episodes)
    world, solver, reward = world.for_search(), solver or Exhaustive(), reward or minus("SOFA")
    optima = {}
    for number, episode in enumerate(cases, start=1):
        optima[episode.id] = solve(Problem.from_episode(episode, world, reward, max_changes), solver, limits=limits)
        progress(Tick("true optima", number, len(cases)))
    return optima


def recommendation_quality(
    world: TransitionModel,
    model: TransitionModel,
    episodes: Iterable[Episode],
    *,
    max_changes: int = 3,
    solver: Solver | None = None,
    reward: Reward | None = None,
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
    world, model, solver, reward = world.for_search(), model.for_search(), solver or Beam(), reward or minus("SOFA")
    if optima is None:
        optima = true_optima(world, cases, max_changes=max_changes, reward=reward, progress=progress)
    rows = []
    for number, episode in enumerate(cases, start=1):
        optimum = _optimum_of(episode, optima, max_changes)
        asked = Problem.from_episode(episode, model, reward, max_changes, allow_failed_model=True)
        advice = solve(asked, solver)
        truth = Problem.from_episode(episode, world, reward, max_changes)
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
