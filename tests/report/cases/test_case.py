"""Cases against results, frontiers and figures that are computed elsewhere; claims against certificates."""

import json
import math
import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from dosed_problems import dosed

from ifonly.constraints import Constraints, Pace
from ifonly.errors import IfonlyError, InputError
from ifonly.problem import Problem
from ifonly.query import Limits
from ifonly.records import from_plain, to_plain
from ifonly.report.cases import Case, case_of, course_of, observed_case
from ifonly.report.cases.case import CaseAnswer
from ifonly.result import Certificate, Result, Status
from ifonly.result.table import from_row, to_row
from ifonly.rewards import Custom, Linear
from ifonly.search.astar import AnchorAStar
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.heuristics import Greedy
from ifonly.search.solve import solve
from ifonly.testing.instances import random_problem
from ifonly.text.cases import times_message


def drawn(seed: int) -> Problem:
    return random_problem(seed, horizon=5, actions=4, max_changes=3, rules=None)


def plain(case: Case) -> dict[str, Any]:
    """As it is read back from JSON, which knows neither NaN nor infinity."""
    content: dict[str, Any] = json.loads(json.dumps(to_plain(case), allow_nan=False))
    return content


def answer_to(problem: Problem, result: Result) -> CaseAnswer:
    answer = case_of(problem, result).answer
    assert answer is not None
    return answer


@pytest.mark.parametrize("seed", range(10))
def test_row_and_result_give_the_same_case(seed: int) -> None:
    problem = drawn(seed)
    result = solve(problem)
    again = from_row(to_row(result), result.provenance)
    from_result, from_table = plain(case_of(problem, result)), plain(case_of(problem, again))
    assert from_result == from_table
    assert from_result["answer"]["claim"]["proven"]
    assert from_result["observed"]["states"] == problem.episode.states.tolist()
    assert from_result["answer"]["best"]["actions"] == result.actions.tolist()
    assert from_result["answer"]["best"]["admissible"]


@pytest.mark.parametrize("seed", range(4))
def test_a_case_comes_back_from_json(seed: int) -> None:
    problem = drawn(seed)
    content = plain(case_of(problem, solve(problem, BranchAndBound(alternatives=3))))
    again = from_plain(Case, content, what="case")
    assert plain(again) == content
    assert again.answer is not None
    assert str(again.answer.claim.statement) == str(case_of(problem, solve(problem)).answer.claim.statement)  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(10))
def test_improvements_are_those_of_the_run_table(seed: int) -> None:
    problem = drawn(seed)
    result = solve(problem, limits=Limits(nodes=1) if seed % 2 else None)
    answer, expected = answer_to(problem, result), to_row(result)["improvement"]
    assert answer.best.improvement == (expected if expected is None else pytest.approx(expected, abs=1e-7))
    observed = result.observed_clipped_outcome
    for budget, found in zip(answer.budgets, result.frontier, strict=True):
        if budget.course is not None and budget.course.improvement is not None:
            gained = (found.clipped_outcome - observed) / abs(observed)  # type: ignore[operator]
            assert budget.course.improvement == pytest.approx(gained, abs=1e-7)


@pytest.mark.parametrize("seed", range(10))
def test_contributions_add_up_to_the_gain(seed: int) -> None:
    problem = drawn(seed)
    case = case_of(problem, solve(problem))
    assert case.answer is not None
    better = -1.0 if case.question.lower_is_better else 1.0
    gain = better * (case.answer.best.outcome - case.observed.outcome)  # type: ignore[operator]
    assert sum(one.share for one in case.answer.contributions) == pytest.approx(gain, abs=1e-6)
    for one, change in zip(case.answer.contributions, case.answer.best.changes, strict=True):
        alone = problem.episode.actions.copy()
        alone[one.step] = change.counterfactual
        shown = course_of(problem, alone).outcome
        assert one.alone == pytest.approx(better * (shown - case.observed.outcome), abs=1e-6)  # type: ignore[operator]
        assert one.step == change.step


def test_many_changes_are_not_shared_out() -> None:
    problem = random_problem(1, horizon=14, max_changes=None, model_kind="linear", reward_kind="linear", masked=False)
    result = solve(problem, Greedy())
    more = replace(result, actions=(problem.episode.actions + 1) % problem.action_count)
    answer = answer_to(problem, more)
    assert len(answer.best.changes) == 14
    assert answer.contributions == ()


@pytest.mark.parametrize("seed", range(8))
def test_budgets_and_alternatives_are_those_of_the_search(seed: int) -> None:
    problem = drawn(seed)
    result = solve(problem, BranchAndBound(alternatives=4))
    answer = answer_to(problem, result)
    assert [budget.max_changes for budget in answer.budgets] == list(range(problem.max_changes + 1))
    for budget, found in zip(answer.budgets, result.frontier, strict=True):
        assert budget.claim.proven
        assert (budget.course is None) == (found.actions is None)
        if budget.course is not None and found.actions is not None:
            assert budget.course.actions == tuple(found.actions.tolist())
            assert budget.claim.best_possible == budget.course.outcome
    assert [course.actions for course in answer.alternatives] == [
        tuple(o.actions.tolist()) for o in result.alternatives
    ]
    assert answer.alternatives[0] == answer.best
    assert answer.alternatives_proven
    every = solve(problem, Exhaustive())
    assert answer.best.outcome == pytest.approx(every.shown[1].value, abs=1e-6)


def with_certificate(result: Result, status: Status, gap: float, *, proven: bool) -> Result:
    """The same answer under another claim."""
    return replace(
        result,
        status=status,
        upper_bound=result.outcome + gap,
        certificate=Certificate("taylor", proven=proven),
        frontier=(*result.frontier[:-1], replace(result.frontier[-1], upper_bound=result.outcome + gap)),
    )


@cache
def solved_under(locked: tuple[int, ...], cost: float) -> tuple[Problem, Result]:
    """A problem, and its answer."""
    problem = dosed(constraints=Constraints(locked=locked), change_cost=cost)
    return problem, solve(problem)


STRONG = re.compile(r"no sequence .* does better|searched exactly|gap 0\b", re.IGNORECASE)


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("gap", [0.0, 0.04996, 1.2345678, 98765.4321, math.inf])
@pytest.mark.parametrize("proven", [True, False])
@pytest.mark.parametrize("locked", [(), (1,)])
@pytest.mark.parametrize("cost", [0.0, 0.25])
def test_no_claim_is_stronger_than_its_certificate(
    status: Status, gap: float, proven: bool, locked: tuple[int, ...], cost: float
) -> None:
    problem, solved = solved_under(locked, cost)
    result = with_certificate(solved, status, gap, proven=proven and math.isfinite(gap))
    case = case_of(problem, result)
    answer = case.answer
    assert answer is not None
    claim, statement = answer.claim, str(answer.claim.statement)
    really = status is Status.OPTIMAL and proven and gap == 0
    assert claim.proven == really
    assert bool(STRONG.search(statement)) == really
    assert ("not proven" in statement.lower()) != really
    assert ("The answer is not proven to be the best." in map(str, case.cautions)) != really
    assert answer.budgets[-1].claim == claim
    assert ("keeps the rules" in statement) == bool(locked)
    assert "under this model" in statement or not math.isfinite(gap) or not proven
    known = proven and math.isfinite(gap)
    assert (claim.gap is not None) == known
    assert (claim.best_possible is not None) == known
    if known and not really:
        (said,) = re.findall(r"by no more than ([\d.e+]+)", statement)
        assert float(said.rstrip(".")) >= gap
        # Lower is better: nothing admissible gets below this, with costs or without.
        assert claim.best_possible <= answer.best.outcome - gap + 1e-9  # type: ignore[operator]
    if known:
        assert ("counted as a loss of 0.25" in statement) == bool(cost)


@pytest.mark.parametrize("seed", range(6))
def test_the_best_possible_outcome_is_possible_at_best(seed: int) -> None:
    """Whatever stopped the search, no admissible sequence is shown to be better than what is said to be possible."""
    problem = drawn(seed)
    truth = solve(problem, Exhaustive()).shown[1]
    for solver, limits in ((BranchAndBound(), Limits(nodes=1)), (Greedy(), None), (AnchorAStar(), Limits(nodes=3))):
        try:
            result = solve(problem, solver, limits=limits)
        except IfonlyError:  # A* needs Lipschitz constants
            continue
        answer = answer_to(problem, result)
        claim = answer.claim
        if claim.best_possible is not None and not claim.proven:
            better = 1 if truth.higher_is_better else -1
            assert better * claim.best_possible >= better * truth.value - 1e-6
        if claim.proven and not problem.change_cost:
            assert answer.best.outcome == pytest.approx(truth.value, abs=1e-6)


def test_statements_in_full() -> None:
    def said(problem: Problem, **more: Any) -> str:
        return str(answer_to(problem, solve(problem, **more)).claim.statement)

    exactly = "searched exactly, gap 0."
    assert said(dosed()) == f"No sequence with at most 2 changes does better under this model: {exactly}"
    assert said(dosed(max_changes=1)).startswith("No sequence with at most 1 change does better")
    assert said(dosed(max_changes=None)).startswith("No sequence with any number of changes does better")
    kept = dosed(constraints=Constraints(locked=[0, 1, 2]))
    assert said(kept) == (
        f"No sequence with at most 2 changes that keeps the rules does better than what was done under this model: "
        f"{exactly}"
    )
    assert said(dosed(), solver=Greedy()) == (
        "Not proven: a quick method was used, which proves nothing. Other sequences with at most 2 changes may be "
        "better, and it is not known by how much."
    )
    declared = Custom(lambda states, actions: -states[..., 0] + 0 * actions, {"SOFA": 1.0}, name="sum")
    assert "as long as the declared limits of the outcome measure hold" in said(dosed(reward=declared))


def test_what_is_asked_and_recorded() -> None:
    rules = Constraints(
        locked=[0],
        forbidden={None: [5], 1: ["drug 20 mg, fluid 0 mL"]},
        required={2: 4},
        max_shift=1,
        max_jump={"drug": 2},
        last_action_fixed=True,
        pace=Pace(1, "24 hours"),
        stretches=2,
    )
    problem = dosed(constraints=rules)
    case = observed_case(problem)
    content = plain(case)
    assert content["answer"] is None
    rules_and_query = [str(rule) for rule in case.question.rules], content["question"].pop("query")
    assert rules_and_query == (
        [
            "Left as it was: the action at hour 0.",
            "Left as it was: the last action.",
            "At most 1 change within any 24 hours.",
            "Changes in at most 2 stretches of consecutive steps.",
            "Not to be changed to: drug 20 mg, fluid 80 mL.",
            "Not to be changed to at hour 4: drug 20 mg, fluid 0 mL.",
            "Required at hour 8: drug 20 mg, fluid 0 mL.",
            "Every dose: at most 1 level away from what was given at that step.",
            "drug: at most 2 levels away from the step before, except where it was recorded so.",
        ],
        json.loads(json.dumps(problem.query.to_dict())),
    )
    del content["question"]["rules"]
    assert content["question"] == {
        "max_changes": 2,
        "outcome": "cumulative SOFA",
        "lower_is_better": True,
        "change_cost": 0.0,
        "objective": None,
        "goals": [],
        "meaning": {
            "code": "goal.summed",
            "values": {
                "outcome": "cumulative SOFA",
                "feature": "SOFA",
                "steps": 4,
                "better": {"code": "list.lower", "values": {}},
            },
        },
    }
    assert content["time"] == {"unit": "hour", "step": 4.0, "at": [0.0, 4.0, 8.0, 12.0]}
    assert content["facts"] == [{"name": "age", "unit": "years", "value": 63.0}]
    assert [feature["name"] for feature in content["features"]] == ["SOFA", "MAP", "ventilated"]
    assert content["features"][1] == {
        "name": "MAP",
        "unit": "mmHg",
        "label": "MAP (mmHg)",
        "kind": "dynamic",
        "plausible": None,
        "observed": [60, 62, 70, 71],
        "origins": None,
    }
    assert content["treatments"]["axes"][0] == {
        "name": "drug",
        "unit": "mg",
        "levels": [0, 5, 20],
        "shown": ["0", "5", "20"],
    }
    levels = [action["levels"] for action in content["treatments"]["actions"]]
    assert levels == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    assert any("ventilated" in str(sentence) for sentence in case.assumptions)


def test_a_mask_is_a_rule_too_and_higher_may_be_better() -> None:
    allowed = np.ones((4, 6), dtype=bool)
    allowed[0, 5] = False
    rules = Constraints().restricted_to(allowed, dosed().episode)
    asked = observed_case(dosed(constraints=rules, reward=Linear({"MAP": 1.0}))).question
    assert [str(rule) for rule in asked.rules] == ["At some steps only some actions were considered."]
    assert (asked.outcome, asked.lower_is_better) == ("cumulative MAP", False)


class _Nothing:
    """Supports no treatment anywhere."""

    def supported(self, t: int, states: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(states), 6, dtype=torch.bool)

    def settings(self) -> dict[str, Any]:
        return {"kind": "nothing"}


def test_support_is_a_rule_too() -> None:
    problem = dosed(support=_Nothing())
    case = case_of(problem, solve(problem))
    (rule,) = case.question.rules
    assert str(rule) == "Only changes to actions that the data supports at the state then reached."
    assert case.answer is not None
    assert "that keeps the rules does better than what was done" in str(case.answer.claim.statement)


def test_unordered_treatments_have_no_levels() -> None:
    content = plain(observed_case(random_problem(2, rules=False)))
    assert content["treatments"]["axes"] == []
    assert all(action["levels"] == [] for action in content["treatments"]["actions"])


def test_cautions_are_about_this_case() -> None:
    cautions = case_of(dosed(max_changes=None), solve(dosed(max_changes=None))).cautions
    assert tuple(map(str, cautions)) == (
        "Under the other actions, SOFA lies outside its plausible range, 0 to 10 at hours 8 and 12.",
        "Outcomes and improvements count such values only up to the limits of their ranges; the search takes them as "
        "they are.",
        "drug: the dose differs by more than half of its scale at hour 0.",
        "A change falls on the first step: what came before it is not in the record.",
    )
    kept = dosed(constraints=Constraints(locked=[0, 1, 2]))
    assert case_of(kept, solve(kept)).cautions == ()
    assert observed_case(dosed()).cautions == ()


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([1], "hour 4"),
        ([0, 1, 2], "hours 0, 4 and 8"),
        ([0, 2, 3, 4, 5, 7], "hours 0, 8 to 20 and 28"),
        ([0, 1, 2, 3], "hours 0 to 12"),
    ],
)
def test_many_steps_in_a_row_are_said_as_one(steps: list[int], said: str) -> None:
    assert str(times_message(dosed().episode.schema, steps)) == said


def test_a_failed_episode_has_no_answer() -> None:
    case = observed_case(dosed(), failed=True)
    assert case.answer is None
    assert str(case.cautions[0]) == "This episode has no answer: solving it failed."


def test_alternatives_that_are_not_proven_are_said_to_be_so() -> None:
    problem = random_problem(3, horizon=8, actions=6, max_changes=4, rules=False)
    result = solve(problem, BranchAndBound(alternatives=4), limits=Limits(nodes=1))
    assert result.status is Status.NODE_LIMIT
    case = case_of(problem, result)
    assert case.answer is not None
    assert not case.answer.alternatives_proven
    assert "The alternatives are those found so far; others may be better." in map(str, case.cautions)


def test_what_does_not_belong_together_is_refused() -> None:
    problem, other = dosed(), drawn(1)
    with pytest.raises(InputError, match="the result is about episode"):
        case_of(problem, solve(other))


def test_features_tell_where_their_values_come_from() -> None:
    problem = dosed()
    origins = np.array([[0, 2], [0, 0], [0, 1], [0, 1]], dtype=np.uint8)
    episode = replace(problem.episode, origins=origins)
    sources = {feature.name: feature.origins for feature in observed_case(replace(problem, episode=episode)).features}
    assert sources == {
        "SOFA": ("measured",) * 4,
        "MAP": ("assumed", "measured", "carried", "carried"),
        "ventilated": None,
    }
    assert {feature.origins for feature in observed_case(problem).features} == {None}
