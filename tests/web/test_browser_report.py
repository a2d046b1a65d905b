"""The report file, opened from disk in a real browser, with cases of every kind."""

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import matplotlib.image as mpimg
import numpy as np
import numpy.typing as npt
import pytest
from browser_review import Watch, becomes, check_care, newcomer, reader, settle, single_file, until, watched_page

import ifonly
from ifonly.data.field_words import FieldWords
from ifonly.records import to_plain
from ifonly.report import pages
from ifonly.report.card import data_card
from ifonly.report.case_report import ReportSettings, write_report
from ifonly.report.cases.band import outcome_features
from ifonly.report.folders import write_card
from ifonly.text.catalogue import Message, say
from ifonly.text.numbers import outcomes

sys.path.insert(0, str(Path(__file__).parents[1] / "report" / "pages"))
from made_cases import made_case, made_summary, with_organs

expect = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed").expect

pytestmark = pytest.mark.xdist_group("browser")
UNQUOTED = "!'()*-._~"  # what a browser's encodeURIComponent leaves
HOSTILE = "<img src=x onerror=alert(1)>'\"#%&= /"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A long stay that was examined, one with treatments that have no order, one not proven, one with a hostile id."""
    cases = [
        made_case("long", steps=60, examined=True),
        made_case("unordered", ordered=False),
        with_organs(made_case("open", proven=False)),
        made_case(HOSTILE, answered=False),
    ]
    text = pages.render("report.html", summary=made_summary(cases, others=70), cases=[to_plain(case) for case in cases])
    return single_file(tmp_path_factory.mktemp("report"), text)


@pytest.fixture(scope="module")
def opened(browser: Any, report: str) -> Iterator[tuple[Any, Watch]]:
    """Read once, since it is large; by a link to one of its cases."""
    with reader(browser) as context, watched_page(context, "file://") as (page, watch):
        page.goto(f"{report}#case={quote(HOSTILE, safe=UNQUOTED)}")
        expect(page.locator(".report-case:visible h1")).to_have_text(HOSTILE)
        yield page, watch


@pytest.fixture
def page(opened: tuple[Any, Watch]) -> Iterator[Any]:
    page, watch = opened
    page.evaluate("location.hash = '#summary'")
    expect(page.locator(".report-summary")).to_be_visible()
    yield page
    watch.check()


def open_case(page: Any, name: str) -> Any:
    """The visible page of one case."""
    page.get_by_role("link", name=name, exact=True).click()
    shown = page.locator(".report-case:visible")
    expect(shown.get_by_role("heading", level=1)).to_have_text(name)
    settle(page)
    return shown


def open_case_again(page: Any, name: str) -> Any:
    """By way of the summary."""
    page.get_by_role("link", name="Summary").click()
    return open_case(page, name)


def test_the_summary_is_searched_sorted_and_paged(page: Any) -> None:
    rows = page.locator(".cohort tbody tr")
    expect(page.locator(".overview .main-svg").first).to_be_visible()
    expect(rows).to_have_count(50)
    check_care(page)
    page.get_by_role("button", name="Next").click()
    expect(rows).to_have_count(24)
    page.get_by_role("button", name="Improvement").click()
    expect(rows.last.locator("th")).not_to_have_text("long")
    page.get_by_label("Search").fill("other-1")
    expect(rows).to_have_count(11)
    page.get_by_label("Search").fill("")
    page.get_by_label("Improvement").select_option("0.1")  # they fall by 0.01 from 0.15
    expect(rows).to_have_count(5)


def test_cases_have_pages_of_their_own(page: Any) -> None:
    shown = open_case(page, "long")
    check_care(page)
    board = shown.locator(".board")
    assert board.evaluate("(one) => one.scrollWidth > 2 * one.clientWidth"), "a long stay scrolls inside its own frame"
    left = shown.locator(".lanes tbody th").nth(1)
    before = left.bounding_box()
    expect(shown.locator(".charts .feature").first).to_have_text("SOFA")  # all of it, beside the part on the board
    board.evaluate("(one) => { one.scrollLeft = 900; }")
    becomes(page, left.bounding_box, before)  # the first column stays
    page.get_by_role("link", name="Next case").click()
    expect(page.locator(".report-case:visible h1")).to_have_text("unordered")
    page.go_back()
    expect(page.locator(".report-case:visible h1")).to_have_text("long")
    page.get_by_role("link", name="Summary").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Case review")


def test_the_chart_and_the_lanes_share_their_columns(page: Any) -> None:
    shown = open_case(page, "unordered")
    heads = [head.bounding_box() for head in shown.locator(".lanes thead th").all()[1:]]
    points = shown.locator(".board .scatterlayer .trace").first.locator(".point").all()
    assert len(heads) == len(points) == 6
    for head, point in zip(heads, points, strict=True):
        box = point.bounding_box()
        assert abs(head["x"] + head["width"] / 2 - box["x"] - box["width"] / 2) < 2


def test_treatments_without_an_order_have_one_lane_of_labels(page: Any) -> None:
    shown = open_case(page, "unordered")
    expect(shown.locator(".lanes tr.axis")).to_have_text(["Action"])
    expect(shown.locator(".lanes tr.best td.changed .arrow")).to_have_text(["◆", "◆"])
    expect(shown.locator(".lanes tr.best")).to_contain_text("transfer to <another> ward")


def test_what_is_not_proven_is_not_called_best(page: Any) -> None:
    shown = open_case(page, "open")
    expect(shown.locator(".seal")).to_have_text("With reservations")
    expect(shown.locator(".badge .part-proof")).to_have_text("not proven")
    expect(shown.locator(".certificate")).to_contain_text("stopped by hand")
    expect(shown.locator(".outcome.best dt")).to_have_text("Best found with at most 2 changes")
    expect(shown.locator(".frontier tbody tr").last).to_contain_text("30.0")
    expect(shown.locator(".contributions")).to_contain_text("Of the best sequence found with at most 2 changes")
    shown.get_by_role("slider").fill("1")
    expect(shown.locator(".badge")).to_have_count(0)  # which is about the answer only
    expect(shown.locator(".seal")).to_have_text("Proven")
    expect(shown.locator(".certificate")).to_contain_text("No sequence with at most 1 change does better")


def test_numbers_are_rounded_so_that_they_claim_less(page: Any) -> None:
    wrong = page.evaluate("""() => {
        const read = (text) => Number(text.replaceAll('\u2212', '-').replaceAll('\u202f', ''));
        const wrong = [];
        for (let value = 3.3e-4; value < 9e6; value *= 1.37) for (const sign of [1, -1]) {
            for (const lower of [true, false]) {
                const best_possible = sign * value;
                const shown = read(ifonly.bestPossible({best_possible, proven: false}, {lower_is_better: lower}));
                const close = Math.abs(shown - best_possible) <= Math.max(0.1, 0.1 * value);
                const more = lower ? shown > best_possible : shown < best_possible;
                if (more || !close) wrong.push([best_possible, shown]);
            }
            const gap = read(ifonly.gapWords(value));
            if (gap < value || gap > 1.1 * value + 0.01) wrong.push([value, gap]);
        }
        return wrong;
    }""")
    assert wrong == []
    assert "10²²" in page.evaluate("ifonly.bestPossible({best_possible: -7.533e22}, {lower_is_better: true})")


def test_outcomes_have_as_many_decimals_as_in_a_terminal(page: Any) -> None:
    rng = np.random.default_rng(0)
    for size in (3e-12, 2e-6, 0.04, 0.7, 3.0, 59.0, 800.0):
        for share in (0.0, 0.0001, 0.0013, 0.04, 0.5):
            first = size * (1 + 0.1 * rng.random())
            pair = [first, first * (1 - share)]
            shown = page.evaluate("(pair) => pair.map((value) => ifonly.outcome(value, pair))", pair)
            assert [float(text) for text in shown] == [float(text) for text in outcomes(*pair)], pair
    assert page.evaluate("ifonly.outcome(-0.04, [59.21, -0.04])") == "0.0"


def test_evidence_is_brief_first_and_detailed_on_demand(page: Any) -> None:
    expect(page.locator(".report-summary [role=note]")).to_contain_text("failed its check")
    expect(page.locator(".evidence-summary")).to_contain_text("2 of 4 examined answers raise no warning")
    page.get_by_label("Warnings").select_option("none")
    expect(page.locator(".cohort tbody tr")).to_have_count(2)
    page.get_by_label("Warnings").select_option("")
    shown = open_case(page, "long")
    expect(shown.get_by_role("note")).to_contain_text("Caution. The model failed its check")
    expect(shown.locator(".seal")).to_have_text("Not believable")
    expect(shown.locator(".badge .part.holds")).to_have_text(["proven best", "values plausible"])
    expect(shown.locator(".evidence-parts summary").first).to_have_text("How far to trust this: 3 warnings")
    expect(shown.locator(".evidence-line")).to_have_text(re.compile(r"^Not to be believed: the model failed[^.]*\.$"))
    expect(shown.locator(".refits-chart")).to_have_count(0)  # nothing is drawn before somebody asks
    shown.get_by_text("How far to trust this").click()
    expect(shown.locator(".refits-chart .point")).to_have_count(6)  # every refit, and the model
    expect(shown.get_by_role("img", name="the refits lie between 1 higher and 7.25 lower")).to_be_visible()
    expect(shown.locator(".evidence-parts")).to_contain_text("Model check: fail; 4 of 5 refits agree")
    shown.get_by_text("Each of them as a table").click()
    expect(shown.locator(".refits-table tbody tr")).to_have_count(5)
    expect(shown.locator(".support li").last).to_contain_text("beyond the data At hour 8")
    expect(shown.locator(".evidence-parts")).to_contain_text("about \u2212341 10\u2079/L a step")
    check_care(page)
    shown.get_by_role("slider").fill("1")
    expect(shown.locator(".evidence-line")).to_contain_text("About the sequence found with at most 2 changes")
    page.get_by_role("link", name="Summary").click()
    plain = open_case(page, "unordered")
    expect(plain.locator(".evidence-line")).to_have_text(re.compile("not examined any further"))


DRAWN = """(place) => place.data.map((trace) => ({
    name: trace.name, mode: trace.mode, width: trace.line.width, values: trace.y,
    symbols: trace.marker?.symbol ?? null, colours: trace.marker?.color ?? null, said: trace.customdata,
}))"""


def test_recorded_values_are_drawn_by_where_they_come_from(page: Any) -> None:
    shown = open_case(page, "open")
    recorded, *others = shown.locator(".charts .chart").first.evaluate(DRAWN)  # of MAP
    assert recorded["symbols"] == ["x-thin", *["circle"] * 5]
    assert recorded["colours"][1] != recorded["colours"][2] == recorded["colours"][5], "filled, and then hollow"
    assert recorded["said"] == [
        "70.0 mmHg (assumed, a default value)",
        "71.0 mmHg",
        *(f"{value}.0 mmHg (carried forward)" for value in (72, 73, 74, 75)),
    ]
    assert all(isinstance(other["symbols"], str) for other in others), "what the model gives is drawn as before"
    expect(shown.locator(".course .legend .key")).to_have_text(
        ["measured", "carried forward", "assumed, a default value", re.compile("thin lines: SOFA recomputed")]
    )
    expect(shown.get_by_role("img", name="as recorded from 70.0 to 75.0, 1 of 6 values measured")).to_be_visible()
    shown.get_by_text("Values as a table").click()
    expect(shown.locator(".values tbody tr").first).to_contain_text("(carried forward)")
    check_care(page)
    shown.get_by_text("Values as a table").click()
    plain = open_case_again(page, "unordered")
    expect(plain.locator(".course .legend")).to_be_hidden()
    assert plain.locator(".board .chart").first.evaluate(DRAWN)[0]["symbols"] == "circle"


def test_a_score_is_drawn_as_its_organs_make_it_too(page: Any) -> None:
    shown = open_case(page, "open")
    shown.get_by_role("slider").fill("2")
    settle(page)
    traces = shown.locator(".board .chart").first.evaluate(DRAWN)
    assert [trace["name"] for trace in traces] == [
        *("as recorded", "as recorded, recomputed"),
        *("best found, 2 changes", "best found, 2 changes, recomputed"),
    ]
    assert [trace["mode"] for trace in traces] == ["lines+markers", "lines"] * 2
    assert [trace["width"] for trace in traces] == [2, 1, 2, 1]
    assert traces[1]["values"] == [6, 7, 8, 9, 10, 11]
    said = "By the model SOFA falls by 6 points in all; recomputed from the organ values it falls by 5 points in all, "
    expect(shown.locator(".organs")).to_have_text(f"{said}most of it by the kidneys.")
    shown.get_by_text("How far to trust this").click()
    expect(shown.locator(".evidence-parts")).to_contain_text("What the organs say")
    shown.get_by_role("slider").fill("1")
    expect(shown.locator(".organs")).to_contain_text("About the sequence found with at most 2 changes: By the model")


def test_changes_are_told_in_words_first(page: Any) -> None:
    shown = open_case(page, "long")
    shown.get_by_role("slider").fill("2")
    lines = shown.locator(".change-lines li")
    expect(lines).to_have_count(2)
    expect(lines.first).to_have_text(re.compile(r"^Hour 4: \S+ (raised|lowered), "))
    shown.get_by_role("slider").fill("0")
    expect(shown.locator(".change-lines")).to_be_hidden()
    page.get_by_role("link", name="Summary").click()
    unordered = open_case(page, "unordered")
    expect(unordered.locator(".change-lines")).to_contain_text("→ transfer to <another> ward")


def test_a_unit_is_shown_once(page: Any) -> None:
    for name, unit, beside in (("cost (EUR)", "EUR", ""), ("heat", "C", "C"), ("share", "", "")):
        feature = {"name": name, "unit": unit, "label": ifonly.Feature(name, "dynamic", unit=unit).label}
        assert page.evaluate("(one) => ifonly.unitBeside(one)", feature) == beside


OUTCOMES = [
    ("cumulative SOFA", ["MAP", "SOFA"], ["SOFA"]),
    ("SOFA - 0.02 MAP", ["lactate", "MAP", "SOFA"], ["MAP", "SOFA"]),
    ("cumulative Weekly cost (EUR)", ["Stock (units)", "cost", "Weekly cost (EUR)"], ["Weekly cost (EUR)"]),
    ("soil water [vol %] at the end", ["canopy", "soil water [vol %]", "soil"], ["soil water [vol %]"]),
    ("cumulative air temperature", ["air", "air temperature"], ["air temperature"]),
    ("Größe^2 a.b", ["G", "a", "größe^2", "a.b"], ["größe^2", "a.b"]),
    ("goals", ["first", "second"], ["first"]),
]


def test_that_nothing_warns_is_no_proof(page: Any) -> None:
    told = page.evaluate("""() => [[], [{code: 'page.none', values: {}}]].map((warnings) => {
        const place = document.createElement('div');
        const said = {refits: [], gains: null, support: null, statement: {code: 'page.none', values: {}}};
        for (const part of ['gain', 'sensitivity', 'organs', 'calibration', 'coupling']) said[part] = [];
        const answer = {result: {evidence: {refits: null}}};
        const evidence = {examined: true, warnings, ...said};
        const words = {deciders: 'clinicians'};
        const model = {said: {code: 'page.none', values: {}}, check: null};
        ifonly.fillEvidence(place, {evidence, model, words, question: {}, answer}, () => null);
        return place.textContent.includes('nothing warns does not prove');
    })""")
    assert told == [True, False]


@pytest.mark.parametrize(("outcome", "names", "shown"), OUTCOMES)
def test_pages_and_slides_show_the_measurements_of_the_outcome(
    page: Any, outcome: str, names: list[str], shown: list[str]
) -> None:
    case = {"question": {"outcome": outcome}, "features": [{"name": name, "kind": "dynamic"} for name in names]}
    assert page.evaluate("(one) => ifonly.primaryFeatures(one).map(({ name }) => name)", case) == shown
    assert outcome_features(outcome, names) == shown


SAMPLES: list[tuple[str, dict[str, Any]]] = [
    ("page.none", {}),
    ("count.change", {"count": 1, "number": 1}),
    ("count.change", {"count": 0, "number": "no"}),
    ("refits.agree", {"helping": 18, "refits": 20, "members": "refits"}),
    ("support.beyond", {"steps": 1}),
    ("rule.locked", {"times": Message("times.more", {"units": "hours", "times": ["0", "8", "12"]})}),
    ("assumption.kept", {"features": []}),
    ("assumption.kept", {"features": ["age"]}),
    ("assumption.kept", {"features": ["a", Message("page.yes"), "<b>c</b> {nothing} $& $1"]}),
    ("caution.left range", {"low": "-3", "high": "1e+06", "unit": " mmHg"}),
]


def test_the_browser_says_what_python_says(page: Any) -> None:
    for code, values in SAMPLES:
        message = Message(code, values)
        plain = to_plain(message)
        assert page.evaluate("(one) => ifonly.say(one)", plain) == str(message) == say(code, **plain["values"])
        assert page.evaluate("([code, values]) => ifonly.say(code, values)", [code, plain["values"]]) == str(message)
    cases = [made_case(examined=True), made_case(proven=False)]
    for one in (one for case in cases for one in messages_in(to_plain(case))):
        assert page.evaluate("(one) => ifonly.say(one)", one) == say(one["code"], **one["values"])


def messages_in(content: Any) -> Iterator[dict[str, Any]]:
    """Every message in plain data, however deep."""
    if isinstance(content, dict):
        if set(content) == {"code", "values"}:
            yield content
        content = list(content.values())
    for one in content if isinstance(content, list) else ():
        yield from messages_in(one)


def test_an_id_with_markup_is_text(page: Any) -> None:
    shown = open_case(page, HOSTILE)
    expect(shown.locator(".seal")).to_have_text("No answer")
    expect(page.locator("img")).to_have_count(0)


def test_everything_is_drawn_before_printing(page: Any) -> None:
    page.evaluate("""() => window.addEventListener('beforeprint', () => {
        const shown = (names) => [...document.querySelectorAll(names)].filter((one) => one.checkVisibility());
        const width = document.querySelector('main').clientWidth;
        window.printed = {
            cases: shown('.report-case').length, charts: shown('.report-case .board .main-svg').length,
            controls: shown('.controls').length, warnings: shown('.evidence .print-only li').length,
            told: shown('.evidence p.print-only').map((one) => one.textContent.includes('4 of 5 refits agree')),
            wide: shown('.board').filter((one) => one.getBoundingClientRect().width > width + 1).length,
            cut: shown('.lanes .cell, .wide').filter((one) => one.scrollWidth > one.clientWidth + 1)
                .map((one) => [one.textContent.slice(0, 20), one.scrollWidth, one.clientWidth]),
        };
    })""")
    page.pdf()  # without a window there is no other way to print
    printed = page.evaluate("window.printed")
    assert printed.pop("charts") >= 4, "cases that nobody opened are drawn as well"
    assert printed == {"cases": 4, "controls": 0, "warnings": 3, "told": [True], "wide": 0, "cut": []}
    expect(page.locator(".report-case:visible")).to_have_count(0)  # and the screen is as it was


def test_where_no_answer_is_believed_no_figure_is_drawn(browser: Any, tmp_path: Path) -> None:
    cases = [made_case("one")]
    summary = made_summary(cases) | {"improvements": [], "by_changes": []}
    address = single_file(tmp_path, pages.render("report.html", summary=summary, cases=[to_plain(cases[0])]))
    with reader(browser) as context, watched_page(context, "file://") as (page, _):
        page.goto(address)
        expect(page.locator(".report-table")).to_be_visible()
        expect(page.locator(".overview section:visible h2")).to_have_count(0)


def test_a_greenhouse_is_spoken_of_in_its_own_words(browser: Any, tmp_path: Path) -> None:
    words = FieldWords(subject="plant", subjects="plants", deciders="growers")
    space = ifonly.ActionSpace.product(ifonly.data.schema.Axis("water", "L", (0, 1, 2)))
    schema = ifonly.Schema(
        (ifonly.Feature("humidity", "dynamic", unit="%"),), space, step_length=1, step_unit="day", words=words
    )
    rng = np.random.default_rng(0)
    cohort = ifonly.Cohort.from_episodes(
        ifonly.Episode(f"plant-{n}", schema, states=rng.normal(50, 9, (4, 1)), actions=rng.integers(0, 3, 4))
        for n in range(20)
    )
    model = ifonly.fit(ifonly.LocationScale(schema, hidden=(4,)), cohort, epochs=1, seed=0)
    settings = ifonly.RunSettings(episodes=cohort.ids[:3], workers=1)
    ifonly.solve_cohort(
        cohort, model, ifonly.Query(ifonly.minus("humidity"), 1), out=tmp_path / "run", settings=settings
    )
    report = write_report(
        tmp_path / "run", tmp_path / "page.html", ReportSettings(cases=1), episodes=cohort, model=model
    )
    with reader(browser) as context, watched_page(context, "file://") as (page, _):
        page.goto(report.path.as_uri())
        said = page.inner_text("body")
        page.locator(".cohort tbody a").first.click()
        expect(page.locator(".report-case:visible .headline")).to_contain_text("as recorded")
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        settle(page)
        said += page.inner_text("body")
    assert "Day 0" in said
    assert "It holds data about plants. For review by growers" in said
    assert re.findall(r"patient|clinic|bedside|treatment|\bstays?\b", said, re.IGNORECASE) == []


def test_from_a_pattern_to_its_cases_and_back(page: Any) -> None:
    page.goto(page.url.partition("#")[0] + "#summary")
    shown = page.locator(".report-summary")
    expect(shown.locator(".cohort tbody .tag.good").first).to_have_text("Holds on all four counts")
    expect(shown.locator(".cohort tbody .tag.reserved").first).to_have_text("With reservations: evidence uncertain")
    shown.locator(".patterns summary").click()
    expect(shown.locator(".patterns tbody tr")).to_have_count(2)
    shown.get_by_role("link", name="Fluids lowered by two levels or more, hour 0 to 8").click()
    expect(shown.locator("#pattern")).to_have_value("fluids|lowered|2|0")
    expect(shown.locator(".list-state")).to_contain_text("37 cases")
    shown.locator(".cohort tbody th a").first.click()
    back = page.locator(".report-case:visible .case-nav").get_by_role("link", name="fluids lowered")
    expect(back).to_have_text("fluids lowered by two levels or more, hour 0 to 8 (12 of 30)")
    back.click()
    expect(shown.locator(".list-state")).to_contain_text("37 cases")
    shown.locator("#pattern").select_option("")
    expect(shown.locator(".list-state")).to_contain_text("74 cases")
    page.goto(page.url.partition("#")[0] + "#summary")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_follow_the_readers_scheme_and_fit_a_narrow_window(browser: Any, report: str, scheme: str) -> None:
    ground, ink = {"light": ("rgb(255, 255, 255)", "#1c2127"), "dark": ("rgb(20, 24, 29)", "#e6e9ec")}[scheme]
    with newcomer(browser, viewport={"width": 320, "height": 700}, color_scheme=scheme) as context:
        page = context.new_page()
        page.goto(report)
        page.locator(".patterns summary").click()
        expect(page.locator("body")).to_have_css("background-color", ground)
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        becomes(page, lambda: page.evaluate(wider), 0)
        drawn = "document.querySelector('.report-summary .js-plotly-plot').layout.font.color"
        becomes(page, lambda: page.evaluate(drawn), ink)
        page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
        until(page, f"{drawn} !== '{ink}'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_of_a_data_card_lie_on_the_paper_of_the_page_and_are_printed_white(
    browser: Any, tmp_path: Path, scheme: str
) -> None:
    card = data_card(ifonly.simulate.simulate_cohort(12, seed=1, horizon=(3, 4)))
    write_card(card, tmp_path / "card")
    with newcomer(browser, viewport={"width": 900, "height": 700}, color_scheme=scheme) as context:
        page = context.new_page()
        page.goto((tmp_path / "card" / "card.html").as_uri())
        figure = page.locator("figure img").first
        paper = {"light": (255, 255, 255), "dark": (20, 24, 29)}[scheme]
        assert np.abs(corner_of(figure) - paper).max() <= 1
        page.emulate_media(media="print")
        assert corner_of(figure).tolist() == [255, 255, 255]


def corner_of(shown: Any) -> npt.NDArray[np.int64]:
    """The colour of the first pixel, where nothing is drawn."""
    pixels = mpimg.imread(io.BytesIO(shown.screenshot()), format="png")
    return np.rint(255 * pixels[2, 2, :3]).astype(np.int64)
