"""Columns of words, and features that are only on or off."""

import json

import numpy as np
import polars as pl
import pytest
from made_logs import DOSES, workshop

from ifonly.data import ActionSpace, Feature, Schema, read_table
from ifonly.data.columns import TableColumns
from ifonly.data.drafts import Hints, draft_text, guess_schema
from ifonly.data.labels import LabelColumn
from ifonly.data.store import load_schema_and_columns
from ifonly.data.tables import cohort_from_frame
from ifonly.errors import InputError

WARD = LabelColumn("ward", ("surgical", "medical", "cardiac"))
FRAME = pl.DataFrame(
    {
        "episode": ["a"] * 3 + ["b"] * 3,
        "step": [0, 1, 2] * 2,
        "action": [0, 1, 0] * 2,
        "x": np.arange(6.0),
        "ward": ["medical", "surgical", " cardiac ", "surgical", "medical", "medical"],
    }
)


def schema(kind="contextual", names=WARD.features):
    features = (Feature("x", "dynamic"), *(Feature(name, kind, scaling="none") for name in names))
    return Schema(features, ActionSpace.categories(["no", "yes"]))


def test_each_word_but_the_first_is_a_feature():
    cohort = cohort_from_frame(FRAME, schema(), TableColumns(labels=(WARD,)))
    assert cohort.context.tolist() == [[1, 0], [0, 0], [0, 1], [0, 0], [1, 0], [1, 0]]


@pytest.mark.parametrize(
    ("frame", "layout", "expected"),
    [
        (FRAME, schema("dynamic"), "'ward = medical': is dynamic, while models predict quantities and not words"),
        (FRAME, schema(names=WARD.features[:1]), "the schema has no feature 'ward = cardiac'; add it"),
        (FRAME.drop("ward"), schema(), "no column 'ward', whose labels are listed"),
        (FRAME.with_columns(ward=pl.lit("secret")), schema(), "column 'ward', row 1: is empty or none of its labels"),
        (FRAME.with_columns(ward=None), schema(), "column 'ward', row 1: is empty"),
        (FRAME.with_columns(pl.lit(1).alias("ward = medical")), schema(), "has a column 'ward = medical' already"),
    ],
)
def test_words_that_would_be_lost_or_predicted_are_refused(frame, layout, expected):
    with pytest.raises(InputError, match=expected) as caught:
        cohort_from_frame(frame, layout, TableColumns(labels=(WARD,)))
    assert "secret" not in str(caught.value)


def test_labels_come_back_from_files():
    columns = TableColumns(labels=(WARD,))
    assert TableColumns.from_dict(json.loads(json.dumps(columns.to_dict()))) == columns
    with pytest.raises(InputError, match="at least two different words"):
        TableColumns.from_dict({"labels": {"ward": ["a", "a"]}})
    with pytest.raises(InputError, match="in a YAML file, put it in quotes"):
        TableColumns.from_dict({"labels": {"ward": ["a", True]}})


@pytest.mark.parametrize("values", [(0.0, 1.0), (1.0, 2.0)])
def test_a_dynamic_switch_is_refused_unless_it_is_told_how_to_model_it(tmp_path, values):
    rows = 24
    switch = np.array(values)[np.arange(rows) % 5 // 3]
    frame = pl.DataFrame({"episode": [str(n // 6) for n in range(rows)], "step": [n % 6 for n in range(rows)]})
    frame = frame.with_columns(action=pl.lit(0), x=pl.Series(np.arange(float(rows))), vent=pl.Series(switch))
    frame.write_parquet(tmp_path / "log.parquet")

    def read(**settings):
        features = (Feature("x", "dynamic"), Feature("vent", **settings))
        return read_table(tmp_path / "log.parquet", Schema(features, ActionSpace.categories(["no", "yes"])))

    with pytest.raises(InputError, match=r"feature 'vent': is dynamic and has only two values.*kind: contextual"):
        read(kind="dynamic")
    assert read(kind="contextual").context[:, 0].tolist() == switch.tolist()
    assert read(kind="dynamic", scaling="bounded", plausible=values).states[:, 1].tolist() == switch.tolist()


def test_first_schemas_list_words_that_many_episodes_share(tmp_path):
    log = workshop()
    run = log["run"].str.slice(1).cast(pl.Int64)
    turn = np.arange(log.height)
    log = log.with_columns(
        maker=pl.Series(np.where(run.to_numpy() % 3 == 0, "Acme", "Bolt & Co")),
        shift=pl.Series(np.array(["early", "late", "night"])[turn % 3]),
        rare=pl.Series(np.where(run.to_numpy() == 3, "secret", "usual")),
        outcome=pl.Series(np.where(run.to_numpy() % 2 == 0, "good", "bad")),
    )
    draft = guess_schema(log, Hints(actions=DOSES))
    assert [(one.column, one.labels) for one in draft.columns.labels] == [
        ("maker", ("Bolt & Co", "Acme")),
        ("shift", ("early", "late", "night")),
    ]
    kinds = {guess.feature.name: guess.feature.kind for guess in draft.features}
    assert (kinds["maker = Acme"], kinds["shift = late"]) == ("static", "contextual")
    assert {"rare", "outcome"} <= set(draft.left_out)
    text = draft_text(draft, "log.csv").replace('unit: "?"', "unit: u")
    assert "secret" not in text
    (tmp_path / "schema.yaml").write_text(text)
    log.write_csv(tmp_path / "log.csv")
    assert load_schema_and_columns(tmp_path / "schema.yaml")[1] == draft.columns
    cohort = read_table(tmp_path / "log.csv", tmp_path / "schema.yaml")
    assert cohort.columns()["shift = late"].sum() == (log["shift"] == "late").sum()
