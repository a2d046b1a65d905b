"""The SOFA score, organ by organ, from what is known at a step.

Thresholds: Vincent et al., Intensive Care Medicine 22 (1996), as Sepsis-3 uses them (Singer et al., JAMA 315 (2016)).
What is not known scores nothing, as is customary. The reasons for each choice are in docs/clinical-data.md.
"""

from __future__ import annotations

import polars as pl

COMPONENTS = (
    "sofa_respiration",
    "sofa_coagulation",
    "sofa_liver",
    "sofa_cardiovascular",
    "sofa_nervous",
    "sofa_renal",
)
"""Columns with 0 to 4 points each; SOFA is their sum."""


def add_sofa(steps: pl.DataFrame) -> pl.DataFrame:
    """The table with a column for each of `COMPONENTS`, and SOFA.

    Needed columns, null where unknown: oxygenation (PaO2 over FiO2, mmHg), ventilation (0 or 1), platelets (10^9/L),
    bilirubin (mg/dL), MAP (mmHg), vasopressor (norepinephrine equivalents, mcg/kg/min), GCS, creatinine (mg/dL), and
    urine_day (mL over the last 24 hours).
    """
    points = {
        "sofa_respiration": respiration(pl.col("oxygenation"), pl.col("ventilation") > 0),
        "sofa_coagulation": coagulation(pl.col("platelets")),
        "sofa_liver": liver(pl.col("bilirubin")),
        "sofa_cardiovascular": cardiovascular(pl.col("MAP"), pl.col("vasopressor")),
        "sofa_nervous": nervous(pl.col("GCS")),
        "sofa_renal": renal(pl.col("creatinine"), pl.col("urine_day")),
    }
    scored = steps.with_columns(expression.alias(name) for name, expression in points.items())
    return scored.with_columns(pl.sum_horizontal(COMPONENTS).alias("SOFA"))


def respiration(ratio: pl.Expr, ventilated: pl.Expr) -> pl.Expr:
    """Points for PaO2 over FiO2 (mmHg); the worst two grades need mechanical ventilation."""
    return _points(ratio < 400, ratio < 300, (ratio < 200) & ventilated, (ratio < 100) & ventilated)


def coagulation(platelets: pl.Expr) -> pl.Expr:
    """Points for the platelet count (10^9/L)."""
    return _points(platelets < 150, platelets < 100, platelets < 50, platelets < 20)


def liver(bilirubin: pl.Expr) -> pl.Expr:
    """Points for total bilirubin (mg/dL)."""
    return _points(bilirubin >= 1.2, bilirubin >= 2, bilirubin >= 6, bilirubin >= 12)


def cardiovascular(pressure: pl.Expr, vasopressor: pl.Expr) -> pl.Expr:
    """Points for the mean blood pressure (mmHg) and vasopressors (norepinephrine equivalents, mcg/kg/min).

    Two points are for dobutamine and low doses of dopamine, which equivalents do not tell apart.
    """
    return _points(pressure < 70, pl.lit(False), vasopressor > 0, vasopressor > 0.1)


def nervous(coma: pl.Expr) -> pl.Expr:
    """Points for the Glasgow coma scale (3 to 15)."""
    return _points(coma < 15, coma < 13, coma < 10, coma < 6)


def renal(creatinine: pl.Expr, urine_day: pl.Expr) -> pl.Expr:
    """Points for creatinine (mg/dL) or urine over 24 hours (mL), whichever is worse."""
    little, hardly_any = urine_day < 500, urine_day < 200
    return _points(
        creatinine >= 1.2,
        creatinine >= 2,
        _either(creatinine >= 3.5, little),
        _either(creatinine >= 5, hardly_any),
    )


def _either(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    return one.fill_null(False) | other.fill_null(False)


def _points(one: pl.Expr, two: pl.Expr, three: pl.Expr, four: pl.Expr) -> pl.Expr:
    """The most points whose condition holds; unknown conditions do not."""
    grades = enumerate((one, two, three, four), start=1)
    # Products rather than when/then: an unknown grade must not hide a lower one that is known.
    return pl.max_horizontal(pl.lit(0, dtype=pl.Int64), *(g.fill_null(False).cast(pl.Int64) * n for n, g in grades))
