"""Files that would hang or fill the memory are refused at once, with a reason, and none leads out of its folder."""

import hashlib
import json
import os
import shutil
import time
from pathlib import Path

import polars as pl
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

import ifonly
from ifonly.data import ActionSpace, Axis
from ifonly.data.parsing import _YamlLoader, parse_json, parse_yaml
from ifonly.errors import IfonlyError, InputError, StoreError
from ifonly.evidence.behaviour import load_behaviour
from ifonly.evidence.check.thresholds import load_thresholds
from ifonly.proofs.question import Record
from ifonly.query import read_query_file
from ifonly.runs.manifest import read_manifest

CORPUS = Path(__file__).parents[1] / "corpus"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
AXES = "features: [{name: x, kind: dynamic}]\nactions:\n  axes:\n" + "".join(
    f"  - {{name: a{number}, unit: mg, levels: {list(range(50))}}}\n" for number in range(6)
)
SCHEMAS = {
    "aliases.yaml": (BOMB, "alias"),
    "axes.yaml": (AXES, "at most 1,000,000 numbers"),
    "categories.json": (
        json.dumps(
            {
                "features": [{"name": "x", "kind": "dynamic"}],
                "actions": {"categories": [f"c{number}" for number in range(40_000)]},
            }
        ),
        "at most 1,000,000 numbers",
    ),
    "keys.json": (json.dumps({f"k{number}": 0 for number in range(30_000)}), "missing"),
    "entries.json": ('{"features": [' + "[]," * 3_000_000 + "[]]}", "more than 3,000,000 entries"),
    "many keys.json": ("{" + ",".join(f'"k{number}":0' for number in range(600_000)) + "}", "more than 500,000 keys"),
    "lists.json": ('{"features": [' + "[]," * 600_000 + "[]]}", "more than 500,000 keys, lists"),
    "unknown keys.json": ("{" + ",".join(f'"k{number}":0' for number in range(400_000)) + "}", "missing"),
    "deep.yaml": ("a: " + "[" * 20_000, "nested more than"),
    "block.yaml": ("".join(f"{' ' * depth}a:\n" for depth in range(900)), "nested more than"),
    "deep.json": ('{"a": ' + "[" * 200_000, "nested more than"),
    "closed.json": ('{"a": ' + "[" * 500 + "]" * 500 + "}", "nested more than"),
    "digits.json": ('{"version": ' + "9" * 5000 + "}", "5,000 digits"),
    "digits.yaml": ("version: " + "9" * 5000, "5,000 digits"),
    "hexadecimal.yaml": ("version: 0x" + "f" * 5000, "digits"),
    "sixties.yaml": ("version: " + ":".join(["59"] * 5000), "digits"),
    "no number.yaml": ("version: 0b_", "is no number"),
    "long.yaml": ("# " + "x" * 2**20, "at most 1 MB"),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_without_measure_are_refused_at_once(tmp_path: Path, name: str) -> None:
    content, reason = SCHEMAS[name]
    (tmp_path / name).write_text(content)
    began = time.process_time()
    with pytest.raises(IfonlyError, match=reason) as caught:
        ifonly.load_schema(tmp_path / name)
    assert time.process_time() - began < 2
    assert len(str(caught.value)) < 2000


def test_a_message_is_not_as_long_as_what_it_quotes(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(json.dumps({"format": "x" * 2**22}))
    with pytest.raises(StoreError, match=r"schema.json.*expected 'ifonly.schema'\.$") as caught:
        ifonly.load_schema(tmp_path / "schema.json")
    assert len(str(caught.value)) < 4_000


def test_thousands_of_keys_take_no_time() -> None:
    words = [yaml.ScalarNode("tag:yaml.org,2002:str", f"k{number}") for number in range(30_000)]
    mapping = yaml.MappingNode("tag:yaml.org,2002:map", [(word, word) for word in words])
    began = time.process_time()
    assert len(_YamlLoader("").construct_mapping(mapping)) == 30_000
    assert time.process_time() - began < 5
    with pytest.raises(ValueError, match="line 3: the key 'k5' occurs twice"):
        parse_yaml("k5: 1\nk6: 1\nk5: 1\n")


def test_an_axis_of_many_levels_takes_no_time() -> None:
    began = time.process_time()
    space = ActionSpace.product(Axis("dose", "mg", range(20_000)))
    assert (len(space), space.labels[-1]) == (20_000, "dose 19999 mg")
    assert time.process_time() - began < 2
    with pytest.raises(InputError, match="increase") as caught:
        Axis("dose", "mg", [1] * 100_000)
    assert len(str(caught.value)) < 200


def test_what_is_reasonable_is_taken() -> None:
    deep = json.loads("[" * 60 + "]" * 60)
    assert parse_json(json.dumps(deep)) == parse_yaml(json.dumps(deep)) == deep
    assert parse_yaml("a: [1, -0x1f, 1_000, 1:30, 1.5, .inf]") == {"a": [1, -31, 1000, 90, 1.5, float("inf")]}


@pytest.mark.parametrize(
    "read",
    [read_query_file, load_thresholds, ifonly.Result.load, lambda path: read_manifest(path.parent)],
    ids=["query", "thresholds", "result", "manifest"],
)
@pytest.mark.parametrize("content", ["[" * 100_000, '{"version": ' + "9" * 5000 + "}"], ids=["deep", "digits"])
def test_no_reader_breaks_off(tmp_path: Path, read, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(StoreError):
        read(tmp_path / "run.json")


@pytest.mark.parametrize("name", ["s.yaml", "s.json"])
def test_a_file_without_end_is_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(StoreError, match="no ordinary file"):
        ifonly.load_schema(tmp_path / name)


def test_a_small_table_that_unfolds_is_refused(tmp_path: Path) -> None:
    rows = 12_000_000
    frame = pl.DataFrame({"x": pl.Series([0.0]).new_from_index(0, rows)})
    frame.write_parquet(tmp_path / "t.parquet", row_group_size=rows)
    assert (tmp_path / "t.parquet").stat().st_size < 100_000
    with pytest.raises(StoreError, match=r"12,000,000 cells in a file of .* are no recorded data"):
        ifonly.data.store.read_frame(tmp_path / "t.parquet")


@pytest.fixture(scope="module")
def cohort() -> ifonly.Cohort:
    return ifonly.simulate.simulate_cohort(3, seed=0)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors", "check.json"])
def test_links_out_of_a_model_are_not_followed(tmp_path: Path, cohort: ifonly.Cohort, name: str) -> None:
    folder = tmp_path / "model"
    ifonly.save_model(ifonly.LocationScale(cohort.schema, hidden=(4,)), folder)
    (folder / "check.json").write_text("{}")
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    with pytest.raises(StoreError, match="leads out of its folder"):
        ifonly.load_model(folder)


def test_links_out_of_a_cohort_are_not_followed_and_a_linked_folder_is(tmp_path: Path, cohort: ifonly.Cohort) -> None:
    ifonly.save_cohort(cohort, tmp_path / "cohort")
    (tmp_path / "linked").symlink_to(tmp_path / "cohort")
    assert len(ifonly.load(tmp_path / "linked")) == 3
    (tmp_path / "cohort" / "episodes.parquet").rename(tmp_path / "e.parquet")
    (tmp_path / "cohort" / "episodes.parquet").symlink_to("../e.parquet")
    with pytest.raises(StoreError, match="leads out of its folder"):
        ifonly.load(tmp_path / "cohort")


def forged(folder: Path, cohort: ifonly.Cohort, **settings: object) -> Path:
    ifonly.save_model(ifonly.LocationScale(cohort.schema, hidden=(4,)), folder)
    content = json.loads((folder / "model.json").read_text())
    content["settings"] |= settings
    (folder / "model.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("name", ["cohort/episodes.parquet", "model/model.safetensors", "cohort/metadata.json"])
def test_files_of_holes_are_not_read(tmp_path: Path, cohort: ifonly.Cohort, name: str) -> None:
    """They take no room on a disk, and more than any memory has."""
    ifonly.save_cohort(cohort, tmp_path / "cohort")
    ifonly.save_model(ifonly.LocationScale(cohort.schema, hidden=(4,)), tmp_path / "model")
    os.truncate(tmp_path / name, 2**40)
    began = time.process_time()
    with pytest.raises(StoreError, match=r"were written|are read"):
        ifonly.load(tmp_path / "cohort") and ifonly.load_model(tmp_path / "model")
    assert time.process_time() - began < 1


@pytest.mark.parametrize("hidden", [[1] * 200_000, [10**9], [10**30]], ids=["layers", "wide", "wider"])
def test_a_forged_network_is_refused_before_it_is_built(tmp_path: Path, cohort: ifonly.Cohort, hidden) -> None:
    began = time.process_time()
    with pytest.raises((StoreError, InputError), match="layers with"):
        ifonly.load_model(forged(tmp_path / "model", cohort, hidden=hidden))
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("entry", "value", "reason"),
    [
        ("hidden", [3000] * 200, "layers with"),
        ("hidden", [10**9], "layers with"),
        ("k", -1, "nearest"),
        ("k", 10**9, "nearest"),
    ],
)
def test_a_forged_behaviour_model_is_refused_before_it_is_built(tmp_path: Path, entry: str, value, reason: str) -> None:
    shutil.copytree(CORPUS / "behaviour", tmp_path / "behaviour")
    content = json.loads((tmp_path / "behaviour" / "behaviour.json").read_text())
    (content if entry in content else content["states"])[entry] = value
    (tmp_path / "behaviour" / "behaviour.json").write_text(json.dumps(content))
    began = time.process_time()
    with pytest.raises(StoreError, match=reason):
        load_behaviour(tmp_path / "behaviour")
    assert time.process_time() - began < 1


def test_weights_that_are_not_finite_are_refused(tmp_path: Path, cohort: ifonly.Cohort) -> None:
    folder = forged(tmp_path / "model", cohort)
    weights = load_file(folder / "model.safetensors")
    name = sorted(weights)[0]
    weights[name] = torch.full_like(weights[name], torch.nan)
    save_file(weights, folder / "model.safetensors")
    content = json.loads((folder / "model.json").read_text())
    content["sha256"] = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    (folder / "model.json").write_text(json.dumps(content))
    with pytest.raises(StoreError, match="not finite"):
        ifonly.load_model(folder)


def test_a_million_tensors_are_not_read_one_by_one(tmp_path: Path, cohort: ifonly.Cohort) -> None:
    nothing = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    for count, message in ((60_000, "as those of no model do"), (1_000, "do not make a model")):
        folder = forged(tmp_path / str(count), cohort)
        header = json.dumps({f"tensor {number}": nothing for number in range(count)}).encode()
        data = len(header).to_bytes(8, "little") + header
        (folder / "model.safetensors").write_bytes(data)
        content = json.loads((folder / "model.json").read_text())
        content["sha256"] = hashlib.sha256(data).hexdigest()
        (folder / "model.json").write_text(json.dumps(content))
        with pytest.raises(StoreError, match=message) as caught:
            ifonly.load_model(folder)
        assert len(str(caught.value)) < 2000


def test_a_line_without_end_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",".join(f"c{number}" for number in range(200_000)) + "\n1\n")
    with pytest.raises(InputError, match="first line has more than 1,000,000 letters"):
        ifonly.read_table(tmp_path / "t.csv", CORPUS / "schema.yaml")


def test_names_of_columns_make_no_endless_message(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x" * 100_000 + ",y\n1,2\n")
    with pytest.raises(InputError, match="lacks the") as caught:
        ifonly.read_table(tmp_path / "t.csv", CORPUS / "schema.yaml")
    assert len(str(caught.value)) < 1000


def test_what_lies_in_other_folders_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "secret-plan.txt").touch()
    with pytest.raises(StoreError, match="no cohort folder") as caught:
        ifonly.load(tmp_path)
    assert "secret" not in str(caught.value)


def test_a_plain_array_is_no_log_of_a_search(tmp_path: Path) -> None:
    import numpy as np

    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(StoreError, match="no log of a search"):
        Record.read(tmp_path / "a.npy")
    np.savez(tmp_path / "log.npz", header=np.zeros(3))
    whole = bytearray((tmp_path / "log.npz").read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        whole[whole.index(signature) + flags] |= 1  # said to be encrypted
    (tmp_path / "log.npz").write_bytes(whole)
    with pytest.raises(StoreError, match="no log of a search"):
        Record.read(tmp_path / "log.npz")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="no ordinary file"):
        Record.read(tmp_path / "pipe")
