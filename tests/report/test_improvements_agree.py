"""Two outcomes and the percentage beside them follow from each other: in runs, summaries, reports and lists."""

import io
import json
import re
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
import torch
from effort import LONG
from paper.laboratory import on_linear_scales
from rich.console import Console

from ifonly.data import Cohort, Scaler
from ifonly.models import LinearModel
from ifonly.query import Limits, Query
from ifonly.report.case_report import ReportSettings, write_report
from ifonly.report.cases import OpenedRun, open_run
from ifonly.report.summary import summarize
from ifonly.report.tables import results_table
from ifonly.rewards import Linear, minus
from ifonly.runs import RunSettings, solve_cohort
from ifonly.simulate import simulate_cohort
from ifonly.text.numbers import outcomes
from ifonly.text.results import figure_title, result_lines
from ifonly.text.summaries import summary_lines
from ifonly.web.listing import list_rows

QUERIES = {
    "lower is better": Query(minus("SOFA"), 3),
    "higher is better": Query(Linear({"MAP": 1.0}), 3),
    "no single feature": Query(Linear({"SOFA": -2.0, "MAP": 0.1}), 3),
    "changes cost": Query(minus("SOFA"), 3, change_cost=1.5),
    "not proven": Query(minus("SOFA"), 3, limits=Limits(nodes=1)),
    "tiny outcomes": Query(Linear({"SOFA": -1e-5}), 3),
}


def strong_model(cohort: Cohort) -> LinearModel:
    """One whose treatments move states so far that many leave their plausible ranges."""
    generator = torch.Generator().manual_seed(1)
    actions, size = len(cohort.schema.actions), len(cohort.schema.dynamic)
    matrices = 0.3 * torch.randn(actions, size, size, generator=generator, dtype=torch.float64)
    offsets = 2.0 * torch.randn(actions, size, generator=generator, dtype=torch.float64)
    return LinearModel(cohort.schema, matrices, offsets=offsets, scaler=Scaler.fit(cohort))


@pytest.fixture(scope="module", params=list(QUERIES) if LONG else ["lower is better", "tiny outcomes"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OpenedRun:
    cohort = on_linear_scales(simulate_cohort(12, seed=4, horizon=(3, 6)))  # on bounded ones nothing would leave them
    model = strong_model(cohort)
    out = tmp_path_factory.mktemp("runs") / "run"
    run = solve_cohort(cohort, model, QUERIES[request.param], out=out, settings=RunSettings(workers=1))
    return open_run(run, episodes=cohort, model=model)


@pytest.fixture(scope="module")
def report(opened: OpenedRun, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the file of a report holds, out of its HTML."""
    path = tmp_path_factory.mktemp("reports") / "report.html"
    write_report(opened, path, ReportSettings(alternatives=2, seconds=60))
    (text,) = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    content: dict[str, Any] = json.loads(text)
    return content


def percentage(before: float, after: float, *, lower_is_better: bool) -> float:
    return (before - after if lower_is_better else after - before) / abs(before)


def follows(pair: Sequence[str], share: float) -> bool:
    """Whether a change by this share follows from two outcomes as written, which have digits enough to show it."""
    before, after = map(float, pair)
    (digits,) = {len(text.partition(".")[2]) for text in pair}
    rounding = 10.0**-digits * (1 + abs(share)) / abs(before)
    usual = abs(before) >= 1 and abs(share * before) >= 0.1
    told = usual or rounding <= abs(share) / 5 or abs(share) < 0.0005
    return told and abs((after - before) / abs(before) - share) <= rounding


def test_the_run_leaves_plausible_ranges(opened: OpenedRun) -> None:
    """Or nothing here would be tested."""
    table = opened.table
    clipped = table["outcome"] + opened.query.change_cost * table["changes"] - table["clipped_outcome"]
    assert (clipped.abs() > 1e-4 * table["observed_outcome"].abs()).any()


def test_every_row_of_a_run_and_of_its_summary(opened: OpenedRun) -> None:
    table, summary = opened.table, summarize(opened.table, opened.query)
    lower = not summary.outcomes.higher_is_better
    for row, line in zip(table.to_dicts(), summary.episodes.to_dicts(), strict=True):
        found = percentage(line["observed"], line["counterfactual"], lower_is_better=lower)
        assert line["improvement"] == row["improvement"] == pytest.approx(found)
        result = opened.result(row["episode"])
        assert result.relative_improvement == row["improvement"]
        assert [shown.value for shown in result.shown] == [line["observed"], line["counterfactual"]]


def test_lines_and_tables_of_the_terminal(opened: OpenedRun) -> None:
    for episode in opened.table["episode"]:
        result = opened.result(episode)
        before, after = (shown.value for shown in result.shown)
        share = (after - before) / abs(before)
        pair, moved = " (?:->|→) ".join(outcomes(before, after)), re.escape(f"{share:+.1%}")
        assert follows(outcomes(before, after), share)
        console = Console(width=200, file=io.StringIO(), color_system=None)
        console.print(results_table([result]))
        assert isinstance(console.file, io.StringIO)
        assert re.search(rf"{pair}.*\n.*{moved}", console.file.getvalue())
        assert re.search(rf"{pair} \({moved}\)", result_lines(result))
        assert not result.changes or re.search(rf"{pair} \({moved}\)", figure_title(result))


def test_the_outcomes_of_a_summary(opened: OpenedRun) -> None:
    shown = summarize(opened.table, opened.query).outcomes
    line = summary_lines(summarize(opened.table, opened.query))
    for average, pattern in (("median", "median {} observed -> {}"), ("mean", "mean {} -> {};")):
        before, after = (getattr(shown, f"{course}_{average}") for course in ("observed", "counterfactual"))
        found = re.search(pattern.format(*2 * [r"(-?[\d.]+)"]), line)
        assert found is not None, line
        assert follows(found.groups(), (after - before) / abs(before))


def test_every_number_of_a_report(opened: OpenedRun, report: dict[str, Any]) -> None:
    rows = {row["episode"]: row for row in report["summary"]["rows"]}
    assert len(rows) == len(report["cases"]) == 12
    for case in report["cases"]:
        row, best, observed = rows[case["episode"]], case["answer"]["best"], case["observed"]
        lower = case["question"]["lower_is_better"]
        listed = [one["course"] for one in case["answer"]["budgets"]] + case["answer"]["alternatives"] + [best]
        for course in listed:
            found = percentage(observed["outcome"], course["outcome"], lower_is_better=lower)
            assert course["improvement"] == pytest.approx(found, abs=2e-5)
        assert observed["improvement"] == 0
        assert row["observed"] == pytest.approx(observed["outcome"], rel=2e-6)
        assert row["best"] == pytest.approx(best["outcome"], rel=2e-6)
        assert row["improvement"] == pytest.approx(best["improvement"], rel=2e-6, abs=1e-9)
        assert (row["proven"], row["changes"]) == (case["answer"]["claim"]["proven"], len(best["changes"]))


def test_every_row_of_the_review_list(opened: OpenedRun) -> None:
    model, cohort, query = opened.model, opened.cohort, opened.query
    lower = not query.reward.show(0.0).higher_is_better
    rows = list_rows(cohort, model, query, table=opened.table)
    assert len(rows) == 12
    summary = summarize(opened.table, query)
    for row, line in zip(rows.to_dicts(), summary.episodes.to_dicts(), strict=True):
        found = percentage(row["observed"], row["best"], lower_is_better=lower)
        assert row["improvement"] == pytest.approx(found)
        names = {"observed": "observed", "best": "counterfactual", "improvement": "improvement"}
        assert [row[name] for name in ("episode", *names)] == [line[name] for name in ("episode", *names.values())]
    alone = list_rows(cohort, model, query, table=None)
    assert alone["observed"].to_list() == pytest.approx(rows["observed"].to_list()), "the same without an answer"


def test_more_changes_allowed_never_improve_less(opened: OpenedRun) -> None:
    by_budget = summarize(opened.table, opened.query).by_budget
    assert by_budget["max_changes"].to_list() == [0, 1, 2, 3]
    for name in ("mean", "median", "lower_quartile", "upper_quartile", "smallest", "largest"):
        assert by_budget[name].is_sorted(), name
    assert (by_budget["mean"] >= 0).all()
    known = by_budget.filter(pl.col("upper_mean").is_not_null())
    assert (known["upper_mean"] >= known["mean"]).all()
