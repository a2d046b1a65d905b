"""The command that makes the paper's experiments: `reproduce`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ifonly.cli import options
from ifonly.cli.drawing import Bars, progress_bars
from ifonly.cli.frame import ExitCode, Output, note
from ifonly.cli.options import limits

if TYPE_CHECKING:
    from paper.base import Settings
    from paper.folder import Outcome
    from paper.laboratory import Laboratory

DRAWING_NEEDS = {"names", "out", "episodes", "model", "draw_only", "page", "json"}
"""What --draw-only goes by; it refuses everything else."""

SIZES_PANEL, DATA_PANEL, RUN_PANEL = "How much of it", "Cohort and models", "Running"

REPRODUCE_EXAMPLES = (
    "ifonly reproduce fig2a --quick --out runs/quick",
    "ifonly reproduce fig2a fig2b fig2c --patients 50 --seconds 30 --workers 8",
    "ifonly reproduce all --out runs/paper --page docs/results.md",
    "ifonly reproduce all --out runs/paper --draw-only",
    "ifonly reproduce fig4 --device cuda --workers 4 --patients 20",
    "ifonly reproduce fig5 --location 0.5,1.0,1.5 --scale 0.1,1.0 --stays 2000 --out runs/grid",
    "ifonly reproduce fig3b baselines --episodes data/sepsis --model models/sepsis --out runs/mine",
)


def reproduce(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="fig2a, fig2b, fig2c, fig3a, fig3b, fig3c, fig4, fig5, baselines, warnings, or all.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where everything is kept; gone on with if it exists.")
    ] = Path("runs/reproduce"),
    quick: Annotated[bool, typer.Option("--quick", help="Little of everything: minutes, to see it work.")] = False,
    patients: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Patients that single solves are about.",
            show_default="200",
            rich_help_panel=SIZES_PANEL,
        ),
    ] = None,
    distribution: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Patients of fig3b and fig3c.", show_default="all", rich_help_panel=SIZES_PANEL
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            min=0,
            help="Limit of a single solve; what reaches it is shown as a lower bound.",
            show_default="60",
            rich_help_panel=SIZES_PANEL,
        ),
    ] = None,
    location: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS", help="Values of L_h for fig2a and fig5, such as 0.8,1.0.", rich_help_panel=SIZES_PANEL
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(metavar="LIMITS", help="Values of L_phi for fig5.", rich_help_panel=SIZES_PANEL),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            help="Folds of fig5's cross-validation.",
            show_default="5",
            rich_help_panel=SIZES_PANEL,
        ),
    ] = None,
    stays: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Simulated stays in the cohort.",
            show_default="16000",
            rich_help_panel=DATA_PANEL,
        ),
    ] = None,
    episodes: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A stored cohort, instead of simulated stays.", rich_help_panel=DATA_PANEL),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="A stored model, instead of a fitted one (fig2a and fig5 fit their own).",
            rich_help_panel=DATA_PANEL,
        ),
    ] = None,
    minimize: Annotated[
        str | None,
        typer.Option(metavar="FEATURE", help="What should be low.", show_default="SOFA", rich_help_panel=DATA_PANEL),
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=2,
            help="Steps of the patients that single solves are about.",
            show_default="12",
            rich_help_panel=DATA_PANEL,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Of every fit.", show_default="100", rich_help_panel=DATA_PANEL),
    ] = None,
    seed: options.Seed = 0,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Processes at work, of one thread each.",
            show_default="all cores",
            rich_help_panel=RUN_PANEL,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Where to solve: cpu, cuda, ...", show_default="cpu", rich_help_panel=RUN_PANEL
        ),
    ] = None,
    draw_only: Annotated[
        bool,
        typer.Option(
            "--draw-only",
            help="Measure nothing: tables and figures of what is finished, under the settings of the folder.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page (Markdown) of all that the folder holds."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace tables and figures of other settings; measurements are kept.")
    ] = False,
    json: options.Json = False,
) -> ExitCode:
    """Make the figures of the paper again, compare heuristics with the optimum, and see whether warnings work.

    On simulated stays by default, or on any cohort. Everything that is measured is kept at once: a run that was
    stopped goes on where it was when the same command is given again, and figures can be drawn anew without measuring.
    What experiments have in common is measured once. Full settings, as in the paper, take many hours of processor
    time; --patients, --seconds and --quick make it less.
    """
    from ifonly.files import available_cores
    from paper.catalogue import chosen
    from paper.folder import carry_out
    from paper.runner import Bench

    wanted = chosen(names)
    if draw_only:
        _refuse_settings(context)
    sizes: dict[str, Any] = {
        "patients": patients,
        "distribution": distribution,
        "seconds": seconds,
        "device": device,
        "location": None if location is None else limits(location, "--location"),
        "scale": None if scale is None else limits(scale, "--scale"),
        "folds": folds,
    }
    conditions = {"stays": stays, "feature": minimize, "horizon": horizon, "epochs": epochs, "seed": seed}
    missing: list[str] = []
    with progress_bars() as bars:
        if draw_only:
            done, missing = _drawn_again(names, out, episodes, model, bars)
        else:
            laboratory = _laboratory(out, episodes, model, quick=quick, conditions=conditions)
            with Bench(laboratory, workers or available_cores(), bars) as bench:
                done = [
                    carry_out(one, _changed(one.settings(quick=quick), sizes), bench, force=force) for one in wanted
                ]
    _write_page(page, out)
    output = Output(json)
    output.document({"folder": str(out), "experiments": [_document(outcome) for outcome in done]})
    for outcome in done:
        output.show(*_shown(outcome))
    if page is not None:
        output.show(f"page written to {page}")
    return ExitCode.BAD_INPUT if missing else ExitCode.DONE


def _refuse_settings(context: typer.Context) -> None:
    """With --draw-only the folder knows all settings; others would be ignored without a word."""
    stated = [
        option.opts[0]
        for option in context.command.params
        if option.name not in DRAWING_NEEDS and _is_stated(context, option.name or "")
    ]
    if stated:
        raise typer.BadParameter(
            f"{', '.join(stated)}: settings are those of the folder with --draw-only; leave this out, or measure under "
            "other settings without it."
        )


def _is_stated(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _laboratory(
    out: Path, episodes: Path | None, model: Path | None, *, quick: bool, conditions: Mapping[str, Any]
) -> Laboratory:
    from paper.laboratory import Conditions, Laboratory

    usual = Conditions.few() if quick else Conditions()
    stated = {name: value for name, value in conditions.items() if value is not None}
    return Laboratory(out, replace(usual, **stated), episodes, model)


def _drawn_again(
    names: list[str], out: Path, episodes: Path | None, model: Path | None, bars: Bars
) -> tuple[list[Outcome], list[str]]:
    """What the folder holds of these experiments, and which it should hold but does not; the reasons are told.

    With "all" those experiments are drawn that were begun and have something to draw, if there is one.
    """
    from ifonly.errors import StoreError
    from paper.catalogue import ALL, chosen
    from paper.folder import RECORD, NothingToDrawError, draw_again
    from paper.journal import read_header
    from paper.laboratory import Conditions, Laboratory
    from paper.runner import JOURNAL, Bench

    header = read_header(out / JOURNAL)
    laboratory = Laboratory(out, Conditions.from_dict(header), episodes, model)
    bench = Bench(laboratory, 1, bars, finished_only=True)
    begun = [one for one in chosen(names) if ALL not in names or (out / one.name / RECORD).exists()]
    done, missing = [], []
    for one in begun:
        try:
            done.append(draw_again(one, bench))
        except StoreError as error:
            note("note", str(error), style="bold yellow")
            if ALL not in names or not isinstance(error, NothingToDrawError):
                missing.append(one.name)
    if not done:
        raise StoreError(f"{out}: there is nothing to draw yet.")
    return done, missing


def _changed(settings: Settings, sizes: Mapping[str, Any]) -> Settings:
    """The settings with what the command line says about those that the experiment has."""
    known = {field.name for field in fields(settings)}
    return replace(settings, **{name: value for name, value in sizes.items() if name in known and value is not None})


def _write_page(page: Path | None, out: Path) -> None:
    from paper.journal import read_header
    from paper.page import finished_outcomes, write_page
    from paper.runner import JOURNAL

    if page is not None:
        write_page(finished_outcomes(out), read_header(out / JOURNAL), page)


def _document(outcome: Outcome) -> dict[str, Any]:
    """One experiment for machines."""
    from dataclasses import asdict

    experiment, record = outcome.experiment, outcome.record
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "settings": record.settings.to_dict(),
        "cells": asdict(record.cells),
        "summary": experiment.summary(outcome.table).to_dicts(),
        "paper": experiment.paper,
        "findings": list(experiment.findings(outcome.table)),
        "table": str(outcome.table_file),
        "figure": str(outcome.figure),
    }


def _shown(outcome: Outcome) -> list[Any]:
    """One experiment for people."""
    from rich.table import Table

    experiment, cells = outcome.experiment, outcome.record.cells
    summary = experiment.summary(outcome.table)
    table = Table(title=f"{experiment.name}: {experiment.title}", title_justify="left")
    for name in summary.columns:
        table.add_column(name, justify="right")
    for row in summary.iter_rows():
        table.add_row(*(str(value) for value in row))
    unfinished = f"{cells.finished:,} of {cells.wanted:,} measurements finished"
    problems = f"{unfinished}, {cells.failed:,} failed" if cells.failed else unfinished
    return [
        table,
        f"the paper: {experiment.paper}",
        *(f"here: {sentence}" for sentence in experiment.findings(outcome.table)),
        *([problems] if cells.failed or cells.finished < cells.wanted else []),
        f"figure {outcome.figure}, table {outcome.table_file}",
        "",
    ]
