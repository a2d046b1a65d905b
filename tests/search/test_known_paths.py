"""Paths that are kept: what is replayed from them is what a whole rollout gives, for fewer steps of the model."""

import pytest
import torch

from ifonly.constraints import Constraints
from ifonly.problem import BaseProblem
from ifonly.problem.batch import ProblemBatch
from ifonly.search import paths as kept
from ifonly.search.paths import KnownPaths
from ifonly.testing.instances import random_panel, random_problem


def questions_of(seed: int) -> ProblemBatch:
    """Two questions under different rules, every third time put to a panel."""
    make = random_panel if seed % 3 == 0 else random_problem
    first: BaseProblem = make(seed, horizon=4, actions=3, max_changes=3, rules=seed % 2 == 0)
    return ProblemBatch([first, first.with_constraints(Constraints())])


def random_changes(questions: ProblemBatch, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences with any number of permitted changes, none among them."""
    generator = torch.Generator().manual_seed(seed)
    problem = torch.randint(questions.count, (count,), generator=generator)
    chance = torch.rand(count, 1, 1, generator=generator)
    draws = torch.rand(count, questions.horizon, questions.action_count, generator=generator)
    draws = draws.masked_fill(~questions.changeable[problem], -1.0)
    best, action = draws.max(2)
    return problem, torch.where(best > chance[..., 0], action, questions.observed[problem])


@pytest.mark.parametrize("limit", [0, kept.KEPT])
@torch.no_grad()
def test_replayed_paths_are_those_of_whole_rollouts(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "KEPT", limit)
    seen = set()
    for seed in range(24):
        questions = questions_of(seed)
        known = KnownPaths(questions)
        problem, sequences = random_changes(questions, 60, seed)
        found, steps = known.replay(problem, sequences)
        expected = questions.rollout(problem, sequences)
        for name in ("states", "earned", "totals", "outcomes"):
            torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-12)
        for row, taken in zip((sequences != questions.observed[problem]).tolist(), steps.tolist(), strict=True):
            places = [step for step, is_changed in enumerate(row) if is_changed]
            spared = 0 if limit == 0 else 1
            begin = places[spared] if len(places) > spared else questions.horizon - 1
            assert taken == questions.horizon - 1 - begin
            seen.add(len(places))
        assert known.replay(problem[:0], sequences[:0])[0].states.shape[0] == 0
    assert {0, 1, 2, 3} <= seen


@torch.no_grad()
def test_what_is_kept_stays_as_it_is() -> None:
    questions = questions_of(1)
    known = KnownPaths(questions)
    before = known.observed.states.clone()
    single = questions.changeable[0].nonzero()
    problem = torch.zeros(len(single), dtype=torch.int64)
    sequences = questions.observed[problem].scatter(1, single[:, :1], single[:, 1:])
    first = known.replay(problem, sequences)[0]
    first.states.zero_()  # the caller's own copy
    known.replay(*random_changes(questions, 50, 0))
    torch.testing.assert_close(known.observed.states, before, rtol=0.0, atol=0.0)
    again = known.replay(problem, sequences)[0]
    torch.testing.assert_close(again.states, questions.rollout(problem, sequences).states, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_single_changes_are_counted_once_each_from_where_they_are_made() -> None:
    questions = questions_of(2)
    later = questions.horizon - 1 - torch.arange(questions.horizon)
    whole = questions.horizon - 1 + (questions.changeable.sum(2) * later).sum(1)
    assert KnownPaths(questions).steps_taken.tolist() == whole.tolist()
