"""The report of a run: one HTML file with the cohort's summary and a page for each chosen case, readable anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ifonly.cases.case import Case
from ifonly.cases.opening import OpenedRun, open_run
from ifonly.cases.selection import cases_of_run
from ifonly.errors import InputError, StoreError
from ifonly.files import check_writable, write_text_atomically
from ifonly.progress import Progress, silent
from ifonly.report import pages
from ifonly.report.improvements import Asked
from ifonly.report.summary import INTERESTING, Summary, summarize
from ifonly.report.summary_text import percent
from ifonly.result import Status

if TYPE_CHECKING:
    from ifonly.data.cohort import Cohort
    from ifonly.models.base import TransitionModel
    from ifonly.runs.run import Run

TEMPLATE = "report.html"
DIGITS = 6
"""Significant digits of numbers in the file: more than anybody reads, in half the space."""
CLAIMS = ("best_possible", "gap")
"""Numbers that are kept as they are: rounded, they might claim more than was proven."""


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


@dataclass(frozen=True, eq=False)
class Report:
    """A report that was written, and what is in it."""

    path: Path
    summary: Summary
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
    summary = _summarized(opened, settings.threshold)
    cases = cases_of_run(
        opened,
        settings.episodes or _most_improved(summary, settings.cases),
        alternatives=settings.alternatives,
        seconds=settings.seconds,
        progress=progress,
    )
    write_text_atomically(target, report_html(summary, cases))
    return Report(target, summary, tuple(cases))


def report_html(summary: Summary, cases: Sequence[Case]) -> str:
    """The report as one HTML document, of at least one case; the same input gives the same text."""
    content = _short(_summary(summary, cases))
    return pages.render(TEMPLATE, summary=content, cases=[_short(case.to_dict()) for case in cases])


def single_case_html(case: Mapping[str, Any]) -> str:
    """One case (`Case.to_dict()`) as an HTML document of its own, without a summary."""
    return pages.render(TEMPLATE, summary=None, cases=[_short(case)])


def _summarized(opened: OpenedRun, threshold: float) -> Summary:
    question = opened.run.manifest["question"]
    check = opened.model.standing
    asked = Asked(
        reward=opened.reward,
        episodes=opened.table.height,
        max_changes=question["max_changes"],
        change_cost=question["change_cost"],
        model_check=None if check is None else check.to_dict(),
    )
    try:
        return summarize(opened.table, threshold=threshold, asked=asked)
    except InputError as error:
        raise InputError(f"{opened.run.folder}: {error}") from None


def _most_improved(summary: Summary, count: int) -> list[str]:
    """Ids, best first; of equals the first one first, and those of which nothing is known last."""
    ranked = summary.episodes.sort("improvement", descending=True, nulls_last=True, maintain_order=True)
    return ranked["episode"].head(count).to_list()


def _summary(summary: Summary, cases: Sequence[Case]) -> dict[str, Any]:
    """The summary as the template takes it; its figures are those of `ifonly summarize`."""
    rows = summary.episodes.to_dicts()
    return {
        "title": "Case review",
        "threshold": summary.threshold,
        "question": dict(cases[0].question) | {"max_changes": max(case.question["max_changes"] for case in cases)},
        "counts": _counts(summary),
        "improvements": [row["improvement"] for row in rows if row["improvement"] is not None],
        "by_changes": summary.by_budget.select("max_changes", "mean", "low", "high", "median").to_dicts(),
        "rows": [_row(row) for row in rows],
        "notes": [summary.statement],
        "model": dict(cases[0].model),
        "trust": _trust(summary),
    }


def _trust(summary: Summary) -> dict[str, Any] | None:
    """How far the answers may be trusted as a whole; None where none was examined."""
    if not summary.trust.examined:
        return None
    kept = ("standing", "episodes", "median", "lower_quartile", "upper_quartile", "cases")
    return {
        "examined": summary.trust.examined,
        "without_warnings": summary.trust.without_warnings,
        "median_agreement": summary.trust.median_agreement,
        "groups": summary.by_standing.select(kept).to_dicts(),
        "warnings": summary.warnings.to_dicts(),
        "agreement": summary.agreement.to_dicts(),
    }


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "episode": row["episode"],
        "steps": row["horizon"],
        "observed": row["observed"],
        "best": row["counterfactual"],
        "improvement": row["improvement"],
        "changes": row["changes"],
        "status": row["status"],
        "proven": row["status"] == Status.OPTIMAL.value,
        "refits_agree": row["refits_agree"],
        "refits": row["refits"],
        "warnings": None if row["warnings"] is None else len(row["warnings"]),
    }


def _counts(summary: Summary) -> list[dict[str, Any]]:
    counts = summary.counts
    listed: list[dict[str, Any]] = [
        {"label": "episodes", "value": counts.episodes},
        {"label": "proven answers", "value": counts.proven, "note": "nothing better, within the question"},
    ]
    if counts.limited:
        listed.append({"label": "answers not proven", "value": counts.limited, "note": "better ones may exist"})
    if counts.failed:
        listed.append({"label": "without an answer", "value": counts.failed})
    if summary.trust.examined:
        listed.append(
            {
                "label": "answers without warnings",
                "value": summary.trust.without_warnings,
                "note": f"of {summary.trust.examined:,} examined",
            }
        )
    listed.append({"label": f"improved by {100 * summary.threshold:g} % or more", "value": summary.cases.height})
    listed.append({"label": "median improvement", "value": percent(summary.improvement.median)})
    return listed


def _short(content: Any) -> Any:
    """Numbers with as many digits as are of use."""
    if isinstance(content, Mapping):
        return {key: value if key in CLAIMS else _short(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_short(value) for value in content]
    if isinstance(content, float) and math.isfinite(content):
        return float(f"{content:.{DIGITS}g}")
    return content
