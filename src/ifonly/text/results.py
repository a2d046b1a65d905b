"""What a result claims, in words; nothing stronger than its certificate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ifonly.data.schema import step_and_moment
from ifonly.objective import Objective
from ifonly.text.catalogue import Message, say
from ifonly.text.numbers import outcomes, shortened_middle

if TYPE_CHECKING:
    from ifonly.result import Result


def objective_message(objective: Objective, count: int, of: str = "members") -> Message:
    """What counts of the outcomes of several models: "members" of an ensemble, or "refits" as pages call them.

    >>> str(objective_message(Objective(0.1), 20))
    'the lower 0.1-quantile of 20 members (number 2 from below)'
    >>> str(objective_message(Objective("mean", (0.2, 0.8)), 2))
    'the weighted mean over 2 members'
    """
    goal, values = objective.goal, dict[str, Any]({"count": count, "of": Message(f"objective.of.{of}")})
    if isinstance(goal, str):
        weighted = goal == "mean" and objective.weights is not None
        return Message("objective.weighted mean" if weighted else f"objective.{goal}", values)
    rank = objective.rank(count)
    if rank is None:
        return Message("objective.weighted quantile", {**values, "level": f"{goal:g}"})
    place = Message("rank.smallest") if rank == 1 else Message("rank.from below", {"rank": rank})
    return Message("objective.quantile", {**values, "level": f"{goal:g}", "rank": place})


def statement(result: Result) -> str:
    """What is claimed, in a sentence."""
    check = result.evidence.check
    claim = _claim(result)
    return say("claim.failed model", claim=claim) if check is not None and check.failed else claim


def _claim(result: Result) -> str:
    if result.status.at_limit and math.isinf(result.upper_bound):
        return say("claim.without bound", status=result.status.value)
    supported = result.provenance.support is not None
    claim = say(
        f"claim.{result.status.value}",
        which=say("which.supported" if supported else "which.admissible"),
        whom=_whom(result),
    )
    method = result.certificate.method
    led_apart = result.status.at_limit and method in ("enumeration", "Lipschitz anchors")
    return say("claim.led apart", claim=claim, method=method[0].upper() + method[1:]) if led_apart else claim


def _whom(result: Result) -> str:
    objective = _objective(result)
    return say("whom.model") if objective is None else say("whom.members", objective=objective)


def _objective(result: Result) -> Message | None:
    """What counts of the members' outcomes; None where one model was asked."""
    asked, goal = result.provenance.model, result.query.objective
    if not asked.members or goal is None:
        return None
    return objective_message(Objective(goal, asked.weights or None), len(asked.members))


def result_lines(result: Result) -> str:
    """One line about the answer, and one for each change."""
    found = result.shown[1]
    before, after = outcomes(*(shown.value for shown in result.shown))
    nodes = result.stats.nodes_expanded
    head = say(
        "line.head",
        status=result.status.value,
        changes=len(result.changes),
        max_changes=result.max_changes,
        label=found.label,
        observed=before,
        found=after,
        relative=_moved(result),
        bound=_bound(result),
        nodes=f"{nodes:,}",
        count=nodes,
        seconds=f"{result.stats.seconds:.2f}",
    )
    objective = _objective(result)
    if objective is not None:
        head += say("line.objective", objective=objective)
    if result.evidence.check is not None:
        head += say("line.check", verdict=result.evidence.check.verdict)
    return "\n".join([head, *_change_lines(result)])


def figure_title(result: Result) -> str:
    """Whose course, what came of it, and with how many changes: above a figure."""
    found = result.shown[1]
    before, after = outcomes(*(shown.value for shown in result.shown))
    name = shortened_middle(result.episode, 30)
    if not result.changes:
        return say("headline.unchanged", name=name, label=found.label, observed=before)
    return say(
        "headline",
        name=name,
        label=found.label,
        observed=before,
        found=after,
        relative=_moved(result),
        changes=len(result.changes),
    )


def _moved(result: Result) -> str:
    """By how much the shown outcome rises or falls, in brackets; nothing where that is not known."""
    moved = result.shown_improvement.moved
    return "" if moved is None else say("line.relative", moved=f"{moved:+.1%}")


def _bound(result: Result) -> str:
    if math.isinf(result.upper_bound):
        return say("line.no bound")
    if result.proven:
        return say("line.closed")
    share = "" if result.relative_gap is None else say("line.gap share", share=_percent(result.relative_gap))
    return say("line.gap", gap=f"{result.gap:.4g}", share=share)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:,.0f} %"


def _change_lines(result: Result) -> list[str]:
    space = result.schema.actions
    return [
        say(
            "line.change",
            when=step_and_moment(result.schema, change.step),
            change=space.describe_change(change.observed, change.counterfactual),
        )
        for change in result.changes
    ]
