"""Location-scale models, as in the paper: next state = h(state, action) + phi(state, action) * noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from torch import Tensor

from ifonly.data.scaling import Scaler
from ifonly.data.schema import Schema
from ifonly.models.layers import softplus
from ifonly.models.networks import NetworkModel, Residual, broadcast_constants, read_limits, write_limits
from ifonly.models.smooth import Part, SmoothStep

SCALE_PENALTY = 20.0
"""What bends the scale is multiplied by noise of several deviations, and then by all that follows: it is what makes
questions hard to prove, and data say little about it. So its bending in the state costs this much more."""


class LocationScale(NetworkModel):
    """next = h(x, c, a) + softplus(f(x, c, a)) * u, with networks h and f; with `residual`, h has the state beside it.

    `lipschitz=(L_h, L_phi)` limits the networks' constants with respect to the dynamic features by spectral
    normalisation; None, for both or for one, leaves them free. For noise u the model's constant is
    L_h + L_phi max_i |u_i|, with the exact norms of the weights (softplus has slope at most 1); a residual location
    adds its largest factor to L_h, 1 for the identity.

    >>> from ifonly import simulate
    >>> LocationScale(simulate.sepsis_schema(), lipschitz=(1.0, 0.1)).state_size
    9
    """

    kind: ClassVar[str] = "location-scale"

    def __init__(
        self,
        schema: Schema,
        *,
        hidden: Sequence[int] = (200,),
        activation: str = "tanh",
        residual: Residual = "none",
        lipschitz: tuple[float | None, float | None] | None = None,
        prior: str = "gaussian",
        scaler: Scaler | None = None,
    ) -> None:
        super().__init__(schema, hidden=hidden, activation=activation, residual=residual, prior=prior, scaler=scaler)
        self.limits = read_limits(lipschitz, ("h", "phi"))
        self.location, self.scale = (self.make_network(limit) for limit in self.limits)
        self.scale.state_penalty = SCALE_PENALTY
        self.finish()

    @classmethod
    def from_weights(
        cls,
        schema: Schema,
        *,
        location: Mapping[str, Any],
        scale: Mapping[str, Any],
        covariance: Any,
        scaler: Scaler | None = None,
        activation: str = "tanh",
        residual: Any = "none",
        prior: str = "gaussian",
        freedom: Any = None,
    ) -> Self:
        """A float64 model from explicit arrays, for instance of a model trained elsewhere.

        Each network is a mapping with `state` [H, D], `context` [H, C], `action` [H, a], `bias` [H], `output` [D, H]
        and `output_bias` [D]: effective weights, any Lipschitz factor multiplied in; a second hidden layer is
        `hidden_2` [H2, H] and `hidden_2_bias` [H2], and so on. They act on the coordinates of `scaler`; by default
        those are original units (the logarithm of log-scaled features) and plain action vectors.

        `residual="identity"` adds the state to the location in these coordinates, an array [D] the state times factors.
        `covariance` is the noise's whatever its `prior`; one of Student's t needs degrees of `freedom`, too.
        """
        networks = {"location": location, "scale": scale}
        settings = {"activation": activation, "residual": residual, "prior": prior, "freedom": freedom}
        return cls.of_networks(schema, networks, covariance, scaler=scaler, **settings)

    def settings(self) -> dict[str, Any]:
        """Constructor arguments."""
        return {**super().settings(), "lipschitz": write_limits(self.limits)}

    def location_and_scale(self, states: Tensor, context: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """h and phi, both [..., D]; phi is positive."""
        location, scale = self.outputs((self.location, self.scale), states, context, actions)
        return self.skip(states, location), softplus(scale)

    def step(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """The next states [..., D]."""
        location, scale = self.location_and_scale(states, context, actions)
        return location + scale * noise

    def invert(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> tuple[Tensor, Tensor]:
        """The noise and the logarithm of how steeply each entry depends on its next state, both [..., D]."""
        location, scale = self.location_and_scale(states, context, actions)
        noise = (next_states - location) / scale
        return noise, -scale.log().expand(noise.shape)

    def lipschitz(self, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """K = L_h + L_phi max_i |u_i| [...], the same for every context and action."""
        largest = noise.abs().amax(-1).double()
        constants = self.location_lipschitz(self.location) + self.scale.state_lipschitz() * largest
        return broadcast_constants(constants, context, actions)

    def noise_slopes(self, states: Tensor, context: Tensor, actions: Tensor) -> Tensor | None:
        """The scale [..., D]; None for a subclass with another `step`."""
        if type(self).step is not LocationScale.step:
            return None
        return self.location_and_scale(states, context, actions)[1]

    def smooth(self) -> SmoothStep | None:
        """h, and softplus of f times the noise; None where the activation has a kink."""
        vectors, activation = self.action_vectors, self.activation
        location = Part.of_network(self.location, vectors, activation)
        scale = Part.of_network(self.scale, vectors, activation, top="softplus", by_noise=True)
        return SmoothStep.of_parts((location, scale), self.skip_matrices())
