"""The paper's bound: constants, admissibility, consistency, and the table against its definition."""

import numpy as np
import pytest
import torch
from effort import some

from ifonly.bounds import AnchorBound, Anchors, FacilityLocation, MonteCarlo, value_constants
from ifonly.bounds.anchors import observed_anchors
from ifonly.errors import InputError, VerificationError
from ifonly.problem import Problem
from ifonly.query import Query
from ifonly.rewards import Custom
from ifonly.search.exhaustive import best_values
from ifonly.search.heuristics import random_sequences
from ifonly.testing import check_bound
from ifonly.testing.instances import MODEL_KINDS, partition_problem, random_problem

STRATEGIES = {
    "lipschitz": lambda problem: MonteCarlo(samples=20),
    "uniform": lambda problem: MonteCarlo(samples=None, size=40, weighting="uniform"),
    "facility": lambda problem: FacilityLocation(4, problem.decode(_some_states(problem))),
}


def _some_states(problem: Problem) -> torch.Tensor:
    generator = torch.Generator().manual_seed(9)
    return problem.rollout(random_sequences(problem, 10, generator=generator))[0].flatten(0, 1)


def _bound(problem: Problem, strategy: str, *, shared: bool = False) -> AnchorBound:
    constants = value_constants(problem)
    anchors = STRATEGIES[strategy](problem).choose(problem, constants, torch.Generator().manual_seed(1))
    return AnchorBound(problem, anchors.shared() if shared else anchors, constants)


def _nodes(problem: Problem, t: int, count: int, seed: int) -> torch.Tensor:
    """States of step t: reachable ones and others around them."""
    generator = torch.Generator().manual_seed(seed)
    states = problem.rollout(random_sequences(problem, count, generator=generator))[0][:, t]
    return torch.cat([states, states + torch.randn(states.shape, generator=generator, dtype=torch.float64)])


@pytest.mark.parametrize("shared", [False, True], ids=["per step", "shared"])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_bound_is_admissible(kind: str, strategy: str, shared: bool) -> None:
    for seed in range(4):
        problem = random_problem(seed, model_kind=kind, horizon=4, max_changes=seed % 4)
        check_bound(_bound(problem, strategy, shared=shared), problem, samples=8, seed=seed)


def test_values_at_anchors_are_admissible() -> None:
    """prop:anchor: the table itself, at the anchors."""
    for seed in range(some(20)):
        problem = random_problem(seed, horizon=4)
        bound = _bound(problem, "lipschitz")
        for t, points in enumerate(bound.anchors.points):
            for used in range(problem.max_changes + 1):
                exact = best_values(problem, t, points, torch.full((len(points),), used))
                assert (bound.values[t][used] >= exact - 1e-9 * (1 + exact.abs())).all()


@pytest.mark.parametrize("shared", [False, True], ids=["per step", "shared"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bound_is_consistent(strategy: str, shared: bool) -> None:
    """thm:consistent: along every edge the bound falls by at least the reward, also to the goal."""
    for seed in range(some(14)):
        problem = random_problem(seed)
        bound = _bound(problem, strategy, shared=shared)
        for t in range(problem.horizon):
            states = _nodes(problem, t, 6, seed)
            for used in range(problem.max_changes + 1):
                here = bound(t, states, torch.full((len(states),), used))
                choices = torch.cat([problem.observed_actions[t : t + 1], problem.alternatives(t)])
                choices = choices if used < problem.max_changes else choices[:1]
                there = problem.rewards(t, states.unsqueeze(1), choices)  # [N, n]
                if t + 1 < problem.horizon:
                    following = problem.step(t, states.unsqueeze(1), choices)
                    changed = (used + (choices != problem.observed_actions[t]).long()).expand(len(states), -1)
                    there = there + bound(t + 1, following.flatten(0, 1), changed.flatten()).view_as(there)
                assert (here.unsqueeze(1) >= there - 1e-9 * (1 + here.abs().unsqueeze(1))).all()


def test_value_constants_hold_for_exact_values() -> None:
    """lem:lipschitz, against values found by enumeration."""
    for seed in range(some(25)):
        problem = random_problem(seed, horizon=4)
        constants = value_constants(problem)
        for t in range(problem.horizon):
            states = _nodes(problem, t, 8, seed)
            others = states.flip(0)
            distance = torch.linalg.vector_norm(states - others, dim=1)
            for used in range(problem.max_changes + 1):
                values = best_values(problem, t, states, torch.full((len(states),), used))
                rise = (values - values.flip(0)).abs()
                assert (rise <= constants[t] * distance * (1 + 1e-9) + 1e-9).all()


def test_value_constants_follow_their_recursion() -> None:
    problem = random_problem(3, model_kind="location-scale", masked=False)
    actions = torch.arange(problem.action_count)
    reward = float(problem.bound_reward.lipschitz.max())
    expected = [reward]
    for t in range(problem.horizon - 2, -1, -1):
        slope = float(problem.model.lipschitz(problem.context[t], actions, problem.noise[t]).max())
        expected.insert(0, reward + expected[0] * slope)
    assert value_constants(problem).tolist() == pytest.approx(expected, rel=1e-10)


def test_table_equals_the_pseudo_code() -> None:
    """alg:dp and eq:heuristic, written as plain loops over anchors, actions and levels."""
    problem = random_problem(5, model_kind="location-scale", horizon=4, masked=True)
    bound = _bound(problem, "lipschitz")
    constants = bound.constants.tolist()

    def heuristic(t: int, state: torch.Tensor, used: int) -> float:
        candidates = []
        for action in problem.allowed[t].nonzero().flatten():
            changed = used + int(action != problem.observed_actions[t])
            if changed > problem.max_changes:
                continue
            reward = float(problem.rewards(t, state, action))
            if t == problem.horizon - 1:
                candidates.append(reward)
                continue
            following = problem.step(t, state, action)
            reached = [
                heuristic(t + 1, anchor, changed) + constants[t + 1] * float(torch.dist(anchor, following))
                for anchor in bound.anchors.points[t + 1]
            ]
            candidates.append(reward + min(reached))
        return max(candidates)

    small = Anchors(tuple(points[:3] for points in bound.anchors.points))
    bound = AnchorBound(problem, small, bound.constants)
    state = problem.observed_states[0] + 0.5
    for used in range(problem.max_changes + 1):
        expected = heuristic(0, state, used)
        assert float(bound(0, state.unsqueeze(0), torch.tensor([used]))) == pytest.approx(expected, rel=1e-9)


def test_more_anchors_never_loosen_the_bound() -> None:
    for seed in range(some(10)):
        problem = random_problem(seed)
        few, many = (
            AnchorBound(problem, observed_anchors(problem), value_constants(problem)),
            _bound(problem, "lipschitz"),
        )
        states = _nodes(problem, 1, 10, seed)
        changes = torch.zeros(len(states), dtype=torch.int64)
        assert (many(1, states, changes) <= few(1, states, changes) + 1e-12).all()


def test_rows_do_not_influence_each_other() -> None:
    problem = random_problem(11)
    bound = _bound(problem, "lipschitz")
    states = _nodes(problem, 1, 10, 0)
    changes = torch.arange(len(states)) % (problem.max_changes + 1)
    together = bound(1, states, changes)
    alone = torch.cat([bound(1, states[i : i + 1], changes[i : i + 1]) for i in range(len(states))])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)


def test_overflow_is_unknown_not_pruned() -> None:
    problem = random_problem(2)
    bound = _bound(problem, "lipschitz")
    lost = torch.full((1, problem.noise.shape[1]), torch.nan, dtype=torch.float64)
    assert bound.reach(1, lost, range(1)).item() == np.inf


def test_infinite_constants_are_refused() -> None:
    problem = random_problem(0)
    steep = Custom(lambda states, actions: states.sum(-1), lipschitz=1e308, space="scaled")
    problem = Problem.from_episode(problem.episode, problem.model, Query(steep, 1))
    with pytest.raises(InputError, match=r"of the model, multiplied .* not finite.*a Lipschitz limit"):
        value_constants(problem)
    curved = random_problem(0, scaling="log", reward_kind="linear", constrained=True)
    with pytest.raises(InputError, match=r"the reward has no finite .*logarithmic scale.*use branch and bound"):
        value_constants(curved)


def test_a_reward_that_understates_its_constant_is_caught() -> None:
    """The bound is only as good as the declared constants; the contract shows when they are wrong."""
    base = random_problem(1, model_kind="linear", horizon=4)
    lying = Custom(lambda states, actions: 3 * states.sum(-1), lipschitz=0.01, space="scaled")
    problem = Problem.from_episode(base.episode, base.model, Query(lying, 2))
    bound = AnchorBound(problem, observed_anchors(problem), value_constants(problem))
    with pytest.raises(VerificationError, match="below the truth"):
        check_bound(bound, problem, samples=20)


def test_paper_constant_of_the_partition_reward_would_not_be_admissible() -> None:
    """lem:np-helper drops a square: with its constant the reward's slope is violated, with ours it is not."""
    problem = partition_problem([9, 7, 5, 4, 3, 2])
    half = 15.0
    slope = float(problem.bound_reward.lipschitz.max())
    assert slope == pytest.approx(max(2 * half, (1 + half**2) ** 0.5), rel=1e-9)
    states = torch.tensor([[half, 0.0], [half, -1.0]], dtype=torch.float64)
    rise = float(problem.rewards(0, states, torch.tensor(0)).diff().abs())
    assert 2 * (1 + half) ** 0.5 < rise <= slope
