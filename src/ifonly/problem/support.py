"""What an action must have behind it before a search may change to it: a predicate of the state that is reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from ifonly.errors import InputError
from ifonly.models.base import TransitionModel
from ifonly.query import Query


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


@runtime_checkable
class SupportSource(Protocol):
    """What gives a support for any threshold, such as a behaviour model."""

    def with_threshold(self, min_support: float, model: TransitionModel, /) -> Support:
        """The support that demands a probability of at least `min_support`, in the coordinates of `model`."""


def support_for(query: Query, model: TransitionModel, given: Support | SupportSource | None) -> Support | None:
    """What the query's changes must have behind them: the support given, or the source's at `min_support`."""
    if query.min_support is None:
        return None if given is not None and _is_source(given) else given  # type: ignore[return-value]
    if given is None:
        raise InputError(
            f"the query admits only changes with a support of at least {query.min_support:g}, which takes a behaviour "
            "model to judge by (fit_behaviour, `ifonly behaviour`)."
        )
    if isinstance(given, Support) and given.settings().get("min_support") == query.min_support:
        return given
    if not isinstance(given, SupportSource):
        raise InputError(
            f"the query asks for a min_support of {query.min_support:g}, which {type(given).__name__} cannot judge by; "
            "pass a behaviour model, or leave min_support out of the query."
        )
    return given.with_threshold(query.min_support, model)


def _is_source(given: object) -> bool:
    return isinstance(given, SupportSource) and not isinstance(given, Support)
