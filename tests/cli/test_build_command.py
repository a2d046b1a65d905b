"""`build`: from invented tables to a cohort that the other commands take, and bad input told in words."""

import json
import sys
from pathlib import Path

import polars as pl
import pytest

from ifonly.data.store import load_cohort
from ifonly.data.tables import cohort_to_frame

sys.path.append(str(Path(__file__).parents[1] / "clinical"))
from ai_clinician_rows import rows_of
from mimic_tables import invented_patients

pytestmark = pytest.mark.usefixtures("unpainted")

BUILT = {"episodes.parquet", "metadata.json", "grid.parquet", "flow.json", "flow.txt", "flow.png", "levels.json"}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return invented_patients(8, hours=60).write(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def built(run, release: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("built") / "sepsis"
    result = run("build", "--source", release, "--out", folder, "--set", "threads=1", "--json")
    assert result.exit_code == 0, result.output
    return folder, json.loads(result.stdout)


def test_the_folder_and_the_document(built: tuple[Path, dict]) -> None:
    folder, document = built
    assert {file.name for file in folder.iterdir()} >= BUILT | {"build.json", "card"}
    assert (folder / "card" / "card.html").exists()
    assert any("fewer than" in warning for warning in document["warnings"])
    assert (folder / "flow.png").read_bytes().startswith(b"\x89PNG")
    assert document["flow"]["steps"][-1]["stays"] == document["summary"]["episodes"] == len(load_cohort(folder)) == 8
    assert set(document) == {"cohort", "flow", "levels", "remarks", "warnings", "summary"}
    assert document["levels"]["fluids"][0] == 0


def test_ranges_rest_on_enough_subjects(built: tuple[Path, dict]) -> None:
    folder, document = built
    rows = cohort_to_frame(load_cohort(folder))
    for feature in document["summary"]["features"]:
        assert not {"minimum", "maximum"} & set(feature)
        values = rows[feature["name"]]
        if feature["low"] is not None:
            assert rows.filter(values <= feature["low"])["subject"].n_unique() >= 5
        if feature["high"] is not None:
            assert rows.filter(values >= feature["high"])["subject"].n_unique() >= 5


def test_what_people_are_told(run, release: Path, tmp_path: Path) -> None:
    command = ("build", "--source", release, "--out", tmp_path / "all", "--cohort", "all-adults")
    result = run(*command, "--horizon", "4-8", "--levels", "paper", "--set", "threads=1")
    assert result.exit_code == 0, result.output
    assert "adults (18 years or older)" in result.stdout
    assert "fluids: 0, 30, 80, 279, 850 mL/4 h" in result.stdout
    assert f"ifonly fit --episodes {tmp_path / 'all'}" in result.stdout
    assert set(load_cohort(tmp_path / "all").lengths) == {8}


def test_the_other_commands_take_it(run, built: tuple[Path, dict], tmp_path: Path) -> None:
    folder, _ = built
    info = run("info", folder)
    assert info.exit_code == 0, info.output
    assert "25: vasopressors (5 levels, mcg/kg/min) x fluids (5 levels, mL/4 h)" in info.stdout
    fitted = run(
        "fit", "--recipe", "paper", "--episodes", folder, "--out", tmp_path / "model", "--epochs", 2, "--hidden", 8
    )
    assert fitted.exit_code == 0, fitted.output
    first = load_cohort(folder).ids[0]
    asked = ("--episodes", folder, "--model", tmp_path / "model", "--only", first, "-k", 1)
    solved = run("solve", *asked, "--seconds", 20, "--json")
    assert solved.exit_code in (0, 4), solved.output


def test_the_table_of_the_ai_clinician(run, tmp_path: Path) -> None:
    pl.concat([rows_of(stay, list(range(1, 13))) for stay in range(6)]).write_csv(tmp_path / "mimic-table.csv")
    command = ("build", "--source", tmp_path / "mimic-table.csv", "--out", tmp_path / "cohort")
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "subject of its own" in result.stderr
    assert "ages are in days" in result.stderr
    assert len(load_cohort(tmp_path / "cohort")) == 6
    refused = run(*command, "--cohort", "all-adults", "--force")
    assert refused.exit_code == 2
    assert "--cohort and --set codes need the tables of MIMIC" in refused.stderr


def test_no_sepsis_at_all(run, tmp_path: Path) -> None:
    folder = invented_patients(2, hours=50, infected=False).write(tmp_path / "release")
    result = run("build", "--source", folder, "--out", tmp_path / "sepsis", "--set", "threads=1")
    assert result.exit_code == 3
    assert "'suspected infection (antibiotic and culture close in time)' removed the last 2" in result.stderr
    assert "--cohort all-adults" in result.stderr
    assert not (tmp_path / "sepsis").exists()
    assert "tables read so far are kept in" in result.stderr
    again = run("build", "--source", folder, "--out", tmp_path / "sepsis", "--cohort", "all-adults")
    assert again.exit_code == 0, again.output
    assert {path.name for path in tmp_path.iterdir()} == {"release", "sepsis"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "--source"),
        (("--source", "nowhere"), 3, "nowhere does not exist"),
        (("--source", ".", "--horizon", "20-10"), 3, "the fewest come first"),
        (("--source", ".", "--horizon", "1-5"), 3, "at least 2"),
        (("--source", ".", "--levels", "none.yaml"), 3, "none.yaml"),
        (("--source", ".", "--set", "test=1.5"), 3, "strictly between 0 and 1"),
        (("--source", "."), 3, "MIMIC"),
        (("--source", ".", "--cohort", "everyone"), 2, "everyone"),
    ],
)
def test_wrong_calls(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("build", *arguments, "--out", "cohort")
    assert result.exit_code == code, result.output
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_an_existing_cohort_is_left_alone(run, release: Path, built: tuple[Path, dict]) -> None:
    folder, _ = built
    before = load_cohort(folder).fingerprint()
    result = run("build", "--source", release, "--out", folder)
    assert result.exit_code == 3
    assert "--force" in result.stderr
    assert load_cohort(folder).fingerprint() == before
