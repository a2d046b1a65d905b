"""Exhaustive enumeration against a naive oracle that shares nothing with it: one sequence, one step at a time."""

import itertools
import json
import math
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st
from table_problems import table_problem

from ifonly.constraints import Constraints
from ifonly.data.episode import Episode
from ifonly.data.schema import ActionSpace, Feature, Schema
from ifonly.errors import InputError
from ifonly.models.analytic import LinearModel
from ifonly.problem import Problem
from ifonly.progress import Tick, silent
from ifonly.query import Limits, Query
from ifonly.result import Result, Status
from ifonly.rewards import ActionCost, Custom, Linear
from ifonly.search.base import Monitor
from ifonly.search.exhaustive import Exhaustive, best_values, outcome_frontier
from ifonly.search.solve import solve
from ifonly.testing.instances import MODEL_KINDS, partition_exists, partition_problem, random_problem

EXACT = 1e-10


def admissible(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Every admissible sequence, straight from the definition."""
    observed = problem.observed_actions.tolist()
    for sequence in itertools.product(range(problem.action_count), repeat=problem.horizon):
        changes = sum(new != old for new, old in zip(sequence, observed, strict=True))
        if changes <= problem.max_changes and all(problem.allowed[t, a] for t, a in enumerate(sequence)):
            yield sequence


def naive_outcome(problem: Problem, sequence: tuple[int, ...]) -> float:
    """One rollout with nothing but the model's `step` and the reward."""
    state, total = problem.observed_states[0], 0.0
    for t, action in enumerate(sequence):
        total += float(problem.bound_reward(state, torch.tensor(action)))
        if t < len(sequence) - 1:
            state = problem.model.step(state, problem.context[t], torch.tensor(action), problem.noise[t])
    return total


def recursion(problem: Problem, t: int, state: torch.Tensor, changes_used: int) -> float:
    """V(s, l, t) as eq:substructure writes it."""
    observed = int(problem.observed_actions[t])
    values = []
    for action in range(problem.action_count):
        used = changes_used + (action != observed)
        if used > problem.max_changes or not problem.allowed[t, action]:
            continue
        value = float(problem.bound_reward(state, torch.tensor(action)))
        if t < problem.horizon - 1:
            following = problem.model.step(state, problem.context[t], torch.tensor(action), problem.noise[t])
            value += recursion(problem, t + 1, following, used)
        values.append(value)
    return max(values)


def replaced(problem: Problem, reward: Linear | Custom | ActionCost) -> Problem:
    """The same problem with another reward."""
    return Problem.from_episode(
        problem.episode,
        problem.model,
        Query(
            reward,
            problem.max_changes,
            constraints=Constraints().restricted_to(problem.allowed.numpy(), problem.episode),
        ),
    )


@pytest.mark.parametrize("seed", range(some(75)))
def test_equals_the_naive_oracle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = random_problem(
        seed,
        model_kind=MODEL_KINDS[seed % len(MODEL_KINDS)],
        horizon=int(rng.integers(2, 5)),
        actions=int(rng.integers(1, 4)),
        max_changes=[0, 1, 2, 3, None][int(rng.integers(5))],
    )
    with torch.no_grad():
        outcomes = {sequence: naive_outcome(problem, sequence) for sequence in admissible(problem)}
    best = max(outcomes.values())
    result = solve(problem, Exhaustive())
    assert result.outcome == pytest.approx(best, abs=EXACT)
    assert result.upper_bound == pytest.approx(best, abs=EXACT)
    assert outcomes[tuple(result.actions.tolist())] == pytest.approx(best, abs=EXACT)
    assert result.status is Status.OPTIMAL
    assert result.certificate.proven
    assert result.certificate.details["sequences"] == len(outcomes) == problem.sequence_count()


@settings(deadline=None, derandomize=True, max_examples=some(25))
@given(seed=st.integers(0, 10_000), batch=st.integers(1, 60))
def test_the_batch_size_does_not_change_the_answer(seed: int, batch: int) -> None:
    problem = random_problem(seed, horizon=4, actions=4, max_changes=3)
    results = [solve(problem, Exhaustive(batch=size)) for size in (batch, 7, 100_000)]
    first = results[0]
    for other in results[1:]:
        assert np.array_equal(first.actions, other.actions)
        assert first.outcome == other.outcome  # bitwise: it is replayed in the same way
        assert np.array_equal(first.states, other.states)
        assert first.stats.model_steps == other.stats.model_steps
        assert first.stats.nodes_expanded == other.stats.nodes_expanded


@pytest.mark.parametrize("batch", [1, 10, 1000])
def test_prefixes_are_shared(batch: int) -> None:
    problem = random_problem(3, model_kind="linear", horizon=5, actions=3, max_changes=2, masked=True)
    prefixes = {sequence[:length] for sequence in admissible(problem) for length in range(problem.horizon)}
    stats = solve(problem, Exhaustive(batch=batch)).stats
    assert stats.nodes_expanded == len(prefixes)
    assert stats.model_steps == len(prefixes) - 1  # the start is given
    assert stats.nodes_generated == stats.model_steps + problem.sequence_count()


@pytest.mark.parametrize("batch", [1, 5, 64, 4096])
def test_no_model_call_is_larger_than_the_batch(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(5, model_kind="linear", horizon=6, actions=4, max_changes=3)
    largest = 0
    original = type(problem.model).step

    def watched(self: object, states: torch.Tensor, context: object, actions: torch.Tensor, noise: object) -> object:
        nonlocal largest
        following = original(self, states, context, actions, noise)  # type: ignore[arg-type]
        largest = max(largest, following.numel() // following.shape[-1])
        return following

    monkeypatch.setattr(type(problem.model), "step", watched)
    best_values(problem, 0, problem.observed_states[:1], torch.zeros(1, dtype=torch.int64), batch=batch)
    assert largest <= max(batch, problem.action_count)


@pytest.mark.parametrize("seed", range(some(10)))
def test_more_changes_never_hurt_and_the_frontier_says_so(seed: int) -> None:
    problem = random_problem(seed, horizon=4, actions=3, max_changes=None)
    frontier = outcome_frontier(problem)
    single = [solve(problem.with_max_changes(k), Exhaustive()).outcome for k in range(problem.horizon + 1)]
    assert frontier.tolist() == pytest.approx(single, abs=EXACT)
    assert all(later >= earlier - EXACT for earlier, later in itertools.pairwise(single))
    assert single[0] == pytest.approx(problem.outcome(problem.observed_actions), abs=EXACT)


@settings(deadline=None, derandomize=True, max_examples=some(25))
@given(seed=st.integers(0, 10_000), t=st.integers(0, 3), batch=st.sampled_from([1, 8, 4096]))
def test_best_values_follow_the_recursion(seed: int, t: int, batch: int) -> None:
    problem = random_problem(seed, horizon=4, actions=3, max_changes=2)
    states = torch.as_tensor(np.random.default_rng(seed).normal(size=(3, problem.noise.shape[1])))
    changes_used = torch.tensor([0, 1, 2])
    values = best_values(problem, t, states, changes_used, batch=batch)
    with torch.no_grad():
        wanted = [recursion(problem, t, states[row], row) for row in range(3)]
    assert values.tolist() == pytest.approx(wanted, abs=EXACT)


def test_best_value_of_the_start_is_the_optimum() -> None:
    problem = random_problem(11, horizon=5, actions=3, max_changes=2)
    value = best_values(problem, 0, problem.observed_states[:1], torch.tensor([0]))
    assert float(value) == pytest.approx(solve(problem, Exhaustive()).outcome, abs=EXACT)


@pytest.mark.parametrize("seed", range(some(20)))
def test_decides_the_partition_problem(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 12, size=int(rng.integers(2, 8))).tolist()
    best = solve(partition_problem(values), Exhaustive()).outcome
    assert (abs(best) < 1e-9) == partition_exists(values)


@settings(deadline=None, derandomize=True, max_examples=some(40))
@given(
    seed=st.integers(0, 10_000),
    batch=st.sampled_from([1, 2, 5, 13, 1000]),
    max_changes=st.integers(0, 4),
    jitter=st.sampled_from([0.0, 1e-13]),
)
def test_ties_go_to_the_fewest_changes_then_to_the_smallest_sequence(
    seed: int, batch: int, max_changes: int, jitter: float
) -> None:
    """Among sequences within the tolerance of the best, whatever their exact order and whenever they are met."""
    rng = np.random.default_rng(seed)
    observed = tuple(rng.integers(3, size=4).tolist())
    sequences = list(itertools.product(range(3), repeat=4))
    worth = {sequence: float(rng.integers(0, 2)) + jitter * rng.random() for sequence in sequences}
    problem = table_problem(worth, observed, actions=3, max_changes=max_changes)
    listed = list(admissible(problem))
    best = max(worth[sequence] for sequence in listed)
    answer = min(
        (sequence for sequence in listed if worth[sequence] >= best - 1e-11),
        key=lambda sequence: (sum(new != old for new, old in zip(sequence, observed, strict=True)), sequence),
    )
    with torch.no_grad():
        finding = Exhaustive(batch=batch).search(problem, Monitor(Limits(), silent, 1e-11))
    assert tuple(finding.actions.tolist()) == answer
    assert finding.upper_bound == best


def test_episodes_may_have_more_steps_than_python_has_nested_calls() -> None:
    """Only the last steps can be changed, so that there are few sequences to follow to the end."""
    horizon = sys.getrecursionlimit() + 200
    schema = Schema((Feature("x", "dynamic"),), ActionSpace.categories(["wait", "treat"]))
    model = LinearModel(schema, [[[0.5]], [[0.5]]], offsets=[[0.0], [1.0]])
    episode = Episode("long", schema, states=np.zeros((horizon, 1)), actions=np.zeros(horizon, dtype=np.int64))
    allowed = np.ones((horizon, 2), dtype=bool)
    allowed[:-4, 1] = False
    problem = Problem.from_episode(
        episode, model, Query(Linear({"x": 1.0}), 1, constraints=Constraints().restricted_to(allowed, episode))
    )
    result = solve(problem, Exhaustive())
    assert result.status is Status.OPTIMAL
    assert [change.step for change in result.changes] == [horizon - 4]
    assert result.outcome - result.observed_outcome == pytest.approx(1 + 0.5 + 0.25, abs=EXACT)


def test_nothing_to_gain_means_no_change() -> None:
    problem = random_problem(4, horizon=4, actions=3, max_changes=3)
    problem = replaced(problem, Custom(lambda states, actions: states[..., 0] * 0.0, 0.0, space="scaled"))
    result = solve(problem, Exhaustive(batch=3))
    assert result.changes == ()
    assert result.status is Status.OPTIMAL


def test_gains_below_the_tolerance_are_ties() -> None:
    problem = random_problem(4, model_kind="linear", horizon=3, actions=2, max_changes=1, masked=False)
    other = 1 - int(problem.observed_actions[1])
    tiny = replaced(problem, ActionCost({other: -1.0 - 1e-15, 1 - other: -1.0}))
    assert solve(tiny, Exhaustive()).changes == ()
    small = replaced(problem, ActionCost({other: -1.0 - 1e-9, 1 - other: -1.0}))
    assert len(solve(small, Exhaustive()).changes) == 1


class TestLimits:
    problem = random_problem(8, model_kind="linear", horizon=6, actions=4, max_changes=3)

    def check(self, result: Result, status: Status) -> None:
        assert result.status is status
        assert math.isinf(result.upper_bound)
        assert not result.certificate.proven
        assert result.certificate.details["sequences_seen"] < result.certificate.details["sequences"]
        assert result.outcome >= result.observed_outcome
        assert Result.from_json(result.to_json()).status is status

    def test_time(self) -> None:
        self.check(solve(self.problem, Exhaustive(batch=8), limits=Limits(seconds=0.0)), Status.TIME_LIMIT)

    def test_nodes(self) -> None:
        result = solve(self.problem, Exhaustive(batch=8), limits=Limits(nodes=50))
        self.check(result, Status.NODE_LIMIT)
        assert 50 <= result.stats.nodes_expanded <= 50 + 8 * self.problem.horizon

    def test_interruption_returns_the_incumbent(self) -> None:
        ticks: list[Tick] = []

        def interrupt(tick: Tick) -> None:
            ticks.append(tick)
            if len(ticks) == 20:
                raise KeyboardInterrupt

        self.check(solve(self.problem, Exhaustive(batch=8), progress=interrupt), Status.INTERRUPTED)
        assert ticks[-1].done > ticks[0].done

    def test_a_limit_met_by_the_last_block_is_no_limit(self) -> None:
        whole = solve(self.problem, Exhaustive())
        again = solve(self.problem, Exhaustive(), limits=Limits(nodes=whole.stats.nodes_expanded))
        assert again.status is Status.OPTIMAL
        assert again.upper_bound == whole.upper_bound


def test_settings_are_recorded() -> None:
    result = solve(random_problem(1, horizon=3), Exhaustive(batch=17))
    assert result.provenance.solver == {"name": "exhaustive", "batch": 17}
    assert json.loads(result.to_json())["certificate"]["method"] == "exhaustive enumeration"


def test_refuses_what_it_cannot_compare() -> None:
    problem = random_problem(1, model_kind="linear", horizon=2, actions=3, masked=False)
    unused = next(action for action in range(3) if action not in problem.observed_actions)

    def overflowing(states: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return torch.where(actions == unused, torch.nan, states[..., 0])

    with pytest.raises(InputError, match="NaN or infinite"):
        solve(replaced(problem, Custom(overflowing, 1.0, space="scaled")), Exhaustive())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((9, [[0.0, 0.0]], [0]), "t=9"),
        ((0, [[0.0, 0.0]], [0, 1]), "1 states, but 2"),
        ((0, [[0.0, 0.0]], [7]), "max_changes=2"),
    ],
)
def test_best_values_refuse_nonsense(arguments: tuple[int, list[list[float]], list[int]], message: str) -> None:
    t, states, used = arguments
    with pytest.raises(InputError, match=message):
        best_values(random_problem(1), t, torch.tensor(states, dtype=torch.float64), torch.tensor(used))


def test_refuses_an_empty_batch() -> None:
    with pytest.raises(InputError, match="batch=0"):
        Exhaustive(batch=0)
