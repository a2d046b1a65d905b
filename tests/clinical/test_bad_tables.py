"""Tables that are not as they should be: what is wrong is said with its place, and nothing half-made is left."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from mimic_tables import MimicTables, invented_patients

from ifonly.clinical import passes
from ifonly.clinical.extract import read_events
from ifonly.errors import InputError, StoreError


@pytest.fixture
def mimic(tmp_path: Path) -> Path:
    return invented_patients(2, hours=24).write(tmp_path / "mimic")


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


def test_a_packed_table_that_unfolds_without_measure_is_not_read(mimic: Path, tmp_path: Path) -> None:
    """A row over and over: a few megabytes would be read for days."""
    packed = mimic / "CHARTEVENTS.csv.gz"
    header, row, *_ = gzip.decompress(packed.read_bytes()).splitlines(keepends=True)
    packed.write_bytes(gzip.compress(header + row * (120_000_000 // len(row))))
    with pytest.raises(StoreError, match=r"CHARTEVENTS\.csv\.gz: unpacks to more than 100 times its size"):
        read_events(mimic, tmp_path / "work")


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
