"""One row per episode: what a cohort run keeps of each answer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from ifonly.data.episode import Episode, FloatArray, IntArray
from ifonly.errors import IfonlyError
from ifonly.problem import BaseProblem
from ifonly.search.answers import Budget
from ifonly.search.result import Result

BUDGET = pl.Struct(
    {
        "max_changes": pl.Int64,
        "outcome": pl.Float64,
        "clipped_outcome": pl.Float64,
        "upper_bound": pl.Float64,
        "actions": pl.List(pl.Int64),
    }
)

FIRST_COLUMNS = pl.Schema(
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
"""The columns that runs of version 1 have."""

TRUST_COLUMNS = pl.Schema(
    {
        "trust": pl.String(),
        "warnings": pl.List(pl.String()),
        "warning_kinds": pl.List(pl.String()),
        "refits_agree": pl.Float64(),
        "refit_improvements": pl.List(pl.Float64()),
        "step_agreement": pl.List(pl.Float64()),
        "refits_unsolved": pl.Int64(),
        "change_support": pl.List(pl.Float64()),
        "farthest": pl.Float64(),
        "unsupported_steps": pl.List(pl.Int64()),
        "harmless_below": pl.Float64(),
        "undone_by": pl.Float64(),
    }
)
"""How far each answer may be trusted; null where nobody asked, or where nothing is changed."""

COLUMNS = pl.Schema({**FIRST_COLUMNS, **TRUST_COLUMNS})
"""The columns of a run's table.

`status` is a `Status` value, or "failed" with a `reason` and nothing else known. Outcomes are sums of the reward, in
its original units; `clipped_outcome` is the same with every state first brought back into its feature's plausible
range, as a score that ends at 24 must be. `frontier` holds the best for every budget, if the solver gives it. An upper
bound that is not known is null. `states` [T][D], original units, are those of `actions`. `certificate` names the method
that the upper bound rests on; null where nothing is proven.

`trust` says in a few words how far to trust the answer, `warnings` what speaks against it, and `warning_kinds` of what
kind each of these is. Of an ensemble, `refits_agree` is the share of refits under which the changes help and
`refit_improvements` what each gains; `step_agreement` is, for each of `changed_steps`, the share of refits whose own
best sequence changes it too, and `refits_unsolved` how many are without a proven one. By a behaviour model,
`change_support` is the probability of each change (null where its state is not finite), `farthest` the largest distance
percentile of a state after the first change, `unsupported_steps` those beyond what the data supports. No unrecorded
influence at one step below `harmless_below` standard deviations undoes the gain; one of `undone_by` does.
"""

FAILED = "failed"

ZERO = 1e-9
"""Observed outcomes of at most this size count as zero: what is left of a sum of zeros after rounding."""


def row_of(problem: BaseProblem, result: Result) -> dict[str, Any]:
    """The row of an answered question, in plain types; of how far to trust it nothing is known yet."""
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
        "frontier": [_entry(budget, known.get(budget.max_changes)) for budget in result.frontier],
        "certificate": result.certificate.method if result.certificate.proven else None,
        "nodes": result.stats.nodes_expanded,
        "model_steps": result.stats.model_steps,
        "seconds": result.stats.seconds,
        **dict.fromkeys(TRUST_COLUMNS),
    }


def _entry(budget: Budget, clipped_outcome: float | None) -> dict[str, Any]:
    content = budget.to_dict() | {"clipped_outcome": clipped_outcome}
    return {field.name: content[field.name] for field in BUDGET.fields}


def failed_row(episode: Episode, error: Exception) -> dict[str, Any]:
    """The row of an episode that could not be solved."""
    return dict.fromkeys(COLUMNS) | _who(episode) | {"status": FAILED, "reason": reason_of(error)}


def reason_of(error: Exception) -> str:
    """Why something failed, never with a patient's values."""
    # Our own errors are written for people; of others only the kind is safe to keep.
    return str(error) if isinstance(error, IfonlyError) else f"unexpected {type(error).__name__}"


def clipped_outcomes(problem: BaseProblem, sequences: list[IntArray]) -> list[float]:
    """Outcomes of action sequences [T] with all states within the features' plausible ranges; no cost of changes."""
    actions = torch.as_tensor(np.stack(sequences), device=problem.device)
    return clipped_sums(problem, problem.rollout(actions)[0], actions)


def clipped_sums(problem: BaseProblem, states: Tensor, actions: Tensor) -> list[float]:
    """The same for states [B, T, (M,) D] that action sequences [B, T] were found to reach."""
    columns = problem.models[0].scaler.states
    shown = columns.decode(states.cpu().numpy())
    clipped = torch.as_tensor(columns.encode(np.clip(shown, *_ranges(problem))), device=problem.device)
    outcomes: list[float] = problem.counted(problem.free_rewards(clipped, actions).sum(1)).tolist()
    return outcomes


def _ranges(problem: BaseProblem) -> tuple[FloatArray, FloatArray]:
    ranges = [feature.plausible or (-math.inf, math.inf) for feature in problem.episode.schema.dynamic]
    return np.array([low for low, _ in ranges]), np.array([high for _, high in ranges])


def _who(episode: Episode) -> dict[str, Any]:
    return {"episode": episode.id, "subject": episode.subject, "horizon": len(episode)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
