"""MEDS datasets: a stay followed by hand from raw rows to the grid, pairing of infusions, and what is said and refused.

Every code, patient and value here is made up.
"""

import fnmatch
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from effort import long
from mimic_tables import DEMO, needs_demo

from ifonly.clinical.build import BuildOptions, build_cohort
from ifonly.clinical.code_map import CodeMap, Entry, read_code_map, with_items
from ifonly.clinical.extract import read_events, recognise
from ifonly.clinical.inclusion import Selection
from ifonly.clinical.items import mimic_items
from ifonly.clinical.levels import LevelChoice
from ifonly.errors import InputError, StoreError
from ifonly.study.clinical import build_with_pictures

CODES: dict[str, Any] = {
    "format": "ifonly.codes",
    "version": 1,
    "stays": {"start": "ICU_IN//*", "end": "ICU_OUT"},
    "people": {"birth": "MEDS_BIRTH", "female": "SEX//F", "male": "SEX//M", "died_in_hospital": "HOSPITAL_OUT//DIED"},
    "measurements": {
        "mean_bp": ["ABP//mean"],
        "platelets": ["PLT"],
        "creatinine": ["CREA//mg", {"code": "CREA//umol", "factor": 0.0113}],
        "pao2": [{"code": "PO2//kPa", "factor": 7.5}],
        "fio2": ["FIO2"],
        "weight": ["WEIGHT"],
        "gcs_eye": ["GCS//E"],
        "gcs_verbal": ["GCS//V"],
        "gcs_motor": ["GCS//M"],
    },
    "urine": ["URINE"],
    "ventilation": {"on": ["PEEP"], "off": ["EXTUBATION"]},
    "vasopressors": {
        "norepinephrine": [{"start": "NOR//S", "end": "NOR//E", "number": "start", "unit": "mcg/kg/min"}],
        "phenylephrine": [
            {"start": "PHE//S", "end": "PHE//E", "number": "end", "unit": "mcg/min", "factor": 1000},
        ],
    },
    "fluids": [
        {"start": "SALINE//S", "end": "SALINE//E", "number": "end"},
        {"code": "HALF", "factor": 1000, "tonicity": 0.5},
    ],
    "antibiotics": ["DRUG//cef*"],
    "cultures": ["CULTURE"],
}
ADMITTED = datetime(2130, 5, 1, 8)


class Dataset:
    """Rows of a MEDS dataset; times in hours since admission to intensive care."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, datetime | None, str, float | None]] = []

    def add(self, hour: float | None, code: str, number: float | None = None, subject: int = 7) -> None:
        time = None if hour is None else ADMITTED + timedelta(seconds=round(hour * 3600))
        self.rows.append((subject, time, code, number))

    def add_stay(self, hours: float, subject: int = 7, start: float = 0.0, age: float = 54, sex: str = "M") -> None:
        self.add(None, f"SEX//{sex}", subject=subject)
        self.add(start - age * 365.2425 * 24, "MEDS_BIRTH", subject=subject)
        self.add(start, "ICU_IN//surgical", subject=subject)
        self.add(start + hours, "ICU_OUT", subject=subject)

    def write(self, folder: Path, **names: str) -> Path:
        frame = pl.DataFrame(
            self.rows,
            schema={"subject_id": pl.Int64, "time": pl.Datetime("us"), "code": pl.String, "numeric_value": pl.Float32},
            orient="row",
        ).rename(names)
        half = len(frame) // 2
        for part, name in ((frame[:half], "train/0"), (frame[half:], "held_out/0")):
            file = folder / "data" / f"{name}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            part.write_parquet(file)
        return folder


def write_codes(folder: Path, **changes: Any) -> Path:
    file = folder / "codes.yaml"
    file.write_text(yaml.safe_dump({**CODES, **changes}), encoding="utf-8")
    return file


def options(codes: Path, **more: Any) -> BuildOptions:
    return BuildOptions(
        selection=Selection(cohort="all-adults"), levels=LevelChoice(levels="paper"), codes=codes, threads=1, **more
    )


def hand_written() -> Dataset:
    """The stay of test_build's hand-followed case, as a hospital with other codes and units would have it."""
    data = Dataset()
    data.add_stay(50)
    data.add(0.1, "WEIGHT", 50)
    for hour, pressure in ((1, 60), (2, 64), (4, 72), (13, 90)):
        data.add(hour, "ABP//mean", pressure)
    for hour, platelets in ((-3, 140), (6, 95), (30, 45)):
        data.add(hour, "PLT", platelets)
    data.add(9, "CREA//umol", 3.6 / 0.0113)
    data.add(5, "PO2//kPa", 70 / 7.5)
    data.add(5, "FIO2", 50)
    data.add(6, "PEEP", 8)
    data.add(17, "EXTUBATION")
    for hour in range(0, 50, 2):
        data.add(hour + 0.5, "URINE", 30 if hour < 20 else 100)
    data.add(5, "NOR//S", 0.08)
    data.add(11, "NOR//E")
    data.add(10, "PHE//S")
    data.add(14, "PHE//E", 0.01)  # 10 mcg/min at 50 kg
    data.add(3, "SALINE//S")
    data.add(7, "SALINE//E", 400)
    data.add(20, "HALF", 0.1)  # 100 mL, which count half
    for part, points in (("E", 4), ("V", 5), ("M", 4)):
        data.add(2, f"GCS//{part}", points)
    data.add(8, "SOMETHING ELSE", 1)
    return data


EXPECTED = {
    "MAP": [62, 72, 72, 90, 90, 90, 80, 80, 80, 80, 80, 80],
    "platelets": [140, 95, 95, 95, 95, 95, 95, 45, 45, 45, 45, 45],
    "creatinine": [0.9, 0.9, *[3.6] * 10],
    "FiO2": [21, *[50] * 4, *[21] * 7],
    "PaO2": [95, *[70] * 7, *[95] * 4],
    "GCS": [13, 13, 13, 13, *[15] * 8],
    "ventilation": [0, 1, 1, 1, *[0] * 8],
    "urine": [60] * 5 + [200] * 7,
    "vasopressor": [0, 0.08, 0.08 + 0.45 * 0.2, 0.45 * 0.2, *[0] * 8],
    "fluid": [100, 300, 0, 0, 0, 50, *[0] * 6],
    "sofa_coagulation": [1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3],
    "sofa_respiration": [0, 3, 3, 3, 2, 2, 2, 2, *[0] * 4],
    "sofa_cardiovascular": [1, 3, 4, 3, *[0] * 8],
    "sofa_renal": [0, 0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3],
    "gender": [0] * 12,
    "age": [54] * 12,
}


def test_one_stay_followed_by_hand(tmp_path: Path) -> None:
    source, codes = hand_written().write(tmp_path / "meds"), write_codes(tmp_path)
    made = build_cohort(source, tmp_path / "cohort", options(codes, work=tmp_path / "work"))
    for name, values in EXPECTED.items():
        assert made.grid[name].to_list() == pytest.approx(values, rel=1e-5), name
    assert made.cohort.ids == ("7-1",)
    assert made.origin["source"] == "MEDS"
    events = made.origin["events"]["files"]["meds_events"]
    assert (events["codes not in the map"], events["rows of codes not in the map"]) == (1, 1)
    said = " ".join(made.remarks)
    assert "1 other codes, with 1 rows, are not read" in said
    assert "no code for bilirubin" in said
    assert "never measured" in said
    assert read_events(source, tmp_path / "work", codes=codes, threads=1).made == ()  # work is not done twice


def test_intervals_are_paired_in_order_and_what_is_ambiguous_is_counted(tmp_path: Path) -> None:
    data = Dataset()
    data.add_stay(48)
    for hour, code, rate in (
        (1, "NOR//E", None),  # an end without a start
        (2, "NOR//S", 0.1),
        (4, "NOR//E", None),
        (4, "NOR//S", 0.2),  # the rate is changed: no overlap
        (6, "NOR//E", None),
        (8, "NOR//S", 0.3),
        (9, "NOR//S", 0.4),  # two at once
        (10, "NOR//E", None),
        (12, "NOR//E", None),
        (20, "NOR//S", 0.5),  # never ends
    ):
        data.add(hour, code, rate)
    older = data.write(tmp_path / "meds", subject_id="patient_id", numeric_value="value")
    people = {name: code for name, code in CODES["people"].items() if name != "died_in_hospital"}
    events = read_events(older, tmp_path / "work", codes=write_codes(tmp_path, people=people), threads=1)
    given = events.table("vasopressors").collect().select("start", "stop", "rate").rows()
    assert [tuple(round(value, 6) for value in row) for row in given] == [
        (2, 4, 0.1),
        (4, 6, 0.2),
        (8, 10, 0.3),
        (9, 12, 0.4),
    ]
    pairs = events.counts["files"]["inputs_metavision"]["pairs"]["vasopressors"]
    assert pairs == {"paired": 4, "ambiguous": 2, "starts without an end": 1, "ends without a start": 1}
    said = " ".join(events.notes)
    assert "2 of 4 intervals overlap others of the same codes" in said
    assert "1 starts without an end" in said
    assert "1 ends without a start" in said
    assert events.table("stays").collect()["died_in_hospital"].to_list() == [None]
    assert "whether patients died is not known" in said


OMOP_CODES: dict[str, Any] = {
    **CODES,
    "ends": "end",
    "stays": {"start": "Visit/ICU"},
    "vasopressors": {"norepinephrine": [{"start": "RxNorm/7512", "number": "start", "unit": "mcg/kg/min"}]},
    "fluids": [{"start": "RxNorm/9863", "number": "start"}],
}
"""As of a dataset made of OMOP tables, where a row of a visit or of an exposure has its end in a column."""


def with_ends(folder: Path, hours: dict[str, float]) -> Path:
    """The dataset with a column of ends: so many hours after the time of rows with these codes."""
    for file in folder.rglob("*.parquet"):
        lasting = pl.col("code").replace_strict(hours, default=None, return_dtype=pl.Float64)
        end = pl.col("time") + pl.duration(seconds=(lasting * 3600).round())
        pl.read_parquet(file).with_columns(end.cast(pl.Datetime("us")).alias("end")).write_parquet(file)
    return folder


def test_rows_with_their_own_ends_need_no_pairing(tmp_path: Path) -> None:
    data = Dataset()
    data.add(None, "SEX//M")
    data.add(-54 * 365.2425 * 24, "MEDS_BIRTH")
    data.add(0, "Visit/ICU")
    for hour, rate in ((5, 0.1), (6, 0.2)):  # at once: each has its own end
        data.add(hour, "RxNorm/7512", rate)
    data.add(3, "RxNorm/9863", 400)
    data.add(20, "RxNorm/7512", 0.3)
    folder = with_ends(data.write(tmp_path / "meds"), {"Visit/ICU": 50, "RxNorm/7512": 4, "RxNorm/9863": 2})
    codes = write_codes(tmp_path, **OMOP_CODES)
    events = read_events(folder, tmp_path / "work", codes=codes, threads=1)
    assert events.table("stays").collect().select("stay", "hours").rows() == [("7-1", 50.0)]
    given = events.table("vasopressors").collect().select("start", "stop", "rate").rows()
    assert [tuple(round(value, 6) for value in row) for row in given] == [(5, 9, 0.1), (6, 10, 0.2), (20, 24, 0.3)]
    assert events.table("fluids").collect().select("start", "stop", "ml").rows() == [(3.0, 5.0, 400.0)]
    pairs = events.counts["files"]["inputs_metavision"]["pairs"]["vasopressors"]
    assert pairs == {"paired": 3, "ambiguous": 0, "starts without an end": 0, "ends without a start": 0}
    with pytest.raises(InputError, match=r"the column 'over'.*times without a zone; it is missing"):
        recognise(folder, write_codes(tmp_path, **{**OMOP_CODES, "ends": "over"}))


def test_stays_deaths_and_infections(tmp_path: Path) -> None:
    data = Dataset()
    data.add_stay(48, subject=1, sex="F")
    data.add_stay(40, subject=1, start=100, age=60, sex="F")
    data.add(150, "HOSPITAL_OUT//DIED", subject=1)
    data.add_stay(60, subject=2)
    data.add(5, "DRUG//ceftriaxone", subject=2)
    data.add(6, "CULTURE", subject=2)
    data.add(6, "DRUG//aspirin", subject=2)
    events = read_events(data.write(tmp_path / "meds"), tmp_path / "work", codes=write_codes(tmp_path), threads=1)
    stays = events.table("stays").collect()
    assert stays.select("stay", "readmission", "died_in_hospital", "hours").rows() == [
        ("1-1", False, False, 48.0),
        ("1-2", True, True, 40.0),
        ("2-1", False, False, 60.0),
    ]
    assert events.table("antibiotics").collect().select("stay", "hour").rows() == [("2-1", 5.0)]
    assert events.table("cultures").collect().select("stay", "hour").rows() == [("2-1", 6.0)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "something"}, "not a code map"),
        ({"stays": {"start": "A"}}, "stays"),
        ({"measurements": {"lactate": ["X"]}}, "lactate"),
        ({"measurements": {"platelets": ["PLT", "PL*"]}}, "stands for more than one thing"),
        ({"urine": [{"code": "URINE", "factor": 0}]}, "must be above zero"),
        ({"vasopressors": {"norepinephrine": [{"start": "a", "end": "b", "number": "at", "unit": "x"}]}}, "with which"),
        ({"antibiotics": [3]}, "antibiotics"),
        ({**OMOP_CODES, "fluids": [{"start": "a", "number": "end"}]}, "no code ends it"),
        ({"stays": {"start": "no", "end": "such"}, "people": {"birth": "b", "female": "f", "male": "m"},
          "measurements": {}, "ventilation": {}, "vasopressors": {}, "urine": [], "fluids": [], "antibiotics": [],
          "cultures": []}, "map of another one"),
    ],
)  # fmt: skip
def test_a_wrong_code_map_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    source = hand_written().write(tmp_path / "meds")
    with pytest.raises((InputError, StoreError), match=message):
        read_events(source, tmp_path / "work", codes=write_codes(tmp_path, **changes), threads=1)


def test_a_dataset_without_its_map_or_with_other_columns_is_refused(tmp_path: Path) -> None:
    source = hand_written().write(tmp_path / "meds")
    with pytest.raises(InputError, match="--set codes=FILE"):
        recognise(source)
    with pytest.raises(InputError, match="'numeric_value' or 'value'"):
        recognise(hand_written().write(tmp_path / "other", numeric_value="number"), write_codes(tmp_path))
    file = source / "data" / "train" / "0.parquet"
    pl.read_parquet(file).with_columns(pl.col("time").dt.replace_time_zone("UTC")).write_parquet(file)
    with pytest.raises(InputError, match="times without a zone; it holds Datetime"):
        recognise(source, write_codes(tmp_path))
    with pytest.raises(StoreError, match="neither MIMIC-III"):
        recognise(tmp_path)


def test_items_of_mimic_can_be_added_by_a_file() -> None:
    more = with_items(mimic_items(), {"charted": {"mean_bp": {"999001": "Our monitor"}}, "antibiotics": ["newmycin"]})
    assert more["charted"]["mean_bp"]["999001"] == "Our monitor"
    assert more["charted"]["mean_bp"]["220052"] == mimic_items()["charted"]["mean_bp"]["220052"]
    assert more["labs"] == mimic_items()["labs"]
    with pytest.raises(InputError, match="there is no list 'chartd'"):
        with_items(mimic_items(), {"chartd": {}})


def test_stars_stand_for_any_letters_and_many_take_no_time() -> None:
    def finds(pattern: str, *codes: str) -> set[str]:
        return set(CodeMap((Entry("urine", ((pattern, "at"),)),)).resolve(codes))

    codes = ("LAB//1//mg", "LAB//12//mg", "LAB//1//mg//x", "lab//1//mg", "LAB//mg", "//LAB//1//mg", "LAB////mg", "a\nb")
    for pattern in ("LAB//*", "*mg", "LAB//*//mg", "L*B*1*mg*", "**", "LAB//mg*", "*LAB//mg", "L*/*/*mg", "a*b"):
        assert finds(pattern, *codes) == {code for code in codes if fnmatch.fnmatchcase(code, pattern)}, pattern
    began = time.process_time()
    assert finds("a*" * 60 + "b", "a" * 20_000, "a" * 20_000 + "b") == {"a" * 20_000 + "b"}
    assert time.process_time() - began < 1


def test_a_dataset_without_deaths_has_its_flow_and_card(tmp_path: Path) -> None:
    codes = write_codes(tmp_path, people={key: CODES["people"][key] for key in ("birth", "female", "male")})
    source = hand_written().write(tmp_path / "meds")
    _, card = build_with_pictures(source, tmp_path / "cohort", options(codes))
    assert card.severity is not None
    assert card.severity.outcome is None
    assert (tmp_path / "cohort" / "flow.png").stat().st_size > 0
    assert (tmp_path / "cohort" / "card" / "card.html").stat().st_size > 0


def test_a_map_says_what_it_lacks(tmp_path: Path) -> None:
    assert read_code_map(write_codes(tmp_path)).missing() == ["bilirubin"]
    assert "vasopressors" in read_code_map(write_codes(tmp_path, vasopressors={})).missing()


def demo_table(name: str) -> pl.DataFrame:
    return pl.read_csv(DEMO / f"{name}.csv.gz", infer_schema=False).rename(str.lower)


def demo_as_meds(folder: Path) -> Path:
    """Stays, people, laboratory values and norepinephrine (MetaVision) of the open demo of MIMIC-III."""
    stays, people, orders = (demo_table(name) for name in ("ICUSTAYS", "PATIENTS", "INPUTEVENTS_MV"))
    valid = ~pl.col("statusdescription").is_in(["Rewritten", "Cancelled"])
    orders = orders.filter(valid & (pl.col("itemid") == "221906") & (pl.col("rateuom") == "mcg/kg/min"))
    parts = [
        (stays, "intime", pl.lit("IN"), None),
        (stays, "outtime", pl.lit("OUT"), None),
        (people, "dob", pl.lit("BIRTH"), None),
        (people, None, pl.concat_str(pl.lit("SEX//"), "gender"), None),
        (demo_table("LABEVENTS"), "charttime", pl.concat_str(pl.lit("LAB//"), "itemid"), "valuenum"),
        (orders, "starttime", pl.lit("NOR//S"), "rate"),
        (orders, "endtime", pl.lit("NOR//E"), None),
    ]
    rows = [
        table.select(
            pl.col("subject_id").cast(pl.Int64),
            time=pl.lit(None, dtype=pl.Datetime("us"))
            if time is None
            else pl.col(time).str.to_datetime(time_unit="us"),
            code=code,
            numeric_value=pl.lit(None, dtype=pl.Float64) if number is None else pl.col(number).cast(pl.Float64),
        )
        for table, time, code, number in parts
    ]
    (folder / "data").mkdir(parents=True)
    pl.concat(rows).write_parquet(folder / "data" / "0.parquet")
    return folder


@long
@needs_demo
def test_the_open_demo_as_meds_has_the_same_stays_infusions_and_laboratory_values(tmp_path: Path) -> None:
    labs = {name: [f"LAB//{item}" for item in mimic_items()["labs"][name]] for name in ("creatinine", "platelets")}
    nor = {"norepinephrine": [{"start": "NOR//S", "end": "NOR//E", "number": "start", "unit": "mcg/kg/min"}]}
    content = {
        "format": "ifonly.codes",
        "version": 1,
        "stays": {"start": "IN", "end": "OUT"},
        "people": {"birth": "BIRTH", "female": "SEX//F", "male": "SEX//M"},
        "measurements": labs,
        "vasopressors": nor,
    }
    codes = tmp_path / "codes.yaml"
    codes.write_text(yaml.safe_dump(content), encoding="utf-8")
    meds = read_events(demo_as_meds(tmp_path / "meds"), tmp_path / "work", codes=codes)
    mimic = read_events(DEMO, tmp_path / "reference")
    stays, theirs = (events.table("stays").collect().with_columns(pl.col("hours").round(4)) for events in (mimic, meds))
    both = stays.join(theirs, on=["subject", "hours"], suffix="_meds")
    assert both.height == stays.height == theirs.height
    for column in ("age", "female", "readmission"):
        assert both[column].equals(both[f"{column}_meds"]), column
    names = dict(both.select("stay", "stay_meds").iter_rows())

    def rows(events: Any, table: str, *columns: str) -> pl.DataFrame:
        found = events.table(table).collect().with_columns(pl.col("stay").replace(names))
        return found.select("stay", *(pl.col(name).round(4) if name != "variable" else name for name in columns))

    modern = both.filter(pl.col("source") == "metavision")["stay_meds"].implode()
    given = mimic.table("vasopressors").collect().with_columns(pl.col("stay").replace(names))
    given = given.filter((pl.col("drug") == "norepinephrine") & pl.col("stay").is_in(modern))
    given = given.select("stay", *(pl.col(name).round(4) for name in ("start", "stop", "rate")))
    assert given.sort(pl.all()).equals(rows(meds, "vasopressors", "start", "stop", "rate").sort(pl.all()))
    measured = rows(meds, "measurements", "hour", "variable", "value")
    known = rows(mimic, "measurements", "hour", "variable", "value")
    assert measured.height > 1000
    assert measured.join(known, on=measured.columns, how="anti").height == 0
