"""From event tables to the grid of a cohort: which stays, which part of them, and what each rule removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from ifonly.clinical.flow import Flow, FlowStep, Sieve
from ifonly.clinical.grid import VARIABLES, make_grid
from ifonly.clinical.sepsis import (
    ADULT_AGE,
    EARLIEST_ONSET,
    LEAST_SOFA,
    Window,
    first_onset,
    suspected_infections,
    windows_around_onset,
    windows_from_admission,
)
from ifonly.clinical.stages import Stages, code_of
from ifonly.errors import InputError
from ifonly.files import sha256_of
from ifonly.progress import Progress, silent
from ifonly.version import __version__

CohortRule = Literal["sepsis3", "all-adults"]
GRID_TABLES = ("measurements", "urine", "ventilation", "vasopressors", "fluids")
TABLES = ("stays", "antibiotics", "cultures", *GRID_TABLES)
CODE_OF_GRIDS = ("selection", "flow", "sepsis", "grid", "sofa", "treatments")
"""The modules that make a grid and its flow."""


@dataclass(frozen=True)
class Selection:
    """Who is in the cohort."""

    cohort: CohortRule = "sepsis3"
    window: Window = field(default_factory=Window)

    def __post_init__(self) -> None:
        if self.cohort not in get_args(CohortRule):
            raise InputError(f"cohort {self.cohort!r} is unknown; choose from {', '.join(get_args(CohortRule))}.")


@dataclass(frozen=True)
class Sieved:
    """What is left, step by step, and how it came about."""

    grid: pl.DataFrame
    flow: Flow


def select_stays(
    tables: Mapping[str, pl.LazyFrame],
    selection: Selection,
    *,
    listed: FlowStep | None = None,
    progress: Progress = silent,
) -> Sieved:
    """The grid of the stays that every rule keeps, and the flow; `tables` by the names `TABLES`.

    The flow begins with the stays that were `listed`, or else with those of the table of stays.
    """
    stays = tables["stays"].sort("stay").collect()
    sieve = Sieve(stays, rule="listed once, of some duration, patient's age and sex known", listed=listed)
    sieve.keep(pl.col("age") >= ADULT_AGE, rule=f"adults ({ADULT_AGE:.0f} years or older)")
    if selection.cohort == "sepsis3":
        _keep_infected(sieve, tables)
        sieve.stays = windows_around_onset(sieve.stays, selection.window)
    else:
        sieve.stays = windows_from_admission(sieve.stays, selection.window)
    sieve.keep(pl.col("steps") > 0, rule="at least one whole step of 4 hours")
    shortest = selection.window.shortest
    sieve.keep(pl.col("steps") >= shortest, rule=f"at least {shortest} steps")
    grid = make_grid(sieve.stays, {name: tables[name] for name in GRID_TABLES}, progress=progress)
    _keep_by_grid(sieve, grid, selection)
    kept = grid.join(sieve.stays.select("stay"), on="stay", how="semi", maintain_order="left")
    return Sieved(kept, sieve.flow)


def _keep_infected(sieve: Sieve, tables: Mapping[str, pl.LazyFrame]) -> None:
    stays = sieve.stays.lazy().select("stay")
    antibiotics, cultures = (
        tables[name].join(stays, on="stay", how="semi").collect() for name in ("antibiotics", "cultures")
    )
    infections = suspected_infections(antibiotics, cultures)
    sieve.keep_ids(infections["stay"].unique(), rule="suspected infection (antibiotic and culture close in time)")
    onset = first_onset(sieve.stays, infections)
    sieve.keep_ids(onset["stay"], rule=f"onset during the stay, or at most {-EARLIEST_ONSET:.0f} hours before it")
    sieve.stays = sieve.stays.join(onset, on="stay", maintain_order="left")


def _keep_by_grid(sieve: Sieve, grid: pl.DataFrame, selection: Selection) -> None:
    """Rules that need to know what happened within the window."""
    measured = pl.any_horizontal(f"measured_{variable.feature}" for variable in VARIABLES).any()
    stays = grid.group_by("stay").agg(measured.alias("measured"), pl.col("SOFA").max())
    sieve.keep_ids(stays.filter("measured")["stay"], rule="something measured in these steps")
    if selection.cohort == "sepsis3":
        septic = stays.filter(pl.col("SOFA") >= LEAST_SOFA)["stay"]
        sieve.keep_ids(septic, rule=f"SOFA of {LEAST_SOFA} or more in one of them")


def select_once(
    folder: Path, selection: Selection, *, listed: FlowStep | None = None, progress: Progress = silent
) -> Sieved:
    """As `select_stays`, from the files in a working folder; done before with the same files, it is not done again."""
    stages = Stages(folder)

    def build(path: Path) -> dict[str, Any]:
        tables = {name: pl.scan_parquet(stages.path(name)) for name in TABLES}
        done = select_stays(tables, selection, listed=listed, progress=progress)
        done.grid.write_parquet(path)
        return done.flow.to_dict()

    files = {name: sha256_of(stages.path(name)) for name in TABLES}
    recipe = {
        "ifonly": __version__,
        "code": code_of(*CODE_OF_GRIDS),
        "tables": files,
        "selection": asdict(selection),
        "listed": None if listed is None else asdict(listed),
    }
    stages.make("grid", recipe, build)
    return Sieved(pl.read_parquet(stages.path("grid")), Flow.from_dict(stages.counts["grid"]))
