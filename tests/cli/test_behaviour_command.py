import json
from pathlib import Path

import pytest

from ifonly.evidence.behaviour import load_behaviour
from ifonly.records import to_plain


@pytest.fixture(scope="module")
def behaviour_folder(run, cohort_folder: Path, tmp_path_factory) -> Path:
    """What was learned from the tiny cohort, not to be altered."""
    folder = tmp_path_factory.mktemp("behaviour") / "learned"
    result = run("behaviour", "--episodes", cohort_folder, "--out", folder, "--epochs", 5, "--hidden", "8")
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "log-likelihood" in words
    assert "calibration error" in words
    assert "only 8 subjects held out" in words
    return folder


def solving(cohort_folder: Path, model_folder: Path, *more: object) -> tuple[object, ...]:
    common = ("--episodes", cohort_folder, "--model", model_folder)
    return ("solve", *common, "--episode", "patient-00001", "-k", 2, *more)


def test_json_and_no_states(run, cohort_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "shared"
    options = ("--no-states", "--hidden", "none", "--epochs", 2, "--seed", 1, "--json")
    result = run("behaviour", "--episodes", cohort_folder, "--out", out, *options)
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    learned = load_behaviour(out)
    assert learned.neighbours is None
    assert learned.hidden == ()
    assert content["fingerprint"] == learned.fingerprint
    assert content["report"] == to_plain(learned.report)
    again = run("behaviour", "--episodes", cohort_folder, "--out", out)
    assert (again.exit_code, "--force" in again.stderr) == (3, True)


def test_flags_support_and_sensitivity_are_told(
    run, cohort_folder: Path, model_folder: Path, behaviour_folder: Path
) -> None:
    more = ("--behaviour", behaviour_folder, "--sensitivity")
    result = run(*solving(cohort_folder, model_folder, *more))
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "patient-00001, how far to trust it: the model was not checked; " in words
    assert "what the data supports: " in words
    assert "what would undo the gain: " in words
    content = json.loads(run(*solving(cohort_folder, model_folder, *more, "--json")).stdout)
    assert content["support"] is None
    trust = content["trust"]
    assert len(trust["support"]["steps"]) == 6
    assert trust["support"]["behaviour"] == load_behaviour(behaviour_folder).fingerprint
    assert trust["sensitivity"]["gain"] == pytest.approx(content["outcome"] - content["observed_outcome"])
    assert (trust["model_check"], trust["refits"]) == (None, None)


def test_unsupported_actions_are_kept_out_and_the_result_is_verified(
    run, cohort_folder: Path, model_folder: Path, behaviour_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "result.json"
    more: tuple[object, ...] = ("--behaviour", behaviour_folder, "--json")
    free = json.loads(run(*solving(cohort_folder, model_folder, *more)).stdout)
    least = 1.01 * min(step["probability"] for step in free["trust"]["support"]["steps"] if step["changed"])
    more = (*more, "--min-support", least, "--out", file)
    content = json.loads(run(*solving(cohort_folder, model_folder, *more)).stdout)
    changed = [step for step in content["trust"]["support"]["steps"] if step["changed"]]
    assert changed
    assert min(step["probability"] for step in changed) >= least
    assert content["outcome"] < free["outcome"]
    fingerprint = load_behaviour(behaviour_folder).fingerprint
    assert content["support"] == {"kind": "behaviour", "min_support": least, "behaviour": fingerprint}
    common = ("verify", file, "--episodes", cohort_folder, "--model", model_folder)
    verified = run(*common, "--behaviour", behaviour_folder)
    assert verified.exit_code == 0, verified.output
    unnamed = run(*common)
    assert (unnamed.exit_code, "--behaviour FOLDER" in unnamed.stderr) == (3, True), "nothing was found wrong with it"
    summary = content["trust"]["summary"]
    assert f"how far to trust it: {summary}" in run("info", file).stdout
    assert fingerprint in run("info", behaviour_folder).stdout
    assert json.loads(run("info", behaviour_folder, "--json").stdout)["fingerprint"] == fingerprint


def test_bad_requests(run, cohort_folder: Path, model_folder: Path, behaviour_folder: Path, tmp_path: Path) -> None:
    for more, code, expected in (
        (("--min-support", 0.1), 2, "--behaviour"),
        (("--behaviour", behaviour_folder, "--min-support", 0), 2, "above 0"),
        (("--behaviour", tmp_path), 3, "behaviour.json"),
        (("--behaviour", model_folder), 3, "behaviour.json"),
    ):
        result = run(*solving(cohort_folder, model_folder, *more))
        assert (result.exit_code, expected in result.stderr) == (code, True), result.output
    wrong = run("behaviour", "--episodes", cohort_folder, "--out", tmp_path / "x", "--hidden", "a")
    assert wrong.exit_code == 2
    assert not (tmp_path / "x").exists()
