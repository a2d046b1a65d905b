"""Rules about sequences, against their definition; what is admissible, and what is refused."""

import itertools
import json
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st
from ruled_problems import doses_episode, drawn_problem, listed, obeys

from ifonly.automaton import START, Automaton, at_most_within, completions, nearest_sequence
from ifonly.constraints import Constraints, Pace
from ifonly.data.schema import ActionSpace, Axis
from ifonly.errors import InputError
from ifonly.search.exhaustive import outcome_frontier
from ifonly.testing.instances import random_problem
from ifonly.testing.random_rules import random_constraints

seeds = st.integers(0, 100_000)
profile = settings(deadline=None, derandomize=True, max_examples=some(60))


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


class TestProblem:
    def test_too_small_a_budget_says_what_is_needed(self) -> None:
        problem = random_problem(1, rules=True, horizon=4, actions=4, max_changes=2, masked=False)
        others = [(int(action) + 1) % 4 for action in problem.episode.actions]
        pinned = Constraints(required=dict(enumerate(others[:3])))
        with pytest.raises(InputError, match="at least 3 changes, but max_changes=2"):
            problem.with_constraints(pinned)
        wide = problem.with_constraints(Constraints()).with_max_changes(None).with_constraints(pinned)
        assert wide.must_change.tolist() == [True, True, True, False]
        with pytest.raises(InputError, match="at least 3 changes, but max_changes=0"):
            wide.with_max_changes(0)
        assert outcome_frontier(wide).isinf().tolist() == [True, True, True, False, False]

    def test_links_alone_can_need_more_changes(self) -> None:
        """A dose raised at one step pulls its neighbours along."""
        episode = doses_episode((0, 0, 0, 0))
        nearest = nearest_sequence(Constraints(required={1: 4}, max_jump=1).automaton(episode, 4), episode.actions)
        assert nearest is not None
        assert nearest.tolist() == [2, 4, 2, 0]

    def test_contradictions_are_refused(self) -> None:
        problem = random_problem(1, rules=True, horizon=4, actions=4, max_changes=None, masked=False)
        apart = Constraints(required={0: 0, 1: 3}, max_jump=0)
        recorded = tuple(problem.episode.actions[:2])
        assert recorded != (0, 3)
        with pytest.raises(InputError, match="contradict each other"):
            problem.with_constraints(apart)
        with pytest.raises(InputError, match="pass Constraints"):
            problem.with_constraints({"locked": [1]})  # type: ignore[arg-type]

    def test_other_rules_keep_what_was_abducted(self) -> None:
        problem = random_problem(5, rules=True, masked=True)
        other = problem.with_constraints(Constraints(locked=[1]))
        assert other.noise is problem.noise
        assert other.alternatives(1).tolist() == []
        again = other.with_constraints(problem.constraints)
        assert torch.equal(again.allowed, problem.allowed)
        assert again.sequence_count() == problem.sequence_count()
        assert other.with_constraints(Constraints()).allowed.all()

    def test_counts_are_exact_however_large(self) -> None:
        space = ActionSpace.product(Axis("dose", "mg", tuple(range(10))))
        episode = doses_episode((0,) * 40, space)
        rules = Constraints(max_jump=8)
        automaton = rules.automaton(episode, 40)
        assert automaton.looks_back
        ways = [1] * 10
        for _ in range(39):
            ways = [sum(ways) - (ways[9 - a] if a in (0, 9) else 0) for a in range(10)]
        assert completions(automaton, episode.actions, 40)[0, START, -1] == sum(ways) > 2**64


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
        rules = Constraints(max_jump=1).automaton(episode, 4)
        assert rules.looks_back
        assert rules.accepts([0, 5, 0, 5])
        assert all(rules.accepts([first, 3, 3, 3]) for first in range(6))  # nothing comes before the first
        assert not rules.accepts([5, 0, 0, 0])
        assert not rules.accepts([5, 0, 0, 5])
        assert rules.accepts([2, 2, 0, 5])
        assert not rules.accepts([0, 0, 5, 5])
        assert not Constraints(max_jump=2).automaton(episode, 4).looks_back
        assert not Constraints(max_shift=1).automaton(episode, 4).looks_back

    @pytest.mark.parametrize(("within", "steps"), [("24 hours", 6), ("1 day", 6), ("25 hours", 7), ("3 Steps", 3)])
    def test_a_pace_counts_the_steps_that_begin_within_a_period(self, within: str, steps: int) -> None:
        schema = replace(doses_episode().schema, step_length=4.0, step_unit="h")
        assert Pace(2, within).steps(schema) == steps
        assert Pace(2, within) == Pace(2, f" {within.upper()} ")

    def test_a_pace_in_hours_asks_for_steps_of_a_known_length(self) -> None:
        with pytest.raises(InputError, match=r"pace: within '1 day': the schema does not say how long a step is"):
            Constraints(pace=Pace(1, "1 day")).automaton(doses_episode(), 4)

    def test_a_pace_that_binds_nothing_costs_nothing(self) -> None:
        episode = doses_episode()
        assert Constraints(pace=Pace(1, "2 steps")).automaton(episode, 2).looks_back
        for pace, most in ((Pace(2, "4 steps"), 2), (Pace(3, "3 steps"), 4), (Pace(1, "1 step"), 4)):
            assert not Constraints(pace=pace).automaton(episode, most).looks_back

    @pytest.mark.parametrize("stretches", [1, 2, 3])
    def test_changes_come_in_at_most_so_many_stretches(self, stretches: int) -> None:
        episode = doses_episode((0, 3, 5, 0, 1, 2))
        rules = Constraints(stretches=stretches)
        kept, found = rules.automaton(episode, 6), Counter[bool]()
        for changed in itertools.product((False, True), repeat=6):
            sequence = tuple((int(action) + one) % 6 for action, one in zip(episode.actions, changed, strict=True))
            fine = len([None for one, _ in itertools.groupby(changed) if one]) <= stretches
            assert kept.accepts(sequence) == fine == obeys(rules, episode, sequence)
            found[fine] += 1
        # Ways to place one stretch, two and three in six steps, beside none.
        assert found[True] == sum((1, 21, 35, 7)[: stretches + 1])

    def test_stretches_that_bind_nothing_cost_nothing(self) -> None:
        episode = doses_episode()
        assert Constraints(stretches=1).automaton(episode, 2).looks_back
        for stretches, most in ((1, 1), (2, 4), (2, 2)):
            assert not Constraints(stretches=stretches).automaton(episode, most).looks_back

    def test_what_cannot_be_kept_in_mind_is_refused(self) -> None:
        changed = np.zeros((80, 2), dtype=bool)
        with pytest.raises(InputError, match=r"more than 100,000 patterns .* fewer steps, or allow fewer"):
            at_most_within(changed, 6, 60)

    def test_rules_together_keep_every_one_of_them(self) -> None:
        """The product of automata accepts what all of them accept, on every sequence of a small example."""
        rng = np.random.default_rng(0)
        for _ in range(20):
            rules = [_drawn_automaton(rng) for _ in range(3)]
            together = rules[0] & rules[1] & rules[2]
            for sequence in itertools.product(range(3), repeat=4):
                assert together.accepts(sequence) == all(rule.accepts(sequence) for rule in rules)

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
            ({"window": [3]}, "window must be two steps"),
            ({"window": [3, 1]}, "step 3 comes after step 1"),
            ({"window": [0, -1]}, "window: step -1"),
            ({"pace": 2}, "pace: expected a mapping"),
            ({"pace": {"changes": 2}}, r"pace: missing 'within'"),
            ({"pace": {"changes": 0, "within": "6 steps"}}, "changes 0 would allow none at all"),
            ({"pace": {"changes": 1.5, "within": "6 steps"}}, "pace: changes 1.5"),
            ({"pace": {"changes": 1, "within": 6}}, "within 6 must be a period, such as '24 hours'"),
            ({"pace": {"changes": 1, "within": "0 steps"}}, "within '0 steps' must be a period"),
            ({"stretches": 0}, "stretches 0 would allow no change at all"),
            ({"stretches": 1.5}, "stretches: number 1.5 must be a whole number of stretches"),
            ({"stretches": True}, "stretches: number True"),
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
        for rules in (Constraints(max_shift=1), Constraints(max_jump=1)):
            with pytest.raises(InputError, match=r"these actions have none .*forbid actions instead"):
                rules.automaton(episode, 3)
        with pytest.raises(InputError, match="no axis 'pill'"):
            Constraints(max_jump={"pill": 1}).automaton(doses_episode(), 3)

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


def _drawn_automaton(rng: np.random.Generator) -> Automaton:
    count, kinds = (int(number) for number in rng.integers(2, 6, size=2))
    after = rng.integers(0, count, size=(count, kinds))
    after[0], after[:, 0] = 0, 0
    return Automaton(rng.integers(0, kinds, size=(4, 3)), after)


def test_random_rules_are_of_every_kind() -> None:
    problems = [random_problem(seed, rules=True) for seed in range(60)]
    rules = [problem.constraints for problem in problems]
    assert len(rules) == 60
    for field in fields(Constraints):
        assert sum(bool(getattr(rule, field.name)) for rule in rules) > 3, field.name
    assert sum(problem.automaton.looks_back for problem in problems) > 8
    assert sum(bool(problem.must_change.any()) for problem in problems) > 8
    assert {problem.change_cost for problem in problems} == {0.0, 0.1, 0.5}
    free = {replace(random_problem(seed, rules=None).constraints, choices={}) == Constraints() for seed in range(10)}
    assert free == {True, False}
