"""Commands that tell what a cohort run found: `summarize`, and `report`, one HTML file for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output, note, require_free

if TYPE_CHECKING:
    from ifonly.data.cohort import Cohort

SUMMARIZE_EXAMPLES = (
    "ifonly summarize runs/k3",
    "ifonly summarize runs/k3 --by age=50,70 --by gender --episodes data/sepsis --pdf",
)


def summarize(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `ifonly cohort` made, finished or not.")],
    threshold: options.Threshold = 0.15,
    by: options.By = None,
    episodes: Annotated[
        Path | None, typer.Option("--episodes", metavar="FOLDER", help="The cohort that the run is about, for --by.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="Where to write; an earlier summary there is replaced.",
            show_default="RUN/summary",
        ),
    ] = None,
    pdf: Annotated[bool, typer.Option("--pdf", help="Figures as PDF, too.")] = False,
) -> ExitCode:
    """Summarise a cohort run: how much better it could have gone, for whom, and when.

    Writes summary.json, tables (CSV) and figures (PNG) into a folder: improvement relative to the observed outcome, its
    distribution, by number of changes, by horizon and by group, and the interesting cases. Improvements of episodes
    that were not solved to the end are lower bounds, and are said to be. Columns of the run's table can be grouped by,
    too; features need --episodes.
    """
    groupings = options.groupings(by)
    from ifonly.files import check_writable
    from ifonly.report.folders import SUMMARY_FOLDER, write_summary
    from ifonly.report.tables import summary_tables
    from ifonly.runs import load_run
    from ifonly.study.stages import summarized

    found = load_run(run)
    target = run / "summary" if out is None else out
    SUMMARY_FOLDER.check(target)
    check_writable(target, folder=True)
    summary = summarized(found, threshold=threshold, by=groupings, values=_cohort(groupings, episodes))
    written = write_summary(summary, target, figures=("png", "pdf") if pdf else ("png",))
    for name, reason in written.not_drawn.items():
        note("note", f"{name} is not drawn: {reason}", style="bold yellow")
    output = Output()
    output.document(summary.to_dict() | {"folder": str(target), "files": written.files})
    output.show(str(summary), "")
    for table in summary_tables(summary):
        output.show(table, "")
    output.show(f"written: {target} ({len(written.files)} files)")
    return ExitCode.DONE


def _cohort(groupings: Mapping[str, Any], episodes: Path | None) -> Cohort | None:
    """The cohort with the features to group by; None where the run's own table has them all."""
    from ifonly.result.table import COLUMNS

    if episodes is not None:
        from ifonly.data.store import load_cohort

        return load_cohort(episodes)
    unknown = [name for name in groupings if name not in COLUMNS]
    if unknown:
        raise typer.BadParameter(
            f"--by {unknown[0]}: the run's table has no such column; for a feature of the episodes, say where they are "
            "with --episodes FOLDER."
        )
    return None


REPORT_EXAMPLES = (
    "ifonly report runs/k3",
    "ifonly report runs/k3 --cases 5 --threshold 0.2 --out review.html",
    "ifonly report runs/k3 --only patient-00007 --episodes data/sepsis --model models/sepsis",
)


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run, a folder that `ifonly cohort` made.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The HTML file to write.", show_default="RUN/report.html"),
    ] = None,
    cases: Annotated[int, typer.Option("--cases", metavar="N", min=1, help="Show the N most improved episodes.")] = 20,
    only: options.Only = None,
    alternatives: Annotated[
        int,
        typer.Option("--alternatives", metavar="N", min=1, help="Of each case the N best sequences; 1: the best only."),
    ] = 5,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            metavar="S",
            min=0,
            help="For the alternatives of each case; one that takes longer is shown without them.",
        ),
    ] = 10.0,
    threshold: options.Threshold = 0.15,
    force: options.Force = False,
    episodes: Annotated[
        Path | None,
        typer.Option(
            "--episodes",
            metavar="FOLDER",
            help="The run's episodes.",
            show_default="where they lay",
            rich_help_panel=options.MORE,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FOLDER",
            help="The run's model.",
            show_default="where it lay",
            rich_help_panel=options.MORE,
        ),
    ] = None,
    behaviour: Annotated[
        Path | None,
        typer.Option(
            "--behaviour",
            metavar="FOLDER",
            help="The run's behaviour model, if any.",
            show_default="where it lay",
            rich_help_panel=options.MORE,
        ),
    ] = None,
) -> ExitCode:
    """Write a report of a cohort run: one HTML file that opens anywhere, without a network.

    It has the run's summary and a page for each chosen case: what happened, what could have happened, how sure that is.
    It holds patients' data: treat the file as you treat the cohort.
    """
    from ifonly.report.case_report import ReportSettings, write_report
    from ifonly.report.cases.opening import open_run
    from ifonly.text.evidence import caution_message
    from ifonly.text.results import statement

    target = run / "report.html" if out is None else out
    require_free(target, force=force)
    settings = ReportSettings(tuple(options.chosen_ids(only) or ()), cases, alternatives, seconds, threshold)
    with progress_bars() as bars:
        opened = open_run(run, episodes=episodes, model=model, behaviour=behaviour)
        written = write_report(opened, target, settings, overwrite=force, progress=bars)
    answers = {case.episode: case.answer for case in written.cases if case.answer is not None}
    lines = {case.episode: str(case.evidence.statement) for case in written.cases}
    document: dict[str, Any] = {
        "report": str(target),
        "bytes": target.stat().st_size,
        "cases": [
            {
                "episode": id,
                "improvement": answer.result.relative_improvement,
                "statement": statement(answer.result),
                "evidence": lines[id],
                "verdict": answer.result.evidence.verdict.value,
                "warnings": [warning.code.value for warning in answer.result.evidence.warnings],
            }
            for id, answer in answers.items()
        ],
        "without_alternatives": [id for id, answer in answers.items() if not answer.alternatives],
    }
    if caution := caution_message(opened.run.check):
        note("caution", str(caution), style="bold red")
    if alternatives > 1 and document["without_alternatives"]:
        note(
            "note",
            f"{len(document['without_alternatives'])} of {len(answers)} cases have no alternatives: finding them takes "
            "longer than --seconds allows.",
            style="bold yellow",
        )
    output = Output()
    output.document(document)
    output.show(f"{len(answers)} cases", f"written: {target} ({document['bytes'] / 1e6:.1f} MB, with patients' data)")
    return ExitCode.DONE
