"""A fish stock that should feed a fleet, and its own future."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ifonly import ActionSpace, Axis
from ifonly.data.episode import FloatArray
from paper.worlds.base import DrawnWorld, Quantity, Variant, autoregressive

LEVELS = (0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0)
"""Effort, as a share of what the fleet could do in a year."""
MORTALITY = 0.25
"""Natural, of adults in a year."""
CROWDING = 0.01
"""Ricker's b, per 1,000 t of adults."""
SURVIVAL, WEIGHT = 0.45, 0.5
"""The share of juveniles that is left after a year, and what one weighs by then, in kg."""
MOST_JUVENILES, MOST_ADULTS = 2000.0, 1500.0
"""Millions and 1,000 t that the sea can feed, far more than there ever are."""
WORTH, FLEET = 0.6, 12.0
"""Of a tonne in the sea, over that of one landed; and the cost of the whole fleet's effort, in 1,000 t landed."""


class Fishery(DrawnWorld):
    """Stocks of fish, for fourteen years; every year somebody decides how many days the fleet may fish.

    Adults spawn by the law of Ricker (Journal of the Fisheries Research Board of Canada 11, 1954), R = a S exp(-b S),
    with log-normal noise as is usual in fitting it; juveniles join the adults a year later. Adults die naturally and
    by fishing, and the catch is that of Baranov's equation (1918), C = S F / (F + M) (1 - exp(-F - M)), with F a
    catchability times effort. What is minimised is the loss: cost of effort, less the catch, less what the stock gained
    in worth, so that emptying the sea in the last year does not pay; economics in the manner of Gordon (Journal of
    Political Economy 62, 1954). Conditions of the sea drift and multiply recruitment. All parameters are made up, of
    the size of a middling stock of bottom fish; so is the ceiling that keeps juveniles and adults within what the sea
    can feed.
    """

    name: ClassVar[str] = "fishery"
    title: ClassVar[str] = "Fishery: effort of a fleet against loss, today and later"
    steps: ClassVar[int] = 14
    step: ClassVar[tuple[float, str]] = (1.0, "year")
    quantities: ClassVar[tuple[Quantity, ...]] = (
        Quantity("productivity", "static", "recruits/kg", (0.1, 50.0)),
        Quantity("catchability", "static", "", (0.05, 5.0)),
        Quantity("conditions", "contextual", "", (0.05, 20.0)),
        Quantity("juveniles", "dynamic", "millions", (0.0, MOST_JUVENILES), hard=True),
        Quantity("adults", "dynamic", "1,000 t", (0.0, MOST_ADULTS), hard=True),
        Quantity("loss", "dynamic", "1,000 t", (-1000.0, 1000.0)),
    )
    actions: ClassVar[ActionSpace] = ActionSpace.product(Axis("effort", "of fleet", LEVELS))
    penalties: ClassVar[dict[str, float]] = {"loss": 1.0}
    variants: ClassVar[tuple[Variant, ...]] = (
        Variant("column", ("juveniles",), "surveys of young fish are not recorded, and quotas go by them"),
        Variant("constant", ("productivity", "catchability"), "what sets stocks apart for good is not recorded"),
        Variant("drift", ("conditions",), "conditions of the sea are not recorded, and quotas go by them"),
    )
    noises: ClassVar[int] = 3

    def draw_subjects(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Stocks, some of them overfished."""
        productivity = 3.0 * np.exp(0.25 * rng.standard_normal(count).clip(-2.5, 2.5))
        catchability = 0.9 * np.exp(0.25 * rng.standard_normal(count).clip(-2.5, 2.5))
        conditions = np.exp(autoregressive(rng, (count, self.steps), memory=0.6, deviation=0.35).clip(-1.2, 1.2))
        adults = 80.0 * np.exp(0.5 * rng.standard_normal(count).clip(-2.5, 2.5))
        juveniles = productivity * adults * np.exp(-CROWDING * adults + 0.4 * rng.standard_normal(count))
        loss = -15.0 + 10 * rng.standard_normal(count)
        return (
            np.stack([productivity, catchability], axis=1),
            conditions[:, :, None],
            np.stack([juveniles, adults, loss], axis=1),
        )

    def advance(
        self, states: FloatArray, static: FloatArray, context: FloatArray, doses: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """A year: fish spawn, are caught or die, and last year's young grow up."""
        juveniles, adults, _ = states.T
        productivity, catchability = static.T
        effort = doses[:, 0]
        fished = catchability * effort
        total = MORTALITY + fished
        gone = adults * (1 - np.exp(-total))
        catch = gone * fished / total * np.exp(0.12 * noise[:, 2])
        spawned = productivity * context[:, 0] * adults * np.exp(-CROWDING * adults)
        grown = (adults - gone + SURVIVAL * WEIGHT * juveniles) * np.exp(0.1 * noise[:, 1])
        grown = _fed(grown, MOST_ADULTS)
        loss = FLEET * effort - catch - WORTH * (grown - adults) - noise[:, 2]
        return np.stack([_fed(spawned * np.exp(0.45 * noise[:, 0]), MOST_JUVENILES), grown, loss], axis=1)

    def preferences(self, states: FloatArray, static: FloatArray, context: FloatArray) -> FloatArray:
        """More effort where there is more to catch and more to come; less where a day of fishing takes much."""
        juveniles, adults, _ = states.T
        plenty = 0.5 * np.log(adults / 60) + 0.2 * np.log(juveniles / 100) + 0.3 * np.log(context[:, 0])
        wanted = (0.4 + 0.45 * plenty + 0.3 * np.log(static[:, 0] / 3)) * 0.9 / static[:, 1]
        distance = np.array(LEVELS) - wanted.clip(0, 1)[:, None]
        return np.asarray(-0.5 * (distance / 0.22) ** 2)


def _fed(amount: FloatArray, most: float) -> FloatArray:
    """Nearly the amount itself where it is small, and never as much as can be fed."""
    return np.asarray(amount / (1 + amount / most))
