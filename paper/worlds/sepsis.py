"""The package's own simulated sepsis world, as one world among the others."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ifonly import ActionSpace, Feature, Schema
from ifonly.data.episode import FloatArray
from ifonly.simulate import SepsisWorld, sepsis_schema, simulate_cohort
from paper.warning_worlds import RIGHT, SCENARIOS
from paper.worlds.base import PLAIN, Circumstances, Quantity, Recording, Scaling, Variant, World


class _Watched(SepsisWorld):
    """The sepsis world, which keeps the noise of every step that it is asked for."""

    def __init__(self, twist: str) -> None:
        super().__init__(twist)
        self.kept: list[Tensor] = []

    def step(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """As the sepsis world's."""
        self.kept.append(noise)
        return super().step(states, context, actions, noise)

    def noises(self, count: int, steps: int) -> FloatArray:
        """Those of the first patients [N, T - 1, D], in the world's coordinates: blocks of patients, step by step."""
        by_step = torch.cat(self.kept).reshape(steps - 1, -1, self.state_size)
        return np.asarray(by_step[:, :count].transpose(0, 1))


def _quantities(scenario: str) -> tuple[Quantity, ...]:
    """Of the world of a scenario, all that it hides included.

    Hard are the ranges to which the package's schema binds features. No other value of this world leaves its range
    either, but a model that does not know this claims nothing impossible.
    """
    return tuple(
        Quantity(
            feature.name,
            feature.kind,
            feature.unit,
            feature.plausible or (-np.inf, np.inf),
            hard=feature.scaling == "bounded",
        )
        for feature in SepsisWorld(SCENARIOS[scenario].world).schema.features
    )


class Sepsis(World):
    """Stays in intensive care; every four hours somebody decides on vasopressors and fluids.

    `ifonly.simulate`, made up for this package, and its scenarios as in the study of warnings (`paper.warning_worlds`).
    Here a variant is a world of its own, with its own clinicians, and the truth is `SepsisWorld.step` with the noise
    that was drawn when the stay was simulated. Two things differ from the other worlds: clinicians differ in style,
    which is not recorded and changes nothing but their choices; and ventilation, a contextual column, followed the
    recorded state and stays as it was in every replay, as in every answer of the package.
    """

    scenario: ClassVar[str] = RIGHT
    name: ClassVar[str] = "sepsis"
    title: ClassVar[str] = "Sepsis: vasopressors and fluids against organ failure"
    steps: ClassVar[int] = 12
    step: ClassVar[tuple[float, str]] = (4.0, "hour")
    quantities: ClassVar[tuple[Quantity, ...]] = _quantities(RIGHT)
    actions: ClassVar[ActionSpace] = sepsis_schema().actions
    penalties: ClassVar[dict[str, float]] = {"SOFA": 1.0}
    variants: ClassVar[tuple[Variant, ...]] = (
        Variant("misspecified", ("volume",), "vasopressors harm an empty circulation, and nobody measures it"),
        Variant("confounded", ("frailty",), "some are frailer than the record shows, and clinicians notice"),
        Variant("unvaried", (), "fluids drown badly injured lungs, and nobody gives any where lungs are so"),
    )

    @cached_property
    def truth(self) -> SepsisWorld:
        """The world's own causal model."""
        return SepsisWorld(SCENARIOS[self.scenario].world)

    def under(self, variant: str) -> World:
        """A variant is a world of its own."""
        return _UNDER[self.variant(variant).name]

    def schema(self, variant: str = PLAIN, scaling: Scaling = "linear") -> Schema:
        """As the package has it; where hard ranges should be on linear scales, all of its bounded scales are."""
        hidden = self.variant(variant).hidden
        known = self.truth.schema
        return replace(known, features=tuple(_scaled(one, scaling) for one in known.features if one.name not in hidden))

    def episodes(self, count: int, seed: int) -> Recording:
        """So many stays, as `simulate_cohort` has them."""
        scenario = SCENARIOS[self.scenario]
        world = _Watched(scenario.world)
        cohort = simulate_cohort(count, seed=seed, horizon=self.steps, world=world, clinician=scenario.clinician)
        states, fixed = (values.reshape(count, self.steps, -1) for values in (cohort.states, cohort.context))
        still = len(self.columns("static"))
        circumstances = Circumstances(
            static=fixed[:, 0, :still],
            context=fixed[:, :, still:],
            initial=states[:, 0],
            noise=world.noises(count, self.steps),
            whims=np.empty((count, self.steps, 0)),
        )
        actions = cohort.actions.reshape(count, self.steps)
        # Replayed, so that any later replay gives the same bits: those of `cohort` went through no decoding in between.
        states = self.replay(circumstances, actions).states
        return Recording(self, circumstances, states, actions, cohort.subjects)

    def advance(
        self, states: FloatArray, static: FloatArray, context: FloatArray, doses: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """Four hours."""
        scaler = self.truth.scaler
        fixed = scaler.context.encode(np.concatenate([static, context], axis=1))
        actions = (doses[:, None] == np.array(self.actions.vectors)).all(axis=2).argmax(axis=1)
        given = (scaler.states.encode(states), fixed, actions, noise)
        following = self.truth.step(*(torch.as_tensor(values) for values in given))
        return np.asarray(scaler.states.decode(following.numpy()))


class _Misspecified(Sepsis):
    """With a hidden volume."""

    scenario: ClassVar[str] = "misspecified"
    quantities: ClassVar[tuple[Quantity, ...]] = _quantities("misspecified")


class _Confounded(Sepsis):
    """With a hidden frailty."""

    scenario: ClassVar[str] = "confounded"
    quantities: ClassVar[tuple[Quantity, ...]] = _quantities("confounded")


class _Unvaried(Sepsis):
    """With lungs that drown."""

    scenario: ClassVar[str] = "unvaried"
    quantities: ClassVar[tuple[Quantity, ...]] = _quantities("unvaried")


_UNDER: dict[str, World] = {
    PLAIN: Sepsis(),
    "misspecified": _Misspecified(),
    "confounded": _Confounded(),
    "unvaried": _Unvaried(),
}


def _scaled(feature: Feature, scaling: Scaling) -> Feature:
    return replace(feature, scaling="linear") if feature.scaling == "bounded" and scaling == "linear" else feature
