"""What a bound is: a number that no continuation can exceed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor


class UpperBound(ABC):
    """An upper bound on what is still attainable from any state of one problem (the paper's heuristic)."""

    method: str
    """What the bound rests on, for the certificate."""

    @abstractmethod
    def __call__(self, t: int, states: Tensor, changes_used: Tensor) -> Tensor:
        """Bounds [N] on the rewards from step t on, for states [N, D] with `changes_used` [N] changes behind them.

        Never below the truth V(s, l, t); infinite where nothing is known, never NaN.
        """

    def details(self) -> Mapping[str, Any]:
        """Constants and sizes worth recording in a certificate, as plain types."""
        return {}
