"""How many random problems a test tries: some of them in the ordinary run, all of them in `make test-long`."""

import os

LONG = os.environ.get("IFONLY_TESTS") == "long"


def some(count: int, one_in: int = 3) -> int:
    """`count` in the long run; in the ordinary one a third of it, or as said where each takes long, rounded up."""
    return count if LONG else -(-count // one_in)
