"""Whether subject effects pay: chosen where something lasts, left out where nothing does."""

import numpy as np
import pytest
import torch
from lasting_worlds import SCHEMA, lasting_cohort

from ifonly import Cohort, FitSettings, LocationScale, fit
from ifonly.models import Ensemble
from ifonly.models.effect_choice import choose_effects, fit_as_chosen
from ifonly.models.effects import SubjectEffectModel, steps_of
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


def test_what_lasts_for_a_while_only_does_not_pay() -> None:
    """Every subject's constant changes its sign in the episode: what comes first misleads about the rest."""
    cohort = turning_cohort()
    choice = choose_effects(untrained(), cohort, settings=SETTINGS)
    assert choice.gain is None or choice.gain < 0
    assert not choice.chosen


def turning_cohort() -> Cohort:
    rng = np.random.default_rng(0)
    count, steps = 200, 13
    states, actions = np.zeros((count, steps, 2)), rng.integers(2, size=(count, steps))
    hidden = 1.5 * rng.standard_normal(count)
    for step in range(1, steps):
        states[:, step] = 0.5 * states[:, step - 1] + rng.standard_normal((count, 2))
        states[:, step, 0] += hidden if step <= 9 else -2 * hidden  # means over all steps still tell subjects apart
    ids = tuple(f"episode {number}" for number in range(count))
    context = np.zeros((count * steps, 1))
    context[:, 0] = np.repeat(rng.normal(size=count), steps)
    return Cohort(SCHEMA, ids, np.arange(count + 1) * steps, states.reshape(-1, 2), context, actions.reshape(-1))


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


def test_effects_of_the_first_steps_are_those_of_an_episode_that_ends_there(
    model: SubjectEffectModel, lasting: Cohort
) -> None:
    alone = lasting.filter(lambda episode: lasting.subjects.count(episode.subject) == 1)[:20]
    frozen, first = model.for_search(), np.arange(1, 21) % 12 + 1
    found = frozen.encode_context_from(alone, first)[alone.offsets[:-1]]
    for number, episode in enumerate(alone):
        rows = slice(0, int(first[number]) + 1)
        short = Cohort(
            SCHEMA,
            ("short",),
            np.array([0, first[number] + 1]),
            episode.states[rows],
            episode.context[rows],
            episode.actions[rows],
        )
        np.testing.assert_allclose(frozen.encode_context(short)[0], found[number], atol=1e-12)


def test_effects_of_no_steps_are_none_and_of_all_the_usual_ones(model: SubjectEffectModel, lasting: Cohort) -> None:
    none = model.encode_context_from(lasting, np.zeros(len(lasting), dtype=np.int64))
    assert not none[:, -2:].any()
    everything = model.encode_context_from(lasting, lasting.lengths - 1)
    np.testing.assert_array_equal(everything, model.encode_context(lasting))


def test_later_steps_do_not_change_effects_of_earlier_ones(model: SubjectEffectModel, lasting: Cohort) -> None:
    first = np.full(len(lasting), 6)
    states = lasting.states.reshape(len(lasting), -1, 2).copy()
    states[:, 7:] += 5.0
    other = Cohort(
        SCHEMA,
        lasting.ids,
        lasting.offsets,
        states.reshape(-1, 2),
        lasting.context,
        lasting.actions,
        lasting.subjects,
    )
    found, same = (model.encode_context_from(cohort, first)[:, -2:] for cohort in (lasting, other))
    np.testing.assert_array_equal(found, same)
    assert np.abs(model.encode_context(lasting)[:, -2:] - model.encode_context(other)[:, -2:]).max() > 0.1
    assert torch.isfinite(torch.as_tensor(found)).all()


def test_steps_within_episodes() -> None:
    assert steps_of(np.array([0, 0, 0, 1, 2, 2])).tolist() == [0, 1, 2, 0, 0, 1]
