"""The equations of the simulated worlds, as tables that can be read (equations.yaml): what acts on what, and why.

Everything is in the coordinates of `world_scaler` (feature minus its typical value, over its spread). For each
dynamic feature the location of the next value is the weighted sum `drift` plus the effects of responses and feedbacks;
the size of its noise is `noise`. All numbers are invented for a plausible story and mean nothing for real patients.

A `Twist` is a world that differs from the sepsis world in one respect, mostly by something that no record shows. A
hidden feature is part of the world: a contextual one is drawn once per stay and kept, a dynamic one changes with the
state and with treatment. It has no unit and no scaling, and is never recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from ifonly.data.schema import Feature
from ifonly.errors import InputError
from ifonly.records import from_plain

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


SWING = 0.3
"""How far, relative to its base, the size of the noise moves with the state: between 0.7 and 1.3 of it."""


@dataclass(frozen=True)
class Equations:
    """The tables of one world."""

    drift: Mapping[str, Mapping[str, float]]
    responses: tuple[Response, ...]
    noise: Mapping[str, tuple[float, Mapping[str, float]]]


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


@dataclass(frozen=True)
class _Tables:
    """What equations.yaml holds."""

    drift: Mapping[str, Mapping[str, float]]
    responses: tuple[Response, ...]
    feedbacks: tuple[Feedback, ...]
    noise: Mapping[str, tuple[float, Mapping[str, float]]]
    correlations: tuple[tuple[str, str, float], ...]
    twists: tuple[Twist, ...]


_TABLES = from_plain(
    _Tables,
    yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")),
    what="the equations of the simulated worlds",
)
SEPSIS = Equations(_TABLES.drift, _TABLES.responses, _TABLES.noise)
FEEDBACKS, CORRELATIONS = _TABLES.feedbacks, _TABLES.correlations
TWISTS = {twist.name: twist for twist in _TABLES.twists}
PLAIN = TWISTS["plain"]


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
    lines += [f"  {one} with {other}: {value:g}" for one, other, value in CORRELATIONS]
    return "\n".join(lines)


def _weighted_sum(row: Mapping[str, float]) -> str:
    terms = [
        f"{'-' if w < 0 else '+'} {abs(w):g}" + ("" if name == CONSTANT else f" {name}") for name, w in row.items()
    ]
    return " ".join(terms).removeprefix("+ ")


def _listing(effects: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {weight:+g}" for name, weight in effects.items())


def twist_named(name: str) -> Twist:
    """The twist of this name; an error names the choices."""
    if name not in TWISTS:
        raise InputError(f"no simulated world is called {name!r}; choose from {', '.join(TWISTS)}.")
    return TWISTS[name]
