"""The catalogue of sentences: a code and its values become words."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_PLACE = re.compile(r"\{(\w+)(?:\|([^|}]*)\|([^|}]*))?\}")


@cache
def catalogue() -> dict[str, str]:
    """Every sentence by its code; pages carry the same."""
    text = Path(__file__).with_name("catalogue.yaml").read_text(encoding="utf-8")
    return {str(code): str(sentence) for code, sentence in yaml.safe_load(text).items()}


def say(code: str, **values: Any) -> str:
    """The sentence of `code` with its values.

    >>> say("claim.failed model", claim="Proven.")
    'Proven. But the model failed its check: it was asked all the same.'
    """

    def put(place: re.Match[str]) -> str:
        name, one, many = place.groups()
        value = values[name]
        return str(value) if one is None else one if value == 1 else many

    return _PLACE.sub(put, catalogue()[code])
