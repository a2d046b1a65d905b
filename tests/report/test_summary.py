"""Summaries of cohort runs against plain recomputation, on random tables and on small ones known by heart."""

import json
import math
import statistics

import numpy as np
import polars as pl
import pytest
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st
from made_results import made_result
from made_tables import budget, failed, made_row, made_table, random_tables, realistic_table

from ifonly.errors import InputError
from ifonly.query import Limits, Query
from ifonly.report.improvements import bin_edges, improvements, improvements_by_budget
from ifonly.report.summary import RunSummary, summarize
from ifonly.result import Result
from ifonly.result.table import COLUMNS, to_row
from ifonly.rewards import Linear, minus
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.solve import solve
from ifonly.simulate import simulate_cohort
from ifonly.testing.instances import random_problem

STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
"""97.5 % quantiles for so many numbers, from a textbook."""


def answered(table: pl.DataFrame) -> list[dict]:
    return [row for row in table.to_dicts() if row["status"] != "failed"]


def improvement_of(row: dict) -> float | None:
    observed = row["observed_clipped_outcome"]
    return None if abs(observed) <= 1e-9 else (row["clipped_outcome"] - observed) / abs(observed)


def upper_of(row: dict) -> float:
    found = improvement_of(row)
    assert found is not None
    if row["status"] == "optimal":
        return found
    if row["upper_bound"] is None:
        return math.inf
    return found + (row["upper_bound"] - row["outcome"]) / abs(row["observed_clipped_outcome"])


@given(random_tables())
@settings(max_examples=some(60), deadline=None)
def test_every_figure_is_what_plain_python_says(table: pl.DataFrame) -> None:
    rows = answered(table)
    if not rows:
        with pytest.raises(InputError):
            summarize(table)
        return
    summary = summarize(table, threshold=0.15, by="status")
    found = [improvement_of(row) for row in rows]
    known = [value for value in found if value is not None]
    counts, stats = summary.counts, summary.improvement
    assert counts.episodes == table.height == counts.answered + counts.failed
    assert counts.proven == sum(row["status"] == "optimal" for row in rows)
    assert counts.without_improvement == found.count(None)
    assert sum(counts.statuses.values()) == counts.answered
    assert summary.episodes["improvement"].to_list() == pytest.approx(found)
    assert stats.episodes == len(known)
    if known:
        assert stats.mean == pytest.approx(statistics.fmean(known))
        assert stats.median == pytest.approx(statistics.median(known))
        uppers = [upper_of(row) for row in rows if improvement_of(row) is not None]
        for mine, theirs in (
            (stats.upper_mean, statistics.fmean(uppers)),
            (stats.upper_median, statistics.median(uppers)),
        ):
            assert mine == (pytest.approx(theirs) if math.isfinite(theirs) else None)
    if len(known) > 1:
        margin = STUDENT[len(known)] * statistics.stdev(known) / math.sqrt(len(known))
        assert (stats.low, stats.high) == pytest.approx((stats.mean - margin, stats.mean + margin), abs=1e-9)
    else:
        assert (stats.low, stats.high) == (None, None)
    case_count = sum(value >= 0.15 for value in known)
    assert summary.cases.height == case_count
    assert summary.cases["improvement"].to_list() == sorted((v for v in known if v >= 0.15), reverse=True)
    # Whatever it is broken down by, every episode is there once.
    for frame in (summary.by_horizon, summary.by_group):
        assert frame["episodes"].sum() == len(known)
        assert frame["cases"].sum() == case_count
    assert summary.histogram["episodes"].sum() == len(known)
    assert summary.changes_used["episodes"].sum() == len(rows)
    assert summary.change_times["changed"].sum() == sum(row["changes"] for row in rows)
    assert summary.failures["episodes"].sum() == counts.failed
    check_it_can_be_stored_and_read(summary)


def check_it_can_be_stored_and_read(summary: RunSummary) -> None:
    assert json.loads(summary.to_json()) == summary.to_dict()
    for frame in summary.frames().values():
        frame.write_csv()
    assert summary.statement in str(summary)


@given(random_tables())
@settings(max_examples=some(60), deadline=None)
def test_budgets_compare_the_same_episodes(table: pl.DataFrame) -> None:
    frame = improvements_by_budget(table)
    rows = {row["episode"]: row for row in answered(table)}
    wanted = max((b["max_changes"] for row in usable(rows) for b in row["frontier"]), default=-1)
    expected = []
    for row in usable(rows):
        entries = {b["max_changes"]: b["clipped_outcome"] for b in row["frontier"]}
        values = [entries.get(min(k, row["horizon"])) for k in range(wanted + 1)]
        if row["frontier"] and None not in values:
            size = abs(row["observed_clipped_outcome"])
            found = [(v - row["observed_clipped_outcome"]) / size for v in values]
            expected += [(row["episode"], k, max(found[: k + 1])) for k in range(len(found))]
    assert [line[:2] for line in frame.iter_rows()] == [line[:2] for line in expected]
    assert frame["improvement"].to_list() == pytest.approx([line[2] for line in expected])


def usable(rows: dict[str, dict]) -> list[dict]:
    return [row for row in rows.values() if improvement_of(row) is not None]


def test_an_example_known_by_heart() -> None:
    table = made_table(
        made_row(0, clipped_outcome=-80.0, outcome=-80.0, upper_bound=-80.0, changed_steps=[0, 4]),
        made_row(1, clipped_outcome=-95.0, outcome=-95.0, upper_bound=-85.0, status="time limit", horizon=3),
        made_row(2, clipped_outcome=-90.0),
        made_row(3, observed_clipped_outcome=-1e-14, clipped_outcome=0.0),
        failed(4, "episode 'patient-00004', step 3: no noise, off by 0.25."),
        failed(5, "episode 'patient-00005', step 11: no noise, off by 1e-3."),
        failed(6, "another reason"),
    )
    summary = summarize(table, Query(minus("SOFA")), expected=10)
    assert summary.improvement.mean == pytest.approx((0.2 + 0.05 + 0.1) / 3)
    assert summary.improvement.upper_mean == pytest.approx((0.2 + 0.15 + 0.1) / 3)
    assert (summary.improvement.median, summary.improvement.upper_median) == pytest.approx((0.1, 0.15))
    assert summary.cases.select("episode", "changes", "status").rows() == [("patient-00000", 2, "optimal")]
    assert summary.possible_cases == 1
    assert summary.change_times.select("episodes", "changed").rows() == [(4, 1), (4, 3), (4, 0), (3, 0), (3, 1)]
    assert summary.failures.rows() == [
        ("episode …, step …: no noise, off by ….", 2, "patient-00004"),
        ("another reason", 1, "patient-00006"),
    ]
    text = str(summary)
    assert "cumulative SOFA" in text
    assert "median 100.0 observed -> 85.0 counterfactual" in text
    assert "7 of 10: 3 proven, 1 limited (1 time limit), 3 failed" in text
    assert "1 of 3 episodes (33.3 %) would be at least 15 % better; 1 limited one may be, too" in text
    assert summary.statement == (
        "3 of 4 answers are proven optimal under the model; the improvement of the other 1 is a lower bound. Of the "
        "best sequences, clipping aside, the mean lies between 11.67 % and 15.00 % and the median lies between "
        "10.00 % and 15.00 %. 3 episodes failed and are not in these figures. 1 answer with an observed outcome of "
        "zero has no relative improvement. The run is not finished: 3 episodes are still to come. The longest "
        "come first, so these are not averages of the cohort."
    )
    assert summary.frames()["cases"]["changed_steps"].to_list() == ["0 4"]


def test_without_limits_nothing_is_said_of_brackets() -> None:
    summary = summarize(made_table(made_row(0), made_row(1)))
    assert summary.statement == "Every one of the 2 answers is proven optimal under the model."
    assert summary.outcomes.label == "outcome"
    assert summarize(made_table(made_row(0)), Query(Linear({"MAP": 1.0}))).outcomes.higher_is_better


def test_a_heuristics_answers_are_lower_bounds_without_an_upper_one() -> None:
    summary = summarize(made_table(*(made_row(n, status="heuristic", upper_bound=None) for n in range(3))))
    assert (summary.improvement.upper_mean, summary.improvement.upper_median) == (None, None)
    assert summary.statement.endswith("is a lower bound. No upper bound is known for 3 of them.")
    assert summary.possible_cases == 3


def test_a_median_may_be_bracketed_where_the_mean_is_not() -> None:
    rows = [made_row(n) for n in range(3)]
    rows[0] |= {"status": "node limit", "upper_bound": None}
    summary = summarize(made_table(*rows))
    assert summary.improvement.upper_mean is None
    assert summary.improvement.upper_median == pytest.approx(0.1)


def test_budgets_known_by_heart() -> None:
    full = [budget(0, -100.0, -100.0), budget(1, -90.0, -88.0), budget(2, -85.0, None)]
    none_with_so_few = [budget(0, None, None), *full[1:]]
    short = [budget(0, -100.0, -100.0), budget(1, -80.0, -80.0)]  # of an episode with one step only
    table = made_table(
        made_row(0, frontier=full),
        made_row(1, frontier=none_with_so_few),
        made_row(2, frontier=[]),
        made_row(3, frontier=short, horizon=1, changed_steps=[0]),
    )
    frame = summarize(table).by_budget
    assert frame["episodes"].to_list() == [2, 2, 2]
    assert frame["mean"].to_list() == pytest.approx([0.0, 0.15, 0.175])
    assert frame["upper_mean"].to_list() == [0.0, pytest.approx(0.16), None]


def test_clipped_outcomes_count_and_not_raw_ones() -> None:
    result = made_result({1: (0, 1)}, outcome=-10.0, clipped_outcome=-50.0, observed_clipped_outcome=-100.0)
    assert result.relative_improvement == 0.5
    assert improvements(table_of(result))["improvement"].to_list() == [0.5]


@given(st.floats(-1000, 1000), st.sampled_from([0.0, -0.0, 1e-13, -50.0]) | st.floats(-1000, 1000))
@settings(max_examples=some(60), deadline=None)
def test_rows_have_the_improvement_of_their_results(found: float, observed: float) -> None:
    row = to_row(made_result({}, clipped_outcome=found, observed_clipped_outcome=observed))
    assert row["improvement"] == (None if improvement_of(row) is None else pytest.approx(improvement_of(row)))


def table_of(result: Result) -> pl.DataFrame:
    return pl.DataFrame([to_row(result)], schema=COLUMNS)


def test_outcomes_that_are_unknown_are_counted_apart() -> None:
    rows = [made_row(0), made_row(1, clipped_outcome=None), made_row(2, observed_clipped_outcome=0.0)]
    for unknown in (None, math.nan):
        rows[1] |= {"clipped_outcome": unknown}
        summary = summarize(made_table(*rows), Query(minus("SOFA")), by="status")
        assert (summary.counts.without_outcome, summary.counts.without_improvement) == (1, 1)
        assert summary.improvement.episodes == 1
        assert summary.outcomes.counterfactual_mean == pytest.approx(90.0)
        assert summary.statement == (
            "Every one of the 3 answers is proven optimal under the model. 1 answer with an observed outcome of zero "
            "has no relative improvement. 1 answer without a known outcome within the features' ranges is not in "
            "averages."
        )
        check_it_can_be_stored_and_read(summary)
    nothing = summarize(made_table(rows[1]))
    assert (nothing.outcomes.counterfactual_median, nothing.counts.without_outcome) == (None, 1)
    assert "none can be given: outcomes are zero or unknown" in str(nothing)
    check_it_can_be_stored_and_read(nothing)


def test_bounds_hold_where_changes_cost() -> None:
    """Three changes were allowed at 4 each and one was made: -90 without costs, so -94; at most -93 with them."""
    row = made_row(0, status="time limit", outcome=-94.0, upper_bound=-93.0, clipped_outcome=-90.0)
    row["frontier"] = [
        budget(0, -100.0, -100.0),
        budget(1, -94.0, -94.0, -90.0) | {"actions": row["actions"]},
        budget(2, -94.0, -93.5, -90.0) | {"actions": row["actions"]},
        budget(3, -94.0, None, -90.0) | {"actions": row["actions"]},
    ]
    row["frontier"][0]["actions"] = row["observed_actions"]
    query = Query(minus("SOFA"), max_changes=3, change_cost=4.0)
    summary = summarize(made_table(row), query)
    assert summary.episodes["upper_improvement"].to_list() == [pytest.approx(0.1 + 0.01 + 0.08)]
    assert summary.by_budget["upper_mean"].to_list() == [
        0.0,
        pytest.approx(0.1),
        pytest.approx(0.1 + 0.005 + 0.04),
        None,
    ]
    without_limit = summarize(made_table(row), query.with_changes(max_changes=None))
    assert without_limit.improvement.upper_mean == pytest.approx(0.1 + 0.01 + 4 * 0.04)
    proven = made_table(made_row(0, outcome=-94.0, upper_bound=-94.0))
    assert summarize(proven, query).improvement.upper_mean == pytest.approx(0.1)


@pytest.mark.parametrize("seed", range(some(30)))
def test_no_best_sequence_exceeds_the_bound_of_a_stopped_search(seed: int) -> None:
    problem = random_problem(seed, horizon=5, actions=4, max_changes=3, rules=True, masked=False)
    best = improvements(table_of(solve(problem)))["improvement"][0]
    for nodes in (0, 1, 3):
        stopped = table_of(solve(problem, BranchAndBound(), limits=Limits(nodes=nodes)))
        upper = improvements(stopped, problem.query)["upper_improvement"][0]
        assert best is None or upper is None or upper >= best - 1e-9


def test_a_reward_that_is_code_is_shown_as_an_outcome() -> None:
    code = {"kind": "total", "parts": [{"kind": "custom", "name": "mine"}]}
    outcomes = summarize(made_table(made_row(0)), Query.from_dict({"reward": code})).outcomes
    assert (outcomes.label, outcomes.observed_mean, outcomes.higher_is_better) == ("outcome", -100.0, True)


@pytest.mark.parametrize("count", [0, 2])
def test_nothing_to_summarise_is_refused(count: int) -> None:
    table = made_table(*(failed(number, f"step {number}: no noise") for number in range(count)))
    match = "all 2 episodes of this run failed.*2 times.*step …: no noise" if count else "no episodes yet"
    with pytest.raises(InputError, match=match):
        summarize(table)


@pytest.mark.parametrize("threshold", [-0.1, math.nan, math.inf])
def test_thresholds_are_checked(threshold: float) -> None:
    with pytest.raises(InputError, match="threshold"):
        summarize(made_table(made_row(0)), threshold=threshold)


def test_other_tables_are_refused() -> None:
    with pytest.raises(InputError, match="lacks the columns"):
        summarize(pl.DataFrame({"episode": ["a"]}))


def test_groups_by_a_feature_of_the_cohort() -> None:
    cohort = simulate_cohort(40, seed=1, horizon=6)
    rows = [made_row(n, episode=id, clipped_outcome=-90.0 - n / 10) for n, id in enumerate(cohort.ids)]
    table = made_table(*rows)
    summary = summarize(table, by=["age", "gender", "changes"], values=cohort)
    assert summary.group_labels == {"age": "age (years)", "gender": "gender (1 = female)", "changes": "changes"}
    ages = summary.by_group.filter(pl.col("by") == "age")
    assert ages["episodes"].sum() == 40
    assert all(8 <= size <= 12 for size in ages["episodes"])  # a patient with two stays has one age
    first = [episode.context[0] for episode in cohort]
    column = [feature.name for feature in cohort.schema.context].index("gender")
    women = [improvement_of(row) for row, context in zip(rows, first, strict=True) if context[column] == 1]
    found = summary.by_group.row(by_predicate=(pl.col("by") == "gender") & (pl.col("group") == "1"), named=True)
    assert found["episodes"] == len(women)
    assert found["mean"] == pytest.approx(statistics.fmean(w for w in women if w is not None))


def test_groups_at_given_edges_keep_empty_groups_and_unknown_values() -> None:
    values = pl.DataFrame({"episode": [f"patient-{n:05d}" for n in range(5)], "x": [1.0, 2.0, 49.9, None, math.nan]})
    table = made_table(*(made_row(n) for n in range(5)))
    groups = summarize(table, by={"x": (2, 50.25)}, values=values).by_group
    assert groups.select("group", "episodes").rows() == [
        ("< 2", 1),
        ("2 to < 50.25", 2),
        (">= 50.25", 0),
        ("unknown", 2),
    ]
    assert groups["mean"].to_list()[2] is None


@given(random_tables())
@settings(max_examples=some(30), deadline=None)
def test_quartiles_leave_no_group_empty(table: pl.DataFrame) -> None:
    usable = table.filter(pl.col("status") != "failed")
    values = usable.select("episode", x=pl.col("observed_outcome"))
    if usable.is_empty():
        return
    groups = summarize(usable.with_columns(improvement=0.0), by="x", values=values)
    assert groups.by_group["episodes"].min() > 0
    assert groups.by_group["episodes"].sum() == usable.height


def test_words_are_groups_as_they_are() -> None:
    table = made_table(made_row(0), made_row(1, status="gap reached"), made_row(2))
    groups = summarize(table, by="status").by_group
    assert groups.select("group", "episodes").rows() == [("gap reached", 1), ("optimal", 2)]


@pytest.mark.parametrize(
    ("values", "by", "match"),
    [
        ({"episode": ["patient-00000"], "x": [1]}, "y", r"no such feature or column; choose from \['x'\]"),
        ({"episode": ["patient-00000"], "x": [1]}, {"x": (2, 1)}, "must be numbers that increase"),
        ({"episode": ["patient-00000"], "x": ["a"]}, {"x": (1,)}, "are no numbers"),
        ({"episode": ["patient-00000"], "x": [[1]]}, "x", "no numbers or words"),
        ({"episode": ["somebody else"], "x": [1]}, "x", "1 of the run's 1 episodes have no values"),
        ({"episode": ["patient-00000"] * 2, "x": [1, 2]}, "x", "more than one row"),
        ({"id": ["patient-00000"], "x": [1]}, "x", "needs a column 'episode'"),
    ],
)
def test_groups_that_cannot_be(values: dict, by: object, match: str) -> None:
    with pytest.raises(InputError, match=match):
        summarize(made_table(made_row(0)), by=by, values=pl.DataFrame(values))  # type: ignore[arg-type]


def test_too_many_groups_are_refused() -> None:
    with pytest.raises(InputError, match="40 different values; choose a column with at most 30"):
        summarize(made_table(*(made_row(n) for n in range(40))), by="subject")


@pytest.mark.parametrize("seed", range(20))
def test_bins_are_round_and_hold_everything(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(0, 10.0 ** random.integers(-3, 3), size=random.integers(1, 300))
    edges = bin_edges(values)
    widths = np.diff(edges)
    assert edges[0] <= values.min() < edges[1]
    assert edges[-2] <= values.max() < edges[-1]
    assert np.allclose(widths, widths[0])
    assert f"{widths[0]:.3e}"[:5] in ("1.000", "2.000", "5.000")
    assert np.isclose(edges / widths[0], np.round(edges / widths[0])).all()
    assert len(edges) <= 85


def test_what_reaches_an_edge_is_counted_from_there() -> None:
    values = np.repeat([0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.6, 0.7], 200)
    edges = bin_edges(values)
    assert edges.tolist() == [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75]
    assert np.histogram(values, edges)[0].tolist() == [200] * 8 + [0] * 4 + [200, 0, 200]


def test_a_large_run_is_summarised_at_once() -> None:
    table = realistic_table(2000, seed=3)
    summary = summarize(table)
    assert table.schema == COLUMNS
    assert summary.counts.failed > 0
    assert 0.03 < (summary.improvement.median or 0) < 0.08
    assert summary.by_budget["mean"].is_sorted()
