"""The table that the AI Clinician's code exports (mimic-table.csv): one row per stay and step of four hours.

Komorowski et al., Nature Medicine 24 (2018). Its values are taken as they are, imputed ones included.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ifonly.clinical.grid import FEATURES
from ifonly.clinical.inclusion import ADULT_AGE, SelectedStays, Sieve, Window
from ifonly.data.store import read_frame
from ifonly.errors import InputError, StoreError

STAY, STEP = "icustayid", "bloc"
SUBJECTS = ("subject_id", "subjectid")
"""Where subjects may stand; the AI Clinician's own table does not have them."""

FEATURE_COLUMNS = {
    "gender": "gender",
    "readmission": "re_admission",
    "age": "age",
    "ventilation": "mechvent",
    "FiO2": "FiO2_1",
    "PaO2": "paO2",
    "platelets": "Platelets_count",
    "bilirubin": "Total_bili",
    "GCS": "GCS",
    "MAP": "MeanBP",
    "creatinine": "Creatinine",
    "urine": "output_4hourly",
    "SOFA": "SOFA",
    "vasopressor": "max_dose_vaso",
    "fluid": "input_4hourly",
}
"""The grid's columns and the table's names for them."""

OUTCOME, OUTCOME_COLUMN = "died_in_hospital", "died_in_hosp"
"""No feature; taken over where the table has it, as the grid of a release does."""

NEVER_NEGATIVE = ("urine", "vasopressor", "fluid")
YES_OR_NO = ("gender", "readmission", "ventilation")
OLDEST = 150.0
"""Ages whose median is above this are days, as the AI Clinician keeps them."""
MOST_OUTSIDE = 0.5
"""If more values of a column lie outside what is possible, the column is another one, or in another unit."""
LARGEST_FRACTION = 1.5
"""FiO2 whose median is above this is a percentage."""


def read_ai_clinician(path: str | Path, window: Window) -> SelectedStays:
    """Steps of adults with enough unbroken steps, as a grid: stay, subject, step and the columns `FEATURE_COLUMNS`.

    Where steps of a stay are missing, its longest unbroken run counts; runs longer than the window allows are cut.
    """
    source = Path(path)
    raw = _read(source)
    names = _found_columns(source, raw.columns)
    rows = _numbers(source, raw, names)
    _check_steps(source, rows)
    rows, remarks = _in_our_units(source, rows)
    if "subject" not in rows.columns:
        rows = rows.with_columns(subject=pl.col("stay"))
        remarks = (
            *remarks,
            "the table has no column subject_id: every stay counts as a subject of its own, so that "
            "stays of one patient can fall on both sides of a split.",
        )
    stays = rows.group_by("stay", maintain_order=True).agg(pl.col("subject", "age").first())
    sieve = Sieve(stays, rule="stays in the table")
    sieve.keep(pl.col("age") >= ADULT_AGE, rule=f"adults ({ADULT_AGE:.0f} years or older)")
    unbroken = _longest_runs(rows)
    lengths = unbroken.group_by("stay", maintain_order=True).len()
    enough = lengths.filter(pl.col("len") >= window.shortest)["stay"]
    sieve.keep_ids(enough, rule=f"at least {window.shortest} steps without a gap")
    kept = unbroken.join(sieve.stays.select("stay"), on="stay", how="semi", maintain_order="left")
    grid = kept.filter(pl.col("step") < window.longest)
    columns = ["stay", "subject", "step", *FEATURE_COLUMNS]
    if OUTCOME in grid.columns:
        grid = grid.with_columns(pl.col(OUTCOME).cast(pl.Boolean))
        columns.append(OUTCOME)
    return SelectedStays(grid.select(columns), sieve.flow, remarks)


def _read(source: Path) -> pl.DataFrame:
    """Every cell of a CSV file as text, in any of the forms in which tables are written."""
    if not source.is_file():
        raise StoreError(f"{source}: does not exist; expected the table that the AI Clinician's code exports.")
    table = read_frame(source)
    if table.height == 0:
        raise InputError(f"{source}: holds no rows.")
    return table


def _found_columns(source: Path, found: list[str]) -> dict[str, str]:
    """Our names and the table's, whatever the case of its letters."""
    spelled = {column.strip().casefold(): column for column in found}
    wanted = {"stay": STAY, "step": STEP, **FEATURE_COLUMNS}
    missing = [theirs for theirs in wanted.values() if theirs.casefold() not in spelled]
    if missing:
        hint = " Are its columns separated by commas?" if len(found) == 1 else ""
        raise InputError(
            f"{source}: columns {', '.join(missing)} are missing; the AI Clinician's table has them, letter for "
            f"letter.{hint}"
        )
    names = {ours: spelled[theirs.casefold()] for ours, theirs in wanted.items()}
    if OUTCOME_COLUMN in spelled:
        names[OUTCOME] = spelled[OUTCOME_COLUMN]
    subject = next((spelled[name] for name in SUBJECTS if name in spelled), None)
    return names if subject is None else {**names, "subject": subject}


def _numbers(source: Path, raw: pl.DataFrame, names: dict[str, str]) -> pl.DataFrame:
    """Ids as text, everything else as numbers; an error names column and row of the first cell that is not."""
    columns = {}
    for ours, theirs in names.items():
        numbers = raw[theirs].cast(pl.Float64, strict=False).alias(ours)
        wrong = (numbers.is_null() | ~numbers.is_finite()).fill_null(True).arg_true()
        if len(wrong):
            raise InputError(
                f"{source}: column {theirs!r}, row {int(wrong[0]) + 1} (not counting the header): missing or not a "
                f"number, as in {len(wrong):,} of {raw.height:,} rows; fill them in, or leave these stays out."
            )
        columns[ours] = numbers
    ids = [name for name in ("stay", "subject") if name in columns]
    table = pl.DataFrame(list(columns.values()))
    return table.with_columns(pl.col(name).cast(pl.Int64).cast(pl.String) for name in ids)


def _check_steps(source: Path, rows: pl.DataFrame) -> None:
    def refuse(mask: pl.Expr, why: str) -> None:
        wrong = rows.select(mask.arg_true()).to_series()
        if len(wrong):
            raise InputError(f"{source}: row {int(wrong[0]) + 1} (not counting the header): {why}.")

    refuse(pl.col("step") != pl.col("step").round(), f"{STEP!r} is not a whole number")
    refuse(~pl.struct("stay", "step").is_first_distinct(), f"the same {STAY!r} and {STEP!r} as in an earlier row")
    theirs = {**FEATURE_COLUMNS, OUTCOME: OUTCOME_COLUMN}
    outcome = (OUTCOME,) if OUTCOME in rows.columns else ()
    for name in (*YES_OR_NO, *outcome):
        refuse(~pl.col(name).is_in([0.0, 1.0]), f"{theirs[name]!r} is neither 0 nor 1")
    for name in ("gender", "readmission", "age", *outcome):
        changes = pl.col(name) != pl.col(name).first().over("stay")
        refuse(changes, f"{theirs[name]!r} differs from an earlier row of the same stay")


def _in_our_units(source: Path, rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Years, percent, and no value that its scale could not take; with remarks on what was changed."""
    remarks = []
    if _median(rows, "age") > OLDEST:
        rows = rows.with_columns(pl.col("age") / 365.25)
        remarks.append("ages are in days, and were turned into years.")
    if _median(rows, "FiO2") <= LARGEST_FRACTION:
        rows = rows.with_columns(pl.col("FiO2") * 100)
    bounds = {feature.name: feature.plausible for feature in FEATURES if feature.scaling == "log"}
    least = {name: span[0] for name, span in bounds.items() if span} | dict.fromkeys(NEVER_NEGATIVE, 0.0)
    for name, bound in least.items():
        low = int((rows[name] < bound).sum())
        if low:
            rows = rows.with_columns(pl.col(name).clip(lower_bound=bound))
            remarks.append(f"{FEATURE_COLUMNS[name]}: {low:,} values below {bound:g} were raised to it.")
    for feature in FEATURES:
        if feature.hard_range is not None:
            rows = rows.with_columns(_into_range(source, rows[feature.name], feature.hard_range, remarks))
    return rows, tuple(remarks)


def _into_range(source: Path, values: pl.Series, span: tuple[float, float], remarks: list[str]) -> pl.Series:
    """Values brought to the ends of the range that they cannot leave, counted; refused where most lie outside."""
    name, (low, high) = FEATURE_COLUMNS[values.name], span
    outside = int((~values.is_between(low, high)).sum())
    if outside > MOST_OUTSIDE * len(values):
        raise InputError(
            f"{source}: column {name!r}: {outside:,} of {len(values):,} values lie outside {low:g} to {high:g}; is it "
            "in another unit, or another column's?"
        )
    if outside:
        remarks.append(f"{name}: {outside:,} values outside {low:g} to {high:g} were brought to its ends.")
    return values.clip(low, high)


def _median(rows: pl.DataFrame, name: str) -> float:
    return float(rows.select(pl.col(name).median()).item())


def _longest_runs(rows: pl.DataFrame) -> pl.DataFrame:
    """Each stay's longest run of consecutive steps (the first of equals), numbered from 0."""
    ordered = rows.with_columns(pl.col("step").cast(pl.Int64)).sort("stay", "step")
    # Within a run, step minus position stays the same.
    run = pl.col("step") - pl.int_range(pl.len()).over("stay")
    runs = ordered.with_columns(run=run).with_columns(length=pl.len().over("stay", "run"))
    chosen = pl.col("run") == pl.col("run").sort_by("length", descending=True, maintain_order=True).first().over("stay")
    return (
        runs.filter(chosen).with_columns(step=pl.col("step") - pl.col("step").min().over("stay")).drop("run", "length")
    )
