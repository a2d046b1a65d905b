"""Rewards of features on bounded and logarithmic scales: derivatives, bounds above the truth, finite and close."""

import itertools
import math

import numpy as np
import pytest
import torch
from effort import some

from ifonly import Limits, solve
from ifonly.bounds.taylor import TaylorChildBound, can_expand
from ifonly.data import ActionSpace, Feature, Scaler, Schema
from ifonly.problem import Problem
from ifonly.rewards import Hinge, Linear, PiecewiseLinear
from ifonly.rewards.decoding import Decoder
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import Exhaustive
from ifonly.testing import check_child_bound
from ifonly.testing.instances import random_problem

SCALINGS = ("bounded", "log", "mixed")
REWARDS = ("linear", "penalties", "with action costs")


def curved_problem(seed: int, scaling: str, **changes: object) -> Problem:
    """A random problem whose features are not on a linear scale."""
    settings = {"reward_kind": REWARDS[seed % 3], "max_changes": 2, "horizon": 5, "state_size": 1 + seed % 3}
    return random_problem(seed, scaling=scaling, **{**settings, **changes})


def decoder_of(margin: float = 0.05) -> Decoder:
    schema = Schema(
        (
            Feature("score", "dynamic", scaling="bounded", plausible=(0, 4), margin=margin),
            Feature("lactate", "dynamic", scaling="log", log_offset=0.5),
            Feature("MAP", "dynamic"),
        ),
        ActionSpace.categories(["wait", "treat"]),
    )
    return Decoder.of(Scaler.identity(schema).states, "cpu")


@pytest.mark.parametrize(("both_sides", "beyond"), [(False, 0.0), (False, 0.3), (True, 0.0)])
def test_expansions_are_never_below_the_reward(both_sides: bool, beyond: float) -> None:
    """Third-order expansion plus (T57) and (T60), by the definition of each, against the values themselves; around
    states that may lie beyond the ends, too."""
    decoder = decoder_of()
    rng = np.random.default_rng(0)
    for _ in range(40):
        score = rng.choice([-3.0, -2.9, 0.0, 1.0, 3.04])  # the coordinates of 0 and 4 are about -3.04 and 3.04
        lowest = 0.501 if both_sides else 0.5  # at 0 itself both-sided remainders are infinite
        lactate = rng.choice([np.log(lowest), np.log(0.51), rng.normal() + 1])
        states = torch.tensor([[np.clip(score, *np.log([0.2 / 4.2, 4.2 / 0.2])), lactate, rng.normal()]])
        states[:, :2] += beyond * torch.tensor([np.sign(score), -rng.random()])
        weights = torch.tensor(rng.normal(size=(1, 3)))
        curve = decoder.expand(states, weights, both_sides=both_sides)
        z = torch.tensor(rng.normal(size=(4000, 3)) * rng.choice([0.01, 0.3, 1, 4], size=(4000, 1)))
        truth = (decoder(states + z) * weights).sum(1)
        reach = z.norm(dim=1)
        grown = (curve.growth[:, 0] * reach).exp()
        second = (curve.slope * z + curve.curvature * z**2 / 2).sum(1) + (decoder(states) * weights).sum()
        third = second + (curve.third * z**3 / 6).sum(1)
        cut = (curve.cut.clamp(max=1e9) * z.abs() ** 3).sum(1)
        by_fourth = ((curve.quartic + curve.growing * grown[:, None]) * z**4 / 24).sum(1) + cut
        by_third = (curve.third_bound * z.abs() ** 3).sum(1) * grown / 6 + cut
        for expansion, remainder in ((third, by_fourth), (second, by_third)):
            assert (truth <= expansion + remainder + curve.offset + 1e-9).all()
            if both_sides:
                assert float(curve.offset.max()) == 0
                assert (truth >= expansion - remainder - 1e-9).all()


def test_the_decoder_is_the_scaler_s_inverse_and_knows_its_extremes() -> None:
    decoder = decoder_of(margin=0.01)
    states = torch.linspace(-30, 30, 1001).unsqueeze(1).expand(-1, 3).double()
    values = decoder(states)
    assert values[:, 0].min() == 0
    assert values[:, 0].max() == 4
    assert decoder.largest(torch.tensor([2.0, 0.0, 0.0])) == 8
    assert values[:, 1].min() == 0
    assert decoder.largest(torch.tensor([-1.0, -1.0, 0.0])) == 0  # neither can be negative
    assert decoder.largest(torch.tensor([0.0, 1.0, 0.0])) == math.inf
    slopes = values.diff(dim=0) / states.diff(dim=0)
    assert (slopes[:, 0] <= decoder.steepest()[0]).all()
    assert slopes[:, 0].max() > 0.99 * decoder.steepest()[0]
    assert decoder.steepest()[1] == math.inf


@pytest.mark.parametrize("scaling", SCALINGS)
def test_child_bounds_are_above_enumerated_outcomes(scaling: str) -> None:
    kinds = ("location-scale", "additive", "linear")
    checked = 0
    for seed in range(some(14)):
        strength = (0.5, 2.0)[seed % 2]
        problem = curved_problem(seed, scaling, model_kind=kinds[seed // 3 % 3], strength=strength)
        if can_expand(problem):
            check_child_bound(TaylorChildBound([problem]), [problem])
            checked += 1
    assert checked >= some(8)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_bounds_are_finite_and_close(scaling: str) -> None:
    """At the root, for two changes: within the improvement itself for most, infinite for next to none."""
    shares = []
    for seed in range(16):
        kind = ("location-scale", "additive")[seed % 2]
        problem = curved_problem(
            seed, scaling, reward_kind="linear", model_kind=kind, strength=0.7, constrained=True, state_size=3
        )
        if not can_expand(problem):
            continue
        bound = float(TaylorChildBound([problem]).root().amax())
        best = solve(problem, solver=Exhaustive()).outcome
        shares.append((bound - best) / (best - problem.observed_outcome + 1e-9))
    assert len(shares) >= 8
    assert np.mean(np.isfinite(shares)) > 0.9
    assert np.median(shares) < 1


@pytest.mark.parametrize("scaling", SCALINGS)
def test_branch_and_bound_equals_enumeration(scaling: str) -> None:
    """With rules and without, under the Taylor bound: the same outcome, never above what the ranges allow."""
    for seed in range(some(240, one_in=40)):
        problem = curved_problem(seed, scaling, max_changes=3, actions=3, rules=(False, None)[seed % 2])
        bound = "taylor" if can_expand(problem) else "auto"
        found, truth = solve(problem, solver=BranchAndBound(bound=bound)), solve(problem, solver=Exhaustive())
        assert found.status == truth.status, (scaling, seed)
        assert found.outcome == pytest.approx(truth.outcome, rel=1e-9, abs=2 * problem.tolerance), (scaling, seed)
        assert found.outcome <= problem.largest_outcome


def test_no_state_outcome_or_bracket_leaves_the_range() -> None:
    """A search that is stopped at once knows of no bound, or of one within what the ranges allow: they alone are none,
    unless they leave less open than was gained."""
    for seed in range(12):
        problem = curved_problem(seed, "bounded", reward_kind="linear", max_changes=None, horizon=6)
        result = solve(problem, solver=BranchAndBound(bound="none"), limits=Limits(nodes=1))
        assert problem.plausible_outcome <= problem.largest_outcome < math.inf
        is_trivial = problem.plausible_outcome - result.outcome > max(result.improvement, problem.tolerance)
        if is_trivial:
            assert result.upper_bound == math.inf or result.upper_bound < problem.plausible_outcome
        else:
            assert result.upper_bound <= problem.largest_outcome
        sequences = torch.tensor(list(itertools.islice(itertools.product(range(3), repeat=6), 200)))
        values = problem.decode(problem.rollout(sequences)[0])
        low, high = np.array([feature.plausible for feature in problem.episode.schema.dynamic]).T
        assert (values >= low).all()
        assert (values <= high).all()


def test_hinges_of_bounded_features_are_continued_above() -> None:
    """A penalty below a threshold of a bounded feature leads the Taylor bound, as it does on a linear scale."""
    problem = curved_problem(4, "bounded", model_kind="additive", reward_kind="linear", state_size=1)
    reward = PiecewiseLinear((Hinge(-2.0, {"state 0": -1.0}, 0.3),)) + Linear({"state 0": 0.1})
    hinged = Problem.from_episode(problem.episode, problem.model, problem.query.with_changes(reward=reward))
    assert can_expand(hinged)
    check_child_bound(TaylorChildBound([hinged]), [hinged])
