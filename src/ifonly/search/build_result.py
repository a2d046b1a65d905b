"""From what a solver found to a result: replay it, and put down everything that is needed to check it again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ifonly.data.episode import FloatArray, IntArray
from ifonly.data.scaling import within_ranges
from ifonly.errors import InputError
from ifonly.models.base import TransitionModel
from ifonly.problem import BaseProblem, EnsembleProblem, members_fingerprint
from ifonly.problem.batch import ProblemBatch
from ifonly.result import (
    Alternative,
    Budget,
    Evidence,
    ModelReference,
    Provenance,
    Result,
    Stats,
    Status,
)
from ifonly.search.base import Solution, Solver


def build_result(problem: BaseProblem, solution: Solution, *, stats: Stats, provenance: Provenance) -> Result:
    """Replay the sequences of `solution`, all together, and put everything down."""
    return _put_down(problem, solution, _replayed([problem], [solution])[0], stats, provenance)


def build_results(
    problems: Sequence[BaseProblem],
    solutions: Sequence[Solution],
    *,
    stats: Sequence[Stats],
    provenances: Sequence[Provenance],
) -> list[Result]:
    """What `build_result` gives for each of some problems that were searched together.

    On a processor every problem's sequences are replayed by calls of their own: the last digits of a product of
    matrices depend on its size, and no number of a result may depend on what else was searched. Elsewhere small calls
    take all the time, so everything is replayed in one pass, and results differ by rounding (`Problem.tolerance`).
    """
    if problems[0].device.type == "cpu":
        replayed = [_replayed([one], [found])[0] for one, found in zip(problems, solutions, strict=True)]
    else:
        replayed = _replayed(problems, solutions)
    parts = zip(problems, solutions, replayed, stats, provenances, strict=True)
    return [_put_down(*part) for part in parts]


def _put_down(
    problem: BaseProblem, solution: Solution, replayed: _Replayed, stats: Stats, provenance: Provenance
) -> Result:
    if not solution.is_admissible:
        raise _nothing_supported(problem, solution.status)
    if math.isnan(solution.upper_bound):
        raise InputError("a solver returned NaN as its upper bound; a bound must be a number or infinite.")
    observed_outcome, outcome = replayed.outcomes[:2]
    if outcome == -math.inf:
        raise _nothing_finite(problem, solution.status)
    shown = problem.decode(problem.shown_states(replayed.states[:2], replayed.totals[:2]))
    certificate = solution.certificate
    others = iter(range(2, len(replayed.outcomes)))
    actions, observed_actions = replayed.sequences[1], replayed.sequences[0]
    changed = (actions != observed_actions).nonzero()[0].tolist()
    return Result(
        episode=problem.episode.id,
        subject=problem.episode.subject,
        status=solution.status,
        actions=actions.copy(),
        observed_actions=observed_actions.copy(),
        states=shown[1],
        observed_states=shown[0],
        outcome=outcome,
        observed_outcome=observed_outcome,
        clipped_outcome=replayed.clipped[1],
        observed_clipped_outcome=replayed.clipped[0],
        upper_bound=_above(solution.upper_bound, outcome, problem),
        certificate=replace(certificate, details={**certificate.details, **problem.claims()}),
        stats=stats,
        provenance=provenance,
        member_outcomes=replayed.members(1),
        frontier=tuple(_budget(problem, one, replayed, others) for one in solution.frontier),
        alternatives=tuple(_alternative(one, replayed, others) for one in solution.alternatives),
        evidence=Evidence(changed_steps=tuple(changed), check=problem.standing),
    )


def provenance_of(problem: BaseProblem, solver: Solver) -> Provenance:
    """What all answers of this problem's model and query rest on."""
    return Provenance(
        query=problem.query,
        schema=problem.episode.schema,
        model=_asked(problem),
        solver={"name": solver.name, **solver.settings()},
        support=None if problem.support is None else dict(problem.support.settings()),
    )


def _asked(problem: BaseProblem) -> ModelReference:
    if isinstance(problem, EnsembleProblem):
        return members_reference(problem.models, problem.weights)
    return model_reference(problem.models[0])


def model_reference(model: TransitionModel) -> ModelReference:
    """The one model that was asked."""
    return ModelReference(model.kind or type(model).__qualname__, model.fingerprint())


def members_reference(models: Sequence[TransitionModel], weights: Sequence[float] | None) -> ModelReference:
    """The members of an ensemble problem, which were asked together, each with its weight."""
    kind = models[0].kind or type(models[0]).__qualname__
    fingerprints = tuple(model.fingerprint() for model in models)
    return ModelReference(kind, members_fingerprint(fingerprints, weights), fingerprints, tuple(weights or ()))


@dataclass(frozen=True)
class _Replayed:
    """The sequences of one problem - observed, chosen, and those listed - with what they lead to, on the processor."""

    sequences: IntArray  # [n, T]
    states: Tensor  # [n, T, (M,) D]
    totals: Tensor  # [n, (M,)]
    outcomes: list[float]
    clipped: list[float]

    def members(self, row: int) -> FloatArray | None:
        """The outcome under each member [M] of an ensemble problem."""
        return self.totals[row].numpy() if self.totals.dim() > 1 else None


def _replayed(problems: Sequence[BaseProblem], solutions: Sequence[Solution]) -> list[_Replayed]:
    """The sequences of every solution, replayed in one pass, each of a problem's once.

    The last digits of a replay depend on its place in the pass. A sequence that is listed twice, such as the recorded
    one as the best without changes, has one outcome all the same.
    """
    first = problems[0]
    rows = [_sequences(problem, solution) for problem, solution in zip(problems, solutions, strict=True)]
    distinct, inverse = zip(*(np.unique(one, axis=0, return_inverse=True) for one in rows), strict=True)
    places = [place.reshape(-1) for place in inverse]  # NumPy 2.0.0 alone gives columns
    counts = [len(one) for one in distinct]
    sequences = torch.as_tensor(np.concatenate(distinct), device=first.device)
    batch = first.as_batch if len(problems) == 1 else ProblemBatch(problems)
    owner = torch.arange(len(problems)).repeat_interleave(torch.tensor(counts)).to(first.device)
    paths = batch.rollout(owner, sequences)
    clipped = torch.tensor(clipped_outcomes(first, paths.states, sequences), dtype=torch.float64)
    parts = [values.cpu().split(counts) for values in (paths.states, paths.totals, paths.outcomes, clipped)]
    return [
        _Replayed(listed, states[place], totals[place], outcomes[place].tolist(), within[place].tolist())
        for listed, place, states, totals, outcomes, within in zip(rows, places, *parts, strict=True)
    ]


def _sequences(problem: BaseProblem, solution: Solution) -> IntArray:
    """What is replayed for a problem [n, T]: the recorded sequence, the answer, and what is listed beside it."""
    listed: list[Budget | Alternative] = [*solution.frontier, *solution.alternatives]
    known = [one.actions for one in listed if one.actions is not None]
    return np.stack([problem.episode.actions, solution.actions.cpu().numpy(), *known])


def clipped_outcomes(problem: BaseProblem, states: Tensor, actions: Tensor) -> list[float]:
    """Outcomes of action sequences [B, T] with the states [B, T, (M,) D] that they reach brought back into the
    features' plausible ranges; no cost of changes."""
    columns = problem.models[0].scaler.states
    shown = within_ranges(problem.episode.schema.dynamic, columns.decode(states.cpu().numpy()))
    clipped = torch.as_tensor(columns.encode(shown), device=problem.device)
    outcomes: list[float] = problem.counted(problem.free_rewards(slice(None), clipped, actions).sum(1)).tolist()
    return outcomes


def _budget(problem: BaseProblem, one: Budget, replayed: _Replayed, rows: Any) -> Budget:
    if one.actions is None:
        return one
    row = next(rows)
    outcome = replayed.outcomes[row]
    return replace(
        one,
        outcome=outcome,
        clipped_outcome=replayed.clipped[row],
        upper_bound=_above(one.upper_bound, outcome, problem),
        member_outcomes=replayed.members(row),
    )


def _alternative(one: Alternative, replayed: _Replayed, rows: Any) -> Alternative:
    row = next(rows)
    return replace(one, outcome=replayed.outcomes[row], member_outcomes=replayed.members(row))


def _above(upper_bound: float, outcome: float, problem: BaseProblem) -> float:
    """The upper bound, or the outcome itself where they differ by no more than rounding."""
    return upper_bound if upper_bound > outcome + problem.tolerance else outcome


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
