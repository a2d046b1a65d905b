"""Which actions a search may change to, as a predicate of the state that is reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from ifonly.errors import InputError
from ifonly.models.base import TransitionModel
from ifonly.query import Query


@runtime_checkable
class Support(Protocol):
    """Says which actions may be changed to at a state, for instance those that recorded data support there.

    A changed action is admissible only if it is supported at the counterfactual state that its own sequence has
    reached; recorded actions always are. Every row must be judged by itself, deterministically.
    """

    def supported(self, t: int, states: Tensor, context: Tensor) -> Tensor:
        """Which actions (bool [N, A]) are supported at step t, for states [N, D] and context [N, C].

        Both are float64, in the scaled coordinates of the model, on its device.
        """

    def settings(self) -> Mapping[str, Any]:
        """What it is, with its settings, in plain types: results keep them, and `verify` compares them."""


@runtime_checkable
class SupportSource(Protocol):
    """Something that provides a support for any threshold, such as a behaviour model."""

    def with_threshold(self, min_support: float, model: TransitionModel, /) -> Support:
        """The support that requires a probability of at least `min_support`, in the coordinates of `model`."""


def support_for(query: Query, model: TransitionModel, given: Support | SupportSource | None) -> Support | None:
    """The support that the query's changes need: the one given, or that of a source at `min_support`."""
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
