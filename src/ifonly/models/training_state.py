"""Where the training of many models stands, on disk: one that was killed goes on from there, to the same weights."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ifonly.files import atomic_file, require_ordinary
from ifonly.models.checkpoint import write_tensors
from ifonly.version import __version__

SECONDS_BETWEEN = 20.0
"""Between two writings: a kill costs no more than this."""


class TrainingState:
    """A file with the tensors of a training that is under way; of another training, or damaged, it says nothing."""

    def __init__(self, path: Path, *request: object) -> None:
        """`request` is all that the training depends on."""
        self.path = path
        self._request = hashlib.sha256(repr((__version__, torch.__version__, *request)).encode()).hexdigest()
        self._written = time.monotonic()

    def read(self) -> dict[str, Tensor] | None:
        """The tensors of the last writing; None where there is none of this training."""
        if not self.path.is_file():
            return None
        require_ordinary(self.path)
        try:
            with safe_open(self.path, framework="pt") as file:
                told = file.metadata() or {}
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no mapping
        except (OSError, SafetensorError):
            return None
        fits = told.get("request") == self._request and told.get("digest") == _digest(found)
        return found if fits else None

    def keep(self, tensors: Callable[[], Mapping[str, Tensor]], *, last: bool = False) -> None:
        """Write the tensors down, unless that was done a moment ago; the `last` ones always."""
        if time.monotonic() - self._written < SECONDS_BETWEEN and not last:
            return
        found = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors().items()}
        with atomic_file(self.path) as scratch:
            write_tensors(found, scratch, metadata={"request": self._request, "digest": _digest(found)})
        self._written = time.monotonic()


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """By which a file that was altered is recognised."""
    found = hashlib.sha256()
    for name in sorted(tensors):
        found.update(f"{name} {tensors[name].dtype} {list(tensors[name].shape)}".encode())
        found.update(tensors[name].numpy().tobytes())
    return found.hexdigest()
