"""Goals inside searches, bounds and proofs: every exact solver equals enumeration by the goals' own definitions."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from effort import some

from ifonly.bounds.anchors import MonteCarlo
from ifonly.bounds.factory import choose_bound, observed_bounds
from ifonly.bounds.lipschitz import LipschitzChildBound
from ifonly.bounds.taylor import TaylorChildBound, can_expand
from ifonly.data import Episode
from ifonly.errors import InputError, VerificationError
from ifonly.evidence.robustness import at_steps
from ifonly.evidence.shifts import ShiftedCourse
from ifonly.problem import EnsembleProblem, Problem
from ifonly.proofs import check_proof
from ifonly.proofs.question import digest
from ifonly.query import Limits, Query
from ifonly.rewards import ActionCost, DoseCost, Goal, Linear, Reward, TimeInRange, Total, Within
from ifonly.search.astar import AnchorAStar
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.solve import solve
from ifonly.search.verify import verify
from ifonly.testing import check_child_bound
from ifonly.testing.instances import random_ensemble, random_problem
from ifonly.text.results import statement

SMOOTH = ("location-scale", "additive", "linear")


def goal_problem(seed: int, **changes: object) -> Problem:
    settings = {"model_kind": SMOOTH[seed % 3], "scaling": ("linear", "mixed")[seed // 3 % 2], "horizon": 4 + seed % 2}
    return random_problem(seed, reward_kind="goals", **{**settings, "rules": None, **changes})


def put(problem: Problem, reward: Reward) -> Problem:
    """The same episode and model, asked for something else."""
    return Problem.from_episode(problem.episode, problem.model, problem.query.with_changes(reward=reward))


def worth(reward: Reward, values: np.ndarray, action: int) -> float:
    """What one step earns, in original units, by what the classes say of themselves."""
    if isinstance(reward, Linear):
        return values[NAMES.index(next(iter(reward.weights)))] * next(iter(reward.weights.values()))
    if isinstance(reward, ActionCost):
        return -reward.costs.get(action, 0.0)
    assert isinstance(reward, Within | TimeInRange)
    value, low, high = values[NAMES.index(reward.feature)], reward.low, reward.high
    below, above = 0.0 if low is None else max(0.0, low - value), 0.0 if high is None else max(0.0, value - high)
    if isinstance(reward, Within):
        return -reward.below * below - reward.above * above
    return max(0.0, 1 - (below + above) / reward.margin)


NAMES = ["state 0", "state 1", "state 2"]


def counts(goal: Goal, t: int, horizon: int) -> float:
    steps = {"all": range(horizon), "end": [horizon - 1], "last 2 steps": range(max(0, horizon - 2), horizon)}
    inside = t in {**steps, "first 2 steps": range(2)}[goal.over]
    return inside * goal.weight * goal.discount**t * (1.0 if goal.step_weights is None else goal.step_weights[t])


def outcome_by_hand(problem: Problem, sequence: tuple[int, ...]) -> float:
    reward, total = problem.reward, 0.0
    goals = reward.parts if isinstance(reward, Total) else (reward,)
    states = problem.observed_states[0]
    for t, action in enumerate(sequence):
        values = problem.decode(states)
        for goal in goals:
            assert isinstance(goal, Goal)
            if weight := counts(goal, t, problem.horizon):
                total += weight * worth(goal.reward, values, action)
        total -= problem.change_cost * (action != int(problem.observed_actions[t]))
        if t < problem.horizon - 1:
            states = problem.step(t, states.unsqueeze(0), torch.tensor([action]))[0]
    return total


def enumerated(problem: Problem) -> dict[tuple[int, ...], float]:
    sequences = torch.tensor(list(itertools.product(range(problem.action_count), repeat=problem.horizon)))
    admissible = sequences[problem.admissible(sequences)]
    return {tuple(row): outcome_by_hand(problem, tuple(row)) for row in admissible.tolist()}


def problems(count: int, **changes: object) -> Iterator[Problem]:
    """So many of which the Taylor bound can say something: not those whose networks have kinks."""
    found = (goal_problem(seed, **changes) for seed in itertools.count())
    return itertools.islice((problem for problem in found if can_expand(problem)), count)


def test_names_are_those_of_random_problems() -> None:
    names = [feature.name for feature in random_problem(0, state_size=3).episode.schema.dynamic]
    assert names == NAMES


def test_outcomes_are_those_that_goals_define() -> None:
    for problem in problems(some(40, 4), actions=2, horizon=4, max_changes=None):
        by_hand = enumerated(problem)
        sequences = torch.tensor(list(by_hand))
        found = problem.rollout(sequences)[1]
        assert torch.allclose(found, torch.tensor(list(by_hand.values()), dtype=torch.float64), atol=1e-8)


@pytest.mark.parametrize("bound", ["taylor", "lipschitz", "none"])
def test_branch_and_bound_equals_enumeration(bound: str) -> None:
    for problem in problems(some(60), scaling="linear" if bound == "lipschitz" else "mixed"):
        by_hand = enumerated(problem)
        result = solve(problem, BranchAndBound(bound=bound))
        assert result.proven
        assert result.outcome == pytest.approx(max(by_hand.values()), abs=1e-8)
        changes = {sequence: int(problem.changes(torch.tensor(sequence))) for sequence in by_hand}
        for budget, found in enumerate(result.frontier):
            within = [outcome for sequence, outcome in by_hand.items() if changes[sequence] <= budget]
            assert (found.outcome is None) == (not within)
            assert not within or found.outcome == pytest.approx(max(within), abs=1e-8)


def test_anchors_lead_to_the_same_answer() -> None:
    for problem in problems(some(20), scaling="linear", rules=False):
        result, best = solve(problem, AnchorAStar(anchors=MonteCarlo(samples=50))), solve(problem, Exhaustive()).outcome
        assert result.outcome == pytest.approx(best, abs=1e-8)
        assert float(observed_bounds(problem)[-1]) >= best - problem.tolerance


def test_ensembles_agree_with_enumeration() -> None:
    for seed in range(some(20)):
        settings = {"model_kind": SMOOTH[seed % 3], "reward_kind": "goals", "horizon": 4, "max_changes": 2}
        problem = random_ensemble(seed, objective=("mean", "worst")[seed % 2], **settings)
        assert isinstance(problem, EnsembleProblem)
        bound = "taylor" if all(can_expand(member) for member in problem.members) else "lipschitz"
        result = solve(problem, BranchAndBound(bound=bound))
        assert result.outcome == pytest.approx(solve(problem, Exhaustive()).outcome, abs=1e-8)


def test_bounds_are_above_the_truth() -> None:
    for problem in problems(some(30), rules=False):
        check_child_bound(TaylorChildBound([problem]), [problem])
    for problem in problems(some(10), scaling="linear", rules=False):
        check_child_bound(LipschitzChildBound([problem]), [problem])


def test_bounds_are_as_close_as_for_a_reward_at_every_step() -> None:
    """A weight scales what a step earns and its remainders alike: with one goal, bounds scale with the weight."""
    for seed in range(some(20)):
        kind = ("location-scale", "additive")[seed % 2]
        plain = random_problem(seed, model_kind=kind, reward_kind="linear", strength=0.7, constrained=True)
        if not can_expand(plain):
            continue
        scaled = put(plain, Goal(plain.reward, weight=3.0))
        one, three = (TaylorChildBound([problem]).root() for problem in (plain, scaled))
        finite = one.isfinite()
        assert torch.equal(finite, three.isfinite())
        assert torch.allclose(3 * one[finite], three[finite], rtol=1e-5, atol=1e-5)


def test_bounds_of_the_last_step_are_close() -> None:
    """At the root, for one change: above the best outcome by less than the range of all outcomes, for most."""
    shares = []
    for seed in range(some(20, 2)):
        plain = random_problem(seed, model_kind="additive", reward_kind="linear", strength=0.7, constrained=True)
        problem = put(plain.with_max_changes(1), Goal(Linear({"state 0": 1.0}), over="end"))
        if not can_expand(problem):
            continue
        outcomes = list(enumerated(problem).values())
        bound = float(TaylorChildBound([problem]).root().max())
        shares.append((bound - max(outcomes)) / (max(outcomes) - min(outcomes)))
    assert min(shares) > -1e-9
    assert np.median(shares) < 0.2


def test_time_in_range_is_searched_without_expansions_and_exactly() -> None:
    for seed in range(some(20)):
        plain = random_problem(seed, model_kind=SMOOTH[seed % 3], reward_kind="linear", horizon=4)
        reward = Goal(TimeInRange("state 0", -0.5, 0.5, margin=0.5), over=("all", "last 2 steps")[seed % 2])
        problem = put(plain, reward)
        assert not can_expand(problem)
        assert choose_bound(problem) == "none"
        best = max(enumerated(problem).values())
        for bound in ("none", "lipschitz"):
            result = solve(problem, BranchAndBound(bound=bound))
            assert result.proven
            assert result.outcome == pytest.approx(best, abs=1e-8)
        assert result.outcome <= problem.largest_outcome <= problem.horizon + problem.tolerance


@pytest.mark.parametrize(
    ("reward", "bound", "led"),
    [
        (TimeInRange("state 0", -0.1, 0.1, margin=0.1), "lipschitz", "Lipschitz anchors led the search"),
        (TimeInRange("state 0", -0.1, 0.1, margin=0.1), "none", "Enumeration led the search"),
        (Within("state 0", -0.1, 0.1), "taylor", None),
    ],
)
def test_a_search_that_stops_says_what_led_it(reward: Reward, bound: str, led: str | None) -> None:
    stopped = 0
    for seed in range(8):
        plain = random_problem(seed, model_kind=SMOOTH[seed % 3], reward_kind="linear", horizon=6, max_changes=4)
        result = solve(put(plain, reward), BranchAndBound(bound=bound), limits=Limits(nodes=1))
        told = statement(result)
        stopped += result.status.at_limit
        assert ("led the search" in told) == (result.status.at_limit and led is not None)
        assert led is None or not result.status.at_limit or led in told
    assert stopped


def test_logs_of_proofs_hold_the_goals(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    for problem in problems(some(40)):
        result = solve(problem, BranchAndBound(bound="taylor"), proof=path)
        found = check_proof(path)
        assert found.complete
        assert found.outcomes[-1] == pytest.approx(max(enumerated(problem).values()), abs=1e-8)
        assert verify(result, problem.episode, problem.model, proof=path).proof_repeated
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(bytes(arrays.pop("header")))
    for factor in (2.0, -1.0):  # another question, and one that no bound could answer
        forged = arrays | {"reward/0/steps": factor * arrays["reward/0/steps"]}
        told = header | {"sha256": digest(header, forged)}
        np.savez(path, header=np.frombuffer(json.dumps(told).encode(), dtype=np.uint8), **forged)
        with pytest.raises(VerificationError):
            check_proof(path)


def test_zero_steps_count_nothing_even_where_values_overflow() -> None:
    """exp overflows at the first step; the goal speaks of the last one only."""
    problem = random_problem(3, model_kind="linear", reward_kind="linear", scaling="log", horizon=3)
    ended = put(problem, Goal(Linear({"state 0": -1.0}), over="end"))
    states = ended.observed_states.clone()
    states[0] = 1e6
    rewards = ended.free_rewards(slice(None), states, ended.observed_actions)
    assert rewards[:2].tolist() == [0.0, 0.0]
    assert rewards.isfinite().all()


def test_step_weights_are_one_for_each_step() -> None:
    plain = random_problem(1, model_kind="linear", reward_kind="linear", horizon=4)
    reward = Goal(Linear({"state 0": 1.0}), step_weights=(0.0, 2.0, 0.5, 1.0), discount=0.5)
    problem = put(plain, reward)
    by_hand = enumerated(problem)
    assert solve(problem).outcome == pytest.approx(max(by_hand.values()), abs=1e-8)
    with pytest.raises(InputError, match=r"episode .*3 step_weights for an episode of 4 steps"):
        put(plain, Goal(Linear({"state 0": 1.0}), step_weights=(1.0, 1.0, 1.0)))


def test_what_is_proven_harmless_knows_which_steps_count() -> None:
    """No push of the noise that is proven harmless undoes the gain, at any step, in any direction tried."""
    rng, tried = np.random.default_rng(0), 0
    for seed in range(some(20)):
        plain = random_problem(seed, model_kind=SMOOTH[seed % 3], reward_kind="linear", horizon=5, constrained=True)
        problem = put(
            plain, Goal(plain.reward, over=("end", "last 2 steps", "all")[seed % 3], discount=0.7, weight=4.0)
        )
        best = solve(problem)
        course = ShiftedCourse.of(problem, torch.tensor(best.actions))
        if not best.changes:
            continue
        steps = list(course.uncertain)
        sizes = at_steps(course.alone, *course.alone.uncertain)
        for step, size in zip(steps, sizes.tolist(), strict=True):
            directions = torch.tensor(rng.normal(size=(50, problem.noise.shape[1])))
            shifts = torch.zeros(50, *problem.noise.shape, dtype=torch.float64)
            shifts[:, step] = torch.nn.functional.normalize(directions) * min(size, 1e3) @ course.factor.mT
            assert (course.gains(shifts) > 0).all()
            tried += 1
    assert tried


def test_doses_cost_by_their_axes() -> None:
    problem = random_problem(2, model_kind="linear", reward_kind="linear", rules=True, horizon=4)
    space = problem.episode.schema.actions
    axis = space.axes[0]
    costly = put(problem, problem.reward + DoseCost({axis.name: 2.0}))
    sequence = problem.observed_actions
    doses = sum(space.vectors[action][0] for action in sequence.tolist())
    assert costly.outcome(sequence) == pytest.approx(problem.outcome(sequence) - 2.0 * doses)
    assert solve(costly).outcome == pytest.approx(solve(costly, Exhaustive()).outcome)
    with pytest.raises(InputError, match="no dose axis 'fluid'"):
        put(problem, DoseCost({"fluid": 1.0}))


def shortened(episode: Episode, length: int) -> Episode:
    rows = {name: getattr(episode, name)[:length] for name in ("states", "context", "actions")}
    return Episode("short", episode.schema, **rows)


def test_a_query_is_asked_of_episodes_of_any_length() -> None:
    """'end' is resolved against each episode's own length."""
    problem = random_problem(5, model_kind="linear", reward_kind="linear", horizon=5, max_changes=1)
    query = Query(Goal(Linear({"state 0": 1.0}), over="end"), 1)
    episodes = [problem.episode, shortened(problem.episode, 3)]
    for one, alone in zip(Problem.from_episodes(episodes, problem.model, query), episodes, strict=True):
        last = float(problem.decode(one.observed_states[-1])[0])
        assert one.observed_outcome == pytest.approx(last)
        assert one.horizon == len(alone)
