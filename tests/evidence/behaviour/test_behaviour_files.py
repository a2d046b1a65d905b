import json

import pytest
import torch
from made_behaviour import learned, small_schema
from safetensors import safe_open

from ifonly.errors import InputError, SchemaMismatchError, StoreError
from ifonly.evidence.behaviour import load_behaviour, save_behaviour


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
        assert set(file.keys()) == {"states", "distances"}
    save_behaviour(learned(), tmp_path / "shared", with_states=False)
    assert not (tmp_path / "shared" / "states.safetensors").exists()
    shared = load_behaviour(tmp_path / "shared")
    assert shared.neighbours is None
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
        ("version", 2, "reads version 1"),
        ("temperature", 2.0, "fingerprint differs"),
        ("longest", 9, "fingerprint differs"),
        ("hidden", [3], "broken or incomplete"),
        ("scaling", {}, "broken or incomplete"),
        ("report", {}, "broken or incomplete"),
        ("temperature", None, "broken or incomplete"),
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
