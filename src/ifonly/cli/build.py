"""The command that builds a cohort from clinical tables: `build`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output, note, require_extra, require_free
from ifonly.cli.options import option
from ifonly.errors import StoreError
from ifonly.text.catalogue import say

if TYPE_CHECKING:
    from ifonly.clinical.build import Build
    from ifonly.report.card import Card

SETTINGS = {"min_uses": int, "test": float, "seed": int, "memory": str, "threads": int, "work": Path, "codes": Path}


class CohortName(StrEnum):
    """Who is in the cohort."""

    SEPSIS3 = "sepsis3"
    ALL_ADULTS = "all-adults"


def build(
    source: Annotated[
        Path,
        option(
            "FOLDER|FILE",
            "MIMIC-III, MIMIC-IV or eICU, as PhysioNet ships it; a MEDS dataset; or mimic-table.csv, as the AI "
            "Clinician exports it.",
            default=False,
        ),
    ],
    out: options.Out,
    cohort: Annotated[
        CohortName | None,
        option(
            "RULES",
            f"{', '.join(CohortName)}: stays with Sepsis-3, around its onset, or all adults from admission.",
            default=CohortName.SEPSIS3.value,
        ),
    ] = None,
    horizon: Annotated[
        str,
        option("STEPS", "Fewest and most steps of four hours; shorter stays are left out, longer ones cut."),
    ] = "10-20",
    levels: Annotated[
        str,
        option(
            "LEVELS",
            "Dose levels. learned: zero, and the median of each quartile of doses in the training split; paper: the "
            "paper's; or a file of levels, YAML or JSON.",
        ),
    ] = "learned",
    force: options.Force = False,
    settings: Annotated[
        list[str] | None,
        options.setting_option(*SETTINGS, example="memory=8GB, or work=FOLDER to keep what was read"),
    ] = None,
) -> ExitCode:
    """Build a cohort from clinical tables: four-hour steps, SOFA, vasopressors and fluids as actions.

    Shows how many stays each rule removed, and stores this with the cohort (flow.txt, flow.json, flow.png), along with
    the levels and a data card. Levels are learned from all subjects but the share `test` (0.2), split with `seed`;
    levels used in fewer than `min_uses` training steps are merged. `codes` is a file that says what the codes of a
    MEDS dataset stand for, or what to read from MIMIC or eICU besides the built-in lists. An interrupted build resumes
    when the same command is given again.

    Examples:
    ifonly build --source mimic-iii-clinical-database-1.4 --out data/sepsis
    ifonly build --source mimiciv/3.1 --out data/adults --cohort all-adults --set memory=8GB \\
        --set work=scratch/mimiciv
    ifonly build --source eicu-collaborative-research-database-2.0 --out data/eicu
    ifonly build --source meds/our-hospital --set codes=codes.yaml --out data/ours
    ifonly build --source mimic-table.csv --out data/ai-clinician --levels paper
    """
    steps, more = options.horizon(horizon), options.settings(settings, SETTINGS)
    if not source.exists():
        raise StoreError(
            f"{source} does not exist; --source takes the folder of MIMIC or eICU, a MEDS dataset, or the AI "
            "Clinician's table."
        )
    if source.is_file() and (cohort is not None or "codes" in more):
        raise typer.BadParameter(
            "--cohort and --set codes need the tables of MIMIC or eICU, or a MEDS dataset; who is in the AI "
            "Clinician's table was chosen when it was made."
        )
    if source.is_dir():
        require_extra("clinical", "duckdb", what="reading clinical tables")
    from ifonly.clinical.build import forget_finished_build, working_folder
    from ifonly.study.clinical import build_options, build_with_pictures
    from ifonly.study.plan import ClinicalData

    who = (cohort or CohortName.SEPSIS3).value
    chosen = build_options(ClinicalData(source, who, steps, levels, **more), overwrite=force)
    forget_finished_build(out, chosen)
    require_free(folder=out, force=force)
    with _telling_what_is_kept(working_folder(out, chosen), out), progress_bars() as bars:
        made, card = build_with_pictures(source, out, chosen, progress=bars)
    for remark in made.remarks:
        note("note", remark)
    _report(made, card, out)
    return ExitCode.DONE


@contextmanager
def _telling_what_is_kept(work: Path, out: Path) -> Iterator[None]:
    """Whatever ends a build early, say what is kept for the next one."""
    try:
        yield
    except BaseException:
        if work.exists():
            note("note", say("build.kept", work=work, out=out))
        raise


def _report(made: Build, card: Card, out: Path) -> None:
    from ifonly.report.overview import Overview
    from ifonly.text.cards import card_warning

    summary, axes = Overview.of(made.cohort), made.cohort.schema.actions.axes
    warnings = [card_warning(warning) for warning in card.warnings]
    Output().tell(
        {
            "cohort": str(out),
            "flow": made.flow.to_dict(),
            "levels": {name: list(level.doses) for name, level in made.levels.items()},
            "remarks": list(made.remarks),
            "warnings": warnings,
            "summary": asdict(summary),
        },
        str(made.flow),
        "",
        str(summary),
        *(f"{axis.name}: {', '.join(map(axis.show, axis.levels))} {axis.unit}" for axis in axes),
        "",
        *([say("build.warnings")] if warnings else []),
        *(f"  - {text}" for text in warnings),
        say("build.stored", out=out, flow=out / "flow.png", card=out / "card" / "card.html"),
        say("next.fit", episodes=out, model=f"models/{out.name}"),
    )
