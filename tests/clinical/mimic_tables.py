"""Invented patients in the layouts of MIMIC-III and MIMIC-IV, for tests. Every value here is made up."""

import csv
import gzip
import io
import os
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

Row = dict[str, Any]

ROOT = Path(__file__).parents[2]
DEMO = Path(os.environ.get("IFONLY_MIMIC_DEMO", ROOT.parent / "shared" / "data" / "mimic-iii-demo"))
needs_demo = pytest.mark.skipif(
    not DEMO.is_dir(), reason="the demo of MIMIC-III is not here; IFONLY_MIMIC_DEMO names its folder"
)
"""For tests on the open demo of MIMIC-III, which is no part of this repository."""

THIRD = {
    "ICUSTAYS": "row_id subject_id hadm_id icustay_id dbsource first_careunit last_careunit first_wardid last_wardid "
    "intime outtime los",
    "ADMISSIONS": "row_id subject_id hadm_id admittime dischtime deathtime admission_type diagnosis "
    "hospital_expire_flag has_chartevents_data",
    "PATIENTS": "row_id subject_id gender dob dod dod_hosp dod_ssn expire_flag",
    "CHARTEVENTS": "row_id subject_id hadm_id icustay_id itemid charttime storetime cgid value valuenum valueuom "
    "warning error resultstatus stopped",
    "LABEVENTS": "row_id subject_id hadm_id itemid charttime value valuenum valueuom flag",
    "OUTPUTEVENTS": "row_id subject_id hadm_id icustay_id charttime itemid value valueuom storetime cgid stopped "
    "newbottle iserror",
    "INPUTEVENTS_CV": "row_id subject_id hadm_id icustay_id charttime itemid amount amountuom rate rateuom storetime "
    "cgid orderid linkorderid stopped newbottle originalamount originalamountuom originalroute originalrate "
    "originalrateuom originalsite",
    "INPUTEVENTS_MV": "row_id subject_id hadm_id icustay_id starttime endtime itemid amount amountuom rate rateuom "
    "storetime cgid orderid linkorderid ordercategoryname secondaryordercategoryname ordercomponenttypedescription "
    "ordercategorydescription patientweight totalamount totalamountuom isopenbag continueinnextdept cancelreason "
    "statusdescription comments_editedby comments_canceledby comments_date originalamount originalrate",
    "PROCEDUREEVENTS_MV": "row_id subject_id hadm_id icustay_id starttime endtime itemid value valueuom location "
    "storetime cgid orderid linkorderid ordercategoryname cancelreason statusdescription",
    "PRESCRIPTIONS": "row_id subject_id hadm_id icustay_id startdate enddate drug_type drug drug_name_poe "
    "drug_name_generic formulary_drug_cd gsn ndc prod_strength dose_val_rx dose_unit_rx form_val_disp form_unit_disp "
    "route",
    "MICROBIOLOGYEVENTS": "row_id subject_id hadm_id chartdate charttime spec_itemid spec_type_desc org_itemid "
    "org_name isolate_num ab_itemid ab_name dilution_text dilution_comparison dilution_value interpretation",
    "D_ITEMS": "row_id itemid label abbreviation dbsource linksto category unitname param_type conceptid",
    "D_LABITEMS": "row_id itemid label fluid category loinc_code",
}
FOURTH = {
    "icu/icustays": "subject_id hadm_id stay_id first_careunit last_careunit intime outtime los",
    "hosp/admissions": "subject_id hadm_id admittime dischtime deathtime admission_type admit_provider_id "
    "hospital_expire_flag",
    "hosp/patients": "subject_id gender anchor_age anchor_year anchor_year_group dod",
    "icu/chartevents": "subject_id hadm_id stay_id caregiver_id charttime storetime itemid value valuenum valueuom "
    "warning",
    "hosp/labevents": "labevent_id subject_id hadm_id specimen_id itemid order_provider_id charttime storetime value "
    "valuenum valueuom ref_range_lower ref_range_upper flag priority comments",
    "icu/outputevents": "subject_id hadm_id stay_id caregiver_id charttime storetime itemid value valueuom",
    "icu/inputevents": "subject_id hadm_id stay_id caregiver_id starttime endtime storetime itemid amount amountuom "
    "rate rateuom orderid linkorderid ordercategoryname secondaryordercategoryname ordercomponenttypedescription "
    "ordercategorydescription patientweight totalamount totalamountuom isopenbag continueinnextdept "
    "statusdescription originalamount originalrate",
    "icu/procedureevents": "subject_id hadm_id stay_id caregiver_id starttime endtime storetime itemid value "
    "valueuom location orderid linkorderid ordercategoryname statusdescription originalamount originalrate",
    "hosp/prescriptions": "subject_id hadm_id pharmacy_id poe_id poe_seq order_provider_id starttime stoptime "
    "drug_type drug formulary_drug_cd gsn ndc prod_strength form_rx dose_val_rx dose_unit_rx form_val_disp "
    "form_unit_disp doses_per_24_hrs route",
    "hosp/microbiologyevents": "microevent_id subject_id hadm_id micro_specimen_id order_provider_id chartdate "
    "charttime spec_itemid spec_type_desc test_seq test_itemid test_name org_itemid org_name isolate_num ab_itemid "
    "ab_name dilution_text interpretation comments",
    "icu/d_items": "itemid label abbreviation linksto category unitname param_type lownormalvalue highnormalvalue",
    "hosp/d_labitems": "itemid label fluid category",
}
IN_FOURTH = {
    "ICUSTAYS": "icu/icustays",
    "ADMISSIONS": "hosp/admissions",
    "PATIENTS": "hosp/patients",
    "CHARTEVENTS": "icu/chartevents",
    "LABEVENTS": "hosp/labevents",
    "OUTPUTEVENTS": "icu/outputevents",
    "INPUTEVENTS_MV": "icu/inputevents",
    "PROCEDUREEVENTS_MV": "icu/procedureevents",
    "PRESCRIPTIONS": "hosp/prescriptions",
    "MICROBIOLOGYEVENTS": "hosp/microbiologyevents",
    "D_ITEMS": "icu/d_items",
    "D_LABITEMS": "hosp/d_labitems",
}
"""Where a table of MIMIC-III is in MIMIC-IV."""


@dataclass(frozen=True)
class Stay:
    """One invented stay; times of its events are given in hours since `intime`."""

    stay: int
    subject: int
    admission: int
    intime: datetime

    def at(self, hour: float) -> datetime:
        return self.intime + timedelta(seconds=round(hour * 3600))

    @property
    def ids(self) -> Row:
        return {"subject_id": self.subject, "hadm_id": self.admission, "icustay_id": self.stay}


@dataclass
class MimicTables:
    """Rows of invented tables, written in either layout by `write`. Columns that nobody reads stay empty."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in THIRD})

    def add(self, table: str, **values: Any) -> None:
        self.rows[table].append(values)

    def add_stay(
        self,
        *,
        subject: int | None = None,
        admission: int | None = None,
        hours: float = 72.0,
        age: float = 60.0,
        gender: str = "F",
        source: str = "metavision",
        died: bool = False,
        intime: datetime | None = None,
    ) -> Stay:
        """A stay of a patient, who is added with it if new; ids are given in order."""
        number = len(self.rows["ICUSTAYS"]) + 1
        intime = intime or datetime(2150, 1, 1, 8) + timedelta(days=30 * number)
        stay = Stay(900_000 + number, subject or 10_000 + number, admission or 500_000 + number, intime)
        self.add("ICUSTAYS", **stay.ids, dbsource=source, intime=intime, outtime=stay.at(hours), los=hours / 24)
        if stay.subject not in {row["subject_id"] for row in self.rows["PATIENTS"]}:
            born = intime - timedelta(days=365.2425 * age)
            self.add("PATIENTS", subject_id=stay.subject, gender=gender, dob=born, anchor_age=int(age))
            self.rows["PATIENTS"][-1]["anchor_year"] = intime.year
        if stay.admission not in {row["hadm_id"] for row in self.rows["ADMISSIONS"]}:
            self.add("ADMISSIONS", subject_id=stay.subject, hadm_id=stay.admission, hospital_expire_flag=int(died))
        return stay

    def chart(self, stay: Stay, hour: float, item: int, value: Any, **more: Any) -> None:
        """A charted value; `valuenum` is the value itself if that is a number."""
        self._value("CHARTEVENTS", stay.ids, stay.at(hour), item, value, more)

    def lab(self, stay: Stay, hour: float, item: int, value: Any, **more: Any) -> None:
        ids = {"subject_id": stay.subject, "hadm_id": stay.admission}
        self._value("LABEVENTS", ids, stay.at(hour), item, value, more)

    def _value(self, table: str, ids: Row, time: datetime, item: int, value: Any, more: Row) -> None:
        number = value if isinstance(value, int | float) else None
        self.add(table, **{**ids, "itemid": item, "charttime": time, "value": value, "valuenum": number, **more})

    def output(self, stay: Stay, hour: float, item: int, ml: Any, **more: Any) -> None:
        self.add("OUTPUTEVENTS", **{**stay.ids, "itemid": item, "charttime": stay.at(hour), "value": ml, **more})

    def infuse(self, stay: Stay, start: float, stop: float, item: int, **more: Any) -> None:
        """A MetaVision order: amount, amountuom, rate, rateuom, patientweight, statusdescription, ..."""
        times = {"starttime": stay.at(start), "endtime": stay.at(stop)}
        defaults = {"statusdescription": "FinishedRunning", "orderid": len(self.rows["INPUTEVENTS_MV"]) + 1}
        defaults["cancelreason"] = 0
        self.add("INPUTEVENTS_MV", **{**stay.ids, **times, "itemid": item, **defaults, **more})

    def carevue(self, stay: Stay, hour: float, item: int, **more: Any) -> None:
        """A CareVue row: amount, amountuom, rate, rateuom, stopped."""
        order = len(self.rows["INPUTEVENTS_CV"]) + 1
        row = {**stay.ids, "charttime": stay.at(hour), "itemid": item, "orderid": order, **more}
        self.add("INPUTEVENTS_CV", **row)

    def procedure(self, stay: Stay, hour: float, item: int, **more: Any) -> None:
        self.add("PROCEDUREEVENTS_MV", **{**stay.ids, "starttime": stay.at(hour), "itemid": item, **more})

    def prescribe(self, stay: Stay, hour: float, drug: str, route: str = "IV", **more: Any) -> None:
        """MIMIC-III keeps the day only, MIMIC-IV the time."""
        self.add("PRESCRIPTIONS", **{**stay.ids, "start": stay.at(hour), "drug": drug, "route": route, **more})

    def culture(self, stay: Stay, hour: float, *, time_known: bool = True, **more: Any) -> None:
        time = stay.at(hour)
        ids = {"subject_id": stay.subject, "hadm_id": stay.admission}
        when = {"chartdate": _day(time), "charttime": time if time_known else None}
        self.add("MICROBIOLOGYEVENTS", **{**ids, **when, "spec_type_desc": "BLOOD CULTURE", **more})

    def write(
        self,
        folder: Path,
        *,
        release: str = "MIMIC-III",
        upper: bool = False,
        packed: bool = True,
        quoted: bool = False,
    ) -> Path:
        """Write all tables; CareVue's are left out of MIMIC-IV, which has none."""
        layout = THIRD if release == "MIMIC-III" else FOURTH
        for name, rows in self.rows.items():
            place = name if release == "MIMIC-III" else IN_FOURTH.get(name)
            if place is None:
                continue
            columns = layout[place].split()
            content = [_in_release(row, release) for row in rows]
            text = to_csv(content, columns, upper=upper, quoted=quoted)
            path = folder / f"{place}.csv{'.gz' if packed else ''}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(text.encode(), mtime=0) if packed else text.encode())
        return folder


def _day(time: datetime) -> datetime:
    return time.replace(hour=0, minute=0, second=0)


def _in_release(row: Mapping[str, Any], release: str) -> Row:
    """The row with the columns by the release's names."""
    made = dict(row)
    if "start" in made:
        start = made.pop("start")
        made.update({"startdate": _day(start)} if release == "MIMIC-III" else {"starttime": start})
    if release == "MIMIC-IV" and "icustay_id" in made:
        made["stay_id"] = made.pop("icustay_id")
    return made


def to_csv(rows: Iterable[Row], columns: list[str], *, upper: bool = False, quoted: bool = False) -> str:
    """Rows as text; the full MIMIC-III has its header in quotation marks and upper case, and quotes texts."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if quoted else csv.QUOTE_MINIMAL)
    writer.writerow([column.upper() if upper else column for column in columns])
    for row in rows:
        writer.writerow(["" if row.get(column) is None else row[column] for column in columns])
    return stream.getvalue()


def invented_patients(
    count: int, *, seed: int = 0, hours: float = 96.0, source: str = "metavision", infected: bool = True
) -> MimicTables:
    """Patients with all that a build reads: vital signs, labs, urine, ventilation, treatments, signs of infection."""
    tables, chance = MimicTables(), random.Random(seed)
    for _ in range(count):
        stay = tables.add_stay(
            hours=hours,
            age=chance.randint(25, 85),
            gender=chance.choice("FM"),
            source=source,
            died=chance.random() < 0.2,
        )
        if source == "metavision":
            _metavision_course(tables, stay, hours, chance)
        else:
            _carevue_course(tables, stay, hours, chance)
        for hour in range(1, int(hours), 12):
            tables.lab(stay, hour, 51265, chance.randint(40, 400))
            tables.lab(stay, hour, 50885, round(chance.uniform(0.3, 8), 1))
            tables.lab(stay, hour, 50912, round(chance.uniform(0.5, 5), 1))
            tables.lab(stay, hour, 50821, chance.randint(55, 200))
        if infected:
            tables.culture(stay, 20)
            tables.prescribe(stay, 26, "Vancomycin")
    return tables


def _metavision_course(tables: MimicTables, stay: Stay, hours: float, chance: random.Random) -> None:
    tables.chart(stay, 0.2, 226512, chance.randint(50, 110))
    for hour in range(int(hours)):
        tables.chart(stay, hour + 0.1, 220052, chance.randint(50, 95))
        tables.output(stay, hour + 0.5, 226559, chance.randint(0, 150))
        if hour % 4 == 0:
            tables.chart(stay, hour + 0.1, 223835, chance.choice([40, 50, 60]))
            tables.chart(stay, hour + 0.1, 220339, 5)
            eye, verbal, motor = chance.randint(1, 4), chance.randint(1, 5), chance.randint(1, 6)
            for item, points in ((220739, eye), (223900, verbal), (223901, motor)):
                tables.chart(stay, hour + 0.2, item, "charted words", valuenum=points)
        if hour % 6 == 0 and chance.random() < 0.6:
            length = chance.uniform(1, 6)
            rate = round(chance.uniform(0.02, 1), 3)
            order = {"rate": rate, "rateuom": "mcg/kg/min", "amount": 1, "amountuom": "mg"}
            tables.infuse(stay, hour, hour + length, 221906, **order, patientweight=80)
        if hour % 3 == 0 and chance.random() < 0.7:
            tables.infuse(
                stay, hour, hour + chance.uniform(0.5, 3), 225158, amount=chance.randint(20, 900), amountuom="ml"
            )


def _carevue_course(tables: MimicTables, stay: Stay, hours: float, chance: random.Random) -> None:
    tables.chart(stay, 0.2, 762, chance.randint(50, 110))
    for hour in range(int(hours)):
        tables.chart(stay, hour, 52, chance.randint(50, 95))
        tables.output(stay, hour, 40055, chance.randint(0, 150))
        if hour % 4 == 0:
            tables.chart(stay, hour, 190, chance.choice([0.4, 0.5, 0.6]))
            tables.chart(stay, hour, 720, "Assist Control")
            tables.chart(stay, hour, 198, chance.randint(3, 15))
        if chance.random() < 0.3:
            tables.carevue(stay, hour, 30120, rate=round(chance.uniform(0.02, 1), 3), rateuom="mcgkgmin")
        if chance.random() < 0.5:
            tables.carevue(stay, hour, 30018, amount=chance.randint(10, 500), amountuom="ml")
