import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_behaviour import learned, small_cohort, small_schema
from safetensors import safe_open

from ifonly.errors import InputError, SchemaMismatchError, StoreError
from ifonly.evidence.behaviour import Recordings, load_behaviour, save_behaviour


@pytest.fixture
def folder(tmp_path):
    save_behaviour(learned(), tmp_path / "behaviour", provenance={"seed": 0})
    return tmp_path / "behaviour"


def test_what_is_saved_comes_back_bit_by_bit(folder) -> None:
    behaviour, again = learned(), load_behaviour(folder, schema=learned().schema)
    assert again.fingerprint == behaviour.fingerprint
    assert again.report == behaviour.report
    states, context = torch.randn(7, 2, dtype=torch.float64), torch.randn(7, 1, dtype=torch.float64)
    assert torch.equal(again.probabilities(states, context, 2), behaviour.probabilities(states, context, 2))
    assert torch.equal(again.distance_percentile(states), behaviour.distance_percentile(states))
    assert json.loads((folder / "behaviour.json").read_text())["provenance"] == {"seed": 0}


def test_patient_data_are_named_as_such_and_can_be_left_out(folder, tmp_path) -> None:
    content = json.loads((folder / "behaviour.json").read_text())
    assert "patient data" in content["states"]["contains"]
    with safe_open(folder / "states.safetensors", "pt") as file:
        assert "patient data" in file.metadata()["contains"]
        kept = {"states", "context", "actions", "measured", "offsets", "subjects"}
        assert set(file.keys()) == {"states", "distances", *(f"recorded.{name}" for name in kept)}
    save_behaviour(learned(), tmp_path / "shared", with_states=False)
    assert not (tmp_path / "shared" / "states.safetensors").exists()
    shared = load_behaviour(tmp_path / "shared")
    assert shared.neighbours is None
    assert shared.recordings is None
    assert shared.fingerprint == learned().fingerprint
    text = (tmp_path / "shared" / "behaviour.json").read_text()
    assert "e1" not in json.loads(text)["provenance"]
    assert "e17" not in text


def test_nothing_is_replaced_unasked(folder) -> None:
    with pytest.raises(StoreError, match="exists already"):
        save_behaviour(learned(), folder)
    save_behaviour(learned(), folder, overwrite=True)
    with pytest.raises(InputError, match="not JSON"):
        save_behaviour(learned(), folder, overwrite=True, provenance={"x": object()})
    assert load_behaviour(folder).fingerprint == learned().fingerprint


@pytest.mark.parametrize("name", ["behaviour.safetensors", "states.safetensors", "behaviour.json"])
def test_a_file_that_was_cut_off_or_is_missing_is_refused(folder, name: str) -> None:
    file = folder / name
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="cut off"):
        load_behaviour(folder)
    file.unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        load_behaviour(folder)


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("format", "ifonly.model", "not a behaviour model"),
        ("version", 1, "reads version 2"),
        ("temperature", 2.0, "fingerprint differs"),
        ("longest", 9, "fingerprint differs"),
        ("hidden", [3], "broken or incomplete"),
        ("scaling", {}, "broken or incomplete"),
        ("report", {}, "broken or incomplete"),
        ("temperature", None, "broken or incomplete"),
        ("longest", 1e999, "broken or incomplete"),
    ],
)
def test_altered_metadata_are_refused(folder, entry: str, value: object, message: str) -> None:
    file = folder / "behaviour.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, entry: value}))
    with pytest.raises(StoreError, match=message):
        load_behaviour(folder)


def test_another_schema_is_refused(folder) -> None:
    with pytest.raises(SchemaMismatchError):
        load_behaviour(folder, schema=small_schema(4))


def test_recorded_courses_come_back_as_they_were(folder) -> None:
    behaviour, again = learned(), load_behaviour(folder)
    for name in ("states", "context", "actions", "measured", "offsets", "subjects"):
        assert torch.equal(getattr(again.recordings, name), getattr(behaviour.recordings, name))
    cohort, whole = again.recordings.cohort(again.schema, again.scaler), small_cohort()
    assert (len(cohort), len(again.recordings)) == (60, 240)
    for episode in cohort:
        original = next(one for one in whole if np.allclose(one.states, episode.states))
        np.testing.assert_array_equal(original.actions, episode.actions)
        np.testing.assert_allclose(original.context, episode.context)


def test_columns_that_do_not_belong_together_are_refused() -> None:
    kept = learned().recordings
    sizes = (2, 1, 3)
    assert len(Recordings.from_columns(kept.columns(), sizes)) == len(kept)
    for broken in (
        {"actions": kept.actions + 2},
        {"offsets": kept.offsets[:-1]},
        {"measured": kept.measured[:, :1]},
        {"subjects": kept.subjects[1:]},
    ):
        with pytest.raises(InputError, match="do not belong together"):
            Recordings.from_columns(replace(kept, **broken).columns(), sizes)


def test_of_many_episodes_some_are_kept_whole_and_measured_entries_are_marked() -> None:
    cohort = small_cohort()
    origins = np.random.default_rng(0).integers(3, size=cohort.states.shape)
    marked = replace(cohort, origins=origins)
    scaler = learned().scaler
    few = Recordings.of(marked, scaler, most=50, seed=3)
    assert 50 <= len(few) < 55
    assert few.offsets.diff().tolist() == [5] * 13
    again = few.cohort(cohort.schema, scaler)
    for episode in again:
        original = next(one for one in marked if np.allclose(one.states, episode.states))
        np.testing.assert_array_equal(original.origins == 0, episode.origins == 0)
