"""The AI Clinician's table, invented: read, checked, cut to unbroken steps, and built into a cohort."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from ai_clinician_rows import rows_of

from ifonly.clinical.ai_clinician import FEATURE_COLUMNS, read_ai_clinician
from ifonly.clinical.build import Build, BuildOptions, build_cohort
from ifonly.clinical.inclusion import Selection, Window
from ifonly.clinical.levels import LevelChoice
from ifonly.data.store import load_cohort, load_metadata
from ifonly.errors import InputError, StoreError

WINDOW = Window(shortest=3, longest=5)


def written(folder: Path, *parts: pl.DataFrame, name: str = "mimic-table.csv") -> Path:
    pl.concat(parts, how="vertical_relaxed").write_csv(folder / name)
    return folder / name


def test_values_steps_and_units(tmp_path: Path) -> None:
    raw = rows_of(7, [1, 2, 3, 4])
    made = read_ai_clinician(written(tmp_path, raw, rows_of(8, [1, 2, 3])), WINDOW).grid
    mine = made.filter(stay="7")
    assert mine["step"].to_list() == [0, 1, 2, 3]
    assert mine["FiO2"].to_list() == pytest.approx((100 * raw["FiO2_1"]).to_list())
    assert mine["age"].to_list() == pytest.approx((raw["age"] / 365.25).to_list())
    same = ["SOFA", "GCS", "MAP", "PaO2", "platelets", "creatinine", "vasopressor", "fluid", "urine", "gender"]
    for name in same:
        assert mine[name].to_list() == pytest.approx(raw[FEATURE_COLUMNS[name]].cast(pl.Float64).to_list()), name


def test_death_in_hospital_is_taken_over_where_the_table_has_it(tmp_path: Path) -> None:
    parts = [rows_of(stay, [1, 2, 3], died_in_hosp=float(stay == 2)) for stay in (1, 2)]
    made = read_ai_clinician(written(tmp_path, *parts), WINDOW).grid
    assert dict(made.select("stay", "died_in_hospital").rows()) == {"1": False, "2": True}
    assert "died_in_hospital" not in read_ai_clinician(written(tmp_path, rows_of(1, [1, 2, 3])), WINDOW).grid.columns
    odd = rows_of(1, [1, 2, 3], died_in_hosp=2.0)
    with pytest.raises(InputError, match="'died_in_hosp' is neither 0 nor 1"):
        read_ai_clinician(written(tmp_path, odd), WINDOW)


def test_years_and_percent_are_left_as_they_are(tmp_path: Path) -> None:
    path = written(tmp_path, rows_of(1, [1, 2, 3], age=64.5, FiO2_1=40.0), rows_of(2, [1, 2, 3], age=70.0, FiO2_1=50.0))
    read = read_ai_clinician(path, WINDOW)
    assert set(read.grid["age"]) == {64.5, 70.0}
    assert set(read.grid["FiO2"]) == {40.0, 50.0}
    assert not [remark for remark in read.remarks if "ages" in remark]


def test_the_longest_unbroken_run_counts_and_is_cut(tmp_path: Path) -> None:
    late_run, gap = rows_of(1, [1, 2, 5, 6, 7]), rows_of(2, [1, 2, 4, 5])
    long = rows_of(3, list(range(1, 9)))
    tie = rows_of(4, [1, 2, 3, 5, 6, 7])
    child = rows_of(5, [1, 2, 3], age=5000.0)
    read = read_ai_clinician(written(tmp_path, late_run, gap, long, tie, child), WINDOW)
    assert [(step.stays, step.removed_stays) for step in read.flow.steps] == [(5, 0), (4, 1), (3, 1)]
    made = {name: part for (name,), part in read.grid.partition_by("stay", as_dict=True).items()}
    assert {name: part["step"].to_list() for name, part in made.items()} == {
        "1": [0, 1, 2],
        "3": [0, 1, 2, 3, 4],
        "4": [0, 1, 2],
    }
    assert made["1"]["MAP"].to_list() == pytest.approx(late_run["MeanBP"][2:].to_list())
    assert made["4"]["MAP"].to_list() == pytest.approx(tie["MeanBP"][:3].to_list())


def test_order_of_rows_and_case_of_headers_do_not_matter(tmp_path: Path) -> None:
    table = pl.concat([rows_of(1, [1, 2, 3]), rows_of(2, [1, 2, 3, 4])])
    plain = read_ai_clinician(written(tmp_path, table), WINDOW)
    shuffled = table.sample(fraction=1.0, shuffle=True, seed=1)
    shuffled = shuffled.rename({name: name.upper() for name in shuffled.columns})
    assert read_ai_clinician(written(tmp_path, shuffled, name="b.csv"), WINDOW).grid.equals(plain.grid)


def test_subjects_are_used_where_there_are_any(tmp_path: Path) -> None:
    table = pl.concat([rows_of(1, [1, 2, 3]), rows_of(2, [1, 2, 3])]).with_columns(subject_id=pl.lit(9))
    read = read_ai_clinician(written(tmp_path, table), WINDOW)
    assert set(read.grid["subject"]) == {"9"}
    without = read_ai_clinician(written(tmp_path, table.drop("subject_id")), WINDOW)
    assert set(without.grid["subject"]) == {"1", "2"}
    assert "subject of its own" in without.remarks[-1]


def test_values_that_no_logarithm_takes_are_raised_and_counted(tmp_path: Path) -> None:
    table = rows_of(1, [1, 2, 3]).with_columns(Total_bili=pl.Series([0.0, 0.05, 3.0]), input_4hourly=pl.lit(-5.0))
    read = read_ai_clinician(written(tmp_path, table), WINDOW)
    assert read.grid["bilirubin"].to_list() == [0.1, 0.1, 3.0]
    assert read.grid["fluid"].to_list() == [0.0] * 3
    assert "Total_bili: 2 values below 0.1 were raised to it." in read.remarks


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop("GCS", "bloc"), "columns bloc, GCS are missing"),
        (lambda t: t.with_columns(MeanBP=pl.Series([70.0, None, 80.0])), r"'MeanBP', row 2 .* 1 of 3 rows"),
        (lambda t: t.with_columns(MeanBP=pl.Series([70.0, 70.0, float("nan")])), r"'MeanBP', row 3"),
        (lambda t: t.with_columns(SOFA=pl.Series(["3", "x9", "4"])), r"'SOFA', row 2 "),
        (lambda t: t.with_columns(bloc=pl.Series([1, 1, 2])), r"row 2 .* same 'icustayid' and 'bloc'"),
        (lambda t: t.with_columns(bloc=pl.Series([1.0, 1.5, 2.0])), r"row 2 .*'bloc' is not a whole number"),
        (lambda t: t.with_columns(mechvent=pl.Series([0, 1, 2])), r"row 3 .*'mechvent' is neither 0 nor 1"),
        (lambda t: t.with_columns(age=pl.Series([20_000, 20_000, 20_001])), r"row 3 .*'age' differs"),
        (lambda t: t.head(0), "holds no rows"),
        (lambda t: t.head(2), "'at least 3 steps without a gap' removed the last 1"),
    ],
)
def test_bad_tables(tmp_path: Path, change: Any, message: str) -> None:
    path = written(tmp_path, change(rows_of(1, [1, 2, 3])))
    with pytest.raises(InputError, match=message) as failure:
        read_ai_clinician(path, WINDOW)
    assert "x9" not in str(failure.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"a;b\n1;2\n", "separated by commas"), (b"a,b\n1,2,3,4\n", "line 2: has 4 cells")],
)
def test_files_that_are_no_tables(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises((InputError, StoreError), match=message):
        read_ai_clinician(tmp_path / "t.csv", WINDOW)
    with pytest.raises(StoreError, match="does not exist"):
        read_ai_clinician(tmp_path / "none.csv", WINDOW)


def test_small_files_that_unfold_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"1,2\n" * 30_000_000))
    rows = 12_000_000
    column = pl.Series([0.0]).new_from_index(0, rows)
    pl.DataFrame({"bloc": column}).write_parquet(tmp_path / "t.parquet", row_group_size=rows)
    for name, message in (("t.csv.gz", "times its size"), ("t.parquet", "no recorded data")):
        with pytest.raises(StoreError, match=message):
            read_ai_clinician(tmp_path / name, WINDOW)


def test_a_cohort_out_of_the_table(tmp_path: Path) -> None:
    path = written(tmp_path, *(rows_of(stay, list(range(1, 12 + stay % 12))) for stay in range(30)))
    made = build_cohort(path, tmp_path / "cohort", BuildOptions(levels=LevelChoice(levels="paper")))
    stored = load_cohort(tmp_path / "cohort")
    assert stored.fingerprint() == made.cohort.fingerprint()
    assert stored.lengths.max() == 20
    assert len(stored) == made.flow.stays == 30
    assert load_metadata(tmp_path / "cohort")["provenance"]["source"] == "table of the AI Clinician"
    assert [score.feature for score in stored.schema.scores] == ["SOFA"]
    doses = np.array(stored.schema.actions.vectors)[stored.actions]
    assert ((doses[:, 0] > 0) == (made.grid["vasopressor"].to_numpy() > 0)).all()
    assert {path.name for path in tmp_path.iterdir()} == {"cohort", "mimic-table.csv"}


def built(folder: Path, table: pl.DataFrame, levels: str = "learned") -> Build:
    options = BuildOptions(selection=Selection(window=WINDOW), levels=LevelChoice(levels=levels))
    return build_cohort(written(folder, table), folder / "cohort", options)


def stays(count: int = 20) -> pl.DataFrame:
    return pl.concat([rows_of(stay, [1, 2, 3, 4]) for stay in range(1, count + 1)])


def with_dose(table: pl.DataFrame, column: str, stay: int, dose: float) -> pl.DataFrame:
    place = (pl.col("icustayid") == stay) & (pl.col("bloc") == 2)
    return table.with_columns(pl.when(place).then(dose).otherwise(pl.col(column)).alias(column))


def test_the_table_has_no_masks_and_no_origins(tmp_path: Path) -> None:
    assert built(tmp_path, stays()).cohort.origins is None


def test_stays_with_an_impossible_dose_are_left_out_and_counted(tmp_path: Path) -> None:
    slips = with_dose(with_dose(stays(), "input_4hourly", 3, 2_500_000.0), "max_dose_vaso", 5, 40.0)
    made = built(tmp_path, slips)
    assert {"3", "5"}.isdisjoint(made.cohort.ids)
    assert len(made.cohort) == 18
    last = made.flow.steps[-1]
    assert (last.stays, last.removed_stays) == (18, 2)
    assert "10 mcg/kg/min of vasopressors and 10,000 mL/4 h of fluids" in last.rule
    assert "vasopressors in 1, fluids in 1; their 2 stays" in " ".join(made.remarks)
    axes = made.cohort.schema.actions.axes
    assert [axis.plausible for axis in axes] == [(0, 10), (0, 10_000)]
    assert axes[1].levels[-1] < 1000  # the slip has not shaped the levels


def test_without_slips_the_flow_says_nothing_of_them(tmp_path: Path) -> None:
    assert "dose" not in str(built(tmp_path, stays()).flow)


@pytest.mark.parametrize("levels", ["learned", "paper"])
@pytest.mark.parametrize(
    ("column", "factor"), [("max_dose_vaso", 1e3), ("input_4hourly", 1e-3), ("input_4hourly", 1e3)]
)
def test_a_column_in_another_unit_is_refused(tmp_path: Path, column: str, factor: float, levels: str) -> None:
    with pytest.raises(InputError, match=r"far too (large|small) to be in .*convert the column"):
        built(tmp_path, stays().with_columns(pl.col(column) * factor), levels)
    assert not (tmp_path / "cohort").exists()


def test_values_outside_a_score_are_brought_to_its_ends_and_counted(tmp_path: Path) -> None:
    """A bounded scale has no place for them."""
    table = stays().with_columns(
        GCS=pl.when(pl.col("bloc") == 2).then(2.5).otherwise(pl.col("GCS")),
        FiO2_1=pl.when(pl.col("icustayid") == 4).then(1.02).otherwise(pl.col("FiO2_1")),
    )
    made = built(tmp_path, table)
    assert made.grid["GCS"].min() == 3
    assert made.grid["FiO2"].max() == 100
    assert "GCS: 20 values outside 3 to 15 were brought to its ends." in made.remarks
    assert "FiO2_1: 4 values outside 20 to 100 were brought to its ends." in made.remarks


def test_a_score_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="column 'SOFA': 80 of 80 values lie outside 0 to 24"):
        built(tmp_path, stays().with_columns(SOFA=pl.lit(75.0)))
