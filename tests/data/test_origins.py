"""Exact repeats: when they look carried forward, and what `measured: auto` makes of them."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ifonly.data import ActionSpace, Feature, Schema, read_table, save_cohort
from ifonly.data.columns import TableColumns
from ifonly.data.episode import Origin
from ifonly.data.origins import carried_where_repeated, repeats, seemingly_carried
from ifonly.data.store import load_cohort, load_schema_and_columns, save_schema
from ifonly.data.tables import cohort_from_frame
from ifonly.errors import InputError

SCHEMA = Schema(
    (Feature("platelets", "dynamic"), Feature("pressure", "dynamic"), Feature("score", "dynamic")),
    ActionSpace.categories(["wait", "do"]),
)
FRAME = pl.DataFrame(
    {
        "episode": ["a"] * 4 + ["b"] * 4,
        "step": [0, 1, 2, 3] * 2,
        "action": [0, 1] * 4,
        "platelets": [120.5, 120.5, 120.5, 90.0, 90.0, 90.0, 90.0, 80.0],
        "pressure": [70.5, 71.0, 71.0, 69.0, 68.0, 70.0, 72.0, 72.5],
        "score": [3, 3, 3, 3, 4, 4, 4, 4],
    }
)
AUTO = TableColumns(repeats_are_carried=True)


def test_features_that_mostly_repeat_are_named():
    assert seemingly_carried(cohort_from_frame(FRAME, SCHEMA)) == ("platelets",)
    assert seemingly_carried(cohort_from_frame(FRAME, SCHEMA, AUTO)) == ()


def test_auto_takes_repeats_for_carried_but_not_across_episodes_nor_of_scores():
    cohort = cohort_from_frame(FRAME, SCHEMA, AUTO)
    assert cohort.origins is not None
    assert cohort.origins.T.tolist() == [[0, 1, 1, 0, 0, 1, 1, 0], [0, 0, 1, 0, 0, 0, 0, 0], [0] * 8]


def test_nothing_after_nothing_is_not_carried_forward():
    """Amounts and counts, such as of rain or sales, that are often zero."""
    sold = FRAME.with_columns(platelets=pl.Series([0.0, 0.0, 0.0, 50.5, 0.0, 0.0, 0.0, 80.5]))
    assert seemingly_carried(cohort_from_frame(sold, SCHEMA)) == ()
    origins = cohort_from_frame(sold, SCHEMA, AUTO).origins
    assert origins is not None
    assert not origins[:, 0].any()


def test_origins_stay_with_their_rows(tmp_path):
    cohort = cohort_from_frame(FRAME, SCHEMA, AUTO)
    save_cohort(cohort, tmp_path / "cohort")
    assert (load_cohort(tmp_path / "cohort").origins == cohort.origins).all()
    one, two = cohort.split(test=0.5, seed=0)
    together = {part.ids[0]: part.origins for part in (one, two)}
    assert (together["a"] == cohort.origins[:4]).all()
    assert (together["b"] == cohort.origins[4:]).all()


def test_a_schema_file_may_say_auto(tmp_path):
    save_schema(SCHEMA, tmp_path / "schema.yaml")
    with (tmp_path / "schema.yaml").open("a") as file:
        file.write("table: {measured: auto}\n")
    FRAME.write_csv(tmp_path / "t.csv")
    assert load_schema_and_columns(tmp_path / "schema.yaml")[1] == AUTO
    assert TableColumns.from_dict(AUTO.to_dict()) == AUTO
    assert AUTO.to_dict()["measured"] == "auto"
    assert read_table(tmp_path / "t.csv", tmp_path / "schema.yaml").origins.sum() == 5


@pytest.mark.parametrize("said", ["always", ["platelets"], True])
def test_other_words_are_refused(said):
    with pytest.raises(InputError, match="mapping from features to columns of 0 and 1, or 'auto'"):
        TableColumns.from_dict({"measured": said})
    with pytest.raises(InputError, match="not both"):
        TableColumns(measured=(("platelets", "m"),), repeats_are_carried=True)


@given(arrays(np.float64, (12, 2), elements=st.sampled_from([0.5, 1.5, 2.5])), st.sets(st.integers(1, 11), max_size=3))
@settings(deadline=None, derandomize=True)
def test_a_carried_value_is_the_one_before_in_its_episode(states, cuts):
    offsets = np.array([0, *sorted(cuts), 12])
    starts = np.repeat(offsets[:-1], np.diff(offsets))
    origins = carried_where_repeated(states, starts)
    assert (origins[offsets[:-1]] == Origin.MEASURED).all()
    for row in range(12):
        for column in range(2):
            same = row not in offsets and states[row, column] == states[row - 1, column]
            assert (origins[row, column] == Origin.CARRIED) == same
    assert ((origins == Origin.CARRIED) == repeats(states, starts)).all()
