"""Studies: what a file may say, which stages are done again and why, and that nothing is lost when one is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from effort import few, long
from moments import ENDED
from standins import without_drawing

import ifonly
from ifonly.data.store import load_metadata
from ifonly.data.tables import cohort_to_frame
from ifonly.errors import InputError, StoreError
from ifonly.files import _hidden_beside
from ifonly.models.standing import HiddenSigns
from ifonly.study import Study, StudyTick, load_study, plan, run_study
from ifonly.study import run as running
from ifonly.study.plan import FitPlan
from ifonly.study.stages import STAGES
from ifonly.study.templates import Sizes, simulated_text, source_text, study_text

TINY = {
    "format": "ifonly.study",
    "version": 1,
    "data": {"simulate": {"patients": 40, "horizon": 5, "seed": 3}},
    "split": {"test": 0.2},
    "fit": {"recipe": "paper", "hidden": [4], "epochs": 2, "refits": 2},
    "query": {"minimize": "SOFA", "max_changes": 1, "allow_failed_model": True},
    "evidence": {"behaviour": {"hidden": [4], "epochs": 2}, "sensitivity": True},
    "cohort": {"first": 3, "workers": 1},
}
NAMES = ["data", "card", "split", "fit", "check", "behaviour", "cohort", "summary", "report"]


def write(folder: Path, **changes: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump({**TINY, **changes}))
    return file


def states(file: Path, **options: str) -> dict[str, str]:
    return {step.stage: step.state for step in plan(load_study(file), **options)}


def reasons(file: Path) -> dict[str, str]:
    return {step.stage: step.why for step in plan(load_study(file)) if step.state != "up to date"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_drawing(monkeypatch)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that was done once, not to be altered."""
    file = write(tmp_path_factory.mktemp("study") / "mine")
    with pytest.MonkeyPatch.context() as patch:
        without_drawing(patch)
        assert list(run_study(load_study(file)).done) == NAMES
    return file


@pytest.fixture
def own(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, elsewhere: studies may be moved."""
    return Path(shutil.copytree(finished.parent, tmp_path / "own")) / "study.yaml"


def forget(file: Path, stage: str) -> None:
    """A study that has come as far as this stage, and has not begun it."""
    for name in NAMES[NAMES.index(stage) :]:
        shutil.rmtree(file.parent / name)


def test_answers_are_checked_and_examined(finished: Path) -> None:
    run = ifonly.load_run(finished.parent / "cohort")
    table = run.table()
    test = ifonly.load(finished.parent / "split" / "test")
    assert table["episode"].to_list() == list(test.ids[:3])
    train = ifonly.load(finished.parent / "split" / "train")
    assert not set(train.subjects) & set(test.subjects)
    result = run.result(test.ids[0])
    evidence = result.evidence
    assert evidence.check is not None
    assert evidence.check.cohort == test.fingerprint()
    assert evidence.refits is not None
    assert evidence.refits.count == 2
    assert evidence.support is not None
    assert evidence.sensitivity is not None


def test_a_first_study_has_all_that_a_verdict_needs(tmp_path: Path) -> None:
    text = study_text(simulated_text(40, "5"), sizes=Sizes(recipe="paper", epochs=2, changes=1, first=2))
    study = Study.from_dict(yaml.safe_load(text), tmp_path / "s")
    assert study.fit.refits == "kinds"
    assert (study.asked.honest, study.asked.sensitivity) == (True, True)
    less = Study.from_dict({**TINY, "evidence": {"honest": False}}, tmp_path)
    assert not less.asked.honest
    asked = {**TINY, "query": {**TINY["query"], "honest": True}, "evidence": {"honest": False}}
    assert Study.from_dict(asked, tmp_path).asked.honest

    content = yaml.safe_load(text)
    content["fit"]["hidden"], content["query"]["allow_failed_model"] = [4], True
    content["cohort"]["workers"] = 1
    run_study(Study.from_dict(content, tmp_path / "s"), until="cohort")
    run = ifonly.load_run(tmp_path / "s" / "cohort")
    for row in run.table().iter_rows(named=True):
        evidence = run.result(row["episode"]).evidence
        assert evidence.failures == ()
        assert None not in (evidence.estimate, evidence.support, evidence.sensitivity, evidence.check)
        # Eight stays are too few to look for what is hidden: with signs that were measured there is a judgement.
        measured = replace(evidence.check, hidden=HiddenSigns(choice=0.0, earlier=0.0))
        assert evidence.judgement is None
        assert replace(evidence, check=measured).judgement is not None
        assert row["verdict"] == evidence.verdict.value


def test_records_say_what_stages_were_made_of(finished: Path) -> None:
    for name in NAMES:
        record = json.loads((finished.parent / name / "stage.json").read_text())
        assert (record["format"], record["version"], record["stage"]) == ("ifonly.stage", 1, name)
        assert record["outputs"]
        assert record["seconds"] >= 0
    fit = json.loads((finished.parent / "fit" / "stage.json").read_text())
    assert set(fit["outputs"]) == {"fit/README.md", "fit/model.json", "fit/model.safetensors"}
    assert set(fit["inputs"]) == {"settings", "split"}
    log = [json.loads(line) for line in (finished.parent / "study.log.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in log] == NAMES


def test_what_is_up_to_date_is_not_done_again(own: Path) -> None:
    assert set(states(own).values()) == {"up to date"}
    before = {path: path.stat().st_mtime_ns for path in own.parent.rglob("*")}
    assert run_study(load_study(own)).done == ()
    assert {path: path.stat().st_mtime_ns for path in own.parent.rglob("*")} == before


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"query": {**TINY["query"], "max_changes": 2}}, {"cohort": "query has changed", "summary": "", "report": ""}),
        ({"cohort": {"first": 2, "workers": 1}}, {"cohort": "first has changed", "summary": "", "report": ""}),
        ({"cohort": {"first": 3, "workers": 2}}, {}),
        ({"outputs": {"threshold": 0.3}}, {"summary": "threshold has changed", "report": "threshold has changed"}),
        ({"split": {"test": 0.3}}, dict.fromkeys(NAMES[3:], "") | {"split": "test has changed"}),
        ({"fit": {**TINY["fit"], "seed": 1, "epochs": 3}}, {"fit": "seed, epochs have changed"}),
        ({"evidence": {"behaviour": False}}, {"cohort": "query, behaviour"}),
    ],
    ids=str,
)
def test_what_depends_on_a_change_is_done_again(
    own: Path, changes: dict[str, object], expected: dict[str, str]
) -> None:
    write(own.parent, **changes)
    found = reasons(own)
    assert set(expected) <= set(found)
    if "fit" not in expected and "behaviour" not in changes.get("evidence", {}):
        assert set(found) == set(expected)
    for name, why in expected.items():
        if "," not in why:
            assert why in found[name], found
    run_study(load_study(own))
    assert set(states(own).values()) == {"up to date"}


@pytest.mark.parametrize(
    ("damaged", "again"),
    [
        ("data/episodes.parquet", ["data"]),
        ("fit/check.json", ["check"]),
        ("cohort/results.parquet", ["cohort"]),
        ("cohort/run.json", ["cohort", "summary", "report"]),
        ("split/stage.json", ["split"]),
        ("report/report.txt", ["report"]),
    ],
)
def test_what_is_broken_is_made_again(own: Path, damaged: str, again: list[str]) -> None:
    """And what comes out as before changes nothing else."""
    path = own.parent / damaged
    path.write_bytes(path.read_bytes()[:3])
    assert set(states(own).values()) != {"up to date"}
    done = run_study(load_study(own)).done
    assert list(done)[: len(again)] == again
    assert set(states(own).values()) == {"up to date"}


def test_what_a_killed_process_was_writing_is_no_product(own: Path) -> None:
    """It is removed with the next writing, and a record that named it would have the stage done again."""
    left = own.parent / "cohort" / f"{_hidden_beside(Path(running.RECORD)).name}"
    left = left.with_name(left.name.replace(f"-{os.getpid()}-", f"-{ENDED}-"))
    left.write_text("{")
    (own.parent / "cohort" / running.RECORD).unlink()
    assert "cohort" in run_study(load_study(own)).done
    assert not left.exists()
    assert set(states(own).values()) == {"up to date"}


def test_another_version_does_it_again(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "__version__", "99")
    assert reasons(own)["data"].startswith("was done by ifonly ")


def test_until_a_stage(tmp_path: Path) -> None:
    file = write(tmp_path / "s")
    assert list(run_study(load_study(file), until="split").done) == NAMES[:3]
    assert list(states(file, until="fit").values()) == ["up to date"] * 3 + ["will run"]
    with pytest.raises(InputError, match=r"stage 'fitt' is unknown.*Did you mean 'fit'"):
        plan(load_study(file), until="fitt")


def test_a_failed_model_stops_the_study_before_the_cohort(tmp_path: Path) -> None:
    file = write(tmp_path / "s", query={"minimize": "SOFA", "max_changes": 1})
    assert _with_verdict(file, "fail").stopped == "cohort"
    assert not (file.parent / "cohort").exists()
    assert (file.parent / "behaviour").exists()
    again = run_study(load_study(file))
    assert (again.done, again.stopped) == ((), "cohort")
    write(file.parent, query={"minimize": "SOFA", "max_changes": 1, "allow_failed_model": True})
    allowed = run_study(load_study(file))
    assert allowed.stopped is None
    assert ifonly.load_run(file.parent / "cohort").table()["verdict"].unique().to_list() == ["not believable"]


def _with_verdict(file: Path, verdict: str):
    """The study, with a check that concludes this."""
    from dataclasses import replace

    from ifonly.evidence.check.model_check import Level
    from ifonly.study import stages

    original = stages.check_model

    def check(*args: object, **options: object):
        found = original(*args, **options)
        return replace(found, verdict=Level(verdict))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "check_model", check)
        return run_study(load_study(file))


@pytest.mark.parametrize("stage", few(["fit", "cohort", "data", "split", "check", "behaviour"], 3))
def test_stopped_anywhere_it_goes_on(own: Path, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Just before a stage's record is written, all of its work is done and nothing says so."""
    file = own
    forget(file, stage)
    write_record = running.write_text_atomically

    def stop(path: Path, text: str) -> None:
        if Path(path).parent.name == stage:
            raise KeyboardInterrupt
        write_record(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(running, "write_text_atomically", stop)
        with pytest.raises(KeyboardInterrupt):
            run_study(load_study(file))
    assert reasons(file)[stage] == "was not finished"
    rest = run_study(load_study(file)).done
    assert rest[0] == stage
    assert list(rest) == [name for name in NAMES[NAMES.index(stage) :] if name in rest]
    assert set(states(file).values()) == {"up to date"}


def test_a_check_that_is_stopped_leaves_the_verdict_of_the_one_before(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = own.parent / "fit"
    before = ifonly.load_model(model).standing
    assert before is not None

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    from ifonly.study import stages

    forget(own, "check")
    with monkeypatch.context() as patch:
        patch.setattr(stages, "check_model", stopped)
        with pytest.raises(KeyboardInterrupt):
            run_study(load_study(own))
    assert ifonly.load_model(model).standing == before
    assert states(own)["check"] != "up to date"


def test_answers_of_a_run_that_was_stopped_are_kept(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ifonly.runs import folder as folders

    file = own
    forget(file, "cohort")
    added = folders.RunFolder.add

    def add_and_stop(*args: object) -> None:
        added(*args)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(folders.RunFolder, "add", add_and_stop)
        patch.setattr("ifonly.runs.solving.CHUNK", 1)
        with pytest.raises(KeyboardInterrupt):
            run_study(load_study(file))
    rows = file.parent / "cohort" / "rows.jsonl"
    begun = rows.read_text()
    assert begun.count("\n") == 1
    run_study(load_study(file))
    assert rows.read_text().startswith(begun)
    assert ifonly.load_run(file.parent / "cohort").table().height == 3


KILLED = """
import sys
sys.path.insert(0, {folder!r})
import pytest
from standins import without_drawing
from ifonly.study import load_study, run_study
without_drawing(pytest.MonkeyPatch())
run_study(load_study({file!r}), watch=lambda tick: print(tick.stage, flush=True))
"""


@long
@pytest.mark.parametrize(
    ("stage", "entry"),
    [pytest.param("fit", {**TINY["fit"], "recipe": "auto"}, marks=long), ("cohort", {"workers": 1})],
    ids=["fit", "cohort"],
)
def test_killed_it_goes_on(own: Path, stage: str, entry: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a stage that another entry has it do again; those before it are done, and are not waited for."""
    monkeypatch.setattr("ifonly.evidence.recipe_losses.ASKED", 1)  # for one answer is as slow as another
    file = write(own.parent, **{stage: entry})
    code = KILLED.format(folder=str(Path(__file__).parent), file=str(file))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None
    try:
        assert any(line.strip() == stage for line in process.stdout)
        time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert states(file)["split"] == "up to date"
    run_study(load_study(file))
    assert set(states(file).values()) == {"up to date"}
    assert not [path for path in file.parent.rglob(".*") if path.name != ".gitignore"]


def test_two_at_a_time_are_refused(own: Path) -> None:
    from ifonly.journal import alone

    with (
        alone(own.parent / "study.log.jsonl", work="this study"),
        pytest.raises(StoreError, match="another process works on this study"),
    ):
        run_study(load_study(own))


def test_progress_tells_the_whole(tmp_path: Path) -> None:
    ticks: list[StudyTick] = []
    run_study(load_study(write(tmp_path / "s")), watch=ticks.append)
    assert list(dict.fromkeys(tick.stage for tick in ticks)) == NAMES
    shares = [tick.share for tick in ticks]
    assert shares[0] == 0
    assert max(shares) <= 1
    assert all(tick.of == len(NAMES) for tick in ticks)
    assert any(tick.seconds_left is not None for tick in ticks)
    begins = [tick.share for tick in ticks if tick.tick is None]
    assert begins == sorted(begins)


def test_a_table_and_a_stored_cohort_as_sources(tmp_path: Path) -> None:
    cohort = ifonly.simulate.simulate_cohort(20, seed=1, horizon=4)
    ifonly.save_cohort(cohort, tmp_path / "stored")
    ifonly.save_schema(cohort.schema, tmp_path / "schema.yaml")
    frame = cohort_to_frame(cohort)
    frame.write_csv(tmp_path / "log.csv")
    sources = ({"data": {"cohort": "../stored"}}, {"data": {"table": "../log.csv"}, "schema": "../schema.yaml"})
    for number, source in enumerate(sources):
        file = write(tmp_path / f"s{number}", **source)
        run_study(load_study(file), until="data")
        assert ifonly.load(file.parent / "data").fingerprint() == cohort.fingerprint()
        assert states(file, until="data") == {"data": "up to date"}
    frame.head(frame.height - 4).write_csv(tmp_path / "log.csv")
    assert reasons(file)["data"] == "file log.csv has changed"


def test_a_clinical_source_that_has_changed_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "meds" / "data").mkdir(parents=True)
    (tmp_path / "meds" / "data" / "0.parquet").write_bytes(b"one")
    (tmp_path / "codes.yaml").write_text("one")
    study = Study.from_dict({**TINY, "data": {"meds": {"source": "meds", "codes": "codes.yaml"}}}, tmp_path)
    before = STAGES[0].files(study)
    assert STAGES[0].files(study) == before
    (tmp_path / "meds" / "data" / "0.parquet").write_bytes(b"other")
    now = STAGES[0].files(study)
    assert now != before
    (tmp_path / "codes.yaml").write_text("two")
    assert STAGES[0].files(study) != now


def test_further_tables_of_a_schema_are_watched_and_named_in_the_cohort(tmp_path: Path) -> None:
    cohort = ifonly.simulate.simulate_cohort(20, seed=1, horizon=4)
    frame = cohort_to_frame(cohort)
    frame.drop("age").write_csv(tmp_path / "log.csv")
    ages = frame.unique("episode", maintain_order=True).select("episode", "age")
    ages.write_csv(tmp_path / "ages.csv")
    table = {"join": [{"file": "ages.csv", "by": "episode"}]}
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"table": table, **cohort.schema.to_dict()}))
    file = write(tmp_path / "study", data={"table": "../log.csv"}, schema="../schema.yaml")
    run_study(load_study(file), until="data")
    assert ifonly.load(file.parent / "data").fingerprint() == cohort.fingerprint()
    assert set(load_metadata(file.parent / "data")["provenance"]["joined"]) == {"ages.csv"}
    assert states(file, until="data") == {"data": "up to date"}
    ages.reverse().write_csv(tmp_path / "ages.csv")
    assert reasons(file)["data"] == "file ages.csv has changed"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "expected format 'ifonly.study', version 1"),
        ({"fits": {}}, r"unknown 'fits'.*Did you mean 'fit'"),
        ({"fit": {"epoch": 3}}, "study: fit: unknown .*Did you mean 'epochs'"),
        ({"fit": {"epochs": "many"}}, "study: fit: epochs: 'many' should be a valid integer.$"),
        ({"fit": {"recipe": "residul"}}, "choose from auto, .*Did you mean 'residual'.$"),
        ({"fit": {"refits": "kind"}}, "study: fit: refits: 'kind' must be kinds, none or a number of members.$"),
        ({"fit": {"kind": "quadratic"}}, "study: fit: kind 'quadratic' is unknown"),
        ({"fit": {"lipschitz": [1.0]}}, "takes 2 limits"),
        ({"split": {"test": 1.5}}, "study: split: test=1.5: must lie strictly between"),
        ({"data": {}}, "name one source"),
        ({"data": {"simulate": {}, "cohort": "x"}}, "name one source"),
        ({"data": {"table": "log.csv"}}, "study: schema: name the file"),
        ({"schema": "schema.yaml"}, "simulate brings its own"),
        ({"query": {"max_changes": 2}}, "say what counts as better"),
        ({"query": 3}, "study: query: expected a mapping"),
        ({"evidence": {"behaviour": {"epochs": 0.5}}}, "evidence: behaviour: epochs"),
        ({"cohort": {"episodes": "some"}}, "say test, all, or a list of ids"),
        ({"cohort": {"first": 0}}, "must be at least 1"),
    ],
    ids=str,
)
def test_files_are_checked_when_they_are_read(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_study(write(tmp_path, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": {"maximize": "sofa"}}, "Did you mean 'SOFA'"),
        ({"query": {"minimize": "SOFA", "constraints": {"forbidden": {"every": [99]}}}}, "no action 99"),
        ({"outputs": {"by": {"agee": None}}}, "Did you mean 'age'"),
        ({"cohort": {"episodes": ["patient-7"]}}, "no episode 'patient-7'"),
    ],
    ids=["reward", "rule", "groups", "episodes"],
)
def test_what_would_fail_later_is_refused_before_fitting(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    file = write(tmp_path, **changes)
    with pytest.raises(InputError, match=message):
        run_study(load_study(file))
    assert states(file)["split"] == "up to date"
    assert not (tmp_path / "fit").exists()


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nothing.yaml: cannot be read \(No such file or directory\)"):
        load_study(tmp_path / "nothing.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(InputError, match="expected a mapping"):
        load_study(tmp_path / "list.yaml")
    for text, where in (
        ("a: [1\n", "line 2, column 1: .*begins in line 1"),
        ("a:\n\tb: 1\n", "line 2, .*a tab; indent"),
    ):
        (tmp_path / "wrong.yaml").write_text(text)
        with pytest.raises(StoreError, match=f"not valid YAML.*{where}"):
            load_study(tmp_path / "wrong.yaml")


def test_a_query_may_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text("maximize: MAP\nmax_changes: none\n")
    study = load_study(write(tmp_path, query="q.yaml"))
    assert (study.query.max_changes, study.query.reward) == (None, ifonly.rewards.Linear({"MAP": 1.0}))


def test_first_files_are_studies(tmp_path: Path) -> None:
    text = study_text(simulated_text(50, "8"), sizes=Sizes(first=4, refits=3))
    study = Study.from_dict(yaml.safe_load(text), tmp_path)
    assert (study.cohort.first, study.fit.refits) == (4, 3)
    assert study == Study.from_dict(
        yaml.safe_load(study_text(simulated_text(50, "8"), sizes=Sizes(first=4, refits=3))), tmp_path
    )
    for source in (
        source_text(tmp_path / "a b: c.csv", tmp_path, schema="s.yaml"),
        source_text(tmp_path / "m", tmp_path),
    ):
        assert Study.from_dict(yaml.safe_load(study_text(source)), tmp_path).query.max_changes == 3


def test_members_of_a_fit() -> None:
    """Kinds where all recipes are compared, else none; what is said counts."""
    for effect in (False, True, "auto"):
        assert FitPlan(subject_effect=effect).refits == "kinds"
    assert FitPlan("paper").refits == FitPlan(kind="additive").refits == 0
    assert FitPlan(refits=3).refits == 3
    assert FitPlan("paper", refits="kinds").refits == "kinds"
    assert FitPlan(subject_effect=True, refits="kinds").refits == "kinds"
    for wrong in ({"kind": "additive", "refits": "kinds"}, {"refits": -1}):
        with pytest.raises(InputError, match="refits="):
            FitPlan(**wrong)
    for said, expected in (("none", 0), ("kinds", "kinds"), (4, 4), (None, "kinds")):
        fit = {"refits": said}
        assert Study.from_dict({**TINY, "fit": fit}, Path()).fit.refits == expected
    with pytest.raises(InputError, match="study: fit: refits"):
        Study.from_dict({**TINY, "fit": {"refits": "many"}}, Path())
