"""Writing tables, figures and pages: where it fails, the message names the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from ifonly.errors import StoreError
from paper.runner import JOURNAL


@contextmanager
def stored(path: Path) -> Iterator[None]:
    """Say which file could not be written, should that fail inside the block."""
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise StoreError(
            f"{path}: cannot be written ({reason}). Every measurement is kept in {JOURNAL}: make room, and give the "
            "same command again."
        ) from error
