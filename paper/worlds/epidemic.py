"""An epidemic that is held down by fewer contacts, of which people tire."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ifonly import ActionSpace, Axis
from ifonly.data.episode import FloatArray
from paper.worlds.base import DrawnWorld, Quantity, Variant, autoregressive, shaken

LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8)
DAYS = 7
LATENT, INFECTIOUS, IN_HOSPITAL = 3.0, 5.0, 10.0
"""Mean days."""
MOST_ADMITTED = 0.05
"""No larger share of the infected needs a bed, however bad the week."""


class Epidemic(DrawnWorld):
    """Regions in a wave of an infection; every week somebody decides how far contacts are reduced.

    Susceptible, exposed and infectious shares of a discrete-time stochastic SEIR model in the form of Lekone and
    Finkenstädt (Biometrics 62, 2006), in which a day moves a share 1 - exp(-rate) of one compartment to the next:

        S -> E at beta c I,   E -> I at 1 / latent,   I -> R at 1 / infectious,   beta = R0 / infectious

    with contacts c = m (1 - level (1 - 0.6 fatigue)). Rates vary from week to week by log-normal noise, as in Bretó,
    He, Ionides and King (Annals of Applied Statistics 3, 2009). m is a factor that drifts (season, variants, holidays)
    and that nobody controls. A share of those who fall ill needs a bed; more of them where many are old. Fatigue, the
    share of people who no longer keep to the rules, grows under rules and fades without them, as surveys showed
    (Petherick et al., Nature Human Behaviour 5, 2021). Times are those of a respiratory virus; rates of beds and
    fatigue are made up.
    """

    name: ClassVar[str] = "epidemic"
    title: ClassVar[str] = "Epidemic: fewer contacts against beds in use and fatigue"
    steps: ClassVar[int] = 16
    step: ClassVar[tuple[float, str]] = (1.0, "week")
    quantities: ClassVar[tuple[Quantity, ...]] = (
        Quantity("reproduction number", "static", "", (1.0, 6.0)),
        Quantity("old", "static", "share", (0.0, 1.0), hard=True),
        Quantity("contact factor", "contextual", "", (0.2, 5.0)),
        Quantity("susceptible", "dynamic", "share", (0.0, 1.0), hard=True),
        Quantity("exposed", "dynamic", "share", (0.0, 1.0), hard=True),
        Quantity("infectious", "dynamic", "share", (0.0, 1.0), hard=True),
        Quantity("beds", "dynamic", "per 1,000", (0.0, 1000 * MOST_ADMITTED), hard=True),
        Quantity("fatigue", "dynamic", "share", (0.0, 1.0), hard=True),
    )
    actions: ClassVar[ActionSpace] = ActionSpace.product(Axis("contact reduction", "", LEVELS))
    penalties: ClassVar[dict[str, float]] = {"beds": 1.0, "fatigue": 1.5}
    variants: ClassVar[tuple[Variant, ...]] = (
        Variant("column", ("exposed", "infectious"), "who is infected is not recorded, and those who decide know it"),
        Variant("constant", ("reproduction number", "old"), "what sets regions apart for good is not recorded"),
        Variant("drift", ("contact factor",), "what drives contacts from week to week is not recorded"),
    )
    noises: ClassVar[int] = 5

    def draw_subjects(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Regions at the beginning of a wave."""
        reproduction = 2.6 * np.exp(0.2 * rng.standard_normal(count).clip(-2.5, 2.5))
        old = rng.beta(6, 20, size=count)
        drift = np.exp(autoregressive(rng, (count, self.steps), memory=0.8, deviation=0.25))
        infected = 0.004 * np.exp(0.7 * rng.standard_normal(count).clip(-3, 3))
        immune = rng.beta(2, 10, size=count)
        exposed = 0.45 * infected * np.exp(0.2 * rng.standard_normal(count))
        infectious = 0.55 * infected * np.exp(0.2 * rng.standard_normal(count))
        susceptible = (1 - immune) * (1 - exposed - infectious)
        beds = 1000 * infected * _admitted(old) * np.exp(0.3 * rng.standard_normal(count))
        fatigue = rng.beta(3, 17, size=count)
        initial = np.stack([susceptible, exposed, infectious, beds, fatigue], axis=1)
        return np.stack([reproduction, old], axis=1), drift[:, :, None], initial

    def advance(
        self, states: FloatArray, static: FloatArray, context: FloatArray, doses: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """A week, day by day."""
        susceptible, exposed, infectious, beds, fatigue = states.T
        level = doses[:, 0]
        contacts = context[:, 0] * (1 - level * (1 - 0.6 * fatigue)) * np.exp(0.15 * noise[:, 0])
        rate = static[:, 0] / INFECTIOUS * contacts
        falling_ill = 1 - np.exp(-np.exp(0.08 * noise[:, 1]) / LATENT)
        recovering = 1 - np.exp(-np.exp(0.08 * noise[:, 2]) / INFECTIOUS)
        # At most so many, whatever the noise: what a week adds to beds is a share of those who fall ill.
        admitted = MOST_ADMITTED * (1 - np.exp(-_admitted(static[:, 1]) * np.exp(0.12 * noise[:, 3]) / MOST_ADMITTED))
        for _ in range(DAYS):
            infected = susceptible * (1 - np.exp(-rate * infectious))
            ill = exposed * falling_ill
            susceptible = susceptible - infected
            exposed = exposed + infected - ill
            infectious = infectious + ill - infectious * recovering
            beds = beds * (1 - 1 / IN_HOSPITAL) + 1000 * admitted * ill
        tired = fatigue + 0.22 * level * (1 - fatigue) - 0.12 * fatigue
        return np.stack([susceptible, exposed, infectious, beds, shaken(tired, 0.12 * noise[:, 4])], axis=1)

    def preferences(self, states: FloatArray, static: FloatArray, context: FloatArray) -> FloatArray:
        """Rules follow beds and infections, are stricter where more is at stake, and softer where people are tired."""
        _, exposed, infectious, beds, fatigue = states.T
        wanted = (
            0.1
            + 0.05 * beds
            + 6.0 * (infectious + exposed)
            + 0.15 * (static[:, 0] - 2.6)
            + 0.6 * (static[:, 1] - 0.23)
            + 0.3 * np.log(context[:, 0])
            - 0.5 * fatigue
        )
        distance = np.array(LEVELS) - wanted.clip(0.0, 0.8)[:, None]
        return np.asarray(-0.5 * (distance / 0.22) ** 2)


def _admitted(old: FloatArray) -> FloatArray:
    """The share of those who fall ill that needs a bed."""
    return np.asarray(0.008 + 0.06 * old)
