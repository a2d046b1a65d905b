"""Ensembles: each member is what `fit` makes of its sample, whoever it is trained with; the centre speaks."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fitted_cohorts import SCHEMA, linear, make_cohort, small, weights

from ifonly import Cohort, Problem, minus, solve
from ifonly.errors import FitError, InputError, StoreError
from ifonly.models import (
    Additive,
    Ensemble,
    LocationScale,
    MonotoneFlow,
    PostNonlinear,
    load_model,
    save_model,
)
from ifonly.models.bootstrap import SubjectIndex
from ifonly.models.fit import EncodedTransitions, FitSettings, evaluate, fit, objective
from ifonly.models.fit_ensemble import fit_ensemble, fit_limits
from ifonly.models.layers import Network
from ifonly.models.stacked import StackedModel, set_weights, weights_of
from ifonly.models.standing import MemberLabel
from ifonly.progress import Tick
from ifonly.query import Query
from ifonly.testing import check_transition_model
from ifonly.text.evidence import note_message

SETTINGS = FitSettings(epochs=3, batch_size=64, threads=2)
MODELS = {
    "location-scale": LocationScale(SCHEMA, hidden=(12,), lipschitz=(1.0, 0.1)),
    "one limit, deep, relu": LocationScale(SCHEMA, hidden=(8, 6), lipschitz=(1.0, None), activation="relu"),
    "additive, laplace": Additive(SCHEMA, hidden=(8,), lipschitz=1.0, prior="laplace", activation="sigmoid"),
    "post-nonlinear": PostNonlinear(SCHEMA, hidden=(8,), prior="independent", activation="softplus"),
    "flow": MonotoneFlow(SCHEMA, hidden=(8, 8, 4), lipschitz=(1.0, 0.1, 0.1, 0.1)),
    "residual, student": LocationScale(SCHEMA, hidden=(8,), residual="diagonal", prior="student"),
    "residual, tails": LocationScale(SCHEMA, hidden=(8,), residual="identity", prior="student-margins"),
}
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return make_cohort(linear, subjects=40, episodes_each=2, seed=1, steps=7)


@pytest.fixture(scope="module")
def ensemble(cohort) -> Ensemble:
    return fit_ensemble(small(lipschitz=(1.0, 0.1)), cohort, members=4, settings=SETTINGS, seed=5)


def train_one_by_one(monkeypatch) -> None:
    monkeypatch.setattr("ifonly.models.fit_ensemble.STACKABLE", ())


def alike(one, two) -> bool:
    return torch.allclose(weights_of(one), weights_of(two), rtol=1e-4, atol=2e-6)


# --- what stacking computes


@pytest.mark.parametrize("density", ["joint", "margins"])
@every_model
def test_stacked_densities_and_gradients_are_those_of_each_model(model, density):
    generator = torch.Generator().manual_seed(0)
    models = [type(model)(SCHEMA, **_constructor(model)).double() for _ in range(5)]
    for one in models:
        one.initialize(generator)
        one.set_scaler(one.scaler)
        set_weights(one, weights_of(one) + 0.1 * torch.randn(weights_of(one).shape, generator=generator))
    stacked = torch.stack([weights_of(one) for one in models]).requires_grad_()
    rows = EncodedTransitions(
        torch.randn(5, 7, 2, generator=generator).double(),
        torch.randn(5, 7, 1, generator=generator).double(),
        torch.randint(3, (5, 7), generator=generator),
        torch.randn(5, 7, 2, generator=generator).double(),
    )
    settings = FitSettings(density=density)
    together = StackedModel(model.double()).objective(stacked, rows, settings)
    together.sum().backward()
    for number, one in enumerate(models):
        alone = objective(one, rows.mapped(lambda column, at=number: column[at]), settings)
        alone.sum().backward()
        gradient = torch.cat(
            [(torch.zeros_like(each) if each.grad is None else each.grad).flatten() for each in one.parameters()]
        )
        torch.testing.assert_close(together[number], alone, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(stacked.grad[number], gradient, rtol=1e-7, atol=1e-9)


def _constructor(model) -> dict:
    settings = {**model.settings()}
    settings.pop("distortion", None)
    settings.pop("ranges", None)
    return settings


@pytest.mark.parametrize("curvature", [0.0, 0.1])
def test_models_with_limits_of_their_own_are_what_fit_gives(cohort, curvature):
    limits = [(0.5, 0.1), (1.0, None), None, (1.5, 0.01)]
    models = [LocationScale(cohort.schema, hidden=(8,), lipschitz=limit) for limit in limits]
    settings = replace(SETTINGS, epochs=3, threads=1, curvature=curvature)
    together = fit_limits(models, cohort, settings=settings, seed=2)
    for model, one in zip(models, together, strict=True):
        assert alike(one, fit(model, cohort, settings=settings, seed=2))
        assert one.settings() == model.settings()
    assert not alike(together[0], together[3])


# --- members


@every_model
def test_trained_together_or_one_by_one_members_are_the_same(model, cohort, monkeypatch):
    together = fit_ensemble(model, cohort, members=3, settings=SETTINGS, seed=2)
    train_one_by_one(monkeypatch)
    apart = fit_ensemble(model, cohort, members=3, settings=SETTINGS, seed=2)
    for one, other in zip([together.centre, *together], [apart.centre, *apart], strict=True):
        assert alike(one, other)
        assert one.fit_report.training == other.fit_report.training
        np.testing.assert_allclose(one.fit_report.training_loss, other.fit_report.training_loss, rtol=1e-5)
        np.testing.assert_allclose(one.fit_report.validation_loss, other.fit_report.validation_loss, rtol=1e-5)
    assert not alike(together[0], together[1])


def test_a_rate_that_falls_is_the_same_together_and_one_by_one(cohort, monkeypatch):
    settings = replace(SETTINGS, epochs=5, learning_rate=1e-2, schedule="cosine")
    together = fit_ensemble(small(), cohort, members=3, settings=settings, seed=2)
    alone = fit(small(), cohort, settings=replace(settings, threads=1), seed=2)
    constant = fit_ensemble(small(), cohort, members=3, settings=replace(settings, schedule="constant"), seed=2)
    train_one_by_one(monkeypatch)
    apart = fit_ensemble(small(), cohort, members=3, settings=settings, seed=2)
    assert alike(together.centre, alone)
    trained = ([together.centre, *together], [apart.centre, *apart], [constant.centre, *constant])
    for one, other, unlike in zip(*trained, strict=True):
        assert alike(one, other)
        assert not alike(one, unlike)
        np.testing.assert_allclose(one.fit_report.training_loss, other.fit_report.training_loss, rtol=1e-5)
        np.testing.assert_allclose(one.fit_report.validation_loss, other.fit_report.validation_loss, rtol=1e-5)


def test_the_centre_is_what_fit_gives(ensemble, cohort):
    alone = fit(small(lipschitz=(1.0, 0.1)), cohort, settings=replace(SETTINGS, threads=1), seed=5)
    assert alike(ensemble.centre, alone)
    assert ensemble.scaler.to_dict() == alone.scaler.to_dict()
    assert ensemble.fit_report.training == alone.fit_report.training
    assert evaluate(ensemble, cohort) == pytest.approx(evaluate(alone, cohort), rel=1e-5)


def test_a_member_does_not_depend_on_how_many_there_are_nor_on_threads(ensemble, cohort):
    for members, threads in ((1, 1), (6, 3)):
        settings = replace(SETTINGS, threads=threads)
        other = fit_ensemble(small(lipschitz=(1.0, 0.1)), cohort, members=members, settings=settings, seed=5)
        for one, two in zip(ensemble, other, strict=False):
            assert alike(one, two)
            assert one.fit_report.seed == two.fit_report.seed


def test_the_same_seed_gives_the_same_bits_and_another_one_other_samples(ensemble, cohort):
    again = fit_ensemble(small(lipschitz=(1.0, 0.1)), cohort, members=4, settings=SETTINGS, seed=5)
    assert again.fingerprint() == ensemble.fingerprint()
    other = fit_ensemble(small(lipschitz=(1.0, 0.1)), cohort, members=4, settings=SETTINGS, seed=6)
    assert {member.fit_report.seed for member in ensemble}.isdisjoint(m.fit_report.seed for m in other)


def test_samples_draw_subjects_with_replacement_and_hold_out_others(cohort):
    subjects = SubjectIndex.of(cohort)
    owner = subjects.of_episode[cohort.transitions().episode]
    shares = []
    for number in range(200):
        sample = subjects.draw(FitSettings(validation=0.1), 0, number)
        assert (len(sample.subjects), len(subjects)) == (36, 40)
        held = set(owner[sample.held_out])
        assert len(held) == 4
        assert held.isdisjoint(sample.subjects)
        times = np.bincount(sample.subjects, minlength=40)
        assert np.array_equal(np.bincount(owner[sample.rows], minlength=40), times * 12)  # two episodes, 6 transitions
        assert (sample.training.episodes, sample.training.transitions) == (72, 432)
        shares.append(sample.training.subjects / 40)
    expected = 1 - (1 - 1 / 40) ** 36
    assert np.mean(shares) == pytest.approx(expected, abs=4 * np.std(shares) / np.sqrt(200))


def test_members_keep_their_limits_and_their_best_epoch(cohort):
    settings = FitSettings(epochs=20, learning_rate=0.05, batch_size=32, validation=0.2, threads=1)
    hasty = fit_ensemble(small(lipschitz=(1.0, 0.1)), cohort, members=3, settings=settings)
    assert any(member.fit_report.kept_epoch < 20 for member in hasty)
    for number, member in enumerate(hasty):
        losses = member.fit_report.validation_loss
        assert losses[member.fit_report.kept_epoch - 1] == min(losses)
        held = SubjectIndex.of(cohort).draw(settings, 0, number).held_out
        names = {cohort.ids[episode] for episode in cohort.transitions().episode[held]}
        assert -evaluate(member, cohort.select(sorted(names))) == pytest.approx(min(losses), rel=1e-5)
        networks = [part for part in member.for_search().modules() if isinstance(part, Network)]
        assert [round(network.state_lipschitz(), 6) for network in networks] == [1.0, 0.1]


def test_without_validation_the_last_epoch_is_kept(cohort):
    found = fit_ensemble(small(), cohort, members=2, settings=replace(SETTINGS, validation=0))
    assert {member.fit_report.kept_epoch for member in found} == {3}
    assert all(member.fit_report.validation is None for member in found)


def test_progress_counts_epochs(cohort, monkeypatch):
    ticks: list[Tick] = []
    fit_ensemble(small(), cohort, members=2, settings=SETTINGS, progress=ticks.append)
    assert [(tick.stage, tick.done, tick.total) for tick in ticks] == [("fit", epoch, 3) for epoch in (1, 2, 3)]
    assert set(ticks[0].figures) == {"training loss", "validation loss"}
    train_one_by_one(monkeypatch)
    ticks.clear()
    fit_ensemble(small(), cohort, members=2, settings=SETTINGS, progress=ticks.append)
    assert [(tick.done, tick.total) for tick in ticks] == [(done, 9) for done in range(1, 10)]


def test_global_state_and_the_model_handed_in_are_left_alone(cohort):
    model, threads = small(), torch.get_num_threads()
    before = weights(model)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    fit_ensemble(model, cohort, members=2, settings=SETTINGS)
    assert torch.equal(torch.rand(1), expected)
    assert torch.get_num_threads() == threads
    assert all(torch.equal(before[name], tensor) for name, tensor in weights(model).items())


# --- the ensemble as a model


@every_model
def test_an_ensemble_keeps_every_promise_of_a_model(model, cohort):
    found = fit_ensemble(model, cohort, members=2, settings=replace(SETTINGS, epochs=1))
    check_transition_model(found, samples=16)
    for member in found:
        check_transition_model(member, samples=8)
    copy = found.for_search()
    assert copy.is_for_search("cpu")
    assert all(member.is_for_search("cpu") for member in copy)
    assert (copy.smooth() is None) == (found.centre.for_search().smooth() is None)


def test_an_ensemble_answers_as_its_centre_and_members_answer_for_themselves(ensemble, cohort):
    answers = [
        solve(Problem.from_episode(cohort[0], model, Query(minus("pressure"), 2)))
        for model in (ensemble, ensemble.centre, *ensemble)
    ]
    assert answers[0].outcome == answers[1].outcome
    assert len({answer.outcome for answer in answers[1:]}) == 5


def test_members_by_number(ensemble):
    assert len(ensemble) == len(ensemble.members) == len(list(ensemble)) == 4
    assert ensemble[-1] is ensemble.members[3]
    with pytest.raises(IndexError):
        ensemble[4]


def test_every_weight_counts_in_the_fingerprint(ensemble):
    before = ensemble.fingerprint()
    other = Ensemble([*ensemble.members[:3], small(lipschitz=(1.0, 0.1), scaler=ensemble.scaler)])
    assert other.fingerprint() != Ensemble(ensemble.members).fingerprint() != before
    assert ensemble.for_search().fingerprint() == before


def test_models_that_do_not_belong_together_are_refused(ensemble):
    with pytest.raises(InputError, match="at least one member"):
        Ensemble([])
    with pytest.raises(InputError, match="different scalings"):
        Ensemble([ensemble[0], small(lipschitz=(1.0, 0.1))])
    with pytest.raises(InputError, match="2 labels for 4 members"):
        Ensemble(ensemble.members, labels=[MemberLabel()] * 2)
    for weight in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="must be positive"):
            MemberLabel(weight=weight)
    with pytest.raises(InputError, match="cannot be a member"):
        Ensemble([ensemble])
    with pytest.raises(InputError, match="fit_ensemble"):
        fit(ensemble, make_cohort(linear, subjects=5, seed=0))


# --- members of different kinds


@pytest.fixture(scope="module")
def mixed(ensemble) -> Ensemble:
    """Three classes and settings, each with weights of its own."""
    narrow = small(residual="diagonal", prior="independent-student", scaler=ensemble.scaler)
    other = Additive(SCHEMA, hidden=(3,), scaler=ensemble.scaler)
    labels = [MemberLabel("refit", None, 0.5), MemberLabel("narrow", 0, 0.125), MemberLabel("additive", 1, 0.375)]
    return Ensemble([ensemble[0], narrow, other], centre=ensemble.centre, labels=labels)


def test_members_of_different_kinds_are_stored_and_read_bit_by_bit(mixed, cohort, tmp_path):
    save_model(mixed, tmp_path / "m")
    found = load_model(tmp_path / "m", schema=cohort.schema)
    assert isinstance(found, Ensemble)
    assert found.fingerprint() == mixed.fingerprint()
    assert found.labels == mixed.labels
    assert found.weights == (0.5, 0.125, 0.375)
    assert [type(member) for member in found] == [LocationScale, LocationScale, Additive]
    assert [member.fingerprint() for member in found] == [member.fingerprint() for member in mixed]
    frozen = mixed.for_search()
    assert frozen.is_for_search("cpu")
    assert (frozen.labels, frozen.fingerprint()) == (mixed.labels, mixed.fingerprint())
    check_transition_model(mixed, samples=8)


def test_weights_and_kinds_count_in_the_fingerprint(mixed, ensemble):
    parts = {"members": mixed.members, "centre": mixed.centre}
    others = [
        [replace(mixed.labels[0], weight=0.6), *mixed.labels[1:]],
        [replace(mixed.labels[0], kind="other"), *mixed.labels[1:]],
        None,
    ]
    assert len({Ensemble(**parts, labels=labels).fingerprint() for labels in (mixed.labels, *others)}) == 4


def test_refits_that_count_the_same_are_stored_as_ever(ensemble):
    """Checkpoints of earlier versions have these settings, and the fingerprint that follows from them."""
    assert ensemble.labels == (MemberLabel(),) * 4
    assert ensemble.weights == (0.25,) * 4
    assert ensemble.settings() == {
        "members": 4,
        "of": "location-scale",
        "centre": True,
        "settings": ensemble.centre.settings(),
    }


# --- files


def test_an_ensemble_is_stored_and_read_bit_by_bit(ensemble, cohort, tmp_path):
    save_model(ensemble, tmp_path / "m")
    found = load_model(tmp_path / "m", schema=cohort.schema)
    assert isinstance(found, Ensemble)
    assert found.fingerprint() == ensemble.fingerprint()
    assert found.fit_report == ensemble.fit_report
    assert [member.fit_report for member in found] == [member.fit_report for member in ensemble]
    assert [member.fingerprint() for member in found] == [member.fingerprint() for member in ensemble]
    assert found.notes == ensemble.notes


def test_an_ensemble_without_a_centre_is_stored_too(ensemble, tmp_path):
    save_model(Ensemble(ensemble.members[1:]), tmp_path / "m")
    found = load_model(tmp_path / "m")
    assert found.centre is found[0]
    assert [member.fingerprint() for member in found] == [member.fingerprint() for member in ensemble.members[1:]]


def test_altered_files_are_refused(ensemble, tmp_path):
    save_model(ensemble, tmp_path / "m")
    metadata, file = tmp_path / "m" / "model.json", tmp_path / "m" / "model.safetensors"
    content = json.loads(metadata.read_text())
    for change in ({"members": 3}, {"of": "ensemble"}, {"of": "nothing"}, {"centre": False}, {"settings": {}}):
        metadata.write_text(json.dumps({**content, "settings": {**content["settings"], **change}}))
        with pytest.raises(StoreError):
            load_model(tmp_path / "m")
    metadata.write_text(json.dumps({**content, "fit_report": {"centre": None}}))
    with pytest.raises(StoreError):
        load_model(tmp_path / "m")
    metadata.write_text(json.dumps(content))
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(StoreError, match="checksum"):
        load_model(tmp_path / "m")


# --- poor data


def test_one_subject_is_refused():
    with pytest.raises(InputError, match="only one subject"):
        fit_ensemble(small(), make_cohort(linear, subjects=1, episodes_each=3, seed=0))


@pytest.mark.parametrize("members", [0, -1, 2.0, True])
def test_members_must_be_a_number_of_them(members, cohort):
    with pytest.raises(InputError, match="members="):
        fit_ensemble(small(), cohort, members=members)


@pytest.mark.parametrize("validation", [0.0, 0.1])
def test_two_subjects_are_enough_and_little(validation):
    pair = make_cohort(linear, subjects=2, seed=0)
    found = fit_ensemble(small(), pair, members=5, settings=replace(SETTINGS, validation=validation))
    assert any("only 2 subjects" in str(note_message(note)) for note in found.notes)
    if validation:
        assert all(
            member.fit_report.training.subjects == member.fit_report.validation.subjects == 1 for member in found
        )


def test_one_member_and_rare_actions_and_constant_features_are_pointed_out():
    plain = make_cohort(linear, subjects=40, seed=0)
    actions = np.zeros_like(plain.actions)
    actions[3] = 1  # one subject, once; the third action never
    states = plain.states.copy()
    states[:, 0] = 5.0
    poor = Cohort(SCHEMA, plain.ids, plain.offsets, states, plain.context, actions, plain.subjects)
    found = fit_ensemble(small(lipschitz=(1.0, 0.1)), poor, members=1, settings=SETTINGS, seed=1)
    notes = "\n".join(str(note_message(note)) for note in found.notes)
    assert "One member shows no spread" in notes
    assert "Never taken in the cohort: treat more" in notes
    assert "Constant in the whole cohort: pressure" in notes
    many = fit_ensemble(small(), poor, members=12, settings=replace(SETTINGS, epochs=1), seed=1)
    (note,) = [note for note in many.notes if note.kind == "missing in samples"]
    without = [
        number
        for number in range(12)
        if not (poor.transitions().actions[SubjectIndex.of(poor).draw(SETTINGS, 1, number).rows] == 1).any()
    ]
    assert 0 < len(without) < 12
    assert (note.count, note.of, note.names) == (len(without), 12, ("treat",))
    assert f"note: {len(without)} of 12 members were trained without" in str(note_message(note))


def test_a_training_that_breaks_down_says_so(cohort):
    with pytest.raises(FitError, match="fit_ensemble"):
        fit_ensemble(small(), cohort, members=2, settings=replace(SETTINGS, learning_rate=1e30))


def test_an_ample_cohort_has_nothing_to_note(ensemble):
    assert ensemble.notes == ()
