import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ifonly.data.store import load_cohort

pytestmark = pytest.mark.usefixtures("unpainted")


def test_a_card_beside_the_cohort(run, tmp_path: Path, cohort_folder: Path) -> None:
    folder = tmp_path / "cohort"
    shutil.copytree(cohort_folder, folder)
    result = run("card", "--episodes", folder)
    assert result.exit_code == 0, result.output
    files = {item.name for item in (folder / "card").iterdir()}
    assert files == {"card.html", "card.json", *(f"{n}.png" for n in ("features", "actions", "horizons", "severity"))}
    assert "40 episodes" in result.stdout
    assert "no record of what was measured" in result.stdout
    assert "Too few data for a model of 10,117 parameters" in " ".join(result.stdout.split())
    assert run("card", "--episodes", folder).exit_code == 0  # replaces it
    assert len(load_cohort(folder)) == 40


def test_a_grid_beside_the_cohort_is_used(run, tmp_path: Path, cohort_folder: Path) -> None:
    folder = tmp_path / "cohort"
    shutil.copytree(cohort_folder, folder)
    frame = pl.read_parquet(folder / "episodes.parquet").rename({"episode": "stay"})
    rows = np.arange(frame.height)
    frame.with_columns(
        measured_MAP=pl.Series(rows % 2 == 0), died=pl.col("stay").str.contains("[02468]$").cast(pl.Int64)
    ).write_parquet(folder / "grid.parquet")
    result = run("card", "--episodes", folder, "--out", tmp_path / "card", "--outcome", "died", "--json")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    shares = {feature["name"]: feature["measured"] for feature in content["features"]}
    assert shares["MAP"]["measured"] == 0.5
    assert shares["SOFA"] is None
    assert content["severity"]["outcome"] == "died"
    assert not (folder / "card").exists()
    assert "measured.png" in content["files"]


def test_the_size_of_a_stored_model_counts(run, tmp_path: Path, cohort_folder: Path, model_folder: Path) -> None:
    result = run("card", "--episodes", cohort_folder, "--model", model_folder, "--out", tmp_path / "card", "--json")
    import ifonly

    size = sum(weights.numel() for weights in ifonly.load_model(model_folder).parameters())
    assert json.loads(result.stdout)["model_size"] == size


def test_bad_requests_leave_nothing_behind(run, tmp_path: Path, cohort_folder: Path) -> None:
    out = ("--out", tmp_path / "card")
    for options, code, expected in (
        (("--severity", "age"), 3, "not a dynamic feature"),
        (("--outcome", "died"), 3, "name a table: died@FILE"),
        (("--outcome", "@x.csv"), 2, "--outcome"),
        (("--outcome", "died@x.csv"), 3, "x.csv"),
        (("--grid", tmp_path / "none.parquet"), 3, "cannot be read"),
        (("--smallest-cell", 0), 2, "smallest-cell"),
    ):
        result = run("card", "--episodes", cohort_folder, *out, *options)
        assert (result.exit_code, expected in result.stderr) == (code, True), result.output
        assert not (tmp_path / "card").exists()
    assert run("card", "--episodes", tmp_path / "nowhere", *out).exit_code == 3
