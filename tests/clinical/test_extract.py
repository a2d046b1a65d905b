"""The whole way from files to event tables: layouts, resuming, limits, bad input, and the real demo by hand."""

import csv
import gzip
import json
import os
import shutil
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from mimic_tables import DEMO, MimicTables, invented_patients, needs_demo
from polars.testing import assert_frame_equal

from ifonly.clinical import passes, stages
from ifonly.clinical.database import open_database
from ifonly.clinical.extract import TABLES, Events, read_events
from ifonly.errors import IfonlyError, InputError, StoreError
from ifonly.progress import Tick

EVENT_COLUMNS = {
    "stays": {
        "stay": pl.String,
        "subject": pl.String,
        "admission": pl.String,
        "age": pl.Float64,
        "female": pl.Boolean,
        "readmission": pl.Boolean,
        "hours": pl.Float64,
        "weight": pl.Float64,
        "died_in_hospital": pl.Boolean,
        "source": pl.String,
    },
    "measurements": {"stay": pl.String, "hour": pl.Float64, "variable": pl.String, "value": pl.Float64},
    "urine": {"stay": pl.String, "hour": pl.Float64, "ml": pl.Float64},
    "ventilation": {"stay": pl.String, "hour": pl.Float64, "on": pl.Boolean},
    "vasopressors": {"stay": pl.String, "start": pl.Float64, "stop": pl.Float64, "rate": pl.Float64, "drug": pl.String},
    "fluids": {"stay": pl.String, "start": pl.Float64, "stop": pl.Float64, "ml": pl.Float64},
    "antibiotics": {"stay": pl.String, "hour": pl.Float64, "time_known": pl.Boolean},
    "cultures": {"stay": pl.String, "hour": pl.Float64, "time_known": pl.Boolean},
}


def frames(events: Events) -> dict[str, pl.DataFrame]:
    return {name: events.table(name).collect() for name in TABLES}


@pytest.fixture
def mimic(tmp_path: Path) -> Path:
    return invented_patients(2, hours=24).write(tmp_path / "mimic")


@pytest.mark.parametrize("release", ["MIMIC-III", "MIMIC-IV"])
def test_the_way_in_which_files_are_written_changes_nothing(tmp_path: Path, release: str) -> None:
    tables = invented_patients(3, hours=48)
    plain = read_events(tables.write(tmp_path / "plain", release=release), tmp_path / "a")
    full = tables.write(tmp_path / "full", release=release, upper=True, packed=False, quoted=True)
    for path in full.rglob("*.csv"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    other = read_events(full, tmp_path / "b", threads=2, memory="500 MB")
    for name, frame in frames(plain).items():
        assert frame.schema == EVENT_COLUMNS[name]
        assert frame.height > 0
        assert_frame_equal(frame, other.table(name).collect())


def test_empty_tables_give_empty_events(tmp_path: Path) -> None:
    tables = invented_patients(1, hours=8)
    for name, rows in tables.rows.items():
        if name not in ("ICUSTAYS", "PATIENTS", "ADMISSIONS"):
            rows.clear()
    events = read_events(tables.write(tmp_path / "mimic"), tmp_path / "work")
    for name, frame in frames(events).items():
        assert frame.schema == EVENT_COLUMNS[name]
        assert frame.height == (1 if name == "stays" else 0)


def test_what_was_made_is_not_made_again(mimic: Path, tmp_path: Path) -> None:
    first = read_events(mimic, tmp_path / "work")
    assert set(TABLES) <= set(first.made)
    again = read_events(mimic, tmp_path / "work")
    assert again.made == ()
    assert (again.counts, again.notes) == (first.counts, first.notes)
    assert json.loads((tmp_path / "work" / "stages" / "counts.json").read_text())["files"] == first.counts["files"]


def test_a_changed_file_is_read_again_with_all_that_rests_on_it(mimic: Path, tmp_path: Path) -> None:
    read_events(mimic, tmp_path / "work")
    os.utime(mimic / "OUTPUTEVENTS.csv.gz", ns=(1, 1))
    assert read_events(mimic, tmp_path / "work").made == ("outputs", "urine")


@pytest.mark.parametrize(
    ("module", "again"),
    [("passes", {"charted", "stays"}), ("extract", {"fluids", "admitted"}), ("database", {"charted", "fluids"})],
)
def test_what_other_code_made_is_made_again(
    mimic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, again: set[str]
) -> None:
    read_events(mimic, tmp_path / "work", threads=1)
    monkeypatch.setattr(stages, "CODE", shutil.copytree(stages.CODE, tmp_path / "code"))
    assert read_events(mimic, tmp_path / "work", threads=1).made == ()
    (tmp_path / "code" / f"{module}.py").write_text("# another way\n")
    made = read_events(mimic, tmp_path / "work", threads=1).made
    assert again <= set(made)
    assert ("charted" in made) == (module != "extract")


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_a_stage_that_is_gone_or_cut_off_is_made_again(
    mimic: Path, tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    events = read_events(mimic, tmp_path / "work")
    before = frames(events)
    harm(events.path("fluids"))
    again = read_events(mimic, tmp_path / "work")
    assert again.made == ("fluids",)
    assert_frame_equal(again.table("fluids").collect(), before["fluids"])


def test_progress_covers_every_file_and_table(mimic: Path, tmp_path: Path) -> None:
    ticks: list[Tick] = []
    events = read_events(mimic, tmp_path / "work", progress=ticks.append)
    by_stage: dict[str, list[Tick]] = defaultdict(list)
    for tick in ticks:
        by_stage[tick.stage].append(tick)
    files = {counts["file"].split(".")[0] for counts in events.counts["files"].values()}
    assert set(by_stage) == files | set(events.counts["tables"])
    for stage in by_stage.values():
        assert [tick.done for tick in stage] == sorted(tick.done for tick in stage)
        assert stage[-1].done == stage[-1].total


def test_stopping_leaves_only_whole_stages(mimic: Path, tmp_path: Path) -> None:
    def stop(tick: Tick) -> None:
        if tick.stage == "measurements":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_events(mimic, tmp_path / "work", progress=stop)
    names = {path.name for path in (tmp_path / "work").rglob("*") if path.is_file()}
    assert "charted.parquet" in names
    assert not any(name.startswith((".", "measurements", "counts")) for name in names)
    assert not (tmp_path / "work" / "temporary").exists()
    made = read_events(mimic, tmp_path / "work").made
    assert "measurements" in made
    assert "charted" not in made


def test_an_interruption_stops_a_long_query(tmp_path: Path) -> None:
    endless = "SELECT sum(sqrt(range)) FROM range(100_000_000_000)"

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with open_database(tmp_path / "temporary", memory="500MB", threads=1) as database:
        with pytest.raises(KeyboardInterrupt):
            database.write(endless, tmp_path / "endless.parquet", report=interrupt)
        assert database.rows("SELECT 1") == [(1,)]


def test_temporary_files_go_away(mimic: Path, tmp_path: Path) -> None:
    read_events(mimic, tmp_path / "work")
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["stages"]


def test_unknown_tables_and_limits_are_refused(mimic: Path, tmp_path: Path) -> None:
    for memory in ("lots", "4", "-1GB"):
        with pytest.raises(InputError, match="is no amount of memory"):
            read_events(mimic, tmp_path / "work", memory=memory)
    with pytest.raises(InputError, match="threads: 0 is too few"):
        read_events(mimic, tmp_path / "work", threads=0)
    with pytest.raises(InputError, match="there is no event table 'urin'"):
        read_events(mimic, tmp_path / "work").table("urin")


def test_without_duckdb_the_extra_is_named(mimic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(IfonlyError, match=r"install ifonly\[clinical\]"):
        read_events(mimic, tmp_path / "work")


def edit(path: Path, change: Callable[[list[str]], None]) -> None:
    """Change a table's lines; the first is the header."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    change(lines)
    path.write_bytes(gzip.compress("\n".join(lines).encode("utf-8", "surrogateescape") + b"\n"))


def put(path: Path, row: int, column: str, value: str) -> None:
    def change(lines: list[str]) -> None:
        cells = lines[row].split(",")
        cells[lines[0].split(",").index(column)] = value
        lines[row] = ",".join(cells)

    edit(path, change)


SECRET = "S3CRET"


@pytest.mark.parametrize(
    ("table", "column", "row"),
    [
        ("CHARTEVENTS", "itemid", 5),
        ("CHARTEVENTS", "icustay_id", 4),
        ("CHARTEVENTS", "charttime", 6),
        ("LABEVENTS", "hadm_id", 2),
        ("INPUTEVENTS_MV", "endtime", 1),
        ("ICUSTAYS", "intime", 2),
        ("PATIENTS", "dob", 1),
        ("PRESCRIPTIONS", "startdate", 2),
    ],
)
def test_text_in_ids_and_times_is_refused_with_file_column_and_row(
    mimic: Path, tmp_path: Path, table: str, column: str, row: int
) -> None:
    put(mimic / f"{table}.csv.gz", row, column, SECRET)
    with pytest.raises(InputError, match=rf"{table}\.csv\.gz, row {row} after the header: .*'{column}'") as caught:
        read_events(mimic, tmp_path / "work")
    assert SECRET not in str(caught.value)
    assert not list((tmp_path / "work").glob("*.parquet"))


def test_rows_that_nobody_reads_may_hold_anything(mimic: Path, tmp_path: Path) -> None:
    put(mimic / "CHARTEVENTS.csv.gz", 3, "charttime", SECRET)
    put(mimic / "CHARTEVENTS.csv.gz", 3, "itemid", "1234567")
    assert "charted" in read_events(mimic, tmp_path / "work").made


def test_text_in_a_numeric_column_is_counted(mimic: Path, tmp_path: Path) -> None:
    put(mimic / "CHARTEVENTS.csv.gz", 2, "valuenum", SECRET)
    events = read_events(mimic, tmp_path / "work")
    assert events.counts["files"]["charted"]["text"] == {"valuenum": {"values": 1, "first row": 2}}
    said = "CHARTEVENTS.csv.gz: 1 values in valuenum are no numbers and are left out; the first is in row 2"
    assert any(note.startswith(said) for note in events.notes)
    assert SECRET not in "".join(events.notes)


@pytest.mark.parametrize(("texts", "refused"), [(passes.FEW_TEXT, False), (8, False), (9, True)])
def test_a_twentieth_of_text_is_the_most(tmp_path: Path, texts: int, refused: bool) -> None:
    """Of 160 amounts; and rows that are not needed count neither way."""
    tables = MimicTables()
    stay = tables.add_stay()
    for row in range(200):
        value = SECRET if row in range(3, 3 + texts) else 20
        tables.output(stay, row / 4, 226559 if row < 160 else 1, value if row < 160 else SECRET)
    source = tables.write(tmp_path / "mimic")
    if refused:
        with pytest.raises(InputError, match=r"OUTPUTEVENTS\.csv\.gz, row 4 after .* as in 9 of 160 rows"):
            read_events(source, tmp_path / "work", threads=1)
    else:
        events = read_events(source, tmp_path / "work", threads=1)
        assert events.counts["files"]["outputs"]["text"] == {"value": {"values": texts, "first row": 4}}


def swapped_times(tables: MimicTables) -> None:
    for row in tables.rows["INPUTEVENTS_MV"]:
        row["starttime"], row["endtime"] = row["endtime"], row["starttime"]


def other_units(tables: MimicTables) -> None:
    for row in tables.rows["INPUTEVENTS_MV"]:
        row["rateuom"] = "drops/min"


def another_scale(tables: MimicTables) -> None:
    for row in tables.rows["CHARTEVENTS"]:
        if row["itemid"] == 220052:
            row["valuenum"] *= 10


def stays_that_end_first(tables: MimicTables) -> None:
    for row in tables.rows["ICUSTAYS"]:
        row["intime"], row["outtime"] = row["outtime"], row["intime"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (swapped_times, r"INPUTEVENTS_MV.* for vasopressors \(norepinephrine, metavision\) .* end before they begin"),
        (other_units, r"INPUTEVENTS_MV.* for vasopressors \(norepinephrine, metavision\) .* a unit that is not known"),
        (another_scale, r"CHARTEVENTS.* for measurements \(mean_bp\) cannot be used; .* hold implausible values"),
        (stays_that_end_first, r"ICUSTAYS.* for admitted \(stays\) .* do not end after they begin"),
    ],
)
def test_a_kind_of_rows_that_is_mostly_lost_is_refused(
    tmp_path: Path, spoil: Callable[[MimicTables], None], said: str
) -> None:
    """Rows of CareVue, which are as they should be, do not hide that those of MetaVision are not."""
    tables = invented_patients(12, hours=24)
    stay = tables.add_stay(source="carevue")
    for hour in range(0, 70):
        tables.carevue(stay, hour, 30120, rate=0.1, rateuom="mcgkgmin")
    spoil(tables)
    if spoil is stays_that_end_first:
        for _ in range(10):
            tables.add("ICUSTAYS", **{**tables.rows["ICUSTAYS"][0], "icustay_id": 1})
    with pytest.raises(InputError, match=said):
        read_events(tables.write(tmp_path / "mimic"), tmp_path / "work", threads=1)


def test_what_is_lost_for_a_doubtful_reason_is_said_with_its_number(tmp_path: Path) -> None:
    tables = invented_patients(2, hours=24)
    stay = tables.add_stay()
    tables.chart(stay, 1, 220052, 999)
    tables.infuse(stay, 2, 1, 221906, rate=0.1, rateuom="mcg/kg/min")
    tables.infuse(stay, 2, 3, 221289, rate=0.1, rateuom="drops/min")
    notes = read_events(tables.write(tmp_path / "mimic"), tmp_path / "work", threads=1).notes
    given = sum(row["itemid"] == 221906 for row in tables.rows["INPUTEVENTS_MV"])
    assert {
        "measurements: 1 rows hold implausible values and are left out (mean_bp: 1 of 49).",
        f"vasopressors: 1 rows end before they begin and are left out (norepinephrine, metavision: 1 of {given}).",
        "vasopressors: 1 rows have a unit that is not known and are left out (epinephrine, metavision: 1 of 1).",
        "vasopressors: none of 1 rows of epinephrine, metavision is left (unit not known: 1).",
    } <= set(notes)


def test_a_numeric_column_that_is_mostly_text_is_refused(mimic: Path, tmp_path: Path) -> None:
    edit(
        mimic / "OUTPUTEVENTS.csv.gz",
        lambda lines: lines.__setitem__(
            slice(3, None), [line.replace(",226559,", f",226559,{SECRET}") for line in lines[3:]]
        ),
    )
    with pytest.raises(
        InputError, match=r"OUTPUTEVENTS\.csv\.gz, row 3 after the header: the column 'value'"
    ) as caught:
        read_events(mimic, tmp_path / "work")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda line: f"{line},{SECRET},1,2",
        lambda line: f"1,{SECRET}",
        lambda line: f'"{SECRET}{line}',
        lambda line: line.replace(",21", f",{SECRET}\udcff"),
    ],
    ids=["too many", "too few", "open quotation mark", "not UTF-8"],
)
def test_rows_of_another_shape_are_refused_with_their_line(
    mimic: Path, tmp_path: Path, spoil: Callable[[str], str]
) -> None:
    edit(mimic / "CHARTEVENTS.csv.gz", lambda lines: lines.__setitem__(7, spoil(lines[7])))
    with pytest.raises(InputError, match=r"CHARTEVENTS\.csv\.gz, line 8: not a row of 15 values") as caught:
        read_events(mimic, tmp_path / "work")
    chain = [
        caught.value,
        caught.value.__cause__,
        None if caught.value.__suppress_context__ else caught.value.__context__,
    ]
    assert SECRET not in "".join(map(str, chain))


@pytest.mark.parametrize("lost", [4, 200])
def test_a_file_that_is_cut_off_is_refused(mimic: Path, tmp_path: Path, lost: int) -> None:
    path = mimic / "CHARTEVENTS.csv.gz"
    path.write_bytes(path.read_bytes()[:-lost])
    with pytest.raises(StoreError, match=r"CHARTEVENTS\.csv\.gz is cut off .*incomplete download"):
        read_events(mimic, tmp_path / "work")
    assert not list((tmp_path / "work").rglob("*charted*"))


def test_names_with_special_characters(tmp_path: Path) -> None:
    odd = tmp_path / "ward [a] * it's?"
    events = read_events(invented_patients(1, hours=8).write(odd / "mimic"), odd / "work")
    assert events.table("measurements").collect().height > 0


def test_labels_that_are_not_as_expected_are_noted(tmp_path: Path) -> None:
    tables = invented_patients(1, hours=8)
    tables.add("D_ITEMS", itemid=220052, label="Heart rate")
    tables.add("D_ITEMS", itemid=220181, label="non invasive  blood pressure MEAN")
    events = read_events(tables.write(tmp_path / "mimic"), tmp_path / "work")
    assert [note for note in events.notes if "labels" in note] == [
        "D_ITEMS.csv.gz: 1 items have other labels than expected (220052); check them."
    ]


GCS_PARTS = {"220739": 0, "223900": 1, "223901": 2}
MEASURED_BY = {
    "mean_bp": ({"220181", "220052", "225312", "224322", "6702", "443", "52", "456"}, (10, 250)),
    "creatinine": ({"791", "1525", "220615", "3750"}, (0.05, 60)),
    "platelets": ({"828", "227457", "3789"}, (1, 2000)),
    "fio2": ({"223835", "3420", "190", "3422"}, (0.2, 1)),
}
LABS = {"creatinine": "50912", "platelets": "51265"}

# The real demo, by independent plain code over its raw rows. No value of it is written here.


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
