"""Plain values, as JSON and YAML hold them: checked when they are read, and made of records (frozen dataclasses).

Errors name the place of the entry that is wrong. What a document of another format or version holds is not read.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import yaml

from ifonly.errors import InputError, StoreError
from ifonly.version import __version__

Record = TypeVar("Record")


def finite(value: float) -> float | None:
    """The number, or None where it is NaN or infinite, which JSON cannot hold."""
    return value if math.isfinite(value) else None


def to_plain(value: Any) -> Any:
    """A record, or values nested in any way, as JSON types: tuples become lists, numbers that are not finite None."""
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return finite(value) if isinstance(value, float) else value


def from_plain(kind: type[Record], content: object, what: str) -> Record:
    """The record of class `kind` that `to_plain` wrote; an `InputError` names `what` and the entry that is wrong.

    Entries are read as the fields' types say: records, tuples, mappings, optional values, enumerations. None stands for
    NaN where a float is not optional. Fields with a default may be missing; unknown entries are refused.
    """
    return cast(Record, _read(kind, content, what))


def _read(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _read_record(kind, value, where)
    if origin in (Union, UnionType):
        return _read_union(arguments, value, where)
    if origin is Literal:
        check_choice(where, "value", value, arguments)
        return value
    if origin in (tuple, Sequence):
        return _read_items(arguments, as_list(where, "it", value), where)
    if origin in (dict, Mapping):
        check_mapping(where, value)
        return {key: _read(arguments[1], item, f"{where}: {key}") for key, item in value.items()}
    return _read_scalar(kind, value, where)


def _read_record(kind: Any, content: Any, where: str) -> Any:
    known = {field.name for field in fields(kind)}
    needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    check_keys(where, content, required=needed, optional=known - needed)
    hints = get_type_hints(kind)
    return kind(**{name: _read(hints[name], item, f"{where}: {name}") for name, item in content.items()})


def _read_union(kinds: Sequence[Any], value: Any, where: str) -> Any:
    if value is None and NoneType in kinds:
        return None
    *others, last = (kind for kind in kinds if kind is not NoneType)
    for kind in others:
        try:
            return _read(kind, value, where)
        except InputError:
            continue
    return _read(last, value, where)


def _read_items(kinds: Sequence[Any], items: Sequence[Any], where: str) -> tuple[Any, ...]:
    if len(kinds) == 1 or kinds[-1] is Ellipsis:
        kinds = [kinds[0]] * len(items)
    if len(kinds) != len(items):
        raise InputError(f"{where}: {len(items)} values; expected {len(kinds)}.")
    return tuple(_read(kind, item, f"{where}[{n}]") for n, (kind, item) in enumerate(zip(kinds, items, strict=True)))


def _read_scalar(kind: type, value: Any, where: str) -> Any:
    if issubclass(kind, Enum):
        check_choice(where, "value", value, tuple(item.value for item in kind))
        return kind(value)
    if kind is float and value is None:
        return math.nan
    fits = isinstance(value, int | float if kind is float else kind) and (kind is bool or not isinstance(value, bool))
    if not fits:
        raise InputError(f"{where}: expected {kind.__name__}, found {type(value).__name__}.")
    return float(value) if kind is float else value


def json_text(content: Mapping[str, Any], *, what: str = "document") -> str:
    """The content of a JSON file; what JSON cannot hold is an `InputError` that names `what`."""
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        text.encode()  # lone surrogates show only here
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: {error}; only what JSON can hold is stored.") from None
    return text


def read_document(file: Path, format: str, version: int, *, kind: str, expected: str) -> dict[str, Any]:
    """The mapping in a file of this format and version; `kind` and what was `expected` are for messages."""
    content = read_plain(file, expected=expected)
    check_version(file, content, format, version, kind=kind)
    return dict(content)


def check_version(file: Path | str, content: Any, format: str, version: int, *, kind: str) -> None:
    """Refuse content of another format, or of another version of it."""
    if not isinstance(content, Mapping):
        raise StoreError(f"{file}: not a {kind}: holds {type(content).__name__}, not a mapping of names to values.")
    if content.get("format") != format:
        raise StoreError(f"{file}: not a {kind}: format {content.get('format')!r}; expected {format!r}.")
    if content.get("version") != version:
        raise StoreError(
            f"{file}: version {content.get('version')!r} of {format}; ifonly {__version__} reads version {version}: "
            "update ifonly, or write it again with this one."
        )


def read_mapping(source: Path) -> dict[str, Any]:
    """The mapping in a JSON or YAML file, read as `read_plain` does."""
    content = read_plain(source)
    if not isinstance(content, dict):
        raise StoreError(f"{source}: holds {type(content).__name__}, not a mapping of names to values.")
    return content


def read_plain(source: Path, *, expected: str = "") -> Any:
    """What a file holds, JSON by the ending of its name or else YAML; no key may occur twice in a mapping."""
    is_json = source.suffix.lower() == ".json"
    try:
        text = source.read_text(encoding="utf-8")
        return json.loads(text, object_pairs_hook=_checked_pairs) if is_json else yaml.load(text, _YamlLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{source}: cannot be read ({error}){expected and f'; {expected}'}.") from None
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        raise StoreError(f"{source}: is not valid {'JSON' if is_json else 'YAML'}, or cut off ({error}).") from None
    except _RepeatedKeyError as error:
        raise StoreError(f"{source}: {error}; keep one of them.") from None


class _RepeatedKeyError(ValueError):
    """A mapping has a key twice, of which parsers silently drop one."""


def _checked_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if twice := repeated([key for key, _ in pairs]):
        raise _RepeatedKeyError(f"the key {twice[0]!r} occurs twice in one mapping")
    return dict(pairs)


class _YamlLoader(yaml.SafeLoader):
    """Plain values only, and no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for position, key in enumerate(keys):
            if any((key.tag, key.value) == (other.tag, other.value) for other in keys[:position]):
                raise _RepeatedKeyError(f"line {key.start_mark.line + 1}: the key {key.value!r} occurs twice")
        return super().construct_mapping(node, deep=deep)


def repeated(names: Sequence[str]) -> list[str]:
    """The names that occur more than once."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def as_list(where: str, what: str, value: object) -> list[Any]:
    """A list or tuple as a list; anything else, text included, is refused."""
    if not isinstance(value, list | tuple):
        raise InputError(f"{where}: {what} must be a list, not {value!r}.")
    return list(value)


def as_number(where: str, value: Any) -> float:
    """A finite float, zero without sign. Text that spells a number is one: YAML takes 1e-3 for text."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{where}: {value!r} is not a finite number.")
    return number + 0.0


def as_numbers(where: str, values: Iterable[object]) -> tuple[float, ...]:
    """Each value as `as_number` takes it."""
    return tuple(as_number(where, value) for value in values)


def check_whole(where: str, value: object, *, least: int) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{where}={value!r} must be a whole number of at least {least}.")


def check_text(where: str, what: str, value: object) -> None:
    """Refuse what is not text."""
    if not isinstance(value, str):
        # YAML reads a bare on, off, yes or no as true or false.
        raise InputError(f"{where}: {what} {value!r} must be text; in a YAML file, put it in quotes.")


def check_name(where: str, what: str, value: str) -> None:
    """Refuse what cannot head a column or stand in a cell of a table."""
    check_text(where, what, value)
    if not value or value != value.strip() or not value.isprintable():
        raise InputError(f"{where}: {what} {value!r} must be printable text that neither begins nor ends with a space.")


def check_choice(where: str, what: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the choices."""
    if value not in choices:
        raise InputError(f"{where}: {what} {value!r} is unknown; choose from {list(choices)}.")


def check_mapping(where: str, content: object) -> None:
    """Refuse what is not a mapping."""
    if not isinstance(content, Mapping):
        raise InputError(f"{where}: expected a mapping, found {type(content).__name__}.")


def check_keys(where: str, content: Any, *, required: set[str], optional: set[str]) -> None:
    """Refuse what is not a mapping, lacks a required key or has an unknown one."""
    check_mapping(where, content)
    missing, unknown = required - set(content), set(content) - required - optional
    if missing:
        raise InputError(f"{where}: missing {sorted(missing)}.")
    if unknown:
        raise InputError(f"{where}: unknown {sorted(map(str, unknown))}; known are {sorted(required | optional)}.")
