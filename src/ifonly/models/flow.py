"""An element-wise monotone conditional flow: location, scale, skewness and tails all depend on state and action."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ifonly.data.scaling import Scaler
from ifonly.data.schema import Schema
from ifonly.errors import InputError
from ifonly.models.layers import softplus
from ifonly.models.networks import NetworkModel, Residual, broadcast_constants, read_limits, write_limits


@dataclass(frozen=True)
class FlowRanges:
    """Between which values the flow's functions may move; narrower ranges give smaller Lipschitz constants.

    The middle of each range is where training starts.
    """

    scale: tuple[float, float] = (0.02, 2.0)
    skewness: tuple[float, float] = (-0.5, 0.5)
    tails: tuple[float, float] = (0.75, 1.25)
    """Below 1: lighter than the prior's; above 1: heavier."""

    def __post_init__(self) -> None:
        for name, positive in (("scale", True), ("skewness", False), ("tails", True)):
            low, high = (float(limit) for limit in getattr(self, name))
            if not (math.isfinite(low) and math.isfinite(high) and low < high) or (positive and low <= 0):
                more = ", both positive" if positive else ""
                raise InputError(f"flow: the range of {name}, {(low, high)}, must be finite, low < high{more}.")
            object.__setattr__(self, name, (low, high))


@dataclass(frozen=True)
class Shape:
    """The values of the flow's four functions at some states, contexts and actions, each [..., D]."""

    location: Tensor
    scale: Tensor
    skewness: Tensor
    tails: Tensor


class MonotoneFlow(NetworkModel):
    """next_i = h_i + phi_i sinh(delta_i asinh(u_i) + eps_i), with networks for h, phi, eps, delta of (x, c, a).

    phi (scale), eps (skewness) and delta (tails) are squashed into `ranges` by a sigmoid; `lipschitz=(L_h, L_phi,
    L_eps, L_delta)` limits the functions' constants with respect to the dynamic features, None leaves all or one
    free. With eps = 0 and delta = 1 this is the location-scale model.

    The constant. Write S(u; eps, delta) = sinh(delta asinh u + eps). For fixed u the Jacobian in the state is

        J_h + diag(S) J_phi + diag(phi dS/d eps) J_eps + diag(phi dS/d delta) J_delta,

    where dS/d eps = cosh(delta asinh u + eps) and dS/d delta = asinh(u) cosh(delta asinh u + eps). A diagonal matrix
    has the norm of its largest entry. Let e = max |eps|, d = max delta and p = max phi over the ranges, and
    m = d max_i asinh|u_i| + e. Then |delta asinh u_i + eps| <= m everywhere, sinh and cosh grow with the absolute
    value of their argument, so that

        K(u) = L_h + L_phi sinh(m) + p (L_eps + L_delta max_i asinh|u_i|) cosh(m)

    bounds the Jacobian's norm at every state, and the whole space is convex: K(u) is a Lipschitz constant. A function
    low + (high - low) sigmoid(f) has (high - low) / 4 times the constant of its network f.
    """

    kind: ClassVar[str] = "monotone-flow"

    def __init__(
        self,
        schema: Schema,
        *,
        hidden: Sequence[int] = (200,),
        activation: str = "tanh",
        residual: Residual = "none",
        lipschitz: Sequence[float | None] | None = None,
        ranges: FlowRanges | None = None,
        prior: str = "gaussian",
        scaler: Scaler | None = None,
    ) -> None:
        super().__init__(schema, hidden=hidden, activation=activation, residual=residual, prior=prior, scaler=scaler)
        self.limits = read_limits(lipschitz, ("h", "phi", "eps", "delta"))
        self.ranges = ranges or FlowRanges()
        self.location = self.make_network(self.limits[0])
        self.scale, self.skewness, self.tails = (
            self.make_network(None if limit is None else limit / _slope(span))
            for limit, span in zip(self.limits[1:], self._spans(), strict=True)
        )
        self.finish()

    @classmethod
    def from_weights(
        cls,
        schema: Schema,
        *,
        networks: Mapping[str, Mapping[str, Any]],
        covariance: Any,
        ranges: FlowRanges | None = None,
        scaler: Scaler | None = None,
        activation: str = "tanh",
        residual: Any = "none",
        prior: str = "gaussian",
        freedom: Any = None,
    ) -> Self:
        """A float64 model from explicit arrays of `location`, `scale`, `skewness` and `tails`.

        Each is a mapping as `LocationScale.from_weights` takes them; the last three are what the sigmoid squashes into
        `ranges`.
        """
        wanted = ("location", "scale", "skewness", "tails")
        if set(networks) != set(wanted):
            raise InputError(f"from_weights: a flow has the networks {', '.join(wanted)}; found {sorted(networks)}.")
        settings = {"activation": activation, "residual": residual, "prior": prior, "freedom": freedom}
        return cls.of_networks(schema, networks, covariance, ranges=ranges, scaler=scaler, **settings)

    @classmethod
    def from_settings(cls, schema: Schema, settings: Mapping[str, Any], scaler: Scaler) -> Self:
        """The model that `settings` described."""
        return cls(schema, scaler=scaler, **{**settings, "ranges": FlowRanges(**settings["ranges"])})

    def settings(self) -> dict[str, Any]:
        """Constructor arguments."""
        ranges = {name: list(span) for name, span in asdict(self.ranges).items()}
        return {**super().settings(), "lipschitz": write_limits(self.limits), "ranges": ranges}

    def _spans(self) -> tuple[tuple[float, float], ...]:
        return self.ranges.scale, self.ranges.skewness, self.ranges.tails

    def shape(self, states: Tensor, context: Tensor, actions: Tensor) -> Shape:
        """h, phi, eps and delta, each [..., D]."""
        networks = (self.location, self.scale, self.skewness, self.tails)
        location, *others = self.outputs(networks, states, context, actions)
        scale, skewness, tails = (_squash(values, span) for values, span in zip(others, self._spans(), strict=True))
        return Shape(self.skip(states, location), scale, skewness, tails)

    def step(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """The next states [..., D]."""
        shape = self.shape(states, context, actions)
        return shape.location + shape.scale * torch.sinh(shape.tails * torch.asinh(noise) + shape.skewness)

    def invert(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> tuple[Tensor, Tensor]:
        """The noise and the logarithm of how steeply each entry depends on its next state, both [..., D]."""
        shape = self.shape(states, context, actions)
        residual = (next_states - shape.location) / shape.scale
        before = (torch.asinh(residual) - shape.skewness) / shape.tails
        # With y the residual and v = (asinh y - eps) / delta: d sinh(v) / d next = cosh(v) / (delta cosh(asinh y) phi).
        log_slopes = _log_cosh(before) - _log_cosh(torch.asinh(residual)) - shape.tails.log() - shape.scale.log()
        return torch.sinh(before), log_slopes

    def lipschitz(self, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """K(u) [...] as derived above, the same for every context and action."""
        scale, skewness, tails = (
            network.state_lipschitz() * _slope(span)
            for network, span in zip((self.scale, self.skewness, self.tails), self._spans(), strict=True)
        )
        largest = torch.asinh(noise.double().abs()).amax(-1)
        argument = self.ranges.tails[1] * largest + max(abs(limit) for limit in self.ranges.skewness)
        constants = (
            self.location_lipschitz(self.location)
            + scale * torch.sinh(argument)
            + self.ranges.scale[1] * (skewness + tails * largest) * torch.cosh(argument)
        )
        return broadcast_constants(constants, context, actions)


def _squash(values: Tensor, span: tuple[float, float]) -> Tensor:
    low, high = span
    return low + (high - low) * torch.sigmoid(values)


def _slope(span: tuple[float, float]) -> float:
    """The largest slope of `_squash`."""
    return (span[1] - span[0]) / 4


def _log_cosh(values: Tensor) -> Tensor:
    """log cosh without overflow."""
    size = values.abs()
    return size + softplus(-2 * size) - math.log(2)
