"""Glucose under insulin, meals and activity."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ifonly import ActionSpace, Axis
from ifonly.data.episode import FloatArray
from paper.worlds.base import DrawnWorld, Quantity, Variant, autoregressive

LEVELS = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Units of insulin in a step."""
MINUTES = 30
P1, P2, DECAY, EMPTYING = 0.01, 0.028344, 5 / 54, 0.05
"""Per minute: glucose that leaves without insulin, the delay of its action, insulin cleared, a meal absorbed."""
VOLUME = 12.0
BASAL_GLUCOSE, BASAL_INSULIN = 110.0, 15.0
LOWEST, HIGHEST = 20.0, 600.0
"""Between which the risk function is defined; risk is 100 at both ends."""


class Glucose(DrawnWorld):
    """People with type 1 diabetes, for eight hours; every half hour somebody decides how much insulin is infused.

    The minimal model of Bergman, Ider, Bowden and Cobelli (American Journal of Physiology 236, 1979) with insulin as an
    input and meals that are absorbed exponentially, as Fisher uses it (IEEE Transactions on Biomedical Engineering 38,
    1991), by the minute:

        dG/dt = -p1 (G - Gb) - X G + D,   dX/dt = -p2 X + p3 (I - Ib),   dI/dt = -n I + U / V,   dQ/dt = -0.05 Q

    with rates of the size that is usual with this model, p1 and p3 small as in diabetes; their exact values are a
    choice made here. To which is added what the body does at the ends: glucose is lost through the kidneys above 180
    mg/dL and released below 65, and with less insulin than usual (X below zero) the liver releases what it would at Gb,
    not more the higher G is. What is minimised is the risk function of Kovatchev et al. (Diabetes Care 20, 1997) of the
    minutes' glucose, 10 f(G)^2 with f(G) = 1.509 (ln(G)^1.084 - 5.381), between 0 and 100 by definition. Activity
    drifts and multiplies p3.
    """

    name: ClassVar[str] = "glucose"
    title: ClassVar[str] = "Glucose: insulin against the risk of too much and too little"
    steps: ClassVar[int] = 16
    step: ClassVar[tuple[float, str]] = (30.0, "minute")
    quantities: ClassVar[tuple[Quantity, ...]] = (
        Quantity("sensitivity", "static", "1e-5 L/mU/min2", (0.1, 10.0)),
        Quantity("weight", "static", "kg", (30.0, 200.0)),
        Quantity("meal", "contextual", "g", (0.0, 200.0)),
        Quantity("activity", "contextual", "", (0.1, 10.0)),
        Quantity("glucose", "dynamic", "mg/dL", (0.0, 1000.0), hard=True),
        Quantity("insulin", "dynamic", "mU/L", (0.0, 1000.0), hard=True),
        Quantity("insulin action", "dynamic", "1/1000 min", (-30.0, 300.0)),
        Quantity("carbohydrates", "dynamic", "g", (0.0, 400.0), hard=True),
        Quantity("risk", "dynamic", "", (0.0, 100.0), hard=True),
    )
    actions: ClassVar[ActionSpace] = ActionSpace.product(Axis("insulin", "U", LEVELS))
    penalties: ClassVar[dict[str, float]] = {"risk": 1.0}
    variants: ClassVar[tuple[Variant, ...]] = (
        Variant("column", ("insulin", "insulin action"), "insulin at work is not recorded, and doses go by it"),
        Variant("constant", ("sensitivity", "weight"), "what sets people apart for good is not recorded"),
        Variant("drift", ("activity",), "activity is not recorded, and doses go by it"),
    )
    noises: ClassVar[int] = 5

    def draw_subjects(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
        """People, with the meals that they will have."""
        sensitivity = 1.1 * np.exp(0.3 * rng.standard_normal(count).clip(-2.5, 2.5))
        weight = 72.0 * np.exp(0.15 * rng.standard_normal(count).clip(-2.5, 2.5))
        sizes = rng.gamma(5.0, 10.0, size=(count, self.steps)).clip(0, 110)
        meals = np.where(rng.random((count, self.steps)) < 0.12, sizes, 0.0)
        activity = np.exp(autoregressive(rng, (count, self.steps), memory=0.8, deviation=0.3).clip(-1, 1))
        glucose = 150.0 * np.exp(0.3 * rng.standard_normal(count).clip(-2, 2))
        insulin = BASAL_INSULIN * np.exp(0.3 * rng.standard_normal(count))
        action = 3.0 * rng.standard_normal(count)
        carbohydrates = 10 * rng.random(count) * np.exp(0.3 * rng.standard_normal(count))
        initial = np.stack([glucose, insulin, action, carbohydrates, risk(glucose)], axis=1)
        return np.stack([sensitivity, weight], axis=1), np.stack([meals, activity], axis=2), initial

    def advance(
        self, states: FloatArray, static: FloatArray, context: FloatArray, doses: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """Half an hour, by the minute."""
        glucose, insulin, action, carbohydrates, _ = states.T
        action = action / 1000
        sensitivity, weight = static.T
        p3 = 1e-5 * sensitivity * context[:, 1]
        # A gram is 1,000 mg, of which the liver leaves half, in 1.6 dL for each kg.
        rise = 500 / (1.6 * weight)
        absorbed = EMPTYING * np.exp(0.15 * noise[:, 3])
        infused = doses[:, 0] * 1000 / MINUTES / VOLUME * 72 / weight
        carbohydrates = carbohydrates + context[:, 0]
        sensed = np.exp(0.05 * noise[:, 4])
        total = np.zeros_like(glucose)
        for _ in range(MINUTES):
            emptied = absorbed * carbohydrates
            lost = 0.02 * np.maximum(0, glucose - 180)
            released = 0.06 * np.maximum(0, 65 - glucose)
            moved = np.where(action > 0, action * glucose, action * BASAL_GLUCOSE)
            change = -P1 * (glucose - BASAL_GLUCOSE) - moved + rise * emptied - lost + released
            action = action - P2 * action + p3 * (insulin - BASAL_INSULIN)
            insulin = insulin - DECAY * insulin + infused
            carbohydrates = carbohydrates - emptied
            glucose = glucose + change
            total = total + risk(glucose * sensed)
        return np.stack(
            [
                glucose * np.exp(0.04 * noise[:, 0]),
                insulin * np.exp(0.1 * noise[:, 1]),
                1000 * action + 0.8 * noise[:, 2],
                carbohydrates * np.exp(0.1 * noise[:, 3]),
                total / MINUTES,
            ],
            axis=1,
        )

    def preferences(self, states: FloatArray, static: FloatArray, context: FloatArray) -> FloatArray:
        """A bolus for the meal and for what is above the target, less what is still at work; less when active."""
        glucose, _, action, carbohydrates, _ = states.T
        need = 0.5 + 0.035 * (context[:, 0] + 0.5 * carbohydrates) + 0.008 * (glucose - 130) - 0.05 * action
        wanted = (need / (static[:, 0] / 1.1) * (static[:, 1] / 72) / context[:, 1]).clip(0, 4)
        # As people see doses: from 0.5 to 1 unit is as far as from 2 to 4.
        distance = np.log(np.array(LEVELS) + 0.4) - np.log(wanted + 0.4)[:, None]
        return np.asarray(-0.5 * (distance / 0.6) ** 2)


def risk(glucose: FloatArray) -> FloatArray:
    """Kovatchev's, of glucose in mg/dL: 0 at 112.5, 100 at 20 and at 600.

    >>> [round(float(risk(np.array(value))), 1) for value in (10.0, 20.0, 112.5, 180.0, 600.0)]
    [100.0, 100.0, 0.0, 7.7, 99.9]
    """
    symmetric = 1.509 * (np.log(glucose.clip(LOWEST, HIGHEST)) ** 1.084 - 5.381)
    return np.asarray((10 * symmetric**2).clip(0.0, 100.0))
