"""What leaves the house under codes holds no id, no value as it was measured, no small group."""

import re
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from effort import LONG
from typer.testing import CliRunner

import ifonly
from ifonly.cli import app
from ifonly.errors import InputError, StoreError
from ifonly.evidence.behaviour import BehaviourSettings, fit_behaviour, save_behaviour
from ifonly.problem import build_problem
from ifonly.report.case_report import ReportSettings, write_report
from ifonly.report.deidentify import CODE_DIGITS, Deidentifier
from ifonly.report.folders import write_summary
from ifonly.report.summary import summarize
from ifonly.result.evidence import ExaminationFailure, Reason
from ifonly.runs import RunSettings, solve_cohort
from ifonly.simulate import simulate_cohort

DATE = re.compile(r"\b(19|20|21)\d\d-[01]\d-[0-3]\d")
KEY = Deidentifier(bytes(range(32)))
QUERY = ifonly.Query(ifonly.minus("SOFA"), 1)


@pytest.fixture(scope="module")
def cohort() -> ifonly.Cohort:
    return simulate_cohort(9, seed=3, horizon=(3, 5))


@pytest.fixture(scope="module")
def folder(cohort: ifonly.Cohort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("private")
    model = ifonly.LocationScale(cohort.schema, hidden=(4,), scaler=ifonly.data.Scaler.fit(cohort))
    ifonly.save_cohort(cohort, place / "cohort")
    ifonly.save_model(model, place / "model")
    solve_cohort(cohort, model, QUERY, out=place / "run", settings=RunSettings(workers=1))
    return place


def sources_in(folder: Path) -> dict[str, Path]:
    return {"episodes": folder / "cohort", "model": folder / "model"}


def raw_values(cohort: ifonly.Cohort) -> set[str]:
    """Every measured value with more digits than are left of it, as a file may spell it."""
    found = set()
    for episode in cohort:
        for value in [*episode.states.flatten().tolist(), *episode.context.flatten().tolist()]:
            short = f"{value:.4g}"
            if len(short.strip("-0.").replace(".", "")) >= 4:
                found |= {short, f"{value:.6g}", repr(float(value))}
    return found


def numbers_in(text: str) -> set[str]:
    """But for those of the page's own scripts, which draw icons."""
    return set(re.findall(r"-?\d+\.\d+", " ".join(data_of(text))))


def data_of(page: str) -> list[str]:
    return re.findall(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)


def leaks(text: str, cohort: ifonly.Cohort) -> list[str]:
    ids = [id for id in {*cohort.ids, *cohort.subjects} if id in text]
    return sorted(ids) + sorted(numbers_in(text) & raw_values(cohort))


@pytest.fixture(scope="module")
def examined(cohort: ifonly.Cohort, folder: Path) -> Path:
    """Of a goal whose outcome is one measured value, with all that evidence says."""
    scaler = ifonly.data.Scaler.fit(cohort)
    models = [ifonly.LocationScale(cohort.schema, hidden=(4,), scaler=scaler) for _ in range(3)]
    for seed, model in enumerate(models):
        model.initialize(torch.Generator().manual_seed(seed))
    ensemble = ifonly.Ensemble(models[1:], centre=models[0])
    behaviour = fit_behaviour(cohort, settings=BehaviourSettings(hidden=(), epochs=2), seed=0)
    ifonly.save_model(ensemble, folder / "ensemble")
    save_behaviour(behaviour, folder / "behaviour")
    goal = ifonly.rewards.Goal(ifonly.rewards.Linear({"creatinine": -1.0}), over="end")
    query = ifonly.Query(goal, 1, each_refit=True, sensitivity=True, coupling=True)
    settings = RunSettings(
        workers=1,
        sources={"episodes": folder / "cohort", "model": folder / "ensemble", "behaviour": folder / "behaviour"},
    )
    solve_cohort(cohort, ensemble, query, out=folder / "examined", behaviour=behaviour, settings=settings)
    return folder / "examined"


@pytest.mark.usefixtures("unpainted")
def test_nothing_that_evidence_says_and_no_outcome_is_a_value(
    cohort: ifonly.Cohort, examined: Path, tmp_path: Path
) -> None:
    settings = ReportSettings(cases=3 if LONG else 1, alternatives=2)
    plain = write_report(examined, tmp_path / "plain.html", settings)
    assert all(case.evidence.examined for case in plain.cases), "else there is nothing to hide"
    finals = {f"{episode.states[-1][cohort.schema.dynamic_index('creatinine')]:.6g}" for episode in cohort}
    written = write_summary(plain.summary, tmp_path / "plain")
    assert len(numbers_of(tmp_path / "plain", written.files) & finals) > 3, "the search finds what is there"
    coded = write_report(examined, tmp_path / "coded.html", replace(settings, deidentify=KEY))
    assert leaks(coded.path.read_text(), cohort) == []
    # Seconds that searches took may by chance have the digits of a value.
    took = replace(coded.summary.work, seconds=1.0, median_seconds=1.0, slowest_seconds=1.0, answers_per_second=1.0)
    written = write_summary(replace(coded.summary, work=took), tmp_path / "coded")
    assert numbers_of(tmp_path / "coded", written.files) & raw_values(cohort) == set()
    assert coded.cases[0].answer.best.improvement == plain.cases[0].answer.best.improvement


def numbers_of(folder: Path, files: tuple[str, ...]) -> set[str]:
    text = "".join((folder / name).read_text() for name in files if not name.endswith(".png"))
    return {f"{float(number):.{digits}g}" for number in re.findall(r"\d+\.\d+", text) for digits in (4, 6)}


def test_an_id_that_is_also_a_word_is_replaced_where_it_is_an_id(cohort: ifonly.Cohort, folder: Path) -> None:
    """Ids are often numbers, and so are names of treatments."""
    from ifonly.report.cases import observed_case

    episode, label = cohort[0], cohort.schema.actions.labels[1]
    named = ifonly.Episode(label, episode.schema, episode.states, episode.actions, episode.context, "SOFA")
    case = observed_case(build_problem(named, ifonly.load_model(folder / "model"), QUERY))
    found = KEY.case(case)
    assert (found.episode, found.subject) == (KEY.code(label), KEY.code("SOFA"))
    assert found.treatments == case.treatments
    assert [feature.name for feature in found.features] == [feature.name for feature in case.features]


def test_what_an_error_says_of_an_episode_is_left_out(cohort: ifonly.Cohort, folder: Path) -> None:
    """Its messages name the episode, and often values."""
    from ifonly.records import adapter
    from ifonly.report.cases import case_of

    problem = build_problem(cohort[0], ifonly.load_model(folder / "model"), QUERY)
    result = ifonly.solve(problem)
    error = InputError(f"episode {cohort[0].id!r}: a value of 123.456 at step 1")
    failures = tuple(ExaminationFailure(part, Reason.of(error)) for part in ("refits", "sensitivity"))
    failed = replace(result, evidence=replace(result.evidence, failures=failures, changed_steps=(1,)))
    case = case_of(problem, failed)
    plain, coded = (adapter(type(case)).dump_json(one).decode() for one in (case, KEY.case(case)))
    for told in (cohort[0].id, "123.456"):
        assert told in plain
        assert told not in coded
    assert "could not be examined: what refits say" in str(KEY.case(case).evidence.statement)


def test_small_numbers_of_changes_are_left_out(cohort: ifonly.Cohort, folder: Path) -> None:
    run = ifonly.load_run(folder / "run")
    summary = summarize(run.table(), run.query, schema=cohort.schema)
    times = pl.DataFrame({"step": [0, 1, 2], "episodes": [9, 9, 9], "changed": [0, 2, 6], "share": [0.0, 0.2, 0.7]})
    found = KEY.summary(replace(summary, change_times=times)).change_times
    assert found["step"].to_list() == [0, 2]
    private = ReportSettings(cases=1, alternatives=1, deidentify=Deidentifier(KEY.key, smallest_cell=9))
    assert write_report(folder / "run", folder / "9.html", private, **sources_in(folder)).summary.smallest_cell == 9


def test_a_report_holds_no_id_and_no_value(cohort: ifonly.Cohort, folder: Path, tmp_path: Path) -> None:
    settings = ReportSettings(cases=4 if LONG else 2, alternatives=2)
    plain = write_report(folder / "run", tmp_path / "plain.html", settings, **sources_in(folder))
    assert len(leaks(plain.path.read_text(), cohort)) > 50, "the search finds what is there"
    hidden = replace(settings, deidentify=KEY)
    coded = write_report(folder / "run", tmp_path / "coded.html", hidden, **sources_in(folder))
    text = coded.path.read_text()
    assert leaks(text, cohort) == []
    assert not DATE.search(" ".join(data_of(text)))
    assert [case.episode for case in coded.cases] == [KEY.code(case.episode) for case in plain.cases]
    assert all(case.episode in text for case in coded.cases)
    assert all(case.facts == () for case in coded.cases)
    answer = coded.cases[0].answer
    assert answer is not None
    assert answer.result.episode == coded.cases[0].episode


@pytest.mark.usefixtures("unpainted")
def test_a_summary_holds_no_id_and_no_small_group(cohort: ifonly.Cohort, folder: Path, tmp_path: Path) -> None:
    run = ifonly.load_run(folder / "run")
    summary = summarize(run.table(), run.query, by=["gender"], values=cohort)
    found = KEY.summary(summary)
    assert summary.by_horizon["episodes"].min() < KEY.smallest_cell
    for name in ("by_horizon", "by_group", "by_examination", "changes_used", "change_times", "warnings"):
        frame = getattr(found, name)
        assert frame.filter(frame["episodes"] < KEY.smallest_cell).is_empty()
    coded = [KEY.code(id) for id in summary.episodes["episode"]]
    improved = dict(zip(coded, summary.episodes["improvement"], strict=True))
    assert dict(found.episodes.select("episode", "improvement").iter_rows()) == improved
    assert found.episodes["episode"].to_list() == sorted(coded) != coded, "the order of ids would tell who is who"
    written = write_summary(found, tmp_path / "summary")
    text = "".join((tmp_path / "summary" / name).read_text() for name in written.files if not name.endswith(".png"))
    assert [id for id in {*cohort.ids, *cohort.subjects} if id in text] == []
    assert KEY.code(cohort.ids[0]) in text
    assert not DATE.search(text)


def test_the_order_of_equals_tells_no_id(cohort: ifonly.Cohort, folder: Path, tmp_path: Path) -> None:
    """Where nothing may be changed nothing improves, and all cases are equals."""
    solve_cohort(
        cohort,
        ifonly.load_model(folder / "model"),
        ifonly.Query(ifonly.minus("SOFA"), 0),
        out=tmp_path / "run",
        settings=RunSettings(workers=1),
    )
    asked = ReportSettings(episodes=tuple(cohort.ids), alternatives=1, threshold=0.0, deidentify=KEY)
    coded = write_report(tmp_path / "run", tmp_path / "coded.html", asked, **sources_in(folder))
    codes = [KEY.code(id) for id in cohort.ids]
    assert [case.episode for case in coded.cases] == sorted(codes) != codes
    found = re.findall(r"id-[0-9a-f]{12}", next(data for data in data_of(coded.path.read_text()) if '"rows"' in data))
    assert [code for code in dict.fromkeys(found) if code in codes] == sorted(codes)
    assert coded.summary.cases["episode"].to_list() == sorted(codes)


@pytest.mark.usefixtures("unpainted")
def test_the_command_writes_both_under_codes(cohort: ifonly.Cohort, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "study")
    asked = ["cohort", "--episodes", "cohort", "--model", "model", "-k", "1", "--workers", "1", "--out", "asked"]
    words = ["deidentify", "asked", "key", "out"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "study")
        assert CliRunner().invoke(app, [*asked, "--only", cohort.ids[0]]).exit_code == 0
        done = CliRunner().invoke(app, words, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert CliRunner().invoke(app, words).exit_code == 3, "nothing is replaced"
        given_away = CliRunner().invoke(app, ["deidentify", "asked", "others/key", "others"])
        assert given_away.exit_code == 2, given_away.output
        assert not Path("others").exists()
    out = tmp_path / "study" / "out"
    text = "".join(path.read_text() for path in out.rglob("*") if path.suffix in (".html", ".csv", ".json"))
    codes = Deidentifier.from_file(tmp_path / "study" / "key")
    assert codes.code(cohort.ids[0]) in text
    assert [id for id in {*cohort.ids, *cohort.subjects} if id in text + done.output] == []


def test_codes_depend_on_the_key_and_nothing_else(tmp_path: Path) -> None:
    key = tmp_path / "deep" / "key"
    first, again = Deidentifier.from_file(key), Deidentifier.from_file(key)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert first.code("a") == again.code("a")
    codes = {one.code(id) for one in (first, KEY) for id in ("a", "b", "")}
    assert len(codes) == 6
    assert all(re.fullmatch(rf"id-[0-9a-f]{{{CODE_DIGITS}}}", code) for code in codes)
    assert key.read_text().strip() not in repr(first)


def test_a_file_that_is_no_key_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("my notes")
    (tmp_path / "short").write_text("0a0b")
    for name in ("notes", "short"):
        (tmp_path / name).chmod(0o600)
    with pytest.raises(StoreError, match="not a key"):
        Deidentifier.from_file(tmp_path / "notes")
    with pytest.raises((InputError, StoreError), match="key"):
        Deidentifier.from_file(tmp_path / "short")
    key = tmp_path / "key"
    Deidentifier.from_file(key)
    key.chmod(0o640)
    with pytest.raises(InputError, match="chmod 600"):
        Deidentifier.from_file(key)
    assert (tmp_path / "notes").read_text() == "my notes"
