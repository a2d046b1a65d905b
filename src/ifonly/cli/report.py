"""The command that writes a run's report, one HTML file for people to read: `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output, note, require_free

REPORT_EXAMPLES = (
    "ifonly report runs/k3",
    "ifonly report runs/k3 --cases 5 --threshold 0.2 --out review.html",
    "ifonly report runs/k3 --episode patient-00007 --episodes data/sepsis --model models/sepsis",
)


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run, a folder that `ifonly cohort` made.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The HTML file to write.", show_default="RUN/report.html"),
    ] = None,
    episodes: Annotated[
        Path | None,
        typer.Option("--episodes", metavar="FOLDER", help="The run's episodes.", show_default="where they lay"),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="FOLDER", help="The run's model.", show_default="where it lay"),
    ] = None,
    behaviour: Annotated[
        Path | None,
        typer.Option(
            "--behaviour", metavar="FOLDER", help="The run's behaviour model, if any.", show_default="where it lay"
        ),
    ] = None,
    cases: Annotated[int, typer.Option("--cases", metavar="N", min=1, help="Show the N most improved episodes.")] = 20,
    episode: Annotated[
        list[str] | None,
        typer.Option("--episode", metavar="ID", help="Show this episode, not the most improved; may be repeated."),
    ] = None,
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
    threshold: Annotated[
        float,
        typer.Option(
            "--threshold", metavar="SHARE", min=0, help="Episodes that improve by at least this are interesting cases."
        ),
    ] = 0.15,
    force: options.Force = False,
    json: options.Json = False,
) -> ExitCode:
    """Write a report of a cohort run: one HTML file that opens anywhere, without a network.

    It has the run's summary and a page for each chosen case: what happened, what could have happened, how sure that is.
    It holds patients' data: treat the file as you treat the cohort.
    """
    from ifonly.cases.opening import open_run
    from ifonly.report.case_report import ReportSettings, write_report

    target = run / "report.html" if out is None else out
    require_free(target, force=force)
    settings = ReportSettings(tuple(episode or ()), cases, alternatives, seconds, threshold)
    with progress_bars() as bars:
        opened = open_run(run, episodes=episodes, model=model, behaviour=behaviour)
        written = write_report(opened, target, settings, overwrite=force, progress=bars)
    answers = {case.episode: case.answer for case in written.cases if case.answer is not None}
    trust = {case.episode: case.trust for case in written.cases}
    if written.summary.trust.model_failed:
        note("caution", "the model of this run failed its check; the report says so on every page.", style="bold red")
    document: dict[str, Any] = {
        "report": str(target),
        "bytes": target.stat().st_size,
        "cases": [
            {
                "episode": id,
                "improvement": answer.best.improvement,
                "statement": answer.statement,
                "trust": trust[id]["statement"],
                "warnings": trust[id]["warnings"],
            }
            for id, answer in answers.items()
        ],
        "without_alternatives": [id for id, answer in answers.items() if not answer.alternatives],
    }
    if alternatives > 1 and document["without_alternatives"]:
        note(
            "note",
            f"{len(document['without_alternatives'])} of {len(answers)} cases have no alternatives: finding them takes "
            "longer than --seconds allows.",
            style="bold yellow",
        )
    output = Output(json)
    output.document(document)
    output.show(f"{len(answers)} cases", f"written: {target} ({document['bytes'] / 1e6:.1f} MB, with patients' data)")
    return ExitCode.DONE
