"""The questions that experiments put to ifonly, and what they keep of its answers.

No other module here builds a problem, starts a cohort run or reads the evidence about an answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ifonly import (
    AnchorAStar,
    BranchAndBound,
    Cohort,
    Episode,
    Feature,
    Limits,
    LocationScale,
    ModelCheck,
    MonteCarlo,
    Problem,
    Query,
    Result,
    RunSettings,
    Status,
    TransitionModel,
    examine,
    load_run,
    minus,
    solve,
    solve_cohort,
)
from ifonly.errors import InputError
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.progress import Progress, silent
from ifonly.records import finite
from ifonly.report.summary import summarize
from ifonly.result.parts import effective_branching_factor
from ifonly.result.table import COLUMNS
from ifonly.rewards import Reward
from ifonly.runs.manifest import MANIFEST
from ifonly.search.base import Solver
from ifonly.testing.instances import random_problem

LOW_SOFA = minus("SOFA")
"""The paper's reward."""

ROUNDING = 1e-9
"""Values that leave a plausible range by no more than this share of its width have not left it."""


@dataclass(frozen=True)
class Question:
    """What is asked about an episode, whichever model answers."""

    max_changes: int | None
    """None: any number."""
    reward: Reward = LOW_SOFA
    device: str = "cpu"
    allow_failed_model: bool = False
    """Whether a model that failed its check may answer all the same."""
    seconds: float | None = None
    """Limit of a single solve; None: no limit."""

    @property
    def query(self) -> Query:
        """The question as ifonly takes it."""
        return Query(
            self.reward,
            self.max_changes,
            limits=Limits(seconds=self.seconds),
            allow_failed_model=self.allow_failed_model,
        )

    def problem(self, episode: Episode, model: TransitionModel) -> Problem:
        """The question about one episode."""
        return Problem.from_episode(episode, model, self.query, device=self.device)


def answer(problem: Problem, solver: Solver | None = None, *, limits: Limits | None = None) -> Result:
    """Solve; Ctrl-C ends the whole run, since an answer cut short by it is no measurement."""
    result = solve(problem, solver, limits=limits)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return result


def answer_row(result: Result) -> dict[str, Any]:
    """What a measurement keeps of an answer; nodes of A* are lower bounds where it reached a limit."""
    stats, horizon = result.stats, len(result.actions)
    certain = result.certificate.details.get("visited_at_least")
    known = stats.nodes_visited is not None
    at_least = None if certain is None else effective_branching_factor(certain, horizon) or 1.0
    return {
        "status": result.status.value,
        "reason": None,
        "outcome": result.outcome,
        "upper_bound": finite(result.upper_bound),
        "observed_outcome": result.observed_outcome,
        "clipped_outcome": result.clipped_outcome,
        "observed_clipped_outcome": result.observed_clipped_outcome,
        "changes": len(result.changes),
        "nodes": stats.nodes_expanded,
        "visited": stats.nodes_visited if known else certain,
        "branching_factor": stats.effective_branching_factor if known else at_least,
        "seconds": stats.seconds,
        "seconds_bounds": stats.seconds_bounds,
    }


@cache
def warm_up(device: str) -> None:
    """Solve something small: what torch loads on first use belongs to no patient's time."""
    drawn = random_problem(
        0,
        model_kind=LocationScale.kind,
        horizon=4,
        max_changes=1,
        constrained=True,
        masked=False,
        rules=False,
        reward_kind="linear",
    )
    problem = Question(drawn.max_changes, drawn.reward, device).problem(drawn.episode, drawn.model)
    for solver in (BranchAndBound(), AnchorAStar(anchors=MonteCarlo(samples=20))):
        solve(problem, solver)


def run_cohort(
    cohort: Cohort,
    model: TransitionModel,
    question: Question,
    out: Path,
    *,
    episodes: tuple[str, ...],
    workers: int,
    progress: Progress = silent,
) -> pl.DataFrame:
    """The table of a run over these episodes, as `ifonly cohort` makes it; an existing run is resumed."""
    settings = RunSettings(episodes=episodes, workers=workers, device=question.device)
    run = solve_cohort(cohort, model, question.query, out=out, settings=settings, progress=progress)
    return run.table()


def finished_rows(folder: Path) -> pl.DataFrame:
    """The rows that a run has so far; none where it was not begun."""
    return load_run(folder).table() if (folder / MANIFEST).exists() else pl.DataFrame(schema=COLUMNS)


def without_states(table: pl.DataFrame) -> pl.DataFrame:
    """The table of a run without its largest column."""
    return table.with_columns(states=pl.lit(None, COLUMNS["states"]))


def leaves_ranges(table: pl.DataFrame, ranges: Sequence[tuple[float, float]]) -> list[bool]:
    """For each answer of a run's table, whether any value of its course lies outside the range of its feature."""
    ends = np.array(ranges)
    slack = np.nan_to_num(ROUNDING * (ends[:, 1] - ends[:, 0]), posinf=0.0)
    courses = (np.array(states, dtype=np.float64) for states in table["states"].to_list())
    return [not ((one >= ends[:, 0] - slack) & (one <= ends[:, 1] + slack)).all() for one in courses]


def plausible_ranges(features: Sequence[Feature]) -> list[tuple[float, float]]:
    """Those of the schema."""
    return [feature.plausible or (-math.inf, math.inf) for feature in features]


def possible_ranges(features: Sequence[Feature]) -> list[tuple[float, float]]:
    """What scales end at, and zero for all that is not plausible below it."""
    zeros = [0.0 if low >= 0 else -math.inf for low, _ in plausible_ranges(features)]
    return [
        (max(zero, feature.possible[0]), feature.possible[1]) for zero, feature in zip(zeros, features, strict=True)
    ]


def borne_out(table: pl.DataFrame) -> tuple[int, int]:
    """How many answers of a run's table claim a gain that the organs of its score can judge, and how many of these are
    not borne out."""
    counts = summarize(table).evidence
    return counts.judged_by_organs, counts.not_borne_out


def check_signals(check: ModelCheck) -> dict[str, Any]:
    """What the check of a model says: its verdict, its concerns, and the largest correlation of a feature's noise with
    that of the next step (None where it could not be judged).
    """
    lasting = [abs(feature.lasting.value) for feature in check.figures.features if feature.lasting is not None]
    return {
        "verdict": check.verdict.value,
        "lasting_noise": max(lasting, default=None),
        "concerns": [f"{finding.kind}: {finding.level.value}" for finding in check.concerns()],
    }


def answer_signals(problem: Problem, result: Result, behaviour: BehaviourModel) -> dict[str, Any]:
    """Of the evidence about an answer those figures that say one thing each; None where nothing speaks against it."""
    evidence = examine(problem, result, behaviour=behaviour, sensitivity=True)
    if evidence.failures:
        raise InputError(f"warning study: an answer could not be examined: {evidence.failures[0].reason}")
    refits, support, influence = evidence.refits, evidence.support, evidence.sensitivity
    assert refits is not None, "an ensemble has refits"
    assert support is not None, "there is a behaviour model"
    assert influence is not None, "asked for"
    if not evidence.changed_steps:
        return dict.fromkeys(("refits_agree", "refit_low", "least_support", "farthest", "harmless_below", "undone_by"))
    weakest, harmless = influence.weakest, influence.harmless_below
    return {
        "refits_agree": refits.share,
        "refit_low": refits.low / result.improvement if math.isfinite(refits.low) else None,
        # A state that is not finite has no support at all.
        "least_support": min((one.probability or 0.0) for one in support.changed),
        "farthest": support.farthest,
        "harmless_below": None if harmless is None else finite(harmless),
        "undone_by": None if weakest is None else weakest.undone_by,
    }
