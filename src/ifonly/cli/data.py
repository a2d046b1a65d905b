"""Commands that make cohorts and look at them: `simulate`, `import`, `split` and `card`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output, note, require_free
from ifonly.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from ifonly.data.cohort import Cohort
    from ifonly.report.recorded import Outcome

SIMULATE_EXAMPLES = (
    "ifonly simulate --out data/sepsis",
    "ifonly simulate --patients 200 --horizon 12 --seed 7 --out data/small --force",
)


def simulate(
    out: options.Out,
    patients: Annotated[
        int, typer.Option("--patients", metavar="N", min=1, help="Number of stays in intensive care.")
    ] = 1000,
    seed: options.Seed = 0,
    horizon: Annotated[
        str, typer.Option("--horizon", metavar="STEPS", help="Steps per stay: a number, or shortest-longest.")
    ] = "10-20",
    force: options.Force = False,
) -> ExitCode:
    """Simulate a cohort in a sepsis-like world whose causal model is known.

    13 features and 25 treatments in real units, one step per four hours.
    """
    steps = options.horizon(horizon)
    require_free(folder=out, force=force)
    from ifonly.simulate import simulate_cohort

    with progress_bars() as bars:
        cohort = simulate_cohort(patients, seed=seed, horizon=steps, progress=bars)
    provenance = {"made by": "ifonly simulate", "patients": patients, "seed": seed, "horizon": list(steps)}
    return _store(cohort, out, provenance=provenance, force=force)


IMPORT_EXAMPLES = (
    "ifonly import table.csv --schema schema.yaml --out data/mine",
    "ifonly import log.parquet --schema schema.yaml --out data/mine --force",
)


def import_table(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A long CSV or Parquet table, one row per step.")],
    schema: Annotated[
        Path, typer.Option("--schema", metavar="FILE", help="Features and actions, YAML or JSON.", show_default=False)
    ],
    out: options.Out,
    force: options.Force = False,
) -> ExitCode:
    """Turn a table and a schema file into a cohort.

    Needed columns: episode, step, action and every feature by its name; subject where there is one. The schema file may
    give them other names, and make actions out of columns of doses; `ifonly init` writes a first one. Steps count from
    0 or from 1 in the table, or are equally far apart, and from 0 in everything that ifonly shows.
    """
    require_free(folder=out, force=force)
    from ifonly.data.store import read_table_and_first_step
    from ifonly.files import sha256_of

    cohort, first_step = read_table_and_first_step(table, schema)
    if first_step == 1:
        note("note", "step 1 of the table is step 0 in everything ifonly shows.", style="bold yellow")
    provenance = {
        "made by": "ifonly import",
        "table": table.name,
        "sha256": sha256_of(table),
        "first step of the table": first_step,
    }
    return _store(cohort, out, provenance=provenance, force=force)


def _store(cohort: Cohort, out: Path, *, provenance: dict[str, Any], force: bool) -> ExitCode:
    from ifonly.data.store import save_cohort
    from ifonly.report.overview import Overview

    save_cohort(cohort, out, provenance=provenance, overwrite=force)
    summary, output = Overview.of(cohort), Output()
    output.document({"cohort": str(out), "provenance": provenance, "summary": asdict(summary)})
    output.show(str(summary), f"stored in {out}")
    return ExitCode.DONE


SPLIT_EXAMPLES = ("ifonly split --episodes data/sepsis --out data/parts --test 0.2",)


def split(
    episodes: options.Episodes,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Gets two cohorts: train and test.", show_default=False)
    ],
    test: Annotated[float, typer.Option("--test", metavar="SHARE", help="Share of subjects in the test part.")] = 0.2,
    seed: options.Seed = 0,
    force: options.Force = False,
) -> ExitCode:
    """Split a cohort in two by subject: one part to fit a model to, one to check it on and to ask about.

    All episodes of a subject land on the same side.
    """
    require_free(folder=out, force=force)
    from ifonly.data.store import load_cohort
    from ifonly.study.stages import origin_of, write_split

    write_split(load_cohort(episodes), out, test=test, seed=seed, origin=origin_of(episodes), overwrite=force)
    parts = {name: load_cohort(out / name) for name in ("train", "test")}
    counts = {
        name: {"episodes": len(part), "subjects": len(set(part.subjects)), "fingerprint": part.fingerprint()}
        for name, part in parts.items()
    }
    output = Output()
    output.document({name: {"cohort": str(out / name), **count} for name, count in counts.items()})
    output.show(
        *(
            f"{out / name}: {count['episodes']:,} episodes of {count['subjects']:,} subjects"
            for name, count in counts.items()
        ),
        f"next: ifonly fit --episodes {out / 'train'} --out MODEL, then ifonly check --model MODEL --episodes "
        f"{out / 'test'}",
    )
    return ExitCode.DONE


CARD_EXAMPLES = (
    "ifonly card data/sepsis",
    "ifonly card data/mine --severity moisture --model models/mine --out cards/mine --json",
    "ifonly card data/sepsis --outcome died@deaths.csv",
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
            show_default="COHORT/grid.parquet, where there is one",
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
            "--outcome",
            metavar="COLUMN[@FILE]",
            help="Something that happened to an episode or not, such as a death; a column of the grid, or of a table "
            "with ids, episode or stay.",
        ),
    ] = None,
    smallest_cell: Annotated[
        int,
        typer.Option(
            "--smallest-cell", metavar="N", min=1, help="Hide figures that rest on fewer subjects; 1: show all."
        ),
    ] = 5,
) -> ExitCode:
    """Make the data card of a cohort: distributions, missing values, actions, horizons, outcome by severity.

    Writes card.html (complete in itself), card.json and figures (PNG), and warns where the data cannot support an
    analysis: actions never taken, features hardly ever measured, too few subjects for the model's size.
    """
    from ifonly.data.store import load_cohort, read_frame
    from ifonly.files import check_writable
    from ifonly.report.card import data_card
    from ifonly.report.folders import CARD_FOLDER, write_card
    from ifonly.study.stages import GRID_FILE
    from ifonly.text.cards import card_lines

    target = episodes / "card" if out is None else out
    cohort = load_cohort(episodes)
    CARD_FOLDER.check(target)
    check_writable(target, folder=True)
    usual = episodes / GRID_FILE
    place = grid or (usual if usual.is_file() else None)
    table = None if place is None else read_frame(place)
    found = data_card(
        cohort,
        grid=table,
        model_size=_model_size(cohort, model),
        severity=severity,
        outcome=_outcome(outcome, table),
        smallest_cell=smallest_cell,
    )
    written = write_card(found, target, title=episodes.resolve().name)
    output = Output()
    output.document(found.to_dict() | {"folder": str(target), "files": written.files})
    output.show(*card_lines(found))
    output.show(f"written: {target} ({', '.join(written.files)})")
    return ExitCode.DONE


def _model_size(cohort: Cohort, folder: Path | None) -> int:
    """The number of parameters of a stored model, or of the one that `ifonly fit` makes by default."""
    from ifonly.models import LocationScale, load_model

    if folder is None:
        return sum(weights.numel() for weights in LocationScale(cohort.schema).parameters())
    model = load_model(folder)
    cohort.schema.require_same(model.schema, here="the cohort", there=f"the model {folder}")
    return sum(weights.numel() for weights in model.parameters())


def _outcome(text: str | None, grid: pl.DataFrame | None) -> Outcome | None:
    """Whether something happened, from a column of the grid or of another table."""
    if text is None:
        return None
    from ifonly.data.store import read_frame
    from ifonly.report.recorded import Outcome

    column, _, file = text.partition("@")
    if not column:
        raise typer.BadParameter(f"--outcome {text!r}: give COLUMN, or COLUMN@FILE.")
    if not file and grid is None:
        raise InputError(f"--outcome {column}: there is no grid to look it up in; name a table: {column}@FILE.")
    table = read_frame(Path(file)) if file else grid
    assert table is not None, "checked above"
    return Outcome.from_table(table, column)
