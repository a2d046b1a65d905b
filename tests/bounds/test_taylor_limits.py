"""Where the Taylor bound must not be used, may be cut short, or has no memory for more."""

import json
from typing import Any

import pytest
import torch
from smooth_problems import smooth_problems
from torch import Tensor

import ifonly.bounds.taylor.bound as taylor
import ifonly.bounds.taylor.largest_advantage as largest_advantage
import ifonly.bounds.taylor.local_expansion as local_expansion
import ifonly.bounds.taylor.norms as norms
from ifonly import Additive, BranchAndBound, Exhaustive, Limits, Problem, Result, Session, Status, solve, verify
from ifonly.bounds.factory import choose_bound
from ifonly.bounds.taylor import TaylorChildBound, can_expand
from ifonly.bounds.taylor.local_expansion import LocalExpansion
from ifonly.errors import InputError
from ifonly.models.location_scale import LocationScale
from ifonly.progress import Tick
from ifonly.query import Query
from ifonly.testing import check_child_bound
from ifonly.testing.instances import random_problem


class Wavy(Additive):
    """Changes the step and forgets what it says about it."""

    def step(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        return super().step(states, context, actions, noise) + torch.sin(2 * states)

    def invert(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> tuple[Tensor, Tensor]:
        return super().invert(states, context, actions, next_states - torch.sin(2 * states))


class Doubled(LocationScale):
    """Changes what the step is made of."""

    def location_and_scale(self, states: Tensor, context: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        location, scale = super().location_and_scale(states, context, actions)
        return 2 * location, scale


@pytest.mark.parametrize("kind", [Wavy, Doubled])
def test_a_step_that_is_not_as_described_is_never_expanded(kind: type[Additive] | type[LocationScale]) -> None:
    base = random_problem(3, model_kind="linear", reward_kind="linear", rules=False)
    model = kind(base.model.schema, hidden=(6,), scaler=base.model.scaler).double()
    problem = Problem.from_episode(base.episode, model.for_search(), Query(base.reward, 2))
    plain = kind.__bases__[0](base.model.schema, hidden=(6,), scaler=base.model.scaler).double()
    assert can_expand(Problem.from_episode(base.episode, plain.for_search(), Query(base.reward, 2)))
    assert not can_expand(problem)
    assert choose_bound(problem) != "taylor"
    with pytest.raises(InputError, match="three derivatives"):
        TaylorChildBound([problem])


def test_more_changes_than_are_bounded_and_the_answer_stays_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many further changes nothing is known: the bound is infinite."""
    monkeypatch.setattr(largest_advantage, "MAX_BALL_CHANGES", 1)
    settings = {"strength": 0.3, "max_changes": 4, "horizon": 5, "actions": 2, "masked": False}
    for number, problem in enumerate(smooth_problems(4, start=40, **settings)):
        bound = TaylorChildBound([problem])
        assert bound.details()["changes_bounded"] == 2
        check_child_bound(bound, [problem], samples=4, seed=number)
        found = solve(problem, BranchAndBound(bound="taylor"))
        assert found.outcome == pytest.approx(solve(problem, Exhaustive()).outcome, abs=1e-9)


@pytest.mark.parametrize(
    ("size", "hidden", "second", "terms"),
    [(1, (6,), "float64", 3), (3, (6,), "float64", 9), (13, (6,), "float32", 13**2), (13, (2300,), "float32", 2300)],
)
def test_the_certificate_tells_precision_and_margins(
    size: int, hidden: tuple[int, ...], second: str, terms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outcomes in float64; what prunes in float32, by the Taylor bound, with the margins of docs/theory.md. In wide
    models second derivatives of changes are float32 as well; and no larger margin (T54) is added than is told."""
    settings = {"strength": 0.3, "max_changes": 2, "horizon": 4, "rules": False, "rewards": ("linear",)}
    problem = next(smooth_problems(1, start=7, state_size=size, hidden=hidden, **settings))
    dtypes: dict[bool, set[str]] = {True: set(), False: set()}
    margins: list[float] = []
    expand, margin = LocalExpansion, norms.product_margin

    def seen_expansion(**arrays: Any) -> LocalExpansion:
        found = expand(**arrays)
        dtypes[found.third is not None].add(str(found.hessian.dtype))
        return found

    def seen_margin(terms: int) -> float:
        margins.append(margin(terms))
        return margins[-1]

    with monkeypatch.context() as patch:
        patch.setattr(local_expansion, "LocalExpansion", seen_expansion)
        for module in (norms, local_expansion):
            patch.setattr(module, "product_margin", seen_margin)
        bound = TaylorChildBound([problem])
    assert dtypes == {True: {"torch.float64"}, False: {f"torch.{second}"}}
    precision = bound.details()["precision"]
    assert precision == {
        "outcomes": "float64",
        "expansions": "float64",
        "second_derivatives": second,
        "derivative_norms": "float32",
        "pruning": "float32",
        "rounding_margin": (size + 1) * (size + 2) / 2 * 2.0**-22,
        "product_margin": (terms + 16) * 2.0**-22,
        "table_margin": 1e-5,
        "bound_margin": 1e-10,
    }
    assert max(margins) == precision["product_margin"]


def test_results_keep_the_precision_of_the_bound_that_led() -> None:
    problem = next(smooth_problems(1, start=7, strength=0.5, max_changes=2, horizon=5, rules=False))
    result = solve(problem, BranchAndBound(bound="taylor"))
    assert result.certificate.details["precision"] == TaylorChildBound([problem]).details()["precision"]
    assert Result.from_dict(json.loads(json.dumps(result.to_dict()))).certificate == result.certificate
    anchors = solve(problem, BranchAndBound(bound="lipschitz")).certificate.details["precision"]
    assert anchors == {"outcomes": "float64", "pruning": "float64", "rounding_margin": 1e-12}


@pytest.mark.parametrize("name", ["expand_values", "expand_advantages"])
def test_ctrl_c_while_the_bound_is_made_leaves_the_greedy_answer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    problem = next(smooth_problems(1, start=7, strength=0.5, max_changes=2, horizon=5, rules=False))
    truth = solve(problem, Exhaustive())
    monkeypatch.setattr(taylor, name, interrupted)
    solver = BranchAndBound(bound="taylor")
    for result in (solve(problem, solver), Session(problem, solver).solve()):
        assert result.status is Status.INTERRUPTED
        assert problem.observed_outcome <= result.outcome <= truth.outcome + 1e-9 <= result.upper_bound
    greedy = max(problem.outcome(row) for row in _single_changes(problem))
    assert result.outcome >= greedy - 1e-12


def _single_changes(problem: Problem) -> Tensor:
    rows = [problem.observed_actions]
    for t in range(problem.horizon):
        for action in problem.alternatives(t):
            changed = problem.observed_actions.clone()
            changed[t] = action
            rows.append(changed)
    return torch.stack(rows)


def test_a_time_limit_holds_while_the_bound_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = next(smooth_problems(1, start=7, strength=0.5, max_changes=2, horizon=5, rules=False))
    checks = 0

    def passed(monitor: object) -> float:
        nonlocal checks
        checks += 1
        return 0.0 if checks < 12 else 100.0

    monkeypatch.setattr("ifonly.search.base.Monitor.elapsed", passed)
    result = solve(problem, BranchAndBound(bound="taylor"), limits=Limits(seconds=50.0))
    assert result.status is Status.TIME_LIMIT
    assert result.stats.nodes_expanded == 0


def test_an_interrupted_enumeration_verifies_nothing() -> None:
    problem = next(smooth_problems(1, start=7, strength=0.5, max_changes=2, horizon=5, rules=False))
    result = solve(problem, Exhaustive())

    def interrupt(_: Tick) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(result, problem.episode, problem.model, progress=interrupt)
