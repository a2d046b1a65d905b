"""What the package is built on: nothing is declared that nothing uses, and the tested set is pinned with hashes."""

import json
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))

import supply  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_IMPORTED = {
    "mypy": r"\$\(BIN\)/mypy",
    "ruff": r"\$\(BIN\)/ruff",
    "pytest-xdist": r"pytest -n \d",
    "setuptools": r"tools/wheel\.py",
}
"""Programs and plugins: how the Makefile calls them."""
DISTRIBUTIONS = packages_distributions()
STUBS = {"types-pyyaml": "pyyaml"}
"""Types of others."""


def declared(extra: str | None = None) -> set[str]:
    texts = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    names = {supply.normal(re.match(r"[\w.-]+", text)[0]) for text in texts}
    return names - {"ifonly"}


BY_NAME = "import_module|importorskip|require_extra|find_spec"
IMPORT = re.compile(rf'^\s*(?:from|import) (\w+)|(?:{BY_NAME})\("(\w+)', re.MULTILINE)


@cache
def imported(*folders: str) -> set[str]:
    """Distributions whose modules are imported, by a statement or by name, somewhere below these folders."""
    texts = [path.read_text(encoding="utf-8") for folder in folders for path in (ROOT / folder).rglob("*.py")]
    modules = {first or second for text in texts for first, second in IMPORT.findall(text)}
    return {supply.normal(one) for module in modules for one in DISTRIBUTIONS.get(module, ())}


def test_notebooks_show_figures_with_what_they_ask_for() -> None:
    """Plotly imports these, not the package: a test that displays a figure is skipped without them."""
    text = (ROOT / "tests" / "report" / "test_interactive.py").read_text(encoding="utf-8")
    assert declared("notebooks") == set(re.findall(r'importorskip\(\s*"(\w+)"', text))


@pytest.mark.parametrize("extra", [None, "clinical", "dask", "minari", "web"])
def test_the_package_imports_what_it_asks_for(extra: str | None) -> None:
    assert declared(extra) - imported("src") == set()


def test_development_uses_what_it_asks_for() -> None:
    makefile = (ROOT / "Makefile").read_text()
    called = {name for name, pattern in NOT_IMPORTED.items() if re.search(pattern, makefile)}
    stubs = {name for name, of in STUBS.items() if of in imported("src")}
    assert declared("dev") - imported("tests", "tools", "paper", "benchmarks") - called - stubs == set()


def test_the_package_asks_for_what_it_imports() -> None:
    asked = set.union(*(declared(extra) for extra in (None, "clinical", "dask", "minari", "web")))
    # What those need who are asked for is there with them.
    with_them = {other for name in asked for other, _ in supply.needed(name)}
    assert imported("src") - {"ifonly"} - asked - with_them == set()


def test_hashes_are_of_the_tested_versions() -> None:
    lines = [line for line in supply.HASHED.read_text().splitlines() if not line.startswith("#")]
    found = dict(line.split(" ")[0].split("==") for line in lines)
    assert all(re.fullmatch(r"[a-z0-9-]+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    versions = supply.pinned()
    assert found == {name: version for name, version in versions.items() if name not in supply.LOCAL}, "make hashes"
    assert "://" not in supply.HASHED.read_text(), "no index is named"


def test_the_bill_lists_what_is_installed_and_is_the_same_again() -> None:
    bill = supply.bill()
    assert bill == supply.bill() == json.loads(json.dumps(bill))
    names = {part["name"] for part in bill["components"]}
    assert declared() | declared("clinical") | declared("dask") | declared("web") <= names
    assert {"pytest", "ruff"} & names == set()
    references = {bill["metadata"]["component"]["bom-ref"], *(part["bom-ref"] for part in bill["components"])}
    assert len(references) == len(names) + 1
    for one in bill["dependencies"]:
        assert {one["ref"], *one["dependsOn"]} <= references
    text = json.dumps(bill)
    assert str(Path.home()) not in text
    assert "file:" not in text
