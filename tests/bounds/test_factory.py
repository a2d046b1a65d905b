"""The bounds that lead branch and bound are never below the truth; which one leads, and when."""

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import pytest
import torch
from effort import some

from ifonly.bounds.anchors import MonteCarlo
from ifonly.bounds.base import ChildBound, NoChildBound, Nodes
from ifonly.bounds.factory import choose_bound, make_child_bound
from ifonly.bounds.lipschitz import LipschitzChildBound
from ifonly.bounds.members import EnsembleChildBound
from ifonly.bounds.taylor import TaylorChildBound
from ifonly.constraints import Constraints
from ifonly.errors import InputError, VerificationError
from ifonly.problem import Problem
from ifonly.testing import check_child_bound
from ifonly.testing.instances import MODEL_KINDS, REWARD_KINDS, random_ensemble, random_problem

Maker = Callable[[Sequence[Problem]], ChildBound]


def few_anchors(problems: Sequence[Problem]) -> ChildBound:
    return LipschitzChildBound(problems, anchors=MonteCarlo(samples=2))


MAKERS: dict[str, Maker] = {"none": NoChildBound, "lipschitz": LipschitzChildBound, "few anchors": few_anchors}


def problems(count: int, start: int = 0) -> Iterator[Problem]:
    """Every kind of model and reward, with and without rules, costs of changes and masks."""
    for seed in range(start, start + count):
        yield random_problem(
            seed,
            model_kind=MODEL_KINDS[seed % len(MODEL_KINDS)],
            reward_kind=REWARD_KINDS[seed // len(MODEL_KINDS) % len(REWARD_KINDS)],
            max_changes=(3, 1, 2, None, 0)[seed % 5],
            horizon=2 + seed % 3,
            actions=2 + seed % 2,
            rules=None,
            constrained=True,
        )


def family(seed: int) -> list[Problem]:
    """Problems with one model and budget under other rules."""
    first = random_problem(seed, rules=True, max_changes=3, horizon=4, actions=3, constrained=True)
    return [first, first.with_constraints(Constraints()), first]


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_never_below_the_truth(maker: Maker) -> None:
    for seed, problem in enumerate(problems(some(20))):
        check_child_bound(maker([problem]), [problem], samples=6, seed=seed)
    for seed in range(4):
        members = family(seed)
        check_child_bound(maker(members), members, samples=3, seed=seed)


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_minus_infinity_only_where_nothing_may_change(maker: Maker) -> None:
    for problem in problems(some(20), start=100):
        options = problem.allowed.scatter(1, problem.observed_actions.unsqueeze(1), False)
        root = maker([problem]).root()
        assert root.dtype == torch.float64
        assert root.shape == (1, problem.max_changes, problem.horizon, problem.action_count)
        assert torch.equal(root > -torch.inf, options.expand_as(root))


class Altered(ChildBound):
    """Another bound, with something done to it."""

    method = "altered"

    def __init__(self, bound: ChildBound, change: Callable[[torch.Tensor], torch.Tensor], *, below: bool) -> None:
        self._bound, self._change, self._below = bound, change, below

    def root(self) -> torch.Tensor:
        bounds = self._bound.root().clone()
        return bounds if self._below else self._change(bounds)

    def children(self, nodes: Nodes) -> torch.Tensor:
        bounds = self._bound.children(nodes).clone()
        return self._change(bounds) if self._below else bounds


def too_low(bounds: torch.Tensor) -> torch.Tensor:
    return bounds - 100.0


def low_for_the_largest_budget(bounds: torch.Tensor) -> torch.Tensor:
    bounds[:, -1] -= 100.0
    return bounds


def not_a_number(bounds: torch.Tensor) -> torch.Tensor:
    bounds[-1, 0, -1, 0] = torch.nan
    return bounds


def without_a_budget(bounds: torch.Tensor) -> torch.Tensor:
    return bounds[:, 1:]


def known_where_nothing_changes(bounds: torch.Tensor) -> torch.Tensor:
    return bounds.masked_fill(bounds == -torch.inf, 1e9)


def impossible(bounds: torch.Tensor) -> torch.Tensor:
    return torch.full_like(bounds, -torch.inf)


WRONG = {
    too_low: "below the truth",
    low_for_the_largest_budget: "below the truth",
    not_a_number: "NaN",
    without_a_budget: "shape",
    known_where_nothing_changes: "not minus infinity",
    impossible: "below the truth",
}


@pytest.mark.parametrize("below", [False, True], ids=["root", "nodes"])
@pytest.mark.parametrize(("change", "message"), WRONG.items(), ids=[change.__name__ for change in WRONG])
def test_the_check_notices(change: Callable[[torch.Tensor], torch.Tensor], message: str, below: bool) -> None:
    problem = random_problem(3, max_changes=3, horizon=4, actions=3, rules=False, constrained=True, masked=False)
    bound = LipschitzChildBound([problem])
    check_child_bound(bound, [problem])
    with pytest.raises(VerificationError, match=message):
        check_child_bound(Altered(bound, change, below=below), [problem])


class AlteredFuture(TaylorChildBound):
    """Something is done to what it says of what follows."""

    change: ClassVar[Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]]

    def reward_to_go(
        self,
        t: int,
        problem: torch.Tensor,
        states: torch.Tensor,
        changes_left: int,
        cutoff: torch.Tensor | None = None,
    ) -> torch.Tensor:
        return type(self).change(super().reward_to_go(t, problem, states, changes_left, cutoff), cutoff)


def low_if_the_cutoff_is_low(bounds: torch.Tensor, cutoff: torch.Tensor | None) -> torch.Tensor:
    return bounds if cutoff is None else torch.where(cutoff < -1e9, bounds - 10.0, bounds)


def low_if_the_cutoff_is_high(bounds: torch.Tensor, cutoff: torch.Tensor | None) -> torch.Tensor:
    return bounds if cutoff is None else torch.where(bounds < cutoff, bounds - 10.0, bounds)


WRONG_FUTURE = {
    "too low": (lambda bounds, cutoff: bounds - 10.0, "below the truth"),
    "low without changes": (lambda bounds, cutoff: torch.cat((bounds[:, :1] - 10.0, bounds[:, 1:]), 1), "below"),
    "low for many changes": (lambda bounds, cutoff: torch.cat((bounds[:, :-1], bounds[:, -1:] - 1e9), 1), "below"),
    "low if the cutoff is low": (low_if_the_cutoff_is_low, "below the truth"),
    "low if the cutoff is high": (low_if_the_cutoff_is_high, "below the truth"),
    "not a number": (lambda bounds, cutoff: bounds * torch.nan, "NaN"),
    "without a budget": (lambda bounds, cutoff: bounds[:, 1:], "shape"),
}


@pytest.mark.parametrize(("change", "message"), WRONG_FUTURE.values(), ids=WRONG_FUTURE)
def test_the_check_notices_what_is_said_of_what_follows(change: Callable[..., torch.Tensor], message: str) -> None:
    shape = {"max_changes": 2, "horizon": 4, "actions": 3, "rules": False, "masked": False, "strength": 0.1}
    problem = random_problem(3, model_kind="linear", reward_kind="linear", **shape)
    check_child_bound(TaylorChildBound([problem]), [problem], samples=4)
    kind = type("Altered", (AlteredFuture,), {"change": staticmethod(change)})
    with pytest.raises(VerificationError, match=f"reward to go.*{message}"):
        check_child_bound(kind([problem]), [problem], samples=4)


def test_the_check_notices_a_member_whose_bound_on_what_follows_is_too_low() -> None:
    ensemble = random_ensemble(
        7, members=3, model_kind="linear", reward_kind="linear", max_changes=2, horizon=3, actions=2
    )
    bounds: list[ChildBound] = [TaylorChildBound([member]) for member in ensemble.members]
    check_child_bound(EnsembleChildBound(ensemble.objective, bounds), [ensemble], samples=4)
    kind = type("Altered", (AlteredFuture,), {"change": staticmethod(lambda bounds, cutoff: bounds - 10.0)})
    bounds[1] = kind([ensemble.members[1]])
    with pytest.raises(VerificationError, match="reward to go"):
        check_child_bound(EnsembleChildBound(ensemble.objective, bounds), [ensemble], samples=4)


def test_ensembles_bound_the_reward_to_go_where_every_member_does() -> None:
    ensemble = random_ensemble(
        7, members=2, model_kind="linear", reward_kind="linear", max_changes=2, horizon=3, actions=2
    )
    expanded, plain = ([make([member]) for member in ensemble.members] for make in (TaylorChildBound, NoChildBound))
    assert EnsembleChildBound(ensemble.objective, expanded).has_reward_to_go
    assert not EnsembleChildBound(ensemble.objective, [expanded[0], plain[1]]).has_reward_to_go


# Count of sequences less SMALL, and less ENUMERABLE: zero is still small. Then the leading bound of smooth problems, of
# those with kinks but with finite constants, and of those without.
CASES = [
    ((0, 0), ("none", "none", "none")),
    ((1, 0), ("taylor", "none", "none")),
    ((1, 1), ("taylor", "lipschitz", "none")),
]
CLASSES = {"none": NoChildBound, "taylor": TaylorChildBound, "lipschitz": LipschitzChildBound}


@pytest.mark.parametrize(("excess", "names"), CASES)
def test_which_bound_leads(
    excess: tuple[int, int], names: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    common = {"max_changes": 3, "horizon": 4, "actions": 3, "rules": False, "model_kind": "linear"}
    smooth, kinked, steep = (
        random_problem(3, reward_kind=reward, **common) for reward in ("linear", "piecewise linear", "custom")
    )
    monkeypatch.setattr(steep.model, "lipschitz", lambda *_: torch.full((3,), torch.inf, dtype=torch.float64))
    for problem, name in zip((smooth, kinked, steep), names, strict=True):
        for threshold, more in zip(("SMALL", "ENUMERABLE"), excess, strict=True):
            monkeypatch.setattr(f"ifonly.bounds.factory.{threshold}", problem.sequence_count() - more)
        assert choose_bound(problem) == name
        assert isinstance(make_child_bound([problem]), CLASSES[name])
        for asked in ("none", "taylor", "lipschitz"):
            assert choose_bound(problem, asked) == asked


def test_models_with_kinks_are_not_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ifonly.bounds.factory.SMALL", 0)
    chosen = {}
    for seed in range(60):
        kind = MODEL_KINDS[seed % len(MODEL_KINDS)]
        problem = random_problem(seed, model_kind=kind, reward_kind="with action costs", constrained=True)
        expected = (
            kind in ("location-scale", "additive", "linear") and problem.model.settings().get("activation") != "relu"
        )
        assert (choose_bound(problem) == "taylor") == expected
        chosen[kind] = chosen.get(kind, False) or expected
        if not expected:
            with pytest.raises(InputError, match="three derivatives"):
                TaylorChildBound([problem])
    assert [kind for kind, any_expanded in chosen.items() if not any_expanded] == ["post-nonlinear", "monotone-flow"]
