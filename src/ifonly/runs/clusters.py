"""Workers beyond this machine: the scheduler of a Dask cluster."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ifonly.errors import InputError

SECONDS_TO_CONNECT = 10


def share_over_dask(executor: Any) -> Callable[[bytes], Any] | None:
    """How to give bytes to all workers of a Dask executor; None for an executor of another kind.

    What it returns may be an argument of any call: workers pass it on to each other, once each. It is the result of a
    call itself, so that the scheduler has it made again should all who hold it die.
    """
    client = getattr(executor, "_client", None)  # its class has no other way to tell
    if client is None or not hasattr(client, "get_executor"):
        return None
    return partial(client.submit, bytes, pure=False)


@contextmanager
def dask_client(address: str) -> Iterator[Any]:
    """A client of the Dask scheduler at `address` (tcp://host:8786), for the `executor` of `solve_cohort`."""
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise InputError(
            "to work with a Dask scheduler, install Dask: pip install 'ifonly[dask]'; the same on every worker."
        ) from None
    try:
        client = distributed.Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address} ({type(error).__name__}); start one with `dask scheduler`, and "
            "give the address that it names."
        ) from None
    with client:
        yield client
