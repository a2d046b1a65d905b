"""The command that makes the paper's experiments."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from effort import long
from paper.catalogue import EXPERIMENTS

from ifonly.cli.frame import ExitCode
from ifonly.journal import alone


@pytest.fixture
def arguments(cohort_folder: Path, model_folder: Path, tmp_path: Path) -> list[object]:
    """One patient of 6 steps."""
    out = tmp_path / "runs"
    options = ("--quick", "--episodes", cohort_folder, "--model", model_folder, "--horizon", 6)
    return [*options, "--patients", 1, "--workers", 1, "--out", out]


def test_tables_figures_and_a_page(run, arguments, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "results.md"
    result = run("reproduce", "fig2c", "fig3a", *arguments, "--page", page)
    assert result.exit_code == ExitCode.DONE, result.output
    words = " ".join(result.stdout.split())
    assert "fig2c: Efficiency against the number k of changes allowed" in words
    assert "the paper: The average improvement increases with k, with diminishing returns." in words
    assert "measurements finished" not in words, "only said when some are missing"
    for name in ("fig2c", "fig3a"):
        assert (tmp_path / "runs" / name / "figure.png").stat().st_size > 10_000
        assert (tmp_path / "runs" / name / "table.parquet").exists()
        assert f"## {name}: " in page.read_text()
        assert (tmp_path / "docs" / "images" / f"results-{name}.png").exists()


def test_json_and_drawing_again(run, arguments, cohort_folder, model_folder, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    first = run("reproduce", "fig2b", *arguments, "--seconds", 30, "--json")
    assert first.exit_code == ExitCode.DONE, first.output
    (document,) = json.loads(first.stdout)["experiments"]
    assert document["settings"]["patients"] == 1
    assert document["settings"]["seconds"] == 30
    assert document["cells"] == {"wanted": 4, "finished": 4, "failed": 0}
    assert [row["M"] for row in document["summary"]] == ["50", "100", "200"]
    before = (out / "cells.jsonl").read_bytes()
    again = run(
        "reproduce", "all", "--draw-only", "--out", out, "--episodes", cohort_folder, "--model", model_folder, "--json"
    )
    assert again.exit_code == ExitCode.DONE, again.output
    assert json.loads(again.stdout)["experiments"] == [document]
    assert (out / "cells.jsonl").read_bytes() == before


def test_what_cannot_be_drawn_yet_is_noted_and_the_rest_is_drawn(
    run, arguments, cohort_folder, model_folder, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    assert run("reproduce", "fig3a", *arguments).exit_code == ExitCode.DONE
    (out / "fig3a" / "figure.png").unlink()
    begun = json.loads((out / "fig3a" / "experiment.json").read_text())
    for name in ("fig5", "fig3b"):  # stopped before anything was finished
        settings = EXPERIMENTS[name].settings(quick=True).to_dict()
        (out / name).mkdir()
        cells = {"wanted": 0, "finished": 0, "failed": 0}
        (out / name / "experiment.json").write_text(
            json.dumps(begun | {"experiment": name, "settings": settings, "cells": cells})
        )
    again = ("--draw-only", "--out", out, "--episodes", cohort_folder, "--model", model_folder)
    page = tmp_path / "page.md"
    result = run("reproduce", "all", *again, "--page", page)
    assert result.exit_code == ExitCode.DONE, result.output
    assert "fig3a: Average" in result.stdout
    assert (out / "fig3a" / "figure.png").exists()
    for name in ("fig5", "fig3b"):
        assert f"no figure of {name} (0 of " in " ".join(result.stderr.split())
    assert page.read_text().count("## ") == 1
    named = run("reproduce", "fig5", "fig3a", *again)
    assert named.exit_code == ExitCode.BAD_INPUT
    assert "fig3a: Average" in named.stdout
    nothing = run("reproduce", "fig5", "fig4", *again)
    assert nothing.exit_code == ExitCode.BAD_INPUT
    assert "there is nothing to draw yet" in " ".join(nothing.stderr.split())
    (out / "fig3a" / "experiment.json").write_text("{")
    broken = run("reproduce", "all", *again)
    assert broken.exit_code == ExitCode.BAD_INPUT
    assert "broken or of another version" in " ".join(broken.stderr.split())


@pytest.mark.parametrize(
    "option",
    ["--patients 3", "--seconds 1", "--quick", "--force", "--seed 0", "--workers 1", "--stays 5", "--device cpu"],
)
def test_settings_are_refused_where_those_of_the_folder_are_used(run, tmp_path: Path, option: str) -> None:
    result = run("reproduce", "fig3a", "--draw-only", "--out", tmp_path / "runs", *option.split())
    assert result.exit_code == ExitCode.USAGE
    assert f"{option.split()[0]}: settings are those of the folder" in " ".join(result.stderr.replace("│", "").split())
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_is_being_worked_on_is_refused_but_can_be_drawn(
    run, arguments, cohort_folder, model_folder, tmp_path: Path
) -> None:
    out = tmp_path / "runs"
    assert run("reproduce", "fig3a", *arguments).exit_code == ExitCode.DONE
    with alone(out / "cells.jsonl", work="a test"):
        other = run("reproduce", "fig3a", *arguments)
        assert other.exit_code == ExitCode.BAD_INPUT
        assert "another process works on these experiments" in " ".join(other.stderr.split())
        again = ("--draw-only", "--out", out, "--episodes", cohort_folder, "--model", model_folder)
        assert run("reproduce", "fig3a", *again).exit_code == ExitCode.DONE


def test_other_settings_are_refused(run, arguments) -> None:
    assert run("reproduce", "fig3a", *arguments).exit_code == ExitCode.DONE
    other = run("reproduce", "fig3a", *arguments, "--seconds", 5)
    assert other.exit_code == ExitCode.BAD_INPUT
    assert "seconds: 10.0 there, 5.0 now" in " ".join(other.stderr.split())
    assert run("reproduce", "fig3a", *arguments, "--seconds", 5, "--force").exit_code == ExitCode.DONE
    conditions = run("reproduce", "fig3a", *arguments, "--seed", 5)
    assert conditions.exit_code == ExitCode.BAD_INPUT
    assert "seed: 0 there, 5 now" in " ".join(conditions.stderr.split())


def test_mistakes_are_told(run, arguments, tmp_path: Path) -> None:
    unknown = run("reproduce", "fig7", *arguments)
    assert unknown.exit_code == ExitCode.BAD_INPUT
    assert "no experiment is called 'fig7'; choose from fig2a" in " ".join(unknown.stderr.split())
    nothing = run("reproduce", "fig2a", "--draw-only", "--out", tmp_path / "nowhere")
    assert nothing.exit_code == ExitCode.BAD_INPUT
    assert "no experiment was run in this folder" in " ".join(nothing.stderr.split())
    assert run("reproduce", "fig5", *arguments, "--location", "high").exit_code == ExitCode.USAGE
    assert run("reproduce").exit_code == ExitCode.USAGE
    assert not (tmp_path / "runs").exists()


@long
def test_killed_at_any_moment_it_goes_on(run, arguments, tmp_path: Path) -> None:
    """Begun as it is called from a clone, in a process of its own."""
    journal = tmp_path / "runs" / "cells.jsonl"
    command = [sys.executable, "-m", "paper", "reproduce", "baselines", *map(str, arguments)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, cwd=Path(__file__).parents[2]) as process:
        while process.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") > 3):
            time.sleep(0.01)
        process.kill()
    kept = [json.loads(line) for line in journal.read_bytes().splitlines(keepends=True)[1:] if line.endswith(b"\n")]
    assert len(kept) >= 3
    result = run("reproduce", "baselines", *arguments)
    assert result.exit_code == ExitCode.DONE, result.output
    entries = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    assert entries[: len(kept)] == kept
    assert len({entry["cell"] for entry in entries}) == len(entries) == 3 * 5


def test_help_names_both_commands(run) -> None:
    done = run("--help")
    assert "python -m paper" in done.stdout
    assert {"reproduce", "accuracy"} <= set(done.stdout.split())
