"""Sending a task to worker processes: once to each, which keeps it."""

from __future__ import annotations

import hashlib
import importlib.util
import pickle
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ifonly.errors import IfonlyError, InputError
from ifonly.runs.task import Answer, Placed, Task
from ifonly.version import __version__

MOST_KEPT = 4
"""Tasks that a worker process keeps; a process that outlives its run may serve several runs."""

_kept: dict[str, Task] = {}


@dataclass(frozen=True)
class Parcel:
    """A pickled task, and the name under which workers keep it."""

    name: str
    content: bytes


def pack(task: Task) -> Parcel:
    """Pickle the task for other processes. (It is never stored in a file.)"""
    try:
        content = _pickled(task)
    except Exception as error:
        raise InputError(
            f"the model, the reward or the solver cannot be sent to other processes ({type(error).__name__}: {error}); "
            "define its classes and functions at the top level of a module, or solve in this process (workers=1)."
        ) from error
    return Parcel(hashlib.sha256(content).hexdigest(), content)


def _pickled(task: Task) -> bytes:
    if importlib.util.find_spec("cloudpickle") is not None:  # comes with Dask; knows functions of notebooks, too
        content: bytes = importlib.import_module("cloudpickle").dumps(task)
        return content
    return pickle.dumps(task)


def solve_parcel(
    name: str, content: bytes | None, episodes: Sequence[Placed], version: str, ticket: int
) -> list[Answer] | None:
    """Runs in a worker: answer the query of the parcel `name` for some episodes.

    None means that this worker does not have the parcel yet, and needs it as `content`. The `ticket` makes calls
    unique, since some executors, such as Dask, take equal calls for the same one.
    """
    if version != __version__:
        raise IfonlyError(f"a worker runs ifonly {__version__}, the run was begun by {version}; install the same.")
    torch.set_num_threads(1)
    task = _kept.get(name)
    if task is None:
        if content is None:
            return None
        task = _kept[name] = pickle.loads(content)
        for old in list(_kept)[:-MOST_KEPT]:
            _kept.pop(old, None)
    return task.answer(episodes)
