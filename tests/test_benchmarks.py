"""The benchmarks still run, with little of everything, and notice solvers that contradict each other."""

import contextlib
import io
import json
import os
import pickle
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from effort import long

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs a script as if it had been called, in this process: what it prints."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import measuring

    def in_child(work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """What would travel to a process and back travels; the process itself would take seconds to begin."""
        work, args, options = pickle.loads(pickle.dumps((work, args, options)))
        return pickle.loads(pickle.dumps(work(*args, **options)))

    monkeypatch.setattr(measuring, "in_child", in_child)

    def run(script: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            runpy.run_path(str(BENCHMARKS / script), run_name="__main__")
        return printed.getvalue()

    return run


def test_processes_are_fresh_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    from measuring import in_child

    assert in_child(os.getpid) != os.getpid()


def test_peers_that_are_not_installed_are_left_out(run) -> None:
    printed = run("peers.py", "--steps", 4, "--features", 2)
    assert "best of all 3,553 sequences with at most two changes, proven" in printed
    assert printed.count("is not installed: left out") == 2


def test_solvers_are_compared(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures, page = tmp_path / "figures.json", tmp_path / "page.md"
    sizes = "--count 2 --slow 2 --probes 1 --horizons 4 --changes 2 --samples 20 --training 20 --epochs 1 --batch 3"
    parts = "--models constrained --axes A"
    out = ["--cache", tmp_path / "models", "--json", figures, "--page", page]
    printed = run("solvers.py", *sizes.split(), *parts.split(), *out)
    content = json.loads(figures.read_text(encoding="utf-8"))
    (case,) = content["solvers"]
    assert {name: len(done["episodes"]) for name, done in case["runs"].items()} == {
        "branch-and-bound": 2,
        "anchor A*": 1,
        "exhaustive": 1,
    }
    assert case["agreeing"] == 3  # every pair of solvers, on the one stay that all of them solved
    assert [line["value"] for line in content["growth"]] == [5, 10, 15, 20, 25]
    assert all(episode["proven"] for line in content["growth"] for episode in line["episodes"])
    assert (content["batch"][0]["proven"], content["batch"][0]["compared"]) == (3, 2)
    assert str(tmp_path) not in figures.read_text(encoding="utf-8")
    for title in ("Solvers side by side", "The paper's A* in detail", "How time grows", "Many stays in one call"):
        assert title in printed
        assert f"### {title}" in page.read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["page.py", str(figures), str(figures), "--out", str(page)])
    import page as page_script

    once = page.read_text(encoding="utf-8")
    page_script.main()
    assert page.read_text(encoding="utf-8").count("### How time grows") == 2 * once.count("### How time grows") == 2


def test_processes_side_by_side_measure_the_same(run, tmp_path: Path) -> None:
    sizes = "--count 1 --hard 1 --horizons 4 --changes 1 2 --samples 20 --training 20 --epochs 1 --only solvers"
    common = [*sizes.split(), "--models", "constrained", "--cache", tmp_path / "models"]
    contents = []
    for jobs in (1, 3):
        run("solvers.py", *common, "--jobs", jobs, "--json", tmp_path / "figures.json")
        contents.append(json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["solvers"])
    found = [
        [episode["outcome"] for case in one for done in case["runs"].values() for episode in done["episodes"]]
        for one in contents
    ]
    assert found[0] == found[1]
    assert [(case["changes"], list(case["runs"])) for case in contents[1]] == [
        (changes, ["branch-and-bound", "anchor A*", "exhaustive"]) for changes in (1, 2)
    ]


def test_the_page_is_made_of_the_figures_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    from page import MEASURED, PAGE, page

    contents = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(MEASURED.glob("*.json"))]
    made = page(contents)
    assert "| paper, real | 20 | 3 |" in made
    if any("growth" in content for content in contents):  # else the page tells of figures that were not kept
        assert made == PAGE.read_text(encoding="utf-8"), "python benchmarks/page.py writes it anew"


def test_parts_of_a_solve_are_measured(run, tmp_path: Path) -> None:
    from ifonly.search import branch_and_bound

    figures, before = tmp_path / "figures.json", branch_and_bound.look_ahead
    sizes = "--count 1 --batch 2 --horizons 5 --spread 5 6 --features 3 --training 20 --epochs 1"
    printed = run("profile_parts.py", *sizes.split(), "--json", figures)
    rows = json.loads(figures.read_text(encoding="utf-8"))["parts"]
    assert [(row["model"].split(",")[0], row["stays"], row["together"]) for row in rows] == [
        ("penalised", 1, False),
        ("constrained", 1, False),
        ("random weights", 1, False),
        ("penalised", 2, True),
    ]
    for row in rows:
        assert {"values", "changes", "tables", "look ahead", "results", "rest"} <= set(row["parts"])
        assert all(milliseconds > 0 for milliseconds in row["parts"].values())
        assert sum(row["parts"].values()) == pytest.approx(row["milliseconds"], rel=0.3)
    assert "look ahead" in printed
    assert branch_and_bound.look_ahead is before, "nothing is counted any more"


def test_lipschitz_limits_are_compared(run, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    assert "likelihood below truth" in run("lipschitz_cost.py", "--quick", "--json", figures)
    rows = json.loads(figures.read_text(encoding="utf-8"))["rows"]
    assert [(row["stays"], row["limits"]) for row in rows] == [
        (30, [1.0, 0.1]),
        (30, None),
        (60, [1.0, 0.1]),
        (60, None),
    ]
    assert all(row["realised"] <= row["attainable"] for row in rows)  # nothing beats the true optimum


@long
def test_the_default_recipe_is_timed_beside_the_papers(run, tmp_path: Path) -> None:
    figures = tmp_path / "rows.jsonl"
    printed = run("recipe_speed.py", "--quick", "--out", figures)
    (row,) = [json.loads(text) for text in figures.read_text(encoding="utf-8").splitlines()]
    assert row["ratio"] == row["default"]["median_seconds"] / row["paper"]["median_seconds"]
    assert f"{row['ratio']:.2f} times the paper's seconds" in printed
    assert row["paper"]["proven"] == row["default"]["proven"] == 1
    assert run("recipe_speed.py", "--quick", "--out", figures) == printed  # what stands there is not measured again
    assert len(figures.read_text(encoding="utf-8").splitlines()) == 1


def test_ensembles_are_timed(run, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    printed = run("ensemble_cost.py", "--quick", "--json", figures)
    assert "times one fit (median)" in printed
    content = json.loads(figures.read_text(encoding="utf-8"))
    assert set(content["use"]) == {"mean", "worst", "0.1"}
    for stay in content["stays"]:
        assert all(solved["proven"] for solved in stay.values())
        assert stay["worst"]["improvement"] <= stay["mean"]["improvement"]


def test_hard_questions_are_asked(run) -> None:
    printed = run("hard_questions.py", "--quick")
    row = next(line for line in printed.splitlines() if "time in range, 65 and more" in line)
    assert "1 of 1" in row, "where all steps are brought into the range nothing is left to search"
    assert row.split()[-2] == "1"
    assert "of the gain" in printed


def episode(outcome: float, upper_bound: float | None) -> dict[str, Any]:
    return {"outcome": outcome, "upper_bound": upper_bound, "proven": outcome == upper_bound}


@pytest.mark.parametrize(
    ("one", "other", "agreeing"),
    [
        (episode(-80.0, -80.0), episode(-80.0 + 1e-10, -80.0 + 1e-10), 1),
        (episode(-80.0, -80.0), episode(-80.0 + 1e-6, -80.0 + 1e-6), None),
        (episode(-80.0, -80.0), episode(-81.0, None), 0),  # stopped early, and compatible
        (episode(-80.0, -80.0), episode(-81.0, -70.0), 0),
        (episode(-80.0, -80.0), episode(-82.0, -81.0), None),  # a bound below what the other found
        (episode(-80.0, -80.0), episode(-79.0, None), None),  # an outcome above what the other proved
    ],
)
def test_contradictions_are_noticed(
    one: dict[str, Any], other: dict[str, Any], agreeing: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    from measuring import DisagreementError, check_agreement

    runs = {"a": {"episodes": [one]}, "b": {"episodes": [other, episode(0.0, 1.0)]}, "c": {"not_run": "too many"}}
    if agreeing is None:
        with pytest.raises(DisagreementError):
            check_agreement(runs)
    else:
        assert check_agreement(runs) == agreeing


def test_visits_are_estimated_as_astar_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of thousands from a few hundred nodes is nearly the whole."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    from anchor_visits import estimate_visits

    from ifonly import AnchorAStar, MonteCarlo, solve
    from ifonly.bounds.lipschitz import AnchorBound, value_constants
    from ifonly.testing.instances import random_problem

    problem = random_problem(4, model_kind="location-scale", horizon=6, actions=5, masked=False, constrained=True)
    anchors = MonteCarlo(samples=5)
    found = solve(problem, AnchorAStar(anchors=anchors))
    constants = value_constants(problem)
    chosen = anchors.choose(problem, constants, torch.Generator().manual_seed(0))
    bound = AnchorBound(problem, chosen, constants)
    visited, error, nodes = estimate_visits(problem, bound, found.outcome, 4000, seed=1)
    assert found.stats.nodes_visited is not None
    assert 20 < found.stats.nodes_visited < nodes
    assert abs(visited - found.stats.nodes_visited) <= 4 * error + 2
