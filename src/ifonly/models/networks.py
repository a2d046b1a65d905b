"""What models made of networks have in common: their settings, initialisation and baking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor, nn

from ifonly.data.scaling import Scaler
from ifonly.data.schema import Schema
from ifonly.errors import InputError
from ifonly.models.base import TrainableModel
from ifonly.models.explicit import hidden_widths, load_noise, read_residual
from ifonly.models.layers import Network, as_array
from ifonly.models.noise import make_prior

Residual = Literal["none", "identity", "diagonal"]
"""What a location adds to its network: nothing, the state itself, or the state times a learned factor per feature."""


class Skip(nn.Module):
    """The linear part d * x of a location, feature by feature."""

    def __init__(self, size: int, residual: str) -> None:
        super().__init__()
        if residual not in get_args(Residual):
            raise InputError(f"residual={residual!r} is unknown; choose from {list(get_args(Residual))}.")
        self.residual, self.size = residual, size
        self.register_parameter("factors", nn.Parameter(torch.ones(size)) if residual == "diagonal" else None)

    factors: nn.Parameter | None
    """Learned; none where the linear part is fixed, so that such models are stored without it."""

    def initialize(self) -> None:
        """Start from the identity."""
        if self.factors is not None:
            nn.init.ones_(self.factors)

    @torch.no_grad()
    def load_factors(self, factors: Tensor) -> None:
        """Take over factors [D]."""
        if factors.shape != (self.size,):
            raise InputError(f"residual: factors of shape {list(factors.shape)}; expected [{self.size}].")
        assert self.factors is not None
        self.factors.copy_(factors)

    def forward(self, states: Tensor, location: Tensor) -> Tensor:
        """A network's location [..., D] with the linear part added, at states [..., D]."""
        if self.residual == "none":
            return location
        return location + (states if self.factors is None else states * self.factors)

    def diagonal(self, like: Tensor) -> Tensor:
        """d [D], on the device of `like`; D is the number of features."""
        if self.factors is not None:
            return self.factors.detach().double()
        fixed = float(self.residual == "identity")
        return torch.full((self.size,), fixed, dtype=torch.float64, device=like.device)


class NetworkModel(TrainableModel):
    """A trainable model whose parts are networks of (state, context, action), all of the same hidden widths.

    Its location is a network, and with `residual` the state beside it: "identity" says that values stay as they are
    unless something changes them, "diagonal" that they do by a learned factor.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        hidden: Sequence[int],
        activation: str,
        residual: str = "none",
        prior: str,
        scaler: Scaler | None,
    ) -> None:
        super().__init__(schema, scaler)
        if isinstance(hidden, int):
            raise InputError(f"hidden={hidden}: expected one width per hidden layer, such as ({hidden},).")
        self.hidden = tuple(hidden)
        self.activation = activation
        self.skip = Skip(self.state_size, residual)
        self.prior_name = prior
        self.prior = make_prior(prior, self.state_size)

    @classmethod
    def of_networks(
        cls,
        schema: Schema,
        networks: Mapping[str, Mapping[str, Any]],
        covariance: Any,
        *,
        residual: Any = "none",
        freedom: Any = None,
        **settings: Any,
    ) -> Self:
        """A float64 model with these weights of its networks, each by its attribute; `settings` are the constructor's.

        Arrays are those of `Network.load_weights`; the noise has this covariance. `residual` may be factors [D].
        """
        kind, factors = read_residual(residual)
        model = cls(schema, hidden=hidden_widths(networks), residual=kind, **settings).double()
        model.set_scaler(model.scaler)
        for name, weights in networks.items():
            getattr(model, name).load_weights(name, weights)
        if factors is not None:
            model.skip.load_factors(factors)
        load_noise(model.prior, as_array("covariance", covariance), freedom)
        return model

    def make_network(self, limit: float | None) -> Network:
        """A network with one output per dynamic feature and the Lipschitz constant `limit`."""
        sizes = (self.state_size, self.context_size, self.schema.actions.width)
        return Network(sizes, self.state_size, hidden=self.hidden, activation=self.activation, lipschitz=limit)

    def finish(self) -> None:
        """To be called when all networks are made: initial weights, and action vectors in the weights' precision."""
        self.initialize(torch.Generator().manual_seed(0))
        self.set_scaler(self.scaler)

    def networks(self) -> list[Network]:
        """The networks, in the order in which they were made."""
        return [module for module in self.children() if isinstance(module, Network)]

    def outputs(
        self, networks: Sequence[Network], states: Tensor, context: Tensor, actions: Tensor
    ) -> tuple[Tensor, ...]:
        """What each of these networks of the model says, [..., D] each.

        Models call their networks here and nowhere else, and all at once: so the networks of several models can be
        evaluated together (`ifonly.models.stacked`).
        """
        vectors = self.action_vectors[actions]
        return tuple(network(states, context, vectors) for network in networks)

    def settings(self) -> dict[str, Any]:
        """Constructor arguments that all these models share."""
        residual = {} if self.skip.residual == "none" else {"residual": self.skip.residual}
        return {
            "hidden": [int(width) for width in self.hidden],
            "activation": self.activation,
            **residual,
            "prior": self.prior_name,
        }

    def location_lipschitz(self, location: Network) -> float:
        """The Lipschitz constant of a location: its network's, and the largest factor of its linear part."""
        return location.state_lipschitz() + float(self.skip.diagonal(self.action_vectors).abs().max())

    def skip_matrices(self) -> Tensor | None:
        """The linear part for every action [A, D, D]; None where there is none."""
        if self.skip.residual == "none":
            return None
        return torch.diag(self.skip.diagonal(self.action_vectors)).expand(self.action_count, -1, -1)

    def curvature(self) -> Tensor:
        """What a curvature penalty multiplies: a bound on the networks' third derivatives, differentiable."""
        return torch.stack([network.curvature() for network in self.networks()]).sum()

    def initialize(self, generator: torch.Generator) -> None:
        """Fresh networks and a standard prior."""
        self.skip.initialize()
        for network in self.networks():
            network.initialize(generator)
        self.prior.initialize()

    def is_baked(self) -> bool:
        """Whether no matrix is left to normalise."""
        return all(matrix.is_baked() for network in self.networks() for matrix in network.matrices())

    def bake_(self) -> None:
        """Compute normalised weights once."""
        for network in self.networks():
            network.bake_()


def read_limits(lipschitz: Sequence[float | None] | None, names: Sequence[str]) -> tuple[float | None, ...]:
    """One Lipschitz limit, or None, for each of the functions `names`."""
    if lipschitz is None:
        return (None,) * len(names)
    if not isinstance(lipschitz, Sequence) or len(lipschitz) != len(names):
        raise InputError(f"lipschitz={lipschitz!r}: expected None, or one limit (or None) for each of {list(names)}.")
    return tuple(None if limit is None else float(limit) for limit in lipschitz)


def write_limits(limits: tuple[float | None, ...]) -> list[float | None] | None:
    """The limits as a setting; None when there are none."""
    return None if all(limit is None for limit in limits) else list(limits)


def same_constant(constant: float, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
    """A Lipschitz constant [...] that holds for every context, action and noise."""
    constants = torch.full(noise.shape[:-1], constant, dtype=torch.float64, device=noise.device)
    return broadcast_constants(constants, context, actions)


def broadcast_constants(constants: Tensor, context: Tensor, actions: Tensor) -> Tensor:
    """Lipschitz constants, one per noise, expanded [...] to the shape of context and actions."""
    return constants.expand(np.broadcast_shapes(constants.shape, actions.shape, context.shape[:-1]))
