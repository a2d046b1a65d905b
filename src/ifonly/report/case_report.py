"""The report of a run: one HTML file with the cohort's summary and a page for each chosen case, readable anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ifonly.errors import InputError, StoreError
from ifonly.files import check_writable, write_text_atomically
from ifonly.progress import Progress, silent
from ifonly.report.cases import Case, OpenedRun, cases_of_run, open_run
from ifonly.report.cases.case import CaseQuestion, ModelAbout
from ifonly.report.cases.page import cases_html
from ifonly.report.summary import INTERESTING, RunSummary, summarize
from ifonly.result import Status
from ifonly.text.catalogue import Message
from ifonly.text.evidence import warned_message
from ifonly.text.numbers import percent
from ifonly.text.summaries import statement_messages

if TYPE_CHECKING:
    from ifonly.data.cohort import Cohort
    from ifonly.models.base import TransitionModel
    from ifonly.runs.run import Run


@dataclass(frozen=True)
class ReportSettings:
    """Which cases a report shows, and what of them."""

    episodes: Sequence[str] = ()
    """Ids, in the order in which they are shown; none stands for the most improved ones."""
    cases: int = 20
    """How many of the most improved ones."""
    alternatives: int = 5
    """How many of the best sequences of a case, the best included; 1 shows no others."""
    seconds: float = 10.0
    """For the alternatives of one case; where it takes longer, the run's own answer is shown without them."""
    threshold: float = INTERESTING
    """Episodes that improve by at least this are interesting cases."""

    def __post_init__(self) -> None:
        if isinstance(self.cases, bool) or not isinstance(self.cases, int) or self.cases < 1:
            raise InputError(f"report: cases={self.cases!r} must be a whole number of at least 1.")
        if isinstance(self.episodes, str):
            raise InputError(f"report: episodes={self.episodes!r} must be a list of ids.")


@dataclass(frozen=True)
class SummaryCount:
    """One figure of a summary."""

    label: Message
    value: int | str
    note: Message | None = None


@dataclass(frozen=True)
class SummaryRow:
    """One episode in the table of a report."""

    episode: str
    steps: int
    observed: float | None
    best: float | None
    improvement: float | None
    changes: int
    status: str
    proven: bool
    refits_agree: float | None
    refits: int | None
    warnings: int | None
    """How many there are; None: not examined."""


@dataclass(frozen=True)
class BudgetAverages:
    """Improvements with at most so many changes: their mean with its interval, and their median."""

    max_changes: int
    mean: float | None
    low: float | None
    high: float | None
    median: float | None


@dataclass(frozen=True)
class ExaminedGroup:
    """The improvements of answers of which an examination says alike."""

    answers: Message
    episodes: int
    median: float | None
    lower_quartile: float | None
    upper_quartile: float | None
    cases: int


@dataclass(frozen=True)
class WarningCount:
    """How many answers a kind of warning is about."""

    warning: Message
    episodes: int
    share: float


@dataclass(frozen=True)
class ExaminedAnswers:
    """How far the answers may be trusted as a whole."""

    examined: int
    without_warnings: int
    median_agreement: float | None
    groups: tuple[ExaminedGroup, ...]
    warnings: tuple[WarningCount, ...]


@dataclass(frozen=True)
class SummaryPage:
    """What the first page of a report shows; its figures are those of `ifonly summarize`."""

    threshold: float
    question: CaseQuestion
    counts: tuple[SummaryCount, ...]
    improvements: tuple[float, ...]
    by_changes: tuple[BudgetAverages, ...]
    rows: tuple[SummaryRow, ...]
    notes: tuple[Message, ...]
    model: ModelAbout
    evidence: ExaminedAnswers | None
    """None where no answer was examined."""


@dataclass(frozen=True, eq=False)
class Report:
    """A report that was written, and what is in it."""

    path: Path
    summary: RunSummary
    cases: tuple[Case, ...]


def write_report(
    run: OpenedRun | Run | str | Path,
    path: str | Path,
    settings: ReportSettings | None = None,
    *,
    episodes: Cohort | str | Path | None = None,
    model: TransitionModel | str | Path | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Report:
    """Write one HTML file about a finished run: its summary, and a page for each chosen case.

    The file needs no other file and no network. It holds patients' data: treat it as you treat the cohort. `episodes`
    and `model` say where these are, should the run not know or should they have moved.
    """
    settings = settings or ReportSettings()
    target = Path(path)
    if target.exists() and not overwrite:
        raise StoreError(f"{target} exists already; pass overwrite=True or choose another name.")
    check_writable(target)
    opened = run if isinstance(run, OpenedRun) else open_run(run, episodes=episodes, model=model)
    try:
        summary = summarize(opened.table, opened.query, threshold=settings.threshold, expected=opened.table.height)
    except InputError as error:
        raise InputError(f"{opened.run.folder}: {error}") from None
    cases = cases_of_run(
        opened,
        settings.episodes or _most_improved(summary, settings.cases),
        alternatives=settings.alternatives,
        seconds=settings.seconds,
        progress=progress,
    )
    write_text_atomically(target, report_html(summary, cases))
    return Report(target, summary, tuple(cases))


def report_html(summary: RunSummary, cases: Sequence[Case]) -> str:
    """The report as one HTML document, of at least one case; the same input gives the same text."""
    return cases_html(cases, summary_page(summary, cases))


def _most_improved(summary: RunSummary, count: int) -> list[str]:
    """Ids, best first; of equals the first one first, and those of which nothing is known last."""
    ranked = summary.episodes.sort("improvement", descending=True, nulls_last=True, maintain_order=True)
    return ranked["episode"].head(count).to_list()


def summary_page(summary: RunSummary, cases: Sequence[Case]) -> SummaryPage:
    """The summary as a report shows it, with what its cases have in common."""
    first, rows = cases[0], summary.episodes.to_dicts()
    most = max(case.question.max_changes or 0 for case in cases)
    budgets = summary.by_budget.select("max_changes", "mean", "low", "high", "median")
    return SummaryPage(
        threshold=summary.threshold,
        question=replace(first.question, max_changes=most),
        counts=tuple(_counts(summary)),
        improvements=tuple(row["improvement"] for row in rows if row["improvement"] is not None),
        by_changes=tuple(BudgetAverages(**row) for row in budgets.iter_rows(named=True)),
        rows=tuple(
            SummaryRow(
                episode=row["episode"],
                steps=row["horizon"],
                observed=row["observed"],
                best=row["counterfactual"],
                improvement=row["improvement"],
                changes=row["changes"],
                status=row["status"],
                proven=row["status"] == Status.OPTIMAL.value,
                refits_agree=row["refits_agree"],
                refits=row["refits"],
                warnings=None if row["warnings"] is None else len(row["warnings"]),
            )
            for row in rows
        ),
        notes=tuple(statement_messages(summary)),
        model=first.model,
        evidence=_evidence(summary) if summary.evidence.examined else None,
    )


def _evidence(summary: RunSummary) -> ExaminedAnswers:
    kept = ("examination", "episodes", "median", "lower_quartile", "upper_quartile", "cases")
    groups = summary.by_examination.select(kept).iter_rows()
    return ExaminedAnswers(
        examined=summary.evidence.examined,
        without_warnings=summary.evidence.without_warnings,
        median_agreement=summary.evidence.median_agreement,
        groups=tuple(ExaminedGroup(Message(f"examination.{name}"), *figures) for name, *figures in groups),
        warnings=tuple(
            WarningCount(warned_message(code), episodes, share)
            for code, episodes, share in summary.warnings.select("warning", "episodes", "share").iter_rows()
        ),
    )


def _counts(summary: RunSummary) -> list[SummaryCount]:
    counts, evidence = summary.counts, summary.evidence

    def figure(name: str, value: int | str, **noted: str) -> SummaryCount:
        note = Message(f"report.count.{name}.note", noted) if name in NOTED else None
        return SummaryCount(Message(f"report.count.{name}"), value, note)

    listed = [figure("episodes", counts.episodes), figure("proven", counts.proven)]
    if counts.limited:
        listed.append(figure("limited", counts.limited))
    if counts.failed:
        listed.append(figure("failed", counts.failed))
    if evidence.examined:
        listed.append(figure("without warnings", evidence.without_warnings, examined=f"{evidence.examined:,}"))
    improved = Message("report.count.improved", {"percent": f"{100 * summary.threshold:g}"})
    listed.append(SummaryCount(improved, summary.cases.height))
    listed.append(figure("median", percent(summary.improvement.median)))
    return listed


NOTED = ("proven", "limited", "without warnings")
"""The figures that a few more words explain."""
