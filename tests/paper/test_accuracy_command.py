import json
from pathlib import Path

import ifonly

SMALL = ("--patients", 4, "--horizon", 5, "--sequences", 3, "-k", 1)


def test_a_stored_model_is_judged(run, model_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "accuracy.json"
    result = run("accuracy", "--model", model_folder, *SMALL, "--solve", 2, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content == json.loads(out.read_text())
    assert content["model"] == ifonly.load_model(model_folder).fingerprint()
    assert content["states"]["episodes"] == 4
    assert len(content["recommendations"]["rows"]) == 2
    assert run("accuracy", "--model", model_folder, *SMALL, "--out", out).exit_code == 3


def test_recommendations_may_be_skipped(run, model_folder: Path) -> None:
    result = run("accuracy", "--model", model_folder, *SMALL, "--solve", 0)
    assert result.exit_code == 0
    assert "counterfactual states of 4 episodes" in result.stdout
    assert "recommendations" not in result.stdout


def test_accuracy_by_cohort_size(run) -> None:
    result = run("accuracy", "--sizes", "10,20", *SMALL, "--solve", 1, "--epochs", 1, "--json")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert [row["training_patients"] for row in content["rows"]] == [10, 20]
    assert content["settings"]["horizon"] == 5


def test_a_model_or_sizes(run, model_folder: Path) -> None:
    assert run("accuracy", "--model", model_folder, "--sizes", "10").exit_code == 2
