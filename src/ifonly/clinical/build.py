"""From a folder of clinical tables, or a table of steps, to a stored cohort that says how it came about."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from ifonly.clinical.ai_clinician import read_ai_clinician
from ifonly.clinical.database import check_limits
from ifonly.clinical.extract import read_events
from ifonly.clinical.grid import DOSE_COLUMNS, FLUIDS, VASOPRESSORS, add_origins, clinical_schema
from ifonly.clinical.inclusion import Flow, SelectedStays, Selection, select_once
from ifonly.clinical.levels import LevelChoice, Levels, assign_actions, choose_levels, keep_plausible, levels_to_dict
from ifonly.clinical.stages import ClinicalSource
from ifonly.data.cohort import Cohort
from ifonly.data.plain import json_text
from ifonly.data.store import save_cohort, write_parquet
from ifonly.data.tables import cohort_from_frame
from ifonly.errors import StoreError
from ifonly.files import atomic_folder, check_writable, none_is_younger, require_absent, require_only, sha256_of
from ifonly.progress import Progress, silent
from ifonly.version import __version__

BUILD_FORMAT, BUILD_VERSION = "ifonly.build", 1
FILES = ("episodes.parquet", "metadata.json", "grid.parquet", "flow.json", "flow.txt", "levels.json", "build.json")
"""What a build stores."""
PICTURES = ("flow.png", "card")
"""What may be added to it."""


@dataclass(frozen=True)
class BuildOptions:
    """How a cohort is built."""

    selection: Selection = field(default_factory=Selection)
    levels: LevelChoice = field(default_factory=LevelChoice)
    codes: Path | None = None
    """The code map of a MEDS dataset, or what to read of MIMIC or eICU besides the packaged lists."""
    memory: str = "4GB"
    """The most memory for reading tables."""
    threads: int | None = None
    """For reading tables; None: all cores."""
    work: Path | None = None
    """Folder for what was read, kept afterwards; None: one beside the cohort, removed once the cohort is stored."""
    overwrite: bool = False


@dataclass(frozen=True)
class Build:
    """A cohort and how it came about."""

    cohort: Cohort
    grid: pl.DataFrame
    """The cohort's rows in original units: doses and, where they are known, masks of what was measured."""
    flow: Flow
    levels: Mapping[str, Levels]
    remarks: tuple[str, ...]
    origin: Mapping[str, Any]
    """Where the data come from, what was read and removed (counts only), and the settings."""


Finish = Callable[[Build, Path], None]
"""Adds `PICTURES` to the cohort's folder before it takes its name."""


def build_cohort(
    source: str | Path | ClinicalSource,
    out: str | Path,
    options: BuildOptions | None = None,
    *,
    progress: Progress = silent,
    finish: Finish | None = None,
) -> Build:
    """Build a cohort and store it in the folder `out`, completely or not at all.

    `source` is a folder as PhysioNet ships it (MIMIC-III, MIMIC-IV, eICU), a MEDS dataset, or the table (a file) that
    the AI Clinician's code exports, or a `ClinicalSource` of your own. What was read from a folder is kept in a
    working folder until the cohort is stored, so that a build that was interrupted goes on where it stopped.
    """
    chosen = options or BuildOptions()
    target = Path(out)
    require_absent(target, unless=chosen.overwrite)
    if isinstance(source, str | Path) and not Path(source).exists():
        raise StoreError(
            f"{source} does not exist; expected a folder with the tables of MIMIC or eICU, a MEDS dataset, or the AI "
            "Clinician's table."
        )
    check_writable(target, folder=True)
    require_only(target, {*FILES, *(PICTURES if finish is not None else ())})  # before hours of reading
    check_limits(memory=chosen.memory, threads=chosen.threads)
    chosen.levels.check()
    if isinstance(source, str | Path) and not Path(source).is_dir():
        build = _from_table(Path(source), chosen)
    else:
        build = _from_events(source, working_folder(target, chosen), chosen, progress)
    _store(build, target, overwrite=chosen.overwrite, finish=finish)
    if chosen.work is None:
        shutil.rmtree(working_folder(target, chosen), ignore_errors=True)
    return build


def working_folder(out: str | Path, options: BuildOptions) -> Path:
    """Where a build of the cohort `out` keeps what it has read."""
    target = Path(out).absolute()
    return options.work or target.parent / f".{target.name}-work"


def forget_finished_build(out: Path, options: BuildOptions) -> None:
    """Remove what a build had read that was killed once its cohort was stored."""
    work = working_folder(out, options)
    if options.work is None and none_is_younger(work.rglob("*"), out / "build.json"):
        shutil.rmtree(work, ignore_errors=True)


def _from_events(source: str | Path | ClinicalSource, work: Path, options: BuildOptions, progress: Progress) -> Build:
    events = read_events(
        source, work, codes=options.codes, memory=options.memory, threads=options.threads, progress=progress
    )
    selected = select_once(events.folder, options.selection, listed=events.listed, progress=progress)
    origin = {"source": events.release, "events": events.counts}
    return _finished(replace(selected, remarks=events.notes), origin, options)


def _from_table(table: Path, options: BuildOptions) -> Build:
    origin = {"source": "table of the AI Clinician", "table": table.name, "sha256": sha256_of(table)}
    return _finished(read_ai_clinician(table, options.selection.window), origin, options)


def _finished(selected: SelectedStays, origin: Mapping[str, Any], options: BuildOptions) -> Build:
    """The cohort of a grid's steps; stays with a dose that cannot be are left out first, lest it shape the levels."""
    selected = keep_plausible(selected)
    grid = selected.grid
    levels, more = choose_levels(grid, options.levels)
    schema = clinical_schema(levels[VASOPRESSORS].doses, levels[FLUIDS].doses)
    rows = add_origins(grid).rename({"stay": "episode"}).with_columns(action=pl.Series(assign_actions(grid, levels)))
    settings = {"selection": asdict(options.selection), "levels": asdict(options.levels)}
    return Build(
        cohort=cohort_from_frame(rows, schema),
        grid=grid,
        flow=selected.flow,
        levels=levels,
        remarks=(*selected.remarks, *more),
        origin={**origin, "settings": settings},
    )


def _store(build: Build, target: Path, *, overwrite: bool, finish: Finish | None) -> None:
    with atomic_folder(target, overwrite=overwrite) as folder:
        provenance = {"made by": "ifonly build", "source": build.origin["source"], **build.origin["settings"]}
        # Into the fresh folder, which is empty: the cohort's own files are written first.
        save_cohort(build.cohort, folder, provenance=provenance, overwrite=True)
        write_parquet(build.grid, folder / "grid.parquet")
        (folder / "flow.txt").write_text(f"{build.flow}\n", encoding="utf-8")
        uses = {name: level.counts(build.grid[DOSE_COLUMNS[name]].to_numpy()) for name, level in build.levels.items()}
        head = {"format": BUILD_FORMAT, "version": BUILD_VERSION, "ifonly": __version__}
        documents = {
            "flow.json": build.flow.to_dict(),
            "levels.json": levels_to_dict(build.levels) | {"steps with each level": uses},
            "build.json": head | {"remarks": list(build.remarks)} | dict(build.origin),
        }
        for name, content in documents.items():
            (folder / name).write_text(json_text(content), encoding="utf-8")
        if finish is not None:
            finish(build, folder)
