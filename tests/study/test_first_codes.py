"""First code maps of MEDS datasets: what is guessed, what is left to people, what nobody is told."""

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
import yaml

from ifonly.clinical.code_map import read_code_map
from ifonly.errors import InputError
from ifonly.study.first_codes import FEWEST, first_code_map

NUMBERED = {
    "VITAL//ABP mean": "mean_bp",
    "LAB//50912//mg/dL": "creatinine",
    "LOINC/777-3": "platelets",
    "LAB//88": "bilirubin",  # by its description
    "GCS//Eye": "gcs_eye",
    "OUTPUT//Foley": "urine",
    "SPO2": None,
    "LAB//urine creatinine": None,
}
PLAIN = {
    "ICU_ADMISSION//MICU": "start",
    "ICU_ADMISSION//SICU": "start",
    "ICU_DISCHARGE//MICU": "end",
    "MEDS_BIRTH": "birth",
    "GENDER//F": "female",
    "GENDER//M": "male",
    "HOSPITAL_DISCHARGE//DIED": "died",
    "INFUSION_START//norepinephrine": "vasopressors",
    "MEDICATION//cefepime 2 g": "antibiotics",
    "MICROBIOLOGY//blood": "cultures",
    "odd: {braces} # and 'quotes'": None,
}


def write(folder: Path, *, subject: str = "subject_id", number: str = "numeric_value") -> Path:
    """Each code for `FEWEST` subjects, and one for fewer."""
    rows = [(who, code, 1.0 if code in NUMBERED else None) for code in (*NUMBERED, *PLAIN) for who in range(FEWEST)]
    rows += [(who, "RARE//a name", 1.0) for who in range(FEWEST - 1)]
    frame = pl.DataFrame(rows, schema=[subject, "code", number], orient="row")
    times = [datetime(2130, 1, 1) + timedelta(hours=hour) for hour in range(len(rows))]
    (folder / "data").mkdir(parents=True)
    (folder / "metadata").mkdir()
    frame.with_columns(time=pl.Series(times)).write_parquet(folder / "data" / "0.parquet")
    told = {"code": ["LAB//88", "SPO2"], "description": ["Bilirubin, Total", None]}
    pl.DataFrame(told).write_parquet(folder / "metadata" / "codes.parquet")
    return folder


@pytest.mark.parametrize("names", [{}, {"subject": "patient_id", "number": "value"}])
def test_codes_are_found_by_words_items_and_descriptions(tmp_path: Path, names: dict[str, str]) -> None:
    text = first_code_map(write(tmp_path / "meds", **names), "../meds")
    content = yaml.safe_load(text)
    assert content["stays"] == {"start": "ICU_ADMISSION//*", "end": "ICU_DISCHARGE//MICU"}
    assert content["people"] == {
        "birth": "MEDS_BIRTH",
        "female": "GENDER//F",
        "male": "GENDER//M",
        "died_in_hospital": "HOSPITAL_DISCHARGE//DIED",
    }
    measured = {purpose: [{"code": code, "factor": "?"}] for code, purpose in NUMBERED.items() if purpose}
    assert content["urine"] == measured.pop("urine")
    assert content["measurements"] == measured
    assert content["antibiotics"] == ["MEDICATION//cefepime 2 g"]
    assert content["cultures"] == ["MICROBIOLOGY//blood"]
    assert set(content) == {"format", "version", "stays", "people", "measurements", "urine", "antibiotics", "cultures"}
    comments = [line for line in text.splitlines() if line.startswith("#")]
    for code in ("INFUSION_START//norepinephrine", "SPO2", "LAB//urine creatinine", "odd: {braces} # and ''quotes''"):
        assert any(code in line for line in comments), code
    assert "RARE" not in text
    assert "(1 others are not shown)" in text


def test_units_are_left_to_people(tmp_path: Path) -> None:
    file = tmp_path / "codes.yaml"
    text = first_code_map(write(tmp_path / "meds"), "meds")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"mean_bp: the factor of 'VITAL//ABP mean' is still to be filled in"):
        read_code_map(file)
    file.write_text(text.replace('"?"', "1"), encoding="utf-8")
    assert read_code_map(file).resolve(["LOINC/777-3", "SPO2", "ICU_ADMISSION//CCU"]).keys() == {
        "LOINC/777-3",
        "ICU_ADMISSION//CCU",
    }


def test_what_is_not_found_must_be_filled_in(tmp_path: Path) -> None:
    data = write(tmp_path / "meds") / "data" / "0.parquet"
    pl.read_parquet(data).filter(pl.col("code") == "SPO2").write_parquet(data)
    file = tmp_path / "codes.yaml"
    file.write_text(first_code_map(tmp_path / "meds", "meds"), encoding="utf-8")
    with pytest.raises(InputError, match=r"stays: the code is still to be filled in"):
        read_code_map(file)
