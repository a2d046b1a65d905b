"""What an action must have behind it before a search may change to it: a predicate of the state that is reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Support(Protocol):
    """Says, state by state, which actions may be changed to: those that data supports there, for instance.

    A changed action is admissible only where this holds at the counterfactual state that its own sequence has reached;
    recorded actions always are. It must judge every row by itself, whatever else is in the batch, and always alike.
    """

    def supported(self, t: int, states: Tensor, context: Tensor) -> Tensor:
        """Which actions (bool [N, A]) are supported at step t, for states [N, D] and context [N, C].

        Both are float64, in the scaled coordinates of the model, on its device.
        """

    def settings(self) -> Mapping[str, Any]:
        """What it is and with which settings, as plain types: a result keeps them, and `verify` compares them."""
