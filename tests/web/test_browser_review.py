"""What a reviewer does, done in a real browser against `ifonly serve`."""

import contextlib
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_review import (
    ELSEWHERE,
    SOLVED,
    becomes,
    check_care,
    first_dose,
    open_case,
    outcome,
    query_of,
    reader,
    settle,
    started_server,
    try_another_dose,
    until,
    watched_page,
)

from ifonly.text.catalogue import say

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect

pytestmark = pytest.mark.xdist_group("browser")


@contextlib.contextmanager
def on_a_tablet(page: Any) -> Iterator[None]:
    page.set_viewport_size({"width": 820, "height": 1180})
    yield
    page.set_viewport_size({"width": 1440, "height": 900})


def doses_changed(case: dict[str, Any], course: dict[str, Any]) -> int:
    """How many doses of a course differ from what was recorded, over all axes and steps."""
    levels = [action["levels"] for action in case["treatments"]["actions"]]
    return sum(
        old != new
        for change in course["changes"]
        for old, new in zip(levels[change["observed"]], levels[change["counterfactual"]], strict=True)
    )


def test_the_list_is_searched_filtered_sorted_and_leads_to_a_case(seen: tuple[Any, Any], home: str, place: Any) -> None:
    page, watch = seen
    page.goto(home)
    rows = page.locator("#cohort tbody tr")
    expect(rows).to_have_count(len(place.cohort))
    expect(page.locator("#count")).to_have_text(f"{len(place.cohort)} cases")
    check_care(page)
    with on_a_tablet(page):
        check_care(page)
    improvements = [float(text.split()[0]) for text in page.locator("#cohort .gain").all_inner_texts()]
    assert improvements == sorted(improvements, reverse=True)
    assert len(improvements) == SOLVED

    page.get_by_label("Answer").select_option("unsolved")
    expect(rows).to_have_count(len(place.cohort) - SOLVED)
    page.get_by_label("Search").fill("no such patient")
    expect(page.get_by_text("No case fits these filters")).to_be_visible()
    becomes(page, lambda: query_of(page), {"search": "no such patient", "status": "unsolved"})
    page.reload()
    expect(page.get_by_text("No case fits these filters")).to_be_visible()
    expect(page.get_by_label("Search")).to_have_value("no such patient")
    page.get_by_role("button", name="Clear").click()
    expect(rows).to_have_count(len(place.cohort))

    page.get_by_role("button", name="Case", exact=True).click()
    expect(page.get_by_role("columnheader", name="Case")).to_have_attribute("aria-sort", "ascending")
    expect(rows.first.locator("a")).to_have_text(min(place.cohort.ids))
    rows.first.locator("a").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(sorted(place.cohort.ids)[1])
    expect(page.get_by_role("link", name="Previous")).to_be_visible()
    page.get_by_role("link", name="All cases").click()
    expect(page).to_have_url(re.compile("order=episode"))

    watch.expected = ("Failed to load resource",)
    page.route("**/api/episodes*", lambda route: route.abort())
    page.get_by_label("Verdict").select_option("unsure")
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    page.unroute("**/api/episodes*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("#count")).to_have_text("0 cases found")
    page.goto(f"{home}/case?episode=nobody")
    expect(page.get_by_role("link", name="All cases")).to_be_visible()
    check_care(page)


def test_a_case_shows_what_the_api_says_for_every_budget(page: Any, home: str, longest: str) -> None:
    open_case(page, home, longest)
    case = page.request.get(f"{home}/api/case?episode={longest}").json()
    best = case["answer"]["best"]
    expect(outcome(page, "observed")).to_have_text(f"{case['observed']['outcome']:.1f}")
    expect(outcome(page, "best")).to_have_text(f"{best['outcome']:.1f}")
    statement = case["answer"]["claim"]["statement"]
    expect(page.locator(".certificate")).to_contain_text(say(statement["code"], **statement["values"]))
    expect(page.locator(".chart .main-svg").first).to_be_visible()
    charts = len([feature for feature in case["features"] if feature["kind"] == "dynamic"])
    assert page.locator(".board .chart, .charts .chart").count() >= charts
    expect(page.locator(".lanes tr.best td.changed")).to_have_count(doses_changed(case, best))
    for text in page.locator(".lanes tr.best td.changed").all_inner_texts():
        assert text[0] in "▲▼"
    check_care(page)
    page.get_by_text("Values as a table").click()
    scores = 1  # SOFA, which is shown as its organs make it as well
    expect(page.locator(".values tbody tr")).to_have_count(2 * (charts + scores) + len(case["features"]) - charts)
    with on_a_tablet(page):
        check_care(page)

    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    slider = page.get_by_label("Changes allowed", exact=True)
    slider.focus()
    budgets = case["answer"]["budgets"]
    for budget in (budgets[1], budgets[0]):
        page.keyboard.press("ArrowLeft")
        expect(outcome(page, "best")).to_have_text(f"{budget['course']['outcome']:.1f}")
        expect(page.locator(".lanes tr.best td.changed")).to_have_count(doses_changed(case, budget["course"]))
    assert not [address for address in asked if "/api/" in address]
    becomes(page, lambda: query_of(page)["k"], "0")
    if case["cautions"]:
        expect(page.locator(".cautions")).to_contain_text("About the sequence found with at most 2 changes")
    page.get_by_role("button", name="Undo").click()
    expect(slider).to_have_value("2")
    expect(page.locator(".cautions")).not_to_contain_text("About the sequence")


def test_a_dose_is_tried_undone_and_kept_in_the_link(seen: tuple[Any, Any], home: str, longest: str) -> None:
    page, watch = seen
    open_case(page, home, longest)
    first_dose(page, "Hour 0, vasopressors, as recorded").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("at hour 4")
    check_care(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    until(page, "document.activeElement.getAttribute('aria-label').includes('Hour 4')")  # the focus comes back

    try_another_dose(page, "Hour 4, fluids, as recorded")
    actions = tried(page)
    told = page.request.post(f"{home}/api/course", data={"episode": longest, "actions": actions}).json()
    expect(outcome(page, "own")).to_have_text(f"{told['outcome']:.1f}")
    assert len(told["changes"]) == 1
    notice = page.locator(".notice")
    expect(notice).to_contain_text("others may be better")
    expect(notice).not_to_contain_text("optimal")
    expect(page.locator(".lanes tr.own td.changed")).to_have_count(1)
    check_care(page)

    own = f"{told['outcome']:.1f}"
    page.reload()
    expect(outcome(page, "own")).to_have_text(own)
    settle(page)
    watch.expected = ("Failed to load resource",)
    page.route("**/api/course", lambda route: route.abort())
    first_dose(page, "Hour 0, fluids, your version").click()
    page.get_by_role("dialog").locator("input[type=radio]:not(:checked)").first.check()
    page.get_by_role("button", name="Try this").click()
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    expect(outcome(page, "own")).to_have_text(own)  # what could not be worked out is not shown, nor linked to
    becomes(page, lambda: tried(page), actions)
    page.unroute("**/api/course")
    page.get_by_role("button", name="Discard my version").click()
    expect(page.locator(".outcome.own")).to_have_count(0)
    page.keyboard.press("Control+z")
    expect(outcome(page, "own")).to_have_text(own)
    page.get_by_role("button", name="Reset").click()
    becomes(page, lambda: set(query_of(page)), {"episode"})


def tried(page: Any) -> list[int]:
    """The treatments of the reviewer's own version, as the address has them."""
    return [int(action) for action in query_of(page)["actions"].split(",")]


def test_pinned_and_forbidden_doses_are_kept_by_the_next_answer(seen: tuple[Any, Any], home: str, longest: str) -> None:
    page, watch = seen
    open_case(page, home, longest)
    case = page.request.get(f"{home}/api/case?episode={longest}").json()
    step = case["answer"]["best"]["changes"][0]["step"]
    first_dose(page, f"Hour {4 * step}, vasopressors, as recorded").click()
    page.get_by_role("button", name=f"Leave hour {4 * step} as it was").click()
    first_dose(page, "Hour 0, fluids, as recorded").click()
    page.get_by_role("dialog").get_by_role("radio", name="850 mL/4 h").check()
    page.get_by_role("button", name="at any step").click()
    page.get_by_text("Limits on doses").click()
    page.get_by_label("Vasopressors, levels from the recorded dose").select_option("1")
    expect(page.locator(".rules li")).to_have_count(3)
    expect(page.locator(".lanes thead .mark")).to_have_text("kept")

    page.get_by_role("button", name="Find the best under these rules").click()
    expect(page.get_by_text("the answer under your rules is shown")).to_be_visible()
    job = page.request.get(f"{home}/api/jobs/{query_of(page)['job']}").json()
    best = job["case"]["answer"]["best"]
    expect(outcome(page, "best")).to_have_text(f"{best['outcome']:.1f}")
    recorded, levels = case["observed"]["actions"], [action["levels"] for action in case["treatments"]["actions"]]
    assert best["actions"][step] == recorded[step]
    for now, before in zip(best["actions"], recorded, strict=True):
        assert now == before or levels[now][1] != 4
        assert abs(levels[now][0] - levels[before][0]) <= 1
    check_care(page)

    page.get_by_role("button", name="Next alternative").click()
    expect(page.locator(".certificate")).to_contain_text("Alternative 1 of")
    page.get_by_role("button", name="Next alternative").click()
    expect(page.locator(".certificate")).to_contain_text("Alternative 2 of")
    shown, rules = (
        f"{job['case']['answer']['alternatives'][1]['outcome']:.1f}",
        page.locator(".rules li").all_inner_texts(),
    )
    expect(outcome(page, "best")).to_have_text(shown)
    notice = page.locator(".notice")
    expect(notice).to_contain_text("the answer under your rules")
    page.get_by_role("button", name="Remove the rule").first.click()
    expect(page.locator(".rules li")).to_have_count(2)
    expect(page.get_by_text("the answer under your rules is shown")).to_have_count(0)
    expect(notice).to_contain_text(f"under your earlier rules ({rules[0].removesuffix('Remove').strip()}")
    watch.expected = ("404",)  # a search that the server has forgotten is done again, under the rules that it had
    page.goto(page.evaluate("location.href").replace(query_of(page)["job"], "A" * 16))
    expect(page.locator(".pager-at")).to_have_text(re.compile("^2 of"))
    expect(outcome(page, "best")).to_have_text(shown)
    expect(page.locator(".rules li")).to_have_count(2)
    expect(notice).to_contain_text("under your earlier rules")
    page.get_by_role("button", name="Back to the first answer").click()
    expect(outcome(page, "best")).to_have_text(f"{case['answer']['best']['outcome']:.1f}")


def test_links_keep_how_far_alternatives_differ_whatever_has_become_of_their_search(
    seen: tuple[Any, Any], home: str, longest: str, place: Any
) -> None:
    page, watch = seen
    watch.expected = ("404", "422")
    open_case(page, home, longest)
    apart = page.get_by_label("Steps in which alternatives differ")
    apart.fill("2")
    page.get_by_role("button", name="Find the best under these rules").click()
    expect(page.get_by_text("the answer under your rules is shown")).to_be_visible()
    page.get_by_role("button", name="Next alternative").click()
    page.get_by_role("button", name="Next alternative").click()
    job = page.request.get(f"{home}/api/jobs/{query_of(page)['job']}").json()
    best, shown = job["case"]["answer"]["best"], job["case"]["answer"]["alternatives"][1]
    assert sum(one != other for one, other in zip(best["actions"], shown["actions"], strict=True)) >= 2
    expect(outcome(page, "best")).to_have_text(f"{shown['outcome']:.1f}")
    assert query_of(page)["apart"] == "2"

    link, known = page.evaluate("location.href"), query_of(page)["job"]
    again = "The server does not know the search that the link names"
    for unknown, note in ((known, 0), ("A" * 16, 1), ("no%20such%20search", 1)):
        page.goto(link.replace(known, unknown))
        expect(page.locator(".pager-at")).to_have_text(re.compile("^2 of"))
        expect(outcome(page, "best")).to_have_text(f"{shown['outcome']:.1f}")
        expect(apart).to_have_value("2")
        expect(page.locator(".notice").get_by_text(again)).to_have_count(note)
    apart.fill("3")
    apart.blur()
    expect(page.locator(".notice")).to_contain_text("Search again to use those set now")
    settle(page)
    assert {name: query_of(page)[name] for name in ("apart", "asked_apart")} == {"apart": "3", "asked_apart": "2"}
    page.reload()
    expect(outcome(page, "best")).to_have_text(f"{shown['outcome']:.1f}")
    expect(apart).to_have_value("3")

    other = next(id for id in place.cohort.ids[:SOLVED] if id != longest)
    page.goto(f"{home}/case?episode={other}&job={known}")
    expect(page.locator(".notice")).to_contain_text(again)
    expect(page.locator("h1")).to_contain_text(other)


def test_contradictions_are_told_and_a_search_is_stopped_with_its_bracket(
    seen: tuple[Any, Any], home: str, longest: str
) -> None:
    page, watch = seen
    watch.expected = ("422",)
    open_case(page, home, longest)
    first_dose(page, "Hour 0, fluids, as recorded").click()
    dialog = page.get_by_role("dialog")
    other = dialog.locator("input[type=radio]:not(:checked)").first
    other.check()
    dialog.get_by_role("button", name="Require at hour 0").click()
    page.get_by_label("Changes allowed, at most").fill("0")
    find = page.get_by_role("button", name="Find the best under these rules")
    find.click()
    expect(page.get_by_role("alert")).to_be_visible()

    page.get_by_role("button", name="Reset").click()
    page.get_by_label("Changes allowed, at most").fill("8")
    find.click()
    expect(page.locator(".progress dd").first).to_have_text(re.compile(r"\d"))
    page.get_by_role("button", name="Stop and show the bracket so far").click()
    expect(page.get_by_text("Stopped: shown is the best found so far")).to_be_visible()
    expect(page.locator(".badge .part-proof")).to_have_text("not proven")
    expect(page.locator(".certificate")).to_contain_text("stopped by hand")
    expect(page.locator(".outcome.best dt")).to_contain_text("Best found with at most")
    expect(page.get_by_role("columnheader", name="Best possible")).to_be_visible()
    expect(page.locator(".contributions")).not_to_contain_text("best sequence with")


def test_a_case_without_an_answer_is_judged_and_reviewers_do_not_overwrite_each_other(
    seen: tuple[Any, Any], context: Any, home: str, place: Any
) -> None:
    page, watch = seen
    episode = place.cohort.ids[-1]
    open_case(page, home, episode)
    expect(page.locator(".seal")).to_have_text("No answer")
    check_care(page)
    expect(page.get_by_text("Nothing saved yet")).to_be_visible()
    with watched_page(context, home) as (other, _):
        open_case(other, home, episode)
        other.get_by_label("Implausible").check()
        other.get_by_label("Note").fill("No <b>such</b> dose\nis given here.")
        other.get_by_label("Reviewer").fill("A. Reviewer")
        expect(other.get_by_text("Not saved yet")).to_be_visible()
        with other.expect_event("dialog") as asked:
            other.once("dialog", lambda dialog: dialog.dismiss())
            other.get_by_role("link", name="All cases").click(no_wait_after=True)
        assert asked.value.type == "beforeunload"
        other.get_by_role("button", name="Save").click()
        expect(other.get_by_text("by A. Reviewer")).to_be_visible()
    page.get_by_label("Reviewer").fill("A. Reviewer")
    watch.expected = ("409",)
    page.get_by_label("Unsure").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("A. Reviewer saved meanwhile: Implausible, “No <b>such</b> dose")
    page.get_by_role("button", name="Save mine over it").click()
    expect(page.get_by_text(re.compile(r"^Saved \d"))).to_be_visible()
    page.get_by_role("button", name="Find the best under these rules").click()
    expect(page.locator(".outcome.best .value")).to_have_text(re.compile(r"\d"))
    page.goto(f"{home}/?verdict=unsure")
    expect(page.locator("#cohort tbody a")).to_have_text(episode)
    assert "unsure" in page.request.get(f"{home}/api/notes.csv").text()


def test_two_reviewers_judge_a_case_each_unseen_by_the_other(browser: Any, page: Any, home: str, place: Any) -> None:
    page.goto(home)
    page.get_by_role("button", name="Cases that wait for review").click()
    expect(page.locator("#count")).to_contain_text("found")
    episode = page.locator("#cohort tbody a").first.inner_text()
    for number, (name, verdict) in enumerate([("Ann", "Plausible"), ("Bo", "Implausible")]):
        with reader(browser) as context, watched_page(context, home) as (own, _):
            open_case(own, home, episode)
            expect(own.locator(".others")).to_have_text(re.compile("1 other has judged this case" if number else "^$"))
            expect(own.locator(".others")).not_to_contain_text("Plausible")
            first_dose(own, "Hour 0, fluids, as recorded").click()
            own.get_by_label("A remark on hour 0").fill(f"{name} wonders")
            own.keyboard.press("Enter")
            expect(own.locator(".remarks li")).to_contain_text(f"Hour 0: {name} wonders")
            expect(own.locator(".lanes thead .mark")).to_have_text("remark")
            own.get_by_label(verdict, exact=True).check()
            own.get_by_label("Reviewer").fill(name)
            own.get_by_role("button", name="Save").click()
            expect(own.get_by_text(f"by {name}")).to_be_visible()
            check_care(own)
            expect(own.locator(".other")).to_have_count(number)
            expect(own.get_by_role("link", name="Next case that waits for you")).to_be_visible()
    with reader(browser) as context, watched_page(context, home) as (own, watch):  # Ann again, elsewhere, her name last
        open_case(own, home, episode)
        own.get_by_label("Unsure").check()
        own.get_by_label("Reviewer").fill("Ann")
        watch.expected = ("409",)
        own.get_by_role("button", name="Save").click()
        expect(own.get_by_role("alert")).to_contain_text("Ann saved meanwhile: Plausible")
        own.get_by_role("button", name="Take theirs").click()
        expect(own.get_by_label("Plausible", exact=True)).to_be_checked()
    page.goto(f"{home}/?reviews=differ")
    expect(page.locator("#cohort tbody a")).to_have_text(episode)
    expect(page.locator("#cohort tbody tr")).to_contain_text("2 reviewers differ")
    page.get_by_text("How far reviewers agree").click()
    expect(page.locator("#agreement tbody tr")).to_have_text(re.compile("Ann and Bo.*1.*0 %"))
    check_care(page)


def test_a_case_is_exported(page: Any, context: Any, home: str, longest: str, tmp_path: Path) -> None:
    open_case(page, home, longest)
    try_another_dose(page, "Hour 0, fluids, as recorded")
    exported = {}
    for kind in ("HTML", "PDF", "Slide (SVG)", "Slide (PNG)", "PNG", "JSON"):
        page.get_by_text("Export").click()
        with page.expect_download() as download:
            page.get_by_role("link", name=kind if "Slide" in kind else re.compile(rf"^(?!Slide).*{kind}")).click()
        exported[kind] = tmp_path / download.value.suggested_filename
        download.value.save_as(exported[kind])
        assert exported[kind].name.endswith(kind.lower().translate({ord(" "): ".", ord("("): None, ord(")"): None}))
        page.keyboard.press("Escape")
    assert len({file.name for file in exported.values()}) == len(exported)
    assert exported["PNG"].read_bytes().startswith(b"\x89PNG")
    assert exported["PDF"].read_bytes().startswith(b"%PDF-")
    width, height = struct.unpack(">II", exported["Slide (PNG)"].read_bytes()[16:24])
    assert width / height == pytest.approx(16 / 9, abs=0.01)
    with watched_page(context, "file://") as (slide, _):
        slide.goto(exported["Slide (SVG)"].as_uri())
        ratio = slide.evaluate("(({ width, height }) => width / height)(document.documentElement.viewBox.baseVal)")
        assert ratio == pytest.approx(16 / 9, abs=0.01)
    assert longest in json.dumps(json.loads(exported["JSON"].read_text(encoding="utf-8")))
    with watched_page(context, "file://") as (report, _):
        report.goto(exported["HTML"].as_uri())
        expect(report.get_by_role("heading", level=1)).to_have_text(longest)
        expect(report.locator(".chart .main-svg").first).to_be_visible()
        check_care(report)


def test_with_a_token_one_signs_in_first(browser: Any, place: Any, tmp_path: Path) -> None:
    token, file = "a-token-that-nobody-guesses", tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(token, encoding="utf-8")
    arguments = ["--episodes", place.episodes, "--model", place.model, "--run", place.run]
    server = contextlib.contextmanager(started_server)(*arguments, "--notes", tmp_path / "n", "--token-file", file)
    with server as home, reader(browser) as context:
        page = context.new_page()
        page.goto(f"{home}/case?episode={place.cohort.ids[0]}".replace("127.0.0.1", ELSEWHERE))
        expect(page.get_by_role("heading")).to_have_text("Sign in")
        check_care(page)
        page.get_by_label("Token").fill(token[::-1])
        page.get_by_role("button").click()
        expect(page.get_by_role("alert")).to_contain_text("not the token")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button").click()
        expect(page.locator(".headline")).to_contain_text("as recorded")
        assert token not in page.evaluate("location.href")
