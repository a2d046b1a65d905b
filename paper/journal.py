"""The finished cells of a folder, each written down at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ifonly.errors import StoreError
from ifonly.journal import Journal

FORMAT = "paper"
VERSION = 1


class FinishedCells:
    """Rows of finished cells by their keys, kept in a journal; of a cell that was measured again, the latest.

    Its first line says what all cells have in common; a journal made under other conditions is refused. With
    `read_only` nothing is written, not even what a run that was stopped left half-written is cut off: another process
    may be writing it just now. Without, the caller keeps other processes away (`ifonly.journal.alone`).
    """

    def __init__(self, path: Path, header: Mapping[str, Any], *, read_only: bool = False) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self._file = _journal(path)
        wanted = {"format": FORMAT, "version": VERSION, **header}
        end = self._read(wanted) if path.exists() else 0
        if read_only:
            return
        if end:
            self._file.cut(end)  # what was being written when a run stopped
        else:
            self._begin(json.dumps(wanted))

    def add(self, key: str, row: Mapping[str, Any]) -> None:
        """Note a finished cell; it is on disk when this returns."""
        self._file.append([json.dumps({"cell": key, "row": row}, allow_nan=False)])
        self.rows[key] = dict(row)

    def _read(self, wanted: Mapping[str, Any]) -> int:
        """Take over what the file holds; returns where its last complete line ends."""
        end = 0
        for line in self._file.lines():
            if line.number == 1:
                _require_same(self._file.path, self._file.checked(line, {"format", "version"}), wanted)
            else:
                entry = self._file.checked(line, {"cell", "row"})
                self.rows[entry["cell"]] = entry["row"]
            end = line.end
        return end

    def _begin(self, header: str) -> None:
        path = self._file.path
        if path.exists() and not f"{header}\n".encode().startswith(path.read_bytes()):
            raise self._file.broken(1)  # not ours, and not a first line cut off: never overwritten
        self._file.cut(0)
        self._file.append([header])


def read_header(path: Path) -> dict[str, Any]:
    """What all cells of a journal have in common."""
    if not path.is_file():
        raise StoreError(f"{path} does not exist; no experiment was run in this folder.")
    journal = _journal(path)
    first = next(journal.lines(), None)
    if first is None:
        raise journal.broken(1)
    return journal.checked(first, {"format", "version"})


def _journal(path: Path) -> Journal:
    return Journal(path, "journal of experiments", "choose another folder")


def _require_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    differing = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    if differing:
        details = "; ".join(f"{key}: {found.get(key)} there, {wanted.get(key)} now" for key in differing)
        raise StoreError(
            f"{path.parent} holds experiments made under other conditions ({details}). Go on with the same cohort, "
            "model and settings, or choose another folder."
        )
