"""Datasets of Minari: read by name, and stored."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ifonly.data.control_logs import log_columns
from ifonly.data.episode import Episode
from ifonly.data.schema import Schema
from ifonly.errors import InputError, StoreError

Rewards = Callable[[Episode], Sequence[float]]
"""The rewards [T - 1] of all actions of an episode but the last."""

NOT_GIVEN = r"`\w+` is set to None|env_spec is None"
"""How Minari's warnings begin about what it was not told."""


def load_minari(dataset: Any) -> Any:
    """The dataset of this name on this machine; anything else is a dataset already."""
    if not isinstance(dataset, str):
        return dataset
    minari = _module("minari", "to read a dataset of Minari by its name")
    try:
        return minari.load_dataset(dataset)
    except FileNotFoundError:
        raise StoreError(
            f"Minari has no dataset {dataset!r} on this machine; `minari list local` shows what there is, and `minari "
            "download` gets one."
        ) from None


def store_in_minari(
    episodes: Iterable[Episode], schema: Schema, name: str, rewards: Rewards | None, about: Mapping[str, Any]
) -> Any:
    """Store episodes as a dataset of this name, and give that back; `about` is what Minari is told besides."""
    minari = _module("minari", "to store a dataset of Minari")
    collected = importlib.import_module("minari.data_collector")
    buffers = [_buffer(collected.EpisodeBuffer, position, one, rewards) for position, one in enumerate(episodes)]
    observation, action = _spaces(schema)
    description = f"Features: {', '.join(feature.label for feature in schema.features)}."
    with warnings.catch_warnings():
        # Records need not have an author or an environment; Minari warns of each that is not given.
        warnings.filterwarnings("ignore", NOT_GIVEN, UserWarning)
        return minari.create_dataset_from_buffers(
            dataset_id=name,
            buffer=buffers,
            observation_space=observation,
            action_space=action,
            **{"algorithm_name": "recorded", "description": description, **about},
        )


def _buffer(kind: Any, position: int, episode: Episode, rewards: Rewards | None) -> Any:
    seen, actions = log_columns(episode)
    given = np.zeros(len(actions)) if rewards is None else np.asarray(rewards(episode), dtype=np.float64)
    if given.shape != (len(actions),):
        raise InputError(
            f"episode {episode.id!r}: rewards of shape {list(given.shape)}; there must be one for each of "
            f"{len(actions)} actions, the last one left out."
        )
    # The record ends there; nothing says that the task did.
    cut = np.arange(len(actions)) == len(actions) - 1
    return kind(
        id=position,
        observations=seen,
        actions=actions,
        rewards=given.tolist(),
        terminations=np.zeros(len(actions), dtype=bool).tolist(),
        truncations=cut.tolist(),
    )


def _spaces(schema: Schema) -> tuple[Any, Any]:
    """The spaces of what `log_columns` gives."""
    spaces = _module("gymnasium.spaces", "to describe spaces")
    width, actions = len(schema.features), schema.actions
    observation = spaces.Box(-np.inf, np.inf, shape=(width,), dtype=np.float64)
    if actions.axes:
        return observation, spaces.MultiDiscrete([len(axis.levels) for axis in actions.axes])
    return observation, spaces.Discrete(len(actions))


def _module(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f"{what}, install Minari: pip install 'ifonly[minari]'.") from None
