"""The equations of the simulated worlds, as tables that can be read: which feature acts on which, and why.

Everything is in the coordinates of `world_scaler` (feature minus its typical value, over its spread). For each
dynamic feature the location of the next value is the weighted sum of `DRIFT` plus the effects of `RESPONSES` and
`FEEDBACKS`; the size of its noise is `NOISE`. All numbers are invented for a plausible story and mean nothing for
real patients.

A `Twist` is a world that differs from the sepsis world in one respect, mostly by something that no record shows. A
hidden feature is part of the world: a contextual one is drawn once per stay and kept, a dynamic one changes with the
state and with treatment. It has no unit and no scaling, and is never recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ifonly.data.schema import Feature
from ifonly.errors import InputError

CONSTANT = "constant"

DOSES = ("pressor effect", "pressor burden", "fluid effect", "fluid burden")
"""The inputs that an action sets, each between 0 and 1: effects saturate with the dose, burdens are proportional."""

HALF_EFFECT = {"vasopressors": 0.1, "fluids": 150.0}
"""The dose (mcg/kg/min, mL/4 h) at which the logarithmic effect curve bends."""


@dataclass(frozen=True)
class Response:
    """What a treatment does: its dose, times a gate that the state opens and closes, times an effect per feature.

    The gate is the logistic function of a weighted sum. No dose has no effect.
    """

    name: str
    story: str
    dose: str
    gate: Mapping[str, float]
    effects: Mapping[str, float]


@dataclass(frozen=True)
class Feedback:
    """What organs do to each other: tanh of a weighted sum of inputs, times an effect per feature."""

    name: str
    story: str
    inputs: Mapping[str, float]
    effects: Mapping[str, float]


DRIFT: dict[str, dict[str, float]] = {
    # Oxygen is turned down slowly; more is given while the blood is poor in it, and on a ventilator.
    "FiO2": {"FiO2": 0.80, "PaO2": -0.06, "ventilation": 0.16, "fluid burden": 0.10, CONSTANT: -0.15},
    # Blood oxygen forgets quickly; inspired oxygen and ventilation lift it, age and fluid in the lungs lower it.
    "PaO2": {"PaO2": 0.60, "FiO2": 0.08, "ventilation": 0.15, "age": -0.04, "fluid burden": -0.25, CONSTANT: 0.09},
    # Platelets follow their own slow course and fall in severe illness.
    "platelets": {"platelets": 0.90, "SOFA": -0.04, "pressor burden": -0.10, CONSTANT: -0.01},
    # Bilirubin is as slow, and rises when the liver is poorly perfused.
    "bilirubin": {"bilirubin": 0.90, "MAP": -0.03, "SOFA": 0.03, CONSTANT: 0.09},
    # Consciousness returns with pressure and recovery, later in the old; ventilated patients are sedated.
    "GCS": {"GCS": 0.86, "MAP": 0.04, "SOFA": -0.04, "age": -0.03, "ventilation": -0.20, CONSTANT: 0.04},
    # Pressure regulates itself; both treatments lift it.
    "MAP": {"MAP": 0.60, "age": 0.03, "pressor effect": 0.30, "fluid effect": 0.15, CONSTANT: -0.19},
    # Creatinine clears through the kidneys: slower in the old, faster with flow.
    "creatinine": {"creatinine": 0.83, "urine": -0.04, "MAP": -0.04, "age": 0.03, "gender": -0.06, CONSTANT: 0.07},
    # Urine needs pressure, volume and working kidneys.
    "urine": {"urine": 0.60, "MAP": 0.10, "creatinine": -0.08, "fluid effect": 0.20, CONSTANT: -0.24},
    # The score follows the organs with inertia. As in the real score, running vasopressors count by themselves.
    "SOFA": {
        "SOFA": 0.74,
        "FiO2": 0.05,
        "PaO2": -0.05,
        "platelets": -0.05,
        "bilirubin": 0.05,
        "GCS": -0.06,
        "MAP": -0.08,
        "creatinine": 0.06,
        "urine": -0.04,
        "readmission": 0.05,
        "pressor effect": 0.32,
        CONSTANT: 0.14,
    },
}

RESPONSES: tuple[Response, ...] = (
    Response(
        "vasoconstriction",
        "Vasopressors raise the pressure where it is low and spare the organs; where it is not, they do little.",
        dose="pressor effect",
        gate={"MAP": -1.4, CONSTANT: -1.0},
        effects={"MAP": 0.50, "urine": 0.15, "SOFA": -1.1},
    ),
    Response(
        "filling",
        "Fluids fill an empty circulation: pressure and urine rise where both are low.",
        dose="fluid effect",
        gate={"MAP": -0.9, "urine": -0.9, CONSTANT: -0.8},
        effects={"MAP": 0.30, "urine": 0.50, "SOFA": -0.65},
    ),
    Response(
        "flooding",
        "Much fluid leaks into the lungs, most of all into injured ones: oxygenation falls, more oxygen is needed.",
        dose="fluid burden",
        gate={"FiO2": 0.8, "PaO2": -0.8, CONSTANT: -0.6},
        effects={"PaO2": -0.60, "FiO2": 0.30, "SOFA": 0.55},
    ),
    Response(
        "starving",
        "High doses of vasopressors starve the kidneys, soonest those that are failing, and consume platelets.",
        dose="pressor burden",
        gate={"creatinine": 0.7, "urine": -0.5, CONSTANT: -0.5},
        effects={"creatinine": 0.25, "urine": -0.40, "platelets": -0.15, "SOFA": 0.25},
    ),
)

FEEDBACKS: tuple[Feedback, ...] = (
    Feedback(
        "shock",
        "Below a certain pressure every organ suffers.",
        inputs={"MAP": -0.80, "urine": -0.20, CONSTANT: -1.2},
        effects={"GCS": -0.08, "bilirubin": 0.07, "creatinine": 0.08, "urine": -0.08, "SOFA": 0.12},
    ),
    Feedback(
        "coagulopathy",
        "Severe illness consumes platelets and loads the liver.",
        inputs={"SOFA": 0.70, "platelets": -0.30, CONSTANT: -0.8},
        effects={"platelets": -0.06, "bilirubin": 0.06},
    ),
    Feedback(
        "renal failure",
        "Kidneys that fail stop making urine; then the score stays high.",
        inputs={"creatinine": 0.50, "urine": -0.40, CONSTANT: -0.9},
        effects={"urine": -0.12, "creatinine": 0.03, "SOFA": 0.06},
    ),
)
SWING = 0.3
"""How far, relative to its base, the size of the noise moves with the state: between 0.7 and 1.3 of it."""

NOISE: dict[str, tuple[float, dict[str, float]]] = {
    # base size, and what makes the feature more erratic
    "FiO2": (0.42, {"FiO2": 0.4, "ventilation": -0.4}),
    "PaO2": (0.62, {"FiO2": 0.4, "PaO2": 0.2}),
    "platelets": (0.20, {"SOFA": 0.3}),
    "bilirubin": (0.20, {"SOFA": 0.3, "bilirubin": 0.2}),
    "GCS": (0.36, {"GCS": -0.4, "ventilation": -0.3}),
    "MAP": (0.58, {"SOFA": 0.3, "pressor effect": 0.6}),
    "creatinine": (0.26, {"creatinine": 0.3, "urine": -0.2}),
    "urine": (0.62, {"creatinine": 0.4}),
    "SOFA": (0.30, {"SOFA": 0.3, "MAP": -0.2}),
}

CORRELATIONS: dict[tuple[str, str], float] = {
    # What worsens one organ within a step often worsens others.
    ("FiO2", "PaO2"): -0.25,
    ("MAP", "urine"): 0.25,
    ("creatinine", "urine"): -0.20,
    ("GCS", "SOFA"): -0.25,
    ("MAP", "SOFA"): -0.25,
    ("creatinine", "SOFA"): 0.20,
    ("bilirubin", "SOFA"): 0.15,
    ("platelets", "SOFA"): -0.15,
    ("PaO2", "SOFA"): -0.15,
}
"""Correlations of the noise; every pair not named is uncorrelated, every deviation is one."""


@dataclass(frozen=True)
class Equations:
    """The tables of one world."""

    drift: Mapping[str, Mapping[str, float]]
    responses: tuple[Response, ...]
    noise: Mapping[str, tuple[float, Mapping[str, float]]]


SEPSIS = Equations(DRIFT, RESPONSES, NOISE)


def describe(equations: Equations = SEPSIS) -> str:
    """The equations as text, generated from the tables."""
    lines = ["drift"]
    lines += [f"  {name:<17} {_weighted_sum(row)}" for name, row in equations.drift.items()]
    lines += ["responses to treatment: dose x logistic(gate) -> effects"]
    lines += [
        f"  {r.name:<17} {r.dose} x logistic({_weighted_sum(r.gate)}) -> {_listing(r.effects)}"
        for r in equations.responses
    ]
    lines += ["feedbacks between organs: tanh(inputs) -> effects"]
    lines += [f"  {f.name:<17} tanh({_weighted_sum(f.inputs)}) -> {_listing(f.effects)}" for f in FEEDBACKS]
    lines += ["size of the noise"]
    lines += [
        f"  {name:<17} {base:g} (1 + {SWING:g} tanh({_weighted_sum(row)}))"
        for name, (base, row) in equations.noise.items()
    ]
    lines += ["correlations of the noise"]
    lines += [f"  {one} with {other}: {value:g}" for (one, other), value in CORRELATIONS.items()]
    return "\n".join(lines)


def _weighted_sum(row: Mapping[str, float]) -> str:
    terms = [
        f"{'-' if w < 0 else '+'} {abs(w):g}" + ("" if name == CONSTANT else f" {name}") for name, w in row.items()
    ]
    return " ".join(terms).removeprefix("+ ")


def _listing(effects: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {weight:+g}" for name, weight in effects.items())


@dataclass(frozen=True)
class Twist:
    """What a world adds to the tables of the sepsis world; a coefficient that these have already is replaced."""

    name: str
    story: str
    hidden: tuple[Feature, ...] = ()
    drift: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    responses: tuple[Response, ...] = ()
    noise: Mapping[str, tuple[float, Mapping[str, float]]] = field(default_factory=dict)

    def equations(self) -> Equations:
        """All tables of the world."""
        names = [*SEPSIS.drift, *(name for name in self.drift if name not in SEPSIS.drift)]
        return Equations(
            drift={name: {**SEPSIS.drift.get(name, {}), **self.drift.get(name, {})} for name in names},
            responses=SEPSIS.responses + self.responses,
            noise={**SEPSIS.noise, **self.noise},
        )


PLAIN = Twist("plain", "The sepsis world as it is.")

FRAILTY = Twist(
    "frailty",
    "Some patients are frailer than the record shows: all through their stay their organs fail faster.",
    hidden=(Feature("frailty", "contextual", scaling="none"),),
    drift={"SOFA": {"frailty": 0.25}, "MAP": {"frailty": -0.05}, "urine": {"frailty": -0.05}},
)

VOLUME = Twist(
    "volume",
    "Vasopressors help a filled circulation and harm an empty one. Fluids fill it slowly, and nobody measures it.",
    hidden=(Feature("volume", "dynamic", scaling="none", plausible=(-10, 10)),),
    drift={
        "volume": {"volume": 0.85, "fluid effect": 0.60, CONSTANT: -0.20},
        "SOFA": {"pressor effect": -0.40},
    },
    responses=(
        Response(
            "squeezing",
            "Vessels that are squeezed while they are empty starve the organs.",
            dose="pressor effect",
            gate={"volume": -4.0},
            effects={"MAP": -0.30, "SOFA": 1.5},
        ),
    ),
    noise={"volume": (0.10, {})},
)

DROWNING = Twist(
    "drowning",
    "Where the lungs are badly injured, fluids drown them.",
    responses=(
        Response(
            "drowning",
            "Nothing of it is felt until the lungs are badly injured; then any fluid harms.",
            dose="fluid effect",
            gate={"FiO2": 4.0, "PaO2": -4.0, CONSTANT: -5.0},
            effects={"PaO2": -0.30, "SOFA": 1.0},
        ),
    ),
)

TWISTS = {twist.name: twist for twist in (PLAIN, FRAILTY, VOLUME, DROWNING)}


def twist_named(name: str) -> Twist:
    """The twist of this name; an error names the choices."""
    if name not in TWISTS:
        raise InputError(f"no simulated world is called {name!r}; choose from {', '.join(TWISTS)}.")
    return TWISTS[name]
