"""Whether subject effects pay: chosen where something lasts, left out where nothing does."""

from dataclasses import replace

import numpy as np
import pytest
from lasting_worlds import SCHEMA, lasting_cohort

from ifonly import Cohort, FitSettings, LocationScale, fit
from ifonly.data.episode import Origin
from ifonly.models import Ensemble, effect_choice
from ifonly.models.effect_choice import choose_effects, fit_as_chosen
from ifonly.models.effects import SubjectEffectModel
from ifonly.models.fit_effects import fit_with_effects, fit_without_effects
from ifonly.models.fit_report import EffectChoice, FitReport

SETTINGS = FitSettings(epochs=40, learning_rate=1e-2, batch_size=512)
BRIEF = FitSettings(epochs=2)


def untrained() -> LocationScale:
    return LocationScale(SCHEMA, hidden=(8,), residual="diagonal")


@pytest.fixture(scope="module")
def lasting() -> Cohort:
    return lasting_cohort(200, pull=0.7)[0]


@pytest.fixture(scope="module")
def fleeting() -> Cohort:
    return lasting_cohort(200, pull=0.0)[0]


@pytest.fixture(scope="module")
def choices(lasting: Cohort, fleeting: Cohort) -> dict[str, EffectChoice]:
    """What is decided where something lasts, and where nothing does."""
    cohorts = {"lasting": lasting, "fleeting": fleeting}
    return {name: choose_effects(untrained(), cohort, settings=SETTINGS) for name, cohort in cohorts.items()}


@pytest.fixture(scope="module")
def model(lasting: Cohort) -> SubjectEffectModel:
    found = fit_with_effects(untrained(), lasting, settings=SETTINGS)
    assert isinstance(found, SubjectEffectModel)
    return found


def test_effects_pay_where_something_lasts(choices: dict[str, EffectChoice]) -> None:
    """A constant of variance 0.49 beside noise of variance 1: known, it would gain log(1.49) / 2 = 0.2 nats at most."""
    choice = choices["lasting"]
    assert choice.chosen
    assert choice.subjects == 40
    assert choice.gain is not None
    assert choice.error is not None
    assert choice.error < choice.gain < 0.2


def test_where_nothing_lasts_the_gate_is_closed(choices: dict[str, EffectChoice]) -> None:
    assert choices["fleeting"] == EffectChoice(chosen=False, subjects=40)


def test_what_is_too_weak_to_be_learned_from_few_subjects_does_not_pay() -> None:
    """The gate is open, and effects cost more than they explain."""
    choice = choose_effects(untrained(), lasting_cohort(40, pull=0.3, seed=3)[0], settings=SETTINGS)
    assert choice.gain is not None
    assert choice.gain < 0
    assert not choice.chosen


@pytest.mark.parametrize(("gain", "chosen"), [(0.01, True), (-0.01, False)])
def test_the_sign_decides(lasting: Cohort, gain: float, chosen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effect_choice, "_gain_by_others", lambda *_: (gain, 0.02))
    choice = choose_effects(untrained(), lasting, settings=SETTINGS)
    assert choice == EffectChoice(chosen=chosen, subjects=choice.subjects, gain=gain, error=0.02)


def test_few_subjects_decide_nothing(lasting: Cohort) -> None:
    assert choose_effects(untrained(), lasting[:12], settings=BRIEF) == EffectChoice(chosen=False, subjects=0)


@pytest.mark.parametrize("members", [0, 2])
@pytest.mark.parametrize("name", ["lasting", "fleeting"])
def test_auto_fits_as_it_decides_and_says_so(
    choices: dict[str, EffectChoice], request: pytest.FixtureRequest, name: str, members: int
) -> None:
    cohort, lasts = request.getfixturevalue(name), name == "lasting"
    found = fit_as_chosen(untrained(), cohort, subject_effect="auto", members=members, settings=SETTINGS)
    assert isinstance(found, Ensemble) == bool(members)
    centre = found.centre if isinstance(found, Ensemble) else found
    assert isinstance(centre, SubjectEffectModel) == lasts
    report = centre.fit_report
    assert report is not None
    assert report.effect_choice == choices[name]
    assert ("taken" if lasts else "no effects: the noise of no feature") in str(report)
    assert FitReport.from_dict(report.to_dict()) == report


def test_without_a_choice_nothing_changes(lasting: Cohort) -> None:
    plain = fit_as_chosen(untrained(), lasting[:40], settings=BRIEF)
    assert plain.fingerprint() == fit(untrained(), lasting[:40], settings=BRIEF).fingerprint()
    assert plain.fit_report is not None
    assert plain.fit_report.effect_choice is None
    effects = fit_as_chosen(untrained(), lasting[:40], subject_effect=True, settings=BRIEF)
    assert effects.fingerprint() == fit_with_effects(untrained(), lasting[:40], settings=BRIEF).fingerprint()


def test_a_first_round_that_is_known_is_not_repeated(lasting: Cohort) -> None:
    part = lasting[:40]
    begun = fit_without_effects(untrained(), part, settings=BRIEF, seed=3)
    again = fit_with_effects(untrained(), part, begun=begun, settings=BRIEF, seed=3)
    assert again.fingerprint() == fit_with_effects(untrained(), part, settings=BRIEF, seed=3).fingerprint()


def test_a_step_has_no_part_in_the_effect_by_others(model: SubjectEffectModel, lasting: Cohort) -> None:
    """The same as if what follows it had not been measured."""
    frozen, part = model.for_search(), lasting[:20]
    found = frozen.encode_context_by_others(part)
    for step in range(12):
        origins = np.full(part.states.shape, Origin.MEASURED)
        origins[part.offsets[:-1] + step + 1] = Origin.CARRIED
        for number, episode in enumerate(replace(part, origins=origins)):
            if part.subjects.count(episode.subject) == 1:
                expected = frozen.encode_context(episode)[step]
                np.testing.assert_allclose(found[part.offsets[number] + step], expected, atol=1e-12)
    usual = frozen.encode_context(part)
    np.testing.assert_array_equal(found[part.offsets[1:] - 1], usual[part.offsets[1:] - 1])  # nothing follows these
    assert np.abs(found - usual).max() > 0.1


def test_effects_by_others_are_of_all_episodes_of_a_subject(model: SubjectEffectModel, lasting: Cohort) -> None:
    alone, both = (model.encode_context_by_others(lasting[:count])[:13, -2] for count in (1, 2))
    assert lasting.subjects[0] == lasting.subjects[1]
    assert np.abs(alone - both).min() > 0
