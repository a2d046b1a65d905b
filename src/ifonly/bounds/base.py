"""What a bound is: a number that no continuation can exceed, from a state (A*) or below a node (branch and bound)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ifonly.problem import BaseProblem


class UpperBound(ABC):
    """An upper bound on what is still attainable from any state of one problem (the paper's heuristic)."""

    method: str
    """What the bound rests on, for the certificate."""

    @abstractmethod
    def __call__(self, t: int, states: Tensor, changes_used: Tensor) -> Tensor:
        """Bounds [N] on the rewards from step t on, for states [N, D] with `changes_used` [N] changes behind them.

        Never below the truth V(s, l, t) of (L1); infinite where nothing is known, never NaN.
        """

    def details(self) -> Mapping[str, Any]:
        """Constants and sizes worth recording in a certificate, as plain types."""
        return {}


@dataclass(frozen=True)
class Nodes:
    """Sequences with `level` changes so far, rolled out: after the last change the recorded actions follow.

    `problem` says which of P problems a node belongs to, `start` the first step at which it may change again. Nodes of
    ensemble problems have states and outcomes under every member, [N, T, M, D] and [N, M]. States and outcomes are
    float64. Bounds for more than `changes_left` further changes are not asked for; None: all that the budget leaves.
    """

    level: int
    problem: Tensor  # [N]
    start: Tensor  # [N]
    states: Tensor  # [N, T, D]
    outcomes: Tensor  # [N]
    changes_left: int | None = None

    def budgets(self, max_changes: int) -> int:
        """For how many numbers of further changes bounds are asked, where the budget is `max_changes`."""
        return max_changes - self.level if self.changes_left is None else self.changes_left


class ChildBound(ABC):
    """Bounds for P problems that share model, reward, horizon and budget K."""

    method: str
    """What the bounds rest on, for the certificate."""
    rests_on_constants: bool = False
    """Whether they rest on Lipschitz constants, those that somebody declared for a reward among them."""
    has_reward_to_go: bool = False
    """Whether `reward_to_go` is there, and knows more than `children`."""

    @abstractmethod
    def root(self) -> Tensor:
        """For the recorded sequences [P, K, T, A], as `children` gives them for any node."""

    @abstractmethod
    def children(self, nodes: Nodes) -> Tensor:
        """Upper bounds [N, K - level, T, A] on outcomes: entry (r-1, c, a) holds for every sequence that continues the
        node by the recorded actions up to step c, takes a there, and has at most r changes beyond the node's. Entries
        for more than `changes_left` changes may be left out.

        Minus infinity where (c, a) is no change, is not allowed or lies before `start`; infinite where nothing is
        known; never NaN.
        """

    def reward_to_go(
        self, t: int, problem: Tensor, states: Tensor, changes_left: int, cutoff: Tensor | None = None
    ) -> Tensor:
        """Upper bounds [N, R + 1] on the rewards from step t on, from states [N, D] of problems [N]: entry r holds for
        the recorded actions with at most r changes, up to R = `changes_left`. For ensemble problems [N, R + 1, M], from
        states [N, M, D].

        Bounds below `cutoff` [N, R + 1] need not be sharp.
        """
        raise NotImplementedError(f"{type(self).__name__} has no bound on the reward to go.")

    def details(self, problem: int = 0) -> Mapping[str, Any]:
        """Constants and sizes worth recording in the certificate of one of the P problems, as plain types."""
        return {}


class NoChildBound(ChildBound):
    """Knows nothing: a search led by it enumerates."""

    method = "enumeration"

    def __init__(self, problems: Sequence[BaseProblem]) -> None:
        self._problems = problems
        allowed = torch.stack([problem.allowed for problem in problems])
        observed = torch.stack([problem.observed_actions for problem in problems])
        self._options = allowed.scatter(2, observed.unsqueeze(-1), False)  # [P, T, A]

    def root(self) -> Tensor:
        """Infinite for every change [P, K, T, A]."""
        return _infinite_where(self._options, self._problems[0].max_changes)

    def children(self, nodes: Nodes) -> Tensor:
        """Infinite for every later change [N, K - level, T, A]."""
        steps = torch.arange(self._options.shape[1], device=self._options.device)
        later = (steps >= nodes.start.unsqueeze(1)).unsqueeze(-1)
        return _infinite_where(self._options[nodes.problem] & later, nodes.budgets(self._problems[0].max_changes))


def _infinite_where(options: Tensor, budgets: int) -> Tensor:
    bounds = torch.where(options, torch.inf, -torch.inf).to(torch.float64)
    return bounds.unsqueeze(1).expand(-1, budgets, -1, -1)


def unknown_as_infinite(bounds: Tensor) -> Tensor:
    """NaN, where states or rewards overflowed, as infinity: comparisons with NaN would prune silently."""
    return torch.where(bounds.isnan(), torch.inf, bounds)
