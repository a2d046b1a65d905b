"""The code names the equations that it computes, and the documents have them: each once, in order, none forgotten."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
THEORY = PAGES[ROOT / "docs" / "theory.md"]
SOURCES = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "src" / "ifonly").rglob("*.py"))}

NUMBER = re.compile(r"\(([A-Z]\d+)\)")
DISPLAYED = re.compile(r"^ {4}.*\s{2}\(([A-Z]\d+)\)$", re.MULTILINE)
DEFINED = [label for text in PAGES.values() for label in DISPLAYED.findall(text)]
"""Numbers at the end of displayed equations."""
COUNTS = {"L": 5, "T": 60, "P": 7, "E": 4, "R": 4, "G": 2}

DERIVATION = {"T6", "T7", "T8", "E2"}
"""Steps of a proof that nothing computes: displacements, their identity, the recursion of R2, shifted outcomes."""


def test_equations_are_numbered_once_and_in_order() -> None:
    assert {label[0] for label in DEFINED} == set(COUNTS)
    for letter, count in COUNTS.items():
        numbers = [int(label[1:]) for label in DEFINED if label[0] == letter]
        assert numbers == list(range(1, count + 1)), letter


def test_every_number_that_is_cited_exists() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: ({label})"
        for path, text in SOURCES.items()
        for label in NUMBER.findall(text)
        if label not in DEFINED
    }
    assert not missing
    assert {label for label in NUMBER.findall(THEORY) if label[0] in COUNTS} <= set(DEFINED)  # S3 is a derivative


def test_every_equation_is_named_where_it_is_computed() -> None:
    cited = Counter(label for text in SOURCES.values() for label in set(NUMBER.findall(text)))
    assert {label for label in DEFINED if not cited[label]} == DERIVATION


def test_every_module_of_the_bounds_names_an_equation() -> None:
    """But for those that only store, split or re-export."""
    without = {"__init__.py", "anchors.py", "factory.py", "recorded.py", "blocks.py", "applicability.py", "radii.py"}
    for path, text in SOURCES.items():
        if "bounds" in path.relative_to(ROOT).parts and path.name not in without:
            assert NUMBER.search(text), path.relative_to(ROOT)
