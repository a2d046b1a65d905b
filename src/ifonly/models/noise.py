"""Noise priors: what a model believes about the noise before it sees a transition."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ifonly.errors import InputError
from ifonly.models.normal_scores import NormalScores


class NoisePrior(nn.Module, ABC):
    """A zero-mean distribution over noise vectors [..., D] with trainable shape."""

    @abstractmethod
    def log_prob(self, noise: Tensor) -> Tensor:
        """Log density [...]."""

    @abstractmethod
    def entry_log_prob(self, noise: Tensor) -> Tensor:
        """Log densities [..., D] of the entries of noise [..., D], each on its own."""

    def correlate(self, noise: Tensor, measured: Tensor | None = None) -> None:
        """Let entries go together as those of noise [N, D] do, each on its own staying as it is.

        Priors of independent entries do nothing.
        """

    @abstractmethod
    def marginal_log_prob(self, noise: Tensor, measured: Tensor) -> Tensor:
        """Log density [...] of the `measured` entries [..., D] of noise [..., D] alone."""

    @abstractmethod
    def sample(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        """Draws [*shape, D]."""

    @abstractmethod
    def initialize(self) -> None:
        """Return to the initial shape: independent, unit scale."""

    @abstractmethod
    def covariance(self) -> Tensor:
        """Covariance matrix [D, D]."""

    def variances(self) -> Tensor:
        """The variance of each entry [D]."""
        return self.covariance().diagonal()


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
        return standard_normal(_white(self.factor(), noise)) - self.log_diagonal.sum()

    def deviations(self) -> Tensor:
        """The scale [D] of each entry on its own."""
        scales: Tensor = self.factor().norm(dim=-1)
        return scales

    def entry_log_prob(self, noise: Tensor) -> Tensor:
        """As `NoisePrior` says."""
        deviations = self.deviations()
        return -0.5 * ((noise / deviations).square() + math.log(2 * math.pi)) - deviations.log()

    @torch.no_grad()
    def correlate(self, noise: Tensor, measured: Tensor | None = None) -> None:
        """As `NoisePrior` says: by the correlation of ranks, which no outlier decides."""
        correlation = rank_correlation(noise, measured).to(self.lower)
        deviations = self.deviations()
        factor = torch.linalg.cholesky(correlation) * deviations.unsqueeze(1)
        self.lower.copy_(torch.tril(factor, diagonal=-1))
        self.log_diagonal.copy_(factor.diagonal().log())

    def marginal_log_prob(self, noise: Tensor, measured: Tensor) -> Tensor:
        """As `NoisePrior` says."""
        return marginal_normal(self.covariance(), noise, measured)

    def sample(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        """Draws [*shape, D]."""
        white = _normal((*shape, self.log_diagonal.numel()), self.log_diagonal, generator)
        return white @ self.factor().mT


class _Independent(NoisePrior):
    """Independent entries with a trainable scale each."""

    def log_prob(self, noise: Tensor) -> Tensor:
        """Log density [...]."""
        return self.entry_log_prob(noise).sum(-1)

    def marginal_log_prob(self, noise: Tensor, measured: Tensor) -> Tensor:
        """As `NoisePrior` says: the sum over measured entries."""
        return torch.where(measured, self.entry_log_prob(noise), 0.0).sum(-1)

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

    def entry_log_prob(self, noise: Tensor) -> Tensor:
        """Log densities [..., D] of the entries."""
        white = noise * (-self.log_scale).exp()
        return -0.5 * (white.square() + math.log(2 * math.pi)) - self.log_scale

    def sample(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        """Draws [*shape, D]."""
        return _normal((*shape, self.log_scale.numel()), self.log_scale, generator) * self.log_scale.exp()


class Laplace(_Independent):
    """Independent zero-mean Laplace noise with a trainable scale per feature: heavier tails."""

    def covariance(self) -> Tensor:
        """Covariance matrix [D, D], diagonal."""
        return torch.diag(2 * (2 * self.log_scale).exp())

    def entry_log_prob(self, noise: Tensor) -> Tensor:
        """Log densities [..., D] of the entries."""
        return -(noise.abs() * (-self.log_scale).exp() + self.log_scale + math.log(2))

    def sample(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        """Draws [*shape, D]: the difference of two exponential draws, always finite."""
        size = (2, *shape, self.log_scale.numel())
        like = self.log_scale
        # rand is below 1 but may be 0, hence log1p(-rand) and not log(rand).
        uniform = torch.rand(size, generator=generator, dtype=like.dtype, device=generator.device).to(like.device)
        exponential = torch.log1p(-uniform)
        return (exponential[0] - exponential[1]) * self.log_scale.exp()


class Student(Gaussian):
    """Zero-mean Student's t with a full trainable scale matrix and trainable tails, the same for all features.

    A Gaussian whose size varies from transition to transition. Some of its entries alone have a distribution of the
    same kind. Degrees of freedom stay above two, so that there is a covariance.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.log_freedom = nn.Parameter(torch.zeros(1))

    def initialize(self) -> None:
        """Start from the identity and eight degrees of freedom."""
        super().initialize()
        nn.init.constant_(self.log_freedom, math.log(6.0))

    def freedom(self) -> Tensor:
        """Degrees of freedom [1]."""
        return freedom_of(self.log_freedom)

    def covariance(self) -> Tensor:
        """Covariance matrix [D, D]."""
        freedom = self.freedom()
        return super().covariance() * (freedom / (freedom - 2))

    def log_prob(self, noise: Tensor) -> Tensor:
        """Log density [...]."""
        return student(self.distance(noise), self.freedom(), noise.shape[-1]) - self.log_diagonal.sum()

    def entry_log_prob(self, noise: Tensor) -> Tensor:
        """As `NoisePrior` says."""
        deviations = self.deviations()
        return student((noise / deviations).square(), self.freedom(), 1) - deviations.log()

    def distance(self, noise: Tensor) -> Tensor:
        """Squared lengths [...] of the noise in units of its scale."""
        return _white(self.factor(), noise).square().sum(-1)

    def marginal_log_prob(self, noise: Tensor, measured: Tensor) -> Tensor:
        """As `NoisePrior` says."""
        lengths, log_det = marginal_lengths(super().covariance(), noise, measured)
        return student(lengths, self.freedom(), measured.sum(-1)) - log_det

    def sample(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        """Draws [*shape, D]: normal ones over the root of a chi-squared one."""
        sizes = _tail_sizes((*shape, 1), self.freedom(), generator)
        return super().sample(shape, generator=generator) * sizes


class IndependentStudent(_Independent):
    """Independent zero-mean noise of Student's t, with a trainable scale and tail per feature: the data say how heavy.

    Degrees of freedom stay above two, so that there is a covariance.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.log_freedom = nn.Parameter(torch.zeros(size))

    def initialize(self) -> None:
        """Start from unit scales and eight degrees of freedom."""
        super().initialize()
        nn.init.constant_(self.log_freedom, math.log(6.0))

    def freedom(self) -> Tensor:
        """Degrees of freedom [D]."""
        return freedom_of(self.log_freedom)

    def covariance(self) -> Tensor:
        """Covariance matrix [D, D], diagonal."""
        freedom = self.freedom()
        return torch.diag((2 * self.log_scale).exp() * freedom / (freedom - 2))

    def entry_log_prob(self, noise: Tensor) -> Tensor:
        """Log densities [..., D] of the entries."""
        white = noise * (-self.log_scale).exp()
        return student(white.square(), self.freedom(), 1) - self.log_scale

    def sample(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        """Draws [*shape, D]: normal ones over the root of chi-squared ones."""
        size = (*shape, self.log_scale.numel())
        return (
            _normal(size, self.log_scale, generator)
            * _tail_sizes(size, self.freedom(), generator)
            * self.log_scale.exp()
        )


class StudentMargins(IndependentStudent):
    """Student's t with a scale and tail per feature, that go together as normal scores with some correlation do.

    A Gaussian copula: what each entry is like on its own is untouched by how entries go together, which no training
    learns; `correlate` does, afterwards. Fresh ones are independent.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.lower = nn.Parameter(torch.zeros(size, size))

    def initialize(self) -> None:
        """Start from unit scales, eight degrees of freedom and independence."""
        super().initialize()
        nn.init.zeros_(self.lower)

    def factor(self) -> Tensor:
        """The Cholesky factor [D, D] of the scores' correlation."""
        factor = torch.tril(self.lower, diagonal=-1) + torch.eye(len(self.lower)).to(self.lower)
        unit: Tensor = factor / factor.norm(dim=-1, keepdim=True)
        return unit

    @torch.no_grad()
    def correlate(self, noise: Tensor, measured: Tensor | None = None) -> None:
        """As `NoisePrior` says: by the correlation of ranks."""
        factor = torch.linalg.cholesky(rank_correlation(noise, measured))
        self.lower.copy_(torch.tril(factor / factor.diagonal().unsqueeze(1), diagonal=-1))

    def log_prob(self, noise: Tensor) -> Tensor:
        """Log density [...]."""
        return super().log_prob(noise) + self._together(noise, torch.ones_like(noise, dtype=torch.bool))

    def marginal_log_prob(self, noise: Tensor, measured: Tensor) -> Tensor:
        """As `NoisePrior` says."""
        return super().marginal_log_prob(noise, measured) + self._together(noise, measured)

    def _together(self, noise: Tensor, measured: Tensor) -> Tensor:
        """The log density [...] of the copula of the measured entries of noise [..., D]."""
        if not self.lower.any():
            return noise.new_zeros(noise.shape[:-1])
        factor = self.factor()
        scores = torch.where(measured, NormalScores.of(self).of_noise(noise.double()), 0.0).to(noise.dtype)
        alone = -0.5 * (scores.square() + math.log(2 * math.pi) * measured).sum(-1)
        return marginal_normal(factor @ factor.mT, scores, measured) - alone

    def covariance(self) -> Tensor:
        """Covariance matrix [D, D], by the expansion of noise in Hermite polynomials of its score (Mehler's formula).

        Cut off after so many terms, which leaves it positive definite; variances are exact.
        """
        table, variances = NormalScores.of(self), self.variances()
        scores = torch.linspace(-8, 8, 4001, dtype=torch.float64, device=variances.device)
        noise = table.to_noise(scores.unsqueeze(1).expand(-1, len(variances)))  # [n, D]
        weights = torch.exp(-0.5 * scores.square()) / math.sqrt(2 * math.pi) * (scores[1] - scores[0])
        factor = self.factor().double()
        correlation = factor @ factor.mT
        before, now = torch.zeros_like(scores), torch.ones_like(scores)
        found, power = torch.zeros_like(correlation), torch.ones_like(correlation)
        for degree in range(1, HERMITE + 1):
            following = (scores * now - math.sqrt(degree - 1) * before) / math.sqrt(degree)
            before, now, power = now, following, power * correlation
            terms = (weights * now) @ noise
            found = found + terms.unsqueeze(1) * terms * power
        return torch.where(torch.eye(len(found), dtype=torch.bool, device=found.device), variances.double(), found).to(
            variances
        )

    def variances(self) -> Tensor:
        """As `NoisePrior` says."""
        return super().covariance().diagonal()

    def sample(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        """Draws [*shape, D]: correlated scores, each turned into the noise that has it."""
        scores = _normal((*shape, self.log_scale.numel()), self.log_scale, generator) @ self.factor().mT
        return NormalScores.of(self).to_noise(scores.double()).to(self.log_scale)


PRIORS: dict[str, type[Gaussian | IndependentGaussian | Laplace | Student | IndependentStudent]] = {
    "gaussian": Gaussian,
    "independent": IndependentGaussian,
    "laplace": Laplace,
    "student": Student,
    "independent-student": IndependentStudent,
    "student-margins": StudentMargins,
}

HERMITE = 40
"""Terms of the expansion behind a covariance of noise that goes together by its scores."""


def make_prior(name: str, size: int) -> NoisePrior:
    """The prior of this name over `size` noise entries."""
    if name not in PRIORS:
        raise InputError(f"noise prior {name!r} is unknown; choose from {sorted(PRIORS)}.")
    return PRIORS[name](size)


def standard_normal(white: Tensor) -> Tensor:
    """Log density [...] of independent standard normal entries [..., D]."""
    return -0.5 * (white.square() + math.log(2 * math.pi)).sum(-1)


def rank_correlation(noise: Tensor, measured: Tensor | None) -> Tensor:
    """Correlation [D, D] of the normal scores of noise [N, D], pair by pair where both were measured.

    Shrunk where few pairs were, and with eigenvalues of at least a thousandth, so that it is positive definite.
    """
    counted = torch.ones_like(noise, dtype=torch.bool) if measured is None else measured
    scores = torch.zeros_like(noise, dtype=torch.float64)
    for column in range(noise.shape[1]):
        rows = counted[:, column].nonzero().squeeze(-1)
        ranks = noise[rows, column].argsort().argsort().double()
        scores[rows, column] = torch.special.ndtri((ranks + 0.5) / max(1, len(rows)))
    pairs = counted.double().mT @ counted.double()
    products = scores.mT @ scores / pairs.clamp(min=1)
    correlation = products * (pairs / (pairs + 10))  # shrunk where little was measured together
    correlation.fill_diagonal_(1.0)
    values, vectors = torch.linalg.eigh(correlation)
    positive = (vectors * values.clamp(min=1e-3)) @ vectors.mT
    sizes = positive.diagonal().sqrt()
    unit: Tensor = positive / sizes / sizes.unsqueeze(1)
    return unit


def marginal_normal(covariance: Tensor, noise: Tensor, measured: Tensor) -> Tensor:
    """Log density [...] of the measured entries of normal noise [..., D] with covariance [..., D, D]."""
    lengths, log_det = marginal_lengths(covariance, noise, measured)
    return -0.5 * (lengths + math.log(2 * math.pi) * measured.sum(-1).to(noise.dtype)) - log_det


def marginal_lengths(scale: Tensor, noise: Tensor, measured: Tensor) -> tuple[Tensor, Tensor]:
    """Squared lengths [...] of the measured entries of noise [..., D] in units of their scale matrix [..., D, D], and
    half its log determinant: by the matrix with ones in place of entries that were not measured."""
    counted = measured.to(noise.dtype)
    kept = scale * counted.unsqueeze(-1) * counted.unsqueeze(-2)
    root = torch.linalg.cholesky(kept + torch.diag_embed(1 - counted))
    white = torch.linalg.solve_triangular(root, (noise * counted).unsqueeze(-1), upper=False).squeeze(-1)
    log_det: Tensor = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return white.square().sum(-1), log_det


def student(lengths: Tensor, freedom: Tensor, size: int | Tensor) -> Tensor:
    """Log density [...] of Student's t in `size` dimensions with unit scale, at squared lengths [...]."""
    constant = torch.lgamma((freedom + size) / 2) - torch.lgamma(freedom / 2) - 0.5 * size * (math.pi * freedom).log()
    density: Tensor = constant - (freedom + size) / 2 * torch.log1p(lengths / freedom)
    return density


def freedom_of(log_freedom: Tensor) -> Tensor:
    """Degrees of freedom above two, and below those at which nothing tells them from a Gaussian's."""
    return 2.0 + log_freedom.clamp(max=8.0).exp()


def _white(factor: Tensor, noise: Tensor) -> Tensor:
    """Noise [..., D] in units of its Cholesky factor [D, D]."""
    # One solve with many right-hand sides; a batch of small solves would be many times slower.
    columns = noise.reshape(-1, noise.shape[-1]).mT
    white: Tensor = torch.linalg.solve_triangular(factor, columns, upper=False).mT.reshape(noise.shape)
    return white


def _tail_sizes(size: Sequence[int], freedom: Tensor, generator: torch.Generator) -> Tensor:
    """Factors of so many normal draws that make them draws of Student's t."""
    halves = (freedom / 2).expand(size).to(generator.device)
    squares = 2 * torch._standard_gamma(halves, generator).to(freedom.device)
    return (freedom / squares).sqrt()


def _normal(size: Sequence[int], like: Tensor, generator: torch.Generator) -> Tensor:
    draws = torch.randn(size, generator=generator, dtype=like.dtype, device=generator.device)
    return draws.to(like.device)
