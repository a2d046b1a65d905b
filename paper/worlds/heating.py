"""A building that a heat pump keeps warm, while the price of electricity changes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ifonly import ActionSpace, Axis
from ifonly.data.episode import FloatArray
from paper.worlds.base import DrawnWorld, Quantity, Variant, autoregressive, logistic, shaken

LEVELS = (0.0, 0.8, 1.6, 2.8)
"""Electrical power of the heat pump in kW."""
PARTS = 6
"""In which an hour is computed."""
SUPPLY = 40.0
"""Temperature of the heating water."""
NEUTRAL, SENSED = 21.5, 0.3
"""The temperature at which people feel neither warm nor cold, and votes on the scale of warmth for each degree."""
CUT_OUT = 28.0
"""Indoor temperature at which a thermostat halves the power."""
USUAL_PRICE = 0.3


class Heating(DrawnWorld):
    """Houses in winter, for a day; every hour somebody sets the power of the heat pump.

    Two nodes of a thermal network, the form of Madsen and Holst (Energy and Buildings 22, 1995) and of the model TiTe
    of Bacher and Madsen (Energy and Buildings 43, 2011): indoor air Ti and envelope Te,

        Ci dTi/dt = (Te - Ti) / Rie + heat,   Ce dTe/dt = (Ti - Te) / Rie + (Ta - Te) / Rea.

    Heat is power times coefficient of performance, which for air-source pumps falls with the lift d from outdoor air
    to heating water, 6.81 - 0.121 d + 0.00063 d^2 (Staffell, Brett, Brandon and Hawkes, Energy and Environmental
    Science 5, 2012), plus that of people and their appliances. What is minimised is the cost of an hour and discomfort:
    the share of people at home whom the temperature leaves dissatisfied, by the formula of Fanger (Thermal Comfort,
    1970; ISO 7730), flat around what is comfortable. Resistances and capacities are of the size of a house's; prices,
    occupancy, votes for each degree, the weight of discomfort and all variation are made up.
    """

    name: ClassVar[str] = "heating"
    title: ClassVar[str] = "Heating: power of a heat pump against cost and discomfort"
    steps: ClassVar[int] = 30
    step: ClassVar[tuple[float, str]] = (1.0, "hour")
    quantities: ClassVar[tuple[Quantity, ...]] = (
        Quantity("area", "static", "m2", (20.0, 1000.0)),
        Quantity("insulation", "static", "K/kW for 100 m2", (0.5, 50.0)),
        Quantity("outdoor", "contextual", "C", (-40.0, 40.0)),
        Quantity("price", "contextual", "per kWh", (0.0, 5.0)),
        Quantity("occupancy", "contextual", "share", (0.0, 1.0), hard=True),
        Quantity("indoor", "dynamic", "C", (-10.0, 60.0)),
        Quantity("envelope", "dynamic", "C", (-20.0, 60.0)),
        Quantity("discomfort", "dynamic", "share", (0.0, 1.0), hard=True),
        Quantity("cost", "dynamic", "per hour", (0.0, 50.0), hard=True),
    )
    actions: ClassVar[ActionSpace] = ActionSpace.product(Axis("power", "kW", LEVELS))
    penalties: ClassVar[dict[str, float]] = {"discomfort": 4.0, "cost": 1.0}
    variants: ClassVar[tuple[Variant, ...]] = (
        Variant("column", ("envelope",), "the temperature of the walls is not recorded, and the pump is set by it"),
        Variant("constant", ("area", "insulation"), "what kind of house it is is not recorded"),
        Variant("drift", ("occupancy",), "who is at home is not recorded, and those at home want it warm"),
    )
    noises: ClassVar[int] = 4

    def draw_subjects(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Houses on a winter's day, from some hour on."""
        area = 120.0 * np.exp(0.25 * rng.standard_normal(count).clip(-2.5, 2.5))
        insulation = 6.0 * np.exp(0.25 * rng.standard_normal(count).clip(-2.5, 2.5))
        hours = np.arange(self.steps) + rng.integers(0, 24, size=(count, 1))
        weather = rng.uniform(-4, 9, size=(count, 1))
        outdoor = (
            weather - 3 * np.cos((hours - 3) * np.pi / 12) + autoregressive(rng, hours.shape, memory=0.9, deviation=1.5)
        )
        price = USUAL_PRICE * np.exp(
            0.3 * np.sin((hours - 13) * np.pi / 12)
            + autoregressive(rng, hours.shape, memory=0.6, deviation=0.35).clip(-1, 1)
        )
        home = 1.0 * np.cos((hours - 1) * np.pi / 12) + autoregressive(rng, hours.shape, memory=0.8, deviation=1.3)
        indoor = 20.5 + 1.5 * rng.standard_normal(count)
        envelope = indoor - 0.25 * (indoor - outdoor[:, 0]) + 0.8 * rng.standard_normal(count)
        discomfort = logistic(-3 + 0.5 * rng.standard_normal(count))
        cost = np.exp(-1.2 + 0.4 * rng.standard_normal(count))
        return (
            np.stack([area, insulation], axis=1),
            np.stack([outdoor, price, logistic(home)], axis=2),
            np.stack([indoor, envelope, discomfort, cost], axis=1),
        )

    def advance(
        self, states: FloatArray, static: FloatArray, context: FloatArray, doses: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """An hour, in parts."""
        indoor, envelope, _, _ = states.T
        size = static[:, 0] / 100
        outdoor, price, occupancy = context.T
        appliances = 0.15 + 0.45 * occupancy
        unwell, used = np.zeros_like(indoor), np.zeros_like(indoor)
        for _ in range(PARTS):
            power = doses[:, 0] * logistic((CUT_OUT - indoor) / 0.7)
            used = used + power / PARTS
            heat = power * _performance(outdoor) + appliances + 0.15 * occupancy
            # 1.5 K/kW between air and envelope; 2 and 10 kWh/K to warm them, for 100 m2.
            inward = (envelope - indoor) * size / 1.5
            outward = (outdoor - envelope) * size / static[:, 1]
            indoor = indoor + (inward + heat) / (2 * size) / PARTS
            envelope = envelope + (outward - inward) / (10 * size) / PARTS
            unwell = unwell + _dissatisfied(indoor) / PARTS
        return np.stack(
            [
                indoor + 0.2 * noise[:, 0],
                envelope + 0.12 * noise[:, 1],
                shaken(occupancy * unwell, 0.15 * noise[:, 2]),
                price * (used + appliances * np.exp(0.3 * noise[:, 3])),
            ],
            axis=1,
        )

    def preferences(self, states: FloatArray, static: FloatArray, context: FloatArray) -> FloatArray:
        """What the house loses, and more where it is too cold; less while nobody is at home or power is dear."""
        indoor, envelope, _, _ = states.T
        size = static[:, 0] / 100
        outdoor, price, occupancy = context.T
        losses = size * (21.5 - outdoor) / (static[:, 1] + 1.5)
        missing = size * (0.8 * (21.5 - indoor) + 0.4 * (17 - envelope))
        wanted = (losses + missing) / _performance(outdoor)
        wanted = wanted * (0.6 + 0.8 * occupancy) * (price / USUAL_PRICE) ** -0.4
        distance = np.array(LEVELS) - wanted.clip(0, LEVELS[-1])[:, None]
        return np.asarray(-0.5 * (distance / 0.9) ** 2)


def _performance(outdoor: FloatArray) -> FloatArray:
    """Heat for electricity, of an air-source heat pump."""
    lift = (SUPPLY - outdoor).clip(15, 60)  # the range for which it was fitted
    return np.asarray(6.81 - 0.121 * lift + 0.00063 * lift**2)


def _dissatisfied(indoor: FloatArray) -> FloatArray:
    """The share of people who are not content with a temperature; one in twenty never is."""
    vote = SENSED * (indoor - NEUTRAL)
    return np.asarray(1 - 0.95 * np.exp(-0.03353 * vote**4 - 0.2179 * vote**2))
