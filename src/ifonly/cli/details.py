"""What a command line tells beside the best sequence: other budgets, a target, other sequences, contributions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

import ifonly
from ifonly.cli.frame import Output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ifonly.search.contributions import Contributions


BESIDE = ("target", "contributions")
"""Entries of a document that are not the result's own."""


@dataclass(frozen=True)
class Details:
    """What was asked for; alternatives are told wherever a result has them."""

    all_budgets: bool = False
    target: float | None = None
    """A value to reach, as the result shows outcomes."""

    def __post_init__(self) -> None:
        if self.target is not None and not math.isfinite(self.target):
            raise typer.BadParameter(f"--target {self.target}: give a finite number.")

    def check(self, query: ifonly.Query) -> None:
        """Refuse what this query's answers cannot tell."""
        if self.target is not None and query.change_cost:
            raise typer.BadParameter("--target counts changes itself; leave change_cost out of the query file.")
        from ifonly.query import BRANCH_AND_BOUND

        solver = query.solver["name"]
        if (self.all_budgets or self.target is not None) and solver != BRANCH_AND_BOUND:
            option = "--all-budgets" if self.all_budgets else "--target"
            raise typer.BadParameter(f"{option} means nothing to the solver {solver}, which the query file names.")

    def document(self, result: ifonly.Result, contributions: Contributions | None) -> dict[str, Any]:
        """What JSON tells beside the result's own entries, which hold frontier and alternatives already."""
        content: dict[str, Any] = {}
        if self.target is not None:
            reached, proven = target_reached(result, self.target)
            content["target"] = {"value": self.target, "fewest_changes": reached, "proven": proven}
        if contributions is not None:
            content["contributions"] = contributions.to_dict()
        return content

    def shown(self, result: ifonly.Result, contributions: Contributions | None) -> list[RenderableType]:
        """The same for people: headings and tables."""
        from ifonly.report.tables import alternatives_table, contributions_table, frontier_table

        items: list[RenderableType] = []
        if self.all_budgets:
            items += [f"\n{result.episode}, the best for every number of changes:", frontier_table(result)]
        if self.target is not None:
            items += ["", f"{result.episode}, {in_words(result, self.target)}"]
        if result.alternatives:
            items += [f"\n{result.episode}, {_alternatives_heading(result)}:", alternatives_table(result)]
        if contributions is not None:
            items += [f"\n{result.episode}, what each change gains:", contributions_table(result, contributions)]
        return items


def target_reached(result: ifonly.Result, target: float) -> tuple[int | None, bool]:
    """The fewest changes known to reach a shown value, None where none are; and whether that is proven."""
    outcome = target if result.shown[1].higher_is_better else -target
    reached = result.fewest_changes(outcome)
    beaten = [budget for budget in result.frontier if reached is None or budget.max_changes < reached.max_changes]
    return None if reached is None else reached.max_changes, all(budget.upper_bound < outcome for budget in beaten)


def in_words(result: ifonly.Result, target: float) -> str:
    """Which budget reaches a shown value, and with which changes."""
    from ifonly.data.schema import step_and_moment
    from ifonly.report.tables import changes_in_words, shown_value

    shown = result.shown[1]
    wanted = f"{shown.label} of at {'least' if shown.higher_is_better else 'most'} {target:g}"
    fewest, proven = target_reached(result, target)
    if fewest is None:
        if proven:
            changes = f"{result.max_changes} change{'' if result.max_changes == 1 else 's'}"
            return f"{wanted}: no sequence with at most {changes} reaches it."
        return f"{wanted}: nothing found that reaches it; the search ended before that was decided."
    budget = result.frontier[fewest]
    assert budget.outcome is not None
    assert budget.actions is not None
    value = f"{shown_value(result, budget.outcome, budget.actions):.6g}"
    if fewest == 0:
        return f"{wanted}: reached without any change ({value})."
    certainty = "and with no fewer" if proven else "perhaps also with fewer: that is not decided"
    head = f"{wanted}: reached with {fewest} change{'' if fewest == 1 else 's'} ({value}), {certainty}."
    listed = changes_in_words(result, budget.actions)
    lines = [f"  {step_and_moment(result.schema, step)}: {words}" for step, words in listed]
    return "\n".join([head, *lines])


def _alternatives_heading(result: ifonly.Result) -> str:
    details = result.certificate.details
    count = len(result.alternatives)
    heading = "the best sequence" if count == 1 else f"the {count} best sequences"
    if not details.get("alternatives_proven", False):
        return f"{heading} found (others as good may exist)"
    return f"{heading} (there are more as close)" if details.get("alternatives_cut", False) else heading


def show_evidence(result: ifonly.Result, output: Output, *, full: bool) -> None:
    """What speaks for an answer and against it: all of it, or in a line."""
    from ifonly.text.evidence import evidence_line, evidence_lines

    told = "\n".join(evidence_lines(result)) if full else evidence_line(result)
    output.show(f"{result.episode}, evidence: {told}")
