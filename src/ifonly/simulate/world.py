"""The simulated world's schema and coordinates, and its true causal model.

The model is nonlinear and element-wise bijective, with proven Lipschitz constants.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ifonly.clinical.grid import FLUIDS, VASOPRESSORS, clinical_schema
from ifonly.clinical.levels import PAPER
from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.data.scaling import Columns, Scaler
from ifonly.data.schema import Feature, Schema
from ifonly.models.base import TransitionModel
from ifonly.models.checkpoint import register
from ifonly.models.layers import ROUNDING, spectral_norm
from ifonly.models.networks import broadcast_constants
from ifonly.models.noise import Gaussian
from ifonly.simulate.equations import (
    CONSTANT,
    CORRELATIONS,
    DOSES,
    FEEDBACKS,
    HALF_EFFECT,
    PLAIN,
    SWING,
    describe,
    twist_named,
)

RANGES: dict[str, tuple[float, float]] = {
    "FiO2": (21, 100),
    "PaO2": (30, 600),
    "platelets": (5, 1500),
    "bilirubin": (0.1, 60),
    "MAP": (25, 170),
    "creatinine": (0.1, 20),
    "urine": (0, 3000),
}
"""Plausible ranges that are narrower than those of clinical records: no value of this world lies outside."""


def _range_of(feature: Feature) -> tuple[float, float] | None:
    """What no value of this world leaves."""
    return RANGES.get(feature.name, feature.plausible)


@cache
def sepsis_schema(hidden: tuple[Feature, ...] = ()) -> Schema:
    """The 13 features and 25 actions (5 vasopressor x 5 fluid levels) of clinical cohorts, in steps of four hours.

    `hidden` features of a world follow those that records have.

    >>> [feature.name for feature in sepsis_schema().dynamic]
    ['FiO2', 'PaO2', 'platelets', 'bilirubin', 'GCS', 'MAP', 'creatinine', 'urine', 'SOFA']
    >>> sepsis_schema().actions.labels[7]
    'vasopressors 0.04 mcg/kg/min, fluids 80 mL/4 h'
    """
    clinical = clinical_schema(PAPER[VASOPRESSORS].doses, PAPER[FLUIDS].doses)
    features = (
        # A bounded scale is part of what models are fitted to: clinical records must have the same.
        feature if feature.scaling == "bounded" else replace(feature, plausible=_range_of(feature))
        for feature in clinical.features
    )
    return replace(clinical, features=(*features, *hidden))


TYPICAL: dict[str, tuple[float, float]] = {
    "age": (65.0, 15.0),
    "FiO2": (50.0, 16.0),
    "PaO2": (math.log(110.0), 0.40),
    "platelets": (math.log(170.0), 0.60),
    "bilirubin": (math.log(1.2), 0.85),
    "GCS": (11.0, 3.0),
    "MAP": (76.0, 12.0),
    "creatinine": (math.log(1.4), 0.65),
    "urine": (math.log(300.0 + 30.0), 0.80),
    "SOFA": (8.0, 3.3),
}
"""Centre and spread of each feature, of its logarithm where it is log-scaled: constants of the world, not fitted."""


def _unbounded(feature: Feature) -> Feature:
    return replace(feature, scaling="linear") if feature.scaling == "bounded" else feature


@cache
def world_scaler(hidden: tuple[Feature, ...] = ()) -> Scaler:
    """The fixed coordinates in which the world's equations are written; doses and hidden features stay as they are."""
    schema = sepsis_schema(hidden)
    # The world keeps its features inside their ranges by itself: in its equations they are linear.
    unbounded = replace(schema, features=tuple(_unbounded(feature) for feature in schema.features))
    identity = Scaler.identity(unbounded)

    def columns(features: tuple[Feature, ...], start: Columns) -> Columns:
        centres, spreads = zip(*(TYPICAL.get(feature.name, (0.0, 1.0)) for feature in features), strict=True)
        return Columns(np.array(centres), np.array(spreads), start.link)

    return Scaler(
        states=columns(schema.dynamic, identity.states),
        context=columns(schema.context, identity.context),
        actions=identity.actions,
    )


SHARPNESS = 8.0
"""Beta of the soft clamp: the ends of a feature's range are felt within about 3/beta of them."""


@register
class SepsisWorld(TransitionModel):
    """The truth of the simulated world: next = clamp(h(x, c, a) + phi(x, c, a) * u), feature by feature.

    With z = [x, c, 1] and doses m(a) in [0, 1], which saturate or grow in proportion,

        h   = drift [x, c, m(a), 1] + responses (m(a) * logistic(G z)) + feedbacks tanh(W z)
        phi = base (1 + 0.3 tanh(R [x, c, m(a), 1]));

    `describe` prints every coefficient. The soft clamp keeps every feature strictly inside its plausible range and
    has slope in (0, 1). The noise is Gaussian, correlated, with unit deviations. Built in float64, ready for search;
    it is not trained, but has a `prior`, `log_prob` and `sample` as trained models do.

    A `twist` (`ifonly.simulate.equations`) adds to the tables. Its hidden features are part of this world's own schema,
    and `recorded` leaves them out of a cohort: the world itself keeps them and so gives exact counterfactuals,
    while models learn from the recorded features alone.

    >>> world = SepsisWorld()
    >>> state = torch.zeros(9, dtype=torch.float64)
    >>> context, noise = torch.zeros(4, dtype=torch.float64), torch.full((9,), 0.5, dtype=torch.float64)
    >>> after = world.step(state, context, torch.tensor(12), noise)
    >>> torch.allclose(world.abduct(state, context, torch.tensor(12), after), noise)
    True
    """

    kind: ClassVar[str] = "sepsis-world"

    low: Tensor
    high: Tensor
    doses: Tensor
    drift: Tensor
    response_doses: Tensor
    response_gates: Tensor
    response_effects: Tensor
    feedback_inputs: Tensor
    feedback_effects: Tensor
    noise_base: Tensor
    noise_inputs: Tensor

    def __init__(self, twist: str = PLAIN.name) -> None:
        found = twist_named(twist)
        super().__init__(sepsis_schema(found.hidden), world_scaler(found.hidden))
        self.twist = twist
        equations = found.equations()
        responses = equations.responses
        names = [feature.name for feature in self.schema.dynamic]
        self._widths = [self.state_size, self.context_size, len(DOSES), 1]
        ranges = [_range_of(feature) or (-math.inf, math.inf) for feature in self.schema.dynamic]
        low, high = zip(*ranges, strict=True)
        self._buffer("low", self.scaler.states.encode(np.array(low)))
        self._buffer("high", self.scaler.states.encode(np.array(high)))
        self._buffer("doses", _dose_table(self.schema.actions.vectors))
        inputs = [*names, *(feature.name for feature in self.schema.context), *DOSES, CONSTANT]
        self._buffer("drift", _matrix((equations.drift[name] for name in names), inputs))
        self._buffer("response_doses", self.doses.numpy()[:, [DOSES.index(r.dose) for r in responses]])
        self._buffer("response_gates", _matrix((r.gate for r in responses), inputs))
        self._buffer("response_effects", _matrix((r.effects for r in responses), names).T)
        self._buffer("feedback_inputs", _matrix((f.inputs for f in FEEDBACKS), inputs))
        self._buffer("feedback_effects", _matrix((f.effects for f in FEEDBACKS), names).T)
        self._buffer("noise_base", np.array([equations.noise[name][0] for name in names]))
        self._buffer("noise_inputs", _matrix((equations.noise[name][1] for name in names), inputs))
        self.prior = Gaussian(self.state_size)
        self.double()
        self.prior.set_covariance(_correlation(names))
        self.eval().requires_grad_(False)

    @classmethod
    def from_settings(cls, schema: Schema, settings: Mapping[str, Any], scaler: Scaler) -> Self:
        """The world, before a checkpoint's coefficients are loaded; its schema and coordinates are its own."""
        world = cls(**settings)
        world.schema.require_same(schema, here="the simulated world", there="the stored model")
        return world

    def settings(self) -> dict[str, Any]:
        """The twist, if there is one."""
        return {} if self.twist == PLAIN.name else {"twist": self.twist}

    @staticmethod
    def describe(twist: str = PLAIN.name) -> str:
        """Every coefficient of the equations, as text."""
        return describe(twist_named(twist).equations())

    def recorded(self, cohort: Cohort) -> Cohort:
        """What a record of these stays of this world shows: all but the hidden features."""
        self.schema.require_same(cohort.schema, here="the world", there="the cohort")
        schema = sepsis_schema()
        return replace(
            cohort,
            schema=schema,
            states=cohort.states[:, : len(schema.dynamic)],
            context=cohort.context[:, : len(schema.context)],
        )

    def _buffer(self, name: str, values: FloatArray) -> None:
        self.register_buffer(name, torch.as_tensor(np.ascontiguousarray(values), dtype=torch.float64))

    def _of_state(self, weights: Tensor, states: Tensor, context: Tensor) -> Tensor:
        """weights [n, inputs] times [x, c, 0, 1], without building the joined input: [..., n]."""
        for_state, for_context, _, constant = self._parts(weights)
        return states @ for_state.mT + (context @ for_context.mT + constant[:, 0])

    def _of_doses(self, weights: Tensor, actions: Tensor) -> Tensor:
        """weights [n, inputs] times [0, 0, m(a), 0]: [..., n]."""
        return self.doses[actions] @ self._parts(weights)[2].mT

    def _parts(self, weights: Tensor) -> tuple[Tensor, ...]:
        """The columns for states, context, doses and the constant."""
        return torch.split(weights, self._widths, dim=1)

    def location_and_scale(self, states: Tensor, context: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """h and phi before the clamp, both [..., D]."""
        drift = self._of_state(self.drift, states, context) + self._of_doses(self.drift, actions)
        gates = torch.sigmoid(self._of_state(self.response_gates, states, context))
        responses = (gates * self.response_doses[actions]) @ self.response_effects.mT
        feedbacks = torch.tanh(self._of_state(self.feedback_inputs, states, context)) @ self.feedback_effects.mT
        erratic = self._of_state(self.noise_inputs, states, context) + self._of_doses(self.noise_inputs, actions)
        return drift + feedbacks + responses, self.noise_base * (1 + SWING * torch.tanh(erratic))

    def step(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """The next states [..., D], strictly inside the plausible ranges."""
        location, scale = self.location_and_scale(states, context, actions)
        return soft_clamp(location + scale * noise, self.low, self.high)

    def noise_slopes(self, states: Tensor, context: Tensor, actions: Tensor) -> Tensor | None:
        """The scale [..., D]: clamping only shortens; None for a subclass with another `step`."""
        if type(self).step is not SepsisWorld.step:
            return None
        return self.location_and_scale(states, context, actions)[1]

    def abduct(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> Tensor:
        """The noise [..., D]; infinite or NaN for next states on or beyond the ends of their ranges."""
        location, scale = self.location_and_scale(states, context, actions)
        return (soft_unclamp(next_states, self.low, self.high) - location) / scale

    def log_prob(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> Tensor:
        """Log density [...] of `next_states`, in scaled coordinates: what no learned model can beat on average."""
        location, scale = self.location_and_scale(states, context, actions)
        before = soft_unclamp(next_states, self.low, self.high)
        log_slope = F.logsigmoid(SHARPNESS * (before - self.low)) + F.logsigmoid(SHARPNESS * (self.high - before))
        log_slope = log_slope + torch.log1p(-torch.exp(-SHARPNESS * (self.high - self.low)))
        return self.prior.log_prob((before - location) / scale) - (log_slope + scale.log()).sum(-1)

    def sample(self, states: Tensor, context: Tensor, actions: Tensor, *, generator: torch.Generator) -> Tensor:
        """Next states [..., D] under noise drawn from the prior."""
        shape = np.broadcast_shapes(states.shape[:-1], context.shape[:-1], actions.shape)
        return self.step(states, context, actions, self.prior.sample(shape, generator=generator))

    def location_lipschitz(self) -> float:
        """L_h: the largest norm of the Jacobian M + V S W of h over all diagonal S that slopes can make.

        A feedback's entry is a slope of tanh, at most 1; a response's is a dose times a slope of the logistic
        function, at most 1/4. The norm is convex in S, so that the largest is found at a corner.
        """
        weights = torch.cat([self.response_gates, self.feedback_inputs]).double().cpu()[:, : self.state_size]
        effects = torch.cat([self.response_effects, self.feedback_effects], dim=1).double().cpu()
        steepest = [*(self.response_doses.amax(0) / 4).tolist(), *[1.0] * len(FEEDBACKS)]
        corners = torch.tensor(list(itertools.product(*((0.0, slope) for slope in steepest))), dtype=torch.float64)
        jacobians = self.drift.double().cpu()[:, : self.state_size] + (effects * corners.unsqueeze(1)) @ weights
        return float(torch.linalg.matrix_norm(jacobians, ord=2).max()) * (1 + ROUNDING)

    def scale_lipschitz(self) -> float:
        """L_phi: the norm of diag(base * swing) R, tanh having slope at most one."""
        return spectral_norm(SWING * self.noise_base.unsqueeze(1) * self.noise_inputs[:, : self.state_size])

    def lipschitz(self, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """K = L_h + L_phi max_i |u_i| [...]; the clamp's slope is at most one."""
        constants = self.location_lipschitz() + self.scale_lipschitz() * noise.abs().amax(-1).double()
        return broadcast_constants(constants, context, actions)


def soft_clamp(values: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """A smooth increasing map of the line onto the open interval (low, high): nearly the identity inside it.

    clamp(z) = low + log((1 + exp(beta (z - low))) / (1 + exp(beta (z - high)))) / beta
    """

    def rounding_off(end: Tensor) -> Tensor:
        return torch.log1p(torch.exp(-SHARPNESS * (values - end).abs()))

    # The hard clamp plus what smooths its corners: the same function, and exact near both ends.
    return values.clamp(low, high) + (rounding_off(low) - rounding_off(high)) / SHARPNESS


def soft_unclamp(values: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The inverse: z = y + (log(1 - exp(-beta (y - low))) - log(1 - exp(-beta (high - y)))) / beta."""

    def log_one_minus_exp(distance: Tensor) -> Tensor:
        return torch.log(-torch.expm1(-SHARPNESS * distance))

    return values + (log_one_minus_exp(values - low) - log_one_minus_exp(high - values)) / SHARPNESS


def _dose_table(vectors: Iterable[tuple[float, ...]]) -> FloatArray:
    """m(a) [A, 4]: the saturating effect and the proportional burden of each treatment, both scaled to [0, 1]."""
    doses = np.array(list(vectors))
    largest = doses.max(axis=0)
    bend = np.array([HALF_EFFECT["vasopressors"], HALF_EFFECT["fluids"]])
    effect = np.log1p(doses / bend) / np.log1p(largest / bend)
    burden = doses / largest
    return np.stack([effect[:, 0], burden[:, 0], effect[:, 1], burden[:, 1]], axis=1)


def _matrix(rows: Iterable[Mapping[str, float]], columns: list[str]) -> FloatArray:
    """A table of named coefficients as a matrix; an unknown name is a KeyError."""
    position = {name: index for index, name in enumerate(columns)}
    listed = list(rows)
    matrix = np.zeros((len(listed), len(columns)))
    for index, row in enumerate(listed):
        for name, weight in row.items():
            matrix[index, position[name]] = weight
    return matrix


def _correlation(names: list[str]) -> Tensor:
    matrix = torch.eye(len(names), dtype=torch.float64)
    for one, other, value in CORRELATIONS:
        i, j = names.index(one), names.index(other)
        matrix[i, j] = matrix[j, i] = value
    return matrix
