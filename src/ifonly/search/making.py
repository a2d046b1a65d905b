"""From what a solver found to a result: replay it, and put down everything that is needed to check it again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from ifonly.errors import InputError
from ifonly.problem import Panel, Question
from ifonly.search.answers import Alternative, Budget, Members
from ifonly.search.base import Finding
from ifonly.search.result import Result, Stats, Status

Listed = TypeVar("Listed", Budget, Alternative)


def make_result(
    problem: Question,
    finding: Finding,
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
        upper_bound=max(finding.upper_bound, outcome),
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
        frontier=_with_members(problem, finding.frontier),
        alternatives=_with_members(problem, finding.alternatives),
    )


def _members(problem: Question, outcomes: torch.Tensor) -> Members | None:
    if not isinstance(problem, Panel):
        return None
    return Members(
        objective=problem.objective.goal,
        fingerprints=tuple(model.fingerprint() for model in problem.models),
        outcomes=outcomes.cpu().numpy(),
        support_share=problem.support_share,
    )


def _with_members(problem: Question, listed: tuple[Listed, ...]) -> tuple[Listed, ...]:
    """With the outcome of each sequence under every member of a panel."""
    known = [one.actions for one in listed if one.actions is not None]
    if not isinstance(problem, Panel) or not known:
        return listed
    rows = torch.as_tensor(np.array(known), device=problem.device)
    outcomes = iter(problem.replay(rows)[1].cpu().numpy())
    return tuple(one if one.actions is None else replace(one, member_outcomes=next(outcomes)) for one in listed)


def _nothing_finite(problem: Question, status: Status) -> InputError:
    """Minus infinity is no outcome to return: every sequence would be as good as every other."""
    seen = "admissible sequence" if status is Status.OPTIMAL else f"sequence that was found ({status.value})"
    return InputError(
        f"episode {problem.episode.id!r}: every {seen} has an outcome of minus infinity, so none can be called best; "
        "relax the constraints that exclude the recorded sequence, use a reward that is finite where they lead, or "
        "let an exact solver search on."
    )


def _nothing_supported(problem: Question, status: Status) -> InputError:
    seen = "no sequence that obeys them" if status is Status.OPTIMAL else f"no sequence that was found ({status.value})"
    return InputError(
        f"episode {problem.episode.id!r}: the constraints require changes, and {seen} has every change supported where "
        "it is made; drop a requirement, allow more changes, ask for less support, or let an exact solver search on."
    )
