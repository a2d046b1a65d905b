import itertools
import json
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from effort import some
from half_spaces import random_half_spaces
from hypothesis import given
from hypothesis import strategies as st

from ifonly.errors import InputError
from ifonly.evidence import agreement
from ifonly.models.ensemble import Ensemble
from ifonly.models.standing import EnsembleNote
from ifonly.problem import EnsembleProblem, Problem
from ifonly.progress import Tick
from ifonly.query import Limits, Query
from ifonly.records import from_plain, to_plain
from ifonly.result import Agreement, Certificate, Evidence, Status
from ifonly.rewards import Custom, Linear, minus
from ifonly.search.base import Monitor, Solution, Solver
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.heuristics import Greedy
from ifonly.search.solve import solve
from ifonly.testing.instances import random_ensemble, random_problem
from ifonly.text.evidence import agreeing_message, lines_of, refit_messages

SMALL = {"horizon": 4, "actions": 3, "max_changes": 2}
SCHEMA = random_problem(0).episode.schema


def put_to(problem: Problem, model, **changes: object) -> Problem:
    """The query of `problem`, with changes, about another model, from the episode on."""
    query = problem.query.with_changes(**changes)
    return Problem.from_episode(problem.episode, model, query, support=problem.support)


def own_best(problem: Problem) -> list[tuple[int, ...]]:
    """Of all sequences within rounding of the best, those with the fewest changes, by listing everything."""
    every = torch.tensor(list(itertools.product(range(problem.action_count), repeat=problem.horizon)))
    every = every[problem.admissible(every)]
    outcomes = problem.rollout(every)[1]
    best = every[outcomes >= outcomes.max() - problem.tolerance]
    changes = problem.changes(best)
    return [tuple(row) for row in best[changes == changes.min()].tolist()]


SOFA = Query(minus("SOFA"))


def made(improvements: list[float]) -> Agreement:
    values = np.array(improvements)
    return Agreement(improvements=values, helping=int((values > 0).sum()))


def words_of(found: Agreement, query: Query = SOFA) -> list[str]:
    return [str(message) for message in refit_messages(found, SCHEMA, query)]


def in_words(found: Agreement, query: Query = SOFA) -> str:
    return "\n".join(words_of(found, query))


@pytest.mark.parametrize("seed", range(some(12)))
def test_improvements_are_those_of_every_member_alone(seed: int) -> None:
    ensemble = random_ensemble(seed, members=4, rules=seed % 2 == 0, **SMALL)
    problem, actions = ensemble.members[0], solve(ensemble).actions
    found = agreement(problem, actions, ensemble.models)
    alone = [put_to(problem, model) for model in ensemble.models]
    expected = [one.outcome(actions) - one.observed_outcome for one in alone]
    np.testing.assert_allclose(found.improvements, expected, rtol=1e-9, atol=2 * problem.tolerance)
    assert found.helping == sum(gain > problem.tolerance for gain in expected)
    assert found.share == found.helping / 4
    assert (found.steps, found.unsolved) == (None, 0)
    np.testing.assert_array_equal(agreement(ensemble, actions, ensemble.models).improvements, found.improvements)


@pytest.mark.parametrize("seed", range(4))
def test_own_answers_improve_as_their_solves_say(seed: int) -> None:
    ensemble = random_ensemble(seed, members=3, rules=True, **SMALL)
    for number, model in enumerate(ensemble.models):
        result = solve(put_to(ensemble.members[0], model))
        found = agreement(ensemble.members[0], result.actions, ensemble.models)
        assert found.improvements[number] == pytest.approx(result.improvement, abs=2 * ensemble.tolerance)


@pytest.mark.parametrize("seed", range(some(20)))
def test_steps_are_counted_as_exhaustive_search_finds_them(seed: int) -> None:
    ensemble = random_ensemble(seed, members=3, rules=seed % 2 == 0, **SMALL)
    problem = ensemble.members[0]
    if seed % 4 == 1:
        problem = replace(problem, support=random_half_spaces(problem, seed))
    actions = solve(problem).actions
    found = agreement(problem, actions, ensemble.models, each_refit=True, solver=Exhaustive() if seed % 3 else None)
    best = [own_best(put_to(problem, model)) for model in ensemble.models]
    observed = problem.observed_actions.tolist()
    assert found.steps is not None
    assert found.unsolved == 0
    assert [step.step for step in found.steps] == [t for t in range(4) if actions[t] != observed[t]]
    for step in found.steps:
        assert (step.action, step.of) == (actions[step.step], 3)
        # Where several sequences are equally good, any of them may be the one that is found.
        changing = [[one[step.step] != observed[step.step] for one in ties] for ties in best]
        agreeing = [[one[step.step] == step.action for one in ties] for ties in best]
        assert sum(map(all, changing)) <= step.same_step <= sum(map(any, changing))
        assert sum(map(all, agreeing)) <= step.same_action <= sum(map(any, agreeing))


def test_most_random_problems_have_one_best_sequence() -> None:
    """Otherwise the test above would compare nothing."""
    ensembles = [random_ensemble(seed, members=3, rules=seed % 2 == 0, **SMALL) for seed in range(6)]
    ties = [len(own_best(member)) > 1 for ensemble in ensembles for member in ensemble.members]
    assert np.mean(ties) < 0.2


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=25))
def test_quantiles_lie_in_proportion_between_members(values: list[float]) -> None:
    found, ordered = made(values), sorted(values)

    def at(level: float) -> float:
        place = level * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (place - below) * (ordered[above] - ordered[below])

    assert (found.median, found.low, found.high) == pytest.approx((at(0.5), at(0.05), at(0.95)), rel=1e-9, abs=1e-6)
    assert found.share == sum(value > 0 for value in values) / len(values)
    assert f"{found.helping} of {len(values)}" in str(agreeing_message(found)) or len(values) == 1


def test_one_refit_shows_no_spread() -> None:
    problem = random_problem(3, **SMALL)
    result = solve(problem)
    found = agreement(problem, result.actions, [problem.model], each_refit=True)
    assert found.low == found.median == found.high == pytest.approx(result.improvement)
    assert str(agreeing_message(found)) == "the only refit agrees"
    assert "cannot show how much refits differ" in in_words(found)
    assert found.steps is not None
    assert {(step.same_step, step.same_action, step.of) for step in found.steps} == {(1, 1, 1)}
    assert str(agreeing_message(made([-1.0]))) == "the only refit does not agree"


def test_refits_that_disagree_on_everything() -> None:
    ensemble = random_ensemble(6, members=5, rules=False, **SMALL)
    answers = [solve(member).actions for member in ensemble.members]
    assert len({tuple(actions) for actions in answers}) > 2
    found = agreement(ensemble.members[0], answers[0], ensemble.models, each_refit=True)
    assert found.steps is not None
    assert min(step.same_action for step in found.steps) < 5
    assert f"{found.helping} of 5 refits agree" in str(agreeing_message(found))


def test_the_recorded_sequence_changes_nothing() -> None:
    ensemble = random_ensemble(1, members=3, rules=False, **SMALL)
    found = agreement(ensemble, ensemble.observed_actions, ensemble.models, each_refit=True)
    assert found.steps == ()
    assert not found.improvements.any()
    assert lines_of(Evidence(refits=found), SCHEMA, SOFA) == [
        "The model was not checked. Nothing is changed, so there is nothing to examine."
    ]


def test_numbers_are_shown_in_the_outcomes_direction() -> None:
    values = [-1.5, 2.0, 4.0]
    lower = words_of(made(values))[0]
    assert lower == "cumulative SOFA 2 lower in the median; the refits lie between 1.5 higher and 4 lower"
    higher = words_of(made(values), Query(Linear({"SOFA": 2.0}), change_cost=0.5))[0]
    assert higher.startswith("outcome 2 higher in the median; the refits lie between 1.5 lower and 4 higher")
    assert higher.endswith("(each change counted as a loss of 0.5)")
    many = words_of(made([float(number) for number in range(21)]))[0]
    assert many == "cumulative SOFA 10 lower in the median; nine of ten refits lie between 1 lower and 19 lower"


def test_rounding_is_no_improvement() -> None:
    ensemble = random_ensemble(4, members=3, rules=False, model_kind="linear", **SMALL)
    problem = ensemble.members[0]
    idle = put_to(problem, problem.model, reward=Linear({SCHEMA.dynamic[0].name: 0.0}))
    actions = (problem.observed_actions + 1) % 3
    found = agreement(idle, actions, ensemble.models)
    assert (found.helping, found.median) == (0, 0.0)
    assert "unchanged in the median" in in_words(found)


def test_outcomes_that_are_not_finite_do_not_help() -> None:
    ensemble = random_ensemble(2, members=4, rules=False, **SMALL)
    problem = ensemble.members[0]
    actions = solve(ensemble).actions
    states = ensemble.replay(torch.as_tensor(actions)[None])[0][0]  # [T, M, D]
    # Finite up to a little beyond what was recorded: some members go farther.
    name, size = SCHEMA.dynamic[0].name, float(states[..., 0].abs().amax(0).median())
    recorded = float(problem.observed_states[:, 0].abs().max())
    size = max(size, recorded + 1e-6)

    def reward(states: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return torch.where(states[..., 0].abs() <= size, states[..., 1], torch.nan) + 0 * actions

    broken = put_to(problem, problem.model, reward=Custom(reward, 1.0, space="scaled", name=name))
    found = agreement(broken, actions, ensemble.models, each_refit=True)
    lost = (states[..., 0].abs() > size).any(0).numpy()
    assert 0 < lost.sum() < 4
    np.testing.assert_array_equal(np.isinf(found.improvements), lost)
    assert found.helping <= 4 - lost.sum()
    assert f"not finite: {lost.sum()} of 4" in in_words(found)
    json.dumps(to_plain(found), allow_nan=False)


@pytest.mark.parametrize("infinite", [1, 2, 3, 4])
def test_quantiles_of_infinite_losses(infinite: int) -> None:
    found = made([-np.inf] * infinite + [1.0] * (4 - infinite))
    content = json.loads(json.dumps(to_plain(found), allow_nan=False))
    assert content["improvements"] == [None] * infinite + [1.0] * (4 - infinite)
    for one in (found, from_plain(Agreement, content, what="agreement")):
        assert one.low == one.spread[0] == -np.inf
        assert one.median == (1.0 if infinite == 1 else -np.inf)


def test_limits_leave_refits_unsolved() -> None:
    ensemble = random_ensemble(5, members=3, rules=False, horizon=6, actions=4, max_changes=3)
    actions = solve(ensemble).actions
    found = agreement(
        ensemble, actions, ensemble.models, each_refit=True, solver=Exhaustive(), limits=Limits(seconds=0.0)
    )
    assert found.unsolved == 3
    assert found.steps is not None
    assert {step.of for step in found.steps} == {0}
    assert "refits without a proven best sequence of their own: 3 of 3" in in_words(found)


def test_refits_without_any_answer_are_unsolved() -> None:
    ensembles = (random_ensemble(seed, members=3, rules=True, **SMALL) for seed in range(50))
    ensemble = next(ensemble for ensemble in ensembles if ensemble.must_change.any())
    nothing = replace(random_half_spaces(ensemble, 0), offsets=torch.full((3,), -torch.inf, dtype=torch.float64))
    problem = replace(ensemble.members[0], support=nothing)
    found = agreement(problem, problem.nearest_actions, ensemble.models, each_refit=True)
    assert found.unsolved == 3


@dataclass(frozen=True)
class StoppedByHand(Solver):
    name: ClassVar[str] = "stopped by hand"
    exact: ClassVar[bool] = True
    raising: bool = False

    def search(self, problem: Problem, monitor: Monitor) -> Solution:
        if self.raising:
            raise KeyboardInterrupt
        return Solution(problem.observed_actions, Status.INTERRUPTED, float("inf"), Certificate("none", proven=False))


@pytest.mark.parametrize("raising", [True, False])
def test_ctrl_c_is_passed_on(raising: bool) -> None:
    ensemble = random_ensemble(1, members=2, rules=False, **SMALL)
    with pytest.raises(KeyboardInterrupt):
        agreement(ensemble, ensemble.observed_actions, ensemble.models, each_refit=True, solver=StoppedByHand(raising))


def test_progress_counts_the_refits() -> None:
    ensemble = random_ensemble(1, members=3, rules=False, **SMALL)
    ticks: list[Tick] = []
    agreement(ensemble, ensemble.observed_actions, ensemble.models, each_refit=True, progress=ticks.append)
    assert [(tick.stage, tick.done, tick.total) for tick in ticks] == [("refits", n, 3) for n in range(4)]
    ticks.clear()
    agreement(ensemble, ensemble.observed_actions, ensemble.models, progress=ticks.append)
    assert not ticks


def test_wrong_input_is_refused() -> None:
    ensemble = random_ensemble(1, members=2, rules=False, **SMALL)
    problem = ensemble.members[0]
    with pytest.raises(InputError, match="proves nothing"):
        agreement(ensemble, ensemble.observed_actions, ensemble.models, each_refit=True, solver=Greedy())
    with pytest.raises(InputError, match="at least one model"):
        agreement(problem, problem.observed_actions, [])
    with pytest.raises(InputError, match="whole numbers from 0 to 2"):
        agreement(problem, [0, 1], ensemble.models)
    with pytest.raises(InputError, match="different schemas"):
        agreement(problem, problem.observed_actions, [random_problem(9, state_size=3, **SMALL).model])


def test_notes_of_an_ensemble_are_told() -> None:
    problem = random_problem(2, model_kind="location-scale", **SMALL)
    ensemble = Ensemble(
        [problem.model, problem.model], centre=problem.model, notes=[EnsembleNote("few subjects", count=3, of=50)]
    )
    found = agreement(problem, solve(problem).actions, ensemble)
    assert found.notes == (EnsembleNote("few subjects", count=3, of=50),)
    assert words_of(found)[-1].startswith("note: There are only 3 subjects ")
    together = EnsembleProblem.from_episode(problem.episode, ensemble, Query(problem.reward, 2))
    assert agreement(together, together.observed_actions, together.models).notes == found.notes
    assert found.count == 2


def test_gains_within_rounding_are_none() -> None:
    ensemble = random_ensemble(3, members=3, rules=False, **SMALL)
    actions = solve(ensemble).actions
    largest = float(np.abs(agreement(ensemble, actions, ensemble.models).improvements).max())
    ensemble.__dict__["tolerance"] = largest  # as if rewards were so large
    found = agreement(ensemble, actions, ensemble.models)
    assert (found.helping, found.improvements.tolist()) == (0, [0.0] * 3)


def test_other_members_than_the_ensembles_may_be_asked() -> None:
    ensemble = random_ensemble(3, members=3, rules=False, **SMALL)
    actions = solve(ensemble).actions
    found = agreement(ensemble, actions, ensemble.models[1:])
    np.testing.assert_allclose(found.improvements, agreement(ensemble, actions, ensemble.models).improvements[1:])
