"""The Taylor bound is never below the truth, is close to it where changes are small, and treats each problem alone."""

import copy
import platform
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from effort import long, some
from smooth_problems import FAMILIES, KINDS, LINEAR, POLYNOMIALS, smooth_problems
from smooth_problems import family as model_family
from taylor_oracles import excess, future_excess, moved, moved_ahead
from torch import Tensor

import ifonly.bounds.taylor.applicability as applicability
import ifonly.bounds.taylor.blocks as blocks
import ifonly.bounds.taylor.bound as taylor
from ifonly.bounds.base import Nodes
from ifonly.bounds.taylor import TaylorChildBound, can_expand
from ifonly.bounds.taylor.blocks import rows_by_problem
from ifonly.bounds.taylor.radii import RADII
from ifonly.constraints import Constraints
from ifonly.data import Episode
from ifonly.errors import InputError
from ifonly.problem import Problem
from ifonly.query import Query
from ifonly.rewards import ActionCost, Hinge, Linear, PiecewiseLinear
from ifonly.testing import check_child_bound
from ifonly.testing.instances import partition_problem, random_problem

# Weak networks have small effects and finite bounds everywhere; strong ones leave the largest ball.
STRENGTHS = (0.1, 0.5, 1.0, 2.0, 4.0)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_never_below_the_truth(strength: float) -> None:
    for seed, problem in enumerate(smooth_problems(some(12), start=int(1000 * strength), strength=strength)):
        check_child_bound(TaylorChildBound([problem]), [problem], samples=5, seed=seed)


def test_never_below_the_truth_for_as_many_changes_as_steps() -> None:
    for seed, problem in enumerate(
        smooth_problems(some(6), start=9000, strength=0.7, max_changes=None, horizon=5, actions=2, rules=False)
    ):
        check_child_bound(TaylorChildBound([problem]), [problem], samples=6, seed=seed)


def test_never_below_the_truth_for_four_changes() -> None:
    settings = {"max_changes": 4, "horizon": 5, "rules": False}
    for seed, problem in enumerate(smooth_problems(5, start=9100, strength=0.4, actions=3, **settings)):
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
    other = Problem.from_episode(backward, first.model, Query(first.reward, 3, change_cost=0.2))
    return [first, first.with_constraints(Constraints()), other, first]


def test_several_problems_at_once() -> None:
    for seed in range(0, 40, 10):
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
    for seed in (0, 10):
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
            torch.testing.assert_close(alone.root()[0], together.root()[which], rtol=1e-6, atol=1e-6)
            mine = Nodes(level, torch.zeros_like(part.problem), part.start, part.states, part.outcomes)
            torch.testing.assert_close(alone.children(mine), found[which], rtol=1e-6, atol=1e-6)


def root_excess(problem: Problem) -> Tensor:
    """The same of the root [K, T, A]."""
    nodes = moved(problem, 0, torch.zeros_like(problem.observed_states[:1]))
    return excess(problem, TaylorChildBound([problem]).root(), nodes)[0]


@pytest.mark.parametrize("kind", ["location-scale", "additive"])
def test_close_to_the_truth_where_changes_do_little(kind: str) -> None:
    """Only then can a bound prune: not only true, but near."""
    settings = {"model_kind": kind, "strength": 0.2, "constrained": False, "horizon": 5, "actions": 3, "max_changes": 4}
    for problem in smooth_problems(some(6), start=400, rules=False, **settings):
        known = root_excess(problem)
        assert bool((known >= -1e-9).all())
        assert float(known[known > 0].median()) <= 1e-3
        assert float(known.max()) <= 0.05


@pytest.mark.parametrize("strength", [0.3, 1.0])
def test_never_below_the_truth_far_from_the_observed_path(strength: float) -> None:
    """Nodes that no changes lead to, from all radii to beyond the last but one, and every budget up to four."""
    finite = torch.zeros(4, dtype=torch.int64)
    for seed, problem in enumerate(
        smooth_problems(some(9), start=11_000, strength=strength, max_changes=5, horizon=5, actions=2, rules=False)
    ):
        bound, generator = TaylorChildBound([problem]), torch.Generator().manual_seed(seed)
        c, size = seed % 3, problem.observed_states.shape[1]
        directions = torch.randn(16, size, generator=generator, dtype=torch.float64)
        norms = torch.logspace(-2, 0.7, 16, dtype=torch.float64).unsqueeze(1)
        offsets = (norms * torch.nn.functional.normalize(directions, dim=1)) @ bound.tables.values.metric_root[0, c]
        nodes = moved(problem, c, offsets, level=1)
        found = excess(problem, bound.children(nodes), nodes)
        assert float(found.min()) >= -1e-9
        finite += ((found > 0) & found.isfinite()).sum((0, 2, 3))
    assert int(finite.min()) > some(100)


CLOSE = {
    "slope": 0.002,
    "curvature": 0.03,
    "third": 0.01,
    "all": 0.015,
    "scale": 0.03,
    "scale's third": 0.006,
    "far and curved": 0.08,
    "many changes": 0.06,
    "steep scale": 0.015,
    "towards a bend": 0.0005,
    "switching": 0.008,
    "turned": 0.25,
    "deep": 0.2,
}
"""By how much bounds on two changes may exceed the truth, for states up to 0.1 aside."""


@pytest.mark.parametrize("name", POLYNOMIALS)
@torch.no_grad()
def test_true_and_close_where_nothing_is_to_spare(name: str) -> None:
    """From first states aside by just what a radius covers: there the limits are nearly attained."""
    problem = POLYNOMIALS[name]
    bound, close = TaylorChildBound([problem]), CLOSE.get(name, torch.inf)
    for radii in ((0.0, *RADII[:2]), RADII[2:8]):
        nodes = moved_ahead(problem, [radius * (1 - 1e-9) for radius in radii])
        found = excess(problem, bound.children(nodes), nodes)
        future = future_excess(problem, bound, 0, nodes.states[:, 0])
        assert float(found.min()) >= 0
        assert float(future.min()) >= 0
        if radii[0] == 0.0:
            assert float(future[:, 0].max()) <= 0.005 or name == "far from a bend"
            if name in CLOSE:
                assert float(found[:, 0, 0].max()) <= close / 3 + 0.001
                assert float(found[:, 1, 0].max()) <= close
                assert float(future[:, 2].max()) <= close


def test_what_was_observed_is_known_exactly() -> None:
    for problem in smooth_problems(some(10), start=600, rules=False, masked=False):
        bound = TaylorChildBound([problem])
        for t in range(problem.horizon):
            left = future_excess(problem, bound, t, problem.observed_states[t : t + 1])[0, 0]
            assert 0 <= float(left) <= 1e-8 * (1 + abs(problem.observed_outcome))


def test_linear_models_leave_rounding_only() -> None:
    settings = {"model_kind": "linear", "rules": False, "masked": False, "max_changes": 2}
    for problem in smooth_problems(some(10), start=600, rewards=LINEAR, **settings):
        assert 0 <= float(root_excess(problem)[0].max()) <= 1e-5 * (1 + abs(problem.observed_outcome))


def test_budgets_bring_more() -> None:
    for problem in smooth_problems(some(12), start=800, max_changes=3, rules=False):
        root = TaylorChildBound([problem]).root()
        finite = root.isfinite()
        assert bool((root[:, 1:] >= root[:, :-1] - 1e-9)[finite[:, :-1]].all())


@pytest.mark.parametrize("kind", ["linear", "additive"])
def test_unknown_beyond_the_largest_radius(kind: str) -> None:
    """A node far from the observed path has infinite bounds, not wrong ones; but what the last step earns is known."""
    settings = {"max_changes": 3, "horizon": 4, "rules": False, "masked": False, "model_kind": kind}
    problem = next(smooth_problems(1, start=5, rewards=LINEAR, **settings))
    bound = TaylorChildBound([problem])
    for c in range(problem.horizon - 1):
        for part in (0.1, 1 + 1e-6, 1e3, 1e30):
            offset = part * RADII[-2] * bound.tables.values.metric_root[0, c, :1]
            nodes = moved(problem, c, offset, level=1)
            changes = problem.allowed.scatter(1, problem.observed_actions.unsqueeze(1), False)[c]
            known = bound.children(nodes)[0, :, c][:, changes].isfinite()
            future = bound.reward_to_go(c, nodes.problem, nodes.states[:, c], 2).isfinite()
            assert not bool(known.any() or future.any()) if part > 1 else bool(known.any() and future.any())


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf, 1e200, -1e39])
@torch.no_grad()
def test_nothing_is_known_of_states_that_overflow(wrong: float) -> None:
    """Rows beside them stay as they are."""
    settings = {"max_changes": 3, "horizon": 4, "rules": False}
    for seed, problem in enumerate(smooth_problems(some(6), start=1300, **settings)):
        bound = TaylorChildBound([problem])
        nodes = nodes_of(problem, 0, 5, 1, seed)
        nodes = replace(nodes, start=torch.zeros_like(nodes.start))
        states, fine = nodes.states.clone(), bound.children(nodes)
        states[2, 1:, -1] = wrong
        outcomes = nodes.outcomes.clone()
        outcomes[2] = torch.tensor(wrong) * problem.bound_reward.expand(problem.observed_states).slope[-1, -1]
        found = bound.children(replace(nodes, states=states, outcomes=outcomes))
        changes = problem.allowed.scatter(1, problem.observed_actions.unsqueeze(1), False)
        assert torch.equal(found[2] == -torch.inf, ~changes.expand_as(found[2]))
        assert not found[2, :, 1:-1].isfinite().any()
        if abs(wrong) in (torch.inf, torch.nan):
            assert not found[2, :, 1:].isfinite().any()
        others = [0, 1, 3, 4]
        torch.testing.assert_close(found[others], fine[others], rtol=1e-6, atol=1e-6)
        for t in range(1, problem.horizon):
            for cutoff in (None, torch.zeros(5, 2, dtype=torch.float64)):
                future = bound.reward_to_go(t, nodes.problem, states[:, t], 1, cutoff)
                assert bool((future[2] == torch.inf).all())
                assert bool((future[others] < torch.inf).any()) or fine.max() == torch.inf


@torch.no_grad()
def test_nothing_to_bound() -> None:
    problem = next(smooth_problems(1, start=3, max_changes=2, horizon=3))
    bound, nothing = TaylorChildBound([problem, problem]), torch.zeros(0, dtype=torch.int64)
    states = problem.observed_states[None].repeat(0, 1, 1)
    found = bound.children(Nodes(1, nothing, nothing, states, states[:, 0, 0]))
    assert found.shape == (0, 1, problem.horizon, problem.action_count)
    assert bound.reward_to_go(1, nothing, states[:, 0], 2).shape == (0, 3)


@pytest.mark.parametrize("level", [1, 2])
@torch.no_grad()
def test_bounds_do_not_depend_on_the_first_step_but_for_what_lies_before(level: int) -> None:
    for seed in (0, 10):
        members = family(seed)
        bound, horizon = TaylorChildBound(members), members[0].horizon
        parts = [nodes_of(member, which, 4, level, seed=seed + which) for which, member in enumerate(members)]
        nodes = joined(parts, torch.arange(16))
        every = bound.children(replace(nodes, start=torch.zeros_like(nodes.start)))
        for start in (torch.arange(16) % (horizon + 1), torch.full((16,), horizon), torch.full((16,), 2)):
            found = bound.children(replace(nodes, start=start))
            before = torch.arange(horizon) < start.unsqueeze(1)
            wanted = every.masked_fill(before[:, None, :, None], -torch.inf)
            torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_rows_of_several_problems_are_taken_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    members = family(0)
    whole = TaylorChildBound(members)
    monkeypatch.setattr(taylor, "ELEMENTS", 500)
    monkeypatch.setattr(blocks, "FILLED", 0)
    split = TaylorChildBound(members)
    for number, counts in enumerate([(3, 3, 3, 3), (1, 0, 40, 2), (0, 0, 0, 9), (70, 1, 1, 30)]):
        parts = [
            nodes_of(one, which, rows, 1, number) for which, (one, rows) in enumerate(zip(members, counts, strict=True))
        ]
        order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(number))
        nodes = joined(parts, order)
        for bound in (whole, split):
            seen = []
            for which, rows, valid in rows_by_problem(nodes.problem, 4, 30, bound.tables.block_elements):
                numbers = torch.arange(4)[which]
                assert torch.equal(nodes.problem[rows][valid], numbers.unsqueeze(1).expand_as(rows)[valid])
                seen.append(rows[valid])
            assert torch.equal(torch.cat(seen).sort().values, torch.arange(len(order)))
        torch.testing.assert_close(split.children(nodes), whole.children(nodes), rtol=1e-6, atol=1e-6)
        future = [bound.reward_to_go(2, nodes.problem, nodes.states[:, 2], 2) for bound in (split, whole)]
        torch.testing.assert_close(*future, rtol=1e-6, atol=1e-6)


def test_blocks_have_little_to_fill_up() -> None:
    """However many rows each problem has, and none has more than memory holds."""
    generator = torch.Generator().manual_seed(0)
    for counts in (torch.randint(0, 900, (12,), generator=generator), torch.tensor([1, 1, 1, 500]), torch.zeros(3)):
        problem = torch.arange(len(counts)).repeat_interleave(counts.long())
        problem = problem[torch.randperm(len(problem), generator=generator)]
        rows = 0
        for which, ranks, valid in rows_by_problem(problem, len(counts), 10, 20_000):
            assert ranks.numel() <= 20_000 // 10
            assert int((~valid).sum()) <= blocks.FILLED
            assert bool(valid.any(1).all()), "no problem without a row"
            assert len(torch.arange(len(counts))[which]) == len(ranks)
            rows += int(valid.sum())
        assert rows == len(problem)


MEMORY_KEPT = """
import resource, torch
from ifonly.bounds.taylor.bound import keep_freed_memory
keep_freed_memory()
for round in range(20):
    if round == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [torch.ones(2**14) for _ in range(100)]  # 64 KiB each, 1600 pages together
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of the C library of Linux")
def test_pages_of_arrays_are_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY_KEPT], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500


@torch.no_grad()
def test_what_is_known_of_a_model_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = family(0)[0]
    described = type(problem.model).smooth
    asked = []
    monkeypatch.setattr(type(problem.model), "smooth", lambda model: asked.append(model) or described(model))
    frozen = problem.put_to(copy.deepcopy(problem.model))
    with torch.inference_mode():
        first = applicability.smooth_step(frozen)
    assert first is applicability.smooth_step(frozen)
    assert first is not None
    assert len(asked) == 1
    assert not first.parts[0].third_form.is_inference(), "kept for any mode"
    TaylorChildBound([frozen])
    assert len(asked) == 1


@torch.no_grad()
def test_what_is_known_of_a_model_is_of_the_weights_that_it_has() -> None:
    """Whoever writes to weights of a model that is frozen already gets the bounds of a copy that never had others."""
    problem = next(smooth_problems(1, start=7, strength=0.5, max_changes=2, horizon=5, rules=False))
    model = copy.deepcopy(problem.model)
    before = TaylorChildBound([problem.put_to(model)]).root()
    for weights in model.parameters():
        weights.mul_(0.5)
    model.bake_()
    changed, fresh = problem.put_to(model), problem.put_to(copy.deepcopy(model))
    assert changed.model is model
    after = TaylorChildBound([changed]).root()
    assert not torch.equal(after, before)
    assert torch.equal(after, TaylorChildBound([fresh]).root())


@torch.no_grad()
def test_as_sharp_as_the_cutoff_asks() -> None:
    """What exceeds the cutoff is known as well as without one."""
    above, loose = 0, 0
    for seed, problem in enumerate(smooth_problems(6, start=1500, strength=0.3, max_changes=3, horizon=7, actions=2)):
        bound = TaylorChildBound([problem])
        nodes = nodes_of(problem, 0, 24, 2, seed)
        for t in (1, 2):
            sharp = bound.reward_to_go(t, nodes.problem, nodes.states[:, t], 1)
            generator = torch.Generator().manual_seed(seed)
            spread = sharp[sharp.isfinite()].std() if sharp.isfinite().any() else 1.0
            cutoff = sharp + spread * torch.randn(sharp.shape, generator=generator, dtype=torch.float64)
            found = bound.reward_to_go(t, nodes.problem, nodes.states[:, t], 1, cutoff)
            clear = found > cutoff + 1e-6 * (1 + cutoff.abs())
            assert bool((found <= sharp + 1e-9 * (1 + sharp.abs()))[clear].all())
            above += int(clear.sum())
            loose += int((found > sharp + 1e-6).sum())
    assert above > 20
    assert loose > 5  # what is not cutoff is not looked at


@pytest.mark.parametrize("changes", [1, 2, 3])
@pytest.mark.parametrize("horizon", [2, 3])
def test_never_below_the_truth_for_few_steps(horizon: int, changes: int) -> None:
    settings = {"horizon": 3, "actions": 3, "strength": 0.8, "rules": False}
    for seed, problem in enumerate(smooth_problems(4, start=9200 + 10 * changes, **settings)):
        beginning = Episode(
            "beginning",
            problem.episode.schema,
            states=problem.episode.states[:horizon],
            actions=problem.episode.actions[:horizon],
            context=None if problem.episode.context is None else problem.episode.context[:horizon],
        )
        allowed = problem.allowed[:horizon].numpy()
        short = Problem.from_episode(
            beginning,
            problem.model,
            Query(
                problem.reward,
                min(changes, horizon),
                constraints=Constraints().restricted_to(allowed, beginning),
                change_cost=0.1,
            ),
        )
        check_child_bound(TaylorChildBound([short, short]), [short, short], samples=5, seed=seed)


@pytest.mark.parametrize("name", FAMILIES)
def test_never_below_the_truth_for_any_kind_of_model(name: str) -> None:
    for seed, problem in enumerate(model_family(name, 3, start=9300, max_changes=3, horizon=4)):
        check_child_bound(TaylorChildBound([problem]), [problem], samples=5, seed=seed)


def late_reward_problem(seed: int, size: float, weight: float) -> Problem:
    """Little depends on the state; what counts is an action with a reward of `size`, allowed at one step only."""
    settings = {"max_changes": 3, "horizon": 5, "actions": 3, "rules": False, "strength": 0.1}
    base = next(smooth_problems(1, start=7000 + seed, **settings))
    episode = Episode(
        "late reward",
        base.episode.schema,
        states=base.episode.states,
        actions=np.zeros(5, dtype=np.int64),
        context=base.episode.context,
    )
    rng, allowed = np.random.default_rng(seed), np.ones((5, 3), dtype=bool)
    allowed[:, 2] = np.arange(5) == 1 + seed % 4
    reward = Linear({"state 0": weight}) + ActionCost({1: 1e-7 * rng.normal(), 2: -size * rng.random()})
    return Problem.from_episode(
        episode, base.model, Query(reward, 3, constraints=Constraints().restricted_to(allowed, episode))
    )


@pytest.mark.parametrize("size", [1.0, 1e3])
def test_never_below_the_truth_by_what_float32_rounds(size: float) -> None:
    """Where nearly nothing is left out, and sums are of numbers of different size."""
    for seed in range(0, 8, 8 // some(8)):
        problem = late_reward_problem(seed, size, weight=(1e-7, 1e-3)[seed // 4])
        check_child_bound(TaylorChildBound([problem]), [problem], samples=4, seed=seed)


def test_refused_without_three_derivatives() -> None:
    base = random_problem(0, model_kind="linear", reward_kind="linear", rules=False, masked=False)
    assert can_expand(base)
    hinge = PiecewiseLinear((Hinge(1.0, {"state 0": 1.0}, 0.0),))
    for reward in (hinge, Linear({"state 0": 1.0}) + hinge):
        problem = Problem.from_episode(base.episode, base.model, Query(reward, 2))
        assert not can_expand(problem)
        with pytest.raises(InputError, match="a sum of features"):
            TaylorChildBound([problem])
    assert can_expand(
        Problem.from_episode(base.episode, base.model, Query(Linear({"state 1": 2.0}) + ActionCost({0: 1.0}), 2))
    )
    assert can_expand(Problem.from_episode(base.episode, base.model, Query(ActionCost({0: 1.0}), 2)))
    assert can_expand(partition_problem([3, 1, 2])), "its reward has a kink that bends downwards"
    refused = 0
    for seed in range(40):
        problem = random_problem(seed, model_kind=KINDS[seed % 2], reward_kind="linear")
        if problem.model.activation == "relu":
            refused += 1
            with pytest.raises(InputError, match="three derivatives"):
                TaylorChildBound([problem])
    assert refused > 2
