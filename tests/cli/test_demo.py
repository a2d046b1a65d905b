"""`ifonly demo` and `ifonly run`: a study from the command line, its answers, and what is said when it stops."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from effort import LONG
from unpainted_figures import leave_unpainted

import ifonly
from ifonly.cli import study as commands
from ifonly.cli.frame import ExitCode
from ifonly.cli.serve import ServedOptions
from ifonly.data.store import load_cohort
from ifonly.errors import StoreError
from ifonly.evidence.check.model_check import Level
from ifonly.models.recipes import RECIPES
from ifonly.study import load_study, stages
from ifonly.study.templates import Sizes, simulated_text, study_text
from ifonly.text.evidence import evidence_line

TINY = Sizes(recipe="residual", refits=2, epochs=2, changes=2, first=2, cases=2)


def write(file: Path, **changes: object) -> None:
    content = yaml.safe_load(study_text(simulated_text(40, "5"), sizes=TINY))
    content["fit"]["hidden"] = [4]
    content["query"]["allow_failed_model"] = True
    content["evidence"]["behaviour"] = {"epochs": 2}
    content["cohort"]["workers"] = 1
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(content | changes))


def moments(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def shown(run, tmp_path_factory: pytest.TempPathFactory):
    """The output of a first run, and its folder."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "_write_demo", write)
        leave_unpainted(patch)
        result = run("demo", "--out", folder)
    assert result.exit_code == 0, result.output
    return result, folder


def test_answers_with_their_evidence(shown) -> None:
    result, folder = shown
    found = ifonly.load_run(folder / "cohort")
    words = " ".join(result.stdout.split())
    for id in found.table()["episode"]:
        answer = found.result(id)
        assert answer.status is ifonly.Status.OPTIMAL
        assert f"{id}, evidence: {evidence_line(answer)}" in words
        for change in answer.changes:
            assert f"step {change.step}:" in result.stdout
    assert found.table().height == 2
    assert not list(folder.rglob(".*"))


def test_the_report_is_about_the_same_answers(shown) -> None:
    _, folder = shown
    text = (folder / "report" / "report.html").read_text(encoding="utf-8")
    assert all(id in text for id in ifonly.load_run(folder / "cohort").table()["episode"])


def test_what_is_suggested_works(shown, run) -> None:
    result, _ = shown
    suggested = [line.split()[1:] for line in result.stdout.splitlines() if line.startswith("  ifonly ")]
    assert {line[0] for line in suggested} == {"info", "verify", "solve", "run", "serve"}
    for line in suggested:
        if line[0] != "serve":  # which would go on for good
            allowed = ("--allow-failed-model",) if line[0] == "solve" else ()
            done = run(*line, *allowed)
            assert done.exit_code == 0, done.output
    (serve,) = (line for line in suggested if line[0] == "serve")
    assert all(Path(place).is_dir() for place in serve[2::2])


def test_a_second_run_makes_nothing(shown, run) -> None:
    first, folder = shown
    before = moments(folder)
    second = run("demo", "--out", folder)
    assert second.exit_code == 0
    assert moments(folder) == before
    assert second.stdout == first.stdout
    assert "everything is up to date" in second.stderr


def test_the_plan_is_a_tree(shown, run) -> None:
    _, folder = shown
    tree = run("run", folder / "study.yaml", "--dry-run").stdout
    assert "└── data: up to date" in tree
    assert "cohort: up to date" in tree
    plan = json.loads(run("run", folder / "study.yaml", "--dry-run", "--json", "--until", "fit").stdout)
    assert [stage["stage"] for stage in plan["stages"]] == ["data", "card", "split", "fit"]
    assert "cohort: up to date" in run("info", folder).stdout


def test_a_wrong_stage_is_named(shown, run) -> None:
    _, folder = shown
    result = run("run", folder / "study.yaml", "--until", "chek")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "Did you mean 'check'?" in result.stderr


def test_a_plan_that_cannot_be_carried_out_is_refused(shown, run) -> None:
    _, folder = shown
    file = folder / "other.yaml"
    file.write_text((folder / "study.yaml").read_text().replace("minimize: SOFA", "minimize: sofa"))
    result = run("run", file, "--dry-run")
    file.unlink()
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "Did you mean 'SOFA'?" in result.stderr


@pytest.mark.parametrize("until", [(), ("--until", "check"), ("--until", "behaviour")], ids=str)
def test_a_failed_model_stops_it(run, failing: Path, until: tuple[str, ...]) -> None:
    result = run("run", failing, *until)
    assert result.exit_code == ExitCode.NOT_PASSED, result.output
    words = " ".join(result.stderr.split())
    assert "stopped: The model failed its check (" in words
    assert "the study stops before the cohort" in words
    assert "allow_failed_model: true" in words
    assert not (failing.parent / "cohort").exists()


def test_a_study_that_ends_before_its_check_does_not_ask_for_one(run, failing: Path) -> None:
    assert run("run", failing, "--until", "fit").exit_code == 0


@pytest.fixture(scope="module")
def failing(run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose model fails its check."""
    file = tmp_path_factory.mktemp("failing") / "study.yaml"
    original = stages.check_model

    def fail(*args: object, **options: object):
        return replace(original(*args, **options), verdict=Level.FAIL)

    write(file, query={"minimize": "SOFA", "max_changes": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "check_model", fail)
        leave_unpainted(patch)
        assert run("run", file, "--until", "behaviour").exit_code == ExitCode.NOT_PASSED
    return file


def test_the_demonstration_is_a_study(tmp_path: Path) -> None:
    from ifonly.study import load_study

    commands._write_demo(tmp_path / "study.yaml")
    study = load_study(tmp_path / "study.yaml")
    assert not study.query.allow_failed_model
    assert study.fit.refits == "kinds"
    assert study.evidence.behaviour is not None


def test_a_folder_of_other_things_is_refused(run, tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    result = run("demo", "--out", tmp_path)
    assert result.exit_code == 3
    assert [path.name for path in tmp_path.iterdir()] == ["diary.txt"]


@dataclass(frozen=True)
class ShownRow:
    """What README's table says of one episode, but for the seconds."""

    observed: float
    found: float
    changes: tuple[str, ...]
    status: str
    gap: str
    nodes: int


def rows_of_readme() -> dict[str, ShownRow]:
    """The rows of the output of `make demo` as README.md shows it; the line above the rule says where columns begin."""
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^make demo$.*?^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert block, "README.md shows no output of `make demo`"
    lines = block[1].splitlines()
    rule = next(number for number, line in enumerate(lines) if line.startswith("───"))
    begin, end = (lines[rule - 1].index(column) for column in ("changes", "status"))
    rows: dict[str, list[str]] = {}
    for line in lines[rule + 1 :]:
        if re.match(r"patient-\d+ ", line):
            rows[line.split()[0]] = []
        if line.startswith("patient-") and ", evidence:" in line:
            break
        if line.strip():
            rows[next(reversed(rows))].append(line)
    return {id: shown_row(row, begin, end) for id, row in rows.items()}


def shown_row(lines: list[str], begin: int, end: int) -> ShownRow:
    first, second = lines[:2]
    _, observed, _, found = first[:begin].split()
    status, _, nodes = first[end:].split()
    changes = tuple(change for line in lines if (change := line[begin:end].strip()))
    return ShownRow(
        observed=float(observed),
        found=float(found),
        changes=changes,
        status=status,
        gap=second[end:].split()[0],
        nodes=int(nodes.replace(",", "")),
    )


STRENGTH = 0.03
"""The curvature penalty that the demo's comparison takes. To compare takes half a minute: the long run does."""


def test_the_readme_shows_what_the_demo_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same changes, outcomes, status and gap; nodes up to a factor of two, since training rounds differently
    elsewhere."""
    file = tmp_path / "study.yaml"
    commands._write_demo(file)
    demo = load_study(file)
    # What is shown rests on no refit, no check and no evidence, and on no answer but the first two.
    stages.store_cohort(demo.data, tmp_path / "data")
    stages.store_split(tmp_path / "data", tmp_path / "split", demo.split)
    if not LONG:
        monkeypatch.setitem(RECIPES, demo.fit.recipe, replace(RECIPES[demo.fit.recipe], strengths=(STRENGTH,)))
    model = stages.store_model(tmp_path / "split" / "train", tmp_path / "fit", replace(demo.fit, refits=0))
    assert model.fit_report.settings.curvature == STRENGTH
    cohort = ifonly.load(tmp_path / "split" / "test")
    settings = ifonly.RunSettings(episodes=cohort.ids[:2], workers=1)
    run = ifonly.solve_cohort(cohort, model, demo.query, out=tmp_path / "cohort", settings=settings)
    shown = rows_of_readme()
    assert len(shown) == 2
    for id, row in shown.items():
        result = run.result(id)
        observed, found = result.shown
        assert (row.observed, row.found) == pytest.approx((observed.value, found.value), abs=0.11)
        space = result.schema.actions
        told = [f"step {one.step}: {space.describe_change(one.observed, one.counterfactual)}" for one in result.changes]
        assert " ".join(" ".join(row.changes).split()) == " ".join(" ".join(told).replace(",", "").split())
        assert (row.status, row.gap) == (result.status.value, f"{result.gap:g}")
        assert row.nodes / 2 <= result.stats.nodes_expanded <= 2 * row.nodes


def test_a_server_without_anything_makes_a_sample_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "_write_sample", write)
    commands.make_sample()
    asked = ServedOptions()
    assert asked.is_sample(None)
    assert load_cohort(asked.episodes).ids
    assert ifonly.load_model(asked.model).standing is not None
    assert ifonly.load_run(commands.SAMPLE / "cohort").is_finished
    before = moments(commands.SAMPLE)
    commands.make_sample()
    assert moments(commands.SAMPLE) == before


def test_a_sample_takes_no_other_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands.SAMPLE.mkdir()
    (commands.SAMPLE / "letter.txt").write_text("mine")
    with pytest.raises(StoreError, match="holds other things"):
        commands.make_sample()
