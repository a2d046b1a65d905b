import pytest
import torch
from torch import distributions

from ifonly.errors import InputError
from ifonly.models.noise import PRIORS, Gaussian, make_prior

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


@pytest.mark.parametrize("name", [name for name in PRIORS if name != "student"])  # torch has no multivariate t
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
