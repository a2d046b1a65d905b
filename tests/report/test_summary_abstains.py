"""Summaries that abstain: what is not to be believed is counted, and in no figure about improvements."""

import json
from pathlib import Path

import polars as pl
import pytest
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st
from made_tables import budget, failed, made_row, made_table, random_tables, realistic_table
from polars.testing import assert_frame_equal

from ifonly.report.case_report import _most_improved
from ifonly.report.folders import summary_plots, write_summary
from ifonly.report.summary import RunSummary, summarize
from ifonly.report.tables import summary_tables
from ifonly.result import Status, Verdict

ABOUT_IMPROVEMENTS = ("cases", "histogram", "by_horizon", "by_budget", "by_group", "changes_used", "change_times")
ABOUT_ANSWERS = ("episodes", "by_examination", "warnings", "agreement", "failures")


def unbelieved(table: pl.DataFrame, numbers: set[int]) -> pl.DataFrame:
    """The table, whose rows of these numbers have answers that are not to be believed; those that failed have none."""
    rows = pl.int_range(pl.len()).is_in(sorted(numbers)) & (pl.col("status") != "failed")
    verdict = pl.when(rows).then(pl.lit(Verdict.NOT_BELIEVABLE.value)).otherwise("verdict")
    return table.with_columns(verdict=verdict)


def check_same(one: RunSummary, other: RunSummary, parts: tuple[str, ...]) -> None:
    for name in parts:
        assert_frame_equal(getattr(one, name), getattr(other, name))


def check_can_be_told(summary: RunSummary, folder: Path) -> None:
    assert json.loads(summary.to_json()) == summary.to_dict()
    assert summary.statement in str(summary)
    assert summary_tables(summary)
    written = write_summary(summary, folder / "summary", figures=())
    assert json.loads((folder / "summary" / "summary.json").read_text())["abstained"] == summary.abstained
    assert set(written.not_drawn) <= set(summary_plots(summary))


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """Improvements of 30, 20, 10 and 40 %, the second and the last not to be believed; and one that failed."""
    gains = {0: 30.0, 1: 20.0, 2: 10.0, 3: 40.0}
    rows = [
        made_row(
            number,
            horizon=5 + number % 2,
            outcome=-100.0 + gain,
            clipped_outcome=-100.0 + gain,
            frontier=[budget(0, -100.0, -100.0), budget(1, -100.0 + gain, -100.0 + gain)],
        )
        for number, gain in gains.items()
    ]
    return unbelieved(made_table(*rows, failed(4, "no reason")), {1, 3, 4})


def test_what_is_not_believable_is_counted_and_in_no_figure(table: pl.DataFrame) -> None:
    summary = summarize(table)
    assert summary.abstained == 2
    assert (summary.counts.answered, summary.counts.failed) == (4, 1)
    assert (summary.improvement.episodes, summary.improvement.mean) == (2, pytest.approx(0.2))
    assert summary.outcomes.counterfactual_mean == pytest.approx(-80.0)
    assert summary.cases["episode"].to_list() == ["patient-00000"]
    assert summary.histogram["episodes"].sum() == 2
    assert summary.by_horizon.select("horizon", "episodes").rows() == [(5, 2)]
    budgets = summary.by_budget.select("max_changes", "episodes", "mean").rows()
    assert budgets == [(0, 2, pytest.approx(0.0)), (1, 2, pytest.approx(0.2))]
    assert summary.changes_used["episodes"].sum() == 2
    assert summary.episodes.height == 4, "every answer is listed, with its verdict"
    assert_frame_equal(summary.believed, summary.episodes[[0, 2]])
    assert summary.evidence.verdicts == {"not believable": 2, "not examined": 2}
    assert "2 answers are not to be believed by the evidence, and are not in these figures." in summary.statement
    assert json.loads(summary.to_json())["abstained"] == 2


def test_without_abstaining_all_answers_count(table: pl.DataFrame) -> None:
    summary = summarize(table, abstain=False)
    assert summary.abstained == 0
    assert_frame_equal(summary.believed, summary.episodes)
    assert (summary.improvement.episodes, summary.improvement.mean) == (4, pytest.approx(0.25))
    assert summary.cases["episode"].to_list() == ["patient-00003", "patient-00000", "patient-00001"]
    assert "not to be believed" not in summary.statement
    assert summary.evidence.verdicts == {"not believable": 2, "not examined": 2}


def test_reports_show_what_is_not_believable_after_all_others(table: pl.DataFrame) -> None:
    assert [name[-1] for name in _most_improved(summarize(table), 4)] == ["0", "2", "3", "1"]
    assert [name[-1] for name in _most_improved(summarize(table, abstain=False), 4)] == ["3", "0", "1", "2"]


@given(random_tables(), st.sets(st.integers(0, 7)))
@settings(max_examples=some(60), deadline=None)
def test_figures_are_those_of_a_run_without_what_is_not_believable(drawn: pl.DataFrame, numbers: set[int]) -> None:
    table = unbelieved(drawn, numbers)
    answered = drawn.filter(pl.col("status") != "failed").height
    if not answered:
        return
    summary, plain = summarize(table, by="status"), summarize(drawn, by="status")
    kept = table.filter(pl.col("verdict").ne_missing(Verdict.NOT_BELIEVABLE.value))
    assert summary.abstained == table.height - kept.height
    assert summary.counts == plain.counts
    assert summary.work == plain.work
    # `abstain=False` gives the figures of a run in which nothing is doubted; only verdicts are others.
    everything = summarize(table, by="status", abstain=False)
    assert (everything.improvement, everything.outcomes) == (plain.improvement, plain.outcomes)
    assert everything.possible_cases == plain.possible_cases
    for name in (*ABOUT_IMPROVEMENTS, *ABOUT_ANSWERS):
        one, other = getattr(everything, name), getattr(plain, name)
        assert_frame_equal(one.drop("verdict", strict=False), other.drop("verdict", strict=False))
    check_same(summary, everything, ABOUT_ANSWERS)
    if kept.filter(pl.col("status") != "failed").is_empty():
        assert summary.improvement.episodes == 0
        return
    alone = summarize(kept, by="status")
    assert (summary.improvement, summary.outcomes) == (alone.improvement, alone.outcomes)
    assert summary.possible_cases == alone.possible_cases
    check_same(summary, alone, ABOUT_IMPROVEMENTS)


@pytest.mark.parametrize("by", [(), "horizon"])
def test_where_nothing_is_believable_there_are_no_figures_and_no_crash(by: object, tmp_path: Path) -> None:
    made = realistic_table(12, seed=3)
    table = unbelieved(made, set(range(12)))
    summary = summarize(table, by=by)  # type: ignore[arg-type]
    assert summary.abstained == summary.counts.answered == made.filter(pl.col("status") != "failed").height
    assert (summary.improvement.episodes, summary.improvement.mean, summary.improvement.median) == (0, None, None)
    assert summary.outcomes.observed_mean is None
    assert summary.possible_cases == 0
    for name in ABOUT_IMPROVEMENTS:
        assert getattr(summary, name).is_empty(), name
    assert summary.counts.statuses.get(Status.OPTIMAL.value, 0) > 0
    check_can_be_told(summary, tmp_path)
    assert "improvement  none can be given: no answer is to be believed\n" in str(summary)


def test_figures_of_what_is_left_are_drawn(table: pl.DataFrame, tmp_path: Path) -> None:
    check_can_be_told(summarize(table, by="horizon"), tmp_path)
