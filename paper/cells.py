"""Cells of a study, each in a file of its own: found again, refused where they were made under other settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import torch

from ifonly.errors import StoreError
from ifonly.files import write_text_atomically
from ifonly.progress import Progress, Tick, silent
from paper.bench import differences


class HasFile(Protocol):
    """Settings of a cell: a dataclass that knows its file's name."""

    @property
    def file(self) -> str:
        """Where the cell is kept, in the folder of the study."""


class StoredCell(Protocol):
    """What came out for some settings."""

    @property
    def settings(self) -> Any:
        """A dataclass (`HasFile`)."""

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""


CellT = TypeVar("CellT", bound=StoredCell)
SettingsT = TypeVar("SettingsT", bound=HasFile)
Measure = Callable[[SettingsT], CellT]
"""Makes a cell; a function that other processes can import."""


@dataclass(frozen=True)
class CellFolder(Generic[CellT]):
    """The cells of one study."""

    folder: Path
    kind: type[CellT]
    format: Mapping[str, Any]
    """The entries by which its files are known."""

    def find(self, settings: HasFile) -> CellT | None:
        """A cell that was measured already; None where there is none. One of other settings is refused."""
        path = self.folder / settings.file
        if not path.exists():
            return None
        cell = self._read(path)
        if differing := differences(asdict(cell.settings), asdict(settings)):  # type: ignore[call-overload]
            raise StoreError(f"{path} was made under other settings ({differing}); choose another folder.")
        return cell

    def all(self) -> list[CellT]:
        """All that the folder holds, by the names of the files."""
        return [self._read(path) for path in sorted(self.folder.glob("*.json"))]

    def keep(self, cell: CellT) -> None:
        """Write a cell down, whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(cell.to_dict(), indent=1, allow_nan=False) + "\n"
        write_text_atomically(self.folder / cell.settings.file, text)

    def carry_out(
        self,
        cells: Sequence[SettingsT],
        measure: Measure[SettingsT, CellT],
        *,
        workers: int = 1,
        progress: Progress = silent,
    ) -> list[CellT]:
        """Measure every cell that the folder does not hold, in so many processes of one thread each, and keep each as
        soon as it is finished; all of them."""
        missing = [settings for settings in cells if self.find(settings) is None]  # refused before any work
        done = len(cells) - len(missing)
        progress(Tick("cells", done, len(cells)))
        for number, _ in enumerate(self._kept(missing, measure, workers), start=done + 1):
            progress(Tick("cells", number, len(cells)))
        return [cell for settings in cells if (cell := self.find(settings)) is not None]

    def _kept(self, missing: Sequence[SettingsT], measure: Measure[SettingsT, CellT], workers: int) -> Iterator[None]:
        """Measure and keep these cells; one item as soon as one is finished. A single worker is this very process."""
        if workers == 1:
            for settings in missing:
                self._measure(settings, measure)
                yield
            return
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            begun = [pool.submit(self._measure, settings, measure) for settings in missing]
            yield from (finished.result() for finished in as_completed(begun))

    def _measure(self, settings: SettingsT, measure: Measure[SettingsT, CellT]) -> None:
        """Measure one cell and write it down."""
        torch.set_num_threads(1)
        self.keep(measure(settings))

    def _read(self, path: Path) -> CellT:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if {name: content.get(name) for name in self.format} != dict(self.format):
                raise StoreError(f"{path}: not a cell of this study.")
            return self.kind.from_dict(content)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{path}: not a cell of this study ({type(error).__name__}).") from None
