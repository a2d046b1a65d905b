"""The classes of models that checkpoints know, by the name that they have there."""

from __future__ import annotations

from typing import TypeVar

from ifonly.errors import InputError
from ifonly.models.base import TransitionModel

_KINDS: dict[str, type[TransitionModel]] = {}

ModelClass = TypeVar("ModelClass", bound=type[TransitionModel])


def register(model_class: ModelClass) -> ModelClass:
    """Let checkpoints hold models of this class, under its `kind`; usable as a class decorator."""
    kind = model_class.kind
    if not kind:
        raise InputError(f"{model_class.__name__}: give the class a `kind`, the name it has in checkpoints.")
    known = _KINDS.setdefault(kind, model_class)
    # A class that is defined anew (a reloaded module, a notebook cell) takes the place of its older self.
    if known.__qualname__ != model_class.__qualname__:
        raise InputError(f"{model_class.__name__}: the kind {kind!r} already belongs to {known.__name__}.")
    _KINDS[kind] = model_class
    return model_class


def registered_kinds() -> tuple[str, ...]:
    """The kinds of model that can be saved and loaded."""
    return tuple(sorted(_KINDS))


def class_of(kind: str) -> type[TransitionModel] | None:
    """The class registered under this name; None if there is none."""
    return _KINDS.get(kind)
