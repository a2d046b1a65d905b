"""Further tables, joined by keys."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ifonly.data.columns import TableColumns
from ifonly.data.joins import JoinedTable, guess_join, join_tables
from ifonly.data.store import read_frame
from ifonly.errors import InputError, StoreError

VISITS = pl.DataFrame(
    {"visit": ["a", "a", "b", "b"], "patient": ["7", "7", "3", "3"], "hour": ["0", "4", "0", "4"], "x": list("1234")}
)
PATIENTS = pl.DataFrame({"patient": ["3", "5", "7"], "age": ["61", "40", "72"], "city": ["M", "N", "K"]})
WEATHER = pl.DataFrame({"hour": ["0", "0", "4", "4"], "visit": ["a", "b", "b", "a"], "sun": ["1", "2", "3", "4"]})


def joined(frame, *tables):
    """Join tables of (content, settings)."""
    names = [f"table {number}.csv" for number in range(len(tables))]
    contents = {name: content for name, (content, _) in zip(names, tables, strict=True)}
    joins = [JoinedTable.from_dict({"file": name, **how}) for name, (_, how) in zip(names, tables, strict=True)]
    return join_tables(frame, joins, Path(), lambda path: contents[path.name])


def test_rows_find_their_partners_by_one_key_and_by_two():
    frame = joined(VISITS, (PATIENTS, {"by": "patient"}), (WEATHER, {"by": ["visit", "hour"]}))
    assert frame.columns == ["visit", "patient", "hour", "x", "age", "city", "sun"]
    assert frame["age"].to_list() == ["72", "72", "61", "61"]
    assert frame["sun"].to_list() == ["1", "4", "2", "3"]
    assert frame["x"].to_list() == list("1234"), "the order of rows stays"


def test_only_wanted_columns_are_taken():
    assert "city" not in joined(VISITS, (PATIENTS, {"by": "patient", "columns": ["age"]})).columns


def test_keys_may_be_numbers_in_one_table_and_text_in_the_other():
    for kind in (pl.Int64, pl.Float64):
        frame = joined(VISITS, (PATIENTS.cast({"patient": kind}), {"by": "patient"}))
        assert frame["age"].to_list() == ["72", "72", "61", "61"]


@pytest.mark.parametrize(
    ("other", "how", "expected"),
    [
        (PATIENTS, {"by": "person"}, "the table has no column 'person' to join by"),
        (PATIENTS.drop("patient"), {"by": "patient"}, "table 0.csv has no column 'patient' to join by"),
        (PATIENTS, {"by": "patient", "columns": ["height"]}, "has no column 'height'; found"),
        (PATIENTS[1:2], {"by": "patient"}, "no row for 4 of 4 rows of the table .the first is row 1.; add"),
        (PATIENTS[1:], {"by": "patient"}, "no row for 2 of 4 rows of the table .the first is row 3."),
        (pl.concat([PATIENTS, PATIENTS[:1]]), {"by": "patient"}, "row 1: its key .patient. occurs more than once"),
        (WEATHER, {"by": "hour", "columns": ["sun"]}, "row 1: its key"),
        (PATIENTS.with_columns(pl.format("00{}", "patient")), {"by": "patient"}, "give keys the zeros in front"),
        (PATIENTS.rename({"city": "x"}), {"by": "patient"}, r"column\(s\) \['x'\] stand in the table, too"),
        (PATIENTS.with_columns(patient=None), {"by": "patient"}, "occurs more than once"),
    ],
)
def test_what_is_missing_or_found_twice_is_refused(other, how, expected):
    with pytest.raises(InputError, match=expected):
        joined(VISITS, (other, how))


@pytest.mark.parametrize("seed", range(3))
def test_joins_agree_with_a_loop(seed):
    rng = np.random.default_rng(seed)
    keys = rng.permutation(50)[:20].astype(str)
    other = pl.DataFrame({"key": keys, "value": rng.normal(size=20)})
    frame = pl.DataFrame({"key": rng.choice(keys, 200)})
    values = dict(other.iter_rows())
    assert joined(frame, (other, {"by": "key"}))["value"].to_list() == [values[key] for key in frame["key"]]


def test_keys_are_guessed():
    assert guess_join(VISITS, PATIENTS, "p.csv") == JoinedTable("p.csv", ("patient",))
    assert set(guess_join(VISITS, WEATHER, "w.csv").by) == {"visit", "hour"}
    both = PATIENTS.with_columns(x=pl.lit("1"))
    assert guess_join(VISITS, both, "p.csv") == JoinedTable("p.csv", ("patient",), ("age", "city"))
    with pytest.raises(InputError, match="no columns of the same names in both tables find a single row"):
        guess_join(VISITS, PATIENTS.rename({"patient": "id"}), "p.csv")
    with pytest.raises(InputError, match="brings no column"):
        guess_join(VISITS, PATIENTS.select("patient"), "p.csv")


def test_joins_come_back_from_files():
    content = {"join": [{"file": "p.csv", "by": "patient"}, {"file": "w.csv", "by": ["a", "b"], "columns": ["sun"]}]}
    columns = TableColumns.from_dict(content)
    assert TableColumns.from_dict(columns.to_dict()) == columns
    with pytest.raises(InputError, match="name the key column"):
        TableColumns.from_dict({"join": [{"file": "p.csv", "by": []}]})
    with pytest.raises(InputError, match="join: missing"):
        TableColumns.from_dict({"join": [{"file": "p.csv"}]})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"p\.csv: cannot be read"):
        join_tables(VISITS, [JoinedTable("p.csv", ("patient",))], tmp_path, read_frame)
