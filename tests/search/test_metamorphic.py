"""What must stay true when a question is put differently, of problems too large to enumerate."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from effort import some

from ifonly.constraints import Constraints
from ifonly.problem import Problem
from ifonly.result import Result, Status
from ifonly.rewards import Linear
from ifonly.search.solve import solve
from ifonly.testing.instances import random_problem

KINDS = ("linear", "additive", "location-scale")
CHANGES = 4


class Asked:
    """A problem of some 20 million sequences, and its answer."""

    def __init__(self, kind: str, seed: int) -> None:
        sizes = {"horizon": 18, "actions": 10, "state_size": 3, "max_changes": CHANGES, "hidden": (8,)}
        self.problem = random_problem(
            seed, model_kind=kind, reward_kind="linear", constrained=True, masked=False, strength=1.0, **sizes
        )
        assert self.problem.sequence_count() > 20_000_000
        self.result = answer(self.problem)
        self.slack = 10 * self.problem.tolerance

    def under(self, **rules: object) -> float:
        return answer(self.problem.with_constraints(Constraints(**rules))).outcome  # type: ignore[arg-type]


def answer(problem: Problem) -> Result:
    result = solve(problem)
    assert result.status is Status.OPTIMAL
    return result


@pytest.fixture(scope="module", params=[(kind, seed) for kind in KINDS for seed in (1, 4)[: some(3)]])
def asked(request: pytest.FixtureRequest) -> Asked:
    return Asked(*request.param)


def test_the_best_has_an_action_at_a_step_or_has_it_not(asked: Asked) -> None:
    best, rng = asked.result, np.random.default_rng(0)
    change = best.changes[0]
    # One that the best sequence makes, and one that it does not: then forbidding it costs nothing.
    unchanged = int(rng.choice([t for t in range(18) if t not in {one.step for one in best.changes}]))
    other = (int(best.observed_actions[unchanged]) + 1 + int(rng.integers(9))) % 10
    for step, action in ((change.step, change.counterfactual), (unchanged, other)):
        made, not_made = asked.under(required={step: action}), asked.under(forbidden={step: [action]})
        assert abs(max(made, not_made) - best.outcome) <= asked.slack
        assert abs((made if step == change.step else not_made) - best.outcome) <= asked.slack


def test_more_changes_never_do_worse_and_budgets_agree(asked: Asked) -> None:
    outcomes = [asked.problem.observed_outcome]
    for budget in range(1, CHANGES):
        result = answer(asked.problem.with_max_changes(budget))
        assert abs(result.outcome - asked.result.frontier[budget].outcome) <= asked.slack
        outcomes.append(result.outcome)
    outcomes.append(asked.result.outcome)
    assert (np.diff(outcomes) >= -asked.slack).all()


def test_more_rules_never_do_better(asked: Asked) -> None:
    steps = [change.step for change in asked.result.changes]
    outcomes = [asked.result.outcome, *(asked.under(locked=steps[:count]) for count in (1, 3))]
    assert (np.diff(outcomes) <= asked.slack).all()
    free = [step for step in range(18) if step not in steps]
    assert abs(asked.under(locked=free) - asked.result.outcome) <= asked.slack, "the best sequence is still admissible"


def test_a_step_with_one_action_is_a_locked_step(asked: Asked) -> None:
    step = asked.result.changes[-1].step
    others = [action for action in range(10) if action != asked.result.observed_actions[step]]
    outcomes = (asked.under(locked=[step]), asked.under(forbidden={step: others}), asked.under(choices={step: []}))
    assert max(outcomes) - min(outcomes) <= asked.slack


def test_names_of_actions_do_not_matter(asked: Asked) -> None:
    problem, order = asked.problem, np.random.default_rng(1).permutation(10)
    model = deepcopy(problem.model)
    names = ("state_matrices", "offsets") if model.kind == "linear" else ("action_vectors",)
    for name in names:
        setattr(model, name, getattr(model, name)[torch.as_tensor(order)])
    episode = replace(problem.episode, actions=np.argsort(order)[problem.episode.actions])
    found = answer(Problem.from_episode(episode, model, problem.query))
    assert abs(found.outcome - asked.result.outcome) <= asked.slack


def test_units_do_not_matter(asked: Asked) -> None:
    problem, factor, shift = asked.problem, np.array([1000.0, 0.01, 1.8]), np.array([0.0, 5.0, 32.0])
    model, columns = deepcopy(problem.model), problem.model.scaler.states
    scaled = replace(columns, offset=columns.offset * factor + shift, scale=columns.scale * factor)
    model.set_scaler(replace(model.scaler, states=scaled))
    episode = replace(problem.episode, states=problem.episode.states * factor + shift)
    reward = problem.reward
    assert isinstance(reward, Linear)
    weights = dict(zip(reward.weights, np.array(list(reward.weights.values())) / factor, strict=True))
    constant = reward.constant - float(np.array(list(weights.values())) @ shift)
    query = problem.query.with_changes(reward=Linear(weights, constant))
    found = answer(Problem.from_episode(episode, model, query))
    # Values in other units are rounded at other digits before noise is abducted from them.
    assert found.outcome == pytest.approx(asked.result.outcome, rel=1e-9, abs=asked.slack)
    assert (found.actions == asked.result.actions).all()
