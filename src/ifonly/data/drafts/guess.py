"""A first schema of a table: every guess with its reason, for a person to check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from ifonly.data.columns import TableColumns
from ifonly.data.drafts.actions import ActionGuess, guess_actions
from ifonly.data.drafts.features import FeatureGuess, guess_feature, reason_to_leave_out
from ifonly.data.drafts.problems import Problem, find_problems
from ifonly.data.drafts.readings import Reading, read_columns
from ifonly.data.drafts.roles import Hints, Roles, Steps, find_roles, words
from ifonly.data.schema import Schema
from ifonly.errors import InputError

TIME_WORDS = {"hour": "h", "h": "h", "minute": "min", "min": "min", "second": "s", "day": "d", "week": "weeks"}
"""Units of time, by the words of a step column's name."""

SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


@dataclass(frozen=True, eq=False)
class Draft:
    """A first schema of a table. Units that nobody can guess are '?' in it, and must be filled in before it is used."""

    rows: int
    episodes: int
    subjects: int
    schema: Schema
    columns: TableColumns
    features: tuple[FeatureGuess, ...]
    actions: ActionGuess
    left_out: Mapping[str, str]
    """Columns that are neither features nor anything else, and why."""
    problems: tuple[Problem, ...]

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
            "problems": [problem.to_dict() for problem in self.problems],
        }


def guess_schema(frame: pl.DataFrame, hints: Hints | None = None) -> Draft:
    """Guess what the columns of a long table mean, and list what is wrong with it.

    Cells may be text, as `ifonly.data.store.read_frame` reads CSV files. An `InputError` says which columns to name
    where ids, steps or actions cannot be found. Neither the draft nor any error quotes a cell, except labels and levels
    of actions.
    """
    _require_table(frame)
    readings = read_columns(frame)
    roles = find_roles(readings, hints or Hints())
    actions = guess_actions([readings[name] for name in roles.actions])
    rest = [readings[name] for name in frame.columns if name not in _used(roles)]
    episodes, steps = readings[roles.episode].texts, readings[roles.step]
    reasons = {reading.name: reason_to_leave_out(reading, episodes) for reading in rest}
    left_out = {name: why for name, why in reasons.items() if why is not None}
    features = tuple(guess_feature(r, episodes, steps.numbers) for r in rest if r.name not in left_out)
    columns, length, unit = _layout(steps, episodes, roles, actions)
    schema = _schema(features, actions, length, unit)
    return Draft(
        rows=frame.height,
        episodes=int(episodes.n_unique()),
        subjects=int((readings[roles.subject].texts if roles.subject else episodes).n_unique()),
        schema=schema,
        columns=columns,
        features=features,
        actions=actions,
        left_out=left_out,
        problems=find_problems(frame, readings, roles, schema.features, actions),
    )


def _require_table(frame: pl.DataFrame) -> None:
    if frame.width == 1:
        (name,) = frame.columns
        used = next((word for sign, word in SEPARATORS.items() if sign in name), None)
        hint = (
            f" It looks separated by {used}; write it with commas." if used else " Are its columns separated by commas?"
        )
        raise InputError(f"table: has a single column.{hint}")
    if frame.height == 0:
        raise InputError("table: holds no rows.")


def _used(roles: Roles) -> set[str]:
    return {roles.episode, roles.step, *roles.actions, *([roles.subject] if roles.subject else [])}


def _layout(steps: Reading, episodes: pl.Series, roles: Roles, actions: ActionGuess) -> tuple[TableColumns, float, str]:
    """Names of columns, and length and unit of a step."""
    found = Steps.of(episodes, steps.numbers)
    counted = found.spacing in (None, 1.0) and found.begin_alike and found.begins[0] in (0.0, 1.0)
    spacing = None if counted else found.spacing
    columns = TableColumns(
        episode=roles.episode,
        step=roles.step,
        subject=roles.subject,
        action=actions.column or "action",
        doses=actions.doses,
        spacing=spacing,
    )
    unit = next((TIME_WORDS[word] for word in words(roles.step) if word in TIME_WORDS), "step")
    return columns, (found.spacing or 1.0) if unit != "step" else 1.0, unit


def _schema(features: tuple[FeatureGuess, ...], actions: ActionGuess, length: float, unit: str) -> Schema:
    if not any(guess.feature.kind == "dynamic" for guess in features):
        raise InputError(
            "table: no column is left that could be a dynamic feature, a number that changes within episodes; are ids, "
            "steps and actions the right columns (--episode, --step, --subject, --action)?"
        )
    return Schema(tuple(guess.feature for guess in features), actions.space, step_length=length, step_unit=unit)
