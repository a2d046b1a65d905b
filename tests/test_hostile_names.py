"""Names are only names: whatever ids, features, doses and units are called, nobody's page, sheet or folder does it."""

import csv
import io
import json
import random
import re
import shutil
import warnings
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from crash_commands import invoke
from effort import LONG, some
from unpainted_figures import leave_unpainted

import ifonly
from ifonly.web.app import create_app
from ifonly.web.settings import ReviewSettings

MARKUP = "<img src=x onerror=alert(1)>"
ENDING = "</script><script>alert(1)</script>"
FORMULA = "=HYPERLINK(A1)"
MATHS = r"$\frac{"
PLACES = "{feature} {0} %s {{ 7*7 }}"
UP = "../../up"
FEATURES = (MARKUP, MATHS, FORMULA, "+1", ENDING, PLACES, UP)
IDS = (MARKUP, ENDING, FORMULA, UP, "@x", "-1+1", PLACES, MATHS, "/etc/passwd", "a'b\"c&amp;d`e", "..")
SCHEMA = {
    "features": [
        *({"name": name, "unit": name, "kind": "dynamic"} for name in FEATURES),
        {"name": f"static {ENDING}", "unit": ENDING, "kind": "static"},
    ],
    "actions": {"axes": [{"name": f"dose {MARKUP}", "unit": FORMULA, "levels": [0, 1, 2]}]},
    "step": {"length": 1, "unit": MATHS},
}
GOALS = {"goals": [{"minimize": MARKUP, "over": "end"}, {"keep": MATHS, "between": [0, 1]}], "max_changes": 1}


def write_table(folder: Path) -> None:
    draw = np.random.default_rng(0)
    rows = [
        {
            "episode": id,
            "subject": f"{id} subject",
            "step": step,
            "action": int(draw.integers(3)),
            **{name: float(draw.normal()) for name in FEATURES},
            f"static {ENDING}": float(number),
        }
        for number, id in enumerate(IDS)
        for step in range(4)
    ]
    pl.DataFrame(rows).write_csv(folder / "table.csv")
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA, allow_unicode=True))
    (folder / "goals.yaml").write_text(yaml.safe_dump(GOALS))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that commands make of a table with such names."""
    folder = tmp_path_factory.mktemp("hostile") / "deep" / "deeper" / "here"
    folder.mkdir(parents=True)
    write_table(folder)
    sources = ["--episodes", folder / "cohort", "--model", folder / "model"]
    query = [*sources, "--query", folder / "goals.yaml", "--allow-failed-model"]
    fitting: list[list[Any]] = [
        ["fit", "--recipe", "paper", "--hidden", 2, "--epochs", 1, "--ensemble", 2, *sources[:2], "--out", sources[3]],
        ["check", *sources, "--out", folder / "check"],
    ]
    commands: list[list[Any]] = [
        ["import", folder / "table.csv", "--schema", folder / "schema.yaml", "--out", folder / "cohort"],
        *(fitting if LONG else []),
        ["card", "--episodes", folder / "cohort", "--out", folder / "card"],
        ["cohort", *query, "--workers", 1, "--out", folder / "run"],
        ["summarize", folder / "run", "--by", f"static {ENDING}", *sources[:2], "--out", folder / "summary"],
        ["report", folder / "run", "--cases", 2, "--alternatives", 1],
        ["deidentify", folder / "run", folder / "key", folder / "coded"],
        *([["solve", *query, "--only", MARKUP, "--plot", folder / "case.png"]] if LONG else []),
    ]
    with pytest.MonkeyPatch.context() as patch:
        if not LONG:
            ifonly.save_model(ifonly.LocationScale(ifonly.load_schema(folder / "schema.yaml"), hidden=(2,)), sources[3])
            leave_unpainted(patch)
        for arguments in commands:
            code, output = invoke(arguments)
            assert code in (0, 6), (arguments[0], output)
    return folder


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.scripts = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.wrong += [f"{tag} {name}" for name, _ in attrs if name.startswith("on")]
        self.wrong += [f"{tag} {value}" for name, value in attrs if name == "src" and value == "x"]


def is_harmless(page: str) -> bool:
    return not Tags(page).wrong and "<script>alert" not in page and "<img src=x" not in page


def test_pages_run_nothing(made: Path) -> None:
    pages = sorted(made.rglob("*.html"))
    assert {path.name for path in pages} >= {"card.html", "report.html", *(["check.html"] if LONG else [])}
    assert [path.name for path in pages if not is_harmless(path.read_text())] == []
    assert not is_harmless(f"<p>{MARKUP}</p>")


def test_sheets_compute_nothing(made: Path) -> None:
    tables = [path for path in made.rglob("*.csv") if path.name != "table.csv"]
    assert any(f"'{FORMULA}" in path.read_text() for path in tables)
    assert [path.name for path in tables if not is_quiet(path.read_text())] == []


def is_quiet(sheet: str) -> bool:
    cells = [cell for row in csv.reader(io.StringIO(sheet, newline="")) for cell in row]
    return not [cell for cell in cells if cell[:1] in tuple("=+-@\t\r\n") and not is_number(cell)]


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_nothing_is_written_elsewhere(made: Path) -> None:
    assert [path.name for path in made.parents[2].iterdir()] == ["deep"]
    assert [path.name for path in made.parent.iterdir()] == ["here"]


def test_the_server_shows_every_case(made: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would rather have another client library than the one that is installed
        from starlette.testclient import TestClient
    settings = ReviewSettings(
        made / "cohort", made / "model", tmp_path / "notes.sqlite", run=made / "run", allow_failed_model=True
    )
    client = TestClient(create_app(settings), base_url="http://127.0.0.1:8377", follow_redirects=False)
    assert is_harmless(client.get("/").text)
    for id in IDS:
        page = client.get("/case", params={"episode": id})
        assert page.status_code == 200
        assert is_harmless(page.text)
        note = {"episode": id, "note": FORMULA, "reviewer": MARKUP, "revision": 0}
        assert client.put("/api/notes", json=note).status_code == 200
    found = client.get("/api/export", params={"episode": ENDING, "kind": "html"})
    assert is_harmless(found.text)
    assert found.headers["content-disposition"].isascii()
    sheet = client.get("/api/notes.csv").text
    assert is_quiet(sheet)
    assert list(tmp_path.iterdir())
    assert all(path.name.startswith("notes.sqlite") for path in tmp_path.iterdir())


ESCAPES = "\x1b]0;a\x07\x9b2J\rZ\u202e"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")
ASKED = ["solve", "--episodes", "cohort", "--model", "model", "--query", "query.yaml", "--only", "e1"]
SHOWN: dict[str, list[list[str]]] = {
    "model/model.json": [["info", "model"], ASKED],
    "model/check.json": [["info", "model"], ASKED],
    "run/run.json": [["info", "run"], ["summarize", "run", "--out", "summary"]],
    "result.json": [["info", "result.json"], ["verify", "result.json", *ASKED[1:5]]],
    "cohort/metadata.json": [["info", "cohort"]],
    "behaviour/behaviour.json": [[*ASKED, "--behaviour", "behaviour"]],
    "schema.yaml": [["import", "table.csv", "--schema", "schema.yaml", "--out", "new"]],
    "study.yaml": [["run", "study.yaml", "--dry-run"]],
    "query.yaml": [ASKED],
}
"""Documents of others, and commands that show something of them."""


def places(value: Any) -> Iterator[tuple[Any, Any, bool]]:
    """Every text and every key of a document: what holds it, where, and whether it is the key."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        if isinstance(value, dict):
            yield value, key, True
        if isinstance(value[key], str):
            yield value, key, False
        yield from places(value[key])


@pytest.mark.parametrize("name", SHOWN)
def test_a_terminal_obeys_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever text of a document holds signs that terminals obey, no output does; and a traceback is none."""
    corpus = Path(__file__).parent / "corpus"
    read = yaml.safe_load if name.endswith(".yaml") else json.loads
    text = (corpus / name).read_text().replace('"finished"', '"running"')  # the corpus has no table of the run
    draw = random.Random(5)
    for number in draw.sample(range(count := len(list(places(read(text))))), min(count, some(100, one_in=10))):
        content = read(text)
        holder, key, is_key = list(places(content))[number]
        if is_key:
            holder[ESCAPES] = holder[key]
        else:
            holder[key] += ESCAPES
        folder = tmp_path / str(number)
        shutil.copytree(corpus, folder)
        write = yaml.safe_dump if name.endswith(".yaml") else json.dumps
        (folder / name).write_text(write(content))
        monkeypatch.chdir(folder)
        for arguments in SHOWN[name]:
            _, output = invoke(arguments)
            assert not OBEYED.search(output), (key, is_key, output)


def test_a_finding_of_another_version_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(Path(__file__).parent / "corpus", tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    check = json.loads(Path("model/check.json").read_text())
    check["findings"][0]["kind"] = "from tomorrow"
    Path("model/check.json").write_text(json.dumps(check))
    code, output = invoke(ASKED)
    assert code == 0
    assert "from tomorrow, of which this version of ifonly knows no more" in " ".join(output.split())
