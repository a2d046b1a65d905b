"""tools/house.py counts what its definitions say, on a made tree with known figures."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SHAPES = '''"""Docstring
of two lines."""

# a comment of its own
SIDES = 4  # not one of its own
"""A docstring, too."""


class Shape:
    """A shape."""

    text = """
    no docstring
    """


class _Hidden: ...


def area(
    side: float,
) -> float:
    """One line."""
    # reasons
    result = side**2

    return result
'''
OTHER = "from ifonly.one.shapes import area\n\n\nclass Shape: ...\n\n\nclass Single: ...\n\n\ndef area(): ...\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    files = {
        "src/ifonly/__init__.py": "import ifonly.two.same\n",
        "src/ifonly/one/__init__.py": "",
        "src/ifonly/one/shapes.py": SHAPES,
        "src/ifonly/one/same.py": "",
        "src/ifonly/two/same.py": OTHER,
        "src/ifonly/two/deep/same.py": "from ..same import Single\nfrom .. import same\n",
        "src/ifonly/two/page.js": "one();\n\ntwo();\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_known_figures_of_a_made_tree(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    import house as script

    house = script.measure(tree)
    # SIDES, class, text of three lines, _Hidden, signature of three lines, two lines of body
    assert house.rooms() == {"(top)": 1, "one": 11, "two": 6}
    assert house.code == 18
    assert (house.share("docstring"), house.share("comment")) == (5 / 18, 2 / 18)
    assert house.function_lengths() == (1, 1, 2)
    assert house.owned_twice("classes") == {"Shape": ["ifonly.one.shapes", "ifonly.two.same"]}
    assert house.owned_twice("callables") == {"area": ["ifonly.one.shapes", "ifonly.two.same"]}
    assert house.with_one_importer() == {"ifonly.one.shapes": "ifonly.two.same"}  # two import ifonly.two.same
    assert house.frequent_module_names() == {"same": 3}
    assert house.pages == {"JavaScript": 2}
    assert house.options == {}  # there is no command line to ask


def test_a_commit_is_shown_beside_the_tree(tree: Path) -> None:
    git = ["git", "-C", str(tree), "-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "before"]):
        subprocess.run([*git, *command], check=True)
    (tree / "src/ifonly/two/more.py").write_text("x = 1\ny = 2\n", encoding="utf-8")
    command = [sys.executable, str(ROOT / "tools" / "house.py"), str(tree), "--against"]
    printed = subprocess.run([*command, "HEAD"], capture_output=True, text=True, check=True).stdout
    assert "Python code lines in the wheel 18 20" in [" ".join(line.split()) for line in printed.splitlines()]
    alone = subprocess.run([*command, "f" * 40], capture_output=True, text=True, check=True).stdout
    assert "not available" in alone
    assert "Python code lines in the wheel 20" in [" ".join(line.split()) for line in alone.splitlines()]


def test_the_table_of_a_page_is_replaced(tree: Path) -> None:
    page = tree / "page.md"
    page.write_text("# Title\n\n| old | now |\n| --- | ---: |\n| x | 1 |\n\nWords.\n", encoding="utf-8")
    command = [sys.executable, str(ROOT / "tools" / "house.py"), str(tree), "--write", str(page)]
    subprocess.run(command, capture_output=True, check=True)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Title\n\n|  | now |\n| --- | ---: |\n| Python code lines in the wheel | 18 |\n")
    assert text.endswith(" |\n\nWords.\n")
    assert "| x | 1 |" not in text
    failed = subprocess.run([*command, "--against", "f" * 40], capture_output=True, text=True, check=False)
    assert failed.returncode
    assert "the page stays as it is" in failed.stderr
    assert page.read_text(encoding="utf-8") == text


def test_the_page_is_not_far_from_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a tenth, so that ordinary changes leave it true enough; then `make house ARGS="--write docs/house.md"`."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    import house as script

    rows = [line.strip("| \n").split(" | ") for line in (ROOT / "docs" / "house.md").read_text("utf-8").splitlines()]
    shown = {row[0]: row[-1] for row in rows if len(row) > 1}
    found = dict(script.figures(script.measure(ROOT)))
    for row in ("Python code lines in the wheel", "Python files", "functions", "JavaScript lines"):
        assert int(shown[row]) == pytest.approx(int(found[row]), rel=0.1), row


def test_names_have_one_owner_and_options_stay_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    import house as script

    house = script.measure(ROOT)
    assert house.owned_twice("classes") == {}
    assert house.frequent_module_names() == {}
    assert 0 < sum(house.options.values()) < 150
