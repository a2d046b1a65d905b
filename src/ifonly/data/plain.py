"""Plain values, as JSON and YAML hold them, checked when they are read.

Errors name the place of the entry that is wrong. What a document of another format or version holds is not read.
"""

import difflib
import heapq
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ifonly.data.parsing import MOST_BYTES_OF_YAML, UnfitError, parse_json, parse_yaml
from ifonly.errors import InputError, StoreError
from ifonly.files import MOST_BYTES, bring_back, file_reason, require_ordinary
from ifonly.version import __version__

MOST_NUMBERS = 1_000_000
"""In the vectors of all actions."""


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
    bring_back(file.parent)
    content = read_plain(file, expected=expected, folder=file.parent)
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


def read_plain(source: Path, *, expected: str = "", folder: Path | None = None, is_json: bool | None = None) -> Any:
    """What a file holds, JSON by the ending of its name or else YAML; no key may occur twice in a mapping.

    A link is not followed out of `folder`, where one is given.
    """
    is_json = source.suffix.lower() == ".json" if is_json is None else is_json
    also = expected and f"; {expected}"
    try:
        require_ordinary(source, most=MOST_BYTES if is_json else MOST_BYTES_OF_YAML, folder=folder)
        text = source.read_text(encoding="utf-8")
        return parse_json(text, once=True) if is_json else parse_yaml(text)
    except (OSError, UnicodeError) as error:  # the bytes of the file, or the letters of its name
        raise StoreError(f"{source}: cannot be read ({file_reason(error)}){also}.") from None
    except UnfitError as error:
        raise StoreError(f"{source}: {error}.") from None
    except ValueError as error:
        kind = "JSON" if is_json else "YAML"
        raise StoreError(f"{source}: is not valid {kind}, or cut off ({error}){also}.") from None


def repeated(names: Sequence[str]) -> list[str]:
    """The names that occur more than once."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def first_names(names: Sequence[str]) -> list[str]:
    """Some names for a message, which may be those of any file: not all, and none of them long."""
    return [name if len(name) <= 80 else f"{name[:77]}..." for name in names[:30]]


def did_you_mean(name: object, choices: Iterable[str]) -> str:
    """ " Did you mean ...?" with the choice that is spelt most like `name`; nothing where none is.

    >>> did_you_mean("sofa", ["MAP", "SOFA"]), did_you_mean("pain", ["MAP", "SOFA"])
    (" Did you mean 'SOFA'?", '')
    """
    wanted, best, found = str(name).lower(), 0.7, None
    for choice in choices:  # of equally good ones the first
        likeness = difflib.SequenceMatcher(None, wanted, choice.lower())
        if likeness.real_quick_ratio() > best and likeness.quick_ratio() > best and likeness.ratio() > best:
            best, found = likeness.ratio(), choice
    return "" if found is None else f" Did you mean {found!r}?"


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
    if not isinstance(values, Iterable):
        raise InputError(f"{where}: {values!r} must be a list of numbers.")
    return tuple(as_number(where, value) for value in values)


def check_whole(where: str, value: object, *, least: int) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{where}={value!r} must be a whole number of at least {least}.")


def check_size(where: str, count: int, width: int) -> None:
    """Refuse more numbers, `width` of each, than memory and searches can hold."""
    if count * width > MOST_NUMBERS:
        raise InputError(
            f"{where}: {count:,} of them, with {width:,} numbers each; at most {MOST_NUMBERS:,} numbers in all are "
            "taken. Use fewer."
        )


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


def _quoted(names: list[str]) -> str:
    return ", ".join(map(repr, names))


def check_keys(where: str, content: Any, *, required: set[str], optional: set[str]) -> None:
    """Refuse what is not a mapping, lacks a required key or has an unknown one."""
    check_mapping(where, content)
    missing, unknown = required - set(content), set(content) - required - optional
    if not missing and not unknown:
        return
    strange, known = heapq.nsmallest(10, map(str, unknown)), sorted(required | optional)
    named, meant = _quoted(strange), did_you_mean(strange[0], known) if strange else ""
    if missing:  # often it is there, misspelt
        also = f" Unknown: {named}.{meant}" if strange else ""
        raise InputError(f"{where}: missing {_quoted(sorted(missing))}.{also}")
    raise InputError(f"{where}: unknown {named}; known are {', '.join(known)}.{meant}")
