"""From what a branch-and-bound search knows when it ends to what it claims about each problem."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ifonly.bounds.base import ChildBound, NoChildBound
from ifonly.bounds.factory import observed_bounds
from ifonly.bounds.lipschitz import AnchorBound
from ifonly.errors import InputError
from ifonly.problem.batch import ProblemBatch, drop_idle_changes
from ifonly.result import Alternative, Budget, Certificate, Status
from ifonly.rewards import declared_constants
from ifonly.search.base import Solution
from ifonly.search.incumbents import Incumbents, Ranking


@dataclass(frozen=True)
class Knowledge:
    """What is known about P problems when their search ends, finished or not."""

    questions: ProblemBatch
    incumbents: Incumbents
    ranking: Ranking | None
    upper_bounds: Tensor  # [P, K+1]
    open_counts: Tensor  # [P]
    stopped: Status | None
    """What ended the search of all; None when it came to its end."""
    stopped_by_nodes: Tensor  # [P]
    depth_first: bool
    bound: ChildBound | None
    gap: float


@dataclass(frozen=True)
class _Answers:
    """The sequences of one problem, one per budget, without idle changes."""

    sequences: Tensor  # [K+1, T]
    outcomes: list[float]
    are_known: list[bool]
    upper_bounds: list[float]
    rest_on_anchors: bool = False
    """Whether an upper bound is that of Lipschitz anchors, where the search had come to none of its own."""


def finalize(knowledge: Knowledge) -> list[Solution]:
    """One finding per problem."""
    questions, count, budgets = knowledge.questions, *knowledge.upper_bounds.shape
    problem = torch.arange(count, device=questions.device).repeat_interleave(budgets)
    chosen = knowledge.incumbents.sequences[problem, knowledge.incumbents.simplest().flatten()].to(torch.int64)
    sequences, outcomes = drop_idle_changes(questions, problem, chosen)
    known = knowledge.incumbents.by_budget() > -torch.inf
    if knowledge.ranking is not None:
        some = known.flatten()
        knowledge.ranking.offer(problem[some], outcomes[some], sequences[some].to(torch.int16))
    rows_of = zip(
        sequences.view(count, budgets, -1),
        outcomes.view(count, budgets).tolist(),
        known.tolist(),
        knowledge.upper_bounds.tolist(),
        strict=True,
    )
    return [_finding(knowledge, number, _Answers(*parts)) for number, parts in enumerate(rows_of)]


def _finding(knowledge: Knowledge, number: int, answers: _Answers) -> Solution:
    answers = _bracketed(knowledge, number, answers)
    question = knowledge.questions.problems[number]
    actions = answers.sequences[-1] if answers.are_known[-1] else question.nearest_actions
    upper_bound = answers.upper_bounds[-1]
    return Solution(
        actions=actions,
        status=_status(knowledge, number, upper_bound),
        upper_bound=upper_bound,
        certificate=_certificate(knowledge, number, answers),
        frontier=_frontier(answers),
        alternatives=_alternatives(knowledge, number, actions, answers.outcomes[-1]),
        is_admissible=answers.are_known[-1] or bool(question.admissible(actions.unsqueeze(0)).all()),
    )


def _bracketed(knowledge: Knowledge, number: int, answers: _Answers) -> _Answers:
    """With finite upper bounds, where there are Lipschitz constants: anchors on the observed path give some.

    A search that is stopped early, or has many changes to go, may know none; one that came to its end needs none.
    """
    problem = knowledge.questions.problems[number]
    if not any(bound == math.inf for bound in answers.upper_bounds):
        return answers
    try:
        bounds = observed_bounds(problem).tolist()
    except InputError:  # no finite constants
        return answers
    # Where the optimum is known already, rounding must not put the bound below it.
    found = [value if known else -math.inf for value, known in zip(answers.outcomes, answers.are_known, strict=True)]
    smaller = [min(own, max(pair)) for own, *pair in zip(answers.upper_bounds, bounds, found, strict=True)]
    return replace(answers, upper_bounds=smaller, rest_on_anchors=smaller != answers.upper_bounds)


def _status(knowledge: Knowledge, number: int, upper_bound: float) -> Status:
    tolerance = knowledge.questions.problems[number].tolerance
    best = float(knowledge.incumbents.best[number].max())
    if not upper_bound > best + tolerance:
        return Status.OPTIMAL
    if not upper_bound > best + max(tolerance, knowledge.gap):
        return Status.GAP_REACHED
    return knowledge.stopped or Status.NODE_LIMIT


def _is_finished(knowledge: Knowledge, number: int) -> bool:
    return knowledge.stopped is None and not bool(knowledge.stopped_by_nodes[number])


def _frontier(answers: _Answers) -> tuple[Budget, ...]:
    rows = answers.sequences.cpu().numpy()
    return tuple(
        Budget(
            max_changes=budget,
            outcome=answers.outcomes[budget] if known else None,
            clipped_outcome=None,
            actions=rows[budget].copy() if known else None,
            upper_bound=max(answers.upper_bounds[budget], answers.outcomes[budget] if known else -math.inf),
        )
        for budget, known in enumerate(answers.are_known)
    )


def _alternatives(knowledge: Knowledge, number: int, actions: Tensor, outcome: float) -> tuple[Alternative, ...]:
    """The ranked sequences; the answer itself comes first, whatever rounding says."""
    if knowledge.ranking is None:
        return ()
    sequences, outcomes = knowledge.ranking.of(number)
    others = (sequences != actions).any(1)
    rest = zip(sequences[others].cpu().numpy(), outcomes[others].tolist(), strict=True)
    listed = [Alternative(actions.cpu().numpy(), outcome), *(Alternative(row, value) for row, value in rest)]
    return tuple(listed[: max(1, len(sequences))])


def _certificate(knowledge: Knowledge, number: int, answers: _Answers) -> Certificate:
    bound, tolerance = knowledge.bound, knowledge.questions.problems[number].tolerance
    complete = _is_finished(knowledge, number) and knowledge.gap <= tolerance
    details: dict[str, Any] = {} if bound is None else dict(bound.details(number))
    details |= {
        "open": int(knowledge.open_counts[number]),
        "depth_first": knowledge.depth_first,
        "every_budget_proven": complete,
    }
    if knowledge.ranking is not None:
        details |= {
            "alternatives_proven": complete,
            "alternatives_cut": bool(knowledge.ranking.is_cut()[number]),
        }
    if answers.rest_on_anchors:
        details["upper_bounds_from"] = AnchorBound.method
    declared = declared_constants(knowledge.questions.problems[number].reward)
    if declared and (answers.rest_on_anchors or (bound is not None and bound.rests_on_constants)):
        details["relies_on_declared_constants_of"] = declared
    return Certificate(
        method=NoChildBound.method if bound is None else bound.method,
        proven=math.isfinite(answers.upper_bounds[-1]),
        tolerance=tolerance,
        details=details,
    )
