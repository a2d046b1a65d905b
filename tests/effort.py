"""How many random problems a test tries: a third of them in the ordinary run, all of them in `make test-long`."""

import os

LONG = os.environ.get("IFONLY_TESTS") == "long"


def some(count: int) -> int:
    """`count` in the long run, a third of it, rounded up, in the ordinary one."""
    return count if LONG else -(-count // 3)
