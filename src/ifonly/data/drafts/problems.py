"""What is wrong with a table, or may be: counted and placed, without quoting a single cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from ifonly.data.drafts.actions import ActionGuess
from ifonly.data.drafts.readings import Reading
from ifonly.data.drafts.roles import Roles, Steps
from ifonly.data.schema import Feature

FEW_USES = 10
"""Actions taken less often than this are rare: hardly anything can be learned about them."""

ONE_SIDED = 0.9
"""An action taken in more than this share of all steps leaves little to compare it with."""

MANY_ACTIONS = 100


@dataclass(frozen=True)
class Problem:
    """One thing to look at."""

    kind: str
    """A short name for programs, such as 'missing'."""
    column: str | None
    """Where; None for the table as a whole."""
    count: int
    """How many cells, rows, episodes or actions."""
    text: str
    """What it is and what to do, as a sentence."""
    refused: bool
    """Whether `ifonly import` refuses the table until it is solved."""

    def __str__(self) -> str:
        return f"{self.column}: {self.text}" if self.column else self.text

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return asdict(self)


def find_problems(
    frame: pl.DataFrame,
    readings: Mapping[str, Reading],
    roles: Roles,
    features: Iterable[Feature],
    actions: ActionGuess,
) -> tuple[Problem, ...]:
    """All problems of a table: those of its rows, of its ids and steps, of its actions and of each feature."""
    found = [*_of_rows(frame, readings, roles), *_of_actions(actions)]
    for name in (roles.episode, roles.subject):
        found += _without_id(readings[name]) if name else []
    numeric = [roles.step, *(dose.column for dose in actions.doses), *(feature.name for feature in features)]
    for name in dict.fromkeys(numeric):
        found += _of_cells(readings[name])
    if actions.column is not None:
        found += _without_id(readings[actions.column])
    for feature in features:
        found += _out_of_range(feature, readings[feature.name])
    return tuple(sorted(found, key=lambda problem: not problem.refused))


def _of_rows(frame: pl.DataFrame, readings: Mapping[str, Reading], roles: Roles) -> Iterator[Problem]:
    copies = int(frame.is_duplicated().sum()) - int(frame.filter(frame.is_duplicated()).n_unique())
    if copies:
        yield Problem(
            "duplicate rows", None, copies, f"{_count(copies, 'row')} repeat another one exactly; drop them.", True
        )
    episodes = readings[roles.episode].texts
    steps = Steps.of(episodes, readings[roles.step].numbers)
    lengths = np.diff(np.append(steps.first, len(episodes)))
    if single := int((lengths == 1).sum()):
        yield Problem(
            "single step",
            None,
            single,
            f"{_count(single, 'episode')} of one step; an episode needs two: leave it out.",
            True,
        )
    doubled = int((steps.differences == 0).sum())
    if doubled > copies:
        text = f"{_count(doubled, 'row')} with a step that its episode has already; keep one, or separate the episodes."
        yield Problem("doubled steps", roles.step, doubled, text, True)
    yield from _gaps(steps, lengths, roles.step)
    if (steps.order != np.arange(len(episodes))).any():
        text = "rows are not in order; sort the table by episode and step."
        yield Problem("not sorted", None, int((steps.order != np.arange(len(episodes))).sum()), text, True)


def _gaps(steps: Steps, lengths: np.ndarray[Any, Any], column: str) -> Iterator[Problem]:
    if steps.spacing is None:
        return
    uneven = ((steps.differences - steps.spacing).abs() > 1e-6 * steps.spacing) & (steps.differences != 0)
    owner = pl.Series(np.repeat(np.arange(len(lengths)), lengths - 1))
    if episodes := int(owner.filter(uneven.fill_null(False)).n_unique()):
        text = (
            f"{_count(episodes, 'episode')} with gaps or uneven distances between steps (usual: {steps.spacing:g}); "
            "fill the missing steps in, or end the episode there."
        )
        yield Problem("gaps in steps", column, episodes, text, True)


def _of_actions(actions: ActionGuess) -> Iterator[Problem]:
    counts, total = actions.counts, int(actions.counts.sum())
    never, rare = int((counts == 0).sum()), int((counts < FEW_USES).sum())
    where = actions.column
    if rare:
        text = (
            f"{rare} of {len(counts)} actions are taken fewer than {FEW_USES} times, {never} of them never; merge "
            "levels or leave actions out, since nothing can be learned about them."
        )
        yield Problem("rare actions", where, rare, text, False)
    if total and counts.max() > ONE_SIDED * total:
        share = 100 * counts.max() / total
        text = f"one action is taken at {share:.0f} % of all steps; there is little to compare it with."
        yield Problem("unbalanced actions", where, int(counts.max()), text, False)
    if len(counts) > MANY_ACTIONS:
        text = f"{len(counts)} actions are many to learn about and to search among; use fewer levels."
        yield Problem("many actions", where, len(counts), text, False)


def _without_id(reading: Reading) -> Iterator[Problem]:
    if not reading.is_complete:
        yield _in_cells("missing", reading, reading.missing, "are empty; every row needs one.")


def _of_cells(reading: Reading) -> Iterator[Problem]:
    if not reading.is_complete:
        yield _in_cells("missing", reading, reading.missing, "are empty; fill them in, or drop the episodes.")
    if reading.wrong.any():
        yield _in_cells("no number", reading, reading.wrong, "hold text that is no number; correct or fill them in.")
    if reading.infinite.any():
        yield _in_cells("not finite", reading, reading.infinite, "hold an infinite number; correct or fill them in.")


def _in_cells(kind: str, reading: Reading, cells: pl.Series, what: str) -> Problem:
    count, first = int(cells.sum()), int(cells.arg_true()[0]) + 1
    text = f"{_count(count, 'cell')} of {len(cells):,} (the first in row {first:,}) {what}"
    return Problem(kind, reading.name, count, text, True)


def _out_of_range(feature: Feature, reading: Reading) -> Iterator[Problem]:
    assert feature.plausible is not None, "every guessed feature has a range"
    low, high = feature.plausible
    count = int(((reading.values < low) | (reading.values > high)).sum())
    if count:
        text = (
            f"{_count(count, 'value')} far away from the others, outside {low:g} to {high:g}; mistakes, codes for "
            "missing values, or is the range to be wider?"
        )
        yield Problem("out of range", feature.name, count, text, False)


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
