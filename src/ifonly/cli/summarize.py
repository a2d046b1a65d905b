"""The command that says what a cohort run found as a whole: `summarize`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ifonly.cli import options
from ifonly.cli.frame import ExitCode, Output, note
from ifonly.errors import InputError

if TYPE_CHECKING:
    from ifonly.data.cohort import Cohort

SUMMARIZE_EXAMPLES = (
    "ifonly summarize runs/k3",
    "ifonly summarize runs/k3 --by age=50,70 --by gender --episodes data/sepsis --pdf",
)


def summarize(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `ifonly cohort` made, finished or not.")],
    threshold: Annotated[
        float,
        typer.Option(
            "--threshold", metavar="SHARE", min=0, help="Episodes that improve by at least this are interesting cases."
        ),
    ] = 0.15,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="NAME[=EDGES]",
            help="Compare groups, by a feature's value at the first step (needs --episodes) or by a column of the "
            "run's table; numbers are cut at their quartiles or at these edges, such as age=50,70; may be repeated.",
        ),
    ] = None,
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
    json: options.Json = False,
) -> ExitCode:
    """Summarise a cohort run: how much better it could have gone, for whom, and when.

    Writes summary.json, tables (CSV) and figures (PNG) into a folder: improvement relative to the observed outcome, its
    distribution, by number of changes, by horizon and by group, and the interesting cases. Improvements of episodes
    that were not solved to the end are lower bounds, and are said to be.
    """
    groupings = options.groupings(by or ())
    from ifonly.files import check_writable
    from ifonly.report.folders import SUMMARY_FOLDER, write_summary
    from ifonly.report.summary import summarize as summarize_table
    from ifonly.report.tables import summary_tables
    from ifonly.runs import load_run

    found = load_run(run)
    target = run / "summary" if out is None else out
    SUMMARY_FOLDER.check(target)
    check_writable(target, folder=True)
    try:
        summary = summarize_table(
            found.table(),
            found.query,
            threshold=threshold,
            by=groupings,
            values=_cohort(groupings, episodes),
            expected=found.manifest["cohort"]["episodes"],
        )
    except InputError as error:
        raise InputError(f"{run}: {error}") from None
    written = write_summary(summary, target, figures=("png", "pdf") if pdf else ("png",))
    for name, reason in written.not_drawn.items():
        note("note", f"{name} is not drawn: {reason}", style="bold yellow")
    output = Output(json)
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
