"""The notebooks run from top to bottom, and objects show themselves there, escaped."""

import ast
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import long

import ifonly
from ifonly import ActionSpace, Axis, Cohort, Episode, Feature, Schema
from ifonly.result import Evidence

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
EXPECTED = {"researcher", "ten-minutes", "your-own-table"}


def code_of(path: Path) -> list[str]:
    document = json.loads(path.read_text(encoding="utf-8"))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    for cell in document["cells"]:
        assert set(cell) >= {"cell_type", "id", "metadata", "source"}
        assert not cell.get("outputs"), "notebooks are kept without outputs"
    return ["".join(cell["source"]) for cell in document["cells"] if cell["cell_type"] == "code"]


def run_cell(code: str, names: dict[str, Any]) -> Any:
    """As a notebook does: all statements, and the value of the last one where it is an expression."""
    *statements, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        statements, last = [*statements, last], ast.parse("None").body[0]
    exec(compile(ast.Module(statements, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_there_are_notebooks_whose_cells_parse() -> None:
    assert {path.stem for path in NOTEBOOKS} == EXPECTED
    for path in NOTEBOOKS:
        assert all(ast.parse(code) for code in code_of(path))


@long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, Any] = {"__name__": "notebook"}
    shown = [run_cell(code, names) for code in code_of(path)]
    pages = [value._repr_html_() for value in shown if type(value).__module__.startswith("ifonly")]
    assert pages
    for page in pages:
        Balanced.check(page)


class Balanced(HTMLParser):
    """Refuses tags that are not closed, and any but these."""

    known = frozenset({"table", "caption", "tr", "th", "td", "strong", "pre"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert tag in self.known, tag
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @classmethod
    def check(cls, page: str) -> str:
        parser = cls()
        parser.feed(page)
        parser.close()
        assert not parser.open
        return " ".join(parser.words)


HOSTILE = "<script>alert('x')</script> & \"more\""
SCHEMA = Schema(
    (Feature(HOSTILE, "dynamic", unit="<b>"), Feature("age", "static", plausible=(0, 120))),
    ActionSpace.product(Axis("<i>dose", "mg", (0.0, 2.5))),
)


def episodes() -> list[Episode]:
    return [Episode(f"<u>{n}", SCHEMA, np.full((3, 1), 123.456), [0, 1, 0], np.full((3, 1), 77.0)) for n in range(2)]


def test_schemas_and_cohorts_show_themselves_escaped_and_without_rows() -> None:
    cohort = Cohort.from_episodes(episodes())
    for shown in (SCHEMA, cohort):
        text = Balanced.check(shown._repr_html_())
        assert HOSTILE in text
        assert "0 to 120" in text
        assert "0, 2.5" in text
    assert "2 episodes" in Balanced.check(cohort._repr_html_())
    assert not re.search("123|77|<u>", cohort._repr_html_())


def test_results_checks_evidence_and_runs_show_what_their_text_says(tmp_path: Path) -> None:
    cohort = ifonly.simulate.simulate_cohort(12, seed=0, horizon=4)
    model = ifonly.fit(ifonly.LocationScale(cohort.schema, hidden=(4,)), cohort, epochs=1, seed=0)
    query = ifonly.Query(ifonly.minus("SOFA"), max_changes=1)
    result = ifonly.solve(ifonly.Problem.from_episode(cohort[0], model, query))
    assert Balanced.check(result._repr_html_()).split() == str(result).split()
    assert Evidence().verdict.value in Balanced.check(Evidence()._repr_html_())
    run = ifonly.solve_cohort(cohort[:2], model, query, out=tmp_path / "<run>", settings=ifonly.RunSettings(workers=1))
    text = Balanced.check(run._repr_html_())
    assert "2 episodes in" in text
    assert "<run>" in text
    assert "optimal" in text
    check = ifonly.check_model(model, cohort)
    assert Balanced.check(check._repr_html_()).split() == str(check).split()
