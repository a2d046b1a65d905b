"""What `solve` shows beside the best sequence: other budgets, a target, alternatives, contributions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

import ifonly
from ifonly.cli.frame import Output
from ifonly.text.catalogue import say

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ifonly.search.contributions import Contributions


BESIDE = ("target", "contributions")
"""Entries of a document that do not belong to the result."""


@dataclass(frozen=True)
class Details:
    """Which details were asked for; alternatives are shown wherever a result has them."""

    all_budgets: bool = False
    target: float | None = None
    """The outcome to reach, in the units in which results show outcomes."""

    def __post_init__(self) -> None:
        if self.target is not None and not math.isfinite(self.target):
            raise typer.BadParameter(f"--target {self.target}: give a finite number.")

    def check(self, query: ifonly.Query) -> None:
        """Refuse details that answers to this query do not have."""
        if self.target is not None and query.change_cost:
            raise typer.BadParameter("--target counts changes itself; leave change_cost out of the query file.")
        from ifonly.query import BRANCH_AND_BOUND

        solver = query.solver["name"]
        if (self.all_budgets or self.target is not None) and solver != BRANCH_AND_BOUND:
            option = "--all-budgets" if self.all_budgets else "--target"
            raise typer.BadParameter(f"{option} needs branch-and-bound; the query file names the solver {solver}.")

    def document(self, result: ifonly.Result, contributions: Contributions | None) -> dict[str, Any]:
        """The details in JSON; frontier and alternatives are entries of the result itself."""
        content: dict[str, Any] = {}
        if self.target is not None:
            reached, proven = target_reached(result, self.target)
            content["target"] = {"value": self.target, "fewest_changes": reached, "proven": proven}
        if contributions is not None:
            content["contributions"] = contributions.to_dict()
        return content

    def shown(self, result: ifonly.Result, contributions: Contributions | None) -> list[RenderableType]:
        """The details for people: headings and tables."""
        from ifonly.report.tables import alternatives_table, contributions_table, frontier_table

        items: list[RenderableType] = []
        if self.all_budgets:
            items += ["", say("detail.budgets", episode=result.episode), frontier_table(result)]
        if self.target is not None:
            items += ["", say("detail.target", episode=result.episode, text=in_words(result, self.target))]
        if result.alternatives:
            which = _alternatives_heading(result)
            items += ["", say("detail.alternatives", episode=result.episode, which=which), alternatives_table(result)]
        if contributions is not None:
            heading = say("detail.contributions", episode=result.episode)
            items += ["", heading, contributions_table(result, contributions)]
        return items


def target_reached(result: ifonly.Result, target: float) -> tuple[int | None, bool]:
    """The fewest changes known to reach a shown value (None: no known sequence does), and whether that is proven."""
    outcome = target if result.shown[1].higher_is_better else -target
    reached = result.fewest_changes(outcome)
    beaten = [budget for budget in result.frontier if reached is None or budget.max_changes < reached.max_changes]
    return None if reached is None else reached.max_changes, all(budget.upper_bound < outcome for budget in beaten)


def in_words(result: ifonly.Result, target: float) -> str:
    """A sentence on which budget reaches a shown value, and the changes that do."""
    from ifonly.data.schema import step_and_moment
    from ifonly.report.tables import changes_in_words, shown_value

    shown = result.shown[1]
    side = "least" if shown.higher_is_better else "most"
    wanted = say(f"target.at {side}", label=shown.label, target=f"{target:g}")
    fewest, proven = target_reached(result, target)
    if fewest is None:
        code = "impossible" if proven else "undecided"
        return say(f"target.{code}", wanted=wanted, changes=result.max_changes)
    budget = result.frontier[fewest]
    assert budget.outcome is not None
    assert budget.actions is not None
    value = f"{shown_value(result, budget.outcome, budget.actions):.6g}"
    if fewest == 0:
        return say("target.as recorded", wanted=wanted, value=value)
    certainty = say("target.fewest" if proven else "target.perhaps fewer")
    head = say("target.reached", wanted=wanted, changes=fewest, value=value, certainty=certainty)
    listed = changes_in_words(result, budget.actions)
    lines = [f"  {step_and_moment(result.schema, step)}: {words}" for step, words in listed]
    return "\n".join([head, *lines])


def _alternatives_heading(result: ifonly.Result) -> str:
    details = result.certificate.details
    count = len(result.alternatives)
    which = say("alternatives.one" if count == 1 else "alternatives.many", count=count)
    if (apart := result.provenance.solver.get("apart", 1)) > 1:
        which = say("alternatives.apart", which=which, apart=apart)
    if not details.get("alternatives_proven", False):
        return say("alternatives.not proven", which=which)
    return say("alternatives.more", which=which) if details.get("alternatives_cut", False) else which


def show_evidence(result: ifonly.Result, output: Output, *, full: bool) -> None:
    """Show the evidence for and against an answer: in full, or in one line."""
    from ifonly.text.evidence import evidence_line, evidence_lines

    told = "\n".join(evidence_lines(result)) if full else evidence_line(result)
    output.show(say("detail.evidence", episode=result.episode, text=told))
