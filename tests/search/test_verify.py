"""Verification accepts what is true and refuses every kind of falsehood."""

import math
from dataclasses import replace

import numpy as np
import pytest
from effort import some

from ifonly.bounds import MonteCarlo
from ifonly.errors import InputError, VerificationError
from ifonly.problem import Problem
from ifonly.query import Limits, Query
from ifonly.result import Certificate, ModelReference, Result, Status
from ifonly.rewards import Custom
from ifonly.search.astar import AnchorAStar
from ifonly.search.heuristics import Greedy
from ifonly.search.solve import solve
from ifonly.search.verify import verify
from ifonly.testing.instances import random_problem

SOLVER = AnchorAStar(MonteCarlo(samples=20))


def _solved(seed: int = 2, **settings: object) -> tuple[Problem, Result]:
    problem = random_problem(seed, reward_kind="linear", model_kind="location-scale", **settings)
    return problem, solve(problem, SOLVER)


def _verify(problem: Problem, result: Result, **options: object) -> str:
    return str(verify(result, problem.episode, problem.model, **options))  # type: ignore[arg-type]


def test_true_results_pass_also_after_a_round_trip() -> None:
    for seed in range(some(15)):
        problem = random_problem(seed, max_changes=2)
        reward = problem.reward if problem.reward.to_dict()["kind"] == "custom" else None
        result = Result.from_json(solve(problem, SOLVER).to_json())
        report = verify(result, problem.episode, problem.model, reward=reward)
        assert all(check.holds for check in report.checks)
        assert f"all {problem.sequence_count():,} sequences" in str(report)
        assert report.proof_repeated


def test_heuristic_and_limited_results_pass_for_what_they_claim() -> None:
    problem, _ = _solved(horizon=6, actions=4)
    assert "none is made" in _verify(problem, solve(problem, Greedy()))
    limited = solve(problem, AnchorAStar(MonteCarlo(samples=20), batch=1), limits=Limits(nodes=1))
    assert "bound against greedy search" in _verify(problem, limited)


@pytest.mark.parametrize(
    ("falsify", "complaint"),
    [
        (lambda r: replace(r, outcome=r.outcome + 0.1, upper_bound=r.upper_bound + 0.1), "outcome"),
        (lambda r: replace(r, observed_outcome=r.observed_outcome - 1e-3), "observed outcome"),
        (lambda r: replace(r, states=r.states * 1.001), "states"),
        (lambda r: replace(r, episode="another"), "episode"),
        (lambda r: replace(r, provenance=replace(r.provenance, model=ModelReference("linear", "0" * 16))), "model"),
        (lambda r: replace(r, observed_actions=(r.observed_actions + 1) % 3), "observed actions"),
        (lambda r: replace(r, actions=(r.observed_actions + 1) % 3), "changes"),
        (lambda r: replace(r, actions=r.actions[:-1]), "sequence"),
        (lambda r: replace(r, actions=np.full_like(r.actions, 99)), "sequence"),
        (lambda r: replace(r, upper_bound=r.observed_outcome - 1.0), "bracket"),
        (lambda r: replace(r, upper_bound=r.upper_bound + 1.0), "gap"),
        (lambda r: replace(r, certificate=Certificate("hope", proven=False)), "certificate"),
        (lambda r: replace(r, status=Status.GAP_REACHED, upper_bound=r.upper_bound + 1.0), "gap"),
        (lambda r: replace(r, status=Status.HEURISTIC), "claim of optimality"),
        (lambda r: replace(r, certificate=replace(r.certificate, tolerance=9.0)), "tolerance"),
        (
            lambda r: replace(r, upper_bound=r.upper_bound + 1.0, certificate=replace(r.certificate, tolerance=9.0)),
            "gap",
        ),
        (lambda r: replace(r, status=Status.TIME_LIMIT, upper_bound=r.observed_outcome - 1.0), "bracket"),
        (lambda r: replace(r, clipped_outcome=r.clipped_outcome + 0.1), "outcomes within plausible ranges"),
        (lambda r: replace(r, observed_clipped_outcome=r.outcome), "outcomes within plausible ranges"),
    ],
)
def test_falsehoods_are_named(falsify: object, complaint: str) -> None:
    problem, result = _solved(masked=False)
    assert result.improvement > 0.1
    with pytest.raises(VerificationError, match=complaint):
        _verify(problem, falsify(result))  # type: ignore[operator]


def test_a_worse_sequence_called_optimal_is_refuted() -> None:
    """Everything about it is consistent but the claim: only the rivals can tell."""
    problem, result = _solved(masked=False)
    lazy = solve(problem.with_max_changes(0), SOLVER)
    lie = replace(lazy, provenance=result.provenance)
    with pytest.raises(VerificationError, match="bound against"):
        _verify(problem, lie)
    with pytest.raises(VerificationError, match="bound against all"):
        verify(lie, problem.episode, problem.model, samples=1)


def test_forbidden_actions_are_part_of_the_claim() -> None:
    problem, result = _solved(seed=4, masked=True, horizon=6, max_changes=3)
    step, allowed = next(iter(result.query.constraints.choices.items()))
    forbidden = next(a for a in range(problem.action_count) if a not in allowed)
    actions = result.observed_actions.copy()
    actions[step] = forbidden
    with pytest.raises(VerificationError, match="sequence"):
        _verify(problem, replace(result, actions=actions))


def test_a_custom_reward_must_be_handed_over() -> None:
    base, _ = _solved()
    reward = Custom(lambda states, actions: states[..., 0], 1.0, space="scaled", name="first")
    problem = Problem.from_episode(base.episode, base.model, Query(reward, 1))
    result = solve(problem, SOLVER)
    stored = Result.from_json(result.to_json())
    with pytest.raises((InputError, VerificationError), match="pass reward"):
        _verify(problem, stored)
    assert "verified, by enumerating" in _verify(problem, stored, reward=reward)
    assert "verified, by enumerating" in _verify(problem, result, reward=reward)


def test_unproven_results_have_no_bound() -> None:
    problem, _ = _solved()
    result = solve(problem, Greedy())
    assert math.isinf(result.upper_bound)
    assert result.status is Status.HEURISTIC


def test_says_when_the_proof_was_not_repeated() -> None:
    problem, result = _solved()
    report = verify(result, problem.episode, problem.model, exhaustive_up_to=1)
    assert not report.proof_repeated
    assert "not refuted" in str(report)
    assert "verified, by enumerating" in _verify(problem, result)


def test_an_unproven_finite_bound_is_attacked() -> None:
    problem, result = _solved(masked=False)
    lie = replace(
        solve(problem, Greedy()), status=Status.TIME_LIMIT, upper_bound=result.observed_outcome, outcome=result.outcome
    )
    with pytest.raises(VerificationError, match="bracket"):
        _verify(problem, lie)
