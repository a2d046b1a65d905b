"""What a cross-validation has finished, by cell, so that it can go on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ifonly.errors import StoreError
from ifonly.journal import Journal

FORMAT = "ifonly.cross-validation-journal"
VERSION = 1
KIND = "cross-validation journal"
ADVICE = "choose another file name, or start again without it (`ifonly crossval --force` does)"


class CellJournal:
    """Finished cells by name; with a path, kept in a file to which each is appended as one line.

    The first line says what all cells have in common (`settings`); a journal of other settings is refused.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        self.finished: dict[str, float] = {}
        self._file = None if path is None else Journal(path, KIND, ADVICE)
        if self._file is not None:
            self._open(self._file, json.dumps({"format": FORMAT, "version": VERSION, **settings}))

    def add(self, name: str, log_likelihood: float) -> None:
        """Note a finished cell."""
        self.finished[name] = log_likelihood
        if self._file is not None:
            self._file.append([json.dumps({"cell": name, "log_likelihood": log_likelihood})])

    def _open(self, file: Journal, header: str) -> None:
        if file.path.is_dir():
            raise StoreError(
                f"{file.path} is a folder, and a journal is to be written there; choose another file name."
            )
        if _is_only_a_beginning(file.path, header):
            file.path.parent.mkdir(parents=True, exist_ok=True)
            file.cut(0)
            file.append([header])
            return
        end = 0
        for line in file.lines():
            end = line.end
            if line.number == 1:
                _check_header(file, file.checked(line, {"format"}), header)
            else:
                entry = file.checked(line, {"cell", "log_likelihood"})
                self.finished[entry["cell"]] = float(entry["log_likelihood"])
        if not end:
            raise file.broken(1)
        file.cut(end)


def _is_only_a_beginning(path: Path, header: str) -> bool:
    """Whether there is nothing yet, or a file that was cut off while its first line was written."""
    whole = f"{header}\n".encode()
    if not path.exists():
        return True
    with path.open("rb") as file:
        return whole.startswith(file.read(len(whole) + 1))


def _check_header(file: Journal, found: Mapping[str, Any], expected: str) -> None:
    wanted = json.loads(expected)
    differing = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    if differing:
        details = "; ".join(f"{key}: {found.get(key)} there, {wanted.get(key)} now" for key in differing)
        raise StoreError(
            f"{file.path} is the journal of another cross-validation ({details}). Go on with the same data and "
            f"settings, {ADVICE}."
        )
