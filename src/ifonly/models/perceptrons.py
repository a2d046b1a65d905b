"""Networks with the weights of many members stacked, evaluated and differentiated as batches of matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ifonly.models.layers import BoundedLinear, Network, softplus, tanh

CHUNK = 6
"""Networks worked on at a time: with batches of 256 and 200 hidden units their values stay in a processor's cache."""


class Workspace:
    """Memory for hidden layers that is used again and again: fresh pages for every batch would cost more than the work.

    What was computed with it is lost with the next call: differentiate before you evaluate again.
    """

    def __init__(self) -> None:
        self._buffers: dict[int, Tensor] = {}

    def take(self, layer: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Uninitialised memory of this shape for a hidden layer (0, 1, ...) or gradients of it (-1, -2, ...)."""
        size = torch.Size(shape).numel()
        buffer = self._buffers.get(layer)
        if buffer is None or buffer.numel() < size:
            buffer = self._buffers[layer] = like.new_empty(size)
        return buffer[:size].view(shape)


def evaluate_networks(networks: Sequence[Network], inputs: Tensor, workspace: Workspace) -> tuple[Tensor, ...]:
    """Outputs [K, B, O] of each of N networks of the same widths, with weights stacked [K, ...], at inputs [K, B, I].

    Differentiable in the weights, not in the inputs.
    """
    first = torch.cat(
        (
            _effective([network.state for network in networks]),
            _effective([network.context for network in networks]),
            _effective([network.action for network in networks]),
            # The bias is the weight of a further input, which is always one.
            torch.cat([network.biases[0] for network in networks]).unsqueeze(-1),
        ),
        dim=-1,
    )
    later = zip(
        *([layer for layer in network.layers if isinstance(layer, BoundedLinear)] for network in networks), strict=True
    )
    matrices = [_effective(layers) for layers in later]
    biases = [torch.cat([network.biases[n + 1] for network in networks]) for n in range(len(matrices))]
    curve = _CURVES[networks[0].activate]
    if networks[0].activate is tanh:
        first, matrices, biases = _as_logistic(first, matrices, biases)
    every = F.pad(inputs, (0, 1), value=1.0).repeat(len(networks), 1, 1)
    outputs: Tensor = _Perceptrons.apply(  # type: ignore[no-untyped-call]
        workspace, curve, every, first, *matrices, *biases
    )
    return tuple(outputs.unflatten(0, (len(networks), -1)))


def _as_logistic(
    first: Tensor, matrices: Sequence[Tensor], biases: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Weights with which logistic units do what tanh units did: tanh(z) = 2 s(2z) - 1.

    In float32 torch computes the logistic function four times as fast.
    """
    into_hidden = [2] * (len(matrices) - 1) + [1]
    return (
        2 * first,
        [matrix * (2 * factor) for matrix, factor in zip(matrices, into_hidden, strict=True)],
        [(bias - matrix.sum(-1)) * factor for bias, matrix, factor in zip(biases, matrices, into_hidden, strict=True)],
    )


def _effective(layers: Sequence[BoundedLinear]) -> Tensor:
    """The effective matrices of N networks' layers, all with stacked weights, as one batch [N * K, out, in]."""
    raw = torch.cat([layer.raw for layer in layers])
    norms = [layer.norm for layer in layers]
    if all(norm is None for norm in norms):
        return raw
    wanted = raw.new_tensor([math.nan if norm is None else norm for norm in norms])
    effective: Tensor = _Bounded.apply(raw, wanted.repeat_interleave(len(raw) // len(norms)))  # type: ignore[no-untyped-call]
    return effective


class _Bounded(torch.autograd.Function):
    """Matrices scaled to given spectral norms, as `BoundedLinear` scales its own; where the norm is NaN left alone."""

    @staticmethod
    def forward(ctx: Any, matrices: Tensor, norms: Tensor) -> Tensor:
        """[N, out, in] scaled to `norms` [N]."""
        wide = matrices.shape[1] < matrices.shape[2]
        gram = matrices @ matrices.mT if wide else matrices.mT @ matrices
        vectors = torch.linalg.eigh(gram)[1][..., -1:]
        images = (matrices.mT if wide else matrices) @ vectors
        top = torch.linalg.vector_norm(images, dim=1, keepdim=True)
        norms = norms.view(-1, 1, 1)
        factors = (norms / top).nan_to_num(1.0)
        scaled: Tensor = matrices * factors
        left, right = (vectors, images / top) if wide else (images / top, vectors)
        ctx.save_for_backward(scaled, factors, left, right, (1 / norms).nan_to_num(0.0))
        return scaled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """With singular vectors u, v of the largest singular value s, ds = u.dW.v: minus (G.W / norm) u v^T."""
        (gradient,) = gradients
        scaled, factors, left, right, inverse = ctx.saved_tensors
        along = (gradient * scaled).sum((1, 2), keepdim=True) * inverse
        return torch.baddbmm(gradient, left * along, right.mT, alpha=-1).mul_(factors), None


class _Perceptrons(torch.autograd.Function):
    """Hidden layers in place, a few networks at a time; products have their long side last, as BLAS likes."""

    @staticmethod
    def forward(ctx: Any, workspace: Workspace, curve: _Curve, inputs: Tensor, first: Tensor, *rest: Tensor) -> Tensor:
        """Outputs [N, B, O] at inputs [N, B, I]; `rest` holds the later matrices, then their biases."""
        matrices, biases = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        widths = [first.shape[1], *(matrix.shape[1] for matrix in matrices[:-1])]
        hidden = [workspace.take(number, (*inputs.shape[:2], width), inputs) for number, width in enumerate(widths)]
        outputs = inputs.new_empty(len(inputs), matrices[-1].shape[1], inputs.shape[1])
        for part in _parts(len(inputs)):
            values = hidden[0][part]
            curve.apply(torch.bmm(inputs[part], first[part].mT, out=values))
            for matrix, bias, following in zip(matrices, biases, hidden[1:], strict=False):
                torch.baddbmm(bias[part].unsqueeze(1), values, matrix[part].mT, out=following[part])
                values = curve.apply(following[part])
            torch.baddbmm(biases[-1][part].unsqueeze(-1), matrices[-1][part], values.mT, out=outputs[part])
        ctx.curve, ctx.workspace = curve, workspace
        ctx.save_for_backward(inputs, *matrices, *hidden)
        return outputs.mT

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Derivatives in the weights."""
        (outer,) = gradients
        inputs, *rest = ctx.saved_tensors
        matrices, hidden = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        of_first = inputs.new_empty(len(inputs), inputs.shape[2], hidden[0].shape[2])
        of_matrices = [torch.empty_like(matrix) for matrix in matrices]
        of_biases = [matrix.new_empty(matrix.shape[:2]) for matrix in matrices]
        for part in _parts(len(inputs)):
            gradient = outer[part]
            for number in reversed(range(len(matrices))):
                values = hidden[number][part]
                torch.bmm(gradient.mT, values, out=of_matrices[number][part])
                torch.sum(gradient, 1, out=of_biases[number][part])
                slopes = ctx.workspace.take(-1 - number, values.shape, values)
                gradient = torch.bmm(gradient, matrices[number][part], out=slopes)
                ctx.curve.multiply_by_slope(gradient, values)
            torch.bmm(inputs[part].mT, gradient, out=of_first[part])
        return None, None, None, of_first.mT, *of_matrices, *of_biases


def _parts(count: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]


class _Curve(NamedTuple):
    """An activation, in place, and the product of a gradient with its slope, in place, given its values."""

    apply: Callable[[Tensor], Tensor]
    multiply_by_slope: Callable[[Tensor, Tensor], object]


def _logistic_slope(gradient: Tensor, values: Tensor) -> None:
    torch.ops.aten.sigmoid_backward.grad_input(gradient, values, grad_input=gradient)


_LOGISTIC = _Curve(torch.sigmoid_, _logistic_slope)
_CURVES: dict[Callable[[Tensor], Tensor], _Curve] = {
    tanh: _LOGISTIC,  # after `_as_logistic`
    torch.sigmoid: _LOGISTIC,
    torch.relu: _Curve(torch.relu_, lambda gradient, values: gradient.mul_(values > 0)),
    softplus: _Curve(
        lambda values: values.copy_(softplus(values)),
        # The slope is the logistic function of z, and that is 1 - exp(-softplus(z)).
        lambda gradient, values: gradient.mul_(torch.expm1(-values).neg_()),
    ),
}
