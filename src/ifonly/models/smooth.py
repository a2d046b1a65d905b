"""Models whose step has three bounded derivatives in the state: the first two exactly, limits for all three."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ifonly.errors import InputError
from ifonly.models.layers import BoundedLinear, Network, softplus, spectral_norm

Curve = Literal["tanh", "softplus", "sigmoid"]

LIMITS: dict[str, tuple[float, float, float]] = {
    "tanh": (1.0, 0.7699, 2.0),
    "softplus": (1.0, 0.25, 0.0963),
    "sigmoid": (0.25, 0.0963, 0.125),
}
"""The largest size of each curve's first three derivatives, rounded up."""


HUMPS = {"tanh": (1.1463, 0.66667), "softplus": (1.3170, 0.09623), "sigmoid": (2.2925, 0.041667)}
"""Where, on the positive side, the size of the third derivative is largest but for zero, rounded up; and how large."""


def curve_derivatives(curve: Curve, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value, slope and curvature [...]; few new arrays, since large ones cost more than what is computed in them."""
    if curve == "tanh":
        value = torch.sigmoid(2 * z).mul_(2).sub_(1)  # as `tanh`, in place
        slope = torch.addcmul(torch.ones((), dtype=z.dtype, device=z.device), value, value, value=-1)
        return value, slope, (value * slope).mul_(-2)
    logistic = torch.sigmoid(z)
    slope = torch.addcmul(logistic, logistic, logistic, value=-1)
    if curve == "sigmoid":
        return logistic, slope, torch.addcmul(slope, slope, logistic, value=-2)
    return softplus(z), logistic, slope


SINGLE = 1e-4
"""Relative room for rounding in single precision: sums of a thousand positive terms stay far within it."""


def _rounded_up(values: Tensor) -> Tensor:
    """In single precision, not below what they were."""
    return values.float() * (1 + SINGLE)


def third_limit(curve: Curve, distance: Tensor) -> Tensor:
    """The largest size of the third derivative at arguments at least this far from zero [...].

    It falls with the distance, but for one hump.
    """
    logistic = torch.sigmoid(distance * (-2 if curve == "tanh" else -1))  # of minus that: small numbers stay exact
    slope = torch.addcmul(logistic, logistic, logistic, value=-1)
    if curve == "softplus":
        size = logistic.mul_(-2).add_(1).mul_(slope)
    else:
        size = (slope * 6).sub_(1).abs_().mul_(slope)
        size = size.mul_(16) if curve == "tanh" else size  # tanh(z) is twice the logistic function of 2 z, minus one
    top, height = HUMPS[curve]
    return torch.where(distance < top, size.clamp(min=height), size)


def norm_limit(matrices: Tensor, *, squarings: int = 3) -> Tensor:
    """Upper bounds [...] of the spectral norms of matrices [..., m, n], by products alone.

    Within 8 % for n = 9 and 2 % with two more squarings.
    """
    gram = matrices.mT @ matrices if matrices.shape[-1] <= matrices.shape[-2] else matrices @ matrices.mT
    return positive_limit(gram, squarings=squarings).sqrt() * (1 + 1e-12)


def positive_limit(matrices: Tensor, *, squarings: int = 3) -> Tensor:
    """Upper bounds [...] of the largest eigenvalues of positive matrices G [..., n, n].

    That is at most the Frobenius norm of a power of G, to one over that power.
    """
    trace = matrices.diagonal(dim1=-2, dim2=-1).sum(-1).clamp(min=1e-300)
    power = matrices / trace[..., None, None]
    for _ in range(squarings):
        power = power @ power
    return trace * (power * power).sum((-2, -1)).pow(0.5 ** (squarings + 1)) * (1 + 1e-12)


@dataclass(frozen=True)
class Inner:
    """A network's outputs [N, O] at N states, with Jacobians [N, O, D] and Hessians [N, O, D, D]."""

    value: Tensor
    jacobian: Tensor
    hessian: Tensor | None = None


@dataclass(frozen=True)
class Weights:
    """What is made of a network's O outputs."""

    signed: Tensor | None = None  # [N, O]: their weighted sum ...
    unsigned: Tensor | None = None  # [N, O]: ... plus, for these, with any signs
    lengths: Tensor | None = None  # [N, O]: or else the length of the outputs, times these (or 1)


@dataclass(frozen=True)
class Surroundings:
    """A network without its top around N states: its first two derivatives there, and what limits the third nearby."""

    value: Tensor  # [N, O]
    jacobian: Tensor  # [N, O, D]
    contracted: Callable[[Tensor], Tensor]
    """For weights [N, O]: the second derivatives [N, D, D] of weights.network."""
    curvature: Callable[[Tensor | slice], Tensor]
    """For some of the states: all second derivatives [n, O, D, D]."""
    third: Callable[[Weights, Tensor | None], Tensor]
    """For vectors e [N, D]: positive forms [N, D, D] in single precision, rounded up; near the states, what `Weights`
    make of the third derivative along z, z and e is at most z.form z. Without vectors: for unit ones, whatever their
    direction."""


@dataclass(frozen=True)
class _Single:
    """What limits of third derivatives need of a network with one hidden layer, in single precision."""

    rows: Tensor  # [H], lengths of the first layer's rows
    matrix: Tensor  # [O, H]
    squares: dict[tuple[bool, bool], Tensor]
    """The products w_i w_j of each row [H, D*D], times the lengths of the output columns, and of the rows; or not."""


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
    def _outer_squares(self) -> Tensor:
        """The products w_i w_j of each first-layer row w [H, D*D]."""
        return (self.state.unsqueeze(2) * self.state.unsqueeze(1)).flatten(1)

    def _sums(self, units: Tensor, squares: Tensor) -> Tensor:
        """Matrices [N, D, D]: sums over hidden units of units [N, H] times squares [H, D*D]."""
        size = self.state.shape[1]
        return (units @ squares).view(-1, size, size)

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

    def around(self, states: Tensor, context: Tensor, actions: Tensor, near: Tensor | None) -> Surroundings:
        """The network without its top at states [N, D], context [N, C] and actions [N]; `near` [N] says how far around
        them limits of third derivatives must hold; without it they hold everywhere, and know no directions."""
        if self.is_shallow:
            return self._around_one_layer(states, context, actions, near)
        inner = self.inner(states, context, actions, second=True)
        hessian = inner.hessian
        assert hessian is not None, "asked for"
        return Surroundings(
            inner.value,
            inner.jacobian,
            contracted=lambda weights: (weights.unsqueeze(1) @ hessian.flatten(2)).view_as(hessian[:, 0]),
            curvature=lambda rows: hessian[rows],
            third=self._third_anywhere,
        )

    def _around_one_layer(self, states: Tensor, context: Tensor, actions: Tensor, near: Tensor | None) -> Surroundings:
        """Sums over hidden units of products of w.z: they know directions, and how far a unit is from its bends."""
        matrix, single = self.matrices[0], self._single
        inputs = torch.cat((states, context), dim=1)
        hidden = torch.addmm(F.embedding(actions, self.actions), inputs, self._inputs)
        value, slope, curvature = curve_derivatives(self.activation, hidden)
        third: Callable[[Weights, Tensor | None], Tensor] = self._third_anywhere
        if near is not None:
            distance = hidden.float().abs_().addcmul_(_rounded_up(near).unsqueeze(1), single.rows, value=-1)
            third = self._third_near(third_limit(self.activation, distance.clamp_(min=0)))
        return Surroundings(
            value=F.linear(value, matrix, self.biases[0]),
            jacobian=(slope @ self._slopes_to_second).unflatten(1, (-1, states.shape[1])),
            contracted=lambda weights: self._sums((weights @ matrix).mul_(curvature), self._outer_squares),
            curvature=lambda chosen: self.unpack(
                (curvature[chosen] @ self._curvatures_to_second).unflatten(1, (len(matrix), -1))
            ),
            third=third,
        )

    def _third_near(self, bends: Tensor) -> Callable[[Weights, Tensor | None], Tensor]:
        """As `Surroundings.third`, from limits [N, H] of each unit's third derivative, in single precision."""
        single = self._single

        def third(weights: Weights, vectors: Tensor | None) -> Tensor:
            units, sizes = bends, self._unit_sizes(weights)
            if sizes is not None:
                units = sizes.mul_(bends)
            if vectors is not None:
                units = (vectors @ self.state.mT).float().abs_().mul_(units)
            forms = self._sums(units, single.squares[sizes is None, vectors is None])
            diagonal = forms.diagonal(dim1=1, dim2=2)
            # More than rounding takes from any direction: each of H positive terms loses some 1e-7 of itself.
            diagonal += max(SINGLE, 2e-7 * self.state.shape[0]) * diagonal.sum(1, keepdim=True)
            return forms

        return third

    def _third_anywhere(self, weights: Weights, vectors: Tensor | None) -> Tensor:
        """As `Surroundings.third`, by the network's global limit, alike in all directions."""
        factors = [vectors.norm(dim=1)] if vectors is not None else []
        if weights.signed is not None:
            parts = [part for part in (weights.signed, weights.unsigned) if part is not None]
            factors.append(torch.stack([part.norm(dim=1) for part in parts]).sum(0))
        elif weights.lengths is not None:
            factors.append(weights.lengths.abs().amax(1))
        sizes = _rounded_up(math.prod(factors, start=self.state.new_full((1,), self.limits[2])))
        return sizes[:, None, None] * torch.eye(self.state.shape[1], dtype=torch.float32, device=self.state.device)

    def _unit_sizes(self, weights: Weights) -> Tensor | None:
        """How much each hidden unit counts [N, H], in single precision; None: as its output column is long."""
        matrix = self._single.matrix
        if weights.signed is not None:
            sizes = (weights.signed @ self.matrices[0]).float().abs_()  # signs may cancel: in double precision
            return sizes if weights.unsigned is None else sizes.addmm_(weights.unsigned.float().abs(), matrix.abs())
        return None if weights.lengths is None else (weights.lengths.float() ** 2 @ matrix**2).sqrt_()

    @cached_property
    def _inputs(self) -> Tensor:
        """First-layer weights of states and context [D + C, H]."""
        return torch.cat((self.state, self.context), dim=1).mT.contiguous()

    @cached_property
    def _row_norms(self) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm(self.state, dim=1)
        return norms * (1 + 1e-12)

    @cached_property
    def _single(self) -> _Single:
        columns = self.matrices[0].norm(dim=0).unsqueeze(1)
        lengths = self._row_norms.unsqueeze(1)
        plain = self._outer_squares
        squares = {
            (by_column, by_row): (plain * (columns if by_column else 1) * (lengths if by_row else 1)).float()
            for by_column in (False, True)
            for by_row in (False, True)
        }
        return _Single(_rounded_up(self._row_norms), self.matrices[0].float(), squares)

    @property
    def is_shallow(self) -> bool:
        """Whether there is one hidden layer."""
        return len(self.matrices) == 1

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
                third = min(third, self._form_limit(weights * self._row_norms * s3))
                second = min(second, self._form_limit(weights * s2))
            row = float(matrix.norm(dim=1).max()) * s1 * first
            first = norm * s1 * first
        return tuple(value * (1 + 1e-12) for value in (first, second, third))  # type: ignore[return-value]

    def _form_limit(self, weights: Tensor) -> float:
        """A limit of sum_h weights_h (w_h.y)^2 over unit y, for nonnegative weights [H] of first-layer units."""
        return float(positive_limit(self._sums(weights, self._outer_squares)[0]))


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
