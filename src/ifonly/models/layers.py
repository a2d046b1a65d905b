"""Networks whose Lipschitz constant with respect to the state is limited, and known exactly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ifonly.errors import InputError

MOST_LAYERS, MOST_WEIGHTS = 64, 10**8
"""A forged checkpoint that asks for more would fill the memory before its weights are looked at."""
ROUNDING = 1e-12
"""Relative margin by which computed norms are enlarged, so that rounding never makes one too small."""


def softplus(values: Tensor) -> Tensor:
    """log(1 + exp(values)); the high threshold avoids the jump of 2e-9 that torch's default makes at 20."""
    return F.softplus(values, threshold=40.0)


def tanh(values: Tensor) -> Tensor:
    """The hyperbolic tangent; in float64 from the logistic function, which torch computes more than twice as fast.

    The two agree to 4e-16.
    """
    if values.dtype != torch.float64 or values.requires_grad:
        return torch.tanh(values)
    # A product of its own: derivatives need the logistic function itself.
    return torch.sigmoid(2 * values).mul(2).sub_(1)


ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "tanh": (tanh, 1.0),
    "relu": (torch.relu, 1.0),
    "softplus": (softplus, 1.0),
    "sigmoid": (torch.sigmoid, 0.25),
}
"""Activations by name, each with its largest slope."""


def spectral_norm(weight: Tensor) -> float:
    """The largest singular value, in float64, never below the true one by more than rounding."""
    if weight.numel() == 0:
        return 0.0
    return float(torch.linalg.svdvals(weight.detach().double())[0]) * (1 + ROUNDING)


def as_array(what: str, values: Any) -> Tensor:
    """`values` (nested lists, an array, a tensor) as a new float64 tensor; errors name it."""
    try:
        plain = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
        tensor = torch.from_numpy(np.array(plain, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: not a rectangular array of numbers ({error}).") from None
    if not torch.isfinite(tensor).all():
        raise InputError(f"{what}: has entries that are not finite.")
    return tensor


class BoundedLinear(nn.Module):
    """A matrix [out, in] with spectral norm exactly `norm`, or a free one when `norm` is None."""

    baked: Tensor | None

    def __init__(self, inputs: int, outputs: int, norm: float | None = None) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.zeros(outputs, inputs))
        self.norm = norm
        self.register_buffer("baked", None, persistent=False)
        self.register_load_state_dict_post_hook(_forget_baked)  # type: ignore[no-untyped-call]

    def initialize(self, generator: torch.Generator) -> None:
        """Uniform in +- 1/sqrt(inputs), as torch.nn.Linear."""
        self.baked = None
        if self.raw.numel():
            limit = 1 / math.sqrt(self.raw.shape[1])
            with torch.no_grad():
                self.raw.uniform_(-limit, limit, generator=generator)

    def weight(self) -> Tensor:
        """The effective matrix, differentiable."""
        if self.norm is None:
            return self.raw
        if self.baked is not None:
            return self.baked
        return self.raw * (self.norm / _top_singular_value(self.raw))

    def forward(self, inputs: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        return inputs @ self.weight().mT

    def is_baked(self) -> bool:
        """Whether the effective matrix need not be computed."""
        return self.norm is None or self.baked is not None

    @torch.no_grad()
    def bake_(self) -> None:
        """Compute the effective matrix once; changes of `raw` have no effect until weights are made or loaded anew."""
        self.baked = None
        if self.norm is not None:
            self.baked = self.weight()


def _forget_baked(matrix: nn.Module, _: object) -> None:
    """After weights were loaded: what was computed from the old ones no longer holds."""
    assert isinstance(matrix, BoundedLinear)
    matrix.baked = None


def check_widths(widths: Sequence[int]) -> None:
    """Refuse a network of these widths, inputs and outputs included, before memory is taken for it."""
    weights = sum(a * b for a, b in itertools.pairwise(widths))
    if len(widths) - 2 > MOST_LAYERS or weights > MOST_WEIGHTS:
        raise InputError(
            f"hidden: {len(widths) - 2:,} layers with {weights:,} weights; at most {MOST_LAYERS} and {MOST_WEIGHTS:,}."
        )


class Network(nn.Module):
    """A perceptron of state, context and action whose Lipschitz constant in the STATE can be limited.

    The first layer adds three products, one for each kind of input; only the state's is limited in norm. With
    `lipschitz=L` and n weight layers each limited matrix has spectral norm L^(1/n) (the paper's n is 2), more where
    the activation's slope stays below 1.
    """

    state_penalty: float = 0.0
    """How much more than all inputs together the state's part counts in `curvature`."""

    def __init__(
        self,
        sizes: tuple[int, int, int],
        outputs: int,
        *,
        hidden: Sequence[int] = (200,),
        activation: str = "tanh",
        lipschitz: float | None = None,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise InputError(f"activation {activation!r} is unknown; choose from {sorted(ACTIVATIONS)}.")
        if not hidden or any(not isinstance(width, int | np.integer) or width < 1 for width in hidden):
            raise InputError(f"hidden={tuple(hidden)}: at least one hidden layer, each a whole number of units.")
        check_widths([sum(sizes), *hidden, outputs])
        if lipschitz is not None and not (math.isfinite(lipschitz) and lipschitz > 0):
            raise InputError(f"lipschitz={lipschitz}: a limit must be positive and finite, or None.")
        self.activate, self.slope = ACTIVATIONS[activation]
        state, context, action = sizes
        norm = None if lipschitz is None else (lipschitz / self.slope ** len(hidden)) ** (1 / (len(hidden) + 1))
        self.state = BoundedLinear(state, hidden[0], norm)
        self.context = BoundedLinear(context, hidden[0])
        self.action = BoundedLinear(action, hidden[0])
        widths = [*hidden, outputs]
        self.layers = nn.ModuleList(BoundedLinear(a, b, norm) for a, b in itertools.pairwise(widths))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(width)) for width in widths)
        self._folded: _Folded | None = None
        self.register_load_state_dict_post_hook(_forget_folded)  # type: ignore[no-untyped-call]

    def initialize(self, generator: torch.Generator) -> None:
        """Fresh weights; biases start at zero."""
        self._folded = None
        for matrix in self.matrices():
            matrix.initialize(generator)
        for bias in self.biases:
            nn.init.zeros_(bias)

    def matrices(self) -> list[BoundedLinear]:
        """Every weight matrix, first the three of the first layer."""
        return [module for module in self.modules() if isinstance(module, BoundedLinear)]

    def forward(self, states: Tensor, context: Tensor, action_vectors: Tensor) -> Tensor:
        """[..., D], [..., C], [..., a] to [..., outputs]; inputs broadcast, so that N states x A actions are cheap."""
        if self._folded is not None:
            return self._folded(states, context, action_vectors)
        values = self._first_layer(states, context, action_vectors)
        for layer, bias in zip(self.layers, list(self.biases)[1:], strict=True):
            assert isinstance(layer, BoundedLinear)
            values = F.linear(self.activate(values), layer.weight(), bias)
        return values

    def _first_layer(self, states: Tensor, context: Tensor, action_vectors: Tensor) -> Tensor:
        first = (self.state, self.context, self.action)
        if states.shape[:-1] == context.shape[:-1] == action_vectors.shape[:-1]:
            # Nothing to broadcast, as in training: one product instead of three saves a fifth of a training step.
            inputs = torch.cat((states, context, action_vectors), dim=-1)
            return F.linear(inputs, torch.cat([matrix.weight() for matrix in first], dim=1), self.biases[0])
        values: Tensor = self.state(states) + (self.context(context) + self.action(action_vectors) + self.biases[0])
        return values

    def state_lipschitz(self) -> float:
        """The product of exact norms along the state's path: a true constant of the weights as they are."""
        constant = spectral_norm(self.state.weight())
        for layer in self.layers:
            assert isinstance(layer, BoundedLinear)
            constant *= self.slope * spectral_norm(layer.weight())
        return constant

    def curvature(self) -> Tensor:
        """A bound on the third derivative with respect to ALL inputs, up to a factor of the activation.

        With one hidden layer the sum over its units of |output column| |input row|^3, at least the trace of the form
        (T15) that the Taylor bound uses; with more of them the recursion (T17), norms bounded by Frobenius norms.
        Proofs need the state's part alone, which counts `state_penalty` times more. Context and actions count so that
        what an action does changes gently from state to state: little is recorded of most pairs of the two.
        """
        others = torch.cat((self.context.weight(), self.action.weight()), dim=1)
        layers = [layer.weight() for layer in self.layers if isinstance(layer, BoundedLinear)]
        return bending(self.state.weight(), others, layers, self.state_penalty)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """When weights go to another device or precision: what was folded stays behind, so forget it."""
        self._folded = None
        return super()._apply(fn, recurse)  # type: ignore[no-any-return, no-untyped-call]

    @torch.no_grad()
    def bake_(self) -> None:
        """Compute every effective matrix once."""
        self._folded = None
        for matrix in self.matrices():
            matrix.bake_()
        if self.activate is tanh:
            self._folded = _Folded.of(self)

    @torch.no_grad()
    def load_weights(self, name: str, weights: Mapping[str, Any]) -> None:
        """Take over explicit arrays, as `LocationScale.from_weights` names them; errors name array and shapes."""
        layers = [layer.raw for layer in self.layers if isinstance(layer, BoundedLinear)]
        names = [f"hidden_{number}" for number in range(2, len(layers) + 1)] + ["output"]
        targets = {
            "state": self.state.raw,
            "context": self.context.raw,
            "action": self.action.raw,
            "bias": self.biases[0],
            **dict(zip(names, layers, strict=True)),
            **dict(zip([f"{name}_bias" for name in names], list(self.biases)[1:], strict=True)),
        }
        unknown = set(weights) - set(targets)
        if unknown:
            raise InputError(f"{name} network: unknown arrays {sorted(unknown)}; known are {list(targets)}.")
        for key, target in targets.items():
            if key not in weights:
                if target.numel() == 0:
                    continue
                raise InputError(f"{name} network: array {key!r} {list(target.shape)} is missing.")
            values = as_array(f"{name} network: array {key!r}", weights[key]).to(target)
            if values.shape != target.shape:
                raise InputError(
                    f"{name} network: array {key!r} has shape {list(values.shape)}; expected {list(target.shape)}."
                )
            target.copy_(values)
        self._folded = None
        for matrix in self.matrices():
            matrix.baked = None


def bending(state: Tensor, others: Tensor, layers: Sequence[Tensor], state_penalty: float) -> Tensor:
    """What `Network.curvature` is [...], for weights [..., H, D] of the state and [..., H, C] of the other inputs, and
    matrices [..., out, in]."""
    everything = third_derivative_bound(torch.cat((state, others), dim=-1), layers)
    return everything + state_penalty * third_derivative_bound(state, layers) if state_penalty else everything


def third_derivative_bound(inputs: Tensor, layers: Sequence[Tensor]) -> Tensor:
    """The bound [...] of `Network.curvature` for weights [..., H, I] of the inputs and matrices [..., out, in]."""
    rows, columns = inputs.norm(dim=-1), layers[0].norm(dim=-2)
    third = (columns * rows**3).sum(-1)
    second, first = (columns * rows**2).sum(-1), (columns * rows).sum(-1)
    row = (layers[0].abs() @ rows.unsqueeze(-1)).squeeze(-1).amax(-1)  # the gradient of a unit's argument
    for matrix in layers[1:]:  # (T17), with bounds of 1 on the derivatives of the curve
        norm = torch.linalg.matrix_norm(matrix)
        third = norm * (row**2 * first + 3 * row * second + third)
        second, first = norm * (row * first + second), norm * first
        row = matrix.norm(dim=-1).amax(-1) * first
    total: Tensor = third
    return total


def _forget_folded(network: nn.Module, _: object) -> None:
    assert isinstance(network, Network)
    network._folded = None


MANY_ROWS, FEW_OUTPUTS = 100, 100
"""Beyond so many rows, to less than so many outputs, the transposed product is quicker."""


@dataclass(frozen=True)
class _Folded:
    """A network of tanh units as one of logistic units: tanh(z) = 2 s(2z) - 1, with the factors in the weights.

    Large batches cost their passes over memory, and this leaves one pass per hidden layer.
    """

    state: Tensor
    context: Tensor
    action: Tensor
    inputs: Tensor  # these three beside each other
    layers: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]

    @classmethod
    def of(cls, network: Network) -> _Folded:
        """From the weights as they are now."""
        matrices = [layer.weight() for layer in network.layers if isinstance(layer, BoundedLinear)]
        biases = [network.biases[0] * 2]
        for number, (matrix, bias) in enumerate(zip(matrices, list(network.biases)[1:], strict=True)):
            into_hidden = 2 if number < len(matrices) - 1 else 1
            biases.append((bias - matrix.sum(1)) * into_hidden)
            matrices[number] = matrix * (2 * into_hidden)
        state, context, action = (2 * matrix.weight() for matrix in (network.state, network.context, network.action))
        inputs = torch.cat((state, context, action), dim=1)
        return cls(state, context, action, inputs, layers=tuple(matrices), biases=tuple(biases))

    def __call__(self, states: Tensor, context: Tensor, action_vectors: Tensor) -> Tensor:
        values = self._first_layer(states, context, action_vectors)
        for layer, bias in zip(self.layers, self.biases[1:], strict=True):
            values = _linear(values.sigmoid_(), layer, bias)
        return values

    def _first_layer(self, states: Tensor, context: Tensor, action_vectors: Tensor) -> Tensor:
        """As few passes over the hidden layer as the shapes allow."""
        if states.shape[:-1] == action_vectors.shape[:-1]:
            if states.shape[:-1] == context.shape[:-1]:
                inputs = torch.cat((states, context, action_vectors), dim=-1)
                return F.linear(inputs, self.inputs, self.biases[0])
            if context.dim() == 1:
                inputs = torch.cat((states, action_vectors), dim=-1)
                bias = F.linear(context, self.context, self.biases[0])
                return F.linear(inputs, torch.cat((self.state, self.action), dim=1), bias)
        rest = F.linear(context, self.context, self.biases[0]) + action_vectors @ self.action.mT
        return states @ self.state.mT + rest


def _linear(values: Tensor, matrix: Tensor, bias: Tensor) -> Tensor:
    """As `F.linear`; from many rows to few outputs the transposed product is a third faster."""
    if values.dim() == 2 and len(values) > MANY_ROWS and len(matrix) < FEW_OUTPUTS:
        return torch.addmm(bias.unsqueeze(1), matrix, values.mT).mT.contiguous()
    return F.linear(values, matrix, bias)


def _top_singular_value(weight: Tensor) -> Tensor:
    """Differentiable largest singular value, from the smaller Gram matrix.

    The singular vectors are constants: the gradient of u.W.v with u, v fixed is that of the singular value.
    """
    matrix = weight.detach()
    wide = matrix.shape[0] < matrix.shape[1]
    gram = matrix @ matrix.mT if wide else matrix.mT @ matrix
    vector = torch.linalg.eigh(gram)[1][:, -1]
    other = F.normalize((matrix.mT if wide else matrix) @ vector, dim=0)
    left, right = (vector, other) if wide else (other, vector)
    return left @ (weight @ right)
