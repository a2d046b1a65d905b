"""The whole way from files to event tables: layouts, resuming, limits. Bad input: test_bad_tables.py."""

import json
import os
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from effort import long
from invented_events import COLUMNS, STAY_COLUMNS
from mimic_tables import invented_patients
from polars.testing import assert_frame_equal

from ifonly.clinical import cache
from ifonly.clinical.database import open_database
from ifonly.clinical.extract import TABLES, Events, read_events
from ifonly.errors import IfonlyError, InputError
from ifonly.progress import Tick

EVENT_COLUMNS = {"stays": STAY_COLUMNS, **COLUMNS} | {
    name: COLUMNS[name] | {"time_known": pl.Boolean} for name in ("antibiotics", "cultures")
}
"""Those of the invented events that other tests use, so that these are like the real ones."""


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
    [
        ("passes", {"charted", "stays"}),
        pytest.param("extract", {"fluids", "admitted"}, marks=long),
        pytest.param("database", {"charted", "fluids"}, marks=long),
    ],
)
def test_what_other_code_made_is_made_again(
    mimic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, again: set[str]
) -> None:
    read_events(mimic, tmp_path / "work", threads=1)
    monkeypatch.setattr(cache, "CODE", shutil.copytree(cache.CODE, tmp_path / "code"))
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
