"""What leaves the house under codes holds no id, no value as it was measured, no small group."""

import re
import stat
from pathlib import Path

import pytest
from effort import LONG

import ifonly
from ifonly.errors import InputError, StoreError
from ifonly.report.case_report import ReportSettings, write_report
from ifonly.report.deidentify import CODE_DIGITS, Deidentifier
from ifonly.report.folders import write_summary
from ifonly.report.summary import summarize
from ifonly.runs import RunSettings, solve_cohort
from ifonly.simulate import simulate_cohort

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
    sources = {"episodes": place / "cohort", "model": place / "model"}
    query = ifonly.Query(ifonly.minus("SOFA"), 1)
    solve_cohort(cohort, model, query, out=place / "run", settings=RunSettings(workers=1), sources=sources)
    return place


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
    return set(re.findall(r"-?\d+\.\d+", text))


def leaks(text: str, cohort: ifonly.Cohort) -> list[str]:
    ids = [id for id in {*cohort.ids, *cohort.subjects} if id in text]
    return sorted(ids) + sorted(numbers_in(text) & raw_values(cohort))


def test_a_report_holds_no_id_and_no_value(cohort: ifonly.Cohort, folder: Path, tmp_path: Path) -> None:
    settings = ReportSettings(cases=4 if LONG else 2, alternatives=2)
    plain = write_report(folder / "run", tmp_path / "plain.html", settings)
    assert len(leaks(plain.path.read_text(), cohort)) > 50, "the search finds what is there"
    coded = write_report(
        folder / "run", tmp_path / "coded.html", ReportSettings(cases=settings.cases, alternatives=2, deidentify=KEY)
    )
    text = coded.path.read_text()
    assert leaks(text, cohort) == []
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
