"""Which stays are in the cohort, which part of each, and how many each rule removed.

Suspected infection and its onset follow Sepsis-3; the flow counts who is left after each rule, as a flow
diagram shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from ifonly.clinical.cache import TableCache, code_of
from ifonly.clinical.grid import STEP_HOURS, VARIABLES, make_grid
from ifonly.data.store import write_parquet
from ifonly.errors import InputError
from ifonly.files import sha256_of
from ifonly.progress import Progress, silent
from ifonly.records import from_plain, to_plain
from ifonly.version import __version__

FORMAT, VERSION = "ifonly.flow", 1
ADULT_AGE = 18.0
CULTURE_WITHIN = 24.0
"""Hours after an antibiotic in which a culture makes it a suspected infection."""
ANTIBIOTIC_WITHIN = 72.0
"""Hours after a culture in which an antibiotic makes it a suspected infection."""
EARLIEST_ONSET = -24.0
"""Hours from admission to intensive care; earlier infections do not belong to the stay."""
LEAST_SOFA = 2

CohortRule = Literal["sepsis3", "all-adults"]
GRID_TABLES = ("measurements", "urine", "ventilation", "vasopressors", "fluids")
TABLES = ("stays", *GRID_TABLES, "antibiotics", "cultures")
"""The event tables; docs/clinical-data.md lists their columns."""
CODE_OF_GRIDS = ("inclusion", "grid", "sofa", "treatments")
"""The modules that make a grid and its flow."""


@dataclass(frozen=True)
class FlowStep:
    """One rule: who was left after it, and who it removed."""

    rule: str
    """Whom the rule keeps, in words."""
    stays: int
    subjects: int
    removed_stays: int = 0
    removed_subjects: int = 0
    """Subjects of whom no stay is left."""


@dataclass(frozen=True)
class Flow:
    """The rules in the order in which they were applied; the first step is what was there to begin with."""

    steps: tuple[FlowStep, ...] = field(default=())

    @property
    def stays(self) -> int:
        """Stays that are left at the end."""
        return self.steps[-1].stays if self.steps else 0

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; `from_dict` gives the same flow back."""
        return {"format": FORMAT, "version": VERSION, **to_plain(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Flow:
        """Read what `to_dict` wrote."""
        if content.get("format") != FORMAT or content.get("version") != VERSION:
            raise InputError(f"flow: not a file of format {FORMAT!r}, version {VERSION}.")
        return from_plain(cls, {"steps": content["steps"]}, what="flow")

    def __str__(self) -> str:
        """One line per rule: stays and subjects left, and how many stays the rule removed."""
        width = max((len(step.rule) for step in self.steps), default=0)
        lines = [f"{'':<{width}}  {'stays':>8}  {'subjects':>8}  {'removed':>8}"]
        for number, step in enumerate(self.steps):
            removed = f"{-step.removed_stays:>8,}" if number and step.removed_stays else f"{'':>8}"
            lines.append(f"{step.rule:<{width}}  {step.stays:>8,}  {step.subjects:>8,}  {removed}".rstrip())
        return "\n".join(lines)


class Sieve:
    """Stays that pass through rules one by one, while a flow is kept.

    `stays` is a table with the columns stay and subject, one row per stay. `rule` says who they are, and `listed`, if
    given, from how many of whom.
    """

    def __init__(self, stays: pl.DataFrame, *, rule: str, listed: FlowStep | None = None) -> None:
        self.stays = stays
        if listed is None:
            self._steps = [FlowStep(rule, stays.height, stays["subject"].n_unique())]
        else:
            self._steps = [listed]
            self._go_on(stays, rule)

    @property
    def flow(self) -> Flow:
        """What happened so far."""
        return Flow(tuple(self._steps))

    def keep(self, condition: pl.Expr, *, rule: str) -> None:
        """Keep the stays for which `condition` (over the columns of `stays`) is true; null counts as false."""
        self._go_on(self.stays.filter(condition), rule)

    def keep_ids(self, ids: Collection[str] | pl.Series, *, rule: str) -> None:
        """Keep these stays."""
        self._go_on(self.stays.filter(pl.col("stay").is_in(pl.Series(list(ids), dtype=pl.String).implode())), rule)

    def _go_on(self, left: pl.DataFrame, rule: str) -> None:
        before = self._steps[-1]
        subjects = left["subject"].n_unique()
        self._steps.append(
            FlowStep(rule, left.height, subjects, before.stays - left.height, before.subjects - subjects)
        )
        self.stays = left
        if left.height == 0:
            raise InputError(
                f"no stay is left: the rule {rule!r} removed the last {before.stays:,}.\n{self.flow}\n"
                "Choose other rules (--cohort all-adults asks for no infection), or check that the tables behind this "
                "rule are complete."
            )


@dataclass(frozen=True)
class Window:
    """The part of a stay that becomes an episode, in hours around onset and in steps.

    `margin` is added on both sides, as the AI Clinician does: 28 hours before onset to 52 after, which is where
    horizons of 20 steps come from.
    """

    before: float = 24.0
    after: float = 48.0
    margin: float = STEP_HOURS
    shortest: int = 10
    longest: int = 20

    def __post_init__(self) -> None:
        if not 2 <= self.shortest <= self.longest:
            raise InputError(
                f"window: {self.shortest} to {self.longest} steps; an episode has at least 2, the fewest come first."
            )
        if min(self.before, self.after, self.margin) < 0:
            raise InputError("window: before, after and margin are hours, and not negative.")


def suspected_infections(antibiotics: pl.DataFrame, cultures: pl.DataFrame) -> pl.DataFrame:
    """Every onset (columns stay, onset) of a suspected infection, from tables with the columns stay and hour.

    An antibiotic followed by a culture within 24 hours, or a culture followed by an antibiotic within 72 hours; the
    onset is the earlier of the two (Seymour et al., JAMA 315 (2016)).
    """
    given, taken = _times(antibiotics), _times(cultures)
    onsets = pl.concat(
        [_followed(given, taken, within=CULTURE_WITHIN), _followed(taken, given, within=ANTIBIOTIC_WITHIN)]
    )
    return onsets.unique().sort("stay", "onset")


def first_onset(stays: pl.DataFrame, infections: pl.DataFrame) -> pl.DataFrame:
    """The first onset (columns stay, onset) from 24 hours before admission to intensive care until its end."""
    during = infections.join(stays.select("stay", "hours"), on="stay").filter(
        pl.col("onset").is_between(EARLIEST_ONSET, pl.col("hours"))
    )
    return during.group_by("stay").agg(pl.col("onset").min()).sort("stay")


def windows_around_onset(stays: pl.DataFrame, window: Window) -> pl.DataFrame:
    """The stays with `start` (hours) and `steps` of the window around the column `onset`, within the stay."""
    start = pl.max_horizontal(pl.lit(0.0), pl.col("onset") - window.before - window.margin)
    end = pl.min_horizontal(pl.col("hours"), pl.col("onset") + window.after + window.margin)
    return _in_steps(stays, start, end, window)


def windows_from_admission(stays: pl.DataFrame, window: Window) -> pl.DataFrame:
    """The stays with `start` (0) and `steps` of a window that begins with the stay."""
    return _in_steps(stays, pl.lit(0.0), pl.col("hours"), window)


def _in_steps(stays: pl.DataFrame, start: pl.Expr, end: pl.Expr, window: Window) -> pl.DataFrame:
    """Whole steps only: in a part of a step, less is given and passed than in four hours."""
    # Seconds decide, so that rounding of hours never costs a step.
    whole = ((end - start) * 3600).round().cast(pl.Int64) // round(STEP_HOURS * 3600)
    return stays.with_columns(start=start, steps=whole.clip(0, window.longest))


def _times(events: pl.DataFrame) -> pl.DataFrame:
    return events.select("stay", "hour").drop_nulls().unique().sort("stay", "hour")


def _followed(first: pl.DataFrame, second: pl.DataFrame, *, within: float) -> pl.DataFrame:
    """The times of `first` that `second` follows, at once or within so many hours."""
    pairs = first.join_asof(
        second.with_columns(follows=pl.col("hour")),
        on="hour",
        by="stay",
        strategy="forward",
        check_sortedness=False,
    )
    # Compared in seconds: hours are rounded numbers, and the limits count as within.
    delay = ((pl.col("follows") - pl.col("hour")) * 3600).round()
    return pairs.filter(delay <= within * 3600).select("stay", onset="hour")


@dataclass(frozen=True)
class Selection:
    """Who is in the cohort."""

    cohort: CohortRule = "sepsis3"
    window: Window = field(default_factory=Window)

    def __post_init__(self) -> None:
        if self.cohort not in get_args(CohortRule):
            raise InputError(f"cohort {self.cohort!r} is unknown; choose from {', '.join(get_args(CohortRule))}.")


@dataclass(frozen=True)
class SelectedStays:
    """The steps of the stays in a cohort, and how it came about."""

    grid: pl.DataFrame
    flow: Flow
    remarks: tuple[str, ...] = ()
    """On values that were changed."""


def select_stays(
    tables: Mapping[str, pl.LazyFrame],
    selection: Selection,
    *,
    listed: FlowStep | None = None,
    progress: Progress = silent,
) -> SelectedStays:
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
    return SelectedStays(kept, sieve.flow)


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
) -> SelectedStays:
    """As `select_stays`, from the files in a working folder; done before with the same files, it is not done again."""
    stages = TableCache(folder)

    def build(path: Path) -> dict[str, Any]:
        tables = {name: pl.scan_parquet(stages.path(name)) for name in TABLES}
        done = select_stays(tables, selection, listed=listed, progress=progress)
        write_parquet(done.grid, path)
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
    return SelectedStays(pl.read_parquet(stages.path("grid")), Flow.from_dict(stages.counts["grid"]))
