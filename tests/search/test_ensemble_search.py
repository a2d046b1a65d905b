"""Ensembles: the exact search for the mean, the worst and quantiles of several models, against brute force."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from effort import some
from ensemble_oracles import Truth, counted, ranking, truth
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_problems import random_ensemble, random_problem

from ifonly.bounds.factory import make_child_bound
from ifonly.bounds.taylor import TaylorChildBound, can_expand
from ifonly.constraints import Constraints
from ifonly.data import ActionSpace, Episode, Feature, Scaler, Schema
from ifonly.errors import InputError, StoreError, VerificationError
from ifonly.models import Additive, LinearModel, LocationScale, TransitionModel
from ifonly.models.effects import Shrinkage, SubjectEffectModel, with_effects
from ifonly.objective import Objective
from ifonly.problem import EnsembleProblem, Problem
from ifonly.query import Limits, Query
from ifonly.result import Result, Status
from ifonly.rewards import Custom, minus
from ifonly.search.astar import AnchorAStar
from ifonly.search.batch import solve_batch
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.contributions import contributions
from ifonly.search.exhaustive import Exhaustive, outcome_frontier
from ifonly.search.heuristics import Beam, Greedy, RandomSearch, TopSingleChanges
from ifonly.search.session import Session
from ifonly.search.solve import solve
from ifonly.search.verify import verify
from ifonly.testing import check_child_bound, check_solver
from ifonly.testing.instances import MODEL_KINDS, REWARD_KINDS
from ifonly.text.results import statement

GOALS: tuple[str | float, ...] = ("mean", "worst", 0.3, 0.5, 0.9)


def ensembles(count: int, start: int = 0, **given_settings: Any) -> Iterator[EnsembleProblem]:
    """Every kind of model and reward, goal and budget, with and without rules, one to five members."""
    for seed in range(start, start + count):
        drawn = {
            "model_kind": (*MODEL_KINDS, None)[seed % (len(MODEL_KINDS) + 1)],
            "reward_kind": REWARD_KINDS[seed // 3 % len(REWARD_KINDS)],
            "max_changes": (2, 0, 1, 3, None)[seed % 5],
            "horizon": 2 + seed % 4,
            "actions": 2 + seed % 2,
            "rules": None,
            "members": 1 + seed // 2 % 5,
            "objective": GOALS[seed // 4 % len(GOALS)],
        }
        yield random_ensemble(seed, **{**drawn, **given_settings})


def check_answer(result: Result, ensemble: EnsembleProblem, every: Truth, *, proven: bool = True) -> None:
    """The frontier, the answer and its members' outcomes against all sequences."""
    tolerance = 10 * ensemble.tolerance
    by_sequence = {tuple(row): number for number, row in enumerate(every.sequences.tolist())}
    best = every.frontier(ensemble.max_changes)
    for budget, wanted in zip(result.frontier, best, strict=bool(result.frontier)):
        assert budget.upper_bound >= wanted - tolerance
        if wanted == -math.inf:
            assert budget.actions is None
            continue
        assert budget.actions is not None
        assert budget.outcome is not None
        number = by_sequence[tuple(budget.actions.tolist())]
        assert every.changes[number] <= budget.max_changes
        assert budget.outcome == pytest.approx(every.outcomes[number], abs=tolerance)
        assert budget.member_outcomes == pytest.approx(every.member_outcomes[number], abs=tolerance)
        if proven:
            assert budget.outcome == pytest.approx(wanted, abs=tolerance)
            assert budget.upper_bound == pytest.approx(wanted, abs=tolerance)
    number = by_sequence[tuple(result.actions.tolist())]
    assert result.outcome == pytest.approx(every.outcomes[number], abs=tolerance)
    assert result.member_outcomes == pytest.approx(every.member_outcomes[number], abs=tolerance)
    assert result.upper_bound >= best[-1] - tolerance
    if proven:
        assert result.status is Status.OPTIMAL
        assert result.certificate.proven
        assert result.outcome == pytest.approx(best[-1], abs=tolerance)


@pytest.mark.parametrize("bound", ["none", "lipschitz", "auto"])
def test_every_budget_equals_enumeration(bound: str) -> None:
    for number, ensemble in enumerate(ensembles(some(40), constrained=bound == "lipschitz" or None)):
        result = solve(ensemble, BranchAndBound(bound=bound, batch=1 + number % 5))
        check_answer(result, ensemble, truth(ensemble))


def weighted(ensemble: EnsembleProblem, seed: int) -> EnsembleProblem:
    """The same members, which count differently: by much, by little, or by round numbers with many ties."""
    rng, count = np.random.default_rng(seed), len(ensemble.models)
    drawn = (rng.dirichlet(np.full(count, 0.5)) + 0.01, rng.uniform(0.9, 1.1, count), rng.integers(1, 4, count))
    return replace(ensemble, weights=Objective("mean", tuple(map(float, drawn[seed % 3]))).weights)


@pytest.mark.parametrize("bound", ["none", "lipschitz", "auto"])
def test_weighted_members_of_any_kinds_equal_enumeration(bound: str) -> None:
    """Each member of a kind of its own: the weighted mean, the worst and weighted quantiles, for every budget."""
    for number, plain in enumerate(
        ensembles(some(100, one_in=10), 3000, model_kind=None, constrained=bound == "lipschitz" or None, members=4)
    ):
        ensemble = weighted(plain, number)
        every = truth(ensemble)
        check_answer(solve(ensemble, BranchAndBound(bound=bound, batch=1 + number % 5)), ensemble, every)
        if bound == "none":
            check_answer(solve(ensemble, Exhaustive(batch=7)), ensemble, every)


def with_shared_effects(plain: EnsembleProblem, seed: int) -> EnsembleProblem:
    """The same question put to four members of two kinds, which infer the same subject effects from the record."""
    generator = torch.Generator().manual_seed(seed)
    wide = with_effects(plain.episode.schema)
    kinds = [LocationScale(wide, hidden=(3,)), Additive(wide, hidden=(3,))] * 2 + [LocationScale(wide, hidden=(2,))]
    made = [kind.from_settings(wide, kind.settings(), Scaler.identity(wide)).double() for kind in kinds]
    for model in made:
        model.initialize(generator)
    numbers = torch.rand(4, plain.observed_states.shape[1], generator=generator, dtype=torch.float64)
    shrinkage = Shrinkage(*(tuple((0.3 + row).tolist()) for row in numbers))
    *seconds, first = made
    members = [SubjectEffectModel(first, second, shrinkage).eval() for second in seconds]
    for member in members:
        member.set_scaler(plain.models[0].scaler)
    query = plain.query.with_changes(allow_failed_model=True)
    return EnsembleProblem.from_episode(plain.episode, members, query)


def test_members_of_kinds_with_subject_effects_equal_enumeration() -> None:
    for number, plain in enumerate(ensembles(some(200, one_in=20), 5000, model_kind="linear", rules=False)):
        ensemble = weighted(with_shared_effects(plain, number), number)
        assert ensemble.context.shape[1] > len(ensemble.episode.schema.context)
        check_answer(solve(ensemble, BranchAndBound(batch=1 + number % 5)), ensemble, truth(ensemble))


@pytest.mark.parametrize("goal", GOALS)
def test_led_by_expansions_weighted_members_equal_enumeration(goal: str | float) -> None:
    given_settings = {"model_kind": "location-scale", "reward_kind": "linear", "objective": goal, "strength": 0.7}
    for number, plain in enumerate(smooth_ensembles(some(12), 400, **given_settings)):
        ensemble = weighted(plain, number)
        check_answer(solve(ensemble, BranchAndBound(bound="taylor")), ensemble, truth(ensemble))
        if ensemble.max_changes:
            check_child_bound(make_child_bound([ensemble], "taylor"), [ensemble], samples=3)


def test_equal_weights_change_no_bit() -> None:
    for number, plain in enumerate(ensembles(some(30), 3500)):
        size = len(plain.models)
        same = replace(plain, weights=Objective("mean", (0.1 * (1 + number),) * size).weights)
        assert same.weights is None
        one, other = solve(plain).to_dict(), solve(same).to_dict()
        for result in (one, other):
            result.pop("stats")
        assert one == other


def smooth_ensembles(count: int, start: int, **given_settings: Any) -> Iterator[EnsembleProblem]:
    for ensemble in ensembles(10 * count, start, **given_settings):
        if all(can_expand(member) for member in ensemble.members):
            count -= 1
            yield ensemble
        if not count:
            return


@pytest.mark.parametrize("goal", GOALS)
def test_led_by_expansions_every_budget_equals_enumeration(goal: str | float) -> None:
    given_settings = {"model_kind": "location-scale", "reward_kind": "linear", "objective": goal, "strength": 0.7}
    for number, ensemble in enumerate(smooth_ensembles(some(12), 400, **given_settings)):
        result = solve(ensemble, BranchAndBound(bound="taylor", batch=1 + number % 5))
        check_answer(result, ensemble, truth(ensemble))
        assert ensemble.max_changes == 0 or result.certificate.method == TaylorChildBound.method


def test_exhaustive_search_equals_enumeration() -> None:
    for ensemble in ensembles(some(40), start=800):
        every = truth(ensemble)
        result = solve(ensemble, Exhaustive(batch=7))
        check_answer(result, ensemble, every)
        assert outcome_frontier(ensemble).tolist() == pytest.approx(every.frontier(ensemble.max_changes), abs=1e-8)
        assert result.certificate.details["objective"] == ensemble.objective.goal


@pytest.mark.parametrize("bound", ["none", "lipschitz"])
def test_best_few(bound: str) -> None:
    for ensemble in ensembles(some(12), start=1000, constrained=True):
        wanted = ranking(ensemble, truth(ensemble))
        for number in (3, 10_000):
            result = solve(ensemble, BranchAndBound(bound=bound, alternatives=number, batch=3))
            values = [one.outcome for one in result.alternatives]
            assert values == pytest.approx([value for value, _ in wanted[:number]], abs=1e-8)
            for one in result.alternatives:
                assert one.member_outcomes is not None
                assert counted(ensemble.objective.goal, one.member_outcomes) == pytest.approx(one.outcome, abs=1e-8)


@pytest.mark.parametrize("bound", ["lipschitz", "taylor"])
def test_bounds_are_above_the_truth_at_every_node(bound: str) -> None:
    kinds = {"model_kind": "location-scale", "reward_kind": "linear", "constrained": True, "max_changes": 3}
    for ensemble in smooth_ensembles(some(8), 1200, **kinds):
        check_child_bound(make_child_bound([ensemble], bound), [ensemble], samples=6)


def test_too_low_a_bound_of_one_member_is_noticed() -> None:
    """Of the member that counts, that is: the check of bounds can fail."""
    ensemble = random_ensemble(3, members=2, objective="worst", model_kind="linear", reward_kind="linear", rules=False)
    bound = make_child_bound([ensemble], "lipschitz")
    low = bound._bounds[0]  # type: ignore[attr-defined]
    children, root = low.children, low.root
    low.children, low.root = (lambda nodes: children(nodes) - 5.0), (lambda: root() - 5.0)
    with pytest.raises(VerificationError, match="below the truth"):
        check_child_bound(bound, [ensemble])


def test_solvers_keep_their_contract() -> None:
    few = list(ensembles(6, start=1400, constrained=True))
    for solver in (BranchAndBound(), BranchAndBound(bound="lipschitz"), Greedy(), RandomSearch(samples=50), Beam(5)):
        check_solver(solver, few)
    check_solver(TopSingleChanges(), few)


@pytest.mark.parametrize("goal", GOALS)
def test_an_ensemble_of_one_is_the_plain_problem(goal: str | float) -> None:
    for seed in range(some(5)):
        problem = random_problem(seed, rules=None, max_changes=2 + seed % 2)
        ensemble = EnsembleProblem.from_problem(problem, [problem.model], objective=goal)
        for solver in (BranchAndBound(alternatives=4), Exhaustive(), Greedy()):
            one, other = solve(problem, solver), solve(ensemble, solver)
            assert one.actions.tolist() == other.actions.tolist()
            assert one.outcome == pytest.approx(other.outcome, abs=ensemble.tolerance)
            assert one.states == pytest.approx(other.states)
            assert [a.actions.tolist() for a in one.alternatives] == [a.actions.tolist() for a in other.alternatives]


def opposites(offsets: list[list[float]]) -> tuple[Episode, list[TransitionModel]]:
    """One feature that forgets its past; action 1 moves it by another offset under each member."""
    schema = Schema((Feature("x", "dynamic"),), ActionSpace.categories(["wait", "act"]))
    models: list[TransitionModel] = [
        LinearModel(schema, np.zeros((2, 1, 1)), offsets=[[0.0], [offset]]) for (offset,) in offsets
    ]
    episode = Episode("case", schema, states=[[1.0], [2.0], [3.0]], actions=[0, 0, 0])
    return episode, models


def test_members_that_disagree_on_everything() -> None:
    """What helps one member harms the other as much: the mean gains nothing, and the worst member only loses."""
    episode, models = opposites([[-1.0], [1.0]])
    for goal in ("mean", "worst", 0.5):
        result = solve(EnsembleProblem.from_episode(episode, models, Query(minus("x"), None, objective=goal)))
        assert result.status is Status.OPTIMAL
        assert result.changes == ()
        assert result.outcome == pytest.approx(-6.0)
    hopeful = solve(EnsembleProblem.from_episode(episode, models, Query(minus("x"), None, objective=0.51)))
    assert hopeful.outcome == pytest.approx(-4.0)  # the better of two members counts, and gains 1 at each of two steps


def test_the_objectives_differ_as_by_hand() -> None:
    """Offsets -3, 1, 1, 1: the mean gains nothing by acting (0 a step), the better quarter of members 3 a step."""
    episode, models = opposites([[-3.0], [1.0], [1.0], [1.0]])

    def best(goal: str | float) -> float:
        return solve(EnsembleProblem.from_episode(episode, models, Query(minus("x"), 1, objective=goal))).improvement

    assert best("mean") == pytest.approx(0.0)
    assert best("worst") == best(0.75) == pytest.approx(0.0)
    assert best(0.76) == pytest.approx(3.0)


@pytest.mark.parametrize("goal", ["mean", "worst", 0.4])
def test_limits_leave_valid_brackets(goal: str | float) -> None:
    stopped = 0
    for number, ensemble in enumerate(
        ensembles(some(16, one_in=3), 1600, objective=goal, max_changes=3, constrained=True, horizon=4)
    ):
        every = truth(ensemble)
        limits = (Limits(nodes=0), Limits(nodes=3), Limits(seconds=0.0), Limits(gap=0.5))[number % 4]
        result = solve(ensemble, BranchAndBound(bound="lipschitz", batch=1), limits=limits)
        check_answer(result, ensemble, every, proven=False)
        assert math.isfinite(result.upper_bound)  # anchors on the observed path at the least
        stopped += result.status is not Status.OPTIMAL
    assert stopped > some(2, one_in=3)


def test_a_session_gives_the_answers_of_solve() -> None:
    for ensemble in ensembles(some(10), start=1800, rules=True, actions=4, max_changes=3):
        session = Session(ensemble.with_constraints(Constraints()))
        rules = ensemble.constraints
        for constraints in (Constraints(), rules, Constraints()):
            fresh = ensemble.with_constraints(constraints)
            wanted = truth(fresh).frontier(fresh.max_changes)[-1]
            found = session.solve(constraints)
            assert found.outcome == pytest.approx(wanted, abs=10 * ensemble.tolerance)


def test_ensembles_are_searched_together_like_one_by_one() -> None:
    """Several episodes, the same members."""
    ensemble = random_ensemble(11, members=3, objective="worst", model_kind="linear", reward_kind="linear", rules=False)
    others = [random_problem(seed, model_kind="linear", reward_kind="linear", rules=False) for seed in range(3)]
    together = [ensemble]
    for other in others:
        episode = replace_actions(ensemble.episode, other.episode.actions)
        together.append(
            EnsembleProblem.from_episode(episode, ensemble.models, Query(ensemble.reward, 2, objective="worst"))
        )
    for one, other in zip(solve_batch(together), [solve(each) for each in together], strict=True):
        assert one.actions.tolist() == other.actions.tolist()
        assert one.outcome == pytest.approx(other.outcome, abs=1e-9)
        assert one.provenance.model == other.provenance.model


def replace_actions(episode: Episode, actions: np.ndarray) -> Episode:
    return Episode(episode.id, episode.schema, states=episode.states, actions=actions, context=episode.context)


def test_results_are_stored_and_verified() -> None:
    for number, ensemble in enumerate(ensembles(some(12), start=2000)):
        result = solve(ensemble, (BranchAndBound(alternatives=3), Exhaustive(), Greedy())[number % 3])
        again = Result.from_json(result.to_json())
        assert again.to_dict() == result.to_dict()
        assert again.query.objective == ensemble.objective.goal
        assert again.provenance.model.members == tuple(model.fingerprint() for model in ensemble.models)
        reward = ensemble.reward if ensemble.reward.to_dict()["kind"] == "custom" else None
        report = verify(again, ensemble.episode, ensemble.models, reward=reward)
        assert any(check.claim == "outcomes of members" for check in report.checks)


def of_other(result: Result, **changes: Any) -> Result:
    return replace(result, provenance=replace(result.provenance, **changes))


@pytest.mark.parametrize(
    ("falsify", "complaint"),
    [
        (lambda r: replace(r, outcome=r.outcome + 0.1, upper_bound=r.upper_bound + 0.1), "outcome"),
        (lambda r: of_other(r, query=r.query.with_changes(objective="worst")), "outcome"),
        (lambda r: replace(r, member_outcomes=r.member_outcomes[::-1]), "outcomes of members"),
        (lambda r: of_other(r, model=replace(r.provenance.model, members=("0" * 16,) * 3)), "members"),
        (lambda r: replace(r, states=r.states + 0.01), "states"),
        (lambda r: replace(r, upper_bound=r.outcome - 1.0), "bracket"),
    ],
)
def test_falsehoods_are_named(falsify: Any, complaint: str) -> None:
    ensemble = random_ensemble(5, members=3, model_kind="location-scale", reward_kind="linear", masked=False)
    result = solve(ensemble)
    assert result.improvement > 0.1
    verify(result, ensemble.episode, ensemble.models)
    with pytest.raises(VerificationError, match=rf"\n  {complaint}: "):
        verify(falsify(result), ensemble.episode, ensemble.models)


def test_one_model_is_not_taken_for_several() -> None:
    ensemble = random_ensemble(5, members=2, rules=False, reward_kind="linear")
    with pytest.raises(VerificationError, match="list of at least one model"):
        verify(solve(ensemble), ensemble.episode, ensemble.models[0])
    problem = ensemble.members[0]
    with pytest.raises(VerificationError, match="one model's"):
        verify(solve(problem), problem.episode, ensemble.models)


def test_what_is_said_about_the_answer() -> None:
    ensemble = random_ensemble(5, members=3, objective=0.5, model_kind="location-scale", reward_kind="linear")
    result = solve(ensemble)
    words = "the lower 0.5-quantile of 3 members (number 2 from below)"
    assert statement(result) == f"No admissible sequence does better for {words}."
    assert str(result).splitlines()[0].endswith(words)
    assert result.certificate.details["members"] == 3
    led = solve(ensemble, BranchAndBound(bound="lipschitz"))
    assert (led.certificate.method, led.certificate.details["objective"]) == ("Lipschitz anchors", 0.5)


def test_states_are_those_of_the_member_that_counts_or_the_mean() -> None:
    for goal in GOALS:
        ensemble = random_ensemble(8, members=4, objective=goal, rules=False, reward_kind="linear", max_changes=3)
        result = solve(ensemble)
        states, totals = ensemble.replay(torch.tensor(result.actions).unsqueeze(0))
        if goal == "mean":
            wanted = states[0].mean(1)
        else:
            (member,) = (totals[0] == ensemble.counted(totals)[0]).nonzero()[0].tolist()
            wanted = states[0, :, member]
        assert result.states == pytest.approx(ensemble.decode(wanted))
        # So that a linear reward of the states shown adds up to the outcome that is told.
        total = sum(
            float(ensemble.rewards(t, s.expand(4, -1), torch.tensor(int(a)))[0])
            for t, (s, a) in enumerate(zip(wanted, result.actions, strict=True))
        )
        assert total == pytest.approx(result.outcome)


def test_shares_of_the_gain_add_up() -> None:
    ensemble = random_ensemble(8, members=4, objective="worst", rules=False, max_changes=3)
    result = solve(ensemble)
    shared = contributions(ensemble, result.actions)
    assert sum(change.share for change in shared.changes) == pytest.approx(result.improvement)


def test_an_outcome_of_plus_infinity_is_refused_whichever_member_has_it() -> None:
    episode, models = opposites([[-1.0], [50.0]])

    def reward(states: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return torch.where(states[..., 0] > 40, torch.inf, -states[..., 0]) + 0 * actions

    ensemble = EnsembleProblem.from_episode(episode, models, Query(Custom(reward, {"x": 1.0}), 1, objective="worst"))
    with pytest.raises(InputError, match="NaN or infinite"):
        solve(ensemble)


@settings(deadline=None, derandomize=True, max_examples=some(200))
@given(
    goal=st.sampled_from(["mean", "worst"]) | st.floats(0.001, 0.999),
    outcomes=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=25),
    raised=st.lists(st.floats(0, 1e3), min_size=25, max_size=25),
    shares=st.none() | st.lists(st.floats(0.01, 10) | st.integers(1, 3), min_size=25, max_size=25),
)
def test_objectives_are_monotone_and_commute_with_the_observed_outcome(
    goal: str | float, outcomes: list[float], raised: list[float], shares: list[float] | None
) -> None:
    weights = None if shares is None else tuple(map(float, shares[: len(outcomes)]))
    objective, values = Objective(goal, weights), torch.tensor(outcomes, dtype=torch.float64)
    higher = values + torch.tensor(raised[: len(outcomes)], dtype=torch.float64)
    slack = 1e-9 * (1 + float(values.abs().max()))
    assert float(objective(higher)) >= float(objective(values)) - slack
    assert min(outcomes) - slack <= float(objective(values)) <= max(outcomes) + slack
    assert float(objective(values - 7.0)) == pytest.approx(float(objective(values)) - 7.0, abs=slack)
    assert float(objective(values)) == pytest.approx(float(counted(goal, values.numpy(), objective.weights)), abs=slack)
    if goal != "mean":
        assert float(objective(values)) in outcomes
        assert values[objective.member(values)] == objective(values)


def test_quantiles_at_the_edges() -> None:
    assert [Objective(q).rank(10) for q in (1e-9, 0.1, 0.10001, 0.7, 0.95, 0.9999)] == [1, 1, 2, 7, 10, 10]
    assert [Objective(q).rank(1) for q in (0.001, 0.5, 0.999)] == [1, 1, 1]
    assert math.isnan(float(Objective(0.5)(torch.tensor([1.0, math.nan, 3.0]))))
    for wrong in (0, 1, 0.0, 1.0, -0.1, 1.5, math.nan, True, "median", None):
        with pytest.raises(InputError, match="choose 'mean', 'worst'"):
            Objective(wrong)  # type: ignore[arg-type]


def test_degenerate_ensembles_are_refused_in_words() -> None:
    problem, other = (random_problem(seed, model_kind="linear", rules=False) for seed in (1, 2))
    for nothing in ([], problem.model):
        with pytest.raises(InputError, match="list of at least one model"):
            EnsembleProblem.from_problem(problem, nothing)
    with pytest.raises(InputError, match=r"another scaling|differ"):
        EnsembleProblem.from_problem(problem, [problem.model, other.model])
    with pytest.raises(InputError, match="member 0 is no model but str"):
        EnsembleProblem.from_problem(problem, ["model"])  # type: ignore[list-item]
    with pytest.raises(InputError, match="answers for one model"):
        solve(EnsembleProblem.from_problem(problem, [problem.model]), AnchorAStar())


def test_an_ensemble_is_asked_for_its_members() -> None:
    problem = random_problem(4, rules=False)

    class Pair:
        members = (problem.model, problem.model)

    ensemble = EnsembleProblem.from_episode(problem.episode, Pair(), Query(problem.reward, 1))
    assert ensemble.models == Pair.members
    assert all(isinstance(member, Problem) for member in ensemble.members)


def test_stored_members_must_fit_together() -> None:
    ensemble = random_ensemble(5, members=3, reward_kind="linear")
    content = solve(ensemble).to_dict()
    with pytest.raises(StoreError, match="one outcome for each member"):
        Result.from_dict(content | {"member_outcomes": [1.0, 2.0]})
    content["provenance"]["query"]["objective"] = "median"
    with pytest.raises(StoreError, match="choose 'mean'"):
        Result.from_dict(content)


def test_weights_that_differ_by_little_are_told_apart() -> None:
    outcomes = torch.tensor([1.0, 2.0])
    assert [float(Objective(0.5, (0.5 - d, 0.5 + d))(outcomes)) for d in (-1e-8, 1e-10, 1e-8)] == [1.0, 1.0, 2.0]
