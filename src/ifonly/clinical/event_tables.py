"""The rules of the event tables: stays, measurements, urine, ventilation, antibiotics and cultures."""

from collections.abc import Mapping
from typing import Any

from ifonly.clinical.database import quoted
from ifonly.clinical.items import INTUBATED_VERBAL, ids_of, mimic_items
from ifonly.clinical.rules import Rule, by_item, charted_reasons, hour, reasons, same_admission, values

PLAUSIBLE_WEIGHT = (20, 300)
"""kg"""
KG_PER_LB = 0.45359237
AGE_OVER_89 = 91.4
"""MIMIC hides higher ages; this is their median."""


def stays_rule(release: str) -> Rule:
    """Stays with age, sex, readmission and outcome; a later rule adds the weight."""
    if release == "MIMIC-IV":
        source = "'metavision'"
        age = f"CASE WHEN p.anchor_age >= 90 THEN {AGE_OVER_89} ELSE p.anchor_age + year(i.intime) - p.anchor_year END"
    else:
        source = "lower(i.source)"
        years = "(epoch(i.intime) - epoch(p.born)) / (365.2425 * 86400)"
        # Birthdays of people over 89 are shifted by about 300 years.
        age = f"CASE WHEN {years} > 150 THEN {AGE_OVER_89} ELSE {years} END"
    reason = reasons(
        ("no stay", "stay IS NULL OR subject IS NULL"),
        ("no time", "intime IS NULL OR outtime IS NULL"),
        ("negative or no duration", "outtime <= intime"),
        ("duplicate", "copy > 1"),
        ("no such patient, or no age or sex", "age IS NULL OR female IS NULL"),
    )
    joined = f"""
        SELECT i.*, {source} AS origin, {age} AS age, p.gender = 'F' AS female, a.died = 1 AS died_in_hospital,
            row_number() OVER (PARTITION BY i.stay ORDER BY i.intime, i.outtime) AS copy,
            min(i.intime) OVER (PARTITION BY i.subject) < i.intime AS readmission
        FROM raw_stays i
        LEFT JOIN (SELECT DISTINCT ON (subject) * FROM raw_patients ORDER BY ALL) p USING (subject)
        LEFT JOIN (SELECT DISTINCT ON (admission) * FROM raw_admissions ORDER BY ALL) a USING (admission)"""
    return Rule(
        "admitted",
        f"SELECT *, 'stays' AS kind, {reason} AS reason FROM ({joined})",
        """SELECT stay, subject, admission, intime, (epoch(outtime) - epoch(intime)) / 3600 AS hours,
            age::DOUBLE AS age, female, readmission, died_in_hospital, origin AS source
        FROM admitted_rows WHERE reason IS NULL ORDER BY stay""",
        ("stays", "patients", "admissions"),
        figures=(
            ("stays listed", "SELECT count(*) FROM raw_stays"),
            ("subjects listed", "SELECT count(DISTINCT subject) FROM raw_stays"),
        ),
        intermediate=True,
    )


def weights_rule() -> Rule:
    """Stays as others read them, with the first plausible charted weight, else that of the first infusion order."""
    weight = mimic_items()["weight"]
    factors = [(int(item), factor) for unit, factor in (("kg", 1.0), ("lb", KG_PER_LB)) for item in weight[unit]]
    low, high = PLAUSIBLE_WEIGHT
    plausible = f"BETWEEN {low} AND {high}"
    rows = f"""
        SELECT s.*, coalesce(c.weight, o.weight) AS weight,
            CASE WHEN c.weight IS NOT NULL THEN 'weight charted' WHEN o.weight IS NOT NULL THEN 'weight from infusions'
                ELSE 'no weight' END AS kind, NULL AS reason
        FROM admitted s
        LEFT JOIN (
            SELECT stay, first(number * factor ORDER BY time, item, number) AS weight
            FROM raw_charted JOIN {values(factors, "w", "item", "factor")} USING (item)
            WHERE number * factor {plausible} AND NOT flagged AND time IS NOT NULL GROUP BY stay
        ) c USING (stay)
        LEFT JOIN (
            SELECT stay, first(weight ORDER BY start, weight) AS weight FROM raw_inputs_metavision
            WHERE weight {plausible} AND start IS NOT NULL GROUP BY stay
        ) o USING (stay)"""
    table = """
        SELECT stay::VARCHAR AS stay, subject::VARCHAR AS subject, admission::VARCHAR AS admission, age, female,
            readmission, hours, weight, died_in_hospital, source
        FROM stays_rows ORDER BY stays_rows.stay"""
    return Rule("stays", rows, table, ("charted", "inputs_metavision"), ("admitted",))


LAB_MARGIN = 48.0
"""Hours before admission to intensive care from which laboratory values count."""
GCS_CARRY = 6.0
"""Hours for which a part of the Glasgow coma scale counts when others are charted later."""

PLAUSIBLE = {
    "mean_bp": (10, 250),
    "fio2": (0.2, 1),
    "pao2": (10, 700),
    "platelets": (1, 2000),
    "bilirubin": (0, 80),
    "creatinine": (0.05, 60),
    "gcs": (3, 15),
}
"""What is kept, in the units of the event tables; the rest is counted and removed."""
PARTS_OF_GCS = {"eye": (1, 4), "verbal": (1, 5), "motor": (1, 6)}
MOST_URINE = 10_000
"""mL in one row; more is a slip."""


def measurements_rule() -> Rule:
    """Measurements in one unit each; of several at the same time their median; GCS from its parts or as charted."""
    items = mimic_items()
    charted = by_item(items["charted"])
    charted += [(item, "gcs") for item, _ in by_item({"gcs": items["gcs"]["total"]})]
    labs = by_item(items["labs"])
    specimens = ", ".join(items["blood_gas_specimen"])
    common = (("no number", "r.number IS NULL"), ("implausible", f"{_in_range('v.kind', 'r.number')} IS NULL"))
    not_arterial = ("not arterial", "v.kind = 'pao2' AND n.time IS NOT NULL")
    other_blood = f"""(SELECT DISTINCT subject, time FROM raw_labs
        WHERE item IN ({specimens}) AND text IS NOT NULL AND upper(trim(text)) NOT IN ('ART', 'ART.', 'ARTERIAL'))"""
    rows = f"""
        SELECT r.stay, {hour("r.time")} AS hour, v.kind, {_in_range("v.kind", "r.number")} AS value,
            {charted_reasons(*common)} AS reason
        FROM raw_charted r JOIN {values(charted, "v", "item", "kind")} USING (item) LEFT JOIN admitted s USING (stay)
        UNION ALL
        SELECT s.stay, {hour("r.time")}, v.kind, {_in_range("v.kind", "r.number")},
            {reasons(("no time", "r.time IS NULL"), *common, not_arterial, ("no stay", "s.stay IS NULL"))}
        FROM raw_labs r JOIN {values(labs, "v", "item", "kind")} USING (item)
        LEFT JOIN {other_blood} n ON n.subject = r.subject AND n.time = r.time
        LEFT JOIN admitted s ON {same_admission(LAB_MARGIN, 0)}"""
    table = """
        WITH direct AS (
            SELECT stay, hour, kind AS variable, CASE kind WHEN 'gcs' THEN min(value) ELSE median(DISTINCT value) END
                AS value, true AS charted
            FROM measurements_rows WHERE reason IS NULL GROUP BY stay, hour, kind
        ), every AS (SELECT * FROM direct UNION ALL SELECT stay, hour, 'gcs', value, false FROM gcs_parts)
        SELECT stay::VARCHAR AS stay, hour, variable, first(value ORDER BY charted DESC) AS value
        FROM every GROUP BY every.stay, hour, variable ORDER BY every.stay, variable, hour"""
    together = """(SELECT count(*) AS rows, count(DISTINCT value) AS different FROM measurements_rows
        WHERE reason IS NULL GROUP BY stay, hour, kind)"""
    figures = (
        ("duplicates", f"SELECT coalesce(sum(rows - different), 0)::BIGINT FROM {together}"),
        ("merged with others of the same time", f"SELECT coalesce(sum(different - 1), 0)::BIGINT FROM {together}"),
    )
    return Rule("measurements", rows, table, ("charted", "labs"), ("admitted", "gcs_parts"), figures)


def _in_range(kind: str, number: str) -> str:
    """The value in the unit of the event tables; null if it is implausible."""
    low, high = PLAUSIBLE["fio2"]
    # FiO2 is charted in percent or as a fraction, by the same items.
    fio2 = (
        f"CASE WHEN {number} BETWEEN {low} AND {high} THEN {number} "
        f"WHEN {number} BETWEEN {100 * low} AND {100 * high} THEN {number} / 100 END"
    )
    others = " ".join(
        f"WHEN '{name}' THEN CASE WHEN {number} BETWEEN {low} AND {high} THEN {number} END"
        for name, (low, high) in PLAUSIBLE.items()
        if name != "fio2"
    )
    return f"CASE {kind} WHEN 'fio2' THEN {fio2} {others} END"


def gcs_rule() -> Rule:
    """GCS totals from parts: at each time at which a part is charted, with the others of the last few hours."""
    items = [(item, name) for item, name in by_item(mimic_items()["gcs"]) if name != "total"]
    ranges = [(name, *limits) for name, limits in PARTS_OF_GCS.items()]
    intubated = f"(v.part = 'verbal' AND r.text IN ({', '.join(map(quoted, INTUBATED_VERBAL))}))"
    points = f"CASE WHEN {intubated} THEN 1 ELSE r.number END"
    reason = charted_reasons(
        ("no number", f"{points} IS NULL"), ("implausible", f"{points} NOT BETWEEN v.low AND v.high")
    )
    rows = f"""
        SELECT r.stay, {hour("r.time")} AS hour, v.part, {points} AS points,
            CASE WHEN {intubated} THEN 'verbal (intubated)' ELSE v.part END AS kind, {reason} AS reason
        FROM raw_charted r
        JOIN (SELECT * FROM {values(items, "i", "item", "part")}
            JOIN {values(ranges, "l", "part", "low", "high")} USING (part)) v USING (item)
        LEFT JOIN admitted s USING (stay)"""
    parts = tuple(PARTS_OF_GCS)
    charted = ", ".join(f"min(points) FILTER (part = '{part}') AS {part}" for part in parts)
    earlier = "OVER (PARTITION BY stay ORDER BY hour ROWS UNBOUNDED PRECEDING)"
    carried = ", ".join(
        f"last_value({part} IGNORE NULLS) {earlier} AS {part}_last, "
        f"last_value(CASE WHEN {part} IS NOT NULL THEN hour END IGNORE NULLS) {earlier} AS {part}_hour"
        for part in parts
    )
    # A part that was never charted leaves its comparison null, and so no total.
    recent = " AND ".join(f"hour - {part}_hour <= {GCS_CARRY}" for part in parts)
    total = " + ".join(f"{part}_last" for part in parts)
    table = f"""
        WITH together AS (SELECT stay, hour, {charted} FROM gcs_parts_rows WHERE reason IS NULL GROUP BY stay, hour)
        SELECT stay, hour, {total} AS value FROM (SELECT stay, hour, {carried} FROM together) WHERE {recent}
        ORDER BY stay, hour"""
    return Rule("gcs_parts", rows, table, ("charted",), ("admitted",), intermediate=True)


def urine_rule() -> Rule:
    """Urine in mL per moment; irrigant that went in counts against what came out, so single moments may be negative."""
    signs = [(item, 1, "urine") for item, _ in by_item({"urine": mimic_items()["urine"]})]
    signs += [(item, -1, "irrigant in") for item, _ in by_item({"in": mimic_items()["irrigant_in"]})]
    copies = "row_number() OVER (PARTITION BY r.stay, r.time, r.item, r.number, r.flagged)"
    reason = charted_reasons(
        ("no number", "r.number IS NULL"),
        ("implausible", f"r.number NOT BETWEEN 0 AND {MOST_URINE}"),
        last=(("duplicate", f"{copies} > 1"),),
    )
    rows = f"""
        SELECT r.stay, {hour("r.time")} AS hour, v.sign * r.number AS ml, v.kind, {reason} AS reason
        FROM raw_outputs r JOIN {values(signs, "v", "item", "sign", "kind")} USING (item)
        LEFT JOIN admitted s USING (stay)"""
    table = """SELECT stay::VARCHAR AS stay, hour, sum(ml) AS ml FROM urine_rows WHERE reason IS NULL
        GROUP BY urine_rows.stay, hour ORDER BY urine_rows.stay, hour"""
    return Rule("urine", rows, table, ("outputs",), ("admitted",))


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
    reason = charted_reasons(("no evidence", "r.kind IN ('nothing charted', 'no evidence')"))
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
