"""The Taylor bound is never below the truth, is close to it where changes are small, and treats each problem alone."""

from collections.abc import Iterator

import pytest
import torch
from smooth_problems import KINDS, LINEAR, POLYNOMIALS, smooth_problems

from ifonly.bounds.branches import RADII
from ifonly.bounds.children import Nodes
from ifonly.bounds.taylor import TaylorChildBound, can_expand
from ifonly.episodes import Episode
from ifonly.errors import InputError, VerificationError
from ifonly.instances import partition_problem, random_problem
from ifonly.problem import Problem
from ifonly.rewards import ActionCost, Hinge, Linear, PiecewiseLinear
from ifonly.search.exhaustive import best_values
from ifonly.testing import check_child_bound

# Weak networks have small effects and finite bounds everywhere; strong ones leave the largest ball.
STRENGTHS = (0.1, 0.5, 1.0, 2.0, 4.0)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_never_below_the_truth(strength: float) -> None:
    for seed, problem in enumerate(smooth_problems(45, start=int(1000 * strength), strength=strength)):
        check_child_bound(TaylorChildBound([problem]), [problem], samples=5, seed=seed)


def test_never_below_the_truth_for_as_many_changes_as_steps() -> None:
    for seed, problem in enumerate(
        smooth_problems(12, start=9000, strength=0.7, max_changes=None, horizon=5, actions=2, rules=False)
    ):
        check_child_bound(TaylorChildBound([problem]), [problem], samples=6, seed=seed)


def family(seed: int) -> list[Problem]:
    """Problems with one model and budget: other rules, another episode, another cost of changes."""
    first = next(smooth_problems(1, start=seed, max_changes=3, horizon=4, actions=3, rules=True, strength=0.6))
    backward = Episode(
        "backward",
        first.episode.schema,
        states=first.episode.states[::-1].copy(),
        actions=first.episode.actions[::-1].copy(),
        context=first.episode.context,
    )
    other = Problem.from_episode(backward, first.model, first.reward, 3, change_cost=0.2)
    return [first, first.with_constraints(None), other, first]


def test_several_problems_at_once() -> None:
    for seed in range(0, 60, 10):
        members = family(seed)
        check_child_bound(TaylorChildBound(members), members, samples=3, seed=seed)


def nodes_of(problem: Problem, which: int, rows: int, level: int, seed: int) -> Nodes:
    """Nodes with `level` random changes."""
    generator = torch.Generator().manual_seed(seed)
    sequences = problem.observed_actions.repeat(rows, 1)
    steps = torch.rand(rows, problem.horizon, generator=generator).argsort(1)[:, :level]
    shift = torch.randint(1, problem.action_count, steps.shape, generator=generator)
    sequences.scatter_(1, steps, (sequences.gather(1, steps) + shift) % problem.action_count)
    states, outcomes = problem.rollout(sequences)
    return Nodes(level, torch.full((rows,), which), steps.amax(1) + 1, states, outcomes)


def joined(parts: list[Nodes], order: torch.Tensor) -> Nodes:
    return Nodes(
        parts[0].level,
        *(
            torch.cat([getattr(part, name) for part in parts])[order]
            for name in ("problem", "start", "states", "outcomes")
        ),
    )


@pytest.mark.parametrize("counts", [(3, 3, 3, 3), (1, 0, 40, 2), (0, 0, 0, 9), (30, 1, 1, 1)])
@pytest.mark.parametrize("level", [1, 2])
def test_unbalanced_nodes_of_several_problems_as_one_by_one(counts: tuple[int, ...], level: int) -> None:
    for seed in (0, 10, 20):
        members = family(seed)
        together = TaylorChildBound(members)
        assert torch.equal(together.root()[0], together.root()[3])
        parts = [
            nodes_of(member, which, rows, level, seed=seed + which)
            for which, (member, rows) in enumerate(zip(members, counts, strict=True))
        ]
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(seed))
        found = together.children(joined(parts, order))
        found = found[order.argsort()].split(list(counts))
        for which, (member, part) in enumerate(zip(members, parts, strict=True)):
            alone = TaylorChildBound([member])
            torch.testing.assert_close(alone.root()[0], together.root()[which], rtol=1e-10, atol=1e-10)
            mine = Nodes(level, torch.zeros_like(part.problem), part.start, part.states, part.outcomes)
            torch.testing.assert_close(alone.children(mine), found[which], rtol=1e-10, atol=1e-10)


def slack(problem: Problem, bounds: torch.Tensor) -> Iterator[torch.Tensor]:
    """By how much the root's bounds [K, T, A] exceed the best outcome with a change there and so many in all."""
    every = torch.arange(problem.action_count)
    states, _ = problem.rollout(problem.observed_actions.unsqueeze(0))
    earned = 0.0
    for t in range(problem.horizon):
        for budget in range(1, problem.max_changes + 1):
            truth = earned + problem.rewards_all(t, states[:, t])[0]
            if t < problem.horizon - 1:
                used = torch.full_like(every, problem.max_changes - budget + 1)
                following = problem.step(t, states[:, t].unsqueeze(1), every).flatten(0, 1)
                truth = truth + best_values(problem, t + 1, following, used)
            changed = every != problem.observed_actions[t]
            yield (bounds[budget - 1, t] - truth)[changed & problem.allowed[t]]
        earned = earned + float(problem.rewards(t, states[:, t], problem.observed_actions[t].unsqueeze(0))[0])


@pytest.mark.parametrize("kind", ["location-scale", "additive"])
def test_close_to_the_truth_where_changes_do_little(kind: str) -> None:
    """Only then can a bound prune: not only true, but near."""
    settings = {"model_kind": kind, "strength": 0.2, "constrained": False, "horizon": 5, "actions": 3, "max_changes": 3}
    for problem in smooth_problems(8, start=400, rules=False, **settings):
        root = TaylorChildBound([problem]).root()[0]
        with torch.no_grad():
            excess = torch.cat(list(slack(problem, root)))
        assert bool((excess >= -1e-9).all())
        assert bool(excess.isfinite().all())
        assert float(excess.median()) <= 1e-3
        assert float(excess.max()) <= 0.05


@pytest.mark.parametrize("problem", POLYNOMIALS.values(), ids=POLYNOMIALS)
@torch.no_grad()
def test_true_and_close_where_nothing_is_to_spare(problem: Problem) -> None:
    """From shifted first states, by just what a ball covers: there the limits are nearly attained."""
    bound = TaylorChildBound([problem])
    shifts = torch.tensor([0.0, *RADII[:5]], dtype=torch.float64) * (1 - 1e-9)
    observed = problem.observed_actions
    states = problem.observed_states[0] + shifts.unsqueeze(1)
    path, outcomes = [states], problem.rewards(0, states, observed[0])
    for t in range(problem.horizon - 1):
        path.append(problem.step(t, path[-1], observed[t]))
        outcomes = outcomes + problem.rewards(t + 1, path[-1], observed[t + 1])
    start = torch.zeros(len(shifts), dtype=torch.int64)
    found = bound.children(Nodes(0, start, start, torch.stack(path, dim=1), outcomes))[:, :, 0]  # [N, K, A]
    every = torch.arange(problem.action_count).repeat(len(shifts))
    following = problem.step(0, states.unsqueeze(1), torch.arange(problem.action_count)).flatten(0, 1)
    for budget in range(1, problem.max_changes + 1):
        used = torch.full_like(every, problem.max_changes - budget + 1)
        truth = problem.rewards_all(0, states) + best_values(problem, 1, following, used).view(len(shifts), -1)
        excess = (found[:, budget - 1] - truth)[:, 1:]
        assert float(excess.min()) >= 0
        if budget == 2 and float(problem.model.action_vectors.max()) <= 0.1:
            assert float(excess[:3].max()) <= 0.02


def test_exact_for_single_changes() -> None:
    for problem in smooth_problems(20, start=600, rewards=LINEAR, rules=False, masked=False):
        with torch.no_grad():
            excess = torch.cat(list(slack(problem.with_max_changes(1), TaylorChildBound([problem]).root()[0, :1])))
        assert float(excess.abs().max()) <= 1e-8 * (1 + abs(problem.observed_outcome))


def test_budgets_bring_more() -> None:
    for problem in smooth_problems(20, start=800, max_changes=3, rules=False):
        root = TaylorChildBound([problem]).root()
        finite = root.isfinite()
        assert bool((root[:, 1:] >= root[:, :-1] - 1e-9)[finite[:, :-1]].all())


def test_unknown_beyond_the_largest_ball() -> None:
    """A node far from the observed path has infinite bounds, not wrong ones."""
    problem = next(smooth_problems(1, start=5, max_changes=2, horizon=4, rules=False, masked=False))
    states, outcomes = problem.rollout(problem.observed_actions.unsqueeze(0))
    states = states + 1.01 * RADII[-1]
    bounds = TaylorChildBound([problem]).children(
        Nodes(0, torch.zeros(1, dtype=torch.int64), torch.ones(1), states, outcomes)
    )
    assert bool((bounds[:, :, 0] == -torch.inf).all())
    assert set(bounds[:, :, 1:].flatten().tolist()) == {torch.inf, -torch.inf}


class TooCertain(TaylorChildBound):
    """Without what the expansions leave out."""

    def _make_polynomials(self) -> torch.Tensor:
        polynomials = super()._make_polynomials()
        polynomials[:, :, -len(RADII) :] = 0
        return polynomials

    def _best_second(self, features: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        features = features.clone()
        features[..., -len(RADII) - 1 : -1] = 0
        return super()._best_second(features, table)


def test_the_check_notices_missing_remainders() -> None:
    noticed = 0
    for seed, problem in enumerate(smooth_problems(20, start=2000, strength=1.0, max_changes=3, horizon=5)):
        try:
            check_child_bound(TooCertain([problem]), [problem], samples=5, seed=seed)
        except VerificationError:
            noticed += 1
    assert noticed >= 5


def test_refused_without_three_derivatives() -> None:
    base = random_problem(0, model_kind="linear", reward_kind="linear", rules=False, masked=False)
    assert can_expand(base)
    hinge = PiecewiseLinear((Hinge(1.0, {"state 0": 1.0}, 0.0),))
    for reward in (hinge, Linear({"state 0": 1.0}) + hinge):
        problem = Problem.from_episode(base.episode, base.model, reward, 2)
        assert not can_expand(problem)
        with pytest.raises(InputError, match="linear in the state"):
            TaylorChildBound([problem])
    assert can_expand(
        Problem.from_episode(base.episode, base.model, Linear({"state 1": 2.0}) + ActionCost({0: 1.0}), 2)
    )
    assert can_expand(Problem.from_episode(base.episode, base.model, ActionCost({0: 1.0}), 2))
    assert can_expand(partition_problem([3, 1, 2])), "its reward has a kink that bends downwards"
    refused = 0
    for seed in range(40):
        problem = random_problem(seed, model_kind=KINDS[seed % 2], reward_kind="linear")
        if problem.model.activation == "relu":
            refused += 1
            with pytest.raises(InputError, match="three derivatives"):
                TaylorChildBound([problem])
    assert refused > 2
