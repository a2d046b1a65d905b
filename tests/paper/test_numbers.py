"""The numbers of the tables: what was measured, nothing above the optimum, limits shown as such."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import polars as pl
import pytest
import torch
from paper.asking import Question
from paper.bench import Bench, Row
from paper.catalogue import EXPERIMENTS
from paper.estimates import Estimate, Percentage
from paper.experiment import carry_out
from paper.laboratory import Laboratory
from paper.likelihood import FoldCell
from paper.solves import (
    COLUMNS,
    OURS,
    PAPERS,
    AnchorPlan,
    SolveCell,
    choose_points,
    estimate,
    facility_anchors,
    require_agreement,
)
from small_experiments import TINY, small

from ifonly.bounds.anchors import FacilityLocation, MonteCarlo
from ifonly.errors import VerificationError
from ifonly.models.crossval import CrossValidationPlan, cross_validate
from ifonly.models.location_scale import LocationScale
from ifonly.problem import Problem
from ifonly.result.table import to_row
from ifonly.search.astar import AnchorAStar
from ifonly.search.solve import solve

LIMITS = (1.0, 0.1)


@pytest.fixture
def bench(common_laboratory: Laboratory) -> Iterator[Bench]:
    with Bench(common_laboratory) as bench:
        bench.fit_models([LIMITS])
        yield bench


def asked_problem(laboratory: Laboratory, number: int, max_changes: int) -> Problem:
    episode = laboratory.cohort()[laboratory.patients(None)[number]]
    return Question(max_changes, laboratory.reward).problem(episode, laboratory.load_model(LIMITS))


def test_estimates() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, 400)
    found = Estimate.of([*values, None])
    assert (found.count, found.mean) == (400, pytest.approx(values.mean()))
    assert found.interval is not None
    margin = 1.966 * values.std(ddof=1) / 20
    assert found.interval == pytest.approx((values.mean() - margin, values.mean() + margin), abs=1e-4)
    assert found.show() == f"{values.mean():.2f} ± {margin:.2f}"
    assert Estimate.of([2.0, None]) == Estimate(1, 2.0, None)
    assert Estimate.of([2.0], at_least=True).show() == "≥ 2.00"
    assert Estimate.of([None]).count == 0
    assert math.isnan(Estimate.of([]).mean)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    found = [Estimate.of(rng.exponential(1.0, 200)) for _ in range(1000)]
    covered = sum(one.interval is not None and one.interval.low <= 1.0 <= one.interval.high for one in found)
    assert 920 <= covered <= 970


def test_shares_of_few_patients_are_not_certain() -> None:
    assert Percentage.of([True, True, True, None]).show("{:.0f}") == "100 (44 to 100)"
    assert Percentage.of([False]).show("{:.0f}") == "0 (0 to 79)"
    assert Percentage.of([]).show() == "-"
    half = Percentage.of([True, False], at_least=True)
    assert (half.mean, half.show("{:.0f}")) == (50.0, "≥ 50 (9 to 91)")


def test_a_cell_tells_what_solve_tells(bench: Bench) -> None:
    laboratory = bench.laboratory
    episode = laboratory.patients(None)[2]
    cell = SolveCell(episode, PAPERS, LIMITS, 2, AnchorPlan(samples=30))
    row = bench.measure([cell], "test")[cell]
    problem = asked_problem(laboratory, 2, 2)
    result = solve(problem, AnchorAStar(anchors=MonteCarlo(samples=30), seed=TINY.seed))
    expected = to_row(result) | {"nodes": result.stats.nodes_expanded}
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


def test_brackets_begin_at_the_best_that_is_known(make_bench: Callable[..., Bench]) -> None:
    limited = make_bench()
    known = carry_out(EXPERIMENTS["fig3a"], small("fig3a", seconds=0.0), limited).table
    assert not known.filter(pl.col("value") == 2)["status"].is_in(["optimal"]).any()
    for row in known.iter_rows(named=True):
        beams = [SolveCell(row["episode"], "beam", LIMITS, k, seconds=0.0) for k in range(row["max_changes"] + 1)]
        best = max(found["outcome"] for found in limited.measure(beams, "test").values())
        assert row["outcome"] >= best
    assert known["outcome"].is_not_null().all()
    for _, part in known.sort("value").group_by("episode", maintain_order=True):
        assert part["outcome"].is_sorted()


def solved(outcome: float, status: str, upper_bound: float | None) -> Row:
    """The row of a solve in which one of the patient's scores is clipped."""
    row = dict.fromkeys(COLUMNS) | {"status": status, "outcome": outcome, "upper_bound": upper_bound}
    return row | {"observed_outcome": -100.0, "observed_clipped_outcome": -90.0, "clipped_outcome": outcome + 10.0}


def test_what_another_solver_or_fewer_changes_found_is_taken_where_nothing_is_proven(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {
        (0, "beam"): solved(-100.0, "heuristic", None),
        (0, OURS): solved(-100.0, "optimal", -100.0),
        (1, "beam"): solved(-80.0, "heuristic", None) | {"changes": 1},
        (1, OURS): solved(-85.0, "time limit", -70.0),
        (2, "beam"): solved(-82.0, "heuristic", None) | {"changes": 2},
        (2, OURS): solved(-84.0, "time limit", None),
    }
    monkeypatch.setattr(SolveCell, "measure", lambda cell, _: answers[cell.max_changes, cell.solver])
    monkeypatch.setattr(Bench, "_prepare", lambda *_: None)
    table = carry_out(EXPERIMENTS["fig3a"], small("fig3a", patients=1), make_bench()).table
    assert table["solver"].unique().to_list() == [OURS]
    assert table["outcome"].to_list() == [-100.0, -80.0, -80.0]
    assert table["clipped_outcome"].to_list() == [-90.0, -70.0, -70.0]
    assert table["changes"].to_list() == [None, 1, 1]
    assert table["status"].to_list() == ["optimal", "time limit", "time limit"]
    assert table["upper_bound"].to_list() == [-100.0, -70.0, None]
    assert table["improvement"].to_list() == pytest.approx([0.0, 20 / 90, 20 / 90])
    assert table["upper_improvement"].to_list() == [0.0, pytest.approx(30 / 90), None]


def improved(*improvements: float) -> pl.DataFrame:
    """A table of fig3a for one change, as far as its figure goes."""
    patients = [f"patient-{number}" for number in range(len(improvements))]
    columns = {"value": 1.0, "episode": patients, "status": "optimal", "improvement": improvements}
    return pl.DataFrame(columns).with_columns(upper_improvement="improvement")


def test_intervals_below_zero_are_not_cut_off() -> None:
    panel = EXPERIMENTS["fig3a"].plot(improved(-0.01, 0.02, 0.03)).axes[0]
    low = Estimate.of([-1.0, 2.0, 3.0]).interval
    assert low is not None
    assert panel.get_ylim()[0] < low.low < 0
    assert EXPERIMENTS["fig3a"].plot(improved(0.02, 0.02, 0.03)).axes[0].get_ylim()[0] == 0.0
    assert EXPERIMENTS["fig3a"].plot(improved(-1e-17, 0.0)).axes[0].get_ylim()[0] == 0.0


def test_one_patient_has_no_interval_in_a_figure() -> None:
    assert not EXPERIMENTS["fig3a"].plot(improved(0.02)).axes[0].containers
    assert EXPERIMENTS["fig3a"].plot(improved(0.02, 0.03)).axes[0].containers


@pytest.mark.parametrize("name", ["fig2a", "fig2b", "fig2c", "fig3a", "fig4", "baselines"])
def test_figures_say_how_many_patients_there_are(name: str, bench: Bench) -> None:
    experiment = EXPERIMENTS[name]
    table = carry_out(experiment, small(name), bench).table
    for panel in [panel for panel in experiment.plot(table).axes if panel.get_xlabel()]:
        assert panel.get_xlabel().endswith("\n(2 patients)")
    last = (pl.col("value") == table["value"].max()) & (pl.col("episode") == table["episode"][0])
    assert experiment.plot(table.filter(~last)).axes[0].get_xlabel().endswith("\n(1 to 2 patients)")


def test_shares_of_patients_are_drawn_with_their_intervals(bench: Bench) -> None:
    experiment = EXPERIMENTS["baselines"]
    table = carry_out(experiment, small("baselines"), bench).table.with_columns(reached=True)
    right = experiment.plot(table).axes[1]
    ends = [container.lines[2][0].get_segments()[0][:, 1] for container in right.containers]  # type: ignore[attr-defined]
    assert len(ends) == 8
    for low, high in ends:
        assert (low, high) == pytest.approx((34.2, 100.0), abs=0.1)
    assert experiment.summary(table)["optimum found (%)"].to_list() == ["100 (34 to 100)"] * 12
    assert all("optimal for 100 (34 to 100) % of the patients" in words for words in experiment.findings(table))


def test_an_unfinished_distribution_says_so(bench: Bench) -> None:
    experiment = EXPERIMENTS["fig3b"]
    table = carry_out(experiment, small("fig3b"), bench).table
    assert table["expected"].to_list() == [5] * 5
    assert "finished" not in " ".join(experiment.findings(table))
    part = table[:3]
    assert experiment.plot(part).axes[0].get_title(loc="left").startswith("unfinished: 3 of 5 episodes, longest first")
    assert "not averages of the cohort" in " ".join(experiment.findings(part))


def test_unproven_optima_are_brackets(make_bench: Callable[..., Bench]) -> None:
    experiment = EXPERIMENTS["baselines"]
    done = carry_out(experiment, small("baselines", seconds=0.0, max_changes=(2,)), make_bench())
    assert not done.table["proven"].any()
    assert (done.table["best"] >= done.table["outcome"]).all()
    words = experiment.summary(done.table)
    assert words["share of the improvement (%)"].str.contains("at most| to ").all()
    assert words["optimum found (%)"].str.starts_with("at most").all()
    assert experiment.findings(done.table) == ["No budget has a proven optimum for every patient."]


def test_facility_locations_are_chosen_once_for_all_sizes(bench: Bench) -> None:
    laboratory = bench.laboratory
    choose_points(laboratory, LIMITS, 16, "cpu")
    problem = asked_problem(laboratory, 3, 1)
    for size in (5, 16):
        strategy = FacilityLocation(size=size, pool=laboratory.cohort().states)
        generators = [torch.Generator().manual_seed(TINY.seed) for _ in range(2)]
        expected = strategy.choose(problem, torch.empty(0), generators[0])
        found = facility_anchors(laboratory, LIMITS, size=size, of=16).choose(problem, torch.empty(0), generators[1])
        for one, other in zip(expected.points, found.points, strict=True):
            assert torch.equal(one, other)


def test_likelihoods_are_those_of_cross_validation(bench: Bench) -> None:
    laboratory = bench.laboratory
    cells = [FoldCell((None, LIMITS), fold, 2) for fold in range(2)]
    rows = bench.measure(cells, "test")
    plan = CrossValidationPlan(grid=[LIMITS], folds=2, seed=TINY.seed, fit=laboratory.fit_settings())
    expected = cross_validate(LocationScale(laboratory.cohort().schema, hidden=TINY.hidden), laboratory.cohort(), plan)
    for number, row in enumerate(expected.rows):
        found = [rows[cell]["log_likelihoods"][number] for cell in cells]
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
    assert case.filter(pl.col("arrows") != "")["step"].to_list() == chosen["evidence"]["changed_steps"]
    assert -case["counterfactual"].sum() == pytest.approx(chosen["clipped_outcome"])
    assert -case["observed"].sum() == pytest.approx(chosen["observed_clipped_outcome"])
