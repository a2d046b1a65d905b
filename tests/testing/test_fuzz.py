"""Random problems against enumeration: they agree, and what disagrees is found."""

import json
import runpy
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import trials
from effort import some
from trials import trial

from ifonly.result import Result

TOOL = Path(__file__).parents[2] / "tools" / "fuzz.py"


def test_solvers_agree_with_enumeration() -> None:
    trials = [trial(seed) for seed in range(some(60))]
    assert [one for one in trials if one.findings] == []
    assert sum(bool(one.drawn) for one in trials) > 0.9 * len(trials)
    assert sum(one.logged for one in trials) > 0.3 * len(trials)
    kinds = {name: Counter(one.drawn[name] for one in trials if one.drawn) for name in ("model", "recipe", "budget")}
    assert all(len(found) >= 4 for found in kinds.values()), kinds


def test_logs_of_outcomes_beyond_anything_recorded_hold() -> None:
    """On a logarithmic scale the best outcome is 1e21: rounding is more than any tolerance."""
    assert trial(20139).findings == ()


def test_a_wrong_answer_and_a_crash_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trials.solve

    def worse(*args: object, **options: object) -> Result:
        result = whole(*args, **options)  # type: ignore[arg-type]
        return replace(result, outcome=result.outcome - 1e-3)

    monkeypatch.setattr(trials, "solve", worse)
    assert "the optimum is" in trial(0).findings[0]

    def broken(*args: object, **options: object) -> Result:
        raise RuntimeError("no answer")

    monkeypatch.setattr(trials, "solve", broken)
    assert trial(0).findings == ("RuntimeError: no answer",)


def test_the_tool_tells_what_it_tried(tmp_path: Path) -> None:
    out, tool = tmp_path / "fuzz.json", runpy.run_path(str(TOOL))
    assert tool["main"](["--count", "4", "--seed", "7", "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert (found["seeds"], found["first_seed"], found["failed"]) == (4, 7, [])
    assert sum(found["kinds"]["model"].values()) == found["problems"]
