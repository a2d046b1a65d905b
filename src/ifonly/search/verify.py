"""Checking a result again, from the model and the episode alone, by other means than the search that found it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ifonly.episodes.episode import Episode
from ifonly.errors import IfonlyError, VerificationError
from ifonly.models.base import TransitionModel
from ifonly.problem import REPLAY_TOLERANCE, Problem
from ifonly.progress import Progress, silent
from ifonly.rewards import Reward, reward_from_dict
from ifonly.search.base import Limits, outcome_tolerance
from ifonly.search.baselines import RandomSearch, greedy_actions
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.result import Result, Status
from ifonly.search.solve import solve


@dataclass(frozen=True)
class Check:
    """One thing that was checked, and what was found."""

    claim: str
    holds: bool
    finding: str


@dataclass(frozen=True)
class Verification:
    """All checks of one result; it exists only if every one of them holds."""

    episode_id: str
    checks: tuple[Check, ...]

    def __str__(self) -> str:
        return "\n".join([f"episode {self.episode_id}: verified", *(f"  {c.claim}: {c.finding}" for c in self.checks)])


def verify(
    result: Result,
    episode: Episode,
    model: TransitionModel,
    *,
    reward: Reward | None = None,
    samples: int = 2000,
    exhaustive_up_to: int = 300_000,
    progress: Progress = silent,
) -> Verification:
    """Re-derive a result's claims, or raise `VerificationError` naming those that fail.

    The sequence is replayed; its outcome, states and number of changes are compared. A bound is attacked: by a greedy
    search, by `samples` random sequences and, where at most `exhaustive_up_to` sequences exist, by all of them.
    A custom reward is code and was not stored: hand it over again as `reward`.
    """
    problem = _rebuild(result, episode, model, reward)
    with torch.no_grad():
        checks = [
            *_identity(result, episode, problem),
            *_replay(result, problem),
            *_bracket(result, problem, samples, exhaustive_up_to, progress),
        ]
    failed = [check for check in checks if not check.holds]
    if failed:
        listing = "\n".join(f"  {check.claim}: {check.finding}" for check in failed)
        raise VerificationError(f"the result for episode {result.episode_id!r} does not hold:\n{listing}")
    return Verification(result.episode_id, tuple(checks))


def _rebuild(result: Result, episode: Episode, model: TransitionModel, reward: Reward | None) -> Problem:
    result.schema.require_same(episode.schema, here="the result", there=f"episode {episode.id!r}")
    allowed = None
    if result.allowed is not None:
        allowed = np.zeros((len(episode), len(episode.schema.actions)), dtype=bool)
        for step, actions in enumerate(result.allowed):
            allowed[step, list(actions)] = True
    try:
        return Problem.from_episode(
            episode,
            model,
            reward or reward_from_dict(result.reward),
            result.max_changes,
            allowed=allowed,
        )
    except (IndexError, IfonlyError) as error:
        raise VerificationError(f"the result's question cannot be put to this model and episode: {error}") from error


def _identity(result: Result, episode: Episode, problem: Problem) -> Iterator[Check]:
    yield Check("episode", result.episode_id == episode.id, f"{result.episode_id!r} against {episode.id!r}")
    same = np.array_equal(result.observed_actions, episode.actions)
    yield Check("observed actions", same, "equal" if same else "the episode records other actions")
    fingerprint = problem.model.fingerprint()
    finding = f"fingerprint {result.model_fingerprint} against {fingerprint}"
    yield Check("model", result.model_fingerprint == fingerprint, finding)


def _replay(result: Result, problem: Problem) -> Iterator[Check]:
    actions = torch.tensor(result.actions, device=problem.device)
    if actions.shape != problem.observed_actions.shape or not bool(
        ((actions >= 0) & (actions < problem.action_count)).all()
    ):
        yield Check("sequence", False, "not one known action per step")
        return
    steps = torch.arange(problem.horizon, device=problem.device)
    yield Check("sequence", bool(problem.allowed[steps, actions].all()), "uses allowed actions only")
    changes = int(problem.changes(actions))
    yield Check("changes", changes <= result.max_changes, f"{changes}, at most {result.max_changes}")
    tolerance = outcome_tolerance(result.observed_outcome)
    states, outcomes = problem.rollout(torch.stack([problem.observed_actions, actions]))
    for name, claimed, found in (
        ("observed outcome", result.observed_outcome, float(outcomes[0])),
        ("outcome", result.outcome, float(outcomes[1])),
    ):
        yield Check(name, abs(claimed - found) <= 10 * tolerance, f"{claimed:.10g} claimed, {found:.10g} replayed")
    recorded = problem.model.scaler.states.encode(np.stack([result.observed_states, result.states]))
    error = float(np.abs(states.cpu().numpy() - recorded).max())
    yield Check("states", error <= REPLAY_TOLERANCE, f"replayed to {error:.2g} scaled units")


def _bracket(
    result: Result, problem: Problem, samples: int, exhaustive_up_to: int, progress: Progress
) -> Iterator[Check]:
    tolerance = 10 * outcome_tolerance(result.observed_outcome)
    if not result.certificate.proven:
        yield Check("claim of optimality", result.status is not Status.OPTIMAL, "none is made")
        return
    yield Check("bracket", result.outcome <= result.upper_bound + tolerance, f"gap {result.gap:.4g}")
    if result.status is Status.OPTIMAL:
        yield Check("gap", result.gap <= tolerance, f"{result.gap:.4g} for a result called optimal")
    rivals = {"greedy search": greedy_actions(problem)[1]}
    rivals[f"{samples} random sequences"] = solve(problem, RandomSearch(samples=samples, seed=1)).outcome
    count = problem.sequence_count()
    if count <= exhaustive_up_to:
        rivals[f"all {count} sequences"] = solve(problem, Exhaustive(), limits=Limits(), progress=progress).outcome
    best = max(rivals.values())
    for name, outcome in rivals.items():
        below = not math.isnan(outcome) and outcome <= result.upper_bound + tolerance
        yield Check(f"bound against {name}", below, f"{outcome:.10g} <= {result.upper_bound:.10g}")
    if result.status is Status.OPTIMAL:
        yield Check("optimum", best <= result.outcome + tolerance, f"no rival beats {result.outcome:.10g}")
