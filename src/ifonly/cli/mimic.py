"""The command that makes a cohort out of clinical tables: `mimic build`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output, note, require_free
from ifonly.errors import StoreError

if TYPE_CHECKING:
    from ifonly.clinical.build import Build
    from ifonly.report.card import Card

OUTCOME = "died_in_hospital"
RULES_PANEL, ACTIONS_PANEL, WORK_PANEL = "Who is in the cohort", "Actions", "Memory and work"

MIMIC_EXAMPLES = (
    "ifonly mimic build --source mimic-iii-clinical-database-1.4 --out data/sepsis",
    "ifonly mimic build --source mimiciv/3.1 --out data/adults --cohort all-adults --memory 8GB --work scratch/mimiciv",
    "ifonly mimic build --table mimic-table.csv --out data/ai-clinician --levels paper",
)


class CohortName(StrEnum):
    """Who is in the cohort."""

    SEPSIS3 = "sepsis3"
    ALL_ADULTS = "all-adults"


class MimicTask(StrEnum):
    """What to do with MIMIC."""

    BUILD = "build"


def mimic(
    task: Annotated[
        MimicTask, typer.Argument(metavar="build", help="Build a cohort out of its tables.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Where to store the cohort.", show_default=False)
    ],
    source: Annotated[
        Path | None,
        typer.Option("--source", metavar="FOLDER", help="MIMIC-III or MIMIC-IV, as PhysioNet ships it."),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--table", metavar="FILE", help="Instead: mimic-table.csv, as the AI Clinician's code exports it."
        ),
    ] = None,
    cohort: Annotated[
        CohortName | None,
        typer.Option(
            "--cohort",
            metavar="RULES",
            help=f"{', '.join(CohortName)}: Sepsis-3 and the window around its onset, or adults from admission.",
            show_default=CohortName.SEPSIS3.value,
            rich_help_panel=RULES_PANEL,
        ),
    ] = None,
    horizon: Annotated[
        str,
        typer.Option(
            "--horizon",
            metavar="STEPS",
            help="Fewest and most steps of four hours: stays with fewer are left out, others cut.",
            rich_help_panel=RULES_PANEL,
        ),
    ] = "10-20",
    levels: Annotated[
        str,
        typer.Option(
            "--levels",
            metavar="LEVELS",
            help="learned: zero and the medians of the quartiles of doses in the training split; paper: those of the "
            "paper; or a file with levels, YAML or JSON.",
            rich_help_panel=ACTIONS_PANEL,
        ),
    ] = "learned",
    min_uses: Annotated[
        int,
        typer.Option(
            "--min-uses",
            metavar="N",
            min=0,
            help="Merge levels that fewer training steps use.",
            rich_help_panel=ACTIONS_PANEL,
        ),
    ] = 0,
    test: Annotated[
        float,
        typer.Option(
            "--test",
            metavar="SHARE",
            help="Share of subjects that levels are not learned from: the test part of a split by subject.",
            rich_help_panel=ACTIONS_PANEL,
        ),
    ] = 0.2,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Of that split.", rich_help_panel=ACTIONS_PANEL)
    ] = 0,
    memory: Annotated[
        str,
        typer.Option(
            "--memory", metavar="SIZE", help="The most memory for reading tables.", rich_help_panel=WORK_PANEL
        ),
    ] = "4GB",
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            metavar="N",
            min=1,
            help="For reading tables.",
            show_default="one per core",
            rich_help_panel=WORK_PANEL,
        ),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            "--work",
            metavar="FOLDER",
            help="Keep what was read here, for other cohorts from the same tables.",
            show_default="beside the cohort, until it is stored",
            rich_help_panel=WORK_PANEL,
        ),
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> ExitCode:
    """Build a cohort out of clinical tables: four-hour steps, SOFA, vasopressors and fluids as actions.

    Give --source, or --table. A build that was interrupted goes on where it stopped. How many stays each rule removed
    is shown, and stored with the cohort (flow.txt, flow.json, flow.png), as are the levels and a data card.
    """
    place = _one_of(source, table)
    if table is not None and cohort is not None:
        raise typer.BadParameter("--cohort goes with --source: the AI Clinician has chosen who is in its table.")
    shortest, longest = options.horizon(horizon, "--horizon")
    require_free(folder=out, force=force)
    from ifonly.clinical.build import BuildOptions, build_cohort, working_folder
    from ifonly.clinical.inclusion import Selection, Window
    from ifonly.clinical.levels import LevelChoice

    chosen = BuildOptions(
        selection=Selection(
            cohort=(cohort or CohortName.SEPSIS3).value, window=Window(shortest=shortest, longest=longest)
        ),
        levels=LevelChoice(levels=levels, min_uses=min_uses, test=test, seed=seed),
        memory=memory,
        threads=threads,
        work=work,
        overwrite=force,
    )
    pictures = _Pictures(out.name)
    with _telling_what_is_kept(working_folder(out, chosen), out), progress_bars() as bars:
        made = build_cohort(place, out, chosen, progress=bars, finish=pictures.add)
    for remark in made.remarks:
        note("note", remark, style="bold yellow")
    _report(made, pictures, out, Output(json))
    return ExitCode.DONE


def _one_of(source: Path | None, table: Path | None) -> Path:
    if (source is None) == (table is None):
        raise typer.BadParameter("give either --source (a folder) or --table (a file).")
    if source is not None and not source.is_dir():
        raise StoreError(f"{source} is not a folder; --source takes the folder with MIMIC's tables.")
    if table is not None and not table.is_file():
        raise StoreError(f"{table} is not a file; --table takes the table that the AI Clinician's code exports.")
    return source or table or Path()


@contextmanager
def _telling_what_is_kept(work: Path, out: Path) -> Iterator[None]:
    """Whatever ends a build early, say that it was not for nothing."""
    try:
        yield
    except BaseException:
        if work.exists():
            note("note", f"what was read is kept in {work}; the next build of {out} uses it.", style="bold yellow")
        raise


@dataclass
class _Pictures:
    """What is drawn into the cohort's folder before it takes its name: the flow, and the data card."""

    name: str
    card: Card | None = None

    def add(self, made: Build, folder: Path) -> None:
        from ifonly.models import LocationScale
        from ifonly.report.card import data_card
        from ifonly.report.card_files import write_card
        from ifonly.report.flow_picture import write_flow
        from ifonly.report.outcomes import Outcome

        write_flow(made.flow, folder / "flow.png")
        known = OUTCOME in made.grid.columns
        self.card = data_card(
            made.cohort,
            grid=made.grid,
            # Of the model that `fit` makes unless told otherwise.
            model_size=sum(weights.numel() for weights in LocationScale(made.cohort.schema).parameters()),
            outcome=Outcome.from_table(made.grid, OUTCOME) if known else None,
        )
        write_card(self.card, folder / "card", title=self.name)


def _report(made: Build, pictures: _Pictures, out: Path, output: Output) -> None:
    from ifonly.report.overview import Overview

    summary = Overview.of(made.cohort)
    warnings = [warning.text for warning in pictures.card.warnings] if pictures.card else []
    output.document(
        {
            "cohort": str(out),
            "flow": made.flow.to_dict(),
            "levels": {name: list(level.doses) for name, level in made.levels.items()},
            "remarks": list(made.remarks),
            "warnings": warnings,
            "summary": asdict(summary),
        }
    )
    axes = made.cohort.schema.actions.axes
    output.show(
        str(made.flow),
        "",
        str(summary),
        *(f"{axis.name}: {', '.join(map(axis.show, axis.levels))} {axis.unit}" for axis in axes),
        "",
        *(["what these data cannot support:"] if warnings else []),
        *(f"  - {text}" for text in warnings),
        f"stored in {out}; look at {out / 'flow.png'} and {out / 'card' / 'card.html'}",
        f"next: ifonly fit --episodes {out} --out models/{out.name}",
    )
