"""What is measured, against what is known of small worlds."""

import made_worlds as worlds
import numpy as np
import pytest
import torch

from ifonly import LinearModel, LocationScale, TransitionModel
from ifonly.evidence.check.ahead import HORIZONS, run_ahead
from ifonly.evidence.check.baselines import LINEAR, PERSISTENCE, baseline_log_prob, subject_folds
from ifonly.evidence.check.measure import dependence, lasting, together
from ifonly.evidence.check.sample import NoiseSample, normal_scores, prior_ranks


@pytest.fixture(scope="module")
def right() -> NoiseSample:
    return NoiseSample.of(worlds.model().for_search(), worlds.record(400, seed=2), seed=0)


class _WithoutDensity(TransitionModel):
    """A model that can only step and abduct."""

    def __init__(self, model: TransitionModel, *, elementwise: bool) -> None:
        super().__init__(model.schema, model.scaler)
        self.model, self.prior = model, model.prior
        self.elementwise = elementwise

    def step(self, *inputs):
        return self.model.step(*inputs)

    def abduct(self, *inputs):
        return self.model.abduct(*inputs)

    def lipschitz(self, *inputs):
        return self.model.lipschitz(*inputs)


@pytest.mark.parametrize("elementwise", [True, False])
def test_densities_by_differentiation_are_the_models_own(elementwise: bool) -> None:
    model = LocationScale(worlds.SCHEMA, hidden=(8,)).for_search()
    cohort = worlds.record(20, seed=0)
    own = NoiseSample.of(model, cohort, seed=0)
    other = NoiseSample.of(_WithoutDensity(model, elementwise=elementwise), cohort, seed=0)
    np.testing.assert_allclose(other.log_prob, own.log_prob, rtol=1e-10)


def test_a_model_without_prior_means_standard_normal_noise(right: NoiseSample) -> None:
    expected = torch.distributions.Normal(0.0, 1.0).log_prob(torch.tensor(right.noise)).sum(-1).numpy()
    np.testing.assert_allclose(right.log_prob, expected - np.log(worlds.SCALE).sum(), rtol=1e-9)
    exact = torch.special.ndtr(torch.tensor(right.noise)).numpy()
    assert np.abs(right.ranks - exact).max() < 0.01


def test_ranks_and_scores() -> None:
    ordered = np.sort(np.random.default_rng(0).normal(size=(999, 1)), axis=0)
    ranks = prior_ranks(ordered, np.array([[-np.inf], [np.inf], ordered[499]]))
    np.testing.assert_allclose(ranks[:, 0], [0.0005, 0.9995, 0.5])
    assert np.isfinite(normal_scores(ranks)).all()


def test_baselines_are_gaussian_and_judge_other_subjects(right: NoiseSample) -> None:
    found = baseline_log_prob(right, seed=3)
    folds = subject_folds(right.subject, seed=3)
    assert all(len(np.unique(folds[right.subject == subject])) == 1 for subject in range(400))
    change = (right.rows.next_states - right.rows.states).numpy()
    for fold in range(5):
        train, test = change[folds != fold], torch.tensor(change[folds == fold])
        covariance = torch.tensor(np.cov(train, rowvar=False, bias=True))
        exact = torch.distributions.MultivariateNormal(torch.tensor(train.mean(axis=0)), covariance).log_prob(test)
        np.testing.assert_allclose(found[PERSISTENCE][folds == fold], exact.numpy(), rtol=1e-5)
    # In a linear world the linear baseline is nearly the truth, and never above it on average.
    assert 0 <= (right.log_prob - found[LINEAR]).mean() < 0.02
    assert (found[LINEAR] - found[PERSISTENCE]).mean() > 0.3


def test_nothing_predicts_the_noise_of_the_truth(right: NoiseSample) -> None:
    found = dependence(right, seed=0)
    for estimate in (*found.state, *found.action):
        assert estimate.value < 0.005
    assert max(estimate.from_zero() for estimate in found.size) < 0.05


def test_what_a_model_misses_is_predicted() -> None:
    """Without the effects of actions, their share of the noise's variance is known."""
    cohort = worlds.record(600, seed=7)
    found = dependence(NoiseSample.of(worlds.fitted(cohort, actions=False).for_search(), cohort, seed=0), seed=0)
    effect = worlds.ACTION.var(axis=0)
    np.testing.assert_allclose([e.value for e in found.action], effect / (effect + worlds.SCALE**2), atol=0.04)
    assert max(e.value for e in found.state) < 0.02

    found = dependence(NoiseSample.of(worlds.fitted(cohort, lags=False).for_search(), cohort, seed=0), seed=0)
    assert found.state[0].value > 0.1 > 0.01 > found.state[1].value
    assert found.strongest[0] == "lactate"
    assert max(e.value for e in found.action) < 0.01


def test_a_size_that_varies_is_measured() -> None:
    """The size is 1 + 0.6 tanh(2 z), z the feature itself: by how much it varies is known from the states."""
    cohort = worlds.record(600, noise=worlds.of_varying_size, seed=8)
    sample = NoiseSample.of(worlds.model().for_search(), cohort, seed=0)
    squares = (1 + 0.6 * np.tanh(2 * sample.rows.states.numpy())) ** 2
    expected = squares.std(axis=0) / (2 * squares.mean(axis=0))
    np.testing.assert_allclose([e.value for e in dependence(sample, seed=0).size], expected, rtol=0.3)


def test_noise_that_lasts_and_noise_that_goes_together() -> None:
    hidden = NoiseSample.of(worlds.model().for_search(), worlds.record(600, lasting=0.6, seed=9), seed=0)
    # Under the true coefficients the hidden factor is all that lasts: 0.6 squared of the variance.
    np.testing.assert_allclose([e.value for e in lasting(hidden)], 0.36, atol=0.04)
    both = NoiseSample.of(worlds.model().for_search(), worlds.record(600, noise=worlds.together, seed=9), seed=0)
    (pair,) = together(both)
    assert pair.features == ("pressure", "lactate")
    assert pair.excess.value == pytest.approx(0.36, abs=0.04)
    assert pair.expected == pytest.approx(0.0, abs=0.03)


def test_courses_of_the_truth_cover_the_record_and_errors_have_units(right: NoiseSample) -> None:
    found = run_ahead(right, seed=0)
    assert tuple(ahead.steps for ahead in found) == HORIZONS
    for ahead in found:
        assert ahead.diverged == 0
        for level, shares in ahead.coverage.items():
            for share in shares:
                assert share.low - 0.03 <= int(level) / 100 <= share.high + 0.03
        assert min(skill.value for skill in ahead.skill) > 0
    # One step ahead the error is the mean size of the noise.
    assert found[0].error[0] == pytest.approx(0.5 * np.sqrt(2 / np.pi), rel=0.08)


def test_courses_never_run_beyond_the_end_of_an_episode() -> None:
    cohort = worlds.record(60, steps=5, seed=1)
    found = run_ahead(NoiseSample.of(worlds.model().for_search(), cohort, seed=0), seed=0)
    assert [(ahead.steps, ahead.starts) for ahead in found] == [(1, 240), (2, 180), (4, 60)]


def test_a_model_that_explodes_is_noticed() -> None:
    wild = LinearModel(worlds.SCHEMA, np.full((3, 2, 2), 1e60))
    with np.errstate(all="ignore"):
        found = run_ahead(NoiseSample.of(wild.for_search(), worlds.record(30, seed=1), seed=0), seed=0)
    assert (found[0].diverged, found[-1].diverged) == (0.0, 1.0)
