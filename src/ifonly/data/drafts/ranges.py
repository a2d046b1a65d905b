"""Ranges that no value can leave, by names and values: scores, fractions, percentages.

Such a feature can be modelled on a bounded scale, so that no counterfactual value is impossible. Quantities that are
merely positive have no upper end, and are none of these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ifonly.data.drafts.readings import Reading

SCORES = {
    "sofa": ("SOFA", 0, 24),
    "qsofa": ("qSOFA", 0, 3),
    "gcs": ("GCS", 3, 15),
    "sirs": ("SIRS", 0, 4),
    "pain": ("pain", 0, 10),
    "nrs": ("NRS", 0, 10),
    "apgar": ("Apgar", 0, 10),
}
"""Known scores, by the word in a column's name: as they are written, lowest and highest."""

NEUTRAL = {"score", "total", "points", "level", "scale", "min", "max", "mean", "last", "worst", "current", "value"}
"""Words beside a score's that leave it what it is; with others, such as `GCS motor`, it may be something else."""

INSPIRED, SATURATIONS = {"fio2"}, {"spo2", "sao2", "svo2", "scvo2", "o2sat", "sats", "saturation"}
PERCENT_WORDS = {"percent", "percentage", "pct"}
FRACTION_WORDS = {"fraction", "share", "proportion", "probability", "prob", "risk"}
UNBOUNDED_WORDS = {"change", "delta", "difference", "diff", "growth", "increase", "decrease", "predicted", "relative"}
"""A percentage of change, or of something expected, can be beyond 0 to 100."""

ROOM_AIR = 21.0
"""The lowest FiO2 (%)."""

MANY = 20
"""Fractions have at least so many different values, and reach beyond `WIDE` unless their name says what they are."""
WIDE = 0.8


@dataclass(frozen=True)
class HardRange:
    """The values that are possible at all, and why."""

    low: float
    high: float
    why: str


def hard_range(reading: Reading, unit: str) -> HardRange | None:
    """The range of a column that is a known score, a fraction or a percentage; None where there is no such limit."""
    names = set(re.findall(r"[a-z0-9]+", reading.name.casefold()))
    if not reading.values.size or reading.is_binary or names & UNBOUNDED_WORDS:
        return None
    return (
        _score(reading, names)
        or _oxygen(reading, names)
        or _percentage(reading, names, unit)
        or _fraction(reading, names, unit)
    )


def _within(reading: Reading, low: float, high: float) -> bool:
    return bool(reading.values.min() >= low and reading.values.max() <= high)


def _score(reading: Reading, names: set[str]) -> HardRange | None:
    found = names & set(SCORES)
    if len(found) != 1 or not reading.is_whole or not names - found <= NEUTRAL:
        return None
    name, low, high = SCORES[found.pop()]
    return HardRange(low, high, f"a score, {name} is {low} to {high}") if _within(reading, low, high) else None


def _oxygen(reading: Reading, names: set[str]) -> HardRange | None:
    """FiO2 and saturations, as percentages or fractions."""
    part = 0.01 if reading.values.max() <= 1 else 1.0
    if names & INSPIRED and _within(reading, part * ROOM_AIR, part * 100):
        return HardRange(part * ROOM_AIR, part * 100, "FiO2, from room air to pure oxygen")
    if names & (INSPIRED | SATURATIONS) and _within(reading, 0.0, part * 100):
        return HardRange(0.0, part * 100, f"a {'percentage' if part == 1 else 'fraction'} by its name")
    return None


def _percentage(reading: Reading, names: set[str], unit: str) -> HardRange | None:
    if (unit == "%" or names & PERCENT_WORDS) and _within(reading, 0.0, 100.0):
        return HardRange(0.0, 100.0, "a percentage by its name")
    return None


def _fraction(reading: Reading, names: set[str], unit: str) -> HardRange | None:
    if unit not in ("", "?") or not _within(reading, 0.0, 1.0):
        return None
    if names & FRACTION_WORDS:
        return HardRange(0.0, 1.0, "a fraction by its name")
    if reading.distinct >= MANY and reading.values.max() >= WIDE:
        return HardRange(0.0, 1.0, "a fraction, by its values from 0 to 1")
    return None
