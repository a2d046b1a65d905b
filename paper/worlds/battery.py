"""A battery that buys cheap, sells dear, and wears."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ifonly import ActionSpace, Axis
from ifonly.data.episode import FloatArray
from paper.worlds.base import DrawnWorld, Quantity, Variant, autoregressive, logistic, shaken

LEVELS = (-0.8, -0.4, 0.0, 0.4, 0.8)
"""Of the capacity in an hour."""
PARTS = 12
"""In which an hour is computed."""
TAPER, RESERVE = 0.15, 0.02
"""The charge (room) below which discharging (charging) slows down, and that at which it ends."""
USUAL_PRICE = 0.25
EFFICIENCY = 0.95
COOLING = 1.5
"""Hours."""


class Battery(DrawnWorld):
    """Houses with a battery and a price of electricity that changes by the hour.

    State of charge counts the charge that flows, with a current that tapers off towards full and empty, as under
    constant voltage (Tremblay and Dessaint, World Electric Vehicle Journal 3, 2009). Temperature follows the lumped
    heat balance of Bernardi, Pawlikowski and Newman (Journal of the Electrochemical Society 132, 1985): heat grows with
    the square of the current and with the resistance, which is larger in old cells, and leaves towards the
    surroundings. Wear is a product of stress factors in the form of Xu, Oudalov, Ulbig, Andersson and Kirschen (IEEE
    Transactions on Smart Grid 9, 2018): exponential in temperature, and larger far from half charge and under large
    currents. The bill of an hour is what the house and the battery take from the grid at the price of the hour, plus
    wear, minus the stored energy's worth at the usual price. Sizes are those of a home; rates of wear are made up, high
    enough to matter.
    """

    name: ClassVar[str] = "battery"
    title: ClassVar[str] = "Battery: charging and discharging against a bill with wear"
    steps: ClassVar[int] = 18
    step: ClassVar[tuple[float, str]] = (1.0, "hour")
    quantities: ClassVar[tuple[Quantity, ...]] = (
        Quantity("capacity", "static", "kWh", (2.0, 30.0)),
        Quantity("resistance", "static", "of new cells", (0.5, 5.0)),
        Quantity("price", "contextual", "per kWh", (0.0, 3.0)),
        Quantity("surroundings", "contextual", "C", (-20.0, 50.0)),
        Quantity("charge", "dynamic", "share", (0.0, 1.0), hard=True),
        Quantity("temperature", "dynamic", "C", (-20.0, 90.0)),
        Quantity("demand", "dynamic", "kW", (0.0, 30.0), hard=True),
        Quantity("bill", "dynamic", "per hour", (-20.0, 40.0)),
    )
    actions: ClassVar[ActionSpace] = ActionSpace.product(Axis("current", "1/h", LEVELS))
    penalties: ClassVar[dict[str, float]] = {"bill": 1.0}
    variants: ClassVar[tuple[Variant, ...]] = (
        Variant("column", ("temperature",), "the temperature is not recorded, and those who decide go by it"),
        Variant("constant", ("capacity", "resistance"), "size and age of the battery are not recorded"),
        Variant("drift", ("price",), "the price of the hour is not recorded, and those who decide go by it"),
    )
    noises: ClassVar[int] = 4

    def draw_subjects(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Houses, from midnight on."""
        capacity = 9.0 * np.exp(0.25 * rng.standard_normal(count).clip(-2.5, 2.5))
        resistance = 1.5 * np.exp(0.3 * rng.standard_normal(count).clip(-2.5, 2.5))
        hours = np.arange(self.steps) + rng.integers(0, 24, size=(count, 1))
        daily = 0.30 * np.sin((hours - 14) * np.pi / 12) + 0.15 * np.sin((hours - 7) * np.pi / 6)
        price = USUAL_PRICE * np.exp(
            daily + autoregressive(rng, hours.shape, memory=0.7, deviation=0.4).clip(-1.2, 1.2)
        )
        season = rng.uniform(5, 28, size=(count, 1))
        outside = season - 4 * np.cos(hours * np.pi / 12)
        initial = np.stack(
            [
                rng.beta(2, 2, size=count).clip(0.02, 0.98),
                outside[:, 0] + 6 * rng.random(count),
                np.exp(0.4 * rng.standard_normal(count)),
                USUAL_PRICE * np.exp(0.5 * rng.standard_normal(count)),
            ],
            axis=1,
        )
        return np.stack([capacity, resistance], axis=1), np.stack([price, outside], axis=2), initial

    def advance(
        self, states: FloatArray, static: FloatArray, context: FloatArray, doses: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """An hour, in parts."""
        charge, temperature, demand, _ = states.T
        capacity, resistance = static.T
        price, outside = context.T
        before = charge
        taken = np.zeros_like(charge)
        wear = np.zeros_like(charge)
        for _ in range(PARTS):
            # Half of the current in cells of 45 degrees: the management protects them.
            current = doses[:, 0] * logistic((45 - temperature) / 3)
            room = np.maximum(0, np.where(current > 0, 1 - charge, charge) - RESERVE)
            current = current * (1 - np.exp(-room / TAPER))
            flow = current / PARTS
            charge = charge + flow
            taken = taken + flow * np.where(flow > 0, 1 / EFFICIENCY, EFFICIENCY)
            stress = np.exp(0.08 * (temperature - 25)) * (1 + 4 * (charge - 0.5) ** 2)
            wear = wear + 0.025 * stress * (np.abs(current) + current**2) / PARTS
            heat = 22.0 * resistance * current**2
            temperature = temperature + ((outside - temperature) / COOLING + heat) / PARTS
        used = np.exp(0.6 * np.log(demand) + 0.25 * noise[:, 2])
        bill = (
            price * (used + capacity * taken)
            - USUAL_PRICE * capacity * (charge - before)
            + capacity * wear * np.exp(0.15 * noise[:, 3])
        )
        return np.stack(
            [shaken(charge, 0.08 * noise[:, 0]), temperature + 0.8 * noise[:, 1], used, bill + 0.02 * noise[:, 3]],
            axis=1,
        )

    def preferences(self, states: FloatArray, static: FloatArray, context: FloatArray) -> FloatArray:
        """Charge when it is cheap and there is room; spare batteries that are hot, old or small."""
        charge, temperature, demand, _ = states.T
        dear = np.log(context[:, 0] / USUAL_PRICE)
        wanted = -0.7 * dear + 0.6 * (0.5 - charge) - 0.05 * (demand - 1)
        eager = logistic(1.2 - 0.08 * (temperature - 25) - 0.8 * (static[:, 1] - 1.5) + 0.1 * (static[:, 0] - 9))
        distance = np.array(LEVELS) - (1.4 * eager * wanted).clip(-0.8, 0.8)[:, None]
        return np.asarray(-0.5 * (distance / 0.35) ** 2)
