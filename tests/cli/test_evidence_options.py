"""What `solve`, `cohort` and `verify` do with an ensemble, and with a model that failed its check."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import ifonly
from ifonly.data import Scaler
from ifonly.models import Ensemble
from ifonly.problem import EnsembleProblem
from ifonly.query import Query
from ifonly.text.checks import concern_message
from ifonly.text.evidence import evidence_line, model_message
from ifonly.text.results import statement


@pytest.fixture(scope="module")
def ensemble_folder(cohort_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ensemble of random weights, not to be altered."""
    cohort = ifonly.load(cohort_folder)
    models = [ifonly.LocationScale(cohort.schema, hidden=(4,), scaler=Scaler.fit(cohort)) for _ in range(4)]
    for number, model in enumerate(models):
        model.initialize(torch.Generator().manual_seed(number))
        with torch.no_grad():
            for weights in model.parameters():
                weights.mul_(3.0)  # else treatments hardly matter
    folder = tmp_path_factory.mktemp("ensemble") / "model"
    ifonly.save_model(Ensemble(models[1:], centre=models[0]), folder)
    return folder


@pytest.fixture(scope="module")
def failed_folder(ensemble_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same ensemble after a check that it failed."""
    folder = Path(shutil.copytree(ensemble_folder, tmp_path_factory.mktemp("failed") / "model"))
    found = {"verdict": "fail", "findings": [{"kind": "gain_over_linear", "level": "fail"}], "episodes": 60}
    fingerprint = ifonly.load_model(folder).fingerprint()
    rest = {"cohort": "0123", "model": fingerprint, "figures": {"features": []}}
    (folder / "check.json").write_text(json.dumps(found | rest))
    return folder


def asking(command: str, cohort_folder: Path, model: Path, *more: object) -> tuple[object, ...]:
    return (command, "--episodes", cohort_folder, "--model", model, "--only", "patient-00001", "-k", 1, *more)


def test_refits_are_always_told_of_an_ensemble(run, cohort_folder: Path, ensemble_folder: Path) -> None:
    asked = asking("solve", cohort_folder, ensemble_folder)
    content = ifonly.Result.from_json(run(*asked, "--json").stdout)
    assert content.member_outcomes is None
    refits = content.evidence.refits
    assert refits is not None
    assert refits.count == 3
    assert refits.steps is None
    words = " ".join(run(*asked).stdout.split())
    assert f"evidence: {evidence_line(content)} " in words
    two = run(*asked, "--only", "patient-00002")
    assert "refits agree" in two.stdout
    assert "in the median" in words
    assert "in the median" not in two.stdout, "of several answers a line each"


def test_the_best_for_the_worst_member_is_found_told_and_verified(
    run, query, cohort_folder: Path, ensemble_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "result.json"
    options = (*query(objective="worst", each_refit=True), "--contributions", "--out", file, "--json")
    solved = run(*asking("solve", cohort_folder, ensemble_folder, *options))
    assert solved.exit_code == 0, solved.output
    document = json.loads(solved.stdout)
    assert document.pop("contributions")["changes"]
    content = ifonly.Result.from_dict(document)
    episode, model = ifonly.load(cohort_folder)["patient-00001"], ifonly.load_model(ensemble_folder)
    ensemble = EnsembleProblem.from_episode(episode, model, Query(ifonly.minus("SOFA"), 1, objective="worst"))
    assert content.outcome == pytest.approx(ifonly.solve(ensemble, ifonly.Exhaustive()).outcome)
    assert content.query.objective == "worst"
    assert "for the worst of 3 members" in statement(content)
    assert [step.of for step in content.evidence.refits.steps] == [3] * len(content.changes)
    verify = ("verify", file, "--episodes", cohort_folder, "--model")
    verified = run(*verify, ensemble_folder)
    assert verified.exit_code == 0, verified.output
    assert "members: 3 models with the same fingerprints" in verified.stdout


def test_an_ensemble_s_result_is_not_verified_by_one_model(
    run, query, cohort_folder: Path, model_folder: Path, ensemble_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "result.json"
    asked = asking("solve", cohort_folder, ensemble_folder, *query(objective=0.4), "--out", file)
    assert run(*asked).exit_code == 0
    refused = run("verify", file, "--episodes", cohort_folder, "--model", model_folder)
    assert refused.exit_code == 5
    assert "single model has no refits" in refused.stdout


def test_a_cohort_run_with_all_of_it(run, query, cohort_folder: Path, ensemble_folder: Path, tmp_path: Path) -> None:
    out, learned = tmp_path / "run", tmp_path / "behaviour"
    assert run("behaviour", "--episodes", cohort_folder, "--out", learned, "--epochs", 2).exit_code == 0
    asked = query(objective="mean", each_refit=True, min_support=0.01, sensitivity=True)
    options = (*asked, "--behaviour", learned)
    result = run(*asking("cohort", cohort_folder, ensemble_folder, *options, "--workers", 1, "--out", out), "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    found = ifonly.load_run(out)
    (row,) = found.table().to_dicts()
    assert document["model_check"] is None
    assert document["verdicts"] == {row["verdict"]: 1}
    assert all(row["evidence"][name] is not None for name in ("refits", "support", "sensitivity"))
    assert found.query.objective == "mean"
    assert found.query.min_support == 0.01
    assert found.query.each_refit is found.query.sensitivity is True
    assert found.manifest["sources"]["behaviour"] == "../behaviour"
    alone = run(*asking("solve", cohort_folder, ensemble_folder, *options, "--json")).stdout
    told = ifonly.Result.from_json(alone)
    assert row["outcome"] == told.outcome
    assert evidence_line(found.result("patient-00001")) == evidence_line(told)
    assert row["warnings"] == [warning.code.value for warning in told.evidence.warnings]


@pytest.mark.parametrize("command", ["solve", "cohort"])
def test_a_failed_model_is_refused_or_said_to_have_failed(
    run, cohort_folder: Path, failed_folder: Path, tmp_path: Path, command: str
) -> None:
    out = tmp_path / "out"
    more = ("--out", out, *(("--workers", 1) if command == "cohort" else ()))
    refused = run(*asking(command, cohort_folder, failed_folder, *more))
    assert refused.exit_code == 3
    assert "the model failed its check" in refused.stderr
    assert "allow_failed_model" not in refused.stderr
    (kind,) = ifonly.load_model(failed_folder).standing.findings
    assert kind not in refused.stderr
    assert str(concern_message(kind)) in " ".join(refused.stderr.split()), "words, not the code of a finding"
    assert "--allow-failed-model" in refused.stderr
    assert not out.exists()
    allowed = run(*asking(command, cohort_folder, failed_folder, *more, "--allow-failed-model"))
    assert allowed.exit_code == 0, allowed.output
    words = " ".join(allowed.output.split())
    if command == "solve":
        assert "But the model failed its check: it was asked all the same." in words
        assert json.loads(out.read_text())["evidence"]["check"]["verdict"] == "fail"
    else:
        assert "model check fail" in words
        assert "caution: " in words
        assert "not believable 1" in words
        again = run(*asking(command, cohort_folder, failed_folder, *more, "--allow-failed-model", "--json"))
        assert json.loads(again.stdout)["model_check"] == "fail"


def test_info_tells_of_a_model_s_check(run, ensemble_folder: Path, failed_folder: Path) -> None:
    assert "The model was not checked." in run("info", ensemble_folder).stdout
    assert str(model_message(ifonly.load_model(failed_folder).standing)) in run("info", failed_folder).stdout
    assert json.loads(run("info", failed_folder, "--json").stdout)["model_check"]["verdict"] == "fail"


@pytest.mark.parametrize("command", ["solve", "cohort"])
@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"objective": "worst"}, "single model has no refits"),
        ({"each_refit": True}, "ifonly fit --ensemble 20"),
        ({"objective": "best"}, "'mean', 'worst', or a number between 0 and 1"),
        ({"objective": 1.0}, "between 0 and 1"),
        ({"min_support": 0.1}, "--behaviour"),
    ],
    ids=str,
)
def test_what_cannot_be_asked(
    run, query, cohort_folder: Path, model_folder: Path, tmp_path: Path, command: str, entries: dict, expected: str
) -> None:
    out = tmp_path / "out"
    result = run(*asking(command, cohort_folder, model_folder, *query(**entries), "--out", out))
    assert result.exit_code == 3
    assert expected in " ".join(result.stderr.replace("│", " ").split())
    assert not out.exists()


def test_ctrl_c_while_an_answer_is_examined_keeps_the_answer(
    run, query, cohort_folder: Path, ensemble_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ifonly.runs.task.examine", interrupt)
    result = run(*asking("solve", cohort_folder, ensemble_folder, *query(each_refit=True), "--json"))
    assert result.exit_code == 130
    content = ifonly.Result.from_json(result.stdout)
    assert content.status is ifonly.Status.OPTIMAL
    assert not content.evidence.examined


def test_the_log_tells_of_refits(run, query, cohort_folder: Path, ensemble_folder: Path) -> None:
    result = run(*asking("solve", cohort_folder, ensemble_folder, *query(each_refit=True), "--log"))
    lines = [line for line in result.stderr.splitlines() if "patient-00001" in line]
    assert lines == ["Searching patient-00001", "Asking refits about patient-00001"]
