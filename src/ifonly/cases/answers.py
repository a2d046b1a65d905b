"""What a search found about an episode, as a reviewer sees it: courses, bounds, claims, contributions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ifonly.cases import words
from ifonly.cases.courses import Course, courses_of, finite
from ifonly.data.episode import IntArray
from ifonly.errors import InputError
from ifonly.problem import BaseProblem
from ifonly.result import Budget, Status
from ifonly.search.contributions import MOST_CHANGES, contributions

ROUNDING = 1e-7
"""Gaps of at most this size, relative to the outcome, are none."""


@dataclass(frozen=True)
class BudgetCourse:
    """The best found with at most `max_changes` changes."""

    max_changes: int
    course: Course | None
    """None where no sequence with so few changes keeps the rules."""
    best_possible: float | None
    proven: bool
    statement: str
    """What is claimed, as for the whole answer."""

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return {
            "max_changes": self.max_changes,
            "course": None if self.course is None else self.course.to_dict(),
            "best_possible": self.best_possible,
            "proven": self.proven,
            "statement": self.statement,
        }


@dataclass(frozen=True)
class ChangeContribution:
    """What one change of the best course contributes, in units of the outcome as shown; positive is better."""

    step: int
    at: float
    words: str
    alone: float
    lost_without: float
    share: float


@dataclass(frozen=True)
class Answer:
    """What could have happened, and how sure that is. Outcomes are as people read them."""

    status: Status
    proven: bool
    statement: str
    best: Course
    best_possible: float | None
    """No sequence does better than this; None where that is not known."""
    gap: float | None
    budgets: tuple[BudgetCourse, ...]
    """For 0, 1, ... changes; empty where the solver answers one budget only."""
    alternatives: tuple[Course, ...]
    """Best first, the best one among them."""
    alternatives_proven: bool
    """Whether they are the best ones, or merely those found."""
    contributions: tuple[ChangeContribution, ...]
    """In the order of steps; their shares add up to the gain. Empty for more than twelve changes."""
    work: Mapping[str, Any]
    """nodes, seconds, method."""

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return {
            "status": self.status.value,
            "proven": self.proven,
            "statement": self.statement,
            "best": self.best.to_dict(),
            "best_possible": self.best_possible,
            "gap": self.gap,
            "budgets": [budget.to_dict() for budget in self.budgets],
            "alternatives": [course.to_dict() for course in self.alternatives],
            "alternatives_proven": self.alternatives_proven,
            "contributions": [asdict(one) for one in self.contributions],
            "work": dict(self.work),
        }


@dataclass(frozen=True)
class Found:
    """What a search found, whether it was read from a result or from a row of a run."""

    status: Status
    actions: IntArray  # [T]
    upper_bound: float
    method: str | None
    """What the upper bound rests on; None where nothing is proven."""
    frontier: Sequence[Budget]
    nodes: int
    seconds: float
    alternatives: Sequence[IntArray] = ()
    alternatives_proven: bool = False


def answered(problem: BaseProblem, found: Found) -> tuple[Course, Answer, words.Claim]:
    """The recorded course and the answer, with what it claims; all courses are replayed together."""
    budgets = [budget.actions for budget in found.frontier if budget.actions is not None]
    sequences = [problem.episode.actions, found.actions, *budgets, *found.alternatives]
    observed, best, *others = courses_of(problem, sequences)
    outcome = problem.outcome(found.actions)
    gap = max(0.0, found.upper_bound - outcome)
    claim = words.Claim(
        status=found.status,
        proven=found.status is Status.OPTIMAL and found.method is not None and _is_closed(gap, outcome),
        gap=gap if found.method is not None else math.inf,
        differs=bool(best.changes),
    )
    answer = Answer(
        status=found.status,
        proven=claim.proven,
        statement=words.statement(problem, claim),
        best=best,
        best_possible=best.outcome if claim.proven else _shown_bound(problem, outcome + claim.gap, problem.max_changes),
        gap=0.0 if claim.proven else finite(claim.gap),
        budgets=tuple(_budgets(problem, found, claim, others[: len(budgets)])),
        alternatives=tuple(others[len(budgets) :]),
        alternatives_proven=found.alternatives_proven and claim.proven,
        contributions=_contributions(problem, best),
        work={
            "nodes": found.nodes,
            "seconds": found.seconds,
            "method": "no proof" if found.method is None else words.METHODS.get(found.method, found.method),
        },
    )
    return observed, answer, claim


def _is_closed(gap: float, outcome: float) -> bool:
    """Whether a gap is mere rounding: of the search, of replaying, of leaving out changes that bring nothing."""
    return gap <= ROUNDING * max(1.0, abs(outcome))


def _shown_bound(problem: BaseProblem, upper_bound: float, changes: int) -> float | None:
    """An outcome as shown that none exceeds; bounds count the cost of changes, outcomes as shown do not."""
    return finite(problem.reward.show(upper_bound + problem.change_cost * changes).value)


def _budgets(problem: BaseProblem, found: Found, claim: words.Claim, courses: Sequence[Course]) -> list[BudgetCourse]:
    remaining = iter(courses)
    fewest = int(problem.changes(problem.nearest_actions))
    listed = []
    for budget in found.frontier:
        if budget.actions is None or budget.outcome is None:
            said = words.no_sequence(problem, budget.max_changes)
            listed.append(BudgetCourse(budget.max_changes, None, None, budget.max_changes < fewest, said))
            continue
        course = next(remaining)
        is_last = budget.max_changes == problem.max_changes
        gap = budget.upper_bound - budget.outcome
        proven = claim.proven if is_last else _is_closed(gap, budget.outcome)
        possible = course.outcome if proven else _shown_bound(problem, budget.upper_bound, budget.max_changes)
        own = claim if is_last else replace(claim, proven=proven, gap=max(0.0, gap), differs=bool(course.changes))
        said = words.statement(problem, own, budget.max_changes)
        listed.append(BudgetCourse(budget.max_changes, course, possible, proven, said))
    return listed


def _contributions(problem: BaseProblem, best: Course) -> tuple[ChangeContribution, ...]:
    """Shared out without the cost of changes, as outcomes are shown."""
    if len(best.changes) > MOST_CHANGES:
        return ()
    try:
        shared = contributions(problem.with_query(change_cost=0.0), best.actions)
    except InputError:  # a part of the changes alone has no finite outcome
        return ()
    size = abs(problem.reward.show(1.0).value - problem.reward.show(0.0).value)
    found = tuple(
        ChangeContribution(
            step=change.step,
            at=change.at,
            words=change.words,
            alone=size * one.alone,
            lost_without=size * one.lost_without,
            share=size * one.share,
        )
        for change, one in zip(best.changes, shared.changes, strict=True)
    )
    return found if all(math.isfinite(value) for value in shared.outcomes.values()) else ()
