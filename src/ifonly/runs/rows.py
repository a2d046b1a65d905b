"""One row per episode: what a cohort run keeps of each answer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ifonly.episodes.episode import Episode, FloatArray, IntArray
from ifonly.errors import IfonlyError
from ifonly.problem import Problem
from ifonly.search.result import Result

BUDGET: pl.DataType = pl.Struct(
    {
        "max_changes": pl.Int64,
        "outcome": pl.Float64,
        "clipped_outcome": pl.Float64,
        "upper_bound": pl.Float64,
        "actions": pl.List(pl.Int64),
    }
)

COLUMNS = pl.Schema(
    {
        "episode": pl.String(),
        "subject": pl.String(),
        "horizon": pl.Int64(),
        "status": pl.String(),
        "reason": pl.String(),
        "observed_outcome": pl.Float64(),
        "outcome": pl.Float64(),
        "upper_bound": pl.Float64(),
        "gap": pl.Float64(),
        "observed_clipped_outcome": pl.Float64(),
        "clipped_outcome": pl.Float64(),
        "changes": pl.Int64(),
        "changed_steps": pl.List(pl.Int64()),
        "observed_actions": pl.List(pl.Int64()),
        "actions": pl.List(pl.Int64()),
        "states": pl.List(pl.List(pl.Float64())),
        "frontier": pl.List(BUDGET),
        "certificate": pl.String(),
        "nodes": pl.Int64(),
        "model_steps": pl.Int64(),
        "seconds": pl.Float64(),
    }
)
"""The columns of a run's table.

`status` is a `Status` value, or "failed" with a `reason` and nothing else known. Outcomes are sums of the reward, in
its original units; `clipped_outcome` is the same with every state first brought back into its feature's plausible
range, as a score that ends at 24 must be. `frontier` holds the best for every budget, if the solver gives it. An upper
bound that is not known is null. `states` [T][D], original units, are those of `actions`. `certificate` names the method
that the upper bound rests on; null where nothing is proven.
"""

FAILED = "failed"

ZERO = 1e-9
"""Observed outcomes of at most this size count as zero: what is left of a sum of zeros after rounding."""


def row_of(problem: Problem, result: Result) -> dict[str, Any]:
    """The row of an answered question, in plain types."""
    budgets = [budget for budget in result.frontier if budget.actions is not None]
    sequences = [problem.observed_actions.cpu().numpy(), result.actions, *(budget.actions for budget in budgets)]
    observed, found, *clipped = clipped_outcomes(problem, sequences)  # type: ignore[arg-type]
    known = dict(zip((budget.max_changes for budget in budgets), clipped, strict=True))
    return {
        **_who(problem.episode),
        "status": result.status.value,
        "reason": None,
        "observed_outcome": result.observed_outcome,
        "outcome": result.outcome,
        "upper_bound": _finite(result.upper_bound),
        "gap": _finite(result.gap),
        "observed_clipped_outcome": observed,
        "clipped_outcome": found,
        "changes": len(result.changes),
        "changed_steps": [change.step for change in result.changes],
        "observed_actions": result.observed_actions.tolist(),
        "actions": result.actions.tolist(),
        "states": result.states.tolist(),
        "frontier": [
            budget.to_dict() | {"clipped_outcome": known.get(budget.max_changes)} for budget in result.frontier
        ],
        "certificate": result.certificate.method if result.certificate.proven else None,
        "nodes": result.stats.nodes_expanded,
        "model_steps": result.stats.model_steps,
        "seconds": result.stats.seconds,
    }


def failed_row(episode: Episode, error: Exception) -> dict[str, Any]:
    """The row of an episode that could not be solved; the reason never holds a patient's values."""
    # Our own errors are written for people; of others only the kind is safe to keep.
    reason = str(error) if isinstance(error, IfonlyError) else f"unexpected {type(error).__name__}"
    return dict.fromkeys(COLUMNS) | _who(episode) | {"status": FAILED, "reason": reason}


def clipped_outcomes(problem: Problem, sequences: list[IntArray]) -> list[float]:
    """Outcomes of action sequences [T] with all states within the features' plausible ranges; no cost of changes."""
    actions = torch.as_tensor(np.stack(sequences), device=problem.device)
    return clipped_sums(problem, problem.rollout(actions)[0], actions)


def clipped_sums(problem: Problem, states: Tensor, actions: Tensor) -> list[float]:
    """The same for states [B, T, D] that action sequences [B, T] were found to reach."""
    columns = problem.model.scaler.states
    shown = columns.decode(states.cpu().numpy())
    low, high = _ranges(problem)
    clipped = torch.as_tensor(columns.encode(np.clip(shown, low, high)), device=problem.device)
    rewards: list[float] = problem.bound_reward(clipped, actions).sum(1).tolist()
    return rewards


def _ranges(problem: Problem) -> tuple[FloatArray, FloatArray]:
    ranges = [feature.plausible or (-math.inf, math.inf) for feature in problem.model.schema.dynamic]
    return np.array([low for low, _ in ranges]), np.array([high for _, high in ranges])


def _who(episode: Episode) -> dict[str, Any]:
    return {"episode": episode.id, "subject": episode.subject, "horizon": len(episode)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
