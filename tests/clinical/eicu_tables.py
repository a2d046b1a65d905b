"""Invented patients in the layout of eICU-CRD 2.0, for tests. Every value here is made up; columns are the schema's."""

import gzip
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mimic_tables import Row, to_csv

COLUMNS = {
    "patient": "patientunitstayid patienthealthsystemstayid gender age ethnicity hospitalid wardid apacheadmissiondx "
    "admissionheight hospitaladmittime24 hospitaladmitoffset hospitaladmitsource hospitaldischargeyear "
    "hospitaldischargetime24 hospitaldischargeoffset hospitaldischargelocation hospitaldischargestatus unittype "
    "unitadmittime24 unitadmitsource unitvisitnumber unitstaytype admissionweight dischargeweight unitdischargetime24 "
    "unitdischargeoffset unitdischargelocation unitdischargestatus uniquepid",
    "vitalPeriodic": "vitalperiodicid patientunitstayid observationoffset temperature sao2 heartrate respiration cvp "
    "etco2 systemicsystolic systemicdiastolic systemicmean pasystolic padiastolic pamean st1 st2 st3 icp",
    "vitalAperiodic": "vitalaperiodicid patientunitstayid observationoffset noninvasivesystolic noninvasivediastolic "
    "noninvasivemean paop cardiacoutput cardiacinput svr svri pvr pvri",
    "lab": "labid patientunitstayid labresultoffset labtypeid labname labresult labresulttext labmeasurenamesystem "
    "labmeasurenameinterface labresultrevisedoffset",
    "nurseCharting": "nursingchartid patientunitstayid nursingchartoffset nursingchartentryoffset "
    "nursingchartcelltypecat nursingchartcelltypevallabel nursingchartcelltypevalname nursingchartvalue",
    "respiratoryCharting": "respchartid patientunitstayid respchartoffset respchartentryoffset respcharttypecat "
    "respchartvaluelabel respchartvalue",
    "infusionDrug": "infusiondrugid patientunitstayid infusionoffset drugname drugrate infusionrate drugamount "
    "volumeoffluid patientweight",
    "intakeOutput": "intakeoutputid patientunitstayid intakeoutputoffset intaketotal outputtotal dialysistotal "
    "nettotal intakeoutputentryoffset cellpath celllabel cellvaluenumeric cellvaluetext",
    "medication": "medicationid patientunitstayid drugorderoffset drugstartoffset drugivadmixture drugordercancelled "
    "drugname drughiclseqno dosage routeadmin frequency loadingdose prn drugstopoffset gtc",
    "microLab": "microlabid patientunitstayid culturetakenoffset culturesite organism antibiotic sensitivitylevel",
    "treatment": "treatmentid patientunitstayid treatmentoffset treatmentstring activeupondischarge",
}
CELLS = "flowsheet|Flowsheet Cell Labels|I&O|"


@dataclass
class EicuTables:
    """Rows of invented tables; times of events are hours since the stay began. Columns that nobody reads stay empty."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in COLUMNS})

    def add(self, table: str, stay: int, **values: Any) -> None:
        self.rows[table].append({"patientunitstayid": stay, **values})

    def add_stay(self, stay: int, *, hours: float = 72, patient: str = "", **more: Any) -> int:
        self.add(
            "patient",
            stay,
            **{
                "patienthealthsystemstayid": 1000 + stay,
                "uniquepid": patient or f"002-{stay}",
                "gender": "Male",
                "age": "54",
                "unitvisitnumber": 1,
                "hospitaldischargeyear": 2014,
                "hospitaldischargestatus": "Alive",
                "unitdischargeoffset": round(hours * 60),
                "admissionweight": 50,
                **more,
            },
        )
        return stay

    def pressure(self, stay: int, hour: float, mean: Any) -> None:
        self.add("vitalPeriodic", stay, observationoffset=round(hour * 60), systemicmean=mean)

    def lab(self, stay: int, hour: float, name: str, result: Any, revised: float | None = None) -> None:
        minute = round(hour * 60)
        again = round((hour if revised is None else revised) * 60)
        self.add("lab", stay, labresultoffset=minute, labname=name, labresult=result, labresultrevisedoffset=again)

    def nurse(self, stay: int, hour: float, label: str, name: str, value: Any) -> None:
        said = {"nursingchartcelltypevallabel": label, "nursingchartcelltypevalname": name, "nursingchartvalue": value}
        self.add("nurseCharting", stay, nursingchartoffset=round(hour * 60), **said)

    def breathe(self, stay: int, hour: float, label: str, value: Any) -> None:
        minute = round(hour * 60)
        self.add("respiratoryCharting", stay, respchartoffset=minute, respchartvaluelabel=label, respchartvalue=value)

    def infuse(self, stay: int, hour: float, drug: str, rate: Any, **more: Any) -> None:
        self.add("infusionDrug", stay, infusionoffset=round(hour * 60), drugname=drug, drugrate=rate, **more)

    def cell(self, stay: int, hour: float, path: str, value: Any, label: str | None = None) -> None:
        named = {"cellpath": CELLS + path, "celllabel": label or path.rsplit("|", 1)[-1], "cellvaluenumeric": value}
        self.add("intakeOutput", stay, intakeoutputoffset=round(hour * 60), **named)

    def prescribe(self, stay: int, hour: float, drug: str, route: str = "IV", cancelled: str = "No") -> None:
        said = {"drugname": drug, "routeadmin": route, "drugordercancelled": cancelled}
        self.add("medication", stay, drugstartoffset=round(hour * 60), **said)

    def culture(self, stay: int, hour: float) -> None:
        self.add("microLab", stay, culturetakenoffset=round(hour * 60), culturesite="Blood", organism="no growth")

    def treat(self, stay: int, hour: float, text: str) -> None:
        self.add("treatment", stay, treatmentoffset=round(hour * 60), treatmentstring=text)

    def write(self, folder: Path, *, packed: bool = True, upper: bool = False) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in self.rows.items():
            text = to_csv(rows, COLUMNS[name].split(), upper=upper)
            path = folder / f"{name}.csv{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(text.encode(), mtime=0) if packed else text.encode())
        return folder


def invented_patients(count: int, *, seed: int = 0, hours: int = 60) -> EicuTables:
    """Patients with all that a build reads: vital signs, labs, urine, ventilation, treatments, signs of infection."""
    tables, chance = EicuTables(), random.Random(seed)
    for stay in range(1, count + 1):
        tables.add_stay(stay, hours=hours, age=str(chance.randint(25, 85)), gender=chance.choice(["Male", "Female"]))
        for hour in range(hours):
            tables.pressure(stay, hour, chance.randint(50, 95))
            tables.cell(stay, hour + 0.5, "Output (ml)|Urine", chance.randint(0, 150))
            if hour % 4 == 0:
                tables.breathe(stay, hour, "FiO2", chance.choice([40, 50, 60]))
                tables.breathe(stay, hour, "PEEP", 5)
                tables.nurse(stay, hour, "Glasgow coma score", "GCS Total", chance.randint(3, 15))
            if hour % 6 < 4:
                tables.infuse(stay, hour, "Norepinephrine (mcg/min)", round(chance.uniform(1, 40), 1), patientweight=80)
            if chance.random() < 0.5:
                tables.cell(stay, hour + 0.25, "Intake (ml)|Crystalloids (ml)|NS", chance.randint(20, 900))
        for hour in range(1, hours, 12):
            tables.lab(stay, hour, "platelets x 1000", chance.randint(40, 400))
            tables.lab(stay, hour, "total bilirubin", round(chance.uniform(0.3, 8), 1))
            tables.lab(stay, hour, "creatinine", round(chance.uniform(0.5, 5), 1))
            tables.lab(stay, hour, "paO2", chance.randint(55, 200))
        tables.culture(stay, 20)
        tables.prescribe(stay, 26, "VANCOMYCIN HCL 1 G IV")
    return tables
