"""Steps without alternatives leave the Taylor bound finite and close: a rule makes a search smaller, never larger."""

import pytest
import torch
from effort import some
from smooth_problems import full_size_problem, smooth_problems
from taylor_oracles import excess, future_excess, moved

from ifonly.bounds import MonteCarlo
from ifonly.bounds.lipschitz import LipschitzChildBound
from ifonly.bounds.members import EnsembleChildBound
from ifonly.bounds.taylor import TaylorChildBound
from ifonly.constraints import Constraints
from ifonly.objective import Objective
from ifonly.problem import Problem
from ifonly.result import Status
from ifonly.search.batch import solve_batch
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.solve import solve
from ifonly.testing import check_child_bound

WAYS = ("fixed", "locked", "forbidden", "pinned", "masked")
HORIZON = 5
CLOSE = 1e-3


def with_step_kept(problem: Problem, way: str, step: int) -> Problem:
    """The recorded action is all that is left at `step`, by one kind of rule or another."""
    recorded = int(problem.observed_actions[step])
    others = [action for action in range(problem.action_count) if action != recorded]
    if way == "masked":
        allowed = torch.ones(problem.horizon, problem.action_count, dtype=torch.bool)
        allowed[step, others] = False
        return problem.with_constraints(Constraints().restricted_to(allowed.numpy(), problem.episode))
    rules = {
        "fixed": Constraints(last_action_fixed=True),
        "locked": Constraints(locked=[step]),
        "forbidden": Constraints(forbidden={step: others}),
        "pinned": Constraints(required={step: recorded}),
    }
    return problem.with_constraints(rules[way])


def with_last_kept(problem: Problem, way: str) -> Problem:
    return with_step_kept(problem, way, problem.horizon - 1)


RULES = [(way, step) for way in WAYS for step in range(HORIZON) if way != "fixed" or step == HORIZON - 1]


@pytest.mark.parametrize(("way", "step"), RULES)
def test_close_to_the_truth_where_changes_do_little(way: str, step: int) -> None:
    settings = {"strength": 0.2, "constrained": False, "horizon": HORIZON, "actions": 3, "max_changes": 3}
    for number, kind in enumerate(("location-scale", "additive")):
        (problem,) = smooth_problems(1, start=400 + step, model_kind=kind, rules=False, masked=False, **settings)
        kept = with_step_kept(problem, way, step)
        bound = TaylorChildBound([kept])
        start = moved(kept, 0, torch.zeros_like(kept.observed_states[:1]))
        assert float(excess(kept, bound.root(), start).max()) < CLOSE
        for t in range(1, kept.horizon):
            assert float(future_excess(kept, bound, t, kept.observed_states[t : t + 1]).max()) < CLOSE
        check_child_bound(bound, [kept], samples=2, seed=number)


@pytest.mark.parametrize(("way", "step"), RULES)
def test_anchors_and_ensembles_stay_known(way: str, step: int) -> None:
    """A rule takes changes away; what is left is known as well as without it."""
    settings = {"horizon": HORIZON, "actions": 3, "max_changes": 3, "constrained": True, "masked": False}
    for problem in smooth_problems(2, start=900, model_kind="location-scale", rules=False, **settings):
        kept = with_step_kept(problem, way, step)
        anchors, mean = MonteCarlo(samples=20), Objective("mean")
        pairs = {
            "anchors": [LipschitzChildBound([one], anchors=anchors).root() for one in (problem, kept)],
            "members": [EnsembleChildBound(mean, [TaylorChildBound([one])] * 2).root() for one in (problem, kept)],
        }
        left = kept.allowed.scatter(1, kept.observed_actions.unsqueeze(1), False)
        for name, (free, ruled) in pairs.items():
            assert free[..., left].isfinite().all(), name
            assert ruled[..., left].isfinite().all(), name
            assert (ruled[..., ~left] == -torch.inf).all(), name
        free, ruled = pairs["members"]
        assert step < HORIZON - 1 or (ruled <= free).all()


@pytest.mark.parametrize("way", WAYS)
def test_no_larger_than_with_the_last_step_free(way: str) -> None:
    settings = {"horizon": 4, "actions": 3, "max_changes": 3, "masked": False, "rules": False}
    for problem in smooth_problems(some(12), start=700, **settings):
        free, kept = (TaylorChildBound([one]).root() for one in (problem, with_last_kept(problem, way)))
        assert (kept <= free).all()


@pytest.mark.parametrize("strength", [0.5, 2.0, 8.0])
def test_what_cannot_be_changed_any_more_adds_nothing_unknown(strength: float) -> None:
    """However far a first change leads: if no other may follow, more changes are no less known than none."""
    known = 0
    for problem in smooth_problems(
        12, start=int(500 * strength), strength=strength, horizon=5, actions=3, max_changes=3, masked=False, rules=False
    ):
        kept = problem.with_constraints(Constraints(locked=range(1, 5)))
        bound = TaylorChildBound([kept])
        none, one = bound.root()[0, :2, 0]
        assert not (none.isfinite() & one.isinf()).any()
        reached = kept.step(0, kept.observed_states[:1].expand(3, -1), torch.arange(3))
        none, one = bound.reward_to_go(1, torch.zeros(3, dtype=torch.int64), reached, 1).unbind(1)
        assert not (none.isfinite() & one.isinf()).any()
        known += int(none.isfinite().sum())
    assert known > 12


@pytest.mark.parametrize("step", range(4))
def test_what_is_unknown_after_a_change_is_infinite(step: int) -> None:
    """NaN would hide what the other tables know."""
    settings = {"strength": 2.0, "horizon": 5, "actions": 3, "max_changes": 3, "masked": False, "rules": False}
    for problem in smooth_problems(some(12), start=1000, **settings):
        after = TaylorChildBound([with_step_kept(problem, "locked", step)]).tables.largest.after_change
        assert after is not None
        assert not after.isnan().any()


def test_the_search_is_as_short_as_without_the_rule_and_as_right() -> None:
    problem = full_size_problem()
    free = solve(problem)
    assert free.stats.nodes_expanded < 20
    kept = [with_last_kept(problem, way) for way in WAYS]
    best = solve(kept[0], Exhaustive()).outcome
    for result in (*map(solve, kept), *solve_batch([problem, *kept])[1:]):
        assert result.certificate.method == TaylorChildBound.method
        assert result.status is Status.OPTIMAL
        assert result.outcome == pytest.approx(best, abs=1e-9)
        assert result.stats.nodes_expanded <= 2 * free.stats.nodes_expanded
    for step in range(problem.horizon):
        result = solve(with_step_kept(problem, "locked", step))
        assert result.stats.nodes_expanded <= 2 * free.stats.nodes_expanded
