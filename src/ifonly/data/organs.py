"""Organ tables: the points that a severity score gives each organ. More points are worse.

SOFA's thresholds: Vincent et al., Intensive Care Medicine 22 (1996), as Sepsis-3 uses them (Singer et al., JAMA 315
(2016)). What is not known, NaN, scores nothing, as is customary. The reasons for each choice are in
docs/clinical-data.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

DAY = 24.0
"""Hours over which urine is summed."""

DIGITS = 6
"""Values are rounded so before they are compared, lest rounding errors push one across a threshold."""


def respiration(oxygenation: FloatArray, ventilation: FloatArray) -> IntArray:
    """Points for PaO2 over FiO2 (mmHg); the worst two grades need mechanical ventilation (above 0)."""
    ventilated = ventilation > 0
    return _points(
        oxygenation < 400, oxygenation < 300, (oxygenation < 200) & ventilated, (oxygenation < 100) & ventilated
    )


def coagulation(platelets: FloatArray) -> IntArray:
    """Points for the platelet count (10^9/L)."""
    return _points(platelets < 150, platelets < 100, platelets < 50, platelets < 20)


def liver(bilirubin: FloatArray) -> IntArray:
    """Points for total bilirubin (mg/dL)."""
    return _points(bilirubin >= 1.2, bilirubin >= 2, bilirubin >= 6, bilirubin >= 12)


def cardiovascular(pressure: FloatArray, vasopressors: FloatArray) -> IntArray:
    """Points for the mean blood pressure (mmHg) and vasopressors (norepinephrine equivalents, mcg/kg/min).

    Two points are for dobutamine and low doses of dopamine, which equivalents do not tell apart.
    """
    return _points(pressure < 70, np.zeros_like(pressure, dtype=np.bool_), vasopressors > 0, vasopressors > 0.1)


def nervous(coma: FloatArray) -> IntArray:
    """Points for the Glasgow coma scale (3 to 15)."""
    return _points(coma < 15, coma < 13, coma < 10, coma < 6)


def renal(creatinine: FloatArray, urine_day: FloatArray) -> IntArray:
    """Points for creatinine (mg/dL) or urine over 24 hours (mL), whichever is worse."""
    little, hardly_any = urine_day < 500, urine_day < 200
    return _points(creatinine >= 1.2, creatinine >= 2, (creatinine >= 3.5) | little, (creatinine >= 5) | hardly_any)


def _points(*grades: BoolArray) -> IntArray:
    """The most points whose condition holds, none where none does."""
    found = np.zeros(np.broadcast_shapes(*(grade.shape for grade in grades)), dtype=np.int64)
    for points, holds in enumerate(grades, start=1):
        found[np.broadcast_to(holds, found.shape)] = points
    return found


@dataclass(frozen=True)
class OrganInput:
    """Something that a table must be told."""

    units: Mapping[str, float] = field(default_factory=dict)
    """Known units, with the factor from each to the table's own; empty: any will do."""
    whole: bool = False
    """Whether only whole numbers occur; what a model gives is rounded to the nearest."""
    per_step: bool = False
    """Whether it is an amount of the step, whose unit may say so."""


@dataclass(frozen=True)
class Organ:
    """One organ of a table."""

    name: str
    takes: tuple[str, ...]
    """What its points need, by names of `OrganTable.derive`."""
    any_of: tuple[frozenset[str], ...]
    """Inputs of which one group suffices for any points at all."""
    points: Callable[..., IntArray]


@dataclass(frozen=True)
class OrganTable:
    """A score: organs whose points are added up."""

    inputs: Mapping[str, OrganInput]
    organs: tuple[Organ, ...]
    derive: Callable[[Mapping[str, FloatArray], float], Mapping[str, FloatArray]]
    """What organs take, from inputs [..., T] in the table's units and the length of a step in hours (NaN: unknown)."""


def _sofa_values(inputs: Mapping[str, FloatArray], step_hours: float) -> dict[str, FloatArray]:
    """The inputs, and what SOFA makes of several of them: PaO2 over FiO2, and the urine of a day."""
    oxygenation = 100.0 * inputs["PaO2"] / inputs["FiO2"]
    return {**inputs, "oxygenation": oxygenation, "urine_day": over_a_day(inputs["urine"], step_hours)}


def over_a_day(amounts: FloatArray, step_hours: float) -> FloatArray:
    """Amounts [..., T] summed over the 24 hours until the end of each step; NaN before a day has passed.

    An unknown amount counts as none, unless all of a day are unknown. NaN, too, where a day is no whole number of
    steps, or the length of steps is not known.
    """
    steps = round(DAY / step_hours) if step_hours > 0 else 0
    found = np.full(amounts.shape, np.nan)
    if steps and math.isclose(steps * step_hours, DAY) and amounts.shape[-1] >= steps:
        windows = np.lib.stride_tricks.sliding_window_view(amounts, steps, axis=-1)
        known = ~np.isnan(windows).all(axis=-1)
        found[..., steps - 1 :] = np.where(known, np.nansum(windows, axis=-1), np.nan)
    return found


SOFA = OrganTable(
    inputs={
        "PaO2": OrganInput({"mmHg": 1.0, "kPa": 7.50062}),
        "FiO2": OrganInput({"%": 1.0, "fraction": 100.0}),
        "ventilation": OrganInput(),
        "platelets": OrganInput({"10^9/L": 1.0, "K/uL": 1.0, "10^3/uL": 1.0}),
        "bilirubin": OrganInput({"mg/dL": 1.0, "umol/L": 1 / 17.1}),
        "MAP": OrganInput({"mmHg": 1.0}),
        "vasopressors": OrganInput({"mcg/kg/min": 1.0}),
        "GCS": OrganInput(whole=True),
        "creatinine": OrganInput({"mg/dL": 1.0, "umol/L": 1 / 88.4}),
        "urine": OrganInput({"mL": 1.0}, per_step=True),
    },
    organs=(
        Organ("respiration", ("oxygenation", "ventilation"), (frozenset({"PaO2", "FiO2"}),), respiration),
        Organ("coagulation", ("platelets",), (frozenset({"platelets"}),), coagulation),
        Organ("liver", ("bilirubin",), (frozenset({"bilirubin"}),), liver),
        Organ(
            "cardiovascular",
            ("MAP", "vasopressors"),
            (frozenset({"MAP"}), frozenset({"vasopressors"})),
            cardiovascular,
        ),
        Organ("nervous", ("GCS",), (frozenset({"GCS"}),), nervous),
        Organ("renal", ("creatinine", "urine_day"), (frozenset({"creatinine"}), frozenset({"urine"})), renal),
    ),
    derive=_sofa_values,
)

TABLES: dict[str, OrganTable] = {"SOFA": SOFA}
"""The tables that a schema's scores may name."""
