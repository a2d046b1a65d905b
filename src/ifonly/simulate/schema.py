"""What is measured in the simulated world, what can be done there, and in which coordinates it works."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from ifonly.data.scaling import Columns, Scaler
from ifonly.data.schema import ActionSpace, Axis, Feature, Schema

URINE_OFFSET = 30.0
"""Added to urine output (mL/4 h) before the logarithm, since it can approach zero."""


@cache
def sepsis_schema(hidden: tuple[Feature, ...] = ()) -> Schema:
    """The paper's 13 features and 25 actions (5 vasopressor x 5 fluid levels), in steps of four hours.

    `hidden` features of a world follow those that records have.

    >>> [feature.name for feature in sepsis_schema().dynamic]
    ['FiO2', 'PaO2', 'platelets', 'bilirubin', 'GCS', 'MAP', 'creatinine', 'urine', 'SOFA']
    >>> sepsis_schema().actions.labels[7]
    'vasopressors 0.04 mcg/kg/min, fluids 80 mL/4 h'
    """
    return Schema(
        features=(
            Feature("gender", "static", unit="1 = female", scaling="none", plausible=(0, 1)),
            Feature("readmission", "static", unit="1 = yes", scaling="none", plausible=(0, 1)),
            Feature("age", "static", unit="years", plausible=(18, 100)),
            Feature("ventilation", "contextual", unit="1 = yes", scaling="none", plausible=(0, 1)),
            Feature("FiO2", "dynamic", unit="%", plausible=(21, 100)),
            Feature("PaO2", "dynamic", unit="mmHg", scaling="log", plausible=(30, 600)),
            Feature("platelets", "dynamic", unit="10^9/L", scaling="log", plausible=(5, 1500)),
            Feature("bilirubin", "dynamic", unit="mg/dL", scaling="log", plausible=(0.1, 60)),
            Feature("GCS", "dynamic", unit="points", plausible=(3, 15)),
            Feature("MAP", "dynamic", unit="mmHg", plausible=(25, 170)),
            Feature("creatinine", "dynamic", unit="mg/dL", scaling="log", plausible=(0.1, 20)),
            Feature("urine", "dynamic", unit="mL/4 h", scaling="log", plausible=(0, 3000), log_offset=URINE_OFFSET),
            Feature("SOFA", "dynamic", unit="points", plausible=(0, 24)),
            *hidden,
        ),
        actions=ActionSpace.product(
            Axis("vasopressors", "mcg/kg/min", (0, 0.04, 0.113, 0.225, 0.788)),
            Axis("fluids", "mL/4 h", (0, 30, 80, 279, 850)),
        ),
        step_length=4,
        step_unit="h",
    )


TYPICAL: dict[str, tuple[float, float]] = {
    "age": (65.0, 15.0),
    "FiO2": (50.0, 16.0),
    "PaO2": (math.log(110.0), 0.40),
    "platelets": (math.log(170.0), 0.60),
    "bilirubin": (math.log(1.2), 0.85),
    "GCS": (11.0, 3.0),
    "MAP": (76.0, 12.0),
    "creatinine": (math.log(1.4), 0.65),
    "urine": (math.log(300.0 + URINE_OFFSET), 0.80),
    "SOFA": (8.0, 3.3),
}
"""Centre and spread of each feature, of its logarithm where it is log-scaled: constants of the world, not fitted."""


@cache
def world_scaler(hidden: tuple[Feature, ...] = ()) -> Scaler:
    """The fixed coordinates in which the world's equations are written; doses and hidden features stay as they are."""
    schema = sepsis_schema(hidden)
    identity = Scaler.identity(schema)

    def columns(features: tuple[Feature, ...], start: Columns) -> Columns:
        centres, spreads = zip(*(TYPICAL.get(feature.name, (0.0, 1.0)) for feature in features), strict=True)
        return Columns(np.array(centres), np.array(spreads), start.log, start.log_offset)

    return Scaler(
        states=columns(schema.dynamic, identity.states),
        context=columns(schema.context, identity.context),
        actions=identity.actions,
    )
