"""From events to steps of four hours: what was measured, what is carried forward, what was given.

A value counts for the step in which it was charted, from the step's beginning up to, but not including, its end. Until
the next one it is held, at most for the variable's limit; then it is unknown, and a stated default stands in its place.
No step uses later events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from ifonly.clinical.sofa import COMPONENTS, add_sofa
from ifonly.clinical.treatments import MOST_FLUID, MOST_RATE, Floats, amount_per_step, maximum_rate
from ifonly.data.episode import Origin
from ifonly.data.field_words import CLINICAL
from ifonly.data.organs import SOFA
from ifonly.data.schema import ActionSpace, Axis, Feature, Schema
from ifonly.data.scores import Score
from ifonly.data.tables import origin_column
from ifonly.progress import Progress, Tick, silent

STEP_HOURS = 4.0
VASOPRESSORS, FLUIDS = "vasopressors", "fluids"
UNITS = {VASOPRESSORS: "mcg/kg/min", FLUIDS: "mL/4 h"}
PLAUSIBLE_DOSES = {VASOPRESSORS: (0.0, MOST_RATE), FLUIDS: (0.0, float(MOST_FLUID))}
"""In a step: no more than one row may say; more is a slip, or another unit."""
DOSE_COLUMNS = {VASOPRESSORS: "vasopressor", FLUIDS: "fluid"}
"""The column of a grid with the dose of each axis."""

FEATURES = (
    Feature("gender", "static", unit="1 = female", scaling="none", plausible=(0, 1)),
    Feature("readmission", "static", unit="1 = yes", scaling="none", plausible=(0, 1)),
    Feature("age", "static", unit="years", plausible=(18, 100)),
    Feature("ventilation", "contextual", unit="1 = yes", scaling="none", plausible=(0, 1)),
    Feature("FiO2", "dynamic", unit="%", scaling="bounded", plausible=(20, 100)),
    Feature("PaO2", "dynamic", unit="mmHg", scaling="log", plausible=(10, 700)),
    Feature("platelets", "dynamic", unit="10^9/L", scaling="log", plausible=(1, 2000)),
    Feature("bilirubin", "dynamic", unit="mg/dL", scaling="log", plausible=(0.1, 80)),
    Feature("GCS", "dynamic", unit="points", scaling="bounded", plausible=(3, 15)),
    Feature("MAP", "dynamic", unit="mmHg", plausible=(10, 250)),
    Feature("creatinine", "dynamic", unit="mg/dL", scaling="log", plausible=(0.05, 60)),
    # Zero is common; the offset keeps its logarithm finite and small volumes close to each other.
    Feature("urine", "dynamic", unit="mL/4 h", scaling="log", plausible=(0, 5000), log_offset=30.0),
    Feature("SOFA", "dynamic", unit="points", scaling="bounded", plausible=(0, 24)),
)

SCORES = (
    Score(
        "SOFA",
        {name: name for name in SOFA.inputs},
    ),
)
"""SOFA and the organ values that it is made of."""


def clinical_schema(vasopressors: Sequence[float], fluids: Sequence[float]) -> Schema:
    """The schema with these dose levels; features, units and scaling are those of the simulated world.

    A model of simulated stays thus fits clinical ones with the same levels.
    """
    return Schema(
        features=FEATURES,
        actions=ActionSpace.product(_axis(VASOPRESSORS, vasopressors), _axis(FLUIDS, fluids)),
        step_length=STEP_HOURS,
        step_unit="h",
        scores=SCORES,
        words=CLINICAL,
    )


def _axis(name: str, levels: Sequence[float]) -> Axis:
    return Axis(name, UNITS[name], tuple(levels), PLAUSIBLE_DOSES[name])


STEP_SECONDS = round(STEP_HOURS * 3600)
DAY_SECONDS = 24 * 3600
ROOM_AIR = 21.0
"""FiO2 (%) where none was charted; for oxygenation only while there is no ventilation."""
VENTILATION_HOLD = 8.0
"""Hours after which ventilation is no longer assumed without new evidence."""
CHUNK = 4000
"""Stays whose events are in memory at a time."""


@dataclass(frozen=True)
class Variable:
    """How one kind of measurement becomes a column of the grid."""

    feature: str
    source: str
    """The variable's name in the table of measurements."""
    hold: float
    """A value of an earlier step still counts if it was at most this many hours old when the step began."""
    default: float
    """Stands for unknown values; scores no point of SOFA."""
    within: Literal["mean", "last"] = "mean"
    """How several values of one step are combined."""
    factor: float = 1.0
    """From the table's unit to the grid's."""
    least: float | None = None
    """Smaller values count as this one: a limit of detection."""


VARIABLES = (
    Variable("FiO2", "fio2", hold=12, default=ROOM_AIR, factor=100),
    Variable("PaO2", "pao2", hold=24, default=95),
    Variable("platelets", "platelets", hold=48, default=250),
    Variable("bilirubin", "bilirubin", hold=48, default=0.7, least=0.1),
    Variable("GCS", "gcs", hold=12, default=15, within="last"),
    Variable("MAP", "mean_bp", hold=8, default=80),
    Variable("creatinine", "creatinine", hold=48, default=0.9),
)
"""Limits and defaults, with reasons and references in docs/clinical-data.md."""

STATIC = ("gender", "readmission", "age")
DYNAMIC = (*(variable.feature for variable in VARIABLES), "urine", "SOFA")
MEASURED = (*(variable.feature for variable in VARIABLES), "urine", "ventilation")
"""What has a column `measured_...`: whether it was charted within the step."""
BEHIND_SOFA = ("PaO2", "platelets", "bilirubin", "MAP", "GCS", "creatinine", "urine")
"""A measurement of each organ's points; where one of them was charted, SOFA counts as measured."""
COLUMNS = (
    ("stay", "subject", "step", "hour"),
    STATIC,
    ("ventilation",),
    DYNAMIC,
    ("vasopressor", "fluid"),
    tuple(f"known_{variable.feature}" for variable in VARIABLES),
    tuple(f"measured_{name}" for name in MEASURED),
    ("oxygenation", *COMPONENTS),
    ("died_in_hospital",),
)
"""The columns of a grid, in groups.

Whether the patient died in hospital (null if unknown) is no feature, nor is oxygenation, PaO2 over FiO2 of the same
moment (mmHg; null if unknown), which the points for respiration rest on.
"""

Tables = Mapping[str, pl.LazyFrame]
"""Event tables by name: measurements, urine, ventilation, vasopressors, fluids."""


def make_grid(windows: pl.DataFrame, tables: Tables, *, progress: Progress = silent) -> pl.DataFrame:
    """One row per stay and step, with the columns `COLUMNS`.

    `windows` has one row per stay: stay, subject, age, female, readmission, died_in_hospital, start (hours since
    admission to intensive care at which step 0 begins) and steps (their number). Events are read for some thousand
    stays at a time.
    """
    parts = []
    for first in range(0, windows.height, CHUNK):
        chunk = windows[first : first + CHUNK]
        parts.append(_grid_of(chunk, _events_of(chunk, tables)))
        progress(Tick("grid", min(first + CHUNK, windows.height), windows.height))
    return pl.concat(parts) if parts else _grid_of(windows, _events_of(windows, tables))


def _events_of(windows: pl.DataFrame, tables: Tables) -> dict[str, pl.DataFrame]:
    stays = windows.lazy().select("stay")
    return {
        name: table.join(stays, on="stay", how="semi").collect(engine="streaming") for name, table in tables.items()
    }


def _grid_of(windows: pl.DataFrame, events: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    steps = lay_steps(windows)
    measurements = in_seconds(events["measurements"])
    for variable in VARIABLES:
        steps = _add_measured(steps, _charted(measurements, variable), variable)
    states = _ventilation_states(in_seconds(events["ventilation"]))
    steps = _add_oxygenation(steps, measurements, states)
    steps = _add_ventilation(steps, states)
    steps = _add_urine(steps, in_seconds(events["urine"]))
    steps = _add_treatments(steps, events["vasopressors"], events["fluids"])
    # SOFA before defaults, so that it sees what is unknown.
    return _with_defaults(add_sofa(steps)).select(name for group in COLUMNS for name in group)


def lay_steps(windows: pl.DataFrame) -> pl.DataFrame:
    """A row for every step of every window: who, when (`begin`, `end` in whole seconds since admission)."""
    return (
        windows.select(
            "stay",
            "subject",
            pl.col("age").cast(pl.Float64),
            pl.col("readmission").cast(pl.Float64),
            pl.col("female").cast(pl.Float64).alias("gender"),
            "died_in_hospital",
            pl.int_ranges(0, pl.col("steps")).alias("step"),
            first=_seconds("start"),
        )
        .explode("step")
        .drop_nulls("step")
        .with_columns(begin=pl.col("first") + pl.col("step") * STEP_SECONDS)
        .with_columns(end=pl.col("begin") + STEP_SECONDS, hour=pl.col("begin") / 3600)
    )


def in_seconds(events: pl.DataFrame) -> pl.DataFrame:
    """The events with `second` in place of `hour`: whole numbers, in which boundaries of steps are exact."""
    return events.with_columns(second=_seconds("hour")).drop("hour")


def _seconds(column: str) -> pl.Expr:
    return (pl.col(column) * 3600).round().cast(pl.Int64)


def _charted(measurements: pl.DataFrame, variable: Variable) -> pl.DataFrame:
    """A variable's events (stay, second, value) in the unit of the grid, sorted."""
    value = pl.col("value") * variable.factor
    if variable.least is not None:
        value = value.clip(lower_bound=variable.least)
    # Sorted by value too, so that sums run in the same order every time.
    mine = measurements.filter(pl.col("variable") == variable.source)
    return mine.select("stay", "second", value=value).sort("stay", "second", "value")


def _one_per_moment(charted: pl.DataFrame, variable: Variable) -> pl.DataFrame:
    """Of values charted in the same moment, GCS takes the worst and others the mean."""
    same_time = pl.col("value").mean() if variable.within == "mean" else pl.col("value").min()
    return charted.group_by("stay", "second", maintain_order=True).agg(same_time)


def _add_measured(steps: pl.DataFrame, charted: pl.DataFrame, variable: Variable) -> pl.DataFrame:
    """`steps` with the variable's value, null where unknown, and whether it was charted within the step."""
    last = _one_per_moment(charted, variable)
    if variable.within == "mean":
        within = _by_step(steps, charted, pl.col("value").mean())
    else:
        within = _by_step(steps, last, pl.col("value").last())
    held = pl.when(pl.col("begin") - pl.col("second") <= variable.hold * 3600).then(pl.col("value"))
    measured = pl.col("in_step").is_not_null()
    return (
        _join_steps(steps, within)
        .pipe(_join_last, last, before="begin")
        .with_columns(
            pl.coalesce("in_step", held).alias(variable.feature), measured.alias(f"measured_{variable.feature}")
        )
        .drop("in_step", "second", "value")
    )


def _by_step(steps: pl.DataFrame, events: pl.DataFrame, summary: pl.Expr) -> pl.DataFrame:
    """Columns stay, step, in_step: a summary of the events of each step that has any."""
    windows = steps.group_by("stay", maintain_order=True).agg(pl.col("first").first(), pl.len().alias("steps"))
    return (
        events.join(windows, on="stay", maintain_order="left")
        .with_columns(step=(pl.col("second") - pl.col("first")) // STEP_SECONDS)
        .filter((pl.col("step") >= 0) & (pl.col("step") < pl.col("steps")))
        .group_by("stay", "step", maintain_order=True)
        .agg(summary.alias("in_step"))
    )


def _join_steps(steps: pl.DataFrame, columns: pl.DataFrame) -> pl.DataFrame:
    return steps.join(columns, on=["stay", "step"], how="left", maintain_order="left")


def _join_last(steps: pl.DataFrame, events: pl.DataFrame, *, before: str, or_at: bool = False) -> pl.DataFrame:
    """The columns of the stay's last event before (or at) a moment; events are sorted by stay and second."""
    return steps.join_asof(
        events,
        left_on=before,
        right_on="second",
        by="stay",
        strategy="backward",
        allow_exact_matches=or_at,
        coalesce=False,
        check_sortedness=False,
    )


def _add_oxygenation(steps: pl.DataFrame, measurements: pl.DataFrame, states: pl.DataFrame) -> pl.DataFrame:
    """`oxygenation`: PaO2 over FiO2 of the moment at which the blood was drawn, held as PaO2 is; null if unknown.

    FiO2 is the last one charted by then, if it still counts. Without one a patient breathes room air, unless ventilated
    at that moment: how much oxygen a ventilator gives is not known then, and neither is the ratio.
    """
    by_source = {variable.source: variable for variable in VARIABLES}
    oxygen, inspired = (
        _one_per_moment(_charted(measurements, by_source[name]), by_source[name]) for name in ("pao2", "fio2")
    )
    drawn = pl.col("drawn")
    fresh = pl.when(drawn - pl.col("second") <= by_source["fio2"].hold * 3600).then(pl.col("value"))
    ventilated = (pl.col("on") & (drawn - pl.col("second") <= VENTILATION_HOLD * 3600)).fill_null(False)
    gases = (
        oxygen.rename({"second": "drawn", "value": "oxygen"})
        .pipe(_join_last, inspired, before="drawn", or_at=True)
        .with_columns(inspired=fresh)
        .drop("second", "value")
        .pipe(_join_last, states, before="drawn", or_at=True)
        .with_columns(inspired=pl.coalesce("inspired", pl.when(~ventilated).then(ROOM_AIR)))
    )
    ratios = gases.select("stay", second="drawn", value=100.0 * pl.col("oxygen") / pl.col("inspired")).drop_nulls()
    made = _add_measured(steps, ratios, replace(by_source["pao2"], feature="oxygenation"))
    # Without rounding errors, which would push a ratio of 400 to either side.
    return made.with_columns(pl.col("oxygenation").round(9))


def _ventilation_states(evidence: pl.DataFrame) -> pl.DataFrame:
    """Columns stay, second, on: one per moment, sorted; off outweighs on in the same moment."""
    return evidence.sort("stay", "second").group_by("stay", "second", maintain_order=True).agg(pl.col("on").all())


def _add_ventilation(steps: pl.DataFrame, states: pl.DataFrame) -> pl.DataFrame:
    """1 for steps with evidence of ventilation, and for those at whose beginning it goes on."""
    recent = pl.col("begin") - pl.col("second") <= VENTILATION_HOLD * 3600
    return (
        _join_steps(steps, _by_step(steps, states, pl.col("on").any()))
        .pipe(_join_last, states, before="begin", or_at=True)
        .with_columns(
            ventilation=(pl.col("in_step").fill_null(False) | (pl.col("on") & recent).fill_null(False)).cast(
                pl.Float64
            ),
            measured_ventilation=pl.col("in_step").is_not_null(),
        )
        .drop("in_step", "second", "on")
    )


def _add_urine(steps: pl.DataFrame, urine: pl.DataFrame) -> pl.DataFrame:
    """`urine` (mL in the step) and `urine_day` (mL in the 24 hours until its end), null where that is not known.

    The day's urine counts from 24 hours after admission to intensive care, if any urine was charted in that time.
    """
    passed = urine.sort("stay", "second", "ml")
    total = (
        passed.group_by("stay", "second", maintain_order=True)
        .agg(pl.col("ml").sum())
        .with_columns(total=pl.col("ml").cum_sum().over("stay"))
        .drop("ml")
    )
    steps = _join_steps(steps, _by_step(steps, passed, pl.col("ml").sum())).with_columns(
        urine=pl.col("in_step").fill_null(0.0).clip(lower_bound=0.0), measured_urine=pl.col("in_step").is_not_null()
    )
    until_end = _join_last(steps, total, before="end").select("total", "second")
    until_day_before = _join_last(
        steps.with_columns(day_before=pl.col("end") - DAY_SECONDS), total, before="day_before"
    ).select(earlier=pl.col("total").fill_null(0.0))
    a_day_in = pl.col("end") >= DAY_SECONDS
    charted = pl.col("second") >= pl.col("end") - DAY_SECONDS
    return (
        pl.concat([steps, until_end, until_day_before], how="horizontal")
        .with_columns(urine_day=pl.when(a_day_in & charted).then(_difference("total", "earlier")))
        .drop("in_step", "total", "second", "earlier")
    )


def _difference(later: str, earlier: str) -> pl.Expr:
    """Of two running sums, without the rounding error that would push a sum of 500 below 500."""
    return (pl.col(later) - pl.col(earlier)).round(6)


def _add_treatments(steps: pl.DataFrame, vasopressors: pl.DataFrame, fluids: pl.DataFrame) -> pl.DataFrame:
    """`vasopressor` (highest rate of the step) and `fluid` (mL in the step); 0 where nothing was given."""
    return steps.with_columns(
        vasopressor=_per_stay(steps, vasopressors.select("stay", "start", "stop", "rate"), maximum_rate),
        fluid=_per_stay(steps, fluids.select("stay", "start", "stop", "ml"), amount_per_step),
    )


def _per_stay(steps: pl.DataFrame, intervals: pl.DataFrame, summary: Callable[[Floats, Floats], Floats]) -> pl.Series:
    """What `summary` makes of a stay's intervals (start, stop, quantity) and the edges of its steps, for all rows."""
    given = {
        stay: table.drop("stay").to_numpy()
        for (stay,), table in intervals.sort(intervals.columns).partition_by("stay", as_dict=True).items()
    }
    result = np.zeros(steps.height)
    rows = steps.with_row_index("row").group_by("stay", maintain_order=True)
    for stay, row, count, first in rows.agg(pl.col("row").first(), pl.len(), pl.col("first").first()).iter_rows():
        if stay in given:
            edges = (first + STEP_SECONDS * np.arange(count + 1)) / 3600
            result[row : row + count] = summary(given[stay], edges)
    return pl.Series(result)


def _with_defaults(steps: pl.DataFrame) -> pl.DataFrame:
    """Unknown values replaced by defaults, and a column `known_...` that is true where a value was known."""
    known = [pl.col(v.feature).is_not_null().alias(f"known_{v.feature}") for v in VARIABLES]
    filled = [pl.col(v.feature).fill_null(v.default) for v in VARIABLES]
    return steps.with_columns(known).with_columns(*filled, pl.col("SOFA").cast(pl.Float64))


def add_origins(grid: pl.DataFrame) -> pl.DataFrame:
    """The grid with the origin of each entry of the states, in the columns that a stored cohort has for them.

    What was charted within its step was measured; what is still held was carried forward; a default was assumed, and so
    was no urine where none was charted. A grid without masks, such as the AI Clinician's table, is left as it is.
    """
    if not {f"measured_{name}" for name in MEASURED} <= set(grid.columns):
        return grid
    known = {variable.feature: pl.col(f"known_{variable.feature}") for variable in VARIABLES} | {"urine": pl.lit(False)}
    sources = {name: (pl.col(f"measured_{name}"), known[name]) for name in known}
    sources["SOFA"] = (
        pl.any_horizontal(sources[name][0] for name in BEHIND_SOFA),
        pl.any_horizontal(sources[name][1] for name in BEHIND_SOFA),
    )
    return grid.with_columns(
        pl.when(sources[name][0])
        .then(Origin.MEASURED.value)
        .when(sources[name][1])
        .then(Origin.CARRIED.value)
        .otherwise(Origin.ASSUMED.value)
        .cast(pl.UInt8)
        .alias(origin_column(name))
        for name in DYNAMIC
    )
