import json
from pathlib import Path

import pytest

from ifonly.evidence.behaviour import load_behaviour
from ifonly.records import to_plain
from ifonly.result import Result
from ifonly.text.evidence import evidence_line, evidence_lines


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
    return ("solve", *common, "--only", "patient-00001", "-k", 2, *more)


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
    run, query, cohort_folder: Path, model_folder: Path, behaviour_folder: Path
) -> None:
    more = ("--behaviour", behaviour_folder, *query(sensitivity=True))
    result = run(*solving(cohort_folder, model_folder, *more))
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    assert "patient-00001, evidence: Uncertain: it was not examined in full. The model was not checked; " in words
    content = Result.from_json(run(*solving(cohort_folder, model_folder, *more, "--json")).stdout)
    for line in evidence_lines(content):
        assert " ".join(line.split()) in words
    assert content.provenance.support is None
    evidence = content.evidence
    assert evidence.support is not None
    assert len(evidence.support.steps) == 6
    assert evidence.support.behaviour == load_behaviour(behaviour_folder).fingerprint
    assert evidence.sensitivity is not None
    assert evidence.sensitivity.gain == pytest.approx(content.outcome - content.observed_outcome)
    assert (evidence.check, evidence.refits) == (None, None)


def test_unsupported_actions_are_kept_out_and_the_result_is_verified(
    run, query, cohort_folder: Path, model_folder: Path, behaviour_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "result.json"
    more: tuple[object, ...] = ("--behaviour", behaviour_folder, "--json")
    free = Result.from_json(run(*solving(cohort_folder, model_folder, *more)).stdout)
    assert free.evidence.support is not None
    least = 1.01 * min(step.probability for step in free.evidence.support.changed)
    more = (*more, *query(min_support=least), "--out", file)
    content = Result.from_json(run(*solving(cohort_folder, model_folder, *more)).stdout)
    changed = content.evidence.support.changed
    assert changed
    assert min(step.probability for step in changed) >= least
    assert content.outcome < free.outcome
    fingerprint = load_behaviour(behaviour_folder).fingerprint
    assert content.provenance.support == {"kind": "behaviour", "min_support": least, "behaviour": fingerprint}
    common = ("verify", file, "--episodes", cohort_folder, "--model", model_folder)
    verified = run(*common, "--behaviour", behaviour_folder)
    assert verified.exit_code == 0, verified.output
    unnamed = run(*common)
    assert (unnamed.exit_code, "--behaviour FOLDER" in unnamed.stderr) == (3, True), "nothing was found wrong with it"
    assert f"evidence: {evidence_line(content)}" in run("info", file).stdout
    assert fingerprint in run("info", behaviour_folder).stdout
    assert json.loads(run("info", behaviour_folder, "--json").stdout)["fingerprint"] == fingerprint


def test_bad_requests(
    run, query, cohort_folder: Path, model_folder: Path, behaviour_folder: Path, tmp_path: Path
) -> None:
    for more, expected in (
        (query(min_support=0.1), "--behaviour"),
        (("--behaviour", behaviour_folder, *query(min_support=0)), "above 0"),
        (("--behaviour", tmp_path), "behaviour.json"),
        (("--behaviour", model_folder), "behaviour.json"),
    ):
        result = run(*solving(cohort_folder, model_folder, *more))
        assert (result.exit_code, expected in result.stderr) == (3, True), result.output
    wrong = run("behaviour", "--episodes", cohort_folder, "--out", tmp_path / "x", "--hidden", "a")
    assert wrong.exit_code == 2
    assert not (tmp_path / "x").exists()
