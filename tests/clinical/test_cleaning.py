"""Units, ranges, duplicates and the Glasgow coma scale, on rows spelled out here: one stay per case."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from mimic_tables import MimicTables, Stay

from ifonly.clinical.extract import Events, read_events

# Items of MetaVision, which both releases have.
MEAN_BP, CUFF_BP, FIO2, PAO2, PEEP = 220052, 220181, 223835, 220224, 220339
EYE, VERBAL, MOTOR = 220739, 223900, 223901
LAB_PO2, LAB_CREATININE, SPECIMEN = 50821, 50912, {"MIMIC-III": 50800, "MIMIC-IV": 52033}
FOLEY, IRRIGANT_IN, IRRIGANT_OUT = 226559, 227488, 227489
OXYGEN_DEVICE, EXTUBATION = 226732, 227194
RELEASES = ("MIMIC-III", "MIMIC-IV")


class Cases:
    """Stays by the name of their case, and the events that became of them."""

    def __init__(self, release: str) -> None:
        self.release, self.tables, self.stays = release, MimicTables(), dict[str, Stay]()

    def new(self, name: str, **options: Any) -> Stay:
        self.stays[name] = self.tables.add_stay(**options)
        return self.stays[name]

    def read(self, folder: Path) -> None:
        source = self.tables.write(folder / "mimic", release=self.release)
        self.events: Events = read_events(source, folder / "work", threads=1)

    def rows(self, table: str, case: str) -> pl.DataFrame:
        name = str(self.stays[case].stay)
        return self.events.table(table).filter(pl.col("stay") == name).drop("stay").collect()

    def measured(self, case: str, variable: str) -> list[tuple[float, float]]:
        rows = self.rows("measurements", case).filter(pl.col("variable") == variable)
        return [(round(hour, 6), value) for hour, value in rows.sort("hour").select("hour", "value").iter_rows()]

    def removed(self, table: str, kind: str) -> dict[str, int]:
        counts: dict[str, int] = dict(self.events.counts["tables"][table]["kinds"].get(kind, {}))
        counts.pop("kept", None)
        return counts


def chart_cases(cases: Cases) -> None:
    tables, new = cases.tables, cases.new
    stay = new("ranges")
    for number, value in enumerate((9.9, 10, 250, 250.1, -5)):
        tables.chart(stay, number, MEAN_BP, value)
    tables.chart(stay, 5, MEAN_BP, "see note")
    tables.chart(stay, 6, MEAN_BP, 70, valuenum="nan")
    stay = new("fio2")
    for number, value in enumerate((0.2, 0.5, 1.0, 20, 21, 60, 100, 0.19, 1.5, 19.9, 101, 0)):
        tables.chart(stay, number, FIO2, value)
    stay = new("together")
    for item, value in ((MEAN_BP, 70), (MEAN_BP, 70), (CUFF_BP, 80), (MEAN_BP, 300)):
        tables.chart(stay, 1, item, value)
    stay = new("outside", hours=10)
    for hour in (-24.1, -24, 0, 10, 10.1):
        tables.chart(stay, hour, MEAN_BP, 60)
    stay = new("no stay")
    tables.chart(stay, 1, MEAN_BP, 66, icustay_id=None)
    tables.chart(stay, 2, MEAN_BP, 66, icustay_id=1)
    tables.chart(stay, 3, MEAN_BP, 66, charttime=None)


def lab_cases(cases: Cases) -> None:
    tables, new = cases.tables, cases.new
    stay = new("labs", hours=24)
    for hour in (-48.1, -48, 0, 24, 24.1):
        tables.lab(stay, hour, LAB_CREATININE, 1.5)
    tables.lab(stay, 2, LAB_CREATININE, 1.6, hadm_id=None)  # an admission that is not said, at the stay's time
    tables.lab(stay, 3, LAB_CREATININE, 1.7, hadm_id=1)  # another admission
    tables.lab(stay, 4, LAB_CREATININE, "ERROR", valuenum=None)
    first = new("two stays", hours=10, intime=datetime(2160, 1, 1))
    options: dict[str, Any] = {"subject": first.subject, "admission": first.admission}
    new("its second", hours=10, intime=first.intime + timedelta(hours=20), **options)
    tables.lab(first, 15, LAB_CREATININE, 2.0)
    stay = new("venous")
    for hour, kind in enumerate(("ART", "VEN", "MIX", None, "CENTRAL VENOUS.", "Art.", "PLEURAL")):
        tables.lab(stay, hour, LAB_PO2, 90)
        if kind is not None:
            tables.lab(stay, hour, SPECIMEN[cases.release], kind)


def gcs_cases(cases: Cases) -> None:
    tables, new = cases.tables, cases.new
    stay = new("parts")
    for hour, item, points in (
        *((0.0, item, points) for item, points in ((EYE, 4), (VERBAL, 5), (MOTOR, 6))),
        (2.0, EYE, 3),  # with the verbal and motor responses of two hours ago
        (6.0, VERBAL, 4),  # motor six hours old: the limit
        (6.5, EYE, 2),  # motor too old now
        (7.0, MOTOR, 6),
        (7.0, MOTOR, 5),  # of two at the same time the worse
        (8.0, EYE, 7),  # no such response
    ):
        tables.chart(stay, hour, item, "words", valuenum=points)
    stay = new("intubated")
    tables.chart(stay, 1, EYE, "To Pain", valuenum=2)
    tables.chart(stay, 1, VERBAL, "No Response-ETT", valuenum=None)
    tables.chart(stay, 1, MOTOR, "Flex-withdraws", valuenum=4)
    stay = new("never verbal")
    tables.chart(stay, 1, EYE, "Spontaneously", valuenum=4)
    tables.chart(stay, 1, MOTOR, "Obeys Commands", valuenum=6)


def output_cases(cases: Cases) -> None:
    tables, new = cases.tables, cases.new
    stay = new("urine")
    for hour, item, ml in (
        (1, FOLEY, 50),
        (1, FOLEY, 50),  # the same row again
        (1, 226560, 30),
        (2, FOLEY, -10),
        (3, FOLEY, 10_001),
        (4, FOLEY, "none"),
        (5, 227510, 400),  # what is left of tube feeding is no urine
        (6, IRRIGANT_IN, 3000),
        (6, IRRIGANT_OUT, 3200),
        (7, IRRIGANT_IN, 500),
    ):
        tables.output(stay, hour, item, ml)


def ventilation_cases(cases: Cases) -> None:
    tables, new = cases.tables, cases.new
    stay = new("ventilated")
    tables.chart(stay, 1, PEEP, 5)
    tables.chart(stay, 2, OXYGEN_DEVICE, "Nasal cannula")
    tables.chart(stay, 3, OXYGEN_DEVICE, "Endotracheal tube")
    tables.chart(stay, 4, PEEP, 5)
    tables.chart(stay, 4, OXYGEN_DEVICE, "Nasal cannula")
    tables.chart(stay, 5, PEEP, 5)
    tables.procedure(stay, 5, EXTUBATION)
    tables.chart(stay, 6, PEEP, None)
    tables.chart(stay, 7, OXYGEN_DEVICE, "Trach mask ")
    tables.chart(stay, 8, 223848, "Drager")


def people_cases(cases: Cases) -> None:
    tables, new = cases.tables, cases.new
    cases.stays["first"] = tables.add_stay(age=50, gender="M", intime=datetime(2170, 3, 1), died=True, hours=10)
    again = {"subject": cases.stays["first"].subject, "intime": datetime(2171, 3, 1)}
    new("again", **again)
    new("old", age=300 if cases.release == "MIMIC-III" else 91)
    stay = new("pounds")
    tables.chart(stay, 1, 226531, 1)
    tables.chart(stay, 2, 226531, 200)
    tables.chart(stay, 3, 224639, 85)
    stay = new("weight of an order")
    tables.infuse(stay, 1, 2, 225158, amount=1, amountuom="ml", patientweight=500)
    tables.infuse(stay, 2, 3, 225158, amount=1, amountuom="ml", patientweight=77)
    new("no weight")


def infection_cases(cases: Cases) -> None:
    tables, new = cases.tables, cases.new
    stay = new("infected", hours=48, intime=datetime(2180, 5, 5, 6))
    for hour, drug, route in (
        (0, "Vancomycin", "IV"),
        (24, "Piperacillin-Tazobactam Na", "IV"),
        (24, "Vancomycin", "IV"),  # the same day
        (48, "*NF* Ertapenem Sodium", "IM"),
        (-24, "Ciprofloxacin 0.3% Ophth Soln", "OU"),
        (-24, "Erythromycin", "BOTH EYES"),
        (-24, "Tobramycin", "IH"),
        (-24, "Bacitracin Ointment", "TP"),
        (-24, "Gentamicin Cream", None),
        (-24, "Furosemide", "IV"),
        (-24, "Fluconazole", "IV"),
        (-24, "Dextrose 5%", "IV"),
    ):
        tables.prescribe(stay, hour, drug, route)
    tables.culture(stay, 3.5)
    tables.culture(stay, 3.5)
    tables.culture(stay, 20, time_known=False)
    tables.culture(stay, -73)
    tables.culture(stay, 71)
    tables.culture(stay, 73)
    # Days only in MIMIC-III: noon of the third and fourth day after the stay, 72 hours and more after its end.
    stay = new("treated later", hours=6, intime=datetime(2181, 5, 5, 6))
    tables.culture(stay, 5)
    for hour in (6 + 72, 6 + 72.1 if cases.release == "MIMIC-IV" else 6 + 96):
        tables.prescribe(stay, hour, "Vancomycin")


@pytest.fixture(scope="module", params=RELEASES)
def cases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cases:
    made = Cases(request.param)
    for add in (chart_cases, lab_cases, gcs_cases, output_cases, ventilation_cases, people_cases, infection_cases):
        add(made)
    made.read(tmp_path_factory.mktemp("cases"))
    return made


def test_implausible_values_and_texts_are_removed_and_counted(cases: Cases) -> None:
    assert cases.measured("ranges", "mean_bp") == [(1, 10), (2, 250)]
    removed = cases.removed("measurements", "mean_bp")
    assert removed["implausible"] == 3 + 1 + 1  # with NaN, and 300 of another case
    assert removed["no number"] == 1


def test_fio2_is_a_fraction_whether_charted_so_or_in_percent(cases: Cases) -> None:
    assert cases.measured("fio2", "fio2") == [(0, 0.2), (1, 0.5), (2, 1), (3, 0.2), (4, 0.21), (5, 0.6), (6, 1)]
    assert cases.removed("measurements", "fio2") == {"implausible": 5}


def test_of_several_values_at_one_time_the_median_counts_and_copies_do_not(cases: Cases) -> None:
    assert cases.measured("together", "mean_bp") == [(1, 75)]
    counts = cases.events.counts["tables"]["measurements"]
    assert (counts["duplicates"], counts["merged with others of the same time"]) == (1, 1)


def test_charted_values_count_from_a_day_before_the_stay_to_its_end(cases: Cases) -> None:
    assert [hour for hour, _ in cases.measured("outside", "mean_bp")] == [-24, 0, 10]
    assert cases.removed("measurements", "mean_bp")["outside the stay"] == 2


def test_rows_without_a_stay_or_time_are_counted(cases: Cases) -> None:
    assert cases.measured("no stay", "mean_bp") == []
    removed = cases.removed("measurements", "mean_bp")
    assert (removed["no stay"], removed["unknown stay"], removed["no time"]) == (1, 1, 1)


def test_labs_belong_to_the_stay_of_their_admission_and_time(cases: Cases) -> None:
    assert cases.measured("labs", "creatinine") == [(-48, 1.5), (0, 1.5), (2, 1.6), (24, 1.5)]
    assert cases.removed("measurements", "creatinine") == {"no stay": 3, "no number": 1}


def test_a_lab_between_two_stays_is_known_to_the_second_only(cases: Cases) -> None:
    assert cases.measured("two stays", "creatinine") == []
    assert cases.measured("its second", "creatinine") == [(-5, 2)]


def test_oxygen_of_what_is_said_to_be_no_arterial_blood_does_not_count(cases: Cases) -> None:
    assert [hour for hour, _ in cases.measured("venous", "pao2")] == [0, 3, 5]
    assert cases.removed("measurements", "pao2") == {"not arterial": 4}


def test_gcs_is_the_sum_of_parts_of_the_last_six_hours(cases: Cases) -> None:
    assert cases.measured("parts", "gcs") == [(0, 15), (2, 14), (6, 13), (7, 2 + 4 + 5)]
    assert cases.removed("gcs_parts", "eye") == {"implausible": 1}


def test_an_intubated_patient_scores_one_point_for_words(cases: Cases) -> None:
    assert cases.measured("intubated", "gcs") == [(1, 2 + 1 + 4)]
    assert cases.events.counts["tables"]["gcs_parts"]["kinds"]["verbal (intubated)"] == {"kept": 1}


def test_without_a_part_there_is_no_gcs(cases: Cases) -> None:
    assert cases.measured("never verbal", "gcs") == []


def test_urine(cases: Cases) -> None:
    rows = cases.rows("urine", "urine").sort("hour")
    assert list(rows.iter_rows()) == [(1, 80), (6, 200), (7, -500)]
    assert cases.removed("urine", "urine") == {"duplicate": 1, "implausible": 2, "no number": 1}
    note = "OUTPUTEVENTS" if cases.release == "MIMIC-III" else "outputevents"
    assert any(f"{note}.csv.gz: 1 values in value are no numbers" in text for text in cases.events.notes)


def test_evidence_of_ventilation(cases: Cases) -> None:
    rows = cases.rows("ventilation", "ventilated").sort("hour")
    assert list(rows.iter_rows()) == [(1, True), (2, False), (4, True), (5, False), (7, False), (8, True)]


def test_people(cases: Cases) -> None:
    first, again, old = (cases.rows("stays", name).row(0, named=True) for name in ("first", "again", "old"))
    assert first["age"] == pytest.approx(50, abs=0.01)
    assert again["age"] == pytest.approx(51, abs=0.01)
    assert (first["female"], again["female"], old["female"]) == (False, False, True)
    assert (first["readmission"], again["readmission"]) == (False, True)
    assert (first["died_in_hospital"], again["died_in_hospital"]) == (True, False)
    assert first["hours"] == 10
    assert first["source"] == "metavision"
    assert old["age"] == 91.4


def test_weights(cases: Cases) -> None:
    found = {name: cases.rows("stays", name)["weight"].item() for name in ("pounds", "weight of an order", "no weight")}
    assert found == {"pounds": pytest.approx(200 * 0.45359237), "weight of an order": 77, "no weight": None}
    assert any("have no plausible weight" in note for note in cases.events.notes)


def test_systemic_antibiotics(cases: Cases) -> None:
    rows = cases.rows("antibiotics", "infected").sort("hour")
    if cases.release == "MIMIC-III":  # days only: noon of each, seen from six in the morning
        assert list(rows.iter_rows()) == [(6, False), (30, False), (54, False)]
    else:
        assert list(rows.iter_rows()) == [(0, True), (24, True), (48, True)]


def test_antibiotics_count_until_72_hours_after_the_stay(cases: Cases) -> None:
    """As long as a culture of the stay may wait for them."""
    assert cases.rows("antibiotics", "treated later")["hour"].to_list() == [78]


def test_cultures(cases: Cases) -> None:
    rows = cases.rows("cultures", "infected").sort("hour")
    # The day of hour 20 is the next one, 26 hours after midnight of the first.
    assert list(rows.iter_rows()) == [(3.5, True), (30, False), (71, True)]


def test_carevue(tmp_path: Path) -> None:
    """What only MIMIC-III has: CareVue's items, charted totals of GCS, rows flagged as errors."""
    cases = Cases("MIMIC-III")
    stay = cases.new("carevue", source="carevue")
    for hour, item, value, more in (
        (1, 52, 70, {}),
        (2, 52, 71, {"error": 1}),
        (3, 52, 72, {"error": 0}),
        (1, 198, 9, {}),
        (1, 184, "1 No Response", {"valuenum": 1}),
        (1, 723, "1.0 ET/Trach", {"valuenum": 1}),
        (1, 454, "1 No Response", {"valuenum": 1}),
        (2, 184, "4 Spontaneously", {"valuenum": 4}),
        (1, 720, "Assist Control", {}),
        (2, 720, "Other/Remarks", {}),
        (3, 467, "Ventilator", {}),
        (4, 467, "Nasal Cannula", {}),
        (5, 640, "Extubated", {}),
        (6, 640, "Intubated", {}),
        (7, 190, 0.4, {}),
        (8, 762, 82, {}),
    ):
        cases.tables.chart(stay, hour, item, value, **more)
    cases.tables.output(stay, 1, 40055, 100)
    cases.tables.output(stay, 2, 40055, 100, iserror=1)
    cases.read(tmp_path)
    assert cases.measured("carevue", "mean_bp") == [(1, 70), (3, 72)]
    assert cases.measured("carevue", "gcs") == [(1, 9), (2, 4 + 1 + 1)]  # the charted total, where there is one
    assert cases.measured("carevue", "fio2") == [(7, 0.4)]
    assert list(cases.rows("ventilation", "carevue").iter_rows()) == [(1, True), (3, True), (4, False), (5, False)]
    assert list(cases.rows("urine", "carevue").iter_rows()) == [(1, 100)]
    row = cases.rows("stays", "carevue").row(0, named=True)
    assert (row["weight"], row["source"]) == (82, "carevue")


def test_stays_that_cannot_be_used(tmp_path: Path) -> None:
    cases = Cases("MIMIC-III")
    cases.new("good")
    cases.new("negative", hours=-1)
    cases.new("nothing", hours=0)
    cases.new("open")
    cases.tables.rows["ICUSTAYS"][-1]["outtime"] = None
    cases.new("stranger")
    cases.tables.rows["PATIENTS"].pop()
    cases.new("twice")
    cases.tables.rows["ICUSTAYS"].append(cases.tables.rows["ICUSTAYS"][-1])
    cases.read(tmp_path)
    kept = set(cases.events.table("stays").collect()["stay"])
    assert kept == {str(cases.stays[name].stay) for name in ("good", "twice")}
    assert cases.rows("stays", "twice")["readmission"].to_list() == [False]
    assert cases.removed("admitted", "stays") == {
        "negative or no duration": 2,
        "no time": 1,
        "duplicate": 1,
        "no such patient, or no age or sex": 1,
    }
