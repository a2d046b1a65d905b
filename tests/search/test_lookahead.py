"""Lookahead: what is replayed equals plain replays, what is fathomed is below its cutoff, and bounds hold."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from effort import long
from shared_problems import best_by_budget, random_ensemble, random_problem
from torch import Tensor

from ifonly.bounds.base import ChildBound, NoChildBound
from ifonly.bounds.factory import make_child_bound
from ifonly.bounds.lipschitz import LipschitzChildBound
from ifonly.bounds.taylor import can_expand
from ifonly.data import ActionSpace, Episode, Feature, Schema
from ifonly.errors import InputError
from ifonly.models import LinearModel
from ifonly.problem import BaseProblem, Problem
from ifonly.problem.batch import Branches, ProblemBatch, changed
from ifonly.query import Limits, Query
from ifonly.result import Status
from ifonly.rewards import Linear
from ifonly.search import branch_and_bound
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import best_values
from ifonly.search.lookahead import Replayed, one_step_bounds, replay_or_fathom
from ifonly.search.solve import solve

SHAPE = {"horizon": 6, "actions": 3, "max_changes": 3, "rules": False, "strength": 0.4}


def smooth(count: int, start: int = 0, **settings: Any) -> Iterator[Problem]:
    seed = start
    while count:
        given = {"model_kind": ("location-scale", "additive", "linear")[seed % 3], "reward_kind": "with action costs"}
        problem = random_problem(seed, **{**SHAPE, **given, **settings})
        seed += 1
        if can_expand(problem):
            count -= 1
            yield problem


def several(problem: Problem) -> list[BaseProblem]:
    """Other recordings under one model, one of them with a cost of changes."""
    members = [problem]
    for shift, cost in ((1, 0.0), (2, 0.3)):
        episode = Episode(
            f"shifted by {shift}",
            problem.episode.schema,
            states=np.roll(problem.episode.states, shift, axis=0),
            actions=np.roll(problem.episode.actions, shift),
            context=problem.episode.context,
        )
        members.append(Problem.from_episode(episode, problem.model, Query(problem.reward, 3, change_cost=cost)))
    return members


def groups() -> Iterator[list[BaseProblem]]:
    """One problem, several together, and ensembles of all goals."""
    for number, problem in enumerate(smooth(4, start=40)):
        yield [problem] if number % 2 else several(problem)
    for seed, goal in enumerate(("mean", "worst", 0.4)):
        for ensemble in (
            random_ensemble(70 + 10 * seed + more, members=3, objective=goal, **SHAPE) for more in range(10)
        ):
            if all(can_expand(member) for member in ensemble.members):
                yield [ensemble]
                break


def branches_of(batch: ProblemBatch, count: int, seed: int) -> Branches:
    """Random sequences that leave the observed path, or one with a change, at some step: `count` of them."""
    generator = torch.Generator().manual_seed(seed)
    problem = torch.randint(batch.count, (count,), generator=generator)
    step = torch.randint(batch.horizon, (count,), generator=generator)
    parents = batch.observed[problem].clone()
    before = (step * torch.rand(count, generator=generator)).long()
    other = torch.randint(batch.action_count, (count,), generator=generator)
    rows = torch.arange(count)
    parents[rows, before] = torch.where(before < step, other, parents[rows, before])
    paths = batch.rollout(problem, parents)
    shift = torch.randint(1, batch.action_count, (count,), generator=generator)
    taken = (batch.observed[problem, step] + shift) % batch.action_count
    sequences = changed(parents.to(torch.int16), step, taken)
    return Branches(problem, sequences, step, paths.states[rows, step], paths.earned[rows, step])


@torch.no_grad()
def test_leaves_are_replayed_as_rollouts_or_fathomed_below_their_cutoff(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fathomed = early = 0
    for number, problems in enumerate(groups()):
        batch, bound = ProblemBatch(problems), make_child_bound(problems, "taylor")
        branches = branches_of(batch, 120, number)
        wanted = batch.outcomes(branches)
        taken, step = torch.zeros(batch.count, dtype=torch.int64), batch.step

        def counting(
            t: int, problem: Tensor, *rest: Tensor, step: Callable[..., Tensor] = step, taken: Tensor = taken
        ) -> Tensor:
            taken.index_add_(0, problem, torch.ones_like(problem))
            return step(t, problem, *rest)

        monkeypatch.setattr(batch, "step", counting)
        spread = wanted.std()
        for cutoffs in (wanted.mean() + 0 * wanted, wanted - 0.3 * spread, wanted + 0.3 * spread, wanted - torch.inf):
            taken.zero_()
            found = replay_or_fathom(batch, bound, branches, cutoffs)
            done = found.fathomed_bounds == -torch.inf
            torch.testing.assert_close(found.outcomes[done], wanted[done], rtol=1e-12, atol=1e-12)
            assert bool((found.outcomes[~done] == -torch.inf).all())
            assert bool((found.fathomed_bounds >= wanted - 1e-9)[~done].all())
            assert bool((found.fathomed_bounds <= cutoffs)[~done].all())
            assert bool(done[wanted > cutoffs + 1e-9].all())
            every = batch.steps_from(branches)
            assert torch.equal(found.steps[done], every[done])
            assert bool(((found.steps >= 1) & (found.steps <= every))[~done].all())
            assert torch.equal(torch.zeros_like(taken).index_add_(0, branches.problem, found.steps), taken)
            fathomed += int((~done).sum())
            early += int((found.steps < every).sum())
    assert fathomed > 300
    assert early > 150  # or looking ahead saves nothing


def check_plain(batch: ProblemBatch, bound: ChildBound, branches: Branches, found: Replayed) -> None:
    assert not bound.has_reward_to_go
    with pytest.raises(NotImplementedError):
        bound.reward_to_go(0, branches.problem, branches.states, 0)
    assert torch.equal(found.outcomes, batch.outcomes(branches))
    assert bool((found.fathomed_bounds == -torch.inf).all())
    assert torch.equal(found.steps, batch.steps_from(branches))


@pytest.mark.parametrize("make", [NoChildBound, LipschitzChildBound])
@torch.no_grad()
def test_bounds_without_lookahead_fathom_nothing(make: Callable[[Sequence[BaseProblem]], ChildBound]) -> None:
    for number, problem in enumerate(smooth(3, start=90, constrained=True)):
        problems = several(problem)
        batch, bound = ProblemBatch(problems), make(problems)
        branches = branches_of(batch, 40, number)
        found = replay_or_fathom(batch, bound, branches, torch.full((40,), torch.inf, dtype=torch.float64))
        check_plain(batch, bound, branches, found)


@torch.no_grad()
def test_no_leaves() -> None:
    problems = [next(smooth(1, start=5))]
    batch, bound = ProblemBatch(problems), make_child_bound(problems, "taylor")
    nothing = branches_of(batch, 0, 0)
    found = replay_or_fathom(batch, bound, nothing, torch.zeros(0, dtype=torch.float64))
    assert [len(table) for table in (found.outcomes, found.fathomed_bounds, found.steps)] == [0, 0, 0]


def best_after(problem: BaseProblem, t: int, state: Tensor, earned: Tensor, action: Tensor, changes: int) -> Tensor:
    """The best outcome [1] from a state with `action` at t and so many changes after it, by enumeration."""
    earned = earned.unsqueeze(0) + problem.rewards(t, state.unsqueeze(0), action.unsqueeze(0))
    if t == problem.horizon - 1:
        return problem.counted(earned)
    following = problem.step(t, state.unsqueeze(0), action.unsqueeze(0))
    return best_values(problem, t + 1, following, torch.tensor([problem.max_changes - changes]), earned=earned)


@torch.no_grad()
def test_bounds_one_step_later_are_no_higher_and_still_true() -> None:
    lower = 0
    for number, problems in enumerate(groups()):
        batch, bound = ProblemBatch(problems), make_child_bound(problems, "taylor")
        branches = branches_of(batch, 24, number)
        actions = branches.sequences.gather(1, branches.step.unsqueeze(1)).squeeze(1).long()
        rows = zip(
            branches.problem.tolist(), branches.step.tolist(), branches.states, branches.earned, actions, strict=True
        )
        truth = torch.stack(
            [
                torch.cat([best_after(problems[which], t, state, earned, action, left) for left in range(2)])
                for which, t, state, earned, action in rows
            ]
        )
        for before, cutoffs in (
            (truth + 5.0, truth - torch.inf),
            (truth + 5.0, truth + 0.1),
            (truth + torch.inf, truth + torch.inf),
            (truth + 1e-3, truth - 0.1),
        ):
            given = before.clone()
            found = one_step_bounds(batch, bound, branches, actions, before, cutoffs)
            assert torch.equal(before, given)
            assert bool((found <= before).all())
            assert bool((found >= truth - 1e-9).all())
            last = branches.step == batch.horizon - 1
            assert torch.equal(found[last], before[last])
            lower += int((found < before).sum())
    assert lower > 200


class Unsure(NoChildBound):
    """Has bounds on the reward to go, all of them infinite."""

    @property
    def has_reward_to_go(self) -> bool:
        return True

    def reward_to_go(
        self, t: int, problem: Tensor, states: Tensor, further: int, needed: Tensor | None = None
    ) -> Tensor:
        return torch.full((len(states), further + 1), torch.inf, dtype=torch.float64)


def overflowing_problem() -> Problem:
    """Two changes lead beyond all numbers; the reward, a difference, is no number there."""
    schema = Schema((Feature("x", "dynamic"), Feature("y", "dynamic")), ActionSpace.categories(["stay", "jump"]))
    model = LinearModel(schema, np.stack([np.eye(2)] * 2), offsets=[[0.0, 0.0], [1e308, 1e308]])
    episode = Episode("still", schema, states=np.zeros((6, 2)), actions=np.zeros(6, dtype=np.int64))
    return Problem.from_episode(episode, model, Query(Linear({"x": 1.0, "y": -1.0}), 2))


@torch.no_grad()
def test_nan_bounds_are_never_pruned() -> None:
    problem = overflowing_problem()
    batch, bound = ProblemBatch([problem]), Unsure([problem])
    sequences = torch.tensor([[1, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]])
    paths = batch.rollout(torch.zeros(2, dtype=torch.int64), torch.tensor([[1, 0, 0, 0, 0, 0], [0] * 6]))
    step = torch.tensor([1, 1])
    branches = Branches(torch.zeros(2, dtype=torch.int64), sequences, step, paths.states[:, 1], paths.earned[:, 1])
    found = replay_or_fathom(batch, bound, branches, torch.zeros(2, dtype=torch.float64))
    assert bool(found.outcomes[0].isnan())
    assert found.fathomed_bounds[0] == -torch.inf
    assert found.outcomes[1] == 0.0
    wrong = Branches(branches.problem, sequences, step + 2, paths.states[:, 3] * torch.inf, paths.earned[:, 3])
    given = torch.full((2, 1), torch.inf, dtype=torch.float64)
    sharp = one_step_bounds(batch, bound, wrong, torch.tensor([1, 1]), given, torch.zeros_like(given))
    assert sharp.flatten().tolist() == [torch.inf, torch.inf]


@pytest.mark.parametrize("bound", ["taylor", "none"])
def test_a_search_refuses_what_is_no_number(bound: Any) -> None:
    with pytest.raises(InputError, match="NaN or infinite"):
        solve(overflowing_problem(), BranchAndBound(bound=bound))


def ensembles_and_problems(start: int) -> Iterator[BaseProblem]:
    yield from smooth(5, start=start, strength=0.8)
    for seed in range(start, start + 4):
        ensemble = random_ensemble(
            seed, members=2, objective=("mean", "worst")[seed % 2], model_kind="additive", **SHAPE
        )
        if all(can_expand(member) for member in ensemble.members):
            yield ensemble


def test_a_gap_covers_what_was_fathomed() -> None:
    reached = 0
    for problem in ensembles_and_problems(200):
        truth = best_by_budget(problem).tolist()
        gap = 0.3 * abs(truth[-1] - problem.observed_outcome) + 0.01
        result = solve(problem, BranchAndBound(bound="taylor", batch=4), limits=Limits(gap=gap))
        assert result.status in (Status.OPTIMAL, Status.GAP_REACHED)
        assert result.gap <= gap + problem.tolerance
        for budget, best in zip(result.frontier, truth, strict=True):
            assert budget.upper_bound >= best - 10 * problem.tolerance
            assert budget.outcome is not None
            assert budget.outcome >= best - gap - 10 * problem.tolerance
        reached += result.status is Status.GAP_REACHED
    assert reached >= 2


@long
def test_alternatives_are_all_listed() -> None:
    """The best few, and all within a distance, as without bounds."""
    for problem in ensembles_and_problems(300):
        within = 0.2 * abs(solve(problem).improvement) + 1e-3
        for settings in ({"alternatives": 7}, {"within": within}):
            led, plain = (solve(problem, BranchAndBound(bound=bound, **settings)) for bound in ("taylor", "none"))
            found, wanted = ([one.outcome for one in result.alternatives] for result in (led, plain))
            assert found == pytest.approx(wanted, abs=1e-9)
            assert len(found) >= 1


def test_fewer_steps_than_plain_replays() -> None:
    saved = 0
    for problem in smooth(8, start=400, strength=0.2):
        led, plain = (solve(problem, BranchAndBound(bound=bound)) for bound in ("taylor", "none"))
        assert led.outcome == pytest.approx(plain.outcome, abs=1e-9)
        saved += led.stats.model_steps < plain.stats.model_steps / 2
    assert saved >= 5


def test_a_search_counts_the_steps_that_models_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but those that tidy up what was found."""
    taken, in_search, step, finalize = [0], [0], ProblemBatch.step, branch_and_bound.finalize

    def counting(self: ProblemBatch, t: int, problem: Tensor, states: Tensor, actions: Tensor) -> Tensor:
        taken[0] += len(states)
        return step(self, t, problem, states, actions)

    def ending(*state: Any) -> Any:
        in_search[0] = taken[0]
        return finalize(*state)

    monkeypatch.setattr(ProblemBatch, "step", counting)
    monkeypatch.setattr(branch_and_bound, "finalize", ending)
    for problem in ensembles_and_problems(500):
        taken[0] = 0
        result = solve(problem, BranchAndBound(bound="taylor"))
        assert result.stats.model_steps == in_search[0]
