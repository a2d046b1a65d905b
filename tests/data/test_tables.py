import math
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from effort import some
from hypothesis import assume, given, settings
from random_cohorts import assert_same, cohorts

from ifonly.data import ActionSpace, Axis, Feature, Schema, read_table, save_schema
from ifonly.data.tables import cohort_to_frame
from ifonly.errors import InputError, PlausibilityWarning, StoreError

quiet = pytest.mark.filterwarnings("ignore::ifonly.errors.PlausibilityWarning")

SCHEMA = Schema(
    (
        Feature("area", "static", unit="m2"),
        Feature("heat", "dynamic", unit="C", plausible=(-20, 60)),
        Feature("moisture", "dynamic", scaling="log"),
        Feature("sun", "contextual"),
    ),
    ActionSpace.categories(["off", "drip", "flood"]),
)


def table(**changes):
    """Two episodes, 'north' of three steps and 'south' of two; `changes` replace or (None) drop whole columns."""
    columns = {
        "episode": ["north"] * 3 + ["south"] * 2,
        "subject": ["house 1"] * 5,
        "step": [0, 1, 2, 0, 1],
        "action": [0, 1, 2, 0, 0],
        "area": [20.0, 20.0, 20.0, 35.0, 35.0],
        "heat": [18.0, 22.0, 25.0, 17.0, 21.0],
        "moisture": [0.3, 0.2, 0.4, 0.3, 0.1],
        "sun": [0.0, 300.0, 600.0, 0.0, 200.0],
    }
    return pl.DataFrame(
        {key: value for key, value in {**columns, **changes}.items() if value is not None}, strict=False
    )


def write(frame, folder, kind):
    path = folder / f"log.{kind}"
    frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    return path


def read(frame, folder, kind="csv", schema=SCHEMA):
    return read_table(write(frame, folder, kind), schema)


both_kinds = pytest.mark.parametrize("kind", ["csv", "parquet"])


@both_kinds
def test_a_table_becomes_a_cohort(tmp_path, kind):
    cohort = read(table(), tmp_path, kind)
    assert cohort.ids == ("north", "south")
    assert cohort.subjects == ("house 1", "house 1")
    assert cohort.offsets.tolist() == [0, 3, 5]
    np.testing.assert_array_equal(cohort["north"].states, [[18.0, 0.3], [22.0, 0.2], [25.0, 0.4]])
    np.testing.assert_array_equal(cohort["south"].context, [[35.0, 0.0], [35.0, 200.0]])
    assert cohort["north"].actions.tolist() == [0, 1, 2]


@both_kinds
def test_the_schema_may_be_a_file(tmp_path, kind):
    save_schema(SCHEMA, tmp_path / "schema.yaml")
    expected = read(table(), tmp_path, kind)
    assert_same(read(table(), tmp_path, kind, schema=tmp_path / "schema.yaml"), expected)
    assert_same(read(table(), tmp_path, kind, schema=str(tmp_path / "schema.yaml")), expected)


@quiet
@given(cohorts())
@settings(deadline=None, derandomize=True, max_examples=some(60))
def test_every_cohort_survives_as_csv_and_parquet(cohort):
    frame = cohort_to_frame(cohort)
    numbers = [str(number) for number in range(len(cohort.schema.actions))]
    for number, label in zip(numbers, cohort.schema.actions.labels, strict=True):
        assume(label == number or label not in numbers)  # refused as ambiguous
    with tempfile.TemporaryDirectory() as place:
        for kind in ("csv", "parquet"):
            assert_same(read_table(write(frame, Path(place), kind), cohort.schema), cohort)


@both_kinds
def test_spaces_around_ids_and_names_do_not_count(tmp_path, kind):
    """Lest 'house 1' and 'house 1 ' land on two sides of a split."""
    spoiled = table(
        episode=["north", " north", "north ", "south", "south"], subject=["house 1", "house 1 "] + ["house 1"] * 3
    ).rename({"heat": " heat ", "step": "step "})
    assert_same(read(spoiled, tmp_path, kind), read(table(), tmp_path, kind))
    with pytest.raises(InputError, match=r"columns \['heat'\] occur more than once"):
        read(table().with_columns(pl.col("heat").alias("heat ")), tmp_path, kind)


def test_whole_numbers_are_ids_however_they_are_stored(tmp_path):
    numbers = [7.0, 7.0, 7.0, 12.0, 12.0]
    assert read(table(episode=numbers), tmp_path, "parquet").ids == ("7", "12")


@both_kinds
@pytest.mark.parametrize(
    "changes",
    [
        {"step": [1, 2, 3, 1, 2]},
        {"step": [0.0, 1.0, 2.0, 0.0, 1.0]},
        {"step": ["0", " 1", "2 ", "0", "1.0"]},
        {"action": [0.0, 1.0, 2.0, 0.0, 0.0]},
        {"action": ["off", "drip", "flood", "off", "off"]},
        {"action": ["0", "drip", " 2 ", "off", "0"]},
        {"heat": ["18", " 22.0", "2.5e1", "+17", "21"]},
        {"heat": [18, 22, 25, 17, 21]},
        {"note": ["what", None, "ever", "", "x"]},
    ],
)
def test_other_ways_to_write_the_same(tmp_path, kind, changes):
    assert_same(read(table(**changes), tmp_path, kind), read(table(), tmp_path, kind))


@both_kinds
def test_columns_and_episodes_may_come_in_any_order(tmp_path, kind):
    frame = table()
    swapped = pl.concat([frame[3:], frame[:3]]).select(sorted(frame.columns))
    cohort = read(swapped, tmp_path, kind)
    assert cohort.ids == ("south", "north")
    assert_same(cohort.select(["north", "south"]), read(frame, tmp_path, kind))


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["off", "drip", "flood"])])
def test_parquet_categories_are_labels(tmp_path, dtype):
    frame = table(action=["off", "drip", "flood", "off", "off"]).with_columns(
        pl.col("action").cast(dtype), pl.col("episode").cast(pl.Categorical)
    )
    assert_same(read(frame, tmp_path, "parquet"), read(table(), tmp_path))


def test_parquet_booleans_count_as_zero_and_one(tmp_path):
    frame = table(sun=[False, True, True, False, True])
    assert read(frame, tmp_path, "parquet").context[:, 1].tolist() == [0, 1, 1, 0, 1]


@both_kinds
def test_whole_numbers_as_ids_become_text(tmp_path, kind):
    cohort = read(table(episode=[7, 7, 7, 12, 12], subject=[3, 3, 3, 4, 4]), tmp_path, kind)
    assert cohort.ids == ("7", "12")
    assert cohort.subjects == ("3", "4")


def test_ids_in_csv_are_taken_literally(tmp_path):
    cohort = read(table(episode=["007"] * 3 + ["7"] * 2), tmp_path)
    assert cohort.ids == ("007", "7")


@both_kinds
def test_without_subjects_every_episode_is_its_own(tmp_path, kind):
    assert read(table(subject=None), tmp_path, kind).subjects == ("north", "south")


def test_csv_as_spreadsheets_write_it(tmp_path):
    path = write(table(), tmp_path, "csv")
    expected = read_table(path, SCHEMA)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert_same(read_table(path, SCHEMA), expected)


def test_implausible_values_are_kept_counted_and_warned_about_once(tmp_path):
    with pytest.warns(PlausibilityWarning, match="cohort of 2 episodes.*heat 2") as caught:
        cohort = read(table(heat=[18.0, 99.0, 25.0, -40.0, 21.0]), tmp_path)
    assert len(caught) == 1
    assert cohort.states[1, 0] == 99.0
    assert cohort.implausible == {"heat": 2}


BAD = {
    "missing feature": ({"moisture": None}, ["feature 'moisture'", "found ['episode'", "schema"]),
    "missing columns": ({"action": None, "step": None}, ["column 'step', column 'action'"]),
    "misspelt feature": ({"heat": None, "Heat": [1.0] * 5}, ["'Heat' looks like 'heat'", "rename"]),
    "misspelt subject": ({"subject": None, "Subject ": ["a"] * 5}, ["'Subject' looks like 'subject'"]),
    "step missing": ({"step": [0, 1, 3, 0, 1]}, ["row 3, step 3", "step 2 is missing", "fill it in"]),
    "first step missing": ({"step": [0, 1, 2, 1, 2]}, ["row 4, step 1", "begin at step 0", "missing"]),
    "steps from five": ({"step": [5, 6, 7, 5, 6]}, ["row 1, step 5", "0 or 1"]),
    "negative steps": ({"step": [-1, 0, 1, 0, 1]}, ["row 1, step -1", "0 or 1"]),
    "step twice": ({"step": [0, 1, 1, 0, 1]}, ["row 3, step 1", "twice", "remove one"]),
    "steps out of order": ({"step": [0, 2, 1, 0, 1]}, ["row 2, step 2", "out of order", "after step 0", "sort"]),
    "steps backwards": ({"step": [2, 1, 0, 0, 1]}, ["row 2, step 1", "out of order", "after step 2", "sort"]),
    "two episodes, one id": ({"episode": ["north"] * 5}, ["row 4, step 0", "out of order", "after step 2", "an id"]),
    "fractional step": ({"step": [0, 1.5, 2, 0, 1]}, ["column 'step', row 2", "whole number"]),
    "text as step": ({"step": ["0", "one", "2", "0", "1"]}, ["column 'step', row 2", "whole number", "0, 1, 2"]),
    "no step": ({"step": [0, 1, None, 0, 1]}, ["column 'step', row 3", "step is missing"]),
    "infinite step": ({"step": [0, 1, float("inf"), 0, 1]}, ["column 'step', row 3", "whole number"]),
    "rows apart": (
        {"episode": ["north", "north", "south", "south", "north"], "step": [0, 1, 0, 1, 2]},
        ["column 'episode'", "do not stand together", "rows 1 and 5", "sort the table", "id of its own"],
    ),
    "one step": (
        {"episode": ["north"] * 4 + ["south"], "step": [0, 1, 2, 3, 0], "area": [1.0] * 5},
        ["row 5", "1 step(s)", "at least two", "leave it out"],
    ),
    "no id": ({"episode": ["north"] * 3 + [None] * 2}, ["'episode'", "row 4", "missing"]),
    "empty id": ({"episode": ["north"] * 3 + [""] * 2}, ["'episode'", "row 4", "missing"]),
    "no subject": ({"subject": ["a"] * 3 + ["b", None]}, ["'subject'", "row 5", "missing"]),
    "subject changes": (
        {"subject": ["a", "a", "b", "c", "c"]},
        ["row 3, step 2", "(column 'subject') is another than in row 1", "one subject"],
    ),
    "null value": ({"heat": [18.0, None, 25.0, 17.0, 21.0]}, ["row 2, step 1", "heat is missing", "fill it in"]),
    "NaN": ({"heat": [18.0, 22.0, 25.0, float("nan"), 21.0]}, ["row 4, step 0", "heat is not finite", "fill or drop"]),
    "infinity": ({"sun": [0.0, 0.0, 0.0, 0.0, float("inf")]}, ["row 5, step 1", "sun is not finite"]),
    "text as value": ({"heat": ["18", "warm", "25", "17", "21"]}, ["row 2, step 1", "heat is not a number"]),
    "word for nothing": ({"heat": ["18", "NA", "25", "17", "21"]}, ["row 2, step 1", "heat is missing"]),
    "overflow": ({"heat": ["18", "22", "1e999", "17", "21"]}, ["row 3, step 2", "heat is not finite"]),
    "no logarithm": (
        {"moisture": [0.3, 0.2, 0.0, 0.3, 0.1]},
        ["row 3, step 2", "moisture has no logarithm", "log_offset"],
    ),
    "static changes": (
        {"area": [20.0, 20.0, 21.0, 35.0, 35.0]},
        ["row 3, step 2", "static feature area changes"],
    ),
    "fractional action": ({"action": [0, 1, 0.5, 0, 0]}, ["row 3, step 2", "action is not a whole number", "label"]),
    "unknown number": ({"action": [0, 1, 2, 3, 0]}, ["row 4, step 0", "action is unknown", "0 to 2"]),
    "negative number": ({"action": [0, -1, 2, 0, 0]}, ["row 2, step 1", "action is unknown", "0 to 2"]),
    "unknown label": (
        {"action": ["off", "rain", "off", "off", "off"]},
        ["row 2, step 1", "action is unknown", "0 to 2", "'drip'"],
    ),
    "no action": ({"action": [0, 1, None, 0, 0]}, ["row 3, step 2", "action is missing", "last one too"]),
    "huge action": ({"action": [0, 1, 1e300, 0, 0]}, ["row 3, step 2", "the action"]),
    "huge step": ({"step": [0, 1e300, 2, 0, 1]}, ["column 'step', row 2", "whole number"]),
    "infinite action": ({"action": [0, 1, float("inf"), 0, 0]}, ["row 3, step 2", "the action", "whole number"]),
}


@both_kinds
@pytest.mark.parametrize(("changes", "expected"), BAD.values(), ids=BAD.keys())
def test_bad_tables_are_refused_with_the_place_and_a_remedy(tmp_path, kind, changes, expected):
    path = write(table(**changes), tmp_path, kind)
    with pytest.raises(InputError) as caught:
        read_table(path, SCHEMA)
    for part in [str(path), *expected]:
        assert part in str(caught.value)
    for private in ("north", "south", "house 1"):
        assert private not in str(caught.value)


SECRET = "4711.75"
WITH_A_SECRET = {
    "step": {"step": ["0", SECRET, "2", "0", "1"]},
    "text as value": {"heat": ["18", f"about {SECRET}", "25", "17", "21"]},
    "no logarithm": {"moisture": [0.3, -float(SECRET), 0.4, 0.3, 0.1]},
    "static": {"area": [20.0, float(SECRET), 20.0, 35.0, 35.0]},
    "fractional action": {"action": ["0", SECRET, "2", "0", "0"]},
    "unknown number": {"action": ["0", "4711", "2", "0", "0"]},
    "unknown label": {"action": ["0", f"about {SECRET}", "2", "0", "0"]},
    "subject": {"subject": ["Ann", SECRET, "Ann", "Bob", "Bob"]},
    "episodes apart": {"episode": [SECRET, SECRET, "a", "a", SECRET], "step": [0, 1, 0, 1, 2]},
    "episode in a muddle": {"episode": [SECRET] * 5},
    "one step": {"episode": ["north"] * 4 + [SECRET], "step": [0, 1, 2, 3, 0], "area": [1.0] * 5},
    "episode that cannot be shown": {"episode": [f"{SECRET}\a"] * 3 + ["a"] * 2},
    "subject that cannot be shown": {"subject": [f"{SECRET}\a"] * 3 + ["a"] * 2},
}


@both_kinds
@pytest.mark.parametrize("changes", WITH_A_SECRET.values(), ids=WITH_A_SECRET.keys())
def test_messages_about_a_table_quote_no_cell(tmp_path, kind, changes):
    with pytest.raises(InputError, match=r"row") as caught:
        read(table(**changes), tmp_path, kind)
    message = str(caught.value).replace(str(tmp_path), "")
    assert "4711" not in message
    assert not any(id in message for id in ("north", "south", "house 1", "Ann", "Bob"))


def test_errors_number_steps_as_the_table_does(tmp_path):
    steps = [1, 2, 3, 1, 2]
    for changes, feature in (
        ({"heat": [18.0, 22.0, float("nan"), 17.0, 21.0]}, "heat"),
        ({"moisture": [0.3, 0.2, -1.0, 0.3, 0.1]}, "moisture"),
        ({"area": [20.0, 20.0, 21.0, 35.0, 35.0]}, "area"),
        ({"action": [0, 1, 7, 0, 0]}, "the action is unknown"),
    ):
        with pytest.raises(InputError, match=f"row 3, step 3: .*{feature}"):
            read(table(step=steps, **changes), tmp_path)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"episode": [1.5, 1.5, 1.5, 2.0, 2.0]}, "'episode': holds Float64; ids must be text or whole numbers"),
        ({"episode": [1.0, 1.0, 1.0, None, 2.0]}, "'episode', row 4: the id is missing"),
        ({"episode": [1.0, 1.0, 1.0, math.nan, 2.0]}, "'episode', row 4: the id is missing"),
        ({"heat": [[1.0]] * 5}, "'heat': holds List"),
    ],
)
def test_parquet_columns_of_the_wrong_type_are_refused(tmp_path, changes, expected):
    with pytest.raises(InputError, match=expected):
        read(table(**changes), tmp_path, "parquet")


@pytest.mark.parametrize("word", ["NA", "null", "-"])
def test_words_for_missing_ids_are_none_among_numbers_alone(tmp_path, word):
    with pytest.raises(InputError, match="'episode', row 1: the id is missing"):
        read(table(episode=[word, word, "7", "8", "8"]), tmp_path)
    assert read(table(episode=[word, word, word, "b", "b"]), tmp_path).ids == (word, "b")
    with pytest.raises(InputError, match="step 0: heat is missing"):
        read(table(heat=[word, "1", "2", "3", "4"]), tmp_path)


@both_kinds
def test_a_label_that_looks_like_another_actions_number_is_refused(tmp_path, kind):
    misleading = Schema(SCHEMA.features, ActionSpace.categories(["1", "0", "2"]))
    with pytest.raises(InputError, match=r"row 1, step 0: the action .* could be .*: \['1', '0'\]"):
        read(table(), tmp_path, kind, schema=misleading)
    fine = Schema(SCHEMA.features, ActionSpace.categories(["10", "0.5", "2"]))
    doses = table(action=[10, 0.5, 2, 10, 10])
    assert read(doses, tmp_path, kind, schema=fine).actions.tolist() == [0, 1, 2, 0, 0]


def test_labels_of_a_product_are_understood(tmp_path):
    space = ActionSpace.product(Axis("water", "L", (0, 5)), Axis("vent", "%", (0, 50)))
    schema = Schema(SCHEMA.features, space)
    frame = table(action=[space.labels[i] for i in (0, 1, 2, 3, 0)])
    assert read(frame, tmp_path, schema=schema).actions.tolist() == [0, 1, 2, 3, 0]


def test_a_csv_file_cut_off_within_a_row_is_refused(tmp_path):
    path = write(table(), tmp_path, "csv")
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        row = data[:length].rpartition(b"\n")[2]
        if not row or (row.count(b",") == 7 and not row.endswith(b",")):
            continue  # what is left may well be a complete row
        with pytest.raises(InputError):
            read_table(path, SCHEMA)


def test_a_parquet_table_cut_off_or_damaged_is_a_store_error(tmp_path):
    path = write(table(), tmp_path, "parquet")
    data = path.read_bytes()
    for length in range(0, len(data), 29):
        path.write_bytes(data[:length])
        with pytest.raises(StoreError, match="not a complete Parquet file"):
            read_table(path, SCHEMA)


@quiet
def test_a_damaged_parquet_table_never_ends_in_another_error(tmp_path):
    path = write(table(), tmp_path, "parquet")
    data = bytearray(path.read_bytes())
    outcomes = set()
    for position in range(0, len(data), 7):
        data[position] ^= 0xFF
        path.write_bytes(data)
        try:
            read_table(path, SCHEMA)
            outcomes.add("unnoticed")
        except (StoreError, InputError) as error:
            outcomes.add(type(error).__name__)
        data[position] ^= 0xFF
    assert "StoreError" in outcomes


def test_a_panic_of_the_parser_is_a_store_error(tmp_path, monkeypatch):
    path = write(table(), tmp_path, "parquet")

    def panicking(_):
        raise pl.exceptions.PanicException("assertion failed")

    monkeypatch.setattr(pl, "read_parquet", panicking)
    with pytest.raises(StoreError, match="not a complete Parquet file"):
        read_table(path, SCHEMA)


def test_column_names_may_hold_quotes_and_commas(tmp_path):
    name = 'say "heat", please'
    schema = Schema((Feature(name, "dynamic"),), SCHEMA.actions)
    frame = table().rename({"heat": name})
    assert read(frame, tmp_path, schema=schema).states[:, 0].tolist() == table()["heat"].to_list()


@pytest.mark.parametrize(
    ("data", "error", "expected"),
    [
        (b"", InputError, "is empty"),
        (b"episode,step,step\na,0,0\n", InputError, r"columns \['step'\] occur more than once"),
        (b"episode:step:action\na:0:0\n", InputError, "separated by commas"),
        (b"episode,step\na,0,0\n", StoreError, r"line 2: has 3 cells, more cells than the header \(2\)"),
        (b'episode,step\na,0\nb,"0\n', StoreError, "line 3: .* every quote must be closed"),
        (b"\xff\xfee\x00p\x00\n\x00a\xd8", StoreError, "line 2: is not valid UTF-16.*cut off"),
    ],
)
def test_unreadable_csv_files_are_refused(tmp_path, data, error, expected):
    (tmp_path / "log.csv").write_bytes(data)
    with pytest.raises(error, match=expected):
        read_table(tmp_path / "log.csv", SCHEMA)


def test_a_table_of_no_rows_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no rows"):
        read(table()[:0], tmp_path)


def test_files_that_are_missing_or_of_another_kind_are_refused(tmp_path):
    with pytest.raises(StoreError, match=r"none\.csv: cannot be read"):
        read_table(tmp_path / "none.csv", SCHEMA)
    with pytest.raises(InputError, match=r"ends in \.csv, \.tsv, \.txt, .* or \.parquet"):
        read_table(tmp_path / "log.xlsx", SCHEMA)
    with pytest.raises(StoreError, match=r"none\.yaml"):
        read_table(write(table(), tmp_path, "csv"), tmp_path / "none.yaml")


def test_errors_quote_no_rows_of_a_broken_csv(tmp_path):
    (tmp_path / "log.csv").write_text('episode,step,heat\nsecret,0,"41.77\nsecret,1,39\n')
    with pytest.raises(StoreError) as caught:
        read_table(tmp_path / "log.csv", SCHEMA)
    assert "secret" not in str(caught.value)
    assert "41.77" not in str(caught.value)
