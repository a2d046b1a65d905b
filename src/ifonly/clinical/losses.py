"""Rows that cleaning removed for reasons that may be the table's fault: said aloud, and refused when they are most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ifonly.errors import InputError

DOUBTFUL = {
    "no time": "have no time",
    "negative duration": "end before they begin",
    "negative or no duration": "do not end after they begin",
    "negative amount": "have a negative amount",
    "negative rate": "have a negative rate",
    "unit not known": "have a unit that is not known",
    "implausible": "hold implausible values",
}
"""Reasons that a whole table may have in common, as when columns are swapped or units are others, in words.

Reasons that are usual (an order that was cancelled, a laboratory value from before intensive care, stays that a user
has left out) are not among them.
"""
ON_PURPOSE = "no evidence"
"""The reason of kinds of which nothing is meant to be kept."""
MOST = 0.5
"""Of the rows of a kind, without those removed for usual reasons; if more are doubtful, the table is not as shipped."""
FEW = 20
"""Doubtful rows of a kind up to this many are no error: in a handful of rows most may be slips."""

Kinds = Mapping[str, Mapping[str, int]]
"""Rows by kind and reason; the reason of those that stay is `kept`."""


def check_losses(table: str, kinds: Kinds, *, files: str) -> None:
    """Refuse an event table of which a kind has lost most rows for `DOUBTFUL` reasons; `files` says where to look."""
    for kind, counts in kinds.items():
        doubtful = {reason: counts[reason] for reason in DOUBTFUL if reason in counts}
        lost = sum(doubtful.values())
        if lost > FEW and lost > MOST * (lost + counts.get("kept", 0)):
            worst = max(doubtful, key=lambda reason: doubtful[reason])
            raise InputError(
                f"{files}: {lost:,} of {lost + counts.get('kept', 0):,} rows for {table} ({kind}) cannot be used; "
                f"{doubtful[worst]:,} of them {DOUBTFUL[worst]}. Are columns swapped, or are units others than "
                "MIMIC's? Read the file as it was shipped."
            )


def loss_notes(table: str, kinds: Kinds) -> Iterator[str]:
    """What was removed for each of the `DOUBTFUL` reasons, and kinds of which nothing is left."""
    for reason, words in DOUBTFUL.items():
        lost = {kind: counts[reason] for kind, counts in kinds.items() if reason in counts}
        if lost:
            listed = "; ".join(f"{kind}: {number:,} of {_total(kinds[kind]):,}" for kind, number in lost.items())
            yield f"{table}: {sum(lost.values()):,} rows {words} and are left out ({listed})."
    for kind, counts in kinds.items():
        if "kept" not in counts and set(counts) != {ON_PURPOSE}:
            why = ", ".join(f"{reason}: {number:,}" for reason, number in counts.items())
            yield f"{table}: none of {_total(counts):,} rows of {kind} is left ({why})."


def _total(counts: Mapping[str, Any]) -> int:
    return sum(counts.values())
