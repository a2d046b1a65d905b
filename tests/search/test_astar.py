"""The paper's A*: exact on everything small, with a true bracket at every moment."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from effort import some

from ifonly.bounds import AnchorBound, FacilityLocation, MonteCarlo, value_constants
from ifonly.constraints import Constraints
from ifonly.data import ActionSpace, Episode, Feature, Schema
from ifonly.errors import InputError
from ifonly.models import LinearModel, LocationScale
from ifonly.problem import Problem
from ifonly.progress import Tick
from ifonly.query import Limits, Query
from ifonly.result import Status
from ifonly.rewards import ActionCost, Custom, Linear
from ifonly.search.astar import AnchorAStar, NodeQueue, NodeRows, no_nodes
from ifonly.search.exhaustive import Exhaustive, outcome_frontier
from ifonly.search.solve import solve
from ifonly.testing import check_solver
from ifonly.testing.instances import MODEL_KINDS, partition_exists, partition_problem, random_problem
from ifonly.text.results import statement


def _strategies(problem: Problem) -> list[MonteCarlo | FacilityLocation]:
    noise = np.random.default_rng(0).normal(size=(30, problem.noise.shape[1]))
    pool = problem.decode(problem.observed_states[0] + torch.as_tensor(noise))
    return [
        MonteCarlo(samples=25),
        MonteCarlo(samples=25, weighting="uniform"),
        MonteCarlo(samples=None, size=60),
        FacilityLocation(6, pool),
    ]


@pytest.mark.parametrize("kind", MODEL_KINDS)
@pytest.mark.parametrize("part", range(some(3)))
def test_equals_exhaustive_search_for_every_strategy(kind: str, part: int) -> None:
    """Some 120 problems of every model class, reward and restriction; the anchor strategies in pairs that take turns,
    per step and shared."""
    for seed in range(part * 8, (part + 1) * 8):
        problem = random_problem(seed, model_kind=kind, max_changes=seed % 4, horizon=4 + seed % 2)
        optimum = solve(problem, Exhaustive()).outcome
        for index, strategy in list(enumerate(_strategies(problem)))[seed // 2 % 2 :: 2]:
            result = solve(problem, AnchorAStar(anchors=strategy, shared=(seed + index) % 2 == 0, seed=seed))
            assert result.status is Status.OPTIMAL
            assert result.certificate.proven
            assert result.outcome == pytest.approx(optimum, rel=1e-9, abs=1e-9)
            assert result.gap <= 10 * result.certificate.tolerance


def test_satisfies_the_contract_of_solvers() -> None:
    check_solver(
        AnchorAStar(anchors=MonteCarlo(samples=10)), [random_problem(seed) for seed in range(100, 100 + some(12))]
    )


@pytest.mark.parametrize("seed", range(some(40)))
def test_decides_partition_instances(seed: int) -> None:
    """app:hardness: the best outcome is zero exactly when the values can be split evenly."""
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 12, size=rng.integers(2, 8)).tolist()
    result = solve(partition_problem(values), AnchorAStar(anchors=MonteCarlo(samples=20)))
    assert result.status is Status.OPTIMAL
    assert (result.outcome == 0.0) == partition_exists(values)


def test_more_changes_never_hurt() -> None:
    for seed in range(8):
        problem = random_problem(seed, max_changes=4)
        outcomes = [solve(problem.with_max_changes(k), AnchorAStar(MonteCarlo(samples=20))).outcome for k in range(5)]
        assert outcomes == sorted(outcomes)
        assert outcomes == pytest.approx(outcome_frontier(problem).tolist(), rel=1e-9, abs=1e-9)


def test_batch_size_changes_neither_answer_nor_count() -> None:
    for seed in range(some(12)):
        problem = random_problem(seed, horizon=6, actions=4, max_changes=2)
        results = [solve(problem, AnchorAStar(MonteCarlo(samples=20), batch=batch)) for batch in (1, 3, 1000)]
        for result in results[1:]:
            assert result.actions.tolist() == results[0].actions.tolist()
            assert result.outcome == pytest.approx(results[0].outcome, rel=1e-12)
            assert result.stats.nodes_visited == results[0].stats.nodes_visited


def test_visits_are_those_of_textbook_astar() -> None:
    """A plain A* over nodes, as in alg:astar (with the better path kept), must visit as many nodes."""
    for seed in range(some(12)):
        problem = random_problem(seed, reward_kind="linear", model_kind="location-scale", horizon=5, max_changes=2)
        constants = value_constants(problem)
        anchors = MonteCarlo(samples=15).choose(problem, constants, torch.Generator().manual_seed(0))
        expected = _textbook_visits(problem, AnchorBound(problem, anchors, constants))
        result = solve(problem, AnchorAStar(MonteCarlo(samples=15)))
        assert result.stats.nodes_visited == expected


def _textbook_visits(problem: Problem, bound: AnchorBound) -> int:
    queue = [(0.0, 0, 0, problem.observed_states[0], float(bound(0, problem.observed_states[:1], torch.tensor([0]))))]
    visits = 0
    while True:
        best = max(range(len(queue)), key=lambda i: (queue[i][4], queue[i][1]))
        earned, t, used, state, _ = queue.pop(best)
        visits += 1
        if t == problem.horizon:
            return visits
        for action in problem.allowed[t].nonzero().flatten():
            changed = used + int(action != problem.observed_actions[t])
            if changed > problem.max_changes:
                continue
            gained = earned + float(problem.rewards(t, state, action))
            if t + 1 == problem.horizon:
                queue.append((gained, t + 1, changed, state, gained))
            else:
                following = problem.step(t, state, action)
                value = float(bound(t + 1, following.unsqueeze(0), torch.tensor([changed])))
                queue.append((gained, t + 1, changed, following, gained + value))


def test_two_ways_to_one_state_keep_the_better_one() -> None:
    """Actions with equal effects and different costs reach equal states: the cheaper way must survive."""
    base = random_problem(0, model_kind="linear", actions=4, horizon=5, masked=False)
    model = base.model
    model.state_matrices[:] = model.state_matrices[0].clone()
    model.offsets[:] = model.offsets[0].clone()
    model.offsets[3] += 1.0
    name = base.episode.schema.dynamic[0].name
    for seed in range(some(10)):
        costs = np.random.default_rng(seed).uniform(-1, 1, 4)
        reward = Linear({name: 1.0}) if base.episode.schema.dynamic[0].scaling != "log" else _first_scaled()
        problem = Problem.from_episode(
            base.episode, model, Query(reward + ActionCost(dict(enumerate(costs.tolist()))), 3)
        )
        result = solve(problem, AnchorAStar(MonteCarlo(samples=10)))
        assert result.outcome == pytest.approx(solve(problem, Exhaustive()).outcome, rel=1e-9, abs=1e-9)


def _first_scaled() -> Custom:
    return Custom(lambda states, actions: states[..., 0], lipschitz=1.0, space="scaled")


@cache
def _hard_problem() -> Problem:
    return random_problem(3, model_kind="location-scale", horizon=8, actions=5, max_changes=4, masked=False)


@cache
def _hard_optimum() -> float:
    return solve(_hard_problem(), Exhaustive()).outcome


@pytest.mark.parametrize("limits", [Limits(nodes=1), Limits(nodes=40), Limits(seconds=0.0), Limits(seconds=0.05)])
def test_limits_return_a_valid_bracket(limits: Limits) -> None:
    problem = _hard_problem()
    result = solve(problem, AnchorAStar(MonteCarlo(samples=200), batch=8), limits=limits)
    optimum = _hard_optimum()
    assert result.outcome <= optimum + 1e-9
    assert result.upper_bound >= optimum - 1e-9
    assert math.isfinite(result.upper_bound)
    assert result.status in (Status.NODE_LIMIT, Status.TIME_LIMIT, Status.OPTIMAL)
    assert result.outcome >= result.observed_outcome


def test_gap_limit_is_honoured() -> None:
    problem = _hard_problem()
    full = solve(problem, AnchorAStar(MonteCarlo(samples=50)))
    loose = solve(problem, AnchorAStar(MonteCarlo(samples=50), batch=4), limits=Limits(gap=2.0))
    assert loose.status is Status.GAP_REACHED
    assert 0 < loose.gap <= 2.0
    assert loose.upper_bound >= full.outcome - 1e-9


def test_bracket_only_narrows_and_always_holds_the_optimum() -> None:
    problem, optimum = _hard_problem(), _hard_optimum()
    seen: list[Tick] = []
    solve(problem, AnchorAStar(MonteCarlo(samples=30), batch=16), progress=seen.append)
    figures = [tick.figures for tick in seen if tick.stage == "search"]
    bounds, incumbents = [f["bound"] for f in figures], [f["incumbent"] for f in figures]
    assert len(figures) > 3
    assert bounds == sorted(bounds, reverse=True)
    assert incumbents == sorted(incumbents)
    assert min(bounds) >= optimum - 1e-9
    assert max(incumbents) <= optimum + 1e-9


@pytest.mark.parametrize("stage", ["bounds", "search"])
def test_interrupt_returns_the_bracket(stage: str) -> None:
    problem, optimum = _hard_problem(), _hard_optimum()

    def interrupt(tick: Tick) -> None:
        if tick.stage == stage:
            raise KeyboardInterrupt

    result = solve(problem, AnchorAStar(MonteCarlo(samples=50)), progress=interrupt)
    assert result.status is Status.INTERRUPTED
    assert result.outcome <= optimum + 1e-9 <= result.upper_bound + 2e-9 < math.inf


def test_no_pointless_changes_are_recommended() -> None:
    """A reward that ignores actions makes a change of the last action worthless: none is recommended."""
    for seed in range(some(20)):
        problem = random_problem(seed, reward_kind="linear", max_changes=4)
        result = solve(problem, AnchorAStar(MonteCarlo(samples=10)))
        assert result.actions[-1] == result.observed_actions[-1]


def test_flat_reward_is_decided_at_once() -> None:
    """When nothing matters every node ties; ties must not be expanded one by one."""
    base = random_problem(1, horizon=8, actions=5)
    flat = Custom(lambda states, actions: torch.zeros(states.shape[:-1], dtype=torch.float64), 0.0, space="scaled")
    problem = Problem.from_episode(base.episode, base.model, Query(flat, 5))
    result = solve(problem, AnchorAStar())
    assert result.status is Status.OPTIMAL
    assert not result.changes
    assert result.stats.nodes_visited == problem.horizon + 1
    assert result.stats.effective_branching_factor == 1.0


def test_shortest_episode() -> None:
    for seed in range(some(10)):
        problem = random_problem(seed, horizon=2, max_changes=2)
        optimum = solve(problem, Exhaustive()).outcome
        assert solve(problem, AnchorAStar()).outcome == pytest.approx(optimum, rel=1e-9, abs=1e-9)


def test_batch_must_be_positive() -> None:
    with pytest.raises(InputError, match="batch=0"):
        AnchorAStar(batch=0)


def _nodes(
    step: int, states: list[list[float]], earned: list[float], changes: list[int], keys: list[float]
) -> NodeRows:
    nodes = no_nodes(len(states), len(states[0]))
    nodes["step"], nodes["changes"], nodes["state"] = step, changes, states
    nodes["earned"], nodes["key"], nodes["parent"], nodes["action"] = earned, keys, -1, np.arange(len(states))
    nodes["position"] = 1
    return nodes


def test_queue_pops_by_key_and_merges_equal_nodes() -> None:
    queue = NodeQueue(1)
    queue.add(_nodes(1, [[0.5], [0.5], [-0.0], [0.0]], [1.0, 2.0, 1.0, 1.0], [0, 0, 1, 1], [5.0, 6.0, 9.0, 9.0]))
    assert queue.top() == 9.0
    assert queue.pop(10, above=-np.inf).size == 2  # the dearer way to 0.5 and the second zero are gone
    queue.add(_nodes(1, [[0.5], [0.5]], [2.0, 3.0], [0, 0], [6.0, 7.0]))
    assert queue.nodes["key"][queue.pop(10, above=-np.inf)].tolist() == [7.0]
    elsewhere = _nodes(1, [[0.5]], [0.0], [0], [1.0])
    elsewhere["position"] = 2
    queue.add(elsewhere)  # so is one after which rules let other actions follow
    assert queue.pop(10, above=-np.inf).size == 1
    queue.add(_nodes(2, [[0.5]], [0.0], [0], [1.0]))  # another step is another node
    assert queue.pop(10, above=1.0).size == 0
    assert queue.pop(10, above=0.5).size == 1
    assert queue.top() == -np.inf


def test_queue_grows() -> None:
    queue = NodeQueue(2)
    states = np.random.default_rng(0).normal(size=(5000, 2))
    queue.add(_nodes(0, states.tolist(), [0.0] * 5000, [0] * 5000, states[:, 0].tolist()))
    assert queue.nodes["key"][queue.pop(5000, above=-np.inf)].tolist() == sorted(states[:, 0].tolist(), reverse=True)


def test_sequences_that_overflow_are_refused_as_by_exhaustive_search() -> None:
    base = random_problem(1, model_kind="linear", horizon=4, masked=False)

    def bursting(states: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        distance = (states - base.observed_states[-1]).norm(dim=-1)
        return torch.where(distance.gt(1e-6) & distance.lt(0.7), torch.nan, -distance.clamp(max=1.0))

    problem = Problem.from_episode(base.episode, base.model, Query(Custom(bursting, 1.0, space="scaled"), 3))
    for solver in (Exhaustive(), AnchorAStar(MonteCarlo(samples=5))):
        with pytest.raises(InputError, match="NaN or infinite"):
            solve(problem, solver)


def test_a_reward_that_fails_midway_is_not_pruned_silently() -> None:
    """NaN at a step before the last: its sequences must not vanish behind comparisons that are never true."""
    base = random_problem(1, model_kind="linear", horizon=4, masked=False)
    unseen = next(action for action in range(base.action_count) if action not in base.observed_actions.tolist())

    def failing(states: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        at_second_step = (states - base.observed_states[1]).norm(dim=-1) < 1e-9
        return torch.where(at_second_step & (actions == unseen), torch.nan, 0.0).to(torch.float64)

    problem = Problem.from_episode(base.episode, base.model, Query(Custom(failing, 1.0, space="scaled"), 1))
    for solver in (Exhaustive(), AnchorAStar(MonteCarlo(samples=5))):
        with pytest.raises(InputError, match="NaN or infinite"):
            solve(problem, solver)


def _steep_problem() -> Problem:
    """Two near states at step 1, and a slope of 1e10 after it that the first step's mask keeps out of L_0."""
    schema = Schema((Feature("x", "dynamic", scaling="none"),), ActionSpace.categories(["o", "b", "c", "z"]))
    model = LinearModel(
        schema, np.array([0.0, 0.0, 0.0, 1e10]).reshape(4, 1, 1), offsets=np.array([[0.0], [5e-14], [1e-13], [0.0]])
    )
    episode = Episode("steep", schema, np.zeros((3, 1)), np.zeros(3, dtype=np.int64))
    allowed = np.array([[True, True, True, False], [True, False, False, True], [True, False, False, False]])
    return Problem.from_episode(
        episode, model, Query(Linear({"x": 1.0}), 2, constraints=Constraints().restricted_to(allowed, episode))
    )


def test_states_that_are_merely_close_stay_apart() -> None:
    problem = _steep_problem()
    constants = value_constants(problem)
    assert constants[0] < 1e-9 * constants[1]
    for settings in (AnchorAStar(MonteCarlo(samples=5)), AnchorAStar(MonteCarlo(samples=5), batch=1)):
        result = solve(problem, settings)
        assert result.outcome == pytest.approx(1e-3, rel=1e-6)
        assert result.outcome == pytest.approx(solve(problem, Exhaustive()).outcome, rel=1e-9)


def _saturated_problem(seed: int) -> Problem:
    """A network in saturation: bounded states, astronomically large constants."""
    rng = np.random.default_rng(seed)
    schema = Schema(
        (Feature("x", "dynamic", scaling="none"), Feature("y", "dynamic", scaling="none")),
        ActionSpace.from_vectors(rng.normal(size=(3, 2))),
    )

    def network(slope: float) -> dict[str, np.ndarray]:
        return {
            "state": slope * rng.normal(size=(6, 2)),
            "action": slope * rng.normal(size=(6, 2)),
            "bias": rng.normal(size=6),
            "output": rng.normal(size=(2, 6)),
            "output_bias": rng.normal(size=2),
        }

    model = LocationScale.from_weights(schema, location=network(1e60), scale=network(0.1), covariance=np.eye(2))
    actions = torch.as_tensor(rng.integers(0, 3, 5))
    states = [torch.as_tensor(rng.normal(size=2))]
    with torch.no_grad():
        for t in range(4):
            noise = torch.as_tensor(rng.normal(size=2))
            states.append(model.step(states[-1], torch.empty(0, dtype=torch.float64), actions[t], noise))
    episode = Episode("saturated", schema, torch.stack(states).numpy(), actions.numpy())
    return Problem.from_episode(episode, model, Query(Linear({"x": 1.0, "y": -1.0}), 2))


def test_huge_constants_do_not_merge_everything() -> None:
    for seed in range(some(12)):
        problem = _saturated_problem(seed)
        assert float(value_constants(problem)[0]) > 1e200
        result = solve(problem, AnchorAStar(MonteCarlo(samples=5)))
        assert result.outcome == pytest.approx(solve(problem, Exhaustive()).outcome, rel=1e-9, abs=1e-9)


def test_greedy_and_constants_obey_the_time_limit() -> None:
    problem = random_problem(0, model_kind="location-scale", horizon=60, actions=6, max_changes=30, masked=False)
    result = solve(problem, AnchorAStar(), limits=Limits(seconds=0.0))
    assert result.status is Status.TIME_LIMIT
    assert math.isfinite(result.upper_bound)
    assert result.actions.tolist() == result.observed_actions.tolist()  # no time for a greedy round


def test_interrupt_in_the_first_moments_returns_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ifonly.search.astar.greedy_actions", interrupted)
    result = solve(_hard_problem(), AnchorAStar())
    assert result.status is Status.INTERRUPTED
    assert math.isfinite(result.upper_bound)
    monkeypatch.setattr("ifonly.search.astar.value_constants", interrupted)
    result = solve(_hard_problem(), AnchorAStar())
    assert result.status is Status.INTERRUPTED
    assert math.isinf(result.upper_bound)
    assert not result.certificate.proven
    assert "without a useful upper bound" in statement(result)


def test_node_limit_is_not_exceeded() -> None:
    result = solve(_hard_problem(), AnchorAStar(MonteCarlo(samples=5)), limits=Limits(nodes=40))
    assert result.status is Status.NODE_LIMIT
    assert result.stats.nodes_expanded == 40
    assert result.stats.nodes_visited is None
    assert result.stats.effective_branching_factor is None
    assert result.query.limits == Limits(nodes=40)


def test_declared_constants_are_named_in_the_certificate() -> None:
    base = random_problem(0)
    reward = Linear({_linear_feature(base): 1.0}) if _linear_feature(base) else _first_scaled()
    for given, names in ((reward + _first_scaled(), ["custom reward"]), (ActionCost({0: 1.0}), None)):
        result = solve(
            Problem.from_episode(base.episode, base.model, Query(given, 1)), AnchorAStar(MonteCarlo(samples=5))
        )
        assert result.certificate.details.get("relies_on_declared_constants_of") == names


def _linear_feature(problem: Problem) -> str | None:
    return next((f.name for f in problem.episode.schema.dynamic if f.scaling != "log"), None)


def test_what_is_not_a_solver_is_refused() -> None:
    for wrong in ("exhaustive", Exhaustive):
        with pytest.raises(InputError, match="is not a solver"):
            solve(random_problem(0), wrong)  # type: ignore[arg-type]


def test_tolerance_follows_the_size_of_the_reward() -> None:
    """Tiny rewards and large constants must not hide an improvement behind the tolerance."""
    base = random_problem(1, model_kind="linear", masked=False, reward_kind="linear")
    name = _linear_feature(base)
    assert name is not None
    plain = solve(Problem.from_episode(base.episode, base.model, Query(Linear({name: 1.0}), 2))).improvement
    tiny = Problem.from_episode(base.episode, base.model, Query(Linear({name: 1e-12}), 2))
    shifted = Problem.from_episode(base.episode, base.model, Query(Linear({name: 1.0}, constant=1e9), 2))
    for solver in (AnchorAStar(MonteCarlo(samples=20)), Exhaustive()):
        assert solve(tiny, solver).improvement == pytest.approx(1e-12 * plain, rel=1e-6)
        assert solve(shifted, solver).improvement == pytest.approx(plain, rel=1e-4, abs=1e-4)


def test_minus_infinity_is_merely_bad_for_both_exact_solvers() -> None:
    """A reward of minus infinity forbids what earns it; both must find the same best of the rest."""
    for seed in range(8):
        base = random_problem(seed, model_kind="linear", horizon=4, masked=False)
        unseen = [action for action in range(base.action_count) if action not in base.observed_actions.tolist()]
        if not unseen:
            continue
        forbidden = unseen[0]

        def forbidding(states: torch.Tensor, actions: torch.Tensor, forbidden: int = forbidden) -> torch.Tensor:
            return torch.where(actions == forbidden, -torch.inf, states[..., 0])

        problem = Problem.from_episode(base.episode, base.model, Query(Custom(forbidding, 1.0, space="scaled"), 2))
        found = [solve(problem, solver) for solver in (Exhaustive(), AnchorAStar(MonteCarlo(samples=10)))]
        assert found[0].outcome == pytest.approx(found[1].outcome, rel=1e-9, abs=1e-9)
        assert all(result.status is Status.OPTIMAL and forbidden not in result.actions for result in found)
