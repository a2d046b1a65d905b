import json
from pathlib import Path

import pytest
from ifonly.cli.stages import RECORD

import ifonly

TINY = ("--patients", 40, "--horizon", 5, "--epochs", 2, "--hidden", 4, "--solve", 2, "-k", 2)


def moments(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def shown(run, tmp_path_factory: pytest.TempPathFactory):
    """The output of a first run, and its folder."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    result = run("demo", "--out", folder, *TINY)
    assert result.exit_code == 0, result.output
    return result, folder


def test_the_table_and_the_files(shown, run) -> None:
    result, folder = shown
    solved = [ifonly.Result.load(path) for path in sorted((folder / "results").iterdir())]
    assert len(solved) == 2
    for item in solved:
        assert item.status is ifonly.Status.OPTIMAL
        assert item.max_changes == 2
        assert item.episode_id in result.stdout
        assert (folder / "plots" / f"{item.episode_id}.png").read_bytes().startswith(b"\x89PNG")
        for change in item.changes:
            assert f"step {change.step}:" in result.stdout
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert not list(folder.rglob(".*"))


def test_the_run_and_the_report_are_about_the_same_answers(shown) -> None:
    _, folder = shown
    table = ifonly.load_run(folder / "run").table()
    for row in table.iter_rows(named=True):
        result = ifonly.Result.load(folder / "results" / f"{row['episode']}.json")
        assert (result.actions.tolist(), result.outcome) == (row["actions"], pytest.approx(row["outcome"]))
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert all(id in text for id in table["episode"])


def test_solved_episodes_were_not_trained_on(shown) -> None:
    _, folder = shown
    cohort, model = ifonly.load(folder / "cohort"), ifonly.load_model(folder / "model")
    train, test = cohort.split(test=0.1, seed=0)
    assert {path.stem for path in (folder / "results").iterdir()} <= set(test.ids)
    report = model.fit_report
    assert report.training.episodes + report.validation.episodes == len(train)


def test_what_is_suggested_works(shown, run) -> None:
    result, _ = shown
    suggested = [line.split()[1:] for line in result.stdout.splitlines() if line.startswith("  ifonly ")]
    assert {line[0] for line in suggested} == {"info", "solve", "verify", "serve"}
    for line in suggested:
        if line[0] != "serve":  # which would go on for good
            assert run(*line).exit_code == 0
    (serve,) = (line for line in suggested if line[0] == "serve")
    assert all(Path(place).is_dir() for place in serve[2::2])


def test_a_second_run_makes_nothing(shown, run) -> None:
    first, folder = shown
    before = moments(folder)
    second = run("demo", "--out", folder, *TINY)
    assert second.exit_code == 0
    assert moments(folder) == before
    assert second.stdout == first.stdout
    assert "done" not in second.stderr


@pytest.mark.parametrize(
    ("damaged", "kept"),
    [
        ("loss.png", {"cohort/episodes.parquet", "model/model.json", "run", "results", "report.html"}),
        ("results", {"cohort/episodes.parquet", "model/model.json", "run", "loss.png", "report.html"}),
        ("run/rows.jsonl", {"cohort/episodes.parquet", "model/model.json", "loss.png"}),
        ("run/run.json", {"cohort/episodes.parquet", "model/model.json", "loss.png"}),
        ("report.html", {"cohort/episodes.parquet", "model/model.json", "run", "results", "loss.png"}),
        (RECORD, set()),
    ],
)
def test_what_is_broken_is_made_again(shown, run, damaged: str, kept: set[str]) -> None:
    _, folder = shown
    target = folder / damaged if damaged != "results" else sorted((folder / "results").iterdir())[0]
    target.write_bytes(target.read_bytes()[:50])
    before = moments(folder)
    again = run("demo", "--out", folder, *TINY)
    assert again.exit_code == 0, again.output
    assert target.stat().st_size > 50
    after = moments(folder)
    for name in after:
        if any(name.startswith(part) for part in kept) and folder / name != target:
            assert after[name] == before[name], name
    assert ifonly.load_model(folder / "model")


def test_other_settings_make_what_depends_on_them(shown, run) -> None:
    _, folder = shown
    before = moments(folder)
    files = set(before)
    again = run("demo", "--out", folder, *TINY[:-4], "--solve", 1, "-k", 1)
    assert again.exit_code == 0, again.output
    after = moments(folder)
    assert after["model/model.json"] == before["model/model.json"]
    results = [ifonly.Result.load(path) for path in (folder / "results").iterdir()]
    assert [result.max_changes for result in results] == [1], "results of other settings must not stay"
    assert set(after) < files
    assert set(json.loads((folder / RECORD).read_text())["stages"]) == {
        "cohort",
        "model",
        "loss curve",
        "run",
        "report",
        f"result of {results[0].episode_id}",
        f"plot of {results[0].episode_id}",
    }


def test_an_interrupted_run_goes_on(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "out"
    from ifonly.runs import folder as folders

    added = folders.RunFolder.add

    def add_and_stop(*args: object) -> None:
        added(*args)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(folders.RunFolder, "add", add_and_stop)
        patch.setattr("ifonly.runs.solving.CHUNK", 1)
        assert run("demo", "--out", folder, *TINY).exit_code == 130
    begun = (folder / "run" / "rows.jsonl").read_text()
    assert begun.count("\n") == 1
    assert run("demo", "--out", folder, *TINY).exit_code == 0
    assert (folder / "run" / "rows.jsonl").read_text().startswith(begun)


def test_a_folder_of_other_things_is_refused(run, tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    result = run("demo", "--out", tmp_path, *TINY)
    assert result.exit_code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["diary.txt"]
