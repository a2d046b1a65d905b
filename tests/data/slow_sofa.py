"""SOFA by hand: one stay, step by step, in plain Python, as Vincent et al. (1996) print it."""

import math
from collections.abc import Mapping, Sequence

Step = Mapping[str, float]
"""One step: PaO2 and FiO2 (%), ventilation, platelets, bilirubin, MAP, vasopressors, GCS, creatinine, urine (mL)."""


def slow_sofa(steps: Sequence[Step], *, hours: float = 4.0) -> list[dict[str, int]]:
    """The points of every organ at every step."""
    return [_organs(steps[: now + 1], hours) for now in range(len(steps))]


def _organs(until_now: Sequence[Step], hours: float) -> dict[str, int]:
    step = until_now[-1]
    return {
        "respiration": _respiration(step),
        "coagulation": _lower(step["platelets"], (150, 100, 50, 20)),
        "liver": _higher(step["bilirubin"], (1.2, 2.0, 6.0, 12.0)),
        "cardiovascular": _cardiovascular(step),
        "nervous": _lower(math.floor(step["GCS"] + 0.5), (15, 13, 10, 6)),
        "renal": max(_higher(step["creatinine"], (1.2, 2.0, 3.5, 5.0)), _urine(until_now, hours)),
    }


def _lower(value: float, below: Sequence[float]) -> int:
    return sum(value < limit for limit in below)


def _higher(value: float, from_on: Sequence[float]) -> int:
    return sum(value >= limit for limit in from_on)


def _respiration(step: Step) -> int:
    ratio = round(step["PaO2"] / (step["FiO2"] / 100), 6)
    grade = _lower(ratio, (400, 300, 200, 100))
    return grade if step["ventilation"] else min(grade, 2)


def _cardiovascular(step: Step) -> int:
    if step["vasopressors"] > 0.1:
        return 4
    if step["vasopressors"] > 0:
        return 3
    return 1 if step["MAP"] < 70 else 0


def _urine(until_now: Sequence[Step], hours: float) -> int:
    count = round(24 / hours)
    if len(until_now) < count:
        return 0
    day = sum(step["urine"] for step in until_now[-count:])
    return 4 if day < 200 else 3 if day < 500 else 0
