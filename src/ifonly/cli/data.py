"""Commands that make cohorts: `simulate` and `import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output, note, require_free

if TYPE_CHECKING:
    from ifonly.data.cohort import Cohort

Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where to store the cohort.", show_default=False)]

SIMULATE_EXAMPLES = (
    "ifonly simulate --out data/sepsis",
    "ifonly simulate --patients 200 --horizon 12 --seed 7 --out data/small --force",
)


def simulate(
    out: Out,
    patients: Annotated[
        int, typer.Option("--patients", metavar="N", min=1, help="Number of stays in intensive care.")
    ] = 1000,
    seed: options.Seed = 0,
    horizon: Annotated[
        str, typer.Option("--horizon", metavar="STEPS", help="Steps per stay: a number, or shortest-longest.")
    ] = "10-20",
    force: options.Force = False,
    json: options.Json = False,
) -> ExitCode:
    """Simulate a cohort in a sepsis-like world whose causal model is known.

    13 features and 25 treatments in real units, one step per four hours.
    """
    steps = options.horizon(horizon, "--horizon")
    require_free(folder=out, force=force)
    from ifonly.simulate import simulate_cohort

    with progress_bars() as bars:
        cohort = simulate_cohort(patients, seed=seed, horizon=steps, progress=bars)
    provenance = {"made by": "ifonly simulate", "patients": patients, "seed": seed, "horizon": list(steps)}
    return _store(cohort, out, provenance=provenance, force=force, output=Output(json))


IMPORT_EXAMPLES = (
    "ifonly import table.csv --schema schema.yaml --out data/mine",
    "ifonly import log.parquet --schema schema.yaml --out data/mine --force",
)


def import_table(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A long CSV or Parquet table, one row per step.")],
    schema: Annotated[
        Path, typer.Option("--schema", metavar="FILE", help="Features and actions, YAML or JSON.", show_default=False)
    ],
    out: Out,
    force: options.Force = False,
    json: options.Json = False,
) -> ExitCode:
    """Turn a table and a schema file into a cohort.

    Needed columns: episode, step, action and every feature by its name; subject where there is one. The schema file may
    give them other names, and make actions out of columns of doses; `ifonly schema init` writes a first one. Steps
    count from 0 or from 1 in the table, or are equally far apart, and from 0 in everything that ifonly shows.
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
    return _store(cohort, out, provenance=provenance, force=force, output=Output(json))


def _store(cohort: Cohort, out: Path, *, provenance: dict[str, Any], force: bool, output: Output) -> ExitCode:
    from dataclasses import asdict

    from ifonly.data.store import save_cohort
    from ifonly.report.overview import Overview

    save_cohort(cohort, out, provenance=provenance, overwrite=force)
    summary = Overview.of(cohort)
    output.document({"cohort": str(out), "provenance": provenance, "summary": asdict(summary)})
    output.show(str(summary), f"stored in {out}")
    return ExitCode.DONE
