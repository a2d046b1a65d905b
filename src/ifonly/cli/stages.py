"""Work in stages that is not done twice: every product is kept with the settings it was made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ifonly.errors import StoreError
from ifonly.files import sha256_of, write_text_atomically
from ifonly.version import __version__

RECORD = "stages.json"
FORMAT = "ifonly.stages"


@dataclass(frozen=True)
class Product:
    """What a stage made."""

    digest: str
    """A hash of settings and files; a later stage that names it in its settings is made anew when it changes."""
    reused: bool


class Stages:
    """A folder whose files are made in stages, and a record of how.

    A stage is made again when its settings or the version of ifonly differ from the recorded ones, or when one of its
    files is missing or is not what was written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        record = folder / RECORD
        if folder.exists() and not record.exists() and any(folder.iterdir()):
            raise StoreError(f"{folder} holds other things, and no {RECORD}; choose an empty or a new folder.")
        self._made = _read_record(record)
        self._current: set[str] = set()

    def make(self, name: str, settings: Mapping[str, Any], files: Sequence[str], work: Callable[[], None]) -> Product:
        """Let `work` write `files` (paths inside the folder), unless they are there, made from these settings."""
        self._current.add(name)
        wanted = json.loads(json.dumps({"ifonly": __version__, **settings}))  # as it will be read back
        made = self._made.get(name, {})
        if made.get("settings") == wanted and made.get("files") == self._checksums(files):
            return Product(_digest(made), reused=True)
        self._made.pop(name, None)
        self._write_record()  # before the first file, so that an interrupted run leaves a folder known as ours
        work()
        self._made[name] = {"settings": wanted, "files": self._checksums(files)}
        self._write_record()
        return Product(_digest(self._made[name]), reused=False)

    def discard_others(self) -> None:
        """Remove what earlier runs made and this one did not, unless somebody has changed it since."""
        others = [name for name in self._made if name not in self._current]
        for name in others:
            for file, checksum in self._made.pop(name).get("files", {}).items():
                if self._checksums([file])[file] == checksum:
                    (self.folder / file).unlink()
        if others:
            self._write_record()

    def _write_record(self) -> None:
        content = {"format": FORMAT, "stages": self._made}
        write_text_atomically(self.folder / RECORD, json.dumps(content, indent=2) + "\n")

    def _checksums(self, files: Sequence[str]) -> dict[str, str | None]:
        paths = {name: self.folder / name for name in files}
        return {name: sha256_of(path) if path.is_file() else None for name, path in paths.items()}


def _read_record(record: Path) -> dict[str, Any]:
    """What was recorded; nothing if the record is broken, so that everything is made again."""
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        return {}
    made = content.get("stages") if isinstance(content, dict) and content.get("format") == FORMAT else None
    return made if isinstance(made, dict) and all(isinstance(stage, dict) for stage in made.values()) else {}


def _digest(made: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:16]
