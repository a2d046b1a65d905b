"""From what a solver found to a result: replay it, and put down everything that is needed to check it again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from ifonly.errors import InputError
from ifonly.problem import BaseProblem, EnsembleProblem
from ifonly.search.answers import Alternative, Budget, Members
from ifonly.search.base import Solution
from ifonly.search.result import Result, Stats, Status

Listed = TypeVar("Listed", Budget, Alternative)


def build_result(
    problem: BaseProblem,
    finding: Solution,
    *,
    stats: Stats,
    solver: Mapping[str, Any],
    limits: Mapping[str, Any],
    fingerprint: str | None = None,
) -> Result:
    """Replay the actions of `finding` and put everything together; `fingerprint` is the question's, if known."""
    if not finding.is_admissible:
        raise _nothing_supported(problem, finding.status)
    if math.isnan(finding.upper_bound):
        raise InputError("a solver returned NaN as its upper bound; a bound must be a number or infinite.")
    both = torch.stack([problem.observed_actions, finding.actions])
    states, totals = problem.replay(both)
    observed_outcome, outcome = (float(value) for value in problem.counted(totals))
    if outcome == -math.inf:
        raise _nothing_finite(problem, finding.status)
    without_cost = outcome + problem.change_cost * int(problem.changes(finding.actions))
    shown = problem.shown_states(states, totals)
    every = problem.allowed.all().item()
    certificate = finding.certificate
    return Result(
        episode_id=problem.episode.id,
        schema=problem.episode.schema,
        status=finding.status,
        max_changes=problem.max_changes,
        actions=finding.actions.cpu().numpy(),
        observed_actions=problem.observed_actions.cpu().numpy(),
        states=problem.decode(shown[1]),
        observed_states=problem.decode(shown[0]),
        outcome=outcome,
        observed_outcome=observed_outcome,
        upper_bound=_above(finding.upper_bound, outcome, problem),
        certificate=replace(certificate, details={**certificate.details, **problem.claims()}),
        stats=stats,
        solver=solver,
        limits=limits,
        reward=problem.reward.to_dict(),
        shown=(problem.reward.show(observed_outcome), problem.reward.show(without_cost)),
        allowed=None if every else tuple(tuple(row.nonzero().squeeze(-1).tolist()) for row in problem.allowed),
        model_fingerprint=fingerprint or problem.fingerprint(),
        constraints=None if problem.constraints is None else problem.constraints.to_dict(),
        change_cost=problem.change_cost,
        support=None if problem.support is None else dict(problem.support.settings()),
        members=_members(problem, totals[1]),
        model_check=problem.standing,
        frontier=tuple(
            one if one.outcome is None else replace(one, upper_bound=_above(one.upper_bound, one.outcome, problem))
            for one in _replayed(problem, finding.frontier)
        ),
        alternatives=_replayed(problem, finding.alternatives),
    )


def _members(problem: BaseProblem, outcomes: torch.Tensor) -> Members | None:
    if not isinstance(problem, EnsembleProblem):
        return None
    return Members(
        objective=problem.objective.goal,
        fingerprints=tuple(model.fingerprint() for model in problem.models),
        outcomes=outcomes.cpu().numpy(),
        support_share=problem.support_share,
    )


def _above(upper_bound: float, outcome: float, problem: BaseProblem) -> float:
    """The upper bound, or the outcome itself where they differ by no more than rounding."""
    return upper_bound if upper_bound > outcome + problem.tolerance else outcome


def _replayed(problem: BaseProblem, listed: tuple[Listed, ...]) -> tuple[Listed, ...]:
    """With the outcome of each sequence, replayed for this problem alone: what a search found may depend, in the last
    digits, on what else was searched with it. For a panel, also under every member."""
    known = [one.actions for one in listed if one.actions is not None]
    if not known:
        return listed
    totals = problem.replay(torch.as_tensor(np.array(known), device=problem.device))[1]
    outcomes = iter(zip(problem.counted(totals).tolist(), totals.cpu().numpy(), strict=True))
    members = isinstance(problem, EnsembleProblem)
    changed = []
    for one in listed:
        if one.actions is not None:
            outcome, own = next(outcomes)
            one = replace(one, outcome=outcome, member_outcomes=own if members else None)
        changed.append(one)
    return tuple(changed)


def _nothing_finite(problem: BaseProblem, status: Status) -> InputError:
    """Minus infinity is no outcome to return: every sequence would be as good as every other."""
    seen = "admissible sequence" if status is Status.OPTIMAL else f"sequence that was found ({status.value})"
    return InputError(
        f"episode {problem.episode.id!r}: every {seen} has an outcome of minus infinity, so none can be called best; "
        "relax the constraints that exclude the recorded sequence, use a reward that is finite where they lead, or "
        "let an exact solver search on."
    )


def _nothing_supported(problem: BaseProblem, status: Status) -> InputError:
    seen = "no sequence that obeys them" if status is Status.OPTIMAL else f"no sequence that was found ({status.value})"
    return InputError(
        f"episode {problem.episode.id!r}: the constraints require changes, and {seen} has every change supported where "
        "it is made; drop a requirement, allow more changes, ask for less support, or let an exact solver search on."
    )
