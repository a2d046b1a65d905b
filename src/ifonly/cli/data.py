"""Commands that make and describe cohorts: `simulate`, `import`, `split`, `pool` and `card`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ifonly
from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output, note, require_free
from ifonly.cli.options import argument, option
from ifonly.errors import InputError, StoreError
from ifonly.files import check_writable
from ifonly.text.catalogue import say

if TYPE_CHECKING:
    import polars as pl

    from ifonly.report.recorded import Outcome
    from ifonly.study.plan import SimulatedData, TableData


def simulate(
    out: options.Out,
    patients: Annotated[int, option("N", "Number of stays in intensive care.", min=1)] = 1000,
    seed: options.Seed = 0,
    horizon: Annotated[str, option("STEPS", "Steps per stay: a number, or a range such as 10-20.")] = "10-20",
    force: options.Force = False,
) -> ExitCode:
    """Simulate a cohort in a sepsis-like world whose causal model is known.

    It has 13 features and 25 treatments in real units, and one step per four hours.

    Examples:
    ifonly simulate --out data/sepsis
    ifonly simulate --patients 200 --horizon 12 --seed 7 --out data/small --force
    """
    steps = options.horizon(horizon)
    require_free(folder=out, force=force)
    from ifonly.study.plan import SimulatedData

    _store(SimulatedData(patients, seed, steps), out, force=force)
    return ExitCode.DONE


def import_table(
    table: Annotated[
        Path,
        argument(
            "TABLE", "A long CSV or Parquet table, one row per step; .csv, .tsv, .txt, packed or not, or .parquet."
        ),
    ],
    schema: Annotated[Path, option("FILE", "Schema of features and actions, YAML or JSON.", default=False)],
    out: options.Out,
    force: options.Force = False,
) -> ExitCode:
    """Turn a table and a schema file into a cohort.

    Required columns: episode, step, action, and one for each feature; optional: subject. The schema file may name
    other columns, form actions from columns of doses, join further tables, and list the words that a column holds;
    `ifonly init` writes a first one. Steps may be numbered from 0 or from 1, or be numbers or times at equal distances;
    ifonly always shows them numbered from 0.

    Examples:
    ifonly import table.csv.gz --schema schema.yaml --out data/mine
    ifonly import log.parquet --schema schema.yaml --out data/mine --force
    """
    require_free(folder=out, force=force)
    from ifonly.data.origins import seemingly_carried
    from ifonly.study.plan import TableData

    cohort, origin = _store(TableData(table, schema), out, force=force)
    if "read as" in origin:
        note("note", say("import.read as", table=table.name, form=origin["read as"]))
    if origin["first step of the table"] == 1:
        note("note", say("import.first step"))
    if carried := seemingly_carried(cohort):
        note("note", say("import.carried", names=", ".join(carried), entry=f"{{{carried[0]}: COLUMN}}"))
    return ExitCode.DONE


def _store(data: SimulatedData | TableData, out: Path, *, force: bool) -> tuple[ifonly.Cohort, dict[str, Any]]:
    """Make and store a cohort and say what it holds; returns the cohort and its provenance."""
    from ifonly.report.overview import Overview
    from ifonly.study.stages import store_cohort

    with progress_bars() as bars:
        cohort, origin = store_cohort(data, out, overwrite=force, progress=bars)
    summary = Overview.of(cohort)
    document = {"cohort": str(out), "provenance": origin, "summary": asdict(summary)}
    Output().tell(document, str(summary), say("stored", place=out))
    return cohort, origin


def split(
    episodes: options.Episodes,
    out: Annotated[Path, option("FOLDER", "Where to store the two cohorts, train and test.", default=False)],
    test: Annotated[float, option("SHARE", "Share of subjects in the test part.")] = 0.2,
    seed: options.Seed = 0,
    force: options.Force = False,
) -> ExitCode:
    """Split a cohort in two by subject: one part to fit a model to, one to check it on and to ask about.

    All episodes of a subject stay together.

    Examples:
    ifonly split --episodes data/sepsis --out data/parts --test 0.2
    """
    require_free(folder=out, force=force)
    from ifonly.study.plan import SplitPlan
    from ifonly.study.stages import store_split

    store_split(episodes, out, SplitPlan(test, seed), overwrite=force)
    parts = {name: ifonly.load(out / name) for name in ("train", "test")}
    counts = {
        name: {"episodes": len(part), "subjects": len(set(part.subjects)), "fingerprint": part.fingerprint()}
        for name, part in parts.items()
    }
    Output().tell(
        {name: {"cohort": str(out / name), **count} for name, count in counts.items()},
        *(
            say("split.part", place=out / name, episodes=count["episodes"], subjects=count["subjects"])
            for name, count in counts.items()
        ),
        say("next.fit and check", train=out / "train", test=out / "test"),
    )
    return ExitCode.DONE


def pool(
    cohorts: Annotated[
        list[str], argument("[NAME=]COHORT...", "Stored cohorts; the ids of a named one become NAME-ID.")
    ],
    out: Annotated[Path, argument("FOLDER", "The new cohort; must not exist yet.")],
) -> ExitCode:
    """Pool cohorts with the same schema into one, such as those of two hospitals, or the parts of a split.

    A subject id that occurs in several cohorts is taken to be the same subject. Where the same ids mean different
    episodes or subjects, give the cohorts names.

    Examples:
    ifonly pool data/parts/train data/parts/test data/all
    ifonly pool north=data/north south=data/south data/both
    """
    if out.exists():
        raise StoreError(f"{out} exists already; the last name is that of the new cohort: choose another one.")
    from ifonly.report.overview import Overview
    from ifonly.study.stages import store_pool

    sources = [(name, Path(folder)) for name, folder in map(_named, cohorts)]
    pooled = store_pool(sources, out)
    summary = Overview.of(pooled)
    document = {"cohort": str(out), "fingerprint": pooled.fingerprint(), "summary": asdict(summary)}
    Output().tell(document, str(summary), say("stored", place=out))
    return ExitCode.DONE


def _named(text: str) -> tuple[str, str]:
    """NAME=FOLDER split in two; an existing folder whose own name contains "=" is taken as it is."""
    name, sign, folder = text.partition("=")
    return (name, folder) if sign and not Path(text).exists() else ("", text)


def card(
    episodes: options.Episodes,
    out: Annotated[
        Path | None, option("FOLDER", "Where to write; replaces an earlier card.", default="card, in the cohort")
    ] = None,
    grid: Annotated[
        Path | None,
        option(
            "FILE",
            "A table with one row per step that says which values were measured.",
            default="grid.parquet of the cohort, where there is one",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        option("FOLDER", "The model whose size the data must support.", default="that of `ifonly fit`"),
    ] = None,
    severity: Annotated[
        str | None,
        option("FEATURE", "Compare episodes by this feature at their first step.", default="SOFA, where there is one"),
    ] = None,
    outcome: Annotated[
        str | None,
        option(
            "COLUMN[@FILE]",
            "An outcome that an episode had or not, such as death: a column of the grid, or of a table with a column "
            "of ids, episode or stay.",
        ),
    ] = None,
    smallest_cell: Annotated[int, option("N", "Hide figures based on fewer than N subjects; 1: show all.", min=1)] = 5,
) -> ExitCode:
    """Make the data card of a cohort: distributions, missing values, actions, horizons, outcome by severity.

    Writes card.html (one self-contained page), card.json and figures (PNG), and warns where the data cannot support an
    analysis: actions never taken, features hardly ever measured, too few subjects for the size of the model.

    Examples:
    ifonly card --episodes data/sepsis
    ifonly card --episodes data/mine --severity moisture --model models/mine --out cards/mine --json
    ifonly card --episodes data/sepsis --outcome died@deaths.csv
    """
    from ifonly.data.store import read_frame
    from ifonly.report.card import data_card
    from ifonly.report.folders import CARD_FOLDER, write_card
    from ifonly.study.stages import GRID_FILE
    from ifonly.text.cards import card_lines

    target = episodes / "card" if out is None else out
    cohort = ifonly.load(episodes)
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
    Output().tell(
        found.to_dict() | {"folder": str(target), "files": written.files},
        *card_lines(found),
        say("written.files", place=target, files=", ".join(written.files)),
    )
    return ExitCode.DONE


def _model_size(cohort: ifonly.Cohort, folder: Path | None) -> int:
    """The number of parameters of a stored model, or of the one that `ifonly fit` makes by default."""
    from ifonly.study.plan import FitPlan, parameters_of

    if folder is None:
        return FitPlan().size(cohort.schema)
    model = ifonly.load_model(folder)
    cohort.schema.require_same(model.schema, here="the cohort", there=f"the model {folder}")
    return parameters_of(model)


def _outcome(text: str | None, grid: pl.DataFrame | None) -> Outcome | None:
    """The outcome of each episode, from a column of the grid or of another table."""
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
