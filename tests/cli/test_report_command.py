"""`ifonly report`: the file, what is said, and what goes wrong."""

import json
import shutil
from pathlib import Path

import pytest

import ifonly


@pytest.fixture(scope="module")
def finished(run, cohort_folder: Path, model_folder: Path, workplace: Path) -> Path:
    """A run of four episodes, not to be altered."""
    folder = workplace / "runs" / "reported"
    ids = [part for number in range(4) for part in ("--only", f"patient-{number:05}")]
    args = ("--episodes", cohort_folder, "--model", model_folder, "-k", 1, "--workers", 1, "--out", folder)
    result = run("cohort", *args, *ids)
    assert result.exit_code == 0, result.output
    return folder


def test_a_run_is_enough(run, finished: Path) -> None:
    result = run("report", finished, "--alternatives", 2, "--seconds", 60)
    assert result.exit_code == 0, result.output
    file = finished / "report.html"
    assert f"written: {file}" in result.stdout
    assert "4 cases" in result.stdout
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert all(f"patient-{number:05}" in text for number in range(4))
    again = run("report", finished)
    assert again.exit_code == 3
    assert "exists already; choose another name, or replace it with --force" in again.stderr
    assert run("report", finished, "--force", "--alternatives", 1, "--cases", 1).exit_code == 0
    file.unlink()
    assert ifonly.load_run(finished).table().height == 4, "the run itself is as it was"


def test_json_and_a_choice_of_cases(run, finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "two.html"
    chosen = ("--only", "patient-00002", "--only", "patient-00001")
    result = run("report", finished, *chosen, "--out", out, "--alternatives", 1, "--threshold", 0, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["report"] == str(out)
    assert document["bytes"] == out.stat().st_size
    assert [case["episode"] for case in document["cases"]] == ["patient-00002", "patient-00001"]
    assert all(case["statement"].startswith("No admissible sequence does better") for case in document["cases"])
    assert all(case["evidence"].startswith("The model was not checked") for case in document["cases"])
    assert '"threshold":0.0' in out.read_text(encoding="utf-8")


def test_cases_without_alternatives_are_told(run, finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    result = run("report", finished, "--cases", 2, "--seconds", 0, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["without_alternatives"]) == 2
    assert "2 of 2 cases are shown without alternatives" in result.stderr


def test_moved_sources(run, finished: Path, cohort_folder: Path, model_folder: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(finished, tmp_path / "deep" / "down" / "run"))
    lost = run("report", moved, "--out", tmp_path / "report.html")
    assert lost.exit_code == 3
    assert "which is gone; pass --episodes" in " ".join(lost.stderr.split())
    found = ("--episodes", cohort_folder, "--model", model_folder, "--cases", 1, "--alternatives", 1)
    assert run("report", moved, *found, "--out", tmp_path / "report.html").exit_code == 0
    other = tmp_path / "other"
    assert run("simulate", "--patients", 40, "--horizon", 6, "--seed", 4, "--out", other).exit_code == 0
    wrong = run("report", finished, "--episodes", other, "--out", tmp_path / "wrong.html")
    assert wrong.exit_code == 3
    assert "the episodes given are not what this run was about" in wrong.stderr
    assert not (tmp_path / "wrong.html").exists()


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("--only", "nobody"), 3, "has no episode 'nobody'"),
        (("--cases", 0), 2, "--cases"),
        (("--alternatives", 0), 2, "--alternatives"),
        (("--threshold", "inf"), 3, "--threshold inf"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said(run, finished: Path, tmp_path: Path, args, code: int, message: str) -> None:
    result = run("report", finished, *args, "--out", tmp_path / "report.html")
    assert result.exit_code == code
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "report.html").exists()


def test_what_is_for_outsiders_replaces_nothing(run, finished: Path, tmp_path: Path) -> None:
    refused = run("deidentify", finished, tmp_path / "key", tmp_path)
    assert refused.exit_code == 3
    assert f"{tmp_path} exists already; choose another name." in " ".join(refused.stderr.split())
    assert not (tmp_path / "key").exists()
