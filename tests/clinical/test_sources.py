"""Recognising releases and their files, and saying what is wrong with them."""

import gzip
import re
from pathlib import Path

import pytest
from mimic_tables import DEMO, MimicTables, invented_patients, needs_demo

from ifonly.clinical.items import differing_labels, items_of, labels, mimic_items
from ifonly.clinical.sources import LAYOUTS, find_source
from ifonly.errors import InputError, StoreError


@pytest.fixture
def third(tmp_path: Path) -> Path:
    return invented_patients(1, hours=8).write(tmp_path / "mimic")


@pytest.fixture
def fourth(tmp_path: Path) -> Path:
    return invented_patients(1, hours=8).write(tmp_path / "mimic", release="MIMIC-IV")


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("release", ["MIMIC-III", "MIMIC-IV"])
def test_releases_are_recognised(tmp_path: Path, release: str, upper: bool, packed: bool) -> None:
    MimicTables().write(tmp_path, release=release, upper=upper, packed=packed, quoted=upper)
    source = find_source(tmp_path)
    assert source.release == release
    assert set(source.tables) == set(LAYOUTS[source.release])
    assert all(table.compressed is packed for table in source.tables.values())
    for name, layout in LAYOUTS[source.release].items():
        assert set(layout.columns) <= set(source.tables[name].columns)


def test_file_names_count_in_any_case(third: Path) -> None:
    (third / "CHARTEVENTS.csv.gz").rename(third / "chartevents.csv.gz")
    assert find_source(third).tables["charted"].path.name == "chartevents.csv.gz"


def test_a_file_is_packed_by_its_content(third: Path) -> None:
    (third / "CHARTEVENTS.csv.gz").rename(third / "CHARTEVENTS.csv")
    assert find_source(third).tables["charted"].compressed


def test_of_two_files_the_packed_one_is_read(third: Path) -> None:
    (third / "CHARTEVENTS.csv").write_text("half unpacked")
    assert find_source(third).tables["charted"].path.name == "CHARTEVENTS.csv.gz"


def test_a_mark_of_byte_order_is_no_part_of_the_first_column(third: Path) -> None:
    path = third / "ADMISSIONS.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + gzip.decompress(path.read_bytes())))
    assert find_source(third).tables["admissions"].columns[0] == "row_id"


def test_tables_that_may_be_missing(third: Path) -> None:
    for name in ("PROCEDUREEVENTS_MV", "D_ITEMS", "D_LABITEMS"):
        (third / f"{name}.csv.gz").unlink()
    assert "procedures" not in find_source(third).tables


@pytest.mark.parametrize("name", ["CHARTEVENTS", "INPUTEVENTS_CV", "LABEVENTS", "PATIENTS", "PRESCRIPTIONS"])
def test_a_missing_table_is_named(third: Path, name: str) -> None:
    (third / f"{name}.csv.gz").unlink()
    with pytest.raises(StoreError, match=rf"looks like MIMIC-III, but the table {name}\.csv\.gz .* is missing"):
        find_source(third)


def test_who_points_at_the_folder_of_stays_means_the_release(fourth: Path, tmp_path: Path) -> None:
    for name in ("icu", "hosp"):
        assert find_source(fourth / name).folder == find_source(fourth).folder.resolve()
    (fourth.parent / "notes").mkdir()
    with pytest.raises(StoreError, match=rf"holds no tables itself, but {re.escape(str(fourth))} does: point at that"):
        find_source(fourth.parent)
    only_named_so = MimicTables().write(tmp_path / "other" / "icu")
    assert find_source(only_named_so).release == "MIMIC-III"


def test_a_missing_table_of_the_fourth_is_named_with_its_folder(fourth: Path) -> None:
    (fourth / "hosp" / "labevents.csv.gz").unlink()
    with pytest.raises(StoreError, match=r"looks like MIMIC-IV, but the table hosp/labevents\.csv\.gz"):
        find_source(fourth)


@pytest.mark.parametrize(("release", "name"), [("MIMIC-III", "ICUSTAYS"), ("MIMIC-IV", "icu/icustays")])
def test_missing_stays_are_named(tmp_path: Path, release: str, name: str) -> None:
    MimicTables().write(tmp_path, release=release)
    (tmp_path / f"{name}.csv.gz").unlink()
    with pytest.raises(StoreError, match=rf"looks like {release}, but its table of ICU stays, {name}\.csv\.gz"):
        find_source(tmp_path)


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing clinical")
    with pytest.raises(StoreError, match=r"holds neither MIMIC-III .* nor MIMIC-IV"):
        find_source(tmp_path)
    with pytest.raises(StoreError, match="is not a folder"):
        find_source(tmp_path / "nowhere")
    for name in ("PERSON.csv", "visit_occurrence.parquet"):
        (tmp_path / name).write_text("person_id\n")
    with pytest.raises(StoreError, match=r"looks like an OMOP database, .* by way of MEDS"):
        find_source(tmp_path)


def rewrite(path: Path, old: bytes, new: bytes) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(old, new)))


def test_a_missing_column_is_named_with_its_file(third: Path) -> None:
    rewrite(third / "CHARTEVENTS.csv.gz", b"valuenum", b"number")
    with pytest.raises(InputError, match=r"CHARTEVENTS\.csv\.gz: the column 'valuenum' is missing"):
        find_source(third)


@pytest.mark.parametrize(("delimiter", "word"), [(b";", "semicolons"), (b"\t", "tabs"), (b"|", "bars")])
def test_a_wrong_delimiter_is_recognised(third: Path, delimiter: bytes, word: str) -> None:
    rewrite(third / "LABEVENTS.csv.gz", b",", delimiter)
    with pytest.raises(InputError, match=rf"LABEVENTS\.csv\.gz: the columns are separated by {word}"):
        find_source(third)


def test_a_column_named_twice_is_refused(third: Path) -> None:
    rewrite(third / "LABEVENTS.csv.gz", b"flag", b"VALUE")
    with pytest.raises(InputError, match=r"LABEVENTS\.csv\.gz: the header names the column 'value' twice"):
        find_source(third)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (gzip.compress(b""), "is empty"),
        (b"not packed at all", "is named as a gzip file but is none"),
        (gzip.compress(b"row_id,subject_id\n" * 1000)[:20], "is cut off or damaged"),
        (gzip.compress(b"caf\xe9,subject_id\n"), "not text in UTF-8"),
    ],
    ids=["nothing", "nothing, packed", "not packed", "cut off", "other encoding"],  # a packed file holds the time
)
def test_files_that_cannot_be_read(third: Path, content: bytes, words: str) -> None:
    (third / "LABEVENTS.csv.gz").write_bytes(content)
    with pytest.raises((StoreError, InputError), match=rf"LABEVENTS\.csv\.gz.* {words}"):
        find_source(third)


def test_items_have_one_purpose_and_a_label() -> None:
    """A list from which two rules read the same item would count it twice."""
    items = mimic_items()
    groups = [*items["charted"].values(), *items["gcs"].values(), *items["weight"].values(), items["ventilation"]]
    assert len(items_of("charted")) == sum(map(len, groups)) + len(items["ventilation_text"] | items["off_ventilation"])
    assert len(items_of("inputs")) == sum(map(len, items["vasopressors"].values())) + len(items["fluids"])
    assert set(labels(laboratory=True)) == set(items_of("labs"))
    assert all(labels(laboratory=False).values())


def test_other_labels_are_noticed() -> None:
    assert differing_labels({220052: "Arterial blood pressure MEAN", 1: "x"}, laboratory=False) == [1]
    assert differing_labels({50912: "Creatinine", 51265: "Platelets"}, laboratory=True) == [51265]
    assert differing_labels({123456: "not ours"}, laboratory=False) == []
    assert differing_labels({220615: "Creatinine (serum)", 791: "Creatinine (serum)"}, laboratory=False) == [791]


@needs_demo
def test_the_demo_describes_every_item_as_expected() -> None:
    import polars as pl

    for name, laboratory in (("D_ITEMS", False), ("D_LABITEMS", True)):
        found = pl.read_csv(DEMO / f"{name}.csv.gz", infer_schema=False).select("itemid", "label").drop_nulls()
        known = {int(item): label for item, label in found.iter_rows()}
        assert differing_labels(known, laboratory=laboratory) == []
        # The specimen type has another id in MIMIC-IV.
        assert set(labels(laboratory=laboratory)) - set(known) <= {52033}
