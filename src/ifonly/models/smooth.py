"""Transition models whose step has derivatives in the state: two or three of them exactly, and bounds on four.

Equation numbers are those of docs/theory.md. All numbers here are float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import permutations
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ifonly.errors import InputError
from ifonly.models.layers import ROUNDING, BoundedLinear, Network, softplus, spectral_norm

R = TypeVar("R")
Curve = Literal["tanh", "softplus", "sigmoid"]

DERIVATIVE_BOUNDS: dict[str, tuple[float, float, float, float]] = {
    "tanh": (1.0, 0.7699, 2.0, 4.0859),
    "softplus": (1.0, 0.25, 0.0963, 0.125),
    "sigmoid": (0.25, 0.0963, 0.125, 0.1277),
}
"""s1, ..., s4 of (T17): the largest absolute value of each curve's first four derivatives, rounded up."""


def curve_derivatives(curve: Curve, z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Value and first three derivatives [...] of an activation at z [...]."""
    if curve == "tanh":
        value = torch.sigmoid(2 * z).mul_(2).sub_(1)  # tanh(z), in place
        slope = torch.addcmul(torch.ones((), dtype=z.dtype, device=z.device), value, value, value=-1)
        return value, slope, (value * slope).mul_(-2), (value * value).mul_(6).sub_(2).mul_(slope)
    logistic = torch.sigmoid(z)
    slope = torch.addcmul(logistic, logistic, logistic, value=-1)
    curvature = torch.addcmul(slope, slope, logistic, value=-2)
    if curve == "sigmoid":
        return logistic, slope, curvature, torch.addcmul(slope, slope, slope, value=-6)
    return softplus(z), logistic, slope, curvature  # the derivative of softplus is the logistic function


CACHED = 2**15
"""Numbers in matrices that are multiplied together on a processor, at most: with what comes of them they fit its
cache, and small ones take less than half the time."""


@cache
@torch.inference_mode(False)
def triples(size: int, device: torch.device) -> tuple[tuple[Tensor, ...], Tensor]:
    """Packing of symmetric tensors [D, D, D]: the entries (i, j, k), i <= j <= k, three times [E], and the position
    [D * D * D] of every entry among them."""
    chosen = torch.combinations(torch.arange(size, device=device), 3, with_replacement=True).T
    places = torch.zeros(size, size, size, dtype=torch.int64, device=device)
    for order in permutations(range(3)):
        i, j, k = (chosen[place] for place in order)
        places[i, j, k] = torch.arange(chosen.shape[1], device=device)
    return chosen.unbind(), places.flatten()


@cache
@torch.inference_mode(False)
def pairs(size: int, device: torch.device) -> tuple[tuple[Tensor, ...], Tensor]:
    """Packing of symmetric matrices [D, D]: the entries (i, j), i <= j, twice [E], and the position [D * D] of every
    entry among them."""
    chosen = torch.triu_indices(size, size, device=device)
    places = torch.zeros(size, size, dtype=torch.int64, device=device)
    places[chosen[0], chosen[1]] = places[chosen[1], chosen[0]] = torch.arange(chosen.shape[1], device=device)
    return chosen.unbind(), places.flatten()


@cache
@torch.inference_mode(False)
def entry_weights(size: int, device: torch.device) -> Tensor:
    """Factors [E] of packed entries i <= j in the Frobenius norm: sqrt(2) off the diagonal, where each occurs twice."""
    i, j = pairs(size, device)[0]
    lengths: Tensor = (1 + (i < j)).to(torch.float64).sqrt()
    return lengths


def kept(make: Callable[[Any], R]) -> cached_property[R]:
    """A property that is computed once, in no mode of torch: what a model's parts keep may be used in any."""
    return cached_property(torch.inference_mode(False)(make))


def unpacked(entries: Tensor, size: int) -> Tensor:
    """Symmetric matrices [..., D, D] from their entries i <= j [..., E]."""
    full: Tensor = spread(entries, pairs(size, entries.device)[1]).unflatten(-1, (size, size))
    return full


def spread(entries: Tensor, places: Tensor) -> Tensor:
    """Entries [..., E] at places [F] of the last axis, [..., F]; a gather takes a third of an index's time here."""
    return entries.gather(-1, places.expand(*entries.shape[:-1], -1))


def norm_bound(matrices: Tensor, *, squarings: int = 3) -> Tensor:
    """Upper bounds [...] on the spectral norms of matrices [..., m, n], by matrix products alone (T52).

    Within 8 % for n = 9, and within 2 % with two more squarings.
    """
    gram = matrices.mT @ matrices if matrices.shape[-1] <= matrices.shape[-2] else matrices @ matrices.mT
    return eigenvalue_bound(gram, squarings=squarings).sqrt() * (1 + ROUNDING)


def eigenvalue_bound(matrices: Tensor, *, squarings: int = 3) -> Tensor:
    """Upper bounds [...] on the largest eigenvalues of positive semidefinite matrices G [..., n, n] (T52).

    The largest eigenvalue is at most |G^p|_F^(1/p), here with p = 2^squarings; dividing by the trace first avoids
    overflow.
    """
    flat = matrices.flatten(0, -3) if matrices.dim() > 3 else matrices
    if flat.dim() > 2 and flat.device.type == "cpu" and flat.numel() > CACHED:
        size = max(1, CACHED // flat[0].numel())
        bounds = [eigenvalue_bound(some, squarings=squarings) for some in flat.split(size)]
        return torch.cat(bounds).view(matrices.shape[:-2])
    trace = matrices.diagonal(dim1=-2, dim2=-1).sum(-1).clamp(min=torch.finfo(matrices.dtype).tiny)
    power = matrices / trace[..., None, None]
    for _ in range(squarings):
        power = power @ power
    return trace * (power * power).sum((-2, -1)).pow(0.5 ** (squarings + 1)) * (1 + ROUNDING)


@dataclass(frozen=True)
class Jet:
    """A network, without its top, at N states: value and derivatives with respect to the state."""

    value: Tensor  # [N, O]
    jacobian: Tensor  # [N, O, D]
    hessian: Tensor | None = None  # [N, O, D (D + 1) / 2], packed entries i <= j
    bent: Tensor | None = None  # [N, H], second derivatives of the only hidden layer's units; None for a deep network
    third: Callable[[], Tensor] | None = None
    """Third derivatives [N, O, D (D + 1) (D + 2) / 6], packed entries i <= j <= k; None for a deep network."""


@dataclass(frozen=True, eq=False)
class Part:
    """top(network(x, c, a)), multiplied by the noise if `by_noise`: a summand of the next state."""

    state: Tensor  # [H, D], first-layer weights w_h of the state
    context: Tensor  # [H, C]
    actions: Tensor  # [A, H], with the first bias
    matrices: tuple[Tensor, ...]  # the layers after the first; columns v_h of the only one in a shallow network
    biases: tuple[Tensor, ...]
    activation: Curve
    top: Literal["identity", "softplus"] = "identity"
    by_noise: bool = False

    def __post_init__(self) -> None:
        if (self.top == "softplus") != self.by_noise:
            raise InputError(
                f"part of a smooth step: top={self.top!r} with by_noise={self.by_noise}; derivative bounds are known "
                "for a network as it is, and for softplus of a network times the noise."
            )

    def top_derivatives(self, value: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """First three derivatives [N, D] of the top, times the noise [N, D], at a network's outputs [N, D]."""
        if self.top == "identity":
            return torch.ones_like(value), torch.zeros_like(value), torch.zeros_like(value)
        logistic = torch.sigmoid(value)
        curvature = logistic * (1 - logistic)
        return logistic * noise, curvature * noise, curvature * (1 - 2 * logistic) * noise

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
        """The network with its present weights; None where its activation has a kink."""
        if activation not in DERIVATIVE_BOUNDS:
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

    def derivatives(self, states: Tensor, context: Tensor, actions: Tensor, *, second: bool) -> Jet:
        """The network at states [N, D], context [N, C] and actions [N], of any depth: Jacobians, Hessians if `second`.

        Forward accumulation of the chain rule, layer by layer.
        """
        size = self.state.shape[1]
        hidden = states @ self.state.mT + context @ self.context.mT + self.actions[actions]
        value, slope, curvature, _ = curve_derivatives(self.activation, hidden)
        outputs = F.linear(value, self.matrices[0], self.biases[0])
        first = (slope @ self._slopes_to_second).unflatten(1, (-1, size))
        packed = (curvature @ self._curvatures_to_second).unflatten(1, (outputs.shape[1], -1)) if second else None
        i, j = pairs(size, states.device)[0]
        for matrix, bias in zip(self.matrices[1:], self.biases[1:], strict=True):
            value, slope, curvature, _ = curve_derivatives(self.activation, outputs)
            outputs = F.linear(value, matrix, bias)
            if packed is not None:
                products = curvature.unsqueeze(-1) * first[..., i] * first[..., j]
                packed = matrix @ (products + slope.unsqueeze(-1) * packed)
            first = matrix @ (slope.unsqueeze(-1) * first)
        return Jet(outputs, first, packed)

    def jet(self, states: Tensor, context: Tensor, actions: Tensor, *, single: bool = False) -> Jet:
        """The network at states [N, D], context [N, C] and actions [N]: two derivatives, and the third on demand where
        there is one hidden layer. There the second is multiplied in float32 if `single`."""
        if not self.is_shallow:
            return self.derivatives(states, context, actions, second=True)
        matrix, inputs = self.matrices[0], torch.cat((states, context), dim=1)
        hidden = torch.addmm(F.embedding(actions, self.actions), inputs, self._inputs)
        value, slope, curvature, third = curve_derivatives(self.activation, hidden)
        into = self._curvatures_to_second
        packed = curvature.float() @ into.float() if single else curvature @ into
        return Jet(
            value=F.linear(value, matrix, self.biases[0]),
            jacobian=(slope @ self._slopes_to_second).unflatten(1, (-1, states.shape[1])),
            hessian=packed.unflatten(1, (len(matrix), -1)),
            bent=curvature,
            third=lambda: (third.unsqueeze(1) * matrix) @ self._cubes,
        )

    def pulled_hessian(self, jet: Jet, weights: Tensor) -> Tensor:
        """The sum [N, D (D + 1) / 2] of the outputs' Hessians with weights [N, O], in float64."""
        if jet.bent is not None:
            return ((weights @ self.matrices[0]) * jet.bent) @ self._squares
        assert jet.hessian is not None
        return (weights.unsqueeze(1) @ jet.hessian).squeeze(1)

    def hessian_sizes(self, jet: Jet) -> Tensor:
        """Bounds [N, O] on the lengths of the outputs' Hessians: with one hidden layer the sums of what its units
        contribute."""
        if jet.bent is not None:
            return (jet.bent.abs() * self._row_norms**2) @ self.matrices[0].abs().mT
        assert jet.hessian is not None
        lengths: Tensor = torch.linalg.vector_norm(
            jet.hessian * entry_weights(self.state.shape[1], self.state.device), dim=-1
        )
        return lengths * (1 + ROUNDING)

    @property
    def is_shallow(self) -> bool:
        """Whether there is one hidden layer."""
        return len(self.matrices) == 1

    @kept
    def derivative_bounds(self) -> tuple[float, float, float, float]:
        """n1, ..., n4 of (T17): bounds on the network's first four derivatives anywhere, without its top."""
        s1, s2, s3, s4 = DERIVATIVE_BOUNDS[self.activation]
        first, second, third, fourth = spectral_norm(self.state), 0.0, 0.0, 0.0
        row = float(self.state.norm(dim=1).max())  # r of (T17): the gradient of a single unit's argument
        for number, matrix in enumerate(self.matrices):
            norm = spectral_norm(matrix)
            # (T17), the highest order first: each line reads the bounds of the layer before.
            mixed = 3 * second * second + 4 * row * third
            fourth = norm * (s4 * row * row * row * first + 6 * s3 * row * row * second + s2 * mixed + s1 * fourth)
            third = norm * (s3 * row * row * first + 3 * s2 * row * second + s1 * third)
            second = norm * (s2 * row * first + s1 * second)
            if number == 0:  # quadratic forms over the units of the first layer are sharper there
                weights = matrix.norm(dim=0)
                fourth = min(fourth, self._form_bound(weights * self._row_norms**2 * s4))
                third = min(third, self._form_bound(weights * self._row_norms * s3))
                second = min(second, self._form_bound(weights * s2))
            row = float(matrix.norm(dim=1).max()) * s1 * first
            first = norm * s1 * first
        return tuple(value * (1 + ROUNDING) for value in (first, second, third, fourth))  # type: ignore[return-value]

    @kept
    def output_bounds(self) -> Tensor:
        """The same for each output by itself [4, O]: the first four derivatives of n_i anywhere."""
        outputs = len(self.matrices[-1])
        whole = torch.tensor(self.derivative_bounds, dtype=torch.float64, device=self.state.device).unsqueeze(1)
        if not self.is_shallow:
            return whole.expand(-1, outputs)
        s1, *curved = DERIVATIVE_BOUNDS[self.activation]
        weights = self.matrices[0].abs()
        own = [torch.linalg.vector_norm(weights, dim=1) * s1 * spectral_norm(self.state)]
        for power, bound in enumerate(curved):
            own.append(eigenvalue_bound(self._sums(weights * self._row_norms**power * bound, self._outer_squares)))
        return torch.minimum(torch.stack(own) * (1 + ROUNDING), whole)

    @kept
    def third_form(self) -> Tensor:
        """Q [D, D] of (T15), positive semidefinite: |D^3 n[z, z, z]| <= |z| z.Q z at every state."""
        if not self.is_shallow:
            size, like = self.state.shape[1], self.state
            return self.derivative_bounds[2] * torch.eye(size, dtype=torch.float64, device=like.device)  # (T18)
        sizes = self.column_norms * self._row_norms * DERIVATIVE_BOUNDS[self.activation][2]
        return self._sums(sizes, self._outer_squares)[0] * (1 + ROUNDING)

    @kept
    def column_norms(self) -> Tensor:
        """|v_h| [H], the length of each hidden unit's output column."""
        lengths: Tensor = torch.linalg.vector_norm(self.matrices[0], dim=0)
        return lengths * (1 + ROUNDING)

    @kept
    def _row_norms(self) -> Tensor:
        """|w_h| [H]."""
        norms: Tensor = torch.linalg.vector_norm(self.state, dim=1)
        return norms * (1 + ROUNDING)

    def _form_bound(self, weights: Tensor) -> float:
        """A bound on sum_h weights_h (w_h.y)^2 over unit y, for nonnegative weights [H] of first-layer units."""
        return float(eigenvalue_bound(self._sums(weights, self._outer_squares)[0]))

    def _sums(self, units: Tensor, squares: Tensor) -> Tensor:
        """Matrices [N, D, D]: sums over hidden units of units [N, H] times squares [H, D*D]."""
        size = self.state.shape[1]
        return (units @ squares).view(-1, size, size)

    @kept
    def _inputs(self) -> Tensor:
        """First-layer weights of states and context [D + C, H]."""
        return torch.cat((self.state, self.context), dim=1).mT.contiguous()

    @kept
    def _squares(self) -> Tensor:
        """The products w_i w_j, i <= j, of each first-layer row w [H, D (D + 1) / 2]."""
        i, j = pairs(self.state.shape[1], self.state.device)[0]
        products: Tensor = self.state[:, i] * self.state[:, j]
        return products

    @kept
    def _outer_squares(self) -> Tensor:
        """The products w_i w_j of each first-layer row w [H, D*D]."""
        return (self.state.unsqueeze(2) * self.state.unsqueeze(1)).flatten(1)

    @kept
    def _cubes(self) -> Tensor:
        """The products w_i w_j w_k, i <= j <= k, of each first-layer row w [H, D (D + 1) (D + 2) / 6]."""
        i, j, k = triples(self.state.shape[1], self.state.device)[0]
        cubes: Tensor = self.state[:, i] * self.state[:, j] * self.state[:, k]
        return cubes

    @kept
    def _slopes_to_second(self) -> Tensor:
        """The linear map [H, O * D] from slopes of the first layer to the second layer's Jacobian."""
        return torch.einsum("oh,hd->hod", self.matrices[0], self.state).flatten(1)

    @kept
    def _curvatures_to_second(self) -> Tensor:
        """The linear map [H, O * D (D + 1) / 2] from curvatures of the first layer to the second layer's Hessian."""
        return torch.einsum("oh,hp->hop", self.matrices[0], self._squares).flatten(1)


@dataclass(frozen=True)
class SmoothStep:
    """next state = sum of parts + skip_a x + something that does not depend on the state."""

    parts: tuple[Part, ...]
    skip: Tensor | None = None  # [A, D, D]

    def jacobians(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """J [N, D, D], the step's derivative, at states [N, D], context [N, C], actions [N] and noise [N, D]."""
        size = states.shape[1]
        total = states.new_zeros(len(states), size, size) if self.skip is None else self.skip[actions]
        for part in self.parts:
            jet = part.derivatives(states, context, actions, second=False)
            total = total + part.top_derivatives(jet.value, noise)[0].unsqueeze(-1) * jet.jacobian
        return total

    @classmethod
    def of_parts(cls, parts: Sequence[Part | None], skip: Tensor | None = None) -> SmoothStep | None:
        """None where a part has kinks."""
        known = [part for part in parts if part is not None]
        return cls(tuple(known), skip) if len(known) == len(parts) else None
