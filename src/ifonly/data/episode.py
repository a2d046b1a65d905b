"""One recorded episode, checked when it is built."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from ifonly.data.schema import Feature, Schema
from ifonly.errors import InputError, PlausibilityWarning

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
OriginArray = npt.NDArray[np.uint8]


class Origin(IntEnum):
    """Where an entry of a state comes from."""

    MEASURED = 0
    CARRIED = 1
    """The value of an earlier step, carried forward because nothing was measured."""
    ASSUMED = 2
    """A default: nothing had been measured yet."""


@dataclass(frozen=True, eq=False)
class Episode:
    """What was seen and done, step by step, in original units.

    `states` [T, D] holds the dynamic features, `context` [T, C] the static and contextual ones, `actions`
    [T] the action taken at each step, numbered as in `schema.actions`. The last action has no recorded effect.
    `origins` [T, D] says which entries of the states were measured, carried forward or assumed (`Origin`); without it
    all were measured.

    >>> from ifonly import ActionSpace
    >>> schema = Schema((Feature("pain", "dynamic"),), ActionSpace.categories(["wait", "treat"]))
    >>> Episode("case 1", schema, states=[[5.0], [6.0], [2.0]], actions=[0, 1, 0])
    Episode('case 1', subject='case 1', states [3, 1], context [3, 0], actions [3])
    """

    id: str
    schema: Schema
    states: FloatArray
    actions: IntArray
    context: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    subject: str = ""
    origins: OriginArray | None = None

    def __post_init__(self) -> None:
        subject = self.id if self.subject == "" else self.subject
        check_ids([self.id], [subject])
        where = f"episode {self.id!r}"
        states = as_matrix(f"{where}: states", self.states)
        context = as_matrix(f"{where}: context", self.context)
        if not self.schema.context and context.size == 0:
            context = np.empty((len(states), 0))
        actions = as_actions(where, self.actions, locate=lambda row: f"{where}, step {row}")
        if len(states) < 2:
            raise InputError(f"{where}: has {len(states)} step(s); an episode needs at least two: leave it out.")
        if not len(states) == len(context) == len(actions):
            raise InputError(
                f"{where}: {len(states)} states, {len(context)} context rows and {len(actions)} actions; "
                "there must be one of each per step."
            )
        rows = Rows(self.schema, states, context, actions, as_origins(where, self.origins, states.shape))
        check_rows(rows, locate=lambda row: f"{where}, step {row}")
        check_static(rows, np.zeros(len(states), dtype=np.int64), locate=lambda row: f"{where}, step {row}")
        warn_implausible(count_implausible(rows), where)
        self._set(self.id, subject, rows.frozen_copy())

    def _set(self, id: str, subject: str, rows: Rows) -> None:
        values = {"id": id, "subject": subject, "schema": rows.schema}
        values |= {name: getattr(rows, name) for name in ("states", "context", "actions", "origins")}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def trusted(cls, id: str, subject: str, rows: Rows) -> Episode:
        """An episode out of rows that were checked and frozen already (a cohort's), sharing their memory."""
        episode = object.__new__(cls)
        episode._set(id, subject, rows)
        return episode

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{n} {list(getattr(self, n).shape)}" for n in ("states", "context", "actions"))
        return f"Episode({self.id!r}, subject={self.subject!r}, {shapes})"


@dataclass(frozen=True)
class Rows:
    """Steps of one or many episodes below each other: states [N, D], context [N, C], actions [N], origins [N, D]."""

    schema: Schema
    states: FloatArray
    context: FloatArray
    actions: IntArray
    origins: OriginArray | None = None

    def frozen_copy(self) -> Rows:
        """A read-only copy that shares no memory with the arrays it was made from."""
        states, context = np.array(self.states, order="C"), np.array(self.context, order="C")
        origins = None if self.origins is None else np.array(self.origins, order="C")
        copy = Rows(self.schema, states, context, np.array(self.actions), origins)
        copy.freeze()
        return copy

    def freeze(self) -> None:
        """Make the arrays themselves read-only."""
        for values in (self.states, self.context, self.actions, self.origins):
            if values is not None:
                values.flags.writeable = False

    def take(self, index: IntArray | slice) -> Rows:
        """Some of the steps."""
        origins = None if self.origins is None else self.origins[index]
        return Rows(self.schema, self.states[index], self.context[index], self.actions[index], origins)


def check_ids(ids: Sequence[object], subjects: Sequence[object]) -> None:
    """Refuse ids of episodes and subjects that are not text, are empty, or cannot be shown."""
    for what, values in (("episode", ids), ("subject", subjects)):
        for position, value in enumerate(values):
            if not isinstance(value, str) or not value or not value.isprintable():
                raise InputError(f"{what} id {value!r} (position {position}): must be non-empty, printable text.")


def as_matrix(what: str, values: Any) -> FloatArray:
    """`values` as a float64 matrix, or an error that names it."""
    try:
        matrix = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        # numpy's own message quotes the value.
        raise InputError(f"{what}: not a rectangular table of numbers, [steps, features].") from None
    if matrix.ndim != 2:
        raise InputError(f"{what}: has {matrix.ndim} dimension(s); expected two, [steps, features].")
    return matrix


def as_actions(what: str, values: Any, *, locate: Callable[[int], str]) -> IntArray:
    """`values` [N] as int64 action numbers; fractions and missing values are refused at the place `locate` names."""
    actions = np.asarray(values)
    if actions.ndim != 1 or actions.dtype.kind not in "iuf":
        raise InputError(f"{what}: actions must be a list of whole numbers, one per step.")
    with np.errstate(invalid="ignore"):
        whole = actions.astype(np.int64)
    wrong = np.flatnonzero(whole != actions)
    if wrong.size:
        row = int(wrong[0])
        raise InputError(
            f"{locate(row)}: the action is not a whole number; give each action the number that the schema gives it."
        )
    return whole


def as_origins(what: str, values: Any, shape: tuple[int, ...]) -> OriginArray | None:
    """`values` as origins of states of this shape; None where all entries were measured."""
    if values is None:
        return None
    origins = np.asarray(values)
    if origins.shape != shape or not np.isin(origins, list(Origin)).all():
        raise InputError(
            f"{what}: origins must have the states' shape {list(shape)} and be 0 (measured), 1 (carried forward) or 2 "
            "(assumed)."
        )
    return origins.astype(np.uint8) if origins.any() else None


def check_rows(rows: Rows, *, locate: Callable[[int], str]) -> None:
    """Refuse wrong widths, non-finite values, values a logarithm or a bounded scale cannot take, and unknown
    actions."""
    for what, values, features in (
        ("states", rows.states, rows.schema.dynamic),
        ("context", rows.context, rows.schema.context),
    ):
        if values.shape[1] != len(features):
            raise InputError(
                f"{locate(0)}: {what} have {values.shape[1]} column(s); the schema lists {len(features)}: "
                f"{[f.name for f in features]}."
            )
        _refuse_first(~np.isfinite(values), features, locate, "is not finite; fill or drop it first")
        low, high = np.array([f.possible for f in features]).reshape(len(features), 2).T
        logs = np.array([f.scaling == "log" for f in features], dtype=bool)
        remedy = "is negative, and a logarithmic scale ends at zero; correct it or choose another scaling"
        _refuse_first(logs & (values < low), features, locate, remedy)
        no_log = logs & (values + np.array([f.log_offset for f in features]) <= 0)
        remedy = "has no logarithm; set the feature's log_offset or another scaling in the schema"
        _refuse_first(no_log, features, locate, remedy)
        remedy = "lies outside the range of its bounded scale; correct it, widen `plausible`, or choose another scaling"
        _refuse_first((values < low) | (values > high), features, locate, remedy)
    unknown = np.flatnonzero((rows.actions < 0) | (rows.actions >= len(rows.schema.actions)))
    if unknown.size:
        row = int(unknown[0])
        raise InputError(
            f"{locate(row)}: the action is unknown; the schema numbers its actions 0 to {len(rows.schema.actions) - 1}."
        )


def _refuse_first(
    wrong: npt.NDArray[np.bool_], features: tuple[Feature, ...], locate: Callable[[int], str], why: str
) -> None:
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise InputError(f"{locate(row)}: {features[column].name} {why}.")


def check_static(rows: Rows, starts: IntArray, *, locate: Callable[[int], str]) -> None:
    """Refuse a static feature that changes within an episode (`starts` [N]: the first row of each row's episode)."""
    for column, feature in enumerate(rows.schema.context):
        if feature.kind != "static":
            continue
        values = rows.context[:, column]
        changed = np.flatnonzero(values != values[starts])
        if changed.size:
            row = int(changed[0])
            raise InputError(
                f"{locate(row)}: static feature {feature.name} changes within the episode; make it contextual in the "
                "schema or correct the data."
            )


def count_implausible(rows: Rows) -> dict[str, int]:
    """How many values of each feature lie outside its plausible range (only features with some)."""
    counts = {}
    for values, features in ((rows.states, rows.schema.dynamic), (rows.context, rows.schema.context)):
        for column, feature in enumerate(features):
            if feature.plausible is not None:
                low, high = feature.plausible
                outside = int(((values[:, column] < low) | (values[:, column] > high)).sum())
                if outside:
                    counts[feature.name] = outside
    return counts


def warn_implausible(counts: dict[str, int], where: str) -> None:
    """One warning that counts what is out of range, feature by feature."""
    if counts:
        listing = ", ".join(f"{name} {count}" for name, count in counts.items())
        warnings.warn(
            f"{where}: values outside the plausible range, kept as they are: {listing}.",
            PlausibilityWarning,
            stacklevel=4,
        )
