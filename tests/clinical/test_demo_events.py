"""Event tables of the real demo against independent plain code over its raw rows. No value of it is written here."""

import csv
import gzip
import statistics
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from mimic_tables import DEMO, needs_demo
from polars.testing import assert_frame_equal

from ifonly.clinical.extract import Events, read_events

GCS_PARTS = {"220739": 0, "223900": 1, "223901": 2}
MEASURED_BY = {
    "mean_bp": ({"220181", "220052", "225312", "224322", "6702", "443", "52", "456"}, (10, 250)),
    "creatinine": ({"791", "1525", "220615", "3750"}, (0.05, 60)),
    "platelets": ({"828", "227457", "3789"}, (1, 2000)),
    "fio2": ({"223835", "3420", "190", "3422"}, (0.2, 1)),
}
LABS = {"creatinine": "50912", "platelets": "51265"}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Events:
    return read_events(DEMO, tmp_path_factory.mktemp("demo"))


def raw(name: str) -> Iterator[dict[str, str]]:
    with gzip.open(DEMO / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


@pytest.fixture(scope="module")
def charted() -> list[dict[str, str | None]]:
    """The rows of CHARTEVENTS that the tests follow; polars reads them in a fraction of the time."""
    columns = ["icustay_id", "itemid", "charttime", "valuenum", "error"]
    table = pl.read_csv(DEMO / "CHARTEVENTS.csv.gz", columns=columns, infer_schema=False)
    wanted = [*GCS_PARTS, *(item for items, _ in MEASURED_BY.values() for item in items)]
    return table.filter(pl.col("itemid").is_in(wanted), pl.col("icustay_id").is_not_null()).to_dicts()


@pytest.fixture(scope="module")
def admitted() -> dict[str, tuple[datetime, datetime]]:
    return {row["icustay_id"]: (_time(row["intime"]), _time(row["outtime"])) for row in raw("ICUSTAYS")}


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def hours_between(earlier: datetime, later: datetime) -> float:
    return (later - earlier).total_seconds() / 3600


def rows_of(events: Events, table: str, stay: str) -> list[dict[str, Any]]:
    return events.table(table).filter(pl.col("stay") == stay).collect().to_dicts()


def busiest(rows: list[dict[str, str]]) -> str:
    """The stay with the most rows."""
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row["icustay_id"]] += 1
    return max(sorted(counts), key=lambda stay: counts[stay])


@needs_demo
def test_demo_counts(demo: Events) -> None:
    files = demo.counts["files"]
    assert files["charted"]["rows"] == 758_355
    assert demo.table("stays").collect().height == files["stays"]["rows"] == 136
    for counts in files.values():
        name = counts["file"].removesuffix(".csv.gz")
        if name != "CHARTEVENTS":
            assert counts["rows"] == sum(1 for _ in raw(name))
    assert not any("labels" in note or "no numbers" in note for note in demo.notes)


@needs_demo
def test_demo_people(demo: Events, admitted: dict[str, tuple[datetime, datetime]]) -> None:
    born = {row["subject_id"]: (_time(row["dob"]), row["gender"]) for row in raw("PATIENTS")}
    died = {row["hadm_id"]: row["hospital_expire_flag"] == "1" for row in raw("ADMISSIONS")}
    earliest: dict[str, datetime] = {}
    for row in raw("ICUSTAYS"):
        earliest[row["subject_id"]] = min(earliest.get(row["subject_id"], datetime.max), _time(row["intime"]))
    made = {row["stay"]: row for row in demo.table("stays").collect().to_dicts()}
    for row in raw("ICUSTAYS"):
        found, (begin, end) = made[row["icustay_id"]], admitted[row["icustay_id"]]
        age = (begin - born[row["subject_id"]][0]).days / 365.2425
        assert found["age"] == (91.4 if age > 150 else pytest.approx(age, abs=0.01))
        assert found["female"] is (born[row["subject_id"]][1] == "F")
        assert found["died_in_hospital"] is died[row["hadm_id"]]
        assert found["readmission"] is (earliest[row["subject_id"]] < begin)
        assert found["hours"] == pytest.approx(hours_between(begin, end))
        assert found["source"] == row["dbsource"]


@needs_demo
def test_demo_urine(demo: Events, admitted: dict[str, tuple[datetime, datetime]]) -> None:
    """All urine of every stay."""
    carevue = {40055, 43175, 40069, 40094, 40715, 40473, 40085, 40057, 40056, 40405, 40428, 40096, 40651}
    metavision = {226557, 226558, 226559, 226560, 226561, 226563, 226564, 226565, 226567, 226584, 227489}
    total: dict[str, float] = defaultdict(float)
    for row in raw("OUTPUTEVENTS"):
        item, stay = int(row["itemid"]), row["icustay_id"]
        if not stay or not row["value"] or not 0 <= float(row["value"]) <= 10_000:
            continue
        hour = hours_between(admitted[stay][0], _time(row["charttime"]))
        if -24 <= hour <= hours_between(*admitted[stay]):
            total[stay] += float(row["value"]) * (item in carevue | metavision) - float(row["value"]) * (item == 227488)
    made = dict(demo.table("urine").group_by("stay").agg(pl.col("ml").sum()).collect().iter_rows())
    assert set(made) <= set(total)
    for stay, ml in total.items():
        assert made.get(stay, 0.0) == pytest.approx(ml)


@needs_demo
def test_demo_norepinephrine_of_metavision(demo: Events, admitted: dict[str, tuple[datetime, datetime]]) -> None:
    rows = [row for row in raw("INPUTEVENTS_MV") if row["itemid"] == "221906"]
    stay = busiest(rows)
    begin = admitted[stay][0]
    expected = sorted(
        (hours_between(begin, _time(row["starttime"])), hours_between(begin, _time(row["endtime"])), float(row["rate"]))
        for row in rows
        if row["icustay_id"] == stay and row["statusdescription"] != "Rewritten"
    )
    assert {row["rateuom"] for row in rows} == {"mcg/kg/min"}
    found = [row for row in rows_of(demo, "vasopressors", stay) if row["drug"] == "norepinephrine"]
    assert len(found) == len(expected) > 20
    for row, (start, stop, rate) in zip(found, expected, strict=True):
        assert (row["start"], row["stop"], row["rate"]) == (pytest.approx(start), pytest.approx(stop), rate)


@needs_demo
def test_demo_norepinephrine_of_carevue(demo: Events, admitted: dict[str, tuple[datetime, datetime]]) -> None:
    rows = [row for row in raw("INPUTEVENTS_CV") if row["itemid"] in ("30120", "30047")]
    stay = busiest([row for row in rows if row["rate"]])
    points: dict[float, float] = {}
    for row in rows:
        if row["icustay_id"] == stay and (row["rate"] or row["stopped"] in ("Stopped", "D/C'd")):
            assert row["itemid"] == "30120"
            hour = hours_between(admitted[stay][0], _time(row["charttime"]))
            stopped = row["stopped"] in ("Stopped", "D/C'd") or points.get(hour) == 0.0
            points[hour] = 0.0 if stopped else float(row["rate"])
    times = sorted(points)
    expected = []
    for position, hour in enumerate(times):
        gap = times[position + 1] - hour if position + 1 < len(times) else 99.0
        if points[hour] > 0:
            expected.append((hour, hour + (gap if gap <= 4 else 1.0), points[hour]))
    found = [row for row in rows_of(demo, "vasopressors", stay) if row["drug"] == "norepinephrine"]
    assert len(found) == len(expected) > 20
    for row, (start, stop, rate) in zip(found, expected, strict=True):
        assert (row["start"], row["stop"], row["rate"]) == (pytest.approx(start), pytest.approx(stop), rate)


@needs_demo
@pytest.mark.parametrize(
    ("table", "item", "factor"), [("INPUTEVENTS_MV", "225158", 1.0), ("INPUTEVENTS_CV", "30018", 1.0)]
)
def test_demo_fluids(
    demo: Events, admitted: dict[str, tuple[datetime, datetime]], table: str, item: str, factor: float
) -> None:
    """All fluids of the stay with the most normal saline."""
    tonicity = {
        **dict.fromkeys(("30020", "30015", "225823", "225159"), 0.5),
        **dict.fromkeys(("30009", "220862"), 5.0),
        **dict.fromkeys(("30030", "220995", "227533"), 6.66),
    }
    metavision = "225158 225943 226089 225168 225828 220862 220970 220864 225159 220995 225170 225825 227533 225823"
    carevue = "30018 30021 30015 30020 30066 30001 30030 30060 30005 30006 30061 30009 30008 30063 30094 30007"
    known = (metavision if table == "INPUTEVENTS_MV" else carevue).split()
    others = {"227531", "225161", "225171", "225941"}
    rows = list(raw(table))
    stay = busiest([row for row in rows if row["itemid"] == item])
    own = [row for row in rows if row["icustay_id"] == stay and row["amount"]]
    assert not others & {row["itemid"] for row in own}, "this sum does not know these fluids"
    given = [row for row in own if row["itemid"] in known and row.get("statusdescription") != "Rewritten"]
    expected = sum(float(row["amount"]) * tonicity.get(row["itemid"], 1.0) for row in given if float(row["amount"]) > 0)
    found = rows_of(demo, "fluids", stay)
    assert sum(row["ml"] for row in found) == pytest.approx(expected * factor)
    assert expected > 1000
    if table == "INPUTEVENTS_CV":
        assert all(row["start"] == row["stop"] for row in found)


@needs_demo
def test_demo_measurements_of_the_busiest_stays(
    demo: Events, charted: list[dict[str, Any]], admitted: dict[str, tuple[datetime, datetime]]
) -> None:
    items = {item: name for name, (found, _) in MEASURED_BY.items() for item in found}
    wanted = [row for row in charted if row["itemid"] in items]
    of_old = [row for row in wanted if int(row["itemid"]) < 220_000]
    of_new = [row for row in wanted if int(row["itemid"]) >= 220_000]
    admission_of = {row["icustay_id"]: row["hadm_id"] for row in raw("ICUSTAYS")}
    labs = [row for row in raw("LABEVENTS") if row["itemid"] in LABS.values()]
    for stay in (busiest(of_old), busiest(of_new)):
        begin, length = admitted[stay][0], hours_between(*admitted[stay])
        values: dict[tuple[str, float], set[float]] = defaultdict(set)

        def add(name: str, hour: float, number: str, into: dict[tuple[str, float], set[float]] = values) -> None:
            low, high = MEASURED_BY[name][1]
            value = float(number)
            if name == "fio2" and value >= 20:
                value /= 100
            if low <= value <= high:
                into[name, round(hour, 6)].add(value)

        for row in wanted:
            hour = hours_between(begin, _time(row["charttime"]))
            if row["icustay_id"] == stay and row["valuenum"] and row["error"] != "1" and -24 <= hour <= length:
                add(items[row["itemid"]], hour, row["valuenum"])
        for row in labs:
            hour = hours_between(begin, _time(row["charttime"]))
            if row["hadm_id"] == admission_of[stay] and row["valuenum"] and -48 <= hour <= length:
                add(next(name for name, item in LABS.items() if item == row["itemid"]), hour, row["valuenum"])
        expected = {key: statistics.median(found) for key, found in values.items()}
        found = {
            (row["variable"], round(row["hour"], 6)): row["value"]
            for row in rows_of(demo, "measurements", stay)
            if row["variable"] in MEASURED_BY
        }
        assert len(expected) > 500
        assert found == pytest.approx(expected)


@needs_demo
def test_demo_gcs_of_the_busiest_stay(
    demo: Events, charted: list[dict[str, Any]], admitted: dict[str, tuple[datetime, datetime]]
) -> None:
    rows = [row for row in charted if row["itemid"] in GCS_PARTS and row["error"] != "1"]
    stay = busiest(rows)
    begin, length = admitted[stay][0], hours_between(*admitted[stay])
    points_at: dict[float, dict[int, float]] = defaultdict(dict)
    for row in rows:
        if row["icustay_id"] == stay and row["valuenum"]:
            hour, part = hours_between(begin, _time(row["charttime"])), GCS_PARTS[row["itemid"]]
            points_at[hour][part] = min(float(row["valuenum"]), points_at[hour].get(part, 9))
    last: dict[int, tuple[float, float]] = {}
    expected = {}
    for hour in sorted(points_at):
        last.update({part: (hour, points) for part, points in points_at[hour].items()})
        if hour <= length and len(last) == 3 and all(hour - when <= 6 for when, _ in last.values()):
            expected[round(hour, 6)] = sum(points for _, points in last.values())
    found = {
        round(row["hour"], 6): row["value"] for row in rows_of(demo, "measurements", stay) if row["variable"] == "gcs"
    }
    assert len(expected) > 20
    assert found == expected


def demo_as_fourth(folder: Path) -> Path:
    """The demo's MetaVision stays in the layout of MIMIC-IV: other folders, names and columns, the same events."""

    def table(name: str) -> pl.DataFrame:
        return pl.read_csv(DEMO / f"{name}.csv.gz", infer_schema=False).drop("row_id", strict=False)

    stays = table("ICUSTAYS").filter(pl.col("dbsource") == "metavision").drop("dbsource")
    years = table("PATIENTS").join(stays.group_by("subject_id").agg(pl.col("intime").min()), on="subject_id")
    born, seen = (pl.col(name).str.to_datetime() for name in ("dob", "intime"))
    people = years.select(
        "subject_id", "gender", anchor_age=(seen - born).dt.total_days() // 366, anchor_year=seen.dt.year()
    )
    people = people.with_columns(anchor_age=pl.when(pl.col("anchor_age") > 89).then(91).otherwise("anchor_age"))
    # MIMIC-IV has no rows that are flagged as errors.
    charted = table("CHARTEVENTS").filter(pl.col("error").is_null() | (pl.col("error") != "1"))
    made = {
        "icu/icustays": stays,
        "hosp/patients": people,
        "hosp/admissions": table("ADMISSIONS"),
        "icu/chartevents": charted.drop("error", "cgid", "resultstatus", "stopped"),
        "hosp/labevents": table("LABEVENTS"),
        "icu/outputevents": table("OUTPUTEVENTS").drop("iserror", "cgid", "stopped", "newbottle"),
        "icu/inputevents": table("INPUTEVENTS_MV").drop("cancelreason", "cgid"),
        "icu/procedureevents": table("PROCEDUREEVENTS_MV").drop("cancelreason", "cgid"),
        "hosp/prescriptions": table("PRESCRIPTIONS").drop("icustay_id").rename({"startdate": "starttime"}),
        "hosp/microbiologyevents": table("MICROBIOLOGYEVENTS"),
    }
    for name, frame in made.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = frame.rename({"icustay_id": "stay_id"}, strict=False).write_csv()
        path.write_bytes(gzip.compress(text.encode(), compresslevel=1))
    return folder


@needs_demo
def test_demo_in_the_layout_of_mimic_iv_gives_the_same_events(demo: Events, tmp_path: Path) -> None:
    fourth = read_events(demo_as_fourth(tmp_path / "mimic"), tmp_path / "work")
    assert fourth.release == "MIMIC-IV"
    stays = fourth.table("stays").collect()
    assert stays.height > 30
    third = demo.table("stays").collect().filter(pl.col("stay").is_in(stays["stay"].implode()))
    # Anchor years give ages in whole years, and an earlier stay may have been in CareVue's time.
    same = ["stay", "subject", "admission", "female", "hours", "weight", "died_in_hospital", "source"]
    assert_frame_equal(stays.select(same), third.select(same))
    assert (stays["age"] - third["age"]).abs().max() <= 2
    for name in ("measurements", "urine", "ventilation", "vasopressors", "fluids", "cultures"):
        expected = demo.table(name).collect().filter(pl.col("stay").is_in(stays["stay"].implode()))
        assert expected.height > 100
        assert_frame_equal(fourth.table(name).collect(), expected)
