"""The warning study: what its tables say, on tables made by hand; and one world as it is measured."""

import math

import numpy as np
import polars as pl
import pytest
from effort import some
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from paper.asking import Question
from paper.laboratory import Laboratory
from paper.warning_study import StudySettings
from paper.warning_tables import (
    LIMITS_IN_USE,
    SIGNALS,
    TOGETHER,
    VERDICTS,
    Judged,
    caught_table,
    limit_for,
    limits_in_use_table,
    separation_table,
    share_over_seeds,
    truth_table,
)
from paper.warning_worlds import COLUMNS, SCENARIOS, falls_short, is_near_optimal, is_wrong, recommended, study_table
from small_experiments import small

from ifonly.problem import Problem
from ifonly.result import Thresholds
from ifonly.search.solve import solve
from ifonly.simulate import SepsisWorld, simulate_cohort

NUMBERS = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=60)


def table(**columns: list[object]) -> pl.DataFrame:
    """Recommendations that nothing speaks against, but for what is said."""
    count = len(next(iter(columns.values())))
    usual = {"scenario": "right", "seed": 0, "episode": "x", "verdict": "pass", "lasting_noise": 0.0, "changes": 2}
    usual |= {"promised": 2.0, "true": 1.5, "attainable": 2.0, "refits_agree": 1.0, "refit_low": 0.5}
    usual |= {"least_support": 0.2, "farthest": 50.0, "harmless_below": 1.0, "undone_by": None}
    return pl.DataFrame({name: columns.get(name, [value] * count) for name, value in usual.items()}, schema=COLUMNS)


class TestLimits:
    def test_one_of_ten_may_be_flagged(self) -> None:
        scores = np.arange(10.0)
        assert limit_for(scores, 0.1) == 1.0
        assert limit_for(scores, 0.05) == 0.0  # flags nobody: half of one recommendation is none
        assert limit_for(np.ones(10), 0.5) == 1.0
        assert limit_for(np.array([]), 0.5) == -math.inf

    @hypothesis_settings(deadline=None, derandomize=True, max_examples=some(200))
    @given(NUMBERS, st.floats(0, 0.9))
    def test_the_rate_is_kept_and_no_larger_limit_keeps_it(self, scores: list[float], rate: float) -> None:
        values = np.array(scores)
        limit = limit_for(values, rate)
        assert (values < limit).mean() <= rate + 1e-12
        assert (values <= limit).mean() > rate - 1e-12

    @pytest.mark.parametrize("label", [*(signal.label for signal in SIGNALS), TOGETHER])
    def test_nothing_of_a_seed_takes_part_in_judging_it(self, label: str) -> None:
        """Whatever is true of a seed's recommendations, and whoever else it has, the flags of its others stay."""
        random = np.random.default_rng(0)
        seeds = np.repeat(np.arange(4), 25)
        scores = {signal.label: random.normal(size=100) for signal in SIGNALS}
        wrong = random.random(100) < 0.3
        before = Judged(scores, wrong, seeds).flags(label, 0.2)
        last = seeds == 3
        other = {name: np.where(last & (np.arange(100) % 2 == 0), -9.0, values) for name, values in scores.items()}
        after = Judged(other, wrong & ~last, seeds).flags(label, 0.2)
        untouched = last & (np.arange(100) % 2 == 1)
        assert before[last].any()
        assert np.array_equal(before[untouched], after[untouched])
        assert not np.array_equal(before[~last], after[~last])  # and of the other seeds they do depend on it

    def test_limits_are_told_in_words(self) -> None:
        verdict, lasting = SIGNALS[:2]
        assert [verdict.limit_in_words(limit) for limit in (0.0, 1.0, 2.0)] == ["never", "fails", "warns or fails"]
        assert [lasting.limit_in_words(limit) for limit in (-0.15, -math.inf)] == ["above 0.15", "never"]

    def test_every_seed_has_the_limit_of_the_others(self) -> None:
        seeds = np.repeat([0, 1], 10)
        scores = np.concatenate([np.arange(10.0), 10 + np.arange(10.0)])
        judged = Judged({SIGNALS[0].label: scores}, np.zeros(20, dtype=bool), seeds)
        assert np.array_equal(judged.flags(SIGNALS[0].label), scores < 10)  # below 11, and none below 1
        assert judged.limit(SIGNALS[0].label) == 2.0


class TestSeparation:
    @hypothesis_settings(deadline=None, derandomize=True, max_examples=some(100))
    @given(NUMBERS, NUMBERS)
    def test_is_the_share_of_pairs_in_the_right_order(self, right: list[float], wrong: list[float]) -> None:
        scores = np.array([*right, *wrong])
        judged = Judged({"x": scores}, np.arange(len(scores)) >= len(right), np.zeros(len(scores), dtype=int))
        pairs = [(r > w) + (r == w) / 2 for r in right for w in wrong]
        assert judged.separation("x").mean == pytest.approx(sum(pairs) / len(pairs))

    def test_only_pairs_of_one_seed_are_compared(self) -> None:
        judged = Judged({"x": np.array([0.0, 1.0, 9.0, 8.0])}, np.array([True, False] * 2), np.array([0, 0, 1, 1]))
        found = judged.separation("x")
        assert (found.mean, found.count) == (0.5, 2)

    def test_what_is_infinite_is_equal(self) -> None:
        judged = Judged({"x": np.array([math.inf, math.inf])}, np.array([True, False]), np.zeros(2, dtype=int))
        assert judged.separation("x").mean == 0.5


class TestShares:
    def test_intervals_are_over_seeds(self) -> None:
        """By hand: deviations of the seeds' sums are 4 - 10 * 0.6 and 8 - 10 * 0.6."""
        seeds = np.repeat([0, 1], 10)
        hits = np.concatenate([np.arange(10) < 4, np.arange(10) < 8])
        found = share_over_seeds(hits, np.ones(20), seeds)
        assert (found.count, found.mean) == (20, pytest.approx(60.0))
        assert found.interval == (0.0, 100.0)  # 60 ± 12.706 * 20, cut off
        alike = share_over_seeds(np.tile([True, False], 10), np.ones(20), seeds)
        assert alike.interval == pytest.approx((50.0, 50.0))

    def test_all_or_none_of_a_few_is_not_certain(self) -> None:
        seeds = np.array([0, 1, 2])
        assert share_over_seeds(np.ones(3), np.ones(3), seeds).interval == pytest.approx((43.85, 100), abs=0.01)
        assert share_over_seeds(np.ones(3), np.zeros(3), seeds).show() == "-"


class TestTables:
    def test_right_and_wrong(self) -> None:
        rows = table(true=[-1.0, 0.0, 0.5, 1.0, 1.8, 2.0], changes=[2, 2, 2, 2, 2, 0])
        assert is_wrong(rows).tolist() == [True, True, False, False, False, False]
        assert falls_short(rows).tolist() == [True, True, True, False, False, False]
        assert is_near_optimal(rows).tolist() == [False, False, False, False, True, True]
        assert len(recommended(rows)) == 5

    def test_truth_by_scenario(self) -> None:
        rows = table(
            scenario=["right"] * 4 + ["few"] * 4,
            seed=[0, 0, 1, 1] * 2,
            true=[2.0, 2.0, 2.0, 2.0, -1.0, 1.5, -1.0, 1.5],
            verdict=["pass"] * 4 + ["warn", "warn", "fail", "fail"],
        )
        found = truth_table(rows).to_dicts()
        assert [line["scenario"] for line in found] == [one.label for one in SCENARIOS.values()]
        assert found[0]["truly help %"].startswith("100 (")
        assert (found[0]["near-optimal %"], found[0]["verdicts"]) == (found[0]["truly help %"], "pass 2")
        assert (found[1]["truly help %"], found[1]["near-optimal %"][:3]) == ("50 (50 to 50)", "0 (")
        assert found[1]["verdicts"] == "fail 1, warn 1"
        assert found[1]["true"] == "0.25 ± 0.00"
        assert found[2]["recommendations"] == "0"

    def test_a_signal_that_tells_catches_all_and_the_others_nothing(self) -> None:
        """In each of three seeds two of six are wrong, and only they have hardly any support."""
        true = [-1.0, -1.0, 1.5, 1.5, 1.5, 1.5] * 3
        rows = table(
            seed=[0] * 6 + [1] * 6 + [2] * 6,
            scenario=["few", "confounded", *["right"] * 4] * 3,
            true=true,
            least_support=[0.001, 0.002, 0.2, 0.2, 0.2, 0.2] * 3,
        )
        found = {line["signal"]: line for line in caught_table(rows).to_dicts()}
        support = found["least likely change"]
        assert (support["flagged where"], support["AUC"]) == ("below 0.200", "1.00 ± 0.00")
        assert support["caught %"].startswith("100 (")
        assert support["too little data"].startswith("100 (")
        assert support["false alarms %"].startswith("0 (")
        assert support["model right"] == support["misspecified"] == "-"  # nothing wrong there to be caught
        assert found[TOGETHER]["caught %"] == support["caught %"]
        for label in set(found) - {"least likely change", TOGETHER}:
            assert found[label]["caught %"].startswith("0 ("), label
            assert found[label]["AUC"] == "0.50 ± 0.00"

    def test_separation_is_told_scenario_by_scenario(self) -> None:
        rows = table(
            scenario=["few"] * 4 + ["confounded"] * 4,
            seed=[0, 0, 1, 1] * 2,
            true=[-1.0, 1.5] * 4,
            least_support=[0.1, 0.2, 0.1, 0.2, 0.9, 0.5, 0.9, 0.5],
        )
        found = {line["scenario"]: line for line in separation_table(rows).to_dicts()}
        assert (found["too little data"]["least likely change"], found["too little data"]["wrong"]) == (
            "1.00 ± 0.00",
            "2",
        )
        assert found["hidden confounder"]["least likely change"] == "0.00 ± 0.00"
        assert found["hidden confounder"]["farthest state (percentile)"] == "0.50 ± 0.00"
        assert found["misspecified"]["least likely change"] == "-"

    def test_limits_in_use_are_those_that_warn(self) -> None:
        rows = table(
            seed=[0, 1, 2, 3],
            true=[-1.0, -1.0, 1.5, 1.5],
            least_support=[Thresholds().unlikely / 2, 0.2, Thresholds().unlikely, 0.2],
            verdict=["pass", "warn", "pass", "pass"],
            undone_by=[None, None, None, Thresholds().influence / 2],
        )
        found = {line["signal"]: line for line in limits_in_use_table(rows).to_dicts()}
        assert len(found) == len(LIMITS_IN_USE) + 2
        assert found["least likely change"]["caught %"][:3] == "50 "
        assert found["least likely change"]["false alarms %"][:3] == "0 ("
        assert found["verdict of the check"]["caught %"][:3] == "50 "
        assert found["influence that undoes it"]["false alarms %"][:3] == "50 "
        assert found["any about the answer"]["caught %"][:3] == "50 "
        assert found[TOGETHER]["caught %"].startswith("100 ")


@pytest.mark.parametrize("scenario", ["misspecified", "confounded"])
def test_a_recommendation_is_judged_by_the_world_that_knows_all(
    scenario: str, laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a cell calls true is what the complete stay gives when its recommendation is replayed."""
    settings = small("warnings", patients=2)
    assert isinstance(settings, StudySettings)
    cell = settings.cell(SCENARIOS[scenario], 4)
    asked: list[tuple[str, list[int]]] = []

    def solve_and_tell(problem: Problem, *arguments: object, **more: object) -> object:
        result = solve(problem, *arguments, **more)
        asked.append((problem.episode.id, result.actions.tolist()))
        return result

    monkeypatch.setattr("paper.asking.solve", solve_and_tell)
    row = cell.measure(laboratory)
    world = SepsisWorld(SCENARIOS[scenario].world)
    clinician = SCENARIOS[scenario].clinician
    complete = simulate_cohort(cell.held_out, seed=9, horizon=cell.steps, world=world, clinician=clinician)
    assert row["verdict"] in VERDICTS
    for found, (episode, actions) in zip(row["recommendations"], asked[::2], strict=True):
        truth = Question(cell.max_changes).problem(complete[episode], world)
        assert found["true"] == pytest.approx(truth.outcome(actions) - truth.observed_outcome)
        assert found["attainable"] >= found["true"] - 1e-9
        assert found["promised"] >= 0
    assert study_table([(cell, row)])["seed"].to_list() == [4, 4]
