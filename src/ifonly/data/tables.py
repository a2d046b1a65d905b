"""Cohorts as long tables, one row per step, and back; every check is vectorised and names the place it fails at.

Places are columns, rows (counted from 1, without the header) and steps. What a cell holds, an id included, is in no
message: tables hold patient data, and messages end up in logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Never

import numpy as np
import numpy.typing as npt
import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.data.columns import TableColumns
from ifonly.data.doses import require_levels, require_plausible, require_same_unit
from ifonly.data.episode import (
    FloatArray,
    IntArray,
    Origin,
    OriginArray,
    Rows,
    as_origins,
    check_rows,
    check_static,
)
from ifonly.data.labels import require_features, with_indicators
from ifonly.data.origins import carried_where_repeated, repeats
from ifonly.data.plain import first_names, repeated
from ifonly.data.schema import TABLE_COLUMNS, ActionSpace, Axis, Feature, Schema
from ifonly.data.text_tables import HALF, MISSING_WORDS
from ifonly.data.times import NEARLY_WHOLE, Duration, count_times, holds_times, require_same_step
from ifonly.errors import InputError

EXACT = 2.0**53
"""Whole numbers below this are exact as floats."""


def frame_schema(schema: Schema, *, origins: bool = False) -> pl.Schema:
    """Names and types of the columns of a stored table, in order."""
    text = ("episode", "subject")
    columns: dict[str, Any] = {name: pl.String() if name in text else pl.Int64() for name in TABLE_COLUMNS}
    columns |= {feature.name: pl.Float64() for feature in schema.features}
    return pl.Schema(columns | ({name: pl.UInt8() for name in origin_columns(schema)} if origins else {}))


def origin_columns(schema: Schema) -> list[str]:
    """The columns of a stored table that hold the origins of the dynamic features."""
    return [origin_column(feature.name) for feature in schema.dynamic]


def origin_column(feature: str) -> str:
    """The column with the origins of one feature."""
    return f"origin of {feature}"


def cohort_to_frame(cohort: Cohort) -> pl.DataFrame:
    """One row per step: episode, subject, step (from 0), action, then the features in schema order and own units."""
    row_episode = np.repeat(np.arange(len(cohort)), cohort.lengths)
    columns: dict[str, Any] = {
        "episode": pl.Series(cohort.ids, dtype=pl.String).gather(row_episode),
        "subject": pl.Series(cohort.subjects, dtype=pl.String).gather(row_episode),
        "step": np.arange(len(cohort.actions)) - cohort.offsets[row_episode],
        "action": cohort.actions,
    }
    columns |= {name: np.ascontiguousarray(values) for name, values in cohort.columns().items()}
    if cohort.origins is not None:
        columns |= dict(zip(origin_columns(cohort.schema), np.ascontiguousarray(cohort.origins.T), strict=True))
    return pl.DataFrame(columns, schema=frame_schema(cohort.schema, origins=cohort.origins is not None))


def cohort_from_frame(frame: pl.DataFrame, schema: Schema, columns: TableColumns | None = None) -> Cohort:
    """The cohort that a long table describes.

    Needed columns: episode, step, action (or its doses) and every feature; subject is optional (without it, every
    episode is its own subject); other columns are ignored. `columns` says what they are called, if not so. The rows of
    an episode stand together, in the order of its steps, which count from 0 or from 1 throughout the table, or are
    `columns.spacing` apart. Actions are numbers or labels of the schema, or doses.
    """
    return cohort_and_first_step(frame, schema, columns)[0]


def cohort_and_first_step(
    frame: pl.DataFrame, schema: Schema, columns: TableColumns | None = None
) -> tuple[Cohort, int]:
    """What `cohort_from_frame` gives, and the number that the table gives to first steps, 0 or 1."""
    names = columns or TableColumns()
    names.require_fit(schema.actions)
    require_same_step(names.spacing, schema.step_length, schema.step_unit)
    require_features(names.labels, schema.features)
    frame = with_indicators(frame, names.labels)
    _check_columns(frame.columns, schema, names)
    if frame.height == 0:
        raise InputError("table: holds no rows.")
    layout = _Layout.of(frame, names)
    ids = tuple(layout.episodes.gather(layout.offsets[:-1]).to_list())
    states = _feature_matrix(frame, schema.dynamic, layout)
    rows = Rows(
        schema,
        states=states,
        context=_feature_matrix(frame, schema.context, layout),
        actions=_actions(frame, schema.actions, names, layout),
        origins=_origins(frame, states, schema, names, layout),
    )
    # Checked here as well as by Cohort, so that errors name steps as the table numbers them.
    check_rows(rows, locate=layout.locate)
    check_static(rows, layout.starts, locate=layout.locate)
    subject = names.subject_column
    cohort = Cohort(
        schema=schema,
        ids=ids,
        offsets=layout.offsets,
        states=rows.states,
        context=rows.context,
        actions=rows.actions,
        subjects=_subjects(frame[subject], layout) if subject in frame.columns else ids,
        origins=rows.origins,
    )
    return cohort, int(layout.steps[0])


def _check_columns(found: list[str], schema: Schema, names: TableColumns) -> None:
    features = [feature.name for feature in schema.features]
    masks = [column for _, column in names.measured]
    expected = list(dict.fromkeys([*names.needed, names.subject_column, *features, *masks]))
    optional = names.subject_column if names.subject is None else None
    missing = [name for name in expected if name not in found and name != optional]
    # A misspelt 'subject' would go unnoticed, and splits by subject would leak.
    alike = {name.casefold().strip(): name for name in expected if name not in found}
    for column in found:
        if column not in expected and column.casefold().strip() in alike:
            wanted = alike[column.casefold().strip()]
            raise InputError(f"table: column {column!r} looks like {wanted!r}; rename it, letter for letter.")
    if missing:
        kinds = ["feature" if name in features else "column" for name in missing]
        listing = ", ".join(f"{kind} {name!r}" for kind, name in zip(kinds, missing, strict=True))
        hint = " Are its columns separated by commas?" if len(found) == 1 else ""
        raise InputError(
            f"table: lacks the {listing}; found {first_names(found)}. Add what is missing, or take a feature out "
            f"of the schema.{hint}"
        )


def _origins(
    frame: pl.DataFrame, states: FloatArray, schema: Schema, names: TableColumns, layout: _Layout
) -> OriginArray | None:
    """Where entries of states come from: as the table stores it, or by its columns of what was measured."""
    stored = origin_columns(schema)
    if not names.measured and set(stored) <= set(frame.columns):
        numbers = frame.select(stored).cast(pl.Float64, strict=False).to_numpy()
        return as_origins("table", numbers, (frame.height, len(stored)))
    if names.repeats_are_carried:
        return carried_where_repeated(states, layout.starts)
    if not names.measured:
        return None
    origins = np.zeros((frame.height, len(schema.dynamic)), dtype=np.uint8)
    for feature, column in names.measured:
        place = schema.dynamic_index(feature)
        flags = _floats(frame[column])
        if (row := _first(~flags.is_in([0.0, 1.0]).fill_null(False))) is not None:
            raise InputError(
                f"column {column!r}, row {row + 1}: says whether {feature!r} was measured, so it must be 0 or 1."
            )
        unmeasured = flags.to_numpy() == 0
        held = repeats(states[:, [place]], layout.starts)[:, 0]
        origins[unmeasured, place] = np.where(held[unmeasured], Origin.CARRIED, Origin.ASSUMED)
    return origins


@dataclass(frozen=True)
class _Layout:
    """Which rows belong to which episode and step."""

    episodes: pl.Series  # [N], text
    offsets: IntArray  # [E+1]
    steps: IntArray  # [N], as the table numbers them

    @classmethod
    def of(cls, frame: pl.DataFrame, names: TableColumns) -> _Layout:
        episodes = _texts(frame[names.episode])
        first = episodes.ne_missing(episodes.shift(1)).to_numpy()
        starts = np.flatnonzero(first)
        _check_together(episodes, starts)
        offsets = np.append(starts, len(first))
        steps = _whole_steps(_numbered(frame[names.step], offsets, names), names.spacing)
        _check_sequence(steps, first, episodes)
        _check_long_enough(offsets)
        return cls(episodes, offsets, steps)

    @property
    def starts(self) -> IntArray:
        """The first row of each row's episode [N]."""
        return np.repeat(self.offsets[:-1], np.diff(self.offsets))

    def locate(self, row: int) -> str:
        return _place(row, self.steps)


def _place(row: int, steps: IntArray) -> str:
    return f"row {row + 1}, step {steps[row]}"


def _texts(column: pl.Series) -> pl.Series:
    """Ids as text; whole numbers are written out, anything else is refused."""
    if column.dtype.is_float() and _is_whole(column.cast(pl.Float64).fill_nan(None).drop_nulls()).all():
        column = column.fill_nan(None).cast(pl.Int64)  # as pandas keeps them beside gaps
    if not (_is_text(column) or column.dtype.is_integer()):
        raise InputError(f"column {column.name!r}: holds {column.dtype}; ids must be text or whole numbers.")
    texts = column.cast(pl.String)
    no_id, marked = texts.fill_null("") == "", texts.str.to_lowercase().is_in(MISSING_WORDS).fill_null(False)
    if marked.any() and _floats(texts).count() >= HALF * len(texts):  # among numbers NA is no id
        no_id |= marked
    if (row := _first(no_id)) is not None:
        raise InputError(f"column {column.name!r}, row {row + 1}: the id is missing; every row needs one.")
    unprintable = [text for text in texts.unique() if not text.isprintable()]
    if unprintable:
        row = _first(texts.is_in(unprintable))
        assert row is not None, "it was found among them"
        raise InputError(f"column {column.name!r}, row {row + 1}: the id holds characters that cannot be shown.")
    return texts


def _check_together(episodes: pl.Series, starts: IntArray) -> None:
    twice = repeated(episodes.gather(starts).to_list())
    if twice:
        rows = [int(row) + 1 for row in starts if episodes[int(row)] == twice[0]]
        raise InputError(
            f"column {episodes.name!r}: the rows of an episode do not stand together (they begin at rows {rows[0]} and "
            f"{rows[1]}); sort the table by episode and step, or give the second episode an id of its own."
        )


def _numbered(column: pl.Series, offsets: IntArray, names: TableColumns) -> pl.Series:
    """Steps by number; those that are `spacing` apart are counted from each episode's first row."""
    spacing, begins = names.spacing, np.repeat(offsets[:-1], np.diff(offsets))
    if isinstance(spacing, Duration):
        return count_times(column, begins, spacing, names.within)
    if holds_times(column):
        raise InputError(
            f"column {column.name!r}: holds times; say in the schema file how far apart the steps are, such as "
            "`spacing: 4 h` under `table`."
        )
    if spacing is None:
        return column
    times = _floats(column)
    counted = (times - times.gather(begins)) / spacing
    # Times within NEARLY_WHOLE of a multiple are rounding errors; others are refused by `_whole_steps`.
    whole = (counted - counted.round()).abs() < NEARLY_WHOLE
    return counted.zip_with(~whole.fill_null(False), counted.round())


def _whole_steps(column: pl.Series, spacing: float | Duration | None) -> IntArray:
    numbers = _floats(column)
    if (row := _first(~_is_whole(numbers))) is not None:
        wrong, remedy = "is not a whole number", "number the steps 0, 1, 2, ... in order"
        if isinstance(spacing, float):
            wrong = f"is not a multiple of {spacing:g} after its episode's first"
            remedy = "correct it, or `spacing` in the schema file"
        wrong = "is missing" if _is_missing(column[row]) else wrong
        raise InputError(f"column {column.name!r}, row {row + 1}: the step {wrong}; {remedy}.")
    return numbers.cast(pl.Int64).to_numpy()


def _check_sequence(steps: IntArray, first: npt.NDArray[np.bool_], episodes: pl.Series) -> None:
    """Every episode counts its steps one by one, and all begin at the same number, 0 or 1."""

    def refuse(row: int, why: str) -> Never:
        raise InputError(f"{_place(row, steps)}: {why}.")

    difference = np.diff(steps, prepend=steps[0] - 1)
    wrong = np.flatnonzero(~first & (difference != 1))
    if wrong.size:
        row = int(wrong[0])
        if difference[row] == 0:
            refuse(row, "occurs twice in a row; remove one, or give two episodes different ids")
        wanted = steps[row - 1] + 1
        comes_later = ((episodes == episodes[row]).to_numpy() & (steps == wanted))[row:].any()
        if difference[row] < 0 or comes_later:
            refuse(row, f"out of order, it comes after step {wanted - 1}; sort by step, and give every episode an id")
        refuse(row, f"step {wanted} is missing before it; fill it in, or end the episode there")
    begin = int(steps[first].min())
    if begin not in (0, 1):
        refuse(int(np.flatnonzero(first)[steps[first].argmin()]), "the first step must be numbered 0 or 1")
    late = np.flatnonzero(first & (steps != begin))
    if late.size:
        refuse(int(late[0]), f"the episode begins here, while others begin at step {begin}; its first step is missing")


def _check_long_enough(offsets: IntArray) -> None:
    short = np.flatnonzero(np.diff(offsets) < 2)
    if short.size:
        raise InputError(
            f"row {int(offsets[short[0]]) + 1}: its episode has 1 step(s); an episode needs at least two: leave it out."
        )


def _feature_matrix(frame: pl.DataFrame, features: tuple[Feature, ...], layout: _Layout) -> FloatArray:
    matrix = np.empty((frame.height, len(features)))
    for index, feature in enumerate(features):
        column = frame[feature.name]
        numbers = _floats(column)
        if (row := _first(numbers.is_null())) is not None:
            wrong = "is missing" if _is_missing(column[row]) else "is not a number"
            raise InputError(f"{layout.locate(row)}: {feature.name} {wrong}; fill it in or drop the episode.")
        matrix[:, index] = numbers.to_numpy()
    return matrix


def _actions(frame: pl.DataFrame, actions: ActionSpace, names: TableColumns, layout: _Layout) -> IntArray:
    """Numbers of the actions, from their one column or from the columns of their doses."""
    if not names.doses:
        return _action_numbers(frame[names.action], actions, layout)
    numbers = np.zeros(frame.height, dtype=np.int64)
    for axis in actions.axes:  # the last axis varies fastest
        numbers = numbers * len(axis.levels) + _levels(frame, axis, names, layout)
    return numbers


def _levels(frame: pl.DataFrame, axis: Axis, names: TableColumns, layout: _Layout) -> IntArray:
    dose = names.doses_of(axis)
    doses = _floats(frame[dose.column])
    if (row := _first(~doses.is_finite().fill_null(False))) is not None:
        raise InputError(
            f"{layout.locate(row)}: the dose of {axis.name} (column {dose.column!r}) is missing or no finite number; "
            "every step needs one, the last one too."
        )
    require_plausible(doses.to_numpy(), axis, dose, locate=layout.locate)
    levels = dose.levels_of(doses.to_numpy(), axis)
    require_levels(doses.to_numpy(), levels, axis, dose, locate=layout.locate)
    require_same_unit(doses.to_numpy(), levels, axis, dose)
    return levels


def _action_numbers(column: pl.Series, actions: ActionSpace, layout: _Layout) -> IntArray:
    """Numbers of actions given by number or by label; a cell that could mean two actions is refused."""
    numbers = _floats(column)
    whole = _is_whole(numbers)
    by_number = numbers.set(~whole, None).cast(pl.Int64)
    plain = by_number.cast(pl.String).fill_null(numbers.cast(pl.String))  # '10' for 10, 10.0 and '10.0'
    texts = column.cast(pl.String).str.strip_chars() if _is_text(column) else plain
    by_label = _positions(texts, actions.labels).fill_null(_positions(plain, actions.labels))
    chosen = by_label.fill_null(by_number)
    clash = (by_label != by_number) & by_number.is_between(0, len(actions) - 1)
    if (row := _first(clash)) is not None:
        raise InputError(
            f"{layout.locate(row)}: the action (column {column.name!r}) could be a number or the label of another "
            f"action; rename the labels that look like numbers of other actions: {_misleading_labels(actions)}."
        )
    if (row := _first(chosen.is_null())) is not None:
        raise InputError(f"{layout.locate(row)}: {_wrong_action(column[row], numbers[row], actions)}")
    return chosen.to_numpy()


def _misleading_labels(actions: ActionSpace) -> list[str]:
    """Labels that are the numbers of other actions."""
    numbers = _floats(pl.Series(actions.labels, dtype=pl.String))
    return [
        label
        for index, (label, number) in enumerate(zip(actions.labels, numbers, strict=True))
        if number in range(len(actions)) and number != index
    ]


def _positions(texts: pl.Series, labels: tuple[str, ...]) -> pl.Series:
    return texts.replace_strict(list(labels), list(range(len(labels))), default=None, return_dtype=pl.Int64)


def _wrong_action(value: object, number: float | None, actions: ActionSpace) -> str:
    if _is_missing(value):
        return "the action is missing; every step needs one, the last one too."
    if number is not None:
        return "the action is not a whole number; give the action's number or its label."
    return (
        f"the action is unknown; give a number from 0 to {len(actions) - 1} or a label such as "
        f"{list(actions.labels[:3])}."
    )


def _subjects(column: pl.Series, layout: _Layout) -> tuple[str, ...]:
    subjects = _texts(column)
    if (row := _first(subjects != subjects.gather(layout.starts))) is not None:
        raise InputError(
            f"{layout.locate(row)}: the subject (column {column.name!r}) is another than in row "
            f"{int(layout.starts[row]) + 1}, where the episode begins; an episode belongs to one subject."
        )
    return tuple(subjects.gather(layout.offsets[:-1]).to_list())


def _first(mask: pl.Series) -> int | None:
    """The first row where the mask is true; null counts as false."""
    rows = mask.arg_true()
    return int(rows[0]) if len(rows) else None


def _is_text(column: pl.Series) -> bool:
    return column.dtype in (pl.String, pl.Categorical, pl.Enum)


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in ("", *MISSING_WORDS))


def _floats(column: pl.Series) -> pl.Series:
    """Float64, null where a cell is missing or no number; a Boolean counts as 0 or 1."""
    if _is_text(column):
        return column.cast(pl.String).str.strip_chars().cast(pl.Float64, strict=False)
    if column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
        return column.cast(pl.Float64)
    raise InputError(f"column {column.name!r}: holds {column.dtype}; numbers are needed.")


def _is_whole(numbers: pl.Series) -> pl.Series:
    return ((numbers == numbers.floor()) & (numbers.abs() < EXACT)).fill_null(False)
