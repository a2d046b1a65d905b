"""Models whose step has three bounded derivatives in the state: the first two exactly, limits for all three."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ifonly.errors import InputError
from ifonly.models.layers import BoundedLinear, Network, softplus, spectral_norm, tanh

Curve = Literal["tanh", "softplus", "sigmoid"]

LIMITS: dict[str, tuple[float, float, float]] = {
    "tanh": (1.0, 0.7699, 2.0),
    "softplus": (1.0, 0.25, 0.0963),
    "sigmoid": (0.25, 0.0963, 0.125),
}
"""The largest size of each curve's first three derivatives, rounded up."""


def curve_derivatives(curve: Curve, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value, slope and curvature [...]."""
    if curve == "tanh":
        value = tanh(z)
        slope = 1 - value * value
        return value, slope, -2 * value * slope
    logistic = torch.sigmoid(z)
    slope = logistic * (1 - logistic)
    if curve == "sigmoid":
        return logistic, slope, slope * (1 - 2 * logistic)
    return softplus(z), logistic, slope


def norm_limit(matrices: Tensor) -> Tensor:
    """Upper bounds [...] of the spectral norms of matrices [..., m, n], by products alone and within 8 % for n = 9.

    The largest eigenvalue of a positive matrix G is at most the Frobenius norm of G^8 to the power 1/8.
    """
    gram = matrices.mT @ matrices if matrices.shape[-1] <= matrices.shape[-2] else matrices @ matrices.mT
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1).clamp(min=1e-300)
    power = gram / trace[..., None, None]
    for _ in range(3):
        power = power @ power
    return trace.sqrt() * (power * power).sum((-2, -1)).pow(1 / 32) * (1 + 1e-12)


def bilinear_limit(tensors: Tensor) -> Tensor:
    """Upper bounds [...] of |H[y, z]| over unit vectors y, z, for bilinear maps H [..., D, D, D]."""
    size = tensors.shape[-1]
    flat = tensors.flatten(-2)
    return torch.minimum(norm_limit(flat), norm_limit(flat.unflatten(-1, (size, size)).flatten(-3, -2)))


@dataclass(frozen=True)
class Inner:
    """A network's outputs [N, O] at N states, with Jacobians [N, O, D] and Hessians [N, O, D, D]."""

    value: Tensor
    jacobian: Tensor
    hessian: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Part:
    """top(network(x, c, a)), multiplied by the noise if `by_noise`: a summand of the next state."""

    state: Tensor  # [H, D]
    context: Tensor  # [H, C]
    actions: Tensor  # [A, H], with the first bias
    matrices: tuple[Tensor, ...]  # the layers after the first
    biases: tuple[Tensor, ...]
    activation: Curve
    top: Literal["identity", "softplus"] = "identity"
    by_noise: bool = False

    def __post_init__(self) -> None:
        if (self.top == "softplus") != self.by_noise:
            raise InputError(
                f"part of a smooth step: top={self.top!r} with by_noise={self.by_noise}; limits are known for "
                "a network as it is, and for softplus of a network times the noise."
            )

    def top_derivatives(self, value: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The slope and the curvature [N, D] that top and noise multiply the network's derivatives by."""
        if self.top == "identity":
            return torch.ones_like(value), torch.zeros_like(value)
        logistic = torch.sigmoid(value)
        return logistic * noise, logistic * (1 - logistic) * noise

    @classmethod
    def of_network(
        cls,
        network: Network,
        action_vectors: Tensor,
        activation: str,
        *,
        top: Literal["identity", "softplus"] = "identity",
        by_noise: bool = False,
    ) -> Part | None:
        """The network as it is now; None where its activation has a kink."""
        if activation not in LIMITS:
            return None
        layers = [layer for layer in network.layers if isinstance(layer, BoundedLinear)]
        return cls(
            state=network.state.weight(),
            context=network.context.weight(),
            actions=action_vectors @ network.action.weight().mT + network.biases[0],
            matrices=tuple(layer.weight() for layer in layers),
            biases=tuple(network.biases[number + 1] for number in range(len(layers))),
            activation=activation,  # type: ignore[arg-type]
            top=top,
            by_noise=by_noise,
        )

    @cached_property
    def _pairs(self) -> tuple[Tensor, Tensor]:
        """The entries (i, j), i <= j, of a symmetric matrix [D, D], in a row, and where each entry stands there."""
        size = self.state.shape[1]
        first, second = torch.triu_indices(size, size, device=self.state.device)
        places = torch.zeros(size, size, dtype=torch.int64, device=self.state.device)
        places[first, second] = places[second, first] = torch.arange(len(first), device=self.state.device)
        return torch.stack((first, second)), places.flatten()

    @cached_property
    def squares(self) -> Tensor:
        """The products w_i w_j, i <= j, of each first-layer row w [H, D (D + 1) / 2]."""
        (first, second), _ = self._pairs
        return self.state[:, first] * self.state[:, second]

    @cached_property
    def _slopes_to_second(self) -> Tensor:
        """From slopes of the first layer to the second layer's derivatives [H, O * D]."""
        return torch.einsum("oh,hd->hod", self.matrices[0], self.state).flatten(1)

    @cached_property
    def _curvatures_to_second(self) -> Tensor:
        """From curvatures of the first layer to the second layer's second derivatives [H, O * D (D + 1) / 2]."""
        return torch.einsum("oh,hp->hop", self.matrices[0], self.squares).flatten(1)

    def unpack(self, packed: Tensor) -> Tensor:
        """Symmetric matrices [..., D, D] from their entries i <= j."""
        size = self.state.shape[1]
        full: Tensor = packed[..., self._pairs[1]].unflatten(-1, (size, size))
        return full

    def inner(self, states: Tensor, context: Tensor, actions: Tensor, *, second: bool) -> Inner:
        """The network without its top at states [N, D], context [N, C] and actions [N]; Hessians if `second`."""
        size = self.state.shape[1]
        value, slope, curvature = curve_derivatives(
            self.activation, states @ self.state.mT + context @ self.context.mT + self.actions[actions]
        )
        outputs = F.linear(value, self.matrices[0], self.biases[0])
        first = (slope @ self._slopes_to_second).unflatten(1, (-1, size))
        packed = (curvature @ self._curvatures_to_second).unflatten(1, (outputs.shape[1], -1)) if second else None
        (i, j), _ = self._pairs
        for matrix, bias in zip(self.matrices[1:], self.biases[1:], strict=True):
            value, slope, curvature = curve_derivatives(self.activation, outputs)
            outputs = F.linear(value, matrix, bias)
            if packed is not None:
                bent = curvature.unsqueeze(-1) * first[..., i] * first[..., j]
                packed = matrix @ (bent + slope.unsqueeze(-1) * packed)
            first = matrix @ (slope.unsqueeze(-1) * first)
        if packed is None:
            return Inner(outputs, first)
        return Inner(outputs, first, self.unpack(packed))

    @property
    def is_shallow(self) -> bool:
        """Whether there is one hidden layer."""
        return len(self.matrices) == 1

    @cached_property
    def third_weights(self) -> Tensor:
        """For each unit of a single hidden layer: limit of |p|^3 relative to p^2, for p = w.y with unit y [H]."""
        rows: Tensor = torch.linalg.vector_norm(self.state, dim=1)
        return rows * LIMITS[self.activation][2]

    @cached_property
    def limits(self) -> tuple[float, float, float]:
        """Limits of the network's first three derivatives anywhere, without its top."""
        s1, s2, s3 = LIMITS[self.activation]
        first, second, third = spectral_norm(self.state), 0.0, 0.0
        row = float(self.state.norm(dim=1).max())
        for number, matrix in enumerate(self.matrices):
            norm = spectral_norm(matrix)
            third = norm * (s3 * row * row * first + 3 * s2 * row * second + s1 * third)
            second = norm * (s2 * row * first + s1 * second)
            if number == 0:
                weights = matrix.norm(dim=0)
                third = min(third, self._form_limit(weights * self.third_weights))
                second = min(second, self._form_limit(weights * s2))
            row = float(matrix.norm(dim=1).max()) * s1 * first
            first = norm * s1 * first
        return tuple(value * (1 + 1e-12) for value in (first, second, third))  # type: ignore[return-value]

    def _form_limit(self, weights: Tensor) -> float:
        return float(self.form_norms(weights.unsqueeze(0))[0])

    def form_norms(self, weights: Tensor) -> Tensor:
        """Limits [N] of sum_h weights_h (w_h.y)^2 over unit y, for nonnegative weights [N, H] of first-layer units."""
        return norm_limit(self.unpack(weights @ self.squares))


@dataclass(frozen=True)
class SmoothStep:
    """next = sum of parts + skip_a x + what does not depend on the state."""

    parts: tuple[Part, ...]
    skip: Tensor | None = None  # [A, D, D]

    def jacobians(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """Derivatives [N, D, D] of the step in the state, for states [N, D], context [N, C], actions and noise."""
        size = states.shape[1]
        total = states.new_zeros(len(states), size, size) if self.skip is None else self.skip[actions]
        for part in self.parts:
            inner = part.inner(states, context, actions, second=False)
            total = total + part.top_derivatives(inner.value, noise)[0].unsqueeze(-1) * inner.jacobian
        return total

    @classmethod
    def of_parts(cls, parts: Sequence[Part | None]) -> SmoothStep | None:
        """None where a part has kinks."""
        known = [part for part in parts if part is not None]
        return cls(tuple(known)) if len(known) == len(parts) else None
