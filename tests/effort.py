"""How much the ordinary run tries: some of the random problems, and nothing that takes long and has a shorter relative.

`make test-long` tries all of it.
"""

import os
import zlib
from collections.abc import Sequence
from typing import Any

import pytest

LONG = os.environ.get("IFONLY_TESTS") == "long"
long = pytest.mark.skipif(not LONG, reason="takes long: `make test-long` runs it")
"""For tests of which the ordinary run has a shorter relative."""


def some(count: int, one_in: int = 5) -> int:
    """`count` in the long run; in the ordinary one a fifth of it, or as said where each takes long, rounded up."""
    return count if LONG else -(-count // one_in)


def few(values: list[Any], shorter: int) -> list[Any]:
    """All values of a parameter in the long run, and the first ones alone in the ordinary one."""
    return [value if number < shorter else pytest.param(value, marks=long) for number, value in enumerate(values)]


THINNED = {"bounds": 3, "models": 3, "search": 3, "evidence": 3, "paper": 3, "report": 3, "clinical": 2, "study": 2}
"""Folders in which the ordinary run tries one in so many of a test's parameters."""


def thinned(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The parametrised tests that the ordinary run leaves out: which ones differs from test to test.

    So every kind of model, rule or reward is tried somewhere, and nearly everywhere in the long run.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not LONG and hasattr(item, "callspec"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = set()
    for name, found in cases.items():
        one_in = min(THINNED.get(name.split("/")[1], 1), len(found))
        left_out |= {item for number, item in enumerate(found) if (number + zlib.crc32(name.encode())) % one_in}
    return left_out
