"""Models made of explicit arrays, trained elsewhere: widths out of weights, linear parts and noise out of numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ifonly.errors import InputError
from ifonly.models.layers import as_array
from ifonly.models.noise import (
    Gaussian,
    IndependentGaussian,
    IndependentStudent,
    Laplace,
    NoisePrior,
    Student,
    freedom_of,
)


def hidden_widths(networks: Mapping[str, Mapping[str, Any]]) -> tuple[int, ...]:
    """The widths of the hidden layers, by the lengths of their biases: the same in all networks of a model."""
    widths = {tuple(_widths(name, weights)) for name, weights in networks.items()}
    if len(widths) != 1 or not min(widths):
        raise InputError(
            "from_weights: networks need a 'bias' [H], a list of numbers of the same length H; likewise each further "
            "hidden layer, 'hidden_2_bias' and so on."
        )
    return widths.pop()


def _widths(name: str, weights: Mapping[str, Any]) -> Iterator[int]:
    for layer in itertools.count(1):
        key = "bias" if layer == 1 else f"hidden_{layer}_bias"
        if key not in weights:
            return
        bias = as_array(f"{name}: {key}", weights[key])
        if bias.dim() != 1:
            raise InputError(f"from_weights: {name}: {key!r} is a list of numbers of the same length H as its layer.")
        yield len(bias)


def read_residual(residual: Any) -> tuple[str, Tensor | None]:
    """What a location adds to its network, as a setting, and its factors [D] where they are given."""
    if residual is None or isinstance(residual, str):
        if residual == "diagonal":
            raise InputError("from_weights: residual='diagonal' needs its factors; give them, one per dynamic feature.")
        return residual or "none", None
    return "diagonal", as_array("residual", residual)


@torch.no_grad()
def load_noise(prior: NoisePrior, covariance: Tensor, freedom: Any = None) -> None:
    """Let noise have this covariance [D, D] and, with a Student's prior, these degrees of freedom (one, or [D])."""
    if isinstance(prior, Student | IndependentStudent):
        _load_freedom(prior, freedom)
    elif freedom is not None:
        raise InputError("freedom: only noise of Student's t has degrees of freedom; set prior='student' or another.")
    variances = prior.variances()  # of unit scales
    if isinstance(prior, Gaussian):
        prior.set_covariance(covariance / variances[0])
        return
    assert isinstance(prior, IndependentGaussian | Laplace | IndependentStudent)
    size = len(variances)
    if covariance.shape != (size, size) or (covariance != torch.diag(covariance.diagonal())).any():
        raise InputError(
            f"covariance: this prior's entries are independent; expected a diagonal matrix [{size}, {size}]."
        )
    if not (covariance.diagonal() > 0).all():
        raise InputError("covariance: not positive definite.")
    prior.log_scale.copy_(0.5 * (covariance.diagonal() / variances).log())


def _load_freedom(prior: Student | IndependentStudent, freedom: Any) -> None:
    if freedom is None:
        raise InputError("freedom: noise of Student's t needs its degrees of freedom, above 2.")
    degrees, wanted = as_array("freedom", freedom), prior.log_freedom
    if degrees.numel() not in (1, wanted.numel()):
        raise InputError(f"freedom: {degrees.numel()} numbers; expected one, or {wanted.numel()}.")
    wanted.copy_((degrees - 2).log().reshape(-1).expand(wanted.numel()))
    if not ((degrees > 2).all() and torch.allclose(freedom_of(wanted), degrees.to(wanted))):
        raise InputError("freedom: expected more than 2, and at most 2,982, where noise is as good as Gaussian.")
