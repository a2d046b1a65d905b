"""Signs in the charts: mechanical ventilation, antibiotics and cultures."""

from collections.abc import Mapping
from typing import Any

from ifonly.clinical.database import quoted
from ifonly.clinical.items import ids_of, mimic_items
from ifonly.clinical.rules import FLAGGED, NO_STAY, Rule, hour, outside, reasons, same_admission

INFECTION_MARGINS = {"antibiotics": (72.0, 72.0), "cultures": (72.0, 24.0)}
"""Hours before the stay, and after it, in which they still belong to it: an antibiotic may follow a culture of the
stay's last hour by 72 hours, a culture an antibiotic by 24."""
SIGNIFICANT_EVENTS = 640
"""The CareVue item that names extubations; the others name devices."""


def ventilation_rule(*, procedures: bool) -> Rule:
    """Moments with evidence for (`on`) or against mechanical ventilation.

    Of several at one moment an extubation counts before ventilator settings, and these before an oxygen mask.
    """
    items = mimic_items()
    texts, off = items["ventilation_text"], items["off_ventilation"]
    any_but = {item: entry for item, entry in texts.items() if entry["on"] == "anything but"}
    only = {item: entry for item, entry in texts.items() if entry["on"] == "only"}
    extubations = {item: entry for item, entry in off.items() if int(item) == SIGNIFICANT_EVENTS}
    devices = {item: entry for item, entry in off.items() if item not in extubations}
    readings = ", ".join(map(str, ids_of(items["ventilation"], any_but)))
    kind = f"""CASE WHEN said IS NULL THEN 'nothing charted'
        WHEN r.item IN ({readings}) AND NOT {_said_one_of(any_but)} OR {_said_one_of(only)} THEN 'ventilator'
        WHEN {_said_one_of(extubations)} THEN 'extubation'
        WHEN {_said_one_of(devices)} THEN 'oxygen device'
        ELSE 'no evidence' END"""
    wanted = ", ".join(map(str, ids_of(items["ventilation"], texts, off)))
    charted = f"""SELECT stay, time, flagged, {kind} AS kind
        FROM (SELECT *, lower(trim(text)) AS said FROM raw_charted WHERE item IN ({wanted})) r"""
    if procedures:
        charted += " UNION ALL SELECT stay, time, cancelled, 'extubation' FROM raw_procedures"
    reason = reasons(
        *NO_STAY,
        ("no time", "r.time IS NULL"),
        FLAGGED,
        ("no evidence", "r.kind IN ('nothing charted', 'no evidence')"),
        outside(hour("r.time"), hour("r.time")),
    )
    rows = f"""SELECT r.stay, {hour("r.time")} AS hour, r.kind, {reason} AS reason
        FROM ({charted}) r LEFT JOIN admitted s USING (stay)"""
    table = """SELECT stay::VARCHAR AS stay, hour,
            CASE WHEN bool_or(kind = 'extubation') THEN false ELSE bool_or(kind = 'ventilator') END AS "on"
        FROM ventilation_rows WHERE reason IS NULL GROUP BY ventilation_rows.stay, hour
        ORDER BY ventilation_rows.stay, hour"""
    return Rule("ventilation", rows, table, ("charted", "procedures") if procedures else ("charted",), ("admitted",))


def _said_one_of(entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Whether the item was charted with one of the words that are listed for it."""
    listed = [f"({item}, {quoted(text.lower())})" for item, entry in entries.items() for text in entry["values"]]
    return f"(r.item, said) IN ({', '.join(listed)})"


def infection_rule(name: str, table: str) -> Rule:
    """Moments of antibiotics or cultures of the stay's admission; a day without a time counts as its noon."""
    if table == "microbiology":
        when, known = "coalesce(time, day + INTERVAL 12 HOUR)", "time IS NOT NULL"
    else:
        when, known = "CASE WHEN time_known THEN time ELSE time + INTERVAL 12 HOUR END", "time_known"
    reason = reasons(("no time", "r.time IS NULL"), ("no stay", "s.stay IS NULL"))
    rows = f"""
        SELECT s.stay, {hour("r.time")} AS hour, r.known AS time_known, '{name}' AS kind, {reason} AS reason
        FROM (SELECT subject, admission, {when} AS time, {known} AS known FROM raw_{table}) r
        LEFT JOIN admitted s ON {same_admission(*INFECTION_MARGINS[name])}"""
    made = f"""SELECT stay::VARCHAR AS stay, hour, bool_or(time_known) AS time_known FROM {name}_rows
        WHERE reason IS NULL GROUP BY {name}_rows.stay, hour ORDER BY {name}_rows.stay, hour"""
    return Rule(name, rows, made, (table,), ("admitted",))
