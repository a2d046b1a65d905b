"""`ifonly summarize`: files, words, groups, unfinished runs, and what goes wrong."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import ifonly
from ifonly import RunSettings, load_run, solve_cohort
from ifonly.journal import line_of
from ifonly.runs.folder import MANIFEST, ROWS, TABLE

pytestmark = pytest.mark.usefixtures("unpainted")

EPISODES = 12


@pytest.fixture(scope="module")
def finished(cohort_folder: Path, model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of twelve episodes, not to be altered."""
    folder = tmp_path_factory.mktemp("runs") / "k2"
    cohort = ifonly.load(cohort_folder)
    query = ifonly.Query(ifonly.minus("SOFA"), 2, limits=ifonly.Limits(nodes=200))
    model = ifonly.load_model(model_folder)
    solve_cohort(cohort[:EPISODES], model, query, out=folder, settings=RunSettings(workers=1))
    return folder


@pytest.fixture
def run_folder(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, to be altered at will."""
    return Path(shutil.copytree(finished, tmp_path / "k2"))


def unfinished(folder: Path, rows: list[str]) -> Path:
    """Make a run look as if it had been killed after these rows."""
    manifest = json.loads((folder / MANIFEST).read_text())
    kept = {key: value for key, value in manifest.items() if key not in ("counts", "table")}
    (folder / MANIFEST).write_text(json.dumps(kept | {"state": "running"}))
    (folder / ROWS).write_text("".join(rows))
    (folder / TABLE).unlink()
    return folder


def line(row: dict[str, Any]) -> str:
    """A row as the journal would have it."""
    return line_of(json.dumps({name: value for name, value in row.items() if name != "checksum"})).decode()


def lines(folder: Path) -> list[str]:
    return (folder / ROWS).read_text().splitlines(keepends=True)


def test_a_run_is_summarised_in_words_and_files(run, run_folder: Path) -> None:
    result = run("summarize", run_folder)
    assert result.exit_code == 0, result.output
    table = load_run(run_folder).table()
    observed = table["observed_clipped_outcome"].median()
    assert f"cumulative SOFA  median {-observed:.1f} observed -> " in result.stdout
    assert f"{EPISODES}: " in result.stdout
    assert "proven optimal under the model" in result.stdout
    assert f"written: {run_folder / 'summary'}" in result.stdout
    content = json.loads((run_folder / "summary" / "summary.json").read_text())
    assert content["counts"]["episodes"] == EPISODES
    size = table["observed_clipped_outcome"].abs()
    expected = ((table["clipped_outcome"] - table["observed_clipped_outcome"]) / size).mean()
    assert content["improvement"]["mean"] == pytest.approx(expected)
    assert {item.name for item in (run_folder / "summary").iterdir()} == set(content["files"])
    assert pl.read_csv(run_folder / "summary" / "by_budget.csv")["max_changes"].to_list() == [0, 1, 2]
    # The run itself is as it was, and can be summarised again.
    assert load_run(run_folder).table().equals(table)
    assert run("summarize", run_folder).exit_code == 0


def test_groups_pdf_and_json(run, run_folder: Path, cohort_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "elsewhere"
    by = ("--by", "age=60", "--by", "gender", "--by", "status", "--episodes", cohort_folder)
    result = run("summarize", run_folder, *by, "--out", out, "--pdf", "--json", "--threshold", 0)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document == json.loads((out / "summary.json").read_text()) | {"folder": str(out)}
    ages = [group for group in document["by_group"] if group["by"] == "age"]
    assert [group["group"] for group in ages] == ["< 60", ">= 60"]
    cohort = ifonly.load(cohort_folder)
    column = [feature.name for feature in cohort.schema.context].index("age")
    young = sum(cohort[position].context[0, column] < 60 for position in range(EPISODES))
    assert [group["episodes"] for group in ages] == [young, EPISODES - young]
    assert len(document["cases"]) == EPISODES
    for name in ("group_age.pdf", "group_gender.png", "group_status.png", "improvement_distribution.pdf"):
        assert (out / name).stat().st_size > 0
    assert not (run_folder / "summary").exists()


def test_an_unfinished_run_says_so(run, run_folder: Path) -> None:
    result = run("summarize", unfinished(run_folder, lines(run_folder)[:5]))
    assert result.exit_code == 0, result.output
    assert f"5 of {EPISODES}: " in result.stdout
    assert (
        "The run is not finished: 7 episodes are still to come. The longest come first, so these are not"
        in result.stdout
    )


def test_bounds_know_what_changes_cost(run, run_folder: Path, tmp_path: Path) -> None:
    """Of an answer that is not proven: the same run, asked with and without a cost of changes."""
    rows = [json.loads(line) for line in lines(run_folder)]
    for row in rows:
        row |= {"status": "time limit", "upper_bound": row["outcome"] + 1.0, "changes": 1, "proven": False}
    unfinished(run_folder, [line(row) for row in rows])
    found = []
    for cost in (0.0, 3.0):
        manifest = json.loads((run_folder / MANIFEST).read_text())
        assert manifest["query"]["max_changes"] == 2
        manifest["query"]["change_cost"] = cost
        (run_folder / MANIFEST).write_text(json.dumps(manifest))
        assert run("summarize", run_folder, "--out", tmp_path / "summary").exit_code == 0
        found.append(pl.read_csv(tmp_path / "summary" / "episodes.csv")["upper_improvement"])
    sizes = [abs(row["observed_clipped_outcome"]) for row in sorted(rows, key=lambda row: row["position"])]
    assert (found[1] - found[0]).to_list() == pytest.approx([3.0 / size for size in sizes])


def test_an_outcome_that_is_unknown_is_no_crash(run, run_folder: Path) -> None:
    rows = [json.loads(line) for line in lines(run_folder)]
    rows[0] |= {"clipped_outcome": None, "improvement": None}
    result = run("summarize", unfinished(run_folder, [line(row) for row in rows]))
    assert result.exit_code == 0, result.output
    assert "1 answer without a known outcome within the features' ranges is not in averages." in result.stdout
    assert "outcome of zero" not in result.stdout


def test_a_full_disk_is_told_with_the_folder(run, run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(27, "File too large")

    monkeypatch.setattr("ifonly.report.folders.save_figure", full)
    result = run("summarize", run_folder)
    assert result.exit_code == 3
    assert f"{run_folder / 'summary'}: the summary cannot be written (File too large)" in " ".join(
        result.stderr.split()
    )
    assert not (run_folder / "summary").exists()


def test_an_empty_run(run, run_folder: Path) -> None:
    result = run("summarize", unfinished(run_folder, []))
    assert result.exit_code == 3
    assert f"{run_folder}: this run has no episodes yet" in " ".join(result.stderr.split())
    assert not (run_folder / "summary").exists()


def test_a_run_of_failures(run, run_folder: Path) -> None:
    rows = [json.loads(line) for line in lines(run_folder)]
    for row in rows:
        kept = {name: row[name] for name in ("position", "episode", "subject", "horizon")}
        row |= dict.fromkeys(row) | kept | {"status": "failed", "reason": None}
        row["reason"] = {"code": "refused", "detail": f"episode {row['episode']!r}: no noise"}
    result = run("summarize", unfinished(run_folder, [line(row) for row in rows]))
    assert result.exit_code == 3
    assert f"all {EPISODES} episodes of this run failed" in " ".join(result.stderr.split())
    assert "episode …: no noise" in result.stderr


def test_features_need_their_episodes(run, run_folder: Path, cohort_folder: Path) -> None:
    result = run("summarize", run_folder, "--by", "age")
    assert result.exit_code == 2
    assert "--episodes" in result.stderr
    result = run("summarize", run_folder, "--by", "shoe size", "--episodes", cohort_folder)
    assert result.exit_code == 3
    words = " ".join(result.stderr.split())
    assert "'shoe size'" in words
    assert "choose from ['gender', 'readmission', 'age'" in words


@pytest.mark.parametrize("by", ["=5", "age=old", "age="])
def test_groupings_are_checked(run, run_folder: Path, by: str) -> None:
    assert run("summarize", run_folder, "--by", by).exit_code == 2


def test_a_name_given_twice(run, run_folder: Path) -> None:
    assert run("summarize", run_folder, "--by", "status", "--by", "status").exit_code == 2


def test_folders_that_are_no_runs(run, tmp_path: Path, cohort_folder: Path) -> None:
    for folder in (tmp_path / "nowhere", cohort_folder):
        result = run("summarize", folder)
        assert result.exit_code == 3
        assert folder.name in result.stderr
        assert not (folder / "summary").exists()


def test_other_peoples_folders_are_left_alone(run, run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    result = run("summarize", run_folder, "--out", tmp_path / "mine")
    assert result.exit_code == 3
    assert "thesis.tex" in result.stderr
    assert [item.name for item in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_a_reward_that_is_code_is_shown_as_an_outcome(run, run_folder: Path) -> None:
    manifest = json.loads((run_folder / MANIFEST).read_text())
    manifest["query"]["reward"] = {"kind": "total", "parts": [{"kind": "custom", "name": "mine"}]}
    (run_folder / MANIFEST).write_text(json.dumps(manifest))
    result = run("summarize", run_folder)
    assert result.exit_code == 0, result.output
    assert "outcome" in result.stdout
    assert "SOFA" not in result.stdout
