"""What every kind of clinical source offers: typed rows, made stage by stage, by the names that rules know."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ifonly.clinical.cache import Counts
from ifonly.clinical.database import Database

Report = Callable[[float], None]
"""Takes the fraction that is done."""


@dataclass(frozen=True)
class ExtractStage:
    """Rows to make: their name, what they depend on, and how they are written, counted and shown."""

    name: str
    recipe: dict[str, Any]
    write: Callable[[Path, Report], Counts]
    shown: str
    """The name under which progress is told."""
    size: int = 1
    """What progress counts: bytes of a file, or one."""


class ClinicalSource(Protocol):
    """A folder of one kind, recognised. Whatever offers this can be read, cleaned and built like any other."""

    @property
    def release(self) -> str:
        """What the data are called; rules may depend on it."""

    @property
    def items(self) -> Mapping[str, Any]:
        """Which numbers in a column `item` stand for what, in the form of the packaged list of MIMIC."""

    @property
    def rows(self) -> Collection[str]:
        """The names of the typed rows that rules find."""

    def stages(self, database: Database) -> Iterator[ExtractStage]:
        """Typed rows in the order in which they are made; each can be read as `raw_<name>` by the next."""

    def notes(self, database: Database, counts: Mapping[str, Counts]) -> Iterator[str]:
        """What a reader should know about the source, in sentences; `counts` by the names of stages."""
