"""Vasopressors and fluids: from orders and charted rates to intervals in one unit, and from intervals to steps."""

import numpy as np
from numpy.typing import NDArray

from ifonly.clinical.event_tables import PLAUSIBLE_WEIGHT
from ifonly.clinical.items import mimic_items
from ifonly.clinical.rules import NO_STAY, Rule, by_item, hour, kept_where, outside, reasons, values

Floats = NDArray[np.float64]

RATE_UNITS = {
    "mcgkgmin": ("mass per kg", 1.0),
    "mcgkghr": ("mass per kg", 1 / 60),
    "mgkgmin": ("mass per kg", 1000.0),
    "mgkghr": ("mass per kg", 1000 / 60),
    "mcgmin": ("mass", 1.0),
    "mcghr": ("mass", 1 / 60),
    "mgmin": ("mass", 1000.0),
    "mghr": ("mass", 1000 / 60),
    "umin": ("units", 1.0),
    "uhr": ("units per hour", 1 / 60),
}
"""Charted units (as `_plain_unit` writes them): what they measure, and the factor to mcg/min or units/min."""
DEFAULT_WEIGHT = 80.0
"""kg, where a rate that is not per kg meets a stay without a weight (as in the AI Clinician)."""
MOST_VASOPRESSIN = 0.2
"""Units/min above which a rate was meant per hour (as in the AI Clinician)."""
MOST_RATE = 10.0
"""Norepinephrine equivalents, mcg/kg/min; more is a slip."""
CAREVUE_HOLD = 4.0
"""Hours within which the next chart of a drug ends a charted rate."""
CAREVUE_ALONE = 1.0
"""Hours that a charted rate lasts if no chart follows within `CAREVUE_HOLD`."""

FLUID_UNITS = {"ml": 1.0, "cc": 1.0, "l": 1000.0}
"""To mL, for any fluid; an amount without a unit is in mL."""
OTHER_FLUID_UNITS = (
    # Sodium bicarbonate of 8.4 % has 1 mEq per mL, mannitol of 20 % has 1 g in 5 mL.
    (30030, "meq", 1.0),
    (220995, "meq", 1.0),
    (227533, "meq", 1.0),
    (227531, "grams", 5.0),
    (227531, "g", 5.0),
)
MOST_FLUID = 10_000
"""mL in one row; more is a slip."""


def rate_profile(intervals: Floats) -> tuple[Floats, Floats]:
    """How much runs at each moment: breakpoints `[M]`, and the summed rate `[M]` from each one to the next.

    `intervals [N, 3]` holds start, stop and rate of infusions, which run from start up to, but not including, stop.
    The last rate is always zero; an interval that does not last changes nothing.
    """
    lasting = intervals[intervals[:, 1] > intervals[:, 0]]
    starts, stops, rates = lasting.T
    times = np.unique(np.concatenate([starts, stops]))
    changes, running = np.zeros(len(times)), np.zeros(len(times), dtype=np.int64)
    for moments, sign in ((starts, 1), (stops, -1)):
        places = np.searchsorted(times, moments)
        np.add.at(changes, places, sign * rates)
        np.add.at(running, places, sign)
    # Rounding errors after all infusions have ended count as zero.
    profile = np.where(np.cumsum(running) > 0, np.maximum(np.cumsum(changes), 0.0), 0.0)
    return times, profile


def maximum_rate(intervals: Floats, edges: Floats) -> Floats:
    """The highest summed rate within each step `[n]`, for steps between `edges [n + 1]` (ascending).

    `intervals [N, 3]`: start, stop, rate (see `rate_profile`). Rates of several infusions that run at the same moment
    add up; rates at different moments do not.

    >>> both = np.array([[0.0, 6.0, 0.1], [5.0, 7.0, 0.2]])
    >>> maximum_rate(both, np.array([0.0, 4.0, 8.0, 12.0])).round(3).tolist()
    [0.1, 0.3, 0.0]
    """
    times, profile = rate_profile(intervals)
    # Every edge begins a segment of its own, with the rate that runs there.
    begins = np.unique(np.concatenate([times, edges]))
    place = np.searchsorted(times, begins, side="right") - 1
    rates = np.where(place >= 0, profile[place], 0.0) if len(times) else np.zeros(len(begins))
    first = np.searchsorted(begins, edges)
    return np.maximum.reduceat(rates, first)[:-1] if len(edges) > 1 else np.zeros(0)


def amount_per_step(intervals: Floats, edges: Floats) -> Floats:
    """How much of what was given falls into each step `[n]`, for steps between `edges [n + 1]` (ascending).

    `intervals [N, 3]`: start, stop and the whole amount, given evenly from start to stop; with start = stop a bolus,
    which falls into the step that holds its moment (a step's beginning belongs to it, its end to the next).

    >>> given = np.array([[2.0, 6.0, 400.0], [4.0, 4.0, 50.0]])
    >>> amount_per_step(given, np.array([0.0, 4.0, 8.0])).tolist()
    [200.0, 250.0]
    """
    starts, stops, amounts = (column[:, None] for column in intervals.T)
    lengths = stops - starts
    with np.errstate(divide="ignore", invalid="ignore"):
        fractions = np.clip((edges - starts) / lengths, 0.0, 1.0)
    fractions = np.where(lengths > 0, fractions, edges > starts)
    amounts_by_step: Floats = (np.diff(fractions, axis=1) * amounts).sum(axis=0)
    return amounts_by_step


def _plain_unit(column: str) -> str:
    """A unit without blanks and strokes, with one word for each: mcg/kg/hour and mcgkghr are the same."""
    bare = f"regexp_replace(lower({column}), '[^a-z]', '', 'g')"
    return f"replace(replace(replace({bare}, 'hour', 'hr'), 'units', 'u'), 'unit', 'u')"


def vasopressors_rule(*, carevue: bool) -> Rule:
    """Infusions as intervals in norepinephrine equivalents per kg and minute."""
    parts = [_metavision_rates()] + ([_carevue_rates()] if carevue else [])
    table = f"""
        WITH points AS (
            SELECT stay, drug, start, max(rate) AS rate FROM (
                SELECT stay, drug, item, start, CASE WHEN bool_or(stopped) THEN 0 ELSE max(rate) END AS rate
                FROM vasopressors_rows WHERE reason IS NULL AND charted GROUP BY stay, drug, item, start
            ) GROUP BY stay, drug, start
        ), lasting AS (
            SELECT *, lead(start) OVER (PARTITION BY stay, drug ORDER BY start) AS next FROM points
        ), every AS (
            SELECT stay, start, rate, drug,
                CASE WHEN next - start <= {CAREVUE_HOLD} THEN next ELSE start + {CAREVUE_ALONE} END AS stop
            FROM lasting WHERE rate > 0
            UNION ALL
            SELECT stay, start, rate, drug, stop FROM vasopressors_rows WHERE reason IS NULL AND NOT charted
        )
        SELECT stay::VARCHAR AS stay, start, stop, rate, drug FROM every
        ORDER BY every.stay, start, stop, drug, rate"""
    passes = ("inputs_metavision", "inputs_carevue") if carevue else ("inputs_metavision",)
    figures = (
        ("rates with an assumed weight", kept_where("vasopressors", "default_weight")),
        ("vasopressin per minute taken as per hour", kept_where("vasopressors", "taken_per_hour")),
    )
    return Rule("vasopressors", " UNION ALL ".join(parts), table, passes, ("admitted", "stays"), figures)


def _metavision_rates() -> str:
    reason = reasons(
        *NO_STAY,
        ("no time", "r.start IS NULL OR r.stop IS NULL"),
        ("cancelled or rewritten", "r.cancelled"),
        ("no rate", "r.rate IS NULL"),
        ("negative duration", "r.stop < r.start"),
        ("no duration", "r.stop = r.start"),
        ("rate not above zero", "r.rate <= 0"),
        ("unit not known", "r.equivalent IS NULL"),
        ("implausible", f"r.equivalent > {MOST_RATE}"),
        outside("r.start_hour", "r.stop_hour"),
        ("duplicate", "r.copy > 1"),
    )
    copies = "row_number() OVER (PARTITION BY r.stay, r.start, r.stop, r.item, r.rate, r.order_id, r.cancelled)"
    times = f"{hour('r.start')} AS start_hour, {hour('r.stop')} AS stop_hour, {copies} AS copy"
    return f"""SELECT r.stay, r.start_hour AS start, r.stop_hour AS stop, r.item, r.drug, false AS charted,
        false AS stopped, r.equivalent AS rate, r.drug || ', metavision' AS kind,
        r.default_weight, r.taken_per_hour, {reason} AS reason
        FROM ({_in_equivalents("raw_inputs_metavision", "r.weight", times)}) r LEFT JOIN admitted s USING (stay)"""


def _carevue_rates() -> str:
    reason = reasons(
        *NO_STAY,
        ("no time", "r.time IS NULL"),
        ("amount without a rate", "r.rate IS NULL AND NOT r.stopped AND r.amount IS NOT NULL"),
        ("no rate", "r.rate IS NULL AND NOT r.stopped"),
        ("negative rate", "r.rate < 0"),
        ("unit not known", "r.equivalent IS NULL AND r.rate <> 0 AND NOT r.stopped"),
        ("implausible", f"r.equivalent > {MOST_RATE}"),
        outside("r.hour", "r.hour"),
        ("duplicate", "r.copy > 1"),
    )
    copies = "row_number() OVER (PARTITION BY r.stay, r.time, r.item, r.rate, r.stopped, r.amount IS NULL)"
    times = f"{hour('r.time')} AS hour, {copies} AS copy"
    return f"""SELECT r.stay, r.hour, NULL, r.item, r.drug, true, r.stopped, coalesce(r.equivalent, 0),
        r.drug || ', carevue', r.default_weight, r.taken_per_hour, {reason}
        FROM ({_in_equivalents("raw_inputs_carevue", "NULL", times)}) r LEFT JOIN admitted s USING (stay)"""


def _in_equivalents(rows: str, weight: str, more: str) -> str:
    """Rows of vasopressors with `drug`, and `equivalent`: the rate in mcg/kg/min; null if the unit does not fit."""
    items = mimic_items()
    factors = items["norepinephrine_equivalent"]
    drugs = [(item, drug, float(factors[drug])) for item, drug in by_item(items["vasopressors"])]
    units = [(unit, measure, factor) for unit, (measure, factor) in RATE_UNITS.items()]
    low, high = PLAUSIBLE_WEIGHT
    own = f"CASE WHEN {weight} BETWEEN {low} AND {high} THEN {weight} END"
    known = f"coalesce({own}, w.weight)"
    mass = "d.drug <> 'vasopressin'"
    per_hour = f"(NOT ({mass}) AND u.measure = 'units' AND r.rate > {MOST_VASOPRESSIN})"
    equivalent = f"""d.factor * CASE
        WHEN {mass} AND u.measure = 'mass per kg' THEN r.rate * u.factor
        WHEN {mass} AND u.measure = 'mass' THEN r.rate * u.factor / coalesce({known}, {DEFAULT_WEIGHT})
        WHEN {per_hour} THEN r.rate / 60
        WHEN NOT ({mass}) AND u.measure IN ('units', 'units per hour') THEN r.rate * u.factor END"""
    return f"""SELECT r.*, d.drug, {equivalent} AS equivalent, {more}, {per_hour} AS taken_per_hour,
            {mass} AND u.measure = 'mass' AND {known} IS NULL AS default_weight
        FROM {rows} r JOIN {values(drugs, "d", "item", "drug", "factor")} USING (item)
        LEFT JOIN {values(units, "u", "unit", "measure", "factor")} ON u.unit = {_plain_unit("r.rate_unit")}
        LEFT JOIN admitted s USING (stay) LEFT JOIN stays w ON w.stay = r.stay::VARCHAR"""


def fluids_rule(*, carevue: bool) -> Rule:
    """Intravenous fluids as intervals in mL, corrected for tonicity; a bolus has start = stop."""
    start, stop = "r.start", "coalesce(r.stop, r.start)"
    parts = [_volumes("metavision", start, stop, "r.cancelled")]
    if carevue:
        # CareVue charts what has run in by then: all of it counts at that time.
        parts.append(_volumes("carevue", "r.time", "r.time", "false"))
    table = """SELECT stay::VARCHAR AS stay, start, stop, ml FROM fluids_rows WHERE reason IS NULL
        ORDER BY fluids_rows.stay, start, stop, ml"""
    passes = ("inputs_metavision", "inputs_carevue") if carevue else ("inputs_metavision",)
    figures = (("boluses", kept_where("fluids", "start = stop")),)
    return Rule("fluids", " UNION ALL ".join(parts), table, passes, ("admitted",), figures)


def _volumes(name: str, start: str, stop: str, cancelled: str) -> str:
    fluids = [(int(item), float(entry["tonicity"])) for item, entry in mimic_items()["fluids"].items()]
    unit = f"coalesce({_plain_unit('r.amount_unit')}, 'ml')"
    common = " ".join(f"WHEN {unit} = '{name}' THEN {factor}" for name, factor in FLUID_UNITS.items())
    others = " ".join(f"WHEN r.item = {item} AND {unit} = '{name}' THEN {by}" for item, name, by in OTHER_FLUID_UNITS)
    ml = f"r.amount * CASE {common} {others} END"
    reason = reasons(
        *NO_STAY,
        ("no time", f"{start} IS NULL"),
        ("cancelled or rewritten", cancelled),
        ("no amount", "r.amount IS NULL"),
        ("nothing given", "r.amount = 0"),
        ("negative amount", "r.amount < 0"),
        ("negative duration", f"{stop} < {start}"),
        ("unit not known", f"{ml} IS NULL"),
        ("implausible", f"{ml} > {MOST_FLUID}"),
        outside(hour(start), hour(stop)),
        (
            "duplicate",
            f"row_number() OVER (PARTITION BY r.stay, {start}, {stop}, r.item, r.amount, r.order_id, {cancelled}) > 1",
        ),
    )
    return f"""SELECT r.stay, {hour(start)} AS start, {hour(stop)} AS stop, {ml} * f.tonicity AS ml, '{name}' AS kind,
            {reason} AS reason
        FROM raw_inputs_{name} r JOIN {values(fluids, "f", "item", "tonicity")} USING (item)
        LEFT JOIN admitted s USING (stay)"""
