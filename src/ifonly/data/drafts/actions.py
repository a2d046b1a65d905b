"""What the actions of a table are likely to be, with reasons: categories, levels, or binned doses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ifonly.data.columns import DoseColumn
from ifonly.data.doses import plausible_doses
from ifonly.data.drafts.guesses import guess_unit, has_signs
from ifonly.data.drafts.readings import Reading
from ifonly.data.drafts.roles import SHARE_OF_ZEROS, without_slips, words
from ifonly.data.episode import FloatArray, IntArray
from ifonly.data.plain import repeated
from ifonly.data.schema import ActionSpace, Axis
from ifonly.errors import InputError

MOST_LABELS = 50
"""More labels than this are no finite set of actions, but notes."""

MOST_LEVELS = 8
"""Up to so many different doses are levels as they are; more are binned."""


CODED = {"action", "treatment", "decision", "intervention", "id", "code", "number", "index"}
"""Names of these words alone are of numbers that count actions, where they do."""


@dataclass(frozen=True, eq=False)
class ActionGuess:
    """The actions of a table."""

    space: ActionSpace
    column: str | None
    """Of labels; None where there are doses."""
    doses: tuple[DoseColumn, ...]
    reasons: Mapping[str, str]
    """Why, for each column."""
    counts: IntArray
    """How often each action is taken [A]; rows without one left out."""
    negative: Mapping[str, int] = field(default_factory=dict)
    """Columns of doses with a few negative ones, taken for mistakes, and how many."""
    beyond: Mapping[str, int] = field(default_factory=dict)
    """Columns of doses far above the highest level, and how many."""


def guess_actions(readings: Sequence[Reading]) -> ActionGuess:
    """The actions in one column of labels, or in one or more columns of doses."""
    if twice := repeated([reading.name for reading in readings]):
        raise InputError(f"table: column(s) {twice} are named more than once as an action.")
    for reading in readings:
        if reading.is_date or reading.distinct < 2:
            raise InputError(f"table: column {reading.name!r} cannot be an action: it holds dates or a single value.")
    labels = [reading.name for reading in readings if not reading.is_numeric]
    if labels and len(readings) > 1:
        raise InputError(
            f"table: column(s) {labels} hold text, so they cannot be doses beside others; join them to one column of "
            "labels, or give numbers, such as 0 and 1 for two words."
        )
    if len(readings) == 1 and _are_codes(readings[0]):
        return _codes(readings[0])
    return _categories(readings[0]) if labels else _doses(readings)


def _are_codes(reading: Reading) -> bool:
    """Whether the name speaks of actions, not of doses, and its numbers count them: 0, 1, 2, ..., all there.

    A few numbers may be levels as well as codes; bins of many would throw away which action was taken.
    """
    if not reading.is_numeric or not reading.is_whole or not set(words(reading.name)) <= CODED:
        return False
    return MOST_LEVELS < reading.distinct <= MOST_LABELS and (reading.values.min(), reading.values.max()) == (
        0,
        reading.distinct - 1,
    )


def _codes(reading: Reading) -> ActionGuess:
    count = reading.distinct
    return ActionGuess(
        space=ActionSpace.categories([f"action {code}" for code in range(count)]),
        column=reading.name,
        doses=(),
        reasons={reading.name: f"codes 0 to {count - 1}, without an order; if they are doses, name it a dose"},
        counts=np.bincount(reading.values.astype(np.int64), minlength=count),
    )


def _categories(reading: Reading) -> ActionGuess:
    found = reading.texts.drop_nulls()
    labels = sorted(found.unique().to_list())
    if len(labels) > MOST_LABELS:
        raise InputError(
            f"table: column {reading.name!r} holds {len(labels)} different texts; actions are a finite set of at most "
            f"{MOST_LABELS}. Group them, or name another column: --column action=NAME."
        )
    counts = found.replace_strict(labels, list(range(len(labels)))).to_numpy()
    note = "; if they are doses, write plain numbers, without units" if has_signs(reading) else ""
    return ActionGuess(
        space=ActionSpace.categories(labels),
        column=reading.name,
        doses=(),
        reasons={reading.name: f"{len(labels)} labels, without an order{note}"},
        counts=np.bincount(counts, minlength=len(labels)),
    )


def _doses(readings: Sequence[Reading]) -> ActionGuess:
    names = [_without_unit(reading) for reading in readings]
    if not all(names) or repeated(names):
        names = [reading.name for reading in readings]
    guesses = [_axis(reading, name) for reading, name in zip(readings, names, strict=True)]
    space = ActionSpace.product(*(axis for axis, _, _ in guesses))
    numbers = np.stack([reading.numbers.to_numpy() for reading in readings], axis=1)
    usable = np.isfinite(numbers).all(axis=1)
    low, high = np.array([plausible_doses(axis) for axis, _, _ in guesses]).T
    outside = (numbers < low, numbers > high)
    complete = numbers[usable & ~(outside[0] | outside[1]).any(axis=1)]
    actions = np.zeros(len(complete), dtype=np.int64)
    for column, (axis, dose, _) in enumerate(guesses):
        actions = actions * len(axis.levels) + dose.levels_of(complete[:, column], axis)
    negative, beyond = (
        {reading.name: int(count) for reading, count in zip(readings, wrong.sum(axis=0), strict=True) if count}
        for wrong in outside
    )
    return ActionGuess(
        space=space,
        column=None,
        doses=tuple(dose for _, dose, _ in guesses),
        reasons={dose.column: why for _, dose, why in guesses},
        counts=np.bincount(actions, minlength=len(space)),
        negative=negative,
        beyond=beyond,
    )


def _without_unit(reading: Reading) -> str:
    """The name without the unit in brackets, where that becomes the unit."""
    unit, _ = guess_unit(reading)
    return reading.name.removesuffix(f"({unit})").removesuffix(f"[{unit}]").rstrip()


def _axis(reading: Reading, name: str) -> tuple[Axis, DoseColumn, str]:
    """The axis of a column of doses, under a name without the unit in brackets, since doses are told with theirs."""
    values, (unit, _) = without_slips(reading.values), guess_unit(reading)
    slips = reading.values.size - values.size
    note = f"; {slips:,} negative dose{'' if slips == 1 else 's'}, taken for mistakes" if slips else ""
    distinct = np.unique(values)
    if len(distinct) <= MOST_LEVELS:
        why = f"its {len(distinct)} numbers as levels; if they are mere codes, make them labels"
        return Axis(name, unit, tuple(float(level) for level in distinct)), DoseColumn(name, reading.name), why + note
    has_zero = values.min() >= 0 and float((values == 0).mean()) >= SHARE_OF_ZEROS
    edges = _edges(values[values > 0] if has_zero else values, zero=has_zero)
    levels = _medians(values, edges)
    why = f"{'zero, and ' if has_zero else ''}the medians of the quarters of the {'other ' if has_zero else ''}doses"
    why += "; if they are mere codes, make them labels" if not set(words(name)) - CODED else ""
    axis = Axis(name, unit, levels)
    low, high = (float(f"{end:.3g}") for end in plausible_doses(axis))
    plausible = (low, high) if math.isfinite(low) and math.isfinite(high) else None
    return Axis(name, unit, levels, plausible), DoseColumn(name, reading.name, edges), why + note


def _edges(doses: FloatArray, *, zero: bool) -> tuple[float, ...]:
    """Upper ends of all bins but the last; those that would leave a bin empty are left out."""
    quartiles = [float(f"{edge:.4g}") for edge in np.quantile(doses, (0.25, 0.5, 0.75))]
    candidates = sorted({0.0, *quartiles} if zero else set(quartiles))
    used = np.unique(np.searchsorted(np.array(candidates), np.append(doses, 0.0) if zero else doses, side="left"))
    return tuple(candidates[index] for index in used if index < len(candidates) and index < used[-1])


def _medians(values: FloatArray, edges: tuple[float, ...]) -> tuple[float, ...]:
    """The median dose of each bin, with three digits where those stay within the bin."""
    bins = np.searchsorted(np.array(edges), values, side="left")
    levels = []
    for index in range(len(edges) + 1):
        median = float(np.median(values[bins == index]))
        rounded = float(f"{median:.3g}")
        fits = int(np.searchsorted(np.array(edges), rounded, side="left")) == index
        levels.append(rounded if fits else median)
    return tuple(levels)
