"""How a task reaches the processes that work on it: once each, and kept there."""

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
"""Tasks that a worker process keeps; one that outlives its run may serve several."""

_kept: dict[str, Task] = {}


@dataclass(frozen=True)
class Parcel:
    """A task to send: the name under which workers keep it, and its content."""

    name: str
    content: bytes


def pack(task: Task) -> Parcel:
    """The task, to be sent to other processes. (It is never stored in a file.)"""
    try:
        content = _pickled(task)
    except Exception as error:
        raise InputError(
            f"the model, the reward or the solver cannot be sent to other processes ({type(error).__name__}: {error}); "
            "define what it is made of at the top level of a module, or solve in this process (workers=1)."
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
    """What a worker does: answer the query of the parcel `name` for some episodes.

    None says that this worker has not seen the parcel yet: it must be sent along as `content`. The `ticket` tells
    calls apart where an executor would take equal calls for the same one, as Dask does.
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
