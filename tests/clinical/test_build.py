"""From tables to a stored cohort: what is stored, that it comes whole or not at all, and that work is not lost."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from mimic_tables import MimicTables, invented_patients

from ifonly.clinical import build as build_module
from ifonly.clinical.build import FILES, PICTURES, Build, BuildOptions, build_cohort
from ifonly.clinical.grid import SCORES
from ifonly.clinical.inclusion import Flow, Selection, Window
from ifonly.clinical.levels import LevelChoice, read_levels
from ifonly.data.store import load_cohort, load_metadata
from ifonly.errors import InputError, StoreError
from ifonly.progress import Tick

ADULTS = Selection(cohort="all-adults")
ALL_ADULTS = BuildOptions(selection=ADULTS, threads=1)
SEPSIS = BuildOptions(threads=1)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight invented patients, all infected."""
    return invented_patients(8, hours=60).write(tmp_path_factory.mktemp("mimic"))


@pytest.fixture(scope="module")
def read_once(tmp_path_factory: pytest.TempPathFactory) -> BuildOptions:
    """Of all adults, where what was read is kept: for tests of what comes after that."""
    return replace(ALL_ADULTS, work=tmp_path_factory.mktemp("work"))


def test_what_is_stored(source: Path, tmp_path: Path) -> None:
    ticks: list[Tick] = []
    made = build_cohort(source, tmp_path / "cohort", SEPSIS, progress=ticks.append)
    stored = load_cohort(tmp_path / "cohort")
    assert {file.name for file in (tmp_path / "cohort").iterdir()} == {
        "episodes.parquet",
        "metadata.json",
        "grid.parquet",
        "flow.json",
        "flow.txt",
        "levels.json",
        "build.json",
    }
    assert stored.fingerprint() == made.cohort.fingerprint()
    grid = pl.read_parquet(tmp_path / "cohort" / "grid.parquet")
    assert grid.equals(made.grid)
    assert grid["SOFA"].to_list() == stored.states[:, stored.schema.dynamic_index("SOFA")].tolist()
    assert stored.schema.scores == SCORES
    assert Flow.from_dict(json.loads((tmp_path / "cohort" / "flow.json").read_text())) == made.flow
    assert (tmp_path / "cohort" / "flow.txt").read_text() == f"{made.flow}\n"
    assert read_levels(tmp_path / "cohort" / "levels.json") == made.levels
    record = json.loads((tmp_path / "cohort" / "build.json").read_text())
    assert record["source"] == "MIMIC-III"
    assert record["settings"]["selection"]["cohort"] == "sepsis3"
    assert record["events"]["files"]["charted"]["rows"] > 0
    assert load_metadata(tmp_path / "cohort")["provenance"]["made by"] == "ifonly build"
    assert {"CHARTEVENTS", "grid"} <= {tick.stage for tick in ticks}
    # The working folder is gone.
    assert [path.name for path in tmp_path.iterdir()] == ["cohort"]


def test_both_releases_give_the_same_steps(tmp_path: Path) -> None:
    tables = invented_patients(4, seed=3, hours=50)
    third = tables.write(tmp_path / "third", upper=True, quoted=True, packed=False)
    fourth = tables.write(tmp_path / "fourth", release="MIMIC-IV")
    grids = [build_cohort(folder, tmp_path / f"cohort of {folder.name}", ALL_ADULTS).grid for folder in (third, fourth)]
    # Ages are whole years in MIMIC-IV.
    assert grids[0].drop("age").equals(grids[1].drop("age"))


def test_one_stay_followed_by_hand(tmp_path: Path) -> None:
    """Raw rows, written out here, and what must become of them in each of twelve steps."""
    tables = MimicTables()
    stay = tables.add_stay(hours=50, age=54, gender="M")
    tables.chart(stay, 0.1, 226512, 50)  # weight, kg
    for hour, pressure in ((1, 60), (2, 64), (4, 72), (13, 90)):
        tables.chart(stay, hour, 220052, pressure)
    for hour, platelets in ((-3, 140), (6, 95), (30, 45)):
        tables.lab(stay, hour, 51265, platelets)
    tables.lab(stay, 9, 50912, 3.6)
    tables.lab(stay, 5, 50821, 70)
    tables.chart(stay, 5, 223835, 50)
    tables.chart(stay, 6, 220339, 8)  # PEEP: ventilated
    tables.procedure(stay, 17, 227194)  # extubation
    for hour in range(0, 50, 2):
        tables.output(stay, hour + 0.5, 226559, 30 if hour < 20 else 100)
    tables.infuse(stay, 5, 11, 221906, rate=0.08, rateuom="mcg/kg/min", amount=1, amountuom="mg")
    tables.infuse(stay, 10, 14, 221749, rate=10, rateuom="mcg/min", amount=1, amountuom="mg", patientweight=50)
    tables.infuse(stay, 3, 7, 225158, amount=400, amountuom="ml")  # an hour of it in step 0, three in step 1
    tables.infuse(stay, 20, 20, 225159, amount=100, amountuom="ml")  # half-normal saline: counts half
    options = BuildOptions(selection=ADULTS, levels=LevelChoice(levels="paper"), threads=1)
    grid = build_cohort(tables.write(tmp_path / "mimic"), tmp_path / "cohort", options).grid
    expected = {
        "MAP": [62, 72, 72, 90, 90, 90, 80, 80, 80, 80, 80, 80],
        "platelets": [140, 95, 95, 95, 95, 95, 95, 45, 45, 45, 45, 45],
        "creatinine": [0.9, 0.9, *[3.6] * 10],
        "FiO2": [21, *[50] * 4, *[21] * 7],
        "PaO2": [95, *[70] * 7, *[95] * 4],
        "ventilation": [0, 1, 1, 1, *[0] * 8],
        "urine": [60] * 5 + [200] * 7,
        "vasopressor": [0, 0.08, 0.08 + 0.45 * 0.2, 0.45 * 0.2, *[0] * 8],
        "fluid": [100, 300, 0, 0, 0, 50, *[0] * 6],
        "sofa_coagulation": [1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3],
        # 70 / 0.5 = 140, as long as the gas counts: three points while ventilated, else two.
        "sofa_respiration": [0, 3, 3, 3, 2, 2, 2, 2, *[0] * 4],
        "sofa_cardiovascular": [1, 3, 4, 3, *[0] * 8],
        "sofa_renal": [0, 0, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3],
        "gender": [0] * 12,
    }
    found = {name: grid[name].to_list() for name in expected}
    for name, values in expected.items():
        assert found[name] == pytest.approx(values), name


def test_an_action_is_the_level_of_each_dose(source: Path, read_once: BuildOptions, tmp_path: Path) -> None:
    made = build_cohort(source, tmp_path / "cohort", read_once)
    doses = np.array(made.cohort.schema.actions.vectors)[made.cohort.actions]
    assert ((doses[:, 0] > 0) == (made.grid["vasopressor"].to_numpy() > 0)).all()
    assert ((doses[:, 1] > 0) == (made.grid["fluid"].to_numpy() > 0)).all()
    assert np.corrcoef(doses[:, 1], made.grid["fluid"].to_numpy())[0, 1] > 0.9
    assert len(made.cohort.schema.actions) == 25


def test_stays_that_cannot_be_used_are_in_the_flow(tmp_path: Path) -> None:
    """One ends before it begins, one is listed twice, one is of nobody known."""
    tables = invented_patients(4, hours=50)
    backwards, unknown = tables.add_stay(hours=-5), tables.add_stay()
    tables.rows["ICUSTAYS"].append(dict(tables.rows["ICUSTAYS"][0]))
    tables.rows["PATIENTS"] = [row for row in tables.rows["PATIENTS"] if row["subject_id"] != unknown.subject]
    first, second, *_ = build_cohort(tables.write(tmp_path / "mimic"), tmp_path / "cohort", ALL_ADULTS).flow.steps
    assert backwards.subject != unknown.subject
    assert (first.rule, first.stays, first.subjects) == ("stays in intensive care", 7, 6)
    assert (second.stays, second.subjects, second.removed_stays, second.removed_subjects) == (4, 4, 3, 2)


def test_horizons(source: Path, tmp_path: Path) -> None:
    brief = BuildOptions(selection=Selection("all-adults", Window(shortest=2, longest=6)), threads=1)
    assert set(build_cohort(source, tmp_path / "cohort", brief).cohort.lengths) == {6}


def failing(build: Build, folder: Path) -> None:
    assert (folder / "episodes.parquet").exists()
    raise RuntimeError("no ink")


def test_a_failure_leaves_no_cohort_and_keeps_what_was_read(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="no ink"):
        build_cohort(source, tmp_path / "cohort", ALL_ADULTS, finish=failing)
    assert [path.name for path in tmp_path.iterdir()] == [".cohort-work"]
    made: list[tuple[str, ...]] = []
    read = build_module.read_events

    def recorded(*args: object, **settings: object) -> object:
        events = read(*args, **settings)  # type: ignore[arg-type]
        made.append(events.made)
        return events

    monkeypatch.setattr(build_module, "read_events", recorded)
    ticks: list[Tick] = []
    build_cohort(source, tmp_path / "cohort", ALL_ADULTS, progress=ticks.append)
    assert made == [()]
    assert "grid" not in {tick.stage for tick in ticks}
    assert [path.name for path in tmp_path.iterdir()] == ["cohort"]


def test_a_working_folder_of_ones_own_is_kept(source: Path, tmp_path: Path) -> None:
    options = BuildOptions(selection=ADULTS, threads=1, work=tmp_path / "work")
    first = build_cohort(source, tmp_path / "one", options)
    assert (tmp_path / "work" / "stages" / "stays.parquet").exists()
    assert not (tmp_path / "work" / "temporary").exists()
    second = build_cohort(source, tmp_path / "two", options)
    assert first.cohort.fingerprint() == second.cohort.fingerprint()


def test_nothing_is_replaced_unless_asked(source: Path, read_once: BuildOptions, tmp_path: Path) -> None:
    build_cohort(source, tmp_path / "cohort", read_once)
    with pytest.raises(StoreError, match="exists already"):
        build_cohort(source, tmp_path / "cohort", read_once)
    again = replace(read_once, levels=LevelChoice(levels="paper"), overwrite=True)
    made = build_cohort(source, tmp_path / "cohort", again)
    assert load_cohort(tmp_path / "cohort").schema == made.cohort.schema
    assert made.cohort.schema.actions.axes[1].levels == (0, 30, 80, 279, 850)


def test_what_would_be_refused_in_the_end_is_refused_before_anything_is_read(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "cohort"
    target.mkdir()
    (target / "thesis.txt").write_text("all of it")
    ticks: list[Tick] = []
    with pytest.raises(StoreError, match=r"also holds thesis\.txt,"):
        build_cohort(source, target, replace(ALL_ADULTS, overwrite=True), progress=ticks.append)
    (target / "thesis.txt").rename(target / "flow.png")
    with pytest.raises(StoreError, match=r"also holds flow\.png,"):  # nobody would draw it anew
        build_cohort(source, target, replace(ALL_ADULTS, overwrite=True), progress=ticks.append)
    for settings in ({"memory": "lots"}, {"threads": 0}):
        with pytest.raises(InputError, match=r"memory|threads"):
            build_cohort(source, tmp_path / "other", replace(ALL_ADULTS, **settings), progress=ticks.append)
    assert [path.name for path in tmp_path.iterdir()] == ["cohort"]
    assert ticks == []


def test_pictures_of_an_earlier_build_are_replaced(source: Path, read_once: BuildOptions, tmp_path: Path) -> None:
    def draw(build: Build, folder: Path) -> None:
        for name in PICTURES:
            (folder / name).write_text(str(build.flow.stays))

    for overwrite in (False, True):
        build_cohort(source, tmp_path / "cohort", replace(read_once, overwrite=overwrite), finish=draw)
    assert {file.name for file in (tmp_path / "cohort").iterdir()} == {*FILES, *PICTURES}


def test_no_sepsis_says_which_rule_and_leaves_nothing(tmp_path: Path) -> None:
    folder = invented_patients(3, hours=60, infected=False).write(tmp_path / "mimic")
    with pytest.raises(InputError, match=r"'suspected infection .*' removed the last 3"):
        build_cohort(folder, tmp_path / "out" / "cohort", SEPSIS)
    assert not (tmp_path / "out" / "cohort").exists()


def test_wrong_levels_are_refused_before_anything_is_read(source: Path, tmp_path: Path) -> None:
    options = BuildOptions(selection=ADULTS, levels=LevelChoice(levels=str(tmp_path / "none.yaml")))
    with pytest.raises(StoreError, match=r"none\.yaml"):
        build_cohort(source, tmp_path / "cohort", options)
    with pytest.raises(StoreError, match="does not exist"):
        build_cohort(tmp_path / "nowhere", tmp_path / "cohort")
    assert list(tmp_path.iterdir()) == []


def test_origins_follow_what_was_charted_held_and_assumed(tmp_path: Path) -> None:
    """One stay by hand: 0 measured, 1 carried forward, 2 assumed."""
    tables = MimicTables()
    stay = tables.add_stay(hours=50, age=54, gender="M")
    for hour, pressure in ((1, 60), (4, 72), (13, 90)):
        tables.chart(stay, hour, 220052, pressure)
    for hour, platelets in ((-3, 140), (30, 45)):
        tables.lab(stay, hour, 51265, platelets)
    tables.output(stay, 5, 226559, 30)
    options = BuildOptions(selection=ADULTS, levels=LevelChoice(levels="paper"), threads=1)
    made = build_cohort(tables.write(tmp_path / "mimic"), tmp_path / "cohort", options)
    stored = load_cohort(tmp_path / "cohort")
    assert stored.origins is not None
    found = {feature.name: stored.origins[:, at].tolist() for at, feature in enumerate(stored.schema.dynamic)}
    assert found["MAP"] == [0, 0, 1, 0, 1, 1, *[2] * 6]  # held for eight hours
    assert found["platelets"] == [1] * 7 + [0] + [1] * 4  # the first one is from before the stay
    assert found["urine"] == [2, 0, *[2] * 10]
    assert found["bilirubin"] == [2] * 12
    # Measured with any organ's value; carried where none is new, but platelets are still known.
    assert found["SOFA"] == [0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1]
    assert (stored.origins == made.cohort.origins).all()
    assert made.grid.columns == pl.read_parquet(tmp_path / "cohort" / "grid.parquet").columns  # masks, no origins


def test_origins_agree_with_the_masks(source: Path, read_once: BuildOptions, tmp_path: Path) -> None:
    made = build_cohort(source, tmp_path / "cohort", read_once)
    assert made.cohort.origins is not None
    for at, feature in enumerate(made.cohort.schema.dynamic):
        if feature.name != "SOFA":
            measured = made.grid[f"measured_{feature.name}"].to_numpy()
            assert ((made.cohort.origins[:, at] == 0) == measured).all(), feature.name
    train, test = made.cohort.split(test=0.3, seed=0)
    assert train.origins is not None
    assert test.origins is not None
    assert len(train.origins) + len(test.origins) == len(made.cohort.origins)
