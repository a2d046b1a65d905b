"""From somebody's table to an answer: `init`, editing, `import`, `fit`, `solve`."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import ifonly


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
    assert content["left_out"]["weather"] == "text, no number"
    assert "--column subject=NAME" in content["left_out"]["battery"]
    assert (content["rows"], content["episodes"], content["subjects"], content["problems"]) == (300, 60, 60, [])


def test_problems_are_listed_and_nothing_is_quoted(run, table: Path) -> None:
    frame = battery_log().cast({"price": pl.String})
    frame[4, "price"] = "secret"
    frame[5, "charge_kWh"] = 987654.0
    frame.write_csv(table)
    result = init(run, table, "--column", "action=drain")
    assert result.exit_code == 0
    assert "! price: 1 cell of 300 (the first in row 5) hold text that is no number" in result.stdout
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
