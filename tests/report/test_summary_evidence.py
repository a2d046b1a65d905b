"""A run's warnings and agreement over all of its answers, against counting by hand."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from made_tables import failed, made_row, made_table

from ifonly.models.standing import HiddenSigns, Standing
from ifonly.report.cohort_plots import plot_evidence
from ifonly.report.folders import summary_plots, write_summary
from ifonly.report.summary import summarize
from ifonly.report.tables import summary_tables
from ifonly.result import Agreement, Evidence, LocalCalibration, Sensitivity, SupportReport
from ifonly.result.evidence import ExaminationFailure, Reason, ReasonCode, StepSupport, SupportFlag
from ifonly.result.sensitivity import StepSensitivity
from ifonly.result.table import with_check
from ifonly.result.verdict import HonestGain

PASSED = Standing("pass", (), 400, "c0")
WARNED = Standing("warn", ("distance",), 400, "c0")
FAILED = Standing("fail", ("distance",), 400, "c0")
REFITS, DATA, INFLUENCE = "refits disagree", "beyond the data", "small influence"
FAR = SupportReport("b0", (StepSupport(1, 1, True, 0.5, 99.9, (SupportFlag.FAR,)),))
SMALL = Sensitivity(1.0, 3.0, (StepSensitivity(1, 0.01, 0.02, (0.1,), (0.1,)),))


def examined(number: int, gain: float, helping: int, **parts: object) -> dict:
    """An answer that helps under so many of ten refits, with further parts of its evidence."""
    refits = Agreement(np.ones(10), helping)
    evidence = Evidence(changed_steps=(1,), refits=refits, **parts)  # type: ignore[arg-type]
    return made_row(number, outcome=-100.0 + gain, clipped_outcome=-100.0 + gain, evidence=evidence)


def unchanged(number: int) -> dict:
    return made_row(number, changed_steps=[], clipped_outcome=-100.0)


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return made_table(
        examined(0, 30.0, 10),
        examined(1, 20.0, 3),
        examined(2, 10.0, 9, support=FAR),
        examined(3, 4.0, 10),
        examined(4, 5.0, 3, support=FAR, sensitivity=SMALL),
        unchanged(5),
        made_row(6),
        failed(7, "no reason"),
    )


def test_warnings_are_counted_by_code_and_answers_by_examination(table: pl.DataFrame) -> None:
    summary = summarize(table)
    found = summary.evidence
    assert (found.examined, found.without_warnings, found.unchanged, found.not_examined) == (5, 2, 1, 1)
    assert (found.refits, found.all_refits_agree, found.median_agreement) == (5, 2, 0.9)
    assert found.verdicts == {"uncertain": 5, "not examined": 2}
    assert summary.warnings.rows() == [(REFITS, 2, 0.4), (DATA, 2, 0.4), (INFLUENCE, 1, 0.2)]
    groups = {row["examination"]: row for row in summary.by_examination.to_dicts()}
    assert list(groups) == ["all answers", "no warnings", "with warnings", "nothing changed", "not examined"]
    assert groups["all answers"]["episodes"] == 7
    assert groups["no warnings"]["mean"] == pytest.approx(0.17)
    assert groups["no warnings"]["cases"] == 1
    assert groups["with warnings"]["median"] == pytest.approx(0.1)
    counts = dict(zip(summary.agreement["low"].to_list(), summary.agreement["episodes"].to_list(), strict=True))
    assert {low: count for low, count in counts.items() if count} == {0.3: 2, 0.9: 3}


def test_it_is_said_in_words_tables_files_and_a_figure(table: pl.DataFrame, tmp_path) -> None:
    summary = summarize(with_check(table, PASSED))
    text = str(summary)
    assert "model check  pass (on 400 episodes)\n" in text
    assert "2 of 5 examined answers raise no warning (median improvement 17.0 %)" in text
    assert "all members agree in 2 of 5, in the median 90 % of them" in text
    assert {"evidence", "warnings"} <= {str(shown.columns[0].header) for shown in summary_tables(summary)}
    write_summary(summary, tmp_path / "summary", figures=())  # to save all of them takes seconds
    content = json.loads((tmp_path / "summary" / "summary.json").read_text())
    assert content["evidence"]["without_warnings"] == 2
    assert content["evidence"]["model_check"]["verdict"] == "pass"
    assert "evidence" in summary_plots(summary)
    rows = pl.read_csv(tmp_path / "summary" / "episodes.csv")
    assert rows["warnings"].to_list()[4] == f"{REFITS}; {DATA}; {INFLUENCE}"
    figure = plot_evidence(summary)
    everyone, clean = figure.axes[0].lines
    assert list(everyone.get_ydata())[::7] == [100.0, 0.0]
    assert list(clean.get_xdata()) == pytest.approx([0.0, 4.0, 30.0])
    assert sum(bar.get_height() for bar in figure.axes[1].patches) == 5


def test_a_check_that_warns_is_a_warning_of_every_examined_answer(table: pl.DataFrame) -> None:
    summary = summarize(with_check(table, WARNED))
    assert "model check  warn (on 400 episodes): the noise is not distributed as its prior says" in str(summary)
    assert summary.warnings.rows()[0] == ("model check", 5, 1.0)
    assert summary.evidence.without_warnings == 0
    assert summary.evidence.model_check is not None
    assert summary.evidence.model_check["findings"] == ["distance"]


def test_a_run_without_evidence_is_said_to_be_not_examined(table: pl.DataFrame) -> None:
    gains = (30.0, 20.0, 10.0, 4.0, 5.0)
    rows = [made_row(n, outcome=-100.0 + gain, clipped_outcome=-100.0 + gain) for n, gain in enumerate(gains)]
    summary = summarize(made_table(*rows, unchanged(5), made_row(6), failed(7, "no reason")))
    assert summary.evidence.examined == 0
    assert "evidence     not examined" in str(summary)
    assert "model check  not done" in str(summary)
    assert summary.improvement == summarize(table).improvement
    assert "evidence" not in summary_plots(summary)
    with pytest.raises(ValueError, match="no answer of this run was examined"):
        plot_evidence(summary)
    assert summary.agreement.is_empty()


def test_an_examination_that_failed_is_a_warning() -> None:
    failure = Evidence(
        changed_steps=(1,), failures=(ExaminationFailure("all", Reason(ReasonCode.REFUSED, "no reason")),)
    )
    summary = summarize(made_table(made_row(0, evidence=failure), made_row(1)))
    assert (summary.evidence.examined, summary.evidence.without_warnings) == (1, 0)
    assert summary.warnings.rows() == [("could not be examined", 1, 1.0)]


def test_to_know_the_model_s_check_alone_is_no_examination() -> None:
    for check in (WARNED, PASSED):
        summary = summarize(with_check(made_table(made_row(0), made_row(1), unchanged(2)), check))
        found = summary.evidence
        assert (found.examined, found.not_examined, found.unchanged) == (0, 2, 1)
        assert "evidence     not examined" in str(summary)
        assert summary.episodes["warnings"].null_count() == 3
        assert summary.warnings.is_empty()


def test_a_failed_model_is_told_in_the_statement(table: pl.DataFrame) -> None:
    summary = summarize(with_check(table, Standing("fail", ("distance",), 400, "c0")))
    assert "But the model failed its check: it was asked all the same" in summary.statement
    assert summary.evidence.verdicts == {"not believable": 7}


def chosen(number: int, promised: float, judged: float, **parts: object) -> dict:
    """An answer whose sequences promise so much to the half that chose them, and to the other half this."""
    honest, records = HonestGain(promised, judged), LocalCalibration(promised, promised, 1.0, 100)
    return examined(number, promised, 10, promised=promised, honest=honest, calibration=records, **parts)


def test_what_improvements_owe_to_having_been_chosen_is_said() -> None:
    rows = [chosen(0, 30.0, 20.0), chosen(1, 10.0, 12.0), examined(2, 50.0, 10), chosen(3, 80.0, 0.0, check=FAILED)]
    told = summarize(made_table(*rows))
    # Half of what the other half does not say is owed: 30 - 5 and 10 + 1, of the two that are believed and were judged.
    assert told.evidence.debiased == 2
    assert told.evidence.share_left == pytest.approx(36 / 40)
    assert "Without what they owe to having been chosen, 90 % of the promised gains of 2 answers are left." in str(told)
    assert told.to_dict()["evidence"]["share_left"] == told.evidence.share_left
    assert "The evidence supports 0 of the 4 answers." in str(told)
    everyone = summarize(made_table(*rows), abstain=False)
    assert everyone.evidence.share_left == pytest.approx((36 + 40) / 120)
    unknown = summarize(made_table(examined(0, 30.0, 10)))
    assert (unknown.evidence.debiased, unknown.evidence.share_left) == (0, None)
    assert "chosen" not in str(unknown)
    assert "supports" not in str(unknown), "it was not asked for all that a verdict needs"


@pytest.mark.parametrize(("size", "said"), [(0.03, True), (0.002, False), (None, False)])
def test_clear_signs_of_something_hidden_are_said_of_the_run(size: float | None, said: bool) -> None:
    check = replace(WARNED, hidden=HiddenSigns(choice=size))
    summary = summarize(with_check(made_table(chosen(0, 30.0, 20.0), unchanged(1)), check))
    assert summary.evidence.hidden_clearly == said
    assert ("something which matters is not recorded" in summary.statement) == said
    assert ("The evidence supports" in summary.statement) != said
    nothing = summarize(with_check(made_table(unchanged(0)), check))
    assert "not recorded" not in nothing.statement, "there is no answer to doubt"
