"""How much the ordinary run tries: some of the random problems, and nothing that takes long and has a shorter relative.

`make test-long` tries all of it.
"""

import os
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
