"""A tiny cohort and a tiny model, made by the commands themselves."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from ifonly.cli import app

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a command line in this process; bugs show their traceback instead of exit code 1."""

    def invoke(*args: object) -> Result:
        return CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False, prog_name="ifonly")

    return invoke


@pytest.fixture
def query(tmp_path: Path) -> Callable[..., tuple[str, Path]]:
    """The option that names a query file with these entries."""

    def write(**entries: Any) -> tuple[str, Path]:
        file = tmp_path / f"query-{abs(hash(repr(entries)))}.yaml"
        file.write_text(yaml.safe_dump(entries))
        return "--query", file

    return write


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workplace")


@pytest.fixture(scope="session")
def cohort_folder(run: Run, workplace: Path) -> Path:
    """40 patients with 6 steps each, not to be altered."""
    folder = workplace / "cohort"
    result = run("simulate", "--patients", 40, "--horizon", 6, "--seed", 3, "--out", folder)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="session")
def model_folder(run: Run, workplace: Path, cohort_folder: Path) -> Path:
    """A model fitted to them, not to be altered."""
    folder = workplace / "model"
    result = run(
        "fit", "--recipe", "paper", "--episodes", cohort_folder, "--out", folder, "--epochs", 2, "--hidden", 16
    )
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="session")
def answers(run: Run, workplace: Path, cohort_folder: Path, model_folder: Path) -> Path:
    """A file with the results of two episodes, not to be altered."""
    file = workplace / "answers.json"
    asked = ("--episodes", cohort_folder, "--model", model_folder, "--only", "patient-00001", "--only", "patient-00002")
    result = run("solve", *asked, "-k", 2, "--out", file)
    assert result.exit_code == 0, result.output
    return file
