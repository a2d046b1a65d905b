"""How many stays each rule of a cohort removed: the numbers of a flow diagram."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl

from ifonly.errors import InputError

FORMAT, VERSION = "ifonly.flow", 1


@dataclass(frozen=True)
class FlowStep:
    """One rule: who was left after it, and who it removed."""

    rule: str
    """Whom the rule keeps, in words."""
    stays: int
    subjects: int
    removed_stays: int = 0
    removed_subjects: int = 0
    """Subjects of whom no stay is left."""


@dataclass(frozen=True)
class Flow:
    """The rules in the order in which they were applied; the first step is what was there to begin with."""

    steps: tuple[FlowStep, ...] = field(default=())

    @property
    def stays(self) -> int:
        """Stays that are left at the end."""
        return self.steps[-1].stays if self.steps else 0

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; `from_dict` gives the same flow back."""
        return {"format": FORMAT, "version": VERSION, "steps": [asdict(step) for step in self.steps]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Flow:
        """Read what `to_dict` wrote."""
        if content.get("format") != FORMAT or content.get("version") != VERSION:
            raise InputError(f"flow: not a file of format {FORMAT!r}, version {VERSION}.")
        return cls(tuple(FlowStep(**step) for step in content["steps"]))

    def __str__(self) -> str:
        """One line per rule: stays and subjects left, and how many stays the rule removed."""
        width = max((len(step.rule) for step in self.steps), default=0)
        lines = [f"{'':<{width}}  {'stays':>8}  {'subjects':>8}  {'removed':>8}"]
        for number, step in enumerate(self.steps):
            removed = f"{-step.removed_stays:>8,}" if number and step.removed_stays else f"{'':>8}"
            lines.append(f"{step.rule:<{width}}  {step.stays:>8,}  {step.subjects:>8,}  {removed}".rstrip())
        return "\n".join(lines)


class Sieve:
    """Stays that pass through rules one by one, while a flow is kept.

    `stays` is a table with the columns stay and subject, one row per stay. `rule` says who they are, and `listed`, if
    given, from how many of whom.
    """

    def __init__(self, stays: pl.DataFrame, *, rule: str, listed: FlowStep | None = None) -> None:
        self.stays = stays
        if listed is None:
            self._steps = [FlowStep(rule, stays.height, stays["subject"].n_unique())]
        else:
            self._steps = [listed]
            self._go_on(stays, rule)

    @property
    def flow(self) -> Flow:
        """What happened so far."""
        return Flow(tuple(self._steps))

    def keep(self, condition: pl.Expr, *, rule: str) -> None:
        """Go on with the stays for which `condition` (over the columns of `stays`) is true; null counts as false."""
        self._go_on(self.stays.filter(condition), rule)

    def keep_ids(self, ids: Collection[str] | pl.Series, *, rule: str) -> None:
        """Go on with these stays."""
        self._go_on(self.stays.filter(pl.col("stay").is_in(pl.Series(list(ids), dtype=pl.String).implode())), rule)

    def _go_on(self, left: pl.DataFrame, rule: str) -> None:
        before = self._steps[-1]
        subjects = left["subject"].n_unique()
        self._steps.append(
            FlowStep(rule, left.height, subjects, before.stays - left.height, before.subjects - subjects)
        )
        self.stays = left
        if left.height == 0:
            raise InputError(
                f"no stay is left: the rule {rule!r} removed the last {before.stays:,}.\n{self.flow}\n"
                "Choose other rules (--cohort all-adults asks for no infection), or check that the tables behind this "
                "rule are complete."
            )
