"""Checking a result again, from the model and the episode alone, by other means than the search that found it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ifonly.data.episode import Episode
from ifonly.errors import IfonlyError, VerificationError
from ifonly.models.base import TransitionModel
from ifonly.models.standing import Standing
from ifonly.problem import REPLAY_TOLERANCE, BaseProblem, EnsembleProblem, HasMembers, Problem, Support, SupportSource
from ifonly.progress import Progress, silent
from ifonly.proofs import check_proof
from ifonly.proofs.question import Record
from ifonly.query import Limits
from ifonly.result import Alternative, Budget, Result, Status
from ifonly.rewards import Reward
from ifonly.search.base import Monitor, Solver
from ifonly.search.build_result import clipped_outcomes
from ifonly.search.exhaustive import Exhaustive, every_sequence, outcome_frontier
from ifonly.search.heuristics import RandomSearch, greedy_actions
from ifonly.search.incumbents import MOST_WITHIN
from ifonly.search.proof import question_differences

SLACK = 10
"""Outcomes computed twice may differ by this many tolerances."""


@dataclass(frozen=True)
class Check:
    """One thing that was checked, and what was found."""

    claim: str
    holds: bool
    finding: str


@dataclass(frozen=True)
class Verification:
    """All checks of one result; it exists only if every one of them holds."""

    episode: str
    checks: tuple[Check, ...]
    proof_repeated: bool
    """Whether every admissible sequence was enumerated, or every part of the search's log confirmed, so that the bound
    is proven anew and not only unrefuted."""
    has_evidence: bool = False
    """Whether the result tells evidence, which is not checked."""
    enumerated: bool = False
    """Whether it was by enumeration that the proof was repeated."""

    def __str__(self) -> str:
        how = "by enumerating every sequence" if self.enumerated else "by checking a log of the search"
        verdict = f"optimum verified, {how}" if self.proof_repeated else "not refuted"
        lines = [f"episode {self.episode}: {verdict}", *(f"  {c.claim}: {c.finding}" for c in self.checks)]
        if self.has_evidence:
            lines.append("  not checked: the evidence that the result tells; examine the answer again")
        return "\n".join(lines)


def verify(
    result: Result,
    episode: Episode,
    model: TransitionModel | Sequence[TransitionModel] | HasMembers,
    *,
    reward: Reward | None = None,
    support: Support | SupportSource | None = None,
    proof: str | Path | None = None,
    samples: int = 2000,
    exhaustive_up_to: int = 5_000_000,
    progress: Progress = silent,
) -> Verification:
    """Re-derive a result's claims, or raise `VerificationError` naming those that fail.

    The sequence is replayed; its outcome, states and number of changes are compared. A bound is attacked: by a greedy
    search, by `samples` random sequences and, where at most `exhaustive_up_to` sequences exist (some ten seconds per
    million), by all of them; only then is the proof repeated, and the verification says so, and only then are proven
    budgets and proven alternatives compared with all sequences. Evidence is not checked, which `examine` tells anew;
    what the result says of the model's check is compared with what the model keeps.
    An ensemble problem's result needs all of its members, a list or an ensemble. A custom reward is code and was not
    stored: hand it over again as `reward`; so is what changes had to have behind them: hand it, or
    the behaviour model that it came from, over as `support`. `proof` names a log of the search, which must be of this
    question and is checked by `check_proof`: that repeats the proof where enumeration cannot.
    """
    problem = _rebuild(result, episode, model, reward=reward, support=support)
    with torch.no_grad():
        checks = [
            *_identity(result, episode, problem),
            *_replay(result, problem),
            *_member_outcomes(result, problem),
            *_claims(result, problem),
            *(_bracket(result, problem, samples, exhaustive_up_to, progress) if _is_bounded(result) else ()),
            *_alternatives(result, problem, exhaustive_up_to),
            *(_frontier(result, problem, exhaustive_up_to) if result.frontier else ()),
            *(_question_of_log(result, problem, proof) if proof is not None else ()),
        ]
    failed = [check for check in checks if not check.holds]
    if failed:
        listing = "\n".join(f"  {check.claim}: {check.finding}" for check in failed)
        raise VerificationError(f"the result for episode {result.episode!r} does not hold:\n{listing}")
    enumerated = _is_bounded(result) and problem.sequence_count() <= exhaustive_up_to
    logged = None if proof is None else check_proof(proof, progress=progress)
    if logged is not None:
        finding = f"covers all {logged.sequences:,} sequences; {logged.confirmed:,} of {logged.cuts:,} cuts confirmed"
        checks.append(Check("log: search", True, finding))
    return Verification(
        result.episode,
        tuple(checks),
        proof_repeated=enumerated or (logged is not None and logged.complete),
        has_evidence=result.evidence.examined,
        enumerated=enumerated,
    )


def _rebuild(
    result: Result,
    episode: Episode,
    model: TransitionModel | Sequence[TransitionModel] | HasMembers,
    *,
    reward: Reward | None,
    support: Support | SupportSource | None,
) -> BaseProblem:
    result.schema.require_same(episode.schema, here="the result", there=f"episode {episode.id!r}")
    if (support is None) != (result.provenance.support is None):
        wanted = "every change had to be supported: pass support=..." if support is None else "no support was asked for"
        raise VerificationError(f"the result for episode {result.episode!r} cannot be checked so: {wanted}.")
    members = result.provenance.model.members
    if not members and not isinstance(model, TransitionModel):
        raise VerificationError(f"the result for episode {result.episode!r} is one model's, and several are given.")
    # What is checked here is the result, which says whether its model failed.
    query = result.query.with_changes(allow_failed_model=True)
    if reward is not None:
        query = query.with_changes(reward=reward)
    try:
        if members:
            problem = EnsembleProblem.from_episode(episode, model, query, support=support)
            # A list says nothing about weights; those of an ensemble must be the result's.
            listed = isinstance(model, Sequence) and len(model) == len(members)
            return replace(problem, weights=result.provenance.model.weights or None) if listed else problem
        assert isinstance(model, TransitionModel)
        return Problem.from_episode(episode, model, query, support=support)
    except IfonlyError as error:
        raise VerificationError(f"the result's question cannot be put to this model and episode: {error}") from error


def _question_of_log(result: Result, problem: BaseProblem, path: str | Path) -> Iterator[Check]:
    """A log proves what is claimed only if it answers the same question in the same way."""
    claimed = Record.read(path)
    differing = question_differences(claimed, problem)
    yield Check("log: question", not differing, f"another one: {', '.join(differing)}" if differing else "the same")
    outcomes, bounds = (claimed.array(f"best/{name}", (None,), infinite=True) for name in ("outcomes", "bounds"))
    tolerance = SLACK * problem.tolerance
    same = abs(outcomes[-1] - result.outcome) <= tolerance and bounds[-1] <= result.upper_bound + tolerance
    yield Check("log: outcome", bool(same), f"{result.outcome:.10g} claimed, {outcomes[-1]:.10g} in the log")


def _is_bounded(result: Result) -> bool:
    return math.isfinite(result.upper_bound) or result.certificate.proven


def _identity(result: Result, episode: Episode, problem: BaseProblem) -> Iterator[Check]:
    yield Check("episode", result.episode == episode.id, f"{result.episode!r} against {episode.id!r}")
    same = np.array_equal(result.observed_actions, episode.actions)
    yield Check("observed actions", same, "equal" if same else "the episode records other actions")
    fingerprint = problem.fingerprint()
    finding = f"fingerprint {result.provenance.model.fingerprint} against {fingerprint}"
    yield Check("model", result.provenance.model.fingerprint == fingerprint, finding)
    yield from _model_check(result.evidence.check, problem.standing)
    if problem.support is not None:
        # What was stored has lists where settings may have tuples.
        stored, given = (
            json.dumps(one, sort_keys=True) for one in (result.provenance.support, dict(problem.support.settings()))
        )
        yield Check("support", stored == given, "the same" if stored == given else "another one is given")


def _model_check(stored: Standing | None, kept: Standing | None) -> Iterator[Check]:
    """Of the same episodes, a check concludes the same; one made later, of others, says nothing against the result."""
    if stored is None and kept is None:
        return
    said, known = ("none" if one is None else one.verdict for one in (stored, kept))
    differ = stored is not None and kept is not None and stored.cohort == kept.cohort and said != known
    yield Check("model check", not differ, f"{said} in the result, {known} kept with the model")


def _replay(result: Result, problem: BaseProblem) -> Iterator[Check]:
    actions = torch.tensor(result.actions, device=problem.device)
    if actions.shape != problem.observed_actions.shape or not bool(
        ((actions >= 0) & (actions < problem.action_count)).all()
    ):
        yield Check("sequence", False, "not one known action per step")
        return
    steps = torch.arange(problem.horizon, device=problem.device)
    yield Check("sequence", bool(problem.allowed[steps, actions].all()), "uses allowed actions only")
    if problem.automaton.looks_back:
        kept = problem.automaton.accepts(actions.tolist())
        yield Check("rules that look back", kept, "each action may follow those before")
    changes = int(problem.changes(actions))
    yield Check("changes", changes <= result.max_changes, f"{changes}, at most {result.max_changes}")
    tolerance = SLACK * problem.tolerance
    states, totals = problem.replay(torch.stack([problem.observed_actions, actions]))
    outcomes = problem.counted(totals)
    if problem.support is not None:
        supported = bool(problem.have_support(actions.unsqueeze(0), states[1:]).all())
        yield Check("support of changes", supported, "each holds at the state where it is made")
    for name, claimed, found in (
        ("observed outcome", result.observed_outcome, float(outcomes[0])),
        ("outcome", result.outcome, float(outcomes[1])),
    ):
        yield Check(name, abs(claimed - found) <= tolerance, f"{claimed:.10g} claimed, {found:.10g} replayed")
    clipped = clipped_outcomes(problem, states, torch.stack([problem.observed_actions, actions]))
    claims = (result.observed_clipped_outcome, result.clipped_outcome)
    close = all(abs(claimed - found) <= tolerance for claimed, found in zip(claims, clipped, strict=True))
    yield Check("outcomes within plausible ranges", close, f"{claims[1]:.10g} claimed, {clipped[1]:.10g} replayed")
    # Both as people see them: values cut at the ends of a bounded scale have no single coordinate.
    columns = problem.models[0].scaler.states
    claimed_states = columns.encode(np.stack([result.observed_states, result.states]))
    shown = columns.encode(problem.decode(problem.shown_states(states, totals)))
    error = float(np.abs(shown - claimed_states).max())
    yield Check("states", error <= REPLAY_TOLERANCE, f"replayed to {error:.2g} scaled units")


def _member_outcomes(result: Result, problem: BaseProblem) -> Iterator[Check]:
    """What is said about each member of an ensemble problem."""
    if result.member_outcomes is None:
        return
    same = result.provenance.model.members == tuple(model.fingerprint() for model in problem.models)
    yield Check("members", same, f"{len(problem.models)} models with the same fingerprints" if same else "others")
    weights = problem.weights if isinstance(problem, EnsembleProblem) else None
    same = result.provenance.model.weights == (weights or ())
    yield Check("weights of members", same, "the same" if same else "others")
    listed: list[Budget | Alternative] = [*result.frontier, *result.alternatives]
    known = [one for one in listed if one.actions is not None]
    rows = np.array([result.actions, *(one.actions for one in known)])
    claimed = np.array([result.member_outcomes, *(one.member_outcomes for one in known)])
    found = problem.replay(torch.as_tensor(rows, device=problem.device))[1].cpu().numpy()
    close = np.isclose(claimed, found, rtol=0, atol=SLACK * problem.tolerance)
    yield Check("outcomes of members", bool(close.all()), f"{close.size:,} replayed, {int((~close).sum()):,} differ")


def _claims(result: Result, problem: BaseProblem) -> Iterator[Check]:
    """Status, bound and certificate must tell the same story."""
    claimed = result.certificate.tolerance
    yield Check("tolerance", claimed <= SLACK * problem.tolerance, f"outcomes compared up to {claimed:.3g}")
    proven = result.certificate.proven
    bounded = math.isfinite(result.upper_bound)
    yield Check("certificate", proven == bounded, "a bound and its proof" if proven else "neither bound nor proof")
    if result.status in (Status.OPTIMAL, Status.GAP_REACHED):
        improvement = torch.tensor(result.improvement, dtype=torch.float64)
        granted = float(result.query.limits.allowed_gap(improvement))
        allowed = granted if result.status is Status.GAP_REACHED else 0.0
        holds = proven and result.gap <= allowed + SLACK * problem.tolerance
        yield Check("gap", holds, f"{result.gap:.4g} for a result called {result.status.value!r}")
    if result.status is Status.HEURISTIC:
        yield Check("claim of optimality", not proven, "none is made")


def _bracket(
    result: Result, problem: BaseProblem, samples: int, exhaustive_up_to: int, progress: Progress
) -> Iterator[Check]:
    """Attack the bound: no rival may exceed it, and none may beat a sequence that is called optimal."""
    tolerance = SLACK * problem.tolerance
    rivals = {"greedy search": greedy_actions(problem)[1]}
    rivals[f"{samples} random sequences"] = _best_of(problem, RandomSearch(samples=samples, seed=1))
    count = problem.sequence_count()
    if count <= exhaustive_up_to:
        which = "" if problem.support is None else "supported ones of "
        rivals[f"all {which}{count:,} sequences"] = _best_of(problem, Exhaustive(), progress)
    yield Check("bracket", result.outcome <= result.upper_bound + tolerance, f"gap {result.gap:.4g}")
    for name, outcome in rivals.items():
        below = outcome <= result.upper_bound + tolerance
        yield Check(f"bound against {name}", below, f"{outcome:.10g} <= {result.upper_bound:.10g}")
    if result.status is Status.OPTIMAL:
        best = max(rivals.values())
        yield Check("optimum", best <= result.outcome + tolerance, f"no rival beats {result.outcome:.10g}")


def _best_of(problem: BaseProblem, solver: Solver, progress: Progress = silent) -> float:
    """The outcome that a solver finds; minus infinity, which is no result, is no rival either."""
    finding = solver.search(problem, Monitor(Limits(), progress, problem.tolerance))
    if finding.status is Status.INTERRUPTED:
        raise KeyboardInterrupt  # a part of the sequences proves nothing
    return problem.outcome(finding.actions) if finding.is_admissible else -math.inf


def _frontier(result: Result, problem: BaseProblem, exhaustive_up_to: int) -> Iterator[Check]:
    """Every budget's sequence must be what it is said to be, and no sequence may exceed its bound."""
    tolerance = SLACK * problem.tolerance
    known = [budget for budget in result.frontier if budget.actions is not None]
    rows = torch.as_tensor(np.array([budget.actions for budget in known]), device=problem.device)
    outcomes = problem.rollout(rows)[1].tolist()
    few_enough = (
        problem.changes(rows) <= torch.tensor([budget.max_changes for budget in known], device=problem.device)
    ).all()
    yield Check("frontier: sequences", bool(problem.admissible(rows).all() and few_enough), f"{len(known)} admissible")
    claimed = [-math.inf if budget.outcome is None else budget.outcome for budget in result.frontier]
    replayed = [-math.inf] * (len(result.frontier) - len(known)) + outcomes
    error = max((abs(one - two) for one, two in zip(claimed, replayed, strict=True) if one != two), default=0.0)
    yield Check("frontier: outcomes", error <= tolerance, f"replayed to {error:.2g}")
    rising = all(after >= before - tolerance for before, after in itertools.pairwise(claimed))
    yield Check("frontier: order", rising, "more changes never do worse")
    last = result.frontier[-1]
    same = last.actions is not None and np.array_equal(last.actions, result.actions)
    same_bound = last.upper_bound == result.upper_bound or abs(last.upper_bound - result.upper_bound) <= tolerance
    yield Check("frontier: largest budget", same and same_bound, "the result itself")
    bounds = [budget.upper_bound for budget in result.frontier]
    under = all(outcome <= bound + tolerance for outcome, bound in zip(claimed, bounds, strict=True))
    yield Check("frontier: brackets", under, "no outcome above its bound")
    if result.certificate.details.get("every_budget_proven"):
        gap = max(
            (bound - outcome for outcome, bound in zip(claimed, bounds, strict=True) if bound > outcome), default=0.0
        )
        yield Check("frontier: proven", gap <= tolerance, f"brackets closed to {gap:.2g}")
    if problem.sequence_count() <= exhaustive_up_to:
        truth = outcome_frontier(problem).tolist()
        within = all(
            outcome - tolerance <= best <= bound + tolerance or outcome == best == bound
            for outcome, best, bound in zip(claimed, truth, bounds, strict=True)
        )
        yield Check("frontier against all sequences", within, "every budget's best lies in its bracket")


def _alternatives(result: Result, problem: BaseProblem, exhaustive_up_to: int) -> Iterator[Check]:
    """Alternatives must be distinct, admissible, in order, and none may be better than the answer or missing."""
    proven = bool(result.certificate.details.get("alternatives_proven"))
    if not result.alternatives:
        if proven:
            yield Check("alternatives: proven", False, "none is listed")
        return
    tolerance = SLACK * problem.tolerance
    rows = torch.as_tensor(np.array([one.actions for one in result.alternatives]), device=problem.device)
    claimed = torch.tensor([one.outcome for one in result.alternatives], dtype=torch.float64, device=problem.device)
    distinct = len(rows.unique(dim=0)) == len(rows) and bool(problem.admissible(rows).all())
    yield Check("alternatives: sequences", distinct, f"{len(rows)} admissible ones, all different")
    error = float((problem.rollout(rows)[1] - claimed).abs().max())
    yield Check("alternatives: outcomes", error <= tolerance, f"replayed to {error:.2g}")
    ordered = bool((claimed.diff() <= tolerance).all()) and abs(float(claimed[0]) - result.outcome) <= tolerance
    yield Check("alternatives: order", ordered, "best first, and none better than the answer")
    apart, asked = (int(result.provenance.solver.get(name, 1)) for name in ("apart", "alternatives"))
    if apart > 1:
        near = int((rows.unsqueeze(0) != rows.unsqueeze(1)).sum(2).fill_diagonal_(problem.horizon).min())
        yield Check("alternatives: apart", len(rows) < 2 or near >= apart, f"they differ in at least {near} steps")
    if proven and problem.sequence_count() <= exhaustive_up_to:
        yield _completeness(result, problem) if apart == 1 else _best_apart(problem, rows, claimed, asked, apart)


def _completeness(result: Result, problem: BaseProblem) -> Check:
    """No sequence may be missing among the best; one whose last change changes no reward is none of its own."""
    outcomes = [one.outcome for one in result.alternatives]
    within = float(result.provenance.solver.get("within", 0.0))
    asked = int(result.provenance.solver.get("alternatives", len(outcomes)))
    most = MOST_WITHIN if within > 0 and asked == 1 else asked
    # A sequence may be left out for one of two reasons only: it is too far from the best, or the list is full.
    enough = max([-math.inf] + [outcomes[0] - within] * (within > 0) + [outcomes[-1]] * (len(outcomes) >= most))
    listed = {tuple(one.actions.tolist()) for one in result.alternatives}
    missing, best = 0, -math.inf
    for sequences, found in every_sequence(problem):
        rows = (found > enough + SLACK * problem.tolerance).nonzero().squeeze(-1)
        rows = rows[~_is_idle_at_the_end(problem, sequences[rows])]
        absent = [row for row in rows.tolist() if tuple(sequences[row].tolist()) not in listed]
        missing += len(absent)
        best = max([best, *found[absent].tolist()])
    finding = f"{missing:,} missing, the best of them {best:.10g}" if missing else f"none missing of {len(outcomes)}"
    return Check("alternatives against all sequences", not missing, finding)


def _best_apart(problem: BaseProblem, rows: Tensor, claimed: Tensor, asked: int, apart: int) -> Check:
    """No sequence that is far enough from the first i may be better than the next, nor be left where the list ends."""
    following = [*claimed.tolist()[1:], *([-math.inf] if len(rows) < asked else [])]
    missed = 0
    for sequences, found in every_sequence(problem):
        far = ((sequences.unsqueeze(1) != rows).sum(2) >= apart).cumprod(1).bool()  # from the first 1, 2, ...
        for place, outcome in enumerate(following):
            better = (far[:, place] & (found > outcome + SLACK * problem.tolerance)).nonzero().squeeze(-1)
            missed += int((~_is_idle_at_the_end(problem, sequences[better])).sum()) if len(better) else 0
    finding = f"{missed:,} better ones are far enough" if missed else f"each of {len(rows)} is the best far enough"
    return Check("alternatives against all sequences", not missed, finding)


def _is_idle_at_the_end(problem: BaseProblem, sequences: Tensor) -> Tensor:
    """Whether the last change of sequences [N, T] may be undone and that changes no reward [N]."""
    undone = sequences.clone()
    undone[:, -1] = problem.observed_actions[-1]
    last = problem.rollout(sequences)[0][:, -1]
    rewards = [problem.free_rewards(-1, last, rows[:, -1]).unsqueeze(-1).flatten(1) for rows in (sequences, undone)]
    same = ((rewards[0] - rewards[1]).abs() <= problem.tolerance).all(-1)
    return same & problem.admissible(undone) & (sequences[:, -1] != undone[:, -1])
