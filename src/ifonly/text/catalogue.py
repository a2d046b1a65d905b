"""The catalogue of sentences: a code and its values become words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_PLACE = re.compile(r"\{(\w+)(?::([^|}]+))?(?:\|([^|}]*)\|([^|}]*))?\}")


@cache
def catalogue() -> dict[str, str]:
    """Every sentence by its code, from the files of `sentences/`; pages carry the same."""
    found: dict[str, str] = {}
    for path in sorted((Path(__file__).parent / "sentences").glob("*.yaml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if twice := sorted(set(found) & set(content)):
            raise ValueError(f"{path.name}: {twice[0]!r} is said elsewhere, too")
        found |= {str(code): str(sentence) for code, sentence in content.items()}
    return found


@dataclass(frozen=True)
class Message:
    """A sentence that is still a code with values: what pages, the API and files hold.

    Values are numbers, text (names of the user's data), further messages, or lists of these, which are joined.
    """

    code: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return say(self.code, **self.values)


def say(code: str, **values: Any) -> str:
    """The sentence of `code` with its values.

    >>> say("claim.failed model", claim="Proven.")
    'Proven. But the model failed its check: it was asked all the same.'
    """

    def put(place: re.Match[str]) -> str:
        name, spec, one, many = place.groups()
        value = values[name]
        if spec is not None:
            return _formatted(value, spec)
        return _shown(value) if one is None else one if value == 1 else many

    return _PLACE.sub(put, catalogue()[code])


def _formatted(value: float | None, spec: str) -> str:
    """A number as Python formats it; ".1f %" stands for percent.

    >>> _formatted(1234.5, ",.0f"), _formatted(0.0523, ".1f %"), _formatted(None, ".1f")
    ('1,234', '5.2 %', 'unknown')
    """
    if value is None:
        return "unknown"
    return f"{100 * value:{spec[:-2]}} %" if spec.endswith(" %") else f"{value:{spec}}"


def _shown(value: Any) -> str:
    """Numbers as given, messages as their sentences, lists joined: "a, b and c"."""
    if isinstance(value, Mapping):  # a message that was read from JSON
        return say(value["code"], **value["values"])
    if not isinstance(value, list | tuple):
        return str(value)
    words = [_shown(one) for one in value]
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)
