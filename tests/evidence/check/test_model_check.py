"""Verdicts: right models pass, wrong ones are caught for the right reason, and nothing makes a check crash."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import made_worlds as worlds
import numpy as np
import polars as pl
import pytest
import torch
from effort import long

from ifonly import ActionSpace, Cohort, Feature, LinearModel, LocationScale, Schema, save_model, simulate
from ifonly.errors import InputError, SchemaMismatchError, StoreError
from ifonly.evidence.check.check import check_model
from ifonly.evidence.check.figures import Estimate
from ifonly.evidence.check.judge import Candidate, Judge
from ifonly.evidence.check.model_check import Finding, Level, ModelCheck, Where, stored_check
from ifonly.evidence.check.thresholds import default_thresholds
from ifonly.text.catalogue import catalogue
from ifonly.text.checks import concern_message, finding_message, place_message

Checked = Callable[[str], ModelCheck]


def of_kind(check: ModelCheck, kind: str) -> Finding:
    (finding,) = (finding for finding in check.findings if finding.kind == kind)
    return finding


def text_of(check: ModelCheck, kind: str) -> str:
    return str(finding_message(of_kind(check, kind), check))


@pytest.mark.parametrize("name", ["right", "fitted"])
def test_a_right_model_passes(checked: Checked, name: str) -> None:
    check = checked(name)
    assert check.verdict is Level.PASS, check.details()
    assert {finding.level for finding in check.findings} == {Level.PASS}
    assert not any(finding.places for finding in check.findings)


@pytest.mark.parametrize("kind", ["noise_by_state", "noise_by_action", "noise_size"])
def test_noise_that_is_surely_not_predicted_is_no_reason_to_warn(checked: Checked, kind: str) -> None:
    """Out of sample a regression on nothing but chance does worse than none: with few subjects, surely so."""
    check = checked("right")
    field = {"noise_by_state": "by_state", "noise_by_action": "by_action", "noise_size": "varying_size"}[kind]

    def judged(share: Estimate) -> Level:
        features = tuple(replace(item, **{field: share}) for item in check.figures.features)
        judge = Judge(replace(check.figures, features=features), default_thresholds(), 2)
        (finding,) = (finding for finding in judge.findings() if finding.kind == kind)
        return finding.level

    assert judged(Estimate(-0.9, -0.95, -0.85)) is Level.PASS
    assert judged(Estimate(0.9, 0.85, 0.95)) is Level.FAIL
    assert judged(Estimate(0.9)) is Level.PASS  # too few subjects to be sure


@pytest.mark.parametrize("subjects", [12, 20])
def test_few_subjects_of_a_right_model_do_not_warn_by_what_cannot_be_predicted(subjects: int) -> None:
    shares = []
    for seed in range(8):
        check = check_model(worlds.model(), worlds.record(subjects, seed=seed))
        features = check.figures.features
        shares += [share for item in features for share in (item.by_state, item.by_action, item.varying_size)]
        for kind in ("noise_by_state", "noise_by_action", "noise_size"):
            assert of_kind(check, kind).level is Level.PASS, check.details()
    assert min(share.surely_below for share in shares) < -0.02, "none would have been mistaken for a warning"


def test_the_simulated_truth_passes() -> None:
    check = check_model(simulate.SepsisWorld(), simulate.simulate_cohort(150, seed=3), by=["gender"])
    assert check.verdict is Level.PASS, check.details()


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("actions ignored", "noise_by_action", "pressure: the action predicts another"),
        ("a lag removed", "noise_by_state", "most along lactate"),
        ("too little data", "gain_over_linear", "worse than a linear model"),
        ("heavy tails", "distance", "tails are heavier"),
        ("varying size", "noise_size", "the size of its noise varies by about"),
        ("noise together", "noise_together", "pressure and lactate: their noise has correlation +0.3"),
        ("hidden factor", "noise_lasting", "something that matters is not in the state"),
        ("too sure", "coverage", "they are too narrow"),
        ("shifted", "distance", "mmHg lower than predicted"),
    ],
)
def test_a_wrong_model_is_caught_for_the_right_reason(checked: Checked, name: str, kind: str, words: str) -> None:
    check = checked(name)
    finding = of_kind(check, kind)
    assert finding.level in (Level.WARN, Level.FAIL), check.details()
    assert words in text_of(check, kind)
    assert check.verdict is max((f.level for f in check.findings), key=[Level.PASS, Level.WARN, Level.FAIL].index)


@pytest.mark.parametrize(
    ("name", "innocent"),
    [
        ("actions ignored", {"noise_by_state", "noise_lasting", "gain_over_persistence"}),
        ("a lag removed", {"noise_by_action", "coverage", "noise_together"}),
        ("heavy tails", {"noise_by_state", "noise_by_action", "noise_lasting", "skill_ahead"}),
        ("varying size", {"noise_by_action", "noise_lasting", "skill_ahead"}),
        ("noise together", {"distance", "coverage", "noise_by_state", "noise_by_action"}),
        ("hidden factor", {"distance", "coverage", "noise_by_action"}),
        ("too sure", {"noise_by_state", "noise_by_action", "noise_size", "noise_lasting"}),
    ],
)
def test_and_not_for_wrong_ones(checked: Checked, name: str, innocent: set[str]) -> None:
    levels = {finding.kind: finding.level for finding in checked(name).findings}
    assert {kind: levels[kind] for kind in innocent} == dict.fromkeys(innocent, Level.PASS)


def test_the_worst_comes_first_and_each_place_has_words(checked: Checked) -> None:
    check = checked("actions ignored")
    order = [Level.FAIL, Level.WARN, Level.UNJUDGED, Level.PASS]
    levels = [order.index(finding.level) for finding in check.findings]
    assert levels == sorted(levels)
    places = of_kind(check, "part_by_action").places
    assert [order.index(place.level) for place in places] == sorted(order.index(place.level) for place in places)
    texts = [str(place_message(place, check)) for place in places]
    assert any("mmHg higher than predicted" in text and "'treat more'" in text for text in texts)
    assert str(check).splitlines()[0].startswith(f"model {check.model}: fail: ")
    assert len(check.details()) > len(str(check))


def test_only_one_group_is_off() -> None:
    """The model knows nothing of age, and only the old are few enough for this to be about them."""
    cohort = worlds.record(500, seed=11)
    old = np.repeat(cohort.context[cohort.offsets[:-1], 0] > 1.0, 10)
    states = np.array(cohort.states)
    states[old, 0] += 0.8 * np.tile(np.arange(10), 500)[old]  # they drift
    drifting = Cohort(worlds.SCHEMA, cohort.ids, cohort.offsets, states, cohort.context, cohort.actions)
    check = check_model(worlds.model(), drifting, by={"age": (-1.0, 1.0)})
    places = of_kind(check, "part_by_group").places
    assert ("pressure", "age (years)", ">= 1") in {
        (one.where.feature, one.where.grouping, one.where.group) for one in places
    }
    assert {one.where.group for one in places} == {">= 1"}
    assert "pressure where age (years) is >= 1" in check.details()


def test_groups_from_a_table() -> None:
    cohort = worlds.record(60, seed=12)
    table = pl.DataFrame({"episode": cohort.ids, "ward": ["north", "south"] * 30})
    parts = check_model(worlds.model(), cohort, by=["ward"], values=table).figures.parts
    assert [(part.name, part.transitions) for part in parts if part.grouping == "ward"] == [
        ("north", 270),
        ("south", 270),
    ]
    with pytest.raises(InputError, match="there is no such feature or column"):
        check_model(worlds.model(), cohort, by=["ward"])
    with pytest.raises(InputError, match="list of names"):
        check_model(worlds.model(), cohort, by="age")


def test_the_same_seed_gives_the_same_check_and_json_keeps_it(checked: Checked) -> None:
    cohort = worlds.record(80, seed=13)
    one, two = (check_model(worlds.model(), cohort, by=["age"]) for _ in range(2))
    assert one == two
    assert ModelCheck.from_dict(json.loads(json.dumps(one.to_dict(), allow_nan=False))) == one
    wrong = checked("too little data")
    assert ModelCheck.from_dict(json.loads(json.dumps(wrong.to_dict(), allow_nan=False))) == wrong


def test_a_check_stores_codes_names_and_numbers_and_no_sentence(checked: Checked) -> None:
    check = checked("too little data")
    names = {"pressure", "lactate", "age", "wait", "treat", "treat more", "action", "mmHg", "mmol/L"}
    names |= {"fail", "warn", "pass", "not judged", "50", "80", "95", check.model, check.cohort, check.ifonly}
    names |= {code.partition(".")[2] for code in catalogue() if code.startswith(("cause.", "remedy."))}
    names |= {"ifonly.model-check", *vars(check.thresholds), *(finding.kind for finding in check.findings)}
    assert check.concerns()
    assert set(strings_in(check.to_dict())) <= names


def strings_in(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for item in content.values() if isinstance(content, dict) else content:
            yield from strings_in(item)


def test_every_kind_of_concern_has_words(checked: Checked) -> None:
    told = {code.removeprefix("concern.") for code in catalogue() if code.startswith("concern.")}
    found = {finding.kind for name in worlds.SCENARIOS for finding in checked(name).findings}
    assert found <= told
    assert all(str(concern_message(kind)) for kind in told)


def explained(kind: str, estimate: Estimate) -> Level:
    return Candidate(kind, estimate, Where(feature="pressure")).judged(1, default_thresholds()).level


@pytest.mark.parametrize("kind", ["noise_by_state", "noise_by_action", "noise_size"])
def test_a_negative_explained_share_is_no_evidence(kind: str) -> None:
    """A regression that does worse than none, out of sample, explains nothing: surely so with a narrow interval."""
    assert explained(kind, Estimate(-0.6, -0.7, -0.5)) is Level.PASS
    assert explained(kind, Estimate(0.6, 0.5, 0.7)) is Level.FAIL


@pytest.mark.parametrize("kind", ["noise_lasting", "noise_together", "coverage", "bias_of_part"])
def test_other_figures_are_evidence_on_both_sides_of_zero(kind: str) -> None:
    worst = Level.WARN if kind == "noise_together" else Level.FAIL  # counterfactuals do not depend on it
    assert explained(kind, Estimate(-0.9, -0.95, -0.85)) is explained(kind, Estimate(0.9, 0.85, 0.95)) is worst


# Several steps ahead


ONE_STEP = (
    "distance",
    "coverage",
    "noise_by_state",
    "noise_by_action",
    "noise_size",
    "noise_lasting",
    "part_by_action",
)


@long
def test_a_model_that_drifts_on_its_own_cannot_pass() -> None:
    """It is right one step ahead of whatever was recorded; only courses show what is wrong."""
    cohort = worlds.record(300, seed=2, steps=13)
    levels = {}
    for drift in (0.0, 0.2, 1.5):
        check = check_model(worlds.drifting(cohort, drift), cohort)
        assert {of_kind(check, kind).level for kind in ONE_STEP} == {Level.PASS}
        levels[drift] = (check.verdict, of_kind(check, "bias_ahead").level)
        assert "drift" in text_of(check, "bias_ahead")
    assert levels[0.0] == (Level.PASS, Level.PASS)
    assert levels[0.2] == (Level.WARN, Level.WARN)
    assert levels[1.5] == (Level.FAIL, Level.FAIL)


# Degenerate input


def test_too_few_subjects_cannot_be_judged() -> None:
    for count in (1, 4, 9):
        check = check_model(worlds.model(), worlds.record(count, seed=1))
        assert check.verdict is Level.UNJUDGED
        assert check.headline().startswith(f"cannot be judged: {count} subject")
        assert not check.figures.features
    few = check_model(worlds.model(), worlds.record(30, seed=1))
    assert few.verdict is Level.WARN
    assert "only 30 subjects" in text_of(few, "subjects")


def test_gross_errors_are_noticed_with_few_subjects() -> None:
    assert check_model(worlds.model(scale=worlds.SCALE / 10), worlds.record(15, seed=1)).verdict is Level.FAIL


def test_episodes_of_two_steps() -> None:
    check = check_model(worlds.model(), worlds.record(300, steps=2, seed=1))
    assert check.verdict is Level.PASS, check.details()
    assert of_kind(check, "noise_lasting").level is Level.UNJUDGED
    assert [horizon.steps for horizon in check.figures.ahead] == [1]


def test_a_constant_feature() -> None:
    cohort = worlds.record(80, seed=1)
    states = np.array(cohort.states)
    states[:, 1] = 1.0
    still = Cohort(worlds.SCHEMA, cohort.ids, cohort.offsets, states, cohort.context, cohort.actions)
    check = check_model(worlds.model(), still)
    assert "lactate never changes" in text_of(check, "constant")
    assert [feature.name for feature in check.figures.features] == ["pressure"]
    assert not check.figures.gains
    assert of_kind(check, "gain_over_linear").level is Level.UNJUDGED


def test_actions_never_and_rarely_taken_are_named_not_judged() -> None:
    check = check_model(worlds.model(), worlds.record(100, seed=1, weights=[0.99, 0.01, 0.0]))
    text = text_of(check, "parts_left_out")
    assert "1 absent from these episodes (treat more)" in text
    assert "1 too rare in them to be judged (treat)" in text
    assert check.verdict is Level.PASS, check.details()


def test_one_feature_without_context_or_choice() -> None:
    schema = Schema((Feature("pain", "dynamic"),), ActionSpace.categories(["wait"]))
    rng = np.random.default_rng(0)
    cohort = Cohort(
        schema,
        ids=tuple(f"e{i}" for i in range(80)),
        offsets=np.arange(81) * 6,
        states=rng.normal(size=(480, 1)),
        context=np.empty((480, 0)),
        actions=np.zeros(480, dtype=int),
    )
    check = check_model(LinearModel(schema, [[[0.0]]]), cohort)
    assert check.verdict is Level.PASS, check.details()
    assert not [finding for finding in check.findings if finding.kind == "noise_together"]


@pytest.mark.parametrize("scale", [1e-3, 1e-60, 1e-200])
def test_noise_of_any_size(scale: float) -> None:
    check = check_model(worlds.model(scale=[scale, scale]), worlds.record(60, seed=1))
    assert check.verdict is Level.FAIL
    json.dumps(check.to_dict(), allow_nan=False)


class _SometimesNothing(LinearModel):
    """Abducts NaN where pressure is high."""

    def abduct(self, states, context, actions, next_states):
        noise = super().abduct(states, context, actions, next_states)
        return torch.where(states[..., :1] > self.limit, torch.nan, noise)


@pytest.mark.parametrize(("limit", "words"), [(1.5, "of the transitions"), (-1e9, "at 100 % of the transitions")])
def test_noise_that_is_not_finite(limit: float, words: str) -> None:
    model = _SometimesNothing(worlds.SCHEMA, np.stack([worlds.STATE] * 3), offsets=worlds.ACTION)
    model.limit = limit
    check = check_model(model, worlds.record(60, seed=1))
    assert check.verdict is Level.FAIL
    assert words in text_of(check, "not_finite")


def test_a_network_with_weights_that_are_not_finite() -> None:
    for lipschitz in (None, (1.0, 0.1)):
        model = LocationScale(worlds.SCHEMA, hidden=(4,), lipschitz=lipschitz)
        with torch.no_grad():
            for weights in model.parameters():
                weights.fill_(torch.nan)
        check = check_model(model, worlds.record(60, seed=1))
        assert check.verdict is Level.FAIL
        assert check.concerns()[0].kind == "not_finite"


def test_a_model_that_explodes() -> None:
    check = check_model(worlds.model(state=np.full((2, 2), 1e60)), worlds.record(60, seed=1))
    assert check.verdict is Level.FAIL
    assert "simulated courses" in text_of(check, "diverges")
    json.dumps(check.to_dict(), allow_nan=False)


def test_another_schema_is_refused() -> None:
    with pytest.raises(SchemaMismatchError):
        check_model(worlds.model(), simulate.simulate_cohort(3, seed=0))


# Limits, privacy, files


def test_own_limits_decide(checked: Checked) -> None:
    name = "hidden factor"
    assert checked(name).verdict is Level.WARN
    strict = default_thresholds().changed({"noise_lasting": {"warn": 0.05, "fail": 0.1}})
    check = check_model(*worlds.SCENARIOS[name](), thresholds=strict)
    assert check.verdict is Level.FAIL
    assert check.to_dict()["thresholds"]["noise_lasting"] == {"warn": 0.05, "fail": 0.1}


def test_episodes_of_the_fit_are_a_warning() -> None:
    check = check_model(worlds.model(), worlds.record(60, seed=1), seen_in_training=True)
    assert check.verdict is Level.WARN
    assert "that the model was fitted to" in str(check)


def test_figures_of_few_subjects_are_hidden() -> None:
    """Three subjects are treated, one is old; nothing is said about them, not even how many transitions they have."""
    cohort = worlds.record(60, seed=1)
    actions, context = np.zeros_like(cohort.actions), np.zeros_like(cohort.context)
    actions[:30], context[:10] = 1, 9.0
    few = Cohort(worlds.SCHEMA, cohort.ids, cohort.offsets, cohort.states, context, actions)
    check = check_model(worlds.model(), few, by=["age"])
    hidden = [part for part in check.figures.parts if part.transitions is None]
    assert [part.name for part in hidden] == ["treat", "9"]
    assert all(part.gain is None and not part.features and part.subjects is None for part in hidden)
    shown = default_thresholds().changed({"smallest_cell": 1})
    check = check_model(worlds.model(), few, by=["age"], thresholds=shown)
    assert {part.name: part.transitions for part in check.figures.parts}["treat"] == 27
    ids = set(cohort.ids)
    assert not [text for text in json.dumps(check.to_dict()).split('"') if text in ids]


def test_a_check_is_kept_with_its_model(tmp_path) -> None:
    model, folder = worlds.model(), tmp_path / "model"
    save_model(model, folder)
    assert stored_check(folder) is None
    check = check_model(model, worlds.record(60, seed=1))
    check.save(folder / "check.json")
    assert stored_check(folder) == check

    other = worlds.model(scale=2 * worlds.SCALE)
    save_model(other, tmp_path / "other")
    check.save(tmp_path / "other" / "check.json")
    assert stored_check(tmp_path / "other") is None  # of other weights

    save_model(other, folder, overwrite=True)  # the check goes with the weights that it is about
    assert not (folder / "check.json").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a model check"),
        ('{"format": "ifonly.model-check", "version": 99}', "version 99"),
        ('{"format": "ifonly.model-check", "version": 2}', "broken or incomplete"),
    ],
)
def test_broken_files_are_refused(tmp_path, content: str, words: str) -> None:
    (tmp_path / "check.json").write_text(content)
    with pytest.raises(StoreError, match=words):
        ModelCheck.load(tmp_path / "check.json")
    with pytest.raises(StoreError, match="cannot be read"):
        ModelCheck.load(tmp_path / "none.json")
