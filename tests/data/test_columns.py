"""Tables whose columns have names of their own, and whose actions are doses."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ifonly.data import ActionSpace, Axis, Feature, Schema, read_table
from ifonly.data.columns import UNKNOWN_LEVEL, DoseColumn, TableColumns
from ifonly.data.store import load_schema_and_columns, save_schema
from ifonly.data.tables import cohort_from_frame
from ifonly.errors import InputError

WATER, VENTS = Axis("water", "L", (0, 2, 5)), Axis("vents", "%", (0, 50))
SCHEMA = Schema((Feature("heat", "dynamic"),), ActionSpace.product(WATER, VENTS))
COLUMNS = TableColumns(
    episode="day",
    step="hour",
    subject="house",
    doses=(DoseColumn("vents", "open"), DoseColumn("water", "litres", (0, 3))),
    spacing=2,
)


def log(**changes):
    columns = {
        "day": ["a", "a", "a", "b", "b"],
        "hour": [6.0, 8.0, 10.0, 7.0, 9.0],
        "house": ["h1", "h1", "h1", "h2", "h2"],
        "litres": [0.0, 0.1, 3.0, 3.1, 40.0],
        "open": [0, 50, 0, 50, 0],
        "heat": [1.0, 2.0, 3.0, 4.0, 5.0],
    }
    kept = {name: values for name, values in {**columns, **changes}.items() if values is not None}
    return pl.DataFrame(kept, strict=False)


def test_doses_become_levels_and_times_become_steps():
    cohort = cohort_from_frame(log(), SCHEMA, COLUMNS)
    assert cohort.actions.tolist() == [0, 3, 2, 5, 4]  # litres in bins 0, 1, 1, 2, 2; two positions of the vents
    assert cohort.lengths.tolist() == [3, 2]
    assert cohort.subjects == ("h1", "h2")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_schema_file_names_the_columns(tmp_path, kind):
    save_schema(SCHEMA, tmp_path / "schema.yaml")
    text = (tmp_path / "schema.yaml").read_text()
    (tmp_path / "schema.yaml").write_text(
        text
        + "table:\n  episode: day\n  step: hour\n  spacing: 2\n  subject: house\n  doses:\n"
        + "  - {axis: vents, column: open}\n  - {axis: water, column: litres, edges: [0, 3]}\n"
    )
    log().write_csv(tmp_path / "t.csv") if kind == "csv" else log().write_parquet(tmp_path / "t.parquet")
    cohort = read_table(tmp_path / f"t.{kind}", tmp_path / "schema.yaml")
    assert cohort.actions.tolist() == [0, 3, 2, 5, 4]
    assert load_schema_and_columns(tmp_path / "schema.yaml") == (SCHEMA, COLUMNS)


def test_an_action_column_may_have_another_name():
    schema = Schema((Feature("heat", "dynamic"),), ActionSpace.categories(["wait", "do"]))
    frame = log(what=["wait", "do", "do", "wait", "wait"])
    columns = TableColumns(episode="day", step="hour", spacing=2, action="what")
    cohort = cohort_from_frame(frame, schema, columns)
    assert cohort.actions.tolist() == [0, 1, 1, 0, 0]
    assert cohort.subjects == ("a", "b")


BAD = {
    "no such column": ({"house": None}, "column 'house'"),
    "misspelt": ({"house": None, "House": ["a"] * 5}, "'House' looks like 'house'"),
    "no level": ({"open": [0, 50, 7, 50, 0]}, "row 3, step 2: the dose of vents .*'open'.* none of the levels .*edges"),
    "no dose": ({"litres": [0.0, None, 3.0, 3.1, 40.0]}, "row 2, step 1: the dose of water .* missing"),
    "no number": ({"litres": ["0", "much", "3", "3.1", "40"]}, "row 2, step 1: the dose of water"),
    "infinite": ({"litres": [0.0, 1.0, 3.0, float("inf"), 1.0]}, "row 4, step 0: the dose of water"),
    "gap": ({"hour": [6, 8, 12, 7, 9]}, "row 3, step 3: step 2 is missing"),
    "between steps": ({"hour": [6, 8, 9, 7, 9]}, "'hour', row 3: the step is not a multiple of 2 after"),
    "backwards": ({"hour": [6, 8, 10, 9, 7]}, "row 5, step -1: out of order"),
    "ids": ({"house": [0.5] * 5}, "column 'house': holds Float64"),
}


@pytest.mark.parametrize(("changes", "expected"), BAD.values(), ids=BAD.keys())
def test_bad_tables_are_refused_by_their_own_names(changes, expected):
    with pytest.raises(InputError, match=expected) as caught:
        cohort_from_frame(log(**changes), SCHEMA, COLUMNS)
    assert "much" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"episode": "x", "step": "x"}, "two of these roles"),
        ({"spacing": 0}, "must be positive"),
        ({"epsiode": "x"}, r"unknown 'epsiode'"),
        ({"action": "a", "doses": []}, "both action and doses"),
        ({"doses": [{"axis": "water", "column": "w"}]}, "one column for each axis"),
        ({"doses": [{"axis": "water"}]}, r"missing 'column'"),
        ({"doses": [{"axis": "water", "column": "w", "edges": [3]}, {"axis": "vents", "column": "v"}]}, "need 2 edges"),
        ({"doses": [{"axis": "water", "column": "w", "edges": [3, 0]}, {"axis": "vents", "column": "v"}]}, "increase"),
        (
            {"doses": [{"axis": "water", "column": "w", "edges": [2.5, 3]}, {"axis": "vents", "column": "v"}]},
            r"level\(s\) 2.* outside",
        ),
        ({"step": 5}, "must be text"),
    ],
)
def test_wrong_tables_of_columns_are_refused(content, expected):
    with pytest.raises(InputError, match=expected):
        TableColumns.from_dict(content).require_fit(SCHEMA.actions)


def test_columns_survive_as_plain_types():
    assert TableColumns.from_dict(COLUMNS.to_dict()) == COLUMNS
    assert TableColumns.from_dict({}) == TableColumns()
    assert TableColumns.from_dict(TableColumns().to_dict()) == TableColumns()


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20))
@settings(deadline=None, derandomize=True)
def test_bins_are_as_said(doses):
    """Above the edge before, up to and including the edge after."""
    edges = (-1.0, 0.0, 7.5)
    axis = Axis("x", "", (-2, -0.5, 3, 9))
    levels = DoseColumn("x", "c", edges).levels_of(np.array(doses), axis)
    bounds = (-np.inf, *edges, np.inf)
    assert all(bounds[level] < dose <= bounds[level + 1] for dose, level in zip(doses, levels, strict=True))


def test_without_edges_doses_are_levels_up_to_rounding():
    axis = Axis("x", "", (0, 0.1, 0.3))
    found = DoseColumn("x", "c").levels_of(np.array([0.1 + 0.2, 0.0, 0.1, 0.2, 0.30001]), axis)
    assert found.tolist() == [2, 0, 1, UNKNOWN_LEVEL, UNKNOWN_LEVEL]
