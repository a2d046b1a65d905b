"""Paths that are kept: what is replayed from them is what a whole rollout gives, for fewer steps of the model."""

import pytest
import torch

from ifonly.constraints import Constraints
from ifonly.problem import BaseProblem
from ifonly.problem.batch import ProblemBatch
from ifonly.search import prefix_cache
from ifonly.search.prefix_cache import PrefixCache
from ifonly.testing.instances import random_ensemble, random_problem


def batch_of(seed: int) -> ProblemBatch:
    """Two batch under different rules, every third time put to an ensemble."""
    make = random_ensemble if seed % 3 == 0 else random_problem
    first: BaseProblem = make(seed, horizon=4, actions=3, max_changes=3, rules=seed % 2 == 0)
    return ProblemBatch([first, first.with_constraints(Constraints())])


def random_changes(batch: ProblemBatch, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences with any number of permitted changes, none among them."""
    generator = torch.Generator().manual_seed(seed)
    problem = torch.randint(batch.count, (count,), generator=generator)
    chance = torch.rand(count, 1, 1, generator=generator)
    draws = torch.rand(count, batch.horizon, batch.action_count, generator=generator)
    draws = draws.masked_fill(~batch.changeable[problem], -1.0)
    best, action = draws.max(2)
    return problem, torch.where(best > chance[..., 0], action, batch.observed[problem])


@pytest.mark.parametrize("limit", [0, prefix_cache.KEPT])
@torch.no_grad()
def test_replayed_paths_are_those_of_whole_rollouts(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache, "KEPT", limit)
    seen = set()
    for seed in range(24):
        batch = batch_of(seed)
        known = PrefixCache(batch)
        problem, sequences = random_changes(batch, 60, seed)
        found, steps = known.replay(problem, sequences)
        expected = batch.rollout(problem, sequences)
        for name in ("states", "earned", "totals", "outcomes"):
            torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-12)
        for row, taken in zip((sequences != batch.observed[problem]).tolist(), steps.tolist(), strict=True):
            places = [step for step, is_changed in enumerate(row) if is_changed]
            spared = 0 if limit == 0 else 1
            begin = places[spared] if len(places) > spared else batch.horizon - 1
            assert taken == batch.horizon - 1 - begin
            seen.add(len(places))
        assert known.replay(problem[:0], sequences[:0])[0].states.shape[0] == 0
    assert {0, 1, 2, 3} <= seen


@torch.no_grad()
def test_what_is_kept_stays_as_it_is() -> None:
    batch = batch_of(1)
    known = PrefixCache(batch)
    before = known.observed.states.clone()
    single = batch.changeable[0].nonzero()
    problem = torch.zeros(len(single), dtype=torch.int64)
    sequences = batch.observed[problem].scatter(1, single[:, :1], single[:, 1:])
    first = known.replay(problem, sequences)[0]
    first.states.zero_()  # the caller's own copy
    known.replay(*random_changes(batch, 50, 0))
    torch.testing.assert_close(known.observed.states, before, rtol=0.0, atol=0.0)
    again = known.replay(problem, sequences)[0]
    torch.testing.assert_close(again.states, batch.rollout(problem, sequences).states, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_single_changes_are_counted_once_each_from_where_they_are_made() -> None:
    batch = batch_of(2)
    later = batch.horizon - 1 - torch.arange(batch.horizon)
    whole = batch.horizon - 1 + (batch.changeable.sum(2) * later).sum(1)
    assert PrefixCache(batch).steps_taken.tolist() == whole.tolist()
