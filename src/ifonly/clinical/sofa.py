"""The SOFA score, organ by organ, from what is known at a step; `ifonly.data.organs` has its thresholds."""

from __future__ import annotations

import polars as pl

from ifonly.data.organs import SOFA

COMPONENTS = tuple(f"sofa_{organ.name}" for organ in SOFA.organs)
"""Columns with 0 to 4 points each; SOFA is their sum."""


def add_sofa(steps: pl.DataFrame) -> pl.DataFrame:
    """The table with a column for each of `COMPONENTS`, and SOFA.

    Needed columns, null where unknown: oxygenation (PaO2 over FiO2, mmHg), ventilation (0 or 1), platelets (10^9/L),
    bilirubin (mg/dL), MAP (mmHg), vasopressor (norepinephrine equivalents, mcg/kg/min), GCS, creatinine (mg/dL), and
    urine_day (mL over the last 24 hours).
    """
    known = steps.rename({"vasopressor": "vasopressors"})
    points = {
        f"sofa_{organ.name}": organ.points(*(known[name].cast(pl.Float64).to_numpy() for name in organ.takes))
        for organ in SOFA.organs
    }
    scored = steps.with_columns(pl.Series(name, values, dtype=pl.Int64) for name, values in points.items())
    return scored.with_columns(pl.sum_horizontal(COMPONENTS).alias("SOFA"))
