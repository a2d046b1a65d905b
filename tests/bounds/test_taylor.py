"""The Taylor bound is never below the truth, is close to it where changes are small, and treats each problem alone."""

import itertools
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from smooth_problems import KINDS, LINEAR, POLYNOMIALS, smooth_problems
from torch import Tensor

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


def test_never_below_the_truth_for_four_changes() -> None:
    settings = {"max_changes": 4, "horizon": 5, "rules": False}
    for seed, problem in enumerate(smooth_problems(10, start=9100, strength=0.4, actions=3, **settings)):
        check_child_bound(TaylorChildBound([problem]), [problem], samples=4, seed=seed)


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


def joined(parts: list[Nodes], order: Tensor) -> Nodes:
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


def moved(problem: Problem, c: int, offsets: Tensor, level: int = 0) -> Nodes:
    """Nodes whose states at step c are the observed one plus `offsets` [N, D]; nothing was earned before."""
    states = problem.observed_states.repeat(len(offsets), 1, 1)
    states[:, c] += offsets
    outcomes = torch.zeros(len(offsets), dtype=torch.float64)
    for t in range(c, problem.horizon):
        outcomes = outcomes + problem.rewards(t, states[:, t], problem.observed_actions[t])
        if t < problem.horizon - 1:
            states[:, t + 1] = problem.step(t, states[:, t], problem.observed_actions[t])
    which = torch.zeros(len(offsets), dtype=torch.int64)
    return Nodes(level, which, torch.full_like(which, c), states, outcomes)


@torch.no_grad()
def excess(problem: Problem, bounds: Tensor, nodes: Nodes) -> Tensor:
    """By how much bounds [N, R, T, A] exceed the best outcome with a change there and so many in all; 0 elsewhere."""
    found, every, start = torch.zeros_like(bounds), torch.arange(problem.action_count), int(nodes.start[0])
    changes = problem.allowed.scatter(1, problem.observed_actions.unsqueeze(1), False)
    rewards = [problem.rewards(t, nodes.states[:, t], problem.observed_actions[t]) for t in range(problem.horizon)]
    earned = nodes.outcomes - sum(rewards[start:])
    for t in range(start, problem.horizon):
        following = None
        if t < problem.horizon - 1:
            following = problem.step(t, nodes.states[:, t].unsqueeze(1), every).flatten(0, 1)
        for left in range(bounds.shape[1]):
            truth = earned.unsqueeze(1) + problem.rewards_all(t, nodes.states[:, t])
            if following is not None:
                used = torch.full((len(following),), problem.max_changes - left)
                truth = truth + best_values(problem, t + 1, following, used).view_as(truth)
            found[:, left, t] = torch.where(changes[t], bounds[:, left, t] - truth, 0.0)
        earned = earned + rewards[t]
    return found


def root_excess(problem: Problem) -> Tensor:
    """The same of the root [K, T, A]."""
    nodes = moved(problem, 0, torch.zeros_like(problem.observed_states[:1]))
    return excess(problem, TaylorChildBound([problem]).root(), nodes)[0]


@pytest.mark.parametrize("kind", ["location-scale", "additive"])
def test_close_to_the_truth_where_changes_do_little(kind: str) -> None:
    """Only then can a bound prune: not only true, but near."""
    settings = {"model_kind": kind, "strength": 0.2, "constrained": False, "horizon": 5, "actions": 3, "max_changes": 4}
    for problem in smooth_problems(6, start=400, rules=False, **settings):
        found = root_excess(problem)
        known = found[:3]
        assert bool((known >= -1e-9).all())
        assert float(known[known > 0].median()) <= 1e-3
        assert float(known.max()) <= 0.05
        assert set(found[3, :-1].flatten().tolist()) == {0.0, torch.inf}, "the whole budget is not looked at"


@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_never_below_the_truth_far_from_the_observed_path(strength: float) -> None:
    """Nodes that no changes lead to, from all radii to beyond the last but one, and every budget up to four."""
    finite = torch.zeros(4, dtype=torch.int64)
    for seed, problem in enumerate(
        smooth_problems(9, start=11_000, strength=strength, max_changes=5, horizon=5, actions=2, rules=False)
    ):
        bound, generator = TaylorChildBound([problem]), torch.Generator().manual_seed(seed)
        c, size = seed % 3, problem.observed_states.shape[1]
        directions = torch.randn(16, size, generator=generator, dtype=torch.float64)
        gauges = torch.logspace(-2, 0.7, 16, dtype=torch.float64).unsqueeze(1)
        offsets = (gauges * torch.nn.functional.normalize(directions, dim=1)) @ bound._branches.unit[0, c]
        nodes = moved(problem, c, offsets, level=1)
        found = excess(problem, bound.children(nodes), nodes)
        assert float(found.min()) >= -1e-9
        finite += ((found > 0) & found.isfinite()).sum((0, 2, 3))
    assert int(finite.min()) > 100


CLOSE = {
    "slope": 0.0005,
    "curvature": 0.005,
    "third": 0.008,
    "all": 0.003,
    "scale": 0.006,
    "scale's third": 0.004,
    "many changes": 0.03,
    "steep scale": 0.005,
    "turned": 0.03,
    "deep": 0.05,
}
"""By how much bounds on two changes may exceed the truth, for states up to 0.1 aside."""


def moved_ahead(problem: Problem, bound: TaylorChildBound, radii: Sequence[float]) -> Nodes:
    """First states shifted so far, along what the first change does and against it."""
    ahead = torch.nn.functional.normalize(bound._branches.path[0, 0, 1, 1:2], dim=1)
    shifts = torch.tensor(radii, dtype=torch.float64).unsqueeze(1)
    return moved(problem, 0, torch.cat((shifts * ahead, -shifts * ahead)))


@pytest.mark.parametrize("name", POLYNOMIALS)
@torch.no_grad()
def test_true_and_close_where_nothing_is_to_spare(name: str) -> None:
    """From first states aside by just what a radius covers: there the limits are nearly attained."""
    problem = POLYNOMIALS[name]
    bound = TaylorChildBound([problem])
    for radii in ((0.0, *RADII[:2]), RADII[2:8]):
        nodes = moved_ahead(problem, bound, [radius * (1 - 1e-9) for radius in radii])
        found = excess(problem, bound.children(nodes), nodes)
        assert float(found.min()) >= 0
        if radii[0] == 0.0:
            assert float(found[:, 0, 0].max()) <= 0.005
            assert float(found[:, 1, 0].max()) <= CLOSE.get(name, torch.inf)


@pytest.mark.parametrize("name", POLYNOMIALS)
@torch.no_grad()
def test_where_first_changes_lead(name: str) -> None:
    """The states at which second changes are made: how far away they are, how far they move, and what both add."""
    problem = POLYNOMIALS[name]
    bound = TaylorChildBound([problem], tables=1)
    b, actions, size = bound._branches, problem.action_count, problem.observed_states.shape[1]
    for c, c2 in itertools.combinations(range(problem.horizon), 2):
        pairs, step = bound._pairs[c], slice((c2 - c - 1) * actions, (c2 - c) * actions)
        reached, flow = pairs.reached.unflatten(1, (size, -1)), pairs.flow.unflatten(2, (size, -1))
        gradient, hessian = (table[0, c2] - table[0, c2, 0] for table in (b.gradient, b.hessian))  # of gains
        steepest = gradient[:, None] + torch.einsum("bij,aj->bai", hessian, b.path[0, c, :, c2])  # [B, A, D]
        for place, radius in enumerate(RADII[:8]):
            for y in radius * (1 - 1e-9) * torch.cat((b.unit[0, c], -b.unit[0, c])):
                states = problem.observed_states[c] + y.repeat(actions, 1)
                for t in range(c, c2):
                    states = problem.step(t, states, torch.arange(actions) if t == c else problem.observed_actions[t])
                away = ((states - b.center[0, c2]) @ b.inverse[0, c2]).norm(dim=1)
                straight = (reached[0, :, step] + (flow[0, :, :, step] * y[:, None, None]).sum(0)).norm(dim=0)
                assert bool((away <= (straight + pairs.bend[0, place, step]) * (1 + 1e-6) + 1e-7).all())
                gone = states - b.center[0, c2] - b.path[0, c, :, c2]  # [A, D]
                slack = bound._moves(c2)[0, c * actions : (c + 1) * actions, place]
                assert bool(((gone @ b.inverse[0, c2]).norm(dim=1) <= slack + 1e-9).all())
                bent = gone - b.flow[0, c, :, c2] @ y
                added = (steepest * bent).sum(-1) + torch.einsum("ai,bij,aj->ba", gone, hessian, gone) / 2
                assert bool((added[problem.allowed[c2]] <= pairs.rest[0, place, step] + 1e-9).all())


@torch.no_grad()
def test_slack_covers_every_state_within_it() -> None:
    finite = 0
    for seed, problem in enumerate(smooth_problems(6, start=12_000, strength=0.5, max_changes=5, horizon=5, actions=2)):
        bound, generator = TaylorChildBound([problem]), torch.Generator().manual_seed(seed)
        size = problem.observed_states.shape[1]
        for c, r in itertools.product(range(problem.horizon - 1), (2, 3)):
            gauges = torch.rand(1, 40, 1, generator=generator, dtype=torch.float64)
            slack = torch.rand(1, 40, generator=generator, dtype=torch.float64) ** 2
            toward = torch.randn(2, 40, size, generator=generator, dtype=torch.float64)
            toward = torch.nn.functional.normalize(toward, dim=-1) @ bound._branches.unit[0, c]
            y, more = gauges * toward[:1], slack.unsqueeze(-1) * toward[1:] * (1 - 1e-9)
            covering = bound._later(c, y, r, slack=slack)
            inside = bound._later(c, y + more, r)
            assert bool((inside <= covering * (1 + 1e-4) + 1e-9).all())
            finite += int((covering < 10).sum())
    assert finite > 500


def test_exact_for_single_changes() -> None:
    for problem in smooth_problems(20, start=600, rewards=LINEAR, rules=False, masked=False):
        assert float(root_excess(problem)[0].abs().max()) <= 1e-8 * (1 + abs(problem.observed_outcome))


def test_budgets_bring_more() -> None:
    for problem in smooth_problems(20, start=800, max_changes=3, rules=False):
        root = TaylorChildBound([problem]).root()
        finite = root.isfinite()
        assert bool((root[:, 1:] >= root[:, :-1] - 1e-9)[finite[:, :-1]].all())


@pytest.mark.parametrize("kind", ["linear", "additive"])
def test_unknown_beyond_the_largest_radius(kind: str) -> None:
    """A node far from the observed path has infinite bounds, not wrong ones."""
    settings = {"max_changes": 3, "horizon": 4, "rules": False, "masked": False, "model_kind": kind}
    problem = next(smooth_problems(1, start=5, rewards=LINEAR, **settings))
    bound = TaylorChildBound([problem])
    for c in range(problem.horizon):
        for part in (1 - 1e-6, 1 + 1e-6):
            nodes = moved(problem, c, part * RADII[-1] * bound._branches.unit[0, c, :1], level=1)
            known = bound.children(nodes)[0, :, c].isfinite().any()
            assert bool(known) == (part < 1) or (part < 1 and kind == "additive")


LEFT_OUT = ("single", "bend", "rest", "own_rest", "growth")
"""What the expansions of a change alone leave out, and of two and more."""


def multiplied(factor: float, names: Collection[str]) -> type[TaylorChildBound]:
    """A bound with a multiple of some of its parts."""

    class Multiplied(TaylorChildBound):
        def _make_polynomials(self) -> Tensor:
            polynomials = super()._make_polynomials()
            if "single" in names:
                polynomials[:, :, -len(RADII) :] *= factor
            return polynomials

        def _make_pairs(self, *given: Any) -> Any:
            pairs = super()._make_pairs(*given)
            mine = {field.name for field in fields(pairs)} & set(names) - {"growth"}
            return replace(pairs, **{name: factor * getattr(pairs, name) for name in mine})

        def _add_budget(self, r: int) -> None:
            super()._add_budget(r)
            if "growth" in names:
                for pairs in self._pairs:
                    pairs.growth[r] = factor * pairs.growth[r]

    return Multiplied


@pytest.mark.parametrize("name", [name for name in LEFT_OUT if name != "bend"])
def test_nothing_that_is_left_out_can_be_missing(name: str) -> None:
    below = 0
    for problem in POLYNOMIALS.values():
        bound = multiplied(0.0, [name])([problem])
        nodes = moved_ahead(problem, bound, RADII[1:6])
        below += bool((excess(problem, bound.children(nodes), nodes) < -1e-9).any())
    assert below > 0


@pytest.mark.parametrize("name", [*LEFT_OUT, "spread", "steepness"])
def test_every_part_counts(name: str) -> None:
    """Also those whose place others could fill: for budgets two and three, the latter where there is slack."""
    problem = POLYNOMIALS["many changes"]
    bound = TaylorChildBound([problem])
    nodes = moved_ahead(problem, bound, RADII[1:2])
    more = multiplied(3.0, [name])([problem]).children(nodes)[:, :3, 0, 1:] - bound.children(nodes)[:, :3, 0, 1:]
    more = more.nan_to_num(0.0)  # where neither knows
    counts = {"single": [True] * 3, "growth": [False, False, True]}.get(name, [False, True, True])
    assert (more > 1e-9).any(0).any(1).tolist() == counts
    assert float(more.min()) >= 0


def test_the_check_notices_missing_remainders() -> None:
    found = 0
    for seed, problem in enumerate(smooth_problems(20, start=2000, strength=1.0, max_changes=4, horizon=5)):
        try:
            check_child_bound(multiplied(0.0, LEFT_OUT)([problem]), [problem], samples=5, seed=seed)
        except VerificationError:
            found += 1
    assert found >= 5


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
