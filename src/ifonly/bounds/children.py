"""What a branch-and-bound search needs: for nodes that were rolled out, bounds on everything below their children."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Nodes:
    """Sequences with `level` changes so far, rolled out: after the last change the observed actions follow.

    `problem` says which of P problems a node belongs to, `start` the first step at which it may change again. Nodes of
    panels have states and outcomes under every member, [N, T, M, D] and [N, M].
    """

    level: int
    problem: Tensor  # [N]
    start: Tensor  # [N]
    states: Tensor  # [N, T, D]
    outcomes: Tensor  # [N]


class ChildBound(ABC):
    """Bounds for P problems that share model, reward, horizon and budget K."""

    method: str
    """What the bounds rest on, for the certificate."""
    rests_on_constants: bool = False
    """Whether they rest on Lipschitz constants, those that somebody declared for a reward among them."""

    @abstractmethod
    def root(self) -> Tensor:
        """For the observed sequences [P, K, T, A], as `children` gives them for any node."""

    @abstractmethod
    def children(self, nodes: Nodes) -> Tensor:
        """Upper bounds [N, K - level, T, A] on outcomes: entry (r-1, c, a) holds for every sequence that continues the
        node by the observed actions up to step c, takes a there, and has at most r changes beyond the node's.

        Minus infinity where (c, a) is no change, is not allowed or lies before `start`; infinite where nothing is
        known; never NaN.
        """

    @property
    def looks_onward(self) -> bool:
        """Whether `onward` knows more than `children`."""
        return False

    def onward(self, t: int, problem: Tensor, states: Tensor, further: int, needed: Tensor | None = None) -> Tensor:
        """Upper bounds [N, R + 1] on the rewards from step t on, from states [N, D] of problems [N]: entry r holds for
        the observed actions with at most r changes. For panels [N, R + 1, M], from states [N, M, D].

        Bounds that are less than `needed` [N, R + 1] need not be sharp.
        """
        raise NotImplementedError(f"{type(self).__name__} does not look onward.")

    def details(self, problem: int = 0) -> Mapping[str, Any]:
        """Constants and sizes worth recording in the certificate of one of the P problems, as plain types."""
        return {}
