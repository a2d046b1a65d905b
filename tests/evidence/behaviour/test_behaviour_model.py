import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_behaviour import (
    QUICK,
    clinician_cohort,
    clinician_probabilities,
    learned,
    small_cohort,
    small_schema,
)

from ifonly.data.cohort import Cohort
from ifonly.data.scaling import Scaler
from ifonly.errors import FitError, InputError, SchemaMismatchError
from ifonly.evidence.behaviour import BehaviourReport, BehaviourSettings, fit_behaviour, fitting
from ifonly.evidence.behaviour.report import by_action, by_probability, calibration_error, likeliest_error
from ifonly.models import LinearModel
from ifonly.problem import Support
from ifonly.records import from_plain, to_plain
from ifonly.simulate.world import world_scaler
from ifonly.text.checks import behaviour_notes


@pytest.fixture(scope="module")
def treated():
    """A behaviour model of 6,000 patients of the simulated world's clinician."""
    settings = BehaviourSettings(hidden=(32,), epochs=20, keep_states=False)
    return fit_behaviour(clinician_cohort(6000, seed=1), settings=settings, seed=2)


def rows(cohort: Cohort, scaler: Scaler):
    steps = np.arange(len(cohort.actions)) - np.repeat(cohort.offsets[:-1], cohort.lengths)
    return (
        torch.as_tensor(scaler.states.encode(cohort.states)),
        torch.as_tensor(scaler.context.encode(cohort.context)),
        torch.as_tensor(steps),
    )


def test_probabilities_are_those_of_the_policy_that_was_followed(treated) -> None:
    others = clinician_cohort(400, seed=5)
    scaler = world_scaler()
    states, context, steps = rows(others, scaler)
    given = treated.probabilities(states, context, steps, scaler=scaler).numpy()
    truth = clinician_probabilities(states.numpy(), steps.numpy())
    np.testing.assert_allclose(truth.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(given.sum(1), 1, atol=1e-12)
    assert (given > 0).all()
    # Of the information in the state, what was not learned from 19,200 steps is a small part.
    divergence = (truth * np.log(truth / given)).sum(1).mean()
    ignorance = (truth * np.log(truth / truth.mean(0))).sum(1).mean()
    assert divergence < 0.2 * ignorance
    # By group of predicted probability the truth agrees within a few standard errors and some bias.
    for group in by_probability(given, others.actions):
        error = math.sqrt(group.given * (1 - group.given) / group.count)
        assert abs(group.given - group.happened) < 4 * error + 0.25 * group.given


def test_figures_are_those_of_subjects_held_out(treated) -> None:
    report = treated.report
    assert report.training.subjects + report.calibration.subjects + report.held_out.subjects == 6000
    assert report.held_out.subjects == 1200
    assert report.log_likelihood > report.marginal_log_likelihood + 0.08
    assert report.log_likelihood >= report.uncalibrated_log_likelihood - 0.01
    assert report.calibration_error < 0.05
    assert len(report.by_action) > 10
    for action in report.by_action:
        assert abs(action.given - action.happened) < 0.05
    assert from_plain(BehaviourReport, to_plain(report), what="report") == report
    assert "nats per step" in str(report)


def test_calibration_repairs_scores_that_are_too_sure() -> None:
    behaviour = learned()
    network = behaviour.network
    part = fitting._Steps.of(small_cohort(seed=8), behaviour.scaler, torch.float64)
    right = fitting._temperature(network, part)
    tripled = type(network)((2, 1, 3), (16,), network.longest).double()
    tripled.load_state_dict(network.state_dict())
    with torch.no_grad():
        tripled.output.weight.mul_(3)
        tripled.output.bias.mul_(3)
    assert fitting._temperature(tripled, part) == pytest.approx(3 * right, rel=1e-3)

    def loss(scores: torch.Tensor) -> float:
        return float(torch.nn.functional.cross_entropy(scores, part.actions))

    with torch.no_grad():
        scores = tripled(*part[:3])
    assert loss(scores / (3 * right)) < loss(scores) - 0.01


def test_the_temperature_flattens_probabilities() -> None:
    behaviour = learned()
    inputs = rows(small_cohort(10, seed=6), behaviour.scaler)
    plain = replace(behaviour, temperature=1.0).probabilities(*inputs)
    flat = replace(behaviour, temperature=2.0)
    torch.testing.assert_close(flat.probabilities(*inputs), torch.softmax(plain.log() / 2, dim=1))
    assert flat.fingerprint != behaviour.fingerprint


def test_the_same_seed_gives_the_same_model_and_another_seed_another() -> None:
    one, again, other = (fit_behaviour(small_cohort(), settings=QUICK, seed=seed) for seed in (0, 0, 1))
    assert one.fingerprint == again.fingerprint == learned().fingerprint
    assert one.report == again.report
    assert torch.equal(one.neighbours.states, again.neighbours.states)
    assert other.fingerprint != one.fingerprint


def test_coordinates_of_a_model_are_translated_exactly() -> None:
    behaviour, cohort = learned(), small_cohort(20, seed=9)
    schema = cohort.schema
    other = Scaler.fit(small_cohort(10, seed=3))
    own = behaviour.probabilities(*rows(cohort, behaviour.scaler))
    for scaler in (other, Scaler.identity(schema)):
        there = behaviour.probabilities(*rows(cohort, scaler), scaler=scaler)
        torch.testing.assert_close(own, there, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(
            behaviour.distance_percentile(rows(cohort, behaviour.scaler)[0]),
            behaviour.distance_percentile(rows(cohort, scaler)[0], scaler=scaler),
        )


def test_a_threshold_is_a_support() -> None:
    behaviour, cohort = learned(), small_cohort(20, seed=9)
    model = LinearModel(cohort.schema, np.zeros((3, 2, 2)), scaler=Scaler.fit(small_cohort(10, seed=3)))
    support = behaviour.with_threshold(0.2, model)
    assert isinstance(support, Support)
    states, context, _ = rows(cohort, model.scaler)
    for t in (0, 3, 400):
        given = behaviour.probabilities(states, context, t, scaler=model.scaler)
        assert torch.equal(support.supported(t, states, context), given >= 0.2)
    assert support.settings() == {"kind": "behaviour", "min_support": 0.2, "behaviour": behaviour.fingerprint}
    for least in (0, -1, 1.01, True, "0.1", math.nan):
        with pytest.raises(InputError, match="probability"):
            behaviour.with_threshold(least, model)
    with pytest.raises(SchemaMismatchError):
        behaviour.with_threshold(0.1, LinearModel(small_schema(2), np.zeros((2, 2, 2))))


def test_an_action_that_nobody_took_has_no_probability_anywhere() -> None:
    behaviour = fit_behaviour(small_cohort(unused=True), settings=QUICK)
    given = behaviour.probabilities(*rows(small_cohort(seed=4), behaviour.scaler))
    assert (given[:, 2] == 0).all()
    torch.testing.assert_close(given.sum(1), torch.ones(len(given), dtype=torch.float64))
    assert "nobody in this cohort ever chose 'choice 2'" in str(behaviour_notes(behaviour.report)[0])
    assert math.isfinite(behaviour.report.log_likelihood)


def test_few_subjects_and_constant_features_are_told() -> None:
    for subjects, count in ((1, "1 of the three"), (2, "2 of the three")):
        with pytest.raises(InputError, match=count):
            fit_behaviour(small_cohort(subjects), settings=QUICK)
    cohort = small_cohort(3)
    still = replace(cohort, states=np.column_stack([cohort.states[:, 0], np.full(len(cohort.states), 2.0)]))
    behaviour = fit_behaviour(still, settings=QUICK)
    assert any("dose never varied" in str(note) for note in behaviour_notes(behaviour.report))
    assert any("only 1 subject held out" in str(note) for note in behaviour_notes(behaviour.report))
    assert behaviour.report.by_action == ()
    assert torch.isfinite(behaviour.distance_percentile(torch.zeros(2, 2))).all()


def test_one_action_only() -> None:
    cohort = small_cohort(10)
    behaviour = fit_behaviour(replace(cohort, actions=np.zeros_like(cohort.actions)), settings=QUICK)
    assert behaviour.report.log_likelihood == 0
    assert behaviour.probabilities(*rows(cohort, behaviour.scaler))[:, 0].eq(1).all()


def test_bad_settings_are_refused_and_a_breakdown_is_told() -> None:
    for wrong in ({"epochs": 0}, {"hidden": (0,)}, {"learning_rate": math.inf}, {"held_out": 1.0}, {"k": 1.5}):
        with pytest.raises(InputError, match="behaviour: "):
            BehaviourSettings(**wrong)
    with pytest.raises(InputError, match="seed"):
        fit_behaviour(small_cohort(), seed=-1)
    with pytest.raises(InputError, match="leaves one subject"):
        fit_behaviour(small_cohort(4), settings=replace(QUICK, held_out=0.9))
    with pytest.raises(FitError, match="learning rate"):
        fit_behaviour(small_cohort(), settings=replace(QUICK, learning_rate=1e38))


def test_reliability_by_hand() -> None:
    given = np.array([0.1, 0.9, 0.2, 0.8])
    happened = np.array([0.0, 1.0, 1.0, 1.0])
    # Groups of two, by size: 0.1 and 0.2 (one happened), 0.8 and 0.9 (both did).
    assert calibration_error(given, happened, bins=2) == pytest.approx((abs(0.15 - 0.5) + abs(0.85 - 1)) / 2)
    probabilities = np.array([[0.7, 0.3], [0.4, 0.6]] * 30)
    actions = np.array([0, 0] * 30)
    # Fifteen groups of four: seven of 0.6, never right; seven of 0.7, always right; one of both.
    assert likeliest_error(probabilities, actions) == pytest.approx((7 * 0.6 + 7 * 0.3 + 0.15) / 15)
    (only,) = by_action(probabilities, actions)
    assert (only.action, only.uses, only.happened) == (0, 60, 1.0)
    assert only.given == pytest.approx(0.55)
    groups = by_probability(probabilities, actions)
    assert [(group.low, group.count, group.happened) for group in groups] == [(0.2, 60, 0.5), (0.5, 60, 0.5)]


def test_a_model_that_tells_less_than_frequencies_says_so() -> None:
    assert not any("whatever the state" in str(note) for note in behaviour_notes(learned().report))
    cohort = small_cohort(12, seed=3)
    chance = replace(cohort, actions=np.random.default_rng(3).permutation(cohort.actions))
    few = fit_behaviour(chance, settings=replace(QUICK, epochs=60))
    assert few.report.log_likelihood < few.report.marginal_log_likelihood
    assert "tells less than how often each action is chosen whatever the state" in str(behaviour_notes(few.report)[-1])
