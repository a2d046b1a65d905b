"""From what a branch-and-bound search knows when it ends to what it claims about each problem."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ifonly.bounds.base import NoChildBound
from ifonly.bounds.factory import observed_bounds
from ifonly.bounds.lipschitz import AnchorBound
from ifonly.bounds.reach import METHOD as REACHABLE
from ifonly.errors import InputError
from ifonly.problem import BaseProblem
from ifonly.problem.batch import drop_idle_changes
from ifonly.result import Alternative, Budget, Certificate, Status
from ifonly.rewards import declared_constants
from ifonly.search.base import Solution, if_useful
from ifonly.search.tree import Tree, granted, upper_bounds


@dataclass(frozen=True)
class _Answers:
    """The sequences of one problem, one per budget, without idle changes."""

    sequences: Tensor  # [K+1, T]
    outcomes: list[float]
    are_known: list[bool]
    upper_bounds: list[float]
    open_nodes: int
    """How many were left unexplored."""
    rest_on_anchors: bool = False
    """Whether an upper bound is that of Lipschitz anchors, where the search had come to none of its own."""


def finalize(tree: Tree, stopped: Status | None) -> list[Solution]:
    """One solution per problem, of a search that came to its end or was `stopped` by a limit."""
    batch, upper, ranking = tree.batch, upper_bounds(tree), tree.ranking
    count, budgets = upper.shape
    problem = torch.arange(count, device=batch.device).repeat_interleave(budgets)
    chosen = tree.incumbents.sequences[problem, tree.incumbents.simplest().flatten()].to(torch.int64)
    sequences, outcomes = drop_idle_changes(batch, problem, chosen)
    known = tree.incumbents.by_budget() > -torch.inf
    if ranking is not None:
        some = known.flatten()
        ranking.offer(problem[some], outcomes[some], sequences[some].to(torch.int16))
    rows_of = zip(
        sequences.view(count, budgets, -1),
        outcomes.view(count, budgets).tolist(),
        known.tolist(),
        upper.tolist(),
        tree.open_list.counts().tolist(),
        strict=True,
    )
    return [_solution(tree, stopped, number, _Answers(*parts)) for number, parts in enumerate(rows_of)]


def _solution(tree: Tree, stopped: Status | None, number: int, answers: _Answers) -> Solution:
    problem = tree.batch.problems[number]
    answers = _bracketed(problem, answers, granted(tree)[number])
    actions = answers.sequences[-1] if answers.are_known[-1] else problem.nearest_actions
    upper_bound = answers.upper_bounds[-1]
    finished = stopped is None and not bool(tree.at_node_limit[number])
    return Solution(
        actions=actions,
        status=_status(tree, number, upper_bound) or stopped or Status.NODE_LIMIT,
        upper_bound=upper_bound,
        certificate=_certificate(tree, number, answers, finished=finished),
        frontier=_frontier(answers),
        alternatives=_alternatives(tree, number, actions, answers.outcomes[-1]),
        is_admissible=answers.are_known[-1] or bool(problem.admissible(actions.unsqueeze(0)).all()),
    )


def _bracketed(problem: BaseProblem, answers: _Answers, gap: Tensor) -> _Answers:
    """With finite upper bounds, where there are Lipschitz constants: anchors on the observed path give some.

    A search that is stopped early, or has many changes to go, may know none; one that came to its end needs none.
    """
    if not any(bound == math.inf for bound in answers.upper_bounds):
        return answers
    try:
        bounds = observed_bounds(problem).tolist()
    except InputError:  # no finite constants
        return answers
    # Where the optimum is known already, rounding must not put the bound below it.
    found = [value if known else -math.inf for value, known in zip(answers.outcomes, answers.are_known, strict=True)]
    anchored, outcomes = torch.tensor([bounds, found], dtype=torch.float64)
    plausible = torch.full_like(outcomes, problem.plausible_outcome)
    gained = torch.maximum(outcomes - problem.observed_outcome, gap.to(outcomes))
    bounds = if_useful(torch.maximum(anchored, outcomes), outcomes, plausible, gained).tolist()
    smaller = [min(pair) for pair in zip(answers.upper_bounds, bounds, strict=True)]
    return replace(answers, upper_bounds=smaller, rest_on_anchors=smaller != answers.upper_bounds)


def _status(tree: Tree, number: int, upper_bound: float) -> Status | None:
    """What the bracket alone says; None where it is open."""
    tolerance = tree.batch.problems[number].tolerance
    best = float(tree.incumbents.best[number].max())
    if not upper_bound > best + tolerance:
        return Status.OPTIMAL
    if not upper_bound > best + float(granted(tree)[number, -1]):
        return Status.GAP_REACHED
    return None


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


def _alternatives(tree: Tree, number: int, actions: Tensor, outcome: float) -> tuple[Alternative, ...]:
    """The ranked sequences; the answer itself comes first, whatever rounding says."""
    if tree.ranking is None:
        return ()
    sequences, outcomes = tree.ranking.of(number)
    others = (sequences != actions).any(1)
    rest = zip(sequences[others].cpu().numpy(), outcomes[others].tolist(), strict=True)
    listed = [Alternative(actions.cpu().numpy(), outcome), *(Alternative(row, value) for row, value in rest)]
    return tuple(listed[: max(1, len(sequences))])


def _certificate(tree: Tree, number: int, answers: _Answers, *, finished: bool) -> Certificate:
    bound, problem = tree.bound, tree.batch.problems[number]
    complete = finished and bool((granted(tree)[number] <= problem.tolerance).all())
    details: dict[str, Any] = {} if bound is None else dict(bound.details(number))
    details |= {
        "open": answers.open_nodes,
        "depth_first": tree.open_list.depth_first,
        "every_budget_proven": complete,
    }
    if tree.ranking is not None:
        details |= {
            "alternatives_proven": complete,
            "alternatives_cut": bool(tree.ranking.is_cut()[number]),
        }
    outer = tree.outer_bounds[number].tolist()
    if answers.rest_on_anchors:
        details["upper_bounds_from"] = AnchorBound.method
    elif any(one == other < math.inf for one, other in zip(answers.upper_bounds, outer, strict=True)):
        details["upper_bounds_from"] = REACHABLE
    declared = declared_constants(problem.reward)
    if declared and (answers.rest_on_anchors or (bound is not None and bound.rests_on_constants)):
        details["relies_on_declared_constants_of"] = declared
    return Certificate(
        method=NoChildBound.method if bound is None else bound.method,
        proven=math.isfinite(answers.upper_bounds[-1]),
        tolerance=problem.tolerance,
        details=details,
    )
