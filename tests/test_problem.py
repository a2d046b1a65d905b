"""A query put to an episode: abduction, replay, rollouts against a plain loop, and what is refused."""

import itertools
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st

from ifonly.constraints import Constraints
from ifonly.data.episode import Episode
from ifonly.data.schema import ActionSpace, Feature, Schema
from ifonly.errors import InputError, ReplayError, SchemaMismatchError
from ifonly.models.analytic import LinearModel
from ifonly.problem import REPLAY_TOLERANCE, Problem, build_problem, build_problems
from ifonly.query import Query
from ifonly.rewards import Custom, Linear, minus
from ifonly.simulate import SepsisWorld, simulate_cohort
from ifonly.testing.instances import MODEL_KINDS, random_problem

SCHEMA = Schema(
    (Feature("SOFA", "dynamic"), Feature("MAP", "dynamic")), ActionSpace.categories(["wait", "treat", "cut"])
)


def small_model(schema: Schema = SCHEMA) -> LinearModel:
    return LinearModel(schema, np.stack([np.eye(2), 0.5 * np.eye(2), -np.eye(2)]), noise_scale=[1.0, 2.0])


def small_episode(schema: Schema = SCHEMA, **changes: object) -> Episode:
    values = {"states": [[5.0, 70.0], [6.0, 65.0], [4.0, 80.0]], "actions": [0, 1, 2]}
    return Episode("case 7", schema, **(values | changes))  # type: ignore[arg-type]


kinds = pytest.mark.parametrize("kind", MODEL_KINDS)


@kinds
@pytest.mark.parametrize("seed", range(5))
def test_replaying_the_observed_actions_gives_the_observed_states(kind: str, seed: int) -> None:
    problem = random_problem(seed, model_kind=kind, horizon=6)
    states, _ = problem.rollout(problem.observed_actions.unsqueeze(0))
    assert torch.allclose(states[0], problem.observed_states, atol=REPLAY_TOLERANCE, rtol=REPLAY_TOLERANCE)
    decoded = problem.decode(states[0])
    assert decoded == pytest.approx(problem.episode.states, rel=1e-5, abs=1e-5)


@kinds
def test_outcomes_are_those_of_a_plain_loop(kind: str) -> None:
    problem = random_problem(3, model_kind=kind, horizon=5, actions=4)
    rng = np.random.default_rng(0)
    sequences = rng.integers(4, size=(10, 5))
    states, outcomes = problem.rollout(torch.as_tensor(sequences))
    assert states.shape == (10, 5, 2)
    for row, sequence in enumerate(sequences):
        state, total = problem.observed_states[0], 0.0
        for t, action in enumerate(sequence):
            assert states[row, t].numpy() == pytest.approx(state.numpy(), rel=1e-9, abs=1e-9)
            total += float(problem.bound_reward(state, torch.tensor(action)))
            if t < 4:
                state = problem.model.step(state, problem.context[t], torch.tensor(action), problem.noise[t])
        assert float(outcomes[row]) == pytest.approx(total, abs=1e-9)
        assert problem.outcome(sequence) == pytest.approx(total, abs=1e-9)
        assert problem.outcome(sequence.tolist()) == pytest.approx(total, abs=1e-9)


def test_rows_of_a_batch_do_not_influence_each_other() -> None:
    problem = random_problem(4, horizon=5, actions=3)
    sequences = torch.as_tensor(np.random.default_rng(1).integers(3, size=(20, 5)))
    states, outcomes = problem.rollout(sequences)
    sequences[0] = (sequences[0] + 1) % 3
    other_states, other_outcomes = problem.rollout(sequences)
    assert torch.allclose(states[1:], other_states[1:], rtol=1e-12, atol=1e-12)
    assert torch.allclose(outcomes[1:], other_outcomes[1:], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(states[0], other_states[0])


@pytest.mark.parametrize("seed", range(3))
def test_all_actions_at_once_are_each_action_alone(seed: int) -> None:
    problem = random_problem(seed, horizon=4, actions=3)
    states = torch.as_tensor(np.random.default_rng(seed).normal(size=(5, 2)))
    following, rewards = problem.step(1, states.unsqueeze(1), torch.arange(3)), problem.rewards_all(1, states)
    assert following.shape == (5, 3, 2)
    assert rewards.shape == (5, 3)
    for action in range(3):
        taken = torch.full((5,), action)
        assert torch.allclose(following[:, action], problem.step(1, states, taken), rtol=1e-12, atol=1e-12)
        assert torch.allclose(rewards[:, action], problem.rewards(1, states, taken), rtol=1e-12, atol=1e-12)


def test_states_and_noise_are_in_scaled_coordinates_and_come_back() -> None:
    problem = random_problem(6, horizon=5)
    columns = problem.model.scaler.states
    assert problem.observed_states.numpy() == pytest.approx(columns.encode(problem.episode.states))
    assert problem.decode(problem.observed_states) == pytest.approx(problem.episode.states)
    assert problem.observed_states.dtype == problem.noise.dtype == problem.context.dtype == torch.float64
    assert problem.noise.shape == (4, 2)


def test_contextual_features_keep_their_observed_values() -> None:
    problem = random_problem(6, horizon=5, context_size=3)
    encoded = problem.model.scaler.context.encode(problem.episode.context)
    assert problem.context.numpy() == pytest.approx(encoded)


@settings(deadline=None, derandomize=True, max_examples=some(40))
@given(seed=st.integers(0, 10_000), max_changes=st.one_of(st.none(), st.integers(0, 6)))
def test_sequences_are_counted_as_by_listing_them(seed: int, max_changes: int | None) -> None:
    rng = np.random.default_rng(seed)
    horizon, actions = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    problem = random_problem(
        seed, model_kind="linear", horizon=horizon, actions=actions, max_changes=max_changes, masked=seed % 2 == 0
    )
    allowed, observed = problem.allowed.numpy(), problem.episode.actions
    limit = horizon if max_changes is None else max_changes
    listed = sum(
        bool(allowed[np.arange(horizon), list(sequence)].all()) and int((observed != sequence).sum()) <= limit
        for sequence in itertools.product(range(actions), repeat=horizon)
    )
    assert problem.sequence_count() == listed


def test_the_paper_s_three_million_sequences() -> None:
    problem = random_problem(0, model_kind="linear", horizon=12, actions=25, max_changes=3, masked=False)
    assert problem.sequence_count() == 1 + 12 * 24 + 66 * 24**2 + 220 * 24**3


def test_changes_are_counted() -> None:
    problem = Problem.from_episode(small_episode(), small_model(), Query(minus("SOFA"), 1))
    assert problem.changes(torch.tensor([[0, 1, 2], [1, 1, 2], [1, 2, 0]])).tolist() == [0, 1, 3]
    assert int(problem.changes(torch.tensor([0, 1, 0]))) == 1


@pytest.mark.parametrize(("given_changes", "found"), [(None, 3), (0, 0), (2, 2), (99, 3), (np.int64(1), 1)])
def test_the_budget_is_at_most_the_horizon(given_changes: int | None, found: int) -> None:
    problem = Problem.from_episode(small_episode(), small_model(), Query(minus("SOFA"), given_changes))
    assert problem.max_changes == found
    assert problem.with_max_changes(1).max_changes == 1
    assert problem.with_max_changes(None).max_changes == 3


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "two"])
def test_other_budgets_are_refused(wrong: object) -> None:
    message = re.escape(f"max_changes={wrong!r}: must be a whole number of at least 0, or none for no limit.")
    with pytest.raises(InputError, match=message):
        Problem.from_episode(small_episode(), small_model(), Query(minus("SOFA"), wrong))  # type: ignore[arg-type]
    problem = Problem.from_episode(small_episode(), small_model(), Query(minus("SOFA"), 1))
    with pytest.raises(InputError, match=message):
        problem.with_max_changes(wrong)  # type: ignore[arg-type]


class TestAllowed:
    mask = np.array([[True, False, True], [False, True, False], [True, True, True]])

    def problem(self, allowed: object = None, *, last_action_fixed: bool = False) -> Problem:
        rules = Constraints(last_action_fixed=last_action_fixed)
        if allowed is not None:
            rules = rules.restricted_to(allowed, small_episode())  # type: ignore[arg-type]
        return Problem.from_episode(small_episode(), small_model(), Query(minus("SOFA"), 2, constraints=rules))

    def test_everything_by_default(self) -> None:
        problem = self.problem()
        assert problem.allowed.all()
        assert [problem.alternatives(t).tolist() for t in range(3)] == [[1, 2], [0, 2], [0, 1]]

    def test_a_mask_restricts_each_step(self) -> None:
        problem = self.problem(allowed=self.mask)
        assert [problem.alternatives(t).tolist() for t in range(3)] == [[2], [], [0, 1]]
        assert problem.allowed.tolist() == self.mask.tolist()

    def test_the_given_mask_is_left_alone(self) -> None:
        mask = self.mask.copy()
        self.problem(allowed=mask, last_action_fixed=True)
        assert np.array_equal(mask, self.mask)

    def test_the_last_action_can_be_fixed(self) -> None:
        problem = self.problem(last_action_fixed=True)
        assert problem.alternatives(2).tolist() == []
        assert problem.alternatives(1).tolist() == [0, 2]
        assert self.problem(allowed=self.mask, last_action_fixed=True).sequence_count() == 2

    def test_the_observed_action_must_stay_allowed(self) -> None:
        mask = self.mask.copy()
        mask[1, 1] = False
        with pytest.raises(InputError, match="'case 7': allowed forbids the action observed at step 1"):
            self.problem(allowed=mask)

    @pytest.mark.parametrize("mask", [np.ones((3, 2), dtype=bool), np.ones((3, 3)), [[1, 0, 1]] * 3])
    def test_other_shapes_and_kinds_are_refused(self, mask: object) -> None:
        with pytest.raises(InputError, match=r"table of true and false \[T, A\] = \[3, 3\]"):
            self.problem(allowed=mask)


@pytest.mark.parametrize("wrong", [[0, 1], [0, 1, 2, 0], [0, 1, 3], [0, -1, 2], [0.0, 1.0, 2.0], [[0, 1, 2]]])
def test_outcomes_of_impossible_sequences_are_refused(wrong: object) -> None:
    problem = Problem.from_episode(small_episode(), small_model(), Query(minus("SOFA"), 1))
    with pytest.raises(InputError, match="must be 3 whole numbers from 0 to 2"):
        problem.outcome(wrong)  # type: ignore[arg-type]
    assert problem.outcome(torch.tensor([0, 1, 2])) == pytest.approx(-15.0)


def test_a_model_of_another_schema_is_refused() -> None:
    other = replace(SCHEMA, features=(Feature("SOFA", "dynamic"), Feature("HR", "dynamic")))
    with pytest.raises(SchemaMismatchError, match="HR"):
        Problem.from_episode(small_episode(), small_model(other), Query(minus("SOFA"), 1))


class Forgetful(LinearModel):
    """Abducts a noise that does not explain the transition."""

    kind = "forgetful"
    error = 1e-3

    def abduct(
        self, states: torch.Tensor, context: torch.Tensor, actions: torch.Tensor, next_states: torch.Tensor
    ) -> torch.Tensor:
        return super().abduct(states, context, actions, next_states) + self.error


def forgetful(error: float) -> Forgetful:
    model = Forgetful(SCHEMA, np.stack([np.eye(2)] * 3))
    model.error = error
    return model


def test_a_model_that_does_not_invert_itself_is_caught() -> None:
    message = "'case 7', step 1: replaying the observed actions misses the observed SOFA by 0.001 scaled units"
    with pytest.raises(ReplayError, match=message):
        Problem.from_episode(small_episode(), forgetful(1e-3), Query(minus("SOFA"), 1))
    Problem.from_episode(small_episode(), forgetful(1e-8), Query(minus("SOFA"), 1))


def test_noise_that_is_not_finite_is_caught() -> None:
    with pytest.raises(ReplayError, match="'case 7', step 0: the model finds no finite noise"):
        Problem.from_episode(small_episode(), forgetful(float("nan")), Query(minus("SOFA"), 1))


def test_a_reward_that_is_not_finite_is_caught() -> None:
    broken = Custom(lambda states, actions: torch.log(states[..., 0] - 5.5), {"SOFA": 1.0})
    with pytest.raises(InputError, match="'case 7': the observed outcome is nan"):
        Problem.from_episode(small_episode(), small_model(), Query(broken, 1))


def test_the_model_is_frozen_in_float64_and_the_given_one_stays_as_it_is() -> None:
    from ifonly.models.location_scale import LocationScale

    model = LocationScale(SCHEMA, hidden=(5,), lipschitz=(1.0, 0.1))
    problem = Problem.from_episode(small_episode(), model, Query(Linear({"MAP": 1.0}), 1))
    assert problem.model is not model
    assert problem.model.is_for_search("cpu")
    assert next(model.parameters()).dtype == torch.float32
    again = Problem.from_episode(small_episode(), problem.model, Query(Linear({"MAP": 1.0}), 1))
    assert again.model is problem.model  # a frozen copy is shared


def test_a_problem_that_was_moved_is_the_same_problem() -> None:
    problem = random_problem(11, model_kind="location-scale", rules=True)
    copy = problem.model.for_search()
    moved = problem.on("cpu", copy)
    assert moved.model is copy
    sequences = problem.observed_actions.repeat(problem.action_count, 1)
    sequences[:, 0] = torch.arange(problem.action_count)
    torch.testing.assert_close(moved.rollout(sequences), problem.rollout(sequences))
    assert torch.equal(moved.admissible(sequences), problem.admissible(sequences))
    assert moved.observed_outcome == pytest.approx(problem.observed_outcome, abs=1e-12)


@pytest.mark.parametrize("objective", [None, "worst"])
def test_many_problems_are_what_they_are_one_by_one(objective: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    world = SepsisWorld()
    model: Any = world if objective is None else [world, SepsisWorld("drowning")]
    episodes = list(simulate_cohort(7, seed=3, horizon=(4, 6)))
    query = Query(minus("SOFA"), 2, objective=objective, constraints=Constraints(max_jump=2))
    alone = [build_problem(episode, model, query) for episode in episodes]
    calls: dict[str, int] = {"step": 0, "abduct": 0}

    def count(name: str) -> None:
        method = getattr(SepsisWorld, name)

        def counted(self: SepsisWorld, *inputs: torch.Tensor) -> torch.Tensor:
            calls[name] += 1
            return method(self, *inputs)

        monkeypatch.setattr(SepsisWorld, name, counted)

    count("step")
    count("abduct")
    together = build_problems(episodes, model, query)
    steps = sum(length - 1 for length in {len(episode) for episode in episodes})
    models = 1 if objective is None else 2
    # One replay for all of a length and one abduction for each episode, by each model.
    assert calls == {"step": steps * models, "abduct": len(episodes) * models}
    assert [problem.episode for problem in together] == episodes
    for one, other in zip(together, alone, strict=True):
        assert type(one) is type(other)
        assert one.query == other.query
        for name in ("observed_states", "observed_actions", "context", "noise", "allowed"):
            assert torch.equal(getattr(one, name), getattr(other, name))  # bit by bit
        assert one.observed_outcome == other.observed_outcome
    assert build_problems([], model, query) == []


def test_of_many_problems_the_one_to_blame_is_named() -> None:
    episodes = list(simulate_cohort(4, seed=3, horizon=(4, 6)))
    short = min(episodes, key=len)
    locked = Query(minus("SOFA"), 2, constraints=Constraints(locked=[len(short)]))
    with pytest.raises(InputError, match=rf"episode '{short.id}' has {len(short)} steps"):
        build_problems(episodes, SepsisWorld(), locked)
