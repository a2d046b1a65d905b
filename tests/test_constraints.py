"""Rules about sequences: against their definition, one sequence at a time, and through every solver."""

import itertools
import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ifonly.bounds import MonteCarlo
from ifonly.bounds.lipschitz import AnchorBound, value_constants
from ifonly.constraints import Constraints, count_sequences, nearest_sequence
from ifonly.episodes.episode import Episode
from ifonly.episodes.schema import ActionSpace, Axis, Feature, Schema
from ifonly.errors import InputError, StoreError, VerificationError
from ifonly.instances import random_constraints, random_problem
from ifonly.problem import Problem
from ifonly.search.astar import AnchorAStar
from ifonly.search.base import Limits, Solver
from ifonly.search.baselines import Beam, Greedy, RandomSearch, TopSingleChanges, random_sequences
from ifonly.search.exhaustive import Exhaustive, best_values, outcome_frontier
from ifonly.search.result import Result, Status
from ifonly.search.solve import solve, without_idle_changes
from ifonly.search.verify import verify
from ifonly.testing import check_bound, check_solver

EXACT = 1e-9
HEURISTICS = (Greedy(), Beam(width=3), TopSingleChanges(), RandomSearch(samples=30))
DOSES = ActionSpace.product(Axis("drug", "mg", (0, 5, 20)), Axis("fluid", "mL", (0, 80)))  # number 2 drug + fluid

seeds = st.integers(0, 100_000)
profile = settings(deadline=None, derandomize=True, max_examples=60)


def doses_episode(actions: tuple[int, ...] = (0, 3, 5, 0), space: ActionSpace = DOSES) -> Episode:
    schema = Schema((Feature("x", "dynamic"),), space)
    return Episode("case 7", schema, states=np.arange(len(actions), dtype=float)[:, np.newaxis], actions=actions)


def levels(space: ActionSpace, action: int) -> dict[str, int]:
    return {axis.name: axis.levels.index(dose) for axis, dose in zip(space.axes, space.vectors[action], strict=True)}


def obeys(rules: Constraints, episode: Episode, sequence: tuple[int, ...]) -> bool:
    """The rules as a person reads them, for one sequence."""
    space, recorded = episode.schema.actions, [int(action) for action in episode.actions]

    def number(action: int | str) -> int:
        return action if isinstance(action, int) else space.labels.index(action)

    def within(one: int, other: int, limit: object) -> bool:
        if limit is None:
            return True
        first, second = levels(space, one), levels(space, other)
        most = limit if isinstance(limit, dict) else dict.fromkeys(first, limit)
        return all(abs(first[axis] - second[axis]) <= count for axis, count in most.items())

    for step, action in enumerate(sequence):
        if step in rules.required and action != number(rules.required[step]):
            return False
        if action != recorded[step]:
            if step in rules.locked or (rules.last_action_fixed and step == len(sequence) - 1):
                return False
            if action in map(number, (*rules.forbidden.get(None, ()), *rules.forbidden.get(step, ()))):
                return False
            if not within(action, recorded[step], rules.max_shift):
                return False
        pair = (sequence[step - 1], action)
        if step and pair != (recorded[step - 1], recorded[step]) and not within(*pair, rules.max_jump):
            return False
    return True


def drawn_problem(seed: int, *, masked: bool = False) -> Problem:
    rng = np.random.default_rng(seed)
    return random_problem(
        seed,
        rules=True,
        masked=masked,
        horizon=int(rng.integers(2, 6)),
        actions=int(rng.choice([1, 2, 3, 4, 6])) if rng.random() < 0.5 else 4,
        max_changes=[None, 0, 1, 2, 3][int(rng.integers(5))],
    )


def listed(problem: Problem) -> tuple[list[tuple[int, ...]], torch.Tensor]:
    """Every sequence of the right length, and which of them are admissible by definition."""
    every = list(itertools.product(range(problem.action_count), repeat=problem.horizon))
    recorded = problem.episode.actions
    rules = problem.constraints or Constraints()
    mask = problem._mask
    fine = [
        obeys(rules, problem.episode, sequence)
        and int((recorded != sequence).sum()) <= problem.max_changes
        and (mask is None or bool(mask[np.arange(problem.horizon), list(sequence)].all()))
        for sequence in every
    ]
    return every, torch.tensor(fine)


def plain_outcomes(problem: Problem, sequences: torch.Tensor) -> torch.Tensor:
    """Outcomes with the cost of changes counted by hand."""
    free = replace(problem, change_cost=0.0)
    return free.rollout(sequences)[1] - problem.change_cost * problem.changes(sequences).double()


@profile
@given(seed=seeds, masked=st.booleans())
def test_admissible_sequences_are_those_that_obey(seed: int, masked: bool) -> None:
    problem = drawn_problem(seed, masked=masked)
    every, fine = listed(problem)
    assert torch.equal(problem.admissible(torch.tensor(every)), fine)
    assert problem.sequence_count() == int(fine.sum()) > 0
    nearest = problem.nearest_actions.unsqueeze(0)
    assert problem.admissible(nearest).all()
    changes = problem.changes(torch.tensor(every))
    assert int(problem.changes(nearest)) == int(changes[fine].min())
    assert problem.is_restricted or torch.equal(problem.nearest_actions, problem.observed_actions)


@profile
@given(seed=seeds)
def test_exhaustive_finds_the_best_of_them_for_every_budget(seed: int) -> None:
    problem = drawn_problem(seed)
    every, fine = listed(problem)
    sequences = torch.tensor(every)
    outcomes = plain_outcomes(problem, sequences).masked_fill(~fine, -math.inf)
    result = solve(problem, Exhaustive(batch=7))
    assert result.outcome == pytest.approx(float(outcomes.max()), abs=EXACT)
    assert result.status is Status.OPTIMAL
    assert result.certificate.details["sequences"] == result.certificate.details["sequences_seen"] == int(fine.sum())
    assert problem.admissible(torch.tensor(result.actions).unsqueeze(0)).all()
    changes = problem.changes(sequences)
    wanted = [float(outcomes.masked_fill(changes > k, -math.inf).max()) for k in range(problem.max_changes + 1)]
    assert outcome_frontier(problem, batch=5).tolist() == pytest.approx(wanted, abs=EXACT)


@profile
@given(seed=seeds)
def test_values_of_continuations_know_what_came_before(seed: int) -> None:
    problem = drawn_problem(seed)
    every, _ = listed(problem)
    sequences = torch.tensor(every)
    states, _ = problem.rollout(sequences)
    t = seed % (problem.horizon - 1) + 1
    used = (sequences != problem.observed_actions)[:, :t].sum(1)
    starts = (used <= problem.max_changes).nonzero().squeeze(1)
    starts = starts[torch.randperm(len(starts), generator=torch.Generator().manual_seed(seed))]
    spent = used[starts] == problem.max_changes
    starts = torch.cat([starts[spent][:6], starts[~spent][:3]])
    last = sequences[starts, t - 1]
    known = best_values(problem, t, states[starts, t], used[starts], last_actions=last, batch=5)
    unknown = best_values(problem, t, states[starts, t], used[starts], batch=5)
    for row, start in enumerate(starts.tolist()):
        tails = [s for s in every if s[:t] == every[start][:t]]
        batch = torch.tensor(tails)
        gained = plain_outcomes(problem, batch) - _earned(problem, batch, t)
        steps = torch.arange(t, problem.horizon)
        within = problem.allowed[steps, batch[:, t:]].all(1) & (problem.changes(batch) <= problem.max_changes)
        linked = torch.ones_like(within)
        later = torch.ones_like(within)
        if problem.links is not None:
            linked = problem.links[steps, batch[:, t - 1 : -1], batch[:, t:]].all(1)
            later = problem.links[steps[1:], batch[:, t:-1], batch[:, t + 1 :]].all(1)
        best, relaxed = (gained.masked_fill(~mask, -math.inf).max() for mask in (within & linked, within & later))
        assert float(known[row]) == pytest.approx(float(best), abs=EXACT)
        assert float(unknown[row]) == pytest.approx(float(relaxed), abs=EXACT)


def _earned(problem: Problem, sequences: torch.Tensor, until: int) -> torch.Tensor:
    states, _ = problem.rollout(sequences)
    return sum(
        (problem.rewards(t, states[:, t], sequences[:, t]) for t in range(until)),
        start=torch.zeros(len(sequences), dtype=torch.float64),
    )


@profile
@given(seed=seeds)
def test_heuristics_return_admissible_sequences_only(seed: int) -> None:
    problem = drawn_problem(seed, masked=seed % 2 == 0)
    start = problem.outcome(problem.nearest_actions)
    optimum = solve(problem, Exhaustive()).outcome
    for solver in HEURISTICS:
        result = solve(problem, solver)
        assert problem.admissible(torch.tensor(result.actions).unsqueeze(0)).all(), solver.name
        assert start - EXACT <= result.outcome <= optimum + EXACT
        stopped = solve(problem, solver, limits=Limits(nodes=0))
        assert problem.admissible(torch.tensor(stopped.actions).unsqueeze(0)).all(), solver.name
    drawn = random_sequences(problem, 50, generator=torch.Generator().manual_seed(seed))
    assert problem.admissible(drawn).all()


def test_random_sequences_under_rules_are_uniform() -> None:
    problem = uniform_problem()
    every, fine = listed(problem)
    wanted = {sequence for sequence, good in zip(every, fine, strict=True) if good}
    assert 20 < len(wanted) < 200
    draws = 200 * len(wanted)
    drawn = random_sequences(problem, draws, generator=torch.Generator().manual_seed(3))
    counts = Counter(map(tuple, drawn.tolist()))
    assert set(counts) == wanted
    chi_squared = sum((count - 200) ** 2 / 200 for count in counts.values())
    assert chi_squared < len(wanted) + 6 * math.sqrt(2 * len(wanted))


def uniform_problem() -> Problem:
    problem = random_problem(1, rules=True, horizon=4, actions=6, max_changes=3, masked=False)
    action = int(problem.observed_actions[1] + 1) % 6
    return problem.with_constraints(Constraints(required={1: action}, max_jump={"other dose": 1}))


@pytest.mark.parametrize("solver", [Exhaustive(batch=3), *HEURISTICS], ids=lambda solver: solver.name)
def test_the_contract_of_solvers_holds_under_rules(solver: Solver) -> None:
    check_solver(solver, [random_problem(seed, rules=True, horizon=4) for seed in range(12)])


def test_a_star_keeps_the_rules_that_are_masks_and_refuses_the_others() -> None:
    solver, refused = AnchorAStar(MonteCarlo(samples=20)), 0
    for seed in range(25):
        problem = random_problem(seed, rules=True, horizon=4)
        if not problem.is_restricted:
            assert solve(problem, solver).outcome == pytest.approx(solve(problem, Exhaustive()).outcome, abs=EXACT)
            continue
        refused += 1
        with pytest.raises(InputError, match=r"anchor-astar cannot keep .*Exhaustive"):
            solve(problem, solver)
    assert 5 < refused < 23


def test_the_anchor_bound_stays_valid_under_rules() -> None:
    for seed in range(12):
        problem = random_problem(seed, rules=True, horizon=4)
        constants = value_constants(problem)
        anchors = MonteCarlo(samples=10).choose(problem, constants, torch.Generator().manual_seed(0))
        check_bound(AnchorBound(problem, anchors, constants), problem, samples=3)


class TestCostOfChanges:
    def test_it_is_in_the_outcome_and_not_in_what_is_shown(self) -> None:
        free = random_problem(1, reward_kind="linear", masked=False)
        costly = Problem.from_episode(free.episode, free.model, free.reward, free.max_changes, change_cost=0.1 + 0.2)
        sequences = torch.tensor(list(itertools.product(range(3), repeat=5)))
        wanted = free.rollout(sequences)[1] - (0.1 + 0.2) * free.changes(sequences).double()
        assert torch.allclose(costly.rollout(sequences)[1], wanted, rtol=0, atol=1e-13)  # not float32's 0.3
        assert costly.observed_outcome == free.observed_outcome
        result = solve(costly, Exhaustive())
        count = len(result.changes)
        assert count
        assert result.shown[0] == free.reward.show(free.observed_outcome)
        assert result.shown[1].value == pytest.approx(free.reward.show(free.outcome(result.actions)).value)
        assert result.outcome == pytest.approx(free.outcome(result.actions) - 0.3 * count)
        assert "outcomes as shown" in str(verify(result, free.episode, free.model))

    def test_changes_that_gain_less_are_not_made(self) -> None:
        free = random_problem(3, masked=False)
        gain = solve(free, Exhaustive()).improvement
        assert gain > 0
        for solver in (Exhaustive(), AnchorAStar(MonteCarlo(samples=20)), *HEURISTICS):
            costly = replace(free, change_cost=gain + 1e-3)
            assert solve(costly, solver).changes == ()

    @pytest.mark.parametrize("cost", [-0.1, math.nan, math.inf, "much", True])
    def test_nonsense_is_refused(self, cost: object) -> None:
        problem = random_problem(3)
        with pytest.raises(InputError, match="change_cost"):
            Problem.from_episode(problem.episode, problem.model, problem.reward, 1, change_cost=cost)  # type: ignore[arg-type]


def test_idle_changes_are_undone_only_where_that_is_admissible() -> None:
    for seed in range(40):
        problem = drawn_problem(seed)
        every, fine = listed(problem)
        rows = torch.tensor(every)[fine]
        for actions in rows[:: max(1, len(rows) // 5)]:
            kept = without_idle_changes(problem, actions, tolerance=math.inf)
            assert problem.admissible(kept.unsqueeze(0)).all()
            assert problem.changes(kept) <= problem.changes(actions)


@profile
@given(seed=seeds)
def test_results_and_their_verification_keep_the_rules(seed: int) -> None:
    problem = drawn_problem(seed, masked=seed % 2 == 0)
    reward = problem.reward if problem.reward.to_dict()["kind"] == "custom" else None
    for solver in (Exhaustive(), Greedy()):
        result = Result.from_json(solve(problem, solver).to_json())
        assert problem.constraints is not None
        assert result.constraints == problem.constraints.to_dict()
        assert result.change_cost == problem.change_cost
        report = verify(result, problem.episode, problem.model, reward=reward, samples=20)
        assert report.proof_repeated is solver.exact


def required_and_linked() -> tuple[Problem, Result]:
    problem = uniform_problem()
    assert problem.links is not None
    assert problem.must_change.tolist() == [False, True, False, False]
    return problem, solve(problem, Exhaustive())


def test_verification_refuses_sequences_against_the_rules() -> None:
    problem, result = required_and_linked()
    custom = problem.reward if problem.reward.to_dict()["kind"] == "custom" else None

    def check(claim: Result) -> None:
        verify(claim, problem.episode, problem.model, reward=custom)

    check(result)
    every, _ = listed(problem)
    sequences = torch.tensor(every)
    steps = torch.arange(4)
    allowed = problem.allowed[steps, sequences].all(1) & (problem.changes(sequences) <= 3)
    unlinked = sequences[allowed & ~problem.admissible(sequences)][0]
    with pytest.raises(VerificationError, match="consecutive actions"):
        check(replace(result, actions=unlinked.numpy()))
    with pytest.raises(VerificationError, match="sequence"):
        check(replace(result, actions=problem.episode.actions))
    with pytest.raises(VerificationError, match="cannot be put"):
        check(replace(result, max_changes=0))
    with pytest.raises(VerificationError, match="forbids the action observed at step 1"):
        check(replace(result, constraints=None))
    with pytest.raises(VerificationError, match="outcome"):
        check(replace(result, change_cost=result.change_cost + 1.0))


def test_results_of_version_1_are_read() -> None:
    problem = random_problem(2, masked=True, model_kind="location-scale", reward_kind="linear")
    content = json.loads(solve(problem, Exhaustive()).to_json())
    assert content["version"] == 2
    new = ("constraints", "change_cost", "frontier", "alternatives")
    old = {key: value for key, value in content.items() if key not in new} | {"version": 1}
    result = Result.from_dict(old)
    assert (result.constraints, result.change_cost) == (None, 0.0)
    verify(result, problem.episode, problem.model)
    with pytest.raises(StoreError, match="constraints: unknown"):
        Result.from_dict({**content, "constraints": {"lock": [1]}})


class TestProblem:
    def test_too_small_a_budget_says_what_is_needed(self) -> None:
        problem = random_problem(1, rules=True, horizon=4, actions=4, max_changes=2, masked=False)
        others = [(int(action) + 1) % 4 for action in problem.episode.actions]
        pinned = Constraints(required=dict(enumerate(others[:3])))
        with pytest.raises(InputError, match="at least 3 changes, but max_changes=2"):
            problem.with_constraints(pinned)
        wide = problem.with_constraints(None).with_max_changes(None).with_constraints(pinned)
        assert wide.must_change.tolist() == [True, True, True, False]
        with pytest.raises(InputError, match="at least 3 changes, but max_changes=0"):
            wide.with_max_changes(0)
        assert outcome_frontier(wide).isinf().tolist() == [True, True, True, False, False]

    def test_links_alone_can_need_more_changes(self) -> None:
        """A dose raised at one step pulls its neighbours along."""
        episode = doses_episode((0, 0, 0, 0))
        allowed, links = Constraints(required={1: 4}).allowed(episode), Constraints(max_jump=1).links(episode)
        nearest = nearest_sequence(allowed, links, episode.actions)
        assert nearest is not None
        assert nearest.tolist() == [2, 4, 2, 0]

    def test_contradictions_are_refused(self) -> None:
        problem = random_problem(1, rules=True, horizon=4, actions=4, max_changes=None, masked=False)
        apart = Constraints(required={0: 0, 1: 3}, max_jump=0)
        recorded = tuple(problem.episode.actions[:2])
        assert recorded != (0, 3)
        with pytest.raises(InputError, match="contradict each other"):
            problem.with_constraints(apart)
        with pytest.raises(InputError, match="must be Constraints"):
            problem.with_constraints({"locked": [1]})  # type: ignore[arg-type]

    def test_other_rules_keep_what_was_abducted(self) -> None:
        problem = random_problem(5, rules=True, masked=True)
        other = problem.with_constraints(Constraints(locked=[1]))
        assert other.noise is problem.noise
        assert other.alternatives(1).tolist() == []
        again = other.with_constraints(problem.constraints)
        assert torch.equal(again.allowed, problem.allowed)
        assert again.sequence_count() == problem.sequence_count()
        assert other.with_constraints(None).allowed.numpy().tolist() == problem._mask.tolist()  # type: ignore[union-attr]

    def test_counts_are_exact_however_large(self) -> None:
        space = ActionSpace.product(Axis("dose", "mg", tuple(range(10))))
        episode = doses_episode((0,) * 40, space)
        rules = Constraints(max_jump=8)
        links, allowed = rules.links(episode), rules.allowed(episode)
        assert links is not None
        ways = [1] * 10
        for _ in range(39):
            ways = [sum(ways) - (ways[9 - a] if a in (0, 9) else 0) for a in range(10)]
        assert count_sequences(allowed, links, episode.actions, 40) == sum(ways) > 2**64


class TestRules:
    def test_levels_are_positions_on_the_axes(self) -> None:
        episode = doses_episode((0, 3, 5, 0))
        assert Constraints(max_shift=1).allowed(episode)[2].tolist() == [False, False, True, True, True, True]
        assert Constraints(max_shift={"drug": 0}).allowed(episode)[1].tolist() == [
            False,
            False,
            True,
            True,
            False,
            False,
        ]
        assert Constraints(max_shift={"fluid": 0}).allowed(episode)[0].tolist() == [True, False] * 3

    def test_recorded_pairs_may_follow_each_other_whatever_the_limit(self) -> None:
        episode = doses_episode((0, 5, 0, 5))
        links = Constraints(max_jump=1).links(episode)
        assert links is not None
        assert links[0].all()
        assert links[1, 0, 5]
        assert not links[1, 5, 0]
        assert links[2, 5, 0]
        assert not links[2, 0, 5]
        assert Constraints(max_jump=2).links(episode) is None
        assert Constraints(max_shift=1).links(episode) is None

    def test_what_is_forbidden_everywhere_may_stay_where_it_was_recorded(self) -> None:
        allowed = Constraints(forbidden={None: ["drug 0 mg, fluid 0 mL", 3]}).allowed(doses_episode())
        assert allowed[:, 0].tolist() == [True, False, False, True]
        assert allowed[:, 3].tolist() == [False, True, False, False]

    def test_one_more_rule(self) -> None:
        rules = Constraints(forbidden={2: [1]}).locking(3).forbidding(2, 4).forbidding(None, 0).requiring(1, 2)
        assert rules == Constraints(locked=[3], forbidden={2: [1, 4], None: [0]}, required={1: 2})
        assert rules.requiring(1, 5).required == {1: 5}

    @profile
    @given(seed=seeds)
    def test_rules_survive_json(self, seed: int) -> None:
        episode = doses_episode()
        rules = random_constraints(episode, np.random.default_rng(seed), share=0.7)
        assert Constraints.from_dict(json.loads(json.dumps(rules.to_dict()))) == rules

    def test_what_a_file_leaves_out_is_no_rule(self) -> None:
        assert Constraints.from_dict({}) == Constraints()
        written = {"locked": [2], "forbidden": {"every": [1], "3": ["drug 5 mg, fluid 0 mL"]}, "required": {1: 4}}
        read = Constraints.from_dict(written)
        assert read.forbidden == {None: (1,), 3: ("drug 5 mg, fluid 0 mL",)}
        assert read.required == {1: 4}

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"locked": [-1]}, "locked: step -1 must be a whole number"),
            ({"locked": [True]}, "locked: step True"),
            ({"locked": [1.0]}, "locked: step 1.0"),
            ({"locked": "12"}, "locked must be a list"),
            ({"locked": 3}, "locked must be a list"),
            ({"forbidden": [3]}, "forbidden must be a mapping"),
            ({"forbidden": {1: 3}}, r"forbidden\[1\] must be a list"),
            ({"forbidden": {1: "drug"}}, r"forbidden\[1\] must be a list"),
            ({"forbidden": {-1: [3]}}, "forbidden: step -1"),
            ({"forbidden": {1: [-3]}}, r"forbidden\[1\]: action -3"),
            ({"required": {1: None}}, r"required\[1\]: action None"),
            ({"required": {None: 1}}, "required: step None"),
            ({"required": {1: 2}, "locked": [1]}, "step 1 is locked and has a required action"),
            ({"max_shift": -1}, "max_shift: limit -1"),
            ({"max_jump": 1.5}, "max_jump: limit 1.5"),
            ({"max_jump": {}}, "name at least one axis"),
            ({"max_jump": {3: 1}}, "name at least one axis"),
            ({"max_jump": {"drug": -1}}, r"max_jump\['drug'\]: limit -1"),
            ({"last_action_fixed": 1}, "last_action_fixed must be true or false"),
        ],
    )
    def test_nonsense_is_refused_at_once(self, given: dict[str, object], message: str) -> None:
        with pytest.raises(InputError, match=message):
            Constraints(**given)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("rules", "message"),
        [
            (Constraints(locked=[4]), "locked: there is no step 4; episode 'case 7' has 4 steps"),
            (Constraints(forbidden={9: [1]}), "forbidden: there is no step 9"),
            (Constraints(required={4: 1}), "required: there is no step 4"),
            (Constraints(forbidden={None: [6]}), "forbidden: no action 6; give a number from 0 to 5 or a label"),
            (Constraints(required={1: "aspirin"}), r"required\[1\]: no action 'aspirin'"),
            (Constraints(forbidden={1: [3]}), r"forbidden\[1\] names the action recorded at step 1"),
            (Constraints(required={1: 4}, forbidden={1: [4]}), "is required at step 1 .* another rule"),
            (Constraints(required={1: 4}, forbidden={None: [4]}), "is required at step 1 .* another rule"),
            (Constraints(required={3: 4}, max_shift=1), "is required at step 3 .* max_shift"),
            (Constraints(required={3: 4}, last_action_fixed=True), "is required at step 3 .* last_action_fixed"),
            (
                Constraints(max_shift={"pill": 1}),
                r"max_shift: there is no axis 'pill'; choose from \['drug', 'fluid'\]",
            ),
        ],
    )
    def test_rules_that_do_not_fit_the_episode(self, rules: Constraints, message: str) -> None:
        with pytest.raises(InputError, match=message):
            rules.allowed(doses_episode())

    def test_actions_without_axes_have_no_levels(self) -> None:
        episode = doses_episode((0, 1, 0), ActionSpace.categories(["wait", "treat"]))
        for call in (Constraints(max_shift=1).allowed, Constraints(max_jump=1).links):
            with pytest.raises(InputError, match=r"these actions have none .*forbid actions instead"):
                call(episode)
        with pytest.raises(InputError, match="no axis 'pill'"):
            Constraints(max_jump={"pill": 1}).links(doses_episode())

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ({"lock": [1]}, "unknown"),
            ([], "expected a mapping"),
            ({"required": {"every": 1}}, "step 'every' must be a whole number"),
            ({"required": [1]}, "required must be a mapping"),
            ({"forbidden": {"1": [2], "01": [3]}}, "names a step twice"),
        ],
    )
    def test_broken_files(self, content: object, message: str) -> None:
        with pytest.raises(InputError, match=message):
            Constraints.from_dict(content)  # type: ignore[arg-type]


def test_random_rules_are_of_every_kind() -> None:
    problems = [random_problem(seed, rules=True) for seed in range(60)]
    rules = [problem.constraints for problem in problems if problem.constraints is not None]
    assert len(rules) == 60
    for name in ("locked", "forbidden", "required", "max_shift", "max_jump", "last_action_fixed"):
        assert sum(bool(getattr(rule, name)) for rule in rules) > 3, name
    assert sum(problem.links is not None for problem in problems) > 8
    assert sum(bool(problem.must_change.any()) for problem in problems) > 8
    assert {problem.change_cost for problem in problems} == {0.0, 0.1, 0.5}
    assert {random_problem(seed, rules=None).constraints is None for seed in range(10)} == {True, False}
