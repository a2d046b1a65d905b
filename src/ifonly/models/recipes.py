"""Recipes: kinds of model that a fit may choose from, each with the strengths of its curvature penalty to try."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ifonly.data.plain import did_you_mean
from ifonly.data.schema import Schema
from ifonly.errors import InputError
from ifonly.models.fit_report import Density, FitSettings
from ifonly.models.location_scale import LocationScale
from ifonly.models.networks import Residual

STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
"""Strengths of the curvature penalty that are compared."""


@dataclass(frozen=True)
class Recipe:
    """A location-scale model, by what its location, its noise and its limits are like."""

    name: str
    residual: Residual = "none"
    prior: str = "gaussian"
    lipschitz: tuple[float, float] | None = None
    density: Density = "margins"
    strengths: tuple[float, ...] = STRENGTHS

    def settings(self, settings: FitSettings) -> FitSettings:
        """How the model is trained, where `settings` say the rest."""
        return replace(settings, density=self.density)

    def untrained(self, schema: Schema, hidden: Sequence[int] = (200,)) -> LocationScale:
        """The model before training."""
        return LocationScale(schema, hidden=hidden, residual=self.residual, lipschitz=self.lipschitz, prior=self.prior)


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("paper", lipschitz=(1.0, 0.1), density="joint", strengths=(0.0,)),
        Recipe("plain"),
        Recipe("plain-tails", prior="student-margins"),
        Recipe("residual", residual="diagonal"),
        Recipe("residual-tails", residual="diagonal", prior="student-margins"),
    )
}
"""The paper's limits; networks without limits; next to a state that persists; each with Gaussian or heavier tails."""


FALLBACK, FALLBACK_STRENGTH = RECIPES["residual"], 0.1
"""What is taken where there are too few subjects to compare recipes on."""


def find_recipe(name: str, *, also: Sequence[str] = ()) -> Recipe:
    """The recipe of this name; an error names the choices, and what one may `also` say."""
    if name not in RECIPES:
        choices = [*also, *RECIPES]
        raise InputError(f"recipe {name!r} is unknown; choose from {', '.join(choices)}.{did_you_mean(name, choices)}")
    return RECIPES[name]
