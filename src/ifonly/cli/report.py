"""Commands that present a cohort run: `summarize`, `report` (one HTML file), and `deidentify`, both under codes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import ifonly
from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output, alarm, note, require_free
from ifonly.cli.options import argument, flag, option
from ifonly.files import atomic_folder, check_writable
from ifonly.text.catalogue import say


def summarize(
    run: Annotated[Path, argument("RUN", "A folder that `ifonly cohort` made, finished or not.")],
    threshold: options.Threshold = 0.15,
    by: options.By = None,
    episodes: Annotated[Path | None, option("FOLDER", "The run's cohort, for --by.")] = None,
    out: Annotated[
        Path | None, option("FOLDER", "Where to write; replaces an earlier summary.", default="RUN/summary")
    ] = None,
    pdf: Annotated[bool, flag("--pdf", "Also write the figures as PDF.")] = False,
    abstain: options.Abstain = True,
) -> ExitCode:
    """Summarise a cohort run: how much better it could have gone, for whom, and when.

    Writes summary.json, tables (CSV) and figures (PNG) into a folder: improvements relative to the observed outcome,
    their distribution, by number of changes, by horizon and by group, and the interesting cases. Improvements of
    episodes that were not solved to the end are lower bounds and are marked as such. --by takes columns of the run's
    table, or features of the episodes together with --episodes.

    Examples:
    ifonly summarize runs/k3
    ifonly summarize runs/k3 --by age=50,70 --by gender --episodes data/sepsis --pdf
    """
    groupings, least = options.groupings(by), options.checked_threshold(threshold)
    from ifonly.report.folders import SUMMARY_FOLDER, write_summary
    from ifonly.report.tables import summary_tables
    from ifonly.study.stages import summarized

    found = ifonly.load_run(run)
    target = run / "summary" if out is None else out
    SUMMARY_FOLDER.check(target)
    check_writable(target, folder=True)
    values = _cohort(groupings, episodes)
    summary = summarized(found, threshold=least, by=groupings, values=values, abstain=abstain)
    written = write_summary(summary, target, figures=("png", "pdf") if pdf else ("png",))
    for name, reason in written.not_drawn.items():
        note("note", say("summary.not drawn", name=name, reason=reason))
    Output().tell(
        summary.to_dict() | {"folder": str(target), "files": written.files},
        str(summary),
        "",
        *(item for table in summary_tables(summary) for item in (table, "")),
        say("written.files", place=target, files=f"{len(written.files)} files"),
    )
    return ExitCode.DONE


def _cohort(groupings: Mapping[str, Any], episodes: Path | None) -> ifonly.Cohort | None:
    """The cohort with the features to group by; None where the run's table has them all."""
    from ifonly.result.table import COLUMNS

    if episodes is not None:
        return ifonly.load(episodes)
    unknown = [name for name in groupings if name not in COLUMNS]
    if unknown:
        raise typer.BadParameter(
            f"--by {unknown[0]}: the run's table has no such column; for a feature of the episodes, name their cohort "
            "with --episodes FOLDER."
        )
    return None


def _source(what: str) -> Any:
    """Something that the run was made from and that may have been moved since."""
    return option("FOLDER", f"{what}, if moved since.", default="as stored in the run", panel=options.MORE)


def report(
    run: Annotated[Path, argument("RUN", "A finished run, a folder that `ifonly cohort` made.")],
    out: Annotated[Path | None, option("FILE", "The HTML file to write.", default="RUN/report.html")] = None,
    cases: Annotated[int, option("N", "Show the N most improved episodes.", min=1)] = 20,
    only: options.Only = None,
    alternatives: Annotated[int, option("N", "Show the N best sequences of each case; 1: only the best.", min=1)] = 5,
    seconds: Annotated[
        float,
        option("S", "Time to find the alternatives of a case; one that needs longer is shown without.", min=0),
    ] = 10.0,
    threshold: options.Threshold = 0.15,
    force: options.Force = False,
    episodes: Annotated[Path | None, _source("The run's episodes")] = None,
    model: Annotated[Path | None, _source("The run's model")] = None,
    behaviour: Annotated[Path | None, _source("The run's behaviour model")] = None,
) -> ExitCode:
    """Write a report of a cohort run: one HTML file that opens anywhere, without a network.

    It contains the run's summary and a page for each chosen case: what happened, what could have happened, and how sure
    that is. The file contains patients' data: protect it as you protect the cohort.

    Examples:
    ifonly report runs/k3
    ifonly report runs/k3 --cases 5 --threshold 0.2 --out review.html
    ifonly report runs/k3 --only patient-00007 --episodes data/sepsis --model models/sepsis
    """
    from ifonly.report.cases.opening import open_run
    from ifonly.text.evidence import caution_message
    from ifonly.text.results import statement

    target, least = run / "report.html" if out is None else out, options.checked_threshold(threshold)
    require_free(target, force=force)
    settings = ifonly.ReportSettings(tuple(options.chosen_ids(only) or ()), cases, alternatives, seconds, least)
    with progress_bars() as bars:
        opened = open_run(run, episodes=episodes, model=model, behaviour=behaviour)
        written = ifonly.write_report(opened, target, settings, overwrite=force, progress=bars)
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
        alarm("caution", caution)
    if alternatives > 1 and document["without_alternatives"]:
        note("note", say("report.plain cases", count=len(document["without_alternatives"]), of=len(answers)))
    closing = say("report.written", place=target, megabytes=document["bytes"] / 1e6)
    Output().tell(document, say("report.case count", count=len(answers)), closing)
    return ExitCode.DONE


def deidentify(
    run: Annotated[Path, argument("RUN", "A finished run, a folder that `ifonly cohort` made.")],
    key: Annotated[Path, argument("KEYFILE", "The key of the codes; created if it does not exist. Keep it.")],
    out: Annotated[Path, argument("FOLDER", "Where to write report.html and summary; must not exist yet.")],
) -> ExitCode:
    """Write a run's report and summary for outsiders: codes in place of ids, rounded values, no small groups.

    With the same key an id always gets the same code; without the key nobody can tell one from the other. A long course
    can still point to a person: you decide who may see it.

    Examples:
    ifonly deidentify runs/k3 private/key for-others
    """
    from ifonly.report.deidentify import Deidentifier
    from ifonly.report.folders import write_summary

    require_free(folder=out, force=None)
    if key.resolve().is_relative_to(out.resolve()):
        raise typer.BadParameter("KEYFILE lies in the folder for outsiders; the key must stay with you.")
    codes = Deidentifier.from_file(key)
    with progress_bars() as bars, atomic_folder(out) as scratch:
        settings = ifonly.ReportSettings(deidentify=codes)
        written = ifonly.write_report(run, scratch / "report.html", settings, progress=bars)
        write_summary(written.summary, scratch / "summary")
    document = {"folder": str(out), "cases": [case.episode for case in written.cases], "key": str(key)}
    closing = say("report.deidentified", place=out, key=key)
    Output().tell(document, say("report.case count", count=len(written.cases)), closing)
    return ExitCode.DONE
