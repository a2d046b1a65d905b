"""From somebody's table to an answer: `init`, editing, `import`, `fit`, `solve`."""

import gzip
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

import ifonly
from ifonly.data import load_cohort


def battery_log() -> pl.DataFrame:
    """Invented: a battery is charged and drained by the hour, prices come and go."""
    rng = np.random.default_rng(4)
    rows = []
    for day in range(60):
        charge = rng.uniform(20, 60)
        for hour in range(5):
            power = round(rng.choice([0.0, rng.uniform(1, 9)]), 2)
            price = 30 + 10 * rng.normal()
            rows.append(
                {"day": f"d{day}", "hour": hour, "battery": f"b{day % 20}", "charge_kWh": charge, "price": price}
                | {"drain": power, "weather": "dull"}
            )
            charge = charge * 0.97 + 2 + rng.normal() - power
    return pl.DataFrame(rows)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    battery_log().write_csv(tmp_path / "log.csv")
    return tmp_path / "log.csv"


def init(run, table: Path, *options: object):
    return run("init", table, "--out", table.parent / "study.yaml", *options)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_from_a_table_to_an_answer(run, tmp_path: Path, kind: str) -> None:
    frame, table, schema = battery_log(), tmp_path / f"log.{kind}", tmp_path / "schema.yaml"
    frame.write_csv(table) if kind == "csv" else frame.write_parquet(table)
    made = init(run, table, "--column", "action=drain", "--column", "subject=battery")
    assert made.exit_code == 0, made.output
    importing = ("import", table, "--schema", schema, "--out", tmp_path / "cohort")
    refused = run(*importing)
    assert refused.exit_code == 3
    assert "still to be filled in" in refused.stderr
    text = schema.read_text()
    assert text.count('unit: "?"') == 2
    schema.write_text(text.replace('unit: "?"', "unit: ct", 1).replace('unit: "?"', "unit: kW", 1))
    assert run(*importing).exit_code == 0
    cohort = ifonly.load(tmp_path / "cohort")
    assert (len(cohort), len(set(cohort.subjects))) == (60, 20)
    assert np.allclose(cohort.states[:, 0], frame["charge_kWh"])
    dose = np.array(cohort.schema.actions.vectors)[cohort.actions, 0]
    assert ((dose == 0) == (frame["drain"].to_numpy() == 0)).all()
    assert np.corrcoef(dose, frame["drain"].to_numpy())[0, 1] > 0.9
    model = tmp_path / "model"
    fitted = run(
        "fit", "--recipe", "paper", "--episodes", tmp_path / "cohort", "--out", model, "--epochs", 2, "--hidden", 8
    )
    assert fitted.exit_code == 0, fitted.output
    asked = ("--maximize", "charge_kWh", "-k", 1, "--only", "d3", "--json")
    answer = run("solve", "--episodes", tmp_path / "cohort", "--model", model, *asked)
    assert answer.exit_code == 0, answer.output


def test_as_json(run, table: Path) -> None:
    result = init(run, table, "--column", "action=drain", "--json")
    content = json.loads(result.stdout)
    assert content["schema"]["table"]["episode"] == "day"
    assert [feature["name"] for feature in content["schema"]["features"]] == ["charge_kWh", "price"]
    assert content["left_out"]["weather"] == "the same text throughout, lists or the like: no number"
    assert "--column subject=NAME" in content["left_out"]["battery"]
    assert (content["rows"], content["episodes"], content["subjects"], content["problems"]) == (300, 60, 60, [])


@pytest.mark.parametrize(("days", "share"), [(60, 0.2), (40, 0.25), (12, 0.2)])
def test_enough_subjects_are_set_aside_to_judge_a_model(run, table: Path, days: int, share: float) -> None:
    """A model that takes an hour is not found to be beyond judgement for two subjects less than a check needs."""
    frame = battery_log()
    frame.filter(pl.col("day").is_in(frame["day"].unique(maintain_order=True)[:days])).write_csv(table)
    assert init(run, table, "--column", "action=drain").exit_code == 0
    assert yaml.safe_load((table.parent / "study.yaml").read_text())["split"]["test"] == share


def test_problems_are_listed_and_nothing_is_quoted(run, table: Path) -> None:
    frame = battery_log().cast({"price": pl.String})
    frame[4, "price"] = "secret"
    frame[5, "charge_kWh"] = 987654.0
    frame.write_csv(table)
    result = init(run, table, "--column", "action=drain")
    assert result.exit_code == 0
    assert "! price: 1 cell of 300 (the first in row 5) holds text that is no number" in result.stdout
    assert "- charge_kWh: 1 value far away from the others" in result.stdout
    for shown in (result.output, (table.parent / "schema.yaml").read_text()):
        assert "secret" not in shown
        assert "987654" not in shown


def test_nothing_is_replaced_without_force(run, table: Path) -> None:
    assert init(run, table, "--column", "action=drain").exit_code == 0
    (table.parent / "schema.yaml").write_text("my work")
    refused = init(run, table, "--column", "action=drain")
    assert (refused.exit_code, (table.parent / "schema.yaml").read_text()) == (3, "my work")
    assert init(run, table, "--column", "action=drain", "--force").exit_code == 0


BAD = {
    "ambiguous": (b"day,hour;drain\na,0;1\n", "line 1: its cells could be separated by commas or by semicolons"),
    "no rows": (b"day,hour,drain,heat\n", "holds no rows"),
    "empty": (b"", "is empty"),
    "twice": (b"day,hour,hour\na,0,0\n", "columns ['hour'] occur more than once"),
    "ragged": (b"day,hour\na,0,secret\n", "line 2: has 3 cells, more cells than the header (2)"),
    "not text": (b"\xff\xfe\x00", "write it again, as UTF-8"),
    "no action": (b"day,hour,heat\na,0,1.5\na,1,2.5\nb,0,3\nb,1,4\n", "--column action=NAME"),
    "no episodes": (b"heat,action\n1.5,a\n2.5,b\n1.7,a\n", "--column episode=NAME"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_and_nothing_is_written(run, tmp_path: Path, name: str) -> None:
    content, expected = BAD[name]
    (tmp_path / "log.csv").write_bytes(content)
    result = init(run, tmp_path / "log.csv")
    assert result.exit_code == 3
    assert expected in result.stderr
    assert "secret" not in result.stderr
    assert [item.name for item in tmp_path.iterdir()] == ["log.csv"]


def test_a_cut_off_parquet_file_is_refused(run, tmp_path: Path) -> None:
    battery_log().write_parquet(tmp_path / "log.parquet")
    data = (tmp_path / "log.parquet").read_bytes()
    (tmp_path / "log.parquet").write_bytes(data[: len(data) // 2])
    result = init(run, tmp_path / "log.parquet")
    assert result.exit_code == 3
    assert "not a complete Parquet file" in result.stderr


def test_a_study_is_written_as_yaml(run, table: Path) -> None:
    result = run("init", table, "--out", table.parent / "study.json")
    assert result.exit_code == 2
    assert not (table.parent / "study.json").exists()


def test_times_words_and_further_tables_from_the_files_to_a_cohort(run, tmp_path: Path) -> None:
    """As a spreadsheet writes them: packed, with semicolons, decimal commas and days first."""
    log = battery_log()
    begin = pl.datetime(2031, 3, 29, 22) + pl.duration(hours=pl.col("hour"))
    readings = log.with_columns(
        when=begin.dt.strftime("%d.%m.%Y %H:%M"),
        market=pl.when(pl.int_range(pl.len()) % 3 == 0).then(pl.lit("open")).otherwise(pl.lit("closed")),
    ).drop("hour", "battery")
    text = readings.with_columns(pl.col(pl.Float64).round(3).cast(pl.String).str.replace(".", ",", literal=True))
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(text.write_csv(separator=";").encode("utf-16")))
    days = log.unique("day", maintain_order=True).select("day", "battery").with_row_index("age_years")
    days.with_columns(pl.col("age_years") % 7).write_csv(tmp_path / "days.csv")
    place = tmp_path / "studies" / "study.yaml"
    made = run("init", tmp_path / "log.csv.gz", tmp_path / "days.csv", "--column", "action=drain", "--out", place)
    assert made.exit_code == 0, made.output
    schema = place.with_name("schema.yaml")
    schema.write_text(schema.read_text().replace('unit: "?"', "unit: u"))
    table = yaml.safe_load(schema.read_text())["table"]
    assert (table["step"], table["spacing"]) == ("when", "1 h")
    assert table["labels"] == {"market": ["closed", "open"]}
    assert table["join"] == [{"file": "../days.csv", "by": ["day"]}]
    stored = run("import", tmp_path / "log.csv.gz", "--schema", schema, "--out", tmp_path / "cohort")
    assert stored.exit_code == 0, stored.output
    assert "log.csv.gz was read as UTF-16, separated by semicolons, with decimal commas" in " ".join(
        stored.stderr.split()
    )
    cohort = load_cohort(tmp_path / "cohort")
    assert cohort.columns()["price"].tolist() == pytest.approx(log["price"].round(3).to_list(), abs=1e-12)
    assert cohort.columns()["market = open"].sum() == (readings["market"] == "open").sum()
    assert set(cohort.columns()["age_years"]) == set(range(7))

    (tmp_path / "days.csv").write_text("\n".join((tmp_path / "days.csv").read_text().splitlines()[:-1]) + "\n")
    refused = run("import", tmp_path / "log.csv.gz", "--schema", schema, "--out", tmp_path / "other")
    assert refused.exit_code == 3
    assert "days.csv: has no row for 5 of 300 rows of the table (the first is row 296)" in refused.stderr


def test_a_meds_dataset_has_a_first_code_map_beside_the_study(run, tmp_path: Path) -> None:
    data = tmp_path / "meds" / "data"
    data.mkdir(parents=True)
    codes = ["ICU_ADMISSION//MICU", "ICU_DISCHARGE//MICU", "MEDS_BIRTH", "GENDER//F", "GENDER//M", "PLT"]
    rows = [(who, code, 1.0) for code in codes for who in range(6)]
    frame = pl.DataFrame(rows, schema=["subject_id", "code", "numeric_value"], orient="row")
    frame.with_columns(time=pl.datetime(2130, 1, 1) + pl.duration(hours=pl.int_range(pl.len()))).write_parquet(
        data / "0.parquet"
    )
    built = run("build", "--source", tmp_path / "meds", "--out", tmp_path / "cohort")
    assert built.exit_code == 3
    assert "`ifonly init" in " ".join(built.stderr.split())
    made = run("init", tmp_path / "meds", "--out", tmp_path / "mine" / "study.yaml")
    assert made.exit_code == 0, made.output
    assert "codes.yaml" in made.stdout
    assert yaml.safe_load((tmp_path / "mine" / "study.yaml").read_text())["data"]["meds"]["codes"] == "codes.yaml"
    file = tmp_path / "mine" / "codes.yaml"
    assert yaml.safe_load(file.read_text())["measurements"] == {"platelets": [{"code": "PLT", "factor": "?"}]}
    done = run("run", tmp_path / "mine" / "study.yaml", "--until", "data")
    assert done.exit_code == 3
    assert "still to be filled in" in done.stderr
    file.write_text(file.read_text().replace('"?"', "1"))
    (tmp_path / "mine" / "study.yaml").unlink()
    kept = run("init", tmp_path / "meds", "--out", tmp_path / "mine" / "study.yaml")
    assert kept.exit_code == 3
    assert "exists already" in kept.stderr
    assert '"?"' not in file.read_text()
