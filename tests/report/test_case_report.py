"""The report file: what is in it, that it stands alone, and that nothing in it can break out of its place."""

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

import ifonly
from ifonly.constraints import Constraints
from ifonly.data import Cohort, Scaler
from ifonly.data.episode import Episode
from ifonly.errors import InputError, StoreError
from ifonly.models import LinearModel
from ifonly.query import Query
from ifonly.records import from_plain, to_plain
from ifonly.report.case_report import ReportSettings, report_html, write_report
from ifonly.report.cases import Case, OpenedRun, case_of, open_run
from ifonly.report.cases.page import cases_html
from ifonly.report.improvements import improvements
from ifonly.report.summary import summarize
from ifonly.result import Result, Status
from ifonly.runs import RunSettings, solve_cohort
from ifonly.simulate import simulate_cohort
from ifonly.text import catalogue as wording
from ifonly.text.catalogue import say

HOSTILE = "</script><script>alert(1)</script><!-- '\"&"
QUICK = ReportSettings(alternatives=1)


class Page(HTMLParser):
    """The elements of a page as a browser sees them: attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[list[str]] = []
        self.is_open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside.append([])
        self.is_open = True

    def handle_endtag(self, tag: str) -> None:
        self.is_open = False

    def handle_data(self, data: str) -> None:
        if self.is_open:
            self.inside[-1].append(data)

    def texts(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        pairs = zip(self.elements, self.inside, strict=True)
        return [(attributes, "".join(text)) for (name, attributes), text in pairs if name == tag]

    @property
    def data(self) -> dict[str, Any]:
        (text,) = (text for attributes, text in self.texts("script") if attributes.get("type") == "application/json")
        content: dict[str, Any] = json.loads(text)
        return content


def said(message: dict[str, Any]) -> str:
    return say(message["code"], **message["values"])


def hostile_cohort() -> Cohort:
    """Some episodes, one of which has a name that would end an element."""
    cohort = simulate_cohort(5, seed=3, horizon=4)
    episodes = [cohort[position] for position in range(len(cohort))]
    bad = episodes[2]
    episodes[2] = Episode(HOSTILE, bad.schema, bad.states, bad.actions, bad.context, "<b>s</b>")
    return Cohort.from_episodes(episodes)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> OpenedRun:
    cohort = hostile_cohort()
    generator = torch.Generator().manual_seed(0)
    actions, size = len(cohort.schema.actions), len(cohort.schema.dynamic)
    matrices = 0.1 * torch.randn(actions, size, size, generator=generator, dtype=torch.float64)
    model = LinearModel(cohort.schema, matrices, scaler=Scaler.fit(cohort))
    out = tmp_path_factory.mktemp("runs") / "k2"
    settings = RunSettings(workers=1)
    run = solve_cohort(cohort, model, Query(ifonly.minus("SOFA"), 2), out=out, settings=settings)
    return open_run(run, episodes=cohort, model=model)


@pytest.fixture(scope="module")
def written(opened: OpenedRun, tmp_path_factory: pytest.TempPathFactory) -> Page:
    path = tmp_path_factory.mktemp("reports") / "report.html"
    write_report(opened, path, ReportSettings(alternatives=3, seconds=60))
    return Page(path.read_text(encoding="utf-8"))


def test_the_most_improved_come_first_and_have_a_page(opened: OpenedRun, written: Page) -> None:
    known = improvements(opened.table, opened.query).sort("improvement", descending=True)
    data = written.data
    assert [case["episode"] for case in data["cases"]] == known["episode"].to_list()
    assert all(case["answer"]["alternatives_proven"] for case in data["cases"])
    shown = [case["answer"]["best"]["improvement"] for case in data["cases"]]
    assert shown == pytest.approx(known["improvement"].to_list(), rel=1e-5)


def test_figures_are_those_of_the_summary(opened: OpenedRun, written: Page) -> None:
    summary = summarize(opened.table, opened.query, expected=opened.table.height)
    shown = written.data["summary"]
    assert [row["episode"] for row in shown["rows"]] == opened.table["episode"].to_list()
    assert shown["improvements"] == pytest.approx(summary.episodes["improvement"].to_list(), rel=1e-5)
    for row, expected in zip(shown["rows"], summary.episodes.iter_rows(named=True), strict=True):
        assert row["observed"] == pytest.approx(expected["observed"], rel=1e-5)
        assert row["best"] == pytest.approx(expected["counterfactual"], rel=1e-5)
        assert row["proven"]
    assert [entry["max_changes"] for entry in shown["by_changes"]] == [0, 1, 2]
    assert shown["by_changes"][-1]["mean"] == pytest.approx(summary.improvement.mean, rel=1e-5)
    assert " ".join(map(said, shown["notes"])) == summary.statement
    assert shown["threshold"] == 0.15
    values = {said(entry["label"]): entry["value"] for entry in shown["counts"]}
    assert values["episodes"] == values["proven answers"] == 5
    assert values["improved by 15 % or more"] == summary.cases.height
    assert "answers not proven" not in values


def test_what_is_not_believable_is_listed_last_and_in_no_figure(opened: OpenedRun, tmp_path: Path) -> None:
    order = improvements(opened.table, opened.query).sort("improvement", descending=True)["episode"].to_list()
    doubted = order[0]
    verdict = pl.when(pl.col("episode") == doubted).then(pl.lit("not believable")).otherwise("verdict")
    doubting = replace(opened)
    vars(doubting)["table"] = opened.table.with_columns(verdict=verdict)  # as if read from the run
    shown = {}
    for abstain in (True, False):
        settings = replace(QUICK, abstain=abstain)
        shown[abstain] = write_report(doubting, tmp_path / f"{abstain}.html", settings)
    told, all_of_it = (Page(shown[abstain].path.read_text(encoding="utf-8")).data for abstain in (True, False))
    assert [case["episode"] for case in told["cases"]] == [*order[1:], doubted]
    assert [case["episode"] for case in all_of_it["cases"]] == order
    gains = dict(shown[True].summary.episodes.select("episode", "improvement").iter_rows())
    expected = [gains[name] for name in doubting.table["episode"] if name != doubted]
    assert told["summary"]["improvements"] == pytest.approx(expected, rel=1e-5)
    assert len(all_of_it["summary"]["improvements"]) == len(told["summary"]["improvements"]) + 1
    assert len(told["summary"]["rows"]) == len(order), "every answer is listed"
    assert shown[True].summary.abstained == 1
    assert "not to be believed" in " ".join(map(said, told["summary"]["notes"]))
    assert "not to be believed" not in " ".join(map(said, all_of_it["summary"]["notes"]))
    vars(doubting)["table"] = opened.table.with_columns(verdict=pl.lit("not believable"))
    nothing = Page(write_report(doubting, tmp_path / "nothing.html", QUICK).path.read_text(encoding="utf-8")).data
    counted = [[one["label"]["code"] for one in page["summary"]["counts"]] for page in (told, nothing)]
    assert ["report.count.median" in codes for codes in counted] == [True, False], "of nothing there is none"


def test_nothing_ends_the_element_it_is_in(opened: OpenedRun, written: Page) -> None:
    hostile = opened.cohort.ids[2]
    assert hostile.startswith("</script><script>")
    assert hostile in [case["episode"] for case in written.data["cases"]]
    single = Page(cases_html([case_of(opened.problem(hostile), opened.result(hostile))]))
    assert single.data["cases"][0]["episode"] == hostile
    assert single.data["summary"] is None
    for page in (written, single):
        kinds = [attributes.get("type") for attributes, _ in page.texts("script")]
        assert kinds.count("application/json") == 1
        assert not [text for _, text in page.texts("script") if text.strip() == "alert(1)"]
        assert {tag for tag, _ in page.elements} <= {
            *("html", "head", "meta", "title", "style", "script", "body"),
            *("a", "main", "div", "p", "noscript", "footer"),
        }


def test_what_is_claimed_is_not_rounded(opened: OpenedRun) -> None:
    """Six digits of a bound might promise more than the bound does."""
    episode = opened.cohort.ids[0]
    result = opened.result(episode)
    above = replace(result, upper_bound=-1.0000000123, frontier=())
    case = case_of(opened.problem(episode), above)
    assert case.answer is not None
    (shown,) = Page(cases_html([case])).data["cases"]
    assert shown["answer"]["claim"]["best_possible"] == case.answer.claim.best_possible == pytest.approx(1.0, abs=1e-6)
    assert shown["answer"]["claim"]["best_possible"] != 1.0
    assert shown["answer"]["claim"]["gap"] == case.answer.claim.gap
    assert shown["observed"]["outcome"] == float(f"{case.observed.outcome:.6g}")
    assert from_plain(Result, shown["answer"]["result"], what="result").to_json() == above.to_json()


def test_the_file_stands_alone(opened: OpenedRun, written: Page) -> None:
    for tag, attributes in written.elements:
        assert "src" not in attributes, (tag, attributes)
        assert (attributes.get("href") or "#").startswith(("#", "data:")), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        assert "style" not in attributes


def test_the_policy_admits_the_files_own_scripts_and_styles_only(written: Page) -> None:
    (policy,) = (
        attributes["content"] or ""
        for tag, attributes in written.elements
        if tag == "meta" and (attributes.get("http-equiv") or "").lower() == "content-security-policy"
    )
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in rules["script-src"] + rules["style-src"]
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        own = [text for attributes, text in written.texts(tag) if attributes.get("type") != "application/json"]
        assert own
        for text in own:
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in rules[rule]
    assert not re.search(r"https?:|\*|'self'", " ".join(rules.values()))


def test_the_same_run_gives_the_same_bytes(opened: OpenedRun, tmp_path: Path) -> None:
    settings = ReportSettings(cases=2, alternatives=2, seconds=60)
    contents = [write_report(opened, tmp_path / name, settings).path.read_bytes() for name in ("a.html", "b.html")]
    assert contents[0] == contents[1]


def test_chosen_episodes_in_their_order(opened: OpenedRun, tmp_path: Path) -> None:
    ids = [opened.cohort.ids[3], opened.cohort.ids[0]]
    report = write_report(opened, tmp_path / "some.html", ReportSettings(ids, alternatives=1))
    assert [case.episode for case in report.cases] == ids
    data = Page(report.path.read_text(encoding="utf-8")).data
    assert [case["episode"] for case in data["cases"]] == ids
    assert len(data["summary"]["rows"]) == 5, "the table is about the whole run"
    assert [case["answer"]["alternatives"] for case in data["cases"]] == [[], []]


def test_an_existing_file_is_kept_and_nothing_is_half_written(opened: OpenedRun, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("mine")
    with pytest.raises(StoreError, match="exists already"):
        write_report(opened, path, QUICK)
    assert path.read_text() == "mine"

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_report(opened, path, QUICK, overwrite=True, progress=stop)
    assert path.read_text() == "mine"
    write_report(opened, path, QUICK, overwrite=True)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [item.name for item in tmp_path.iterdir()] == ["report.html"]


def test_answers_without_proof_and_failures_are_counted(opened: OpenedRun) -> None:
    limited = pl.col("episode").is_in(opened.cohort.ids[:2])
    failed = pl.col("episode") == opened.cohort.ids[4]
    status = pl.when(limited).then(pl.lit("time limit")).when(failed).then(pl.lit("failed")).otherwise("status")
    table = opened.table.with_columns(
        status=status,
        proven=pl.col("proven") & ~limited & ~failed,
        upper_bound=pl.when(limited).then(pl.lit(None)).otherwise("upper_bound"),
    )
    summary = summarize(table, opened.query, expected=5)
    episode = opened.cohort.ids[0]
    result = replace(opened.result(episode), status=Status.TIME_LIMIT, upper_bound=math.inf)
    data = Page(report_html(summary, [case_of(opened.problem(episode), result)])).data
    values = {said(entry["label"]): entry["value"] for entry in data["summary"]["counts"]}
    assert (values["proven answers"], values["answers not proven"], values["without an answer"]) == (2, 2, 1)
    assert [row["proven"] for row in data["summary"]["rows"]] == [False, False, True, True]
    assert "lower bound" in said(data["summary"]["notes"][0])
    assert "Not proven" in said(data["cases"][0]["answer"]["claim"]["statement"])


def test_a_run_of_failures_is_refused(opened: OpenedRun, tmp_path: Path) -> None:
    query = replace(opened.query, constraints=Constraints(locked=[17]))
    settings = RunSettings(workers=1)
    run = solve_cohort(opened.cohort, opened.model, query, out=tmp_path / "failed", settings=settings)
    with pytest.raises(InputError, match=r"failed: all 5 episodes of this run failed.*there is no step"):
        write_report(run, tmp_path / "report.html", episodes=opened.cohort, model=opened.model)
    assert not (tmp_path / "report.html").exists()


def test_another_wording_breaks_no_stored_file(
    opened: OpenedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results, runs and reports hold codes: what was stored is read, and says the new sentences."""
    id = opened.cohort.ids[0]
    opened.result(id).save(tmp_path / "result.json")
    write_report(opened, tmp_path / "report.html", QUICK)
    before = str(opened.result(id)), opened.run.folder
    changed = {code: f"Anders: {sentence}" for code, sentence in wording.catalogue().items()}
    monkeypatch.setattr(wording, "catalogue", lambda: changed)
    result, run = Result.load(tmp_path / "result.json"), ifonly.load_run(before[1])
    assert str(result).startswith("Anders: ")
    assert str(result) == str(opened.result(id)) != before[0]
    assert run.result(id).to_json() == result.to_json()
    again = case_of(opened.problem(id), run.result(id))
    (data,) = (
        one
        for one in Page((tmp_path / "report.html").read_text(encoding="utf-8")).data["cases"]
        if one["episode"] == id
    )
    stored = from_plain(Case, data, what="case")
    for case in (again, stored):
        assert case.answer is not None
        assert str(case.answer.claim.statement).startswith("Anders: No sequence Anders: with at most")
        assert str(case.evidence.statement).startswith("Anders: Anders: ")
    assert to_plain(again)["answer"]["claim"] == data["answer"]["claim"], "codes are what they were"


@pytest.mark.parametrize("wrong", [{"cases": 0}, {"cases": True}, {"episodes": "patient-1"}])
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="report: "):
        ReportSettings(**wrong)
