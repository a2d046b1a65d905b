"""The command line of the paper's studies: `reproduce` makes its experiments, the others judge models."""

from __future__ import annotations

import json as json_format
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ifonly import load_model
from ifonly.cli import options
from ifonly.cli.build import CohortName
from ifonly.cli.drawing import Bars, progress_bars
from ifonly.cli.frame import ExitCode, Output, add_command, name_damaged, note, require_free
from ifonly.errors import StoreError
from ifonly.files import available_cores, write_text_atomically
from ifonly.journal import damaged_lines
from ifonly.simulate import sepsis_schema
from paper.accuracy_study import AccuracySettings, Examiner, accuracy_by_cohort_size
from paper.bench import JOURNAL, Bench, read_header
from paper.catalogue import ALL, chosen, finished_outcomes, write_page
from paper.command_parts import Json, Workers, as_table, repeated, whole_number
from paper.evidence_command import evidence
from paper.experiment import RECORD, NothingToDrawError, Outcome, carry_out, draw_again
from paper.laboratory import Conditions, Laboratory, SettingsT
from paper.objective_command import objectives
from paper.real_stays import RECIPES, RealSettings, real_cohort
from paper.real_stays import carry_out as carry_out_real
from paper.real_stays import fill_page as fill_real_page
from paper.real_stays import summary as real_summary
from paper.worlds import WORLDS
from paper.worlds_study import carry_out as carry_out_worlds
from paper.worlds_study import cells_of, read_cells
from paper.worlds_tables import background, fill_page, summary

DRAWING_NEEDS = {"names", "out", "episodes", "model", "draw_only", "page", "json"}
"""What --draw-only goes by; it refuses everything else."""


def _option(panel: str, metavar: str, help: str, default: str | bool = True, least: float | None = None) -> Any:
    """An option that is shown on a panel, with a default that depends on the experiment."""
    return typer.Option(metavar=metavar, min=least, help=help, show_default=default, rich_help_panel=panel)


_size, _data, _running = (partial(_option, panel) for panel in ("How much of it", "Cohort and models", "Running"))


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
        Path, typer.Option("--out", metavar="FOLDER", help="Where everything is kept; an existing run is resumed.")
    ] = Path("runs/reproduce"),
    quick: Annotated[bool, typer.Option("--quick", help="Little of everything: minutes, to see it work.")] = False,
    patients: Annotated[int | None, _size("N", "Patients that single solves are about.", "200", 1)] = None,
    astar_patients: Annotated[
        int | None, _size("N", "Of these, those that A* is asked about in fig2.", "all", 1)
    ] = None,
    astar_seconds: Annotated[float | None, _size("S", "Limit of A* in fig2.", "that of --seconds", 0)] = None,
    distribution: Annotated[int | None, _size("N", "Patients of fig3b and fig3c.", "all", 1)] = None,
    seconds: Annotated[
        float | None, _size("S", "Limit of a single solve; what reaches it is shown as a lower bound.", "60", 0)
    ] = None,
    location: Annotated[str | None, _size("LIMITS", "Values of L_h for fig2a and fig5, such as 0.8,1.0.")] = None,
    scale: Annotated[str | None, _size("LIMITS", "Values of L_phi for fig5.")] = None,
    folds: Annotated[int | None, _size("N", "Folds of fig5's cross-validation.", "5", 2)] = None,
    stays: Annotated[int | None, _data("N", "Simulated stays in the cohort.", "16000", 1)] = None,
    episodes: Annotated[Path | None, _data("FOLDER", "A stored cohort, instead of simulated stays.")] = None,
    model: Annotated[
        Path | None, _data("FOLDER", "A stored model, instead of a fitted one (fig2a and fig5 fit their own).")
    ] = None,
    minimize: Annotated[str | None, _data("FEATURE", "What should be low.", "SOFA")] = None,
    horizon: Annotated[int | None, _data("N", "Steps of the patients that single solves are about.", "12", 2)] = None,
    epochs: Annotated[int | None, _data("N", "Of every fit.", "100", 1)] = None,
    seed: options.Seed = 0,
    workers: Annotated[int | None, _running("N", "Processes at work, of one thread each.", "all cores", 1)] = None,
    device: Annotated[str | None, _running("NAME", "Where to solve: cpu, cuda, ...", "cpu")] = None,
    draw_only: Annotated[
        bool,
        typer.Option(
            "--draw-only",
            help="Measure nothing: tables and figures of what is finished, under the settings of the folder.",
            rich_help_panel="Running",
        ),
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write a page (Markdown) of all that the folder holds; other parts of a page stay.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace tables and figures of other settings; measurements are kept.")
    ] = False,
    json: Json = False,
) -> ExitCode:
    """Make the figures of the paper again, compare heuristics with the optimum, and see whether warnings work.

    On simulated stays by default, or on any cohort. Everything that is measured is kept at once: a run that was
    stopped goes on where it was when the same command is given again, and figures can be drawn anew without measuring.
    What experiments have in common is measured once. Full settings, as in the paper, take many hours of processor
    time; --patients, --seconds and --quick make it less.

    Examples:
    python -m paper reproduce fig2a --quick --out runs/quick
    python -m paper reproduce fig2a fig2b fig2c --patients 50 --seconds 30 --workers 8
    python -m paper reproduce all --out runs/paper --page docs/results.md
    python -m paper reproduce all --out runs/paper --draw-only
    python -m paper reproduce fig4 --device cuda --workers 4 --patients 20
    python -m paper reproduce fig5 --location 0.5,1.0,1.5 --scale 0.1,1.0 --stays 2000 --out runs/grid
    python -m paper reproduce fig3b baselines --episodes data/sepsis --model models/sepsis --out runs/mine
    """
    wanted = chosen(names)
    if draw_only:
        _refuse_settings(context)
    sizes: dict[str, Any] = {
        "patients": patients,
        "astar_patients": astar_patients,
        "astar_seconds": astar_seconds,
        "distribution": distribution,
        "seconds": seconds,
        "device": device,
        "location": None if location is None else options.limits(location),
        "scale": None if scale is None else options.limits(scale),
        "folds": folds,
    }
    conditions = {"stays": stays, "feature": minimize, "horizon": horizon, "epochs": epochs, "seed": seed}
    missing: list[str] = []
    name_damaged(out / JOURNAL, damaged_lines(out / JOURNAL))
    with progress_bars() as bars:
        if draw_only:
            known = Conditions.of_header(read_header(out))
            done, missing = _drawn_again(names, Laboratory(out, known, episodes, model), bars)
        else:
            usual = Conditions.few() if quick else Conditions()
            laboratory = Laboratory(out, _changed(usual, conditions), episodes, model)
            with Bench(laboratory, workers or available_cores(), bars) as bench:
                done = [
                    carry_out(one, _changed(one.settings(quick=quick), sizes), bench, force=force) for one in wanted
                ]
    if page is not None:
        write_page(finished_outcomes(out), read_header(out), page)
    Output.as_json = json
    output = Output()
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


def _drawn_again(names: list[str], laboratory: Laboratory, bars: Bars) -> tuple[list[Outcome], list[str]]:
    """What the folder holds of these experiments, and which it should hold but does not; the reasons are told.

    With "all" those experiments are drawn that were begun and have something to draw, if there is one.
    """
    out = laboratory.folder
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


def _changed(settings: SettingsT, stated: Mapping[str, Any]) -> SettingsT:
    """The settings with what the command line states about those that they have."""
    known = {field.name for field in fields(settings)}
    return replace(settings, **{name: value for name, value in stated.items() if name in known and value is not None})


def _document(outcome: Outcome) -> dict[str, Any]:
    """One experiment for machines."""
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
    experiment, cells = outcome.experiment, outcome.record.cells
    return [
        as_table(experiment.summary(outcome.table), f"{experiment.name}: {experiment.title}"),
        f"the paper: {experiment.paper}",
        *(f"here: {sentence}" for sentence in experiment.findings(outcome.table)),
        *([outcome.progress()] if cells.failed or cells.finished < cells.wanted else []),
        f"figure {outcome.figure}, table {outcome.table_file}",
        "",
    ]


def page(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Where `reproduce` kept experiments.")],
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="The page (Markdown); figures go to images/ beside.")
    ],
) -> ExitCode:
    """Put the experiments of folders into a page: their sections are replaced, all else on it stays.

    Needs their tables and figures alone, neither cohort nor models.

    Examples:
    python -m paper page runs/paper runs/grid --to docs/results.md
    """
    for folder in folders:
        write_page(finished_outcomes(folder), read_header(folder), to)
    Output().show(f"page written to {to}")
    return ExitCode.DONE


def accuracy(
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="FOLDER", help="Judge this stored model, instead of fitting new ones."),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes",
            metavar="NUMBERS",
            help="Fit to cohorts of so many simulated patients.",
            show_default="250,1000,4000",
        ),
    ] = None,
    patients: Annotated[int, whole_number(help="Other patients to test on.")] = 200,
    solved: Annotated[int, whole_number("--solve", help="How many of them get a recommendation.", least=0)] = 30,
    horizon: Annotated[int, whole_number(help="Steps of the test patients.", least=2)] = 12,
    max_changes: Annotated[int, whole_number("--max-changes", "-k", help="Changes per question, at most.")] = 3,
    sequences: Annotated[int, whole_number(help="Random questions per test patient.")] = 20,
    epochs: options.Epochs = 100,
    seed: options.Seed = 0,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write everything as JSON.")] = None,
    force: options.Force = False,
    json: Json = False,
) -> ExitCode:
    """Compare counterfactuals of learned models with the truth of the simulated world.

    How far off are the states that a learned model says would have followed other treatment? And how much of the
    improvement that was truly possible does its recommendation bring about? By default for models fitted to cohorts of
    growing size.

    Examples:
    python -m paper accuracy --sizes 250,1000 --solve 10 --out accuracy.json
    python -m paper accuracy --model models/sepsis --patients 100 --horizon 10 -k 2
    """
    if model is not None and sizes is not None:
        raise typer.BadParameter("--model and --sizes exclude each other.")
    numbers = options.widths(sizes or "250,1000,4000")
    require_free(out, force=force)
    solved = min(solved, patients)
    settings = AccuracySettings(patients, solved, horizon, max_changes, sequences, epochs, seed)
    with progress_bars() as bars:
        if model is None:
            study = accuracy_by_cohort_size(numbers, settings, progress=bars)
            document, text = study.to_dict(), str(study)
        else:
            learned = load_model(model, schema=sepsis_schema())
            judged = Examiner(settings, progress=bars).judge(learned)
            document, text = {"model": learned.fingerprint(), **judged.to_dict()}, str(judged)
    if out is not None:
        write_text_atomically(out, json_format.dumps(document, indent=2, allow_nan=False) + "\n")
    Output.as_json = json
    output = Output()
    output.document(document)
    output.show(text)
    return ExitCode.DONE


def worlds(
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FOLDER", help="Where cells are kept; those that it holds are not repeated."),
    ],
    world: Annotated[list[str] | None, repeated("--world", ", ".join(WORLDS))] = None,
    variant: Annotated[
        list[str] | None, repeated("--variant", "plain, column, constant or drift, and others for sepsis")
    ] = None,
    recipe: Annotated[list[str] | None, repeated("--recipe", "How models are made: paper, free or auto")] = None,
    episodes: Annotated[int, whole_number(help="Episodes that models learn from.", least=2)] = 1000,
    asked: Annotated[int, whole_number(help="Others, for which an answer is sought.")] = 100,
    max_changes: Annotated[int, whole_number("--max-changes", "-k", help="Changes per question, at most.")] = 3,
    seconds: Annotated[float, typer.Option(metavar="S", min=0, help="Limit of a single search.")] = 20.0,
    scaling: Annotated[
        str, typer.Option(metavar="NAME", help="Of features with a hard range: linear or bounded.")
    ] = "linear",
    seed: options.Seed = 0,
    workers: Workers = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the tables of all that the folder holds into this page."),
    ] = None,
    json: Json = False,
) -> ExitCode:
    """Do proven-best answers truly help? In worlds of many fields, of which everything is known.

    Models are fitted to episodes recorded in a world, checked on others, and asked about these; each answer is replayed
    in the world, with the noise that the episode truly had. Variants leave something out of the record. Every cell (a
    world, a variant, a recipe) is kept as soon as it is finished.

    Examples:
    python -m paper worlds --world epidemic --variant plain --episodes 500 --asked 20 --out runs/worlds
    python -m paper worlds --recipe auto --scaling bounded --out runs/worlds
    python -m paper worlds --episodes 1000 --asked 100 -k 3 --out runs/worlds --page docs/worlds.md
    """
    settings = {"episodes": episodes, "asked": asked, "max_changes": max_changes, "seconds": seconds, "seed": seed}
    cells = cells_of(world or (), variant or (), recipe or (), **settings, scaling=scaling)
    with progress_bars() as bars:
        done = carry_out_worlds(cells, out, workers=workers or available_cores(), progress=bars)
    if page is not None:
        fill_page(page, read_cells(out))
    Output.as_json = json
    output = Output()
    output.document({"folder": str(out), "cells": [cell.to_dict() for cell in done]})
    for name in dict.fromkeys(cell.settings.world for cell in done):
        group = [cell for cell in done if cell.settings.world == name]
        output.show(as_table(summary(group), name), as_table(background(group), f"{name}: models and searches"))
    if page is not None:
        output.show(f"tables written to {page}")
    return ExitCode.DONE


def real(
    source: Annotated[
        Path,
        typer.Option(
            "--source",
            metavar="FOLDER|FILE",
            help="MIMIC's tables as PhysioNet ships them, the AI Clinician's, or a stored cohort.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FOLDER", help="Where rows are kept; those that it holds are not repeated."),
    ],
    rules: Annotated[
        CohortName, typer.Option("--cohort", help="Which stays; a stored cohort is taken as it is.")
    ] = CohortName.ALL_ADULTS,
    recipe: Annotated[list[str] | None, repeated("--recipe", "auto, what a fit chooses, or paper")] = None,
    seed: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Of the split and the fit; may be repeated.", show_default="0")
    ] = None,
    test: Annotated[float, typer.Option(metavar="SHARE", min=0, max=1, help="Subjects held out.")] = 0.4,
    asked: Annotated[
        int | None, whole_number(help="Of the stays held out, how many are asked about; all if left out.")
    ] = None,
    max_changes: Annotated[int, whole_number("--max-changes", "-k", help="Changes per question, at most.")] = 3,
    seconds: Annotated[float, typer.Option(metavar="S", min=0, help="Limit of a single search.")] = 20.0,
    epochs: Annotated[int, whole_number(help="Of every fit.")] = 100,
    workers: Workers = None,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the table into this page.")] = None,
    json: Json = False,
) -> ExitCode:
    """Real stays: whether models explain subjects held out, and whether their answers show anything impossible.

    A cohort is built as `ifonly build` does and split by subject; a model is fitted to one part as `ifonly fit` does,
    checked on measured values of the other, and asked about its stays. Every row (a recipe, a seed) is kept as soon as
    it is finished: figures of all stays together, nothing of a single one.

    Examples:
    python -m paper real --source mimic-iii-demo --out runs/real
    python -m paper real --source mimic-iii-demo --recipe auto --seed 1 --seed 2 --asked 20 --out runs/some --json
    """
    wanted = [
        RealSettings(name, number, test, asked, max_changes, seconds, epochs)
        for number in seed or [0]
        for name in recipe or RECIPES
    ]
    with progress_bars() as bars:
        cohort = real_cohort(source, rules.value)
        rows = carry_out_real(cohort, wanted, out, workers=workers or available_cores(), progress=bars)
    if page is not None:
        fill_real_page(page, rows)
    Output.as_json = json
    output = Output()
    output.document({"models": [row.to_dict() for row in rows]})
    output.show(as_table(real_summary(rows), f"{len(cohort)} stays of {len(set(cohort.subjects))} subjects"))
    return ExitCode.DONE


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="The paper's experiments, and how far learned counterfactuals are from the truth.",
)
add_command(app, "reproduce", reproduce)
add_command(app, "page", page)
add_command(app, "accuracy", accuracy)
add_command(app, "worlds", worlds)
add_command(app, "evidence", evidence)
add_command(app, "objectives", objectives)
add_command(app, "real", real)
