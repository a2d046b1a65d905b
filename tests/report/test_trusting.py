"""A run's warnings and agreement over all of its answers, against counting by hand."""

import json

import polars as pl
import pytest
from ifonly.runs.rows import FIRST_COLUMNS
from made_tables import failed, made_row, made_table

from ifonly.report import summary_files
from ifonly.report.improvements import Asked
from ifonly.report.summary import summarize
from ifonly.report.summary_files import write_summary
from ifonly.report.summary_tables import summary_tables
from ifonly.report.trust_plots import plot_trust

CHECK = {"verdict": "warn", "summary": "warn: of 9 checks 1 warn", "episodes": 400, "cohort": "c0"}
FEW, FAR = "only 3 of 10 refits agree that the changes help", "one step goes beyond what the data supports"
KINDS = {FEW: "refits disagree", FAR: "beyond what the data supports"}


def examined(number: int, gain: float, share: float | None, *warnings: str) -> dict:
    refits = None if share is None else [1.0] * 10
    return made_row(
        number,
        outcome=-100.0 + gain,
        clipped_outcome=-100.0 + gain,
        trust="said",
        warnings=list(warnings),
        warning_kinds=[KINDS.get(warning, warning) for warning in warnings],
        refits_agree=share,
        refit_improvements=refits,
    )


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return made_table(
        examined(0, 30.0, 1.0),
        examined(1, 20.0, 0.3, FEW),
        examined(2, 10.0, 0.9, FAR),
        examined(3, 4.0, 1.0),
        examined(4, 5.0, 0.3, FEW, FAR, "something new"),
        made_row(5, changes=0, changed_steps=[], clipped_outcome=-100.0, trust="nothing is changed", warnings=[]),
        made_row(6),
        failed(7, "no reason"),
    )


def test_warnings_are_counted_by_kind_and_answers_by_standing(table: pl.DataFrame) -> None:
    summary = summarize(table, asked=Asked(model_check=CHECK))
    trust = summary.trust
    assert (trust.examined, trust.without_warnings, trust.unchanged, trust.not_examined) == (5, 2, 1, 1)
    assert (trust.refits, trust.all_refits_agree, trust.median_agreement) == (5, 2, 0.9)
    assert summary.warnings.rows() == [
        ("refits disagree", 2, 0.4),
        ("beyond what the data supports", 2, 0.4),
        ("something new", 1, 0.2),
    ]
    groups = {row["standing"]: row for row in summary.by_standing.to_dicts()}
    assert list(groups) == ["all answers", "no warnings", "with warnings", "nothing changed", "not examined"]
    assert groups["all answers"]["episodes"] == 7
    assert groups["no warnings"]["mean"] == pytest.approx(0.17)
    assert groups["no warnings"]["cases"] == 1
    assert groups["with warnings"]["median"] == pytest.approx(0.1)
    counts = dict(zip(summary.agreement["low"].to_list(), summary.agreement["episodes"].to_list(), strict=True))
    assert {low: count for low, count in counts.items() if count} == {0.3: 2, 0.9: 3}


def test_it_is_said_in_words_tables_files_and_a_figure(table: pl.DataFrame, tmp_path) -> None:
    summary = summarize(table, asked=Asked(model_check=CHECK))
    text = str(summary)
    assert "model check  warn: of 9 checks 1 warn (on 400 episodes)" in text
    assert "2 of 5 examined answers raise no warning (median improvement 17.0 %)" in text
    assert "all refits agree in 2 of 5, in the median 90 % of them" in text
    assert {"trust", "warnings"} <= {str(shown.columns[0].header) for shown in summary_tables(summary)}
    write_summary(summary, tmp_path / "summary", figures=())  # to save all of them takes seconds
    content = json.loads((tmp_path / "summary" / "summary.json").read_text())
    assert content["trust"]["without_warnings"] == 2
    assert content["trust"]["model_check"]["verdict"] == "warn"
    assert "trust" in summary_files._plots(summary)
    rows = pl.read_csv(tmp_path / "summary" / "episodes.csv")
    assert rows["warnings"].to_list()[4] == f"{FEW}; {FAR}; something new"
    figure = plot_trust(summary)
    everyone, clean = figure.axes[0].lines
    assert list(everyone.get_ydata())[::7] == [100.0, 0.0]
    assert list(clean.get_xdata()) == pytest.approx([0.0, 4.0, 30.0])
    assert sum(bar.get_height() for bar in figure.axes[1].patches) == 5


def test_a_run_without_trust_is_said_to_be_not_examined(table: pl.DataFrame) -> None:
    old = table.select(FIRST_COLUMNS.names())
    summary = summarize(old)
    assert summary.trust.examined == 0
    assert "trust        not examined" in str(summary)
    assert "model check  not done" in str(summary)
    assert summary.improvement == summarize(table).improvement
    assert "trust" not in summary_files._plots(summary)
    with pytest.raises(ValueError, match="no answer of this run was examined"):
        plot_trust(summary)
    alone = summarize(table.filter(pl.col("refits_agree").is_null() | (pl.col("refits_agree") < 0)))
    assert alone.agreement.is_empty()


def test_to_know_the_model_s_check_alone_is_no_examination() -> None:
    known = {"trust": "the model's check warns", "warnings": ["the model's check warns (warn: of 9 checks 1 warn)"]}
    passed = {"trust": "the model passed its check", "warnings": []}
    unchanged = made_row(2, changes=0, changed_steps=[], clipped_outcome=-100.0, **passed)
    summary = summarize(made_table(made_row(0, **known), made_row(1, **passed), unchanged))
    assert (summary.trust.examined, summary.trust.not_examined, summary.trust.unchanged) == (0, 2, 1)
    assert "trust        not examined" in str(summary)
    assert summary.episodes["warnings"].null_count() == 3
    assert summary.warnings.is_empty()


def test_a_failed_model_is_told_in_the_statement(table: pl.DataFrame) -> None:
    summary = summarize(table, asked=Asked(model_check=CHECK | {"verdict": "fail"}))
    assert "But the model failed its check: it was asked all the same" in summary.statement
