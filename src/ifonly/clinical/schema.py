"""The schema of clinical cohorts: the paper's 13 features, and actions of two doses."""

from __future__ import annotations

from collections.abc import Sequence

from ifonly.clinical.grid import STEP_HOURS
from ifonly.data.schema import ActionSpace, Axis, Feature, Schema

VASOPRESSORS, FLUIDS = "vasopressors", "fluids"
UNITS = {VASOPRESSORS: "mcg/kg/min", FLUIDS: "mL/4 h"}
DOSE_COLUMNS = {VASOPRESSORS: "vasopressor", FLUIDS: "fluid"}
"""The column of a grid with the dose of each axis."""

FEATURES = (
    Feature("gender", "static", unit="1 = female", scaling="none", plausible=(0, 1)),
    Feature("readmission", "static", unit="1 = yes", scaling="none", plausible=(0, 1)),
    Feature("age", "static", unit="years", plausible=(18, 100)),
    Feature("ventilation", "contextual", unit="1 = yes", scaling="none", plausible=(0, 1)),
    Feature("FiO2", "dynamic", unit="%", plausible=(20, 100)),
    Feature("PaO2", "dynamic", unit="mmHg", scaling="log", plausible=(10, 700)),
    Feature("platelets", "dynamic", unit="10^9/L", scaling="log", plausible=(1, 2000)),
    Feature("bilirubin", "dynamic", unit="mg/dL", scaling="log", plausible=(0.1, 80)),
    Feature("GCS", "dynamic", unit="points", plausible=(3, 15)),
    Feature("MAP", "dynamic", unit="mmHg", plausible=(10, 250)),
    Feature("creatinine", "dynamic", unit="mg/dL", scaling="log", plausible=(0.05, 60)),
    # Zero is common; the offset keeps its logarithm finite and small volumes close to each other.
    Feature("urine", "dynamic", unit="mL/4 h", scaling="log", plausible=(0, 5000), log_offset=30.0),
    Feature("SOFA", "dynamic", unit="points", plausible=(0, 24)),
)


def clinical_schema(vasopressors: Sequence[float], fluids: Sequence[float]) -> Schema:
    """The schema with these dose levels; features, units and scaling are those of the simulated world.

    A model of simulated stays thus fits clinical ones with the same levels.
    """
    return Schema(
        features=FEATURES,
        actions=ActionSpace.product(
            Axis(VASOPRESSORS, UNITS[VASOPRESSORS], tuple(vasopressors)),
            Axis(FLUIDS, UNITS[FLUIDS], tuple(fluids)),
        ),
        step_length=STEP_HOURS,
        step_unit="h",
    )
