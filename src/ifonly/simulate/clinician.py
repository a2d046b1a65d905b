"""Who is admitted to the simulated world, and how they are treated there.

Nobody here sees the noise of the world, so that nothing hidden drives both treatment and outcome, unless a `Clinician`
is told to. All inputs and random draws are rows, one per patient: states [B, D] in the world's coordinates, uniform or
normal draws [B, n].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ifonly.data.episode import FloatArray, IntArray
from ifonly.simulate.schema import sepsis_schema

LEVELS = 5
_INDEX = {feature.name: column for column, feature in enumerate(sepsis_schema().dynamic)}

ADMISSION: dict[str, tuple[float, float, float]] = {
    # centre, push of one deviation of severity, own spread; world coordinates
    "FiO2": (0.3, 0.4, 0.7),
    "PaO2": (0.1, -0.3, 0.8),
    "platelets": (0.1, -0.3, 0.9),
    "bilirubin": (-0.1, 0.3, 0.9),
    "GCS": (0.0, -0.5, 0.8),
    "MAP": (-0.5, -0.5, 0.8),
    "creatinine": (0.0, 0.4, 0.9),
    "urine": (-0.3, -0.4, 0.8),
    "SOFA": (0.2, 0.8, 0.5),
}
"""How patients arrive: hypotensive and dry on average, each organ worse the more severe the illness."""

AGE_PUSH = {"creatinine": 0.15, "PaO2": -0.1, "GCS": -0.1, "SOFA": 0.1}
"""What fifteen years of age add on arrival."""

PRESSOR_THRESHOLDS = (0.4, 0.8, 1.3, 2.1)
FLUID_THRESHOLDS = (-1.3, -0.4, 0.6, 2.0)
"""The need (below) at which the next higher of the five dose levels is chosen, up to logistic noise."""

HESITATION = 0.9
"""Scale of the logistic noise in the need."""


@dataclass(frozen=True)
class Clinician:
    """What is unusual about those who treat; by default nothing."""

    insight: tuple[float, float] = (0.0, 0.0)
    """What one deviation of what a world hides of a stay adds to the need for vasopressors and for fluids: they notice
    what nobody writes down, and act on it."""
    no_fluids_above: float | None = None
    """Where the oxygen debt (FiO2 minus PaO2, world coordinates) is larger, nobody gives fluids, without exception."""


USUAL = Clinician()


def arriving_states(severity: FloatArray, age: FloatArray, draws: FloatArray) -> FloatArray:
    """First states [B, D], before the clamp; `severity` and scaled `age` [B], normal `draws` [B, D]."""
    table = np.array([ADMISSION[name] for name in _INDEX])
    push = np.array([AGE_PUSH.get(name, 0.0) for name in _INDEX])
    return table[:, 0] + np.outer(severity, table[:, 1]) + np.outer(age, push) + table[:, 2] * draws


def ventilated(states: FloatArray, before: FloatArray, draws: FloatArray) -> npt.NDArray[np.bool_]:
    """Who is on a ventilator [B]: those short of oxygen or consciousness, and mostly those who were `before`."""
    oxygen_debt = states[:, _INDEX["FiO2"]] - states[:, _INDEX["PaO2"]]
    urge = -1.9 + 0.5 * oxygen_debt - 0.7 * states[:, _INDEX["GCS"]] + 3.0 * before
    result: npt.NDArray[np.bool_] = urge + _logistic(draws) > 0
    return result


def treatment(
    states: FloatArray, step: int, style: FloatArray, draws: FloatArray, *, clinician: Clinician = USUAL
) -> IntArray:
    """Actions [B]: ordered choices of a dose level per treatment.

    The need for vasopressors grows as pressure falls below normal and with SOFA; that for fluids as urine and
    pressure fall, in the first steps of a stay, and shrinks when oxygenation is poor. `style` [B, 2] shifts both
    for a whole stay (one clinician gives more, another less); `draws` [B, 2] are uniform, the hesitation of the
    moment.
    """
    pressure, urine, score = (states[:, _INDEX[name]] for name in ("MAP", "urine", "SOFA"))
    oxygen_debt = states[:, _INDEX["FiO2"]] - states[:, _INDEX["PaO2"]]
    pressors = -1.0 * pressure + 0.3 * score
    fluids = -0.7 * urine - 0.5 * pressure - 0.25 * oxygen_debt + 1.2 * 0.7**step
    need = np.stack([pressors, fluids], axis=1) + style + HESITATION * _logistic(draws)
    pressor_level: IntArray = (need[:, :1] > np.array(PRESSOR_THRESHOLDS)).sum(axis=1)
    fluid_level: IntArray = (need[:, 1:] > np.array(FLUID_THRESHOLDS)).sum(axis=1)
    if clinician.no_fluids_above is not None:
        fluid_level = np.where(oxygen_debt > clinician.no_fluids_above, 0, fluid_level)
    return pressor_level * LEVELS + fluid_level


def _logistic(uniform: FloatArray) -> FloatArray:
    """Uniform draws as standard logistic ones; zero, which a generator may return, is moved off."""
    safe = np.maximum(uniform, 1e-300)
    return np.log(safe) - np.log1p(-safe)
