"""Recipes: compared on subjects held out, the same for the same seed, resumed after a kill, and chosen by one rule."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from effort import long

from ifonly import FitSettings, LocationScale, fit, simulate
from ifonly.errors import InputError
from ifonly.evidence import kinds, recipe_losses
from ifonly.evidence.recipe_losses import Losses, replays
from ifonly.evidence.recipes import compare_recipes, fit_recipe
from ifonly.models.base import TrainableModel
from ifonly.models.ensemble import Ensemble
from ifonly.models.fit import EncodedTransitions, objective
from ifonly.models.fit_ensemble import fit_samples, fit_strengths
from ifonly.models.fit_report import FitReport
from ifonly.models.recipes import FALLBACK_STRENGTH, RECIPES, Recipe, find_recipe

COHORT = simulate.simulate_cohort(40, seed=1, horizon=6)
QUICK = FitSettings(epochs=2)
SMALL = [replace(RECIPES[name], strengths=RECIPES[name].strengths[-2:]) for name in ("paper", "plain", "residual")]


@pytest.fixture(autouse=True)
def _ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast recipes answer takes longest; one question tells it."""
    monkeypatch.setattr(recipe_losses, "ASKED", 1)


def test_one_row_is_chosen_within_one_standard_error_with_the_largest_penalty() -> None:
    rows = compare_recipes(COHORT, SMALL, hidden=(8,), settings=QUICK).rows
    assert [(row.recipe, row.curvature) for row in rows] == [
        (recipe.name, strength) for recipe in SMALL for strength in recipe.strengths
    ]
    (chosen,) = [row for row in rows if row.chosen]
    assert min(row.excess for row in rows) == 0
    assert chosen.excess <= chosen.excess_error
    near = [row for row in rows if row.excess <= row.excess_error]
    assert chosen.curvature == max(row.curvature for row in near)
    assert {row.verdict for row in rows} <= {"pass", "warn", "fail", "not judged"}
    assert all(row.proven is not None and 0 <= row.proven <= 1 for row in rows)


def test_replays_hold_what_was_not_measured() -> None:
    """Against a replay written out for one episode: entries move where they were measured, and else stay."""
    model = LocationScale(COHORT.schema, hidden=(8,)).for_search()
    cohort = COHORT[:1]
    origins = np.random.default_rng(0).integers(0, 2, size=cohort.states.shape).astype(np.uint8)
    cohort = replace(cohort, origins=origins)
    rows = EncodedTransitions.of(model, cohort)
    ((at, wrong, counts),) = replays(model, rows, np.zeros(len(rows.actions), dtype=int), [3])
    assert at.tolist() == list(range(2, len(rows.actions)))
    states = rows.states[0]
    for step in range(3):
        moved = model.step(states, rows.context[step], rows.actions[step], torch.zeros_like(states))
        states = torch.where(torch.as_tensor(origins[step + 1] == 0), moved, states)
    measured = torch.as_tensor(origins[3] == 0).double()
    torch.testing.assert_close(wrong[0], (states - rows.next_states[2]).abs() * measured)
    torch.testing.assert_close(counts[0], measured)


def count_fits(monkeypatch: pytest.MonkeyPatch) -> list[TrainableModel]:
    """What is fitted to halves from now on, before it was."""
    fitted = []

    def counted(model: TrainableModel, *args: Any, **kwargs: Any) -> list[TrainableModel]:
        fitted.append(model)
        return fit_samples(model, *args, **kwargs)

    monkeypatch.setattr(kinds, "fit_samples", counted)
    return fitted


@long
def test_the_same_seed_gives_the_same_table_and_an_interrupted_comparison_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "m.recipes"
    whole = compare_recipes(COHORT, SMALL[:2], hidden=(8,), settings=QUICK, journal=journal)
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text(lines[0] + lines[1] + lines[2][:50])  # killed while the second recipe was written down
    fitted = count_fits(monkeypatch)
    again = compare_recipes(COHORT, SMALL[:2], hidden=(8,), settings=QUICK, journal=journal)
    assert len(fitted) == 1
    untimed = [[replace(row, seconds=None, proven=None) for row in one.rows] for one in (whole, again)]
    assert untimed[0] == untimed[1]
    compare_recipes(COHORT, SMALL[:1], hidden=(8,), settings=QUICK, journal=journal)
    assert len(fitted) == 2, "a journal of another comparison is begun anew"


def test_a_fitted_recipe_remembers_its_table() -> None:
    model = fit_recipe(COHORT, recipes=[SMALL[2]], hidden=(8,), settings=QUICK, refits=2)
    assert isinstance(model, Ensemble)
    report = model.centre.fit_report
    assert report is not None
    assert sum(row.chosen for row in report.recipes) == 1
    assert all(row.verdict is None for row in report.recipes), "of one recipe nothing else is asked"
    assert FitReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    assert "<- chosen" in str(report)
    chosen = next(row for row in report.recipes if row.chosen)
    assert report.settings.curvature == chosen.curvature


def test_too_few_subjects_are_not_compared() -> None:
    few = COHORT[:6]
    with pytest.raises(InputError, match="too few to compare"):
        compare_recipes(few, SMALL, hidden=(8,), settings=QUICK)
    model = fit_recipe(few, hidden=(8,), settings=QUICK)
    assert model.fit_report is not None
    assert model.fit_report.settings.curvature == FALLBACK_STRENGTH
    assert model.fit_report.recipes == ()


def test_an_unknown_recipe_is_named_with_the_choices() -> None:
    with pytest.raises(InputError, match=r"'residal' is unknown.*residual"):
        find_recipe("residal")


def test_strengths_trained_together_are_what_single_fits_are() -> None:
    model = Recipe("x", residual="diagonal", prior="independent-student").untrained(COHORT.schema, (8,))
    settings = replace(QUICK, density="margins")
    together = fit_strengths(model, COHORT, (0.0, 0.5), settings=settings, seed=3)
    for strength, one in zip((0.0, 0.5), together, strict=True):
        alone = fit(model, COHORT, settings=replace(settings, curvature=strength), seed=3)
        for name, weights in alone.state_dict().items():
            torch.testing.assert_close(one.state_dict()[name], weights, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("prior", ["gaussian", "student", "independent"])
def test_margins_ignore_how_noise_goes_together_and_correlations_come_afterwards(prior: str) -> None:
    model = LocationScale(COHORT.schema, hidden=(8,), prior=prior)
    fitted = fit(model, COHORT, settings=replace(QUICK, density="margins"))
    rows = EncodedTransitions.of(fitted, COHORT)
    with torch.no_grad():
        entries = fitted.entry_log_prob(*rows[:4])
        torch.testing.assert_close(objective(fitted, rows, FitSettings(density="margins")), entries.sum(-1))
        eye = torch.eye(fitted.state_size, dtype=torch.bool)
        for column in range(fitted.state_size):
            one = fitted.log_prob(*rows[:4], eye[column].expand(len(rows.actions), -1))
            torch.testing.assert_close(one, entries[:, column], rtol=1e-4, atol=1e-4)
        covariance = fitted.prior.covariance()
        deviations = covariance.diagonal().sqrt()
        correlation = covariance / deviations / deviations.unsqueeze(1)
        off = (correlation - torch.eye(len(deviations))).abs().max()
    assert (float(off) > 0.05) == (prior != "independent")


def test_losses_are_those_of_the_definitions() -> None:
    """Both losses by hand, for two subjects of which one counts twice."""
    losses = Losses(
        density=np.array([2.0, 6.0]),
        transitions=np.array([2.0, 2.0]),
        errors=np.array([[[1.0, 2.0]], [[4.0, 1.0]]]),
        replays=np.array([[[2.0, 2.0]], [[2.0, 2.0]]]),
    )
    one_step = (2 * 2 + 6) / (2 * 2 + 2)
    means = np.array([(2 * 1 + 4) / (2 * 2 + 2), (2 * 2 + 1) / (2 * 2 + 2)])
    replays = np.log(2 * np.e * means).sum()
    assert losses.combined(np.array([[2.0, 1.0]]))[0] == pytest.approx((one_step + replays) / 2)


def test_what_nobody_measured_costs_nobody_anything() -> None:
    """A feature without a single replay, as one that is assumed throughout, leaves a loss of the others."""
    parts = {"density": np.array([2.0]), "transitions": np.array([2.0])}
    known = Losses(**parts, errors=np.array([[[1.0]]]), replays=np.array([[[2.0]]]))
    more = Losses(**parts, errors=np.array([[[1.0, 0.0]]]), replays=np.array([[[2.0, 0.0]]]))
    everyone = np.ones((1, 1))
    assert more.combined(everyone)[0] == known.combined(everyone)[0]
    assert more.replay_error() == known.replay_error() == 0.5
