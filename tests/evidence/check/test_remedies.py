"""What a check advises, and trying it."""

from dataclasses import replace

import made_worlds as worlds
import numpy as np
import pytest

from ifonly import Cohort, FitSettings, LocationScale
from ifonly.errors import InputError
from ifonly.evidence.check.advice import SUBJECT_EFFECT, USUAL, advised, compared_for, recipe_of, used_by
from ifonly.evidence.check.check import check_model
from ifonly.evidence.check.model_check import Level, ModelCheck
from ifonly.evidence.check.remedies import promising, try_remedies
from ifonly.evidence.recipes import fit_recipe
from ifonly.models.fit import evaluate
from ifonly.models.fit_effects import fit_with_effects
from ifonly.models.recipes import RECIPES
from ifonly.progress import Tick
from ifonly.text.catalogue import catalogue
from ifonly.text.checks import advice_message, trial_lines


def advice(check: ModelCheck) -> dict[str, tuple[str | None, tuple[str, ...]]]:
    return {finding.kind: (finding.cause, finding.remedies) for finding in check.concerns()}


def test_every_doubt_has_a_cause_and_a_remedy_in_words(checked) -> None:
    for name in worlds.SCENARIOS:
        for finding in checked(name).findings:
            doubted = finding.level in (Level.FAIL, Level.WARN)
            assert (finding.cause is not None and len(finding.remedies) > 0) == doubted
            assert (advice_message(finding) is not None) == doubted
    told = set(catalogue())
    for one in USUAL.values():
        assert {f"cause.{one.cause}", *(f"remedy.{code}" for code in one.remedies)} <= told
    assert set(RECIPES) <= {code.removeprefix("remedy.") for code in told}


@pytest.mark.parametrize(
    ("scenario", "kind", "cause", "remedy"),
    [
        ("heavy tails", "distance", "tails", "plain-tails"),
        ("varying size", "noise_size", "size varies", "plain-tails"),
        ("hidden factor", "noise_lasting", "something lasts", "subject effect"),
        ("actions ignored", "noise_by_action", "effects missed", "plain"),
        ("a lag removed", "noise_by_state", "rigid", "plain"),
    ],
)
def test_advice_is_about_what_is_wrong(checked, scenario: str, kind: str, cause: str, remedy: str) -> None:
    found, remedies = advice(checked(scenario))[kind]
    assert (found, remedies[0]) == (cause, remedy)
    assert "likely: " in str(checked(scenario))


def test_noise_lasts_for_another_reason_where_the_state_predicts_it() -> None:
    check = check_model(worlds.model(state=worlds.STATE / 4), worlds.record(150, seed=2))
    found = advice(check)
    assert {found[kind][0] for kind in ("noise_by_state", "noise_lasting", "noise_between")} == {"rigid"}


def test_what_a_model_misses_is_no_reason_for_more_than_that() -> None:
    """Something hidden lasts, and one feature has an error beside it: that of the other is no fault of the model."""
    hidden = worlds.fitted(worlds.record(worlds.LARGE, lasting=0.6, seed=4), lags=False)
    check = check_model(hidden, worlds.record(lasting=0.6, seed=5))
    found = advice(check)
    assert found["noise_by_state"][0] == "rigid"
    assert found["noise_between"] == ("subjects differ", ("subject effect", "record it"))


def test_noise_whose_sign_turns_is_an_error_of_measurement() -> None:
    def blurred(subjects: int, seed: int) -> Cohort:
        cohort = worlds.record(subjects, seed=seed)
        errors = np.random.default_rng(seed).normal(scale=0.8, size=len(cohort.states))
        return replace(cohort, states=cohort.states + errors[:, None] * [1, 0])

    found = advice(check_model(worlds.fitted(blurred(worlds.LARGE, 4)), blurred(300, 5)))
    assert found["noise_lasting"] == ("fluctuates", ("record the level", "make contextual"))


def test_repeated_values_are_suspected_of_being_carried_forward() -> None:
    kept = worlds.carried(150, seed=1)
    silent = Cohort(kept.schema, kept.ids, kept.offsets, kept.states, kept.context, kept.actions)
    check = check_model(worlds.model(), silent)
    assert advice(check)["distance"] == ("held", ("tell what was measured", "plain-tails", "residual-tails"))
    assert min(feature.unchanged for feature in check.figures.features) > 0.8


def test_the_most_promising_recipes(checked) -> None:
    assert [recipe.name for recipe in promising(checked("heavy tails"))] == ["plain-tails", "residual-tails"]
    own = RECIPES["plain-tails"].untrained(worlds.SCHEMA, (8,))
    assert recipe_of(own) == "plain-tails"
    assert recipe_of(worlds.model()) is None
    assert [recipe.name for recipe in promising(checked("heavy tails"), own)] == ["residual-tails"]
    assert promising(checked("right")) == ()


@pytest.mark.parametrize("name", ["plain", "plain-tails", "residual", "residual-tails"])
def test_a_check_does_not_advise_what_the_model_was_made_by(name: str) -> None:
    untrained = RECIPES[name].untrained(worlds.SCHEMA, (8,))
    untrained.set_scaler(worlds.model().scaler)
    found = [finding for finding in check_model(untrained, worlds.record(60, seed=3)).findings if finding.cause]
    assert any(name in USUAL[finding.kind].remedies for finding in found), "else the test would show nothing"
    assert all(finding.remedies and name not in finding.remedies for finding in found)


def test_recipes_that_were_compared_come_last(checked) -> None:
    """Where only such are left, more subjects come first; one recipe at many strengths is no comparison."""
    cohort = worlds.record(30, seed=5)
    settings, few = FitSettings(epochs=1), [replace(RECIPES[name], strengths=(0.1,)) for name in RECIPES]
    alone = fit_recipe(cohort, recipes=[RECIPES["residual"]], hidden=(4,), settings=settings)
    among = fit_recipe(cohort, recipes=few, hidden=(4,), settings=settings)
    check = checked("heavy tails")
    assert compared_for(worlds.model()) == compared_for(alone) == set()
    assert compared_for(among) == set(RECIPES)
    by_alone, by_among = (
        {one.kind: one.remedies for one in advised(check.findings, check.figures, model)} for model in (alone, among)
    )
    used = used_by(among)
    assert by_alone["distance"] == ("plain-tails", "residual-tails")
    assert by_among["distance"] == ("more subjects", *(n for n in ("plain-tails", "residual-tails") if n not in used))
    lag = checked("a lag removed")
    found = {one.kind: one.remedies for one in advised(lag.findings, lag.figures, among)}["noise_by_state"]
    assert found == ("less penalty", "more hidden", *(name for name in ("plain",) if name not in used))


def test_effects_of_subjects_are_no_remedy_for_a_model_that_has_them() -> None:
    cohort = worlds.record(12, seed=4)
    model = fit_with_effects(RECIPES["residual"].untrained(worlds.SCHEMA, (4,)), cohort, settings=FitSettings(epochs=1))
    assert used_by(model) == {"residual", SUBJECT_EFFECT}
    assert used_by(worlds.model()) == set()
    for recipe in RECIPES:  # whatever is taken out, something is left to try
        assert all(set(advice.remedies) - {recipe, SUBJECT_EFFECT} for advice in USUAL.values())


def test_trying_remedies() -> None:
    training, held_out = worlds.record(150, seed=21), worlds.record(80, seed=22)
    model = LocationScale(worlds.SCHEMA, hidden=(8,), lipschitz=(0.1, 0.1))
    model.set_scaler(worlds.model().scaler)
    check = check_model(model, held_out)
    assert check.verdict is Level.FAIL
    ticks: list[Tick] = []
    trials = try_remedies(
        model, training, held_out, check, settings=FitSettings(epochs=6, learning_rate=0.02), progress=ticks.append
    )
    assert [trial.recipe for trial in trials] == [recipe.name for recipe in promising(check, model)]
    assert (ticks[-1].stage, ticks[-1].done, ticks[-1].total) == ("remedies", 12, 12)
    for trial in trials:
        assert trial.check.cohort == check.cohort
        assert trial.curvature in RECIPES[trial.recipe].strengths
        assert trial.log_likelihood > check.figures.log_likelihood
        expected = evaluate(trial.model, held_out, coordinates=model.scaler)
        assert trial.log_likelihood == pytest.approx(expected, rel=1e-4)
        assert trial.model.standing.verdict == trial.check.verdict.value
    assert model.standing.verdict == "fail"
    lines = trial_lines(check, trials)
    assert [line.split()[0] for line in lines[2:]] == ["as", *(trial.recipe for trial in trials)]
    assert trial_lines(check, ()) == ["no finding asks for another recipe: nothing was tried"]


def test_what_is_checked_on_is_not_fitted_to() -> None:
    cohort = worlds.record(40, seed=1)
    check = check_model(worlds.model(scale=worlds.SCALE / 4), cohort)
    with pytest.raises(InputError, match="40 of the episodes to check on"):
        try_remedies(worlds.model(), cohort, cohort, check)
    assert np.isfinite(check.figures.log_likelihood)
