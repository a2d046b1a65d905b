"""Lengths of time that are counted in steps: 6 steps, 24 hours."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ifonly.data.schema import Schema, unit_of_time
from ifonly.errors import InputError

HOURS = {"second": 1 / 3600, "minute": 1 / 60, "hour": 1.0, "day": 24.0, "week": 168.0}
"""Units of time beside steps."""

MOST_STEPS = 1e9
"""More than any episode has."""

_SHORT = {"s": "second", "sec": "second", "min": "minute", "h": "hour", "hr": "hour", "d": "day", "w": "week"}
_PERIOD = re.compile(rf"([0-9]+(?:[.][0-9]+)?) *(?:(step|{'|'.join(HOURS)}|hr|min|sec)s?|([smhdw]))")


@dataclass(frozen=True)
class Period:
    """So many steps, or so much time.

    >>> str(Period.read("24 h")), str(Period.read("1 step")), Period.read("soon")
    ('24 hours', '1 step', None)
    """

    length: float
    unit: str

    @classmethod
    def read(cls, text: str) -> Period | None:
        """What a text says; None where it is no period, or one of no length."""
        found = _PERIOD.fullmatch(" ".join(text.lower().split()))
        if found is None or float(found[1]) == 0:
            return None
        unit = found[2] or found[3]
        return cls(float(found[1]), _SHORT.get(unit, unit))

    def __str__(self) -> str:
        return f"{self.length:.12g} {self.unit}" + "s" * (self.length != 1)

    def steps(self, where: str, schema: Schema, *, example: str = "6 steps") -> int:
        """How many consecutive steps begin within it, at most; refused where a step has no known length."""
        length = self.length
        if self.unit != "step":
            own = unit_of_time(schema)
            if own not in HOURS:
                raise InputError(
                    f"{where}: the schema does not say how long a step is (its unit is {own!r}); count in steps, such "
                    f"as {example!r}, or give the schema a step of some hours."
                )
            length = length * HOURS[self.unit] / (schema.step_length * HOURS[own])
        return max(1, math.ceil(min(length, MOST_STEPS) - 1e-9))
