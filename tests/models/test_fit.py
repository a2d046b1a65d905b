"""Fitting: it is deterministic, validates by subject, keeps the limits, and says what is wrong."""

import copy
import importlib
import inspect
import json
import math
import pkgutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from fitted_cohorts import (
    SCHEMA,
    linear,
    make_cohort,
    same_bits,
    small,
    weights,
)

import ifonly.models
from ifonly import ActionSpace, Cohort, Episode, Feature, LocationScale, Scaler, Schema
from ifonly.errors import FitError, InputError, SchemaMismatchError, StoreError
from ifonly.models.adam import Adam
from ifonly.models.base import TrainableModel
from ifonly.models.effects import SubjectEffectModel
from ifonly.models.ensemble import Ensemble
from ifonly.models.fit import DataCounts, FitReport, FitSettings, evaluate, fit
from ifonly.models.layers import spectral_norm
from ifonly.progress import Tick


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return make_cohort(linear, subjects=20, episodes_each=2, seed=1)


# --- determinism and independence


def test_the_same_seed_gives_the_same_bits_whatever_the_global_generator_and_the_old_weights(cohort):
    torch.manual_seed(1)
    one = fit(small(lipschitz=(1.0, 0.1)), cohort, epochs=3, seed=7)
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002 - the global state is the point
    other = small(lipschitz=(1.0, 0.1))
    other.initialize(torch.Generator().manual_seed(99))
    two = fit(other, cohort, epochs=3, seed=7)
    assert same_bits(weights(one), weights(two))
    assert one.fit_report.training_loss == two.fit_report.training_loss
    assert one.fit_report.validation_loss == two.fit_report.validation_loss
    assert not same_bits(weights(one), weights(fit(small(lipschitz=(1.0, 0.1)), cohort, epochs=3, seed=8)))


def test_global_random_state_is_left_alone(cohort):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    fit(small(), cohort, epochs=1)
    assert torch.equal(torch.rand(1), expected)


def test_the_model_handed_in_is_left_alone(cohort):
    model = small(lipschitz=(1.0, 0.1)).train()
    before, scaler = weights(model), model.scaler
    fitted = fit(model, cohort, epochs=2)
    assert same_bits(weights(model), before)
    assert model.scaler is scaler
    assert model.fit_report is None
    assert model.training
    assert isinstance(fitted, LocationScale)
    assert not fitted.training
    assert fitted.settings() == model.settings()
    assert not same_bits(weights(fitted), before)


def test_a_float64_model_is_trained_in_float32(cohort):
    fitted = fit(small().double(), cohort, epochs=1)
    assert {p.dtype for p in fitted.parameters()} == {torch.float32}
    assert fitted.action_vectors.dtype == torch.float32


# --- validation by subject


def test_scaling_and_weights_depend_on_training_subjects_alone(cohort):
    train, held_out = cohort.split(by="subject", test=0.25, seed=5)
    assert not set(train.subjects) & set(held_out.subjects)
    settings = FitSettings(epochs=2, validation=0.25, restore_best=False)
    fitted = fit(small(), cohort, settings=settings, seed=5)
    assert fitted.fit_report.training == DataCounts.of(train)
    assert fitted.fit_report.validation == DataCounts.of(held_out)
    assert fitted.scaler.to_dict() == Scaler.fit(train).to_dict()
    # Trained on the training subjects alone, with no one held out: the same bits.
    alone = fit(small(), train, settings=replace(settings, validation=0), seed=5)
    assert same_bits(weights(fitted), weights(alone))


def test_the_best_epoch_is_restored(cohort):
    # A hasty rate on few subjects, so that the last epoch is not the best one.
    settings = FitSettings(epochs=25, learning_rate=0.03, batch_size=32, validation=0.3)
    fitted = fit(small(), cohort, settings=settings, seed=1)
    _, held_out = cohort.split(by="subject", test=0.3, seed=1)
    report = fitted.fit_report
    assert report.best_epoch == report.kept_epoch < 25
    assert report.validation_loss[report.best_epoch - 1] == min(report.validation_loss) < report.validation_loss[-1]
    assert -evaluate(fitted, held_out) == pytest.approx(min(report.validation_loss), abs=1e-6)

    last = fit(small(), cohort, settings=replace(settings, restore_best=False), seed=1)
    assert last.fit_report.kept_epoch == 25
    assert last.fit_report.best_epoch == report.best_epoch
    assert -evaluate(last, held_out) == pytest.approx(report.validation_loss[-1], abs=1e-6)


def test_of_equally_good_epochs_the_first_is_kept(cohort, monkeypatch):
    first = fit(small(), cohort, epochs=1)
    monkeypatch.setattr("ifonly.models.fit._mean", lambda *_: -1.0)
    fitted = fit(small(), cohort, epochs=3)
    assert fitted.fit_report.validation_loss == (1.0, 1.0, 1.0)
    assert fitted.fit_report.kept_epoch == 1
    assert same_bits(weights(fitted), weights(first))


def test_without_validation_the_last_epoch_is_kept(cohort):
    fitted = fit(small(), cohort, settings=FitSettings(epochs=2, validation=0))
    report = fitted.fit_report
    assert (report.validation, report.validation_loss, report.best_epoch, report.kept_epoch) == (None, (), None, 2)
    assert report.training == DataCounts.of(cohort)


def test_losses_fall_and_ticks_report_them(cohort):
    ticks: list[Tick] = []
    fitted = fit(small(), cohort, epochs=5, progress=ticks.append)
    report = fitted.fit_report
    assert [(tick.stage, tick.done, tick.total) for tick in ticks] == [("fit", i, 5) for i in range(1, 6)]
    assert tuple(tick.figures["training loss"] for tick in ticks) == report.training_loss
    assert tuple(tick.figures["validation loss"] for tick in ticks) == report.validation_loss
    assert report.training_loss[-1] < report.training_loss[0]
    assert report.seconds > 0


def test_an_interrupt_passes_through(cohort):
    model = small()
    before = weights(model)

    def interrupt(tick: Tick) -> None:
        if tick.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(model, cohort, epochs=5, progress=interrupt)
    assert same_bits(weights(model), before)


def test_fitting_uses_its_own_number_of_threads_and_gives_the_old_one_back(cohort):
    seen, ambient = [], torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for threads in (1, 3):
            settings = FitSettings(epochs=1, threads=threads)
            fit(small(), cohort, settings=settings, progress=lambda _: seen.append(torch.get_num_threads()))
        assert (seen, torch.get_num_threads()) == ([1, 3], 2)
    finally:
        torch.set_num_threads(ambient)


# --- limits after training


@pytest.fixture(scope="module")
def limited() -> LocationScale:
    # The truth is steeper than the limits, so that training pushes against them.
    train = make_cohort(linear, subjects=30, seed=6)
    settings = FitSettings(epochs=30, learning_rate=1e-2, batch_size=64)
    return fit(LocationScale(SCHEMA, hidden=(16,), lipschitz=(0.4, 0.05)), train, settings=settings)


@pytest.mark.parametrize(("name", "limit"), [("location", 0.4), ("scale", 0.05)])
def test_norms_are_exact_after_training(limited, name, limit):
    network = getattr(limited, name)
    for matrix in (network.state, *network.layers):
        assert spectral_norm(matrix.weight()) == pytest.approx(math.sqrt(limit), rel=1e-6)  # float32 weights
    exact = getattr(limited.for_search(), name)
    for matrix in (exact.state, *exact.layers):
        assert spectral_norm(matrix.weight()) == pytest.approx(math.sqrt(limit), rel=1e-11)
    assert exact.state_lipschitz() == pytest.approx(limit, rel=1e-10)


def test_sampled_slopes_stay_below_the_declared_constants_of_a_trained_model(limited):
    model = limited.for_search()
    generator = torch.Generator().manual_seed(0)

    def draw(*size):
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    one, context, noise = draw(4000, 2) * 2, draw(4000, 1), draw(4000, 2) * 2
    # Near and far pairs: steep places are found by the near ones.
    two = one + draw(4000, 2) * torch.logspace(-5, 0.5, 4000, dtype=torch.float64).unsqueeze(1)
    actions = torch.randint(3, (4000,), generator=generator)
    change = (model.step(one, context, actions, noise) - model.step(two, context, actions, noise)).norm(dim=-1)
    constants = model.lipschitz(context, actions, noise)
    slopes = change / (one - two).norm(dim=-1)
    assert (slopes <= constants * (1 + 1e-9)).all()
    assert (slopes / constants).max() > 0.5  # the constants are not just large numbers


# --- every kind of model


def trainable_kinds() -> list[type[TrainableModel]]:
    for module in pkgutil.iter_modules(ifonly.models.__path__):
        importlib.import_module(f"ifonly.models.{module.name}")

    def below(kind):
        return [kind, *(leaf for child in kind.__subclasses__() for leaf in below(child))]

    kinds = [k for k in below(TrainableModel) if not inspect.isabstract(k) and k.__module__.startswith("ifonly.")]
    kinds.remove(Ensemble)  # is fitted by fit_ensemble
    kinds.remove(SubjectEffectModel)  # is fitted by fit_with_effects
    return sorted(kinds, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", trainable_kinds(), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("prior", ["gaussian", "independent", "laplace"])
def test_every_kind_of_model_can_be_fitted(cohort, kind, prior):
    settings = FitSettings(epochs=8, learning_rate=1e-2, batch_size=64)
    model = kind(SCHEMA, hidden=(8,), prior=prior)
    fitted = fit(model, cohort, settings=settings)
    untrained = copy.deepcopy(model)
    untrained.set_scaler(fitted.scaler)
    assert type(fitted) is kind
    assert evaluate(fitted, cohort) > evaluate(untrained, cohort) + 0.1
    assert same_bits(weights(fitted), weights(fit(kind(SCHEMA, hidden=(8,), prior=prior), cohort, settings=settings)))


LIMITS = {"Additive": 0.5, "PostNonlinear": 0.5, "LocationScale": (0.5, 0.1), "MonotoneFlow": (0.5, 0.1, 0.1, 0.1)}


@pytest.mark.parametrize("kind", trainable_kinds(), ids=lambda kind: kind.__name__)
def test_a_baked_model_is_fitted_as_any_other(cohort, kind):
    model = kind(SCHEMA, hidden=(8,), lipschitz=LIMITS[kind.__name__])
    plain = fit(model, cohort, epochs=2)
    model.bake_()
    fitted = fit(model, cohort, epochs=2)
    assert same_bits(weights(fitted), weights(plain))
    assert evaluate(fitted, cohort) == evaluate(plain, cohort)
    assert model.is_baked()


def test_all_four_kinds_are_there():
    assert {kind.__name__ for kind in trainable_kinds()} >= {
        "Additive",
        "LocationScale",
        "MonotoneFlow",
        "PostNonlinear",
    }


@pytest.mark.parametrize("hidden", [(8, 8), (8, 4, 8)])
def test_deep_networks_and_schemas_without_context(hidden):
    schema = Schema((Feature("x", "dynamic"),), ActionSpace.categories(["a", "b"]))
    rng = np.random.default_rng(0)
    episodes = [Episode(str(i), schema, rng.normal(size=(6, 1)), rng.integers(2, size=6)) for i in range(10)]
    model = fit(
        LocationScale(schema, hidden=hidden, lipschitz=(0.5, 0.5)), Cohort.from_episodes(episodes), epochs=2, seed=0
    )
    assert model.for_search().location.state_lipschitz() == pytest.approx(0.5, rel=1e-9)


# --- errors


def test_a_cohort_of_another_schema_is_refused(cohort):
    other = Schema((*SCHEMA.features[:2], Feature("weight", "static")), SCHEMA.actions)
    with pytest.raises(SchemaMismatchError, match="weight"):
        fit(LocationScale(other), cohort)
    with pytest.raises(SchemaMismatchError, match="weight"):
        evaluate(LocationScale(other), cohort)


def test_one_subject_cannot_be_split_but_can_be_fitted_without_validation():
    one = make_cohort(linear, subjects=1, episodes_each=4, seed=0)
    with pytest.raises(InputError, match=r"only one.*validation=0"):
        fit(small(), one, epochs=1)
    assert fit(small(), one, settings=FitSettings(epochs=1, validation=0)).fit_report.training.subjects == 1


@pytest.mark.parametrize("limits", [None, (1.0, 0.1)])
@pytest.mark.parametrize("validation", [0.2, 0])
def test_a_training_that_breaks_down_says_when_and_what_to_do(cohort, limits, validation):
    settings = FitSettings(epochs=30, learning_rate=1e30, validation=validation)
    with pytest.raises(FitError, match=r"no longer finite at epoch \d+ of 30.*learning rate \(it is 1e\+30\)"):
        fit(small(lipschitz=limits), cohort, settings=settings)


class Poisoned(LocationScale):
    """Its loss is finite, its gradient is not: the square root of zero has no slope."""

    def log_prob(self, *arguments):
        return super().log_prob(*arguments) + (0 * self.location.layers[0].raw.sum()).sqrt()


@pytest.mark.parametrize("validation", [0.2, 0])
@pytest.mark.parametrize("batch_size", [64, 10_000], ids=["seen at the next batch", "seen after the last"])
@pytest.mark.parametrize("limits", [None, (1.0, 0.1)], ids=["free", "norm of a matrix that is not finite"])
def test_weights_that_are_not_finite_are_never_returned(cohort, limits, batch_size, validation):
    settings = FitSettings(epochs=1, batch_size=batch_size, validation=validation)
    with pytest.raises(FitError, match="at epoch 1 of 1"):
        fit(Poisoned(SCHEMA, hidden=(8, 8), lipschitz=limits), cohort, settings=settings)


def test_a_frozen_copy_for_search_is_refused(cohort):
    with pytest.raises(InputError, match="pass the model it was made from"):
        fit(small(lipschitz=(1.0, 0.1)).for_search(), cohort)


@pytest.mark.parametrize("seed", [-1, 1.5, True, None])
def test_seeds_are_whole_numbers(cohort, seed):
    with pytest.raises(InputError, match="seed"):
        fit(small(), cohort, seed=seed)


@pytest.mark.parametrize("device", ["nowhere", "cuda:99"])
def test_a_device_that_is_not_there_is_named(cohort, device):
    with pytest.raises(InputError, match=f"device '{device}'.*try 'cpu'"):
        fit(small(), cohort, settings=FitSettings(device=device))


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"epochs": 2.5},
        {"batch_size": 0},
        {"batch_size": True},
        {"threads": 0},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"validation": -0.1},
        {"validation": 1.0},
        {"validation": math.nan},
        {"schedule": "linear"},
    ],
    ids=str,
)
def test_settings_are_checked_when_made(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        FitSettings(**wrong)


# --- how thoroughly


@pytest.mark.parametrize(
    ("transitions", "size"),
    [(6, 32), (2_000, 32), (4_100, 64), (5_700, 64), (5_900, 128), (20_000, 256), (32_800, 512), (200_000, 512)],
)
def test_thorough_batches_are_as_many_in_an_epoch_whatever_the_cohort(transitions, size):
    episodes = transitions // 100 or 1
    steps = transitions // episodes + 1
    cohort = make_cohort(linear, subjects=episodes, seed=0, steps=steps)
    assert DataCounts.of(cohort).transitions == transitions
    found = FitSettings.thorough(cohort)
    assert found == FitSettings(batch_size=size, learning_rate=5e-3, schedule="cosine")
    if 32 < size < 512:
        assert 64 / 2**0.5 <= transitions / size <= 64 * 2**0.5
    own = {"batch_size": 7, "learning_rate": 0.1, "schedule": "constant", "epochs": 3, "validation": 0.2}
    assert FitSettings.thorough(cohort, **own) == FitSettings(**own)


def test_rates_fall_along_half_a_cosine_to_a_hundredth():
    settings = FitSettings(epochs=11, learning_rate=0.02, schedule="cosine")
    rates = [settings.rate(epoch) for epoch in range(1, 12)]
    assert rates[0] == pytest.approx(0.02)
    assert rates[-1] == pytest.approx(0.02 / 100)
    assert rates[5] == pytest.approx((rates[0] + rates[-1]) / 2)
    assert rates == sorted(rates, reverse=True)
    np.testing.assert_allclose(np.array(rates) + rates[::-1], rates[0] + rates[-1])
    assert FitSettings(epochs=1, learning_rate=0.02, schedule="cosine").rate(1) == 0.02
    assert {FitSettings(epochs=5, learning_rate=0.02).rate(epoch) for epoch in range(1, 6)} == {0.02}


def test_every_epoch_is_trained_at_its_rate(cohort, monkeypatch):
    rates: list[float] = []
    step = Adam.step

    def noted(self, loss, rate):  # type: ignore[no-untyped-def]
        rates.append(rate)
        return step(self, loss, rate)

    monkeypatch.setattr(Adam, "step", noted)
    settings = FitSettings(epochs=4, batch_size=100_000, learning_rate=0.02, schedule="cosine")
    falling = fit(small(), cohort, settings=settings)
    assert rates == [settings.rate(epoch) for epoch in range(1, 5)]
    constant = fit(small(), cohort, settings=replace(settings, schedule="constant"))
    assert rates[4:] == [0.02] * 4
    first, later = (np.array(model.fit_report.training_loss) for model in (falling, constant))
    np.testing.assert_array_equal(first[:2], later[:2])  # the first epoch is the same; the second begins from it
    assert (first[2:] != later[2:]).all()


# --- the report


def test_reports_survive_json_and_print_themselves(cohort):
    for validation in (0.2, 0):
        report = fit(small(), cohort, settings=FitSettings(epochs=2, validation=validation)).fit_report
        content = json.loads(json.dumps(report.to_dict()))
        assert FitReport.from_dict(content) == report
        assert content["kept_epoch"] == report.kept_epoch
        assert "2 epochs" in str(report)
        assert str(report.training) in str(report)
        assert ("none; the last epoch is kept" in str(report)) == (validation == 0)


def test_a_damaged_report_is_refused(cohort):
    content = fit(small(), cohort, epochs=1).fit_report.to_dict()
    del content["training"]
    with pytest.raises(StoreError, match="training"):
        FitReport.from_dict(content)
