"""Doses that cannot be what the table's reader takes them for: slips of a sign, and mixed-up units.

Bins have no lower and no upper end, so that a dose of -250 mL or of 2,500,000 mL would fall into one as any other
does; where there are no bins, a dose that is no level is refused with what it looks like. Messages name rows and
columns, never a dose.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ifonly.data.columns import UNKNOWN_LEVEL, DoseColumn
from ifonly.data.episode import FloatArray, IntArray
from ifonly.data.schema import Axis
from ifonly.errors import InputError

FAR_ABOVE = 10.0
"""Doses of more than so many times the largest level are refused where the axis has no plausible range."""

OTHER_UNIT = 100.0
"""If doses are typically so many times their levels, or so many times less, they are in another unit."""

UNIT_FACTORS = tuple(factor**sign for factor in (1000.0, 60.0, 1e6, 100.0, 24.0, 10.0, 3600.0) for sign in (1, -1))
"""What units differ by: mL and L, per minute and per hour, mcg and g, cm and m, hours and days, ..."""


def plausible_doses(axis: Axis) -> tuple[float, float]:
    """The doses that an axis can have: as it says, or else up to `FAR_ABOVE` times its largest level.

    Without a range of its own an axis whose levels are not negative has no negative doses.
    """
    if axis.plausible is not None:
        return axis.plausible
    most = FAR_ABOVE * max(abs(level) for level in axis.levels)
    if most == 0:
        return 0.0, np.inf
    return (0.0 if axis.levels[0] >= 0 else -most), most


def require_plausible(doses: FloatArray, axis: Axis, dose: DoseColumn, *, locate: Callable[[int], str]) -> None:
    """Refuse doses [N] that the axis cannot have, at the place `locate` names; only bins would take them in."""
    low, high = plausible_doses(axis)
    wrong = np.flatnonzero((doses < low) | (doses > high))
    if not wrong.size or not (dose.edges or axis.plausible):
        return  # without edges a dose that is no level is refused as such
    row = int(wrong[0])
    allow = f"if it is right, widen `plausible` of the axis {axis.name!r} in the schema"
    if doses[row] < 0 <= low:
        what, do = "is negative", f"correct it, or drop the episode; {allow}"
    elif axis.plausible is not None:
        what = f"lies outside the plausible range, {low:g} to {high:g}{f' {axis.unit}' if axis.unit else ''}"
        do = f"is it in another unit, or a slip? Correct it; {allow}"
    else:
        what = f"is more than {FAR_ABOVE:g} times the {'highest' if doses[row] > 0 else 'largest'} level"
        say = f"say so by `plausible: [low, high]` of the axis {axis.name!r} in the schema"
        do = f"is it in another unit, such as mL for L or mcg for mg? Correct it; if it is right, {say}"
    raise InputError(
        f"{locate(row)}: the dose of {axis.name} (column {dose.column!r}) {what}{_more(wrong.size)}; {do}."
    )


def require_levels(
    doses: FloatArray, levels: IntArray, axis: Axis, dose: DoseColumn, *, locate: Callable[[int], str]
) -> None:
    """Refuse doses [N] that are no level (their numbers: `levels` [N]), at the place `locate` names; say what they are.

    None of this is asked where there are edges: every dose has its level.
    """
    unknown = levels == UNKNOWN_LEVEL
    if not unknown.any():
        return
    row = int(np.flatnonzero(unknown)[0])
    none = f"{locate(row)}: the dose of {axis.name} (column {dose.column!r}) is none of the levels {list(axis.levels)}"
    if doses[row] < 0 <= min(axis.levels):
        alike = unknown & (doses < 0)
        raise InputError(f"{none}: it is negative{_more(int(alike.sum()))}; correct it, or drop the episode.")
    for factor in UNIT_FACTORS:
        scaled = dose.levels_of(doses / factor, axis)
        alike = unknown & (scaled != UNKNOWN_LEVEL) & (np.array(axis.levels)[scaled] != 0)
        if not alike[row]:
            continue
        size = f"{factor:,.0f} times one of them" if factor > 1 else f"one of them divided by {1 / factor:,.0f}"
        every = ", as is every dose but zero" if alike[doses != 0].all() else _more(int(alike.sum()))
        unit = f"the unit of the levels{f' ({axis.unit})' if axis.unit else ''}"
        convert = f"Convert it to {unit}, correct the slip, or add it to the levels."
        if alike[doses != 0].all():
            convert = f"Convert the column to {unit}, or correct the levels."
        raise InputError(
            f"{none}, but {size}{every}; is it in another unit (mL or L, mcg or mg, per minute or per hour)? {convert}"
        )
    raise InputError(
        f"{none}; correct it if it is a slip, add it to them, or give 'edges' that say which doses a level stands for."
    )


def require_same_unit(doses: FloatArray, levels: IntArray, axis: Axis, dose: DoseColumn) -> None:
    """Refuse doses [N] that all fall on one level (their numbers: `levels` [N]) and are far from it in size."""
    factor = unit_factor(doses, levels, axis.levels)
    if factor is None:
        return
    row = int(np.flatnonzero(doses != 0)[0])
    size = f"about {factor:,.0f} times larger" if factor > 1 else f"about {1 / factor:,.0f} times smaller"
    raise InputError(
        f"column {dose.column!r}, row {row + 1} and on: the doses of {axis.name} are {size} than its levels"
        f"{f' (in {axis.unit})' if axis.unit else ''}, so that all but zero become the same one; convert the column to "
        "the unit of the levels (mL or L, mcg or mg?), or give levels and edges in the column's unit."
    )


def unit_factor(doses: FloatArray, levels: IntArray, doses_of_levels: tuple[float, ...]) -> float | None:
    """How many times larger doses other than zero are than levels are, to a power of ten.

    None where they are of one size, or fall on several levels.
    """
    given, sizes = doses != 0, np.abs([level for level in doses_of_levels if level != 0])
    if not given.any() or not sizes.size or len(np.unique(levels[given])) > 1:
        return None
    ratio = float(np.median(np.abs(doses[given])) / np.median(sizes))
    if 1 / OTHER_UNIT < ratio < OTHER_UNIT:
        return None
    return float(10.0 ** np.round(np.log10(ratio)))


def _more(count: int) -> str:
    return "" if count == 1 else f" (and {count - 1:,} more)"
