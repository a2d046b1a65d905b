"""Several models of one class as one: their weights side by side, so that one pass computes what each of them says.

Weights get one dimension more, the members [K], and so do transitions: [K, B, ...] instead of [B, ...]. What a model
does with the outputs of its parts broadcasts; only parts with weights have a twin here for the extra dimension.

A training step of one small network is dominated by the cost of calling operations. In `Perceptrons` one call serves
all members, and automatic differentiation sees a single operation, from all weights to all outputs: hidden layers are
computed in place, derivatives by hand.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from zuko.transforms import MonotonicRQSTransform

from ifonly.models.additive import Additive
from ifonly.models.base import TrainableModel
from ifonly.models.fit import EncodedTransitions, objective
from ifonly.models.fit_report import FitSettings
from ifonly.models.flow import MonotoneFlow
from ifonly.models.layers import BoundedLinear, Network, bending, softplus, tanh
from ifonly.models.location_scale import LocationScale
from ifonly.models.networks import NetworkModel, Skip
from ifonly.models.noise import (
    Gaussian,
    IndependentGaussian,
    IndependentStudent,
    Laplace,
    Student,
    StudentMargins,
    marginal_lengths,
    marginal_normal,
    standard_normal,
    student,
)
from ifonly.models.post_nonlinear import Distortion, PostNonlinear

CHUNK = 6
"""Networks worked on at a time: with batches of 256 and 200 hidden units their values stay in a processor's cache. A
GPU works on all at once."""


class Perceptrons:
    """N networks of the same widths and activation, each with the weights of K members; for one thread at a time."""

    def __init__(self, networks: Sequence[Network]) -> None:
        first = networks[0]
        self.networks = len(networks)
        self.shapes = [parameter.shape for parameter in first.parameters()]
        self.sizes = [shape.numel() for shape in self.shapes]
        self.depth = len(first.layers)
        """Layers after the first."""
        self.is_tanh = first.activate is tanh
        self.curve = _CURVES[first.activate]
        self._networks = networks
        limited = zip(*(network.__dict__[_LIMITED] for network in networks), strict=True)
        self._limited = [any(of_networks) for of_networks in limited]
        self._buffers: dict[int, Tensor] = {}

    def __call__(self, weights: Sequence[Tensor], inputs: Tensor) -> tuple[Tensor, ...]:
        """Outputs [K, B, O] of each network at inputs [K, B, I], given its weights [K, P].

        Differentiable in the weights, not in the inputs; differentiate before you call again.
        """
        outputs: Tensor = _Evaluation.apply(self, torch.cat(list(weights)), inputs)  # type: ignore[no-untyped-call]
        return tuple(outputs.unflatten(0, (self.networks, -1)))

    def pieces(self, weights: Tensor) -> _Pieces:
        """Views of weights [N K, P], in the order of a network's parameters."""
        parts = weights.split(self.sizes, dim=1)
        views = [part.unflatten(1, shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return _Pieces(views[0], views[1], views[2], views[3 : 3 + self.depth], views[3 + self.depth :])

    def wanted_norms(self, number: int, matrices: Tensor) -> Tensor | None:
        """The norm wanted of each of `matrices` [N K, ...], NaN where it is free; None where all are.

        Matrices that may be limited are numbered: the state's, then those of the later layers.
        """
        if not self._limited[number]:
            return None
        members = len(matrices) // self.networks
        wanted = [network.__dict__[_NORMS][number].expand(members) for network in self._networks]
        return torch.cat(wanted).view(-1, 1, 1)

    def memory(self, number: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Uninitialised memory, reused from batch to batch: allocating fresh pages costs more."""
        size = torch.Size(shape).numel()
        buffer = self._buffers.get(number)
        if buffer is None or buffer.numel() < size:
            buffer = self._buffers[number] = like.new_empty(size)
        return buffer[:size].view(shape)


def _limited_matrices(network: Network) -> list[BoundedLinear]:
    return [network.state, *(layer for layer in network.layers if isinstance(layer, BoundedLinear))]


class _Pieces(NamedTuple):
    """The weights of networks by their role, each [N K, ...]."""

    state: Tensor
    context: Tensor
    action: Tensor
    layers: list[Tensor]
    biases: list[Tensor]


class _Scaling(NamedTuple):
    """How matrices were scaled to their norms: by which factors, along which singular vectors."""

    factors: Tensor  # [N, 1, 1]
    left: Tensor
    right: Tensor
    inverse_norms: Tensor  # [N, 1, 1], 0 where the norm is free


def _scaling(matrices: Tensor, norms: Tensor | None) -> _Scaling | None:
    """From matrices [N, out, in] to those of the wanted norms, exactly as `BoundedLinear` does it."""
    if norms is None:
        return None
    wide = matrices.shape[1] < matrices.shape[2]
    gram = matrices @ matrices.mT if wide else matrices.mT @ matrices
    vectors = torch.linalg.eigh(gram)[1][..., -1:]
    images = (matrices.mT if wide else matrices) @ vectors
    top = torch.linalg.vector_norm(images, dim=1, keepdim=True)
    others = images / top
    left, right = (vectors, others) if wide else (others, vectors)
    return _Scaling((norms / top).nan_to_num_(1.0), left, right, (1 / norms).nan_to_num_(0.0))


def _raw_gradient(gradient: Tensor, effective: Tensor, scaling: _Scaling | None) -> Tensor:
    """The derivative in the raw matrices, given that in the effective ones W = raw norm / s.

    The largest singular value s has the derivative u v^T, so that less goes along u v^T by (G.W) / norm.
    """
    if scaling is None:
        return gradient
    along = (gradient * effective).sum((1, 2), keepdim=True) * scaling.inverse_norms
    return torch.baddbmm(gradient, scaling.left * along, scaling.right.mT, alpha=-1).mul_(scaling.factors)


class _Evaluation(torch.autograd.Function):
    """From weights [N K, P] and inputs [K, B, I] to outputs [N K, B, O].

    tanh(z) = 2 s(2z) - 1 with the logistic s, which torch computes four times as fast in float32: its factors go into
    the weights. The first bias is the weight of a further input, always one. Products have their long side last.
    """

    @staticmethod
    def forward(ctx: Any, plan: Perceptrons, weights: Tensor, inputs: Tensor) -> Tensor:
        """A few networks at a time, so that hidden layers are still in the cache when they are needed."""
        pieces = plan.pieces(weights)
        limited = [pieces.state, *pieces.layers]
        scalings = [_scaling(matrices, plan.wanted_norms(n, matrices)) for n, matrices in enumerate(limited)]
        effective = [m if s is None else m * s.factors for m, s in zip(limited, scalings, strict=True)]
        first = torch.cat((effective[0], pieces.context, pieces.action, pieces.biases[0].unsqueeze(-1)), dim=2)
        matrices, biases = effective[1:], pieces.biases[1:]
        if plan.is_tanh:
            first.mul_(2)
            biases = [
                (bias - matrix.sum(2)) * f for bias, matrix, f in zip(biases, matrices, _folds(plan), strict=True)
            ]
            matrices = [matrix * (2 * f) for matrix, f in zip(matrices, _folds(plan), strict=True)]
        every = torch.cat((inputs, inputs.new_ones(*inputs.shape[:2], 1)), dim=2).repeat(plan.networks, 1, 1)
        widths = [first.shape[1], *(matrix.shape[1] for matrix in matrices[:-1])]
        hidden = [plan.memory(n, (*every.shape[:2], width), every) for n, width in enumerate(widths)]
        outputs = every.new_empty(len(every), matrices[-1].shape[1], every.shape[1])
        for part in _parts(every):
            values = plan.curve.apply(torch.bmm(every[part], first[part].mT, out=hidden[0][part]))
            for matrix, bias, following in zip(matrices, biases, hidden[1:], strict=False):
                torch.baddbmm(bias[part].unsqueeze(1), values, matrix[part].mT, out=following[part])
                values = plan.curve.apply(following[part])
            torch.baddbmm(biases[-1][part].unsqueeze(2), matrices[-1][part], values.mT, out=outputs[part])
        ctx.state = (plan, every, effective, scalings, matrices, hidden)
        ctx.size = weights.shape[1]
        return outputs.mT

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The derivative in the weights."""
        (outer,) = gradients
        plan, every, effective, scalings, matrices, hidden = ctx.state
        of_first = every.new_empty(len(every), every.shape[2], hidden[0].shape[2])
        of_matrices = [torch.empty_like(matrix) for matrix in matrices]
        of_biases = [matrix.new_empty(matrix.shape[:2]) for matrix in matrices]
        for part in _parts(every):
            gradient = outer[part]
            for n in reversed(range(len(matrices))):
                values = hidden[n][part]
                torch.bmm(gradient.mT, values, out=of_matrices[n][part])
                torch.sum(gradient, 1, out=of_biases[n][part])
                slopes = plan.memory(-1 - n, values.shape, values)
                gradient = torch.bmm(gradient, matrices[n][part], out=slopes)
                plan.curve.multiply_by_slope(gradient, values)
            torch.bmm(every[part].mT, gradient, out=of_first[part])
        if plan.is_tanh:
            of_first.mul_(2)
            for n, fold in enumerate(_folds(plan)):
                of_biases[n].mul_(fold)
                of_matrices[n].mul_(2 * fold).sub_(of_biases[n].unsqueeze(2))
        derivative = every.new_empty(len(every), ctx.size)
        pieces = plan.pieces(derivative)
        state, context, action, bias = of_first.mT.split(
            [pieces.state.shape[2], pieces.context.shape[2], pieces.action.shape[2], 1], dim=2
        )
        pieces.context.copy_(context)
        pieces.action.copy_(action)
        for target, values in zip(pieces.biases, (bias.squeeze(2), *of_biases), strict=True):
            target.copy_(values)
        limited = (pieces.state, *pieces.layers)
        for target, values, matrix, scaling in zip(limited, (state, *of_matrices), effective, scalings, strict=True):
            target.copy_(_raw_gradient(values, matrix, scaling))
        return None, derivative, None


def _folds(plan: Perceptrons) -> list[int]:
    """The factors of the layers after the first: 2 for one that leads to tanh units again."""
    return [2] * (plan.depth - 1) + [1]


def _parts(networks: Tensor) -> list[slice]:
    count = len(networks)
    together = CHUNK if networks.device.type == "cpu" else count
    return [slice(start, start + together) for start in range(0, count, together)]


class _Curve(NamedTuple):
    """An activation, in place, and the product of a gradient with its slope, in place, given its values."""

    apply: Callable[[Tensor], Tensor]
    multiply_by_slope: Callable[[Tensor, Tensor], object]


def _logistic_slope(gradient: Tensor, values: Tensor) -> None:
    torch.ops.aten.sigmoid_backward.grad_input(gradient, values, grad_input=gradient)


_LOGISTIC = _Curve(torch.sigmoid_, _logistic_slope)
_CURVES: dict[Callable[[Tensor], Tensor], _Curve] = {
    tanh: _LOGISTIC,  # with its factors in the weights
    torch.sigmoid: _LOGISTIC,
    torch.relu: _Curve(torch.relu_, lambda gradient, values: gradient.mul_(values > 0)),
    softplus: _Curve(
        lambda values: values.copy_(softplus(values)),
        # The slope is the logistic function of z, and that is 1 - exp(-softplus(z)).
        lambda gradient, values: gradient.mul_(torch.expm1(-values).neg_()),
    ),
}


Members = Tensor | slice | list[int]
"""Some of K models: by their numbers."""
EVERYONE = slice(None)

STACKABLE: tuple[type[TrainableModel], ...] = (LocationScale, Additive, PostNonlinear, MonotoneFlow)
"""The classes whose models can be stacked; not their subclasses, which may compute something else."""


class StackedModel:
    """The log density of K models that differ in weights and limits alone, as a function of their weights [K, P]; for
    one thread at a time. A single one stands for any number of others like it."""

    def __init__(self, *models: TrainableModel) -> None:
        self._twin = _twin_of(models[0])
        self._norms = _wanted_norms(self._twin, models)
        # Where the weights go: networks get theirs in a row, other parts each of theirs by name.
        self._places: list[tuple[nn.Module, str, torch.Size]] = []
        for module in self._twin.modules():
            if isinstance(module, Network):
                size = sum(parameter.numel() for parameter in module.parameters())
                self._places.append((module, _WEIGHTS, torch.Size([size])))
            elif type(module) in _TWINS.values() or isinstance(module, _ROWS):
                more = [1] if isinstance(module, _ROWS) else []
                parameters = module.named_parameters(recurse=False)
                self._places += [(module, name, torch.Size([*more, *part.shape])) for name, part in parameters]
        self._sizes = [shape.numel() for _, _, shape in self._places]

    def curvature(self, weights: Tensor, members: Members = EVERYONE) -> Tensor:
        """What a curvature penalty multiplies [K], as `NetworkModel.curvature`."""
        total = weights.new_zeros(len(weights))
        self._limit(members)
        for part, (module, _, _) in zip(weights.split(self._sizes, dim=1), self._places, strict=True):
            if isinstance(module, Network):
                pieces = Perceptrons([module]).pieces(part)
                norms = zip(
                    (pieces.state, *pieces.layers), module.__dict__[_NORMS], module.__dict__[_LIMITED], strict=True
                )
                state, *layers = (
                    _with_norms(matrix, wanted) if limited else matrix for matrix, wanted, limited in norms
                )
                others = torch.cat((pieces.context, pieces.action), dim=2)
                total = total + bending(state, others, layers, module.state_penalty)
        return total

    def objective(
        self, weights: Tensor, rows: EncodedTransitions, settings: FitSettings, members: Members = EVERYONE
    ) -> Tensor:
        """What a fit maximises [K, B], for transitions [K, B, ...]; `members` says whose weights these are."""
        self._limit(members)
        for part, (module, name, shape) in zip(weights.split(self._sizes, dim=1), self._places, strict=True):
            # Instance attributes shadow the parameter of that name.
            module.__dict__[name] = part.unflatten(1, shape)
        return objective(self._twin, rows, settings)

    def _limit(self, members: Members) -> None:
        for network, norms in self._norms.items():
            network.__dict__[_NORMS] = norms[:, members]


def _wanted_norms(twin: TrainableModel, models: Sequence[TrainableModel]) -> dict[Network, Tensor]:
    """For each network of the twin, the norms [M, K] that the models want of its M matrices; NaN where one is free."""
    networks = [[module for module in model.modules() if isinstance(module, Network)] for model in (twin, *models)]
    wanted = {}
    for own, *theirs in zip(*networks, strict=True):
        norms = [[limited.norm for limited in _limited_matrices(network)] for network in theirs]
        own.__dict__[_LIMITED] = [any(norm is not None for norm in of_models) for of_models in zip(*norms, strict=True)]
        numbers = [[math.nan if norm is None else norm for norm in of_model] for of_model in norms]
        wanted[own] = torch.tensor(numbers, device=own.biases[0].device, dtype=own.biases[0].dtype).mT
    return wanted


def _with_norms(matrices: Tensor, wanted: Tensor) -> Tensor:
    """Matrices [K, out, in] scaled to the norms wanted [K], where these are not NaN; differentiable."""
    free, largest = wanted.isnan(), torch.linalg.matrix_norm(matrices, ord=2)
    factors = torch.where(free, 1.0, torch.where(free, 1.0, wanted) / largest)
    return matrices * factors.view(-1, 1, 1)


def weights_of(model: TrainableModel) -> Tensor:
    """All weights of a model in a row [P], as `StackedModel` expects them."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@torch.no_grad()
def set_weights(model: TrainableModel, weights: Tensor) -> None:
    """Give a model the weights [P]."""
    parameters = list(model.parameters())
    for parameter, values in zip(parameters, weights.split([p.numel() for p in parameters]), strict=True):
        parameter.copy_(values.view_as(parameter))


def seen_weights(model: NetworkModel, left_out: Sequence[int]) -> Tensor:
    """1 for every weight [P] of a model but those of inputs that are left out, which have 0.

    Inputs are numbered: columns of the state, then of the context. The linear part of a location is not a network's.
    """
    factors = {id(parameter): torch.ones_like(parameter) for parameter in model.parameters()}
    size = model.state_size
    for network in model.networks():
        factors[id(network.state.raw)][:, [number for number in left_out if number < size]] = 0
        factors[id(network.context.raw)][:, [number - size for number in left_out if number >= size]] = 0
    return torch.cat([factors[id(parameter)].flatten() for parameter in model.parameters()])


_WEIGHTS, _NORMS, _LIMITED = "stacked_weights", "stacked_norms", "stacked_limits"
"""Attributes of the twin's networks: weights; the norms wanted of each matrix [M, K]; whether any member limits it."""


def _twin_of(model: TrainableModel) -> TrainableModel:
    """A copy of the model whose parts expect stacked weights; a twin differs from its original in methods alone."""
    assert type(model) in STACKABLE
    twin = copy.deepcopy(model)
    for module in twin.modules():
        module.__class__ = _TWINS.get(type(module), type(module))
    twin.__class__ = _twin_class(type(model))
    return twin


@cache
def _twin_class(model_class: type[TrainableModel]) -> type[TrainableModel]:
    return type(f"Stacked{model_class.__name__}", (_Stacked, model_class), {})


class _Stacked(NetworkModel):
    """A model that evaluates all its networks together."""

    perceptrons: Perceptrons | None = None

    def outputs(
        self, networks: Sequence[Network], states: Tensor, context: Tensor, actions: Tensor
    ) -> tuple[Tensor, ...]:
        if self.perceptrons is None:
            self.perceptrons = Perceptrons(networks)
        inputs = torch.cat((states, context, self.action_vectors[actions]), dim=-1)
        return self.perceptrons([getattr(network, _WEIGHTS) for network in networks], inputs)


class _Factored(Gaussian):
    def factor(self) -> Tensor:
        return torch.tril(self.lower, diagonal=-1) + torch.diag_embed(self.log_diagonal.exp())

    def deviations(self) -> Tensor:
        scales: Tensor = self.factor().norm(dim=-1)
        return scales.unsqueeze(1)


class _Gaussian(_Factored):
    def log_prob(self, noise: Tensor) -> Tensor:
        white = torch.linalg.solve_triangular(self.factor(), noise.mT, upper=False).mT
        return standard_normal(white) - self.log_diagonal.sum(-1, keepdim=True)

    def marginal_log_prob(self, noise: Tensor, measured: Tensor) -> Tensor:
        factor = self.factor()
        return marginal_normal((factor @ factor.mT).unsqueeze(1), noise, measured)


class _Student(_Factored, Student):
    def entry_log_prob(self, noise: Tensor) -> Tensor:
        deviations = self.deviations()
        return student((noise / deviations).square(), self.freedom().unsqueeze(-1), 1) - deviations.log()

    def log_prob(self, noise: Tensor) -> Tensor:
        white = torch.linalg.solve_triangular(self.factor(), noise.mT, upper=False).mT
        density = student(white.square().sum(-1), self.freedom(), noise.shape[-1])
        return density - self.log_diagonal.sum(-1, keepdim=True)

    def marginal_log_prob(self, noise: Tensor, measured: Tensor) -> Tensor:
        factor = self.factor()
        lengths, log_det = marginal_lengths((factor @ factor.mT).unsqueeze(1), noise, measured)
        return student(lengths, self.freedom(), measured.sum(-1)) - log_det


class _StudentMargins(StudentMargins):
    def _together(self, noise: Tensor, measured: Tensor) -> Tensor:
        return noise.new_zeros(noise.shape[:-1])  # in training, as it was initialised


class _Distortion(Distortion):
    def transform(self) -> MonotonicRQSTransform:
        form = self.form
        widths, heights, slopes = (shape.unsqueeze(1) for shape in (self.widths, self.heights, self.slopes))
        return MonotonicRQSTransform(widths, heights, slopes, form.reach, 1 / form.steepness)


_TWINS: dict[type[nn.Module], type[nn.Module]] = {
    Gaussian: _Gaussian,
    Student: _Student,
    StudentMargins: _StudentMargins,
    Distortion: _Distortion,
}

_ROWS: tuple[type[nn.Module], ...] = (IndependentGaussian, Laplace, IndependentStudent, Skip)
"""Parts whose weights are rows [D] that broadcast: with members [K, 1, D] they need no twin."""
