"""A first schema of a table, every guess with its reason, and the problems of the table, without quoting a cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from ifonly.data.columns import TableColumns
from ifonly.data.doses import FAR_ABOVE
from ifonly.data.drafts.actions import ActionGuess, guess_actions
from ifonly.data.drafts.clocks import reach
from ifonly.data.drafts.guesses import FeatureGuess, guess_feature, guess_labels, reason_to_leave_out
from ifonly.data.drafts.made_of import made_of_others
from ifonly.data.drafts.names import ACTION_WORDS
from ifonly.data.drafts.readings import Reading, read_columns
from ifonly.data.drafts.roles import REGULAR, Hints, Roles, Steps, find_roles, words
from ifonly.data.origins import MOST_REPEAT, recurs_by_itself
from ifonly.data.plain import repeated
from ifonly.data.schema import Feature, Schema
from ifonly.data.text_tables import MISSING_WORDS
from ifonly.data.times import Duration
from ifonly.errors import InputError
from ifonly.records import to_plain

FEW_USES = 10
"""Actions taken less often than this are rare: too few to learn their effect."""

DAY, CALENDAR = 86400.0, ((28, 31), (365, 366))
"""Seconds of a day, and how many days months and years have."""

ONE_SIDED = 0.9
"""An action taken in more than this share of all steps leaves little to compare it with."""

MANY_ACTIONS = 100

PILED_UP, FEW_VALUES = 0.2, 20
"""A quantity of more different values than the second, of which more than this share is its lowest or highest, is
recorded only where it leaves that end."""


@dataclass(frozen=True)
class TableProblem:
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


def find_problems(
    frame: pl.DataFrame,
    readings: Mapping[str, Reading],
    roles: Roles,
    features: Iterable[Feature],
    actions: ActionGuess,
) -> tuple[TableProblem, ...]:
    """All problems of a table: those of its rows, of its ids and steps, of its actions and of each feature."""
    found = [*_of_rows(frame, readings, roles), *_of_actions(actions), *_of_doses(actions)]
    for name in (roles.episode, roles.subject):
        found += _without_id(readings[name]) if name else []
    own = [feature for feature in features if feature.name in readings]  # not those made of words
    numeric = [roles.step, *(dose.column for dose in actions.doses), *(feature.name for feature in own)]
    for name in dict.fromkeys(numeric):
        found += _of_cells(readings[name])
    if actions.column is not None:
        found += _without_id(readings[actions.column])
    for feature in own:
        found += _out_of_range(feature, readings[feature.name])
    dynamic = [readings[feature.name] for feature in own if feature.kind == "dynamic"]
    found += _piled_up(dynamic)
    found += _repeating(dynamic, readings[roles.episode].texts)
    found += _made_of_others(dynamic, [readings[dose.column] for dose in actions.doses])
    return tuple(sorted(found, key=lambda problem: not problem.refused))


def _of_rows(frame: pl.DataFrame, readings: Mapping[str, Reading], roles: Roles) -> Iterator[TableProblem]:
    copies = int(frame.is_duplicated().sum()) - int(frame.filter(frame.is_duplicated()).n_unique())
    if copies:
        repeats = "repeats" if copies == 1 else "repeat"
        text = f"{_count(copies, 'row')} {repeats} another one exactly; drop what is double."
        yield TableProblem("duplicate rows", None, copies, text, True)
    episodes = readings[roles.episode].texts
    if sum(_begins_with_text(reading) for reading in readings.values()) > 1:
        text = "row 1 holds texts above numbers, as a row of units or a second header does; take it out."
        yield TableProblem("text above numbers", None, 1, text, True)
    steps = Steps.of(episodes, readings[roles.step])
    lengths = np.diff(np.append(steps.first, len(episodes)))
    if single := int((lengths == 1).sum()):
        yield TableProblem(
            "single step",
            None,
            single,
            f"{_count(single, 'episode')} of one step; an episode needs two: leave it out.",
            True,
        )
    doubled = int((steps.differences == 0).sum())
    if doubled > copies:
        text = f"{_count(doubled, 'row')} with a step that its episode has already; keep one, or separate the episodes."
        yield TableProblem("doubled steps", roles.step, doubled, text, True)
    yield from _gaps(steps, lengths, readings[roles.step])
    if (steps.order != np.arange(len(episodes))).any():
        text = "rows are not in order; sort the table by episode and step."
        yield TableProblem("not sorted", None, int((steps.order != np.arange(len(episodes))).sum()), text, True)


def _begins_with_text(reading: Reading) -> bool:
    return reading.is_numeric and bool(reading.wrong[0]) and int(reading.wrong.sum()) == 1


def _gaps(steps: Steps, lengths: np.ndarray[Any, Any], column: Reading) -> Iterator[TableProblem]:
    if steps.spacing is None:
        return
    usual = Duration.of_seconds(steps.spacing) if column.is_date else f"{steps.spacing:g}"
    remedy = "; or say how far times may be off, `within` under `table`" if column.is_date else ""
    days = steps.differences.drop_nulls().to_numpy() / DAY
    if column.is_date and any(((low <= days) & (days <= high)).mean() >= REGULAR for low, high in CALENDAR):
        remedy = "; months and years have different lengths: number them, and name that column, --column step=NAME"
    uneven = steps.is_uneven & (steps.differences != 0)
    owner = pl.Series(np.repeat(np.arange(len(lengths)), lengths - 1))
    if episodes := int(owner.filter(uneven.fill_null(False)).n_unique()):
        text = (
            f"{_count(episodes, 'episode')} with gaps or uneven distances between steps (usual: {usual}); "
            f"fill the missing steps in, or end the episode there and give what follows an id of its own{remedy}."
        )
        yield TableProblem("gaps in steps", column.name, episodes, text, True)


def _of_actions(actions: ActionGuess) -> Iterator[TableProblem]:
    counts, total = actions.counts, int(actions.counts.sum())
    never, rare = int((counts == 0).sum()), int((counts < FEW_USES).sum())
    where = actions.column
    if rare:
        text = (
            f"{rare} of {len(counts)} actions are taken fewer than {FEW_USES} times, {never} of them never; merge "
            "levels or leave actions out, since nothing can be learned about them."
        )
        yield TableProblem("rare actions", where, rare, text, False)
    unknown = [label.casefold() in MISSING_WORDS and label.casefold() != "none" for label in actions.space.labels]
    if where is not None and any(unknown):
        text = (
            f"{_count(int(counts[unknown].sum()), 'step')} with a label such as NA or -; if no action was recorded "
            "there, it is none to learn about or to recommend: fill it in, or end the episodes before."
        )
        yield TableProblem("unknown actions", where, int(counts[unknown].sum()), text, False)
    if where is not None and (
        alike := repeated([" ".join(label.casefold().split()) for label in actions.space.labels])
    ):
        text = f"{_count(len(alike), 'label')} written in several ways, with capitals or spaces; write each in one."
        yield TableProblem("labels alike", where, len(alike), text, False)
    for axis, dose in zip(actions.space.axes, actions.doses, strict=True):
        if len(axis.levels) > 2 and axis.levels[-2] > 0 and axis.levels[-1] > FAR_ABOVE * axis.levels[-2]:
            text = f"the highest level is more than {FAR_ABOVE:g} times the one below; another unit, or slips?"
            yield TableProblem("level far above", dose.column, 1, text, False)
    if total and counts.max() > ONE_SIDED * total:
        share = 100 * counts.max() / total
        text = f"one action is taken at {share:.0f} % of all steps; there is little to compare it with."
        yield TableProblem("unbalanced actions", where, int(counts.max()), text, False)
    if len(counts) > MANY_ACTIONS:
        text = f"{len(counts)} actions are many to learn about and to search among; use fewer levels."
        yield TableProblem("many actions", where, len(counts), text, False)


def _of_doses(actions: ActionGuess) -> Iterator[TableProblem]:
    for name, count in actions.negative.items():
        text = f"{_count(count, 'dose')} below zero, where zero means none; correct such slips, or drop the episodes."
        yield TableProblem("negative doses", name, count, text, True)
    for name, count in actions.beyond.items():
        text = (
            f"{_count(count, 'dose')} more than {FAR_ABOVE:g} times the highest level; another unit, or slips? Correct "
            "them, or widen the axis' plausible range."
        )
        yield TableProblem("impossible doses", name, count, text, True)


def _without_id(reading: Reading) -> Iterator[TableProblem]:
    if not reading.is_complete:
        yield _in_cells("missing", reading, reading.missing, "no value; every row needs one.")


def _of_cells(reading: Reading) -> Iterator[TableProblem]:
    if not reading.is_complete:
        yield _in_cells(
            "missing", reading, reading.missing, "no value; fill it in, or end the episodes before or drop them."
        )
    if reading.wrong.any():
        what = "time" if reading.is_date else "number"
        yield _in_cells("no number", reading, reading.wrong, f"text that is no {what}; correct it.")
    if reading.infinite.any():
        yield _in_cells("not finite", reading, reading.infinite, "an infinite number; correct it.")


def _in_cells(kind: str, reading: Reading, cells: pl.Series, what: str) -> TableProblem:
    count, first = int(cells.sum()), int(cells.arg_true()[0]) + 1
    verb = "holds" if count == 1 else "hold"
    text = f"{_count(count, 'cell')} of {len(cells):,} (the first in row {first:,}) {verb} {what}"
    return TableProblem(kind, reading.name, count, text, True)


def _out_of_range(feature: Feature, reading: Reading) -> Iterator[TableProblem]:
    """Values that the feature's scale cannot take, which `ifonly import` refuses, and others far away."""
    assert feature.plausible is not None, "every guessed feature has a range"
    (low, high), (least, most) = feature.plausible, feature.possible
    numbers = reading.numbers
    impossible = ((numbers < least) | (numbers > most)).fill_null(False)
    if feature.scaling == "log":
        impossible |= (numbers + feature.log_offset <= 0).fill_null(False)
    if impossible.any():
        ends = (
            f"outside {least:g} to {most:g}, where its bounded scale ends"
            if feature.hard_range
            else "without logarithm"
        )
        what = f"a value {ends}; correct it or drop the episodes, or write another scaling."
        yield _in_cells("impossible", reading, impossible, what)
    far = ((numbers < low) | (numbers > high)).fill_null(False) & ~impossible
    if count := int(far.sum()):
        first = int(far.arg_true()[0]) + 1
        text = (
            f"{_count(count, 'value')} far away from the others, outside {low:g} to {high:g} (the first in row "
            f"{first:,}); mistakes, codes for missing values, or is the range to be wider?"
        )
        yield TableProblem("out of range", feature.name, count, text, False)


def _piled_up(readings: Iterable[Reading]) -> Iterator[TableProblem]:
    """Quantities that often are exactly their lowest or highest value: nothing in stock, every call answered."""
    found = []
    for reading in readings:
        values = reading.values
        for end, name in ((np.min, "lowest"), (np.max, "highest")) if reading.distinct > FEW_VALUES else ():
            share = float((values == end(values)).mean())
            if share > PILED_UP:
                found.append(f"{reading.name} ({100 * share:.0f} % at its {name})")
    if found:
        text = (
            f"{', '.join(found)}: how near such values were to leaving that end is not recorded, so that what is said "
            "of steps after them is less sure; where a quantity behind them is known, which is cut there, take that."
        )
        yield TableProblem("piled up", None, len(found), text, False)


def _repeating(readings: Iterable[Reading], episodes: pl.Series) -> Iterator[TableProblem]:
    within = episodes == episodes.shift(1)
    names = [
        reading.name
        for reading in readings
        if reading.values.size and not recurs_by_itself(reading.values)
        if float(_seems_held(reading.numbers).filter(within).mean() or 0.0) > MOST_REPEAT  # type: ignore[arg-type]
    ]
    if names:
        text = (
            f"{', '.join(names)}: most values repeat the one before exactly. If they were carried forward where "
            f"nothing was measured, say so under table: `measured: {{{names[0]}: COLUMN}}`, a column of 0 and 1 for "
            "each, or `measured: auto`."
        )
        yield TableProblem("repeats", None, len(names), text, False)


def _seems_held(numbers: pl.Series) -> pl.Series:
    """Which repeat the value of the row before, other than zero."""
    return (numbers == numbers.shift(1)) & (numbers != 0)


def _made_of_others(states: Sequence[Reading], doses: Sequence[Reading]) -> Iterator[TableProblem]:
    given = {dose.name for dose in doses}
    for one in made_of_others(states, doses):
        if given & set(one.others):
            why = "as a feature it would give the action away: leave it out, or put it into the next step's row"
        else:
            why = (
                "models give every feature a noise of its own, so that counterfactual values would no longer fit "
                "together: leave it out, and ask for goals about those, such as weights or ranges to keep"
            )
        text = f"follows from {', '.join(one.others)} of the same row; {why}."
        yield TableProblem("made of others", one.column, 1, text, False)


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


TIME_WORDS = {
    **{"hour": "h", "h": "h", "minute": "min", "min": "min", "second": "s", "sec": "s", "s": "s", "day": "d"},
    "week": "weeks",
}
"""Units of time, by the words of a step column's name."""


@dataclass(frozen=True, eq=False)
class Draft:
    """A first schema of a table. Units that cannot be guessed are '?' and must be filled in before use."""

    rows: int
    episodes: int
    subjects: int
    schema: Schema
    columns: TableColumns
    features: tuple[FeatureGuess, ...]
    actions: ActionGuess
    left_out: Mapping[str, str]
    """Columns that are neither features nor anything else, and why."""
    problems: tuple[TableProblem, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON: the schema with its columns, the reasons, the problems."""
        return {
            "rows": self.rows,
            "episodes": self.episodes,
            "subjects": self.subjects,
            "schema": {"table": self.columns.to_dict(), **self.schema.to_dict()},
            "reasons": {
                guess.feature.name: {
                    "kind": guess.kind_reason,
                    "scaling": guess.scaling_reason,
                    "unit": guess.unit_reason,
                }
                for guess in self.features
            },
            "actions": {"reasons": dict(self.actions.reasons), "counts": self.actions.counts.tolist()},
            "left_out": dict(self.left_out),
            "problems": to_plain(self.problems),
        }


def guess_schema(frame: pl.DataFrame, hints: Hints | None = None) -> Draft:
    """Guess what the columns of a long table mean, and list what is wrong with it.

    Cells may be text, as `ifonly.data.store.read_frame` reads CSV files. An `InputError` says which columns to name
    where ids, steps or actions cannot be found. Neither the draft nor any error quotes a cell, except labels and levels
    of actions, and words that at least five episodes share.
    """
    _require_table(frame)
    readings = read_columns(frame)
    roles = find_roles(readings, hints or Hints())
    actions = guess_actions([readings[name] for name in roles.actions])
    if hints is None or not hints.actions:
        actions = _told_by(roles, actions)
    rest = [readings[name] for name in frame.columns if name not in _used(roles)]
    episodes, steps = readings[roles.episode].texts, readings[roles.step]
    labels = {reading.name: guess for reading in rest if (guess := guess_labels(reading, episodes))}
    reasons = {reading.name: reason_to_leave_out(reading, episodes) for reading in rest if reading.name not in labels}
    left_out = {name: why for name, why in reasons.items() if why is not None}
    for name, dose in roles.same_doses.items():
        left_out[name] = f"the doses of {dose}, summarised in another way; as a feature it would give the action away"
    numbers = [reading for reading in rest if reading.name not in left_out and reading.name not in labels]
    features = tuple(guess_feature(reading, episodes, steps.numbers) for reading in numbers)
    features += tuple(feature for guess in labels.values() for feature in guess.features)
    columns, length, unit = _layout(steps, episodes, roles, actions)
    columns = replace(columns, labels=tuple(guess.column for guess in labels.values()))
    schema = _schema(features, actions, length, unit)
    return Draft(
        rows=frame.height,
        episodes=int(episodes.drop_nulls().n_unique()),
        subjects=int((readings[roles.subject].texts if roles.subject else episodes).drop_nulls().n_unique()),
        schema=schema,
        columns=columns,
        features=features,
        actions=actions,
        left_out=left_out,
        problems=find_problems(frame, readings, roles, schema.features, actions),
    )


def _require_table(frame: pl.DataFrame) -> None:
    if frame.width == 1:
        raise InputError("table: has a single column. Are its columns separated by commas?")
    if frame.height == 0:
        raise InputError("table: holds no rows.")


def _told_by(roles: Roles, actions: ActionGuess) -> ActionGuess:
    """The guess with a remark on columns that are taken for doses though no one says so."""
    guessed = {name for name in roles.actions if not set(words(name)) & set(ACTION_WORDS)}
    told = {
        name: f"{why}; taken for doses by its name and zeros" if name in guessed else why
        for name, why in actions.reasons.items()
    }
    return replace(actions, reasons=told)


def _used(roles: Roles) -> set[str]:
    return {roles.episode, roles.step, *roles.actions, *([roles.subject] if roles.subject else [])}


def _layout(steps: Reading, episodes: pl.Series, roles: Roles, actions: ActionGuess) -> tuple[TableColumns, float, str]:
    """Names of columns, and length and unit of a step."""
    found = Steps.of(episodes, steps)
    named: dict[str, Any] = {
        "episode": roles.episode,
        "step": roles.step,
        "subject": roles.subject,
        "action": actions.column or "action",
        "doses": actions.doses,
    }
    if steps.is_date:
        # Where most times are exact, the others are gaps or a changed clock: problems, and nothing to be allowed for.
        within = reach(steps.numbers, episodes, found.spacing or 1.0) if found.wobbles else None
        return _on_clock(found, TableColumns(**named), within)
    counted = found.spacing in (None, 1.0) and found.begin_alike and found.begins[0] in (0.0, 1.0)
    spacing = None if counted else found.spacing
    columns = TableColumns(**named, spacing=spacing)
    if (ticks := _ticks(found.begins)) and found.spacing:
        length = Duration.of_seconds(found.spacing / ticks)
        return columns, length.length, length.unit
    unit = next((TIME_WORDS[word] for word in words(roles.step) if word in TIME_WORDS), "step")
    return columns, (found.spacing or 1.0) if unit != "step" else 1.0, unit


def _ticks(begins: pl.Series) -> float | None:
    """In what parts of a second numbers of steps count from 1970, as computers do; None where they do not."""
    return next((parts for parts in (1.0, 1e3, 1e6) if begins.is_between(3e8 * parts, 1e10 * parts).all()), None)


def _on_clock(steps: Steps, columns: TableColumns, within: Duration | None) -> tuple[TableColumns, float, str]:
    if steps.spacing is None:
        raise InputError(
            f"table: column {columns.step!r} holds times at no usual distance; put the table on a grid, a row per step."
        )
    spacing = Duration.of_seconds(steps.spacing)
    return replace(columns, spacing=spacing, within=within), spacing.length, spacing.unit


def _schema(features: tuple[FeatureGuess, ...], actions: ActionGuess, length: float, unit: str) -> Schema:
    if not any(guess.feature.kind == "dynamic" for guess in features):
        raise InputError(
            "table: no column is left that could be a dynamic feature, a number that changes within episodes; are ids, "
            "steps and actions the right columns (--column episode=NAME and so on)?"
        )
    return Schema(tuple(guess.feature for guess in features), actions.space, step_length=length, step_unit=unit)
