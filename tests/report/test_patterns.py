"""Patterns of a cohort against a plain count, and that nothing about a few subjects can be told from the table."""

import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import polars as pl
import pytest
from effort import some
from made_tables import failed, made_row, made_table

from ifonly.data.cohort import Cohort
from ifonly.data.episode import Episode
from ifonly.data.schema import ActionSpace, Axis, Feature, Schema
from ifonly.errors import InputError
from ifonly.intervals import share_interval
from ifonly.report.patterns import (
    ALL,
    SEVERITY,
    THIRDS,
    WINDOWS,
    changes_of,
    cohort_patterns,
    pattern_rows,
    patterns_by_episode,
    subgroups_of,
)
from ifonly.report.summary import summarize
from ifonly.report.tables import summary_tables
from ifonly.result import Verdict

DOSES = ActionSpace.product(Axis("vasopressors", "mcg", (0, 0.1, 0.2, 0.8)), Axis("fluids", "mL", (0, 80, 850)))
WORDS = ActionSpace.categories(["none", "A", "B"])
VERDICTS = [Verdict.SUPPORTED.value, Verdict.UNCERTAIN.value]


def schema_of(actions: ActionSpace) -> Schema:
    return Schema((Feature("x", "dynamic"),), actions, step_length=4, step_unit="h")


def random_table(seed: int, actions: ActionSpace) -> pl.DataFrame:
    """Answers of subjects with one or several episodes of unequal length, some of which make the same few changes."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(int(rng.integers(1, 90))):
        horizon = int(rng.integers(1, 9))
        observed = rng.integers(0, len(actions), horizon)
        changed = np.where(rng.random(horizon) < 0.3, rng.integers(0, len(actions), horizon), observed)
        steps = tuple(np.flatnonzero(changed != observed).tolist())
        who = f"subject-{rng.integers(0, 60)}"
        parts: dict[str, Any] = {"observed_actions": observed.tolist(), "actions": changed.tolist()}
        outcome = float(-rng.integers(1, 20) * horizon)
        rows.append(
            made_row(
                number, subject=who, horizon=horizon, changed_steps=steps, observed_clipped_outcome=outcome, **parts
            )
        )
    table = made_table(*rows, failed(999, "made up"))
    verdicts = [None if status == "failed" else str(rng.choice(VERDICTS)) for status in table["status"]]
    return table.with_columns(verdict=pl.Series(verdicts))


def counted(table: pl.DataFrame, schema: Schema, groups: dict[str, dict[str, str]]) -> Any:
    """Subjects by (pattern, by, group), those supported, and all of every group, one change at a time."""
    rows = [row for row in table.to_dicts() if row["status"] != "failed"]
    width = -(-max(row["horizon"] for row in rows) // WINDOWS)
    found, supported, everyone = defaultdict(set), defaultdict(set), defaultdict(set)
    for row in rows:
        places = [(ALL, ALL), *((by, of[row["episode"]]) for by, of in groups.items())]
        for place in places:
            everyone[place].add(row["subject"])
        for step, (before, after) in enumerate(zip(row["observed_actions"], row["actions"], strict=True)):
            if before == after:
                continue
            axes = schema.actions.axes
            moves = (
                [
                    (axis.name, "raised" if b > a else "lowered", min(2, abs(b - a)))
                    for axis, a, b in zip(
                        axes, schema.actions.levels[before], schema.actions.levels[after], strict=True
                    )
                    if a != b
                ]
                if axes
                else [(schema.actions.labels[after], "instead", 1)]
            )
            for move, place in itertools.product(moves, places):
                key = ("|".join(map(str, (*move, step // width))), *place)
                found[key].add(row["subject"])
                if row["verdict"] == "supported":
                    supported[key].add(row["subject"])
    return found, supported, everyone


@pytest.mark.parametrize("actions", [DOSES, WORDS], ids=["doses", "words"])
@pytest.mark.parametrize("smallest", [1, 3, 5])
def test_patterns_are_what_is_counted_one_by_one(actions: ActionSpace, smallest: int) -> None:
    schema = schema_of(actions)
    shown = hidden = 0
    for seed in range(some(20)):
        table = random_table(seed, actions)
        rng = np.random.default_rng(seed)
        values = table.select("episode").with_columns(ward=pl.Series(rng.choice(["east", "west"], table.height)))
        found = cohort_patterns(table, schema, by="ward", values=values, smallest_cell=smallest)
        wards = dict(values.iter_rows())
        expected, supported, everyone = counted(table, schema, {"ward": wards})
        by_key = {(row["pattern"], row["by"], row["group"]): row for row in found.to_dicts()}
        for key, row in by_key.items():
            if row["by"] == SEVERITY:
                continue
            assert (row["subjects"], row["of"]) == (len(expected[key]), len(everyone[key[1:]]))
            assert (row["low"], row["high"]) == tuple(share_interval(row["subjects"], row["of"]))
            assert row["supported"] in (None, len(supported[key]))
        for name in {key[0] for key in expected}:
            cells = [(key[1:], people) for key, people in expected.items() if key[0] == name]
            is_few = {place: few(len(people), len(everyone[place]), smallest) for place, people in cells}
            is_shown = (name, ALL, ALL) in by_key
            assert is_shown != is_few[ALL, ALL]
            shown, hidden = shown + is_shown, hidden + (not is_shown)
    assert shown
    assert hidden or smallest == 1


def few(count: int, of: int, smallest: int) -> bool:
    return 0 < count < smallest or 0 < of - count < smallest or of < smallest


def test_no_small_cell_is_shown_or_follows_from_others() -> None:
    """All that one row tells, and all that differences within a pattern and a grouping tell."""
    partly = 0
    for seed, actions in itertools.product(range(some(40)), (DOSES, WORDS)):
        table = random_table(seed, actions).unique(
            "subject", keep="first", maintain_order=True
        )  # so that sums are sums
        found = cohort_patterns(table, schema_of(actions))
        for (_, by), part in found.group_by("pattern", "by"):
            whole = found.filter((pl.col("pattern") == part["pattern"][0]) & (pl.col("by") == ALL)).row(0, named=True)
            for row in [*part.to_dicts(), whole]:
                assert not few(row["subjects"], row["of"], 5)
                if row["supported"] is not None and row["subjects"]:
                    assert not (0 < row["supported"] < 5)
                    assert not (0 < row["subjects"] - row["supported"] < 5)
            if by != ALL:  # complete, or not there at all: nothing is left to be told by taking away
                assert part["of"].sum() == whole["of"]
                assert part["subjects"].sum() == whole["subjects"]
                assert part["supported"].null_count() in (0, part.height)
                partly += 1
    assert partly


def test_thirds_are_by_the_recorded_outcome_per_step() -> None:
    rows = [made_row(n, observed_clipped_outcome=-5.0 * n, horizon=5) for n in range(30)]
    schema = schema_of(ActionSpace.product(Axis("fluids", "mL", (0, 80))))
    found = cohort_patterns(made_table(*rows), schema)
    assert found["pattern"].unique().to_list() == ["fluids|raised|1|0"]  # one of two steps wide
    assert found.row(0, named=True) | {"low": 0, "high": 0} == {
        **{"pattern": "fluids|raised|1|0", "axis": "fluids", "direction": "raised", "levels": 1},
        **{"since": 0.0, "until": 8.0, "by": ALL, "group": ALL, "subjects": 30, "of": 30, "share": 1.0},
        **{"low": 0, "high": 0, "supported": None, "unit": "hour"},
        **{f"supported_{name}": None for name in ("share", "low", "high")},
    }
    severity = found.filter(pl.col("by") == SEVERITY)
    assert severity.select("group", "subjects").rows() == [(third, 10) for third in THIRDS]
    best = {f"patient-{n:05d}" for n in range(10)}
    mildest = cohort_patterns(made_table(*(row for row in rows if row["episode"] in best)), schema)
    assert mildest["of"][0] == 10


def test_the_last_window_ends_with_the_longest_episode() -> None:
    rows = [made_row(n, horizon=5, changed_steps=(4,)) for n in range(6)]
    found = changes_of(made_table(*rows), schema_of(ActionSpace.product(Axis("fluids", "mL", (0, 80)))))
    assert found.select("since", "until").unique().rows() == [(16.0, 20.0)]


def test_pages_group_by_what_is_known_of_subjects_in_words() -> None:
    static = [
        Feature("gender", "static", unit="1 = female"),
        Feature("readmission", "static", unit="1 = yes"),
        Feature("site", "static"),
    ]
    space = ActionSpace.product(Axis("fluids", "mL", (0, 80)))
    schema = Schema((Feature("x", "dynamic"), *static), space, step_length=4, step_unit="h")
    known = [[n % 2, n % 3 == 0, 1.0] for n in range(36)]
    nothing = {"states": np.zeros((2, 1)), "actions": [0, 0]}
    cohort = Cohort.from_episodes(
        Episode(f"patient-{n:05d}", schema, subject=f"subject-{n:05d}", context=np.tile(one, (2, 1)), **nothing)
        for n, one in enumerate(known)
    )
    assert subgroups_of(cohort) == ["gender", "readmission"], "everybody is of one site"
    table = made_table(*(made_row(n, horizon=2) for n in range(36)))
    found = cohort_patterns(table, schema, by=subgroups_of(cohort), values=cohort)
    named = found.filter(pl.col("by").is_in(["gender", "readmission"])).select("by", "group", "of")
    assert named.rows() == [
        ("gender", "not female", 18),
        ("gender", "female", 18),
        ("readmission", "no", 24),
        ("readmission", "yes", 12),
    ]


def test_summaries_have_patterns_and_each_case_its_own() -> None:
    schema = schema_of(ActionSpace.product(Axis("fluids", "mL", (0, 80))))
    table = made_table(*(made_row(n, horizon=4) for n in range(12)), failed(99, "made up"))
    summary = summarize(table, schema=schema)
    assert summary.patterns.equals(cohort_patterns(table, schema))
    assert summary.to_dict()["patterns"] == summary.patterns.to_dicts()
    assert summary.episodes["patterns"].to_list() == [["fluids|raised|1|1"]] * 12
    assert patterns_by_episode(table, schema)["patterns"].to_list()[-1] is None
    (one,) = pattern_rows(summary.patterns)
    assert str(one["said"]) == "fluids raised by one level, hour 4 to 8"
    assert [group["group"] for group in one["groups"]] == summary.patterns["group"].to_list()[1:]
    (shown,) = [table for table in summary_tables(summary) if str(table.columns[0].header) == "changes that recur"]
    assert "Times count from the beginning of each record" in str(shown.caption), "and from nothing that happens in it"
    assert summarize(table, schema=schema, smallest_cell=13).patterns.is_empty()
    assert summarize(table).patterns.is_empty()
    with pytest.raises(InputError, match="smallest cell"):
        cohort_patterns(table, schema, smallest_cell=0)
