"""What users may rely on: every public name, its parameters and their defaults. As a program, it writes them down."""

import inspect
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

import ifonly

PINNED = Path(__file__).with_suffix(".yaml")
REQUIRED, KEYWORD = "required", "by keyword, "
PLAIN = (bool, int, float, str, tuple, type(None), Enum, Path)


def public_api() -> dict[str, dict[str, str]]:
    """The parameters of every callable by name, each with its default; {} for properties, constants and modules."""
    found: dict[str, dict[str, str]] = {}
    for name in ifonly.__all__:
        thing = getattr(ifonly, name)
        found[name] = parameters(thing)
        if inspect.isclass(thing):
            found |= {f"{name}.{member}": parameters(value) for member, value in members(thing)}
        elif inspect.ismodule(thing):
            found |= {f"{name}.{part}": parameters(getattr(thing, part)) for part in getattr(thing, "__all__", ())}
    return found


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """Public methods, properties and constants that the package itself gives to a class."""
    for name in sorted(set(dir(owner))):
        home = next((base for base in owner.__mro__ if name in vars(base)), None)
        if not name.startswith("_") and home is not None and home.__module__.startswith("ifonly"):
            yield name, getattr(owner, name)


def parameters(thing: Any) -> dict[str, str]:
    """Names of parameters in their order, and what each is if left out."""
    if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, Enum)):
        return {}
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return {}
    return {name: described(one) for name, one in signature.parameters.items() if name != "self"}


def described(parameter: inspect.Parameter) -> str:
    """Whether it may be left out, and what it is then."""
    by_keyword = KEYWORD if parameter.kind is parameter.KEYWORD_ONLY else ""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return "any number"
    if parameter.default is parameter.empty:
        return by_keyword + REQUIRED
    value = parameter.default
    return by_keyword + (repr(value) if isinstance(value, PLAIN) else type(value).__name__)


def broken(pinned: dict[str, dict[str, str]], found: dict[str, dict[str, str]]) -> list[str]:
    """What worked before and would not now."""
    wrong = [f"{name} is gone" for name in pinned if name not in found]
    for name, before in pinned.items():
        now = found.get(name, before)
        wrong += [
            f"{name}: {one} was {text!r}, is {now.get(one)!r}" for one, text in before.items() if now.get(one) != text
        ]
        wrong += [
            f"{name}: {one} is new and required" for one, text in now.items() if one not in before and REQUIRED in text
        ]
        places = [[one for one, text in both.items() if not text.startswith(KEYWORD)] for both in (before, now)]
        if places[1][: len(places[0])] != places[0]:
            wrong.append(f"{name}: parameters stood in the order {places[0]}, and stand in {places[1]}")
    return wrong


if __name__ == "__main__":
    PINNED.write_text(yaml.safe_dump(public_api(), sort_keys=False, width=110), encoding="utf-8")
