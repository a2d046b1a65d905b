import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from effort import some
from hypothesis import given, settings
from random_cohorts import assert_same, cohorts, schemas

import ifonly
from ifonly.data import (
    ActionSpace,
    Axis,
    Cohort,
    Feature,
    Schema,
    load,
    load_cohort,
    load_metadata,
    load_schema,
    save_cohort,
    save_schema,
)
from ifonly.data.store import read_table_and_remarks
from ifonly.errors import InputError, PlausibilityWarning, StoreError

relaxed = settings(deadline=None, derandomize=True, max_examples=some(60))
quiet = pytest.mark.filterwarnings("ignore::ifonly.errors.PlausibilityWarning")

SCHEMA = Schema(
    (
        Feature("age", "static", unit="years"),
        Feature("SOFA", "dynamic", plausible=(0, 24)),
        Feature("lactate", "dynamic", unit="µmol/L", scaling="log"),
    ),
    ActionSpace.product(Axis("press", "mcg/kg/min", (0, 0.04)), Axis("fluid", "mL/4 h", (0, 80, 850))),
    step_length=4,
    step_unit="h",
)


def make(count=3, seed=0):
    generator = np.random.default_rng(seed)
    lengths = generator.integers(2, 6, size=count)
    total = int(lengths.sum())
    return Cohort(
        schema=SCHEMA,
        ids=tuple(f"stay {i}" for i in range(count)),
        offsets=np.cumsum([0, *lengths]),
        states=generator.uniform(1, 10, size=(total, 2)),
        context=np.repeat(generator.uniform(20, 90, size=count), lengths)[:, None],
        actions=generator.integers(6, size=total),
        subjects=tuple(f"patient {i // 2}" for i in range(count)),
    )


@pytest.fixture
def folder(tmp_path):
    save_cohort(make(), tmp_path / "cohort", provenance={"source": "a test", "seed": 0})
    return tmp_path / "cohort"


def names_in(folder):
    return sorted(item.name for item in folder.iterdir())


def snapshot(folder):
    return {item.name: (item.read_bytes(), item.stat().st_mtime_ns) for item in folder.iterdir()}


def rewrite_metadata(folder, **changes):
    source = folder / "metadata.json"
    content = {**json.loads(source.read_text()), **changes}
    source.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def rewrite_table(folder, frame):
    """Another table with a correct checksum, as another program might write it."""
    frame.write_parquet(folder / "episodes.parquet")
    data = (folder / "episodes.parquet").read_bytes()
    rewrite_metadata(folder, table={"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})


@quiet
@given(cohorts())
@relaxed
def test_every_cohort_comes_back_bit_by_bit(cohort):
    with tempfile.TemporaryDirectory() as place:
        save_cohort(cohort, Path(place) / "c")
        assert_same(load_cohort(Path(place) / "c"), cohort)


def test_the_folder_is_what_the_standard_says(folder):
    assert names_in(folder) == ["episodes.parquet", "metadata.json"]
    frame = pl.read_parquet(folder / "episodes.parquet")
    text, whole, number = pl.String, pl.Int64, pl.Float64
    assert list(frame.schema.items()) == [
        ("episode", text),
        ("subject", text),
        ("step", whole),
        ("action", whole),
        ("age", number),
        ("SOFA", number),
        ("lactate", number),
    ]
    cohort = make()
    first = frame.filter(pl.col("episode") == "stay 0")
    assert first["step"].to_list() == list(range(len(cohort[0])))
    assert first["SOFA"].to_list() == cohort[0].states[:, 0].tolist()
    assert first["age"].to_list() == cohort[0].context[:, 0].tolist()
    data = (folder / "episodes.parquet").read_bytes()
    assert json.loads((folder / "metadata.json").read_text(encoding="utf-8")) == {
        "format": "ifonly.cohort",
        "version": 1,
        "ifonly": ifonly.__version__,
        "provenance": {"source": "a test", "seed": 0},
        "counts": {"episodes": 3, "subjects": 2, "steps": len(cohort.actions)},
        "table": {"file": "episodes.parquet", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()},
        "schema_fingerprint": SCHEMA.fingerprint,
        "schema": SCHEMA.to_dict(),
    }
    assert "µmol/L" in (folder / "metadata.json").read_text(encoding="utf-8")


def test_loading_changes_nothing_and_takes_text_or_paths(folder):
    before = snapshot(folder)
    assert_same(load(str(folder)), make())
    assert_same(load_cohort(folder), make())
    assert load_metadata(folder)["provenance"] == {"source": "a test", "seed": 0}
    assert snapshot(folder) == before


def test_two_saves_are_the_same_bytes(folder, tmp_path):
    save_cohort(make(), tmp_path / "again", provenance={"source": "a test", "seed": 0})
    for name in ("episodes.parquet", "metadata.json"):
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_implausible_values_are_kept_and_reported_again_on_loading(tmp_path):
    states = make().states.copy()
    states[0, 0] = 99.0
    base = make()
    with pytest.warns(PlausibilityWarning, match="SOFA 1"):
        cohort = Cohort(SCHEMA, base.ids, base.offsets, states, base.context, base.actions, base.subjects)
    save_cohort(cohort, tmp_path / "c")
    with pytest.warns(PlausibilityWarning, match="SOFA 1") as caught:
        assert_same(load_cohort(tmp_path / "c"), cohort)
    assert len(caught) == 1


def test_a_cohort_in_the_way_is_replaced_only_on_request(folder):
    before = snapshot(folder)
    with pytest.raises(StoreError, match="exists already; pass overwrite=True"):
        save_cohort(make(seed=1), folder)
    assert snapshot(folder) == before
    save_cohort(make(seed=1), folder, overwrite=True)
    assert_same(load_cohort(folder), make(seed=1))
    assert load_metadata(folder)["provenance"] == {}


@pytest.mark.parametrize("provenance", [{"when": float("nan")}, {"who": object()}, {"text": "\ud800"}])
def test_provenance_that_json_cannot_hold_is_refused_before_anything_is_written(tmp_path, provenance):
    with pytest.raises(InputError, match="provenance"):
        save_cohort(make(), tmp_path / "c", provenance=provenance)
    assert names_in(tmp_path) == []


FAILURES = [OSError("no space left"), pl.exceptions.ComputeError("broken"), KeyboardInterrupt(), MemoryError()]


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("place", ["table", "metadata"])
@pytest.mark.parametrize("existing", [False, True])
def test_a_failure_in_the_middle_leaves_nothing_or_the_old_cohort(tmp_path, monkeypatch, error, place, existing):
    target = tmp_path / "c"
    if existing:
        save_cohort(make(), target)
        before = snapshot(target)

    def failing(self, file, *_, **__):
        path = Path(file) if place == "table" else self
        path.write_bytes(b"half")
        raise error

    owner, name = (pl.DataFrame, "write_parquet") if place == "table" else (Path, "write_text")
    monkeypatch.setattr(owner, name, failing)
    translated = isinstance(error, OSError | pl.exceptions.PolarsError)
    with pytest.raises(StoreError if translated else type(error)) as caught:
        save_cohort(make(seed=1), target, overwrite=True)
    if translated:
        assert str(target) in str(caught.value)
        assert "nothing was changed" in str(caught.value)
    monkeypatch.undo()
    assert names_in(tmp_path) == (["c"] if existing else [])
    if existing:
        assert snapshot(target) == before
        assert_same(load_cohort(target), make())


def test_a_place_that_cannot_be_written_is_a_store_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file.*could not be written"):
        save_cohort(make(), tmp_path / "file" / "cohort")


def test_a_table_cut_off_anywhere_is_recognised(folder):
    table = folder / "episodes.parquet"
    data = table.read_bytes()
    offsets = sorted({0, 1, 4, len(data) - 1, len(data) - 4, len(data) - 8, *range(0, len(data), 37)})
    for honest in (True, False):  # with and without a checksum that gives it away
        for offset in offsets:
            table.write_bytes(data[:offset])
            if not honest:
                digest = hashlib.sha256(data[:offset]).hexdigest()
                rewrite_metadata(folder, table={"bytes": offset, "sha256": digest})
            with pytest.raises(StoreError, match=r"episodes\.parquet.*cut off"):
                load_cohort(folder)


def test_an_altered_table_is_recognised(folder):
    table = folder / "episodes.parquet"
    data = bytearray(table.read_bytes())
    for position in range(0, len(data), 53):
        data[position] ^= 0xFF
        table.write_bytes(data)
        with pytest.raises(StoreError, match="does not match its checksum"):
            load_cohort(folder)
        data[position] ^= 0xFF
    table.write_bytes(bytes(data) + b"\0")
    with pytest.raises(StoreError, match="cut off or altered"):
        load_cohort(folder)


def test_missing_things_are_named(folder, tmp_path):
    with pytest.raises(StoreError, match="nowhere does not exist"):
        load_cohort(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"holds no metadata\.json"):
        load_cohort(tmp_path / "empty")
    (tmp_path / "table.csv").write_text("episode,step\n")
    with pytest.raises(StoreError, match=r"is a file.*read_table"):
        load_cohort(tmp_path / "table.csv")
    (folder / "episodes.parquet").unlink()
    with pytest.raises(StoreError, match=r"episodes\.parquet: is missing"):
        load_cohort(folder)


@pytest.mark.parametrize("length", [0, 1, 50, -2])
def test_metadata_cut_off_is_recognised(folder, length):
    source = folder / "metadata.json"
    source.write_bytes(source.read_bytes()[:length])
    with pytest.raises(StoreError, match=r"metadata\.json: is not valid JSON, or cut off"):
        load_cohort(folder)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"format": "ifonly.result"}, ["format 'ifonly.result'", "expected 'ifonly.cohort'"]),
        ({"format": None}, ["format None"]),
        ({"version": 2}, ["version 2", "reads version 1", "update ifonly"]),
        ({"version": "1"}, ["version '1'", "reads version 1"]),
        ({"schema": None}, ["'schema' is missing"]),
        ({"schema": {"features": []}}, ["missing 'actions'"]),
        ({"schema_fingerprint": "0" * 16}, ["fingerprint", SCHEMA.fingerprint, "0" * 16]),
        ({"counts": None}, ["'counts' is missing"]),
        ({"counts": {"episodes": 4, "subjects": 2, "steps": 11}}, ["counts {'episodes': 4", "holds {'episodes': 3"]),
        ({"table": None}, ["'table' is missing"]),
        ({"table": {"bytes": 3}}, ["'table' lacks ['sha256']"]),
        ({"provenance": []}, ["'provenance'"]),
    ],
)
def test_metadata_that_does_not_fit_is_refused(folder, changes, expected):
    rewrite_metadata(folder, **changes)
    with pytest.raises(StoreError) as caught:
        load_cohort(folder)
    for part in [str(folder), *expected]:
        assert part in str(caught.value)


def test_metadata_that_is_no_object_or_no_text_is_refused(folder):
    (folder / "metadata.json").write_text("[1, 2]")
    with pytest.raises(StoreError, match="holds list, not a mapping"):
        load_cohort(folder)
    (folder / "metadata.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(StoreError, match="cannot be read"):
        load_cohort(folder)


def test_further_keys_in_metadata_are_no_obstacle(folder):
    rewrite_metadata(folder, note="from another program")
    assert_same(load_cohort(folder), make())


def test_a_schema_of_other_columns_than_the_table_is_refused(folder):
    frame = pl.read_parquet(folder / "episodes.parquet")
    for other in (
        frame.drop("SOFA"),
        frame.with_columns(extra=1.0),
        frame.with_columns(pl.col("SOFA").cast(pl.Float32)),
        frame.select(sorted(frame.columns)),
    ):
        rewrite_table(folder, other)
        with pytest.raises(StoreError, match=r"episodes\.parquet: its columns are"):
            load_cohort(folder)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (pl.when(pl.col("step") == 1).then(None).otherwise(pl.col("SOFA")).alias("SOFA"), ["SOFA is missing"]),
        (pl.lit(9, dtype=pl.Int64).alias("action"), ["row 1, step 0", "action is unknown"]),
        (pl.col("step") * 2, ["step 1 is missing"]),
        (pl.lit("x").alias("episode"), ["step 0", "out of order"]),
    ],
)
def test_a_table_that_breaks_the_rules_is_refused_even_with_a_correct_checksum(folder, change, expected):
    rewrite_table(folder, pl.read_parquet(folder / "episodes.parquet").with_columns(change))
    with pytest.raises(StoreError) as caught:
        load_cohort(folder)
    for part in ["episodes.parquet", *expected]:
        assert part in str(caught.value)


def test_a_copied_folder_loads(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "elsewhere" / "copy")
    assert_same(load(tmp_path / "elsewhere" / "copy"), make())


@given(schemas())
@relaxed
def test_every_schema_comes_back_from_its_file(schema):
    with tempfile.TemporaryDirectory() as place:
        for name in ("s.yaml", "s.yml", "s.json", "s.JSON"):
            save_schema(schema, Path(place) / name)
            assert load_schema(Path(place) / name) == schema
            assert load_schema(str(Path(place) / name)).fingerprint == schema.fingerprint


def test_a_schema_file_is_replaced_only_on_request(tmp_path):
    save_schema(SCHEMA, tmp_path / "s.yaml")
    other = Schema((Feature("x", "dynamic"),), SCHEMA.actions)
    with pytest.raises(StoreError, match="exists already"):
        save_schema(other, tmp_path / "s.yaml")
    assert load_schema(tmp_path / "s.yaml") == SCHEMA
    save_schema(other, tmp_path / "s.yaml", overwrite=True)
    assert load_schema(tmp_path / "s.yaml") == other


def test_a_schema_written_by_hand_needs_no_version(tmp_path):
    (tmp_path / "s.yaml").write_text("features:\n- {name: heat, kind: dynamic}\nactions: {categories: [wait, act]}\n")
    expected = Schema((Feature("heat", "dynamic"),), ActionSpace.categories(["wait", "act"]))
    assert load_schema(tmp_path / "s.yaml") == expected


@pytest.mark.parametrize(
    ("name", "text", "error", "expected"),
    [
        ("s.yaml", "features: [a\nactions: {", StoreError, ["not valid YAML", "line"]),
        ("s.yaml", "features: !!python/object:os.system {}", StoreError, ["not valid YAML"]),
        ("s.json", '{"features": [', StoreError, ["not valid JSON", "cut off"]),
        ("s.yaml", "", StoreError, ["holds NoneType", "mapping"]),
        ("s.yaml", "format: ifonly.cohort\nversion: 1", StoreError, ["format 'ifonly.cohort'", "'ifonly.schema'"]),
        ("s.yaml", "format: ifonly.schema\nversion: 7", StoreError, ["version 7", "reads version 1"]),
        ("s.yaml", "features: []\nactions: {categories: [a]}", InputError, ["dynamic"]),
        ("s.yaml", "features: []\nactions: {categories: [on, off]}", InputError, ["True", "quotes"]),
        ("s.toml", "", InputError, [".yaml, .yml or .json"]),
    ],
)
def test_a_broken_schema_file_is_refused_by_name(tmp_path, name, text, error, expected):
    (tmp_path / name).write_text(text)
    with pytest.raises(error) as caught:
        load_schema(tmp_path / name)
    for part in [str(tmp_path / name), *expected]:
        assert part in str(caught.value)


def test_a_missing_schema_file_is_a_store_error(tmp_path):
    with pytest.raises(StoreError, match="cannot be read"):
        load_schema(tmp_path / "none.yaml")


HAND_WRITTEN = "features:\n- {name: pain, kind: dynamic}\nactions: {categories: [wait, treat]}\n"


@pytest.mark.parametrize("head", ["", "version: 1\n", "format: ifonly.schema\n"])
def test_format_and_version_may_each_be_left_out(tmp_path, head):
    (tmp_path / "s.yaml").write_text(head + HAND_WRITTEN)
    assert [feature.name for feature in load_schema(tmp_path / "s.yaml").features] == ["pain"]


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("s.yaml", HAND_WRITTEN + "actions: {categories: [a, b]}\n", "line 4: the key 'actions'"),
        ("s.yaml", HAND_WRITTEN.replace("kind: dynamic", "kind: dynamic, kind: static"), "line 2: the key 'kind'"),
        ("s.json", '{"features": [], "actions": {}, "features": []}', "the key 'features'"),
    ],
)
def test_a_key_that_occurs_twice_is_refused(tmp_path, name, text, key):
    (tmp_path / name).write_text(text)
    with pytest.raises(StoreError, match=f"{key} occurs twice"):
        load_schema(tmp_path / name)


def test_yaml_with_aliases_is_refused_and_none_is_written(tmp_path):
    (tmp_path / "s.yaml").write_text("features: [&pain {name: pain, kind: dynamic}]\nactions: *pain\n")
    with pytest.raises(StoreError, match=r"line 2: an alias, \*pain, is not taken; write out"):
        load_schema(tmp_path / "s.yaml")
    shared = (0.0, 5.0)
    features = [Feature(name, "dynamic", plausible=shared) for name in ("pain", "fear")]
    save_schema(Schema(features, ActionSpace.categories(["none", "some"])), tmp_path / "own.yaml")
    assert load_schema(tmp_path / "own.yaml").features[1].plausible == shared


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_number_of_the_first_step_is_told(tmp_path, first, ending):
    (tmp_path / "s.yaml").write_text(HAND_WRITTEN)
    steps = [first, first + 1]
    frame = pl.DataFrame({"episode": ["a", "a"], "step": steps, "action": [0, 1], "pain": [1.0, 2.0]})
    table = tmp_path / f"t.{ending}"
    frame.write_csv(table) if ending == "csv" else frame.write_parquet(table)
    cohort, remarks = read_table_and_remarks(table, tmp_path / "s.yaml")
    found = remarks["first step of the table"]
    assert (cohort.ids, len(cohort[0]), found) == (("a",), 2, first)
