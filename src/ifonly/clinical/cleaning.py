"""Measurements and urine: one unit, plausible ranges, duplicates, and the Glasgow coma scale from its parts."""

from ifonly.clinical.database import quoted
from ifonly.clinical.items import INTUBATED_VERBAL, mimic_items
from ifonly.clinical.rules import FLAGGED, NO_STAY, Rule, by_item, hour, outside, reasons, same_admission, values

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
    common = (
        ("no time", "r.time IS NULL"),
        ("no number", "r.number IS NULL"),
        ("implausible", f"{_in_range('v.kind', 'r.number')} IS NULL"),
    )
    not_arterial = ("not arterial", "v.kind = 'pao2' AND n.time IS NOT NULL")
    other_blood = f"""(SELECT DISTINCT subject, time FROM raw_labs
        WHERE item IN ({specimens}) AND text IS NOT NULL AND upper(trim(text)) NOT IN ('ART', 'ART.', 'ARTERIAL'))"""
    rows = f"""
        SELECT r.stay, {hour("r.time")} AS hour, v.kind, {_in_range("v.kind", "r.number")} AS value,
            {reasons(*NO_STAY, common[0], FLAGGED, *common[1:], outside(hour("r.time"), hour("r.time")))} AS reason
        FROM raw_charted r JOIN {values(charted, "v", "item", "kind")} USING (item) LEFT JOIN admitted s USING (stay)
        UNION ALL
        SELECT s.stay, {hour("r.time")}, v.kind, {_in_range("v.kind", "r.number")},
            {reasons(*common, not_arterial, ("no stay", "s.stay IS NULL"))}
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
    reason = reasons(
        *NO_STAY,
        ("no time", "r.time IS NULL"),
        FLAGGED,
        ("no number", f"{points} IS NULL"),
        ("implausible", f"{points} NOT BETWEEN v.low AND v.high"),
        outside(hour("r.time"), hour("r.time")),
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
    reason = reasons(
        *NO_STAY,
        ("no time", "r.time IS NULL"),
        FLAGGED,
        ("no number", "r.number IS NULL"),
        ("implausible", f"r.number NOT BETWEEN 0 AND {MOST_URINE}"),
        outside(hour("r.time"), hour("r.time")),
        ("duplicate", "row_number() OVER (PARTITION BY r.stay, r.time, r.item, r.number, r.flagged) > 1"),
    )
    rows = f"""
        SELECT r.stay, {hour("r.time")} AS hour, v.sign * r.number AS ml, v.kind, {reason} AS reason
        FROM raw_outputs r JOIN {values(signs, "v", "item", "sign", "kind")} USING (item)
        LEFT JOIN admitted s USING (stay)"""
    table = """SELECT stay::VARCHAR AS stay, hour, sum(ml) AS ml FROM urine_rows WHERE reason IS NULL
        GROUP BY urine_rows.stay, hour ORDER BY urine_rows.stay, hour"""
    return Rule("urine", rows, table, ("outputs",), ("admitted",))
