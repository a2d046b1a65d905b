"""Noise priors: what a model believes about the noise before it sees a transition."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ifonly.errors import InputError


class NoisePrior(nn.Module, ABC):
    """A zero-mean distribution over noise vectors [..., D] with trainable shape."""

    @abstractmethod
    def log_prob(self, noise: Tensor) -> Tensor:
        """Log density [...]."""

    @abstractmethod
    def sample(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        """Draws [*shape, D]."""

    @abstractmethod
    def initialize(self) -> None:
        """Return to the initial shape: independent, unit scale."""

    @abstractmethod
    def covariance(self) -> Tensor:
        """Covariance matrix [D, D]."""


class Gaussian(NoisePrior):
    """Zero-mean Gaussian with a full trainable covariance, held as a Cholesky factor."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.lower = nn.Parameter(torch.zeros(size, size))
        self.log_diagonal = nn.Parameter(torch.zeros(size))

    def initialize(self) -> None:
        """Start from the identity."""
        nn.init.zeros_(self.lower)
        nn.init.zeros_(self.log_diagonal)

    def factor(self) -> Tensor:
        """The Cholesky factor [D, D] of the covariance."""
        return torch.tril(self.lower, diagonal=-1) + torch.diag(self.log_diagonal.exp())

    def covariance(self) -> Tensor:
        """Covariance matrix [D, D]."""
        factor = self.factor()
        return factor @ factor.mT

    @torch.no_grad()
    def set_covariance(self, covariance: Tensor) -> None:
        """Take over a given covariance [D, D]; it must be symmetric and positive definite."""
        size = self.log_diagonal.numel()
        if covariance.shape != (size, size) or not torch.isfinite(covariance).all():
            raise InputError(f"covariance: shape {list(covariance.shape)}; expected [{size}, {size}], finite.")
        if not torch.allclose(covariance, covariance.mT, rtol=1e-8, atol=1e-10):
            raise InputError("covariance: not symmetric.")
        factor, failed = torch.linalg.cholesky_ex(covariance)
        if failed:
            raise InputError("covariance: not positive definite.")
        self.lower.copy_(torch.tril(factor, diagonal=-1))
        self.log_diagonal.copy_(factor.diagonal().log())

    def log_prob(self, noise: Tensor) -> Tensor:
        """Log density [...]."""
        # One solve with many right-hand sides; a batch of small solves would be many times slower.
        columns = noise.reshape(-1, noise.shape[-1]).mT
        white = torch.linalg.solve_triangular(self.factor(), columns, upper=False).mT.reshape(noise.shape)
        return standard_normal(white) - self.log_diagonal.sum()

    def sample(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        """Draws [*shape, D]."""
        white = _normal((*shape, self.log_diagonal.numel()), self.log_diagonal, generator)
        return white @ self.factor().mT


class _Independent(NoisePrior):
    """Independent entries with a trainable scale each."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(size))

    def initialize(self) -> None:
        """Start from unit scales."""
        nn.init.zeros_(self.log_scale)


class IndependentGaussian(_Independent):
    """Zero-mean Gaussian with a trainable deviation per feature."""

    def covariance(self) -> Tensor:
        """Covariance matrix [D, D], diagonal."""
        return torch.diag((2 * self.log_scale).exp())

    def log_prob(self, noise: Tensor) -> Tensor:
        """Log density [...]."""
        return standard_normal(noise * (-self.log_scale).exp()) - self.log_scale.sum()

    def sample(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        """Draws [*shape, D]."""
        return _normal((*shape, self.log_scale.numel()), self.log_scale, generator) * self.log_scale.exp()


class Laplace(_Independent):
    """Independent zero-mean Laplace noise with a trainable scale per feature: heavier tails."""

    def covariance(self) -> Tensor:
        """Covariance matrix [D, D], diagonal."""
        return torch.diag(2 * (2 * self.log_scale).exp())

    def log_prob(self, noise: Tensor) -> Tensor:
        """Log density [...]."""
        return -(noise.abs() * (-self.log_scale).exp() + self.log_scale + math.log(2)).sum(-1)

    def sample(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        """Draws [*shape, D]: the difference of two exponential draws, always finite."""
        size = (2, *shape, self.log_scale.numel())
        like = self.log_scale
        # rand is below 1 but may be 0, hence log1p(-rand) and not log(rand).
        uniform = torch.rand(size, generator=generator, dtype=like.dtype, device=generator.device).to(like.device)
        exponential = torch.log1p(-uniform)
        return (exponential[0] - exponential[1]) * self.log_scale.exp()


PRIORS: dict[str, type[Gaussian | IndependentGaussian | Laplace]] = {
    "gaussian": Gaussian,
    "independent": IndependentGaussian,
    "laplace": Laplace,
}


def make_prior(name: str, size: int) -> NoisePrior:
    """The prior of this name over `size` noise entries."""
    if name not in PRIORS:
        raise InputError(f"noise prior {name!r} is unknown; choose from {sorted(PRIORS)}.")
    return PRIORS[name](size)


def standard_normal(white: Tensor) -> Tensor:
    """Log density [...] of independent standard normal entries [..., D]."""
    return -0.5 * (white.square() + math.log(2 * math.pi)).sum(-1)


def _normal(size: Sequence[int], like: Tensor, generator: torch.Generator) -> Tensor:
    draws = torch.randn(size, generator=generator, dtype=like.dtype, device=generator.device)
    return draws.to(like.device)
