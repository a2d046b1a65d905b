"""Many answers examined together: the same as each alone, and one that fails costs no other."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from effort import some
from random_behaviour import made_behaviour

from ifonly import Ensemble, EnsembleProblem, Problem, Query, examine, solve, solve_batch
from ifonly.errors import InputError
from ifonly.evidence import examination, examine_all
from ifonly.evidence.sensitivity import sensitivities, sensitivity
from ifonly.models.standing import MemberLabel
from ifonly.records import to_plain
from ifonly.result import Evidence, Sensitivity
from ifonly.testing.instances import random_ensemble, random_problem

LABELS = [MemberLabel(kind, half, weight) for kind, weight in (("a", 0.3), ("b", 0.2)) for half in (0, 1)]
SMOOTH = ("location-scale", "additive", "linear", "post-nonlinear", "monotone-flow")


def problems_of(kind: str, seed: int, count: int) -> list[Problem]:
    """The same model and reward, put to other recordings of it."""
    first = random_problem(seed, model_kind=kind, reward_kind="linear", masked=False, horizon=5, max_changes=2)
    rng, found = np.random.default_rng(seed), [first]
    while len(found) < count:
        noise = first.noise + torch.tensor(rng.normal(size=tuple(first.noise.shape)))
        actions = torch.tensor(rng.integers(first.action_count, size=first.horizon))
        states = replace(first, noise=noise, observed_actions=actions).rollout(actions[None])[0][0]
        recorded = replace(first.episode, states=first.decode(states), actions=actions.numpy())
        found.append(Problem.from_episode(recorded, first.model, first.query))
    return found


def close(one: Any, other: Any) -> None:
    """The same numbers but for rounding; what follows a search that stops somewhere, but for a little more."""
    one, other = (np.array(list(flat(value)), dtype=object) for value in (one, other))
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        assert left == (pytest.approx(right, rel=1e-5, abs=1e-7) if isinstance(right, float) else right)


def flat(value: Any) -> Any:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from flat(one)
    else:
        yield value


@pytest.mark.parametrize("seed", range(some(15)))
def test_what_would_undo_gains_is_the_same_together(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = problems_of(SMOOTH[seed % len(SMOOTH)], seed, 5)
    sequences = [torch.tensor(result.actions) for result in solve_batch(problems)]
    sequences[1] = problems[1].observed_actions  # one that changes nothing among them
    alone = [sensitivity(*pair) for pair in zip(problems, sequences, strict=True)]
    assert any(one.steps for one in alone)
    assert not alone[1].steps
    assert sensitivities(problems, sequences) == alone, "on a processor one after the other"
    monkeypatch.setattr(sys.modules["ifonly.evidence.sensitivity"], "array_scale", lambda device: 3)
    together = sensitivities(problems, sequences)
    for one, other in zip(together, alone, strict=True):
        assert isinstance(one, Sensitivity)
        close(to_plain(one), to_plain(other))


def ensembles(seed: int, objective: str | None, count: int = 4) -> tuple[list[Problem] | list[EnsembleProblem], Any]:
    """A query with everything asked, put to an ensemble of two kinds and halves, and a behaviour model."""
    made = random_ensemble(seed, members=4, horizon=4, actions=3, max_changes=2, model_kind="location-scale")
    model = Ensemble(made.models, labels=LABELS).for_search()  # type: ignore[arg-type]
    query = Query(made.reward, 2, objective=objective, honest=True, sensitivity=True, coupling=True)
    rng = np.random.default_rng(seed)
    episodes = [made.episode]
    while len(episodes) < count:
        moved = made.episode.states + rng.normal(scale=0.3, size=made.episode.states.shape)
        episodes.append(replace(made.episode, id=f"e{len(episodes)}", states=moved))
    kind = Problem if objective is None else EnsembleProblem
    return kind.from_episodes(episodes, model, query), made_behaviour(made.members[0], seed)


@pytest.mark.parametrize(("seed", "objective"), [(0, None), (1, "worst"), (2, None)])
def test_answers_examined_together_are_those_of_each_alone(seed: int, objective: str | None) -> None:
    problems, behaviour = ensembles(seed, objective)
    results = solve_batch(problems)
    told = examine_all(problems, results, behaviour=behaviour)
    for problem, result, found in zip(problems, results, told, strict=True):
        expected = examine(problem, result, behaviour=behaviour)
        assert to_plain(found) == to_plain(expected), "to the last digit, on a processor"
        assert (found.honest is not None) or not result.changes
        assert found.failures == ()
    assert any(one.honest and one.sensitivity and one.sensitivity.steps for one in told)
    assert examine_all([], []) == []


def test_halves_are_asked_together_for_answers_that_change_nothing_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them takes a search, whatever was found."""
    problems, behaviour = ensembles(0, None)
    results = [solve(problem.with_query(max_changes=place % 2)) for place, problem in enumerate(problems)]
    assert {bool(result.changes) for result in results} == {False, True}
    alone = [examine(*pair, behaviour=behaviour) for pair in zip(problems, results, strict=True)]
    monkeypatch.setattr(examination, "honest_gain", lambda *_, **__: pytest.fail("one was asked alone"))
    together = examine_all(problems, results, behaviour=behaviour)
    assert [to_plain(one) for one in together] == [to_plain(one) for one in alone]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: torch finds no CUDA device here")
def test_evidence_of_a_gpu_is_that_of_a_processor() -> None:
    problems, behaviour = ensembles(0, None)
    results = solve_batch(problems)
    there = examine_all(problems, results, behaviour=behaviour, device="cuda")
    here = examine_all(problems, results, behaviour=behaviour)
    assert any(one.sensitivity and one.sensitivity.steps for one in here)
    for one, other in zip(there, here, strict=True):
        assert one.failures == ()
        close(to_plain(one), to_plain(other))


def test_one_that_fails_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    problems, behaviour = ensembles(2, None)
    results = solve_batch(problems)
    bad = problems[next(number for number, result in enumerate(results) if result.changes)].episode.id
    before = examine_all(problems, results, behaviour=behaviour)
    plain = examination.honest_gains

    def failing(asked: Sequence[Problem], *rest: Any, **more: Any) -> Any:
        if any(problem.episode.id == bad for problem in asked):
            raise InputError("it cannot be asked")
        return plain(asked, *rest, **more)

    monkeypatch.setattr(examination, "honest_gains", failing)
    after = examine_all(problems, results, behaviour=behaviour)
    for problem, one, other in zip(problems, before, after, strict=True):
        if problem.episode.id == bad:
            assert [failure.part for failure in other.failures] == ["honest"]
            other = replace(other, failures=(), honest=one.honest)
        assert isinstance(other, Evidence)
        assert to_plain(one) == to_plain(other)
