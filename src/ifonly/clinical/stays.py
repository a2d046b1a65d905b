"""Who was in intensive care: stays with age, sex, readmission, outcome and weight."""

from ifonly.clinical.items import mimic_items
from ifonly.clinical.rules import Rule, reasons, values

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
