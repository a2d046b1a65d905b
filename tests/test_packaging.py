"""The wheel works in an empty environment; the site has every page, and its links are those of the documents."""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from effort import long

ROOT = Path(__file__).parents[1]


def has_setuptools() -> bool:
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0]) >= 77
    except importlib.metadata.PackageNotFoundError:
        return False


@long
@pytest.mark.skipif(
    not has_setuptools(), reason="needs setuptools 77 here, to build without a network; or `make wheel`"
)
def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "wheel.py"), str(tmp_path / "wheel"), "--offline"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "installed, and works" in done.stdout


def test_the_hook_against_data_refuses_all_tables_but_those_that_are_kept() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    (hook,) = [hook for hook in hooks if hook["id"] == "no-data"]
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = [*listed.stdout.split("\n"), "stays.csv.gz", "tests/data/stays.parquet", "runs/model.safetensors"]
    refused = [name for name in names if re.search(hook["files"], name) and not re.search(hook["exclude"], name)]
    assert refused == names[-3:]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import site_pages

    return site_pages


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r": ([\w/-]+\.md)$", text, re.MULTILINE))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    pages |= {f"notebooks/{path.stem}.md" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    beside = {"ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}
    assert named == pages | beside | {"index.md", "contents.md", "reference.md"}


@pytest.mark.parametrize(
    ("text", "in_docs", "expected"),
    [
        ("[a](docs/goals.md#x)", False, "[a](goals.md#x)"),
        ("[a](docs/index.md)", False, "[a](contents.md)"),
        ("[a](CHANGELOG.md)", False, "[a](CHANGELOG.md)"),
        ("[MIT licence](LICENSE)", False, "MIT licence (`LICENSE`)"),
        ("![p](docs/images/x.png)", False, "![p](images/x.png)"),
        ("[a](goals.md)", True, "[a](goals.md)"),
        ("[a](index.md)", True, "[a](contents.md)"),
        ("[a](notebooks/x.ipynb)", True, "[a](notebooks/x.md)"),
        ("[a](../README.md)", True, "[a](index.md)"),
        ("[items.json](../src/items.json)", True, "items.json (`src/items.json`)"),
        ("[a](#here) and [b](https://example.org/x)", True, "[a](#here) and [b](https://example.org/x)"),
    ],
)
def test_links_of_the_site(site, text: str, in_docs: bool, expected: str) -> None:
    assert site.with_links(text, in_docs=in_docs) == expected


def test_a_notebook_is_a_page_of_its_words_and_code(site) -> None:
    page = site.notebook_page(ROOT / "docs" / "notebooks" / "ten-minutes.ipynb")
    assert page.startswith("# Ten minutes")
    assert "[ten-minutes.ipynb](ten-minutes.ipynb)" in page
    assert "[your own table](your-own-table.md)" in page
    assert "```python\nimport ifonly\n" in page
    assert page.count("```") % 2 == 0


def test_the_reference_names_every_public_object(site) -> None:
    page = site.reference()
    for name in ("Cohort", "solve", "Query", "verify", "Result", "check_model", "write_report", "Goal", "InputError"):
        assert re.search(rf"^::: ifonly\.[\w.]*\.{name}$", page, re.MULTILINE), name


def test_what_a_page_fetches_is_noticed(site) -> None:
    assert site.FETCHES.search('<script src="https://cdn.example.org/x.js">')
    assert site.FETCHES.search("<link rel=stylesheet href=//fonts.example.org/css>")
    assert not site.FETCHES.search('<a href="https://example.org">x</a><script src="assets/x.js">')
