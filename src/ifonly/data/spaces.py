"""Spaces of Gymnasium as schemas: a Box of numbers is the state, a finite set of choices are the actions.

Spaces are known by what they have, never by import: those of Gymnasium, of Gym before it, and any like them will do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ifonly.data.plain import check_size
from ifonly.data.schema import ActionSpace, Axis, Feature, Schema
from ifonly.errors import InputError

NO_LIMIT = 1e30
"""Limits of a Box from here on say nothing: tasks write the largest float for "none"."""


def schema_from_spaces(
    observation: Any,
    action: Any,
    *,
    features: Sequence[str] | None = None,
    actions: Sequence[str] | None = None,
    step_length: float = 1.0,
    step_unit: str = "step",
) -> Schema:
    """The schema of a task with these spaces: a Box of observations; Discrete, MultiDiscrete or MultiBinary actions.

    `features` names the entries of an observation, `actions` the choices of a Discrete space or the axes of the others.
    All features are dynamic, and limits of the Box are plausible ranges. For units, scaling and features that no action
    changes, write a schema of your own.

    >>> from types import SimpleNamespace as Space
    >>> box, switch = Space(low=[-4.8, -1e38], high=[4.8, 1e38], shape=(2,)), Space(n=2, start=0, shape=())
    >>> schema = schema_from_spaces(box, switch, features=["place", "speed"], actions=["left", "right"])
    >>> [feature.plausible for feature in schema.features], schema.actions.labels
    ([(-4.8, 4.8), None], ('left', 'right'))
    """
    return Schema(_features(observation, features), _actions(action, actions), step_length, step_unit)


def first_choices(action: Any) -> npt.NDArray[np.int64]:
    """The number that a space gives to its first choice, on each axis: zeros, as a rule."""
    return np.ravel(np.asarray(getattr(action, "start", 0), dtype=np.int64))


def _features(space: Any, names: Sequence[str] | None) -> tuple[Feature, ...]:
    if not hasattr(space, "low") or not hasattr(space, "high"):
        raise InputError(
            f"observation space {_kind(space)}: the state must be a Box of numbers; flatten it first (Gymnasium has "
            "wrappers for it), or choose its columns and give them with a schema to Cohort.from_logs."
        )
    low, high = np.asarray(space.low, dtype=np.float64), np.asarray(space.high, dtype=np.float64)
    if low.ndim != 1:
        raise InputError(
            f"observation space {_kind(space)} of shape {list(low.shape)}: the state must be one row of numbers; "
            "pictures are no state that a model here could predict."
        )
    words = _names("features", names, [f"observation {i}" for i in range(len(low))])
    limits = [(a, b) if max(abs(a), abs(b)) < NO_LIMIT else None for a, b in zip(low, high, strict=True)]
    return tuple(Feature(name, "dynamic", plausible=limit) for name, limit in zip(words, limits, strict=True))


def _actions(space: Any, names: Sequence[str] | None) -> ActionSpace:
    shape = tuple(getattr(space, "shape", None) or ())
    first = first_choices(space)
    if hasattr(space, "nvec"):
        counts = np.asarray(space.nvec)
    elif hasattr(space, "n") and shape:
        counts = np.full(shape, 2)
    elif hasattr(space, "n"):
        size = int(space.n)
        check_size("action space", size, size)
        return ActionSpace.categories(_names("actions", names, [f"action {first[0] + i}" for i in range(size)]))
    else:
        raise InputError(
            f"action space {_kind(space)}: a search chooses among finitely many actions, so it must be Discrete, "
            "MultiDiscrete or MultiBinary; cut continuous actions into levels first, and give the log of the levels."
        )
    if counts.ndim != 1:
        raise InputError(f"action space {_kind(space)} of shape {list(counts.shape)}: its choices must be one row.")
    check_size("action space: combinations of choices", math.prod(int(count) for count in counts), len(counts))
    words = _names("actions", names, [f"choice {i}" for i in range(len(counts))])
    starts = np.broadcast_to(first, counts.shape)
    return ActionSpace.product(
        *(
            Axis(name, "", tuple(float(start + level) for level in range(int(count))))
            for name, start, count in zip(words, starts, counts, strict=True)
        )
    )


def _names(what: str, given: Sequence[str] | None, otherwise: list[str]) -> list[str]:
    if given is not None and len(given) != len(otherwise):
        raise InputError(f"{what}: {len(given)} names for {len(otherwise)}; give one for each, or none at all.")
    return otherwise if given is None else list(given)


def _kind(space: Any) -> str:
    return type(space).__name__
