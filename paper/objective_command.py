"""The command of the study of objectives: `python -m paper objectives`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output
from ifonly.files import available_cores
from paper.catalogue import WIDTH, fill_between, markdown_table
from paper.command_parts import Json, Workers, as_table, repeated, whole_number
from paper.objective_study import ObjectiveCell, carry_out, cells_of, read_cells
from paper.objective_tables import findings, objective_table, world_table
from paper.worlds import PLAIN, WORLDS

QUICK_WORLDS, QUICK_VARIANTS = ["tumour", "glucose"], [PLAIN]
QUICK: dict[str, Any] = {"episodes": 60, "asked": 3, "epochs": 3}
BEGIN, END = "<!-- tables: python -m paper objectives --page -->", "<!-- end of tables -->"
"""Between these lines of a page the command writes its tables."""


def objectives(
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FOLDER", help="Where cells are kept; those that it holds are not repeated."),
    ],
    world: Annotated[list[str] | None, repeated("--world", ", ".join(WORLDS))] = None,
    variant: Annotated[
        list[str] | None, repeated("--variant", "plain, column, constant or drift, and others for sepsis")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Of everything; may be repeated.", show_default="0")
    ] = None,
    episodes: Annotated[
        int | None, whole_number(help="Episodes that members learn from.", least=20, default="500")
    ] = None,
    asked: Annotated[int | None, whole_number(help="Others, for which answers are sought.", default="15")] = None,
    epochs: Annotated[int | None, whole_number(help="Of every fit.", default="40; 100 where they are usual")] = None,
    fits: Annotated[
        str | None, typer.Option(metavar="small|usual", help="Small ones, or as in the study of verdicts.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="S", min=0, help="Limit of a single search.", show_default="1")
    ] = None,
    workers: Workers = None,
    quick: Annotated[bool, typer.Option("--quick", help="Little of everything: a minute, to see it work.")] = False,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the tables of all that the folder holds into this page."),
    ] = None,
    json: Json = False,
) -> ExitCode:
    """What should a cohort be asked for? The objectives of an ensemble, in worlds of which everything is known.

    The outcome under the centre; the mean, the worst and a low quantile over members of different kinds; some of them
    among changes that are usual; and a choice of one half of the subjects that the other half judged. All are asked
    about the same episodes, which no model has seen, and every answer is replayed in the world.

    Examples:
    python -m paper objectives --quick --out runs/quick-objectives
    python -m paper objectives --seed 1 --workers 15 --out runs/objectives --page docs/objectives-study.md
    """
    epochs = 100 if epochs is None and fits == "usual" else epochs
    stated = {"episodes": episodes, "asked": asked, "epochs": epochs, "fits": fits, "seconds": seconds}
    settings = (QUICK if quick else {}) | {name: value for name, value in stated.items() if value is not None}
    cells = cells_of(
        world or (QUICK_WORLDS if quick else ()),
        variant or (QUICK_VARIANTS if quick and not world else ()),
        seed or [0],
        **settings,
    )
    with progress_bars() as bars:
        done = carry_out(cells, out, workers=workers or available_cores(), progress=bars)
    if page is not None:
        fill_page(page, read_cells(out))
    told, found = all_findings(done), tables(done)
    Output.as_json = json
    output = Output()
    output.document(
        {
            "folder": str(out),
            "cells": [cell.settings.file for cell in done],
            "findings": told,
            "tables": {title: frame.to_dicts() for title, frame in found.items()},
        }
    )
    written = [] if page is None else [f"tables written to {page}"]
    shown = (as_table(frame, title) for title, frame in found.items())
    output.show(*shown, *(text.replace("*", "") for text in told), *written)
    return ExitCode.DONE


def by_fits(cells: Sequence[ObjectiveCell]) -> dict[str, list[ObjectiveCell]]:
    """The cells by how members were fitted, in words."""
    words = {"usual": "fits as usual", "small": "small fits"}
    found = {words[name]: [cell for cell in cells if cell.settings.fits == name] for name in words}
    return {name: part for name, part in found.items() if part}


def all_findings(cells: Sequence[ObjectiveCell]) -> list[str]:
    """What follows from each kind of fits."""
    return [
        f"*{name[0].upper()}{name[1:]}.* {text}" for name, part in by_fits(cells).items() for text in findings(part)
    ]


def tables(cells: Sequence[ObjectiveCell]) -> dict[str, pl.DataFrame]:
    """All tables, by title."""
    found: dict[str, pl.DataFrame] = {}
    for name, part in by_fits(cells).items():
        found[f"Objectives, {name}"] = objective_table(part)
        found[f"By world: truly help, truly gained, {name}"] = world_table(part)
    return found


def fill_page(page: Path, cells: Sequence[ObjectiveCell]) -> None:
    """Write findings and tables into a page, between its two marks."""
    texts = (f"- {text}" for text in all_findings(cells))
    told = (textwrap.fill(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False) for text in texts)
    parts = [*told, *(f"\n### {title}\n\n{markdown_table(frame)}" for title, frame in tables(cells).items())]
    fill_between(page, BEGIN, END, "\n".join(parts) + "\n")
