"""Logged control episodes, as learners of policies keep them, as episodes of a schema.

A log has one observation more than actions: the one after the last action. It becomes a step of its own, so that no
effect is lost; its action, which nobody took, is written as the one before it, and like the last action of any episode
has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ifonly.data.episode import Episode, FloatArray, IntArray, Rows, as_matrix
from ifonly.data.schema import ActionSpace, Feature, Schema
from ifonly.data.spaces import first_choices, schema_from_spaces
from ifonly.errors import InputError

ENDS = ("terminations", "truncations")


def log_episodes(log: Any, schema: Schema | None = None) -> Iterator[Episode]:
    """The episodes of a log: an iterable of them, or a dataset of Minari or of d3rlpy; a cohort checks their values."""
    action_space = getattr(log, "action_space", None)
    first = np.zeros(1, dtype=np.int64) if action_space is None else first_choices(action_space)
    described = schema or _schema_of(log)
    for position, record in enumerate(_records(log)):
        yield _episode(record, position, described, first)


def action_numbers(where: str, values: Any, actions: ActionSpace, first: IntArray) -> IntArray:
    """Logged actions as the schema numbers them [T]: numbers of actions [T] or [T, 1], or a level of each axis [T, K].

    `first` is what the log calls the first choice, on each axis.
    """
    logged = np.asarray(values)
    if logged.ndim == 2 and logged.shape[1] == 1:
        logged = logged[:, 0]
    if logged.dtype.kind not in "iufb" or logged.ndim not in (1, 2) or (logged != np.floor(logged)).any():
        raise InputError(
            f"{where}: actions must be whole numbers, one per step or one per step and axis; cut continuous actions "
            "into levels first."
        )
    whole = logged.astype(np.int64) - (first if logged.ndim == 2 else first[0])
    sizes = (len(actions),) if whole.ndim == 1 else tuple(len(axis.levels) for axis in actions.axes)
    levels = whole.reshape(len(whole), -1)
    if levels.shape[1] != len(sizes):
        raise InputError(
            f"{where}: {levels.shape[1]} choices per step; the schema's actions have {len(actions.axes)} axes."
        )
    wrong = np.flatnonzero(((levels < 0) | (levels >= np.array(sizes))).any(axis=1))
    if wrong.size:
        raise InputError(f"{where}, step {int(wrong[0])}: the action is none of the schema's {len(actions)}.")
    return np.asarray(np.ravel_multi_index(tuple(levels.T), sizes), dtype=np.int64)


def log_columns(episode: Episode) -> tuple[FloatArray, IntArray]:
    """An episode as a log has it: all features in the schema's order [T, D + C], and a level of each axis [T - 1, K].

    Without axes the actions are their numbers [T - 1]. The last action, of which no effect is recorded, is left out.
    """
    actions, taken = episode.schema.actions, episode.actions[:-1]
    parts = {"dynamic": iter(episode.states.T), "context": iter(episode.context.T)}
    columns = [next(parts["dynamic" if f.kind == "dynamic" else "context"]) for f in episode.schema.features]
    return np.column_stack(columns), np.array(actions.levels, dtype=np.int64)[taken] if actions.axes else taken.copy()


def _records(log: Any) -> Iterable[Any]:
    """Minari's datasets and d3rlpy's have a name for their episodes."""
    records: Iterable[Any] = (
        log.iterate_episodes() if hasattr(log, "iterate_episodes") else getattr(log, "episodes", log)
    )
    return records


def _schema_of(log: Any) -> Schema:
    """As the dataset describes itself."""
    if hasattr(log, "observation_space") and hasattr(log, "action_space"):
        return schema_from_spaces(log.observation_space, log.action_space)
    about = getattr(log, "dataset_info", None)
    if about is None:
        raise InputError(
            "the log does not say what it holds; give a schema: schema_from_spaces(environment.observation_space, "
            "environment.action_space), or one of your own."
        )
    if getattr(about.action_space, "name", "") != "DISCRETE":
        raise InputError(
            "the dataset's actions are continuous, and a search chooses among finitely many; cut them into levels "
            "first."
        )
    shapes = [tuple(shape) for shape in about.observation_signature.shape]
    if len(shapes) != 1 or len(shapes[0]) != 1:
        raise InputError(
            f"the dataset's observations have the shapes {shapes}; a state is one row of numbers: choose the columns "
            "that matter, and give them with a schema."
        )
    features = tuple(Feature(f"observation {i}", "dynamic") for i in range(shapes[0][0]))
    return Schema(features, ActionSpace.categories(f"action {i}" for i in range(about.action_size)))


def _episode(record: Any, position: int, schema: Schema, first: IntArray) -> Episode:
    name = _part(record, "id", position)
    id = name if isinstance(name, str) else f"episode-{name}"
    where = f"episode {id!r}"
    seen = as_matrix(f"{where}: observations", _required(record, "observations", where))
    if seen.shape[1] != len(schema.features):
        raise InputError(
            f"{where}: observations have {seen.shape[1]} entries; the schema lists {len(schema.features)} features."
        )
    actions = action_numbers(where, _required(record, "actions", where), schema.actions, first)
    if len(seen) not in (len(actions), len(actions) + 1):
        raise InputError(
            f"{where}: {len(seen)} observations for {len(actions)} actions; there must be one for each, or one more, "
            "the one after the last action."
        )
    _require_one_end(record, where)
    actions = np.append(actions, actions[-1:]) if len(seen) > len(actions) else actions
    dynamic = np.array([feature.kind == "dynamic" for feature in schema.features])
    return Episode.trusted(id, id, Rows(schema, seen[:, dynamic], seen[:, ~dynamic], actions))


def _require_one_end(record: Any, where: str) -> None:
    """Refuse a log that goes on after an end: it holds more than one episode."""
    for name in ENDS:
        ended: npt.NDArray[np.bool_] = np.ravel(np.asarray(_part(record, name, []), dtype=bool))
        early = np.flatnonzero(ended[:-1])
        if early.size:
            raise InputError(
                f"{where}, step {int(early[0])}: the log goes on after an end ({name}); cut it into episodes there."
            )


def _required(record: Any, name: str, where: str) -> Any:
    values = _part(record, name, None)
    if values is None:
        raise InputError(f"{where}: has no {name}; a logged episode needs observations and actions.")
    if isinstance(values, Mapping | tuple):
        raise InputError(
            f"{where}: {name} are a {type(values).__name__} of several parts; choose the columns that matter, put them "
            "into one table [steps, columns], and give that with a schema."
        )
    return values


def _part(record: Any, name: str, otherwise: Any) -> Any:
    if isinstance(record, Mapping):
        return record.get(name, otherwise)
    return getattr(record, name, otherwise)
