"""Several models of one class as one: their weights side by side, so that one pass computes what each of them says.

Weights get one dimension more, the members [K], and so do transitions: [K, B, ...] instead of [B, ...]. What a model
does with the outputs of its parts broadcasts; only the parts that hold weights have a twin here that knows of members.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor, nn
from zuko.transforms import MonotonicRQSTransform

from ifonly.models.additive import Additive
from ifonly.models.base import TrainableModel
from ifonly.models.flow import MonotoneFlow
from ifonly.models.layers import Network
from ifonly.models.location_scale import LocationScale
from ifonly.models.networks import NetworkModel
from ifonly.models.noise import Gaussian, IndependentGaussian, Laplace, standard_normal
from ifonly.models.perceptrons import Perceptrons
from ifonly.models.post_nonlinear import Distortion, PostNonlinear

STACKABLE: tuple[type[TrainableModel], ...] = (LocationScale, Additive, PostNonlinear, MonotoneFlow)
"""The classes whose models can be stacked; not their subclasses, which may compute something else."""


class StackedModel:
    """The log density of K models like `model`, as a function of their weights [K, P]; for one thread at a time."""

    def __init__(self, model: TrainableModel) -> None:
        self._twin = _twin_of(model)
        # Where the weights go: networks get theirs in a row, other parts each of theirs by name.
        self._places: list[tuple[nn.Module, str, torch.Size]] = []
        for module in self._twin.modules():
            if isinstance(module, Network):
                size = sum(parameter.numel() for parameter in module.parameters())
                self._places.append((module, _WEIGHTS, torch.Size([size])))
            elif type(module) in _TWINS.values():
                parameters = module.named_parameters(recurse=False)
                self._places += [(module, name, parameter.shape) for name, parameter in parameters]
        self._sizes = [shape.numel() for _, _, shape in self._places]

    def log_prob(self, weights: Tensor, rows: Sequence[Tensor]) -> Tensor:
        """Log densities [K, B] of transitions [K, B, ...], in the order of a model's `log_prob`."""
        for part, (module, name, shape) in zip(weights.split(self._sizes, dim=1), self._places, strict=True):
            # Found before the parameter of that name, which a module keeps elsewhere.
            module.__dict__[name] = part.unflatten(1, shape)
        return self._twin.log_prob(*rows)


def weights_of(model: TrainableModel) -> Tensor:
    """All weights of a model in a row [P], as `StackedModel` expects them."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@torch.no_grad()
def set_weights(model: TrainableModel, weights: Tensor) -> None:
    """Give a model the weights [P]."""
    parameters = list(model.parameters())
    for parameter, values in zip(parameters, weights.split([p.numel() for p in parameters]), strict=True):
        parameter.copy_(values.view_as(parameter))


_WEIGHTS = "stacked_weights"


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


class _Gaussian(Gaussian):
    def log_prob(self, noise: Tensor) -> Tensor:
        factor = torch.tril(self.lower, diagonal=-1) + torch.diag_embed(self.log_diagonal.exp())
        white = torch.linalg.solve_triangular(factor, noise.mT, upper=False).mT
        return standard_normal(white) - self.log_diagonal.sum(-1, keepdim=True)


class _IndependentGaussian(IndependentGaussian):
    def log_prob(self, noise: Tensor) -> Tensor:
        log_scale = self.log_scale.unsqueeze(1)
        return standard_normal(noise * (-log_scale).exp()) - log_scale.sum(-1)


class _Laplace(Laplace):
    def log_prob(self, noise: Tensor) -> Tensor:
        log_scale = self.log_scale.unsqueeze(1)
        return -(noise.abs() * (-log_scale).exp() + log_scale + math.log(2)).sum(-1)


class _Distortion(Distortion):
    def transform(self) -> MonotonicRQSTransform:
        form = self.form
        widths, heights, slopes = (shape.unsqueeze(1) for shape in (self.widths, self.heights, self.slopes))
        return MonotonicRQSTransform(widths, heights, slopes, form.reach, 1 / form.steepness)


_TWINS: dict[type[nn.Module], type[nn.Module]] = {
    Gaussian: _Gaussian,
    IndependentGaussian: _IndependentGaussian,
    Laplace: _Laplace,
    Distortion: _Distortion,
}
