"""Only what was measured counts: values that were carried forward are no observations."""

from dataclasses import replace

import made_worlds as worlds
import numpy as np
import pytest
import torch

from ifonly import Cohort
from ifonly.evidence.check.ahead import HORIZONS, run_ahead
from ifonly.evidence.check.baselines import PERSISTENCE, baseline_log_prob, subject_folds
from ifonly.evidence.check.check import check_model
from ifonly.evidence.check.figures import ratio
from ifonly.evidence.check.measure import dependence, lasting, together
from ifonly.evidence.check.model_check import Level, ModelCheck
from ifonly.evidence.check.sample import NoiseSample
from ifonly.report.check_plots import check_figures


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return worlds.carried(800, seed=1)


@pytest.fixture(scope="module")
def sample(cohort: Cohort) -> NoiseSample:
    return NoiseSample.of(worlds.model().for_search(), cohort, seed=0)


@pytest.fixture(scope="module")
def check(cohort: Cohort) -> ModelCheck:
    return check_model(worlds.model(), cohort, by=["age"])


def with_origins(cohort: Cohort, origins: np.ndarray | None) -> Cohort:
    return Cohort(
        cohort.schema, cohort.ids, cohort.offsets, cohort.states, cohort.context, cohort.actions, origins=origins
    )


def test_a_right_model_of_what_was_measured_passes(check: ModelCheck) -> None:
    assert check.verdict is Level.PASS, check.details()
    assert check.figures.measured == pytest.approx({"pressure": 0.1, "lactate": 0.1}, abs=0.01)
    assert "only measured values count, 10" in str(check)
    assert ModelCheck.from_dict(check.to_dict()) == check


def test_and_fails_if_repeated_values_count(cohort: Cohort) -> None:
    assert check_model(worlds.model(), with_origins(cohort, None)).verdict is Level.FAIL


def test_a_wrong_model_of_what_was_measured_fails(cohort: Cohort) -> None:
    assert check_model(worlds.model(scale=worlds.SCALE / 2), cohort).verdict is Level.FAIL


def test_where_all_was_measured_nothing_changes() -> None:
    plain = worlds.record(80, seed=3)
    everything = with_origins(plain, np.zeros(plain.states.shape, dtype=np.uint8))
    assert check_model(worlds.model(), everything).figures == check_model(worlds.model(), plain).figures


def test_figures_are_those_of_measured_entries_by_hand(cohort: Cohort, sample: NoiseSample, check: ModelCheck) -> None:
    rows = cohort.transitions()
    for i, item in enumerate(check.figures.features):
        here = rows.measured[:, i]
        ranks, subjects = sample.ranks[here, i], rows.episode[here]
        inside = (np.abs(ranks - 0.5) <= 0.4).astype(float)
        assert item.coverage["80"] == ratio(inside, np.ones(here.sum()), subjects)
        scores = torch.special.ndtri(torch.as_tensor(ranks)).numpy()
        assert item.centre.value == pytest.approx(scores.mean())
        assert item.size.value == pytest.approx((scores**2).mean())
        shares = np.array([(ranks <= q).mean() for q in np.arange(1, 100) / 100])
        assert item.distance.value == pytest.approx(np.abs(shares - np.arange(1, 100) / 100).max())
        bars, _ = np.histogram(ranks, bins=20, range=(0, 1))
        assert item.ranks == pytest.approx(tuple(bars / here.sum()))
        treat = here & (rows.actions == 1)
        part = next(one for one in check.figures.parts if one.name == "treat").features[i]
        assert part.measured.entries == treat.sum()
        assert part.bias.value == pytest.approx(sample.scores[treat, i].mean())


def test_densities_are_of_measured_entries(cohort: Cohort, sample: NoiseSample) -> None:
    """Entries of this model are independent: each measured one adds its own density, and nothing else does."""
    measured = cohort.transitions().measured
    alone = -0.5 * (sample.noise**2 + np.log(2 * np.pi)) - np.log(worlds.SCALE)
    np.testing.assert_allclose(sample.log_prob, np.where(measured, alone, 0.0).sum(axis=1), atol=1e-7)
    found = baseline_log_prob(sample, seed=0)[PERSISTENCE]
    assert (found[~measured.any(axis=1)] == 0).all()
    folds = subject_folds(sample.subject, seed=0)
    change = (sample.rows.next_states - sample.rows.states).numpy()
    only, train = measured[:, 0] & ~measured[:, 1] & (folds == 0), measured[:, 0] & (folds != 0)
    normal = torch.distributions.Normal(change[train, 0].mean(), change[train, 0].std())
    exact = normal.log_prob(torch.as_tensor(change[only, 0])).numpy()
    np.testing.assert_allclose(found[only], exact, rtol=1e-5, atol=1e-7)


def test_noise_that_lasts_is_looked_for_between_successive_measurements(sample: NoiseSample) -> None:
    products, squares = [], []
    measured = sample.measured[:, 0]
    scores = sample.scores[:, 0] - sample.scores[measured, 0].mean()
    for episode in range(800):
        rows = np.flatnonzero((sample.episode == episode) & measured)
        products += list(scores[rows[:-1]] * scores[rows[1:]])
        squares += list(scores[rows[:-1]] ** 2)
    assert lasting(sample)[0].value == pytest.approx(sum(products) / sum(squares))


def test_pairs_and_regressions_use_rows_in_which_features_were_measured(sample: NoiseSample) -> None:
    both = sample.measured.all(axis=1)
    scores = [sample.scores[:, i] - sample.scores[sample.measured[:, i], i].mean() for i in (0, 1)]
    deviations = [sample.scores[sample.measured[:, i], i].std() for i in (0, 1)]
    (pair,) = together(sample)
    found = (scores[0] * scores[1])[both].mean() / (deviations[0] * deviations[1])
    assert pair.excess.value + pair.expected == pytest.approx(found)
    spoiled = np.array(sample.noise)
    spoiled[~sample.measured] = 1e6  # nobody may look at it
    other = replace(sample, noise=spoiled)
    assert dependence(other, seed=0) == dependence(sample, seed=0)
    assert lasting(other) == lasting(sample)
    assert together(other) == together(sample)


def test_courses_are_compared_with_what_was_measured(sample: NoiseSample) -> None:
    found = run_ahead(sample, seed=0)
    assert tuple(ahead.steps for ahead in found) == HORIZONS
    one = found[0]
    assert one.starts == 4000
    starts = np.sort(np.random.default_rng(0).permutation(len(sample))[:4000])
    here = starts[sample.measured[starts, 0]]
    change = (sample.rows.next_states - sample.rows.states).numpy()[here, 0]
    assert one.persistence[0] == pytest.approx(np.abs(change).mean())
    assert one.subjects[0] == len(np.unique(sample.subject[here]))
    for ahead in found:
        for share in ahead.coverage["80"]:
            assert share.low - 0.03 <= 0.8 <= share.high + 0.03


def test_features_that_hardly_anybody_has_are_named_and_not_judged(cohort: Cohort) -> None:
    origins = np.array(cohort.origins)
    origins[30:, 1] = 1  # only in the first three subjects
    check = check_model(worlds.model(), with_origins(cohort, origins))
    assert [feature.name for feature in check.figures.features] == ["pressure"]
    assert "lactate was measured in fewer than 10 subjects" in check.details()
    assert {item.name for part in check.figures.parts for item in part.features} == {"pressure"}
    assert check_figures(check)
    origins[30:] = 1
    nothing = check_model(worlds.model(), with_origins(cohort, origins))
    assert nothing.verdict is Level.UNJUDGED
