"""Tables of a build, kept as Parquet files with a record of what each was made from, so that none is made twice."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ifonly.data.plain import read_plain
from ifonly.errors import StoreError
from ifonly.files import atomic_file, write_text_atomically

FORMAT = "ifonly-clinical-stage"
VERSION = 1

CODE = Path(__file__).parent

Counts = dict[str, Any]


def code_of(*modules: str) -> str:
    """A checksum of modules of this room, for recipes: what other code made is made again."""
    content = hashlib.sha256()
    for module in modules:
        content.update((CODE / f"{module}.py").read_bytes())
    return content.hexdigest()


@dataclass
class TableCache:
    """The tables kept in one folder, and the counts that go with them."""

    folder: Path
    keys: dict[str, str] = field(default_factory=dict)
    counts: dict[str, Counts] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """Where the stage `name` keeps its table."""
        return self.folder / f"{name}.parquet"

    def make(self, name: str, recipe: Any, build: Callable[[Path], Counts]) -> bool:
        """Make the stage, unless it is there, complete, and made by the same `recipe`; say whether it was made.

        `build` writes the table to the path that it gets and returns counts. The table takes its name only when
        `build` ends well.
        """
        key = hashlib.sha256(json.dumps([FORMAT, VERSION, recipe], sort_keys=True).encode()).hexdigest()
        self.keys[name] = key
        known = self._known(name, key)
        if known is not None:
            self.counts[name] = known
            return False
        record = self._record(name)
        record.unlink(missing_ok=True)  # without a record the old table is never used again
        with atomic_file(self.path(name)) as scratch:
            counts = build(scratch)
            size = scratch.stat().st_size
        content = {"format": FORMAT, "version": VERSION, "key": key, "bytes": size, "counts": counts}
        write_text_atomically(record, json.dumps(content, indent=1) + "\n")
        self.counts[name] = counts
        return True

    def _record(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def _known(self, name: str, key: str) -> Counts | None:
        """The counts of a finished stage of this recipe; None if there is none."""
        try:
            content = read_plain(self._record(name))
            same = content["key"] == key and self.path(name).stat().st_size == content["bytes"]
            counts: Counts = content["counts"]
        except (OSError, StoreError, KeyError, TypeError):
            return None
        return counts if same else None
