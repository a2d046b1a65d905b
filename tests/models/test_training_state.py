"""The training of refits that was stopped goes on, to the very weights that it would have come to."""

from pathlib import Path

import pytest
import torch

import ifonly
from ifonly.evidence.check import remedies
from ifonly.models import fit_ensemble as fitting
from ifonly.models import training_state
from ifonly.models.fit_ensemble import fit_ensemble
from ifonly.models.recipes import RECIPES
from ifonly.models.training_state import TrainingState
from ifonly.progress import Tick
from ifonly.simulate import simulate_cohort
from ifonly.study.plan import FitPlan
from ifonly.study.stages import store_model


@pytest.fixture(scope="module")
def cohort() -> ifonly.Cohort:
    return simulate_cohort(12, seed=0, horizon=4)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_state, "SECONDS_BETWEEN", -1.0)


class StopError(Exception):
    pass


def stop_at(epoch: int):
    def progress(tick: Tick) -> None:
        if tick.done == epoch:
            raise StopError

    return progress


@pytest.mark.parametrize("settings", [{}, {"validation": 0.0}, {"threads": 2}], ids=["one", "all", "groups"])
def test_refits_go_on_to_the_same_weights(cohort: ifonly.Cohort, tmp_path: Path, settings: dict) -> None:
    model = ifonly.LocationScale(cohort.schema, hidden=(4,), lipschitz=(1.0, 0.1))
    chosen = ifonly.FitSettings(epochs=5, batch_size=8, **settings)
    asked = {"members": 2, "settings": chosen, "seed": 4}
    whole = fit_ensemble(model, cohort, **asked)
    file = tmp_path / "model.training"
    with pytest.raises(StopError):
        fit_ensemble(model, cohort, **asked, journal=file, progress=stop_at(4))
    ticks: list[Tick] = []
    found = fit_ensemble(model, cohort, **asked, journal=file, progress=ticks.append)
    assert [tick.done for tick in ticks] == [4, 5], "what was written down is not done again"
    assert found.fingerprint() == whole.fingerprint()
    for one, other in zip((found.centre, *found.members), (whole.centre, *whole.members), strict=True):
        assert one.fit_report.training_loss == other.fit_report.training_loss
        assert one.fit_report.validation_loss == other.fit_report.validation_loss


def test_what_is_of_another_training_or_damaged_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "state"
    state = TrainingState(file, "a", 1)
    assert state.read() is None
    state.keep(lambda: {"x": torch.arange(3.0), "none": torch.zeros(2, 0)})
    again = TrainingState(file, "a", 1).read()
    assert again is not None
    assert torch.equal(again["x"], torch.arange(3.0))
    assert TrainingState(file, "a", 2).read() is None
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert TrainingState(file, "a", 1).read() is None
    file.write_bytes(data[:50])
    assert TrainingState(file, "a", 1).read() is None


@pytest.mark.parametrize("plan", [{"recipe": "own"}, {"recipe": "paper"}], ids=["own", "recipe"])
def test_a_fit_that_was_killed_goes_on_and_leaves_nothing(
    cohort: ifonly.Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: dict
) -> None:
    ifonly.save_cohort(cohort, tmp_path / "cohort")
    chosen = FitPlan(**plan, hidden=(4,), refits=1, epochs=4)
    whole = store_model(tmp_path / "cohort", tmp_path / "whole", chosen)
    with pytest.raises(StopError):
        store_model(tmp_path / "cohort", tmp_path / "model", chosen, progress=stop_at(3))
    epochs = []
    train = fitting._Group.train_epoch
    monkeypatch.setattr(fitting._Group, "train_epoch", lambda *args: epochs.append(1) or train(*args))
    found = store_model(tmp_path / "cohort", tmp_path / "model", chosen)
    assert 0 < len(epochs) < 4 * chosen.settings(cohort).threads
    assert found.fingerprint() == whole.fingerprint()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cohort", "model", "whole"]


def test_remedies_that_were_stopped_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe that was tried is not fitted again, and one that was being fitted goes on."""
    training, held_out = simulate_cohort(30, seed=1, horizon=5), simulate_cohort(12, seed=2, horizon=5)
    model = ifonly.fit(ifonly.LocationScale(training.schema, hidden=(4,)), training, epochs=1)
    check = ifonly.check_model(model, held_out)
    monkeypatch.setattr(remedies, "promising", lambda *_, **__: (RECIPES["plain"], RECIPES["residual"]))
    monkeypatch.setattr(remedies, "check_model", lambda *_, **__: check)
    asked = {"settings": ifonly.FitSettings(epochs=3)}
    whole = remedies.try_remedies(model, training, held_out, check, **asked)
    journal = tmp_path / "model.tried"
    with pytest.raises(StopError):
        remedies.try_remedies(model, training, held_out, check, **asked, journal=journal, progress=stop_at(5))
    epochs = []
    train = fitting._Group.train_epoch
    monkeypatch.setattr(fitting._Group, "train_epoch", lambda *args: epochs.append(1) or train(*args))
    found = remedies.try_remedies(model, training, held_out, check, **asked, journal=journal)
    assert len(epochs) == 2
    assert [one.model.fingerprint() for one in found] == [one.model.fingerprint() for one in whole]
    remedies.forget_trials(journal)
    assert list(tmp_path.iterdir()) == []
