"""Plain values as people write them in files and calls: taken as they should be, or refused with a place."""

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ifonly.errors import InputError


def repeated(names: Sequence[str]) -> list[str]:
    """The names that occur more than once."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


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
    return tuple(as_number(where, value) for value in values)


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


def check_keys(where: str, content: object, *, required: set[str], optional: set[str]) -> None:
    """Refuse what is not a mapping, lacks a required key or has an unknown one."""
    if not isinstance(content, Mapping):
        raise InputError(f"{where}: expected a mapping, found {type(content).__name__}.")
    missing, unknown = required - set(content), set(content) - required - optional
    if missing:
        raise InputError(f"{where}: missing {sorted(missing)}.")
    if unknown:
        first = sorted(map(str, unknown))
        known = sorted(required | optional)
        raise InputError(f"{where}: unknown {first}; known are {known}.{did_you_mean(first[0], known)}")
