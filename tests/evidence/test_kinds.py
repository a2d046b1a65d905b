"""Structural ensembles: judged by subjects that were not seen, kept through a kill, stacked, and asked like others."""

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from effort import long
from lasting_worlds import lasting_cohort

import ifonly
from ifonly import Cohort, EnsembleProblem, FitSettings, Query, minus, simulate, solve
from ifonly.data.episode import FloatArray
from ifonly.errors import InputError, VerificationError
from ifonly.evidence import kinds, recipe_losses
from ifonly.evidence.kinds import Halves
from ifonly.evidence.recipe_journal import forget_recipes
from ifonly.evidence.recipe_losses import horizons_of, log_densities, losses_of
from ifonly.evidence.recipes import compare_recipes, fit_recipe
from ifonly.models import Ensemble, LocationScale
from ifonly.models.base import TrainableModel
from ifonly.models.bootstrap import SubjectIndex
from ifonly.models.effects import SubjectEffectModel
from ifonly.models.fit import EncodedTransitions, fit
from ifonly.models.fit_effects import with_columns
from ifonly.models.fit_ensemble import Wanted, fit_samples
from ifonly.models.recipes import RECIPES
from ifonly.models.stacking import stacking_weights
from ifonly.models.standing import MemberLabel
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.verify import verify
from ifonly.testing import check_transition_model
from ifonly.text.evidence import member_lines

COHORT = simulate.simulate_cohort(40, seed=1, horizon=6)
QUICK = FitSettings(epochs=2)
SMALL = [replace(RECIPES[name], strengths=RECIPES[name].strengths[-2:]) for name in ("paper", "residual")]
NAMES = ["paper", "residual", "narrow", "partial"]


@pytest.fixture(autouse=True, scope="module")
def _ask_once() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe_losses, "ASKED", 1)
        patch.setattr(recipe_losses, "PATIENCE", 0.1)
        yield


def fitted(journal: Path | None = None, seed: int = 0) -> Ensemble:
    found = fit_recipe(COHORT, recipes=SMALL, hidden=(8,), refits="kinds", settings=QUICK, seed=seed, journal=journal)
    assert isinstance(found, Ensemble)
    return found


@pytest.fixture(scope="module")
def ensemble() -> Ensemble:
    return fitted()


# --- halves


@pytest.mark.parametrize("validation", [0.1, 0.4, 0.0])
def test_every_subject_is_judged_once_by_models_that_did_not_see_it(validation: float) -> None:
    settings = FitSettings(validation=validation)
    halves = Halves.of(COHORT, (8,), settings, seed=3)
    judged = [set(judge.subjects) for judge in halves.judges]
    assert judged[0] | judged[1] == set(COHORT.subjects)
    assert not judged[0] & judged[1]
    assert abs(len(judged[0]) - len(judged[1])) <= 1
    assert sum(len(judge) for judge in halves.judges) == len(COHORT)
    owners = np.array(COHORT.subjects)[COHORT.transitions().episode]
    for part, others in zip(halves.parts, judged, strict=True):
        used, held = (set(owners[rows.numpy()].tolist()) for rows in (part.sample.rows, part.sample.held_out))
        assert used | held == set(COHORT.subjects) - others, "training or choosing the epoch has seen who judges"
        assert not used & held
        assert bool(held) == (validation > 0)
    assert halves.parts[0].sample.seed != halves.parts[1].sample.seed
    again = Halves.of(COHORT, (8,), settings, seed=3)
    assert again.judges[0].ids == halves.judges[0].ids
    assert Halves.of(COHORT, (8,), settings, seed=4).judges[0].ids != halves.judges[0].ids


def test_losses_of_the_table_are_those_of_the_other_half() -> None:
    """By hand: models fitted to each half anew, measured on the subjects of the other one, and added up."""
    recipe = SMALL[1]
    found = compare_recipes(COHORT, [recipe], hidden=(8,), settings=QUICK, seed=2)
    halves = Halves.of(COHORT, (8,), QUICK, seed=2)
    models = halves.fit(recipe)
    for number, row in enumerate(found.rows):
        total = count = 0.0
        for model, judge in zip((part[number] for part in models), halves.judges, strict=True):
            frozen = model.for_search()
            total += float(log_densities(frozen, EncodedTransitions.of(frozen, judge)).sum())
            count += len(judge.transitions().actions)
        assert count == len(COHORT.transitions().actions)
        assert row.log_likelihood == pytest.approx(total / count)
    for half, (kept, fitted_to_it) in enumerate(zip(found.kinds["residual"], models, strict=True)):
        judge, horizons = halves.judges[half], horizons_of(COHORT)
        losses = [losses_of(model.for_search(), judge, horizons) for model in fitted_to_it]
        totals = [float(loss.combined(np.ones((1, len(set(judge.subjects)))))[0]) for loss in losses]
        assert kept.fingerprint() == fitted_to_it[int(np.argmin(totals))].fingerprint()


def test_a_model_of_a_half_is_what_fit_makes_of_it() -> None:
    settings = FitSettings(epochs=3, density="margins", curvature=0.05, validation=0)
    index = SubjectIndex.of(COHORT)
    part = index.halves(settings, seed=5)[1]
    only = COHORT.filter(part.episodes)
    template = LocationScale(COHORT.schema, hidden=(8,), residual="diagonal")
    alone = fit(template, only, settings=settings, seed=part.sample.seed)
    wanted = [Wanted(part.sample, 0.05), Wanted(part.sample, 0.3)]
    (one, _) = fit_samples(template, COHORT, wanted, scaler=alone.scaler, settings=settings)
    torch.testing.assert_close(one.state_dict(), alone.state_dict(), rtol=1e-3, atol=1e-4)


# --- kinds


def test_members_are_the_best_of_every_kind_on_either_half(ensemble: Ensemble) -> None:
    assert [(label.kind, label.half) for label in ensemble.labels] == list(itertools.product(NAMES, (0, 1)))
    assert sum(ensemble.weights) == pytest.approx(1)
    by_kind = dict(zip(NAMES, np.array(ensemble.weights).reshape(-1, 2), strict=True))
    assert all(first == second for first, second in by_kind.values())
    assert all(member.scaler.to_dict() == ensemble.centre.scaler.to_dict() for member in ensemble)
    widths = [member.settings()["hidden"] for member in ensemble]
    assert widths == [[8]] * 4 + [[2]] * 2 + [[8]] * 2
    centre = ensemble.centre
    assert centre.fit_report is not None
    alone = fit_recipe(COHORT, recipes=SMALL, hidden=(8,), settings=QUICK)
    assert alone.fingerprint() == centre.fingerprint(), "members change nothing about the model that speaks"
    assert fitted().fingerprint() == ensemble.fingerprint()
    assert fitted(seed=1).fingerprint() != ensemble.fingerprint()


def test_what_is_left_out_has_no_weight_and_no_effect(ensemble: Ensemble) -> None:
    left_out = []
    for member in ensemble.members[6:]:
        assert isinstance(member, LocationScale)
        empty = [(network.state.raw == 0).all(0) for network in member.networks()]
        empty_context = [(network.context.raw == 0).all(0) for network in member.networks()]
        assert torch.equal(*empty)
        assert torch.equal(*empty_context)
        blind = torch.cat([empty[0], empty_context[0]])
        left_out.append(blind.tolist())
        assert int(blind.sum()) == round(len(blind) / 3)
        assert (member.skip.factors != 1).all(), "a feature's own path is trained"
        frozen = member.for_search()
        states = torch.randn(5, member.state_size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        context, actions = torch.zeros(5, member.context_size, dtype=torch.float64), torch.zeros(5, dtype=torch.int64)
        moved = states + 3.0 * empty[0]
        noise = torch.zeros_like(states)
        change = frozen.step(moved, context, actions, noise) - frozen.step(states, context, actions, noise)
        torch.testing.assert_close(change, 3.0 * empty[0] * frozen.skip.factors.expand(5, -1))
        elsewhere = frozen.step(states, context + 2.0 * empty_context[0], actions, noise)
        torch.testing.assert_close(elsewhere, frozen.step(states, context, actions, noise))
        check_transition_model(member, samples=16)
    assert left_out[0] != left_out[1]
    for member in ensemble.members[:6]:
        assert not any((network.state.raw == 0).any() for network in member.networks())


def test_weights_are_the_best_for_transitions_of_subjects_not_seen(ensemble: Ensemble) -> None:
    halves = Halves.of(COHORT, (8,), QUICK, seed=0)
    columns = []
    for kind in range(len(NAMES)):
        parts = []
        for half, judge in enumerate(halves.judges):
            frozen = ensemble.members[2 * kind + half].for_search()
            parts.append(log_densities(frozen, EncodedTransitions.of(frozen, judge)).numpy())
        columns.append(np.concatenate(parts))
    expected = np.repeat(stacking_weights(np.stack(columns, axis=1)), 2) / 2
    np.testing.assert_allclose(ensemble.weights, expected, rtol=1e-9)
    assert min(ensemble.weights) >= 0.1 / len(NAMES) / 2 - 1e-12


@long
def test_killed_after_any_kind_it_goes_on_with_the_same_members(
    ensemble: Ensemble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "whole.recipes"
    assert fitted(journal).fingerprint() == ensemble.fingerprint()
    lines = journal.read_text().splitlines(keepends=True)
    assert len(lines) == 1 + len(NAMES)
    trained: list[TrainableModel] = []

    def counted(model: TrainableModel, *args, **kwargs):  # type: ignore[no-untyped-def]
        trained.append(model)
        return fit_samples(model, *args, **kwargs)

    monkeypatch.setattr(kinds, "fit_samples", counted)
    for finished in range(len(NAMES) + 1):
        own = tmp_path / f"{finished}.recipes"
        own.write_text("".join(lines[: 1 + finished]) + '{"recipe": "cut')
        shutil.copytree(f"{journal}.models", f"{own}.models")
        trained.clear()
        assert fitted(own).fingerprint() == ensemble.fingerprint()
        assert len(trained) == len(NAMES) - finished
    shutil.rmtree(tmp_path / "4.recipes.models" / "residual-1")
    trained.clear()
    assert fitted(tmp_path / "4.recipes").fingerprint() == ensemble.fingerprint()
    assert len(trained) == 1, "a model that is lost is fitted again"
    forget_recipes(journal)
    assert not journal.exists()
    assert not Path(f"{journal}.models").exists()


def test_one_recipe_has_kinds_too_and_few_subjects_none() -> None:
    paper = fit_recipe(COHORT, recipes=[RECIPES["paper"]], hidden=(8,), refits="kinds", settings=QUICK)
    assert isinstance(paper, Ensemble)
    assert [label.kind for label in paper.labels][::2] == ["paper", "narrow", "partial"]
    few = fit_recipe(COHORT[:6], recipes=SMALL, hidden=(8,), refits="kinds", settings=QUICK)
    assert not isinstance(few, Ensemble)
    with pytest.raises(InputError, match="refits="):
        fit_recipe(COHORT, recipes=SMALL, refits=-1)


# --- kinds with subject effects


@pytest.fixture(scope="module")
def lasting() -> Cohort:
    return lasting_cohort(40, pull=1.0, seed=3)[0]


@pytest.fixture(scope="module")
def with_effects(lasting: Cohort) -> Ensemble:
    settings = FitSettings(epochs=4, learning_rate=1e-2, batch_size=64)
    found = fit_recipe(lasting, recipes=SMALL, hidden=(4,), refits="kinds", subject_effect=True, settings=settings)
    assert isinstance(found, Ensemble)
    return found


def test_kinds_share_the_subject_effects_of_the_model_that_speaks(with_effects: Ensemble, lasting: Cohort) -> None:
    centre = with_effects.centre
    assert [label.kind for label in with_effects.labels] == [name for name in NAMES for _ in range(2)]
    effects = centre.encode_context(lasting)[:, -centre.state_size :]
    assert np.ptp(effects[:, 0]) > 0.5, "nothing lasts, and the rest shows nothing"
    for member in with_effects:
        assert isinstance(member, SubjectEffectModel)
        np.testing.assert_array_equal(member.encode_context(lasting), centre.encode_context(lasting))
        for episode in (lasting[0], lasting[7]):
            np.testing.assert_array_equal(member.encode_context(episode), centre.encode_context(episode))
        assert member.fit_report is not None
        check_transition_model(member, samples=16)
    assert len({member.fingerprint() for member in (centre, *with_effects)}) == 1 + len(with_effects)
    episode = lasting[7]
    problem = ifonly.Problem.from_episode(episode, with_effects, Query(minus("pulled"), max_changes=1))
    for member in with_effects:  # effects are inferred from the record: a replay of it is the record
        states = problem.put_to(member).replay(problem.observed_actions[None])[0][0]
        np.testing.assert_allclose(member.scaler.states.decode(states.squeeze().numpy()), episode.states, atol=1e-6)


def test_every_kind_is_fitted_with_a_draw_of_its_own(
    with_effects: Ensemble, lasting: Cohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    centre, seen = with_effects.centre, []
    assert isinstance(centre, SubjectEffectModel)

    def seeing(cohort: Cohort, effects: FloatArray) -> Cohort:
        seen.append(effects)
        return with_columns(cohort, effects)

    monkeypatch.setattr(kinds, "with_columns", seeing)
    halves, pair = Halves.of(lasting, (2,), QUICK, seed=0), (centre.second, centre.second)
    halves.with_effects(centre, {"residual": pair, "narrow": pair})
    residual, narrow = (effects[:, 0] for effects in seen)
    mean = centre.encode_context(lasting)[:, -centre.state_size]
    assert 0.5 < np.corrcoef(residual, narrow)[0, 1] < 0.98
    assert min(np.corrcoef(one, mean)[0, 1] for one in (residual, narrow)) > 0.7


@long
def test_kinds_with_effects_are_stored_and_asked_like_others(
    with_effects: Ensemble, lasting: Cohort, tmp_path: Path
) -> None:
    ifonly.save_model(with_effects, tmp_path / "m")
    model = ifonly.load_model(tmp_path / "m")
    assert isinstance(model, Ensemble)
    assert model.fingerprint() == with_effects.fingerprint()
    assert model.labels == with_effects.labels
    for number, objective in ((0, "mean"), (3, "worst"), (8, 0.25)):
        query = Query(minus("pulled"), max_changes=2, objective=objective)
        problem = EnsembleProblem.from_episode(lasting[number], model, query)
        found, every = solve(problem), solve(problem, Exhaustive())
        assert found.proven
        assert found.outcome == pytest.approx(every.outcome, abs=problem.tolerance)
        assert every.outcome > every.observed_outcome + problem.tolerance, "nothing to gain, and nothing shown"
        verify(found, lasting[number], model)


# --- what is asked of them


def test_members_of_kinds_are_asked_together_and_one_by_one(ensemble: Ensemble, tmp_path: Path) -> None:
    ifonly.save_model(ensemble, tmp_path / "m")
    model = ifonly.load_model(tmp_path / "m").for_search()
    assert isinstance(model, Ensemble)
    episode = COHORT[0]
    query = Query(minus("SOFA"), max_changes=2, objective="mean")
    problem = EnsembleProblem.from_episode(episode, model, query)
    result = solve(problem)
    assert result.outcome == pytest.approx(float(np.dot(result.member_outcomes, model.weights)))
    assert result.provenance.model.weights == model.weights
    assert result.certificate.details["weights"] == list(model.weights)
    again = ifonly.Result.from_json(result.to_json())
    assert again.to_dict() == result.to_dict()
    verify(again, episode, model)
    verify(again, episode, model.members)
    other = Ensemble(model.members, centre=model.centre)
    with pytest.raises(VerificationError, match="weights of members"):
        verify(again, episode, other)

    alone = ifonly.Problem.from_episode(episode, model, query.with_changes(objective=None, each_refit=True))
    answer = solve(alone)
    agreed = ifonly.agreement(alone, answer.actions, model, each_refit=True)
    gains = [put.outcome(answer.actions) - put.observed_outcome for put in (alone.put_to(member) for member in model)]
    np.testing.assert_allclose(agreed.improvements, gains, atol=1e-6)
    evidence = ifonly.examine(alone, answer)
    assert evidence.refits is not None
    assert evidence.refits.count == len(model)


def test_what_fit_says_of_kinds(ensemble: Ensemble) -> None:
    labels = [
        MemberLabel(kind, half, weight)
        for kind, weight in zip(NAMES, (0.1, 0.2, 0.05, 0.15), strict=True)
        for half in (0, 1)
    ]
    line = member_lines(Ensemble(ensemble.members, centre=ensemble.centre, labels=labels))[0]
    assert line == (
        "8 members of 4 kinds, each kind fitted to either half of the subjects; "
        "weights residual 40 %, partial 30 %, paper 20 %, narrow 10 %"
    )


def test_where_one_half_has_no_replays_densities_choose_its_member() -> None:
    """One subject has the only episode that is long enough for replays: a half without it is judged by densities."""
    short = [COHORT[number] for number in range(12)]
    cut = [replace_steps(episode, 2) for episode in short[1:]]
    cohort = Cohort.from_episodes([short[0], *cut])
    found = compare_recipes(cohort, [SMALL[1]], hidden=(4,), settings=FitSettings(epochs=1))
    assert sum(row.chosen for row in found.rows) == 1
    assert len(found.kinds["residual"]) == 2


def replace_steps(episode: ifonly.Episode, steps: int) -> ifonly.Episode:
    return ifonly.Episode(
        episode.id,
        episode.schema,
        states=episode.states[:steps],
        actions=episode.actions[:steps],
        context=episode.context[:steps],
        subject=episode.subject,
    )
