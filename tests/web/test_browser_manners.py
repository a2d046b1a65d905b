"""Small things that a reviewer trips over: boxes that stay, fields that jump, errors that nobody sees."""

import re
from typing import Any

import pytest
from browser_review import becomes, first_dose, open_case, outcome, query_of, settle, try_another_dose, until

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect

pytestmark = pytest.mark.xdist_group("browser")


def require_another_dose(page: Any) -> None:
    first_dose(page, "Hour 0, fluids, as recorded").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("input[type=radio]:not(:checked)").first.check()
    dialog.get_by_role("button", name="Require at hour 0").click()


def allow(page: Any, most: str) -> Any:
    field = page.get_by_label("Changes allowed, at most")
    field.fill(most)
    field.blur()
    return field


def test_a_refusal_of_rules_is_said_in_their_words_and_goes_with_them(
    seen: tuple[Any, Any], home: str, longest: str
) -> None:
    page, watch = seen
    watch.expected = ("422",)
    open_case(page, home, longest)
    find = page.get_by_role("button", name="Find the best under these rules")
    alert = page.get_by_role("alert")

    require_another_dose(page)
    allow(page, "0")
    find.click()
    expect(alert).to_have_text(
        "These rules need at least 1 change, and no changes are allowed. Allow more changes, or remove a rule."
    )
    page.get_by_role("button", name="Reset").click()
    expect(alert).to_have_count(0)

    require_another_dose(page)
    allow(page, "0")
    find.click()
    expect(alert).to_be_visible()
    allow(page, "2")
    expect(alert).to_have_count(0)


def test_a_number_that_is_cleared_stays_what_it_was(page: Any, home: str, longest: str) -> None:
    open_case(page, home, longest)
    field = allow(page, "")
    expect(field).to_have_value("2")
    becomes(page, lambda: "most" in query_of(page), False)
    expect(allow(page, "1")).to_have_value("1")
    becomes(page, lambda: query_of(page).get("most"), "1")
    expect(allow(page, "")).to_have_value("1")


def test_only_what_was_asked_is_asked_again(page: Any, home: str, place: Any) -> None:
    open_case(page, home, place.cohort.ids[-1])
    expect(page.get_by_role("heading", name="Ask under your rules")).to_be_visible()
    open_case(page, home, place.cohort.ids[0])
    expect(page.get_by_role("heading", name="Ask again under your rules")).to_be_visible()


@pytest.mark.parametrize("path", ["/case", "/nowhere"])
def test_an_address_that_leads_nowhere_leads_to_the_list(seen: tuple[Any, Any], home: str, path: str) -> None:
    page, watch = seen
    watch.expected = ("422", "404")
    page.goto(home + path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("main")).to_contain_text("list of cases")
    expect(page.locator("main")).not_to_contain_text("openapi")
    page.get_by_role("link", name="All cases").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Cases")


IN_VIEW = """(selector) => {
    const one = document.querySelector(selector);
    const box = one.getBoundingClientRect();
    const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    return box.top >= 0 && box.bottom <= innerHeight && box.height > 0 && one.contains(top);
}"""
"""Whether all of an element is inside the window, and nothing lies over it."""


def test_what_a_tried_dose_does_is_in_view_where_it_was_tried(seen: tuple[Any, Any], home: str, longest: str) -> None:
    page, watch = seen
    page.set_viewport_size({"width": 1440, "height": 500})
    open_case(page, home, longest)
    place = "document.querySelector('.lanes').getBoundingClientRect().top + scrollY"
    before = page.evaluate(place)
    said = {"summary": {"code": "support.usual", "values": {}}, "steps": []}

    def with_support(route: Any) -> None:  # as a server with a behaviour model answers
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"support": said})

    page.route("**/api/course", with_support)
    try_another_dose(page, "Hour 4, fluids, as recorded")
    until(page, IN_VIEW, ".slot-notice .notice")
    expect(page.locator(".slot-notice")).to_contain_text(
        "every change was made in comparable situations", ignore_case=True
    )
    page.unroute("**/api/course")
    assert page.evaluate(place) == before, "what one clicks on does not move away"

    watch.expected = ("Failed to load resource",)
    page.route("**/api/course", lambda route: route.abort())
    first_dose(page, "Hour 0, fluids, your version").click()
    page.get_by_role("dialog").locator("input[type=radio]:not(:checked)").first.check()
    page.get_by_role("button", name="Try this").click()
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    until(page, IN_VIEW, "[role=alert]")
    expect(outcome(page, "own")).to_have_text(re.compile(r"^\d"))  # the version before is still shown


def test_the_ring_around_the_slider_leaves_its_labels_free(page: Any, home: str, longest: str) -> None:
    open_case(page, home, longest)
    page.get_by_role("slider").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".budget output")).to_have_text("at most 1")
    settle(page)
    rings = page.evaluate("""() => ['.budget input', '.budget .track'].map((selector) => {
        const one = document.querySelector(selector);
        const style = getComputedStyle(one);
        const width = style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth);
        const room = width ? width + parseFloat(style.outlineOffset) : 0;
        const { left, right, top, bottom } = one.getBoundingClientRect();
        return { width, inner: [left - room + width, right + room - width, top - room + width, bottom + room - width] };
    })""")
    drawn = [ring["inner"] for ring in rings if ring["width"]]
    assert len(drawn) == 1, "one ring"
    for tick in page.locator(".budget .ticks span").all():
        box = tick.bounding_box()
        left, right, top, bottom = drawn[0]
        assert left <= box["x"]
        assert box["x"] + box["width"] <= right
        assert top <= box["y"]
        assert box["y"] + box["height"] <= bottom


@pytest.mark.parametrize("width", [1440, 320])
def test_the_menu_of_exports_moves_nothing(page: Any, home: str, longest: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    open_case(page, home, longest)
    places = """() => [document.documentElement.scrollWidth, ...['.board', '.controls', 'h1'].map(
        (name) => document.querySelector(name).getBoundingClientRect().y + scrollY)]"""
    before = page.evaluate(places)
    page.get_by_text("Export").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="Picture (PNG)")).to_be_visible()
    assert page.evaluate(places) == before
    until(page, IN_VIEW, ".menu a:last-child")
