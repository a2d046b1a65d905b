import pytest
import torch
from torch import distributions

from ifonly.errors import InputError
from ifonly.models.noise import PRIORS, Gaussian, make_prior
from ifonly.models.normal_scores import NormalScores

SIZE = 3


def random_prior(name: str, seed: int = 0):
    prior = make_prior(name, SIZE).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in prior.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return prior


def reference(name: str, prior) -> distributions.Distribution:
    if name == "gaussian":
        return distributions.MultivariateNormal(torch.zeros(SIZE).double(), scale_tril=prior.factor())
    zero = torch.zeros(SIZE).double()
    if name == "independent-student":
        return distributions.Independent(distributions.StudentT(prior.freedom(), zero, prior.log_scale.exp()), 1)
    family = distributions.Normal if name == "independent" else distributions.Laplace
    return distributions.Independent(family(zero, prior.log_scale.exp()), 1)


WITHOUT_TWIN = ("student", "student-margins")  # torch has neither a multivariate t nor a copula


@pytest.mark.parametrize("name", [name for name in PRIORS if name not in WITHOUT_TWIN])
@pytest.mark.parametrize("shape", [(), (5,), (2, 1, 4)])
def test_density_and_covariance_are_those_of_torch(name, shape):
    prior = random_prior(name)
    noise = 3 * torch.randn(*shape, SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    known = reference(name, prior)
    assert torch.allclose(prior.log_prob(noise), known.log_prob(noise), atol=1e-11)
    wanted = known.covariance_matrix if name == "gaussian" else torch.diag(known.variance)
    assert torch.allclose(prior.covariance(), wanted, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", PRIORS)
def test_samples_have_mean_zero_and_the_covariance(name, dtype):
    prior = random_prior(name).to(dtype)
    draws = prior.sample((200, 100), generator=torch.Generator().manual_seed(7)).detach().reshape(-1, SIZE)
    assert draws.dtype == dtype
    products = draws.unsqueeze(-1) * draws.unsqueeze(-2)
    root = len(draws) ** 0.5
    assert (draws.mean(0).abs() <= 5 * draws.std(0) / root).all()
    assert ((products.mean(0) - prior.covariance()).abs() <= 5 * products.std(0) / root).all()


def test_laplace_samples_have_laplace_tails():
    """P(|u| > 3 b) = exp(-3): a Gaussian of the same variance has less than half of it."""
    prior = make_prior("laplace", 1)
    draws = prior.sample((100_000,), generator=torch.Generator().manual_seed(0)).detach()
    share, wanted = (draws.abs() > 3).double().mean().item(), torch.tensor(-3.0).exp().item()
    assert abs(share - wanted) < 5 * (wanted * (1 - wanted) / 100_000) ** 0.5


def test_laplace_samples_are_finite_at_the_ends_of_the_uniform_draw(monkeypatch):
    ends = torch.tensor([0.0, 1.0 - 2**-24])
    monkeypatch.setattr(torch, "rand", lambda size, **_: ends[torch.arange(torch.Size(size).numel()) % 2].reshape(size))
    draws = make_prior("laplace", SIZE).sample((4,), generator=torch.Generator())
    assert torch.isfinite(draws).all()


@pytest.mark.parametrize("name", PRIORS)
def test_samples_depend_on_the_generator_alone(name):
    prior = random_prior(name)
    one, two, other = (prior.sample((5,), generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("name", PRIORS)
def test_initial_shape_is_independent_and_of_unit_scale(name):
    prior = random_prior(name)
    prior.initialize()
    # Student's t with eight degrees of freedom has a variance of 8 / 6.
    variance = 2 if name == "laplace" else 8 / 6 if "student" in name else 1
    assert torch.allclose(prior.covariance(), torch.eye(SIZE).double() * variance, rtol=1e-12, atol=0)


def test_the_multivariate_t_is_a_normal_of_random_size():
    """Its density is the mean of normal densities whose variance is 1 / gamma, over draws of gamma."""
    prior = random_prior("student")
    with torch.no_grad():
        half = prior.freedom() / 2
        sizes = distributions.Gamma(half, half).sample((400_000,)).double()
        noise = torch.tensor([[0.5, -1.0, 2.0], [3.0, 0.0, -4.0]], dtype=torch.float64)
        white = torch.linalg.solve_triangular(prior.factor(), noise.mT, upper=False).square().sum(0)
        logs = (SIZE * sizes.log() - sizes * white - SIZE * torch.log(torch.tensor(2 * torch.pi))) / 2
        wanted = torch.logsumexp(logs, 0) - torch.log(torch.tensor(len(sizes))) - prior.log_diagonal.sum()
        assert torch.allclose(prior.log_prob(noise), wanted, atol=0.02)


def test_a_given_covariance_is_kept():
    root = torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    covariance = root @ root.mT + torch.eye(SIZE)
    prior = Gaussian(SIZE).double()
    prior.set_covariance(covariance)
    assert torch.allclose(prior.covariance(), covariance, atol=1e-12)


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (torch.eye(2), "expected"),
        (torch.tensor([[1.0, 0.5, 0], [0, 1, 0], [0, 0, 1]]), "not symmetric"),
        (torch.diag(torch.tensor([1.0, -1.0, 1.0])), "not positive definite"),
        (torch.full((3, 3), torch.nan), "finite"),
    ],
)
def test_an_impossible_covariance_is_refused(covariance, message):
    prior = Gaussian(SIZE).double()
    with pytest.raises(InputError, match=message):
        prior.set_covariance(covariance.double())


def test_student_margins_are_on_their_own_what_independent_ones_are():
    together, apart = random_prior("student-margins"), make_prior("independent-student", SIZE).double()
    with torch.no_grad():
        apart.log_scale.copy_(together.log_scale)
        apart.log_freedom.copy_(together.log_freedom)
        noise = 3 * torch.randn(50, SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        assert torch.equal(together.entry_log_prob(noise), apart.entry_log_prob(noise))
        assert not torch.allclose(together.log_prob(noise), apart.log_prob(noise), atol=0.1)
        assert torch.allclose(together.covariance().diagonal(), apart.covariance().diagonal(), rtol=1e-12)
        draws = together.sample((40_000,), generator=torch.Generator().manual_seed(0))
        together.lower.zero_()
        assert torch.equal(together.log_prob(noise), apart.log_prob(noise))
        assert torch.allclose(together.covariance(), apart.covariance(), atol=1e-9)
    scores = NormalScores.of(apart).of_noise(draws)
    for level in (0.01, 0.2, 0.5, 0.8, 0.99):
        wanted = torch.special.ndtri(torch.tensor(level, dtype=torch.float64))
        share = (scores < wanted).double().mean(0)
        assert ((share - level).abs() < 5 * (level * (1 - level) / len(draws)) ** 0.5).all()


def test_the_joint_density_of_student_margins_has_their_margins():
    """Summed over the second entry, the density of two is that of the first alone; so is that of measured entries."""
    prior, pair = random_prior("student-margins", seed=3), make_prior("student-margins", 2).double()
    with torch.no_grad():
        for name in ("log_scale", "log_freedom"):
            getattr(pair, name).copy_(getattr(prior, name)[:2])
        pair.lower.copy_(prior.lower[:2, :2])
        even = torch.linspace(-12, 12, 20_001, dtype=torch.float64)
        other = torch.sinh(even)  # far out into the tails
        for first in (-2.0, 0.3, 4.0):
            noise = torch.stack([torch.full_like(other, first), other], dim=1)
            total = torch.trapezoid(pair.log_prob(noise).exp() * torch.cosh(even), even)
            assert float(total) == pytest.approx(float(pair.entry_log_prob(noise[:1])[0, 0].exp()), rel=1e-3)
        noise = torch.randn(20, SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        measured = torch.tensor([True, True, False]).expand(20, -1)
        assert torch.allclose(prior.marginal_log_prob(noise, measured), pair.log_prob(noise[:, :2]), atol=1e-9)
        assert torch.allclose(prior.marginal_log_prob(noise, measured | True), prior.log_prob(noise), atol=1e-12)
        nothing = prior.marginal_log_prob(noise, measured & False)
    assert torch.allclose(nothing, torch.zeros(20).double(), atol=1e-12)


def test_student_margins_learn_how_noise_goes_together():
    true, found = random_prior("student-margins", seed=5), make_prior("student-margins", SIZE).double()
    draws = true.sample((20_000,), generator=torch.Generator().manual_seed(0)).detach()
    with torch.no_grad():
        found.log_scale.copy_(true.log_scale)
        found.log_freedom.copy_(true.log_freedom)
    found.correlate(draws)
    wanted, learned = ((prior.factor() @ prior.factor().mT).detach() for prior in (true, found))
    assert float((wanted - torch.eye(SIZE)).abs().max()) > 0.3
    assert torch.allclose(learned, wanted, atol=0.03)
    assert found.log_prob(draws).mean() > found.entry_log_prob(draws).sum(-1).mean() + 0.05
    assert (torch.linalg.eigvalsh(found.covariance()) > 0).all()
