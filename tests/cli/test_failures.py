"""What goes wrong says so in a line or two, without a traceback, and with an exit code that means something."""

import json
import shutil
from pathlib import Path

import pytest

import ifonly
from ifonly.cli.frame import ExitCode


@pytest.fixture
def refused(run):
    """Run a command line that must fail as bad input; returns its message."""

    def invoke(*args: object) -> str:
        result = run(*args)
        assert result.exit_code == ExitCode.BAD_INPUT, result.output
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert "Traceback" not in result.stderr
        return result.stderr

    return invoke


def test_missing_folders(refused, cohort_folder: Path, model_folder: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    assert "nowhere" in refused("info", nowhere)
    assert "nowhere" in refused("fit", "--recipe", "paper", "--episodes", nowhere, "--out", tmp_path / "m")
    episode = ("--only", "patient-00001")
    assert "nowhere" in refused("solve", "--episodes", nowhere, "--model", model_folder, *episode)
    assert "nowhere" in refused("solve", "--episodes", cohort_folder, "--model", nowhere, *episode, "--json")
    assert "nowhere" in refused("verify", nowhere, "--episodes", cohort_folder, "--model", model_folder)
    assert list(tmp_path.iterdir()) == []


def test_messages_are_words(refused, cohort_folder: Path, model_folder: Path, tmp_path: Path) -> None:
    """No numbers of system errors, no lists as Python writes them."""
    sources = ("--episodes", cohort_folder, "--model", model_folder)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").touch()
    (tmp_path / "run" / "novel.txt").touch()
    messages = (
        refused("verify", tmp_path / "nowhere.json", *sources),
        refused("solve", *sources, "--only", f"@{tmp_path / 'nowhere'}"),
        refused(
            "fit", "--recipe", "paper", "--episodes", cohort_folder, "--out", tmp_path / "run", "--epochs", 1, "--force"
        ),
        refused("cohort", *sources, "--out", tmp_path / "run"),
    )
    for message in messages:
        assert "Errno" not in message
        assert "['" not in message
    assert "No such file or directory" in messages[0]
    assert "novel.txt, thesis.txt" in messages[3]


def test_settings_are_called_as_their_options_are(refused, cohort_folder: Path, tmp_path: Path) -> None:
    command = ("split", "--episodes", cohort_folder, "--out", tmp_path / "parts")
    assert "error: --test 1.5: must lie strictly between 0 and 1." in refused(*command, "--test", 1.5)


def test_unknown_episode(refused, cohort_folder: Path, model_folder: Path) -> None:
    command = ("solve", "--episodes", cohort_folder, "--model", model_folder)
    assert "'patient-99999'" in refused(*command, "--only", "patient-99999")


def test_a_wrong_step_is_noticed_before_any_search(refused, query, cohort_folder: Path, model_folder: Path) -> None:
    command = ("solve", "--episodes", cohort_folder, "--model", model_folder, "--only", "patient-00001")
    assert "numbered 0 to 5" in refused(*command, *query(constraints={"locked": [6]}))
    assert "is not a dynamic feature" in refused(*command, "--minimize", "age")
    assert "--device warp" in refused(*command, "--device", "warp")


def test_broken_models(refused, cohort_folder: Path, model_folder: Path, tmp_path: Path) -> None:
    command = ("solve", "--episodes", cohort_folder, "--only", "patient-00001", "--model")
    for name, damage in (("model.safetensors", b"\0"), ("model.json", b"{")):
        broken = tmp_path / name
        shutil.copytree(model_folder, broken)
        (broken / name).write_bytes(damage)
        assert name in refused(*command, broken)
        assert name in refused("info", broken)


def test_model_of_another_schema(refused, run, cohort_folder: Path, tmp_path: Path) -> None:
    schema = ifonly.Schema((ifonly.Feature("pain", "dynamic"),), ifonly.ActionSpace.categories(["wait", "treat"]))
    ifonly.save_model(ifonly.LocationScale(schema, hidden=(2,), lipschitz=(1.0, 0.1)), tmp_path / "other")
    command = ("solve", "--episodes", cohort_folder, "--model", tmp_path / "other")
    message = refused(*command, "--only", "patient-00001")
    assert "different schemas" in message
    assert "number of actions" in message or "gender" in message, "both sides must be shown"
    assert "Use a model that was made for the schema of these episodes" in message


def test_broken_results(refused, cohort_folder: Path, model_folder: Path, tmp_path: Path, answers: Path) -> None:
    file = tmp_path / "result.json"
    command = ("verify", file, "--episodes", cohort_folder, "--model", model_folder)
    for content in (answers.read_text()[:200], "[]", "3", "{}", '{"format": "ifonly.result", "version": 99}', "\0"):
        file.write_text(content)
        assert "result.json" in refused(*command)
        assert "result.json" in refused("info", file)


def test_a_result_of_another_model_is_not_verified(run, answers: Path, cohort_folder: Path, tmp_path: Path) -> None:
    fitted = run(
        "fit",
        "--recipe",
        "paper",
        "--episodes",
        cohort_folder,
        "--out",
        tmp_path / "m",
        "--epochs",
        1,
        "--hidden",
        4,
        "--seed",
        8,
    )
    assert fitted.exit_code == 0
    result = run("verify", answers, "--episodes", cohort_folder, "--model", tmp_path / "m", "--json")
    assert result.exit_code == ExitCode.NOT_VERIFIED
    assert "fingerprint" in json.loads(result.stdout)[0]["statement"]


def test_an_unconstrained_model_has_no_anchor_bound(run, query, cohort_folder: Path, tmp_path: Path) -> None:
    """It has constants, only large ones: the search works, or says that they are too large."""
    command = (
        "fit",
        "--episodes",
        cohort_folder,
        "--out",
        tmp_path / "m",
        "--epochs",
        1,
        "--hidden",
        4,
    )
    assert run(*command, "--lipschitz", "none").exit_code == 0
    astar = {"name": "anchor-astar", "samples": 20}
    options = ("--only", "patient-00001", "-k", 1, *query(solver=astar), "--seconds", 20, "--json")
    result = run("solve", "--episodes", cohort_folder, "--model", tmp_path / "m", *options)
    assert result.exit_code == 0
    assert ifonly.Result.from_json(result.stdout).certificate.proven


def test_places_that_cannot_be_written(
    refused, cohort_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    inside, episodes = tmp_path / "file" / "deep" / "out.json", ("--episodes", cohort_folder)
    monkeypatch.setattr(ifonly, "load", None)  # no work may be done before
    monkeypatch.setattr("ifonly.study.stages.load_cohort", None)
    for command in (
        ("simulate", "--patients", 10**9, "--out", inside),
        ("import", "table.csv", "--schema", "schema.yaml", "--out", inside),
        ("fit", "--recipe", "paper", *episodes, "--out", inside),
        ("fit", "--recipe", "paper", *episodes, "--out", tmp_path / "m", "--plot", inside.with_suffix(".png")),
        ("crossval", *episodes, "--out", inside),
        ("solve", *episodes, "--model", "m", "--only", "patient-00001", "--out", inside),
        ("split", *episodes, "--out", inside),
        ("init", cohort_folder, "--out", inside.with_suffix(".yaml")),
    ):
        message = refused(*command)
        assert message.startswith(f"error: {inside.with_suffix('')}")
        assert "cannot be written" in message
        assert ".out" not in message.replace(str(inside.with_suffix("")), "")
    (tmp_path / "folder").mkdir()
    solve = ("solve", *episodes, "--model", "m", "--only", "patient-00001", "--force")
    assert "is a folder" in refused(*solve, "--out", tmp_path / "folder")
    assert "is a file" in refused("fit", "--recipe", "paper", *episodes, "--out", tmp_path / "file", "--force")
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize(
    "line",
    [
        "simulate --out c --patients 0",
        "simulate --out c --horizon ten",
        "simulate --out c --unknown 3",
        "simulate",
        "fit --episodes c --out m --kind quadratic",
        "fit --episodes c --out m --set prior=cauchy",
        "fit --episodes c --out m --set speed=9",
        "fit --episodes c --out m --set batch_size=few",
        "fit --episodes c --out m --set batch_size",
        "fit --episodes c --out m --lipschitz 1.0",
        "fit --episodes c --out m --lipschitz 1.0,fast",
        "fit --episodes c --out m --hidden 0",
        "fit --episodes c --out m --plot loss.doc",
        "solve --episodes c --model m",
        "solve --episodes c --model m --only e -k -1",
        "solve --episodes c --model m --only e --solver greedy",
        "solve --episodes c --model m --only e --plot course",
        "solve --episodes c --model m --only e --seconds -1",
        "solve --episodes c --model m --only e --minimize SOFA --maximize MAP",
        "serve --episodes c --model m --run r -k 2",
        "serve --episodes c",
        "serve --run r",
        "serve -k 2",
        "init log.csv --out study.json",
        "init log.csv --column day=d",
        "crossval --episodes c --out t.json --set folds=two",
        "optimise",
    ],
)
def test_usage_errors(run, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*line.split())
    assert result.exit_code == ExitCode.USAGE
    assert result.stdout == ""
    assert "Usage: ifonly" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--epochs", "ten"), "'ten' should be a valid integer."),
        (("--epochs", "0"), "'0' should be greater than or equal to 1."),
        (("--kind", "location_scale"), "'location_scale' is not one of"),
    ],
)
def test_values_that_options_cannot_take_are_quoted(run, option: tuple[str, str], message: str) -> None:
    told = " ".join(run("fit", "--episodes", "c", "--out", "m", *option).stderr.replace("│", " ").split())
    assert f"Invalid value for '{option[0]}': {message}" in told


def test_minimize_and_maximize_exclude_each_other(run, cohort_folder: Path, model_folder: Path) -> None:
    command = ("solve", "--episodes", cohort_folder, "--model", model_folder, "--only", "patient-00001")
    assert run(*command, "--minimize", "SOFA", "--maximize", "MAP").exit_code == ExitCode.USAGE
