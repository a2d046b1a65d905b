"""eICU: a stay followed by hand from raw rows to the grid; drug strings and free texts, read or counted."""

from pathlib import Path

import polars as pl
import pytest
from eicu_tables import EicuTables, invented_patients
from test_meds import EXPECTED
from typer.testing import CliRunner

from ifonly.cli import app
from ifonly.clinical.build import BuildOptions, build_cohort
from ifonly.clinical.extract import Events, read_events, recognise
from ifonly.clinical.inclusion import Selection
from ifonly.clinical.levels import LevelChoice
from ifonly.clinical.sources import LAYOUTS, find_source
from ifonly.errors import InputError, StoreError
from ifonly.study.plan import ClinicalData, load_study

INTAKE = "Intake (ml)|"


def hand_written() -> EicuTables:
    """The stay of the hand-followed cases of MIMIC and MEDS, as eICU would have it."""
    tables = EicuTables()
    stay = tables.add_stay(42, hours=50)
    tables.pressure(stay, 1, 60)
    tables.nurse(stay, 2, "Non-Invasive BP", "Non-Invasive BP Mean", "64")
    tables.add("vitalAperiodic", stay, observationoffset=240, noninvasivemean=72)
    tables.pressure(stay, 13, 90)
    for hour, platelets in ((-3, 140), (6, 95), (30, 45)):
        tables.lab(stay, hour, "platelets x 1000", platelets)
    tables.lab(stay, 9, "creatinine", 9.9, revised=10)
    tables.lab(stay, 9, "creatinine", 3.6, revised=11)  # the last revision counts
    tables.lab(stay, 5, "paO2", 70)
    tables.breathe(stay, 5, "FIO2 (%)", "50%")
    tables.breathe(stay, 6, "PEEP", "8")
    tables.breathe(stay, 17, "RT Vent On/Off", "Off")
    for hour in range(0, 50, 2):
        ml = 30 if hour < 20 else 100
        for side in ("L neph:", "R neph:"):  # as much from the left as from the right
            tables.cell(stay, hour + 0.5, f"Output (ml)|Urine, {side}", ml / 2)
        tables.cell(stay, hour + 0.5, "Output (ml)|Urine, L neph:", ml / 2)  # a copy
        tables.cell(stay, hour + 0.5, "Output (ml)|Chest Tube", 500)
    for hour, rate in ((5, ".08"), (8, "0.08"), (11, "OFF")):
        tables.infuse(stay, hour, "Norepinephrine (mcg/kg/min)", rate)
    for hour, rate in ((10, "15"), (12, "15"), (14, "0")):  # 10 mg in 250 mL: 10 mcg/min, at 50 kg
        tables.infuse(stay, hour, "Phenylephrine (ml/hr)", rate, drugamount="10", volumeoffluid="250")
    tables.cell(stay, 3.5, f"{INTAKE}Crystalloids (ml)|NS", 100)
    tables.cell(stay, 7, f"{INTAKE}Generic Intake (ml)|Volume (mL)-0.9 %  sodium chloride infusion", 300)
    tables.cell(stay, 20, f"{INTAKE}Crystalloids (ml)|0.45 NS ", 100)  # counts half
    tables.cell(stay, 20, f"{INTAKE}Generic Intake (ml)|P.O.", 240)
    tables.cell(stay, 20, f"{INTAKE}Generic Intake (ml)|Zebra", 777)
    for part, points in (("Eyes", "4"), ("Verbal", "5"), ("Motor", "4")):
        tables.nurse(stay, 2, "Glasgow coma score", part, points)
    return tables


def test_one_stay_followed_by_hand(tmp_path: Path) -> None:
    source = hand_written().write(tmp_path / "eicu")
    options = BuildOptions(
        selection=Selection(cohort="all-adults"), levels=LevelChoice("paper"), threads=1, work=tmp_path / "work"
    )
    made = build_cohort(source, tmp_path / "cohort", options)
    for name, values in EXPECTED.items():
        assert made.grid[name].to_list() == pytest.approx(values, rel=1e-6), name
    assert made.cohort.ids == ("42",)
    assert made.origin["source"] == "eICU"
    said = " ".join(made.remarks)
    assert "output: 25 of 100 rows are not read (not urine: 25)." in said
    assert "intake: 2 of 5 rows are not read (a text that is not known: 1; by mouth or tube: 1)." in said
    assert "nobody can have a suspected infection" in said
    assert read_events(source, tmp_path / "work", threads=1).made == ()  # work is not done twice


CHARTS: list[tuple[str, str | None, dict[str, str], float | None]] = [
    ("Norepinephrine (mcg/kg/min)", "0.1", {}, 0.1),
    ("levophed  (mcg/min)", "5", {}, 0.1),
    ("Norepinephrine (mg/hr)", "0.3", {}, 0.1),
    ("Norepinephrine STD 8 mg Dextrose 5% 250 ml (mcg/min)", "10", {"patientweight": "100"}, 0.1),
    ("EPINEPHrine(Adrenalin)STD 4 mg Sodium Chloride 0.9% 500 ml (mcg/min)", "2.5", {}, 0.05),
    ("Neo-Synephrine (mcg/min)", "100", {}, 0.9),
    ("DOPamine STD 400 mg Dextrose 5% 250 ml  Premix (mcg/kg/min)", "10", {}, 0.1),
    ("Vasopressin (units/min)", "0.04", {}, 0.2),
    ("Vasopressin 40 Units Sodium Chloride 0.9% 100 ml (units/hr)", "2.4", {}, 0.2),
    ("vasopressin (ml/hr)", "6", {"drugamount": "40", "volumeoffluid": "100"}, 0.2),
    ("Norepinephrine (ml/hr)", "9.375", {"drugamount": "8", "volumeoffluid": "250"}, 0.1),
    ("Norepinephrine (ml/hr)", "15", {}, None),
    ("Norepinephrine ()", "7", {}, None),
    ("Norepinephrine (Unknown)", "7", {}, None),
    ("Norepinephrine (mcg/min)", "Documentation undone", {}, None),
    ("Norepinephrine (mcg/min)", None, {}, None),
    ("Norepinephrine / Vasopressin (ml/hr)", "8", {}, None),
    ("Propofol (mcg/kg/min)", "20", {}, None),
]
"""Drug string, rate and more, and the equivalent in mcg/kg/min for a patient of 50 kg; None: not read."""
CELLS: list[tuple[str, float | None]] = [
    ("Crystalloids (ml)|NS ", 1),
    ("Crystalloids (ml)|NS  w/20 mEq KCL", 1),
    ("Crystalloids (ml)|Volume (mL)-lactated ringers infusion", 1),
    ("Crystalloids (ml)|D5 LR ", 1),
    ("Crystalloids (ml)|D5 0.45 NS  w/20 mEq KCL 1000 ml", 0.5),
    ("Generic Intake (ml)|D51/2NS IVF", 0.5),
    ("Crystalloids (ml)|Volume (mL)-dextrose 5 % and 0.45% NaCl infusion", 0.5),
    ("Crystalloids (ml)|D5 0.2 NS ", 1),
    ("Crystalloids (ml)|Hypertonic saline 3% ", 3),
    ("Crystalloids (ml)|D5W  w/150 mEq NaHCO3 1000 ml", 1),
    ("Colloids (ml)|5% Albumin", 1),
    ("Colloids (ml)|25% Albumin", 5),
    ("Blood Products (ml)|pRBCs", 1),
    ("Generic Intake (ml)|IVPB Volume (ml)", 1),
    ("Generic Intake (ml)|Volume Expanders", 1),
    ("Crystalloids (ml)|D5W", None),  # water, no salt
    ("Crystalloids (ml)|Continuous infusion meds", None),
    ("Nutrition (ml)|TPN", None),
    ("Generic Intake (ml)|Tube Feeding", None),
    ("Generic Intake (ml)|P.O.", None),
    ("Generic Intake (ml)|Flush Total", None),
    ("Generic Intake (ml)|Hourly In", None),
]
"""Cells of the intake, and the tonicity that is read from their text; None: not counted."""


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Events:
    """Several stays, read once: 1 with drug strings, 2 with cells of the intake, 3 with ventilation, and patients."""
    tables, folder = EicuTables(), tmp_path_factory.mktemp("many")
    for stay in (1, 2, 3):
        tables.add_stay(stay, hours=200)
    for place, (drug, rate, more, _) in enumerate(CHARTS):
        tables.infuse(1, 10 * place, drug, rate, **more)
    for hour, (cell, _) in enumerate(CELLS):
        tables.cell(2, hour, INTAKE + cell, 100)
    switch = "RT Vent On/Off"
    for hour, label, value in ((1, switch, "Start"), (2, "Tidal Volume (set)", "450"), (9, switch, "suspended")):
        tables.breathe(3, hour, label, value)
    for hour, value in ((3, "ventilator"), (10, "nasal cannula"), (11, "venti mask"), (12, "BiPAP/CPAP"), (13, "RA")):
        tables.nurse(3, hour, "O2 Admin Device", "O2 Admin Device", value)
    tables.cell(3, 5, "Output (ml)|3 way foley", 900)
    tables.cell(3, 5, f"{INTAKE}Generic Intake (ml)|Bladder Irrigation", 700)
    old = {"patient": "002-70", "age": "> 89", "gender": "Female", "patienthealthsystemstayid": 5}
    tables.add_stay(11, **old)
    tables.add_stay(12, **old, unitvisitnumber=2, hospitaldischargestatus="Expired")
    tables.add_stay(13, patient="002-80", patienthealthsystemstayid=6)
    tables.add_stay(14, patient="002-80", patienthealthsystemstayid=7, hospitaldischargestatus=None)  # which was first?
    tables.add_stay(15, patient="002-80", patienthealthsystemstayid=8, hospitaldischargeyear=2015)
    tables.add_stay(16, gender="Unknown")
    tables.prescribe(11, 4, "CEFEPIME 2 G IVPB")
    tables.prescribe(11, 5, "TOBRAMYCIN OPHTH OINT", "BOTH EYES (OPHTH)")
    tables.prescribe(11, 6, "VANCOMYCIN HCL", cancelled="Yes")
    tables.treat(11, 7, "infectious diseases|medications|therapeutic antibacterials|vancomycin")
    tables.treat(11, 8, "infectious diseases|medications|prophylactic antibacterials")
    tables.treat(11, 9, "infectious diseases|cultures / immuno-assays|cultures|blood")
    tables.culture(13, 10)
    return read_events(tables.write(folder / "eicu"), folder / "work", threads=1)


def test_drug_strings_are_read_or_counted_by_their_reason(events: Events) -> None:
    given = events.table("vasopressors").collect().sort("start")
    expected = [(10.0 * place, rate) for place, (*_, rate) in enumerate(CHARTS) if rate is not None]
    assert given["start"].to_list() == [start for start, _ in expected]
    assert given["rate"].to_list() == pytest.approx([rate for _, rate in expected])
    assert (given["stop"] - given["start"]).to_list() == pytest.approx([1.0] * len(expected))  # nothing follows
    assert events.counts["files"]["inputs_carevue"]["read"]["norepinephrine"] == {
        "kept": 5,
        "mL/h without a concentration": 1,
        "no unit": 2,
        "a rate that is no number": 1,
        "no rate": 1,
        "names several drugs": 1,
    }
    assert any("norepinephrine: 6 of 11 rows are not read" in note for note in events.notes)
    assert any(f"after {len(expected)} charted rates nothing says for 4 hours" in note for note in events.notes)


def test_what_went_in(events: Events) -> None:
    counted = {CELLS[round(hour)][0]: ml for hour, ml in events.table("fluids").collect().select("start", "ml").rows()}
    assert counted == pytest.approx({cell: 100 * tonicity for cell, tonicity in CELLS if tonicity is not None})
    read = events.counts["files"]["inputs_carevue"]["read"]["intake"]
    assert read == {
        "kept": len(counted),
        "a text that is not known": 2,
        "a sum of other rows": 2,
        "by mouth or tube": 2,
        "nutrition": 1,
    }


def test_stays_deaths_ages_and_infections(events: Events) -> None:
    stays = events.table("stays").collect().filter(~pl.col("stay").is_in(["1", "2", "3"]))
    assert stays.select("stay", "subject", "age", "female", "readmission", "died_in_hospital").rows() == [
        ("11", "002-70", 91.4, True, False, False),
        ("12", "002-70", 91.4, True, True, True),
        ("13", "002-80", 54.0, False, False, False),
        ("14", "002-80", 54.0, False, False, None),
        ("15", "002-80", 54.0, False, True, False),
    ]
    assert events.listed.stays == 3 + 6
    assert events.table("antibiotics").collect().select("stay", "hour").rows() == [("11", 4.0), ("11", 7.0)]
    assert events.table("cultures").collect().select("stay", "hour").rows() == [("11", 9.0), ("13", 10.0)]
    assert any("1 times a patient was in hospital more than once within a year" in note for note in events.notes)


def test_ventilation_and_irrigation(events: Events) -> None:
    seen = events.table("ventilation").collect().select("hour", "on").rows()
    assert seen == [(1, True), (2, True), (3, True), (9, False), (10, False), (11, False), (13, False)]
    assert events.table("urine").collect().select("hour", "ml").rows() == [(5.0, 200.0)]


def test_a_whole_cohort_by_sepsis(tmp_path: Path) -> None:
    source = invented_patients(4).write(tmp_path / "eicu", packed=False, upper=True)
    made = build_cohort(source, tmp_path / "cohort", BuildOptions(threads=1, levels=LevelChoice("paper")))
    assert len(made.cohort) == 4
    assert made.flow.steps[0].stays == 4
    assert made.grid["ventilation"].to_list() == [1.0] * made.grid.height


def test_it_is_recognised_and_what_is_missing_is_named(tmp_path: Path) -> None:
    source = EicuTables().write(tmp_path / "eicu")
    assert find_source(source).release == "eICU"
    assert set(find_source(source).tables) == set(LAYOUTS["eICU"])
    for name in ("microLab", "treatment"):
        (source / f"{name}.csv.gz").unlink()
    assert "microlab" not in find_source(source).tables
    (source / "infusionDrug.csv.gz").unlink()
    with pytest.raises(StoreError, match=r"looks like eICU, but the table infusionDrug\.csv\.gz .* is missing"):
        find_source(source)
    (source / "patient.csv.gz").unlink()
    with pytest.raises(StoreError, match=r"looks like eICU, but its table of ICU stays, patient\.csv\.gz"):
        find_source(source)


def test_texts_can_be_added_and_a_drug_left_out_by_a_file(tmp_path: Path) -> None:
    tables = EicuTables()
    stay = tables.add_stay(1)
    tables.cell(stay, 5, f"{INTAKE}Generic Intake (ml)|Zebra", 700)
    tables.lab(stay, 5, "Plt count", 90)
    for hour in range(25):
        tables.infuse(stay, hour, "Dopamine (mcg/kg/min)", "5000")
    source, more = tables.write(tmp_path / "eicu"), tmp_path / "more.yaml"
    with pytest.raises(InputError, match="25 of 25 rows for vasopressors \\(dopamine, eicu\\) cannot be used"):
        read_events(source, tmp_path / "work", threads=1)
    more.write_text(
        "labs: {Plt count: platelets}\nfluids: {our own: {words: zebra, tonicity: 0.5}}\n"
        "vasopressors: {dopamine: no such text}\n",
        encoding="utf-8",
    )
    events = read_events(source, tmp_path / "work", codes=more, threads=1)
    assert events.table("fluids").collect()["ml"].to_list() == [350.0]
    assert events.table("measurements").collect().select("variable", "value").rows() == [("platelets", 90.0)]
    assert events.table("vasopressors").collect().is_empty()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lab: {}", "there is no list 'lab'"),
        ("fluids: {ours: {words: zebra}}", "fluids: ours.*tonicity"),
        ("fluids: {ours: {words: '(', tonicity: 1}}", "fluids: ours: '\\(' is no pattern"),
        ("labs: {Plt count: platelet}", "labs: 'platelet' is none of"),
        ("vasopressors: {levosimendan: levosimendan}", "'levosimendan' has no equivalent"),
    ],
)
def test_wrong_additions_are_refused(tmp_path: Path, text: str, message: str) -> None:
    source, more = EicuTables().write(tmp_path / "eicu"), tmp_path / "more.yaml"
    more.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        recognise(source, more)


def test_a_first_study_names_the_database(tmp_path: Path) -> None:
    source, study = EicuTables().write(tmp_path / "eicu"), tmp_path / "study.yaml"
    made = CliRunner().invoke(app, ["init", str(source), "--out", str(study)])
    assert made.exit_code == 0, made.output
    data = load_study(study).data
    assert isinstance(data, ClinicalData)
    assert data.source.resolve() == source.resolve()
    assert "\n  eicu:\n" in study.read_text(encoding="utf-8")
