"""Real stays: the command on invented tables, and figures of answers against a plain reckoning."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from paper import asking
from paper.real_stays import BEGIN, END, RealRow, RealSettings, measure_model, real_cohort, summary

from ifonly import Feature, minus, save_cohort
from ifonly.errors import InputError
from ifonly.result.table import COLUMNS
from ifonly.simulate import simulate_cohort

sys.path.insert(0, str(Path(__file__).parents[1] / "clinical"))
from mimic_tables import invented_patients

ROOT = Path(__file__).parents[2]
DEMO = Path(os.environ.get("IFONLY_MIMIC_DEMO", ROOT.parent / "shared" / "data" / "mimic-iii-demo"))
QUICK = RealSettings("paper", test=0.5, asked=2, max_changes=1, seconds=5.0, epochs=1)


@pytest.mark.filterwarnings("ignore::ifonly.errors.PlausibilityWarning")
def test_the_command_tells_checks_and_answers(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = invented_patients(12, hours=60).write(tmp_path / "mimic")
    sizes = ("--test", "0.4", "--asked", 2, "-k", 1, "--seconds", 5, "--epochs", 1, "--workers", 1)
    out, page = tmp_path / "rows", tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    words = ("real", "--source", source, "--out", out, "--recipe", "paper", *sizes)
    result = run(*words, "--page", page, "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["models"]
    assert (row["answers"], row["impossible"]) == (2, 0)
    assert row["verdict"] == "not judged"
    assert row["chosen"] == "paper"
    assert page.read_text().startswith(f"before\n{BEGIN}\n\n| ")
    assert "paper, seed 0" in page.read_text()
    assert page.read_text().endswith(f"\n{END}\nafter\n")
    (kept,) = out.iterdir()
    assert json.loads(kept.read_text()) == row
    assert all(isinstance(row[name], list) == (name == "concerns") for name in row), "nothing of a single stay"

    def refuse(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr("paper.real_stays.measure_model", refuse)
    save_cohort(real_cohort(source, "all-adults"), tmp_path / "cohort")
    again = run("real", "--source", tmp_path / "cohort", *words[3:], "--json")
    assert json.loads(again.stdout)["models"] == [row]
    assert run(*words, "--recipe", "papre").exit_code != 0


def test_models_are_checked_on_others_and_asked_about_them() -> None:
    cohort = simulate_cohort(30, seed=1, horizon=(4, 6))
    row = measure_model(cohort, QUICK)
    training, held_out = cohort.split(test=0.5, seed=0)
    assert (row.subjects, row.held_out) == (len(set(training.subjects)), len(set(held_out.subjects)))
    assert (row.answers, row.measured) == (2, None)
    assert row.median_steps == np.median(held_out.lengths[:2])
    assert row.median_seconds > 0
    assert row.judged_by_organs >= row.not_borne_out
    assert RealRow.from_dict(json.loads(json.dumps(row.to_dict(), allow_nan=False))) == row
    (words,) = summary([row]).to_dicts()
    assert words["impossible"] == "0 of 2"
    assert words["recipe"] == "paper, seed 0"
    with pytest.raises(InputError, match="no recipe 'best'"):
        measure_model(cohort, replace(QUICK, recipe="best"))


def test_values_outside_their_ranges_are_found() -> None:
    features = (
        Feature("score", "dynamic", scaling="bounded", plausible=(0, 4)),
        Feature("amount", "dynamic", plausible=(1, 9)),
        Feature("free", "dynamic"),
    )
    courses = [
        [[0.0, 1.0, 1e9], [4.0, 9.0, -1e9]],
        [[0.0, 5.0, 0.0], [4.1, 5.0, 0.0]],
        [[0.0, 0.5, 0.0]],
        [[0.0, -0.5, 0.0]],
        [[4.0 + 1e-12, 1.0 - 1e-12, 0.0]],
        [[None, 5.0, 0.0]],
    ]
    table = pl.DataFrame({"states": courses}, schema={"states": COLUMNS["states"]})
    plausible, possible = asking.plausible_ranges(features), asking.possible_ranges(features)
    assert asking.leaves_ranges(table, plausible) == [False, True, True, True, False, True]
    assert asking.leaves_ranges(table, possible) == [False, True, False, True, False, True]


@pytest.mark.skipif(
    not (DEMO / "ICUSTAYS.csv.gz").exists(),
    reason="the demo of MIMIC-III is not here; IFONLY_MIMIC_DEMO names its folder",
)
def test_no_answer_about_a_real_stay_shows_anything_impossible(run, tmp_path: Path) -> None:
    sizes = ("--asked", 4, "--seconds", 5, "--epochs", 20, "--workers", 1)
    result = run("real", "--source", DEMO, "--recipe", "paper", *sizes, "--out", tmp_path / "rows", "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["models"]
    assert (row["answers"], row["impossible"]) == (4, 0)
    assert 0.4 < row["measured"] < 0.7
    assert minus("SOFA") == asking.LOW_SOFA
