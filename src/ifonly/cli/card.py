"""The command that says what a cohort holds and whether it can support an analysis: `card`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ifonly.cli import options
from ifonly.cli.frame import ExitCode, Output
from ifonly.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from ifonly.data.cohort import Cohort
    from ifonly.report.recorded import Outcome

GRID_FILE = "grid.parquet"

CARD_EXAMPLES = (
    "ifonly card data/sepsis",
    "ifonly card data/mine --severity moisture --model models/mine --out cards/mine --json",
)


def card(
    episodes: Annotated[
        Path, typer.Argument(metavar="COHORT", help="A stored cohort of episodes.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="Where to write; an earlier card there is replaced.",
            show_default="COHORT/card",
        ),
    ] = None,
    grid: Annotated[
        Path | None,
        typer.Option(
            "--grid",
            metavar="FILE",
            help="A table with a row per step that says what was measured.",
            show_default=f"COHORT/{GRID_FILE}, where there is one",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FOLDER",
            help="The model whose size the data must support.",
            show_default="what `ifonly fit` would make",
        ),
    ] = None,
    severity: Annotated[
        str | None,
        typer.Option(
            "--severity",
            metavar="FEATURE",
            help="Compare episodes by this feature at their first step.",
            show_default="SOFA, where there is one",
        ),
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            "--outcome", metavar="COLUMN", help="Something that happened to an episode or not, such as a death."
        ),
    ] = None,
    outcome_table: Annotated[
        Path | None,
        typer.Option(
            "--outcome-table",
            metavar="FILE",
            help="The table with that column and one of ids, episode or stay.",
            show_default="the grid",
        ),
    ] = None,
    smallest_cell: Annotated[
        int,
        typer.Option(
            "--smallest-cell", metavar="N", min=1, help="Hide figures that rest on fewer subjects; 1: show all."
        ),
    ] = 5,
    json: options.Json = False,
) -> ExitCode:
    """Make the data card of a cohort: distributions, missing values, actions, horizons, outcome by severity.

    Writes card.html (complete in itself), card.json and figures (PNG), and warns where the data cannot support an
    analysis: actions never taken, features hardly ever measured, too few subjects for the model's size.
    """
    if outcome_table is not None and outcome is None:
        raise typer.BadParameter("--outcome-table: say which of its columns with --outcome COLUMN.")
    from ifonly.data.store import load_cohort
    from ifonly.files import check_writable
    from ifonly.report.card import data_card
    from ifonly.report.folders import CARD_FOLDER, write_card
    from ifonly.text.cards import card_lines

    target = episodes / "card" if out is None else out
    cohort = load_cohort(episodes)
    CARD_FOLDER.check(target)
    check_writable(target, folder=True)
    table = _grid(episodes, grid)
    found = data_card(
        cohort,
        grid=table,
        model_size=_model_size(cohort, model),
        severity=severity,
        outcome=_outcome(outcome, outcome_table, table),
        smallest_cell=smallest_cell,
    )
    written = write_card(found, target, title=episodes.resolve().name)
    output = Output(json)
    output.document(found.to_dict() | {"folder": str(target), "files": written.files})
    output.show(*card_lines(found))
    output.show(f"written: {target} ({', '.join(written.files)})")
    return ExitCode.DONE


def _grid(episodes: Path, named: Path | None) -> pl.DataFrame | None:
    from ifonly.data.store import read_frame

    if named is not None:
        return read_frame(named)
    usual = episodes / GRID_FILE
    return read_frame(usual) if usual.is_file() else None


def _model_size(cohort: Cohort, folder: Path | None) -> int:
    """The number of parameters of a stored model, or of the one that `ifonly fit` makes by default."""
    from ifonly.models import LocationScale, load_model

    if folder is None:
        return sum(weights.numel() for weights in LocationScale(cohort.schema).parameters())
    model = load_model(folder)
    cohort.schema.require_same(model.schema, here="the cohort", there=f"the model {folder}")
    return sum(weights.numel() for weights in model.parameters())


def _outcome(column: str | None, file: Path | None, grid: pl.DataFrame | None) -> Outcome | None:
    if column is None:
        return None
    from ifonly.data.store import read_frame
    from ifonly.report.recorded import Outcome

    if file is None and grid is None:
        raise InputError(f"--outcome {column}: there is no grid to look it up in; name a table with --outcome-table.")
    table = grid if file is None else read_frame(file)
    assert table is not None, "checked above"
    return Outcome.from_table(table, column)
