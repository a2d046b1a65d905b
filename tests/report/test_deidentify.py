"""What leaves the house under codes holds no id, no value as it was measured, no small group."""

import re
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from effort import LONG
from typer.testing import CliRunner

import ifonly
from ifonly.cli import app
from ifonly.errors import InputError, StoreError
from ifonly.report.case_report import ReportSettings, write_report
from ifonly.report.deidentify import CODE_DIGITS, Deidentifier
from ifonly.report.folders import write_summary
from ifonly.report.summary import summarize
from ifonly.runs import RunSettings, solve_cohort
from ifonly.simulate import simulate_cohort

DATE = re.compile(r"\b(19|20|21)\d\d-[01]\d-[0-3]\d")
KEY = Deidentifier(bytes(range(32)))


@pytest.fixture(scope="module")
def cohort() -> ifonly.Cohort:
    return simulate_cohort(9, seed=3, horizon=(3, 5))


@pytest.fixture(scope="module")
def folder(cohort: ifonly.Cohort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("private")
    model = ifonly.LocationScale(cohort.schema, hidden=(4,), scaler=ifonly.data.Scaler.fit(cohort))
    ifonly.save_cohort(cohort, place / "cohort")
    ifonly.save_model(model, place / "model")
    query = ifonly.Query(ifonly.minus("SOFA"), 1)
    solve_cohort(cohort, model, query, out=place / "run", settings=RunSettings(workers=1))
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
    assert found.episodes["improvement"].to_list() == summary.episodes["improvement"].to_list()
    written = write_summary(found, tmp_path / "summary")
    text = "".join((tmp_path / "summary" / name).read_text() for name in written.files if not name.endswith(".png"))
    assert [id for id in {*cohort.ids, *cohort.subjects} if id in text] == []
    assert KEY.code(cohort.ids[0]) in text
    assert not DATE.search(text)


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
    out = tmp_path / "study" / "out"
    text = "".join(path.read_text() for path in out.rglob("*") if path.suffix in (".html", ".csv", ".json"))
    codes = Deidentifier.from_file(tmp_path / "study" / "key")
    assert codes.code(cohort.ids[0]) in text
    assert [id for id in {*cohort.ids, *cohort.subjects} if id in text + done.output] == []


def test_the_audit_names_every_file() -> None:
    """Names by which the package writes files, where it has a name for them."""
    from ifonly.clinical.build import FILES
    from ifonly.data.store import METADATA_NAME, TABLE_NAME
    from ifonly.evidence.behaviour import behaviour
    from ifonly.models import checkpoint
    from ifonly.report.folders import CHECK_FOLDER
    from ifonly.runs.folder import ROWS, TABLE
    from ifonly.runs.manifest import MANIFEST
    from ifonly.study.run import LOG, RECORD

    page = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text()
    names = [*FILES, METADATA_NAME, TABLE_NAME, ROWS, TABLE, MANIFEST, LOG, RECORD, "summary.json", "card.json"]
    names += [checkpoint.METADATA, checkpoint.WEIGHTS, checkpoint.CHECK, CHECK_FOLDER.document]
    names += [behaviour.METADATA, behaviour.WEIGHTS, behaviour.STATES]
    assert [name for name in names if f"`{name}`" not in page] == []


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
    with pytest.raises(StoreError, match="not a key"):
        Deidentifier.from_file(tmp_path / "notes")
    with pytest.raises((InputError, StoreError), match="key"):
        Deidentifier.from_file(tmp_path / "short")
    assert (tmp_path / "notes").read_text() == "my notes"
