"""Additive noise models: next state = h(state, action) + noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ifonly.data.scaling import Scaler
from ifonly.data.schema import Schema
from ifonly.models.networks import NetworkModel, Residual, same_constant
from ifonly.models.smooth import Part, SmoothStep


class Additive(NetworkModel):
    """next = h(x, c, a) + u, with a network h; the noise prior carries all of the noise's scale.

    `lipschitz` limits the network's constant with respect to the dynamic features; None leaves it free. The model's
    constant is the exact one of h's weights, whatever the noise.

    >>> from ifonly.data import ActionSpace, Feature, Schema
    >>> schema = Schema((Feature("pain", "dynamic"),), ActionSpace.categories(["wait", "treat"]))
    >>> model = Additive(schema, hidden=(16,), lipschitz=0.9)
    >>> constant = model.lipschitz(torch.zeros(0), torch.tensor(1), torch.zeros(1))
    >>> round(float(constant), 6)
    0.9
    """

    kind: ClassVar[str] = "additive"

    def __init__(
        self,
        schema: Schema,
        *,
        hidden: Sequence[int] = (200,),
        activation: str = "tanh",
        residual: Residual = "none",
        lipschitz: float | None = None,
        prior: str = "gaussian",
        scaler: Scaler | None = None,
    ) -> None:
        super().__init__(schema, hidden=hidden, activation=activation, residual=residual, prior=prior, scaler=scaler)
        self.limit = None if lipschitz is None else float(lipschitz)
        self.location = self.make_network(self.limit)
        self.finish()

    @classmethod
    def from_weights(
        cls,
        schema: Schema,
        *,
        location: Mapping[str, Any],
        covariance: Any,
        scaler: Scaler | None = None,
        activation: str = "tanh",
        residual: Any = "none",
        prior: str = "gaussian",
        freedom: Any = None,
    ) -> Self:
        """A float64 model from explicit arrays, as `LocationScale.from_weights` takes them."""
        settings = {"activation": activation, "residual": residual, "prior": prior, "freedom": freedom}
        return cls.of_networks(schema, {"location": location}, covariance, scaler=scaler, **settings)

    def settings(self) -> dict[str, Any]:
        """Constructor arguments."""
        return {**super().settings(), "lipschitz": self.limit}

    def step(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """The next states [..., D]."""
        (location,) = self.outputs((self.location,), states, context, actions)
        following: Tensor = self.skip(states, location) + noise
        return following

    def invert(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> tuple[Tensor, Tensor]:
        """The noise and the logarithm of its slopes, which is zero, both [..., D]."""
        (location,) = self.outputs((self.location,), states, context, actions)
        noise = next_states - self.skip(states, location)
        return noise, torch.zeros_like(noise)

    def lipschitz(self, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """K = L_h [...], the same for every context, action and noise."""
        return same_constant(self.location_lipschitz(self.location), context, actions, noise)

    def noise_slopes(self, states: Tensor, context: Tensor, actions: Tensor) -> Tensor | None:
        """One everywhere [..., D]; None for a subclass with another `step`."""
        return torch.ones_like(states) if type(self).step is Additive.step else None

    def smooth(self) -> SmoothStep | None:
        """h alone: the noise is added to it; None where the activation has a kink."""
        location = Part.of_network(self.location, self.action_vectors, self.activation)
        return SmoothStep.of_parts((location,), self.skip_matrices())
