"""The numbers of the tables: what was measured, nothing above the optimum, limits shown as such."""

import math

import numpy as np
import polars as pl
import pytest
import torch
from small_experiments import TINY, small

from ifonly.bounds.anchors import FacilityLocation, MonteCarlo
from ifonly.errors import VerificationError
from ifonly.experiments.catalogue import EXPERIMENTS
from ifonly.experiments.cells import OURS, PAPERS, AnchorPlan, FoldCell, SolveCell
from ifonly.experiments.estimates import Estimate
from ifonly.experiments.facility import choose_points, facility_anchors
from ifonly.experiments.folder import carry_out
from ifonly.experiments.laboratory import Laboratory
from ifonly.experiments.runner import Bench
from ifonly.experiments.solves import estimate, require_agreement
from ifonly.models.crossval import CrossValidationPlan, cross_validate
from ifonly.models.location_scale import LocationScale
from ifonly.problem import Problem
from ifonly.runs.rows import row_of
from ifonly.search.astar import AnchorAStar
from ifonly.search.solve import solve

LIMITS = (1.0, 0.1)


@pytest.fixture
def bench(common_laboratory: Laboratory) -> Bench:
    bench = Bench(common_laboratory)
    bench.fit_models([LIMITS])
    return bench


def question(laboratory: Laboratory, number: int, max_changes: int) -> Problem:
    episode = laboratory.cohort()[laboratory.patients(None)[number]]
    return Problem.from_episode(episode, laboratory.load_model(LIMITS), laboratory.reward, max_changes)


def test_estimates() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, 400)
    found = Estimate.of([*values, None])
    assert (found.count, found.mean) == (400, pytest.approx(values.mean()))
    assert found.half_width == pytest.approx(1.96 * values.std(ddof=1) / 20)
    assert Estimate.of([2.0]).half_width == 0.0
    assert Estimate.of([None]).count == 0
    assert math.isnan(Estimate.of([]).mean)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    found = [Estimate.of(rng.exponential(1.0, 200)) for _ in range(1000)]
    covered = sum(abs(one.mean - 1.0) <= one.half_width for one in found)
    assert 920 <= covered <= 970


def test_a_cell_tells_what_solve_tells(bench: Bench) -> None:
    laboratory = bench.laboratory
    episode = laboratory.patients(None)[2]
    cell = SolveCell(episode, PAPERS, LIMITS, 2, AnchorPlan(samples=30))
    row = bench.measure([cell], "test")[cell]
    problem = question(laboratory, 2, 2)
    result = solve(problem, AnchorAStar(anchors=MonteCarlo(samples=30), seed=TINY.seed))
    expected = row_of(problem, result)
    for name in ("status", "outcome", "upper_bound", "clipped_outcome", "observed_clipped_outcome", "nodes", "changes"):
        assert row[name] == expected[name], name
    assert row["branching_factor"] == result.stats.effective_branching_factor
    assert row["visited"] == result.stats.nodes_visited


def test_a_limit_gives_lower_bounds(bench: Bench) -> None:
    episode = bench.laboratory.patients(None)[0]
    free, limited = (
        SolveCell(episode, PAPERS, LIMITS, 3, AnchorPlan(samples=1), seconds=seconds) for seconds in (None, 0.0)
    )
    rows = bench.measure([free, limited], "test")
    assert rows[limited]["status"] == "time limit"
    assert 1.0 <= rows[limited]["branching_factor"] <= rows[free]["branching_factor"]
    assert rows[limited]["visited"] <= rows[free]["visited"]
    table = pl.DataFrame([rows[free], rows[limited]])
    assert estimate(table, "branching_factor").show().startswith("≥ ")
    assert not estimate(table[:1], "branching_factor").at_least


def test_contradictions_are_never_silent(bench: Bench) -> None:
    episode = bench.laboratory.patients(None)[0]
    cells = [SolveCell(episode, OURS, LIMITS, 1), SolveCell(episode, PAPERS, LIMITS, 1, AnchorPlan(samples=10))]
    rows = bench.measure(cells, "test")
    require_agreement(rows)
    for change in (1e-6, -1e-6):
        wrong = {**rows[cells[1]], "outcome": rows[cells[1]]["outcome"] + change}
        wrong["upper_bound"] = wrong["outcome"]
        with pytest.raises(VerificationError, match=r"at most 1 changes.*wrong"):
            require_agreement({**rows, cells[1]: wrong})
    # An answer that stopped at a limit may be worse than another, not better than what another proved.
    worse = {**rows[cells[1]], "outcome": rows[cells[1]]["outcome"] - 1.0, "status": "time limit", "upper_bound": None}
    require_agreement({**rows, cells[1]: worse})


def test_efficiency_tables_pair_the_solvers(bench: Bench) -> None:
    table = carry_out(EXPERIMENTS["fig2c"], small("fig2c"), bench).table
    pairs = table.pivot("solver", index=["episode", "value"], values="outcome")
    assert len(pairs) == 6
    assert np.allclose(pairs[OURS], pairs[PAPERS], rtol=1e-9, atol=0)
    assert table.filter(pl.col("solver") == PAPERS)["branching_factor"].min() >= 1.0
    assert table.filter((pl.col("value") == 0) & (pl.col("solver") == PAPERS))["branching_factor"].max() == 1.0


def test_improvement_is_relative_and_grows_with_the_budget(bench: Bench) -> None:
    table = carry_out(EXPERIMENTS["fig3a"], small("fig3a"), bench).table.sort("episode", "max_changes")
    for _, part in table.group_by("episode"):
        assert part["outcome"].is_sorted()
        assert part["improvement"][0] == 0.0
    row = table.row(-1, named=True)
    gain = row["clipped_outcome"] - row["observed_clipped_outcome"]
    assert row["improvement"] == row["upper_improvement"] == pytest.approx(gain / abs(row["observed_clipped_outcome"]))


def test_heuristics_never_exceed_the_optimum(bench: Bench) -> None:
    table = carry_out(EXPERIMENTS["baselines"], small("baselines"), bench).table
    assert len(table) == 2 * 3 * 4
    assert table["proven"].all()
    assert (table["outcome"] <= table["best"] + 1e-9 * table["best"].abs()).all()
    assert table["share"].is_between(0, 1).all()
    assert (table["reached"] == (table["shortfall"] <= 1e-9 * table["best"].abs())).all()
    # With one change greedy looks at all that there is.
    assert table.filter((pl.col("value") <= 1) & (pl.col("heuristic") == "greedy"))["reached"].all()


def test_brackets_begin_at_the_best_that_is_known(laboratory: Laboratory) -> None:
    known = carry_out(EXPERIMENTS["fig3a"], small("fig3a", seconds=0.0), Bench(laboratory)).table
    assert not known.filter(pl.col("value") == 2)["status"].is_in(["optimal"]).any()
    limited = Bench(laboratory)
    for row in known.iter_rows(named=True):
        beams = [SolveCell(row["episode"], "beam", LIMITS, k, seconds=0.0) for k in range(row["max_changes"] + 1)]
        best = max(found["outcome"] for found in limited.measure(beams, "test").values())
        assert row["outcome"] >= best
    assert known["outcome"].is_not_null().all()
    for _, part in known.sort("value").group_by("episode", maintain_order=True):
        assert part["outcome"].is_sorted()


def test_unproven_optima_are_brackets(laboratory: Laboratory) -> None:
    experiment = EXPERIMENTS["baselines"]
    done = carry_out(experiment, small("baselines", seconds=0.0, max_changes=(2,)), Bench(laboratory))
    assert not done.table["proven"].any()
    assert (done.table["best"] >= done.table["outcome"]).all()
    words = experiment.summary(done.table)
    assert words["share of the improvement (%)"].str.contains("at most| to ").all()
    assert words["optimum found (%)"].str.starts_with("at most").all()
    assert experiment.findings(done.table) == ["No budget has a proven optimum for every patient."]


def test_facility_locations_are_chosen_once_for_all_sizes(bench: Bench) -> None:
    laboratory = bench.laboratory
    choose_points(laboratory, LIMITS, 16, "cpu")
    problem = question(laboratory, 3, 1)
    for size in (5, 16):
        strategy = FacilityLocation(size=size, pool=laboratory.cohort().states)
        generators = [torch.Generator().manual_seed(TINY.seed) for _ in range(2)]
        expected = strategy.choose(problem, torch.empty(0), generators[0])
        found = facility_anchors(laboratory, LIMITS, size=size, of=16).choose(problem, torch.empty(0), generators[1])
        for one, other in zip(expected.points, found.points, strict=True):
            assert torch.equal(one, other)


def test_likelihoods_are_those_of_cross_validation(bench: Bench) -> None:
    laboratory = bench.laboratory
    cells = [FoldCell(limits, fold, 2) for limits in (None, LIMITS) for fold in range(2)]
    rows = bench.measure(cells, "test")
    plan = CrossValidationPlan(grid=[LIMITS], folds=2, seed=TINY.seed, fit=laboratory.fit_settings())
    expected = cross_validate(LocationScale(laboratory.cohort().schema, hidden=TINY.hidden), laboratory.cohort(), plan)
    for row, limits in zip(expected.rows, (None, LIMITS), strict=True):
        found = [rows[FoldCell(limits, fold, 2)]["log_likelihood"] for fold in range(2)]
        assert found == pytest.approx(row.log_likelihoods, rel=1e-6)
    table = carry_out(EXPERIMENTS["fig5"], small("fig5"), bench).table
    at_one = table.filter((pl.col("location") == 1.0) & (pl.col("scale") == 0.1)).row(0, named=True)
    assert at_one["decrease"] == pytest.approx(expected.row(LIMITS).decrease, rel=1e-5)
    assert table.row(0, named=True)["decrease"] == 0.0


def test_the_case_shown_is_the_one_that_improves_most(bench: Bench) -> None:
    everyone = carry_out(EXPERIMENTS["fig3b"], small("fig3b"), bench).table
    case = carry_out(EXPERIMENTS["fig3c"], small("fig3c"), bench).table
    relative = (everyone["clipped_outcome"] - everyone["observed_clipped_outcome"]) / everyone[
        "observed_clipped_outcome"
    ].abs()
    assert case["improvement"][0] == pytest.approx(relative.max())
    chosen = everyone.row(int(relative.arg_max()), named=True)
    assert case.filter(pl.col("arrows") != "")["step"].to_list() == chosen["changed_steps"]
    assert -case["counterfactual"].sum() == pytest.approx(chosen["clipped_outcome"])
    assert -case["observed"].sum() == pytest.approx(chosen["observed_clipped_outcome"])
