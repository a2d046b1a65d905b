"""Worlds that differ from the sepsis world in one respect, most of them by something that no record shows.

The tables are those of `equations.py`, with what is added to them here. A hidden feature is part of the world: where it
is contextual it is drawn once for a stay and lasts, where it is dynamic it moves with the state and with treatment. It
has no unit and no scaling, and nobody writes it down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ifonly.data.schema import Feature
from ifonly.errors import InputError
from ifonly.simulate.equations import CONSTANT, SEPSIS, Equations, Response


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
