"""The report of a run: one HTML file with the cohort's summary and a page for each chosen case, readable anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from ifonly.data.plain import check_whole
from ifonly.errors import InputError
from ifonly.files import check_writable, require_absent, write_text_atomically
from ifonly.progress import Progress, silent
from ifonly.report.cases import Case, OpenedRun, cases_of_run, open_run
from ifonly.report.cases.page import cases_html
from ifonly.report.deidentify import Deidentifier
from ifonly.report.patterns import pattern_rows, subgroups_of
from ifonly.report.summary import INTERESTING, RunSummary, summarize
from ifonly.result import Result, Status, Verdict
from ifonly.result.table import with_results
from ifonly.text.catalogue import Message, catalogue
from ifonly.text.evidence import warned_message
from ifonly.text.numbers import percent
from ifonly.text.summaries import statement_messages, verdicts_text

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
    abstain: bool = True
    """Whether answers that are not to be believed are kept out of figures, and shown after all others."""
    deidentify: Deidentifier | None = None
    """Replaces ids by codes, rounds values and leaves small groups out; None: everything is shown as it is."""

    def __post_init__(self) -> None:
        check_whole("report: cases", self.cases, least=1)
        if isinstance(self.episodes, str):
            raise InputError(f"report: episodes={self.episodes!r} must be a list of ids.")


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
    require_absent(target, unless=overwrite)
    check_writable(target)
    opened = run if isinstance(run, OpenedRun) else open_run(run, episodes=episodes, model=model)
    table = opened.table
    try:
        summary = _summary(opened, table, settings)
    except InputError as error:
        raise InputError(f"{opened.run.folder}: {error}") from None
    cases = cases_of_run(
        opened,
        settings.episodes or _most_improved(summary, settings.cases),
        alternatives=settings.alternatives,
        seconds=settings.seconds,
        progress=progress,
    )
    if better := _proven_meanwhile(table, cases):  # the summary must say what the pages say
        table = with_results(table, better)
        summary = _summary(opened, table, settings)
    if settings.deidentify is not None:
        summary = settings.deidentify.summary(summary)
        place = {code: number for number, code in enumerate(_most_improved(summary, summary.episodes.height))}
        cases = sorted(map(settings.deidentify.case, cases), key=lambda case: place[case.episode])
    write_text_atomically(target, report_html(summary, cases))
    return Report(target, summary, tuple(cases))


def _summary(opened: OpenedRun, table: pl.DataFrame, settings: ReportSettings) -> RunSummary:
    chosen: dict[str, Any] = {
        "schema": opened.cohort.schema,
        "by": subgroups_of(opened.cohort),
        "values": opened.cohort,
        "threshold": settings.threshold,
        "abstain": settings.abstain,
    }
    if settings.deidentify is not None:
        chosen["smallest_cell"] = settings.deidentify.smallest_cell
    return summarize(table, opened.query, expected=table.height, **chosen)


def _proven_meanwhile(table: pl.DataFrame, cases: Sequence[Case]) -> list[Result]:
    """Answers of cases that took the place of the run's own, since they are proven."""
    proven = set(table.filter(pl.col("proven"))["episode"])
    results = [case.answer.result for case in cases if case.answer is not None]
    return [result for result in results if result.proven and result.episode not in proven]


def report_html(summary: RunSummary, cases: Sequence[Case]) -> str:
    """The report as one HTML document, of at least one case; the same input gives the same text."""
    return cases_html(cases, summary_page(summary, cases))


def _most_improved(summary: RunSummary, count: int) -> list[str]:
    """Ids, best first; of equals the first one first, and those of which nothing is known last.

    Where answers that are not to be believed are kept out of the figures, they come after all others.
    """
    unbelieved = pl.lit(bool(summary.abstained)) & (pl.col("verdict") == Verdict.NOT_BELIEVABLE.value)
    ranked = summary.episodes.sort(
        unbelieved, "improvement", descending=[False, True], nulls_last=True, maintain_order=True
    )
    return ranked["episode"].head(count).to_list()


def summary_page(summary: RunSummary, cases: Sequence[Case]) -> dict[str, Any]:
    """The summary as the first page of a report shows it, with what its cases have in common.

    Its figures are those of `ifonly summarize`; `evidence` is None where no answer was examined.
    """
    first, episodes = cases[0], summary.episodes
    most = max(case.question.max_changes or 0 for case in cases)
    rows = episodes.select(
        *(
            "episode",
            "observed",
            "improvement",
            "changes",
            "status",
            "badge",
            "doubts",
            "patterns",
            "refits_agree",
            "refits",
        ),
        steps="horizon",
        best="counterfactual",
        proven=pl.col("status") == Status.OPTIMAL.value,
        warnings=pl.col("warnings").list.len(),
    )
    return {
        "threshold": summary.threshold,
        "question": replace(first.question, max_changes=most),
        "counts": _counts(summary),
        "improvements": summary.believed["improvement"].drop_nulls().to_list(),
        "by_changes": summary.by_budget.select("max_changes", "mean", "low", "high", "median").to_dicts(),
        "rows": rows.to_dicts(),
        "notes": statement_messages(summary),
        "model": first.model,
        "patterns": pattern_rows(summary.patterns),
        "smallest_cell": summary.smallest_cell,
        "evidence": _evidence(summary) if summary.evidence.examined else None,
    }


def _evidence(summary: RunSummary) -> dict[str, Any]:
    """What speaks for the answers as a whole: how many raise no warning, how much these improve, and which warn."""
    groups = summary.by_examination.select("episodes", "median", "lower_quartile", "upper_quartile", "cases").to_dicts()
    names = summary.by_examination["examination"]
    found = summary.evidence
    return {
        "verdicts": verdicts_text(found.verdicts),
        "examined": found.examined,
        "without_warnings": found.without_warnings,
        "median_agreement": found.median_agreement,
        "groups": [
            {"answers": Message(f"examination.{name}"), **group} for name, group in zip(names, groups, strict=True)
        ],
        "warnings": [row | {"warning": warned_message(row["warning"])} for row in summary.warnings.to_dicts()],
    }


def _counts(summary: RunSummary) -> list[dict[str, Any]]:
    """The figures at the head, each with its words and, where there are any, a few more."""
    counts, found = summary.counts, summary.evidence
    figures: dict[str, int | str] = {"episodes": counts.episodes, "proven": counts.proven}
    figures |= {"limited": counts.limited} if counts.limited else {}
    figures |= {"failed": counts.failed} if counts.failed else {}
    figures |= {"without warnings": found.without_warnings} if found.examined else {}
    figures |= {"improved": summary.cases.height}
    figures |= {} if summary.improvement.median is None else {"median": percent(summary.improvement.median)}
    values = {"percent": f"{100 * summary.threshold:g}", "examined": f"{found.examined:,}"}
    codes = {name: f"report.count.{name}" for name in figures}
    return [
        {
            "label": Message(codes[name], values),
            "value": value,
            "note": Message(f"{codes[name]}.note", values) if f"{codes[name]}.note" in catalogue() else None,
        }
        for name, value in figures.items()
    ]
