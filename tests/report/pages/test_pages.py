"""Pages are whole, escape what they are given, and hold no script of their own; colours can be read."""

import base64
import hashlib
import itertools
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from made_cases import made_case, made_summary, plain_case

from ifonly.errors import InputError
from ifonly.report import pages
from ifonly.text.catalogue import catalogue

HOSTILE = "</script><img src=x onerror=alert(1)>'\"&amp;{{ 7*7 }}"
ABOUT = {
    "question": plain_case()["question"],
    "limits": {"seconds": 60},
    "model": plain_case(examined=True)["model"],
    "statuses": ["optimal", "unsolved"],
    "run": {"examined": True},
    "sample": False,
    "words": plain_case()["words"],
}
AGREEMENT = {"judged": 0, "twice": 0, "differ": 0, "pairs": []}
ROW = made_summary([made_case()])["rows"][0] | {"verdict": None, "noted": False, "reviewers": 0, "differ": False}


class Reader(HTMLParser):
    """Tags with their attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[dict[str, str | None], str]] = []
        self.words = ""
        self._raw = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._raw = tag in ("script", "style")
        if self._raw:
            self.inside.append((dict(attrs) | {"tag": tag}, ""))

    def handle_endtag(self, tag: str) -> None:
        self._raw = False

    def handle_data(self, data: str) -> None:
        if self._raw:
            attributes, before = self.inside[-1]
            self.inside[-1] = (attributes, before + data)
        else:
            self.words += data


def made_pages(id: str) -> dict[str, str]:
    case = plain_case(id)
    first = {"total": 1, "page": 1, "size": 50, "rows": [ROW | {"episode": id}]}
    recurring = {name: made_summary([made_case(id)])[name] for name in ("patterns", "smallest_cell")}
    return {
        "list.html": pages.render(
            "list.html", about=ABOUT, first=first, query={"search": id}, recurring=recurring, agreement=AGREEMENT
        ),
        "case.html": pages.render(
            "case.html", case=case, about=ABOUT, reviews=[{"note": id, "revision": 1}], patterns=recurring["patterns"]
        ),
        "error.html": pages.render("error.html", status=404, what=f"There is no episode {id}.", do="Choose another."),
        "login.html": pages.render("login.html", failed=True, next=f"/case?episode={id}"),
        "report.html": pages.render("report.html", summary=made_summary([made_case(id)]), cases=[case]),
    }


@pytest.fixture(scope="module")
def hostile() -> dict[str, str]:
    return made_pages(HOSTILE)


def test_every_template_is_tried() -> None:
    templates = {path.name for path in (pages.FOLDER / "templates").iterdir()}
    own_tests = {"card.html", "check.html"}
    assert set(made_pages("stay-1")) == templates - own_tests - {"base.html", "plain.html"}


@pytest.mark.parametrize("name", ["list.html", "case.html", "error.html", "login.html", "report.html"])
def test_an_id_with_markup_stays_text(hostile: dict[str, str], name: str) -> None:
    page = Reader(hostile[name])
    usual = Reader(made_pages("stay-1")[name])
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in usual.tags]
    assert not [tag for tag, attributes in page.tags if any(key.startswith("on") for key in attributes)]
    assert "49" not in page.words, "what is put in is not read as a template"


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("case.html", "case-data"),
        ("list.html", "first-data"),
        ("report.html", "report-data"),
        ("case.html", "reviews-data"),
    ],
)
def test_data_come_back_as_they_were(hostile: dict[str, str], name: str, id: str) -> None:
    (text,) = (text for attributes, text in Reader(hostile[name]).inside if attributes.get("id") == id)
    assert HOSTILE in json.dumps(json.loads(text), ensure_ascii=False).replace('\\"', '"')


@pytest.mark.parametrize("name", ["list.html", "case.html", "error.html", "login.html"])
def test_the_application_has_no_script_or_style_in_its_pages(name: str) -> None:
    page = Reader(made_pages("stay-1")[name])
    for attributes, text in page.inside:
        assert attributes.get("type") == "application/json" or not text.strip()
    for _, attributes in page.tags:
        assert not {key for key in attributes if key.startswith("on") or key == "style"}


def test_everything_that_a_page_asks_for_is_served() -> None:
    wanted = set()
    for text in made_pages("stay-1").values():
        wanted |= set(re.findall(r'(?:src|href)="/static/([^"]+)"', text))
    assert wanted <= set(pages.static_files())
    own = set(pages.static_files()) - set(pages.REPORT_SCRIPTS) - set(pages.REPORT_STYLES)
    assert own <= wanted, "a file that no page uses"
    assert all(path.is_file() for path in pages.static_files().values())


def test_nothing_points_elsewhere() -> None:
    for name in set(pages.static_files()) - {pages.PLOTLY}:
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", pages.asset(name)))
        assert addresses <= {"http://www.w3.org/2000/svg"}, name
        assert "innerHTML" not in pages.asset(name), name
        assert "</script" not in pages.asset(name), name


def test_the_policy_of_a_report_names_its_own_scripts_and_no_others() -> None:
    page = Reader(pages.render("report.html", summary=None, cases=[plain_case()]))
    (policy,) = (
        attributes["content"]
        for _, attributes in page.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in rules["script-src"]
    run = [text for attributes, text in page.inside if attributes["tag"] == "script" and "type" not in attributes]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    styles = [text for attributes, text in page.inside if attributes["tag"] == "style"]
    for text in styles:
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in rules["style-src"]
    assert not [
        tag for tag, attributes in page.tags if tag in ("script", "link", "img") and {"src", "href"} & set(attributes)
    ]


def test_what_json_does_not_have_is_refused() -> None:
    case = plain_case()
    case["observed"]["outcome"] = float("nan")
    with pytest.raises(ValueError, match="JSON"):
        pages.render("case.html", case=case, about=ABOUT, reviews=[], patterns=[])


CODE = re.compile(r"(?:\bsay|\bparagraph)\(\s*\"([^\"]+)\"")
TEMPLATE_CODE = re.compile(r"(?:\bsay|\bparagraph)\(\s*`([^`]+)`")


def test_every_code_that_a_script_or_a_template_says_is_in_the_catalogue() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (pages.FOLDER / "templates").iterdir()]
    texts += [pages.asset(name) for name in pages.static_files() if name.endswith(".js") and name != pages.PLOTLY]
    said = {code for text in texts for code in CODE.findall(text)}
    assert len(said) > 100
    known = catalogue()
    unknown = {code for code in said if code not in known and not any(name.startswith(code) for name in known)}
    assert not unknown
    patterns = {re.sub(r"\$\{[^}]*\}", "\0", code) for text in texts for code in TEMPLATE_CODE.findall(text)}
    for pattern in patterns:
        fits = re.compile(".*".join(map(re.escape, pattern.split("\0"))))
        assert any(fits.fullmatch(name) for name in known), pattern


def test_scripts_hold_no_sentences_of_their_own() -> None:
    for name in set(pages.static_files()) - {pages.PLOTLY}:
        if name.endswith(".js"):
            code = re.sub(r"(?m)^\s*(//|\*|/\*).*$", "", pages.asset(name))
            own = [text for text in re.findall(r'"([A-Z][a-z]+ [a-z][^"]*)"', code) if "Error" not in text]
            assert own == [], name


def test_an_unknown_file_is_refused() -> None:
    with pytest.raises(InputError, match="no static file"):
        pages.asset("../__init__.py")


def test_styles_of_maps_are_kept_out() -> None:
    assert pages.chart_style_ids(), "the charting library has changed: look for a refused style in the console"


def palettes() -> dict[str, dict[str, str]]:
    light, dark = pages.asset("palette.css").split("@media")
    found = {
        name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", text))
        for name, text in (("light", light), ("dark", dark))
    }
    assert len(found["light"]) > 10
    assert set(found["light"]) == set(found["dark"])
    return found


def luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(scheme: str) -> None:
    known = palettes()[scheme]
    texts = ["ink", "muted", "accent", "own", "ruled", "caution", "good"]
    grounds = ["paper", "faint", "accent-tint", "own-tint", "caution-tint", "good-tint"]
    for text, ground in itertools.product(texts, grounds):
        assert contrast(known[text], known[ground]) >= 4.5, (text, ground)
    for text, ground in (("on-accent", "accent"), ("on-accent", "accent-deep"), ("off", "paper"), ("bad", "bad-tint")):
        assert contrast(known[text], known[ground]) >= 4.5, (text, ground)
    for text, ground in (("accent-ink", "accent-tint"), ("own-ink", "own-tint"), ("idle-ink", "idle")):
        assert contrast(known[text], known[ground]) >= 4.5, (text, ground)


@pytest.mark.parametrize(
    "name", ["ifonly.css", "charts.js", "lanes.js", "case.js", "timeline.js", "compare.js", "glossary.js"]
)
def test_colours_are_those_of_the_palette(name: str) -> None:
    assert not re.findall(r"#[0-9a-fA-F]{3,6}\b", pages.asset(name))


def test_courses_differ_without_colour() -> None:
    script = pages.asset("charts.js")
    styles = script[script.index("const styles") : script.index("const marksOf")]
    for kind in ("dash", "symbol"):
        used: list[Any] = re.findall(rf'{kind}: "([^"]+)"', styles)
        assert len(used) == len(set(used)) == 4
    for known in palettes().values():
        assert min(contrast(known[name], known["paper"]) for name in ("ink", "accent", "own", "ruled")) >= 4.5
