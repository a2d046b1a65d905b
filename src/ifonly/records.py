"""Frozen dataclasses as plain types and back, by their annotations: files, tables and the API share one codec.

Arrays and numbers that JSON lacks are annotated with the types below; everything else follows from the dataclass.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
from pydantic import (
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)

from ifonly.errors import StoreError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Record = TypeVar("Record")
_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def finite(number: float) -> float | None:
    """The number, or None where JSON knows none such.

    >>> finite(1.5), finite(math.inf)
    (1.5, None)
    """
    return number if math.isfinite(number) else None


def _array(kind: type, missing: float) -> Any:
    def read(content: Any) -> Any:
        if isinstance(content, np.ndarray):
            return content
        values = [missing if value is None else value for value in _items(content)]
        array: Any = _numbers(values, kind)
        if kind is np.int64 and not np.array_equal(array, _numbers(values, np.float64)):
            raise ValueError("must hold whole numbers")
        return array

    return read


def _items(content: Any) -> list[Any] | tuple[Any, ...]:
    """What must be a list; anything else is refused where pydantic is told of it."""
    if not isinstance(content, list | tuple):
        raise ValueError("must be a list")
    return content


def _numbers(values: list[Any], kind: type) -> Any:
    try:
        return np.array(values, dtype=kind)
    except (TypeError, OverflowError):
        raise ValueError("must hold numbers") from None


def _table(content: Any) -> FloatArray:
    rows = [[math.nan if value is None else value for value in _items(row)] for row in _items(content)]
    table: FloatArray = _numbers(rows, np.float64)
    return np.where(np.abs(table) == LARGEST, np.copysign(math.inf, table), table)


def _listed_rows(table: FloatArray) -> list[list[float | None]]:
    kept = np.where(np.isinf(table), np.sign(table) * LARGEST, table)
    return [[finite(value) for value in row] for row in kept.tolist()]


def _listed(array: Any) -> Any:
    return array.tolist() if array.dtype.kind == "i" else [finite(value) for value in array.tolist()]


LARGEST = float(np.finfo(np.float64).max)
"""Stands for infinity in files, where that is no number."""

_NUMBER: dict[str, Any] = {"anyOf": [{"type": "number"}, {"type": "null"}]}
_NUMBERS: dict[str, Any] = {"type": "array", "items": _NUMBER}
_WHOLE: dict[str, Any] = {"type": "array", "items": {"type": "integer"}}

Integers = Annotated[IntArray, PlainValidator(_array(np.int64, 0)), PlainSerializer(_listed), WithJsonSchema(_WHOLE)]
"""Whole numbers [N]."""

Outcomes = Annotated[
    FloatArray, PlainValidator(_array(np.float64, -math.inf)), PlainSerializer(_listed), WithJsonSchema(_NUMBERS)
]
"""Numbers [N]; minus infinity is null."""

States = Annotated[
    FloatArray,
    PlainValidator(lambda content: content if isinstance(content, np.ndarray) else _table(content)),
    PlainSerializer(_listed_rows),
    WithJsonSchema({"type": "array", "items": _NUMBERS}),
]
"""Numbers [T, D]; NaN is null, and an infinite number is the largest that there is, with its sign."""

Settings = Annotated[
    Mapping[str, Any],
    PlainSerializer(lambda content: to_plain(content)),
    WithJsonSchema({"type": "object", "additionalProperties": True}),
]
"""Plain values by their names; numbers of numpy become plain ones."""


def _null_means(missing: float) -> tuple[BeforeValidator, PlainSerializer, WithJsonSchema]:
    """A number in files: null is read as `missing`, and what is not finite is written as null."""
    read = BeforeValidator(lambda value: missing if value is None else value)
    return read, PlainSerializer(finite), WithJsonSchema(_NUMBER)


UpperBound = Annotated[float, *_null_means(math.inf)]
"""A number above something; infinity, which says nothing, is null."""

LowerBound = Annotated[float, *_null_means(-math.inf)]
"""The same the other way round: minus infinity is null."""

KnownNumber = Annotated[float, *_null_means(math.nan)]
"""A number; NaN, and what else is not finite, is null."""

MaybeNumber = Annotated[
    float | None,
    PlainSerializer(lambda value: None if value is None else finite(value)),
    WithJsonSchema(_NUMBER),
]
"""A number or None; what is not finite is null, too."""


def adapter(kind: type[Record]) -> TypeAdapter[Record]:
    """What reads, writes and describes records of this kind."""
    if kind not in _ADAPTERS:
        _refuse_unknown_entries(kind)
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _refuse_unknown_entries(kind: Any) -> None:
    """Of a record and of all records in it; what is misspelt must not be taken for missing."""
    if is_dataclass(kind) and "__pydantic_config__" not in vars(kind):
        kind.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[union-attr]
        for hint in get_type_hints(kind).values():
            _refuse_unknown_entries(hint)
    for part in get_args(kind):
        _refuse_unknown_entries(part)


def to_plain(value: Any) -> Any:
    """A record, or values nested in any way, in plain types, ready for JSON."""
    if is_dataclass(value):
        return adapter(type(value)).dump_python(value, mode="json")
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return to_plain(value.tolist())
    return finite(value) if isinstance(value, float) else value


def first_fault(error: ValidationError) -> tuple[str, str]:
    """The first entry that is wrong, and why, in words that quote it: not for files that may hold anybody's records."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"] if part not in ("function-before", "str", "tuple"))
    message = first["msg"].removeprefix("Value error, ")
    if message.startswith("Input should be"):
        wanted = message.removeprefix("Input").partition(",")[0].replace("a valid tuple", "a list")
        message = f"{first['input']!r}{wanted}"
    return place, message if message.endswith((".", "?")) else f"{message}."


def from_plain(kind: type[Record], content: Any, *, what: str, **given: Any) -> Record:
    """The record that `to_plain` wrote; `what` names it where something is missing or of the wrong kind.

    Entries that are there already, as records, are `given`.
    """
    try:
        if given:  # instances are no JSON
            record: Record = adapter(kind).validate_python({**content, **given})
        else:
            record = adapter(kind).validate_json(json.dumps(content), strict=True)
        return record
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "it"
        raise StoreError(f"{what}: broken or incomplete: {place}: {first['msg']}.") from None
