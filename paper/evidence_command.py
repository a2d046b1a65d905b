"""The command of the evidence study: `python -m paper evidence`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output
from ifonly.errors import InputError
from ifonly.files import available_cores
from paper.command_parts import Json, Workers, as_table, repeated, whole_number
from paper.evidence_archive import add_to_archive, read_archive
from paper.evidence_page import all_tables, fill_page, findings, tells_harm
from paper.evidence_study import Cell, carry_out, cells_of, read_cells
from paper.evidence_tables import answers_table
from paper.verdicts import Judged, final_rule, write_rule
from paper.worlds import PLAIN, WORLDS

QUICK_WORLDS, QUICK_VARIANTS = ["tumour", "glucose"], [PLAIN, "constant"]
QUICK: dict[str, Any] = {"asked": 5, "seconds": 1.0, "epochs": 5}
USUAL: dict[str, Any] = {"asked": 25, "seconds": 2.0}
QUICK_EPISODES, EPISODES = [60], [500]
QUICK_SEEDS, SEEDS = [1], [0]
"""The rule of the package was not fitted to the former, so that its verdicts are judged, too."""


def evidence(
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Where cells are kept; those that it holds are not repeated."),
    ] = None,
    world: Annotated[list[str] | None, repeated("--world", ", ".join(WORLDS))] = None,
    variant: Annotated[
        list[str] | None, repeated("--variant", "plain, column, constant or drift, and others for sepsis")
    ] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Of everything; may be repeated.", show_default="0; 1 if --quick"),
    ] = None,
    episodes: Annotated[
        list[int] | None,
        whole_number(
            help="Episodes that models learn from; may be repeated: fewer ones for plain variants alone.",
            least=2,
            default="500",
        ),
    ] = None,
    asked: Annotated[int | None, whole_number(help="Others, for which an answer is sought.", default="25")] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="S", min=0, help="Limit of a single search.", show_default="2")
    ] = None,
    workers: Workers = None,
    quick: Annotated[bool, typer.Option("--quick", help="Little of everything: minutes, to see it work.")] = False,
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="One small file of cells: those of the folder are added to it. Without --out nothing is measured.",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write tables of all that archive or folder hold into this page."),
    ] = None,
    rule: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the rule that archive or folder give into it: fitted to seed 0, judged on all others.",
        ),
    ] = None,
    json: Json = False,
) -> ExitCode:
    """Does the evidence know which answers are wrong? In worlds of many fields, of which everything is known.

    Models are fitted as `ifonly fit` does it, checked, and asked about episodes that they have not seen; each answer is
    examined, and replayed in the world. Verdicts are by a rule that was fitted to the other worlds. Every cell (a
    world, a variant, a number of episodes, a seed) is kept as soon as it is finished.

    Examples:
    python -m paper evidence --quick --out runs/quick
    python -m paper evidence --world glucose --world battery --seed 1 --out runs/evidence --workers 4
    python -m paper evidence --episodes 500 --episodes 150 --out runs/evidence --page docs/evidence-study.md
    python -m paper evidence --seed 2 --out runs/evidence --archive paper/measured/evidence.jsonl.gz
    python -m paper evidence --seed 0 --seed 1 --out runs/evidence --rule rule.yaml
    """
    if out is None and archive is None:
        raise InputError("evidence: say where cells are kept: --out FOLDER, --archive FILE, or both.")
    stated = {"asked": asked, "seconds": seconds}
    settings = (QUICK if quick else USUAL) | {name: value for name, value in stated.items() if value is not None}
    cells = cells_of(
        world or (QUICK_WORLDS if quick else ()),
        variant or (QUICK_VARIANTS if quick and not world else ()),
        seed or (QUICK_SEEDS if quick else SEEDS),
        episodes or (QUICK_EPISODES if quick else EPISODES),
        **settings,
    )
    done, held = [], []
    if out is not None:
        with progress_bars() as bars:
            done = carry_out(cells, out, workers=workers or available_cores(), progress=bars)
        held = read_cells(out)
    if archive is not None:
        held = add_to_archive(archive, held) if held else read_archive(archive)
    written = _write(held, page, rule)
    done = done or held
    table = answers_table(done)
    harm = tells_harm(table)
    found, told = all_tables(done, table, leaving_out=harm), findings(done, table, leaving_out=harm)
    Output.as_json = json
    output = Output()
    output.document(
        {
            "folder": None if out is None else str(out),
            "cells": [cell.settings.file for cell in done],
            "findings": told,
            "tables": {title: frame.to_dicts() for title, frame in found.items()},
            "rule": _rule_of(done),
        }
    )
    output.show(
        *(as_table(frame, title) for title, frame in found.items()), *(text.replace("*", "") for text in told), *written
    )
    return ExitCode.DONE


def _rule_of(cells: list[Cell]) -> dict[str, Any] | None:
    """The rule of these cells; None where they give none."""
    try:
        return final_rule(Judged.of(cells))
    except InputError:
        return None


def _write(cells: list[Cell], page: Path | None, rule: Path | None) -> list[str]:
    """The cells as a page and as a rule, as far as they are wanted; what was written, in words."""
    if page is not None:
        fill_page(page, cells)
    if rule is not None:
        write_rule(rule, Judged.of(cells))
    return [f"{what} written to {path}" for what, path in (("tables", page), ("rule", rule)) if path is not None]
