import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from effort import long

import ifonly
from ifonly.errors import FitError
from ifonly.evidence.check.model_check import ModelCheck, stored_check
from ifonly.report.check_plots import plot_likelihood
from ifonly.text.results import statement

pytestmark = pytest.mark.usefixtures("unpainted")


@pytest.fixture(scope="module")
def others(run, tmp_path_factory) -> Path:
    """Patients that the model was not fitted to."""
    folder = tmp_path_factory.mktemp("check") / "others"
    assert run("simulate", "--patients", 60, "--horizon", 6, "--seed", 4, "--out", folder).exit_code == 0
    return folder


@pytest.fixture
def own(model_folder: Path, tmp_path: Path) -> Path:
    """A copy of the model, to be altered."""
    return Path(shutil.copytree(model_folder, tmp_path / "own"))


def test_a_bad_model_fails_and_the_check_is_kept(run, own: Path, others: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run("check", "--model", own, "--episodes", others, "--by", "age=50,70", "--out", out, "--details")
    assert result.exit_code == 6, result.output
    words = " ".join(result.stdout.split())
    assert "fail: of " in words
    assert "worse than a linear model" in words
    assert "taken as not seen in training" in words
    check = stored_check(own)
    assert check is not None
    assert check == ModelCheck.load(out / "check.json")
    assert check.model == ifonly.load_model(own).fingerprint()
    assert check.cohort == ifonly.load(others).fingerprint()
    assert {part.grouping for part in check.figures.parts} == {"action", "age (years)"}
    assert (out / "noise.png").exists()
    assert "ifonly solve, cohort and serve now refuse this model, unless --allow-failed-model" in words
    asked = ("solve", "--episodes", others, "--model", own, "--only", "patient-00001", "-k", 1)
    refused = run(*asked)
    assert refused.exit_code == 3
    assert "the model failed its check" in refused.stderr
    assert "--allow-failed-model" in refused.stderr
    allowed = run(*asked, "--allow-failed-model", "--json")
    assert allowed.exit_code == 0, allowed.output
    content = ifonly.Result.from_json(allowed.stdout)
    assert content.evidence.check == check.standing
    assert "the model failed its check" in statement(content)
    assert content.evidence.verdict is ifonly.Verdict.NOT_BELIEVABLE


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def a_note_beside_it(own: Path, others: Path, patch: pytest.MonkeyPatch) -> int:
    (own / "notes.txt").write_text("mine")
    return 3


def a_damaged_cohort(own: Path, others: Path, patch: pytest.MonkeyPatch) -> int:
    table = others / "episodes.parquet"
    table.write_bytes(table.read_bytes()[:-100])
    return 3


def a_fit_that_fails(own: Path, others: Path, patch: pytest.MonkeyPatch) -> int:
    return _failing("ifonly.models.effect_choice.fit", FitError("the loss is not finite"), patch, 3)


def a_fit_that_is_interrupted(own: Path, others: Path, patch: pytest.MonkeyPatch) -> int:
    return _failing("ifonly.models.effect_choice.fit", KeyboardInterrupt(), patch, 130)


def a_disk_that_is_full(own: Path, others: Path, patch: pytest.MonkeyPatch) -> int:
    return _failing("ifonly.models.checkpoint.save_file", OSError("no space"), patch, 3)


def a_swap_that_fails(own: Path, others: Path, patch: pytest.MonkeyPatch) -> int:
    return _failing("ifonly.files._replace_folder", OSError("no space"), patch, 3)


def _failing(name: str, error: BaseException, patch: pytest.MonkeyPatch, code: int) -> int:
    def fails(*args: object, **kwargs: object) -> None:
        raise error

    patch.setattr(name, fails)
    return code


@pytest.mark.parametrize(
    "refusal",
    [
        a_note_beside_it,
        a_damaged_cohort,
        a_fit_that_fails,
        a_fit_that_is_interrupted,
        a_disk_that_is_full,
        a_swap_that_fails,
    ],
)
def test_a_refused_fit_leaves_the_old_model_and_its_check(
    run, own: Path, others: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Callable[..., int]
) -> None:
    fitted = Path(shutil.copytree(others, tmp_path / "fitted"))
    assert run("check", "--model", own, "--episodes", others).exit_code == 6
    with monkeypatch.context() as patch:
        code = refusal(own, fitted, patch)
        before = bytes_in(own)
        result = run(
            "fit", "--recipe", "paper", "--episodes", fitted, "--out", own, "--epochs", 1, "--hidden", 4, "--force"
        )
    assert result.exit_code == code, result.output
    assert bytes_in(own) == before
    assert "check.json" in before
    asked = run("solve", "--episodes", others, "--model", own, "--only", "patient-00001", "-k", 1)
    assert asked.exit_code == 3
    assert "the model failed its check" in asked.stderr


def test_a_good_one_passes_and_nothing_is_kept_unless_wanted(run, tmp_path: Path, others: Path) -> None:
    truth = tmp_path / "truth"
    ifonly.save_model(ifonly.simulate.SepsisWorld(), truth)
    result = run("check", "--model", truth, "--episodes", others, "--no-save", "--json")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["verdict"] == "pass", result.stdout
    assert ModelCheck.from_dict(content).to_dict() == content
    assert stored_check(truth) is None


@long
def test_remedies_are_told_tried_and_kept_only_if_asked(
    run, own: Path, others: Path, cohort_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("folders", "check_page"):  # to draw all figures takes longest
        monkeypatch.setattr(f"ifonly.report.{place}.check_figures", lambda one: {"likelihood": plot_likelihood(one)})
    out, page = tmp_path / "out", tmp_path / "page.html"
    asked = ("check", "--model", own, "--episodes", others, "--no-save")
    trying = ("--try", cohort_folder, "--epochs", 2)
    before = set(tmp_path.rglob("*"))
    told = run(*asked, *trying)
    assert told.exit_code == 6, told.output
    assert "likely: " in told.stdout
    assert "ifonly fit --recipe" in told.stdout
    assert "as checked  fail" in told.stdout
    assert set(tmp_path.rglob("*")) == before
    content = json.loads(run(*asked, *trying, "--json", "--out", out, "--report", page).stdout)
    assert all(finding["remedies"] for finding in content["findings"] if finding["level"] == "fail")
    recipes = [trial["recipe"] for trial in content["tried"]]
    assert len(recipes) == 2
    assert sorted(item.name for item in (out / "tried").iterdir()) == sorted(recipes)
    assert json.loads((out / "tried.json").read_text())["trials"] == content["tried"]
    kept = stored_check(out / "tried" / recipes[0])
    assert kept is not None
    assert kept.verdict.value == content["tried"][0]["verdict"]
    for text in (page.read_text(), (out / "check.html").read_text()):
        assert all(f"<td>{name}</td>" in text for name in recipes)
    assert run(*asked, "--out", out, "--report", page).exit_code == 6
    assert not (out / "tried").exists()


def test_the_episodes_of_the_fit_are_recognised(run, own: Path, cohort_folder: Path) -> None:
    result = run("check", "--model", own, "--episodes", cohort_folder, "--no-save", "--json")
    assert json.loads(result.stdout)["seen_in_training"] is True


def test_own_limits(run, own: Path, others: Path, tmp_path: Path) -> None:
    limits = tmp_path / "limits.yaml"
    limits.write_text("subjects: {judge: 100, enough: 200}\n")
    result = run("check", "--model", own, "--episodes", others, "--thresholds", limits, "--no-save")
    assert result.exit_code == 6
    assert "cannot be judged" in result.stdout
    assert not (own / "check.json").exists()


def test_bad_requests_leave_nothing_behind(run, own: Path, others: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("distanse: {warn: 1, fail: 2}")
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_text("")
    for options, code, expected in (
        (("--thresholds", wrong), 3, "distanse"),
        (("--by", "age=x"), 2, "--by"),
        (("--by", "height"), 3, "height"),
        (("--out", full), 3, "mine"),
        (("--report", wrong), 3, "no page of a check"),
        (("--try",), 2, "--try"),
        (("--try", others), 3, "flatter"),
    ):
        result = run("check", "--model", own, "--episodes", others, *options)
        assert (result.exit_code, expected in result.stderr) == (code, True), result.output
        assert not (own / "check.json").exists()
