"""The command that writes a first schema of somebody's table: `schema init`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ifonly.cli import options
from ifonly.cli.frame import ExitCode, Output, require_free
from ifonly.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from ifonly.data.drafts import Draft

SCHEMA_EXAMPLES = (
    "ifonly schema init log.csv --out schema.yaml",
    "ifonly schema init log.parquet --episode run --step hour --action water --action vents --out schema.yaml",
)


class SchemaTask(StrEnum):
    """What to do about a schema."""

    INIT = "init"


_COLUMN = "COLUMN"


def schema(
    task: Annotated[
        SchemaTask, typer.Argument(metavar="init", help="Write a first schema of a table.", show_default=False)
    ],
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="A long CSV or Parquet table, one row per step.", show_default=False),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Where to write the schema, .yaml.", show_default=False)
    ],
    episode: Annotated[str | None, typer.Option("--episode", metavar=_COLUMN, help="The id of an episode.")] = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar=_COLUMN, help="Numbers of steps, or hours or the like.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", metavar=_COLUMN, help="Whom or what an episode is about.")
    ] = None,
    action: Annotated[
        list[str] | None,
        typer.Option("--action", metavar=_COLUMN, help="Labels or doses of actions; once for each dose."),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> ExitCode:
    """Write a first schema of a table, for you to check and complete, and list the table's problems.

    What is not named is guessed: ids and steps by names and values, kinds, scaling, plausible ranges, levels of doses.
    Every guess stands in the file with its reason. Units that the names of columns do not tell are "?" there; `ifonly
    import` refuses the file until you have filled them in.
    """
    if out.suffix.lower() not in (".yaml", ".yml"):
        raise typer.BadParameter(f"--out {out}: a first schema is written as YAML, with comments; end it in .yaml.")
    require_free(out, force=force)
    from ifonly.data.drafts import Hints, draft_text, guess_schema
    from ifonly.data.store import read_frame
    from ifonly.files import write_text_atomically

    frame = read_frame(table)
    try:
        draft = guess_schema(frame, Hints(episode, step, subject, tuple(action or ())))
    except InputError as error:
        raise InputError(f"{table}: {error}") from None
    write_text_atomically(out, draft_text(draft, table.name))
    output = Output(json)
    output.document({"file": str(out), "table": str(table), **draft.to_dict()})
    _show(draft, output)
    output.show(
        f"written: {out}. Fill in the units, check the rest, and then:",
        f"  ifonly import {table} --schema {out} --out FOLDER",
    )
    return ExitCode.DONE


def _show(draft: Draft, output: Output) -> None:
    output.show(f"{draft.rows:,} rows: {draft.episodes:,} episodes of {draft.subjects:,} subjects", _columns(draft))
    if not draft.problems:
        output.show("no problems found", "")
        return
    output.show("problems (! to be solved before the table can be imported):")
    output.show(*(f"  {'!' if problem.refused else '-'} {problem}" for problem in draft.problems), "")


def _columns(draft: Draft) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("column", "is", "unit", "why"):
        table.add_column(heading)

    def add(name: str, role: str, unit: str, why: str) -> None:
        table.add_row(Text(name), role, Text(unit), Text(why))

    columns = draft.columns
    add(columns.episode, "episode", "", "")
    add(columns.step, "step", draft.schema.step_unit, f"{columns.spacing:g} apart" if columns.spacing else "")
    if columns.subject is not None:
        add(columns.subject, "subject", "", "")
    units = {dose.column: axis.unit for dose, axis in zip(columns.doses, draft.schema.actions.axes, strict=False)}
    for name, why in draft.actions.reasons.items():
        add(name, "action", units.get(name, ""), why)
    for guess in draft.features:
        scaled = f", {guess.feature.scaling}" if guess.feature.scaling != "linear" else ""
        add(guess.feature.name, f"{guess.feature.kind}{scaled}", guess.feature.unit, guess.kind_reason)
    for name, why in draft.left_out.items():
        add(name, "left out", "", why)
    return table
