"""Fitting finds a known truth; what a likelihood is measured in."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from fitted_cohorts import COVARIANCE, SCHEMA, STATE, linear, make_cohort, wavy

from ifonly import Cohort, Episode, Feature, LocationScale, Scaler, Schema
from ifonly.errors import InputError
from ifonly.models.fit import FitSettings, evaluate, fit

# --- a known truth


@dataclass
class Recovered:
    """A model fitted to linear-Gaussian data, and fresh data of the same truth."""

    model: LocationScale
    train: Cohort
    test: Cohort

    def linked(self, cohort: Cohort):
        transitions = cohort.transitions()
        before, after = transitions.states.copy(), transitions.next_states.copy()
        before[:, 1], after[:, 1] = np.log(before[:, 1]), np.log(after[:, 1])
        return before, transitions.context, transitions.actions, after

    def true_log_likelihood(self, cohort: Cohort, centre=linear, covariance=COVARIANCE) -> float:
        """Per transition, in original units: d log(lactate) / d lactate = 1 / lactate."""
        before, context, actions, after = self.linked(cohort)
        residual = after - centre(before, context, actions)
        distance = (residual @ np.linalg.inv(covariance) * residual).sum(1)
        constant = 2 * math.log(2 * math.pi) + np.linalg.slogdet(covariance)[1]
        return float((-0.5 * (distance + constant) - after[:, 1]).mean())


@pytest.fixture(scope="module")
def recovered() -> Recovered:
    train = make_cohort(linear, subjects=300, seed=2)
    settings = FitSettings(epochs=80, learning_rate=5e-3)
    model = fit(LocationScale(SCHEMA, hidden=(16,)), train, settings=settings, seed=0)
    return Recovered(model, train, make_cohort(linear, subjects=300, seed=3))


def test_log_likelihood_comes_close_to_the_truth_and_far_above_persistence(recovered):
    truth = recovered.true_log_likelihood(recovered.test)
    fitted = evaluate(recovered.model, recovered.test, coordinates="original")
    before, _, _, after = recovered.linked(recovered.test)
    persistence = recovered.true_log_likelihood(
        recovered.test, centre=lambda states, *_: states, covariance=np.cov((after - before).T)
    )
    # Nobody beats the truth but by luck: a log-likelihood of 3300 transitions has a standard error of 0.02 nats.
    assert truth - 0.05 < fitted < truth + 0.02
    assert fitted > persistence + 0.8


def test_slopes_and_noise_covariance_are_those_of_the_truth(recovered):
    before, context, actions, after = recovered.linked(recovered.train)
    design = np.hstack([before, context, np.eye(3)[actions]])
    gram = np.linalg.inv(design.T @ design)
    columns = recovered.model.scaler.states
    rows = [
        torch.as_tensor(values, dtype=torch.float32)
        for values in (columns.encode(recovered.train.transitions().states), context)
    ]
    with torch.no_grad():
        states, context_rows = rows[0], torch.zeros_like(rows[1])

        def location(shift):
            return recovered.model.location_and_scale(states + shift, context_rows, torch.as_tensor(actions))[0]

        step = 0.1
        slopes = torch.stack([(location(s) - location(-s)).mean(0) / (2 * step) for s in torch.eye(2) * step], dim=1)
        scale = recovered.model.location_and_scale(states, context_rows, torch.as_tensor(actions))[1].mean(0)
        covariance = torch.outer(scale, scale) * recovered.model.prior.covariance()
    slopes = slopes.numpy() * columns.scale[:, None] / columns.scale
    covariance = covariance.numpy() * np.outer(columns.scale, columns.scale)
    # The standard errors of least squares, which is what an ideal learner has, plus the network's own bias.
    slope_error = np.sqrt(np.outer(COVARIANCE.diagonal(), gram.diagonal()[:2]))
    assert (np.abs(slopes - STATE) < 3 * slope_error + 0.05).all(), (slopes, STATE, slope_error)
    spread = np.outer(COVARIANCE.diagonal(), COVARIANCE.diagonal()) + COVARIANCE**2
    covariance_error = np.sqrt(spread / len(after))
    assert (np.abs(covariance - COVARIANCE) < 3 * covariance_error + 0.02).all(), (covariance, covariance_error)


def test_free_networks_fit_wavy_data_better_than_strongly_limited_ones():
    train, test = (make_cohort(wavy, subjects=80, seed=seed) for seed in (4, 5))
    settings = FitSettings(epochs=60, learning_rate=1e-2)
    free, limited = (
        fit(LocationScale(SCHEMA, hidden=(32,), lipschitz=limits), train, settings=settings)
        for limits in (None, (0.1, 0.1))
    )
    assert evaluate(free, test) > evaluate(limited, test) + 0.8


# --- what a likelihood is measured in


def test_density_in_original_units_integrates_to_one(recovered):
    """Over a grid of next states around a given one, in original units, logarithmic feature included."""
    first = np.array([0.3, 1.2])
    age = [[0.5], [0.5]]
    pressure, logs = np.linspace(-4, 4, 21), np.linspace(-2.5, 2.5, 21)
    episodes = [
        Episode(f"{i} {j}", SCHEMA, np.array([first, [p, math.exp(q)]]), [1, 0], age)
        for i, p in enumerate(pressure)
        for j, q in enumerate(logs)
    ]
    total = 0.0
    for episode in episodes:
        cell = (pressure[1] - pressure[0]) * (logs[1] - logs[0]) * episode.states[1, 1]  # d lactate = lactate d log
        total += cell * math.exp(evaluate(recovered.model, Cohort.from_episodes([episode]), coordinates="original"))
    assert total == pytest.approx(1.0, abs=1e-3)


def test_a_common_scaler_makes_models_of_different_scalers_comparable(recovered):
    model, test = recovered.model, recovered.test
    other = Scaler.fit(test)
    own, common, original = (evaluate(model, test, coordinates=c) for c in ("model", other, "original"))
    assert evaluate(model, test) == own
    assert evaluate(model, test, coordinates=model.scaler) == pytest.approx(own, abs=1e-12)
    # From the common coordinates to original units the same for every model.
    logs = np.log(test.transitions().next_states[:, 1]).mean()
    assert original == pytest.approx(common - np.log(other.states.scale).sum() - logs, abs=1e-9)
    assert common != pytest.approx(own, abs=1e-6)


def test_evaluation_does_not_depend_on_how_it_is_cut_into_batches(recovered, monkeypatch):
    whole = evaluate(recovered.model, recovered.test)
    monkeypatch.setattr("ifonly.models.fit.EVALUATION_ROWS", 100)
    assert evaluate(recovered.model, recovered.test) == pytest.approx(whole, abs=1e-6)


def test_evaluate_refuses_unknown_coordinates_and_foreign_scalers(recovered):
    with pytest.raises(InputError, match="choose 'model', 'original' or a Scaler"):
        evaluate(recovered.model, recovered.test, coordinates="raw")
    foreign = Schema(tuple(Feature(name, "dynamic") for name in "xyz"), SCHEMA.actions)
    with pytest.raises(InputError, match="other features"):
        evaluate(recovered.model, recovered.test, coordinates=Scaler.identity(foreign))


def test_coordinates_on_other_scales_are_a_change_of_variables(recovered):
    """Features as they are, whatever scale the model sees them on: original units."""
    as_they_are = Schema(tuple(Feature(feature.name, "dynamic") for feature in SCHEMA.dynamic), SCHEMA.actions)
    found = evaluate(recovered.model, recovered.test, coordinates=Scaler.identity(as_they_are))
    assert found == pytest.approx(evaluate(recovered.model, recovered.test, coordinates="original"), abs=1e-9)
