"""What is left of a gain under other luck, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ifonly.text.calibration import amount
from ifonly.text.catalogue import Message

if TYPE_CHECKING:
    from ifonly.query import Query
    from ifonly.result.coupling import Coupling, CouplingGain


def coupling_messages(found: Coupling, query: Query) -> tuple[Message, ...]:
    """Down to which correlation the changes help on average, then the gain for each that was asked."""
    if not found.helps:
        return (Message("coupling.nothing gained"),)
    if all(one.low == one.high for one in found.gains):
        return (Message("coupling.last action"),)
    whose = "" if found.member is None else Message("sensitivity.whose", {"number": found.member + 1})
    head = Message("coupling.always", {"whose": whose})
    if found.smallest is not None:
        rounded = math.ceil(found.smallest * 100) / 100
        head = Message("coupling.smallest", {"whose": whose, "smallest": f"{rounded:.2f}"})
    return (head, *(_gain(one, query) for one in found.gains))


def _gain(one: CouplingGain, query: Query) -> Message:
    values = {"correlation": f"{one.correlation:g}"}
    if not math.isfinite(one.expected):
        return Message("coupling.not finite", values)
    values |= {"expected": amount(abs(one.expected), query)}
    if one.correlation == 1:
        return Message("coupling.same", values)
    ends = {name: amount(getattr(one, name), query) for name in ("low", "high")}
    return Message(f"coupling.{'gain' if one.expected >= 0 else 'loss'}", values | ends)
