"""Gains under other couplings of noise, against closed forms and against distributions known by other means."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from effort import some
from made_courses import helpful, linear_problem, linear_slopes

from ifonly.errors import InputError
from ifonly.evidence import coupling, examine
from ifonly.evidence.check.sample import prior_of
from ifonly.evidence.coupling import CORRELATIONS
from ifonly.models.noise import make_prior
from ifonly.models.normal_scores import NormalScores
from ifonly.problem import EnsembleProblem
from ifonly.query import Query
from ifonly.records import from_plain, to_plain
from ifonly.result import Coupling, Evidence
from ifonly.rewards import minus
from ifonly.testing.instances import random_problem
from ifonly.text.evidence import lines_of


def closed_form(problem, sequence, correlation: float) -> tuple[float, float]:
    """Mean and deviation of the gain of a linear problem: the outcome is linear in the noise, which is normal."""
    first = int((sequence != problem.observed_actions).nonzero()[0])
    slopes = linear_slopes(problem, sequence, np.ones(problem.noise.shape[1]))[first:]
    gain = problem.outcome(sequence) - problem.observed_outcome
    mean = gain + (correlation - 1) * float((slopes * problem.noise[first:].numpy()).sum())
    return mean, math.sqrt((1 - correlation**2) * float((slopes**2).sum()))


@pytest.mark.parametrize("seed", range(some(8)))
def test_linear_problems_have_the_answer_in_closed_form(seed: int) -> None:
    problem = linear_problem(seed, state_size=1 + seed % 3)
    sequence = helpful(problem)
    if sequence is None:
        pytest.skip("nothing helps here")
    found = coupling(problem, sequence, draws=4096)
    assert [one.correlation for one in found.gains] == list(CORRELATIONS)
    for one in found.gains:
        mean, deviation = closed_form(problem, sequence, one.correlation)
        # Opposite draws cancel in a linear problem: the mean has no error of chance.
        assert one.expected == pytest.approx(mean, abs=1e-4 * (1 + abs(mean) + deviation))
        for quantile, score in ((one.low, -1.6449), (one.high, 1.6449)):
            assert quantile == pytest.approx(mean + score * deviation, abs=0.15 * deviation + 1e-9)
    assert found.gains[0].expected == pytest.approx(problem.outcome(sequence) - problem.observed_outcome)


@pytest.mark.parametrize("seed", range(some(10)))
def test_the_smallest_correlation_is_where_the_closed_form_crosses_zero(seed: int) -> None:
    problem = linear_problem(seed)
    sequence = helpful(problem)
    if sequence is None:
        pytest.skip("nothing helps here")
    found = coupling(problem, sequence)
    gain, fresh = closed_form(problem, sequence, 1.0)[0], closed_form(problem, sequence, 0.0)[0]
    if fresh > 0:
        assert found.smallest is None
    else:
        assert found.smallest == pytest.approx(fresh / (fresh - gain), abs=1e-3)


def test_variances_are_those_of_the_closed_form() -> None:
    problem = linear_problem(1)
    sequence = helpful(problem)
    assert sequence is not None
    found = coupling(problem, sequence, draws=8192)
    for one in found.gains[1:]:
        deviation = closed_form(problem, sequence, one.correlation)[1]
        assert (one.high - one.low) / (2 * 1.6449) == pytest.approx(deviation, rel=0.05)


@pytest.mark.parametrize(
    "kind", ["gaussian", "independent", "laplace", "student", "independent-student", "student-margins"]
)
def test_scores_of_every_prior_are_standard_normal_and_go_back(kind: str) -> None:
    problem = random_problem(3, model_kind="location-scale", state_size=3)
    prior = make_prior(kind, 3).double()
    with torch.no_grad():
        for parameter in prior.parameters():
            parameter.add_(torch.tensor(0.3))
    model = problem.model
    model.prior = prior
    table = NormalScores.of(model.prior)
    draws = prior.sample((40_000,), generator=torch.Generator().manual_seed(0)).detach()
    scores = table.of_noise(draws)
    for level in (0.001, 0.05, 0.3, 0.5, 0.9, 0.999):
        wanted = float(torch.special.ndtri(torch.tensor(level, dtype=torch.float64)))
        share = (scores < wanted).double().mean(0).numpy()
        np.testing.assert_allclose(share, level, atol=4 * math.sqrt(level * (1 - level) / 40_000))
    far = torch.tensor([[-3000.0, 0.0, 80.0], [1e-3, 5.0, -0.7]], dtype=torch.float64)
    for noise in (draws, far):
        assert torch.allclose(table.to_noise(table.of_noise(noise)), noise, rtol=1e-7, atol=1e-9)
    assert (table.scores.diff(dim=1) > 0).all()
    assert (table.noise.diff(dim=1) > 0).all()


def test_normal_noise_is_its_own_score() -> None:
    problem = linear_problem(0, state_size=2)
    table = NormalScores.of(prior_of(problem.model))
    noise = torch.linspace(-7, 7, 41, dtype=torch.float64).unsqueeze(1).expand(-1, 2)
    assert torch.allclose(table.of_noise(noise), noise, atol=1e-5)


@pytest.mark.parametrize("seed", range(some(5)))
def test_without_correlation_gains_are_those_of_fresh_noise(seed: int) -> None:
    """Against replays with noise drawn by the problem's own prior, of a model that is not linear."""
    problem = random_problem(seed, model_kind="location-scale", reward_kind="linear", masked=False, horizon=5)
    sequence = helpful(problem)
    if sequence is None:
        pytest.skip("nothing helps here")
    found = coupling(problem, sequence, draws=4096).gains[-1]
    first = int((sequence != problem.observed_actions).nonzero()[0])
    generator = torch.Generator().manual_seed(seed + 100)
    gains = []
    for _ in range(600):
        noise = problem.noise.clone()
        noise[first:] = problem.model.prior.sample((len(noise) - first,), generator=generator)
        gains.append(replace(problem, noise=noise).outcome(sequence) - problem.observed_outcome)
    error = np.std(gains) / math.sqrt(600) + np.std(gains) / math.sqrt(4096)
    assert found.expected == pytest.approx(np.mean(gains), abs=4 * error + 1e-9)
    assert found.low == pytest.approx(np.quantile(gains, 0.05), abs=0.3 * np.std(gains) + 1e-9)


def test_evidence_keeps_it_and_tells_it() -> None:
    problem = linear_problem(1)
    sequence = helpful(problem)
    assert sequence is not None
    assert examine(problem, sequence).coupling is None
    evidence = examine(problem, sequence, coupling=True)
    assert evidence.coupling == coupling(problem, sequence)
    assert examine(problem.with_query(coupling=True), sequence).coupling == evidence.coupling
    assert from_plain(Evidence, to_plain(evidence), what="evidence").coupling == evidence.coupling
    lines = lines_of(evidence, problem.episode.schema, problem.query)
    at = next(place for place, line in enumerate(lines) if line.startswith("under other luck: the changes help"))
    assert [line.split(":")[0].strip() for line in lines[at + 1 : at + 6]] == [
        f"correlation {one:g}" for one in CORRELATIONS
    ]


def test_nothing_to_lose_and_nothing_left_to_chance() -> None:
    problem = linear_problem(1)
    same = coupling(problem, problem.observed_actions)
    assert not same.helps
    assert same.smallest is None
    last = problem.observed_actions.clone()
    last[-1] = (last[-1] + 1) % problem.action_count
    found = coupling(problem, last)
    assert len({(one.expected, one.low, one.high) for one in found.gains}) == 1
    assert Query.from_dict({"minimize": "SOFA", "coupling": True}).coupling
    with pytest.raises(InputError, match="True or False"):
        Query(minus("SOFA"), coupling="yes")
    with pytest.raises(InputError, match="even number"):
        coupling(problem, last, draws=5)


def test_of_an_ensemble_it_is_the_member_that_gains_least() -> None:
    problem = linear_problem(1)
    sequence = helpful(problem)
    assert sequence is not None
    ensemble = EnsembleProblem.from_problem(problem, [problem.model, problem.model])
    found = examine(ensemble, sequence, coupling=True).coupling
    assert isinstance(found, Coupling)
    assert found.member == 0
    assert replace(found, member=None) == coupling(problem, sequence)
    with pytest.raises(InputError, match="one model's problem"):
        coupling(ensemble, sequence)
