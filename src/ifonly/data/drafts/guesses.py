"""What columns of numbers are likely to be as features, with reasons: kinds, units, scaling, plausible ranges."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from ifonly.data.drafts.names import ACTION_WORDS, ID_WORDS, OUTCOME_WORDS, OUTSIDE_WORDS, TREATMENT_NAMES
from ifonly.data.drafts.ranges import hard_range
from ifonly.data.drafts.readings import Reading
from ifonly.data.drafts.roles import (
    FEW_WRONG,
    is_constant_by,
    is_constant_within,
    looks_like_dose,
    names_subjects,
    words,
)
from ifonly.data.episode import FloatArray
from ifonly.data.labels import LabelColumn
from ifonly.data.margins import learn_log_offset
from ifonly.data.plain import repeated
from ifonly.data.schema import TABLE_COLUMNS, Feature, Kind, Scaling
from ifonly.data.store import UNIT_TO_FILL_IN
from ifonly.data.text_tables import HALF
from ifonly.errors import InputError

UNIT_WORDS = {
    **{
        unit.casefold(): unit
        for unit in ("mm", "cm", "km", "m2", "m3", "ha", "kg", "mg", "mL", "kW", "kWh", "Wh", "ms", "min", "mmHg")
    },
    **{
        unit.casefold(): unit
        for unit in ("bar", "rpm", "Hz", "kPa", "Pa", "EUR", "USD", "L", "dL", "W", "V", "C", "h", "g")
    },
    **{"percent": "%", "pct": "%", "hours": "h", "years": "years", "days": "d", "minutes": "min", "celsius": "C"},
}
AMOUNTS = UNIT_WORDS | {
    unit.casefold(): unit for unit in ("ng", "ug", "mcg", "mmol", "umol", "mol", "mEq", "IU", "kcal", "kJ", "t")
}
DIVISORS = {"L", "dL", "mL", "m2", "m3", "ha", "kg", "h", "min", "d"}
"""A unit of these after one of an amount divides it."""

SIGNED_WORDS = (
    *("temperature", "temp", "celsius", "fahrenheit", "balance", "net", "profit", "bill", "error", "deviation"),
    *("change", "delta", "difference", "diff", "excess", "offset", "log", "score", "index", "position", "angle"),
)
"""What can be negative although no recorded value is."""

SKEWED, VERY_SKEWED = 1.0, 2.0
"""Skewness from which a logarithm is suggested for positive values, and for values that can be zero."""

MOST_WORDS, FEWEST_EPISODES = 10, 5
"""A column of words becomes features if it has no more different ones, and each is used in so many episodes."""

MOST_CODES = 8
"""Whole numbers that are no more than this may be codes of something."""

FEW_ZEROS = 0.1
"""Zeros far away from all other values are taken for missing ones up to this share."""

WITH_SIGNS = r"^\s*[<>~]?=?\s*[+-]?\d+(?:[.,]\d+)?\s*(?:[^\d\s.,:/-]\S{0,11})?\s*$"
"""A number with its unit, or with a sign of comparison."""

PARTED = r"^\s*(?:[+-]?\d{1,3}(?:['\x{2019}\s\x{a0}\x{202f}]\d{3})+(?:[.,]\d+)?|\x{2212}?\d+(?:[.,]\d+)?)\s*$"
"""A number with a sign between its thousands, or a minus that is no hyphen."""

SWITCHES = ({"no", "yes"}, {"n", "y"}, {"false", "true"}, {"f", "t"}, {"off", "on"})
NO = ("no", "n", "false", "f", "off")
"""Words for on and off; features are about the other one."""

NAME_IT = "if it says whom or what episodes are about, name it: --column subject=NAME"

FENCE, FENCE_OF_FACTORS = 1.0, 2.0
"""Plausible ranges reach this many widths of the middle 98 % beyond it; upwards farther where changes go by factors,
for what multiplies has long tails."""


@dataclass(frozen=True)
class FeatureGuess:
    """A feature, with the reasons for its kind, scaling and unit."""

    feature: Feature
    kind_reason: str
    scaling_reason: str
    unit_reason: str


@dataclass(frozen=True)
class LabelGuess:
    """A column of words, and the features that it becomes."""

    column: LabelColumn
    features: tuple[FeatureGuess, ...]


def guess_labels(reading: Reading, episodes: pl.Series) -> LabelGuess | None:
    """What a column of few words, each of them in several episodes, is likely to be; None where it is none.

    The file that is written names the words, so rare ones, which could tell who somebody is, are not taken.
    """
    if reading.is_numeric or reading.is_date or not reading.is_complete or not 2 <= reading.distinct <= MOST_WORDS:
        return None
    if set(words(reading.name)) & set(OUTCOME_WORDS) or has_signs(reading):
        return None
    counts = pl.DataFrame({"word": reading.texts, "episode": episodes}).group_by("word").agg(pl.len(), _episodes())
    if counts["episode"].min() < FEWEST_EPISODES:  # type: ignore[operator]
        return None
    found = counts.sort(["len", "word"], descending=[True, False])["word"].to_list()
    is_switch = {word.casefold() for word in found} in SWITCHES
    if is_switch:
        found.sort(key=lambda word: word.casefold() not in NO)
    fixed = is_constant_within(reading.texts, episodes)
    kind: Kind = "static" if fixed else "contextual"
    why = "a word per episode" if fixed else "a word per step; check that no action changes it"
    if not fixed and set(words(reading.name)) & {*ACTION_WORDS, *TREATMENT_NAMES}:
        why = "its name speaks of a treatment: if it is one, make one column of it and the action"
    if repeated([" ".join(word.casefold().split()) for word in found]):
        why = f"{why}; some differ in capitals or spaces alone: write them alike"
    reason = f"{why}; compared with {'no' if is_switch else f'the most frequent of {len(found)}'}"
    try:
        column = LabelColumn(reading.name, tuple(found))
        features = [Feature(name, kind, scaling="none", plausible=(0.0, 1.0)) for name in column.features]
    except InputError:  # words that cannot be shown
        return None
    return LabelGuess(column, tuple(FeatureGuess(one, reason, "0 or 1, left as it is", "none") for one in features))


def _episodes() -> pl.Expr:
    return pl.col("episode").n_unique()


def reason_to_leave_out(reading: Reading, episodes: pl.Series) -> str | None:
    """Why a column cannot be a feature as it is; None where it can. `episodes` [N] are ids."""
    if reading.is_date:
        return "dates are no features; make numbers of them, such as hours since the start"
    if not reading.is_numeric:
        return _reason_of_text(reading, episodes)
    if reading.distinct < 2:
        return "constant, so that nothing can be learned from it"
    if set(words(reading.name)) & set(OUTCOME_WORDS):
        return "its name speaks of an outcome, which is known only afterwards; as a feature it would give away the end"
    if (set(words(reading.name)) & set(ID_WORDS) or names_subjects(reading.name)) and reading.is_whole:
        return f"its name speaks of an id; {NAME_IT}"
    if _looks_like_id(reading, episodes):
        return f"whole numbers that are very long or begin with zeros, as ids do; {NAME_IT}"
    if reading.name in TABLE_COLUMNS:
        return "no feature may have this name; rename it to use it"
    if _is_row_number(reading):
        return "counts the rows of the table"
    try:
        Feature(reading.name, "dynamic")
    except InputError:
        return "its name cannot be shown, or begins or ends with a space; rename it"
    return None


def _reason_of_text(reading: Reading, episodes: pl.Series) -> str:
    if reading.missing.all():
        return "holds no value at all"
    if reading.distinct < 2:
        return "the same text throughout, lists or the like: no number"
    if has_signs(reading):
        return "numbers with units, or with signs that are not read; to use it, write plain numbers"
    if reading.distinct < episodes.n_unique() and is_constant_within(reading.texts, episodes):
        return f"text, one per episode; {NAME_IT}; if it is a kind of episode, list its words as `labels` under `table`"
    if reading.distinct <= MOST_WORDS:
        return "text, with empty cells or words of few episodes; to use it, list its words as `labels` under `table`"
    return "text, no number"


def has_signs(reading: Reading) -> bool:
    """Whether most texts are numbers with the same thing beside them - 5 %, 7 %, but not 1st, 2nd, 3rd - or in them."""
    if float(reading.texts.str.contains(PARTED).mean() or 0.0) >= HALF:  # type: ignore[arg-type]
        return True
    numbers = reading.texts.drop_nulls().filter(reading.texts.drop_nulls().str.contains(WITH_SIGNS))
    beside = numbers.str.replace(r"[+-]?\d+(?:[.,]\d+)?", "").str.strip_chars()
    most = int(beside.value_counts()["count"].max() or 0)  # type: ignore[arg-type]
    return most > 0 and most >= HALF * reading.texts.count()


def _looks_like_id(reading: Reading, episodes: pl.Series) -> bool:
    """Whether numbers that stay the same within episodes only name something."""
    named = not reading.is_exact or bool(reading.texts.str.contains(r"^0\d+$").any())
    return named and reading.is_whole and is_constant_within(reading.texts, episodes)


def _is_row_number(reading: Reading) -> bool:
    values = reading.values
    return reading.is_clean and len(values) > 2 and bool((np.diff(values) == 1).all())


def guess_feature(reading: Reading, episodes: pl.Series, steps: pl.Series) -> FeatureGuess:
    """The feature that a column of numbers is likely to be; `episodes` [N] are ids, `steps` [N] numbers of steps."""
    reading = _without_codes(reading)
    kind, kind_reason = _kind(reading, episodes, steps)
    unit, unit_reason = guess_unit(reading)
    hard = hard_range(reading, unit)
    if hard is not None and kind == "dynamic":
        scaled = Feature(reading.name, kind, unit=unit, scaling="bounded", plausible=(hard.low, hard.high))
        return FeatureGuess(scaled, kind_reason, f"{hard.why}: models cannot leave it; else write linear", unit_reason)
    found = _ends_at_zero(reading, episodes, steps) if kind == "dynamic" else None
    scaling, offset, scaling_reason = found or _scaling(reading)
    plausible = (hard.low, hard.high) if hard else _plausible(reading, FENCE_OF_FACTORS if scaling == "log" else FENCE)
    feature = Feature(reading.name, kind, unit=unit, scaling=scaling, plausible=plausible, log_offset=offset)
    return FeatureGuess(feature, kind_reason, scaling_reason, unit_reason)


def _without_codes(reading: Reading) -> Reading:
    """The column without codes for missing values, such as -999 or 0: the same value, far away from all others.

    Left out, it neither widens the plausible range, so that it is told to lie outside, nor decides on the scale.
    """
    values, counts = np.unique(reading.values, return_counts=True)
    for end in (0, -1):
        most = FEW_ZEROS * counts.sum() if values[end] == 0 else np.inf  # more of them are a state of its own
        if len(values) <= MOST_CODES or not 2 <= counts[end] <= most:
            continue
        rest = replace(reading, numbers=reading.numbers.set((reading.numbers == values[end]).fill_null(False), None))
        low, high = _plausible(rest, FENCE_OF_FACTORS)
        if not low <= values[end] <= high:
            return _without_codes(rest)
    return reading


def _kind(reading: Reading, episodes: pl.Series, steps: pl.Series) -> tuple[Kind, str]:
    kind, why = _kind_by_values(reading, episodes, steps)
    if kind != "static" and set(words(reading.name)) & set(ACTION_WORDS):
        return kind, "its name speaks of an action; check: if it is one, name it too, --column action=NAME"
    return kind, why


def _kind_by_values(reading: Reading, episodes: pl.Series, steps: pl.Series) -> tuple[Kind, str]:
    if is_constant_within(reading.numbers, episodes):
        return "static", "one value per episode; check that it is known from the start, and no outcome"
    # Only where steps recur does it mean anything that values do.
    if 2 * steps.n_unique() <= len(steps) and is_constant_within(reading.numbers, steps.cast(pl.String)):
        return "contextual", "the same in all episodes at the same step, so no action changes it"
    if reading.distinct == 2:
        what = "0 or 1" if reading.is_binary else "two values"
        return "contextual", f"{what}; check: models predict quantities, not switches"
    if set(words(reading.name)) & set(OUTSIDE_WORDS):
        return "contextual", "its name speaks of something that no action changes; check"
    changing = ~is_constant_by(reading.numbers, episodes)
    if changing.mean() <= FEW_WRONG:  # type: ignore[operator]
        return "dynamic", f"changes within {changing.sum()} of {len(changing)} episodes alone: slips in a static one?"
    if looks_like_dose(reading, episodes):
        return "dynamic", "changes within episodes; check: if it is a dose, name it as one, --column action=NAME"
    if reading.is_whole and reading.distinct <= MOST_CODES:
        return "dynamic", "changes within episodes; check: a few whole numbers; if they are codes, write words instead"
    return "dynamic", "changes within episodes; check: contextual if no action could have changed it"


def _scaling(reading: Reading) -> tuple[Scaling, float, str]:
    """Scaling, log offset, and why."""
    if reading.is_binary:
        return "none", 0.0, "0 or 1, left as it is"
    values = reading.values
    skewness, lowest = _skewness(values), float(values.min())
    if lowest > 0 and skewness > SKEWED and abs(_skewness(np.log(values))) < skewness / 2:
        return "log", 0.0, f"positive and skewed ({skewness:.1f})"
    if lowest == 0 and skewness > VERY_SKEWED:
        offset = _one_digit(float(np.quantile(values[values > 0], 0.05)))
        if abs(_skewness(np.log(values + offset))) < skewness / 2:
            return "log", offset, f"skewed ({skewness:.1f}), with zeros"
    return "linear", 0.0, "zero mean and unit deviation"


def _ends_at_zero(reading: Reading, episodes: pl.Series, steps: pl.Series) -> tuple[Scaling, float, str] | None:
    """A logarithmic scale, which ends at zero, for values that come near it and are never below; else None.

    The smaller its offset, the farther down changes go by factors: recorded changes say how far.
    """
    values = reading.values
    low, high = np.quantile(values, (0.01, 0.99))
    signed = values.min() < 0 or bool(set(words(reading.name)) & set(SIGNED_WORDS))
    if signed or reading.is_binary or values.max() == 0 or low - FENCE * (high - low) > 0:
        return None
    table = pl.DataFrame({"episode": episodes, "step": steps, "value": reading.numbers}).sort("episode", "step")
    pairs = table.with_columns(pl.col("value").shift(-1).over("episode").alias("next")).drop_nulls(("value", "next"))
    if pairs.is_empty() or not pairs.select(pl.max_horizontal("value", "next").max() > 0).item():
        return None  # values stand between missing ones: no change was recorded
    offset = learn_log_offset(pairs["value"].to_numpy(), pairs["next"].to_numpy())
    if values.min() > 0 and offset < values.min():
        return "log", 0.0, "positive, and changes by factors"
    return "log", _one_digit(offset), "never negative: models cannot go below zero; else write linear"


def _skewness(values: FloatArray) -> float:
    scaled = values / np.abs(values).max()  # avoids overflow in the squares
    deviation = scaled.std()
    return float((((scaled - scaled.mean()) / deviation) ** 3).mean()) if deviation > 0 else 0.0


def _one_digit(value: float) -> float:
    """A positive number rounded to its leading digit."""
    return float(f"{value:.0e}")


def guess_unit(reading: Reading) -> tuple[str, str]:
    """The unit in a column's name, or a mark to fill it in; and a remark that says which."""
    if reading.is_binary:
        return "", "none"
    bracketed = re.search(r"[\[(]([^\])]+)[\])]\s*$", reading.name)
    if bracketed:
        return bracketed[1].strip(), "from its name; check"
    *_, amount, last = ["", *re.split(r"[_\s]+", reading.name.casefold())]
    if amount and last in UNIT_WORDS:
        unit = UNIT_WORDS[last]
        # "glucose_mg_dL" is no volume, but an amount per volume.
        per = f"{AMOUNTS[amount]}/{unit}" if unit in DIVISORS and amount in AMOUNTS else unit
        return per, "from its name; check"
    return UNIT_TO_FILL_IN, 'fill in; "" for none'


def _plausible(reading: Reading, above: float) -> tuple[float, float]:
    """A wide, round range about most of the values, as a start, `above` widths upwards; never the exact extremes."""
    if reading.is_binary:
        return 0.0, 1.0
    least, largest = reading.values.min(), reading.values.max()
    part = 8.0 if max(-least, largest) > 1e300 else 1.0  # of which widths are numbers, too
    low, high = (float(q) for q in np.quantile(reading.values / part, (0.01, 0.99)))
    if low == high:
        low, high = float(least) / part, float(largest) / part
    width = high - low
    grain = 10.0 ** math.floor(math.log10(width))
    bottom = math.floor((low - FENCE * width) / grain) * grain
    top = math.ceil((high + above * width) / grain) * grain
    # A range never starts below zero if no value does.
    return _tidy(max(bottom, 0.0) if least >= 0 else bottom, part), _tidy(top, part)


def _tidy(value: float, part: float) -> float:
    """So many times the value, rounded to six digits, without floating-point noise."""
    most = 1.79769e308
    return float(f"{min(max(value * part, -most), most):.6g}")
