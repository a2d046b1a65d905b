"""What the past says beyond the present, in worlds where it is known whether anything is hidden."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from ifonly import ActionSpace, Cohort, Feature, LinearModel, ModelCheck, Schema, check_model
from ifonly.data.episode import Origin
from ifonly.evidence.check.history import choice_by_noise, noise_by_earlier
from ifonly.evidence.check.measure import between, lasting
from ifonly.evidence.check.model_check import Level
from ifonly.evidence.check.sample import NoiseSample
from ifonly.evidence.check.thresholds import default_thresholds
from ifonly.text.checks import finding_message

SUBJECTS, STEPS, DOSES = 200, 12, np.array([0.0, 1.0, 2.0])
WAYS = ("nothing", "bends", "habit", "seen", "price", "constant", "lingers")


def schema(actions: str) -> Schema:
    features = (Feature("pressure", "dynamic"), Feature("lactate", "dynamic"))
    if actions == "doses":
        return Schema(features, ActionSpace.from_vectors(DOSES[:, None].tolist()))
    return Schema(features, ActionSpace.categories(["none", "some", "much"]))


def record(way: str, *, actions: str = "doses", seed: int = 0) -> Cohort:
    """Episodes of z' = z / 2 - dose (1, 0) / 2 + noise, where doses follow the state, and something may be hidden.

    "bends": doses follow the state in a crooked way; "habit": they follow the dose before; "seen": something that comes
    and goes moves the first feature and raises doses; "price": it multiplies what the dose does and raises it;
    "constant": it never changes, and nobody sees it; "lingers": the dose before acts still.
    """
    rng = np.random.default_rng(seed)
    hidden, linger, before = rng.standard_normal(SUBJECTS), np.zeros(SUBJECTS), np.ones(SUBJECTS, dtype=int)
    states, chosen = np.empty((SUBJECTS, STEPS, 2)), np.empty((SUBJECTS, STEPS), dtype=np.int64)
    now = rng.standard_normal((SUBJECTS, 2))
    for step in range(STEPS):
        drive = np.sin(3 * now[:, 0]) * 2 if way == "bends" else now[:, 0]
        drive = drive + (way in ("seen", "price")) * 1.5 * hidden + (way == "habit") * 2.0 * (before - 1)
        logits = drive[:, None] * (DOSES - 1) + rng.gumbel(size=(SUBJECTS, 3))
        states[:, step], chosen[:, step] = now, logits.argmax(1)
        dose = DOSES[chosen[:, step]]
        pushed = {
            "seen": 0.8 * hidden,
            "price": 0.8 * hidden * (dose - 1),
            "constant": 0.8 * hidden,
            "lingers": -linger,
        }.get(way, np.zeros(SUBJECTS))
        now = now / 2 + rng.standard_normal(now.shape) / 2
        now[:, 0] += pushed - dose / 2
        linger, before = 0.5 * linger + 0.5 * dose, chosen[:, step]
        if way != "constant":
            hidden = 0.8 * hidden + 0.6 * rng.standard_normal(SUBJECTS)
    ids = tuple(f"episode {number}" for number in range(SUBJECTS))
    return Cohort(
        schema(actions),
        ids,
        np.arange(SUBJECTS + 1) * STEPS,
        states.reshape(-1, 2),
        np.empty((SUBJECTS * STEPS, 0)),
        chosen.reshape(-1),
    )


def least_squares(cohort: Cohort) -> LinearModel:
    """With an offset of its own for each action."""
    rows = cohort.transitions()
    inputs = np.column_stack([rows.states, np.eye(3)[rows.actions]])
    found = np.linalg.lstsq(inputs, rows.next_states, rcond=None)[0]
    scale = (rows.next_states - inputs @ found).std(axis=0)
    return LinearModel(cohort.schema, np.stack([found[:2].T] * 3), offsets=found[2:], noise_scale=scale)


def sampled(way: str, actions: str = "doses") -> NoiseSample:
    """Other episodes of such a world, under the least-squares model of some."""
    model = least_squares(record(way, actions=actions, seed=1))
    return NoiseSample.of(model.for_search(), record(way, actions=actions, seed=2), seed=0)


SIGNS = ("choice_by_noise", "noise_by_earlier", "noise_between")
EXPECTED = {
    "nothing": set(),
    "bends": set(),
    "habit": set(),
    "seen": {"noise_by_earlier"},
    "price": {"choice_by_noise", "noise_by_earlier"},
    "constant": {"noise_by_earlier", "noise_between"},
    "lingers": {"noise_by_earlier"},
}


@pytest.mark.parametrize("actions", ["doses", "categories"])
@pytest.mark.parametrize("way", WAYS)
def test_each_hidden_cause_leaves_its_signs_and_no_others(way: str, actions: str) -> None:
    """None of them is noticed by the correlation of successive noise: a model takes it for persistence."""
    sample, limits = sampled(way, actions), default_thresholds()
    choice, earlier, kept = choice_by_noise(sample, seed=0), noise_by_earlier(sample, seed=0)[0], between(sample)[0]
    assert choice is not None
    assert earlier is not None
    found = zip(SIGNS, (choice, earlier, kept), strict=True)
    assert {name for name, share in found if share.surely_above > limits.named(name).warn} == EXPECTED[way]
    successive = lasting(sample)
    assert successive is not None
    assert successive[0].from_zero() < limits.noise_lasting.warn


@pytest.fixture(scope="module")
def checks() -> Mapping[str, ModelCheck]:
    return {
        way: check_model(least_squares(record(way, seed=1)), record(way, seed=2))
        for way in ("nothing", "price", "constant")
    }


def test_signs_have_words_causes_and_remedies(checks: Mapping[str, ModelCheck]) -> None:
    price, constant = str(checks["price"]), str(checks["constant"])
    assert "the noise of earlier steps explains 1.9 %" in price
    assert "those who acted saw something" in price
    assert "actions of earlier steps predict another 4.0 %" in price
    assert "or what earlier actions left behind" in price
    assert "15 % of the variance of its noise lies between subjects" in constant
    assert "subject_effect" in constant
    assert checks["nothing"].verdict is Level.PASS
    (passed,) = (finding for finding in checks["nothing"].findings if finding.kind == "choice_by_noise")
    assert "does not predict actions" in str(finding_message(passed, checks["nothing"]))


def test_what_lies_between_subjects_is_their_share_of_the_variance() -> None:
    """Noise of variance 1/4 and a constant of variance 0.64 in the first feature, none in the second."""
    cohort = record("constant", seed=3)
    truth = LinearModel(
        cohort.schema,
        np.stack([np.eye(2) / 2] * 3),
        offsets=np.stack([-DOSES / 2, np.zeros(3)], axis=1),
        noise_scale=np.array([np.sqrt(0.25 + 0.64), 0.5]),
    )
    pulled, free = between(NoiseSample.of(truth.for_search(), cohort, seed=0))
    assert pulled.low < 0.64 / 0.89 < pulled.high
    assert pulled.high - pulled.low < 0.2
    assert free.low < 0 < free.high
    assert free.high < 0.05


def test_a_sign_of_the_past_needs_no_right_model() -> None:
    """A model that knows neither state nor actions: its noise is large and lasts, and says nothing about choices."""
    cohort = record("nothing", seed=4)
    ignorant = LinearModel(cohort.schema, np.zeros((3, 2, 2)), offsets=np.zeros((3, 2)), noise_scale=np.ones(2))
    sample = NoiseSample.of(ignorant.for_search(), cohort, seed=0)
    choice = choice_by_noise(sample, seed=0)
    assert choice is not None
    assert choice.low < 0.001
    assert all(one is not None and one.low < 0.01 for one in noise_by_earlier(sample, seed=0))


def test_only_measured_noise_counts() -> None:
    cohort = record("lingers", seed=5)
    origins = np.where(np.random.default_rng(0).random(cohort.states.shape) < 0.7, Origin.MEASURED, Origin.CARRIED)
    partly = Cohort(
        cohort.schema, cohort.ids, cohort.offsets, cohort.states, cohort.context, cohort.actions, origins=origins
    )
    sample = NoiseSample.of(least_squares(cohort).for_search(), partly, seed=0)
    assert sample.measured is not None
    changed = replace(sample, noise=np.where(sample.measured, sample.noise, 100.0))
    assert noise_by_earlier(changed, seed=0) == noise_by_earlier(sample, seed=0)
    assert choice_by_noise(changed, seed=0) == choice_by_noise(sample, seed=0)
    first = noise_by_earlier(sample, seed=0)[0]
    assert first is not None
    assert first.low is not None
    assert first.low > 0.05


def test_where_there_is_no_past_nothing_is_said() -> None:
    cohort = record("seen")
    short = Cohort(
        cohort.schema,
        cohort.ids[:50],
        np.arange(51) * 2,
        cohort.states[:100],
        cohort.context[:100],
        cohort.actions[:100],
    )
    check = check_model(least_squares(cohort), short)
    levels = {finding.kind: finding.level for finding in check.findings}
    assert levels["choice_by_noise"] is Level.UNJUDGED
    assert levels["noise_by_earlier"] is Level.UNJUDGED
    assert levels["noise_between"] is Level.UNJUDGED


def test_a_check_of_an_older_version_is_read(checks: Mapping[str, ModelCheck]) -> None:
    content = checks["nothing"].to_dict()
    content["version"] = 3
    del content["figures"]["choice_by_noise"]
    for item in content["figures"]["features"]:
        del item["by_earlier"], item["between"]
    for name in SIGNS:
        del content["thresholds"][name]
    again = ModelCheck.from_dict(content)
    assert again.figures.choice_by_noise is None
    assert again.thresholds == checks["nothing"].thresholds
