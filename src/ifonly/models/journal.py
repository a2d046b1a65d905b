"""A journal of work in cells: what is finished is written down at once, so that a run can go on where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ifonly.errors import StoreError

FORMAT = "ifonly.cross-validation-journal"
VERSION = 1


class Journal:
    """Finished cells by name; with a path, kept in a file to which each is appended as one line.

    The first line says what all cells have in common (`settings`); a journal of other settings is refused.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.finished: dict[str, float] = {}
        if path is not None:
            self._open(path, json.dumps({"format": FORMAT, "version": VERSION, **settings}))

    def add(self, name: str, log_likelihood: float) -> None:
        """Note a finished cell."""
        self.finished[name] = log_likelihood
        if self.path is not None:
            _append_line(self.path, json.dumps({"cell": name, "log_likelihood": log_likelihood}))

    def _open(self, path: Path, header: str) -> None:
        if path.is_dir():
            raise StoreError(f"{path} is a folder, and a journal is to be written there; choose another file name.")
        content = path.read_bytes() if path.exists() else b""
        if f"{header}\n".encode().startswith(content):  # nothing yet, or cut off while the first line was written
            path.parent.mkdir(parents=True, exist_ok=True)
            _cut(path, 0)
            _append_line(path, header)
            return
        complete = content[: content.rfind(b"\n") + 1]
        lines = complete.decode("utf-8", errors="replace").splitlines()
        _check_header(path, lines[0] if lines else "", header)
        for number, line in enumerate(lines[1:], start=2):
            entry = _read_object(path, number, line, keys={"cell", "log_likelihood"})
            self.finished[entry["cell"]] = float(entry["log_likelihood"])
        _cut(path, len(complete))  # a last line without its end was being written when the run stopped


def _append_line(path: Path, line: str) -> None:
    """Append in a single write that is on disk when this returns."""
    with path.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())
        os.fsync(file.fileno())


def _cut(path: Path, size: int) -> None:
    with path.open("ab") as file:
        file.truncate(size)


def _read_object(path: Path, number: int, line: str, *, keys: set[str]) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        entry = None
    if not isinstance(entry, dict) or not keys <= set(entry):
        raise StoreError(
            f"{path}, line {number}: not a line of a cross-validation journal; choose another file name, or start "
            "again without it (`ifonly crossval --force` does)."
        )
    return entry


def _check_header(path: Path, line: str, expected: str) -> None:
    found, wanted = _read_object(path, 1, line, keys={"format"}), json.loads(expected)
    differing = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    if differing:
        details = "; ".join(f"{key}: {found.get(key)} there, {wanted.get(key)} now" for key in differing)
        raise StoreError(
            f"{path} is the journal of another cross-validation ({details}). Go on with the same data and settings, "
            "choose another file name, or start again without it (`ifonly crossval --force` does)."
        )
