"""Judging learned models by the truth: perfect for the truth itself, honest about a model that is wrong."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from paper.accuracy import (
    METHODS,
    AccuracyReport,
    counterfactual_accuracy,
    random_changes,
    recommendation_quality,
    true_optima,
)
from paper.accuracy_study import AccuracySettings, accuracy_by_cohort_size
from paper.asking import Question

from ifonly.data import Cohort, Scaler
from ifonly.errors import InputError
from ifonly.models import LocationScale
from ifonly.models.fit import FitSettings, fit
from ifonly.progress import Tick
from ifonly.search.exhaustive import Exhaustive
from ifonly.simulate import SepsisWorld, sepsis_schema, simulate_cohort

WORLD = SepsisWorld()


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return simulate_cohort(12, seed=11, horizon=(5, 8))


def without_treatment_effects() -> SepsisWorld:
    """A wrong model: right about everything but treatment, which it believes to do nothing."""
    model = copy.deepcopy(WORLD)
    model.response_effects.zero_()
    model.drift[:, 13:17] = 0.0
    return model


def perverse() -> SepsisWorld:
    """A wrong model that takes every effect of treatment for its opposite."""
    model = copy.deepcopy(WORLD)
    model.response_effects.neg_()
    model.drift[:, 13:17] *= -1.0
    return model


class TestRandomChanges:
    def test_number_place_and_kind_of_changes(self, cohort: Cohort) -> None:
        episode = cohort[0]
        sequences = random_changes(episode, changes=3, count=4000, rng=np.random.default_rng(0))
        changed = sequences != episode.actions
        counts = np.bincount(changed.sum(axis=1), minlength=4)
        assert counts[0] == 0
        assert counts.sum() == 4000
        assert (np.abs(counts[1:] - 4000 / 3) < 5 * math.sqrt(4000 * 2 / 9)).all()
        assert not changed[:, -1].any()
        assert changed[:, :-1].any(axis=0).all()
        alternatives = sequences[changed[:, 0], 0]
        assert set(alternatives) == set(range(25)) - {int(episode.actions[0])}

    def test_never_more_changes_than_steps_that_matter(self, cohort: Cohort) -> None:
        episode = cohort[0]
        sequences = random_changes(episode, changes=99, count=50, rng=np.random.default_rng(0))
        assert (sequences != episode.actions).sum(axis=1).max() <= len(episode) - 1


class TestCounterfactualAccuracy:
    def test_truth_makes_no_error(self, cohort: Cohort) -> None:
        report = counterfactual_accuracy(WORLD, WORLD, cohort, sequences=5)
        assert report.by_feature_scaled["learned"].max() < 1e-9
        assert report.outcome["learned"] < 1e-9
        assert report.skill == pytest.approx(1.0)
        assert (report.by_feature["no effect"] > 0).all()
        assert (report.by_feature["no noise"] > report.by_feature["no effect"]).all()

    def test_model_that_believes_in_no_effect_equals_that_baseline(self, cohort: Cohort) -> None:
        report = counterfactual_accuracy(WORLD, without_treatment_effects(), cohort, sequences=5)
        # Not exactly: the size of its noise still depends on the dose.
        assert report.skill == pytest.approx(0.0, abs=0.2)
        assert counterfactual_accuracy(WORLD, perverse(), cohort, sequences=5).skill < -0.5

    def test_figures_are_the_means_they_claim_to_be(self, cohort: Cohort) -> None:
        """Recomputed from scratch, sequence by sequence and step by step."""
        model = perverse()
        report = counterfactual_accuracy(WORLD, model, cohort, sequences=4, changes=2, seed=7)
        encode = Scaler.fit(cohort).states.encode
        original, scaled, by_step, outcomes = [], [], {}, []
        for position, episode in enumerate(cohort):
            truth, learned = (Question(None).problem(episode, m) for m in (WORLD, model))
            rng = np.random.default_rng([7, position])
            for sequence in random_changes(episode, changes=2, count=4, rng=rng):
                row = torch.as_tensor(sequence)[None]
                true_states, guess = (p.decode(p.rollout(row)[0][0]) for p in (truth, learned))
                outcomes.append(abs(truth.outcome(sequence) - learned.outcome(sequence)))
                first = int(np.flatnonzero(sequence != episode.actions)[0])
                for step in range(first + 1, len(episode)):
                    original.append(np.abs(guess[step] - true_states[step]))
                    scaled.append(np.abs(encode(guess[step]) - encode(true_states[step])))
                    by_step.setdefault(step - first, []).append(scaled[-1].mean())
        assert report.by_feature["learned"] == pytest.approx(np.mean(original, axis=0))
        assert report.by_feature_scaled["learned"] == pytest.approx(np.mean(scaled, axis=0))
        assert report.outcome["learned"] == pytest.approx(np.mean(outcomes))
        wanted = [np.mean(by_step[step]) for step in sorted(by_step)]
        assert report.by_step["learned"] == pytest.approx(wanted)

    def test_same_seed_same_report(self, cohort: Cohort) -> None:
        one, two, other = (
            counterfactual_accuracy(WORLD, perverse(), cohort, sequences=2, seed=seed) for seed in (1, 1, 2)
        )
        assert one.to_dict() == two.to_dict()
        assert one.to_dict() != other.to_dict()

    def test_prints_and_converts(self, cohort: Cohort) -> None:
        ticks: list[Tick] = []
        report = counterfactual_accuracy(WORLD, perverse(), cohort, sequences=2, progress=ticks.append)
        assert ticks[-1].done == ticks[-1].total == 12
        text = str(report)
        assert "12 episodes x 2 random sequences with up to 3 changes" in text
        assert all(f"  {name} " in text for name in report.features)
        assert all(method in text for method in METHODS)
        content = json.loads(json.dumps(report.to_dict(), allow_nan=False))
        assert content["error_by_feature"]["learned"] == report.by_feature["learned"].tolist()

    @pytest.mark.parametrize("wrong", [{"changes": 0}, {"sequences": 0}])
    def test_wrong_settings_are_refused(self, cohort: Cohort, wrong: dict[str, int]) -> None:
        with pytest.raises(InputError, match="at least 1"):
            counterfactual_accuracy(WORLD, WORLD, cohort, **wrong)


class TestRecommendations:
    def test_truth_recommends_the_optimum(self, cohort: Cohort) -> None:
        report = recommendation_quality(WORLD, WORLD, cohort, max_changes=1, solver=Exhaustive())
        assert report.regret == pytest.approx(np.zeros(len(cohort)), abs=1e-9)
        assert report.promised == pytest.approx(report.gain)
        assert (report.share_realised, report.share_helpful, report.share_proven) == (pytest.approx(1.0), 1.0, 1.0)

    def test_perverse_model_does_harm_and_nothing_beats_the_optimum(self, cohort: Cohort) -> None:
        report = recommendation_quality(WORLD, perverse(), cohort, max_changes=1)
        assert (report.regret >= -1e-9).all()
        assert report.share_helpful < 0.5
        assert report.share_realised < 0
        assert report.promised.mean() > 0 > report.gain.mean()

    def test_realised_outcome_is_the_true_outcome_of_the_advice(self, cohort: Cohort) -> None:
        model = perverse()
        report = recommendation_quality(WORLD, model, [cohort[0]], max_changes=1, solver=Exhaustive())
        truth, learned = (Question(1).problem(cohort[0], m) for m in (WORLD, model))
        every = torch.stack([truth.observed_actions.clone() for _ in range(25 * truth.horizon)])
        for index in range(len(every)):
            every[index, index // 25] = index % 25
        advice = every[int(learned.rollout(every)[1].argmax())]
        (row,) = report.rows
        assert row.observed == pytest.approx(-cohort[0].states[:, -1].sum())
        assert row.realised == pytest.approx(truth.outcome(advice))
        assert row.promised == pytest.approx(learned.outcome(advice))
        assert row.optimum == pytest.approx(float(truth.rollout(every)[1].max()))

    def test_optima_can_be_shared_but_must_fit(self, cohort: Cohort) -> None:
        asked = [cohort[0], cohort[1]]
        optima = true_optima(WORLD, asked, max_changes=1)
        shared = recommendation_quality(WORLD, perverse(), asked, max_changes=1, optima=optima)
        assert shared == recommendation_quality(WORLD, perverse(), asked, max_changes=1)
        with pytest.raises(InputError, match="is for 1 changes, not 2"):
            recommendation_quality(WORLD, perverse(), asked, max_changes=2, optima=optima)
        with pytest.raises(InputError, match=f"no true optimum for episode {cohort.ids[2]!r}"):
            recommendation_quality(WORLD, perverse(), [cohort[2]], max_changes=1, optima=optima)
        with pytest.raises(InputError, match="at least one episode"):
            recommendation_quality(WORLD, perverse(), [])

    def test_prints_and_converts(self, cohort: Cohort) -> None:
        report = recommendation_quality(WORLD, perverse(), [cohort[0]], max_changes=1)
        assert "up to 1 change for 1 episode (100% of the true optima proven)" in str(report)
        content = json.loads(json.dumps(report.to_dict(), allow_nan=False))
        assert content["rows"][0]["episode"] == cohort.ids[0]
        assert content["share_helpful"] == report.share_helpful


class TestStudy:
    def test_small_study_end_to_end(self) -> None:
        settings = AccuracySettings(patients=6, solved=2, horizon=6, max_changes=1, sequences=3, epochs=2)
        template = LocationScale(sepsis_schema(), hidden=(8,), lipschitz=(1.0, 0.1))
        ticks: list[Tick] = []
        study = accuracy_by_cohort_size([40, 20], settings, model=template, progress=ticks.append)
        assert [row.size for row in study.rows] == [20, 40]
        assert {"simulate", "fit", "true optima", "accuracy", "recommendations", "cohort sizes"} == {
            tick.stage for tick in ticks
        }
        assert all(row.log_likelihood_gap > 0 for row in study.rows)
        again = accuracy_by_cohort_size([20, 40], settings, model=template)
        content = json.loads(json.dumps(study.to_dict(), allow_nan=False))
        assert content == json.loads(json.dumps(again.to_dict()))
        assert content["model"]["kind"] == "location-scale"
        assert "with 40 training patients" in str(study)

    def test_recommendations_can_be_left_out(self) -> None:
        settings = AccuracySettings(patients=3, solved=0, horizon=5, sequences=2, epochs=1)
        study = accuracy_by_cohort_size([15], settings, model=LocationScale(sepsis_schema(), hidden=(4,)))
        assert study.rows[0].judgement.recommendations is None
        assert study.to_dict()["rows"][0]["recommendations"] is None
        assert "recommendations" not in str(study)

    @pytest.mark.parametrize("wrong", [{"patients": 0}, {"epochs": 0}, {"patients": 5, "solved": 6}])
    def test_wrong_settings_are_refused(self, wrong: dict[str, int]) -> None:
        with pytest.raises(InputError, match=list(wrong)[-1]):
            AccuracySettings(**wrong)

    @pytest.mark.parametrize("sizes", [[], [1]])
    def test_wrong_sizes_are_refused(self, sizes: list[int]) -> None:
        with pytest.raises(InputError, match="sizes"):
            accuracy_by_cohort_size(sizes)


def test_learning_beats_the_naive_answers() -> None:
    """A fitted model's counterfactuals are closer to the truth than 'no effect' and 'no noise', on every measure."""
    train, test = simulate_cohort(800, seed=0), simulate_cohort(40, seed=1, horizon=10)
    settings = FitSettings(epochs=30, learning_rate=5e-3)
    model = fit(LocationScale(train.schema, hidden=(48,)), train, settings=settings)
    report: AccuracyReport = counterfactual_accuracy(WORLD, model, test, sequences=10)
    assert report.skill > 0.15
    for naive in ("no effect", "no noise"):
        assert report.outcome["learned"] < 0.9 * report.outcome[naive]
        assert (report.by_step["learned"] < report.by_step[naive]).all()
